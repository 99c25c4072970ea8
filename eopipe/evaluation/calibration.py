"""Calibration of published probabilities: ECE, Brier score and log loss in the test areas, with intervals.

The expected calibration error (ECE) is the mean distance of confidence and accuracy over 15 bins of equal width,
weighted by their samples (Naeini et al. 2015, AAAI; Guo et al. 2017, arXiv:1706.04599); with few samples it is too
large. The Brier score is the squared error of the probabilities, summed over the classes (Brier 1950,
doi:10.1175/1520-0493(1950)078<0001:VOFEIT>2.0.CO;2). Intervals come from a delete-one jackknife over the same spatial
units as for the scores (Kunsch 1989, doi:10.1214/aos/1176347265).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, IntArray
from eopipe.chips.map_places import maps_by_image, tags_of_map
from eopipe.errors import BadInputError
from eopipe.evaluation.correlation import SamplingUnits, choose_units
from eopipe.evaluation.intervals import LEVEL, design_effect
from eopipe.evaluation.maps import AreaSamples, EvaluationData
from eopipe.evaluation.metrics_document import MIN_PIECES
from eopipe.inference.finished_maps import open_maps
from eopipe.tasks.task import without_spread

BINS, EDGE = 15, 1024
# Stored probabilities are multiples of 1/10000, so 0 means less than half of that.
SMALLEST = 5e-5
Scores = Callable[[AnyArray], dict[str, Float64Array]]
METHOD = "jackknife over {units}, inflated by the measured correlation, t distribution; doi:10.1214/aos/1176347265"
NAMES = ("ece", "brier", "nll", "accuracy", "confidence")


def calibration_metrics(data: EvaluationData, probabilities: tuple[Path, ...]) -> dict[str, Any]:
    """The calibration of maps of probabilities in the test areas, as an entry of a metrics file.

    Empty for a regression, and without maps of probabilities. Raises BadInputError for maps of other classes.
    """
    if data.task.not_calibrated or not probabilities:
        return {}
    units, maps = choose_units(data), ProbabilityMaps.of(data, probabilities)
    sums = np.zeros((len(units.used), BINS, len(NAMES)))
    for samples in data.samples("test"):
        for probability, part in maps.read(samples):
            of_sample = units.index_of(part.group.number, part.rows, part.cols)
            index = np.tile(of_sample, data.task.decisions(len(data.names)))
            of_decisions, predicted, truth = data.task.as_decisions(probability, part.mapped, part.truth)
            sums += reliability_sums(of_decisions, predicted, truth, index, len(units.used))
    if not sums[..., 0].any():
        return {}
    temperature = float(maps.tags["temperature"]) if "temperature" in maps.tags else None
    description = maps.tags.get("calibration", "not calibrated: the mean of the model's probabilities")
    summary = {"temperature": temperature, "description": description}
    summary |= {name: round(float(value[0]), 6) for name, value in reliability_measures(sums.sum(0)[None]).items()}
    return {"calibration": summary | {"bins": _bins(sums.sum(0)), "intervals": calibration_intervals(sums, units)}}


@dataclass(frozen=True)
class ProbabilityMaps:
    """The files of each map of probabilities of a run, by the cell; `tags` are from the last."""

    paths: list[dict[str, Path]]
    tags: dict[str, str]

    @classmethod
    def of(cls, data: EvaluationData, probabilities: tuple[Path, ...]) -> "ProbabilityMaps":
        """Check them. Raises BadInputError for another number of maps, and for maps of other classes or grids."""
        stores = data.groups[0].stores if len(data.groups) == 1 else [group.stores[0] for group in data.groups]
        paths = maps_by_image(probabilities, stores)
        if [maps.keys() for maps in paths] != [group.paths.keys() for group in data.groups]:
            count = sum(len(group.paths) for group in data.groups)
            raise BadInputError(
                f"{len(probabilities)} maps of probabilities for {count} maps of classes; give both of each"
            )
        for of_map in paths:
            with open_maps(of_map.values(), data.frame) as maps:
                for file in maps.files.values():
                    if without_spread(file.descriptions) != data.names:
                        bands, names = (", ".join(map(str, texts)) for texts in (file.descriptions, data.names))
                        raise BadInputError(f"{file.name} has the bands {bands}; expected the probabilities of {names}")
        return cls(paths, tags_of_map(probabilities[-1]))

    def read(self, samples: AreaSamples) -> Iterator[tuple[Float64Array, AreaSamples]]:
        """Probabilities (class, n) of the samples of a block, window by window of the frame."""
        if not len(samples.rows):
            return
        with open_maps(self.paths[samples.group.number].values(), samples.group.frame) as maps:
            count, columns = len(without_spread(maps.first.descriptions)), int(samples.cols.max()) // EDGE + 1
            scales = np.asarray(maps.first.scales)[:count, None]
            numbers, index = np.unique(samples.rows // EDGE * columns + samples.cols // EDGE, return_inverse=True)
            for place, number in enumerate(numbers.tolist()):
                part, (row, col) = samples[index == place], (EDGE * edge for edge in divmod(number, columns))
                stored = maps.read(slice(row, row + EDGE), slice(col, col + EDGE))[:count]
                yield stored[:, part.rows - row, part.cols - col] * scales, part


def reliability_sums(
    probability: AnyArray, predicted: IntArray, truth: IntArray, unit: IntArray, units: int
) -> Float64Array:
    """Sums (unit, bin, 5) over samples with probabilities (class, n): count, confidence, correct, Brier, log loss."""
    index = np.arange(len(truth))
    confidence, of_truth = (probability[numbers, index].astype(np.float64) for numbers in (predicted, truth))
    squares = (probability.astype(np.float64) ** 2).sum(0)
    parts = (
        np.ones(len(truth)),
        confidence,
        predicted == truth,
        squares - 2 * of_truth + 1,
        -np.log(np.maximum(of_truth, SMALLEST)),
    )
    cell = unit * BINS + np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    sums = [np.bincount(cell, part, units * BINS).reshape(units, BINS) for part in parts]
    return np.stack(sums, -1)


def reliability_measures(sums: AnyArray) -> dict[str, Float64Array]:
    """ECE, Brier score, log loss, accuracy and mean confidence of sums (draw, bin, 5)."""
    count, confidence, correct, brier, loss = np.moveaxis(sums, -1, 0)
    total = count.sum(1)
    values = (np.abs(confidence - correct), brier, loss, correct, confidence)
    return {name: value.sum(1) / total for name, value in zip(NAMES, values, strict=True)}


def _bins(sums: Float64Array) -> list[dict[str, float | int]]:
    """The reliability curve: samples, mean confidence and accuracy of every bin with samples."""
    return [
        {
            "from": round(number / BINS, 6),
            "to": round((number + 1) / BINS, 6),
            "samples": int(count),
            "confidence": round(float(confidence / count), 6),
            "accuracy": round(float(correct / count), 6),
        }
        for number, (count, confidence, correct, *_) in enumerate(sums)
        if count
    ]


def calibration_intervals(sums: Float64Array, units: SamplingUnits) -> dict[str, Any]:
    """Intervals of ECE, Brier score and log loss over units; null below six independent ones."""
    is_used = np.flatnonzero(sums[..., 0].any(1))
    used, units = sums[is_used], units.within(is_used)
    weights, brier = used[..., 0].sum(1), used[..., 3].sum(1)
    effect = design_effect(units, brier / weights, weights)
    independent = len(used) / effect
    ends = jackknife(used, reliability_measures, effect) if independent >= MIN_PIECES else {}
    method = METHOD.format(units=f"squares of {units.edge} pixels" if units.edge else f"whole {units.kind}")
    summary = {"pieces": len(used), "independent": round(independent, 1), "level": LEVEL, "method": method}
    return summary | {name: ends.get(name) for name in NAMES[:3]}


def jackknife(sums: Float64Array, measures: Scores, effect: float = 1.0) -> dict[str, list[float]]:
    """Intervals of measures that cannot be negative, from sums (unit, ...) of which each unit is left out once.

    The design effect of the units inflates the variance and reduces the degrees of freedom.
    """
    # The quantile of Student's t; scipy.stats takes a second to import.
    from scipy.special import stdtrit

    total, count = sums.sum(0), len(sums)
    independent = count / effect
    values, without = measures(total[None]), measures(total - sums)
    quantile = float(stdtrit(independent - 1, (1 + LEVEL) / 2))
    intervals = {}
    for name, value in values.items():
        error = np.sqrt((count - 1) ** 2 / (independent - 1) * np.var(without[name]))
        low, high = (float(value[0] + sign * quantile * error) for sign in (-1, 1))
        intervals[name] = [round(max(low, 0.0), 6), round(high, 6)]
    return intervals
