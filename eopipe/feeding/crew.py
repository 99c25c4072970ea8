"""Who fills the slots of a ring: this process, or producers of its own."""

import json
import os
import subprocess
import sys
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from eopipe.errors import BY_CODE, EopipeError
from eopipe.feeding.producer import Brief
from eopipe.feeding.ring import Ring
from eopipe.samples.cutting import Cutter, Piece, Window

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class LostProducerError(RuntimeError):
    """A process that reads chips is gone; the worker ends, and torchrun starts all from the newest checkpoint."""


class Crew(Protocol):
    """Fills slots; they are waited for in the order in which they were given."""

    def give(self, slot: int, pieces: Sequence[Piece]) -> None:
        """Have these pieces cut into a slot."""

    def wait(self, slot: int) -> None:
        """Return when the slot is filled; raises what went wrong."""

    def close(self) -> None:
        """End the crew."""


class Alone:
    """Slots are filled by the worker itself."""

    def __init__(self, cutter: Cutter, ring: Ring) -> None:
        self._cutter, self._ring = cutter, ring

    def give(self, slot: int, pieces: Sequence[Piece]) -> None:
        """Cut at once."""
        for piece in pieces:
            self._cutter.cut(piece, self._ring.slots[slot])

    def wait(self, slot: int) -> None:
        """Nothing to wait for."""

    def close(self) -> None:
        """Nothing to end."""


class Producers:
    """Processes of one thread each; a block belongs to one of them as long as it is among the last `live` ones."""

    def __init__(self, brief: Brief, ring: Ring, count: int, live: int) -> None:
        self._live = live
        self._owners: OrderedDict[tuple[int, Window], int] = OrderedDict()
        self._given: Counter[int] = Counter()
        self._at_work: dict[int, list[int]] = {}
        self._processes = [_start(brief, ring) for _ in range(count)]

    def give(self, slot: int, pieces: Sequence[Piece]) -> None:
        """Share the pieces out, about as many chips to each."""
        parts: dict[int, list[Any]] = {}
        for piece in pieces:
            owner = self._owner(piece)
            self._given[owner] += len(piece.places)
            parts.setdefault(owner, []).append((piece.scene, piece.window, piece.places, piece.corners))
        self._at_work[slot] = sorted(parts)
        for number, part in parts.items():
            self._tell(number, json.dumps({"slot": slot, "pieces": part}))

    def _owner(self, piece: Piece) -> int:
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

    def _tell(self, number: int, line: str) -> None:
        pipe = self._processes[number].stdin
        try:
            print(line, file=pipe, flush=True)
        except BrokenPipeError:
            raise self._lost(number) from None

    def wait(self, slot: int) -> None:
        """Every process that has a part answers once, in the order of its work."""
        for number in self._at_work.pop(slot):
            line = getattr(self._processes[number].stdout, "readline", str)()
            if not line:
                raise self._lost(number)
            told = json.loads(line)
            if "code" in told:
                raise BY_CODE.get(told["code"], EopipeError)(told["reason"])

    def _lost(self, number: int) -> LostProducerError:
        code = self._processes[number].wait()
        how = f"was killed by signal {-code}" if code < 0 else f"died with code {code}"
        return LostProducerError(f"a process that reads chips {how}")

    def close(self) -> None:
        """End the processes; their work is of no more use."""
        for process in self._processes:
            process.kill()
            # Closes the pipes, which may still hold a line for it.
            with suppress(BrokenPipeError), process:
                pass


def _start(brief: Brief, ring: Ring) -> "subprocess.Popen[str]":
    # A session of its own: signals to the worker's group are the worker's to answer.
    process = subprocess.Popen(
        [sys.executable, "-m", "eopipe.feeding.producer"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=[ring.file],
        env=os.environ | ONE_THREAD,
        start_new_session=True,
        text=True,
    )
    print(brief.line(ring.file), file=process.stdin, flush=True)
    return process
