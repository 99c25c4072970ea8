"""The tree baselines: boosted trees on the bands of single pixels, and with the texture around each pixel."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, FloatArray, IntArray
from eopipe.chips.chips import count_votes
from eopipe.evaluation.features import REACH
from eopipe.evaluation.maps import AreaChips, EvaluatedMap, EvaluationData

# The baselines by their keys in a metrics file, and how much of bands, local means and local deviations they see.
TREES = {"pixel_baseline": 1, "texture_baseline": 3}
# Fits that are averaged.
FITS = 3


@dataclass(frozen=True)
class TreeBaselines:
    """Both tree baselines, each the mean of three fits of histogram gradient boosting.

    Each fit has a seed of its own, derived from the seed of the run. It draws the training pixels of the fit and, of
    more than 10,000, the tenth that decides when the fit stops; fits on the same fewer pixels are equal. The class is
    the one with the highest mean of the three probabilities, a value is the mean of three. `fits` are by baseline.
    `classes` is 0 where values are predicted.
    """

    fits: dict[str, list[Any]]
    classes: int
    images: str

    @classmethod
    def fit(cls, data: EvaluationData, max_pixels: int, seed: int) -> "TreeBaselines":
        """Fit on at most `max_pixels` pixels of the training areas; nothing where all labels test."""
        if data.only_tests:
            return cls({}, len(data.names), "")
        seeds = [int(state) for state in np.random.SeedSequence(seed).generate_state(FITS)]
        classes = len(data.names) if data.task.has_classes else 0
        fits: dict[str, list[Any]] = {name: [] for name in TREES}
        for own_seed, (features, truth) in zip(seeds, training_pixels(data, max_pixels, seeds), strict=True):
            for name in TREES:
                fits[name].append(_estimator(classes, truth, own_seed).fit(_part(name, features), truth))
        images = "seasonal medians of each band" if len(data.groups[0].stores) > 1 else "the bands of each pixel"
        return cls(fits, classes, images)

    def predict(self, group: EvaluatedMap, rows: AnyArray, cols: AnyArray) -> dict[str, AnyArray]:
        """Classes or values (n,) of pixels by each baseline, window by window."""
        dtype = np.int64 if self.classes else np.float64
        predicted: dict[str, AnyArray] = {name: np.zeros(len(rows), dtype) for name in self.fits}
        for index, features in group.features.by_window(rows, cols) if self.fits else ():
            for name, fits in self.fits.items():
                predicted[name][index] = self._mean(fits, _part(name, features))
        return predicted

    def _mean(self, fits: list[Any], features: FloatArray) -> AnyArray:
        if not self.classes:
            return np.asarray(np.mean([fit.predict(features) for fit in fits], axis=0))
        total = np.zeros((len(features), self.classes))
        for fit in fits:
            # A rare class may be in some of the draws only; of a single class scikit-learn returns two columns.
            total[:, fit.classes_] += fit.predict_proba(features)[:, : len(fit.classes_)]
        return np.asarray(total.argmax(1))

    def votes(self, chips: AreaChips) -> dict[str, IntArray]:
        """By each baseline the labelled pixels of each class (cell, class) in cells of a map of chips."""
        rows, cols, cell = chips.pixels
        predicted, shape = self.predict(chips.group, rows, cols), (len(chips.rows), self.classes)
        return {name: count_votes(cell, classes, shape) for name, classes in predicted.items()}

    def add_methods(self, metrics: dict[str, Any], of_chips: str = "") -> None:
        """Describe the baselines in the metrics."""
        around = f"and their mean and standard deviation in {2 * REACH + 1} x {2 * REACH + 1} pixels"
        for name, parts in ((name, TREES[name]) for name in self.fits):
            features = f"{self.images} {around}" if parts > 1 else self.images
            metrics[name]["method"] = f"boosted trees on {features}, mean of three fits{of_chips}"


def _estimator(classes: int, truth: AnyArray, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if not classes:
        return HistGradientBoostingRegressor(random_state=seed)
    # Of a class with one pixel none can be held out.
    early_stopping = "auto" if np.unique(truth, return_counts=True)[1].min() > 1 else False
    return HistGradientBoostingClassifier(random_state=seed, early_stopping=early_stopping)


def _part(name: str, features: FloatArray) -> FloatArray:
    """The features that a baseline sees."""
    return features[:, : features.shape[1] // max(TREES.values()) * TREES[name]]


def training_pixels(data: EvaluationData, max_pixels: int, seeds: list[int]) -> list[tuple[FloatArray, AnyArray]]:
    """For each seed features (n, feature) and truth (n,) of pixels of the training areas, drawn at random of more."""
    pixels_per_map, sizes = max_pixels // len(data.groups), np.zeros(len(data.groups), np.int64)
    for pixels in data.pixels("train"):
        sizes[pixels.group.number] += len(pixels.rows)
    drawn = [[_draw(int(size), pixels_per_map, number, seed) for seed in seeds] for number, size in enumerate(sizes)]
    features, truth = [list[FloatArray]() for _ in seeds], [list[AnyArray]() for _ in seeds]
    first = np.zeros_like(sizes)
    for pixels in data.pixels("train"):
        start = first[pixels.group.number]
        first[pixels.group.number] = stop = start + len(pixels.rows)
        chosen = [draw[(draw >= start) & (draw < stop)] - start for draw in drawn[pixels.group.number]]
        index, ends = np.concatenate(chosen), np.cumsum([len(part) for part in chosen])[:-1]
        if len(index):
            values = pixels.group.features.of(pixels.rows[index], pixels.cols[index])
            for n, (part, numbers) in enumerate(zip(np.split(values, ends), chosen, strict=True)):
                features[n].append(part)
                truth[n].append(pixels.truth[numbers])
    return [(np.vstack(parts), np.concatenate(numbers)) for parts, numbers in zip(features, truth, strict=True)]


def _draw(count: int, maximum: int, number: int, seed: int) -> IntArray:
    """At most this number of the pixels 0, 1, … of a map, in rising order."""
    generator = np.random.Generator(np.random.Philox(counter=[0, 0, 0, number], key=seed))
    return np.sort(generator.choice(count, min(count, maximum), replace=False, shuffle=False))
