"""Parallel training: device placement, FSDP2, activation checkpointing, and how gradients of all workers are combined.

GradientSync averages gradients by DDP or FSDP2; DeterministicReduce sums over virtual shards in a fixed order. A
warm-up pass before the first step tells whether the model compiles, and how a batch fits into memory: chips have one
size, so what fits once fits always. All workers learn what one of them met, and choose alike.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from eopipe.arrays import IntArray
from eopipe.errors import NoSpaceError
from eopipe.launch.failures import is_out_of_memory
from eopipe.launch.world import World
from eopipe.loader.loader import Batch
from eopipe.telemetry.timing import phase
from eopipe.training_job import Settings

# Starts the random numbers of a stream: of a rank, or of a virtual shard.
Seed = Callable[[int], None]
# Numbers that are gathered at once; more would cost memory, fewer would cost messages.
GATHER_SIZE = 1 << 22
log = logging.getLogger("eopipe")


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


def split_batch(batch: Batch, sizes: list[int]) -> list[Batch]:
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


def trainable_blocks(model: nn.Module) -> list[nn.Module]:
    """The model's own steps that have weights; lists of modules, and a lone wrapper, count by what is in them."""
    children: list[nn.Module] = []
    for child in model.children():
        if isinstance(child, nn.ModuleList | nn.ModuleDict):
            children += trainable_blocks(child)
        elif next(child.parameters(), None) is not None:
            children.append(child)
    return (len(children) == 1 and trainable_blocks(children[0])) or children


def place_model(model: nn.Module, settings: Settings, world: World) -> nn.Module:
    """Move a model to its device; with FSDP2, shard its weights over the workers, block by block."""
    # FSDP2 (torch 2.13) shards contiguous weights only; images of this layout are enough for a convolution.
    channels_last = settings.channels_last and settings.strategy != "fsdp"
    layout = torch.channels_last if channels_last else torch.preserve_format
    model = model.to(world.device, memory_format=layout)  # type: ignore[call-overload]
    if settings.strategy == "fsdp":
        mesh = init_device_mesh(world.device.type, (world.size,))
        for block in trainable_blocks(model):
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def checkpoint_activations(model: nn.Module) -> None:
    """Keep only the inputs of each block and recompute its activations in the backward pass (Chen et al. 2016).

    Random numbers are drawn again as they were, so not a bit changes (arXiv:1604.06174).
    """
    for block in trainable_blocks(model) or [model]:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)


def full_tensor(value: Tensor) -> Tensor:
    """A tensor with the shards of all workers, which must all call this together."""
    return value.full_tensor() if isinstance(value, DTensor) else value


def shard_like(value: Tensor, example: Tensor) -> Tensor:
    """A whole tensor in the layout of an example: this worker's shard of it, where the example is sharded."""
    if not isinstance(example, DTensor):
        return value.to(example.device)
    on_device = value.to(example.device_mesh.device_type)
    return distribute_tensor(on_device, example.device_mesh, example.placements, src_data_rank=None)


@contextmanager
def gathered_weights(model: nn.Module, world: World) -> Iterator[None]:
    """All weights on each worker and the buffers of the first, so that each may predict on its own."""
    for buffer in model.buffers() if world.size > 1 else ():
        dist.broadcast(buffer, 0)
    sharded = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for module in sharded:
        module.set_reshard_after_forward(False, recurse=False)
        module.unshard()
    yield
    for module in sharded:
        module.set_reshard_after_forward(True, recurse=False)
        module.reshard()


class GradientSync:
    """Gradients averaged by DDP or FSDP2: a worker sends the gradients of all its micro-batches with the last one.

    When `micro_batches` is exhausted, `.grad` holds the sum over all workers divided by `divisor`, the same on each.
    """

    def __init__(self, module: nn.Module, world: World) -> None:
        self.module, self.world, self.divisor = module, world, world.size

    def micro_batches(self, parts: list[Batch], seed: Seed) -> Iterator[Batch]:
        """Each part of this worker's batch, to go forward and backward before the next one."""
        seed(self.world.rank)
        for part in parts:
            with self._without_sync(part is not parts[-1]):
                yield part

    def total(self, sums: list[Tensor]) -> Tensor:
        """The sum of one vector for each micro-batch of all workers."""
        return self.world.sum(torch.stack(sums).sum(0))

    def _without_sync(self, alone: bool) -> AbstractContextManager[Any]:
        if isinstance(self.module, FSDPModule):
            self.module.set_requires_gradient_sync(not alone)
        elif isinstance(self.module, DistributedDataParallel) and alone:
            return self.module.no_sync()
        return nullcontext()


class DeterministicReduce(GradientSync):
    """Virtual shards, each forward and backward on its own, then summed in a fixed order.

    Neither the number of workers nor the rank of a shard changes a bit. Buffers, as the statistics of batch
    normalisation, become the mean over the shards.
    """

    def __init__(self, module: nn.Module, model: nn.Module, world: World, shards: int) -> None:
        super().__init__(module, world)
        self.divisor, self.shards = 1, shards
        self.weights = [p for p in model.parameters() if p.requires_grad]
        self.counters = [b for b in model.buffers() if not b.is_floating_point()]
        self.buffers = [b for b in model.buffers() if b.is_floating_point()]

    def micro_batches(self, parts: list[Batch], seed: Seed) -> Iterator[Batch]:
        """Each virtual shard of this worker, from the same buffers."""
        before = [buffer.clone() for buffer in (*self.buffers, *self.counters)]
        gradients = []
        for shard, part in zip(shards_of_rank(self.world.rank, self.world.size, self.shards), parts, strict=True):
            self._reset(before)
            seed(shard)
            yield part
            slopes = [torch.zeros_like(w) if w.grad is None else w.grad for w in self.weights]
            gradients.append(torch.cat([t.flatten() for t in (*slopes, *(b / self.shards for b in self.buffers))]))
        self._set_gradients(sum_in_order(gradients, self.shards, self.world))

    def total(self, sums: list[Tensor]) -> Tensor:
        """The sum of one vector for each shard, in the order of the shards."""
        return sum_in_order(sums, self.shards, self.world)

    def _reset(self, before: list[Tensor]) -> None:
        for weight in self.weights:
            weight.grad = None
        for buffer, value in zip((*self.buffers, *self.counters), before, strict=True):
            buffer.copy_(value)

    def _set_gradients(self, total: Tensor) -> None:
        parts = torch.split(total, [t.numel() for t in (*self.weights, *self.buffers)])
        for weight, part in zip(self.weights, parts[: len(self.weights)], strict=True):
            weight.grad = part.view_as(weight)
        for buffer, part in zip(self.buffers, parts[len(self.weights) :], strict=True):
            buffer.copy_(part.view_as(buffer))


def sum_in_order(vectors: list[Tensor], shards: int, world: World) -> Tensor:
    """Sum the vectors of all shards, one after the other in their order; `vectors` are this worker's."""
    stacked = torch.stack(vectors)
    rows = -(-shards // world.size)
    if len(stacked) < rows:
        stacked = torch.cat([stacked, stacked.new_zeros(rows - len(stacked), stacked.shape[1])])
    total = torch.empty_like(stacked[0])
    for start in range(0, len(total), GATHER_SIZE):
        window = slice(start, start + GATHER_SIZE)
        gathered = _all_gather(stacked[:, window], world)
        partial_sum = gathered[0, 0].clone()
        for shard in range(1, shards):
            partial_sum += gathered[shard % world.size, shard // world.size]
        total[window] = partial_sum
    return total


def _all_gather(rows: Tensor, world: World) -> Tensor:
    """(row, number) of each worker as (worker, row, number)."""
    if world.size == 1:
        return rows[None]
    gathered = rows.new_empty(world.size, *rows.shape)
    with phase("communication"):
        dist.all_gather(list(gathered.unbind()), rows.contiguous())
    return gathered


@dataclass(frozen=True)
class MemoryFit:
    """How a batch fits into memory: gradient-accumulation micro-batches per step, and activation checkpointing."""

    micro_batches: int = 1
    recompute: bool = False

    def reduced(self, settings: Settings, largest: int) -> "MemoryFit":
        """A fit that needs less memory and gives the same: more micro-batches, then activation checkpointing.

        In deterministic mode other micro-batches would give other last bits, so only the second is tried. Raises
        NoSpaceError where nothing is left to try. `largest` is the number of samples in memory without micro-batches.
        """
        if not settings.deterministic and self.micro_batches < largest:
            return replace(self, micro_batches=min(2 * self.micro_batches, largest))
        if not self.recompute:
            return replace(self, recompute=True)
        if settings.deterministic and largest > 1:
            raise NoSpaceError(
                f"out of memory: a shard of {largest} chips in deterministic mode does not fit; "
                f"raise train.shards from {settings.shards}, to {settings.batch} at most"
            )
        raise NoSpaceError("out of memory: a single chip does not fit; lower train.width or split.chip")


def empty_batch(batch: Batch, settings: Settings, world: World) -> Batch:
    """As many empty chips as the fullest worker has, so that all warm up with the same."""
    count = torch.tensor(float(len(batch.request.numbers)), device=world.device)
    parts = settings.shards if settings.deterministic else world.size
    largest = -(-int(world.sum(count)) // parts)
    images, labels = batch.images_NCHW, batch.labels_NHW
    return replace(
        batch,
        images_NCHW=images.new_zeros(largest, *images.shape[1:]),
        labels_NHW=labels.new_zeros(largest, *labels.shape[1:]),
        request=replace(batch.request, numbers=np.zeros(largest, np.int64)),
    )


def fit_memory(
    model: nn.Module,
    fit: MemoryFit,
    example: Batch,
    settings: Settings,
    world: World,
    attempt: Callable[[nn.Module, Batch], None],
) -> tuple[MemoryFit, nn.Module, Batch]:
    """Attempt a micro-batch until it succeeds, compiled if that works; gives fit, module and micro-batch."""
    is_compiled, largest = settings.compile, len(example.labels_NHW)
    fit = replace(fit, micro_batches=min(fit.micro_batches, largest))
    if fit.recompute:
        checkpoint_activations(model)
    while True:
        module = cast(nn.Module, torch.compile(model)) if is_compiled else model
        part = split_batch(example, even_sizes(largest, fit.micro_batches))[0]
        out_of_memory, compiler_failed = _failures(partial(attempt, module, part), world, is_compiled)
        is_compiled = is_compiled and not compiler_failed
        if not out_of_memory and not compiler_failed:
            return fit, module, part
        if out_of_memory:
            previous, fit = fit, fit.reduced(settings, largest)
            if fit.recompute and not previous.recompute:
                checkpoint_activations(model)
            if world.is_first:
                log.warning("event=out_of_memory passes=%d recompute=%s", fit.micro_batches, fit.recompute)


def _failures(attempt: Callable[[], None], world: World, is_compiled: bool) -> tuple[bool, bool]:
    """Whether any worker runs out of memory in an attempt, and whether any fails to compile the model."""
    out_of_memory = compiler_failed = False
    try:
        attempt()
    except (RuntimeError, MemoryError) as error:
        # The compiler's errors have no other class in common.
        out_of_memory = is_out_of_memory(error)
        compiler_failed = is_compiled and not out_of_memory
        if not out_of_memory and not compiler_failed:
            raise
        if compiler_failed:
            log.warning("event=compile_failed reason=%r", str(error).strip().splitlines()[0])
    if out_of_memory and world.device.type == "cuda":
        torch.cuda.empty_cache()
    flags = torch.tensor([out_of_memory, compiler_failed], dtype=torch.float32, device=world.device)
    total = world.sum(flags)
    return bool(total[0]), bool(total[1])


@contextmanager
def explain_out_of_memory(step: int) -> Iterator[None]:
    """Say what to do when memory runs out in the middle of a training, where others wait for this worker."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise NoSpaceError(
            f"out of memory at step {step}, although the first step fitted: another process uses memory; "
            "free it, or set train.recompute, and run the same command again"
        ) from error
