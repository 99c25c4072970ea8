"""A ConvNeXt encoder (Liu et al. 2022, arXiv:2201.03545) with the decoder of a U-Net, for maps.

Its normalisation looks at one pixel (docs/adr/0004), so a map has no seams and a result depends on no other
sample. Unlike the classifier of the paper it halves its input at once by 2, not by 4, so that fields and roads
of few pixels survive, and joins the full resolution again at the end. No stochastic depth.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from eopipe.errors import UsageError
from eopipe.models.unet import PixelNorm

# Channels of the first level, and blocks of the levels: from the first half on, as deep as `depth` says.
SIZES = {
    "atto": (40, (2, 2, 6, 2, 2, 2)),
    "tiny": (96, (3, 3, 9, 3, 3, 3)),
    "small": (96, (3, 3, 27, 3, 3, 3)),
}
KERNEL = 7


class ConvNeXt(nn.Module):
    """Images (N, bands, H, W), H and W multiples of 2**depth, to logits (N, classes, H, W)."""

    def __init__(self, bands: int, classes: int, depth: int, size: str = "atto") -> None:
        super().__init__()
        if size not in SIZES:
            raise UsageError(f"there is no convnext of size {size}; use {', '.join(SIZES)}")
        width, blocks = SIZES[size]
        widths = [width // 2, *(width * 2**level for level in range(depth))]
        self.stem = nn.Sequential(nn.Conv2d(bands, widths[0], 3, padding=1), PixelNorm(widths[0]))
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 2, 2), PixelNorm(b), *(ConvNeXtBlock(b) for _ in range(count)))
            for a, b, count in zip(widths, widths[1:], blocks, strict=False)
        )
        self.up = nn.ModuleList(join(b, a) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True))
        self.head = nn.Conv2d(widths[0], classes, 1)
        self.factor, self.reach = 2**depth, reach(depth, blocks[:depth])

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W)."""
        levels = [self.stem(x_NCHW)]
        for step in self.down:
            levels.append(step(levels[-1]))
        x_NCHW = levels.pop()
        for step in self.up:
            wide = functional.interpolate(x_NCHW, scale_factor=2.0, mode="nearest")
            x_NCHW = step(torch.cat([wide, levels.pop()], 1))
        logits: Tensor = self.head(x_NCHW)
        return logits


class ConvNeXtBlock(nn.Module):
    """A wide convolution of each channel, then two layers on each pixel, added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        wide = nn.Conv2d(width, width, KERNEL, padding=KERNEL // 2, groups=width)
        mix = nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1)
        self.layers = nn.Sequential(wide, PixelNorm(width), *mix)
        # Not 1e-6 as for 300 epochs of ImageNet: trainings here are short.
        self.scale = nn.Parameter(torch.full((1, width, 1, 1), 0.1))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """The same shape."""
        changed: Tensor = x_NCHW + self.scale * self.layers(x_NCHW)
        return changed


def join(into: int, out: int) -> nn.Sequential:
    """From a coarse level and its finer skip to the finer width."""
    return nn.Sequential(nn.Conv2d(into + out, out, 3, padding=1), PixelNorm(out), nn.GELU())


def reach(depth: int, blocks: tuple[int, ...]) -> int:
    """Pixels around an output pixel that can change it, at most.

    The blocks of each level, the stem, a convolution a level on the way up, and the place of the pixel within
    the coarsest one.
    """
    down = sum(KERNEL // 2 * count * 2 ** (level + 1) for level, count in enumerate(blocks))
    return int(1 + down + (2**depth - 1) + 2 * (2**depth - 1))
