"""What the first worker tells about a training while it runs, and what it measures for that."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.launch.world import World
from eopipe.publish import publish
from eopipe.telemetry.follow import PICTURES
from eopipe.telemetry.journal import Journal
from eopipe.telemetry.progress import Every, LiveLine, LogLine, Meter, line, memory
from eopipe.telemetry.timing import Clock, Profiler, phase, table
from eopipe.tiles.store import NO_LABEL
from eopipe.training_job import Job

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn.parallel import DistributedDataParallel

    from eopipe.loader.loader import Batch
    from eopipe.training.step import StepResult, TrainStep

log = logging.getLogger("eopipe")


@dataclass
class Watch:
    """The eyes on a training: open from `begin` on, and only those of the first worker."""

    job: Job
    world: World
    instruments: "Instruments | None" = field(default=None, init=False)

    @contextmanager
    def open(self, step: int, steps: int, batch: int, train_step: "TrainStep") -> Iterator[None]:
        """Watch a training from a step of `steps` on, each of `batch` samples over all workers, however it ends."""
        if not self.world.is_first:
            yield
            return
        self.instruments = Instruments(self.job, self.world.device.type, step, steps, batch, train_step)
        done = False
        try:
            yield
            done = True
        finally:
            self.instruments.end(done)
            self.instruments = None

    def step(self, step: int, told: "StepResult", rate: float) -> None:
        """A step was taken: the count of all so far, what it measured, its learning rate."""
        if self.instruments:
            with phase("watching"):
                self.instruments.step(step, told, rate)

    def judged(self, batch: "Batch", found_NHW: "Tensor") -> None:
        """A batch of validation chips was judged; the first of an epoch becomes a picture."""
        if self.instruments:
            with phase("watching"):
                self.instruments.judged(batch, found_NHW)

    def epoch(self, step: int, row: dict[str, Any]) -> None:
        """An epoch has ended: its row in the history."""
        if self.instruments:
            with phase("watching"):
                self.instruments.epoch(step, row)

    def checkpoint(self, step: int) -> None:
        """A checkpoint is about to be written."""
        if self.instruments:
            with phase("watching"):
                self.instruments.checkpoint(step)


class Instruments:
    """Journal, clock, progress, profiler and pictures of a training that stands at a step."""

    def __init__(self, job: Job, device: str, step: int, steps: int, batch: int, train_step: "TrainStep") -> None:
        self.job, self.device, self.steps, self.batch, self.train_step = job, device, steps, batch, train_step
        # Before the journal, so that a follower that sees a new journal sees no pictures of steps that are repeated.
        self.previews = Previews(job.state / PICTURES, job, step)
        self.journal = Journal(job.state, step)
        if step:
            self.journal.add("resume", step)
        self.profiler = Profiler(Path(job.views), device) if job.profile else None
        self.line: LogLine | LiveLine = line(job.tell_every_s)
        # Sooner than the line, so that each line in a log comes with one in the journal.
        self.meter, self.noting = Meter(step), Every(0.9 * job.tell_every_s)
        self.now, self.lapped = step, step
        self.clock = Clock(device)
        self.clock.start()

    def step(self, step: int, told: "StepResult", rate: float) -> None:
        """Note a step; tell how it goes when it is time."""
        self.now, self.previews.is_due = step, True
        self.journal.add("step", step, loss=told.loss, learning_rate=rate, gradient_norm=told.grad_norm)
        if self.profiler:
            self.profiler.step()
        if self.line.every.due():
            self._tell(told.loss)

    def _tell(self, loss: float) -> None:
        waited = self.clock.total.get("data", 0.0) + self.clock.seconds.get("data", 0.0)
        pace = self.meter.pace(self.now, self.steps, loss, self.batch, waited, memory(self.device))
        self.line.tell(pace)
        if self.noting.due():
            rates = {"samples_per_second": pace.samples_s, "data_wait_ratio": pace.data_wait}
            self.journal.add("progress", self.now, memory_bytes=pace.memory, **rates)

    def judged(self, batch: "Batch", found_NHW: "Tensor") -> None:
        """Draw the first validation chips, which are the same in every epoch."""
        self.previews.take(self.now, batch, found_NHW)

    def epoch(self, step: int, row: dict[str, Any]) -> None:
        """Note the scores of an epoch and where its time went."""
        self.journal.add("epoch", step, **row)
        self._lap()
        told = "".join(f" {name}={value:.1%}" for name, value in shares(self.clock.lap()).items())
        log.info("event=time epoch=%d%s", row["epoch"], told)

    def _lap(self) -> None:
        """Tell communication from the backward pass, which DDP overlaps: only what sticks out is a wait."""
        self.clock.move("backward", "communication", exposed(self.train_step.ddp) * (self.now - self.lapped))
        self.lapped = self.now

    def checkpoint(self, step: int) -> None:
        """Have the lines of all steps on the disk before the checkpoint that says they were taken."""
        self.journal.add("checkpoint", step)
        self.journal.sync()

    def end(self, done: bool) -> None:
        """Close everything; say where the time went if the training is done.

        One that is not may be resumed, and a device that failed is asked for nothing more.
        """
        self.clock.stop()
        self.line.close()
        if done:
            self.journal.add("end", self.now)
        self.journal.close()
        if self.profiler:
            self.profiler.close()
        if not done:
            return
        self._lap()
        self.clock.lap()
        # `eopipe usage` reads this line.
        log.info("event=device name=%s memory_mb=%.0f", self.device, memory(self.device) / 2**20)
        log.info("where the time of the first worker went:\n%s", table(self.clock.total))


class Previews:
    """Pictures of the first validation chips of each epoch, for the trackers that show them."""

    def __init__(self, folder: Path, job: Job, step: int) -> None:
        self.folder, self.job = folder, job
        self.is_due, self.is_on = True, bool({"tensorboard", "mlflow"} & set(job.track))
        for path in folder.glob("step-*.png"):
            if int(path.stem[5:]) > step:
                path.unlink()

    def take(self, step: int, batch: "Batch", found_NHW: "Tensor") -> None:
        """Draw the first batch of a validation; a picture that fails ends no training."""
        if not self.is_due or not self.is_on:
            return
        from eopipe.telemetry.previews import png

        self.is_due = False
        images, truth, found = (v.cpu().numpy() for v in (batch.images_NCHW.float(), batch.labels_NHW, found_NHW))
        try:
            with publish(self.folder / f"step-{step:09d}.png") as draft:
                draft.write_bytes(png(images, truth, found, self.job.bands, NO_LABEL))
        except Exception as error:  # noqa: BLE001 - whatever it is, the training is worth more
            self.is_on = False
            log.warning("event=previews-off reason=%r", f"{type(error).__name__}: {error}")


def shares(seconds: dict[str, float]) -> dict[str, float]:
    """Seconds a phase as shares of all, largest first."""
    whole = max(sum(seconds.values()), 1e-9)
    return {k: v / whole for k, v in sorted(seconds.items(), key=lambda pair: -pair[1]) if v > 0}


def exposed(module: "DistributedDataParallel | None") -> float:
    """Seconds of a backward pass in which DDP only sums gradients, by its own clock; 0 where there is no DDP.

    DDP measures the first ten steps and then one in a hundred (`DDPLoggingData`, in nanoseconds).
    """
    if module is None:
        return 0.0
    from eopipe.launch.torchrun import ddp_logging_data

    told = ddp_logging_data(module)
    talk, hidden = (float(told.get(f"avg_backward_{key}_time", 0)) for key in ("comm", "compute_comm_overlap"))
    return max(talk - hidden, 0.0) / 1e9
