"""A few steps under torch's profiler: a trace for a browser and a table of operators."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.publish import publish

if TYPE_CHECKING:
    from torch.profiler import profile

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
