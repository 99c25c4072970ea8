"""The training loop of one worker, readable from top to bottom."""

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from eopipe.arrays import IntArray
from eopipe.checkpoints.checkpoint import Progress
from eopipe.checkpoints.manager import CheckpointManager
from eopipe.errors import DivergedError, PreemptedError
from eopipe.launch.world import StopRequest, World, WorldChangedError
from eopipe.loader.loader import Batch, ChipLoader
from eopipe.loader.order import steps_per_epoch
from eopipe.loader.prefetch import BatchRequest
from eopipe.telemetry.timing import phase, timed
from eopipe.training.losses import loss_of
from eopipe.training.monitor import TrainingMonitor
from eopipe.training.parallel import MemoryFit, partition, split_batch
from eopipe.training.schedule import learning_rate, stops_early
from eopipe.training.step import StepResult, TrainStep
from eopipe.training.validation import Validation
from eopipe.training_job import Job

log = logging.getLogger("eopipe")
MAX_CHIPS_NAMED = 8


@dataclass
class TrainingLoop:
    """One worker's part of a training: its job, data, model, checkpoints and progress."""

    job: Job
    world: World
    stop: StopRequest
    loader: ChipLoader = field(init=False)
    step: TrainStep = field(init=False)
    progress: Progress = field(default_factory=Progress)
    checkpoints: CheckpointManager = field(init=False)
    monitor: TrainingMonitor = field(init=False)

    def __post_init__(self) -> None:
        self.settings = self.job.settings
        self.loader = ChipLoader(self.job, self.world.device)
        self.checkpoints = CheckpointManager(self.job, self.world)
        self.monitor = TrainingMonitor(self.job, self.world)
        self.batch = min(self.settings.batch, self.loader.count("train"))
        self.per_epoch = steps_per_epoch(self.loader.count("train"), self.batch)
        self.steps = self.job.length.steps
        # The last step of this run, which may pause before the last step of the training.
        self.end = self.job.pause or self.steps
        torch.manual_seed(self.settings.seed)
        fit = MemoryFit(self.settings.accumulate, self.job.knobs.recompute)
        loss = loss_of(self.settings, self.job.loss_weights, self.job.target)
        self.step = TrainStep(self.job.build_model(), self.settings, loss, self.world, fit, self.job.new_head)

    def run(self) -> None:
        """Train to the end or the pause, from the newest checkpoint on; leave the last one for the launcher."""
        if restored := self.checkpoints.restore():
            self.progress, state = restored
            self.step.load(state)
        self.progress.record_world(self.world.size)
        if self.world.is_first:
            log.info("event=world size=%d step=%d", self.world.size, self.progress.step)
            log.info("event=length %s", self.job.length)
            if self.job.new_head:
                log.info("event=new_head tensors=%r", ", ".join(self.job.new_head))
            if warning := self.job.length.warning:
                log.warning("event=short_training advice=%r", warning)
        batches = timed(self.loader.stream(self.requests(self.progress.step)))
        started = time.monotonic()
        with self.monitor.open(self.progress.step, self.end, self.batch, self.step):
            while not self.is_done:
                if not self.validation_due:
                    self.train_step(next(batches))
                if self.validation_due and not self.stop.agreed:
                    self.end_interval(batches, time.monotonic() - started)
                    started = time.monotonic()
                self.maybe_checkpoint()

    def requests(self, step: int) -> Iterator[BatchRequest]:
        """All that this worker reads from a step on: its samples of each step, and of each validation."""
        if self.validation_due:
            yield from self.validation_requests()
        for current in range(step, self.end):
            epoch, step_of_epoch = divmod(current, self.per_epoch)
            samples = self.loader.order.step(epoch, step_of_epoch, self.batch)
            yield BatchRequest("train", np.concatenate(self.local_parts(samples)), epoch)
            if self.job.length.is_validated(current + 1):
                yield from self.validation_requests()

    def validation_requests(self) -> list[BatchRequest]:
        """Validation chips of this worker, each read once in the whole world."""
        return [request for group in self.validation_groups() for request in group]

    def validation_groups(self) -> list[list[BatchRequest]]:
        """The part of this worker in each global batch of validation chips; of a small batch it may have none."""
        samples = np.arange(self.loader.count("val"))
        groups = (samples[start : start + self.batch] for start in range(0, len(samples), self.batch))
        return [[BatchRequest("val", part) for part in self.local_parts(group) if len(part)] for group in groups]

    def local_parts(self, samples: IntArray) -> list[IntArray]:
        """The partition of some samples that this worker computes."""
        return partition(samples, self.settings, self.world.rank, self.world.size)

    @property
    def validation_due(self) -> bool:
        """Whether these weights are to be validated and are not yet: that comes next, also after a resume."""
        step, history = self.progress.step, self.progress.history
        return self.job.length.is_validated(step) and (not history or history[-1]["step"] < step)

    @property
    def is_done(self) -> bool:
        """Whether all steps up to the end or the pause are taken and validated, or early stopping applies."""
        ends = self.progress.step >= self.end or stops_early(self.progress.history, self.settings.patience)
        return ends and not self.validation_due

    def train_step(self, batch: Batch) -> None:
        """One step over the global batch."""
        stop = torch.tensor(self.stop.local, device=self.world.device)
        rate = learning_rate(self.settings, self.progress.step, self.steps)
        result = self.step(batch, self.progress.step, rate, stop)
        if not result.is_finite:
            raise self.diverged(result, batch)
        self.stop.agreed = result.stop
        self.progress.losses += result.loss
        self.progress.step, self.progress.score = self.progress.step + 1, None
        self.monitor.step(self.progress.step, result, rate)

    def diverged(self, result: StepResult, batch: Batch) -> DivergedError:
        """The error for a loss or gradient that is not finite, with the chips that caused it."""
        chips = name_chips(self.loader, self.chips_not_finite(batch))
        return DivergedError(
            f"the loss is {result.loss} and its gradient norm {result.grad_norm} at step {self.progress.step}; "
            f"lower train.learning_rate, or check the chips {chips}"
        )

    def chips_not_finite(self, batch: Batch) -> IntArray:
        """The samples of a step, over all workers, whose own loss is not finite; all of them where none is alone."""
        marks = torch.zeros(self.loader.count("train"), device=self.world.device)
        numbers = batch.request.numbers
        losses = self.step.losses(split_batch(batch, [1] * len(numbers)))
        is_bad = torch.tensor(~np.isfinite(losses), dtype=marks.dtype, device=marks.device)
        marks[torch.from_numpy(numbers).to(marks.device)] = 1 + is_bad
        total = self.world.sum(marks).cpu().numpy()
        return np.flatnonzero(total == (2 if (total == 2).any() else 1))

    def end_interval(self, batches: Iterator[Batch], seconds: float) -> None:
        """Validate and record the steps since the last validation; it stays due when a signal comes in between."""
        with phase("validation"):
            val = self.validate(batches)
        if self.stop.agreed:
            return
        step, history = self.progress.step, self.progress.history
        count = step - (history[-1]["step"] if history else 0)
        loss, self.progress.losses = round(self.progress.losses / count, 6), 0.0
        rate = round(learning_rate(self.settings, step - 1, self.steps), 9)
        self.progress.add_validation({"step": step, "loss": loss, "learning_rate": rate, "val": val})
        self.monitor.validation(step, history[-1])
        if self.world.is_first:
            scores = "".join(f" val_{name}={value}" for name, value in (val or {}).items())
            message = "event=validation step=%d of=%d loss=%s%s seconds=%.1f"
            log.info(message, step, self.steps, loss, scores, seconds)
            if step == self.steps and (names := (val or {}).get("never_predicted")):
                log.warning("event=class_never_predicted classes=%r", ", ".join(names))

    def validate(self, batches: Iterator[Batch]) -> dict[str, Any] | None:
        """Scores over the validation chips, each counted once whatever the world size.

        It ends early, with nothing that counts, as soon as all workers know that one of them was asked to stop.
        """
        count = self.loader.count("val")
        if not count:
            return None
        validation = Validation(self.job, count)
        with self.step.evaluation() as model:
            for group in self.validation_groups():
                if self.agree_to_stop():
                    return None
                for _ in group:
                    batch = next(batches)
                    self.monitor.validation_batch(batch, validation.update(model(batch.images_NCHW), batch))
        return validation.compute(self.world)

    def agree_to_stop(self) -> bool:
        """Whether any worker was asked to stop; a validation may last longer than the grace period of a signal."""
        requests = torch.tensor(self.stop.local, device=self.world.device)
        self.stop.agreed = float(self.world.sum(requests))
        return self.stop.agreed > 0

    def maybe_checkpoint(self) -> None:
        """Write a checkpoint when it is due, at the end, and when a signal asks to stop."""
        is_last, is_due = self.is_done, self.progress.step % self.job.knobs.checkpoint_every == 0
        if is_last or is_due or self.stop.agreed or self.progress.is_best:
            with phase("checkpoint"):
                self.monitor.checkpoint(self.progress.step)
                self.checkpoints.save(self.progress, self.step.state())
        self.checkpoints.raise_failure()
        if is_last or self.stop.agreed:
            self.checkpoints.wait()
        if self.stop.agreed and not is_last:
            stopped = PreemptedError if self.stop.ends_training else WorldChangedError
            raise stopped(f"stopped at step {self.progress.step}, the state is saved; run the same command again")


def name_chips(loader: ChipLoader, numbers: IntArray) -> str:
    """Scene, row and column of training samples; a few, and how many more."""
    rows = loader.samples["train"][numbers[:MAX_CHIPS_NAMED]].tolist()
    scenes = [loader.scenes(BatchRequest("train", numbers[index : index + 1]))[0] for index in range(len(rows))]
    names = [f"{scene} (row {row}, column {col})" for scene, (_, row, col) in zip(scenes, rows, strict=True)]
    more = [f"{len(numbers) - MAX_CHIPS_NAMED} more"] if len(numbers) > MAX_CHIPS_NAMED else []
    return ", ".join(names + more)
