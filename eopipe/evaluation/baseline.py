"""The baselines: extra trees, boosted trees and linear models of single pixels, on their bands or with texture too."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, FloatArray, IntArray
from eopipe.chips.chips import count_votes
from eopipe.chips.splits import Split
from eopipe.evaluation.correlation import SamplingUnits, choose_units
from eopipe.evaluation.intervals import rounded
from eopipe.evaluation.maps import AreaSamples, EvaluatedMap, EvaluationData
from eopipe.models.pixel_models import FITS, MAX_BOOSTED, METHOD_NAMES, PARTS, REACH, Arrays, FitOptions, fit, outputs
from eopipe.tasks.segmentation import ClassTables
from eopipe.tasks.tables import Compared
from eopipe.train_options import BANDS, BOOSTING, FOREST, LINEAR, TEXTURE

# The baselines by their keys in a metrics file: the model of pixels, and what it sees of them.
BASELINES = {
    "extra_trees": (FOREST, BANDS),
    "texture_extra_trees": (FOREST, TEXTURE),
    "pixel_baseline": (BOOSTING, BANDS),
    "texture_baseline": (BOOSTING, TEXTURE),
    "linear": (LINEAR, BANDS),
    "texture_linear": (LINEAR, TEXTURE),
}
# The baseline where nothing can choose one.
DEFAULT = "texture_extra_trees"
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
    """A fitted model of pixels; `classes` is 0 where values are predicted.

    A feature without a value is the mean (feature,) of the training pixels; where these have none either it is 0.
    """

    kind: str
    means: FloatArray
    arrays: Arrays
    classes: int

    @classmethod
    def fit(cls, key: str, pixels: DrawnPixels, classes: int, seed: int) -> "FeatureModel":
        """Fit the model of a baseline."""
        kind, features = BASELINES[key]
        values = pixels.features[:, : width_of(pixels.features, features)]
        known = np.isfinite(values)
        means = (np.where(known, values, 0).sum(0, dtype=np.float64) / np.maximum(known.sum(0), 1)).astype(np.float32)
        return cls(
            kind, means, fit(kind, np.where(known, values, means), pixels.truth, classes, FitOptions(seed)), classes
        )

    def answer(self, features: FloatArray) -> AnyArray:
        """Classes or values (n,) of features (n, feature), of which it sees the first."""
        values = features[:, : len(self.means)]
        predicted = outputs(self.kind, self.arrays, np.where(np.isfinite(values), values, self.means))
        return np.asarray(predicted.argmax(1) if self.classes else predicted[:, 0])


@dataclass(frozen=True)
class Baselines:
    """The fitted baselines by their keys, and the document of the choice of one of them for headline and gain."""

    models: dict[str, FeatureModel]
    classes: int
    images: str
    choice: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def fit(cls, data: EvaluationData, max_pixels: int, seed: int) -> "Baselines":
        """Fit on at most `max_pixels` pixels of the training areas; nothing where all labels test."""
        if data.only_tests:
            return cls({}, len(data.names), "")
        classes = len(data.names) if data.task.has_classes else 0
        units = choose_units(data, "train")
        pixels = sampled_pixels(data, max_pixels, seed, "train", units)
        models = {
            key: FeatureModel.fit(key, pixels, classes, seed)
            for key, (kind, features) in BASELINES.items()
            if kind != BOOSTING or width_of(pixels.features, features) <= MAX_BOOSTED
        }
        choice = _choose(data, models, pixels, units, seed)
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

    def votes(self, chips: AreaSamples) -> dict[str, IntArray]:
        """The labelled pixels of each class (cell, class) in cells of a map of chips, by baseline."""
        assert chips.pixels is not None
        rows, cols, cell = chips.pixels
        predicted, shape = self.predict(chips.group, rows, cols), (len(chips.rows), self.classes)
        return {key: count_votes(cell, classes, shape) for key, classes in predicted.items()}

    def describe(self, metrics: dict[str, Any], of_chips: str = "") -> None:
        """Describe the baselines, and the choice of one of them, in the metrics."""
        around = f"and their mean and standard deviation in {2 * REACH + 1} x {2 * REACH + 1} pixels"
        for key, model in self.models.items():
            features = f"{self.images} {around}" if BASELINES[key][1] == TEXTURE else self.images
            fits = f", mean of {FITS} fits" if model.kind == BOOSTING else ""
            linear = "logistic regression" if self.classes else "ridge regression"
            name = linear if model.kind == LINEAR else METHOD_NAMES[model.kind]
            metrics[key]["method"] = f"{name} on {features}{fits}{of_chips}"
        metrics |= {"baseline": self.choice} if self.choice else {}


def width_of(features: FloatArray, parts: str) -> int:
    """The number of features that a baseline sees, of bands, means and deviations."""
    return int(features.shape[1]) // PARTS[TEXTURE] * PARTS[parts]


def _choose(
    data: EvaluationData, models: dict[str, FeatureModel], train: DrawnPixels, units: SamplingUnits, seed: int
) -> dict[str, Any]:
    """The baseline with the best mIoU, or lowest RMSE, in places that do not test; of equals the first.

    These are the validation places where they hold every class and enough pixels, else folds of the training places.
    """
    classes = next(iter(models.values())).classes
    measure = "mIoU" if classes else "RMSE"
    validation = sampled_pixels(data, MAX_VALIDATION, seed, "val")
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
            for key in models:
                model = FeatureModel.fit(key, train.chosen(~inside), classes, seed)
                answers[key][inside] = model.answer(train.features[inside])
        truth, by = train.truth, f"{measure} on {int(folds.max()) + 1} folds of the training places, by whole {unit}"
    scores = {key: _score(data.names if classes else (), truth, answer) for key, answer in answers.items()}
    best = (max if classes else min)(scores, key=scores.__getitem__)
    return {"name": best, "by": by, "scores": {key: rounded(score) for key, score in scores.items()}}


def _score(names: tuple[str, ...], truth: AnyArray, answer: AnyArray) -> float:
    if not names:
        return float(np.sqrt(np.mean((answer - truth) ** 2)))
    tables = ClassTables(names)
    return float(tables.scores(tables.of(Compared(truth, answer))[None])["miou"][0])


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
    data: EvaluationData, max_pixels: int, seed: int, name: str = "train", units: SamplingUnits | None = None
) -> DrawnPixels:
    """Pixels of the areas of a split, drawn at random of more, and the units they are in, else 0."""
    pixels_per_map, sizes = max_pixels // len(data.groups), np.zeros(len(data.groups), np.int64)
    for pixels in data.pixels(name):
        sizes[pixels.group.number] += len(pixels.rows)
    drawn = [_draw(int(size), pixels_per_map, number, seed) for number, size in enumerate(sizes)]
    parts = [DrawnPixels(np.empty((0, 0), np.float32), np.empty(0), np.empty(0, np.int64))]
    first = np.zeros_like(sizes)
    for pixels in data.pixels(name):
        number, draw = pixels.group.number, drawn[pixels.group.number]
        start = first[number]
        first[number] = stop = start + len(pixels.rows)
        index = draw[(draw >= start) & (draw < stop)] - start
        if len(index):
            rows, cols = pixels.rows[index], pixels.cols[index]
            of_units = units.index_of(number, rows, cols) if units else np.zeros(len(index), np.int64)
            parts.append(DrawnPixels(pixels.group.features.of(rows, cols), pixels.truth[index], of_units))
    return DrawnPixels(*map(np.concatenate, zip(*(parts[1:] or parts), strict=True)))


def _draw(count: int, maximum: int, number: int, seed: int) -> IntArray:
    """At most this number of the pixels 0, 1, … of a map, in rising order."""
    generator = np.random.Generator(np.random.Philox(counter=[0, 0, 0, number], key=seed))
    return np.sort(generator.choice(count, min(count, maximum), replace=False, shuffle=False))
