"""Fit the temperature of maps on their validation places, with the code that predicts them.

A delete-one jackknife over the pieces of the confidence intervals (Kunsch 1989, doi:10.1214/aos/1176347265) gives an
interval of 1/T, and the value nearest to 1 in it is applied: our own rule. 1/T without a piece is one Newton step of
the convex loss away. A jackknife says too little where few pieces have most of the pixels or errors, so pieces count as
the smaller of the two participation ratios (Kish 1965).
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eopipe.arrays import FloatArray, IntArray
from eopipe.chips.chips import chip_votes_in_area
from eopipe.chips.map_places import SplitArea
from eopipe.evaluation.calibration import jackknife, reliability_measures, reliability_sums
from eopipe.evaluation.correlation import SamplingUnits
from eopipe.evaluation.intervals import LEVEL, design_effect
from eopipe.evaluation.maps import first_mapped
from eopipe.evaluation.metrics_document import MIN_PIECES
from eopipe.inference.mosaic import task_predictions, task_predictor
from eopipe.inference.predictor import WindowPredictor
from eopipe.inference.temperature import HIGHEST, LOWEST, fit_temperature, loss_derivatives
from eopipe.models.model_folder import TrainedModel
from eopipe.tasks import TASKS
from eopipe.tasks.task import apply_temperature

log = logging.getLogger("eopipe")
METHOD = "temperature scaling, arXiv:1706.04599; the end of its interval by a jackknife, doi:10.1214/aos/1176347265"
# Fewer validation pixels or chips fit no temperature; of more pixels some are drawn.
MIN_SAMPLES, MAX_SAMPLES = 50, 500_000


@dataclass(frozen=True)
class LabelledSamples:
    """Mean probabilities (class, n) of labelled samples, their true classes (n,), and their index of `units` (n,)."""

    probability: FloatArray
    truth: IntArray
    unit: IntArray
    units: SamplingUnits

    def proven_temperature(self, fitted: float) -> tuple[float, dict[str, float]]:
        """The temperature nearest to 1 in the interval of the fitted one, 1 for too few pieces, and their numbers."""
        weights = np.stack([np.ones(len(self.truth)), self.probability.argmax(0) != self.truth])
        parts = np.vstack([weights, loss_derivatives(self.probability, self.truth, fitted)])
        sums = self.units.sum_parts(self.unit, parts)
        is_used = sums[:, 0] > 0
        sums, units = sums[is_used], self.units.within(is_used)
        effect = design_effect(units, sums[:, 2] / sums[:, 0], sums[:, 0])
        amounts = sums[:, :2].sum(0) ** 2 / np.maximum((sums[:, :2] ** 2).sum(0), 1) / effect
        pieces = {"pieces": len(sums), "independent": round(float(amounts.min()), 1)}
        if pieces["independent"] < MIN_PIECES:
            return 1.0, pieces
        ends = jackknife(sums, lambda part: {"": 1 / fitted - part[:, 2] / np.maximum(part[:, 3], 1e-12)}, effect)
        low, high = ends[""]
        nearest = min(max(1.0, low), max(high, 1 / HIGHEST), 1 / LOWEST)
        return float(f"{1 / nearest:.6g}"), pieces

    def scores(self, temperature: float) -> dict[str, float]:
        """Calibration of the samples at a temperature."""
        probability = apply_temperature(self.probability, temperature)
        predicted, unit = self.probability.argmax(0), np.zeros(len(self.truth), np.int64)
        sums = reliability_sums(probability, predicted, self.truth, unit, 1)
        return {name: round(float(value[0]), 6) for name, value in reliability_measures(sums).items()}


def validation_samples(
    maps: Sequence[tuple[WindowPredictor, SplitArea]], trained: TrainedModel, units: SamplingUnits
) -> LabelledSamples:
    """Samples of maps in their validation places: pixels, or cells of a chip classifier.

    With several labels for each chip, a sample is a cell and a class, which is present (0) or absent (1).
    Only boxes around validation places are predicted. From more than `MAX_SAMPLES` pixels some are drawn at random.
    """
    maps = [(task_predictor(predictor, trained), places) for predictor, places in maps]
    # Cells of a map of chips are counted from the edges of their own grid.
    windows = [
        [window for cell in places.labels.frame.cells for window in replace(predictor, area=cell.window).windows()]
        for predictor, places in maps
    ]
    multiple = TASKS[trained.task].cell(trained.chip)
    boxes = [[*places.boxes(of_map, multiple)] for of_map, (_, places) in zip(windows, maps, strict=True)]
    count = sum(count for of_map in boxes for _, count in of_map)
    share = MAX_SAMPLES / max(count, 1)
    parts, none = list[LabelledSamples](), np.zeros(0, np.int64)
    for number, ((predictor, places), of_map) in enumerate(zip(maps, boxes, strict=True)):
        of_boxes = replace(predictor, boxes=tuple(box for box, _ in of_map))
        parts += _samples_of_map((of_boxes, places), trained, share, number, units)
    parts = parts or [LabelledSamples(np.zeros((len(trained.classes), 0), np.float32), none, none, units)]
    truth, unit = (np.concatenate(arrays) for arrays in ([p.truth for p in parts], [p.unit for p in parts]))
    return LabelledSamples(np.hstack([p.probability for p in parts]), truth, unit, units)


def _samples_of_map(
    of_map: tuple[WindowPredictor, SplitArea], trained: TrainedModel, share: float, number: int, units: SamplingUnits
) -> Iterator[LabelledSamples]:
    """The samples of a map, box by box; of pixels a random share, which the numbers of map and box decide."""
    task, (predictor, places) = TASKS[trained.task], of_map
    for box, (y, x, probability, scene_count) in enumerate(task_predictions(predictor, trained)):
        label, labelled = places.labelled(y, x)
        usable = labelled & (scene_count > 0)
        if task.is_of_chips:
            area, edge = places.area(y, x), places.edge
            chosen, votes = chip_votes_in_area(label, usable, area, edge, len(trained.classes), places.min_pixels)
            rows, cols = first_mapped(usable, chosen, edge)
            truth = task.of_votes(votes, trained.min_share)
        else:
            generator = np.random.Generator(np.random.Philox(key=0, counter=[0, 0, number, box]))
            rows, cols = np.nonzero(usable & (generator.random(usable.shape) < share))
            truth = label[rows, cols].astype(np.int64)
        unit = np.tile(units.index_of(number, rows + y.start, cols + x.start), task.decisions(len(trained.classes)))
        sample, truth = task.as_decisions(probability[:, rows, cols], truth)
        yield LabelledSamples(sample, truth, unit, units)


def calibration_document(
    samples: LabelledSamples, trained: TrainedModel, model: str, scenes: list[str], *, is_mosaic: bool, symmetries: int
) -> dict[str, Any]:
    """The content of a calibration file: the temperature, and the calibration of the samples before and after.

    It is for the mosaic of the scenes by a model, or the map of each, with these symmetries.
    """
    task = TASKS[trained.task]
    unit, count = task.sample, len(samples.truth) // task.decisions(len(trained.classes))
    document: dict[str, Any] = {"method": METHOD, "model": model, "task": trained.task, "scenes": scenes}
    document |= {} if is_mosaic else {"maps": "each image"}
    document |= {"symmetries": symmetries} if symmetries > 1 else {}
    document |= {"classes": list(trained.classes), f"{unit}s": count}
    if task.not_calibrated:
        return document | _uncalibrated(task.not_calibrated)
    if not count:
        return document | _uncalibrated("the split has no labelled and valid validation place")
    if count < MIN_SAMPLES:
        return document | _uncalibrated(f"{count} validation {unit}s are fewer than {MIN_SAMPLES}")
    fitted = fit_temperature(samples.probability, samples.truth)
    temperature, pieces = samples.proven_temperature(fitted)
    before, after = samples.scores(1.0), samples.scores(temperature)
    document |= {"fitted": fitted, **pieces, "before": before, "after": after}
    amount = f"{count} validation {unit}s and their errors amount to about {pieces['independent']} independent pieces"
    if temperature == 1:
        reason = f"{amount}, too few to distinguish the fitted temperature {fitted:.3g} from 1"
        log.warning("event=not_calibrated message=%r", reason)
        return document | _uncalibrated(reason)
    summary = (
        f"temperature {temperature:.3g}, the value nearest to 1 in the {100 * LEVEL:.0f} % interval of the fitted "
        f"{fitted:.3g}; {amount}, where ECE changes from {before['ece']:.3f} to {after['ece']:.3f} and log loss from "
        f"{before['nll']:.3f} to {after['nll']:.3f}"
    )
    return document | {"temperature": temperature, "summary": summary}


def _uncalibrated(reason: str) -> dict[str, Any]:
    return {"temperature": 1.0, "reason": reason, "summary": f"not calibrated: {reason}"}
