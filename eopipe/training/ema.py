"""A running average of the weights, which is often better than the last ones (Polyak and Juditsky 1992)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """The exponential moving average of a model's weights: after each step, average += (1 - decay) (weights - average).

    In the first steps the decay is (1 + n) / (10 + n) at most, so that the random start is soon forgotten.
    Averages are of the type and place of the weights, each worker its own; numbers that are no floats are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model, self.decay = model, decay
        self.steps = 0
        self.weights = {name: value.detach().clone() for name, value in model.state_dict().items()}

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights of one more step."""
        self.steps += 1
        share = 1 - min(self.decay, (1 + self.steps) / (10 + self.steps))
        for name, value in self.model.state_dict().items():
            mean = self.weights[name]
            if mean.is_floating_point():
                mean.add_((value - mean) * share)
            else:
                mean.copy_(value)

    @contextmanager
    def swapped(self) -> Iterator[None]:
        """The model has the average as its weights, until the end; also after an error."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, value in self.model.state_dict().items():
            now = value.clone()
            value.copy_(self.weights[name])
            self.weights[name].copy_(now)

    def load(self, weights: Mapping[str, Tensor], steps: int) -> None:
        """Take over the weights of a checkpoint after this many steps; raises KeyError where one is missing."""
        self.steps = steps
        for name, mean in self.weights.items():
            mean.copy_(weights[name])
