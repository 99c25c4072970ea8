"""Backends that fill the slots of a batch: inline in this process, or a pool of data-loader workers."""

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
from eopipe.loader.chip_reader import Bounds, ChipReader, ChipRequest, SharedMemorySlots
from eopipe.loader.worker_main import WorkerSetup

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLOSC_NTHREADS"), "1")


# Chips named in an error message.
MAX_NAMED_CHIPS = 4


class LostWorkerError(RuntimeError):
    """A data-loader worker died or hangs: the rank exits and torchrun restarts all from the newest checkpoint."""


class ReadBackend(Protocol):
    """Fills slots; they are waited for in the order of their submission."""

    def submit(self, slot: int, requests: Sequence[ChipRequest]) -> None:
        """Start to read these chips into a slot."""

    def is_ready(self, slot: int) -> bool:
        """Whether the slot is filled or has failed."""

    def wait(self, slot: int) -> None:
        """Return when the slot is filled; raises the error of its reading."""

    def close(self) -> None:
        """Stop the backend."""


class InlineReader:
    """Reads chips in the process of the rank itself."""

    def __init__(self, reader: ChipReader, ring: SharedMemorySlots) -> None:
        self._reader, self._ring = reader, ring

    def submit(self, slot: int, requests: Sequence[ChipRequest]) -> None:
        """Read immediately."""
        for request in requests:
            self._reader.read(request, self._ring.batch(slot, self._reader.edge_of(request)))

    def is_ready(self, slot: int) -> bool:  # noqa: ARG002
        """Always true: `submit` has filled the slot."""
        return True

    def wait(self, slot: int) -> None:
        """Does nothing: `submit` has filled the slot."""

    def close(self) -> None:
        """Does nothing: there is no worker."""


class WorkerPool:
    """Single-threaded worker processes; a block is owned by one of them while it is among the last `live_blocks`.

    A worker that has not answered after `timeout_s` seconds is considered hung.
    """

    def __init__(
        self, setup: WorkerSetup, ring: SharedMemorySlots, count: int, live_blocks: int, timeout_s: float
    ) -> None:
        self._live_blocks, self._timeout_s = live_blocks, timeout_s
        self._sources = setup.sources
        self._block_owners: OrderedDict[tuple[int, Bounds], int] = OrderedDict()
        self._submitted_chips: Counter[int] = Counter()
        self._pending: dict[int, dict[int, list[ChipRequest]]] = {}
        self._errors: dict[int, EopipeError] = {}
        self._processes = [_start(setup, ring) for _ in range(count)]
        self._partial_lines = [b""] * count

    def submit(self, slot: int, requests: Sequence[ChipRequest]) -> None:
        """Distribute the requests so that each worker gets about the same number of chips."""
        parts: dict[int, list[ChipRequest]] = {}
        for request in requests:
            owner = self._owner(request)
            self._submitted_chips[owner] += len(request.positions)
            parts.setdefault(owner, []).append(request)
        self._pending[slot] = parts
        for number, part in parts.items():
            self._send(number, {"slot": slot, "requests": [astuple(request) for request in part]})

    def _owner(self, request: ChipRequest) -> int:
        if request.window is None:
            return self._least_loaded(self._submitted_chips)
        key = (request.scene, request.window)
        if key not in self._block_owners:
            if len(self._block_owners) >= self._live_blocks:
                self._block_owners.popitem(last=False)
            self._block_owners[key] = self._least_loaded(Counter(self._block_owners.values()))
        self._block_owners.move_to_end(key)
        return self._block_owners[key]

    def _least_loaded(self, load: "Counter[int]") -> int:
        return min(range(len(self._processes)), key=lambda number: (load[number], self._submitted_chips[number]))

    def _send(self, number: int, message: dict[str, Any]) -> None:
        try:
            _write(self._processes[number], json.dumps(message))
        except BrokenPipeError:
            raise self._lost_error(number) from None

    def is_ready(self, slot: int) -> bool:
        """Whether the slot is filled, after all answers so far have been read."""
        return self._wait_for_answers(slot, 0)

    def wait(self, slot: int) -> None:
        """Return when every worker with a part of the slot has answered; raises its error."""
        if not self._wait_for_answers(slot, self._timeout_s):
            raise self._stuck_error(self._pending[slot])
        del self._pending[slot]
        if slot in self._errors:
            raise self._errors.pop(slot)

    def _wait_for_answers(self, slot: int, seconds: float) -> bool:
        """Whether all workers have answered within these seconds."""
        deadline = time.monotonic() + seconds
        while parts := self._pending[slot]:
            pipes, poller = {_file(self._processes[number].stdout): number for number in parts}, select.poll()
            for pipe in pipes:
                poller.register(pipe, select.POLLIN)
            readable = poller.poll(1000 * max(0.0, deadline - time.monotonic()))
            if not readable:
                return False
            for pipe, _ in readable:
                self._read_answers(pipes[pipe])
        return True

    def _read_answers(self, number: int) -> None:
        data = os.read(_file(self._processes[number].stdout), 1 << 16)
        if not data:
            raise self._lost_error(number)
        *lines, self._partial_lines[number] = (self._partial_lines[number] + data).split(b"\n")
        for answer in map(json.loads, lines):
            del self._pending[answer["slot"]][number]
            if "code" in answer:
                self._errors.setdefault(answer["slot"], BY_CODE.get(answer["code"], EopipeError)(answer["reason"]))

    def _lost_error(self, number: int) -> LostWorkerError:
        code = self._processes[number].wait()
        cause = f"was killed by signal {-code}" if code < 0 else f"died with code {code}"
        return LostWorkerError(f"a data-loader worker {cause}")

    def _stuck_error(self, parts: dict[int, list[ChipRequest]]) -> LostWorkerError:
        chips = [
            f"{Path(self._sources[request.scene].tiles).name} (row {row}, column {column})"
            for part in parts.values()
            for request in part
            for row, column in request.corners
        ]
        more = f" and {len(chips) - MAX_NAMED_CHIPS} more" if len(chips) > MAX_NAMED_CHIPS else ""
        names = ", ".join(chips[:MAX_NAMED_CHIPS]) + more
        return LostWorkerError(f"a data-loader worker has been stuck for {self._timeout_s:g} s at {names}")

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            # Closes the pipes, which may still contain an unread line.
            with suppress(BrokenPipeError), process:
                pass


def _start(setup: WorkerSetup, ring: SharedMemorySlots) -> "subprocess.Popen[bytes]":
    # A session of its own: signals to the process group are handled by the rank.
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "eopipe.loader.worker_main"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[ring.file],
        env=os.environ | ONE_THREAD,
        start_new_session=True,
    )
    _write(process, setup.json_line(ring.file))
    return process


def _write(process: "subprocess.Popen[bytes]", line: str) -> None:
    pipe = process.stdin
    if pipe:
        pipe.write(line.encode() + b"\n")
        pipe.flush()


def _file(pipe: "IO[bytes] | None") -> int:
    return pipe.fileno() if pipe else -1
