"""Scores of a map of from-to classes: change against no change, transitions with their areas, and a baseline.

The baseline is the post-classification comparison (Singh 1989, doi:10.1080/01431168908903939): one per-pixel classifier
for the bands of the first date and one for the bands of the last, whose classes are compared.
"""

from typing import Any

import numpy as np

from eopipe.arrays import IntArray
from eopipe.composites.periods import channels_by_date
from eopipe.evaluation.baseline import training_pixels
from eopipe.evaluation.maps import EvaluationData
from eopipe.tasks.classes import ClassTables, confusion_matrix
from eopipe.tiles.grid import pixel_metres
from eopipe.tiles.store import NO_LABEL

METHOD = "post-classification comparison of boosted trees on the bands of the first and of the last date"


def change_metrics(data: EvaluationData, confusions: dict[str, IntArray], max_pixels: int, seed: int) -> dict[str, Any]:
    """The entry `change` of a metrics file, from the from-to confusion matrices of the methods.

    `areas` are hectares of each transition (before, after): of the labels and the map in the test areas, and of all of
    the map, which is the mean over the maps where there are several.
    """
    count = len(data.from_to)
    result: dict[str, Any] = {name: change_scores(matrix, count) for name, matrix in confusions.items()}
    compared, reason = _post_classification(data, max_pixels, seed)
    if compared is None:
        result["post_classification"] = {"reason": reason}
    else:
        result["post_classification"] = change_scores(compared, count) | {"method": METHOD}
    width, height = pixel_metres(data.frame.cells[0].grid)
    hectares = width * height / 10_000
    maps = (group.mapped(*block) for group in data.groups for block in group.reached_blocks())
    mapped = sum(np.bincount(numbers[numbers != NO_LABEL], minlength=count**2) for numbers in maps)
    model = confusions["model"]
    areas = {"labels": model.sum(1), "map_in_test": model.sum(0), "map": np.asarray(mapped) / len(data.groups)}
    result["areas"] = {
        name: [[round(float(value) * hectares, 4) for value in row] for row in values.reshape(count, count)]
        for name, values in areas.items()
    }
    return {"change": {"classes": list(data.from_to)} | result}


def change_scores(confusion: IntArray, classes: int) -> dict[str, Any]:
    """Scores of change against no change from a confusion matrix of from-to classes (truth, predicted).

    F1, precision, recall and IoU of the changed pixels, Cohen's kappa and accuracy of the two; `confusion` is the
    matrix of no change and change. `correct_transitions` is the share of the changed pixels whose from-to class
    is correct.
    """
    is_change = np.array([before != after for before in range(classes) for after in range(classes)])
    table = np.array(
        [
            [confusion[np.ix_(truth, predicted)].sum() for predicted in (~is_change, is_change)]
            for truth in (~is_change, is_change)
        ]
    )
    values = ClassTables(("no change", "change")).document(table.ravel())
    changed = int(confusion[is_change].sum())
    correct = int(np.diag(confusion)[is_change].sum())
    of_change = {key: values["per_class"]["change"][key] for key in ("f1", "precision", "recall", "iou", "pixels")}
    share = round(correct / changed, 6) if changed else None
    return of_change | {key: values[key] for key in ("kappa", "accuracy", "confusion")} | {"correct_transitions": share}


def _post_classification(data: EvaluationData, max_pixels: int, seed: int) -> tuple[IntArray | None, str]:
    """The from-to confusion matrix of the baseline; or None, and the reason."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    dates, count = channels_by_date(data.groups[0].stores[0].names), len(data.from_to)
    if len(dates) < 2 or any(len(group.stores) > 1 for group in data.groups):
        return None, "the map is not of one image with bands of two dates (composite.stack)"
    features, truth = training_pixels(data, max_pixels, [seed])[0]
    classes = np.divmod(truth.astype(np.int64), count)
    if any(len(np.unique(numbers)) < 2 for numbers in classes):
        return None, "the training areas have one class at one of the dates"
    estimators = [
        (channels, HistGradientBoostingClassifier(random_state=seed).fit(features[:, channels], numbers))
        for channels, numbers in zip((dates[0], dates[-1]), classes, strict=True)
    ]
    confusion = np.zeros((count**2, count**2), np.int64)
    for pixels in data.pixels("test"):
        for index, features in pixels.group.features.by_window(pixels.rows, pixels.cols):
            before, after = (estimator.predict(features[:, channels]) for channels, estimator in estimators)
            confusion += confusion_matrix(pixels.truth[index], before * count + after, count**2)
    return confusion, ""
