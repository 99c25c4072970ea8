"""An ensemble: several models that were trained on the same data with other seeds, or as other models, as one module.

Its prediction is the mean of the predictions of its members (deep ensembles, Lakshminarayanan et al. 2017, Advances in
Neural Information Processing Systems 30, arXiv:1612.01474). It gives logits as any other model, so what reads models
needs to know nothing of it.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from eopipe.tasks import TASKS


class Ensemble(nn.Module):
    """Images (N, bands, H, W) to the logits of the mean probabilities of the members, or to the mean of their values.

    Logits have the shape (N, classes, H, W), for a chip classifier (N, classes, 1, 1). Their softmax, or sigmoid for
    several labels for each chip, is the mean of the members' softmax or sigmoid. They are in single precision.
    """

    def __init__(self, members: Iterable[nn.Module], task: str) -> None:
        super().__init__()
        self.members, self.task = nn.ModuleList(members), TASKS[task]

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W) or (N, classes, 1, 1), or values (N, 1, H, W) of a regression."""
        return self.task.mean_output(self.member_outputs(x_NCHW))

    def member_outputs(self, x_NCHW: Tensor) -> Tensor:
        """The outputs (member, N, channel, H, W) of the members, of chips (member, N, channel, 1, 1)."""
        # The logits of a chip are a mean over its pixels, before they become probabilities.
        return torch.stack([self.task.pooled(member(x_NCHW).float()) for member in self.members])


def ensemble_weights(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The weights of each member under the names that they have in an `Ensemble`."""
    return {f"members.{n}.{name}": tensor for n, member in enumerate(weights) for name, tensor in member.items()}
