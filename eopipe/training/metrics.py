"""Scores of classes from a confusion matrix (rows are the truth, columns the map), of values from sums of errors.

The tests compare them with torchmetrics. They are computed here since counts and the sums of whole chips add up to the
same bits on any number of workers, which torchmetrics' single-precision states do not, and evaluate needs no torch.
"""

import math
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, IntArray


def confusion_matrix(truth: AnyArray, predicted: AnyArray, classes: int) -> IntArray:
    """Count pixels by (truth, predicted); both hold class numbers of the same shape."""
    pairs = truth.astype(np.int64).ravel() * classes + predicted.astype(np.int64).ravel()
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def scores(counts: IntArray, classes: tuple[str, ...]) -> dict[str, Any]:
    """Accuracy, mean IoU, macro F1, Cohen's kappa and per-class scores; None where undefined."""
    total, correct = int(counts.sum()), np.diag(counts)
    truth, predicted = counts.sum(1), counts.sum(0)
    by_chance = float((truth * predicted).sum()) / total**2 if total else 0.0
    agreement = float(correct.sum()) / total if total else 0.0
    rows = [_class_scores(int(c), int(t), int(p)) for c, t, p in zip(correct, truth, predicted, strict=True)]
    return {
        "accuracy": _ratio(int(correct.sum()), total),
        "miou": _mean([row["iou"] for row in rows]),
        "f1_macro": _mean([row["f1"] for row in rows]),
        "kappa": round((agreement - by_chance) / (1 - by_chance), 6) if total and by_chance < 1 else None,
        "confusion": counts.tolist(),
        "per_class": dict(zip(classes, rows, strict=True)),
    }


def label_table_width(classes: int) -> int:
    """Numbers in a row of `label_tables`."""
    return 3 * classes + 2


def label_tables(truth: AnyArray, predicted: AnyArray) -> IntArray:
    """What each of n chips adds to the counts of `label_scores` (n, 3 * class + 2); truth and prediction (n, class).

    True positives, false positives and false negatives of each class, whether the set of labels is correct, and 1.
    Sums of rows add up.
    """
    truth, predicted = truth.astype(bool), predicted.astype(bool)
    parts = (truth & predicted, ~truth & predicted, truth & ~predicted)
    exact = (truth == predicted).all(1)[:, None]
    return np.hstack([*parts, exact, np.ones_like(exact)]).astype(np.int64)


def label_scores(counts: IntArray, classes: tuple[str, ...]) -> dict[str, Any]:
    """Scores of sets of labels from a sum of `label_tables`; None where undefined.

    F1 of a class is 2 TP / (2 TP + FP + FN). Micro F1 has the counts of all classes added up; macro F1 is the mean of
    the classes' F1 where it is defined, which is where a class is in the truth or in the prediction. Subset accuracy is
    the share of chips whose set of labels is completely correct, the Hamming loss the share of incorrect decisions,
    (FP + FN) / (chips * classes). IoU is the Jaccard index of a class, TP / (TP + FP + FN).
    """
    count = len(classes)
    positive, false, missed = (counts[start * count :][:count] for start in range(3))
    rows = [
        {key: value for key, value in _class_scores(int(tp), int(tp + fn), int(tp + fp)).items() if key != "pixels"}
        | {"chips": int(tp + fn), "predicted_chips": int(tp + fp)}
        for tp, fp, fn in zip(positive, false, missed, strict=True)
    ]
    exact, chips, errors = int(counts[-2]), int(counts[-1]), int(false.sum() + missed.sum())
    return {
        "f1_micro": _ratio(2 * int(positive.sum()), 2 * int(positive.sum()) + errors),
        "f1_macro": _mean([row["f1"] for row in rows]),
        "subset_accuracy": _ratio(exact, chips),
        "hamming_loss": _ratio(errors, chips * count),
        "per_class": dict(zip(classes, rows, strict=True)),
    }


def value_parts(truth: AnyArray, predicted: AnyArray, offset: float) -> Float64Array:
    """What each of n values in one unit adds to the sums of `value_scores` (6, n); `offset` is about their mean.

    Count, error, absolute error, squared error, truth less the offset, and its square. Sums of parts add up.
    """
    error, shifted = predicted.astype(np.float64) - truth, truth.astype(np.float64) - offset
    return np.stack([np.ones(error.shape), error, np.abs(error), error**2, shifted, shifted**2])


def value_scores(sums: Float64Array) -> dict[str, float | None]:
    """RMSE, MAE and bias (predicted less truth) in the unit of the values, and R²; None where undefined."""
    count, error, absolute, squared, truth, squared_truth = map(float, sums)
    if not count:
        return dict.fromkeys(("rmse", "mae", "bias", "r2"))
    variation = squared_truth - truth**2 / count
    return {
        "rmse": round(math.sqrt(squared / count), 6),
        "mae": round(absolute / count, 6),
        "bias": round(error / count, 6),
        "r2": round(1 - squared / variation, 6) if variation > 0 else None,
    }


def _class_scores(correct: int, truth: int, predicted: int) -> dict[str, float | int | None]:
    return {
        "iou": _ratio(correct, truth + predicted - correct),
        "precision": _ratio(correct, predicted),
        "recall": _ratio(correct, truth),
        "f1": _ratio(2 * correct, truth + predicted),
        "pixels": truth,
    }


def _ratio(part: int, whole: int) -> float | None:
    return round(part / whole, 6) if whole else None


def _mean(values: list[Any]) -> float | None:
    defined = [value for value in values if value is not None]
    return round(sum(defined) / len(defined), 6) if defined else None
