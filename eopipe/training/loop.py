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
from eopipe.checkpoints.manager import Keeper
from eopipe.errors import DivergedError, PreemptedError
from eopipe.launch.world import StopRequest, World, WorldChangedError
from eopipe.loader.loader import Batch, Feed
from eopipe.loader.order import steps_per_epoch
from eopipe.loader.prefetch import Wanted
from eopipe.telemetry.timing import phase, waiting
from eopipe.training.losses import loss_of
from eopipe.training.memory_fit import Fit
from eopipe.training.monitor import Watch
from eopipe.training.partition import cut, deal
from eopipe.training.schedule import learning_rate, stopped
from eopipe.training.step import Engine, Told
from eopipe.training.validation import judge_of
from eopipe.training_job import Job

log = logging.getLogger("eopipe")
MOST_TOLD = 8


def suspects(engine: Engine, feed: Feed, batch: Batch) -> str:
    """The chips of a step, over all workers, whose own loss is not finite; all of them where none is alone to blame."""
    marks = torch.zeros(feed.count("train"), device=engine.world.device)
    numbers = batch.wanted.numbers
    bad = [not np.isfinite(loss) for loss in engine.losses(cut(batch, [1] * len(numbers)))]
    marks[torch.from_numpy(numbers).to(marks.device)] = 1 + torch.tensor(bad, dtype=marks.dtype, device=marks.device)
    told = engine.world.sum(marks).cpu().numpy()
    return names(feed, np.flatnonzero(told == (2 if (told == 2).any() else 1)))


def names(feed: Feed, numbers: IntArray) -> str:
    """Scene, row and column of training samples; a few, and how many more."""
    rows = feed.samples["train"][numbers[:MOST_TOLD]]
    scenes = [feed.scenes(Wanted("train", numbers[at : at + 1]))[0] for at in range(len(rows))]
    told = [f"{s} (row {r}, column {c})" for s, (_, r, c) in zip(scenes, rows.tolist(), strict=True)]
    more = [f"{len(numbers) - MOST_TOLD} more"] if len(numbers) > MOST_TOLD else []
    return ", ".join(told + more)


@dataclass
class Loop:
    """A worker's view of a training: the job, its data and where it stands."""

    job: Job
    world: World
    stop: StopRequest
    feed: Feed = field(init=False)
    engine: Engine = field(init=False)
    now: Progress = field(default_factory=Progress)
    keeper: Keeper = field(init=False)
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.settings = self.job.settings
        self.feed = Feed(self.job, self.world.device)
        self.keeper = Keeper(self.job, self.world)
        self.watch = Watch(self.job, self.world)
        self.batch = min(self.settings.batch, self.feed.count("train"))
        self.per_epoch = steps_per_epoch(self.feed.count("train"), self.batch)
        self.steps = self.settings.epochs * self.per_epoch
        torch.manual_seed(self.settings.seed)
        fit = Fit(self.settings.accumulate, self.job.recompute)
        loss = loss_of(self.settings, self.job.loss_weights, self.job.target)
        self.engine = Engine(self.job.build_model(), self.settings, loss, self.world, fit)

    def run(self) -> None:
        """Train to the end, from the newest checkpoint on; leave the last one for the launcher."""
        if found := self.keeper.restore():
            self.now, state = found
            self.engine.load(state)
        self.now.enter(self.world.size)
        if self.world.is_first:
            log.info("event=world size=%d step=%d", self.world.size, self.now.step)
        batches = waiting(self.feed.stream(self.wanted(self.now.step)))
        started = time.monotonic()
        with self.watch.open(self.now.step, self.steps, self.batch, self.engine):
            while not self.done:
                if not self.unmeasured:
                    self.learn(next(batches))
                if self.unmeasured and not self.stop.agreed:
                    self.end_epoch(batches, time.monotonic() - started)
                    started = time.monotonic()
                self.keep_safe()

    def wanted(self, step: int) -> Iterator[Wanted]:
        """All that this worker will ask for from a step on: its part of each step, and of each validation."""
        if self.unmeasured:
            yield from self.wanted_to_measure()
        for now in range(step, self.steps):
            epoch, turn = divmod(now, self.per_epoch)
            chosen = self.feed.order.step(epoch, turn, self.batch)
            yield Wanted("train", np.concatenate(self.mine(chosen)), epoch)
            if turn + 1 == self.per_epoch:
                yield from self.wanted_to_measure()

    def wanted_to_measure(self) -> list[Wanted]:
        """Validation chips of this worker, each wanted once in the whole world."""
        return [wanted for group in self.groups() for wanted in group]

    def groups(self) -> list[list[Wanted]]:
        """What this worker judges of each global batch of validation chips; a small one may leave it nothing."""
        chosen = np.arange(self.feed.count("val"))
        groups = (chosen[start : start + self.batch] for start in range(0, len(chosen), self.batch))
        return [[Wanted("val", mine) for mine in self.mine(group) if len(mine)] for group in groups]

    def mine(self, chosen: IntArray) -> list[IntArray]:
        """What this worker computes of some samples."""
        return deal(chosen, self.settings, self.world.rank, self.world.size)

    @property
    def unmeasured(self) -> bool:
        """Whether an epoch is over and not yet noted: its validation comes next, also after a resume."""
        return len(self.now.history) < self.now.step // self.per_epoch

    @property
    def done(self) -> bool:
        """Whether all steps are taken and measured, or no better epoch is waited for."""
        over = self.now.step >= self.steps or stopped(self.now.history, self.settings.patience)
        return over and not self.unmeasured

    def learn(self, batch: Batch) -> None:
        """One step over the global batch."""
        asked = torch.tensor(self.stop.local, device=self.world.device)
        rate = learning_rate(self.settings, self.now.step, self.steps)
        told = self.engine.step(batch, self.now.step, rate, asked)
        if not told.finite:
            raise self.diverged(told, batch)
        self.stop.agreed = told.stop
        self.now.losses += told.loss
        self.now.step, self.now.score = self.now.step + 1, None
        self.watch.step(self.now.step, told, rate)

    def diverged(self, told: Told, batch: Batch) -> DivergedError:
        """Never a step, and so never a checkpoint, with weights that are not finite."""
        said = f"the loss is {told.loss}, its gradient {told.steepness}, at step {self.now.step}"
        return DivergedError(f"{said}; lower train.learning_rate, or look at {suspects(self.engine, self.feed, batch)}")

    def end_epoch(self, batches: Iterator[Batch], seconds: float) -> None:
        """Measure on the validation chips and note the epoch; it stays unmeasured when a signal comes in between."""
        with phase("validation"):
            epoch, val = self.now.step // self.per_epoch, self.measure(batches)
        if self.stop.agreed:
            return
        loss, self.now.losses = round(self.now.losses / self.per_epoch, 6), 0.0
        rate = round(learning_rate(self.settings, self.now.step - 1, self.steps), 9)
        self.now.note({"epoch": epoch, "loss": loss, "learning_rate": rate, "val": val})
        self.watch.epoch(self.now.step, self.now.history[-1])
        if self.world.is_first:
            told = "".join(f" val_{name}={value}" for name, value in (val or {}).items())
            log.info(
                "event=epoch epoch=%d of=%d loss=%s%s seconds=%.1f", epoch, self.settings.epochs, loss, told, seconds
            )

    def measure(self, batches: Iterator[Batch]) -> dict[str, Any] | None:
        """Scores over the validation chips, each counted once whatever the world size.

        It ends early, with nothing that counts, as soon as all workers know that one of them was asked to stop.
        """
        if not self.feed.count("val"):
            return None
        judge = judge_of(self.job, self.feed.count("val"), self.world.device)
        with self.engine.judging() as model:
            for group in self.groups():
                if self.asked_to_stop():
                    return None
                for _ in group:
                    batch = next(batches)
                    self.watch.judged(batch, judge.take(model(batch.images_NCHW), batch))
        return judge.told(self.world)

    def asked_to_stop(self) -> bool:
        """Let all workers know whether one of them was asked to stop; a validation may last longer than a grace."""
        wishes = torch.tensor(self.stop.local, device=self.world.device)
        self.stop.agreed = float(self.world.sum(wishes))
        return self.stop.agreed > 0

    def keep_safe(self) -> None:
        """Write a checkpoint when it is due, at the end, and when a signal asks to stop."""
        last, due = self.done, self.now.step % self.job.checkpoint_every == 0
        if last or due or self.stop.agreed or self.now.is_best:
            with phase("checkpoint"):
                self.watch.checkpoint(self.now.step)
                self.keeper.put(self.now, self.engine.state())
        self.keeper.check()
        if last or self.stop.agreed:
            self.keeper.finish()
        if self.stop.agreed and not last:
            stopped = PreemptedError if self.stop.ends_training else WorldChangedError
            raise stopped(f"stopped at step {self.now.step}, the state is saved; run the same command again")
