"""Scores of many bootstrap draws at a time."""

from collections.abc import Callable

import numpy as np

from eopipe.arrays import AnyArray, Float64Array
from eopipe.training.metrics import value_scores

Measures = Callable[[AnyArray], dict[str, Float64Array]]


def class_measures(names: tuple[str, ...]) -> Measures:
    """The scores of confusion matrices (draw, truth x prediction), those of a class as `iou:name`."""

    def measures(tables: AnyArray) -> dict[str, Float64Array]:
        counts = tables.reshape(len(tables), len(names), len(names)).astype(np.float64)
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

    return measures


def value_measures(sums: AnyArray) -> dict[str, Float64Array]:
    """The scores of sums (draw, 6) of `value_parts`."""
    rows = [value_scores(row) for row in sums]
    return {key: np.array([np.nan if row[key] is None else row[key] for row in rows]) for key in rows[0]}


def _share(part: Float64Array, whole: Float64Array) -> Float64Array:
    return np.asarray(np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0))


def _mean(per_class: Float64Array) -> Float64Array:
    """The mean over the classes with a defined score."""
    is_defined = np.isfinite(per_class)
    return _share(np.where(is_defined, per_class, 0).sum(1), is_defined.sum(1).astype(np.float64))
