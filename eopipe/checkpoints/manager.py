"""What keeps the state of a training safe, as the loop sees it."""

import logging
import math
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.checkpoints import checkpoint
from eopipe.checkpoints.checkpoint import Parts, Progress, leave
from eopipe.checkpoints.sharded import Held, clear, collect, own, room_of
from eopipe.checkpoints.writer import Writer
from eopipe.errors import IntegrityError
from eopipe.launch.lease import fence
from eopipe.publish import read_json

if TYPE_CHECKING:
    from eopipe.launch.world import World
    from eopipe.training_job import Job

log = logging.getLogger("eopipe")
IDENTITY = "identity.json"


class Keeper:
    """The checkpoints of a job: every worker reads them. The first one writes, with what others hold alone."""

    def __init__(self, job: "Job", world: "World") -> None:
        self.folder, self.world, self.job = job.state, world, job
        self.identity: dict[str, Any] | None = None
        if (self.folder / IDENTITY).exists():
            self.identity = read_json(self.folder / IDENTITY)
        if world.is_first:
            clear(self.folder)
        self.dealt = job.settings.strategy == "fsdp" and world.size > 1
        self._room = room_of(self.folder, world) if self.dealt else self.folder
        self._until = math.inf
        self._writer = Writer(self._save if world.is_first else partial(leave, self._room, world.rank))

    def _save(self, progress: Progress, parts: dict[str, Held]) -> None:
        started = time.monotonic()
        others, step = range(1, self.world.size) if self.dealt else (), progress.step

        def collected(draft: Path) -> None:
            collect(self._room, step, others, draft, lambda: self._patient(started))

        checkpoint.save(
            self.folder,
            progress,
            parts,
            keep=self.job.keep,
            identity=self.identity,
            token=self.job.token,
            fence=partial(fence, self.folder, self.job.token),
            collect=collected,
        )

    def _patient(self, started: float) -> bool:
        return time.monotonic() < min(self._until, started + float(self.job.timeout_s))

    def restore(self) -> tuple[Progress, Parts] | None:
        """The newest whole checkpoint, which is the same for all workers; None at the beginning.

        Raises IntegrityError where workers see different ones.
        """
        import torch

        found = checkpoint.restore(self.folder, self.identity)
        step = found[0].step if found else 0
        # It also holds back the first worker, which may drop a checkpoint, until all have read theirs.
        seen = self.world.sum(torch.tensor([step, step**2], dtype=torch.float64, device=self.world.device))
        if float(seen[1]) * self.world.size != float(seen[0]) ** 2:
            raise IntegrityError(f"the workers see different checkpoints in {self.folder}; is it one file system?")
        if found and self.world.is_first:
            log.info("event=resume step=%d", step)
        return found

    def put(self, now: Progress, parts: Parts) -> None:
        """Take a copy of the state, as this worker holds it, and write it off the training path."""
        if self.world.is_first or self.dealt:
            self._writer.put(now, own(parts, self.world.is_first))

    def check(self) -> None:
        """Raise what the writer met since; NoSpaceError for a full disk."""
        self._writer.check()

    def finish(self, within_s: float = math.inf) -> None:
        """Wait until all is written; for what other workers must write no longer than that."""
        self._until = time.monotonic() + within_s
        self._writer.finish()
