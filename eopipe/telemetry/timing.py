"""Timing of a training: seconds of each phase, each second counted once, and traces of torch's profiler.

The seconds of a nested phase count for it alone. The code that does the work names its phase (`with phase("forward")`),
as code that logs names an event; nothing is counted until `PhaseTimer.start()`.
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
# A GPU computes while the host continues, so these are measured by CUDA events.
ON_DEVICE = ("forward", "backward", "communication", "optimiser")
T = TypeVar("T")


@dataclass
class PhaseTimer:
    """Seconds of each phase since the last `lap`, and over all laps; `device` does the work, cpu or cuda."""

    device: str = "cpu"
    seconds: dict[str, float] = field(default_factory=dict)
    total: dict[str, float] = field(default_factory=dict)
    _open: list[str] = field(default_factory=list)
    _switched: float = field(default_factory=time.perf_counter)
    _events: list[tuple[str, Any, Any]] = field(default_factory=list)

    def start(self) -> None:
        """Become the timer of this thread: work of other threads does not count."""
        _timer.set(self)

    def stop(self) -> None:
        _timer.set(None)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        self._switch()
        self._open.append(name)
        start = self._record_event(name)
        try:
            yield
        finally:
            if start is not None:
                self._events.append((name, start, self._record_event(name)))
            self._switch()
            self._open.pop()

    def _switch(self) -> None:
        """Count the seconds since the last switch for the innermost phase."""
        now = time.perf_counter()
        name = self._open[-1] if self._open else "other"
        on_device = self.device == "cuda" and name in ON_DEVICE
        self._count("other" if on_device else name, now - self._switched)
        self._switched = now

    def _count(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def _record_event(self, name: str) -> Any:
        """Record a CUDA event, without waiting for the GPU, so that it stays busy."""
        if self.device != "cuda" or name not in ON_DEVICE:
            return None
        import torch

        self._collect(wait=False)
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _collect(self, wait: bool) -> None:
        """Count the phases that the GPU has finished, out of the host's time meanwhile."""
        while self._events and (wait or self._events[0][2].query()):
            name, start, end = self._events.pop(0)
            end.synchronize()
            self.reassign("other", name, start.elapsed_time(end) / 1e3)

    def reassign(self, name: str, other: str, seconds: float) -> None:
        """Count seconds of one phase for another one, at most those that it has."""
        moved = min(max(seconds, 0.0), self.seconds.get(name, 0.0))
        self._count(name, -moved)
        self._count(other, moved)

    def lap(self) -> dict[str, float]:
        """The seconds of each phase since the last lap, and start a new lap; they sum to the time that has passed."""
        self._switch()
        self._collect(wait=True)
        lap, self.seconds = self.seconds, {}
        for name, seconds in lap.items():
            self.total[name] = self.total.get(name, 0.0) + seconds
        return lap


_timer: ContextVar[PhaseTimer | None] = ContextVar("timer", default=None)


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Name the phase of the block, one of `PHASES`, for the timer of this thread if it has one."""
    timer = _timer.get()
    with timer.phase(name) if timer else nullcontext():
        yield


def timed(values: Iterator[T], name: str = "data") -> Iterator[T]:
    """The same values, with the wait for each of them counted as a phase."""
    while True:
        try:
            with phase(name):
                value = next(values)
        except StopIteration:
            return
        yield value


def time_table(seconds: dict[str, float]) -> str:
    """A line for each phase: its seconds and its share of the total."""
    total = max(sum(seconds.values()), 1e-9)
    names = [name for name in (*PHASES, "other") if seconds.get(name)]
    rows = [f"{name:<14}{seconds[name]:>10.2f} s{seconds[name] / total:>8.1%}" for name in names]
    return "\n".join([*rows, f"{'all':<14}{total:>10.2f} s{1:>8.1%}"])


SKIPPED, STEPS = 2, 3
TRACE, TABLE = "trace.json", "operators.txt"
# Prefixes of the names of torch's collectives: on the host, in gloo's threads, kernels of NCCL.
COLLECTIVES = ("c10d::", "gloo:", "nccl")


class Profiler:
    """Records a few steps after the first ones, in which memory is allocated and kernels are selected."""

    def __init__(self, folder: Path, device: str) -> None:
        self.folder, self.device = folder, device
        self._step = 0
        self._running: profile | None = None

    def step(self) -> None:
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
        """Write the trace and the table of operators; nothing if the training ended before the first recorded step."""
        running, self._running = self._running, None
        if running is None:
            return
        running.stop()
        with publish(self.folder / TRACE) as draft:
            running.export_chrome_trace(str(draft))
        with publish(self.folder / TABLE) as draft:
            intervals = kernel_intervals(running.events())  # type: ignore[no-untyped-call]
            draft.write_text(operator_table(running.key_averages(), self.device, intervals), encoding="utf-8")


def operator_table(averages: Any, device: str, intervals: list[tuple[float, float]]) -> str:
    """GPU utilisation, time in collectives, which may overlap the backward pass, and the longest operators."""
    key = "self_cuda_time_total" if device == "cuda" else "self_cpu_time_total"
    collectives = [row for row in averages if row.key.startswith(COLLECTIVES)]
    duration = sum(row.cpu_time_total + row.device_time_total for row in collectives)
    lines = [f"collectives: {duration / 1e3:.1f} ms in {STEPS} steps, overlapped with the backward pass or not"]
    if intervals:
        lines.insert(0, f"GPU busy: {busy_share(intervals):.1%} of the time from its first kernel to its last")
    return "\n".join([*lines, str(averages.table(sort_by=key, row_limit=40)), ""])


def kernel_intervals(events: Any) -> list[tuple[float, float]]:
    """Start and end of each kernel on a GPU, in microseconds; `events` come from a profile."""
    return [(e.time_range.start, e.time_range.end) for e in events if e.device_type.name == "CUDA"]


def busy_share(intervals: list[tuple[float, float]]) -> float:
    """The share of the time from the first start to the last end that intervals (start, end) cover."""
    covered, latest = 0.0, -math.inf
    for start, end in sorted(intervals):
        covered += max(end - max(start, latest), 0.0)
        latest = max(latest, end)
    return covered / max(latest - min(intervals)[0], 1e-9)
