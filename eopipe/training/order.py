"""Data order and augmentation as pure functions of (seed, epoch, step): nothing to save but three integers."""

import numpy as np
import numpy.typing as npt

WAYS = 8


def epoch_order(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """The samples of an epoch in their order, the same for every world size."""
    return _stream(seed, epoch, 0).permutation(count)


def step_samples(seed: int, epoch: int, step: int, count: int, batch: int) -> npt.NDArray[np.int64]:
    """Sample numbers of the global batch of a step within an epoch."""
    return epoch_order(seed, epoch, count)[step * batch : (step + 1) * batch]


def way(seed: int, epoch: int, sample: int) -> int:
    """Which of the eight symmetries a sample is turned by in an epoch."""
    return int(_stream(seed, epoch, 1 + sample).integers(WAYS))


def steps_per_epoch(count: int, batch: int) -> int:
    """Whole batches in an epoch; the rest comes in another order in the next one."""
    return max(1, count // batch)


def _stream(seed: int, epoch: int, which: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(counter=[0, 0, which, epoch], key=seed))
