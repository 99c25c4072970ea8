"""The quality of the training data: what was measured in each scene, and which scenes are outliers.

A scene is an outlier when the distance of its histogram to the histogram of all scenes (Wasserstein-1, in
interquartile ranges of the pooled values) is more than three scaled median absolute deviations above the median scene
(Leys et al. 2013, doi:10.1016/j.jesp.2013.03.013).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array
from eopipe.reporting.decimation import decimate, read_centres
from eopipe.reporting.panels import EncodedImage, encode_photo, stretch_contrast
from eopipe.scenes.products import true_colour_bands
from eopipe.tiles.store import Tiles

MAX_SCENES = 60
THUMBNAIL_EDGE = 128
BINS = 48
# In interquartile ranges; scenes of a homogeneous series differ by less.
MIN_OUTLIER_SHIFT = 0.5


@dataclass(frozen=True)
class SceneSummary:
    """One scene, decimated: physical values of the valid pixels of each band, and a thumbnail."""

    scene: str
    date: str
    values: dict[str, Float64Array]
    thumbnail: EncodedImage


@dataclass(frozen=True)
class BandHistograms:
    """Histograms of one band: shares (scene, bin) between `low` and `high`, and the shift of each scene."""

    name: str
    low: float
    high: float
    shares: Float64Array
    shift: Float64Array


@dataclass(frozen=True)
class DataQuality:
    """What the page shows of the data; `outliers` has the band with the largest shift, and the shift, by scene."""

    scenes: list[SceneSummary]
    bands: list[BandHistograms]
    outliers: dict[str, tuple[str, float]]
    omitted: int


def read_quality(stores: Sequence[Tiles], dates: dict[str, str]) -> DataQuality:
    """Summarise the stores by date; of more than sixty those spread evenly."""
    stores = sorted(stores, key=lambda store: (_date(store, dates), store.scene))
    chosen = sorted({round(n) for n in np.linspace(0, len(stores) - 1, min(len(stores), MAX_SCENES))})
    scenes = [_summary(stores[n], _date(stores[n], dates)) for n in chosen]
    names = [name for name in stores[0].names if all(name in scene.values for scene in scenes)]
    bands = [band for band in (_histograms(name, scenes) for name in names) if band]
    return DataQuality(scenes, bands, find_outliers(scenes, bands), len(stores) - len(chosen))


def _date(store: Tiles, dates: dict[str, str]) -> str:
    return dates.get(store.scene) or str(store.attributes.get("datetime") or "")[:10]


def _summary(tiles: Tiles, date: str) -> SceneSummary:
    """The valid pixels of a scene in all cells; the thumbnail shows the cell with most of them."""
    parts = [_sampled(part.alone()) for part in tiles.parts]
    scale, offset = tiles.scaling
    values = {
        name: np.concatenate([stored[n][valid] for stored, valid in parts]) * scale + offset
        for n, name in enumerate(tiles.names)
    }
    return SceneSummary(tiles.scene, date, values, _thumbnail(tiles, *max(parts, key=lambda part: int(part[1].sum()))))


def _sampled(store: Tiles) -> tuple[AnyArray, BoolArray]:
    """Stored pixels (band, y, x) of a thumbnail, and which are valid (y, x)."""
    decimation = decimate(store.shape, THUMBNAIL_EDGE)
    stored = read_centres(partial(store.read, "image"), decimation)
    return stored, np.asarray(read_centres(partial(store.read, "valid"), decimation) > 0)


def _thumbnail(store: Tiles, stored: AnyArray, valid: BoolArray) -> EncodedImage:
    order = [store.names.index(name) for name in true_colour_bands(store.names)] or [0]
    bands = np.nan_to_num(stored[order].astype(np.float32), posinf=0, neginf=0)
    # Masked pixels are included, so that a reader can check the mask.
    has_data = valid | (bands != 0).any(0)
    return encode_photo(stretch_contrast(bands, has_data), has_data)


def _histograms(name: str, scenes: list[SceneSummary]) -> BandHistograms | None:
    """Histograms of a band; None where no scene has a valid pixel."""
    pooled = np.concatenate([scene.values[name] for scene in scenes])
    if not pooled.size:
        return None
    low, first_quartile, third_quartile, high = np.percentile(pooled, (0.5, 25, 75, 99.5))
    low, high = (low, high) if high > low else (low - 0.5, low + 0.5)
    # Values outside of the range count in the first or last bin.
    counts = [np.histogram(np.clip(scene.values[name], low, high), BINS, (low, high))[0] for scene in scenes]
    shares = np.stack([count / max(scene.values[name].size, 1) for count, scene in zip(counts, scenes, strict=True)])
    spread = max(third_quartile - first_quartile, (high - low) / BINS)
    shift = distances([scene.values[name] for scene in scenes]) / spread
    return BandHistograms(name, float(low), float(high), shares, shift)


def distances(samples: list[Float64Array]) -> Float64Array:
    """Wasserstein-1 distance of each sample to all of them together, in their unit; NaN for an empty one.

    All samples are sorted once: scipy's `wasserstein_distance` would sort the pool again for each of them.
    """
    support, places = np.unique(np.concatenate(samples), return_inverse=True)
    pool, gaps = _cumulative_shares(places, support.size), np.diff(support)
    parts = np.split(places, np.cumsum([sample.size for sample in samples])[:-1])
    shares = (_cumulative_shares(part, support.size) for part in parts)
    return np.array([np.abs(share - pool)[:-1] @ gaps for share in shares])


def _cumulative_shares(places: AnyArray, size: int) -> Float64Array:
    """The empirical distribution function at each of `size` places; NaN without values."""
    counts = np.bincount(places.ravel(), minlength=size)
    return np.cumsum(counts) / (places.size or np.nan)


def find_outliers(scenes: list[SceneSummary], bands: list[BandHistograms]) -> dict[str, tuple[str, float]]:
    """Outlier scenes, each with the band of its largest shift and that shift."""
    outliers: dict[str, tuple[str, float]] = {}
    for band in bands:
        known = band.shift[np.isfinite(band.shift)]
        median = np.median(known)
        limit = max(median + 3 * 1.4826 * np.median(np.abs(known - median)), MIN_OUTLIER_SHIFT)
        for scene, shift in zip(scenes, band.shift.tolist(), strict=True):
            if shift > limit and shift > outliers.get(scene.scene, ("", 0.0))[1]:
                outliers[scene.scene] = (band.name, shift)
    return outliers
