"""Where the time of a training goes: seconds a phase, each second counted once.

A phase inside another one takes its seconds away from it. Whoever does the work names its phase
(`with phase("forward")`), as whoever logs names an event; nothing is counted until `Clock.start()`.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from eopipe.publish import publish

if TYPE_CHECKING:
    from torch.profiler import profile

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


SKIPPED, STEPS = 2, 3
TRACE, TABLE = "trace.json", "operators.txt"
# How the collectives of torch name themselves: host side, gloo's threads, kernels of NCCL.
TALK = ("c10d::", "gloo:", "nccl")


class Profiler:
    """Records a few steps after the first ones, in which memory is claimed and kernels are chosen."""

    def __init__(self, folder: Path, device: str) -> None:
        self.folder, self.device = folder, device
        self._step = 0
        self._running: profile | None = None

    def step(self) -> None:
        """Tell that a step has ended."""
        self._step += 1
        if self._step == SKIPPED:
            self._start()
        elif self._step == SKIPPED + STEPS:
            self.close()

    def _start(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        kinds = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.device == "cuda" else [])]
        self._running = profile(activities=kinds, record_shapes=True, profile_memory=True)
        self._running.start()

    def close(self) -> None:
        """Write what was recorded; nothing when the training was over before."""
        running, self._running = self._running, None
        if running is None:
            return
        running.stop()
        with publish(self.folder / TRACE) as draft:
            running.export_chrome_trace(str(draft))
        with publish(self.folder / TABLE) as draft:
            text = told(running.key_averages(), self.device, kernels(running.events()))  # type: ignore[no-untyped-call]
            draft.write_text(text, encoding="utf-8")


def told(averages: Any, device: str, ran: list[tuple[float, float]]) -> str:
    """How busy the GPU was, time in collectives, which may overlap the backward pass, and the longest operators."""
    key = "self_cuda_time_total" if device == "cuda" else "self_cpu_time_total"
    talk = sum(row.cpu_time_total + row.device_time_total for row in averages if row.key.startswith(TALK))
    lines = [f"collectives: {talk / 1e3:.1f} ms in {STEPS} steps, hidden behind the backward pass or not"]
    if ran:
        lines.insert(0, f"GPU busy: {busy(ran):.1%} of the time from its first kernel to its last")
    return "\n".join([*lines, str(averages.table(sort_by=key, row_limit=40)), ""])


def kernels(events: Any) -> list[tuple[float, float]]:
    """Begin and end of what ran on a GPU, in microseconds; `events` are those of a profile."""
    return [(e.time_range.start, e.time_range.end) for e in events if e.device_type.name == "CUDA"]


def busy(ran: list[tuple[float, float]]) -> float:
    """The share of a time that intervals (begin, end) cover, from the first begin to the last end."""
    covered, reached = 0.0, -math.inf
    for begin, end in sorted(ran):
        covered += max(end - max(begin, reached), 0.0)
        reached = max(reached, end)
    return covered / max(reached - min(ran)[0], 1e-9)
