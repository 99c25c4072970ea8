"""Data order and augmentation as pure functions of (seed, epoch, step): nothing to save but three integers.

Two shuffles, each of which takes every sample exactly once an epoch:

`chips`: a random permutation of all samples. Chips of one batch come from anywhere.

`blocks`: samples of one block of a scene stay together, so that a block is read once an epoch. The blocks are
shuffled, `window` of them are live at a time, and the order takes a chip from each of them round-robin; the chips
of a block are shuffled too. Two chips of a batch share their block with a probability of about 1 / window, compared
with about 1 / (number of blocks) in a permutation. With a correlation r between chips of a block, the variance of a
mean over a batch of n chips is 1 + (n / window - 1) r times the variance of independent draws (the design effect of
cluster sampling, Kish 1965, Survey Sampling): there is no loss while the window is as large as the batch.
"""

import heapq
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from eopipe.arrays import IntArray

SYMMETRIES = 8
# Second words of the counters of random streams: of order and symmetries 0, of augmentations 1 to 3.
CROPS = 4


@dataclass(frozen=True)
class Shuffle:
    """The shuffle of an epoch: mode `chips`, or `blocks` of `block` pixels edge with `window` of them live."""

    mode: str = "chips"
    window: int = 16
    block: int = 1024


@dataclass
class SampleOrder:
    """The order of samples (n, 3) of scene, row and column, the same for every world size."""

    samples: IntArray
    seed: int
    shuffle: Shuffle = field(default_factory=Shuffle)
    _cached_epoch: tuple[int, IntArray] | None = None

    def epoch(self, epoch: int) -> IntArray:
        """The sample numbers of an epoch in their order."""
        if self._cached_epoch is None or self._cached_epoch[0] != epoch:
            chips = self.shuffle.mode == "chips"
            self._cached_epoch = epoch, self._chip_order(epoch) if chips else self._block_order(epoch)
        return self._cached_epoch[1]

    def step(self, epoch: int, step: int, batch: int) -> IntArray:
        """Sample numbers of the global batch of a step within an epoch."""
        return self.epoch(epoch)[step * batch : (step + 1) * batch]

    @cached_property
    def block_of(self) -> IntArray:
        """Block number of each sample (n,), by its corner."""
        return block_numbers(self.samples, self.shuffle.block)

    def _chip_order(self, epoch: int) -> IntArray:
        return generator(self.seed, epoch, 0).permutation(len(self.samples))

    def _block_order(self, epoch: int) -> IntArray:
        """Round-robin over lanes; a lane takes the next block when its own is exhausted."""
        draws = generator(self.seed, epoch, 0)
        sizes = np.bincount(self.block_of)
        first_round, lane = _lanes(sizes, draws.permutation(len(sizes)), self.shuffle.window)
        chips = draws.permutation(len(self.samples))
        chips = chips[np.argsort(self.block_of[chips], kind="stable")]
        # The index of a chip within its block gives the round of the lane in which it comes.
        index_in_block = np.arange(len(chips)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        round_number = index_in_block + np.repeat(first_round, sizes)
        return chips[np.lexsort((np.repeat(lane, sizes), round_number))]


def _lanes(sizes: IntArray, blocks: IntArray, window: int) -> tuple[IntArray, IntArray]:
    """The round in which each block starts, and its lane; `blocks` is the order of the blocks."""
    first_round, lane = np.zeros_like(sizes), np.zeros_like(sizes)
    free_lanes = [(0, number) for number in range(window)]
    for block in blocks:
        first_round[block], lane[block] = free_lanes[0]
        heapq.heapreplace(free_lanes, (int(first_round[block] + sizes[block]), int(lane[block])))
    return first_round, lane


def block_numbers(samples: IntArray, edge: int) -> IntArray:
    """Block number (n,) of each sample (n, 3), for blocks of `edge` pixels, numbered by scene, row and column."""
    block_keys = samples // np.array([1, edge, edge])
    return np.unique(block_keys, axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)


def symmetry_of(seed: int, epoch: int, sample: int) -> int:
    """Which of the eight symmetries of the square is applied to a sample in an epoch."""
    return int(generator(seed, epoch, 1 + sample).integers(SYMMETRIES))


def crop_draw(seed: int, epoch: int, sample: int) -> int:
    """The random number that chooses the labelled pixel around which a sample is cropped in an epoch."""
    return int(generator(seed, epoch, sample, CROPS).integers(2**32))


def steps_per_epoch(count: int, batch: int) -> int:
    """Whole batches in an epoch; the remaining samples are left out of it."""
    return max(1, count // batch)


def generator(seed: int, epoch: int, stream: int, kind: int = 0) -> np.random.Generator:
    """The random numbers of a stream: of the order and the symmetries, or of another kind."""
    return np.random.Generator(np.random.Philox(counter=[0, kind, stream, epoch], key=seed))
