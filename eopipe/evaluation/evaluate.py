"""Compare maps with labels in the test places, and with what simple methods reach there."""

from typing import Any

import numpy as np

from eopipe.arrays import IntArray
from eopipe.chips.chips import majority_class
from eopipe.errors import BadInputError
from eopipe.evaluation.baseline import fit_baseline, method
from eopipe.evaluation.bootstrap import Pieces, intervals, pieces_of, regions
from eopipe.evaluation.maps import Data, Group, votes_of
from eopipe.evaluation.measures import of_classes, of_values
from eopipe.training.metrics import scores, value_parts, value_scores

METHODS = ("model", "majority", "pixel_baseline")


def evaluate_maps(data: Data, most: int, seed: int) -> dict[str, Any]:
    """The content of a metrics file."""
    kinds = {"segmentation": _by_pixel, "classification": _by_chip, "regression": _by_value}
    return kinds[data.task](data, fit_baseline(data, most, seed))


def _by_pixel(data: Data, baseline: Any) -> dict[str, Any]:
    cut, classes, majority = pieces_of(data), len(data.names), int(_truth_counts(data, "train").argmax())
    counts = {name: np.zeros((cut.count, classes**2), np.int64) for name in METHODS}
    for number, (group, rows, cols) in enumerate(data.pixels("test")):
        truth, where = group.truth[rows, cols].astype(np.int64), cut.of(number, rows, cols)
        found = {"model": group.found[rows, cols], "majority": np.full(truth.shape, majority)}
        found["pixel_baseline"] = baseline.predict(group.features(rows, cols)) if len(truth) else truth
        for name, said in found.items():
            counts[name] += cut.sums(where, truth * classes + said, classes**2)
    return _told(data, cut, counts, majority) | {"test_pixels": int(counts["model"].sum())}


def _by_chip(data: Data, baseline: Any) -> dict[str, Any]:
    """Scores over whole cells of the map; the baseline's class of a cell is that of most of its labelled pixels."""
    cut, classes, edge = pieces_of(data), len(data.names), data.split["chip"]
    train = sum(np.bincount(truth, minlength=classes) for _, _, truth, _ in data.chips("train"))
    majority = int(np.argmax(train))
    counts = {name: np.zeros((cut.count, classes**2), np.int64) for name in METHODS}
    for number, (group, chosen, truth, mapped) in enumerate(data.chips("test")):
        wide = group.truth.shape[1] // edge
        where = cut.of(number, chosen // wide * edge, chosen % wide * edge)
        found = {"model": mapped, "majority": np.full(truth.shape, majority)}
        found["pixel_baseline"] = _baseline_of_chips(group, chosen, baseline, edge, classes)
        for name, said in found.items():
            counts[name] += cut.sums(where, truth * classes + said, classes**2)
    if not counts["model"].any():
        raise BadInputError(
            f"no cell of {edge} pixels of the map lies whole in the test places; "
            "choose a split.stride that divides split.chip, or larger test places"
        )
    told = _told(data, cut, counts, majority) | {"task": data.task, "test_chips": int(counts["model"].sum())}
    told["pixel_baseline"]["method"] += ", and their majority in each chip"
    return told


def _baseline_of_chips(group: Group, chosen: IntArray, baseline: Any, edge: int, classes: int) -> IntArray:
    """The class of most pixels of each chosen cell, as the baseline calls them."""
    wide = group.truth.shape[1] // edge
    rows, cols = np.nonzero(group.both)
    at = np.where(cols < wide * edge, rows // edge * wide + cols // edge, -1)
    here = np.isin(at, chosen)
    if not here.any():
        return np.zeros(len(chosen), np.int64)
    said = baseline.predict(group.features(rows[here], cols[here]))
    votes = votes_of(np.searchsorted(chosen, at[here]), said, (len(chosen), classes))
    return np.asarray(majority_class(votes), np.int64)


def _told(data: Data, cut: Pieces, counts: dict[str, IntArray], majority: int) -> dict[str, Any]:
    classes, measures = len(data.names), of_classes(data.names)
    told: dict[str, Any] = {
        name: scores(table.sum(0).reshape(classes, classes), data.names) for name, table in counts.items()
    }
    told["majority"]["class"] = data.names[majority]
    told["pixel_baseline"]["method"] = method(data)
    told |= {"intervals": intervals(cut, counts, measures), "regions": regions(cut, counts["model"], measures)}
    return {"classes": list(data.names), "maps": len(data.groups)} | told


def _by_value(data: Data, baseline: Any) -> dict[str, Any]:
    """Scores of values, beside the mean of the training labels and boosted trees on each pixel."""
    train = np.concatenate([group.truth[rows, cols] for group, rows, cols in data.pixels("train")], dtype=np.float64)
    mean, cut = float(f"{train.mean():.9g}"), pieces_of(data)
    sums = {name: np.zeros((cut.count, 6)) for name in ("model", "mean", "pixel_baseline")}
    for number, (group, rows, cols) in enumerate(data.pixels("test")):
        truth, where = group.truth[rows, cols], cut.of(number, rows, cols)
        if len(truth):
            found = {"model": group.found[rows, cols], "mean": np.full(truth.shape, mean)}
            found["pixel_baseline"] = baseline.predict(group.features(rows, cols))
            for name, said in found.items():
                sums[name] += cut.totals(where, value_parts(truth, said, mean))
    told: dict[str, Any] = {name: value_scores(total.sum(0)) for name, total in sums.items()}
    told["mean"]["value"] = round(mean, 6)
    told["pixel_baseline"]["method"] = method(data)
    low, high = (float(f"{v:.9g}") for v in np.percentile(train, (0, 100)))
    told |= {"task": data.task, "unit": data.unit, "range": [low, high]}
    told |= {"intervals": intervals(cut, sums, of_values), "regions": regions(cut, sums["model"], of_values)}
    return {"classes": list(data.names), "maps": len(data.groups), "test_pixels": int(sums["model"][:, 0].sum())} | told


def _truth_counts(data: Data, name: str) -> IntArray:
    found = [np.bincount(g.truth[r, c], minlength=len(data.names)) for g, r, c in data.pixels(name)]
    return np.asarray(np.sum(found, axis=0), np.int64)
