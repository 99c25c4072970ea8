"""Models that make training hard: random, with statistics of the batch, hungry for memory, or poisoned."""

import os
import time
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from eopipe.models import LINEAR_HEAD
from eopipe.models.networks import UNet

BRIGHT = 4.0
# The file that a slow model makes when it judges, and how long it takes a batch.
JUDGING, JUDGING_S = "EOPIPE_TEST_JUDGING", "EOPIPE_TEST_JUDGING_S"


class Dropping(UNet):
    """A U-Net that forgets at random."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return super().forward(functional.dropout(x_NCHW, 0.3, self.training))


class Batchwise(UNet):
    """A U-Net behind batch normalisation, whose statistics are buffers."""

    def __init__(self, bands: int, classes: int, width: int, depth: int, head: str = LINEAR_HEAD) -> None:
        super().__init__(bands, classes, width, depth, head)
        self.norm = nn.BatchNorm2d(bands)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return super().forward(self.norm(x_NCHW))


class Hungry(UNet):
    """A U-Net that has memory for one chip at a time when it learns."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        if self.training and torch.is_grad_enabled() and len(x_NCHW) > 1:
            raise torch.OutOfMemoryError("no memory for this batch")
        return super().forward(x_NCHW)


class Keeping(UNet):
    """A U-Net that has memory for two chips only where it need not keep what its first block computes."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        if self.training and len(x_NCHW) > 1 and not isinstance(self.down[0].forward, partial):
            raise torch.OutOfMemoryError("no memory for these activations")
        return super().forward(x_NCHW)


class Heavy(UNet):
    """A U-Net whose checkpoints take a while to write."""

    def __init__(self, bands: int, classes: int, width: int, depth: int) -> None:
        super().__init__(bands, classes, width, depth)
        self.register_buffer("ballast", torch.zeros(2_000_000))


class SlowJudge(UNet):
    """A U-Net that takes its time when it judges, and says so."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        if not self.training and JUDGING in os.environ:
            Path(os.environ[JUDGING]).touch()
            time.sleep(float(os.environ[JUDGING_S]))
        return super().forward(x_NCHW)


class Poisoned(UNet):
    """A U-Net whose result is not finite for chips with a very bright pixel (here: 4 standard deviations)."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        bright = (x_NCHW.amax((1, 2, 3), keepdim=True) > BRIGHT).float()
        return super().forward(x_NCHW) / (1 - bright)


class Paused(nn.Module):
    """A small model that rests in each pass for as long as the file that PAUSE names is there."""

    def __init__(self, bands: int, classes: int, width: int, depth: int) -> None:
        super().__init__()
        self.layers = nn.Conv2d(bands, classes, 3, padding=1)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        if Path(os.environ.get("PAUSE", "/nowhere")).exists():
            time.sleep(0.3)
        return self.layers(x_NCHW)


class Picky(UNet):
    """A U-Net for one size of images, as a vision transformer with positions is."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        if x_NCHW.shape[-1] != 32:
            raise AssertionError("only 32 x 32 here\nsee the paper")
        return super().forward(x_NCHW)
