"""Where the time of a training goes: seconds a phase, each second counted once.

A phase inside another one takes its seconds away from it. Whoever does the work names its phase
(`with phase("forward")`), as whoever logs names an event; nothing is counted until `Clock.start()`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

PHASES = ("data", "forward", "backward", "communication", "optimiser", "validation", "checkpoint", "watching")
# A GPU works on while the host goes on, so these are measured on its own clock.
ON_DEVICE = ("forward", "backward", "communication", "optimiser")
T = TypeVar("T")


@dataclass
class Clock:
    """Seconds a phase since the last `lap`, and over all laps; `device` is that of the work, cpu or cuda."""

    device: str = "cpu"
    seconds: dict[str, float] = field(default_factory=dict)
    total: dict[str, float] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _since: float = field(default_factory=time.perf_counter)
    _marks: list[tuple[str, Any, Any]] = field(default_factory=list)

    def start(self) -> None:
        """Become the clock of this thread: what others do meanwhile does not count."""
        _clock.set(self)

    def stop(self) -> None:
        """Be it no longer."""
        _clock.set(None)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count the seconds of the block for a phase."""
        self._turn()
        self._open.append(name)
        begun = self._mark(name)
        try:
            yield
        finally:
            if begun is not None:
                self._marks.append((name, begun, self._mark(name)))
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        """Count the seconds since the last turn for the innermost phase."""
        now = time.perf_counter()
        name = self._open[-1] if self._open else "other"
        on_device = self.device == "cuda" and name in ON_DEVICE
        self._count("other" if on_device else name, now - self._since)
        self._since = now

    def _count(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def _mark(self, name: str) -> Any:
        """A mark in the work of the GPU: no wait for it, so that it stays busy."""
        if self.device != "cuda" or name not in ON_DEVICE:
            return None
        import torch

        self._collect(wait=False)
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _collect(self, wait: bool) -> None:
        """Count what the GPU has finished, taken from what the host did meanwhile."""
        while self._marks and (wait or self._marks[0][2].query()):
            name, begun, ended = self._marks.pop(0)
            ended.synchronize()
            self.move("other", name, begun.elapsed_time(ended) / 1e3)

    def move(self, name: str, other: str, seconds: float) -> None:
        """Count seconds of one phase for another one: no more than it has."""
        taken = min(max(seconds, 0.0), self.seconds.get(name, 0.0))
        self._count(name, -taken)
        self._count(other, taken)

    def lap(self) -> dict[str, float]:
        """The seconds of each phase since the last lap, which then begin anew; they sum to all that passed."""
        self._turn()
        self._collect(wait=True)
        told, self.seconds = self.seconds, {}
        for name, seconds in told.items():
            self.total[name] = self.total.get(name, 0.0) + seconds
        return told


_clock: ContextVar[Clock | None] = ContextVar("clock", default=None)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Name what the block does, one of `PHASES`, for the clock of this thread if it has one."""
    clock = _clock.get()
    with clock.phase(name) if clock else nullcontext():
        yield


def waiting(values: Iterator[T], name: str = "data") -> Iterator[T]:
    """The same values, with the time that each is waited for counted as a phase."""
    while True:
        try:
            with phase(name):
                value = next(values)
        except StopIteration:
            return
        yield value


def table(seconds: dict[str, float]) -> str:
    """A phase a line: its seconds and its share of all."""
    whole = max(sum(seconds.values()), 1e-9)
    names = [name for name in (*PHASES, "other") if seconds.get(name)]
    rows = [f"{name:<14}{seconds[name]:>10.2f} s{seconds[name] / whole:>8.1%}" for name in names]
    return "\n".join([*rows, f"{'all':<14}{whole:>10.2f} s{1:>8.1%}"])
