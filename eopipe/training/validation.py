"""Validation: scores over the validation chips, each counted once whatever the number of workers.

As in torchmetrics, `update` adds a batch and `compute` gives the scores over all workers.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from eopipe.arrays import AnyArray
from eopipe.errors import DivergedError
from eopipe.launch.world import World
from eopipe.tasks import TASKS
from eopipe.tasks.multilabel import LabelTables, label_tables
from eopipe.tasks.regression import ValueTables
from eopipe.tasks.segmentation import ClassTables, confusion_matrix
from eopipe.tasks.task import chip_logits, pixel_outputs
from eopipe.tiles.store import NO_LABEL
from eopipe.training.losses import label_sets_of_batch, majority
from eopipe.training_job import Job

if TYPE_CHECKING:
    from eopipe.loader.loader import Batch


class ClassValidation:
    """Confusion matrix of pixels; with `whole`, of chips."""

    def __init__(self, job: Job, *, whole: bool) -> None:
        self.classes, self.whole, self.names = job.architecture.classes, whole, job.pairs[0][1].names
        self.counts = np.zeros((self.classes, self.classes), np.int64)
        self.not_finite = 0

    def update(self, outputs_NCHW: Tensor, batch: "Batch") -> Tensor:
        """Count where there is a label; gives the predicted classes (N, H, W)."""
        labels = batch.labels_NHW
        truth = majority(labels, self.classes) if self.whole else labels
        logits = chip_logits(outputs_NCHW) if self.whole else pixel_outputs(outputs_NCHW, labels)
        predicted, labelled = logits.argmax(1), truth != NO_LABEL
        # The largest of logits that are NaN would be the first class.
        self.not_finite += int((labelled & ~torch.isfinite(logits).all(1)).sum())
        self.counts += confusion_matrix(truth[labelled].cpu().numpy(), predicted[labelled].cpu().numpy(), self.classes)
        return predicted.expand_as(labels)

    def compute(self, world: World) -> dict[str, Any]:
        """Accuracy and mean IoU of pixels, or accuracy and macro F1 of chips, and classes that are never predicted.

        All workers must call this together.
        """
        check_outputs(int(world.sum(torch.tensor(self.not_finite, device=world.device))))
        total = world.sum(torch.from_numpy(self.counts).to(world.device)).cpu().numpy()
        return class_scores(ClassTables(self.names), total.ravel(), whole=self.whole)


class LabelSetValidation:
    """Sums of `label_tables` over the chips."""

    def __init__(self, job: Job) -> None:
        self.classes, self.min_share = job.architecture.classes, job.settings.min_share
        self.tables = LabelTables(job.pairs[0][1].names)
        self.total = np.zeros(self.tables.width, np.int64)
        self.not_finite = 0

    def update(self, outputs_NCHW: Tensor, batch: "Batch") -> Tensor:
        """Count chips with a label; gives the class of the highest probability of each (N, H, W)."""
        labels = batch.labels_NHW
        truth, logits = label_sets_of_batch(labels, self.classes, self.min_share), chip_logits(outputs_NCHW)[..., 0, 0]
        labelled = truth[:, 0] != NO_LABEL
        self.not_finite += int((labelled & ~torch.isfinite(logits).all(1)).sum())
        pair = (truth[labelled] == 1, logits[labelled] >= 0)
        self.total += label_tables(*(part.cpu().numpy() for part in pair)).sum(0)
        return logits.argmax(1)[:, None, None].expand_as(labels)

    def compute(self, world: World) -> dict[str, Any]:
        """Micro and macro F1 and the share of correct sets. All workers must call this together."""
        check_outputs(int(world.sum(torch.tensor(self.not_finite, device=world.device))))
        total = world.sum(torch.from_numpy(self.total).to(world.device)).cpu().numpy()
        values = self.tables.document(total)
        return {name: values[name] for name in ("f1_micro", "f1_macro", "subset_accuracy")}


class ValueValidation:
    """Sums of errors chip by chip: each chip's are whole on one worker, so no sum depends on the partition."""

    def __init__(self, job: Job, chips: int, device: torch.device) -> None:
        self.mean, self.std = job.target
        self.sums = torch.zeros(chips, 6, dtype=torch.float64, device=device)

    def update(self, outputs_NCHW: Tensor, batch: "Batch") -> Tensor:
        """Sum errors where there is a label; gives the predicted values (N, H, W) in the unit of the labels."""
        predicted = pixel_outputs(outputs_NCHW, batch.labels_NHW)[:, 0].double() * self.std + self.mean
        labelled = torch.isfinite(batch.labels_NHW)
        error = torch.where(labelled, predicted - batch.labels_NHW, 0.0)
        # Less the mean of the labels, or their variance would be the difference of two large numbers.
        truth = torch.where(labelled, batch.labels_NHW.double() - self.mean, 0.0)
        parts = torch.stack([labelled.double(), error, error.abs(), error**2, truth, truth**2], 1).sum((2, 3))
        self.sums[torch.from_numpy(batch.request.numbers).to(parts.device)] = parts
        return predicted.float()

    def compute(self, world: World) -> dict[str, Any]:
        """RMSE, MAE and bias in the unit of the labels, and R². All workers must call this together."""
        sums = world.sum(self.sums).cpu().numpy()
        check_outputs(int((~np.isfinite(sums).all(1)).sum()))
        return ValueTables().document(sums.sum(0))


def class_scores(tables: ClassTables, total: AnyArray, *, whole: bool = False) -> dict[str, Any]:
    """Accuracy and mean IoU, or macro F1 of chips, and of the classes that labels have those never predicted."""
    values, (_, truth, predicted) = tables.document(total), tables.parts(total[None])
    absent = [tables.classes[number] for number in np.flatnonzero((truth[0] > 0) & (predicted[0] == 0))]
    never = {"never_predicted": absent} if absent else {}
    return {name: values[name] for name in ("accuracy", "f1_macro" if whole else "miou")} | never


def check_outputs(count: int) -> None:
    """Raise DivergedError where outputs of the model are not finite, for a number of validation pixels or chips."""
    if count:
        raise DivergedError(
            f"the model's output is NaN or infinite for {count} labelled validation samples; lower "
            "train.learning_rate, or check the code of the model"
        )


def validation_of(job: Job, chips: int, device: torch.device) -> ClassValidation | LabelSetValidation | ValueValidation:
    """The validation for a job's task, over a number of validation chips."""
    task = TASKS[job.settings.task]
    if not task.has_classes:
        return ValueValidation(job, chips, device)
    return LabelSetValidation(job) if task.has_label_sets else ClassValidation(job, whole=task.is_of_chips)
