"""Checkpoints off the training path: a copy is taken at the step, a thread writes it."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING

from eopipe.checkpoints.checkpoint import Progress
from eopipe.checkpoints.sharded import Held, Piece

if TYPE_CHECKING:
    from torch import Tensor

Save = Callable[[Progress, dict[str, Held]], object]


class Writer:
    """Hands one state at a time to `save` in a thread; what goes wrong there is raised at the next call."""

    def __init__(self, save: Save) -> None:
        self._save = save
        self._thread: Thread | None = None
        self._failure: BaseException | None = None
        self._buffers: dict[str, dict[str, Tensor]] = {}

    def put(self, progress: Progress, parts: dict[str, Held]) -> None:
        """Copy a state and start to write it, as soon as the one before is written."""
        self.finish()
        told, copy = deepcopy(progress), self._copy(parts)
        self._thread = Thread(target=self._write, args=(told, copy), name="checkpoint")
        self._thread.start()

    def check(self) -> None:
        """Raise what the thread met, if anything."""
        if self._failure:
            failure, self._failure = self._failure, None
            raise failure

    def finish(self) -> None:
        """Wait until all is written; raise what the thread met."""
        if self._thread:
            self._thread.join()
            self._thread = None
        self.check()

    def _write(self, progress: Progress, parts: dict[str, Held]) -> None:
        try:
            self._save(progress, parts)
        except BaseException as error:  # noqa: BLE001 - it is raised in the thread that trains
            self._failure = error

    def _copy(self, parts: dict[str, Held]) -> dict[str, Held]:
        """The parts in buffers of this writer, which are used again for every step."""
        import torch

        buffers = {
            name: {k: self._buffer(name, k, _tensor(v)) for k, v in part.items()} for name, part in parts.items()
        }
        for name, part in buffers.items():
            for key, buffer in part.items():
                buffer.copy_(_tensor(parts[name][key]), non_blocking=True)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._buffers = buffers
        return {name: {k: _with(v, buffers[name][k]) for k, v in part.items()} for name, part in parts.items()}

    def _buffer(self, part: str, key: str, like: "Tensor") -> "Tensor":
        import torch

        there = self._buffers.get(part, {}).get(key)
        if there is not None and there.shape == like.shape and there.dtype == like.dtype:
            return there
        return torch.empty(like.shape, dtype=like.dtype, device="cpu", pin_memory=like.is_cuda)


def _tensor(held: "Tensor | Piece") -> "Tensor":
    return held.rows if isinstance(held, Piece) else held


def _with(held: "Tensor | Piece", tensor: "Tensor") -> "Tensor | Piece":
    return replace(held, rows=tensor) if isinstance(held, Piece) else tensor
