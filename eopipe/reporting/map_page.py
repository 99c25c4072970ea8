"""The page and the picture of a map that a finished model made of other scenes: map, areas, inputs, and any scores."""

from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from eopipe import __version__
from eopipe.arrays import AnyArray, Float64Array, IntArray
from eopipe.chips.splits import NO_SPLIT
from eopipe.errors import BadInputError
from eopipe.evaluation.metrics_document import AnyMetrics, FinishedMetrics, read_finished_metrics, read_metrics
from eopipe.models.input_check import ORDINARY, TileProperties, unfamiliar_inputs
from eopipe.models.model_folder import TEST_SCORES, model_item, read_model_card, weights_file
from eopipe.reporting import data_tables
from eopipe.reporting.charts import ridge_chart
from eopipe.reporting.data_tables import TextRow, architecture_text, item_dates, read_items
from eopipe.reporting.decimation import Decimation, windows_of_stores
from eopipe.reporting.page import STYLE, page_environment, page_source, scale_bar
from eopipe.reporting.palette import CONFIDENCE_COLORS, ValueScale, class_colors
from eopipe.reporting.panels import map_panels
from eopipe.reporting.quality import DataQuality, read_quality
from eopipe.reporting.rasters import MapFile, map_files, open_maps, page_decimation, read_map, spread_evenly
from eopipe.reporting.run_data import AuthorStatements, MappedRun, describe_days, map_heading, views_of_cells
from eopipe.reporting.scores import MEASURES, OF_CLASS, no_interval_text
from eopipe.reporting.verdict import Tone, Verdict, verdict_measures, weak_classes
from eopipe.reporting.wording import (
    calibration_text,
    format_count,
    format_interval,
    format_percent,
    format_score,
    format_setting,
    format_value,
    plural,
    scored_size,
)
from eopipe.scenes.item import read_item
from eopipe.tasks import HAVE_UNIT, TASKS
from eopipe.tiles.cells import Frame
from eopipe.tiles.store import Tiles

TEMPLATE = "map_page.html"
Table = tuple[str, list[str], list[TextRow]]
M = TypeVar("M", bound=AnyMetrics)
OF_TRAINING, OWN_CLASSES = "The map of the training", "Classes in the test scores of the training"
TESTED = "All labels of this run are test labels: this model used none of them in this run."
ELSEWHERE = "Where they are its training labels, or are next to these, the scores are too high for new places."


@dataclass(frozen=True)
class MapInputs:
    """The inputs of the stage describe."""

    model: Path
    classes: tuple[Path, ...]
    probabilities: tuple[Path, ...]
    tiles: tuple[Path, ...]
    scenes: tuple[Path, ...]
    metrics: Path | None = None


@dataclass(frozen=True, kw_only=True)
class MapRun(MappedRun):
    """The content of the page of a map by a finished model.

    `counts` has the pixels and `hectares` the area on the ground (map, class) of each class, none of continuous values;
    `warnings` are the ways in which the inputs are unlike the training inputs, `trained_on`. `metrics` are the scores
    of the map, where labels test it, `test_scores` the test scores of the training, on images of `days`, where they
    are with the model.
    """

    trained_on: TileProperties | None
    counts: IntArray
    hectares: Float64Array
    warnings: list[str]
    calibration: str
    metrics: FinishedMetrics | None
    test_scores: AnyMetrics | None
    days: str

    @property
    def has_label_sets(self) -> bool:
        """Whether a map has several labels for each chip."""
        return TASKS[self.model["task"]].has_label_sets

    @property
    def is_compared(self) -> bool:
        """Whether the model records values of its training, with which the values of the inputs are compared."""
        return bool(self.trained_on and self.trained_on.ranges)

    @property
    def weak_classes(self) -> list[str]:
        """Sentences about classes that this map, or the map of the training, lacks or never has right."""
        of_map = weak_classes(self.metrics) if self.metrics else []
        return of_map + (weak_classes(self.test_scores, OF_TRAINING) if self.test_scores else [])

    @property
    def subtitle(self) -> str:
        """What the map is of, and which classes are weak."""
        return " ".join([self.summary, *self.weak_classes])

    @property
    def summary(self) -> str:
        """What the map is of, in a sentence."""
        days = describe_days([*item_dates(self.items).values()])
        architecture = architecture_text(self.model)
        return f"{plural(len(self.items), 'scene')}, {days}, mapped by a model with the architecture {architecture}."

    @property
    def areas(self) -> list[TextRow]:
        """Class, pixels, area and share of the mapped area."""
        totals = self.hectares.sum(0)
        rows = zip(self.classes, self.counts.sum(0).tolist(), totals.tolist(), strict=True)
        mapped = float(totals.sum()) or 1.0
        return [
            (name, format_count(count), f"{format_count(round(area))} ha", format_percent(area / mapped))
            for name, count, area in rows
            if len(self.counts)
        ]


def read_map_run(
    inputs: MapInputs,
    title: str,
    attribution: str,
    colors: tuple[str, ...],
    statements: AuthorStatements,
) -> MapRun:
    """Read everything. Raises BadInputError where maps, model and tiles do not belong together."""
    model, items = read_model_card(inputs.model), read_items(inputs.scenes)
    stores = sorted(map(Tiles, inputs.tiles), key=lambda store: store.scene)
    classes, dates, scale = tuple(model["classes"]), item_dates(items), _scale_of(model)
    palette, unit = (scale.colors, scale.unit) if scale else (class_colors(classes, colors), "")
    of_maps = map_files(inputs.classes, inputs.probabilities, stores, TASKS[model["task"]].second_bands(classes))
    of_maps.sort(key=lambda file: (dates.get(file.scene, ""), file.scene))
    decimation, quality = page_decimation(of_maps, stores), read_quality(stores, dates)
    no_role = np.full(decimation.shape, NO_SPLIT, np.uint8)
    stores_of_maps = {file.scene: [store for store in stores if file.scene in {"", store.scene}] for file in of_maps}
    maps = [
        read_map(file, stores_of_maps[file.scene], None, no_role, decimation, model["chip"], scale)
        for file in spread_evenly(of_maps)
    ]
    trained_on = TileProperties.read(model["trained_on"], inputs.model) if "trained_on" in model else None
    values, scores = values_of_bands(quality), model_item(inputs.model).parent / TEST_SCORES
    areas = [] if scale else [class_areas(file, stores_of_maps[file.scene], model) for file in of_maps]
    named = {"weights of the model": weights_file(inputs.model), "model": inputs.model}
    named |= {"scores": inputs.metrics} if inputs.metrics else {}
    return MapRun(
        title=title,
        attribution=attribution,
        model=model,
        trained_on=trained_on,
        classes=classes,
        colors=palette,
        scale=scale,
        items=items,
        stores=stores,
        quality=quality,
        maps=maps,
        map_panels=[
            map_panels(part, heading, classes, palette, unit)
            for view in maps
            for heading, part in views_of_cells(view, map_heading(view.scene, dates), stores[0].frame, decimation.step)
        ],
        omitted_maps=len(of_maps) - len(maps),
        step=decimation.step,
        counts=np.array([pixels for pixels, _ in areas], np.int64).reshape(-1, len(classes)),
        hectares=np.array([hectares for _, hectares in areas], np.float64).reshape(-1, len(classes)),
        warnings=unfamiliar_inputs(trained_on, stores, values) if trained_on else [],
        calibration=_calibration_of(of_maps[0], stores[0].frame),
        metrics=_of_classes(read_finished_metrics(tested), tested, classes) if (tested := inputs.metrics) else None,
        test_scores=_of_classes(read_metrics(scores), scores, classes) if scores.is_file() else None,
        days=_days_of(inputs.model),
        statements=statements,
        digests=data_tables.digest_rows(named, of_maps, stores, []),
    )


def _of_classes(metrics: M, path: Path, classes: tuple[str, ...]) -> M:
    """The scores in a file; raises BadInputError where they are of other classes."""
    if tuple(metrics.classes) != classes:
        raise BadInputError(f"{path} has scores of {', '.join(metrics.classes)}, the model maps {', '.join(classes)}")
    return metrics


def _days_of(model: Path) -> str:
    """First and last day of the images of the training."""
    properties = read_item(model_item(model))["properties"]
    moments = [properties.get(f"{end}_datetime") or properties.get("datetime") for end in ("start", "end")]
    return describe_days([str(moment)[:10] for moment in moments if moment])


def values_of_bands(quality: DataQuality) -> dict[str, AnyArray]:
    """The valid pixels of the thumbnails of all scenes, in physical units, by band."""
    names = quality.scenes[0].values if quality.scenes else {}
    return {name: np.concatenate([scene.values[name] for scene in quality.scenes]) for name in names}


def class_areas(file: MapFile, stores: list[Tiles], model: dict[str, Any]) -> tuple[IntArray, Float64Array]:
    """Pixels and hectares (class,) of a map of classes; of several labels of the chips that have each."""
    frame, count = stores[0].frame, len(model["classes"])
    pixels, hectares = np.zeros(count, np.int64), np.zeros(count)
    # All pixels of a chip that reaches a scene are mapped.
    with open_maps(file.classes.values(), frame) as source:
        for window in windows_of_stores(Decimation(frame.shape, 1), stores, model["chip"]):
            numbers, areas = source.read(*window), frame.hectares(*window)
            for number in range(count):
                of_class = numbers[number] == 1 if len(numbers) == count else numbers[0] == number
                pixels[number] += np.count_nonzero(of_class)
                hectares[number] += areas[of_class].sum()
    return pixels, hectares


def _scale_of(model: dict[str, Any]) -> ValueScale | None:
    """Colours of continuous values: two standard deviations of the training labels around their mean."""
    if TASKS[model["task"]].has_classes:
        return None
    mean, std = model["target"]
    return ValueScale(mean - 2 * std, mean + 2 * std, model["unit"])


def _calibration_of(file: MapFile, frame: Frame) -> str:
    """A sentence about the probabilities of a map, from its own tags."""
    with open_maps(file.probabilities.values(), frame) as source:
        tags = source.first.tags()
    if float(tags.get("temperature", 1)) == 1:
        return f"The probabilities are the model's, {tags.get('calibration', 'without a calibration')}."
    return (
        f"The probabilities have the temperature {tags['temperature']}, which was fitted in the validation areas of "
        "the training."
    )


def render_map(run: MapRun) -> str:
    """The page; every text from outside is escaped."""
    return (
        page_environment()
        .get_template(TEMPLATE)
        .render(
            run=run,
            verdict=_verdict(run),
            version=__version__,
            style=page_source(STYLE),
            legend={} if run.scale else dict(zip(run.classes, run.colors, strict=True)),
            scale_bar=partial(scale_bar, run.step * run.pixel[0]),
            chance=format_score(1 / max(len(run.classes), 2)),
            confidence_colors=", ".join(CONFIDENCE_COLORS),
            ridge_charts=[
                ridge_chart(band, run.quality.scenes, set(run.quality.outliers)) for band in run.quality.bands
            ],
            own_classes=_class_table(OWN_CLASSES, run.test_scores) if run.test_scores else ("", [], []),
            scores=score_sections(run.metrics) if run.metrics else {},
            tables={
                "scenes": [
                    row[:7] for row in data_tables.scene_rows(run.items, run.stores, run.quality.outliers, None)
                ],
                "ranges": range_rows(run.trained_on, values_of_bands(run.quality)),
                "model": [*data_tables.model_rows(run.model), *_training_rows(run.trained_on)],
                "licences": data_tables.licences(run.items),
                "credits": data_tables.credit_lines(run.items),
            },
        )
    )


def _verdict(run: MapRun) -> Verdict:
    of_map = headline_of(run.metrics) if run.metrics else "The map has no labels, so nothing is scored here."
    known = "The test scores of the model are not known here: its folder does not have them."
    if run.test_scores:
        size = f"{scored_size(run.test_scores)} of images of {run.days}"
        known = f"The test of the training, on {size}: {_main_scores(run.test_scores)}."
    tone: Tone = "mixed" if run.weak_classes or run.warnings or not run.is_compared else "good"
    headline = "The inputs are like the training inputs"
    if run.warnings:
        headline = f"The inputs are unlike the training inputs in {plural(len(run.warnings), 'way')}"
    elif not run.is_compared:
        headline = "The model does not record the inputs of its training, so these are not compared"
    return Verdict(tone, " ".join([f"{headline}.", *run.weak_classes]), f"{run.summary} {of_map} {known}")


def range_rows(trained_on: TileProperties | None, values: dict[str, AnyArray]) -> list[TextRow]:
    """Band, its 1 % and 99 % quantiles in the training and here, and the share of the pixels here beyond the former."""
    rows = []
    for band, ends in trained_on.ranges.items() if trained_on else ():
        pixels = values.get(band, np.empty(0))
        if len(ends) != len(ORDINARY) or not pixels.size:
            continue
        of_inputs = np.quantile(pixels, ORDINARY)
        beyond = float(np.mean((pixels < ends[0]) | (pixels > ends[1])))
        texts = (f"{low:.4g} to {high:.4g}" for low, high in (ends, of_inputs))
        rows.append((band, *texts, format_percent(beyond)))
    return rows


def _training_rows(trained_on: TileProperties | None) -> list[TextRow]:
    if not trained_on:
        return []
    names = ("pixel_size", "units", "levels", "months", "sensors", "baselines")
    values = {f"training: {name.replace('_', ' ')}": getattr(trained_on, name) for name in names}
    return [(name, format_setting(value)) for name, value in values.items() if value]


def headline_of(metrics: FinishedMetrics) -> str:
    """Accuracy and mIoU of the map with their intervals, and what they are measured on, as sentences."""
    if metrics.model.accuracy is None:
        return f"Not one pixel has both a label and a prediction. {TESTED}"
    return f"Scores on {scored_size(metrics)}: {_main_scores(metrics)}. {TESTED}"


def _main_scores(metrics: AnyMetrics) -> str:
    """The scores that a verdict compares, with their intervals, as a list."""
    texts = []
    for key, title in verdict_measures(metrics.task):
        unit, score = metrics.unit if key in HAVE_UNIT else "", metrics.model.score(key)
        interval = format_interval(metrics.intervals.model.get(key), unit)
        value = format_value(score, unit) if unit else format_score(score)
        texts.append(f"{title} {value}{f' ({interval})' if interval else ''}")
    return ", ".join(texts)


def score_sections(metrics: FinishedMetrics) -> dict[str, Any]:
    """Captions, heads and rows of the tables of scores, and notes below them."""
    scores, ends = metrics.model, metrics.intervals.model
    rows = [(title, format_score(scores.score(key)), format_interval(ends.get(key))) for key, title in MEASURES]
    level = f"{100 * (metrics.intervals.level or 0.95):.0f} %"
    confusion = [(name, *map(format_count, row)) for name, row in zip(metrics.classes, scores.confusion, strict=True)]
    return {
        "tables": [
            (f"Scores on {scored_size(metrics)}", ["Score", "Value", f"{level} interval"], rows),
            _class_table("Scores of each class, with their intervals", metrics),
            ("Test pixels by label (rows) and map (columns)", ["Label ↓ Map →", *metrics.classes], confusion),
        ],
        "notes": [f"{TESTED} {ELSEWHERE}", _interval_note(metrics), calibration_text(metrics)],
    }


def _class_table(caption: str, metrics: AnyMetrics) -> Table:
    """The scores of each class, with their intervals."""
    ends, rows = metrics.intervals.model, []
    for name, scores in metrics.model.per_class.items():
        values = [(format_score(scores.score(key)), format_interval(ends.get(f"{key}:{name}"))) for key in OF_CLASS]
        rows.append((name, *chain.from_iterable(values), format_count(scores.support)))
    heads = [head for title in OF_CLASS.values() for head in (title, "Interval")]
    return caption, ["Class", *heads, f"{metrics.sample.capitalize()}s"], rows


def _interval_note(metrics: FinishedMetrics) -> str:
    """Why scores have no interval; empty where the scores of all pixels have one."""
    if not any(metrics.intervals.model.values()):
        return no_interval_text(metrics.intervals)
    reasons = sorted(set(metrics.intervals.missing.values()))
    return f"Some scores have no interval: {'; '.join(reasons)}." if reasons else ""
