"""How good a model is on the validation chips, each counted once whatever the number of workers."""

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
from torch import Tensor

from eopipe.launch.world import World
from eopipe.models.tasks import chip_logits, pixel_outputs
from eopipe.tiles.store import NO_LABEL
from eopipe.training.losses import majority
from eopipe.training.metrics import confusion, scores, value_scores
from eopipe.training_job import Job

if TYPE_CHECKING:
    from eopipe.loader.loader import Batch


class Judge(Protocol):
    """Takes the outputs for one batch after the other, then tells the scores over all workers."""

    def take(self, outputs_NCHW: Tensor, batch: "Batch") -> Tensor:
        """Count a batch; gives what the model found (N, H, W), in terms of the labels."""

    def told(self, world: World) -> dict[str, Any]:
        """Scores by name; all workers must ask together."""


def judge_of(job: Job, chips: int, device: torch.device) -> Judge:
    """The judge of a job's task, for so many validation chips."""
    task = job.settings.task
    return Values(job, chips, device) if task == "regression" else Classes(job, whole=task == "classification")


class Classes:
    """Confusion of pixels; with `whole` that of chips."""

    def __init__(self, job: Job, *, whole: bool) -> None:
        self.classes, self.whole = job.architecture.classes, whole
        self.counts = np.zeros((self.classes, self.classes), np.int64)

    def take(self, outputs_NCHW: Tensor, batch: "Batch") -> Tensor:
        """Count where there is a label."""
        labels = batch.labels_NHW
        truth = majority(labels, self.classes) if self.whole else labels
        found = (chip_logits(outputs_NCHW) if self.whole else pixel_outputs(outputs_NCHW, labels)).argmax(1)
        there = truth != NO_LABEL
        self.counts += confusion(truth[there].cpu().numpy(), found[there].cpu().numpy(), self.classes)
        return found.expand_as(labels)

    def told(self, world: World) -> dict[str, Any]:
        """Accuracy and mean IoU of pixels; accuracy and macro F1 of chips."""
        total = world.sum(torch.from_numpy(self.counts).to(world.device)).cpu().numpy()
        told = scores(total, tuple(map(str, range(self.classes))))
        return {name: told[name] for name in ("accuracy", "f1_macro" if self.whole else "miou")}


class Values:
    """Sums of errors, chip by chip: each chip's are whole on one worker, so no sum depends on who had which chip."""

    def __init__(self, job: Job, chips: int, device: torch.device) -> None:
        self.mean, self.std = job.target
        self.sums = torch.zeros(chips, 6, dtype=torch.float64, device=device)

    def take(self, outputs_NCHW: Tensor, batch: "Batch") -> Tensor:
        """Count where there is a value."""
        found = pixel_outputs(outputs_NCHW, batch.labels_NHW)[:, 0].double() * self.std + self.mean
        there = torch.isfinite(batch.labels_NHW)
        error = torch.where(there, found - batch.labels_NHW, 0.0)
        # About the mean of the labels, or their variance would be the difference of two large numbers.
        truth = torch.where(there, batch.labels_NHW.double() - self.mean, 0.0)
        parts = torch.stack([there.double(), error, error.abs(), error**2, truth, truth**2], 1).sum((2, 3))
        self.sums[torch.from_numpy(batch.wanted.numbers).to(parts.device)] = parts
        return found.float()

    def told(self, world: World) -> dict[str, Any]:
        """RMSE, MAE and bias in the unit of the labels, and R²."""
        return value_scores(world.sum(self.sums).cpu().numpy().sum(0))
