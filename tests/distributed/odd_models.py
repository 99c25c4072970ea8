"""Models that make training hard: random, with statistics of the batch, hungry for memory, or poisoned."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from eopipe.models.unet import UNet

BRIGHT = 4.0


class Dropping(UNet):
    """A U-Net that forgets at random."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        return super().forward(functional.dropout(x_NCHW, 0.3, self.training))


class Batchwise(UNet):
    """A U-Net behind batch normalisation, whose statistics are buffers."""

    def __init__(self, bands: int, classes: int, width: int, depth: int) -> None:
        super().__init__(bands, classes, width, depth)
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


class Poisoned(UNet):
    """A U-Net whose result is not finite for chips with a very bright pixel (here: 4 standard deviations)."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        bright = (x_NCHW.amax((1, 2, 3), keepdim=True) > BRIGHT).float()
        return super().forward(x_NCHW) / (1 - bright)


class Picky(UNet):
    """A U-Net for one size of images, as a vision transformer with positions is."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        if x_NCHW.shape[-1] != 32:
            raise AssertionError("only 32 x 32 here\nsee the paper")
        return super().forward(x_NCHW)
