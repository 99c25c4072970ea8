"""Compare maps with labels in the test areas, and with the scores of baselines; of change, with no change."""

import logging
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, IntArray
from eopipe.composites.periods import channels_by_date
from eopipe.errors import BadInputError, UsageError
from eopipe.evaluation.baseline import Baselines, sampled_pixels
from eopipe.evaluation.intervals import Tally, rounded
from eopipe.evaluation.maps import EvaluationData, has_value
from eopipe.evaluation.multilabel import TestedChips, label_details
from eopipe.evaluation.paired import PairedTables
from eopipe.evaluation.units import choose_units
from eopipe.inference.finished_maps import places_of
from eopipe.tasks import SEGMENTATION
from eopipe.tasks.segmentation import ClassTables, confusion_matrix
from eopipe.tasks.task import Compared, SimplestPrediction
from eopipe.tiles.store import NO_LABEL

log = logging.getLogger("eopipe")
# What the metrics say of the baselines where no label trains.
NO_BASELINES = "none: a baseline needs labels to train with, and all labels of this run are test labels"
# Training pixels of each fit of a baseline.
MAX_PIXELS = 20_000
METHOD = "post-classification comparison of boosted trees on the bands of the first and of the last date"


def evaluate_maps(
    data: EvaluationData, max_pixels: int = MAX_PIXELS, seed: int = 0, probabilities: tuple[Path, ...] = ()
) -> dict[str, Any]:
    """The content of a metrics file; average precisions need the maps of probabilities.

    Raises BadInputError where no cell of a map of chips is completely inside the training or the test areas.
    """
    baselines, task = Baselines.fit(data, max_pixels, seed), data.task
    simplest = None if data.only_tests else _simplest(data)
    tally, chips = _tally(data, baselines, simplest)
    count = int(task.tables(data.names).sizes(tally.by_unit["model"].sum(0)[None])[0])
    if task.is_of_chips and not count:
        raise _no_cell(data, "test")
    metrics: dict[str, Any] = {"classes": list(data.names), "maps": len(data.groups), f"test_{task.sample}s": count}
    metrics |= tally.documents() | tally.uncertainty(data.split.chip, baselines.chosen) | _scene_scores(data, tally)
    metrics |= {"task": task.name} if task is not SEGMENTATION else {}
    metrics |= _map_pixels(data) if task.maps_classes and not data.from_to else {}
    baselines.describe(metrics, task.vote)
    if simplest:
        metrics[task.simple_baseline[0]] |= dict(simplest.described)
        metrics |= dict(simplest.labels) | ({"unit": data.unit} if simplest.labels else {})
    else:
        metrics |= {"baselines": NO_BASELINES}
    if task.has_label_sets:
        metrics |= label_details(data, chips, probabilities, metrics)
    if data.from_to:
        confusions = {name: np.array(metrics[name]["confusion"]) for name in _methods(data, baselines)}
        metrics |= change_metrics(data, confusions, max_pixels, seed)
    return metrics


def _simplest(data: EvaluationData) -> SimplestPrediction:
    """What predicts the same everywhere, by the labels of the training samples."""
    truths = (samples.truth for samples in data.samples("train"))
    if (first := next(truths, None)) is None:
        raise _no_cell(data, "training")
    return data.task.simplest(chain([first], truths), data.names)


def _no_cell(data: EvaluationData, areas: str) -> BadInputError:
    return BadInputError(
        f"no cell of {data.split.chip} pixels of the map is completely inside the {areas} areas; "
        f"choose a split.stride that divides split.chip, or larger {areas} areas"
    )


def _methods(data: EvaluationData, baselines: Baselines) -> tuple[str, ...]:
    """What is compared with the labels: the model and, where labels train, the baselines."""
    return ("model",) if data.only_tests else ("model", *baselines.models, data.task.simple_baseline[0])


def maps_of_members(maps: tuple[Path, ...], count: int) -> list[tuple[Path, ...]]:
    """The maps of each member of an ensemble, `count` of each, from all of them in the order of the members.

    Raises UsageError for a number of maps that does not fit two or more members, BadInputError for a map of the
    places of another split than test.
    """
    if maps and (len(maps) % count or len(maps) < 2 * count):
        raise UsageError(
            f"the number of member maps is {len(maps)}, the ensemble itself has {count}: give as many for each of "
            "at least two members"
        )
    for path in maps:
        if (places := places_of(path)) not in ("", "test"):
            raise BadInputError(
                f"map {path} of a member shows the {places} places alone, but scores are of the test places; give its "
                "map of these, by predict --places test, or of everything"
            )
    return [maps[start : start + count] for start in range(0, len(maps), count)]


def member_metrics(data: EvaluationData, members: Sequence[EvaluationData]) -> dict[str, Any]:
    """The scores of the members of an ensemble on the test places that the map and all of them have; none without.

    Raises BadInputError for maps of other tasks, classes, grids, labels or chips than the map has.
    """
    if not members:
        return {}
    names = ["the map", *(f"member {number}" for number in range(len(members)))]
    tables = PairedTables.read([data, *members], names)
    of_members = [{key: rounded(value) for key, value in row.items()} for row in tables.scores()[1:]]
    return {"members": [{"count": tables.count, "scores": row} for row in of_members]}


def _tally(
    data: EvaluationData, baselines: Baselines, simplest: SimplestPrediction | None
) -> tuple[Tally, list[TestedChips]]:
    """The tables of the test samples by method; of maps of chips, the chips with their votes too."""
    units, task, tested = choose_units(data), data.task, list[TestedChips]()
    tables, offset = task.tables(data.names), simplest.offset if simplest else 0.0
    tally = Tally.empty(units, _methods(data, baselines), len(data.groups), tables)
    for samples in data.samples("test"):
        number = samples.group.number
        index = units.index_of(number, samples.rows, samples.cols)
        predictions: dict[str, AnyArray] = {"model": samples.mapped}
        if samples.pixels is None:
            predictions |= baselines.predict(samples.group, samples.rows, samples.cols)
        else:
            tested.append(TestedChips(samples, baselines.votes(samples)))
            predictions |= {name: task.of_votes(votes, data.min_share) for name, votes in tested[-1].votes.items()}
        if simplest:
            predictions[task.simple_baseline[0]] = np.broadcast_to(simplest.value, samples.truth.shape)
        for name, predicted in predictions.items():
            tally.add(name, number, tables.by_unit(units, index, Compared(samples.truth, predicted, offset)))
    return tally, tested


def _map_pixels(data: EvaluationData) -> dict[str, Any]:
    """The pixels of each class on all maps, anywhere, and the classes without one, where there are any."""
    counts = np.zeros(NO_LABEL + 1, np.int64)
    for group in data.groups:
        for block in group.reached_blocks():
            counts += np.bincount(group.mapped(*block).ravel(), minlength=len(counts))
    pixels = dict(zip(data.names, counts.tolist(), strict=False))
    names = [name for name, count in pixels.items() if not count]
    if names:
        log.warning("event=class_not_mapped classes=%r", ", ".join(names))
    return {"map_pixels": pixels} | ({"not_mapped": names} if names else {})


def _scene_scores(data: EvaluationData, tally: Tally) -> dict[str, Any]:
    """The model's scores of each test scene by date, where scenes are split; otherwise nothing."""
    if not data.split.by_scene:
        return {}
    table = tally.by_map
    scores_by_scene, sizes = tally.tables.scores(table), tally.tables.sizes(table)
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
    result["areas"] = {
        name: [[float(f"{value:.9g}") for value in row] for row in values.reshape(count, count)]
        for name, values in class_hectares(data).items()
    }
    return {"change": {"classes": list(data.from_to)} | result}


def class_hectares(data: EvaluationData) -> dict[str, Float64Array]:
    """Hectares (class,) on the ground: of the labels and the map in the test areas, and of all of the map.

    The last is the mean over the maps where there are several.
    """
    count = len(data.names)
    areas = {name: np.zeros(count) for name in ("labels", "map_in_test", "map")}
    for pixels in data.pixels("test"):
        for name, numbers in (("labels", pixels.truth), ("map_in_test", pixels.mapped)):
            areas[name] += np.bincount(numbers, pixels.hectares, count)
    for group in data.groups:
        for block in group.reached_blocks():
            numbers, hectares = group.mapped(*block), group.frame.hectares(*block)
            is_mapped = has_value(numbers)
            areas["map"] += np.bincount(numbers[is_mapped], hectares[is_mapped], count) / len(data.groups)
    return areas


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
    features, truth, _ = sampled_pixels(data, max_pixels, seed)
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
