"""Compare maps with labels in the test areas, and with the scores of baselines."""

from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import IntArray
from eopipe.chips.chips import count_votes, majority_class
from eopipe.errors import BadInputError
from eopipe.evaluation.baseline import baseline_method, features_of, fit_baseline
from eopipe.evaluation.change import change_metrics
from eopipe.evaluation.intervals import Tally, choose_cells, rounded
from eopipe.evaluation.maps import EvaluatedMap, EvaluationData
from eopipe.evaluation.measures import VALUES, Measures, class_measures, label_measures
from eopipe.evaluation.multilabel import multilabel_metrics
from eopipe.training.metrics import scores, value_parts, value_scores

METHODS, VALUE_METHODS = ("model", "pixel_baseline", "majority"), ("model", "pixel_baseline", "mean")


def evaluate_maps(
    data: EvaluationData, max_pixels: int, seed: int, probabilities: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """The content of a metrics file; average precisions need the maps of probabilities."""
    if data.task == "multilabel":
        metrics, tally = multilabel_metrics(data, fit_baseline(data, max_pixels, seed), probabilities)
        return metrics | _scene_scores(data, tally, label_measures(data.names))
    if data.from_to and data.task == "segmentation":
        metrics = _segmentation_metrics(data, fit_baseline(data, max_pixels, seed))
        confusions = {name: np.array(metrics[name]["confusion"]) for name in METHODS}
        return metrics | change_metrics(data, confusions, max_pixels, seed)
    functions = {
        "segmentation": _segmentation_metrics,
        "classification": _classification_metrics,
        "regression": _regression_metrics,
    }
    return functions[data.task](data, fit_baseline(data, max_pixels, seed))


def _segmentation_metrics(data: EvaluationData, baseline: Any) -> dict[str, Any]:
    cells, classes, majority = choose_cells(data), len(data.names), int(_truth_counts(data, "train").argmax())
    tally = Tally.empty(cells, METHODS, len(data.groups), classes**2)
    for number, (group, rows, cols) in enumerate(data.pixels("test")):
        truth, index = group.truth[rows, cols].astype(np.int64), cells.index_of(number, rows, cols)
        predictions = {"model": group.prediction[rows, cols], "majority": np.full(truth.shape, majority)}
        predictions["pixel_baseline"] = baseline.predict(features_of(group.stores, rows, cols)) if len(truth) else truth
        for name, predicted in predictions.items():
            tally.add(name, number, cells.count_pairs(index, truth * classes + predicted, classes**2))
    return _class_metrics(data, tally, majority) | {"test_pixels": int(tally.by_cell["model"].sum())}


def _classification_metrics(data: EvaluationData, baseline: Any) -> dict[str, Any]:
    """Scores over whole cells of the map; the baseline's class of a cell is the majority over its labelled pixels."""
    cells, classes, edge = choose_cells(data), len(data.names), data.split["chip"]
    train = sum(np.bincount(truth, minlength=classes) for _, _, truth, _ in data.chips("train"))
    majority = int(np.argmax(train))
    tally = Tally.empty(cells, METHODS, len(data.groups), classes**2)
    for number, (group, chosen, truth, mapped) in enumerate(data.chips("test")):
        columns = group.truth.shape[1] // edge
        index = cells.index_of(number, chosen // columns * edge, chosen % columns * edge)
        predictions = {"model": mapped, "majority": np.full(truth.shape, majority)}
        predictions["pixel_baseline"] = _baseline_of_chips(group, chosen, baseline, edge, classes)
        for name, predicted in predictions.items():
            tally.add(name, number, cells.count_pairs(index, truth * classes + predicted, classes**2))
    if not tally.by_cell["model"].any():
        raise BadInputError(
            f"no cell of {edge} pixels of the map is completely inside the test areas; "
            "choose a split.stride that divides split.chip, or larger test areas"
        )
    metrics = _class_metrics(data, tally, majority) | {
        "task": data.task,
        "test_chips": int(tally.by_cell["model"].sum()),
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


def _class_metrics(data: EvaluationData, tally: Tally, majority: int) -> dict[str, Any]:
    classes = len(data.names)
    metrics: dict[str, Any] = {
        name: scores(table.sum(0).reshape(classes, classes), data.names) for name, table in tally.by_cell.items()
    }
    metrics["majority"]["class"] = data.names[majority]
    metrics["pixel_baseline"]["method"] = baseline_method(data)
    uncertainty = tally.uncertainty(data.split["chip"], class_measures(data.names))
    scenes = _scene_scores(data, tally, class_measures(data.names))
    return {"classes": list(data.names), "maps": len(data.groups)} | metrics | uncertainty | scenes


def _regression_metrics(data: EvaluationData, baseline: Any) -> dict[str, Any]:
    """Scores of values, compared with the mean of the training labels and with boosted trees on each pixel."""
    train = np.concatenate([group.truth[rows, cols] for group, rows, cols in data.pixels("train")], dtype=np.float64)
    mean, cells = float(f"{train.mean():.9g}"), choose_cells(data)
    tally = Tally.empty(cells, VALUE_METHODS, len(data.groups), 6, np.float64)
    for number, (group, rows, cols) in enumerate(data.pixels("test")):
        truth, index = group.truth[rows, cols], cells.index_of(number, rows, cols)
        if len(truth):
            predictions = {"model": group.prediction[rows, cols], "mean": np.full(truth.shape, mean)}
            predictions["pixel_baseline"] = baseline.predict(features_of(group.stores, rows, cols))
            for name, predicted in predictions.items():
                tally.add(name, number, cells.sum_parts(index, value_parts(truth, predicted, mean)))
    metrics: dict[str, Any] = {name: value_scores(total.sum(0)) for name, total in tally.by_cell.items()}
    metrics["mean"]["value"] = round(mean, 6)
    metrics["pixel_baseline"]["method"] = baseline_method(data)
    low, high = (float(f"{v:.9g}") for v in np.percentile(train, (0, 100)))
    metrics |= {"task": data.task, "unit": data.unit, "range": [low, high]}
    metrics |= tally.uncertainty(data.split["chip"], VALUES) | _scene_scores(data, tally, VALUES)
    return {
        "classes": list(data.names),
        "maps": len(data.groups),
        "test_pixels": int(tally.by_cell["model"][:, 0].sum()),
    } | metrics


def _scene_scores(data: EvaluationData, tally: Tally, measures: Measures) -> dict[str, Any]:
    """The model's scores of each test scene by date, where scenes are split; otherwise nothing."""
    if not data.split.get("by_scene"):
        return {}
    table = tally.by_map
    scores_by_scene, sizes = measures.scores(table), measures.sizes(table)
    scenes = [
        {
            "scene": group.stores[0].scene,
            "date": str(group.stores[0].attributes.get("datetime") or "")[:10],
            "count": int(sizes[number]),
            "scores": {key: rounded(values[number]) for key, values in scores_by_scene.items() if ":" not in key},
        }
        for number, group in enumerate(data.groups)
        if sizes[number]
    ]
    return {"scenes": sorted(scenes, key=lambda scene: (scene["date"], scene["scene"]))}


def _truth_counts(data: EvaluationData, name: str) -> IntArray:
    counts = [np.bincount(g.truth[r, c], minlength=len(data.names)) for g, r, c in data.pixels(name)]
    return np.asarray(np.sum(counts, axis=0), np.int64)
