"""Who computes what of a global batch: parts for each worker, of sizes that are known beforehand."""

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from eopipe.arrays import IntArray
from eopipe.training_job import Settings

if TYPE_CHECKING:
    from eopipe.loader.loader import Batch


def shards_of(rank: int, size: int, shards: int) -> range:
    """The virtual shards of a worker: shard v belongs to worker v modulo size."""
    return range(rank, shards, size)


def deal(numbers: IntArray, settings: Settings, rank: int, size: int) -> list[IntArray]:
    """Samples of a global batch that a worker computes together, list by list; all workers take each once.

    The lists of deterministic mode are the same whatever the number of workers, only their owners differ.
    """
    if settings.deterministic:
        return [numbers[shard :: settings.shards] for shard in shards_of(rank, size, settings.shards)]
    return [numbers[rank::size]]


def seed_of(seed: int, step: int, stream: int) -> int:
    """Where the random numbers of a shard, or else of a worker, start in a step: nothing of them need be saved."""
    return int(np.random.SeedSequence((seed, step, stream)).generate_state(1, np.uint64)[0] >> np.uint64(1))


def cut(batch: "Batch", sizes: list[int]) -> list["Batch"]:
    """A batch as consecutive batches of these sizes."""
    tensors = {f.name: getattr(batch, f.name).split(sizes) for f in fields(batch) if _has_samples(batch, f.name)}
    numbers = np.split(batch.wanted.numbers, np.cumsum(sizes)[:-1])
    parts = enumerate(numbers)
    return [
        replace(batch, wanted=replace(batch.wanted, numbers=n), **{k: v[i] for k, v in tensors.items()})
        for i, n in parts
    ]


def _has_samples(batch: "Batch", name: str) -> bool:
    return isinstance(getattr(batch, name), Tensor)


def even(count: int, parts: int) -> list[int]:
    """Sizes of so many parts that differ by one at most, larger ones first."""
    return [len(part) for part in torch.arange(count).tensor_split(parts)]
