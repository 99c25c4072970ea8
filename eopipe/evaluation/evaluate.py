"""Compare maps with labels in the test areas, and with the scores of baselines."""

from typing import Any

import numpy as np

from eopipe.arrays import IntArray
from eopipe.chips.chips import majority_class
from eopipe.errors import BadInputError
from eopipe.evaluation.baseline import baseline_method, features_of, fit_baseline
from eopipe.evaluation.bootstrap import ResamplingUnits, choose_units, intervals, regions
from eopipe.evaluation.maps import EvaluatedMap, EvaluationData, count_votes
from eopipe.evaluation.measures import class_measures, value_measures
from eopipe.training.metrics import scores, value_parts, value_scores

METHODS = ("model", "majority", "pixel_baseline")


def evaluate_maps(data: EvaluationData, max_pixels: int, seed: int) -> dict[str, Any]:
    """The content of a metrics file."""
    functions = {
        "segmentation": _segmentation_metrics,
        "classification": _classification_metrics,
        "regression": _regression_metrics,
    }
    return functions[data.task](data, fit_baseline(data, max_pixels, seed))


def _segmentation_metrics(data: EvaluationData, baseline: Any) -> dict[str, Any]:
    units, classes, majority = choose_units(data), len(data.names), int(_truth_counts(data, "train").argmax())
    counts = {name: np.zeros((units.count, classes**2), np.int64) for name in METHODS}
    for number, (group, rows, cols) in enumerate(data.pixels("test")):
        truth, unit_numbers = group.truth[rows, cols].astype(np.int64), units.unit_of(number, rows, cols)
        predictions = {"model": group.prediction[rows, cols], "majority": np.full(truth.shape, majority)}
        predictions["pixel_baseline"] = baseline.predict(features_of(group.stores, rows, cols)) if len(truth) else truth
        for name, predicted in predictions.items():
            counts[name] += units.count_by_cell(unit_numbers, truth * classes + predicted, classes**2)
    return _class_metrics(data, units, counts, majority) | {"test_pixels": int(counts["model"].sum())}


def _classification_metrics(data: EvaluationData, baseline: Any) -> dict[str, Any]:
    """Scores over whole cells of the map; the baseline's class of a cell is the majority over its labelled pixels."""
    units, classes, edge = choose_units(data), len(data.names), data.split["chip"]
    train = sum(np.bincount(truth, minlength=classes) for _, _, truth, _ in data.chips("train"))
    majority = int(np.argmax(train))
    counts = {name: np.zeros((units.count, classes**2), np.int64) for name in METHODS}
    for number, (group, chosen, truth, mapped) in enumerate(data.chips("test")):
        columns = group.truth.shape[1] // edge
        unit_numbers = units.unit_of(number, chosen // columns * edge, chosen % columns * edge)
        predictions = {"model": mapped, "majority": np.full(truth.shape, majority)}
        predictions["pixel_baseline"] = _baseline_of_chips(group, chosen, baseline, edge, classes)
        for name, predicted in predictions.items():
            counts[name] += units.count_by_cell(unit_numbers, truth * classes + predicted, classes**2)
    if not counts["model"].any():
        raise BadInputError(
            f"no cell of {edge} pixels of the map is completely inside the test areas; "
            "choose a split.stride that divides split.chip, or larger test areas"
        )
    metrics = _class_metrics(data, units, counts, majority) | {
        "task": data.task,
        "test_chips": int(counts["model"].sum()),
    }
    metrics["pixel_baseline"]["method"] += ", and their majority in each chip"
    return metrics


def _baseline_of_chips(group: EvaluatedMap, chosen: IntArray, baseline: Any, edge: int, classes: int) -> IntArray:
    """The baseline's majority class of each chosen cell."""
    columns = group.truth.shape[1] // edge
    rows, cols = np.nonzero(group.is_comparable)
    cells = np.where(cols < columns * edge, rows // edge * columns + cols // edge, -1)
    is_chosen = np.isin(cells, chosen)
    if not is_chosen.any():
        return np.zeros(len(chosen), np.int64)
    predicted = baseline.predict(features_of(group.stores, rows[is_chosen], cols[is_chosen]))
    votes = count_votes(np.searchsorted(chosen, cells[is_chosen]), predicted, (len(chosen), classes))
    return np.asarray(majority_class(votes), np.int64)


def _class_metrics(
    data: EvaluationData, units: ResamplingUnits, counts: dict[str, IntArray], majority: int
) -> dict[str, Any]:
    classes, measures = len(data.names), class_measures(data.names)
    metrics: dict[str, Any] = {
        name: scores(table.sum(0).reshape(classes, classes), data.names) for name, table in counts.items()
    }
    metrics["majority"]["class"] = data.names[majority]
    metrics["pixel_baseline"]["method"] = baseline_method(data)
    metrics |= {"intervals": intervals(units, counts, measures), "regions": regions(units, counts["model"], measures)}
    return {"classes": list(data.names), "maps": len(data.groups)} | metrics


def _regression_metrics(data: EvaluationData, baseline: Any) -> dict[str, Any]:
    """Scores of values, compared with the mean of the training labels and with boosted trees on each pixel."""
    train = np.concatenate([group.truth[rows, cols] for group, rows, cols in data.pixels("train")], dtype=np.float64)
    mean, units = float(f"{train.mean():.9g}"), choose_units(data)
    sums = {name: np.zeros((units.count, 6)) for name in ("model", "mean", "pixel_baseline")}
    for number, (group, rows, cols) in enumerate(data.pixels("test")):
        truth, unit_numbers = group.truth[rows, cols], units.unit_of(number, rows, cols)
        if len(truth):
            predictions = {"model": group.prediction[rows, cols], "mean": np.full(truth.shape, mean)}
            predictions["pixel_baseline"] = baseline.predict(features_of(group.stores, rows, cols))
            for name, predicted in predictions.items():
                sums[name] += units.sum_by_unit(unit_numbers, value_parts(truth, predicted, mean))
    metrics: dict[str, Any] = {name: value_scores(total.sum(0)) for name, total in sums.items()}
    metrics["mean"]["value"] = round(mean, 6)
    metrics["pixel_baseline"]["method"] = baseline_method(data)
    low, high = (float(f"{v:.9g}") for v in np.percentile(train, (0, 100)))
    metrics |= {"task": data.task, "unit": data.unit, "range": [low, high]}
    metrics |= {
        "intervals": intervals(units, sums, value_measures),
        "regions": regions(units, sums["model"], value_measures),
    }
    return {
        "classes": list(data.names),
        "maps": len(data.groups),
        "test_pixels": int(sums["model"][:, 0].sum()),
    } | metrics


def _truth_counts(data: EvaluationData, name: str) -> IntArray:
    counts = [np.bincount(g.truth[r, c], minlength=len(data.names)) for g, r, c in data.pixels(name)]
    return np.asarray(np.sum(counts, axis=0), np.int64)
