"""A model that is slowed down while a file exists, so that faults hit it during training without load."""

import os
import time
from pathlib import Path
from typing import Any

from torch import Tensor

from eopipe.models.networks import UNet

# Where the file is told; while it is there every step of a training waits, whatever the number of its processes: four
# passes of one, or one of each of four. Its text: seconds that a checkpoint takes.
PACE, PASS_S = "EOPIPE_TEST_PACE", 0.25


class Paced(UNet):
    """A U-Net with a brake."""

    def __init__(self, bands: int, classes: int, width: int, depth: int) -> None:
        super().__init__(bands, classes, width, depth)
        self.register_state_dict_pre_hook(_slow)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        if self.training and Path(os.environ[PACE]).exists():
            time.sleep(PASS_S * int(os.environ.get("WORLD_SIZE", "1")))
        return super().forward(x_NCHW)


def _slow(*_: Any) -> None:
    brake = Path(os.environ[PACE])
    if brake.exists():
        time.sleep(float(brake.read_text() or 0))
