"""What rank 0 records of a training while it runs: journal, progress, timing, traces and previews."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, FloatArray, UInt8Array
from eopipe.launch.world import World
from eopipe.publish import publish
from eopipe.telemetry.follow import PICTURES
from eopipe.telemetry.journal import Journal
from eopipe.telemetry.progress import Interval, ThroughputMeter, peak_memory, progress_display
from eopipe.telemetry.timing import PhaseTimer, Profiler, phase, time_table
from eopipe.tiles.store import NO_LABEL
from eopipe.training_job import Job

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn.parallel import DistributedDataParallel

    from eopipe.loader.loader import Batch
    from eopipe.training.step import StepResult, TrainStep

log = logging.getLogger("eopipe")
# A preview has rows of chips, pixels between them, a grey for pixels without a label, and colours of classes that
# remain distinct with red-green colour blindness (Okabe and Ito 2008).
MAX_ROWS, GAP, NO_LABEL_GREY = 4, 2, 24
COLORS = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#999999")


@dataclass
class TrainingMonitor:
    """Records a training on rank 0 while it is open; on other ranks it does nothing."""

    job: Job
    world: World
    recorder: "Recorder | None" = field(default=None, init=False)

    @contextmanager
    def open(self, step: int, steps: int, batch: int, train_step: "TrainStep") -> Iterator[None]:
        """Record from a step of `steps` on, each of `batch` samples over all ranks, to the end or an error."""
        if not self.world.is_first:
            yield
            return
        self.recorder = Recorder(self.job, self.world.device.type, step, steps, batch, train_step)
        is_done = False
        try:
            yield
            is_done = True
        finally:
            self.recorder.end(is_done)
            self.recorder = None

    def step(self, step: int, result: "StepResult", rate: float) -> None:
        """Record a step: the number of steps so far, its results and its learning rate."""
        if self.recorder:
            with phase("watching"):
                self.recorder.step(step, result, rate)

    def validation_batch(self, batch: "Batch", predictions_NHW: "Tensor") -> None:
        """Take a batch of validation chips, of which the first becomes a preview."""
        if self.recorder:
            with phase("watching"):
                self.recorder.previews.take(self.recorder.current, batch, predictions_NHW)

    def validation(self, step: int, row: dict[str, Any]) -> None:
        """Record a validation by its row in the history."""
        if self.recorder:
            with phase("watching"):
                self.recorder.validation(step, row)

    def checkpoint(self, step: int) -> None:
        """Record that a checkpoint is about to be written."""
        if self.recorder:
            with phase("watching"):
                self.recorder.checkpoint(step)


class Recorder:
    """Journal, phase timer, progress display, profiler and previews of a training from a step on."""

    def __init__(self, job: Job, device: str, step: int, steps: int, batch: int, train_step: "TrainStep") -> None:
        self.job, self.device, self.steps, self.batch, self.train_step = job, device, steps, batch, train_step
        # Before the journal, so that a follower that sees a new journal sees no previews of steps that are repeated.
        self.previews = Previews(job.state / PICTURES, job, step)
        self.journal = Journal(job.state, step)
        if step:
            self.journal.add("resume", step)
        self.profiler = Profiler(job.views, device) if job.knobs.profile else None
        self.display = progress_display(job.knobs.tell_every_s)
        # Shorter than the interval of the log, so that each line of the log has one in the journal.
        self.meter, self.journal_interval = ThroughputMeter(step), Interval(0.9 * job.knobs.tell_every_s)
        self.current, self.timed_until = step, step
        self.timer = PhaseTimer(device)
        self.timer.start()

    def step(self, step: int, result: "StepResult", rate: float) -> None:
        """Append a step to the journal, and report progress when it is due."""
        self.current, self.previews.is_due = step, True
        self.journal.add("step", step, loss=result.loss, learning_rate=rate, gradient_norm=result.grad_norm)
        if self.profiler:
            self.profiler.step()
        if self.display.interval.due():
            self._report(result.loss)

    def _report(self, loss: float) -> None:
        data_s = self.timer.total.get("data", 0.0) + self.timer.seconds.get("data", 0.0)
        report = self.meter.report(self.current, self.steps, loss, self.batch, data_s, peak_memory(self.device))
        self.display.show(report)
        if self.journal_interval.due():
            rates = {"samples_per_second": report.samples_s, "data_wait_ratio": report.data_wait}
            self.journal.add("progress", self.current, memory_bytes=report.memory, **rates)

    def validation(self, step: int, row: dict[str, Any]) -> None:
        """Append the scores of a validation to the journal, and log the time of each phase."""
        self.journal.add("validation", **row)
        self._split_backward()
        phases = "".join(f" {name}={share:.1%}" for name, share in time_shares(self.timer.lap()).items())
        log.info("event=time step=%d%s", step, phases)

    def _split_backward(self) -> None:
        """Count the communication that DDP does not overlap with the backward pass as a phase of its own."""
        exposed = exposed_communication_s(self.train_step.ddp) * (self.current - self.timed_until)
        self.timer.reassign("backward", "communication", exposed)
        self.timed_until = self.current

    def checkpoint(self, step: int) -> None:
        """Write the journal to the disk before the checkpoint that contains its steps."""
        self.journal.add("checkpoint", step)
        self.journal.sync()

    def end(self, is_done: bool) -> None:
        """Close everything; log the time of each phase if the training is done.

        One that is not may be resumed, and a device that failed is not asked for anything more.
        """
        self.timer.stop()
        self.display.close()
        if is_done:
            self.journal.add("end", self.current)
        self.journal.close()
        if self.profiler:
            self.profiler.close()
        if not is_done:
            return
        self._split_backward()
        self.timer.lap()
        # `eopipe usage` reads this line.
        log.info("event=device name=%s memory_mb=%.0f", self.device, peak_memory(self.device) / 2**20)
        log.info("where the time of the first worker went:\n%s", time_table(self.timer.total))


class Previews:
    """Pictures of the first chips of each validation, for the trackers that show them."""

    def __init__(self, folder: Path, job: Job, step: int) -> None:
        self.folder, self.job = folder, job
        self.is_due, self.is_on = True, bool({"tensorboard", "mlflow"} & set(job.knobs.track))
        for path in folder.glob("step-*.png"):
            if int(path.stem[5:]) > step:
                path.unlink()

    def take(self, step: int, batch: "Batch", predictions_NHW: "Tensor") -> None:
        """Draw the first batch of a validation; a preview that fails does not end the training."""
        if not self.is_due or not self.is_on:
            return
        self.is_due = False
        images = batch.images_NCHW.float().cpu().numpy()
        labels, predictions = batch.labels_NHW.cpu().numpy(), predictions_NHW.cpu().numpy()
        try:
            with publish(self.folder / f"step-{step:09d}.png") as draft:
                draft.write_bytes(preview_png(images, labels, predictions, self.job.bands, NO_LABEL))
        except Exception as error:  # noqa: BLE001 - no fault of a preview is worth a training
            self.is_on = False
            log.warning("event=previews_off reason=%r", f"{type(error).__name__}: {error}")


def time_shares(seconds: dict[str, float]) -> dict[str, float]:
    """The share of each phase in the total, largest first."""
    total = max(sum(seconds.values()), 1e-9)
    return {k: v / total for k, v in sorted(seconds.items(), key=lambda pair: -pair[1]) if v > 0}


def exposed_communication_s(module: "DistributedDataParallel | None") -> float:
    """Seconds of a backward pass in which DDP only reduces gradients, by its own measurement; 0 without DDP.

    DDP measures the first ten steps and then one in a hundred (`DDPLoggingData`, in nanoseconds).
    """
    if module is None:
        return 0.0
    from eopipe.launch.torchrun import ddp_logging_data

    data = ddp_logging_data(module)
    communication = float(data.get("avg_backward_comm_time", 0))
    overlap = float(data.get("avg_backward_compute_comm_overlap_time", 0))
    return max(communication - overlap, 0.0) / 1e9


def preview_png(
    images_NCHW: FloatArray, labels_NHW: AnyArray, predictions_NHW: AnyArray, bands: tuple[str, ...], no_label: int
) -> bytes:
    """Rows of chip, label and prediction for the first chips of a batch, as PNG; `bands` names the channels.

    Class numbers are drawn in colours; values (float) in greys between the lowest and the highest label of the batch.
    """
    from PIL import Image

    labels, predictions = (
        greys(maps_NHW, float(np.nanmin(labels_NHW)), float(np.nanmax(labels_NHW)))
        if labels_NHW.dtype.kind == "f"
        else class_colors(maps_NHW, no_label)
        for maps_NHW in (labels_NHW, predictions_NHW)
    )
    images = np.stack([true_color(image_CHW, bands) for image_CHW in images_NCHW[:MAX_ROWS]])
    columns = (column[:MAX_ROWS] for column in (images, labels, predictions))
    padded = [np.pad(column, ((0, 0), (GAP, 0), (GAP, 0), (0, 0))) for column in columns]
    file = BytesIO()
    Image.fromarray(np.concatenate(np.concatenate(padded, 2))).save(file, "PNG")
    return file.getvalue()


def true_color(image_CHW: FloatArray, bands: tuple[str, ...]) -> UInt8Array:
    """Red, green and blue, or else the first band in grey, stretched to the 2nd and 98th percentile: (H, W, 3)."""
    names = ("red", "green", "blue")
    channels = [bands.index(name) for name in names] if set(names) <= set(bands) else [0, 0, 0]
    pixels = np.nan_to_num(image_CHW[channels]).transpose(1, 2, 0)
    low, high = np.percentile(pixels, (2, 98))
    stretched: UInt8Array = (np.clip((pixels - low) / max(float(high - low), 1e-9), 0, 1) * 255).astype(np.uint8)
    return stretched


def greys(values: AnyArray, low: float, high: float) -> UInt8Array:
    """A grey from dark to light for each value between two, (..., 3); black where it is not finite."""
    share = np.clip((np.nan_to_num(values, nan=low) - low) / max(high - low, 1e-9), 0, 1)
    grey = np.where(np.isfinite(values), 2 * NO_LABEL_GREY + share * (255 - 2 * NO_LABEL_GREY), 0)
    return np.repeat(grey.astype(np.uint8)[..., None], 3, axis=-1)


def class_colors(classes: AnyArray, no_label: int) -> UInt8Array:
    """A colour for each class, (..., 3); dark where there is no label."""
    palette = np.array([tuple(bytes.fromhex(color[1:])) for color in COLORS], np.uint8)
    colors: UInt8Array = palette[classes % len(COLORS)]
    colors[classes == no_label] = NO_LABEL_GREY
    return colors
