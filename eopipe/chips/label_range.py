"""The range of the labels: the distance over which labels of two pixels are correlated.

The correlogram is the autocovariance of the labels (of each class as 0 and 1, or of the values), summed over the
classes and divided by their variance; the range is the shortest distance at which it is below 0.05, the practical range
of geostatistics (Chiles and Delfiner 2012, Geostatistics, doi:10.1002/9781118136188). Unlabelled pixels are left out of
both by the masked Fourier transform (Padfield 2012, doi:10.1109/TIP.2011.2181402).
"""

from collections.abc import Collection, Iterator

import numpy as np

from eopipe.arrays import AnyArray, Float64Array
from eopipe.chips.audit import ChipSplit, Finding
from eopipe.chips.chip_blocks import BLOCK
from eopipe.chips.chips import is_continuous
from eopipe.chips.splits import SPLITS, split_zones
from eopipe.tiles.grid import PixelWindow, parts_of
from eopipe.tiles.store import NO_LABEL, Tiles

# Below this correlation labels are independent.
INDEPENDENT = 0.05
# Rasters are thinned to at most this edge, which bounds the time: below a second for each class.
MAX_EDGE = 1024
MAX_CLASSES = 16
# A distance needs this number of pairs of pixels.
MIN_COUNT = 100


def label_range(labels: Tiles, windows: Collection[PixelWindow]) -> int | None:
    """The range of labels in windows of the frame, in pixels; None where labels do not vary.

    It is half of the shorter edge of a cell at most, and of several cells the largest.
    """
    ranges = (_range_in(labels, stored, windows) for stored in labels.windows)
    return max((distance for distance in ranges if distance is not None), default=None)


def _range_in(labels: Tiles, stored: PixelWindow, windows: Collection[PixelWindow]) -> int | None:
    """The range of the labels that are stored in one window, of its pixels in some others."""
    starts, shape = [axis.start for axis in stored], [axis.stop - axis.start for axis in stored]
    step = -(-max(shape) // MAX_EDGE)
    thinned = tuple(-(-edge // step) for edge in shape)
    values, valid = np.full(thinned, NO_LABEL, labels.array("label").dtype), np.zeros(thinned, bool)
    for window in sorted({(y.start, y.stop, x.start, x.stop) for y, x in windows}):
        # The first and the last row and column of the thinned raster in the window.
        low = [max(0, -(-(start - first) // step)) for start, first in zip(window[::2], starts, strict=True)]
        ends = zip(window[1::2], starts, thinned, strict=True)
        high = [min(-(-(stop - first) // step), edge) for stop, first, edge in ends]
        for block in parts_of((slice(low[0], high[0]), slice(low[1], high[1])), max(1, BLOCK // step)):
            y, x = (
                slice(first + axis.start * step, first + (axis.stop - 1) * step + 1)
                for axis, first in zip(block, starts, strict=True)
            )
            values[block] = labels.read("label", y, x)[::step, ::step]
            valid[block] = labels.valid(y, x)[::step, ::step]
    distance = correlation_range(list(_indicators(values, labels)), valid)
    return None if distance is None else distance * step


def _indicators(values: AnyArray, labels: Tiles) -> Iterator[Float64Array]:
    if is_continuous(labels):
        yield np.nan_to_num(values).astype(np.float64)
        return
    present, counts = np.unique(values[values != NO_LABEL], return_counts=True)
    for number in present[np.argsort(-counts, kind="stable")][:MAX_CLASSES]:
        yield (values == number).astype(np.float64)


def correlation_range(fields: list[Float64Array], valid: AnyArray) -> int | None:
    """The range in pixels of fields (y, x) that vary together, over the valid pixels; None if they do not vary."""
    if not (fields and valid.any()):
        return None
    anomalies = [np.where(valid, field - field[valid].mean(), 0.0) for field in fields]
    variance = sum(float((anomaly[valid] ** 2).mean()) for anomaly in anomalies)
    if not variance > 0:
        return None
    covariance = np.sum([_autocorrelate(anomaly) for anomaly in anomalies], axis=0)
    count = _autocorrelate(valid.astype(np.float64)).round()
    limit = max(1, min(valid.shape) // 2)
    rows, cols = (np.minimum(np.arange(n), n - np.arange(n)) for n in count.shape)
    distance = np.round(np.hypot(rows[:, None], cols[None])).astype(np.int64)
    near = distance <= limit
    pairs = np.bincount(distance[near], count[near], limit + 1)
    sums = np.bincount(distance[near], covariance[near], limit + 1)
    correlation = np.where(pairs >= MIN_COUNT, sums / np.maximum(pairs, 1) / variance, np.nan)
    below = np.flatnonzero(correlation < INDEPENDENT)
    return int(below[0]) if len(below) else limit


def _autocorrelate(field: Float64Array) -> Float64Array:
    """Sums of products over all pairs of pixels at each lag (y, x), zero-padded so that lags do not wrap around."""
    from scipy.fft import irfft2, next_fast_len, rfft2

    shape = tuple(next_fast_len(2 * n, real=True) for n in field.shape)
    spectrum = rfft2(field, shape)
    return np.asarray(irfft2(spectrum * spectrum.conj(), shape), np.float64)


def find_autocorrelation(split: ChipSplit, distance: int | None, shape: tuple[int, int]) -> Iterator[Finding]:
    """Whether labels are alike over more than block and buffer, so that test chips repeat their training neighbours."""
    plan = split.plan
    if distance is None or not plan.by_place or plan.method == "group":
        return
    extent, unit = int(plan.block), "block"
    if plan.method not in ("blocks", "checkerboard"):
        # The width of the test strip.
        extent, unit = int((split_zones(shape, plan).split == SPLITS.index("test")).sum()), "test strip"
    if extent + plan.buffer < distance:
        example = (
            f"labels are correlated over {distance} pixels, more than {unit} and buffer ({extent} + {plan.buffer}), so "
            "test areas resemble their training neighbours and scores may be too high"
        )
        yield Finding("autocorrelation", len(split.samples["test"]), example)
