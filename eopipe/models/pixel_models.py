"""Models of single pixels and their texture: extra trees, boosted trees and linear models, fitted by scikit-learn.

A fitted model is a table of arrays, without pickle. Extra trees: Geurts et al. 2006
(doi:10.1007/s10994-006-6226-1); boosted trees by histograms: Ke et al. 2017 (Advances in Neural Information Processing
Systems 30).
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, FloatArray, IntArray
from eopipe.train_options import BANDS, BOOSTING, FOREST, LINEAR, TEXTURE

PARTS = {BANDS: 1, TEXTURE: 3}
# Pixels around a pixel that are its texture. A variance below this share of the mean square is an error of rounding.
REACH, LEAST_VARIANCE = 2, 1e-13
METHOD_NAMES = {FOREST: "extra trees", BOOSTING: "boosted trees", LINEAR: "a linear model"}
# Boosted trees are the mean of some fits; they take minutes on more features than this.
FITS, MAX_BOOSTED = 3, 100
TREES, MIN_LEAF = 100, 2
# Each iteration of a linear model on many features takes long.
ITERATIONS, ITERATIONS_OF_MANY = 300, 100
# The least probability of a class, whose logarithm is an output.
LEAST_PROBABILITY = 1e-4
# Pixels that go through a tree at a time, and levels between two looks at which of them are in a leaf.
ROWS, LEVELS = 2**15, 4

Arrays = dict[str, AnyArray]


def texture(image: Any) -> tuple[Any, Any]:
    """Means and standard deviations (..., y, x) of 5 x 5 pixels, of an image that has `REACH` more on each side.

    The image is an array or a tensor of double precision. Sums are in one order, whatever the size of the image.
    """
    mean, square = _window_mean(image), _window_mean(image * image)
    variance = square - mean * mean
    return mean, (variance * (variance >= LEAST_VARIANCE * square)) ** 0.5


def _window_mean(values: Any) -> Any:
    shifts = [slice(start, start - 2 * REACH or None) for start in range(2 * REACH + 1)]
    rows = sum((values[..., shift, :] for shift in shifts[1:]), values[..., shifts[0], :])
    return sum((rows[..., shift] for shift in shifts[1:]), rows[..., shifts[0]]) / len(shifts) ** 2


@dataclass(frozen=True)
class FitOptions:
    """The seed of a fit, weights (class,) of the pixels of each class or none, threads, and trees of a forest.

    Threads change no byte: each tree has a seed of its own, and sums that depend on their order have one thread.
    """

    seed: int = 0
    weights: AnyArray = field(default_factory=lambda: np.zeros(0))
    threads: int = 1
    trees: int = TREES


def fit(kind: str, features: FloatArray, truth: AnyArray, classes: int, options: FitOptions) -> Arrays:
    """Fit a model to features (n, feature) and classes or, where `classes` is 0, values (n,); gives its arrays."""
    from threadpoolctl import threadpool_limits

    present = np.unique(truth) if classes else np.zeros(0)
    if len(present) == 1:
        return _constant(kind, features.shape[1], int(present[0]), classes)
    weights = options.weights[truth.astype(np.int64)] if classes and len(options.weights) else None
    fitted = {FOREST: _fit_forest, BOOSTING: _fit_boosting, LINEAR: _fit_linear}[kind]
    # Sums of more threads have another order.
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # A linear model may not be at its optimum after the last iteration.
        warnings.simplefilter("ignore")
        return fitted(features, truth, classes, weights, options)


def outputs(kind: str, arrays: Mapping[str, AnyArray], features: FloatArray) -> AnyArray:
    """Logits (n, class), whose softmax are probabilities, or values (n, 1), of features (n, feature)."""
    if kind == LINEAR:
        weight = arrays["weight"].reshape(len(arrays["weight"]), -1)
        return np.asarray(features.astype(np.float64) @ weight.T.astype(np.float64) + arrays["bias"])
    sums = sum_of_leaves(arrays, features)
    return np.log(np.maximum(sums, LEAST_PROBABILITY)) if kind == FOREST and sums.shape[1] > 1 else sums


def sum_of_leaves(arrays: Mapping[str, AnyArray], features: FloatArray) -> FloatArray:
    """Base and the sum (n, column) of the values of the leaves that pixels reach, in the order of the trees.

    A pixel goes to the left where its feature is at most the threshold; a leaf is its own child.
    """
    # Each node has two entries in every table, one for each answer; the entry of the answer leads to the child.
    roots = (2 * arrays["root"].astype(np.int64)).tolist()
    column, threshold = np.repeat(arrays["feature"].astype(np.int64), 2), np.repeat(arrays["threshold"], 2)
    children = 2 * np.stack([arrays["left"], arrays["right"]], 1).ravel().astype(np.int64)
    total = np.repeat(arrays["base"][None].astype(np.float32), len(features), 0)
    # No index is out of range, so `clip` only skips the check of each.
    take = partial(np.ndarray.take, mode="clip")
    for start in range(0, len(features), ROWS):
        block = np.ascontiguousarray(features[start : start + ROWS], np.float32)
        first, flat = np.arange(len(block), dtype=np.int64) * block.shape[1], block.ravel()
        for root in roots:
            node = np.full(len(block), root, np.int64)
            rows, at, begin = np.arange(len(block)), node, first
            while len(rows):
                for _ in range(LEVELS):
                    is_right = take(flat, take(column, at) + begin) > take(threshold, at)
                    at = take(children, at + is_right)
                node[rows] = at
                is_inside = take(children, at) != at
                rows, at, begin = rows[is_inside], at[is_inside], begin[is_inside]
            total[start : start + ROWS] += arrays["value"][node // 2]
    return total


def mistake_in(arrays: Mapping[str, AnyArray], features: int) -> str:
    """What is wrong with arrays of trees that somebody gives; empty for those that `fit` makes."""
    left, right, root, feature = (arrays[name] for name in ("left", "right", "root", "feature"))
    if any(array.dtype != np.int32 or array.ndim != 1 for array in (left, right, root, feature)):
        return "its tables of nodes have another type"
    count, number = len(left), np.arange(len(left))
    sizes = {len(right), len(feature), len(arrays["threshold"]), len(arrays["value"])}
    if sizes != {count} or arrays["value"].shape[1:] != arrays["base"].shape:
        return "its tables of nodes have different lengths"
    if ((root < 0) | (root >= count)).any() or ((feature < 0) | (feature >= features)).any():
        return "a node has a number that there is not"
    is_leaf = (left == number) & (right == number)
    is_later = (left > number) & (right > number) & (left < count) & (right < count)
    if not (is_leaf | is_later).all():
        return "a node is before its parent"
    if not all(np.isfinite(arrays[name]).all() for name in ("threshold", "value", "base")):
        return "it has numbers that are not finite"
    return ""


def _constant(kind: str, features: int, present: int, classes: int) -> Arrays:
    """A model of the only class that there is."""
    share = np.eye(classes, dtype=np.float32)[present]
    logits = np.log(np.maximum(share, LEAST_PROBABILITY)).astype(np.float32)
    if kind == LINEAR:
        return {"weight": np.zeros((classes, features, 1, 1), np.float32), "bias": logits}
    leaf = _tree(np.zeros(1), np.zeros(1), np.zeros(1), np.zeros(1), np.zeros((1, classes)), np.ones(1, bool))
    return _forest([leaf], share if kind == FOREST else logits)


def _fit_linear(
    features: FloatArray,
    truth: AnyArray,
    classes: int,
    weights: AnyArray | None,
    options: FitOptions,  # noqa: ARG001
) -> Arrays:
    """Logistic or ridge regression on standardised features, which have one optimum and so no seed."""
    from sklearn import linear_model
    from sklearn.preprocessing import StandardScaler

    iterations = ITERATIONS if features.shape[1] <= MAX_BOOSTED else ITERATIONS_OF_MANY
    scaler = StandardScaler().fit(features.astype(np.float64))
    model = linear_model.LogisticRegression(max_iter=iterations) if classes else linear_model.Ridge()
    model.fit(scaler.transform(features.astype(np.float64)), truth, weights)
    rows, bias = np.atleast_2d(model.coef_) / scaler.scale_, np.atleast_1d(model.intercept_).astype(np.float64)
    bias = bias - rows @ scaler.mean_
    if classes:
        columns = _columns(model.classes_.astype(np.int64), classes)
        rows, bias = columns.T @ rows, columns.T @ bias
        bias[~np.isin(np.arange(classes), model.classes_)] = np.log(LEAST_PROBABILITY)
    return {"weight": rows[:, :, None, None].astype(np.float32), "bias": bias.astype(np.float32)}


def _tree(
    left: AnyArray, right: AnyArray, feature: AnyArray, threshold: AnyArray, value: AnyArray, leaf: BoolArray
) -> Arrays:
    """The nodes of one tree: children, feature, threshold and values (node, column) of each."""
    number, limit = np.arange(len(left)), np.minimum(np.where(leaf, 0, threshold), np.finfo(np.float32).max)
    # scikit-learn compares single-precision features with thresholds of double precision.
    rounded = limit.astype(np.float32)
    return {
        "left": np.where(leaf, number, left),
        "right": np.where(leaf, number, right),
        "feature": np.where(leaf, 0, feature),
        "threshold": np.where(rounded > limit, np.nextafter(rounded, np.float32(-np.inf)), rounded),
        "value": np.where(leaf[:, None], value, 0),
    }


def _forest(trees: list[Arrays], base: AnyArray) -> Arrays:
    """One table of the nodes of all trees."""
    roots = np.cumsum([0, *(len(tree["left"]) for tree in trees)])[:-1]
    table = {name: np.concatenate([tree[name] for tree in trees]) for name in trees[0]}
    first = np.repeat(roots, [len(tree["left"]) for tree in trees])
    table |= {"left": table["left"] + first, "right": table["right"] + first, "root": roots, "base": np.asarray(base)}
    kinds = {"threshold": np.float32, "value": np.float32, "base": np.float32}
    return {name: array.astype(kinds.get(name, np.int32)) for name, array in table.items()}


def _fit_forest(
    features: FloatArray, truth: AnyArray, classes: int, weights: AnyArray | None, options: FitOptions
) -> Arrays:
    from sklearn import ensemble

    extra = ensemble.ExtraTreesClassifier if classes else ensemble.ExtraTreesRegressor
    model = extra(options.trees, min_samples_leaf=MIN_LEAF, random_state=options.seed, n_jobs=options.threads)
    model.fit(features, truth, weights)
    trees = []
    for estimator in model.estimators_:
        nodes = estimator.tree_
        value = nodes.value[:, 0].astype(np.float64)
        if classes:
            shares = value / value.sum(1, keepdims=True)
            value = np.zeros((len(shares), classes))
            value[:, model.classes_.astype(np.int64)] = shares
        is_leaf = nodes.children_left < 0
        tree = nodes.children_left, nodes.children_right, nodes.feature, nodes.threshold, value / options.trees, is_leaf
        trees.append(_tree(*tree))
    return _forest(trees, np.zeros(max(classes, 1)))


def _fit_boosting(
    features: FloatArray, truth: AnyArray, classes: int, weights: AnyArray | None, options: FitOptions
) -> Arrays:
    from sklearn import ensemble

    counts: IntArray = np.unique(truth, return_counts=True)[1]
    # A class with one pixel cannot hold any out.
    early_stopping: Any = "auto" if not classes or counts.min() > 1 else False
    boosted = ensemble.HistGradientBoostingClassifier if classes else ensemble.HistGradientBoostingRegressor
    trees, bases = [], np.zeros(max(classes, 1))
    for of_fit in np.random.SeedSequence(options.seed).generate_state(FITS).tolist():
        model = boosted(random_state=of_fit, early_stopping=early_stopping).fit(features, truth, weights)
        numbers = model.classes_.astype(np.int64) if classes else np.zeros(1, np.int64)
        columns, base = _columns(numbers, len(bases)), np.full(len(bases), np.log(LEAST_PROBABILITY))
        base[numbers] = 0
        bases += (base + np.ravel(model._baseline_prediction) @ columns) / FITS
        for of_iteration in model._predictors:
            for column, predictor in zip(columns, of_iteration, strict=True):
                nodes = predictor.nodes
                value = nodes["value"][:, None] * column / FITS
                tree = nodes["left"], nodes["right"], nodes["feature_idx"], nodes["num_threshold"], value
                trees.append(_tree(*tree, nodes["is_leaf"].astype(bool)))
    return _forest(trees, bases)


def _columns(numbers: IntArray, width: int) -> Float64Array:
    """The columns (row or tree, column) of classes with these numbers; of two classes there is one, of the second."""
    columns = np.zeros((len(numbers), width))
    columns[np.arange(len(numbers)), numbers] = 1
    return (columns[1:] - columns[:1]) / 2 if len(numbers) == 2 else columns
