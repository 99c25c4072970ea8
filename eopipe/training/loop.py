"""The training loop of one worker, readable from top to bottom."""

import logging
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.optim import AdamW

from eopipe.errors import DivergedError, PreemptedError
from eopipe.samples.chips import Reader, sample
from eopipe.samples.splits import read_split
from eopipe.store import NO_LABEL
from eopipe.training import checkpoint
from eopipe.training.checkpoint import Progress
from eopipe.training.job import Job, Settings
from eopipe.training.metrics import confusion, scores
from eopipe.training.order import step_samples, steps_per_epoch, way
from eopipe.training.signals import Stop
from eopipe.training.world import World

log = logging.getLogger("eopipe")


@dataclass
class Loop:
    """A worker's view of a training: the job, its data and where it stands."""

    job: Job
    world: World
    stop: Stop
    reader: Reader = field(init=False)
    now: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        self.settings = self.job.settings
        self.reader = self.job.reader()
        self.samples = read_split(Path(self.job.chips))["samples"]
        self.batch = min(self.settings.batch, len(self.samples["train"]))
        self.per_epoch = steps_per_epoch(len(self.samples["train"]), self.batch)
        self.steps = self.settings.epochs * self.per_epoch
        torch.manual_seed(self.settings.seed)
        self.model = self.job.architecture.build().to(self.world.device)
        self.optimiser = AdamW(
            self.model.parameters(), self.settings.learning_rate, weight_decay=self.settings.weight_decay
        )

    def run(self) -> None:
        """Train to the end, from the newest checkpoint on; leave the last one for the launcher."""
        folder = Path(self.job.state)
        self.now = checkpoint.restore(folder, self.model, self.optimiser)
        # Every worker reads the newest checkpoint before the first one may write or drop one.
        self.world.sum(torch.zeros(1, device=self.world.device))
        if self.now.step and self.world.first:
            log.info("event=resume step=%d", self.now.step)
        shared = DistributedDataParallel(self.model)
        started = time.monotonic()
        while self.now.step < self.steps:
            self.now.losses += self.learn(shared)
            self.now.step += 1
            if self.now.step % self.per_epoch == 0:
                self.end_epoch(time.monotonic() - started)
                started = time.monotonic()
            self.keep_safe()

    def learn(self, shared: torch.nn.Module) -> float:
        """One step over the global batch; the loss is the mean over all its labelled pixels."""
        epoch, step = divmod(self.now.step, self.per_epoch)
        chosen = step_samples(self.settings.seed, epoch, step, len(self.samples["train"]), self.batch)
        images, labels = self.load("train", chosen[self.world.rank :: self.world.size], epoch)
        for group in self.optimiser.param_groups:
            group["lr"] = learning_rate(self.settings, self.now.step, self.steps)
        pixels = (labels != NO_LABEL).sum().double()
        self.optimiser.zero_grad()
        with torch.autocast(self.world.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16"):
            loss = total_loss(shared(images), labels)
        told = self.world.sum(torch.stack([pixels, loss.detach().double(), self.stop.flag(pixels)]))
        # DDP averages over workers; scaling by the count of all pixels makes it the global mean.
        (loss * (self.world.size / float(told[0].clamp(min=1)))).backward()  # type: ignore[no-untyped-call]
        self.stop.agreed = bool(told[2] > 0)
        mean = float(told[1] / told[0].clamp(min=1))
        steepness = float(torch.nn.utils.clip_grad_norm_(self.model.parameters(), math.inf))
        if not (math.isfinite(mean) and math.isfinite(steepness)):
            # Never a step, and so never a checkpoint, with weights that are not finite.
            scenes = sorted({self.reader.pairs[s][0].scene for s in self.samples["train"][chosen][:, 0]})
            told_as = f"the loss is {mean}, its gradient {steepness}, at step {self.now.step}"
            raise DivergedError(f"{told_as}; lower train.learning_rate, or look at {', '.join(scenes)}")
        self.optimiser.step()
        return mean

    def load(self, name: str, numbers: np.ndarray[Any, Any], epoch: int | None) -> tuple[Tensor, Tensor]:
        """Images (N, bands, chip, chip) and labels (N, chip, chip); turned at random in an epoch of training."""
        turned = epoch is not None and self.settings.augment == "symmetries"
        ways = [way(self.settings.seed, epoch or 0, int(n)) if turned else 0 for n in numbers]
        where = self.samples[name][numbers]
        pairs = [sample(self.reader, self.job.normaliser, w, t) for w, t in zip(where, ways, strict=True)]
        edge = self.job.chip
        images = np.array([image for image, _ in pairs], np.float32).reshape(-1, len(self.job.bands), edge, edge)
        labels = np.array([label for _, label in pairs], np.int64).reshape(-1, edge, edge)
        return torch.from_numpy(images).to(self.world.device), torch.from_numpy(labels).to(self.world.device)

    def end_epoch(self, seconds: float) -> None:
        """Measure on the validation chips and note the epoch."""
        loss, self.now.losses = round(self.now.losses / self.per_epoch, 6), 0.0
        rate = round(learning_rate(self.settings, self.now.step - 1, self.steps), 9)
        epoch, val = self.now.step // self.per_epoch, self.measure()
        self.now.history.append({"epoch": epoch, "loss": loss, "learning_rate": rate, "val": val})
        if self.world.first:
            told = "".join(f" val_{name}={value}" for name, value in (val or {}).items())
            log.info(
                "event=epoch epoch=%d of=%d loss=%s%s seconds=%.1f", epoch, self.settings.epochs, loss, told, seconds
            )

    @torch.no_grad()
    def measure(self) -> dict[str, Any] | None:
        """Accuracy and mean IoU over the validation chips, each counted once whatever the world size."""
        if not len(self.samples["val"]):
            return None
        self.model.eval()
        classes = self.job.architecture.classes
        counts = np.zeros((classes, classes), np.int64)
        mine = np.arange(len(self.samples["val"]))[self.world.rank :: self.world.size]
        for start in range(0, len(mine), self.batch):
            images, labels = self.load("val", mine[start : start + self.batch], None)
            found, there = self.model(images).argmax(1), labels != NO_LABEL
            counts += confusion(labels[there].cpu().numpy(), found[there].cpu().numpy(), classes)
        self.model.train()
        total = self.world.sum(torch.from_numpy(counts).to(self.world.device)).cpu().numpy()
        told = scores(total, tuple(map(str, range(classes))))
        return {"accuracy": told["accuracy"], "miou": told["miou"]}

    def keep_safe(self) -> None:
        """Write a checkpoint when it is due, at the end, and when a signal asks to stop."""
        last, due = self.now.step == self.steps, self.now.step % self.job.checkpoint_every == 0
        if (last or due or self.stop.agreed) and self.world.first:
            checkpoint.save(Path(self.job.state), self.now, self.model, self.optimiser, self.job.keep)
        if self.stop.agreed and not last:
            raise PreemptedError(f"stopped at step {self.now.step}, the state is saved; run the same command again")


def total_loss(logits_NCHW: Tensor, labels_NHW: Tensor) -> Tensor:
    """Cross-entropy summed over the labelled pixels; pixel by pixel, since the 2-d kernel of CUDA is not exact."""
    flat = logits_NCHW.permute(0, 2, 3, 1).flatten(0, 2)
    return functional.cross_entropy(flat.float(), labels_NHW.flatten(), ignore_index=NO_LABEL, reduction="sum")


def learning_rate(settings: Settings, step: int, steps: int) -> float:
    """Linear warm-up, then half a cosine to zero (Loshchilov and Hutter 2017, arXiv:1608.03983)."""
    warm = max(1, round(settings.warmup * steps))
    if step < warm:
        return settings.learning_rate * (step + 1) / warm
    return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
