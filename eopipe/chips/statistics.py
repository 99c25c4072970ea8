"""What the bands measure in the training chips: moments and histograms that merge exactly across scenes.

Every pixel that training sees counts once per scene, however many chips hold it; no other pixel is looked at.
"""

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, IntArray
from eopipe.chips.chips import Normaliser
from eopipe.chips.splits import covered_pixels
from eopipe.errors import BadInputError
from eopipe.publish import read_json
from eopipe.tiles.grid import windows
from eopipe.tiles.store import Tiles

MAX_BINS = 256
MIN_LEVEL = -20
MIN_STD = 1e-6
WINDOW = 1024


@dataclass(frozen=True)
class Moments:
    """Number of values, their mean, the sum of squared distances to it, and the range."""

    count: int
    mean: float
    squares: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Float64Array, weights: IntArray) -> "Moments":
        """Measure values (n,) that occur as often as their weights (n,) say, in two passes."""
        count = int(weights.sum())
        mean = float((values * weights).sum() / count)
        return cls(count, mean, float((weights * (values - mean) ** 2).sum()), float(values.min()), float(values.max()))

    def merge(self, other: "Moments") -> "Moments":
        """Merge with the moments of other values (Chan, Golub and LeVeque 1983, doi:10.1080/00031305.1983.10483115)."""
        count = self.count + other.count
        apart = other.mean - self.mean
        squares = self.squares + other.squares + apart**2 * (self.count * other.count / count)
        mean = self.mean + apart * (other.count / count)
        return Moments(count, mean, squares, min(self.low, other.low), max(self.high, other.high))

    @property
    def std(self) -> float:
        """Standard deviation of the values themselves (divided by their number)."""
        return math.sqrt(self.squares / self.count)


@dataclass(frozen=True)
class Histogram:
    """At most 256 bins: bin i holds (first + i) * 2^level <= value < (first + i + 1) * 2^level.

    The level is the lowest, from -20 on, at which the bins span the values. It follows from the values alone,
    so histograms merge exactly and in any order.
    """

    level: int
    first: int
    counts: IntArray

    @classmethod
    def of(cls, values: Float64Array, weights: IntArray) -> "Histogram":
        """Count values (n,) that occur as often as their weights (n,) say."""
        level = _level(float(values.min()), float(values.max()))
        at = np.floor(np.ldexp(values, -level)).astype(np.int64)
        first = int(at.min())
        return cls(level, first, np.bincount(at - first, weights).astype(np.int64))

    def merge(self, other: "Histogram") -> "Histogram":
        """Add the counts of another histogram, at the finer level that spans both."""
        level = max(self.level, other.level)
        while True:
            one, two = self._at(level), other._at(level)
            first = min(one.first, two.first)
            size = max(one.first + len(one.counts), two.first + len(two.counts)) - first
            if size <= MAX_BINS:
                counts = np.zeros(size, np.int64)
                for part in (one, two):
                    counts[part.first - first : part.first - first + len(part.counts)] += part.counts
                return Histogram(level, first, counts)
            level += 1

    def _at(self, level: int) -> "Histogram":
        """Count in bins that are wider by a power of two."""
        at = (self.first + np.arange(len(self.counts))) >> (level - self.level)
        counts = np.zeros(int(at[-1] - at[0]) + 1, np.int64)
        np.add.at(counts, at - at[0], self.counts)
        return Histogram(level, int(at[0]), counts)


def _level(low: float, high: float) -> int:
    level = MIN_LEVEL
    while math.floor(math.ldexp(high, -level)) - math.floor(math.ldexp(low, -level)) >= MAX_BINS:
        level += 1
    return level


@dataclass(frozen=True)
class BandStatistics:
    """What one band measures."""

    moments: Moments
    histogram: Histogram

    @classmethod
    def of(cls, stored: AnyArray, scaling: tuple[float, float]) -> "BandStatistics":
        """Measure stored numbers (n,) in physical units."""
        numbers, weights = _tally(stored)
        values = numbers.astype(np.float64) * scaling[0] + scaling[1]
        return cls(Moments.of(values, weights), Histogram.of(values, weights))

    def merge(self, other: "BandStatistics") -> "BandStatistics":
        """Measure both."""
        return BandStatistics(self.moments.merge(other.moments), self.histogram.merge(other.histogram))

    def told(self) -> dict[str, Any]:
        """What the statistics file says; twelve digits, which no order of summation changes."""
        moments, histogram = self.moments, self.histogram
        numbers = {"mean": moments.mean, "std": moments.std, "min": moments.low, "max": moments.high}
        width = math.ldexp(1.0, histogram.level)
        bins = {"start": histogram.first * width, "width": width, "counts": histogram.counts.tolist()}
        return {"count": moments.count, "histogram": bins} | {k: float(f"{v:.12g}") for k, v in numbers.items()}


def _tally(stored: AnyArray) -> tuple[AnyArray, IntArray]:
    """Different numbers and how often each occurs; counting short integers is faster than summing them."""
    if stored.dtype.kind not in "ui" or stored.dtype.itemsize > 2:
        return stored, np.ones(len(stored), np.int64)
    low = int(stored.min())
    counts = np.bincount(stored.astype(np.int64) - low)
    there = np.flatnonzero(counts)
    return there + low, counts[there]


def measure_bands(stores: list[Tiles], samples: IntArray, chip: int) -> dict[str, Any]:
    """The content of a statistics file: the bands by name over the valid pixels of training samples.

    Samples are (scene, row, column) with scenes numbered as the stores are. Raises BadInputError for a valid
    pixel that is no number, or when there is no valid pixel at all.
    """
    bands: dict[str, BandStatistics] = {}
    pixels: dict[str, int] = {}
    for number in np.unique(samples[:, 0]):
        store = stores[number]
        for name, found in _scene(store, covered_pixels(store.shape, samples[samples[:, 0] == number], chip)).items():
            bands[name] = bands[name].merge(found) if name in bands else found
            pixels[store.scene] = found.moments.count
    if not bands:
        raise BadInputError("no valid pixel in the training chips; look at the masks of the scenes")
    return {
        "bands": {name: band.told() for name, band in bands.items()},
        "chip": chip,
        "chips": len(samples),
        "pixels": pixels,
        "samples": samples_digest([store.scene for store in stores], samples, chip),
    }


def _scene(store: Tiles, mask: BoolArray) -> dict[str, BandStatistics]:
    """Each band of a scene where the mask (y, x) and the scene's own say so."""
    found: dict[str, BandStatistics] = {}
    for y, x in _tight(mask):
        there = mask[y, x] & (store.read("valid", y, x) > 0)
        stored = store.read("image", y, x)[:, there]
        for name, values in zip(store.names, stored if there.any() else (), strict=False):
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise BadInputError(f"band {name} of scene {store.scene} has valid pixels that are no numbers")
            band = BandStatistics.of(values, store.scaling)
            found[name] = found[name].merge(band) if name in found else band
    return found


def measure_labels(pairs: list[tuple[Tiles, Tiles]], samples: IntArray, chip: int) -> dict[str, Any]:
    """What labels that are values measure in the training chips, in their unit, where the scene is valid too."""
    found: BandStatistics | None = None
    for number in np.unique(samples[:, 0]):
        image, label = pairs[number]
        mask = covered_pixels(image.shape, samples[samples[:, 0] == number], chip)
        for y, x in _tight(mask):
            there = mask[y, x] & (image.read("valid", y, x) > 0) & (label.read("valid", y, x) > 0)
            if there.any():
                band = BandStatistics.of(label.read("label", y, x)[there], (1.0, 0.0))
                found = found.merge(band) if found else band
    if not found:
        raise BadInputError("no labelled pixel in the training chips; compare the labels with the masks of the scenes")
    return found.told()


def _tight(mask: BoolArray) -> Iterator[tuple[slice, slice]]:
    """Windows that hold all that is set in a mask (y, x), cut to what is set in each."""
    height, width = mask.shape
    for y, x in windows((height, width), WINDOW):
        rows, cols = (np.flatnonzero(mask[y, x].any(axis)) for axis in (1, 0))
        if len(rows):
            yield slice(y.start + rows[0], y.start + rows[-1] + 1), slice(x.start + cols[0], x.start + cols[-1] + 1)


def samples_digest(scenes: list[str], samples: IntArray, chip: int) -> str:
    """A sha256 that stands for these samples of these scenes."""
    told = {"scenes": scenes, "samples": samples.tolist(), "chip": chip}
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def read_statistics(path: Path) -> dict[str, Any]:
    """Read a statistics file."""
    told: dict[str, Any] = read_json(path)
    if not isinstance(told, dict) or not {"bands", "pixels", "samples"} <= told.keys():
        raise BadInputError(f"{path} is not a statistics file; split makes one beside the split file")
    return told


def band_normaliser(told: dict[str, Any], bands: tuple[str, ...]) -> Normaliser:
    """Normalise these bands by what a statistics file says of them, by name."""
    gone = [band for band in bands if band not in told["bands"]]
    if gone:
        raise BadInputError(f"the statistics do not tell band {', '.join(gone)}; they tell {', '.join(told['bands'])}")
    rows = [told["bands"][band] for band in bands]
    return Normaliser(tuple(row["mean"] for row in rows), tuple(max(row["std"], MIN_STD) for row in rows))


def label_scaling(told: dict[str, Any], path: Path) -> tuple[float, float]:
    """Mean and standard deviation of labels that are values, as a statistics file tells them.

    Raises BadInputError where it does not, or where all labels have one value.
    """
    if "labels" not in told:
        raise BadInputError(f"{path} does not tell what the labels measure; run split again with these labels")
    mean, std = told["labels"]["mean"], told["labels"]["std"]
    if not std > 0:
        raise BadInputError(f"all labels of the training chips are {mean:g}; there is nothing to learn")
    return mean, std
