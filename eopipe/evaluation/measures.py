"""Scores of many draws at a time."""

from collections.abc import Callable

import numpy as np

from eopipe.arrays import AnyArray, Float64Array
from eopipe.training.metrics import value_scores

Measures = Callable[[AnyArray], dict[str, Float64Array]]


def of_classes(names: tuple[str, ...]) -> Measures:
    """The scores of confusion matrices (draw, truth x found), those of a class as `iou:name`."""

    def measures(tables: AnyArray) -> dict[str, Float64Array]:
        counts = tables.reshape(len(tables), len(names), len(names)).astype(np.float64)
        hit, truth, found = np.diagonal(counts, axis1=1, axis2=2), counts.sum(2), counts.sum(1)
        total, agreed = counts.sum((1, 2)), _share(hit.sum(1), counts.sum((1, 2)))
        chance = _share((truth * found).sum(1), total**2)
        each = {
            "iou": _share(hit, truth + found - hit),
            "precision": _share(hit, found),
            "recall": _share(hit, truth),
            "f1": _share(2 * hit, truth + found),
        }
        overall = {"accuracy": agreed, "miou": _mean(each["iou"]), "f1_macro": _mean(each["f1"])}
        overall["kappa"] = _share(agreed - chance, 1 - chance)
        return overall | {f"{key}:{name}": v[:, n] for key, v in each.items() for n, name in enumerate(names)}

    return measures


def of_values(sums: AnyArray) -> dict[str, Float64Array]:
    """The scores of sums (draw, 6), as `value_sums` takes them."""
    rows = [value_scores(row) for row in sums]
    return {key: np.array([np.nan if row[key] is None else row[key] for row in rows]) for key in rows[0]}


def _share(part: Float64Array, whole: Float64Array) -> Float64Array:
    return np.asarray(np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0))


def _mean(each: Float64Array) -> Float64Array:
    """The mean over the classes that are there."""
    there = np.isfinite(each)
    return _share(np.where(there, each, 0).sum(1), there.sum(1).astype(np.float64))
