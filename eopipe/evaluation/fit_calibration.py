"""Fit the temperature of maps on their validation places, with the code that predicts them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray, IntArray
from eopipe.chips.chip_blocks import covered_pixels, windows_with_chips
from eopipe.chips.chips import chip_votes_in_area
from eopipe.chips.map_places import chips_of_map
from eopipe.chips.polygons import splits_of_pixels
from eopipe.chips.splits import SPLITS, Split
from eopipe.evaluation.calibration import label_pairs, reliability_measures, reliability_sums
from eopipe.inference.mosaic import task_probabilities
from eopipe.inference.predictor import WindowPredictor
from eopipe.inference.temperature import METHOD, apply_temperature, fit_temperature
from eopipe.models.model_folder import TrainedModel
from eopipe.tasks import TASKS
from eopipe.tasks.classes import majority_class
from eopipe.tasks.label_sets import label_sets
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.store import NO_LABEL, Tiles

# Fewer validation pixels or chips fit no temperature; of more pixels some are drawn.
MIN_SAMPLES, MAX_SAMPLES = 50, 500_000


@dataclass(frozen=True)
class ValidationArea:
    """Validation chips of a map at some corners (n, 2) with its labels; a cell needs `min_pixels` labelled ones.

    `polygons` are their splits where polygons are split.
    """

    labels: Tiles
    corners: IntArray
    edge: int
    min_pixels: float
    polygons: dict[str, list[int]] | None = None

    @classmethod
    def of(cls, split: Split, labels: Tiles, image: int | None) -> "ValidationArea":
        """The validation places of a mosaic, or of the map of one image by its number."""
        chip, corners = split.chip, chips_of_map(split, "val", None if image is None else [image])
        return cls(labels, np.unique(corners, axis=0), chip, split.min_usable_pixels, split.polygons)

    def area(self, y: slice, x: slice) -> BoolArray:
        """The pixels (y, x) of a window that are in a validation chip."""
        area = covered_pixels(self.corners, self.edge, (y, x))
        if self.polygons:
            area &= splits_of_pixels(self.labels, self.polygons, y, x) == SPLITS.index("val")
        return area

    def labelled(self, y: slice, x: slice) -> tuple[AnyArray, BoolArray]:
        """Class numbers of a window, and the pixels that are labelled and in a validation place."""
        label, valid = (self.labels.read(name, y, x) for name in ("label", "valid"))
        return label, self.area(y, x) & (valid > 0) & (label != NO_LABEL)

    def boxes(self, windows: list[PixelWindow], multiple: int) -> Iterator[tuple[PixelWindow, int]]:
        """The part of each window that has labelled pixels, its edges at a multiple, and their number."""
        for y, x in windows_with_chips(windows, self.corners, self.edge):
            _, labelled = self.labelled(y, x)
            if labelled.any():
                rows, cols = (_extent(np.asarray(labelled.any(axis)), multiple) for axis in (1, 0))
                box = _within(rows, y), _within(cols, x)
                yield box, int(np.count_nonzero(labelled))


def _extent(is_used: BoolArray, multiple: int) -> slice:
    """First and last used position, widened to a multiple."""
    (used,) = np.nonzero(is_used)
    return slice(int(used[0]) // multiple * multiple, -(-int(used[-1] + 1) // multiple) * multiple)


def _within(part: slice, window: slice) -> slice:
    return slice(window.start + part.start, min(window.start + part.stop, window.stop))


@dataclass(frozen=True)
class LabelledSamples:
    """Mean probabilities (class, n) of labelled samples, and their true classes (n,)."""

    probability: FloatArray
    truth: IntArray

    def scores(self, temperature: float) -> dict[str, float]:
        """Calibration of the samples at a temperature."""
        probability = apply_temperature(self.probability, temperature)
        predicted, unit = self.probability.argmax(0), np.zeros(len(self.truth), np.int64)
        sums = reliability_sums(probability, predicted, self.truth, unit, 1)
        return {name: round(float(value[0]), 6) for name, value in reliability_measures(sums).items()}


def validation_samples(
    maps: Sequence[tuple[WindowPredictor, ValidationArea]], trained: TrainedModel
) -> LabelledSamples:
    """Samples of maps in their validation places: pixels, or cells of a chip classifier.

    With several labels for each chip, a sample is a cell and a class, which is present (0) or absent (1).

    Only boxes around validation places are predicted. Of more than `MAX_SAMPLES` pixels some are drawn at random.
    """
    task = TASKS[trained.task]
    if task.is_of_chips:
        maps = [
            (replace(predictor, edge=max(predictor.edge // trained.chip, 1) * trained.chip), places)
            for predictor, places in maps
        ]
    # Cells of a map of chips are counted from the edges of their own grid.
    windows = [
        [window for cell in places.labels.frame.cells for window in replace(predictor, area=cell.window).windows()]
        for predictor, places in maps
    ]
    multiple = trained.chip if task.is_of_chips else 1
    boxes = [[*places.boxes(of_map, multiple)] for of_map, (_, places) in zip(windows, maps, strict=True)]
    count = sum(count for of_map in boxes for _, count in of_map)
    share = 1.0 if task.is_of_chips else MAX_SAMPLES / max(count, 1)
    classes = 2 if task.has_label_sets else len(trained.classes)
    parts = [LabelledSamples(np.zeros((classes, 0), np.float32), np.zeros(0, np.int64))]
    for number, ((predictor, places), of_map) in enumerate(zip(maps, boxes, strict=True)):
        of_boxes = replace(predictor, boxes=tuple(box for box, _ in of_map))
        parts += _samples_of_map(of_boxes, places, trained, share, number)
    return LabelledSamples(np.hstack([p.probability for p in parts]), np.concatenate([p.truth for p in parts]))


def _samples_of_map(
    predictor: WindowPredictor, places: ValidationArea, trained: TrainedModel, share: float, map_number: int
) -> Iterator[LabelledSamples]:
    """The samples of a map, box by box; of pixels a random share, which the numbers of map and box decide."""
    task = TASKS[trained.task]
    for number, (y, x, probability, scene_count) in enumerate(task_probabilities(predictor, trained)):
        label, labelled = places.labelled(y, x)
        usable = labelled & (scene_count > 0)
        if task.is_of_chips:
            area, edge = places.area(y, x), places.edge
            chosen, votes = chip_votes_in_area(label, usable, area, edge, len(trained.classes), places.min_pixels)
            rows, cols = (edge * index for index in np.divmod(chosen, label.shape[1] // edge))
            truth = majority_class(votes)
        else:
            generator = np.random.Generator(np.random.Philox(key=0, counter=[0, 0, map_number, number]))
            rows, cols = np.nonzero(usable & (generator.random(usable.shape) < share))
            truth = label[rows, cols].astype(np.int64)
        sample = probability[:, rows, cols]
        if task.has_label_sets:
            sample, truth = label_pairs(sample, label_sets(votes, trained.min_share))
        yield LabelledSamples(sample, truth)


def calibration_document(
    samples: LabelledSamples, trained: TrainedModel, model: str, scenes: list[str], *, is_mosaic: bool, symmetries: int
) -> dict[str, Any]:
    """The content of a calibration file: the temperature, and the calibration of the samples before and after.

    It is for the mosaic of the scenes by a model, or the map of each, with these symmetries.
    """
    task = TASKS[trained.task]
    unit, count = task.sample, len(samples.truth)
    # Each label of a chip is a sample.
    count //= len(trained.classes) if task.has_label_sets else 1
    document: dict[str, Any] = {"method": METHOD, "model": model, "task": trained.task, "scenes": scenes}
    document |= {} if is_mosaic else {"maps": "each image"}
    document |= {"symmetries": symmetries} if symmetries > 1 else {}
    document |= {"classes": list(trained.classes), f"{unit}s": count}
    if not task.has_classes:
        return document | _uncalibrated("a regression has values instead of probabilities")
    if not count:
        return document | _uncalibrated("the split has no labelled and valid validation place")
    if count < MIN_SAMPLES:
        return document | _uncalibrated(f"{count} validation {unit}s are fewer than {MIN_SAMPLES}")
    temperature = fit_temperature(samples.probability, samples.truth)
    before, after = samples.scores(1.0), samples.scores(temperature)
    summary = (
        f"temperature {temperature:.3g} from {count} validation {unit}s, where ECE changes from {before['ece']:.3f} to "
        f"{after['ece']:.3f} and log loss from {before['nll']:.3f} to {after['nll']:.3f}"
    )
    return document | {"temperature": temperature, "before": before, "after": after, "summary": summary}


def _uncalibrated(reason: str) -> dict[str, Any]:
    return {"temperature": 1.0, "reason": reason, "summary": f"not calibrated: {reason}"}
