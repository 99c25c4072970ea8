"""What a report needs of maps that a finished model made of other scenes: maps, areas, inputs, and any scores."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, IntArray
from eopipe.errors import BadInputError
from eopipe.evaluation.metrics_document import AnyMetrics, FinishedMetrics, read_finished_metrics, read_metrics
from eopipe.inference.finished_maps import open_maps
from eopipe.models.input_check import TileProperties, unfamiliar_inputs
from eopipe.models.model_folder import TEST_SCORES, model_id, model_item, read_model_card
from eopipe.reporting import data_tables
from eopipe.reporting.data_tables import DataQuality, TextRow, architecture_text, item_dates
from eopipe.reporting.decimation import Decimation, windows_of_stores
from eopipe.reporting.figures import ValueScale
from eopipe.reporting.panels import CORRECT, INCORRECT
from eopipe.reporting.rasters import MapFile
from eopipe.reporting.run_data import AuthorStatements, MappedRun, ReportInputs, describe_days, mapped_fields
from eopipe.reporting.scores import class_heads, class_parts, class_rows
from eopipe.reporting.status import BandRange, MappedArea, MapStatus, band_ranges
from eopipe.reporting.verdict import Tone, Verdict, verdict_measures, weak_classes
from eopipe.reporting.wording import (
    format_count,
    format_interval,
    format_percent,
    format_setting,
    plural,
    score_text,
    scored_size,
)
from eopipe.scenes.item import read_item
from eopipe.tasks import HAVE_UNIT, TASKS
from eopipe.tiles.cells import Frame
from eopipe.tiles.store import Tiles

M = TypeVar("M", bound=AnyMetrics)
OF_TRAINING = "The map of the training"
TESTED = "All labels of this run are test labels: this model used none of them in this run."
ELSEWHERE = "Where they are its training labels, or are next to these, the scores are too high for new places."
LIKE_TRAINING = "Season, sensor, processing baseline and the values of each band match the training."
NOT_COMPARED = (
    "The model is of an older version, which does not record season, sensor and values of its training: nothing could "
    "be compared."
)


@dataclass(frozen=True, kw_only=True)
class FinishedModelRun(MappedRun):
    """The content of the page of a map by a finished model.

    `areas` has the pixels and hectares of each class, none of continuous values; `warnings` are the ways in which the
    inputs are unlike the training inputs, `trained_on`. `test_scores` are the scores of the training, on images of
    `days`, where they are with the model.
    """

    model_id: str
    trained_on: TileProperties | None
    areas: dict[str, MappedArea]
    warnings: list[str]
    calibration: str
    metrics: FinishedMetrics | None
    test_scores: AnyMetrics | None
    days: str

    @property
    def is_compared(self) -> bool:
        """Whether the model records values of its training, with which the values of the inputs are compared."""
        return bool(self.trained_on and self.trained_on.ranges)

    @cached_property
    def ranges(self) -> dict[str, BandRange]:
        """The values of the bands in the training and here."""
        return band_ranges(self.trained_on, values_of_bands(self.quality))

    @property
    def status(self) -> MapStatus:
        """What a later comparison, and an operator, need of the map."""
        days = sorted(filter(None, item_dates(self.items).values()))
        return MapStatus(
            model=self.model_id,
            task=self.model["task"],
            classes=[*self.classes],
            scenes=len(self.items),
            days=[*dict.fromkeys((days[0], days[-1]))] if days else [],
            compared=self.is_compared,
            unlike_training=self.warnings,
            missing_classes=[name for name, area in self.areas.items() if not area.pixels],
            areas=self.areas,
            bands=self.ranges,
        )

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


def read_finished_run(inputs: ReportInputs, statements: AuthorStatements) -> FinishedModelRun:
    """Read everything. Raises BadInputError where maps, model and tiles do not belong together."""
    model, tested = read_model_card(inputs.model), inputs.metrics
    classes, scale, scores = tuple(model["classes"]), _scale_of(model), model_item(inputs.model).parent / TEST_SCORES
    metrics = _of_classes(read_finished_metrics(tested), tested, classes) if tested else None
    fields = mapped_fields(inputs, statements, model, metrics, scale)
    stores, files = fields["stores"], fields["files"]
    trained_on = TileProperties.read(model["trained_on"], inputs.model) if "trained_on" in model else None
    values = values_of_bands(fields["quality"])
    return FinishedModelRun(
        **fields,
        model_id=model_id(inputs.model),
        trained_on=trained_on,
        areas={} if scale else mapped_areas(classes, [class_areas(file, stores, model) for file in files]),
        warnings=unfamiliar_inputs(trained_on, stores, values) if trained_on else [],
        calibration=_calibration_of(files[0], stores[0].frame),
        test_scores=_of_classes(read_metrics(scores), scores, classes) if scores.is_file() else None,
        days=_days_of(inputs.model),
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


def mapped_areas(classes: tuple[str, ...], areas: list[tuple[IntArray, Float64Array]]) -> dict[str, MappedArea]:
    """The area of each class, by the pixels and hectares (class,) of each map."""
    pixels, hectares = np.sum(areas, axis=0)
    rows = zip(classes, pixels.tolist(), hectares.tolist(), strict=True)
    return {name: MappedArea(pixels=round(count), hectares=round(area, 4)) for name, count, area in rows}


def area_rows(areas: dict[str, MappedArea]) -> list[TextRow]:
    """Class, pixels, area and share of the mapped area."""
    mapped = sum(area.hectares for area in areas.values()) or 1.0
    return [
        (
            name,
            format_count(area.pixels),
            f"{format_count(round(area.hectares))} ha",
            format_percent(area.hectares / mapped),
        )
        for name, area in areas.items()
    ]


def class_areas(file: MapFile, stores: list[Tiles], model: dict[str, Any]) -> tuple[IntArray, Float64Array]:
    """Pixels and hectares (class,) of a map of classes; of several labels of the chips that have each."""
    frame, count = stores[0].frame, len(model["classes"])
    pixels, hectares = np.zeros(count, np.int64), np.zeros(count)
    mapped = [store for store in stores if file.scene in {"", store.scene}]
    # All pixels of a chip that reaches a scene are mapped.
    with open_maps(file.classes.values(), frame) as source:
        for window in windows_of_stores(Decimation(frame.shape, 1), mapped, model["chip"]):
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


def finished_parts(run: FinishedModelRun) -> dict[str, Any]:
    """The parts of a page of maps by a finished model."""
    scored: dict[str, Any] = {}
    if run.metrics:
        errors = {"correct": CORRECT, "incorrect": INCORRECT} if run.maps[0].has_labels else {}
        scored = {"test_areas": f"{TESTED} {ELSEWHERE}", "error_legend": errors, **class_parts(run.metrics)}
    if run.test_scores:
        heads, rows = class_heads(run.test_scores), class_rows(run.test_scores)
        scored |= {"trained_class_heads": heads, "trained_class_rows": rows}
    return scored | {
        "verdict": _verdict(run),
        "areas": area_rows(run.areas),
        "map_note": f"{run.calibration} ",
        "unlike_training": run.warnings,
        "like_training": "" if run.warnings else LIKE_TRAINING if run.is_compared else NOT_COMPARED,
        "ranges": range_rows(run.ranges),
        "tables": {"model": [*data_tables.model_rows(run.model), *_training_rows(run.trained_on)]},
    }


def _verdict(run: FinishedModelRun) -> Verdict:
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


def range_rows(ranges: dict[str, BandRange]) -> list[TextRow]:
    """Band, its 1 % and 99 % quantiles in the training and here, and the share of the pixels here beyond the former."""
    return [
        (band, *(f"{low:.4g} to {high:.4g}" for low, high in (row.training, row.inputs)), format_percent(row.beyond))
        for band, row in ranges.items()
    ]


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
        texts.append(f"{title} {score_text(score, key, unit)}{f' ({interval})' if interval else ''}")
    return ", ".join(texts)
