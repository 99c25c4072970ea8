"""The checkpoint manager: what keeps the state of a training safe, as the loop sees it.

Checkpoints are asynchronous: a copy is taken at the step, a thread writes it while the training continues.
"""

import logging
import math
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from eopipe.checkpoints import checkpoint
from eopipe.checkpoints.checkpoint import Parts, Progress, stage_shards
from eopipe.checkpoints.sharded import (
    LocalTensors,
    TensorShard,
    collect_shards,
    create_exchange_folder,
    local_tensors,
    remove_exchange_folders,
)
from eopipe.errors import IntegrityError
from eopipe.launch.lease import fence
from eopipe.text_files import read_json

if TYPE_CHECKING:
    from torch import Tensor

    from eopipe.launch.world import World
    from eopipe.training_job import Job

log = logging.getLogger("eopipe")
IDENTITY = "identity.json"
Save = Callable[[Progress, dict[str, LocalTensors]], object]


class CheckpointManager:
    """The checkpoints of a job: every worker reads them; the first one writes, with the shards of the others."""

    def __init__(self, job: "Job", world: "World") -> None:
        self.folder, self.world, self.job = job.state, world, job
        self.identity: dict[str, Any] | None = None
        if (self.folder / IDENTITY).exists():
            self.identity = read_json(self.folder / IDENTITY)
        if world.is_first:
            remove_exchange_folders(self.folder)
        self.is_sharded = job.settings.strategy == "fsdp" and world.size > 1
        self._exchange = create_exchange_folder(self.folder, world) if self.is_sharded else self.folder
        self._deadline = math.inf
        self._writer = CheckpointWriter(
            self._save if world.is_first else partial(stage_shards, self._exchange, world.rank)
        )

    def _save(self, progress: Progress, parts: dict[str, LocalTensors]) -> None:
        started = time.monotonic()
        others, step = range(1, self.world.size) if self.is_sharded else (), progress.step

        def collect(draft: Path) -> None:
            collect_shards(self._exchange, step, others, draft, lambda: self._may_wait(started))

        checkpoint.save(
            self.folder,
            progress,
            parts,
            keep=self.job.knobs.keep,
            identity=self.identity,
            token=self.job.token,
            fence=partial(fence, self.folder, self.job.token),
            collect=collect,
        )

    def _may_wait(self, started: float) -> bool:
        return time.monotonic() < min(self._deadline, started + float(self.job.knobs.timeout_s))

    def restore(self) -> tuple[Progress, Parts] | None:
        """The newest whole checkpoint, which is the same for all workers; None at the start.

        Raises IntegrityError where workers see different ones.
        """
        import torch

        restored = checkpoint.restore(self.folder, self.identity)
        step = restored[0].step if restored else 0
        # It also holds back the first worker, which may drop a checkpoint, until all have read theirs.
        sums = self.world.sum(torch.tensor([step, step**2], dtype=torch.float64, device=self.world.device))
        if float(sums[1]) * self.world.size != float(sums[0]) ** 2:
            raise IntegrityError(
                f"the workers see different checkpoints in {self.folder}; put it on a shared file system"
            )
        if restored and self.world.is_first:
            log.info("event=resume step=%d", step)
        return restored

    def save(self, progress: Progress, parts: Parts) -> None:
        """Copy the state, as this worker holds it, and write it while the training continues."""
        if self.world.is_first or self.is_sharded:
            self._writer.put(progress, local_tensors(parts, self.world.is_first))

    def raise_failure(self) -> None:
        """Raise what the writer met since; NoSpaceError for a full disk."""
        self._writer.raise_failure()

    def wait(self, within_s: float = math.inf) -> None:
        """Wait until all is written; for what other workers must write no longer than that."""
        self._deadline = time.monotonic() + within_s
        self._writer.wait()


class CheckpointWriter:
    """Hands one state at a time to `save` in a thread; what fails there is raised at the next call."""

    def __init__(self, save: Save) -> None:
        self._save = save
        self._thread: Thread | None = None
        self._failure: BaseException | None = None
        self._buffers: dict[str, dict[str, Tensor]] = {}

    def put(self, progress: Progress, parts: dict[str, LocalTensors]) -> None:
        """Copy a state and start to write it, as soon as the one before is written."""
        self.wait()
        self._thread = Thread(target=self._write, args=(deepcopy(progress), self._copy(parts)), name="checkpoint")
        self._thread.start()

    def raise_failure(self) -> None:
        """Raise what the thread met, if anything."""
        if self._failure:
            failure, self._failure = self._failure, None
            raise failure

    def wait(self) -> None:
        """Wait until all is written; raise what the thread met."""
        if self._thread:
            self._thread.join()
            self._thread = None
        self.raise_failure()

    def _write(self, progress: Progress, parts: dict[str, LocalTensors]) -> None:
        try:
            self._save(progress, parts)
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that trains
            self._failure = error

    def _copy(self, parts: dict[str, LocalTensors]) -> dict[str, LocalTensors]:
        """The parts in buffers of this writer, which are used again for every step."""
        import torch

        buffers = {
            part: {name: self._buffer(part, name, _rows(value)) for name, value in tensors.items()}
            for part, tensors in parts.items()
        }
        for part, copies in buffers.items():
            for name, buffer in copies.items():
                buffer.copy_(_rows(parts[part][name]), non_blocking=True)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._buffers = buffers
        return {
            part: {name: _with_rows(value, buffers[part][name]) for name, value in tensors.items()}
            for part, tensors in parts.items()
        }

    def _buffer(self, part: str, name: str, like: "Tensor") -> "Tensor":
        import torch

        buffer = self._buffers.get(part, {}).get(name)
        if buffer is not None and buffer.shape == like.shape and buffer.dtype == like.dtype:
            return buffer
        return torch.empty(like.shape, dtype=like.dtype, device="cpu", pin_memory=like.is_cuda)


def _rows(value: "Tensor | TensorShard") -> "Tensor":
    return value.rows if isinstance(value, TensorShard) else value


def _with_rows(value: "Tensor | TensorShard", rows: "Tensor") -> "Tensor | TensorShard":
    return replace(value, rows=rows) if isinstance(value, TensorShard) else rows
