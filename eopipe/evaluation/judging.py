"""Compare maps with labels in the test places, and with what simple methods reach there."""

from typing import Any

import numpy as np

from eopipe.errors import BadInputError
from eopipe.evaluation.baseline import fit_baseline, method
from eopipe.evaluation.maps import Data, Numbers, votes_of
from eopipe.samples.chipwise import majority_of
from eopipe.training.metrics import confusion, scores, value_scores, value_sums

METHODS = ("model", "majority", "pixel_baseline")


def evaluate_maps(data: Data, most: int, seed: int) -> dict[str, Any]:
    """The content of a metrics file."""
    kinds = {"segmentation": _by_pixel, "classification": _by_chip, "regression": _by_value}
    return kinds[data.task](data, fit_baseline(data, most, seed))


def _by_pixel(data: Data, baseline: Any) -> dict[str, Any]:
    classes = len(data.names)
    majority = int(_truth_counts(data, "train").argmax())
    counts = {name: np.zeros((classes, classes), np.int64) for name in METHODS}
    for group, rows, cols in data.pixels("test"):
        truth = group.truth[rows, cols]
        counts["model"] += confusion(truth, group.found[rows, cols], classes)
        counts["majority"] += confusion(truth, np.full(truth.shape, majority), classes)
        if len(truth):
            counts["pixel_baseline"] += confusion(truth, baseline.predict(group.features(rows, cols)), classes)
    return _told(data, counts, majority) | {"test_pixels": int(counts["model"].sum())}


def _by_chip(data: Data, baseline: Any) -> dict[str, Any]:
    """Scores over whole cells of the map; the baseline's class of a cell is that of most of its labelled pixels."""
    classes, edge = len(data.names), data.split["chip"]
    train = sum(np.bincount(truth, minlength=classes) for _, _, truth, _ in data.chips("train"))
    majority = int(np.argmax(train))
    counts = {name: np.zeros((classes, classes), np.int64) for name in METHODS}
    for group, chosen, truth, found in data.chips("test"):
        counts["model"] += confusion(truth, found, classes)
        counts["majority"] += confusion(truth, np.full(truth.shape, majority), classes)
        wide = group.truth.shape[1] // edge
        rows, cols = np.nonzero(group.both)
        at = np.where(cols < wide * edge, rows // edge * wide + cols // edge, -1)
        here = np.isin(at, chosen)
        if here.any():
            said = baseline.predict(group.features(rows[here], cols[here]))
            votes = votes_of(np.searchsorted(chosen, at[here]), said, (len(chosen), classes))
            counts["pixel_baseline"] += confusion(truth, majority_of(votes), classes)
    if not counts["model"].any():
        raise BadInputError(
            f"no cell of {edge} pixels of the map lies whole in the test places; "
            "choose a split.stride that divides split.chip, or larger test places"
        )
    told = _told(data, counts, majority) | {"task": data.task, "test_chips": int(counts["model"].sum())}
    told["pixel_baseline"]["method"] += ", and their majority in each chip"
    return told


def _told(data: Data, counts: dict[str, Numbers], majority: int) -> dict[str, Any]:
    told = {name: scores(table, data.names) for name, table in counts.items()}
    told["majority"]["class"] = data.names[majority]
    told["pixel_baseline"]["method"] = method(data)
    return {"classes": list(data.names), "maps": len(data.groups)} | told


def _by_value(data: Data, baseline: Any) -> dict[str, Any]:
    """Scores of values, beside the mean of the training labels and boosted trees on each pixel."""
    train = np.concatenate([group.truth[rows, cols] for group, rows, cols in data.pixels("train")], dtype=np.float64)
    mean = float(f"{train.mean():.9g}")
    sums = {name: np.zeros(6) for name in ("model", "mean", "pixel_baseline")}
    for group, rows, cols in data.pixels("test"):
        truth = group.truth[rows, cols]
        if len(truth):
            sums["model"] += value_sums(truth, group.found[rows, cols], mean)
            sums["mean"] += value_sums(truth, np.full(truth.shape, mean), mean)
            sums["pixel_baseline"] += value_sums(truth, baseline.predict(group.features(rows, cols)), mean)
    told: dict[str, Any] = {name: value_scores(total) for name, total in sums.items()}
    told["mean"]["value"] = round(mean, 6)
    told["pixel_baseline"]["method"] = method(data)
    low, high = (float(f"{v:.9g}") for v in np.percentile(train, (0, 100)))
    told |= {"task": data.task, "unit": data.unit, "range": [low, high]}
    return {"classes": list(data.names), "maps": len(data.groups), "test_pixels": int(sums["model"][0])} | told


def _truth_counts(data: Data, name: str) -> Numbers:
    found = [np.bincount(g.truth[r, c], minlength=len(data.names)) for g, r, c in data.pixels(name)]
    return np.asarray(np.sum(found, axis=0), np.int64)
