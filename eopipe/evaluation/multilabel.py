"""Scores of several labels for each chip: sets of labels, average precision, co-occurrence and examples.

The labels of a chip are the classes with at least `min_share` of its labelled pixels, which the map names in its tags.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, IntArray
from eopipe.errors import BadInputError
from eopipe.evaluation.baseline import Baselines
from eopipe.evaluation.calibration import ProbabilityMaps, test_samples
from eopipe.evaluation.intervals import Tally
from eopipe.evaluation.maps import EvaluationData
from eopipe.evaluation.units import choose_units
from eopipe.tasks.label_sets import PRESENCE, label_sets
from eopipe.tasks.task import Compared

MAX_EXAMPLES = 12


@dataclass(frozen=True)
class LabelScores:
    """True labels (n, class) of test chips, and the labels and scores (n, class) that each method predicts.

    Scores order the chips for the average precision: probabilities of the model, shares of the baselines, and
    frequencies in the training chips. `places` (n, 3) are map, row and column.
    """

    truth: BoolArray
    predicted: dict[str, BoolArray]
    scores: dict[str, Float64Array]
    places: IntArray


def multilabel_metrics(
    data: EvaluationData, baselines: Baselines, probabilities: tuple[Path, ...]
) -> tuple[dict[str, Any], Tally]:
    """The content of a metrics file, and the tables of its intervals.

    Raises BadInputError where no cell of the map is completely inside the test areas.
    """
    frequencies = _frequencies(data)
    chips = _test_chips(data, baselines, probabilities, frequencies)
    if not len(chips.truth):
        raise BadInputError(
            f"no cell of {data.split.chip} pixels of the map is completely inside the test areas; "
            "choose a split.stride that divides split.chip, or larger test areas"
        )
    tally = _tally(data, chips, baselines)
    metrics = tally.documents()
    for name, scores in metrics.items():
        _add_precision(scores, chips.truth, chips.scores.get(name), data.names)
    metrics["majority"]["labels"] = [n for n, share in zip(data.names, frequencies, strict=True) if share >= PRESENCE]
    metrics["majority"]["frequencies"] = [round(float(share), 6) for share in frequencies]
    baselines.describe(metrics, ", and the shares of their classes in each chip")
    metrics |= tally.uncertainty(data.split.chip, baselines.chosen)
    if "missing" in metrics["intervals"]:
        reason = "average precision depends on the order of all chips, so it is not a sum over pieces"
        metrics["intervals"]["missing"] |= {"mean_average_precision": reason}
    described = {"classes": list(data.names), "maps": len(data.groups), "task": data.task.name}
    described |= {"min_share": data.min_share, "threshold": PRESENCE, "test_chips": len(chips.truth)}
    pairs = {"truth": _cooccurrence(chips.truth), "predicted": _cooccurrence(chips.predicted["model"])}
    return described | metrics | {"cooccurrence": pairs, "examples": _examples(data, chips)}, tally


def _frequencies(data: EvaluationData) -> Float64Array:
    """The share of the training cells that have each class among their labels (class,)."""
    parts = [label_sets(votes, data.min_share) for votes in (chips.votes for chips in data.chips("train"))]
    present = np.concatenate(parts)
    if not len(present):
        raise BadInputError(
            f"no cell of {data.split.chip} pixels of the map is completely inside the training areas; "
            "choose a split.stride that divides split.chip"
        )
    return np.asarray(present.mean(0), np.float64)


def _test_chips(
    data: EvaluationData, baselines: Baselines, probabilities: tuple[Path, ...], frequencies: Float64Array
) -> LabelScores:
    """All test chips, ordered by map and cell."""
    truth, mapped, places = [], [], []
    votes: dict[str, list[IntArray]] = {name: [] for name in baselines.models}
    for chips in data.chips("test"):
        truth.append(label_sets(chips.votes, data.min_share))
        mapped.append(chips.mapped > 0)
        places.append(np.stack([np.full(len(chips.rows), chips.group.number), chips.rows, chips.cols], 1))
        for name, counts in baselines.votes(chips).items():
            votes[name].append(counts)
    all_truth = np.concatenate(truth)
    scores = {name: _shares(np.concatenate(counts)) for name, counts in votes.items()}
    predicted = {name: shares >= data.min_share for name, shares in scores.items()}
    predicted["model"] = np.concatenate(mapped)
    predicted["majority"] = np.broadcast_to(frequencies >= PRESENCE, all_truth.shape)
    scores["majority"] = np.broadcast_to(frequencies, all_truth.shape)
    if probabilities:
        scores["model"] = np.concatenate([*_mapped_probabilities(data, probabilities)])
    return LabelScores(all_truth, predicted, scores, np.concatenate(places))


def _shares(votes: IntArray) -> Float64Array:
    """The share of each class (cell, class) among the classes of the pixels of cells."""
    return np.asarray(votes / np.maximum(votes.sum(1, keepdims=True), 1), np.float64)


def _mapped_probabilities(data: EvaluationData, paths: tuple[Path, ...]) -> Iterator[Float64Array]:
    """For each map the published probabilities (n, class) of its test chips, in their order."""
    maps = ProbabilityMaps.of(data, paths)
    for samples in test_samples(data):
        values = np.zeros((len(samples.rows), len(data.names)))
        width = int(samples.cols.max(initial=0)) + 1
        position = samples.rows * width + samples.cols
        for probability, part in maps.read(samples):
            values[np.searchsorted(position, part.rows * width + part.cols)] = probability.T
        yield values


def _tally(data: EvaluationData, chips: LabelScores, baselines: Baselines) -> Tally:
    units, tables = choose_units(data), data.task.tables(data.names)
    tally = Tally.empty(units, ("model", *baselines.models, data.task.simple_baseline[0]), len(data.groups), tables)
    for number in range(len(data.groups)):
        of_map = chips.places[:, 0] == number
        index = units.index_of(number, *chips.places[of_map, 1:].T)
        for name, predicted in chips.predicted.items():
            tally.add(name, number, tables.by_unit(units, index, Compared(chips.truth[of_map], predicted[of_map])))
    return tally


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


def _examples(data: EvaluationData, chips: LabelScores) -> list[dict[str, Any]]:
    """Test chips spread evenly over those with a correct set of labels and those without, at most six of each.

    `scene` is empty where the map is a mosaic.
    """
    exact = (chips.truth == chips.predicted["model"]).all(1)
    chosen: list[int] = []
    for group in (np.flatnonzero(exact), np.flatnonzero(~exact)):
        picks = np.linspace(0, len(group) - 1, min(len(group), MAX_EXAMPLES // 2)).round().astype(int)
        chosen += group[np.unique(picks)].tolist() if len(group) else []
    return [
        {
            "scene": data.groups[int(chips.places[n, 0])].stores[0].scene if len(data.groups) > 1 else "",
            "row": int(chips.places[n, 1]),
            "column": int(chips.places[n, 2]),
            "truth": [name for name, is_present in zip(data.names, chips.truth[n], strict=True) if is_present],
            "predicted": [
                name for name, is_present in zip(data.names, chips.predicted["model"][n], strict=True) if is_present
            ],
        }
        for n in sorted(chosen)
    ]
