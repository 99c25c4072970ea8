"""Scores of many tables at a time, and what their intervals need: errors by cell, and the pieces of each class."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array

PER_CLASS = ("iou", "precision", "recall", "f1")
MACRO = ("miou", "f1_macro")
SHARES = ("accuracy", *MACRO, *PER_CLASS, "f1_micro", "subset_accuracy", "hamming_loss")


@dataclass(frozen=True)
class Measures:
    """Of tables (n, …): scores, number of pixels, mean error, and what is incorrect and correct in each of them.

    Keys of `incorrect` and `correct` are the names of classes, and empty for all pixels; `contains` is True where
    labels contain a class (n, class).
    """

    scores: Callable[[AnyArray], dict[str, Float64Array]]
    sizes: Callable[[AnyArray], Float64Array]
    errors: Callable[[AnyArray], Float64Array]
    incorrect: Callable[[AnyArray], dict[str, Float64Array]]
    correct: Callable[[AnyArray], dict[str, Float64Array]]
    contains: Callable[[AnyArray], BoolArray]
    classes: tuple[str, ...] = ()


def class_measures(names: tuple[str, ...]) -> Measures:
    """The scores of confusion matrices (n, truth x prediction), those of a class as `iou:name`."""

    def matrices(tables: AnyArray) -> Float64Array:
        return tables.reshape(len(tables), len(names), len(names)).astype(np.float64)

    def scores(tables: AnyArray) -> dict[str, Float64Array]:
        counts = matrices(tables)
        correct, truth, predicted = np.diagonal(counts, axis1=1, axis2=2), counts.sum(2), counts.sum(1)
        total, agreed = counts.sum((1, 2)), _share(correct.sum(1), counts.sum((1, 2)))
        chance = _share((truth * predicted).sum(1), total**2)
        per_class = {
            "iou": _share(correct, truth + predicted - correct),
            "precision": _share(correct, predicted),
            "recall": _share(correct, truth),
            "f1": _share(2 * correct, truth + predicted),
        }
        overall = {"accuracy": agreed, "miou": _mean(per_class["iou"]), "f1_macro": _mean(per_class["f1"])}
        overall["kappa"] = _share(agreed - chance, 1 - chance)
        return overall | {
            f"{key}:{name}": values[:, index] for key, values in per_class.items() for index, name in enumerate(names)
        }

    def by_class(everything: Float64Array, classes: Float64Array) -> dict[str, Float64Array]:
        return {"": everything} | {name: classes[:, index] for index, name in enumerate(names)}

    def correct(tables: AnyArray) -> dict[str, Float64Array]:
        diagonal = np.diagonal(matrices(tables), axis1=1, axis2=2)
        return by_class(diagonal.sum(1), diagonal)

    def incorrect(tables: AnyArray) -> dict[str, Float64Array]:
        counts = matrices(tables)
        diagonal = np.diagonal(counts, axis1=1, axis2=2)
        return by_class(sizes(tables) - diagonal.sum(1), counts.sum(1) + counts.sum(2) - 2 * diagonal)

    def sizes(tables: AnyArray) -> Float64Array:
        return np.asarray(matrices(tables).sum((1, 2)))

    def errors(tables: AnyArray) -> Float64Array:
        return np.nan_to_num(_share(incorrect(tables)[""], sizes(tables)))

    def contains(tables: AnyArray) -> BoolArray:
        return np.asarray(matrices(tables).sum(2) > 0)

    return Measures(scores, sizes, errors, incorrect, correct, contains, names)


def label_measures(names: tuple[str, ...]) -> Measures:
    """The scores of sums of `label_tables` (n, 3 * class + 2), as `label_scores` without rounding.

    The error of a cell is its Hamming loss.
    """
    count = len(names)

    def parts(tables: AnyArray) -> tuple[Float64Array, Float64Array, Float64Array]:
        positive, false, missed = (tables[:, start * count :][:, :count].astype(np.float64) for start in range(3))
        return positive, false, missed

    def scores(tables: AnyArray) -> dict[str, Float64Array]:
        positive, false, missed = parts(tables)
        errors, chips = false + missed, sizes(tables)
        per_class = {
            "iou": _share(positive, positive + errors),
            "precision": _share(positive, positive + false),
            "recall": _share(positive, positive + missed),
            "f1": _share(2 * positive, 2 * positive + errors),
        }
        total = 2 * positive.sum(1)
        overall = {"f1_micro": _share(total, total + errors.sum(1)), "f1_macro": _mean(per_class["f1"])}
        overall["subset_accuracy"] = _share(tables[:, -2].astype(np.float64), chips)
        overall["hamming_loss"] = _share(errors.sum(1), chips * count)
        return overall | {
            f"{key}:{name}": values[:, index] for key, values in per_class.items() for index, name in enumerate(names)
        }

    def by_class(everything: Float64Array, classes: Float64Array) -> dict[str, Float64Array]:
        return {"": everything} | {name: classes[:, index] for index, name in enumerate(names)}

    def correct(tables: AnyArray) -> dict[str, Float64Array]:
        positive, false, missed = parts(tables)
        return by_class(sizes(tables) * count - (false + missed).sum(1), positive)

    def incorrect(tables: AnyArray) -> dict[str, Float64Array]:
        _, false, missed = parts(tables)
        return by_class((false + missed).sum(1), false + missed)

    def sizes(tables: AnyArray) -> Float64Array:
        return np.asarray(tables[:, -1], np.float64)

    def errors(tables: AnyArray) -> Float64Array:
        return np.nan_to_num(_share(incorrect(tables)[""], sizes(tables) * count))

    def contains(tables: AnyArray) -> BoolArray:
        positive, _, missed = parts(tables)
        return np.asarray(positive + missed > 0)

    return Measures(scores, sizes, errors, incorrect, correct, contains, names)


def value_measures(sums: AnyArray) -> dict[str, Float64Array]:
    """The scores of sums (n, 6) of `value_parts`, as `value_scores` without rounding."""
    count, error, absolute, squared, truth, squared_truth = np.asarray(sums, np.float64).T
    variation = squared_truth - _share(truth**2, count)
    return {
        "rmse": np.sqrt(_share(squared, count)),
        "mae": _share(absolute, count),
        "bias": _share(error, count),
        "r2": 1 - _share(squared, variation),
    }


def _value_errors(sums: AnyArray) -> Float64Array:
    return np.nan_to_num(_share(sums[:, 1], sums[:, 0]))


def _squared_errors(sums: AnyArray) -> dict[str, Float64Array]:
    return {"": sums[:, 3]}


VALUES = Measures(
    value_measures,
    lambda sums: sums[:, 0],
    _value_errors,
    _squared_errors,
    _squared_errors,
    lambda sums: np.empty((len(sums), 0), bool),
)


def _share(part: Float64Array, whole: Float64Array) -> Float64Array:
    return np.asarray(np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0))


def _mean(per_class: Float64Array) -> Float64Array:
    """The mean over the classes with a defined score."""
    is_defined = np.isfinite(per_class)
    return _share(np.where(is_defined, per_class, 0).sum(1), is_defined.sum(1).astype(np.float64))
