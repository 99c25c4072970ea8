"""A pass that counts for nothing, before the first step: whether the model compiles, and its batch fits into memory.

Chips have one size, so what fits once fits always. All workers learn what one of them met, and choose alike.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from eopipe.errors import NoSpaceError
from eopipe.launch.failures import is_out_of_memory
from eopipe.launch.world import World
from eopipe.training_job import Settings

log = logging.getLogger("eopipe")


@dataclass(frozen=True)
class Fit:
    """How a batch is made to fit: passes that it is cut into, and whether activations are computed twice."""

    passes: int = 1
    recompute: bool = False

    def smaller(self, settings: Settings, largest: int) -> "Fit":
        """What needs less memory and gives the same: more passes, then activations computed twice.

        In deterministic mode other passes would give other last bits, so there is only the second. Raises
        NoSpaceError where nothing is left to try. `largest` counts the samples that meet in memory without passes.
        """
        if not settings.deterministic and self.passes < largest:
            return replace(self, passes=min(2 * self.passes, largest))
        if not self.recompute:
            return replace(self, recompute=True)
        if settings.deterministic and largest > 1:
            less = f"{largest} chips, a shard of deterministic mode, do"
            more = f"raise train.shards from {settings.shards}, to {settings.batch} at most"
            raise NoSpaceError(f"the memory of a process does not hold what {less}; {more}")
        raise NoSpaceError("one chip alone does not fit into memory; lower train.width or split.chip")


def trouble(attempt: Callable[[], None], world: World, compiled: bool) -> tuple[bool, bool]:
    """Whether any worker runs out of memory in an attempt, and whether a model does not compile."""
    memory = failed = False
    try:
        attempt()
    except (RuntimeError, MemoryError) as error:
        # The compiler's errors have no other class in common.
        memory = is_out_of_memory(error)
        failed = compiled and not memory
        if not memory and not failed:
            raise
        if failed:
            log.warning("event=compile-failed reason=%r", str(error).strip().splitlines()[0])
    if memory and world.device.type == "cuda":
        torch.cuda.empty_cache()
    told = world.sum(torch.tensor([memory, failed], dtype=torch.float32, device=world.device))
    return bool(told[0]), bool(told[1])


@contextmanager
def explained(step: int) -> Iterator[None]:
    """Say what to do when memory runs out in the middle of a training, where others wait for this worker."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise NoSpaceError(
            f"memory ran out at step {step}, though the first step had fit: something else takes it; "
            "free it, or set train.recompute, and run the same command again"
        ) from error
