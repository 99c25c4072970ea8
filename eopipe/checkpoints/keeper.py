"""What keeps the state of a training safe, as the loop sees it."""

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.checkpoints import checkpoint
from eopipe.checkpoints.checkpoint import Parts, Progress
from eopipe.checkpoints.writer import Writer
from eopipe.errors import IntegrityError
from eopipe.launching.lease import fence
from eopipe.publish import read_json

if TYPE_CHECKING:
    from eopipe.launching.job import Job
    from eopipe.launching.world import World

log = logging.getLogger("eopipe")
IDENTITY = "identity.json"


class Keeper:
    """The checkpoints of a job: every worker reads them, the first one writes."""

    def __init__(self, job: "Job", world: "World") -> None:
        self.folder, self.world = Path(job.state), world
        self.identity: dict[str, Any] | None = None
        if (self.folder / IDENTITY).exists():
            self.identity = read_json(self.folder / IDENTITY)
        guard = partial(fence, self.folder, job.token)
        save = partial(checkpoint.save, keep=job.keep, identity=self.identity, token=job.token, fence=guard)
        self._writer = Writer(partial(save, self.folder))

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
        if found and self.world.first:
            log.info("event=resume step=%d", step)
        return found

    def put(self, now: Progress, parts: Parts) -> None:
        """Take a copy of the state and write it off the training path."""
        if self.world.first:
            self._writer.put(now, parts)

    def check(self) -> None:
        """Raise what the writer met since; NoSpaceError for a full disk."""
        self._writer.check()

    def finish(self) -> None:
        """Wait until all is written."""
        self._writer.finish()
