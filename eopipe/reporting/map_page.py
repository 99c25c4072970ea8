"""The page and the picture of a map that a finished model made of other scenes: map, areas, inputs, and any scores."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from eopipe import __version__
from eopipe.arrays import AnyArray, Float64Array, IntArray
from eopipe.chips.splits import NO_SPLIT
from eopipe.errors import BadInputError
from eopipe.evaluation.metrics_document import FinishedMetrics, read_finished_metrics
from eopipe.models.input_check import ORDINARY, TileProperties, unfamiliar_inputs
from eopipe.models.model_folder import read_model_card, weights_file
from eopipe.reporting import data_tables
from eopipe.reporting.charts import ridge_chart
from eopipe.reporting.data_tables import TextRow, architecture_text, item_dates, read_items
from eopipe.reporting.decimation import Decimation, windows_of_stores
from eopipe.reporting.page import STYLE, page_environment, page_source, scale_bar
from eopipe.reporting.palette import CONFIDENCE_COLORS, ValueScale, class_colors
from eopipe.reporting.panels import map_panels
from eopipe.reporting.quality import DataQuality, read_quality
from eopipe.reporting.rasters import MapFile, map_files, open_maps, page_decimation, read_map, spread_evenly
from eopipe.reporting.run_data import (
    MappedRun,
    describe_days,
    map_heading,
    views_of_cells,
)
from eopipe.reporting.scores import MEASURES, OF_CLASS, no_interval_text
from eopipe.reporting.verdict import Verdict, verdict_measures, weak_classes_text
from eopipe.reporting.wording import (
    calibration_text,
    format_count,
    format_interval,
    format_percent,
    format_score,
    format_setting,
    plural,
    scored_size,
)
from eopipe.tasks import TASKS
from eopipe.tiles.cells import Frame
from eopipe.tiles.store import Tiles

TEMPLATE = "map_page.html"
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
    `warnings` are the ways in which the
    inputs are unlike the training inputs, `trained_on`. `metrics` are the scores of the map, where labels test it.
    """

    trained_on: TileProperties | None
    counts: IntArray
    hectares: Float64Array
    warnings: list[str]
    calibration: str
    metrics: FinishedMetrics | None

    @property
    def has_label_sets(self) -> bool:
        """Whether a map has several labels for each chip."""
        return TASKS[self.model["task"]].has_label_sets

    @property
    def is_compared(self) -> bool:
        """Whether the model records values of its training, with which the values of the inputs are compared."""
        return bool(self.trained_on and self.trained_on.ranges)

    @property
    def subtitle(self) -> str:
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


def read_map_run(inputs: MapInputs, title: str, attribution: str, colors: tuple[str, ...]) -> MapRun:
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
    values = values_of_bands(quality)
    areas = [] if scale else [class_areas(file, stores_of_maps[file.scene], model) for file in of_maps]
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
        metrics=_metrics_of(inputs, classes),
        digests=data_tables.digest_rows(_named_files(inputs), of_maps, stores, []),
    )


def _metrics_of(inputs: MapInputs, classes: tuple[str, ...]) -> FinishedMetrics | None:
    """The scores of the maps; raises BadInputError where they are of other classes."""
    metrics = read_finished_metrics(inputs.metrics) if inputs.metrics else None
    if metrics and tuple(metrics.classes) != classes:
        raise BadInputError(
            f"{inputs.metrics} has scores of {', '.join(metrics.classes)}, the model maps {', '.join(classes)}"
        )
    return metrics


def _named_files(inputs: MapInputs) -> dict[str, Path]:
    scores = {"scores": inputs.metrics} if inputs.metrics else {}
    return {"weights of the model": weights_file(inputs.model), "model": inputs.model} | scores


def values_of_bands(quality: DataQuality) -> dict[str, AnyArray]:
    """The valid pixels of the thumbnails of all scenes, in physical units, by band."""
    names = quality.scenes[0].values if quality.scenes else {}
    return {name: np.concatenate([scene.values[name] for scene in quality.scenes]) for name in names}


def class_areas(file: MapFile, stores: list[Tiles], model: dict[str, Any]) -> tuple[IntArray, Float64Array]:
    """Pixels and hectares (class,) of a map of classes; of several labels of the chips that have each."""
    frame, count = stores[0].frame, len(model["classes"])
    pixels, hectares = np.zeros(count, np.int64), np.zeros(count)
    # Of a whole chip that reaches a scene all pixels are mapped.
    with open_maps(file.classes.values(), frame) as source:
        for window in windows_of_stores(Decimation(frame.shape, 1), stores, model["chip"]):
            numbers, areas = source.read(*window), frame.hectares(*window)
            # Of one class for each pixel the positions of each.
            of_classes = numbers == 1 if len(numbers) == count else numbers == np.arange(count)[:, None, None]
            pixels += of_classes.sum((1, 2))
            hectares += np.einsum("kyx,yx->k", of_classes, areas)
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
    if "temperature" not in tags:
        return "The probabilities are the model's, without a calibration."
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
    text = "Nothing is scored here: the map has no labels, and scores of the model are of its training."
    text = f"{run.subtitle} {headline_of(run.metrics) if run.metrics else text}"
    if run.warnings:
        return Verdict(
            "mixed", f"The inputs are unlike the training inputs in {plural(len(run.warnings), 'way')}", text
        )
    if not run.is_compared:
        return Verdict("mixed", "The model does not record the inputs of its training, so these are not compared", text)
    return Verdict("good", "The inputs are like the training inputs", text)


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
    scores = metrics.model
    if scores.accuracy is None:
        return f"Not one pixel has both a label and a prediction. {TESTED}"
    texts = [
        f"{title} {format_score(scores.score(key))}{f' ({interval})' if interval else ''}"
        for key, title in verdict_measures("segmentation")
        for interval in [format_interval(metrics.intervals.model.get(key))]
    ]
    return f"Scores on {scored_size(metrics)}: {', '.join(texts)}.{weak_classes_text(metrics)} {TESTED}"


def score_sections(metrics: FinishedMetrics) -> dict[str, Any]:
    """Captions, heads and rows of the tables of scores, and notes below them."""
    classes, matrix = metrics.classes, metrics.model.confusion
    level = f"{100 * (metrics.intervals.level or 0.95):.0f} %"
    confusion = [(name, *map(format_count, row)) for name, row in zip(classes, matrix, strict=True)]
    heads_of_class = [head for title in OF_CLASS.values() for head in (title, level)]
    return {
        "tables": [
            (f"Scores on {scored_size(metrics)}", ["Score", "Value", f"{level} interval"], _score_rows(metrics)),
            ("Scores of each class, with their intervals", ["Class", *heads_of_class, "Pixels"], _class_rows(metrics)),
            ("Test pixels by label (rows) and map (columns)", ["Label ↓ Map →", *classes], confusion),
        ],
        "notes": [f"{TESTED} {ELSEWHERE}", _interval_note(metrics), calibration_text(metrics)],
    }


def _score_rows(metrics: FinishedMetrics) -> list[TextRow]:
    scores, ends = metrics.model, metrics.intervals.model
    return [(title, format_score(scores.score(key)), format_interval(ends.get(key))) for key, title in MEASURES]


def _class_rows(metrics: FinishedMetrics) -> list[TextRow]:
    ends, rows = metrics.intervals.model, []
    for name in metrics.classes:
        scores = metrics.model.per_class[name]
        cells = [
            text
            for key in OF_CLASS
            for text in (format_score(scores.score(key)), format_interval(ends.get(f"{key}:{name}")))
        ]
        rows.append((name, *cells, format_count(scores.support)))
    return rows


def _interval_note(metrics: FinishedMetrics) -> str:
    """Why scores have no interval; empty where the scores of all pixels have one."""
    if not any(metrics.intervals.model.values()):
        return no_interval_text(metrics.intervals)
    reasons = sorted(set(metrics.intervals.missing.values()))
    return f"Some scores have no interval: {'; '.join(reasons)}." if reasons else ""
