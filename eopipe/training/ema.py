"""EMA: the exponential moving average of the weights, often better than the last ones (Polyak and Juditsky 1992)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class EMA:
    """The exponential moving average of a model's weights: after each step, average += (1 - decay) (weights - average).

    In the first n steps the decay is at most (1 + n) / (10 + n), so that the random start is soon forgotten.
    Averages have the type and placement of the weights, each worker its own; integers are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.steps = 0
        self.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights of one more step."""
        self.steps += 1
        share = 1 - min(self.decay, (1 + self.steps) / (10 + self.steps))
        for name, value in self.model.state_dict().items():
            average = self.weights[name]
            if average.is_floating_point():
                average.add_((value - average) * share)
            else:
                average.copy_(value)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the average as its weights inside of the block; also an error restores its own."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, value in self.model.state_dict().items():
            weights = value.clone()
            value.copy_(self.weights[name])
            self.weights[name].copy_(weights)

    def load(self, weights: Mapping[str, Tensor], steps: int) -> None:
        """Resume from the averages of a checkpoint after this many steps; raises KeyError where one is missing."""
        self.steps = steps
        for name, average in self.weights.items():
            average.copy_(weights[name])
