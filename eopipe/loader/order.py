"""Data order and augmentation as pure functions of (seed, epoch, step): nothing to save but three integers.

Two ways to shuffle, each of which takes every sample exactly once an epoch:

`chips` deals all samples out evenly, as a permutation of all. Chips of one batch lie anywhere.

`blocks` keeps samples together that lie in one block of a scene, so that a block is read once an epoch: the blocks
are shuffled, `window` of them are live at a time, and the order takes a chip from each of them in turn, the chips
of a block shuffled too. Two chips of a batch so share their block with a chance of about 1 / window, where it is
about 1 / (number of blocks) in a permutation. With a correlation r between chips of a block, the mean over a batch
of n chips varies 1 + (n / window - 1) r times as much as that of chips drawn at will (the design effect of cluster
sampling, Kish 1965, Survey Sampling): nothing is lost while the window is as large as the batch.
"""

import heapq
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from eopipe.arrays import IntArray

SYMMETRIES = 8


@dataclass(frozen=True)
class Shuffle:
    """How an epoch is shuffled: `chips`, or `blocks` of an edge in pixels with so many of them live."""

    how: str = "chips"
    window: int = 16
    block: int = 1024


@dataclass
class SampleOrder:
    """The order of samples (n, 3) of scene, row and column, the same for every world size."""

    samples: IntArray
    seed: int
    shuffle: Shuffle = field(default_factory=Shuffle)
    _last: tuple[int, IntArray] | None = None

    def epoch(self, epoch: int) -> IntArray:
        """The sample numbers of an epoch in their order."""
        if self._last is None or self._last[0] != epoch:
            chips = self.shuffle.how == "chips"
            self._last = epoch, self._permuted(epoch) if chips else self._mixed(epoch)
        return self._last[1]

    def step(self, epoch: int, step: int, batch: int) -> IntArray:
        """Sample numbers of the global batch of a step within an epoch."""
        return self.epoch(epoch)[step * batch : (step + 1) * batch]

    @cached_property
    def block_of(self) -> IntArray:
        """The number of the block that each sample lies in, by its corner."""
        return block_numbers(self.samples, self.shuffle.block)

    def _permuted(self, epoch: int) -> IntArray:
        return _stream(self.seed, epoch, 0).permutation(len(self.samples))

    def _mixed(self, epoch: int) -> IntArray:
        """Lanes take the next block when theirs is used up; the order goes round the lanes."""
        draw = _stream(self.seed, epoch, 0)
        sizes = np.bincount(self.block_of)
        first, lane = _lanes(sizes, draw.permutation(len(sizes)), self.shuffle.window)
        chips = draw.permutation(len(self.samples))
        chips = chips[np.argsort(self.block_of[chips], kind="stable")]
        # Within its block a chip has a place, which says at which turn of the lane it comes.
        place = np.arange(len(chips)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        turn = place + np.repeat(first, sizes)
        return chips[np.lexsort((np.repeat(lane, sizes), turn))]


def _lanes(sizes: IntArray, blocks: IntArray, window: int) -> tuple[IntArray, IntArray]:
    """The turn at which each block starts, and its lane; blocks come in the order given."""
    first, lane = np.zeros_like(sizes), np.zeros_like(sizes)
    free = [(0, number) for number in range(window)]
    for block in blocks:
        first[block], lane[block] = free[0]
        heapq.heapreplace(free, (int(first[block] + sizes[block]), int(lane[block])))
    return first, lane


def block_numbers(samples: IntArray, edge: int) -> IntArray:
    """Number the blocks of this edge in pixels that hold a corner of samples (n, 3), in the order of their places."""
    places = samples // np.array([1, edge, edge])
    return np.unique(places, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def symmetry_of(seed: int, epoch: int, sample: int) -> int:
    """Which of the eight symmetries a sample is turned by in an epoch."""
    return int(_stream(seed, epoch, 1 + sample).integers(SYMMETRIES))


def steps_per_epoch(count: int, batch: int) -> int:
    """Whole batches in an epoch; the rest comes in another order in the next one."""
    return max(1, count // batch)


def _stream(seed: int, epoch: int, which: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(counter=[0, 0, which, epoch], key=seed))
