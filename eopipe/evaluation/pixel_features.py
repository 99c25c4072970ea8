"""Features of single pixels for the baseline."""

import numpy as np

from eopipe.arrays import AnyArray, FloatArray
from eopipe.tiles.store import Tiles

SEASONS = ((12, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))


def features(stores: list[Tiles], rows: AnyArray, cols: AnyArray) -> FloatArray:
    """Features (pixel, feature): bands, or seasonal medians of many scenes; NaN where no scene is valid."""
    if len(stores) == 1:
        return _bands(stores[0], rows, cols)
    seasons = [[s for s in stores if _month(s) in months] for months in SEASONS]
    return np.hstack([_median(some, rows, cols) for some in seasons if some])


def _month(store: Tiles) -> int:
    return int(str(store.attributes["datetime"])[5:7])


def _bands(store: Tiles, rows: AnyArray, cols: AnyArray) -> FloatArray:
    valid = store.read("valid")[rows, cols] > 0
    values = store.physical(store.names)[:, rows, cols].T
    return np.where(valid[:, None], values, np.float32(np.nan))


def _median(stores: list[Tiles], rows: AnyArray, cols: AnyArray) -> FloatArray:
    stack = np.sort([_bands(store, rows, cols) for store in stores], axis=0)
    # NaN sorts last: the median of the valid values is at the middle of their count.
    count = np.isfinite(stack).sum(0)
    low, high = (np.take_along_axis(stack, np.maximum(i, 0)[None], 0)[0] for i in ((count - 1) // 2, count // 2))
    return np.where(count > 0, (low + high) / 2, np.nan).astype(np.float32)
