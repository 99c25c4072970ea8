"""A warm-up pass before the first step: whether the model compiles, and how a batch fits into memory.

Chips have one size, so what fits once fits always. All workers learn what one of them met, and choose alike.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import numpy as np
import torch
from torch import nn

from eopipe.errors import NoSpaceError
from eopipe.launch.failures import is_out_of_memory
from eopipe.launch.world import World
from eopipe.loader.loader import Batch
from eopipe.training.parallel import checkpoint_activations, even_sizes, split_batch
from eopipe.training_job import Settings

log = logging.getLogger("eopipe")


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
