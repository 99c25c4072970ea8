"""Band statistics of the training chips: moments and histograms that merge exactly across scenes.

Every pixel of the training chips counts once per scene, however many chips contain it; no other pixel is read.
"""

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, Field

from eopipe.arrays import AnyArray, Float64Array, IntArray
from eopipe.chips.chips import Normaliser, covered_blocks
from eopipe.documents import OPEN, Count, read_model
from eopipe.errors import BadInputError
from eopipe.tasks.regression import Moments
from eopipe.tiles.store import Tiles

MAX_BINS = 256
MIN_LEVEL = -20
MIN_STD = 1e-6


@dataclass(frozen=True)
class Histogram:
    """At most 256 bins: bin i holds (first + i) * 2^level <= value < (first + i + 1) * 2^level.

    The level is the lowest, from -20 on, at which the bins cover the values. It depends on the values alone,
    so histograms merge exactly and in any order.
    """

    level: int
    first: int
    counts: IntArray

    @classmethod
    def of(cls, values: Float64Array, weights: IntArray) -> "Histogram":
        """Histogram of values (n,) with numbers of occurrences (n,)."""
        level = _level(float(values.min()), float(values.max()))
        bins = np.floor(np.ldexp(values, -level)).astype(np.int64)
        first = int(bins.min())
        return cls(level, first, np.bincount(bins - first, weights).astype(np.int64))

    def merge(self, other: "Histogram") -> "Histogram":
        """Add the counts of another histogram, at the finest level that covers both."""
        level = max(self.level, other.level)
        while True:
            coarse, other_coarse = self._at(level), other._at(level)
            parts = (coarse, other_coarse)
            first = min(part.first for part in parts)
            size = max(part.first + len(part.counts) for part in parts) - first
            if size <= MAX_BINS:
                counts = np.zeros(size, np.int64)
                for part in parts:
                    counts[part.first - first : part.first - first + len(part.counts)] += part.counts
                return Histogram(level, first, counts)
            level += 1

    def _at(self, level: int) -> "Histogram":
        """The histogram with bins that are wider by a power of two."""
        bins = (self.first + np.arange(len(self.counts))) >> (level - self.level)
        counts = np.zeros(int(bins[-1] - bins[0]) + 1, np.int64)
        np.add.at(counts, bins - bins[0], self.counts)
        return Histogram(level, int(bins[0]), counts)


def _level(low: float, high: float) -> int:
    level = MIN_LEVEL
    while math.floor(math.ldexp(high, -level)) - math.floor(math.ldexp(low, -level)) >= MAX_BINS:
        level += 1
    return level


class BandSummary(BaseModel, **OPEN):
    """Statistics of one band, or of continuous labels, in a statistics file, which also has range and histogram."""

    mean: float
    std: Annotated[float, Field(ge=0)]
    count: Count

    def quantiles(self, shares: tuple[float, ...]) -> tuple[float, ...]:
        """The values below which these shares of the pixels are, by the histogram; empty for a file without one."""
        histogram: Any = (self.model_extra or {}).get("histogram")
        if not histogram:
            return ()
        below = np.cumsum([0, *histogram["counts"]]) / sum(histogram["counts"])
        edges = histogram["start"] + histogram["width"] * np.arange(len(below))
        # Empty bins have no share: of equal ones the first counts.
        below, first = np.unique(below, return_index=True)
        return tuple(float(f"{value:.6g}") for value in np.interp(shares, below, edges[first]))


class Statistics(BaseModel, **OPEN):
    """What the stage split writes beside the split file: statistics by band, and the valid pixels of each scene.

    `samples` is the digest of the chips that were measured; `labels` are the statistics of continuous labels.
    """

    bands: dict[str, BandSummary]
    pixels: dict[str, Count]
    samples: str
    labels: BandSummary | None = None

    def json_document(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)


@dataclass(frozen=True)
class BandStatistics:
    """Statistics of one band."""

    moments: Moments
    histogram: Histogram

    @classmethod
    def of(cls, stored: AnyArray, scaling: tuple[float, float]) -> "BandStatistics":
        """Statistics of stored numbers (n,) in physical units."""
        numbers, weights = _tally(stored)
        values = numbers.astype(np.float64) * scaling[0] + scaling[1]
        return cls(Moments.of(values, weights), Histogram.of(values, weights))

    def merge(self, other: "BandStatistics") -> "BandStatistics":
        return BandStatistics(self.moments.merge(other.moments), self.histogram.merge(other.histogram))

    @property
    def summary(self) -> BandSummary:
        """The entry in the statistics file; twelve digits, which the order of summation does not change."""
        moments, histogram = self.moments, self.histogram
        numbers = {"mean": moments.mean, "std": moments.std, "min": moments.low, "max": moments.high}
        width = math.ldexp(1.0, histogram.level)
        bins = {"start": histogram.first * width, "width": width, "counts": histogram.counts.tolist()}
        values = {name: float(f"{value:.12g}") for name, value in numbers.items()}
        return BandSummary(**values, count=moments.count, histogram=bins)  # type: ignore[call-arg]


def _tally(stored: AnyArray) -> tuple[AnyArray, IntArray]:
    """Distinct numbers and their numbers of occurrences; counting short integers is faster than summing them."""
    if stored.dtype.kind not in "ui" or stored.dtype.itemsize > 2:
        return stored, np.ones(len(stored), np.int64)
    low = int(stored.min())
    counts = np.bincount(stored.astype(np.int64) - low)
    present = np.flatnonzero(counts)
    return present + low, counts[present]


def measure_bands(stores: list[Tiles], samples: IntArray, chip: int) -> Statistics:
    """Statistics by band name of the valid pixels of training samples.

    Samples are (scene, row, column) with scenes numbered as the stores. Raises BadInputError for a valid pixel
    that is not finite, or if there is no valid pixel.
    """
    bands: dict[str, BandStatistics] = {}
    pixels: dict[str, int] = {}
    for number in np.unique(samples[:, 0]):
        store = stores[number]
        for name, band in _measure_scene(store, samples[samples[:, 0] == number, 1:], chip).items():
            bands[name] = bands[name].merge(band) if name in bands else band
            pixels[store.scene] = band.moments.count
    if not bands:
        raise BadInputError("no valid pixel in the training chips; check the masks of the scenes")
    return Statistics(
        bands={name: band.summary for name, band in bands.items()},
        pixels=pixels,
        samples=samples_digest([store.scene for store in stores], samples, chip),
        chip=chip,  # type: ignore[call-arg]
        chips=len(samples),
    )


def _measure_scene(store: Tiles, corners: IntArray, chip: int) -> dict[str, BandStatistics]:
    """Statistics of each band of a scene, over the valid pixels of chips at some corners (n, 2)."""
    bands: dict[str, BandStatistics] = {}
    for (y, x), covered in covered_blocks(corners, chip):
        usable = covered & store.valid(y, x)
        # Chosen band by band, which takes a fraction of the time.
        stored = (band[usable] for band in store.read("image", y, x)) if usable.any() else ()
        for name, values in zip(store.names, stored, strict=False):
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise BadInputError(f"band {name} of scene {store.scene} has valid pixels that are not finite")
            band = BandStatistics.of(values, store.scaling)
            bands[name] = bands[name].merge(band) if name in bands else band
    return bands


def count_valid(store: Tiles, samples: IntArray, chip: int) -> int:
    """Number of valid pixels of a scene in the chips of some samples (scene, row, column)."""
    blocks = covered_blocks(samples[:, 1:], chip)
    return sum(int(np.count_nonzero(covered & store.valid(*window))) for window, covered in blocks)


def measure_labels(pairs: list[tuple[Tiles, Tiles]], samples: IntArray, chip: int) -> BandSummary:
    """Statistics of continuous labels in the training chips, in their unit, where the scene is valid too."""
    statistics: BandStatistics | None = None
    for number in np.unique(samples[:, 0]):
        image, label = pairs[number]
        for (y, x), covered in covered_blocks(samples[samples[:, 0] == number, 1:], chip):
            usable = covered & image.valid(y, x) & label.valid(y, x)
            if usable.any():
                band = BandStatistics.of(label.read("label", y, x)[usable], (1.0, 0.0))
                statistics = statistics.merge(band) if statistics else band
    if not statistics:
        raise BadInputError("no labelled pixel in the training chips; compare the labels with the masks of the scenes")
    return statistics.summary


def samples_digest(scenes: list[str], samples: IntArray, chip: int) -> str:
    """The sha256 of these samples of these scenes."""
    document = {"scenes": scenes, "samples": samples.tolist(), "chip": chip}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def read_statistics(path: Path) -> Statistics:
    """Read a statistics file. Raises BadInputError for another file, with the fields that are wrong."""
    return read_model(path, Statistics, "a statistics file, as split writes one")


def band_normaliser(statistics: Statistics, bands: tuple[str, ...]) -> Normaliser:
    """The normaliser of these bands, by name."""
    missing = [band for band in bands if band not in statistics.bands]
    if missing:
        available = ", ".join(statistics.bands)
        raise BadInputError(f"the statistics lack band {', '.join(missing)}; they have {available}")
    rows = [statistics.bands[band] for band in bands]
    return Normaliser(tuple(row.mean for row in rows), tuple(max(row.std, MIN_STD) for row in rows))


def label_scaling(statistics: Statistics, path: Path) -> tuple[float, float]:
    """Mean and standard deviation of continuous labels, from the statistics file at `path`.

    Raises BadInputError if it has none, or if all labels have one value.
    """
    if statistics.labels is None:
        raise BadInputError(f"{path} has no statistics of the labels; run split again with these labels")
    if not statistics.labels.std > 0:
        raise BadInputError(
            f"all labels of the training chips are {statistics.labels.mean:g}, so there is nothing to learn"
        )
    return statistics.labels.mean, statistics.labels.std
