"""Number formats of the forward and the backward pass."""

import contextlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

FORMATS = {"bf16": torch.bfloat16, "fp16": torch.float16}
GROW_AFTER = 2000


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Compute in half the bits where it is safe; weights and their updates stay in fp32."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, FORMATS[precision])


@dataclass
class LossScale:
    """A factor that keeps small gradients of fp16 from vanishing (Micikevicius et al. 2018, arXiv:1710.03740).

    It is halved when a gradient overflows, and that step is left out; it doubles after 2000 calm steps.
    """

    value: float = 2.0**16
    calm: int = 0

    def overflows(self, steepness: float) -> bool:
        """Take note of a gradient's norm; whether the step must be left out and a smaller scale may help."""
        if not math.isfinite(steepness):
            self.value, self.calm = self.value / 2, 0
            return self.value >= 1
        self.calm += 1
        if self.calm == GROW_AFTER:
            self.value, self.calm = self.value * 2, 0
        return False

    def state(self) -> dict[str, Tensor]:
        """Factor and calm steps as numbers."""
        return {"scale": torch.tensor(self.value, dtype=torch.float64), "calm": torch.tensor(self.calm)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a state."""
        self.value, self.calm = float(state["scale"]), int(state["calm"])
