"""The tree baselines: boosted trees on the bands of single pixels, and with the texture around each pixel."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, FloatArray, IntArray
from eopipe.chips.chips import count_votes
from eopipe.errors import BadInputError
from eopipe.evaluation.maps import AreaChips, EvaluationData
from eopipe.scenes.item import datetime_text
from eopipe.tiles.store import CHIP_SET, Tiles

SEASONS = ((12, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))
# The baselines by their keys in a metrics file, and how much of bands, local means and local deviations they see.
TREES = {"pixel_baseline": 1, "texture_baseline": 3}
# Fits that are averaged; edge in pixels of what is read at once; pixels around a pixel that are its texture.
FITS, WINDOW, REACH = 3, 512, 2
# Of the mean square; a variance below is an error of rounding.
LEAST_VARIANCE = 1e-13


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
        """Fit on at most `max_pixels` pixels of the training areas."""
        seeds = [int(state) for state in np.random.SeedSequence(seed).generate_state(FITS)]
        classes = 0 if data.task == "regression" else len(data.names)
        fits: dict[str, list[Any]] = {name: [] for name in TREES}
        for own_seed, (features, truth) in zip(seeds, training_pixels(data, max_pixels, seeds), strict=True):
            for name in TREES:
                fits[name].append(_estimator(classes, truth, own_seed).fit(_part(name, features), truth))
        images = "seasonal medians of each band" if len(data.groups[0].stores) > 1 else "the bands of each pixel"
        return cls(fits, classes, images)

    def predict(self, stores: list[Tiles], rows: AnyArray, cols: AnyArray) -> dict[str, AnyArray]:
        """Classes or values (n,) of pixels by each baseline, window by window."""
        dtype = np.int64 if self.classes else np.float64
        predicted: dict[str, AnyArray] = {name: np.zeros(len(rows), dtype) for name in TREES}
        for index, features in windowed_features(stores, rows, cols):
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
        predicted, shape = self.predict(chips.group.stores, rows, cols), (len(chips.rows), self.classes)
        return {name: count_votes(cell, classes, shape) for name, classes in predicted.items()}

    def add_methods(self, metrics: dict[str, Any], of_chips: str = "") -> None:
        """Describe the baselines in the metrics."""
        around = f"and their mean and standard deviation in {2 * REACH + 1} x {2 * REACH + 1} pixels"
        for name, parts in TREES.items():
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
            values = features_of(pixels.group.stores, pixels.rows[index], pixels.cols[index])
            for n, (part, numbers) in enumerate(zip(np.split(values, ends), chosen, strict=True)):
                features[n].append(part)
                truth[n].append(pixels.truth[numbers])
    return [(np.vstack(parts), np.concatenate(numbers)) for parts, numbers in zip(features, truth, strict=True)]


def _draw(count: int, maximum: int, number: int, seed: int) -> IntArray:
    """At most this number of the pixels 0, 1, … of a map, in rising order."""
    generator = np.random.Generator(np.random.Philox(counter=[0, 0, 0, number], key=seed))
    return np.sort(generator.choice(count, min(count, maximum), replace=False, shuffle=False))


def features_of(stores: list[Tiles], rows: AnyArray, cols: AnyArray) -> FloatArray:
    """The features (pixel, feature) of `windowed_features`, in the order of the pixels."""
    parts = [*windowed_features(stores, rows, cols)]
    features = np.empty((len(rows), parts[0][1].shape[1] if parts else 0), np.float32)
    for index, values in parts:
        features[index] = values
    return features


def windowed_features(stores: list[Tiles], rows: AnyArray, cols: AnyArray) -> Iterator[tuple[IntArray, FloatArray]]:
    """Index (n,) and features (n, feature) of the pixels of each window that has any.

    The first third are bands, or seasonal medians of several scenes; the others are their means and their standard
    deviations over the valid pixels of 5 x 5, of a packed chip over those that it has. NaN is where none is valid.
    """
    height, width = stores[0].shape
    slot = int((stores[0].attributes.get(CHIP_SET) or {"slot": 0})["slot"])
    edge, margin = (max(WINDOW // slot, 1) * slot, 0) if slot else (WINDOW, REACH)
    number = rows // edge * (width // edge + 1) + cols // edge
    order = np.argsort(number, kind="stable")
    for index in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
        if len(index):
            top, left = (int(places[index[0]]) // edge * edge for places in (rows, cols))
            y = slice(max(top - margin, 0), min(top + edge + margin, height))
            x = slice(max(left - margin, 0), min(left + edge + margin, width))
            places = rows[index] - y.start, cols[index] - x.start
            yield index, _with_texture(_image(stores, y, x), slot, *places)


def _image(stores: list[Tiles], y: slice, x: slice) -> FloatArray:
    """Bands, or medians of each season of several scenes (channel, y, x); NaN where none is valid."""
    if len(stores) == 1:
        return _bands(stores[0], y, x)
    seasons = [[s for s in stores if _month(s) in months] for months in SEASONS]
    return np.concatenate([_median(some, y, x) for some in seasons if some])


def _with_texture(image: FloatArray, slot: int, rows: AnyArray, cols: AnyArray) -> FloatArray:
    """Pixels of an image, of their means and of their deviations (pixel, feature); slots are apart, 0 for none."""
    channels, height, width = image.shape
    down, across = (height // slot, width // slot) if slot else (1, 1)
    blocks = image.reshape(channels, down, height // down, across, width // across)
    is_valid = np.isfinite(blocks)
    values = np.where(is_valid, blocks, 0).astype(np.float64)
    sums = (_box(_box(part, 2), 4).reshape(image.shape)[:, rows, cols] for part in (is_valid, values, values**2))
    count, total, squares = sums
    mean, square = (
        np.divide(part, count, out=np.full(part.shape, np.nan), where=count > 0) for part in (total, squares)
    )
    variance = square - mean**2
    deviation = np.sqrt(np.where(variance < LEAST_VARIANCE * square, 0, variance))
    return np.concatenate([image[:, rows, cols], mean, deviation]).T.astype(np.float32)


def _box(values: AnyArray, axis: int) -> Float64Array:
    """Sums over a pixel and its `REACH` neighbours to both sides along an axis, in one order for any window."""
    line = np.moveaxis(values, axis, 0).astype(np.float64)
    total = line.copy()
    for shift in range(1, REACH + 1):
        total[shift:] += line[:-shift]
        total[:-shift] += line[shift:]
    return np.moveaxis(total, 0, axis)


def _month(store: Tiles) -> int:
    text = datetime_text(store.attributes)
    if text is None:
        raise BadInputError(f"{store.path} has no datetime, so its season is not known; run preprocess again")
    return int(text[5:7])


def _bands(store: Tiles, y: slice, x: slice) -> FloatArray:
    return np.where(store.valid(y, x), store.physical(store.names, y, x), np.float32(np.nan))


def _median(stores: list[Tiles], y: slice, x: slice) -> FloatArray:
    reaching = [store for store in stores if store.reaches((y, x))] or stores[:1]
    stack = np.sort([_bands(store, y, x) for store in reaching], axis=0)
    # NaN sorts last: the median of the valid values is at the middle of their count.
    count = np.isfinite(stack).sum(0)
    low, high = (np.take_along_axis(stack, np.maximum(i, 0)[None], 0)[0] for i in ((count - 1) // 2, count // 2))
    return np.where(count > 0, (low + high) / 2, np.nan).astype(np.float32)
