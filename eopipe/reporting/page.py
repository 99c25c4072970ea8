"""The page as HTML: everything inline, nothing from the network, no script.

Each run gives the parts of its page, and the template has a block for each part.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined

from eopipe import __version__
from eopipe.areas.areas_document import AreasDocument
from eopipe.arrays import FloatArray
from eopipe.evaluation.metrics_document import AnyMetrics, LabelMetrics, ValueMetrics
from eopipe.labels.shape_counts import shape_sentences
from eopipe.reporting import data_tables, scores, training_curves
from eopipe.reporting.area_tables import estimated_areas
from eopipe.reporting.cards import Card
from eopipe.reporting.charts import MIN_BIN_SAMPLES, error_charts, reliability_chart, ridge_chart
from eopipe.reporting.palette import CONFIDENCE_COLORS, SPLIT_COLORS
from eopipe.reporting.panels import CORRECT, INCORRECT, UNTESTED, PanelGroup
from eopipe.reporting.run_data import MappedRun, RunData
from eopipe.reporting.task_parts import change_sections, label_sections
from eopipe.reporting.verdict import verdict
from eopipe.reporting.wording import (
    baseline_text,
    calibration_text,
    describe_test,
    format_length,
    format_score,
    join_words,
    plural,
    round_length,
    scored_size,
)
from eopipe.tasks import TASKS

TEMPLATE, STYLE = "page.html", "style.css"
ERROR_COLORS = {"correct": CORRECT, "incorrect": INCORRECT, "outside the test area": UNTESTED}
# What a run may lack.
NO_PARTS: dict[str, Any] = {
    **dict.fromkeys(("methods", "cards", "charts", "areas", "ranges", "unlike_training", "trained_class_rows"), ()),
    **dict.fromkeys(("share_tables", "label_examples", "class_balance", "shape_sentences"), ()),
    **dict.fromkeys(("fold_scores", "member_scores", "scene_scores"), ((), ())),
    **{name: dict[str, str]() for name in ("error_legend", "split_legend")},
    **dict.fromkeys(("baseline_note", "map_note", "omitted_note", "like_training", "reliability"), ""),
    **dict.fromkeys(("change", "leaderboard", "estimated"), None),
}


def render(run: MappedRun, parts: Mapping[str, Any], cards: Sequence[Card]) -> str:
    """The page with its parts and the cards in it; every text from outside is escaped."""
    context = NO_PARTS | _parts_of_map(run) | (scored_parts(run.metrics) if run.metrics else {})
    context |= dict(parts) | {"cards": cards, "tables": _tables(run) | parts.get("tables", {})}
    titles = {
        "scores": context["methods"],
        "maps": True,
        "areas": run.estimated,
        "errors": "error_charts" in context,
        "classes": context.get("class_rows"),
        "training": "training_length" in context,
        "data": True,
        "model": True,
        "cards": cards,
        "provenance": True,
    }
    context["contents"] = {name: name.capitalize() for name, is_there in titles.items() if is_there}
    return page_environment().get_template(TEMPLATE).render(context)


def render_areas(document: AreasDocument) -> str:
    """The page of estimated areas alone; every text from outside is escaped."""
    title = f"Areas of {join_words([each.name for each in document.maps])}"
    context = {"run": {"title": title}, "estimated": estimated_areas(document)}
    context |= {"version": __version__, "style": page_source(STYLE)}
    return page_environment().get_template("areas.html").render(context)


def page_environment() -> Environment:
    """The environment of the templates of pages."""
    environment = Environment(
        loader=FunctionLoader(page_source),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"plural": plural}
    return environment


def page_source(name: str) -> str:
    """The text of a template or style sheet."""
    return (files("eopipe.reporting") / name).read_text(encoding="utf-8")


def _parts_of_map(run: MappedRun) -> dict[str, Any]:
    """What every page has: legend, maps and images."""
    outliers = set(run.quality.outliers)
    has_confidence = TASKS[run.model["task"]].maps_classes
    return {
        "run": run,
        "estimated": estimated_areas(run.estimated) if run.estimated else None,
        "version": __version__,
        "style": page_source(STYLE),
        "legend": {} if run.scale else dict(zip(run.classes, run.colors, strict=True)),
        "scale_bar": partial(scale_bar, run.step * run.pixel[0]),
        "confidence_colors": ", ".join(CONFIDENCE_COLORS) if has_confidence else "",
        "chance": format_score(1 / max(len(run.classes), 2)),
        "ridge_charts": [ridge_chart(band, run.quality.scenes, outliers) for band in run.quality.bands],
        "scene_heads": data_tables.scene_heads(None),
    }


def scored_parts(metrics: AnyMetrics) -> dict[str, Any]:
    """What a page has of any scores of a map."""
    return change_sections(metrics.change) | {
        "scored_size": scored_size(metrics),
        "methods_heads": ("Method", *(name for _, name in scores.measures_of(metrics.task))),
        "interval_note": scores.interval_note(metrics),
        "score_note": TASKS[metrics.task].explanation,
        "member_scores": scores.member_score_rows(metrics),
        "scene_scores": scores.scene_score_rows(metrics),
        "unit": metrics.sample,
        "calibration_text": calibration_text(metrics),
        "reliability": reliability_chart(metrics.calibration) if metrics.calibration else "",
        "min_bin": MIN_BIN_SAMPLES,
    }


def training_parts(run: RunData) -> dict[str, Any]:
    """The parts of a page of a training."""
    metrics, split = run.metrics, run.split
    splits = dict(zip(("train", "validation", "test"), SPLIT_COLORS, strict=True))
    return {
        "verdict": verdict(metrics),
        "test_areas": f"{describe_test(split)} {data_tables.gap_text(split, run.pairs)}",
        "shape_sentences": shape_sentences(split.shapes),
        "split_unit": data_tables.split_unit(split),
        "sheet_uri": run.sheet_uri,
        "split_legend": {} if run.sheet else splits,
        "omitted_note": ", spread evenly over those with test areas; the scores are of all maps",
        "training_length": str(run.training_length or ""),
        "charts": training_curves.training_charts(run.history, run.task),
        "best_validation": training_curves.best_validation(run.history, run.task, metrics.unit),
        "training_limits": run.training_limits,
        "baseline_note": baseline_text(metrics),
        "fold_scores": scores.fold_score_rows(run.folds, metrics),
        "leaderboard": run.leaderboard,
        "scene_heads": data_tables.scene_heads(split),
        "tables": _tables_of_split(run),
        **_parts_of_task(run),
    }


def _parts_of_task(run: RunData) -> dict[str, Any]:
    """What differs between maps of classes and of values; the latter have no confusion matrix and no confidence."""
    metrics = run.metrics
    if isinstance(metrics, ValueMetrics):
        return {
            "methods": scores.method_rows(metrics),
            "error_charts": error_charts(*_tested_values(run), run.classes[0], metrics.unit),
        }
    of_classes = {"class_balance": data_tables.class_balance(run.split, run.colors)}
    if isinstance(metrics, LabelMetrics):
        return of_classes | label_sections(metrics, run.maps, run.model["chip"], run.step)
    return of_classes | scores.class_parts(metrics) | {"error_legend": ERROR_COLORS}


def _tested_values(run: RunData) -> tuple[FloatArray, FloatArray]:
    """Values of label and map (n,) of the test pixels in the images of all maps."""
    views = [view for view in run.maps if view.values]
    parts = [(view.values.label[view.tested], view.values.mapped[view.tested]) for view in views if view.values]
    label, mapped = (np.concatenate([part[n] for part in parts] or [np.empty(0, np.float32)]) for n in (0, 1))
    return label, mapped


def _tables_of_split(run: RunData) -> dict[str, Any]:
    return {
        "scenes": data_tables.scene_rows(run.items, run.stores, run.quality.outliers, run.split),
        "pixels": data_tables.pixel_rows(run.split),
        "chips": data_tables.chip_rows(run.split),
        "gaps": data_tables.gap_rows(run.split, run.pairs),
        "findings": data_tables.finding_rows(run.split),
    }


def scale_bar(metres: float, group: PanelGroup) -> tuple[float, str]:
    """Share of the width of a panel that a round length takes, and that length as text; `metres` is a pixel's width."""
    width = group.width * metres
    length = round_length(0.35 * width)
    return length / width, format_length(length)


def _tables(run: MappedRun) -> dict[str, Any]:
    return {
        "scenes": data_tables.scene_rows(run.items, run.stores, run.quality.outliers, None),
        "model": data_tables.model_rows(run.model),
        "defaults": data_tables.default_rows(run.model),
        "licences": data_tables.licences(run.items),
        "citations": data_tables.citations(run.items),
        "credits": data_tables.credit_lines(run.items),
        "chips": (),
    }
