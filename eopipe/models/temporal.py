"""Attention over dates, pixel by pixel: the lightweight temporal attention encoder.

Garnot and Landrieu 2020 (arXiv:2007.00586): one learned query a head asks the dates of a pixel, each head
answers with its own share of the channels. Nothing looks at another pixel, so a map has no seams.
"""

import torch
from torch import Tensor, nn

from eopipe.composites.periods import PARTS
from eopipe.errors import UsageError
from eopipe.models.unet import PixelNorm

HEADS = 4


class TemporalAttention(nn.Module):
    """Images (N, bands x dates, H, W) to logits (N, classes, H, W).

    The names of the bands tell the dates, as red_MAM and red_JJA; without dates in them each pixel has one.
    `width` x 4 channels describe a date. Raises UsageError where a date lacks a band.
    """

    factor, reach = 1, 0

    def __init__(self, bands: int, classes: int, width: int, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        order = channels_by_date(names) or [list(range(bands))]
        self.dates, inner = len(order), HEADS * width
        # Made anew with the model, so no part of its weights.
        self.register_buffer("order", torch.tensor(order).flatten(), persistent=False)
        self.embed = pixelwise(len(order[0]), inner, inner)
        self.place = nn.Parameter(torch.randn(1, self.dates, inner, 1, 1) * 0.1)
        self.key = nn.Conv2d(inner, HEADS, 1)
        self.head = nn.Sequential(*pixelwise(inner, inner, inner), nn.Conv2d(inner, classes, 1))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W)."""
        height, width = x_NCHW.shape[2:]
        x_NCHW = x_NCHW.index_select(1, self.get_buffer("order"))
        described = self.embed(x_NCHW.reshape(-1, x_NCHW.shape[1] // self.dates, height, width))
        placed = described.unflatten(0, (-1, self.dates)) + self.place
        # A learned query times a learned key is one layer: a number for each head and date.
        asked = self.key(placed.flatten(0, 1)).unflatten(0, (-1, self.dates)).softmax(1)
        shares = placed.unflatten(2, (HEADS, -1)) * asked[:, :, :, None]
        logits: Tensor = self.head(shares.sum(1).flatten(1, 2))
        return logits


def pixelwise(into: int, hidden: int, out: int) -> nn.Sequential:
    """Two layers on each pixel alone."""
    # With its bias the size of what goes in is told too; normalisation alone would leave only its direction.
    first = nn.Conv2d(into, hidden, 1), PixelNorm(hidden), nn.ReLU()
    return nn.Sequential(*first, nn.Conv2d(hidden, out, 1, bias=False), PixelNorm(out), nn.ReLU())


def channels_by_date(names: tuple[str, ...]) -> list[list[int]]:
    """The channels of each date, in the calendar's order and with the same bands; empty if the names tell no dates."""
    split = [name.rpartition("_") for name in names]
    for parts in PARTS.values():
        if names and all(part in parts for _, _, part in split):
            channel = {(part, band): number for number, (band, _, part) in enumerate(split)}
            dates = [part for part in parts if any(part == found for _, _, found in split)]
            bands = list(dict.fromkeys(band for band, _, _ in split))
            gone = [f"{band}_{part}" for part in dates for band in bands if (part, band) not in channel]
            if gone:
                raise UsageError(f"model temporal needs the same bands of every date; there is no {', '.join(gone)}")
            return [[channel[part, band] for band in bands] for part in dates]
    return []
