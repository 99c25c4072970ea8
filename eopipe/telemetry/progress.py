"""How far a training is: a live line on a terminal, a `key=value` line now and then in a log."""

import logging
import resource
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from rich.progress import TaskID

log = logging.getLogger("eopipe")
LIVE_S = 0.2


@dataclass(frozen=True)
class Pace:
    """What a training does now.

    `step` of `steps` with its loss; `samples_s` over all workers; `data_wait` as a share of the time; `memory`
    in bytes, of the GPU or else of the process at its peak; `left` in seconds.
    """

    step: int
    steps: int
    loss: float
    samples_s: float
    data_wait: float
    memory: int
    left: float

    def line(self) -> str:
        """It as `key=value`."""
        return (
            f"event=progress step={self.step} of={self.steps} loss={self.loss:.6g} samples_s={self.samples_s:.1f} "
            f"data_wait={self.data_wait:.1%} memory_mb={self.memory / 1e6:.0f} left={clock(self.left)}"
        )


def memory(device: str) -> int:
    """The most bytes held so far: of the GPU, or by this process."""
    if device == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated())
    # Linux counts in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def clock(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


class Every:
    """Says yes at most every so many seconds, the first time after that many."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._last = seconds, time.monotonic()

    def due(self) -> bool:
        """Whether it is time again."""
        now = time.monotonic()
        if now - self._last < self.seconds:
            return False
        self._last = now
        return True


class LogLine:
    """A line in the log at most every so many seconds."""

    def __init__(self, every_s: float) -> None:
        self.every = Every(every_s)

    def tell(self, pace: Pace) -> None:
        """Write the line."""
        log.info("%s", pace.line())

    def close(self) -> None:
        """Nothing is open."""


class LiveLine:
    """A bar on the terminal that stays in its line; what is logged meanwhile appears above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self.every, self._task = Every(LIVE_S), cast("TaskID | None", None)
        told = (
            TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(24),
            TextColumn("{task.fields[told]}"),
        )
        # Without a thread of its own, so that a fork of this process is safe.
        self.bar = Progress(*told, console=Console(stderr=True), auto_refresh=False, transient=True)
        log.addFilter(self._above)

    def tell(self, pace: Pace) -> None:
        """Draw the line anew."""
        if self._task is None:
            self.bar.start()
            self._task = self.bar.add_task("", total=pace.steps, told="")
        told = (
            f"loss {pace.loss:.4f} · {pace.samples_s:.0f} samples/s · data wait {pace.data_wait:.1%} · "
            f"{pace.memory / 1e9:.2f} GB · {clock(pace.left)} left"
        )
        self.bar.update(self._task, completed=pace.step, told=told, refresh=True)

    def _above(self, record: logging.LogRecord) -> bool:
        """Print a log line above the bar while it is there, instead of into it."""
        if self._task is None:
            return True
        self.bar.console.print(record.getMessage(), markup=False, highlight=False, soft_wrap=True)
        return False

    def close(self) -> None:
        """Take the bar away."""
        log.removeFilter(self._above)
        if self._task is not None:
            self.bar.stop()


def line(every_s: float) -> LogLine | LiveLine:
    """The live line on a terminal, else lines in the log every so many seconds."""
    return LiveLine() if sys.stderr.isatty() else LogLine(every_s)


class Meter:
    """Measures the pace between two tellings."""

    def __init__(self, step: int) -> None:
        self._step, self._when, self._data, self._speed = step, time.perf_counter(), 0.0, 0.0

    def pace(self, step: int, steps: int, loss: float, batch: int, data_s: float, held: int) -> Pace:
        """The pace since the last call; `data_s` is what was waited for data so far, `batch` the samples of a step."""
        passed = max(time.perf_counter() - self._when, 1e-9)
        speed = (step - self._step) / passed
        # The estimate of what is left jumps less when it remembers.
        self._speed = speed if not self._speed else 0.7 * self._speed + 0.3 * speed
        wait = min(max((data_s - self._data) / passed, 0.0), 1.0)
        self._step, self._when, self._data = step, time.perf_counter(), data_s
        return Pace(step, steps, loss, speed * batch, wait, held, (steps - step) / max(self._speed, 1e-9))
