"""The page as HTML: everything inline, nothing from the network, no script."""

from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined

from eopipe import __version__
from eopipe.arrays import FloatArray
from eopipe.evaluation.metrics_document import LabelMetrics, ValueMetrics
from eopipe.labels.shape_counts import shape_sentences
from eopipe.reporting import data_tables, scores
from eopipe.reporting.cards import Card
from eopipe.reporting.change import change_sections
from eopipe.reporting.charts import MIN_BIN_SAMPLES, error_charts, reliability_chart, ridge_chart
from eopipe.reporting.chip_sheet import draw_chip_sheet, sheet_uri
from eopipe.reporting.multilabel import label_sections
from eopipe.reporting.palette import CONFIDENCE_COLORS, SPLIT_COLORS
from eopipe.reporting.panels import CORRECT, INCORRECT, UNTESTED, PanelGroup
from eopipe.reporting.run_data import RunData
from eopipe.reporting.verdict import verdict
from eopipe.reporting.wording import (
    BASELINES,
    baseline_text,
    calibration_text,
    describe_test,
    format_length,
    format_score,
    plural,
    round_length,
    scored_size,
)

TEMPLATE, STYLE = "page.html", "style.css"


def render(run: RunData, cards: tuple[Card, ...]) -> str:
    """The page with the cards in it; every text from outside is escaped."""
    sections = _context(run) | _scores(run) | change_sections(run.metrics.change)
    return page_environment().get_template(TEMPLATE).render(sections | {"cards": cards})


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


def write_picture(target: Path | BinaryIO, run: RunData) -> None:
    """Write the map of a run, or the sheet of a chip set, as PNG."""
    if run.sheet is None:
        run.write_map(target)
    else:
        draw_chip_sheet(target, run.sheet, *_sheet_texts(run))


def _sheet_texts(run: RunData) -> tuple[tuple[str, str, str], dict[str, str]]:
    return (run.title, run.subtitle, run.attribution), dict(zip(run.classes, run.colors, strict=True))


def page_source(name: str) -> str:
    """The text of a template or style sheet."""
    return (files("eopipe.reporting") / name).read_text(encoding="utf-8")


def _context(run: RunData) -> dict[str, Any]:
    outliers = set(run.quality.outliers)
    return {
        "run": run,
        "version": __version__,
        "style": page_source(STYLE),
        "test_areas": describe_test(run.split),
        "gap": data_tables.gap_text(run.split, run.pairs),
        "shape_sentences": shape_sentences(run.split.shapes),
        "scored_size": scored_size(run.metrics),
        "unit": run.metrics.sample,
        "split_unit": data_tables.split_unit(run.split),
        "legend": {} if run.scale else dict(zip(run.classes, run.colors, strict=True)),
        "sheet_uri": sheet_uri(run.sheet, *_sheet_texts(run)) if run.sheet else "",
        "scale_bar": partial(scale_bar, run.step * run.pixel[0]),
        "confidence_colors": ", ".join(CONFIDENCE_COLORS),
        "split_legend": dict(zip(("train", "validation", "test"), SPLIT_COLORS, strict=True)),
        "ridge_charts": [ridge_chart(band, run.quality.scenes, outliers) for band in run.quality.bands],
        "training_length": str(run.training_length or ""),
        "training_limits": run.training_limits,
        "interval_note": scores.interval_note(run.metrics),
        "baseline_note": baseline_text(run.metrics),
        "fold_scores": scores.fold_score_rows(run.folds, run.metrics),
        "member_scores": scores.member_score_rows(run.metrics),
        "scene_scores": scores.scene_score_rows(run.metrics),
        "tables": _tables(run),
    }


def _scores(run: RunData) -> dict[str, Any]:
    """What differs between maps of classes and of values; the latter have no confusion matrix and no confidence."""
    metrics = run.metrics
    if isinstance(metrics, LabelMetrics):
        return label_sections(metrics, run.maps, run.model["chip"], run.step) | _training(run)
    if isinstance(metrics, ValueMetrics):
        return {
            "verdict": verdict(metrics),
            "measures": [name for _, name in scores.VALUE_MEASURES],
            "methods": scores.value_method_rows(metrics),
            "charts": scores.value_training_charts(run.history),
            "best_validation": scores.best_value_validation(run.history, metrics.unit),
            "error_legend": {},
            "error_charts": error_charts(*_tested_values(run), run.classes[0], metrics.unit),
            "class_balance": [],
            "calibration_text": "",
        }
    return _training(run) | {
        "methods": scores.method_rows(metrics),
        "confusion": scores.confusion_rows(metrics),
        "per_class": scores.class_rows(metrics),
        "baseline": BASELINES[metrics.chosen],
        "chance": format_score(1 / max(len(run.classes), 2)),
        "error_legend": {"correct": CORRECT, "incorrect": INCORRECT, "outside the test area": UNTESTED},
    }


def _training(run: RunData) -> dict[str, Any]:
    """Verdict, curves, class balance and calibration of classes and of several labels."""
    return {
        "verdict": verdict(run.metrics),
        "measures": [name for _, name in scores.measures_of(run.task)],
        "charts": scores.training_charts(run.history),
        "best_validation": scores.best_validation(run.history),
        "class_balance": data_tables.class_balance(run.split, run.colors),
        "calibration_text": calibration_text(run.metrics),
        "reliability": reliability_chart(run.metrics.calibration) if run.metrics.calibration else "",
        "min_bin": MIN_BIN_SAMPLES,
    }


def _tested_values(run: RunData) -> tuple[FloatArray, FloatArray]:
    """Values of label and map (n,) of the test pixels in the images of all maps."""
    views = [view for view in run.maps if view.values]
    parts = [(view.values.label[view.tested], view.values.mapped[view.tested]) for view in views if view.values]
    label, mapped = (np.concatenate([part[n] for part in parts] or [np.empty(0, np.float32)]) for n in (0, 1))
    return label, mapped


def scale_bar(metres: float, group: PanelGroup) -> tuple[float, str]:
    """Share of the width of a panel that a round length takes, and that length as text; `metres` is a pixel's width."""
    width = group.width * metres
    length = round_length(0.35 * width)
    return length / width, format_length(length)


def _tables(run: RunData) -> dict[str, Any]:
    return {
        "scenes": data_tables.scene_rows(run.items, run.stores, run.quality.outliers, run.split),
        "pixels": data_tables.pixel_rows(run.split),
        "chips": data_tables.chip_rows(run.split),
        "gaps": data_tables.gap_rows(run.split, run.pairs),
        "model": data_tables.model_rows(run.model),
        "defaults": data_tables.default_rows(run.model),
        "licences": data_tables.licences(run.items),
        "citations": data_tables.citations(run.items),
        "credits": data_tables.credit_lines(run.items),
        "findings": data_tables.finding_rows(run.split),
    }
