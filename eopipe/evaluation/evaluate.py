"""Compare maps with labels in the test areas, and with the scores of baselines; of change, with no change.

The labels of a chip that has several are the classes with at least `min_share` of its labelled pixels.
"""

import logging
from collections.abc import Iterator, Sequence
from itertools import chain, compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, IntArray
from eopipe.chips.chips import has_value
from eopipe.composites.periods import channels_by_date
from eopipe.errors import BadInputError, UsageError
from eopipe.evaluation.baseline import Baselines, sampled_pixels
from eopipe.evaluation.calibration import ProbabilityMaps
from eopipe.evaluation.correlation import choose_units
from eopipe.evaluation.intervals import Tally, rounded
from eopipe.evaluation.maps import AreaSamples, EvaluationData
from eopipe.evaluation.paired import PairedTables
from eopipe.inference.finished_maps import places_of
from eopipe.tasks import SEGMENTATION
from eopipe.tasks.multilabel import PRESENCE
from eopipe.tasks.segmentation import ClassTables, confusion_matrix
from eopipe.tasks.tables import Compared
from eopipe.tasks.task import SimplestPrediction
from eopipe.tiles.store import NO_LABEL

log = logging.getLogger("eopipe")
# What the metrics say of the baselines where no label trains.
NO_BASELINES = "none: a baseline needs labels to train with, and all labels of this run are test labels"
# Training pixels of each fit of a baseline.
MAX_PIXELS = 20_000
METHOD = "post-classification comparison of boosted trees on the bands of the first and of the last date"
MAX_EXAMPLES = 12


class TestedChips(NamedTuple):
    """Test chips of a block, and the pixels of each class (n, class) that each baseline predicts in them."""

    samples: AreaSamples
    votes: dict[str, IntArray]


def label_details(
    data: EvaluationData, tested: Sequence[TestedChips], probabilities: tuple[Path, ...], metrics: dict[str, Any]
) -> dict[str, Any]:
    """What the metrics of several labels have beside their scores; adds average precisions to these.

    Chips are ordered by the probabilities of the model, by the shares that a baseline predicts, and not at all by the
    simplest prediction.
    """
    truth, mapped = (np.concatenate(parts) > 0 for parts in zip(*((s.truth, s.mapped) for s, _ in tested), strict=True))
    votes = {name: np.concatenate([part.votes[name] for part in tested]) for name in tested[0].votes}
    # The share of each class among the classes of the pixels of a chip.
    rankings = {name: n / np.maximum(n.sum(1, keepdims=True), 1) for name, n in votes.items()}
    rankings[data.task.simple_baseline[0]] = np.zeros(truth.shape)
    if probabilities:
        rankings["model"] = np.concatenate([*_mapped_probabilities(data, probabilities)])
    for name in ("model", *rankings):
        _add_precision(metrics[name], truth, rankings.get(name), data.names)
    if "missing" in metrics["intervals"]:
        reason = "average precision depends on the order of all chips, so it is not a sum over pieces"
        metrics["intervals"]["missing"] |= {"mean_average_precision": reason}
    pairs = {"truth": _cooccurrence(truth), "predicted": _cooccurrence(mapped)}
    examples = _examples(data, [part.samples for part in tested], truth, mapped)
    return {"min_share": data.min_share, "threshold": PRESENCE, "cooccurrence": pairs, "examples": examples}


def _mapped_probabilities(data: EvaluationData, paths: tuple[Path, ...]) -> Iterator[Float64Array]:
    """For each map the published probabilities (n, class) of its test chips, in their order."""
    maps = ProbabilityMaps.of(data, paths)
    for samples in data.samples("test"):
        values = np.zeros((len(samples.rows), len(data.names)))
        width = int(samples.cols.max(initial=0)) + 1
        position = samples.rows * width + samples.cols
        for probability, part in maps.read(samples):
            values[np.searchsorted(position, part.rows * width + part.cols)] = probability.T
        yield values


def _add_precision(
    scores: dict[str, Any], truth: BoolArray, ranking: Float64Array | None, names: tuple[str, ...]
) -> None:
    """Add the average precision (AP) of each class and their mean (mAP), None where a class or the ranking is missing.

    AP is the sum over the thresholds of the increase in recall times the precision, without interpolation, as
    `sklearn.metrics.average_precision_score` has it; classes that no test chip has are left out of the mean.
    """
    values = [average_precision(truth[:, n], ranking[:, n]) if ranking is not None else None for n in range(len(names))]
    for name, value in zip(names, values, strict=True):
        scores["per_class"][name]["average_precision"] = value
    defined = [value for value in values if value is not None]
    scores["mean_average_precision"] = round(sum(defined) / len(defined), 6) if defined else None


def average_precision(truth: AnyArray, ranking: AnyArray) -> float | None:
    """The average precision of a ranking (n,) of chips for the truth of one class (n,); None where no chip has it."""
    from sklearn.metrics import average_precision_score

    return round(float(average_precision_score(truth, ranking)), 6) if truth.any() else None


def _cooccurrence(labels: BoolArray) -> list[list[int]]:
    """The number of chips that have both of two classes (class, class); on the diagonal those that have one."""
    counts = labels.astype(np.int64)
    return [[int(number) for number in row] for row in counts.T @ counts]


def _examples(
    data: EvaluationData, samples: Sequence[AreaSamples], truth: BoolArray, mapped: BoolArray
) -> list[dict[str, Any]]:
    """Test chips spread evenly over those with a correct set of labels and those without, at most six of each.

    `scene` is empty where the map is a mosaic.
    """
    places = [(part.group.number, *place) for part in samples for place in zip(part.rows, part.cols, strict=True)]
    exact = (truth == mapped).all(1)
    chosen: list[int] = []
    for group in (np.flatnonzero(exact), np.flatnonzero(~exact)):
        picks = np.linspace(0, len(group) - 1, min(len(group), MAX_EXAMPLES // 2)).round().astype(int)
        chosen += group[np.unique(picks)].tolist() if len(group) else []
    return [
        {
            "scene": data.groups[places[n][0]].stores[0].scene if len(data.groups) > 1 else "",
            "row": int(places[n][1]),
            "column": int(places[n][2]),
            "truth": list(compress(data.names, truth[n])),
            "predicted": list(compress(data.names, mapped[n])),
        }
        for n in sorted(chosen)
    ]


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
