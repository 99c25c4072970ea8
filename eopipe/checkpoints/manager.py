"""The checkpoint manager: what keeps the state of a training safe, as the loop sees it; checkpoints of models.

Checkpoints are asynchronous: a copy is taken at the step, a thread writes it while the training continues. Where a
training pauses, the folder of its model has one from which another training continues. It holds all that this needs,
as the same bytes in each run: no times, no paths, no fencing token.
"""

import logging
import math
import shutil
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

from eopipe.checkpoints import checkpoint
from eopipe.checkpoints.checkpoint import (
    LocalTensors,
    Parts,
    Progress,
    TensorShard,
    best,
    collect_shards,
    create_exchange_folder,
    local_tensors,
    refuse_other,
    remove_exchange_folders,
    stage_shards,
    steps,
)
from eopipe.errors import BadInputError, IntegrityError, UsageError
from eopipe.launch.lease import fence
from eopipe.publish import MANIFEST, files, publish, verify, write_manifest
from eopipe.telemetry.journal import METRICS, published_lines
from eopipe.text_files import read_json, write_json

if TYPE_CHECKING:
    from torch import Tensor

    from eopipe.launch.world import World
    from eopipe.training_job import Job

log = logging.getLogger("eopipe")
IDENTITY = "identity.json"
Save = Callable[[Progress, dict[str, LocalTensors]], object]
# Its name in the folder of the model.
CHECKPOINT = "checkpoint"


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


def write_checkpoint(folder: Path, state: Path, *, with_best: bool) -> None:
    """Copy the newest checkpoint of a state folder, with the best one too where that may become the model."""
    newest = steps(state)[-1]
    for path in sorted({newest, (best(state) if with_best else None) or newest}):
        copy = folder / path.name
        copy_payload(path, copy)
        # Tokens count the starts of a training, and so differ between runs.
        write_json(copy / "state.json", read_json(copy / "state.json") | {"token": 0})
        write_manifest(copy)
    shutil.copyfile(state / IDENTITY, folder / IDENTITY)
    (folder / METRICS).write_bytes(published_lines(state / METRICS))


def is_ended(continued: Path | None, promoted: Path | None) -> bool:
    """Whether a file of those that may continue, as {"promoted": [names]}, does not name a model folder.

    Raises UsageError for the file without a folder, BadInputError where it is another file, and for a folder that is to
    continue without a checkpoint.
    """
    if promoted and not continued:
        raise UsageError("--promoted names those that may continue; give the model folder as --continued too")
    if not continued:
        return False
    if promoted and continued.name not in _promoted_names(promoted):
        if not (continued / MANIFEST).is_file():
            raise BadInputError(f"{continued} is not a model folder: it does not have a {MANIFEST}")
        return True
    find_checkpoint(continued)
    return False


def _promoted_names(path: Path) -> list[str]:
    document = read_json(path)
    names = document.get("promoted") if isinstance(document, dict) else None
    if not isinstance(names, list):
        raise BadInputError(f'{path} does not name those that may continue; it must be JSON as {{"promoted": [names]}}')
    return names


def publish_ended(continued: Path, model: Path) -> None:
    """Copy a model folder without its checkpoint, since its training does not continue."""
    with publish(model, folder=True) as draft:
        copy_payload(continued, draft, without=CHECKPOINT)
    log.info("event=not_promoted model=%s", continued.name)


def find_checkpoint(model: Path) -> Path:
    """The checkpoint in a model folder. Raises BadInputError where there is none."""
    folder = model / CHECKPOINT
    if not (folder / IDENTITY).is_file() or not steps(folder):
        raise BadInputError(
            f"{model} does not have a {CHECKPOINT} to continue from; give the model of a training with --until that "
            "was not ended"
        )
    return folder


def adopt_checkpoint(model: Path, state: Path, identity: dict[str, Any]) -> None:
    """Copy the checkpoint in a model folder into a state folder, unless that has one as new already.

    Raises BadInputError, with what differs, for the checkpoint of another training, IntegrityError for a damaged one.
    """
    folder = find_checkpoint(model)
    refuse_other(folder / IDENTITY, identity, read_json(folder / IDENTITY))
    checkpoints, present = steps(folder), {path.name for path in steps(state)}
    if present and max(present) >= checkpoints[-1].name:
        return
    with publish(state / METRICS) as draft:
        shutil.copyfile(folder / METRICS, draft)
    # The newest one is the last: after a kill in between the rest follows.
    for path in checkpoints:
        if path.name not in present:
            verify(path)
            with publish(state / path.name, folder=True) as draft:
                copy_payload(path, draft)


def copy_payload(source: Path, target: Path, without: str = "") -> None:
    """Copy the files of a published folder but for its manifest, and for a folder `without` in it."""
    for file in files(source):
        path = file.relative_to(source)
        if path.parts[0] != without:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            # Without the mode: an engine may have made its files read-only.
            shutil.copyfile(file, target / path)
