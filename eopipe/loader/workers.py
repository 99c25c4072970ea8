"""Who fills the slots of a ring: this process, or producers of its own."""

import json
import os
import select
import subprocess
import sys
import time
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path
from typing import IO, Any, Protocol

from eopipe.errors import BY_CODE, EopipeError
from eopipe.loader.chip_reader import Bounds, ChipReader, ChipRequest
from eopipe.loader.shared_memory import SharedMemorySlots
from eopipe.loader.worker_main import WorkerSetup

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLOSC_NTHREADS"), "1")


# Chips that an error names.
MOST_TOLD = 4


class LostWorkerError(RuntimeError):
    """A process that reads chips is gone or stuck; the worker ends, torchrun starts all from the newest checkpoint."""


class ReadBackend(Protocol):
    """Fills slots; they are waited for in the order in which they were given."""

    def give(self, slot: int, pieces: Sequence[ChipRequest]) -> None:
        """Have these pieces cut into a slot."""

    def ready(self, slot: int) -> bool:
        """Whether the slot is filled, or it is known what went wrong."""

    def wait(self, slot: int) -> None:
        """Return when the slot is filled; raises what went wrong."""

    def close(self) -> None:
        """End the crew."""


class InlineReader:
    """Slots are filled by the worker itself."""

    def __init__(self, cutter: ChipReader, ring: SharedMemorySlots) -> None:
        self._cutter, self._ring = cutter, ring

    def give(self, slot: int, pieces: Sequence[ChipRequest]) -> None:
        """Cut at once."""
        for piece in pieces:
            self._cutter.cut(piece, self._ring.slots[slot])

    def ready(self, slot: int) -> bool:  # noqa: ARG002
        """At any time."""
        return True

    def wait(self, slot: int) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing to end."""


class WorkerPool:
    """Processes of one thread each; a block belongs to one of them as long as it is among the last `live` ones.

    One that has not answered after `patience` seconds hangs.
    """

    def __init__(self, brief: WorkerSetup, ring: SharedMemorySlots, count: int, live: int, patience: float) -> None:
        self._live, self._patience = live, patience
        self._sources = brief.sources
        self._owners: OrderedDict[tuple[int, Bounds], int] = OrderedDict()
        self._given: Counter[int] = Counter()
        self._at_work: dict[int, dict[int, list[ChipRequest]]] = {}
        self._wrong: dict[int, EopipeError] = {}
        self._processes = [_start(brief, ring) for _ in range(count)]
        self._heard = [b""] * count

    def give(self, slot: int, pieces: Sequence[ChipRequest]) -> None:
        """Share the pieces out, about as many chips to each."""
        parts: dict[int, list[ChipRequest]] = {}
        for piece in pieces:
            owner = self._owner(piece)
            self._given[owner] += len(piece.places)
            parts.setdefault(owner, []).append(piece)
        self._at_work[slot] = parts
        for number, part in parts.items():
            self._tell(number, {"slot": slot, "pieces": [astuple(piece) for piece in part]})

    def _owner(self, piece: ChipRequest) -> int:
        if piece.window is None:
            return self._idlest(self._given)
        key = (piece.scene, piece.window)
        if key not in self._owners:
            if len(self._owners) >= self._live:
                self._owners.popitem(last=False)
            self._owners[key] = self._idlest(Counter(self._owners.values()))
        self._owners.move_to_end(key)
        return self._owners[key]

    def _idlest(self, load: "Counter[int]") -> int:
        return min(range(len(self._processes)), key=lambda number: (load[number], self._given[number]))

    def _tell(self, number: int, told: dict[str, Any]) -> None:
        try:
            _write(self._processes[number], json.dumps(told))
        except BrokenPipeError:
            raise self._lost(number) from None

    def ready(self, slot: int) -> bool:
        """Hear what has been said so far."""
        return self._hear(slot, 0)

    def wait(self, slot: int) -> None:
        """Every process that has a part answers once, in the order of its work."""
        if not self._hear(slot, self._patience):
            raise self._stuck(self._at_work[slot])
        del self._at_work[slot]
        if slot in self._wrong:
            raise self._wrong.pop(slot)

    def _hear(self, slot: int, seconds: float) -> bool:
        """Whether all have answered within these seconds."""
        until = time.monotonic() + seconds
        while parts := self._at_work[slot]:
            pipes, looker = {_file(self._processes[number].stdout): number for number in parts}, select.poll()
            for pipe in pipes:
                looker.register(pipe, select.POLLIN)
            said = looker.poll(1000 * max(0.0, until - time.monotonic()))
            if not said:
                return False
            for pipe, _ in said:
                self._read(pipes[pipe])
        return True

    def _read(self, number: int) -> None:
        said = os.read(_file(self._processes[number].stdout), 1 << 16)
        if not said:
            raise self._lost(number)
        *lines, self._heard[number] = (self._heard[number] + said).split(b"\n")
        for told in map(json.loads, lines):
            del self._at_work[told["slot"]][number]
            if "code" in told:
                self._wrong.setdefault(told["slot"], BY_CODE.get(told["code"], EopipeError)(told["reason"]))

    def _lost(self, number: int) -> LostWorkerError:
        code = self._processes[number].wait()
        how = f"was killed by signal {-code}" if code < 0 else f"died with code {code}"
        return LostWorkerError(f"a process that reads chips {how}")

    def _stuck(self, parts: dict[int, list[ChipRequest]]) -> LostWorkerError:
        chips = [
            f"{Path(self._sources[piece.scene].tiles).name} (row {row}, column {column})"
            for part in parts.values()
            for piece in part
            for row, column in piece.corners
        ]
        more = f" and {len(chips) - MOST_TOLD} more" if len(chips) > MOST_TOLD else ""
        told = ", ".join(chips[:MOST_TOLD]) + more
        return LostWorkerError(f"a process that reads chips is stuck for {self._patience:g} s at {told}")

    def close(self) -> None:
        """End the processes; their work is of no more use."""
        for process in self._processes:
            process.kill()
            # Closes the pipes, which may still hold a line for it.
            with suppress(BrokenPipeError), process:
                pass


def _start(brief: WorkerSetup, ring: SharedMemorySlots) -> "subprocess.Popen[bytes]":
    # A session of its own: signals to the worker's group are the worker's to answer.
    process = subprocess.Popen(
        [sys.executable, "-m", "eopipe.loader.worker_main"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[ring.file],
        env=os.environ | ONE_THREAD,
        start_new_session=True,
    )
    _write(process, brief.line(ring.file))
    return process


def _write(process: "subprocess.Popen[bytes]", line: str) -> None:
    pipe = process.stdin
    if pipe:
        pipe.write(line.encode() + b"\n")
        pipe.flush()


def _file(pipe: "IO[bytes] | None") -> int:
    return pipe.fileno() if pipe else -1
