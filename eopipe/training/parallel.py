"""How the gradients of many workers become one: averaged by DDP, in parts by FSDP2, or summed in a fixed order.

Each has `gradients(parts, learn, draw)`: it calls `learn(module, part)` for each part of a worker's batch, which
goes forward and backward over it and gives sums to be told; `draw(stream)` starts the random numbers of a part.
What is left in `.grad` is `1 / share` of the sum over all workers, and the same on each.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from eopipe.launch.world import World
from eopipe.loader.loader import Batch
from eopipe.telemetry.timing import phase
from eopipe.training.partition import shards_of
from eopipe.training_job import Settings


def blocks(model: nn.Module) -> list[nn.Module]:
    """The model's own steps that have weights; lists of modules, and a lone wrapper, count by what is in them."""
    found: list[nn.Module] = []
    for child in model.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            found += blocks(child)
        elif next(child.parameters(), None) is not None:
            found.append(child)
    return (len(found) == 1 and blocks(found[0])) or found


def place(model: nn.Module, settings: Settings, world: World) -> nn.Module:
    """Move a model to its device, and for FSDP2 deal its weights out to the workers, block by block."""
    # FSDP2 (torch 2.13) deals out contiguous weights only; images of this layout are enough for a convolution.
    innermost = settings.channels_last and settings.strategy != "fsdp"
    layout = torch.channels_last if innermost else torch.preserve_format
    model = model.to(world.device, memory_format=layout)  # type: ignore[call-overload]
    if settings.strategy == "fsdp":
        mesh = init_device_mesh(world.device.type, (world.size,))
        for block in blocks(model):
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def recompute(model: nn.Module) -> None:
    """Keep only what goes into a block, and compute the rest again on the way back (Chen et al. 2016, 1604.06174).

    Random numbers are drawn again as they were, so not a bit changes.
    """
    for block in blocks(model) or [model]:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def whole(value: Tensor) -> Tensor:
    """A tensor with the parts of all workers; all must ask for it together."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def like(value: Tensor, kept: Tensor) -> Tensor:
    """A whole tensor laid out as another one: this worker's part of it, where that one is dealt out."""
    if not isinstance(kept, DTensor):
        return value.to(kept.device)
    there = value.to(kept.device_mesh.device_type)
    return distribute_tensor(there, kept.device_mesh, kept.placements, src_data_rank=None)


@contextmanager
def gathered(model: nn.Module, world: World) -> Iterator[None]:
    """All weights on each worker and the buffers of the first, so that each may predict on its own."""
    for buffer in model.buffers() if world.size > 1 else ():
        dist.broadcast(buffer, 0)
    parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in parts:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    yield
    for module in parts:
        module.set_reshard_after_forward(True, recurse=False)
        module.reshard()


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
