"""The baselines: extra trees, boosted trees and linear models of single pixels, on their bands or with texture too."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, FloatArray, IntArray
from eopipe.chips.chips import count_votes
from eopipe.chips.splits import Split
from eopipe.evaluation.correlation import SamplingUnits
from eopipe.evaluation.features import REACH
from eopipe.evaluation.intervals import choose_units, rounded
from eopipe.evaluation.maps import AreaChips, EvaluatedMap, EvaluationData
from eopipe.tasks.classes import ClassTables, confusion_matrix

# The baselines by their keys in a metrics file: estimator, and how much of bands, means and deviations it sees.
BASELINES = {
    "extra_trees": ("extra trees", 1),
    "texture_extra_trees": ("extra trees", 3),
    "pixel_baseline": ("boosted trees", 1),
    "texture_baseline": ("boosted trees", 3),
    "linear": ("linear", 1),
    "texture_linear": ("linear", 3),
}
# Boosted trees are the mean of some fits; they take minutes on more features than this.
FITS, MAX_BOOSTED = 3, 100
# Of linear models on many features each iteration takes long.
TREES, MIN_LEAF, ITERATIONS, ITERATIONS_OF_MANY = 100, 2, 300, 100
# The baseline where nothing can choose one.
DEFAULT = "texture_extra_trees"
# Predicted at once.
ROWS = 2**14
# The choice: fewest validation pixels, most of them, most training pixels of the folds, their number, fewest squares.
MIN_VALIDATION, MAX_VALIDATION, MAX_FOLDED, FOLDS, MIN_SQUARES = 500, 20_000, 5_000, 3, 12


class DrawnPixels(NamedTuple):
    """Features (n, feature) and truth (n,) of pixels, and the sampling units (n,) they are in."""

    features: FloatArray
    truth: AnyArray
    units: IntArray

    def chosen(self, index: AnyArray | slice) -> "DrawnPixels":
        return DrawnPixels(self.features[index], self.truth[index], self.units[index])


@dataclass(frozen=True)
class FeatureModel:
    """A model of features: the mean of estimators of scikit-learn, of one thread each, in their order.

    It sees the first `columns` of the features; `classes` is 0 where values are predicted.
    """

    estimators: list[Any]
    columns: int
    classes: int

    @classmethod
    def fit(cls, key: str, draws: Sequence[DrawnPixels], classes: int, seeds: Sequence[int]) -> "FeatureModel":
        """Fit the estimator of a baseline to each draw, with the seed of the draw."""
        kind, parts = BASELINES[key]
        columns, estimators = width_of(draws[0].features, parts), []
        for (features, truth, _), seed in zip(draws, seeds, strict=True):
            values = features[:, :columns].astype(np.float64)
            # No estimator takes a feature without any value.
            values[:, np.isnan(values).all(0)] = 0
            with _one_thread(), warnings.catch_warnings():
                # Of a linear model that is not at its optimum after the last iteration.
                warnings.simplefilter("ignore")
                estimator = _estimator(kind, classes, truth, seed, columns)
                estimators.append(estimator.fit(values, truth))
        return cls(estimators, columns, classes)

    def predict(self, features: FloatArray) -> AnyArray:
        """Probabilities (n, class), or values (n,)."""
        total = np.zeros((len(features), self.classes) if self.classes else len(features))
        for start in range(0, len(features), ROWS):
            rows = slice(start, start + ROWS)
            part = features[rows, : self.columns].astype(np.float64)
            with _one_thread():
                for estimator in self.estimators:
                    if self.classes:
                        # A rare class may be in some of the draws only.
                        total[rows, estimator.classes_.astype(np.int64)] += estimator.predict_proba(part)
                    else:
                        total[rows] += estimator.predict(part)
        return np.asarray(total / len(self.estimators))

    def answer(self, features: FloatArray) -> AnyArray:
        """Classes or values (n,)."""
        predicted = self.predict(features)
        return np.asarray(predicted.argmax(1) if self.classes else predicted)


@dataclass(frozen=True)
class Baselines:
    """The fitted baselines by their keys, and the document of the choice of one of them for headline and gain.

    Of more pixels than the maximum each fit draws its own, with a seed derived from the seed of the run.
    """

    models: dict[str, FeatureModel]
    classes: int
    images: str
    choice: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def fit(cls, data: EvaluationData, max_pixels: int, seed: int) -> "Baselines":
        """Fit on at most `max_pixels` pixels of the training areas; nothing where all labels test."""
        if data.only_tests:
            return cls({}, len(data.names), "")
        seeds = [int(state) for state in np.random.SeedSequence(seed).generate_state(FITS)]
        classes = len(data.names) if data.task.has_classes else 0
        units = choose_units(data, "train")
        draws, models = sampled_pixels(data, max_pixels, seeds, "train", units), {}
        for key, (kind, parts) in BASELINES.items():
            fits = FITS if kind == "boosted trees" else 1
            if fits == 1 or width_of(draws[0].features, parts) <= MAX_BOOSTED:
                models[key] = FeatureModel.fit(key, draws[:fits], classes, seeds[:fits])
        choice = _choose(data, models, draws[0], units, seeds[0])
        left_out = {key: f"more than {MAX_BOOSTED} features" for key in BASELINES if key not in models}
        choice |= {"left_out": left_out} if left_out else {}
        images = "seasonal medians of each band" if len(data.groups[0].stores) > 1 else "the bands of each pixel"
        return cls(models, classes, images, choice)

    @property
    def chosen(self) -> str:
        """The key of the baseline of headline and gain; empty where none was fitted."""
        return str(self.choice.get("name", ""))

    def predict(self, group: EvaluatedMap, rows: AnyArray, cols: AnyArray) -> dict[str, AnyArray]:
        """Classes or values (n,) of pixels by each baseline, window by window."""
        dtype = np.int64 if self.classes else np.float64
        predicted: dict[str, AnyArray] = {key: np.zeros(len(rows), dtype) for key in self.models}
        for index, features in group.features.by_window(rows, cols) if self.models else ():
            for key, model in self.models.items():
                predicted[key][index] = model.answer(features)
        return predicted

    def votes(self, chips: AreaChips) -> dict[str, IntArray]:
        """By each baseline the labelled pixels of each class (cell, class) in cells of a map of chips."""
        rows, cols, cell = chips.pixels
        predicted, shape = self.predict(chips.group, rows, cols), (len(chips.rows), self.classes)
        return {key: count_votes(cell, classes, shape) for key, classes in predicted.items()}

    def describe(self, metrics: dict[str, Any], of_chips: str = "") -> None:
        """Describe the baselines, and the choice of one of them, in the metrics."""
        around = f"and their mean and standard deviation in {2 * REACH + 1} x {2 * REACH + 1} pixels"
        for key, model in self.models.items():
            kind, parts = BASELINES[key]
            features = f"{self.images} {around}" if parts > 1 else self.images
            linear = "logistic regression" if self.classes else "ridge regression"
            fits = f", mean of {len(model.estimators)} fits" if len(model.estimators) > 1 else ""
            metrics[key]["method"] = f"{linear if kind == 'linear' else kind} on {features}{fits}{of_chips}"
        metrics |= {"baseline": self.choice} if self.choice else {}


def width_of(features: FloatArray, parts: int) -> int:
    """The number of features that a baseline sees, of bands, means and deviations."""
    return int(features.shape[1]) // 3 * parts


def _one_thread() -> Any:
    """Sums of other threads have another order."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(limits=1)


def _estimator(kind: str, classes: int, truth: AnyArray, seed: int, columns: int) -> Any:
    from sklearn import dummy, ensemble, linear_model
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    counts = np.unique(truth, return_counts=True)[1]
    if classes and len(counts) == 1:
        return dummy.DummyClassifier()
    if kind == "boosted trees":
        # Of a class with one pixel none can be held out.
        early_stopping = "auto" if not classes or counts.min() > 1 else False
        boosted = ensemble.HistGradientBoostingClassifier if classes else ensemble.HistGradientBoostingRegressor
        return boosted(random_state=seed, early_stopping=early_stopping)
    fill = SimpleImputer()
    if kind == "extra trees":
        extra = ensemble.ExtraTreesClassifier if classes else ensemble.ExtraTreesRegressor
        return make_pipeline(fill, extra(TREES, min_samples_leaf=MIN_LEAF, random_state=seed))
    iterations = ITERATIONS if columns <= MAX_BOOSTED else ITERATIONS_OF_MANY
    linear = linear_model.LogisticRegression(max_iter=iterations) if classes else linear_model.Ridge()
    return make_pipeline(fill, StandardScaler(), linear)


def _choose(
    data: EvaluationData, models: dict[str, FeatureModel], train: DrawnPixels, units: SamplingUnits, seed: int
) -> dict[str, Any]:
    """The baseline with the best mIoU, or lowest RMSE, in places that do not test; of equals the first.

    These are the validation places where they hold every class and enough pixels, else folds of the training places.
    """
    classes = next(iter(models.values())).classes
    measure = "mIoU" if classes else "RMSE"
    validation = sampled_pixels(data, MAX_VALIDATION, [seed], "val")[0]
    count, has_all = len(validation.truth), len(np.unique(validation.truth)) == classes or not classes
    if count >= MIN_VALIDATION and has_all:
        answers = {key: model.answer(validation.features) for key, model in models.items()}
        truth, by = validation.truth, f"{measure} on {count} pixels of the validation places"
    else:
        train = train.chosen(_draw(len(train.truth), MAX_FOLDED, 0, seed))
        folds, unit = _folds(data.split, train, units, bool(classes))
        if folds.max() == 0:
            return {"name": DEFAULT, "by": "nothing, since the training places are one piece"}
        answers = {key: np.zeros(len(train.truth)) for key in models}
        for fold in range(int(folds.max()) + 1):
            inside = folds == fold
            others = [train.chosen(~inside)]
            for key in models:
                model = FeatureModel.fit(key, others, classes, [seed])
                answers[key][inside] = model.answer(train.features[inside])
        truth, by = train.truth, f"{measure} on {int(folds.max()) + 1} folds of the training places, by whole {unit}"
    scores = {key: _score(data.names if classes else (), truth, answer) for key, answer in answers.items()}
    best = (max if classes else min)(scores, key=scores.__getitem__)
    return {"name": best, "by": by, "scores": {key: rounded(score) for key, score in scores.items()}}


def _score(names: tuple[str, ...], truth: AnyArray, answer: AnyArray) -> float:
    if not names:
        return float(np.sqrt(np.mean((answer - truth) ** 2)))
    table = confusion_matrix(truth.astype(np.int64), answer.astype(np.int64), len(names))
    return float(ClassTables(names).scores(table.reshape(1, -1))["miou"][0])


def _folds(split: Split, train: DrawnPixels, units: SamplingUnits, has_classes: bool) -> tuple[IntArray, str]:
    """The fold (n,) of each pixel, and what no fold cuts; each class is spread evenly over the folds.

    That are the units of the places, of squares the blocks of the split, or squares of which there are enough.
    """
    numbers, kind = train.units, units.kind
    if units.edge:
        is_block = split.plan.block and split.plan.method in ("blocks", "checkerboard")
        edge = split.plan.block if is_block else split.chip
        numbers = units.squares(edge)[train.units]
        while not is_block and len(np.unique(wider := units.squares(2 * edge)[train.units])) >= MIN_SQUARES:
            numbers, edge = wider, 2 * edge
        kind = "blocks" if is_block else f"squares of {edge} pixels"
    numbers = np.unique(numbers, return_inverse=True)[1].ravel()
    classes = train.truth.astype(np.int64) if has_classes else np.zeros(len(numbers), np.int64)
    counts = np.zeros((int(numbers.max()) + 1, int(classes.max()) + 1))
    np.add.at(counts, (numbers, classes), 1)
    shares: Float64Array = counts / np.maximum(counts.sum(0), 1)
    loads, fold_of = np.zeros((min(FOLDS, len(counts)), counts.shape[1])), np.zeros(len(counts), np.int64)
    for number in np.argsort(-shares.sum(1), kind="stable"):
        fold_of[number] = fold = int((loads @ shares[number]).argmin())
        loads[fold] += shares[number]
    return fold_of[numbers], kind


def sampled_pixels(
    data: EvaluationData, max_pixels: int, seeds: Sequence[int], name: str = "train", units: SamplingUnits | None = None
) -> list[DrawnPixels]:
    """For each seed pixels of the areas of a split, drawn at random of more, and the units they are in, else 0."""
    pixels_per_map, sizes = max_pixels // len(data.groups), np.zeros(len(data.groups), np.int64)
    for pixels in data.pixels(name):
        sizes[pixels.group.number] += len(pixels.rows)
    drawn = [[_draw(int(size), pixels_per_map, number, seed) for seed in seeds] for number, size in enumerate(sizes)]
    parts: list[list[DrawnPixels]] = [[] for _ in seeds]
    first = np.zeros_like(sizes)
    for pixels in data.pixels(name):
        start = first[pixels.group.number]
        first[pixels.group.number] = stop = start + len(pixels.rows)
        chosen = [draw[(draw >= start) & (draw < stop)] - start for draw in drawn[pixels.group.number]]
        index, ends = np.concatenate(chosen), np.cumsum([0, *map(len, chosen)])
        if len(index):
            features = pixels.group.features.of(pixels.rows[index], pixels.cols[index])
            rows, cols, number = pixels.rows[index], pixels.cols[index], pixels.group.number
            of_units = units.index_of(number, rows, cols) if units else np.zeros(len(index), np.int64)
            block = DrawnPixels(features, pixels.truth[index], of_units)
            for n, of_seed in enumerate(parts):
                of_seed.append(block.chosen(slice(ends[n], ends[n + 1])))
    empty = DrawnPixels(np.empty((0, 0), np.float32), np.empty(0), np.empty(0, np.int64))
    return [DrawnPixels(*map(np.concatenate, zip(*of_seed, strict=True))) if of_seed else empty for of_seed in parts]


def _draw(count: int, maximum: int, number: int, seed: int) -> IntArray:
    """At most this number of the pixels 0, 1, … of a map, in rising order."""
    generator = np.random.Generator(np.random.Philox(counter=[0, 0, 0, number], key=seed))
    return np.sort(generator.choice(count, min(count, maximum), replace=False, shuffle=False))
