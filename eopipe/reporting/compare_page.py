"""Runs, or the trials of a run, compared on one page: scores with paired intervals, settings, maps side by side."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from eopipe import __version__
from eopipe.evaluation.intervals import LEVEL
from eopipe.evaluation.maps import EvaluatedMap, EvaluationData
from eopipe.evaluation.paired import RunComparison
from eopipe.evaluation.trials import PLACES, RankedTrials
from eopipe.reporting.chip_sheet import ChipSheet, read_chip_sheet, sheet_uri
from eopipe.reporting.decimation import Decimation, decimate, read_centres, windows_of_stores
from eopipe.reporting.leaderboard import Leaderboard, difference_text, value_text
from eopipe.reporting.page import STYLE, page_environment, page_source, scale_bar
from eopipe.reporting.palette import ValueScale, class_colors
from eopipe.reporting.panels import ImagePanel, PanelGroup, encode_classes, outline
from eopipe.reporting.rasters import LONGEST_EDGE_OF_MANY, MapFile, bounding_window, read_map_image, spread_evenly
from eopipe.reporting.scores import OF_CLASS, measures_of
from eopipe.reporting.wording import plural
from eopipe.tasks import HAVE_UNIT
from eopipe.text_table import TextRow
from eopipe.tiles.ground import pixel_metres
from eopipe.tiles.store import NO_LABEL
from eopipe.trial_settings import format_settings

TEMPLATE = "compare_page.html"
# Where the maps of two runs are right, at the labelled test pixels of an image; elsewhere they are not compared.
OUTCOME_COLORS = ("#a9c7dc", "#1f6feb", "#d1490c", "#4a4a46", "#e9e9e6")
NAMES_OF_PLACES = {"test": "test", "val": "validation"}
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


class ComparedPanels(NamedTuple):
    """The maps of runs side by side, the colours of the classes, and metres of a pixel of the images.

    For a chip set it is its sheet, since neighbours in a store are not neighbours on the ground.
    """

    groups: list[PanelGroup]
    legend: dict[str, str]
    pixel_m: float
    sheet: ChipSheet | None = None


def size_text(comparison: RunComparison, data: EvaluationData, split: str) -> str:
    """On how many samples the scores rest, as text."""
    pieces = plural(comparison.pieces, "piece")
    return f"{plural(comparison.count, f'{NAMES_OF_PLACES[split]} {data.task.sample}')} that all runs have, in {pieces}"


def score_table(comparison: RunComparison, names: Sequence[str], data: EvaluationData) -> list[tuple[str, ...]]:
    """Rows of scores, heads first: of each run, then of each other run minus the first, with the paired interval."""
    rows = [("Score", *names, *(f"{name} minus {names[0]} ({100 * LEVEL:.0f} %)" for name in names[1:]))]
    class_score = data.task.class_score
    titles = dict(measures_of(data.task.name)) | {
        f"{class_score}:{name}": f"{OF_CLASS[class_score]} {name}" for name in data.names
    }
    for key, title in titles.items():
        if key in comparison.runs[0].scores:
            unit = data.unit if key in HAVE_UNIT else ""
            values = [value_text(run.scores[key], unit) for run in comparison.runs]
            differences = [difference_text(run, key, unit) for run in comparison.runs[1:]]
            rows.append((title, *values, *differences))
    return rows


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


def render_comparison(
    names: Sequence[str], scores: tuple[str, list[tuple[str, ...]]], settings: Sequence[TextRow], panels: ComparedPanels
) -> str:
    """The page of finished runs; every text from outside is escaped."""
    texts = {"kind": "eopipe comparison", "run": {"title": " and ".join(names)}, "heading": "Scores"}
    return _render(names, scores, panels, texts | {"settings": settings, "notes": [NOTE], "leaderboard": None})


def render_trials(ranked: RankedTrials) -> str:
    """The page of the trials of a run; every text from outside is escaped."""
    first, names = ranked.runs[0], [model.name for model in ranked.models[:MAX_COMPARED]]
    options = {name: value for name, value in ranked.settings[0].items() if value is not None}
    settings = format_settings(options) or f"Trial {ranked.winner.name}"
    title = f"{settings}: the best of {plural(len(ranked.models), 'trial')}"
    best = f"the {plural(len(names), 'best trial')}" if len(names) > 1 else names[0]
    texts = {"kind": "eopipe trials", "run": {"title": title}, "heading": f"All scores of {best}"}
    board = {"leaderboard": Leaderboard(ranked.json_document(), first.task.name, first.unit), "notes": [NOTE, BIAS]}
    best_trials = replace(ranked.comparison, runs=ranked.comparison.runs[:MAX_COMPARED])
    scores = f"Scores on {size_text(best_trials, first, PLACES)}", score_table(best_trials, names, first)
    return _render(names, scores, read_panels(ranked.runs[:MAX_COMPARED], names, PLACES), texts | board)


def _render(
    names: Sequence[str], scores: tuple[str, list[tuple[str, ...]]], panels: ComparedPanels, parts: dict[str, Any]
) -> str:
    """The page with the scores and maps of runs, and what only one kind of page has."""
    texts = "Worst, median and best chips", f"In the order of the errors of {names[0]}.", ""
    outcomes = ("both right", f"only {names[0]} right", "only the other right", "both wrong", "other places")
    sections = ["leaderboard", "scores"] if parts["leaderboard"] else ["scores", "settings"]
    sections += ["maps"] * bool(panels.groups or panels.sheet)
    context = parts | {
        "names": names,
        "contents": {name: name.capitalize() for name in sections},
        "caption": scores[0],
        "scores": scores[1],
        "version": __version__,
        "style": page_source(STYLE),
        "groups": panels.groups,
        "sheet": panels.sheet,
        "sheet_uri": sheet_uri(panels.sheet, texts, panels.legend) if panels.sheet else "",
        "legend": panels.legend,
        "outcomes": dict(zip(outcomes, OUTCOME_COLORS, strict=True)) if panels.legend else {},
        "scale_bar": partial(scale_bar, panels.pixel_m),
    }
    return page_environment().get_template(TEMPLATE).render(context)
