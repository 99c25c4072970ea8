"""Validation: scores over the validation chips, each counted once whatever the number of workers.

As in torchmetrics, `update` adds a batch and `compute` gives the scores over all workers.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from eopipe.chips.chips import has_value
from eopipe.errors import DivergedError
from eopipe.launch.world import World
from eopipe.tasks import TASKS
from eopipe.tasks.tables import Compared
from eopipe.training_job import Job

if TYPE_CHECKING:
    from eopipe.loader.loader import Batch


class Validation:
    """The table of the labelled samples of a number of validation chips, by the task of the job.

    Sums that are not of whole numbers depend on their order, so each chip, which is whole on one worker, has a table.
    """

    def __init__(self, job: Job, chips: int) -> None:
        self.task, self.min_share, self.target = TASKS[job.settings.task], job.settings.min_share, job.target
        self.classes, self.tables = job.architecture.classes, self.task.tables(job.pairs[0][1].names)
        is_exact = np.issubdtype(self.tables.dtype, np.integer)
        self.sums = np.zeros((1 if is_exact else chips, self.tables.width), self.tables.dtype)
        self.not_finite = 0

    def update(self, outputs_NCHW: Tensor, batch: "Batch") -> Tensor:
        """Count the labelled samples of a batch; gives its predicted classes or values (N, H, W)."""
        labels = batch.labels_NHW
        outputs = self.task.sample_outputs(outputs_NCHW, labels)
        decided = self.task.decided(outputs, self.target)
        truth = self.task.sample_labels(labels, self.classes, self.min_share).cpu().numpy()
        # The largest of logits that are NaN would be the first class.
        is_finite = torch.isfinite(outputs)
        is_finite = is_finite.all(1) if is_finite.ndim > truth.ndim else is_finite
        is_labelled, predicted = has_value(truth), decided.cpu().numpy()
        self.not_finite += int(np.count_nonzero(is_labelled & ~is_finite.cpu().numpy()))
        offset = self.target[0] if self.target else 0.0
        for row, number in enumerate(batch.request.numbers):
            labelled = is_labelled[row]
            table = self.tables.of(Compared(truth[row][labelled], predicted[row][labelled], offset))
            self.sums[number if len(self.sums) > 1 else 0] += table
        return self.task.picture(outputs, decided).expand_as(labels)

    def compute(self, world: World) -> dict[str, Any]:
        """The scores that a history has, by all workers together. Raises DivergedError for NaN or infinite outputs."""
        if count := int(world.sum(torch.tensor(self.not_finite, device=world.device))):
            raise DivergedError(
                f"the model's output is NaN or infinite for {count} labelled validation samples; lower "
                "train.learning_rate, or check the code of the model"
            )
        total = world.sum(torch.from_numpy(self.sums).to(world.device)).cpu().numpy().sum(0)
        return self.task.validation_scores(self.tables, total)
