"""Which windows of the scenes stay decoded in memory, so that none is read for every chip of it."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from eopipe.arrays import AnyArray, IntArray
from eopipe.loader.order import Shuffle, blocks_of

log = logging.getLogger("eopipe")


@dataclass(frozen=True)
class Keeping:
    """The window to keep for each sample (n, 4) as top, left, bottom, right, by split; at most `live` at a time.

    Chips of a split that is not there are read one by one.
    """

    windows: Mapping[str, IntArray]
    live: int


def keeping(samples: Mapping[str, IntArray], chip: int, pixel: int, shuffle: Shuffle, room: int, crew: int) -> Keeping:
    """What fits into `room` bytes at `pixel` bytes a pixel: all, else the live blocks of the shuffle, else nothing.

    Each of a crew takes its share of the blocks, which may be one more than another's.
    """
    windows = {split: windows_of(samples[split], chip, shuffle.block) for split in ("train", "val")}
    sizes = {split: _areas(samples[split], found) * pixel for split, found in windows.items()}
    every = np.concatenate(list(sizes.values()))
    largest = int(every.max(initial=0))
    if every.sum() + (crew - 1) * largest <= room:
        return Keeping(windows, max(len(every), 1))
    need = (shuffle.window + crew - 1) * largest
    if shuffle.how == "blocks" and need <= room:
        return Keeping({"train": windows["train"]}, shuffle.window)
    if shuffle.how == "blocks":
        log.warning("event=cache-small have_mb=%d need_mb=%d told='chips are read one by one'", room >> 20, need >> 20)
    return Keeping({}, 1)


def windows_of(samples: IntArray, chip: int, edge: int) -> IntArray:
    """For each sample the window (n, 4) that holds all chips whose corner lies in the same block."""
    block = blocks_of(samples, edge)
    count = int(block.max(initial=-1)) + 1
    low, high = np.full((count, 2), np.iinfo(np.int64).max), np.zeros((count, 2), np.int64)
    np.minimum.at(low, block, samples[:, 1:])
    np.maximum.at(high, block, samples[:, 1:])
    return np.concatenate([low, high + chip], 1)[block]


def _areas(samples: IntArray, windows: IntArray) -> AnyArray:
    """Pixels of each window that is kept, once for each scene."""
    top, left, bottom, right = np.unique(np.insert(windows, 0, samples[:, 0], 1), axis=0)[:, 1:].T
    return np.asarray((bottom - top) * (right - left))
