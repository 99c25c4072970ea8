"""What a simple method knows of each pixel."""

from typing import Any

import numpy as np
import numpy.typing as npt

from eopipe.tiles.store import Tiles

SEASONS = ((12, 1, 2), (3, 4, 5), (6, 7, 8), (9, 10, 11))
Pixels = npt.NDArray[Any]


def features(stores: list[Tiles], rows: Pixels, cols: Pixels) -> npt.NDArray[np.float32]:
    """What is known of each pixel (pixel, feature): bands, or seasonal medians of many scenes; NaN unseen."""
    if len(stores) == 1:
        return _bands(stores[0], rows, cols)
    seasons = [[s for s in stores if _month(s) in months] for months in SEASONS]
    return np.hstack([_median(some, rows, cols) for some in seasons if some])


def _month(store: Tiles) -> int:
    return int(str(store.attributes["datetime"])[5:7])


def _bands(store: Tiles, rows: Pixels, cols: Pixels) -> npt.NDArray[np.float32]:
    valid = store.read("valid")[rows, cols] > 0
    values = store.physical(store.names)[:, rows, cols].T
    return np.where(valid[:, None], values, np.float32(np.nan))


def _median(stores: list[Tiles], rows: Pixels, cols: Pixels) -> npt.NDArray[np.float32]:
    stack = np.sort([_bands(store, rows, cols) for store in stores], axis=0)
    # NaN sorts last: the median of what was seen lies around the middle of the count.
    count = np.isfinite(stack).sum(0)
    low, high = (np.take_along_axis(stack, np.maximum(i, 0)[None], 0)[0] for i in ((count - 1) // 2, count // 2))
    return np.where(count > 0, (low + high) / 2, np.nan).astype(np.float32)
