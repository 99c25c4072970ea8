"""The partition of a global batch: which rank computes which samples, in parts whose sizes are known in advance."""

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from eopipe.arrays import IntArray
from eopipe.training_job import Settings

if TYPE_CHECKING:
    from eopipe.loader.loader import Batch


def shards_of_rank(rank: int, size: int, shards: int) -> range:
    """The virtual shards of a rank: shard v belongs to rank v modulo the world size."""
    return range(rank, shards, size)


def partition(numbers: IntArray, settings: Settings, rank: int, size: int) -> list[IntArray]:
    """The samples of a global batch that a rank computes together, part by part; all ranks cover each sample once.

    The parts of deterministic mode are the same whatever the world size, only their ranks differ.
    """
    if settings.deterministic:
        return [numbers[shard :: settings.shards] for shard in shards_of_rank(rank, size, settings.shards)]
    return [numbers[rank::size]]


def stream_seed(seed: int, step: int, stream: int) -> int:
    """The seed of a shard's, or else a rank's, random numbers in a step: no state of them needs to be saved."""
    return int(np.random.SeedSequence((seed, step, stream)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def split_batch(batch: "Batch", sizes: list[int]) -> list["Batch"]:
    """A batch as consecutive batches of these sizes."""
    tensors = {
        field.name: getattr(batch, field.name).split(sizes)
        for field in fields(batch)
        if isinstance(getattr(batch, field.name), Tensor)
    }
    numbers = np.split(batch.request.numbers, np.cumsum(sizes)[:-1])
    return [
        replace(
            batch,
            request=replace(batch.request, numbers=part),
            **{name: parts[index] for name, parts in tensors.items()},
        )
        for index, part in enumerate(numbers)
    ]


def even_sizes(count: int, parts: int) -> list[int]:
    """The sizes of a number of parts, which differ by at most one, larger ones first."""
    return [len(part) for part in torch.arange(count).tensor_split(parts)]
