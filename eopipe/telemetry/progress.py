"""Progress of a training: a progress bar on a terminal, `key=value` lines at intervals in a log."""

import logging
import resource
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from eopipe.text_table import printable

if TYPE_CHECKING:
    from rich.progress import TaskID

log = logging.getLogger("eopipe")
LIVE_S = 0.2


@dataclass(frozen=True)
class ProgressReport:
    """The state of a training: `step` of `steps` with its loss.

    `samples_s` is the throughput over all workers, `data_wait` the share of the time that is spent waiting for data,
    `memory` the peak in bytes, of the GPU or else of the process, and `left` the estimated seconds to the end.
    """

    step: int
    steps: int
    loss: float
    samples_s: float
    data_wait: float
    memory: int
    left: float

    def line(self) -> str:
        return (
            f"event=progress step={self.step} of={self.steps} loss={self.loss:.6g} samples_s={self.samples_s:.1f} "
            f"data_wait={self.data_wait:.1%} memory_mb={self.memory / 1e6:.0f} left={format_duration(self.left)}"
        )


def peak_memory(device: str) -> int:
    """Peak memory in bytes so far, of the GPU or of this process."""
    if device == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated())
    # Linux counts in KiB.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def format_duration(seconds: float) -> str:
    """Seconds as h:mm:ss."""
    minutes, remainder = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{remainder:02d}"


class LineFormatter(logging.Formatter):
    """A log line as `key=value`: the time in UTC and the level, then the message."""

    def __init__(self) -> None:
        super().__init__("time=%(asctime)s level=%(lowercase)s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        record.lowercase = record.levelname.lower()
        return printable(super().format(record))


def log_to_stderr() -> None:
    """Send the log of this process to its standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(handlers=[handler])
    log.setLevel(logging.INFO)


class Interval:
    """Is due at most once per interval in seconds, first after one interval."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self._last = seconds, time.monotonic()

    def due(self) -> bool:
        """Whether the interval has passed; if so, the next one starts."""
        now = time.monotonic()
        if now - self._last < self.seconds:
            return False
        self._last = now
        return True


class ProgressLog:
    """A line in the log at intervals."""

    def __init__(self, every_s: float) -> None:
        self.interval = Interval(every_s)

    def show(self, report: ProgressReport) -> None:
        log.info("%s", report.line())

    def close(self) -> None:
        """Nothing is open."""


class ProgressBar:
    """A progress bar that stays in its line of the terminal; log lines appear above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self.interval, self._task = Interval(LIVE_S), cast("TaskID | None", None)
        columns = (
            TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
            BarColumn(24),
            TextColumn("{task.fields[text]}"),
        )
        # Without a refresh thread, so that a fork of this process is safe.
        self.bar = Progress(
            *columns, console=Console(file=getattr(sys.stderr, "raw", sys.stderr)), auto_refresh=False, transient=True
        )
        log.addFilter(self._above)

    def show(self, report: ProgressReport) -> None:
        if self._task is None:
            self.bar.start()
            self._task = self.bar.add_task("", total=report.steps, text="")
        text = (
            f"loss {report.loss:.4f} · {report.samples_s:.0f} samples/s · data wait {report.data_wait:.1%} · "
            f"{report.memory / 1e9:.2f} GB · {format_duration(report.left)} left"
        )
        self.bar.update(self._task, completed=report.step, text=text, refresh=True)

    def _above(self, record: logging.LogRecord) -> bool:
        """Print a log line above the bar while it is shown, instead of into it."""
        if self._task is None:
            return True
        self.bar.console.print(record.getMessage(), markup=False, highlight=False, soft_wrap=True)
        return False

    def close(self) -> None:
        log.removeFilter(self._above)
        if self._task is not None:
            self.bar.stop()


def progress_display(every_s: float) -> ProgressLog | ProgressBar:
    """The progress bar on a terminal, else lines in the log every `every_s` seconds."""
    return ProgressBar() if sys.stderr.isatty() else ProgressLog(every_s)


class ThroughputMeter:
    """Measures throughput and waiting for data between two reports."""

    def __init__(self, step: int) -> None:
        self._step, self._time, self._data_s, self._steps_s = step, time.perf_counter(), 0.0, 0.0

    def report(self, step: int, steps: int, loss: float, batch: int, data_s: float, memory: int) -> ProgressReport:
        """The report since the last one; `data_s` is the wait for data so far, `batch` the samples of a step."""
        passed = max(time.perf_counter() - self._time, 1e-9)
        speed = (step - self._step) / passed
        # Smoothed, so that the estimated time to the end jumps less.
        self._steps_s = speed if not self._steps_s else 0.7 * self._steps_s + 0.3 * speed
        wait = min(max((data_s - self._data_s) / passed, 0.0), 1.0)
        self._step, self._time, self._data_s = step, time.perf_counter(), data_s
        left = (steps - step) / max(self._steps_s, 1e-9)
        return ProgressReport(step, steps, loss, speed * batch, wait, memory, left)
