"""How the gradients of many workers become one: averaged by DDP, in parts by FSDP2, or summed in a fixed order.

Each has `gradients(parts, learn, draw)`: it calls `learn(module, part)` for each part of a worker's batch, which
goes forward and backward over it and gives sums to be told; `draw(stream)` starts the random numbers of a part.
What is left in `.grad` is `1 / share` of the sum over all workers, and the same on each.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from eopipe.launch.world import World
from eopipe.loader.loader import Batch
from eopipe.telemetry.timing import phase
from eopipe.training.partition import shards_of

Learn = Callable[[nn.Module, Batch], Tensor]
Draw = Callable[[int], None]
# Numbers that are gathered at once; more would cost memory, fewer would cost messages.
AT_ONCE = 1 << 22


class Together(Protocol):
    """A way to add up gradients."""

    module: nn.Module
    share: int

    def gradients(self, parts: list[Batch], learn: Learn, draw: Draw) -> Tensor:
        """Leave gradients in the model; give the sum of what `learn` gave over all workers."""


class Averaged:
    """DDP or FSDP2: the last part of a worker's batch carries the gradients of all to the other workers."""

    def __init__(self, module: nn.Module, world: World) -> None:
        self.module, self.world, self.share = module, world, world.size

    def gradients(self, parts: list[Batch], learn: Learn, draw: Draw) -> Tensor:
        """Average gradients over workers."""
        draw(self.world.rank)
        sums = []
        for part in parts:
            with self._alone(part is not parts[-1]):
                sums.append(learn(self.module, part))
        return self.world.sum(torch.stack(sums).sum(0))

    def _alone(self, alone: bool) -> AbstractContextManager[Any]:
        if isinstance(self.module, FSDPModule):
            self.module.set_requires_gradient_sync(not alone)
        elif isinstance(self.module, DistributedDataParallel) and alone:
            return self.module.no_sync()
        return nullcontext()


class Fixed:
    """Virtual shards, each forward and backward on its own, then summed in their order.

    Neither the number of workers nor who has which shard changes a bit. Buffers, as the statistics of batch
    normalisation, become the mean over the shards.
    """

    share = 1

    def __init__(self, module: nn.Module, model: nn.Module, world: World, shards: int) -> None:
        self.module, self.world, self.shards = module, world, shards
        self.weights = [p for p in model.parameters() if p.requires_grad]
        self.counters = [b for b in model.buffers() if not b.is_floating_point()]
        self.buffers = [b for b in model.buffers() if b.is_floating_point()]

    def gradients(self, parts: list[Batch], learn: Learn, draw: Draw) -> Tensor:
        """Sum gradients over shards."""
        before = [buffer.clone() for buffer in (*self.buffers, *self.counters)]
        flats, sums = [], []
        for shard, part in zip(shards_of(self.world.rank, self.world.size, self.shards), parts, strict=True):
            self._reset(before)
            draw(shard)
            sums.append(learn(self.module, part))
            flats.append(self._flat())
        self._spread(fold(flats, self.shards, self.world))
        return fold(sums, self.shards, self.world)

    def _reset(self, before: list[Tensor]) -> None:
        for weight in self.weights:
            weight.grad = None
        for buffer, was in zip((*self.buffers, *self.counters), before, strict=True):
            buffer.copy_(was)

    def _flat(self) -> Tensor:
        grads = [torch.zeros_like(w) if w.grad is None else w.grad for w in self.weights]
        return torch.cat([t.flatten() for t in (*grads, *(b / self.shards for b in self.buffers))])

    def _spread(self, total: Tensor) -> None:
        parts = torch.split(total, [t.numel() for t in (*self.weights, *self.buffers)])
        for weight, part in zip(self.weights, parts[: len(self.weights)], strict=True):
            weight.grad = part.view_as(weight)
        for buffer, part in zip(self.buffers, parts[len(self.weights) :], strict=True):
            buffer.copy_(part.view_as(buffer))


def fold(mine: list[Tensor], shards: int, world: World) -> Tensor:
    """Sum vectors of all shards, one after the other in their order; `mine` are those of this worker."""
    own = torch.stack(mine)
    rows = -(-shards // world.size)
    if len(own) < rows:
        own = torch.cat([own, own.new_zeros(rows - len(own), own.shape[1])])
    total = torch.empty_like(own[0])
    for start in range(0, len(total), AT_ONCE):
        window = slice(start, start + AT_ONCE)
        told = _everyone(own[:, window], world)
        added = told[0, 0].clone()
        for shard in range(1, shards):
            added += told[shard % world.size, shard // world.size]
        total[window] = added
    return total


def _everyone(own: Tensor, world: World) -> Tensor:
    """(row, number) of each worker as (worker, row, number)."""
    if world.size == 1:
        return own[None]
    told = own.new_empty(world.size, *own.shape)
    with phase("communication"):
        dist.all_gather(list(told.unbind()), own.contiguous())
    return told
