"""The pages as HTML, of one run and of several compared: everything inline, nothing from the network, no script.

Each run gives the parts of its page, and the template has a block for each part.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, FunctionLoader, StrictUndefined

from eopipe import __version__
from eopipe.areas.areas_document import AreasDocument
from eopipe.arrays import FloatArray
from eopipe.evaluation.intervals import LEVEL
from eopipe.evaluation.maps import EvaluatedMap, EvaluationData
from eopipe.evaluation.metrics_document import AnyMetrics, LabelMetrics, ValueMetrics
from eopipe.evaluation.paired import RunComparison
from eopipe.evaluation.trials import PLACES, RankedTrials
from eopipe.labels.vectors import shape_sentences
from eopipe.reporting import charts, data_tables
from eopipe.reporting import scores as score_tables
from eopipe.reporting.cards import Card
from eopipe.reporting.chip_sheet import ChipSheet, read_chip_sheet, sheet_uri
from eopipe.reporting.decimation import Decimation, decimate, read_centres, windows_of_stores
from eopipe.reporting.figures import CONFIDENCE_COLORS, SPLIT_COLORS, ValueScale, class_colors
from eopipe.reporting.leaderboard import Leaderboard, difference_text
from eopipe.reporting.panels import CORRECT, INCORRECT, UNTESTED, ImagePanel, PanelGroup, encode_classes, outline
from eopipe.reporting.rasters import LONGEST_EDGE_OF_MANY, MapFile, bounding_window, read_map_image, spread_evenly
from eopipe.reporting.run_data import MappedRun, RunData
from eopipe.reporting.scores import TextTable
from eopipe.reporting.series import PageSection, PeriodSeries
from eopipe.reporting.split_maps import TITLES
from eopipe.reporting.task_parts import change_sections, estimated_areas, label_sections
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
    score_text,
    scored_size,
)
from eopipe.tasks import TASKS
from eopipe.tiles.ground import pixel_metres
from eopipe.tiles.store import NO_LABEL
from eopipe.trial_settings import format_settings

STYLE = "style.css"
ERROR_COLORS = {"correct": CORRECT, "incorrect": INCORRECT, "outside the test area": UNTESTED}
# Where the maps of two runs are right, at the labelled test pixels of an image; elsewhere they are not compared.
OUTCOME_COLORS = ("#a9c7dc", "#1f6feb", "#d1490c", "#4a4a46", "#e9e9e6")
NOTE = (
    "An interval says how far a difference would move on other places like these. It knows nothing of seeds: a "
    "training with another seed gives another map too."
)
# The best trials whose scores and maps are side by side.
MAX_COMPARED = 4
# Cawley and Talbot 2010, JMLR 11:2079: what is optimised over is biased.
BIAS = (
    "The best of several scores is too high on average, since chance is a part of it; the score in the test places is "
    "not. The intervals are of one difference each, and not adjusted for the number of trials."
)
# What a run may lack.
NO_PARTS: dict[str, Any] = {
    **dict.fromkeys(("methods", "cards", "charts", "areas", "ranges", "unlike_training", "trained_class_rows"), ()),
    **dict.fromkeys(("share_tables", "label_examples", "class_balance", "shape_sentences"), ()),
    **dict.fromkeys(("fold_scores", "member_scores", "scene_scores"), ((), ())),
    **{name: dict[str, str]() for name in ("error_legend", "split_legend")},
    **dict.fromkeys(("baseline_note", "map_note", "omitted_note", "like_training", "reliability"), ""),
    **dict.fromkeys(("change", "leaderboard", "estimated"), None),
}


class ComparedPanels(NamedTuple):
    """The maps of runs side by side, the colours of the classes, and metres of a pixel of the images.

    For a chip set it is its sheet, since neighbours in a store are not neighbours on the ground.
    """

    groups: list[PanelGroup]
    legend: dict[str, str]
    pixel_m: float
    sheet: ChipSheet | None = None


def render(run: MappedRun, parts: Mapping[str, Any], cards: Sequence[Card]) -> str:
    """The page with its parts and the cards in it; every text from outside is escaped."""
    context = NO_PARTS | _parts_of_map(run) | (scored_parts(run.metrics) if run.metrics else {})
    context |= dict(parts) | {"cards": cards, "tables": context["tables"] | parts.get("tables", {})}
    sections = {
        "scores": context["methods"],
        "maps": True,
        "areas": run.estimated,
        "errors": "error_charts" in context,
        "classes": context.get("class_rows"),
        "training": "best_validation" in context,
        "data": True,
        "model": True,
        "cards": cards,
        "provenance": True,
    }
    return _render_template("page.html", sections, context)


def _render_template(name: str, sections: Mapping[str, Any], context: dict[str, Any]) -> str:
    """The page of a template with those of its sections that are true."""
    contents = {section: section.capitalize() for section, is_there in sections.items() if is_there}
    common = {"contents": contents, "version": __version__, "style": page_source(STYLE)}
    return page_environment().get_template(name).render(common | context)


def render_areas(document: AreasDocument) -> str:
    """The page of estimated areas alone; every text from outside is escaped."""
    title, areas = f"Areas of {join_words([each.name for each in document.maps])}", estimated_areas(document)
    parts = [
        PageSection("areas", "Areas from a probability sample", areas.sentences, areas.tables),
        PageSection("sample", "Sample", tables=areas.sample, notes=areas.notes),
    ]
    return _render_tables("eopipe areas", title, parts)


def render_series(series: PeriodSeries) -> str:
    """The page of maps of periods; every text from outside is escaped."""
    title = f"{series.periods[0].name} to {series.periods[-1].name}"
    panels = ComparedPanels(series.panels(), dict(zip(series.classes, series.colors(), strict=True)), series.pixel_m)
    return _render_tables("eopipe comparison", title, series.sections(), panels)


def _render_tables(
    kind: str, title: str, parts: Sequence[PageSection], panels: ComparedPanels | None = None, names: Sequence[str] = ()
) -> str:
    """A page of sections with tables, below them maps side by side: of runs by their names, or of periods."""
    groups, legend, pixel_m, sheet = panels or ComparedPanels([], {}, 0.0)
    first = names[0] if names else ""
    outcomes = ("both right", f"only {first} right", "only the other right", "both wrong", "other places")
    texts = "Worst, median and best chips", f"In the order of the errors of {first}.", ""
    context: dict[str, Any] = {
        "kind": kind,
        "run": {"title": title},
        "parts": parts,
        "groups": groups,
        "legend": legend,
        "sheet": sheet,
        "sheet_uri": sheet_uri(sheet, texts, legend) if sheet else "",
        "outcomes": dict(zip(outcomes, OUTCOME_COLORS, strict=True)) if names and legend else {},
        "scale_bar": partial(scale_bar, pixel_m),
    }
    sections = dict.fromkeys((part.id for part in parts), True) | {"maps": bool(groups or sheet)}
    return _render_template("tables.html", sections, context)


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
    outliers, split = set(run.quality.outliers), run.split if isinstance(run, RunData) else None
    has_confidence = TASKS[run.model["task"]].maps_classes
    return {
        "run": run,
        "estimated": estimated_areas(run.estimated) if run.estimated else None,
        "legend": {} if run.scale else dict(zip(run.classes, run.colors, strict=True)),
        "scale_bar": partial(scale_bar, run.step * run.pixel[0]),
        "confidence_colors": ", ".join(CONFIDENCE_COLORS) if has_confidence else "",
        "chance": format_score(1 / max(len(run.classes), 2)),
        "ridge_charts": [charts.ridge_chart(band, run.quality.scenes, outliers) for band in run.quality.bands],
        "scene_heads": data_tables.scene_heads(split),
        "tables": {
            "scenes": data_tables.scene_rows(run.items, run.stores, run.quality.outliers, split),
            "model": data_tables.model_rows(run.model),
            "defaults": data_tables.default_rows(run.model),
            "licences": data_tables.licences(run.items),
            "citations": data_tables.citations(run.items),
            "credits": data_tables.credit_lines(run.items),
            "chips": (),
        },
    }


def scored_parts(metrics: AnyMetrics) -> dict[str, Any]:
    """What a page has of any scores of a map."""
    return change_sections(metrics.change) | {
        "scored_size": scored_size(metrics),
        "methods_heads": ("Method", *(name for _, name in score_tables.measures_of(metrics.task))),
        "interval_note": score_tables.interval_note(metrics),
        "score_note": TASKS[metrics.task].explanation,
        "member_scores": score_tables.member_score_rows(metrics),
        "scene_scores": score_tables.scene_score_rows(metrics),
        "unit": metrics.sample,
        "calibration_text": calibration_text(metrics),
        "reliability": charts.reliability_chart(metrics.calibration) if metrics.calibration else "",
        "min_bin": charts.MIN_BIN_SAMPLES,
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
        "split_legend": {} if run.sheet else splits,
        "omitted_note": ", spread evenly over those with test areas; the scores are of all maps",
        "charts": charts.training_charts(run.history, metrics.task),
        "best_validation": charts.best_validation(run.history, metrics.task, metrics.unit),
        "baseline_note": baseline_text(metrics),
        "fold_scores": score_tables.fold_score_rows(run.folds, metrics),
        "leaderboard": run.leaderboard,
        "tables": {
            "pixels": data_tables.pixel_rows(split),
            "chips": data_tables.chip_rows(split),
            "gaps": data_tables.gap_rows(split, run.pairs),
            "findings": data_tables.finding_rows(split),
        },
        **_parts_of_task(run),
    }


def _parts_of_task(run: RunData) -> dict[str, Any]:
    """What differs between maps of classes and of values; the latter have no confusion matrix and no confidence."""
    metrics = run.metrics
    if isinstance(metrics, ValueMetrics):
        return {
            "methods": score_tables.method_rows(metrics),
            "error_charts": charts.error_charts(*_tested_values(run), run.classes[0], metrics.unit),
        }
    of_classes = {"class_balance": data_tables.class_balance(run.split, run.colors)}
    if isinstance(metrics, LabelMetrics):
        return of_classes | label_sections(metrics, run.maps, run.model["chip"], run.step)
    return of_classes | score_tables.class_parts(metrics) | {"error_legend": ERROR_COLORS}


def _tested_values(run: RunData) -> tuple[FloatArray, FloatArray]:
    """Values of label and map (n,) of the test pixels in the images of all maps."""
    parts = [(view.values.label[view.tested], view.values.mapped[view.tested]) for view in run.maps if view.values]
    label, mapped = (np.concatenate([part[n] for part in parts] or [np.empty(0, np.float32)]) for n in (0, 1))
    return label, mapped


def scale_bar(metres: float, group: PanelGroup) -> tuple[float, str]:
    """Share of the width of a panel that a round length takes, and that length as text; `metres` is a pixel's width."""
    width = group.width * metres
    length = round_length(0.35 * width)
    return length / width, format_length(length)


def _size_text(comparison: RunComparison, data: EvaluationData, split: str) -> str:
    """On how many samples the scores rest, as text."""
    pieces = plural(comparison.pieces, "piece")
    return f"{plural(comparison.count, f'{TITLES[split].lower()} {data.task.sample}')} that all runs have, in {pieces}"


def score_table(comparison: RunComparison, names: Sequence[str], data: EvaluationData, split: str) -> TextTable:
    """Scores: of each run, then of each other run minus the first, with the paired interval."""
    heads = ("Score", *names, *(f"{name} minus {names[0]} ({100 * LEVEL:.0f} %)" for name in names[1:]))
    rows, class_score = list[tuple[str, ...]](), data.task.class_score
    titles = dict(score_tables.measures_of(data.task.name)) | {
        f"{class_score}:{name}": f"{score_tables.OF_CLASS[class_score]} {name}" for name in data.names
    }
    for key, title in titles.items():
        if key in comparison.runs[0].scores:
            values = [score_text(run.scores[key], key, data.unit) for run in comparison.runs]
            differences = [difference_text(run, key, data.unit) for run in comparison.runs[1:]]
            rows.append((title, *values, *differences))
    return TextTable(f"Scores on {_size_text(comparison, data, split)}", heads, rows)


def read_panels(runs: Sequence[EvaluationData], names: Sequence[str], split: str) -> ComparedPanels:
    """The maps of runs with their places of a split; none of several labels for each chip. At most six of each run."""
    first, groups = runs[0], list[PanelGroup]()
    if first.task.has_label_sets:
        return ComparedPanels([], {}, 0.0)
    frame, decimation = first.frame, decimate(first.frame.shape, LONGEST_EDGE_OF_MANY)
    scale = None if first.task.has_classes else _scale_of(first, split)
    colors = scale.colors if scale else class_colors(first.names, ())
    if sheet := _read_sheet(runs, names, split):
        return ComparedPanels([], dict(zip(first.names, colors, strict=True)), 0.0, sheet)
    for number in spread_evenly(range(len(first.groups))):
        maps = [run.groups[number] for run in runs]
        heading = "" if len(first.groups) == 1 else maps[0].stores[0].scene
        groups.append(_map_panels(first, maps, names, decimation, (heading, split, colors, scale)))
    legend = {} if scale else dict(zip(first.names, colors, strict=True))
    return ComparedPanels(groups, legend, decimation.step * pixel_metres(frame.cells[0].grid)[0])


def _read_sheet(runs: Sequence[EvaluationData], names: Sequence[str], split: str) -> ChipSheet | None:
    """The sheet of a chip set with the maps of runs; None where scenes are mapped."""
    pairs = [(group.stores[0], group.label) for group in runs[0].groups]
    files = [[MapFile(group.stores[0].scene, group.paths, {}) for group in run.groups] for run in runs]
    return read_chip_sheet(dict(zip(names, files, strict=True)), pairs, runs[0].split, None, split)


def _scale_of(run: EvaluationData, split: str) -> ValueScale:
    """The colours of values: from the least to the greatest label of the places of a split."""
    ends = [(float(pixels.truth.min()), float(pixels.truth.max())) for pixels in run.pixels(split)]
    return ValueScale(min(low for low, _ in ends), max(high for _, high in ends), run.unit)


def _map_panels(
    run: EvaluationData,
    maps: list[EvaluatedMap],
    names: Sequence[str],
    decimation: Decimation,
    style: tuple[str, str, tuple[str, ...], ValueScale | None],
) -> PanelGroup:
    """The labels, the map of each run, and where each other run is right and the first is not."""
    heading, split, colors, scale = style
    reached = windows_of_stores(decimation, maps[0].stores, run.split.chip)
    blank = np.nan if scale else NO_LABEL
    label = read_centres(maps[0].truth, decimation, reached, blank)
    stored = [read_map_image(map_.paths.values(), run.frame, decimation, reached) for map_ in maps]
    mapped = [image.values if scale else image.classes for image in stored]
    tested = read_centres(lambda y, x: run.area(split, maps[0], (y, x)), decimation, reached, False)
    images = [scale.numbers(numbers) if scale else numbers for numbers in (label, *mapped)]
    window = bounding_window(np.any([numbers != NO_LABEL for numbers in images], axis=0))
    panels = [
        ImagePanel(title, f"{title}.", encode_classes(np.asarray(numbers[window], np.uint8), colors))
        for title, numbers in zip(("Label", *names), images, strict=True)
    ]
    for name, other in zip(names[1:], mapped[1:], strict=True) if not scale else ():
        known = tested & (label != NO_LABEL) & (mapped[0] != NO_LABEL) & (other != NO_LABEL)
        outcome = 2 * (mapped[0] != label) + (other != label)
        # Right in both, in the first alone, in the other alone, in none.
        numbers = np.where(known, np.array([0, 1, 2, 3])[outcome], 4).astype(np.uint8)
        text = f"Where {names[0]} alone is right pixels are blue, where {name} alone is right orange"
        panels.append(ImagePanel(f"{names[0]} and {name}", f"{text}.", encode_classes(numbers[window], OUTCOME_COLORS)))
    area = tested[window]
    return PanelGroup(heading, panels, outline(area), area.shape[1], area.shape[0])


def render_comparison(names: Sequence[str], scores: TextTable, settings: TextTable, panels: ComparedPanels) -> str:
    """The page of finished runs; every text from outside is escaped."""
    same = [] if settings.rows else ["None: the runs have the same settings, code and data."]
    parts = [
        PageSection("scores", "Scores", tables=[scores], notes=[NOTE]),
        PageSection("settings", "Settings that differ", same, [settings] if settings.rows else []),
    ]
    return _render_tables("eopipe comparison", " and ".join(names), parts, panels, names)


def render_trials(ranked: RankedTrials) -> str:
    """The page of the trials of a run; every text from outside is escaped."""
    first, names = ranked.runs[0], [model.name for model in ranked.models[:MAX_COMPARED]]
    options = {name: value for name, value in ranked.settings[0].items() if value is not None}
    settings = format_settings(options) or f"Trial {ranked.winner.name}"
    title = f"{settings}: the best of {plural(len(ranked.models), 'trial')}"
    best = f"the {plural(len(names), 'best trial')}" if len(names) > 1 else names[0]
    board = Leaderboard(ranked.json_document(), first.task.name, first.unit)
    best_trials = replace(ranked.comparison, runs=ranked.comparison.runs[:MAX_COMPARED])
    scores = score_table(best_trials, names, first, PLACES)
    trials = TextTable(f"Trials: {scores.caption[0].lower()}{scores.caption[1:]}", board.heads, board.rows)
    parts = [
        PageSection("leaderboard", "Leaderboard", board.sentences, [trials], [NOTE, BIAS]),
        PageSection("scores", f"All scores of {best}", tables=[scores]),
    ]
    panels = read_panels(ranked.runs[:MAX_COMPARED], names, PLACES)
    return _render_tables("eopipe trials", title, parts, panels, names)
