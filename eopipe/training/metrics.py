"""Scores of classes from a confusion matrix (rows are the truth, columns the map), of values from sums of errors.

Sums are taken here, and the tests hold torchmetrics against them: counts and the sums of whole chips add up to the same
bits however many workers took them, which its states of single precision do not, and evaluate needs no torch.
"""

import math
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, IntArray


def confusion(truth: AnyArray, found: AnyArray, classes: int) -> IntArray:
    """Count pixels by (truth, found); both hold class numbers of the same shape."""
    pairs = truth.astype(np.int64).ravel() * classes + found.astype(np.int64).ravel()
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def scores(counts: IntArray, classes: tuple[str, ...]) -> dict[str, Any]:
    """Accuracy, mean IoU, macro F1, Cohen's kappa and per-class scores; None where undefined."""
    total, hit = int(counts.sum()), np.diag(counts)
    truth, found = counts.sum(1), counts.sum(0)
    chance = float((truth * found).sum()) / total**2 if total else 0.0
    agreed = float(hit.sum()) / total if total else 0.0
    rows = [_class(int(h), int(t), int(f)) for h, t, f in zip(hit, truth, found, strict=True)]
    return {
        "accuracy": _ratio(int(hit.sum()), total),
        "miou": _mean([row["iou"] for row in rows]),
        "f1_macro": _mean([row["f1"] for row in rows]),
        "kappa": round((agreed - chance) / (1 - chance), 6) if total and chance < 1 else None,
        "confusion": counts.tolist(),
        "per_class": dict(zip(classes, rows, strict=True)),
    }


def value_sums(truth: AnyArray, found: AnyArray, about: float) -> Float64Array:
    """What `value_scores` needs of values in one unit (n,): sums over them, the truth less `about`.

    Number, errors, their sizes, their squares, truth, its squares. Sums of parts add up.
    """
    return np.asarray(value_parts(truth, found, about).sum(1))


def value_parts(truth: AnyArray, found: AnyArray, about: float) -> Float64Array:
    """What each value adds to these sums (6, n)."""
    error, rest = found.astype(np.float64) - truth, truth.astype(np.float64) - about
    return np.stack([np.ones(error.shape), error, np.abs(error), error**2, rest, rest**2])


def value_scores(sums: Float64Array) -> dict[str, float | None]:
    """RMSE, MAE and bias (found less truth) in the unit of the values, and R²; None where undefined."""
    count, error, size, square, truth, spread = map(float, sums)
    if not count:
        return dict.fromkeys(("rmse", "mae", "bias", "r2"))
    varies = spread - truth**2 / count
    return {
        "rmse": round(math.sqrt(square / count), 6),
        "mae": round(size / count, 6),
        "bias": round(error / count, 6),
        "r2": round(1 - square / varies, 6) if varies > 0 else None,
    }


def _class(hit: int, truth: int, found: int) -> dict[str, float | int | None]:
    return {
        "iou": _ratio(hit, truth + found - hit),
        "precision": _ratio(hit, found),
        "recall": _ratio(hit, truth),
        "f1": _ratio(2 * hit, truth + found),
        "pixels": truth,
    }


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def _mean(values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 6) if known else None
