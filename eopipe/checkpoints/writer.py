"""Asynchronous checkpoints: a copy is taken at the step, a thread writes it while the training continues."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING

from eopipe.checkpoints.checkpoint import Progress
from eopipe.checkpoints.sharded import LocalTensors, TensorShard

if TYPE_CHECKING:
    from torch import Tensor

Save = Callable[[Progress, dict[str, LocalTensors]], object]


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
