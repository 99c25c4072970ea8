"""Scores of several labels for each chip: sets of labels, average precision, co-occurrence and examples.

The labels of a chip are the classes with at least `min_share` of its labelled pixels, which the map names in its tags.
"""

from collections.abc import Iterator, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, IntArray
from eopipe.evaluation.calibration import ProbabilityMaps
from eopipe.evaluation.maps import AreaSamples, EvaluationData
from eopipe.tasks.multilabel import PRESENCE

MAX_EXAMPLES = 12


class TestedChips(NamedTuple):
    """Test chips of a block, and the pixels of each class (n, class) that each baseline predicts in them."""

    samples: AreaSamples
    votes: dict[str, IntArray]


def label_details(
    data: EvaluationData, tested: Sequence[TestedChips], probabilities: tuple[Path, ...], metrics: dict[str, Any]
) -> dict[str, Any]:
    """What the metrics of several labels have beside their scores; adds average precisions to these.

    Chips are ordered by the probabilities of the model, by the shares that a baseline predicts, and not at all by the
    simplest prediction.
    """
    truth, mapped = (np.concatenate(parts) > 0 for parts in zip(*((s.truth, s.mapped) for s, _ in tested), strict=True))
    rankings = {name: _shares(np.concatenate([part.votes[name] for part in tested])) for name in tested[0].votes}
    rankings[data.task.simple_baseline[0]] = np.zeros(truth.shape)
    if probabilities:
        rankings["model"] = np.concatenate([*_mapped_probabilities(data, probabilities)])
    for name in ("model", *rankings):
        _add_precision(metrics[name], truth, rankings.get(name), data.names)
    if "missing" in metrics["intervals"]:
        reason = "average precision depends on the order of all chips, so it is not a sum over pieces"
        metrics["intervals"]["missing"] |= {"mean_average_precision": reason}
    pairs = {"truth": _cooccurrence(truth), "predicted": _cooccurrence(mapped)}
    examples = _examples(data, [part.samples for part in tested], truth, mapped)
    return {"min_share": data.min_share, "threshold": PRESENCE, "cooccurrence": pairs, "examples": examples}


def _shares(votes: IntArray) -> Float64Array:
    """The share of each class (cell, class) among the classes of the pixels of cells."""
    return np.asarray(votes / np.maximum(votes.sum(1, keepdims=True), 1), np.float64)


def _mapped_probabilities(data: EvaluationData, paths: tuple[Path, ...]) -> Iterator[Float64Array]:
    """For each map the published probabilities (n, class) of its test chips, in their order."""
    maps = ProbabilityMaps.of(data, paths)
    for samples in data.samples("test"):
        values = np.zeros((len(samples.rows), len(data.names)))
        width = int(samples.cols.max(initial=0)) + 1
        position = samples.rows * width + samples.cols
        for probability, part in maps.read(samples):
            values[np.searchsorted(position, part.rows * width + part.cols)] = probability.T
        yield values


def _add_precision(
    scores: dict[str, Any], truth: BoolArray, ranking: Float64Array | None, names: tuple[str, ...]
) -> None:
    """Add the average precision (AP) of each class and their mean (mAP), None where a class or the ranking is missing.

    AP is the sum over the thresholds of the increase in recall times the precision, without interpolation, as
    `sklearn.metrics.average_precision_score` has it; classes that no test chip has are left out of the mean.
    """
    values = [average_precision(truth[:, n], ranking[:, n]) if ranking is not None else None for n in range(len(names))]
    for name, value in zip(names, values, strict=True):
        scores["per_class"][name]["average_precision"] = value
    defined = [value for value in values if value is not None]
    scores["mean_average_precision"] = round(sum(defined) / len(defined), 6) if defined else None


def average_precision(truth: AnyArray, ranking: AnyArray) -> float | None:
    """The average precision of a ranking (n,) of chips for the truth of one class (n,); None where no chip has it."""
    from sklearn.metrics import average_precision_score

    return round(float(average_precision_score(truth, ranking)), 6) if truth.any() else None


def _cooccurrence(labels: BoolArray) -> list[list[int]]:
    """The number of chips that have both of two classes (class, class); on the diagonal those that have one."""
    counts = labels.astype(np.int64)
    return [[int(number) for number in row] for row in counts.T @ counts]


def _examples(
    data: EvaluationData, samples: Sequence[AreaSamples], truth: BoolArray, mapped: BoolArray
) -> list[dict[str, Any]]:
    """Test chips spread evenly over those with a correct set of labels and those without, at most six of each.

    `scene` is empty where the map is a mosaic.
    """
    places = [(part.group.number, *place) for part in samples for place in zip(part.rows, part.cols, strict=True)]
    exact = (truth == mapped).all(1)
    chosen: list[int] = []
    for group in (np.flatnonzero(exact), np.flatnonzero(~exact)):
        picks = np.linspace(0, len(group) - 1, min(len(group), MAX_EXAMPLES // 2)).round().astype(int)
        chosen += group[np.unique(picks)].tolist() if len(group) else []
    return [
        {
            "scene": data.groups[places[n][0]].stores[0].scene if len(data.groups) > 1 else "",
            "row": int(places[n][1]),
            "column": int(places[n][2]),
            "truth": list(compress(data.names, truth[n])),
            "predicted": list(compress(data.names, mapped[n])),
        }
        for n in sorted(chosen)
    ]
