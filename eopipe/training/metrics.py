"""Scores from a confusion matrix; rows are the truth, columns what the map says."""

from typing import Any

import numpy as np
import numpy.typing as npt

Confusion = npt.NDArray[np.int64]


def confusion(truth: npt.NDArray[Any], found: npt.NDArray[Any], classes: int) -> Confusion:
    """Count pixels by (truth, found); both hold class numbers of the same shape."""
    pairs = truth.astype(np.int64).ravel() * classes + found.astype(np.int64).ravel()
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def scores(counts: Confusion, classes: tuple[str, ...]) -> dict[str, Any]:
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
