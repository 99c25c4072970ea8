"""The quality of the data that a model learned from: what each scene measured, and which scenes are unlike the rest.

A scene drifts when the distance of its histogram to that of all scenes together (Wasserstein-1, in quartile
ranges of the pooled values) lies more than three scaled median absolute deviations above the median scene
(Leys et al. 2013, doi:10.1016/j.jesp.2013.03.013).
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array
from eopipe.reporting.panels import EncodedImage, encode_photo, stretch_contrast
from eopipe.reporting.rasters import Pairs, Thin, pick, thin
from eopipe.tiles.store import Tiles

MOST_SCENES = 60
EDGE = 128
BINS = 48
LEAST_SHIFT = 0.5


@dataclass(frozen=True)
class Look:
    """One scene thinned out: physical values of the valid pixels of each band, and a thumbnail."""

    scene: str
    date: str
    values: dict[str, Float64Array]
    picture: EncodedImage


@dataclass(frozen=True)
class Band:
    """Histograms of one band: shares (scene, bin) between `low` and `high`, and the shift of each scene."""

    name: str
    low: float
    high: float
    shares: Float64Array
    shift: Float64Array


@dataclass(frozen=True)
class Quality:
    """What the page shows of the data; `drifted` names scenes with the band and the shift that gave them away."""

    looks: list[Look]
    bands: list[Band]
    drifted: dict[str, tuple[str, float]]
    left_out: int


def read_quality(pairs: Pairs, dates: dict[str, str]) -> Quality:
    """Look at the stores, by date; of more than sixty those spread evenly."""
    stores = sorted((tiles for tiles, _ in pairs), key=lambda store: (_date(store, dates), store.scene))
    at = sorted({round(n) for n in np.linspace(0, len(stores) - 1, min(len(stores), MOST_SCENES))})
    looks = [_look(stores[n], _date(stores[n], dates)) for n in at]
    names = [n for n in stores[0].names if all(n in look.values for look in looks)]
    bands = [band for band in (_band(name, looks) for name in names) if band]
    return Quality(looks, bands, drifted(looks, bands), len(stores) - len(at))


def _date(store: Tiles, dates: dict[str, str]) -> str:
    return dates.get(store.scene) or str(store.attributes.get("datetime") or "")[:10]


def _look(store: Tiles, date: str) -> Look:
    cells = thin(store.shape, EDGE)
    stored = pick(partial(store.read, "image"), cells)
    valid = pick(partial(store.read, "valid"), cells) > 0
    scale, offset = store.scaling
    values = {name: stored[n][valid] * scale + offset for n, name in enumerate(store.names)}
    return Look(store.scene, date, values, _thumbnail(store, stored, valid, cells))


def _thumbnail(store: Tiles, stored: AnyArray, valid: BoolArray, cells: Thin) -> EncodedImage:
    true = {"red", "green", "blue"} <= set(store.names)
    order = [store.names.index(name) for name in ("red", "green", "blue")] if true else [0]
    bands = np.nan_to_num(stored[order].astype(np.float32), posinf=0, neginf=0)
    # What the mask leaves out is shown as well, since a reader wants to judge the mask.
    seen = valid | (bands != 0).any(0)
    return encode_photo(stretch_contrast(bands, seen), seen.reshape(cells.cells))


def _band(name: str, looks: list[Look]) -> Band | None:
    pooled = np.concatenate([look.values[name] for look in looks])
    if not pooled.size:
        return None
    low, first, third, high = np.percentile(pooled, (0.5, 25, 75, 99.5))
    low, high = (low, high) if high > low else (low - 0.5, low + 0.5)
    shares = np.stack([_shares(look.values[name], low, high) for look in looks])
    spread = max(third - first, (high - low) / BINS)
    shift = [distance(look.values[name], pooled) / spread if look.values[name].size else np.nan for look in looks]
    return Band(name, float(low), float(high), shares, np.array(shift))


def _shares(values: Float64Array, low: float, high: float) -> Float64Array:
    """Share of the values in each bin; what lies outside counts to the bins at the ends."""
    counts, _ = np.histogram(np.clip(values, low, high), BINS, (low, high))
    return counts / max(values.size, 1)


def distance(one: Float64Array, other: Float64Array) -> float:
    """Wasserstein-1 distance of two samples, in their unit."""
    from scipy.stats import wasserstein_distance

    return float(wasserstein_distance(one, other))


def drifted(looks: list[Look], bands: list[Band]) -> dict[str, tuple[str, float]]:
    """Find the scenes that are unlike the rest, each with the band that tells most."""
    found: dict[str, tuple[str, float]] = {}
    for band in bands:
        known = band.shift[np.isfinite(band.shift)]
        middle = np.median(known)
        limit = max(middle + 3 * 1.4826 * np.median(np.abs(known - middle)), LEAST_SHIFT)
        for look, shift in zip(looks, band.shift.tolist(), strict=True):
            if shift > limit and shift > found.get(look.scene, ("", 0.0))[1]:
                found[look.scene] = (band.name, shift)
    return found
