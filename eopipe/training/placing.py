"""How a model lies in memory: its device, its layout, its parts, and what it keeps for the backward pass."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils.checkpoint import checkpoint

from eopipe.launch.job import Settings
from eopipe.launch.world import World


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
