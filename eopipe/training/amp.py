"""AMP: automatic mixed precision in bf16 or fp16, and the loss scale of fp16."""

import contextlib
import math
from dataclasses import dataclass

import torch
from torch import Tensor

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
GROWTH_INTERVAL = 2000


def autocast(precision: str, device: torch.device) -> contextlib.AbstractContextManager[object]:
    """Compute in half precision where it is safe; weights and their updates stay in fp32."""
    if precision == "fp32":
        return contextlib.nullcontext()
    return torch.autocast(device.type, DTYPES[precision])


@dataclass
class LossScale:
    """The loss scale of fp16, as GradScaler of torch.amp has it, alike on all workers.

    It keeps small gradients from vanishing (Micikevicius et al. 2018, arXiv:1710.03740): it is halved when a gradient
    overflows, and that step is skipped; it doubles after 2000 steps without an overflow.
    """

    value: float = 2.0**16
    stable_steps: int = 0

    def overflows(self, grad_norm: float) -> bool:
        """Update the scale by the norm of a gradient; whether the step must be skipped and a smaller scale may help."""
        if not math.isfinite(grad_norm):
            self.value, self.stable_steps = self.value / 2, 0
            return self.value >= 1
        self.stable_steps += 1
        if self.stable_steps == GROWTH_INTERVAL:
            self.value, self.stable_steps = self.value * 2, 0
        return False

    def state(self) -> dict[str, Tensor]:
        """Scale and stable steps as tensors."""
        return {"scale": torch.tensor(self.value, dtype=torch.float64), "calm": torch.tensor(self.stable_steps)}

    def load(self, state: dict[str, Tensor]) -> None:
        """Resume from a state."""
        self.value, self.stable_steps = float(state["scale"]), int(state["calm"])
