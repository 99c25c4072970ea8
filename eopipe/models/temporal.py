"""Temporal attention on single pixels. It uses no other pixel: a map has no seams.

Temporal attention is the lightweight encoder of Garnot and Landrieu 2020 (arXiv:2007.00586): one learned query a head
attends to the dates of a pixel, and each head has its own share of the channels.
"""

import torch
from torch import Tensor, nn

from eopipe.composites.periods import channels_by_date
from eopipe.models.unet import PixelNorm

HEADS = 4


class TemporalAttention(nn.Module):
    """Images (N, bands x dates, H, W) to logits (N, classes, H, W).

    The dates are in the names of the bands, as red_MAM and red_JJA; without them each pixel has one date. A date is
    embedded in `width` x 4 channels. Raises UsageError where a date lacks a band.
    """

    factor, reach = 1, 0

    def __init__(self, bands: int, classes: int, width: int, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        order = channels_by_date(names) or [list(range(bands))]
        self.dates, inner = len(order), HEADS * width
        # Rebuilt with the model, so not part of its weights.
        self.register_buffer("order", torch.tensor(order).flatten(), persistent=False)
        self.embed = pixelwise(len(order[0]), inner, inner)
        self.place = nn.Parameter(torch.randn(1, self.dates, inner, 1, 1) * 0.1)
        self.key = nn.Conv2d(inner, HEADS, 1)
        self.head = nn.Sequential(*pixelwise(inner, inner, inner), nn.Conv2d(inner, classes, 1))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W)."""
        height, width = x_NCHW.shape[2:]
        x_NCHW = x_NCHW.index_select(1, self.get_buffer("order"))
        embedded = self.embed(x_NCHW.reshape(-1, x_NCHW.shape[1] // self.dates, height, width))
        # Position encoding of the dates.
        placed = embedded.unflatten(0, (-1, self.dates)) + self.place
        # A learned query times a learned key is one layer: a score for each head and date.
        attention = self.key(placed.flatten(0, 1)).unflatten(0, (-1, self.dates)).softmax(1)
        weighted = placed.unflatten(2, (HEADS, -1)) * attention[:, :, :, None]
        logits: Tensor = self.head(weighted.sum(1).flatten(1, 2))
        return logits


def pixelwise(in_channels: int, hidden: int, out_channels: int) -> nn.Sequential:
    """Two 1 x 1 convolutions with normalisation."""
    # Its bias preserves the magnitude of the input; normalisation alone would keep only its direction.
    first = nn.Conv2d(in_channels, hidden, 1), PixelNorm(hidden), nn.ReLU()
    second = nn.Conv2d(hidden, out_channels, 1, bias=False), PixelNorm(out_channels), nn.ReLU()
    return nn.Sequential(*first, *second)
