"""A ConvNeXt encoder (Liu et al. 2022, arXiv:2201.03545) with the decoder of a U-Net, for segmentation.

It normalises each pixel by itself (docs/adr/0004), so a map is free of seams and an output depends on no other sample.
Unlike in the classifier of the paper, the stem does not downsample by 4: full resolution is kept as the first skip
connection, so that fields and roads of few pixels survive. No stochastic depth.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from eopipe.errors import UsageError
from eopipe.models import SPECTRAL_HEAD
from eopipe.models.unet import PixelNorm, head_input, head_layers

# Channels of the first downsampled level, and blocks of each level, of which the first `depth` are used.
SIZES = {"atto": (40, (2, 2, 6, 2, 2, 2)), "tiny": (96, (3, 3, 9, 3, 3, 3)), "small": (96, (3, 3, 27, 3, 3, 3))}
KERNEL = 7


class ConvNeXt(nn.Module):
    """Images (N, bands, H, W), H and W multiples of 2**depth, to logits (N, classes, H, W); `head` is one of HEADS."""

    def __init__(self, bands: int, classes: int, depth: int, size: str = "atto", head: str = SPECTRAL_HEAD) -> None:
        super().__init__()
        if size not in SIZES:
            raise UsageError(f"convnext has no size {size}; use {', '.join(SIZES)}")
        width, blocks = SIZES[size]
        widths = [width // 2, *(width * 2**level for level in range(depth))]
        self.stem = nn.Sequential(nn.Conv2d(bands, widths[0], 3, padding=1), PixelNorm(widths[0]))
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 2, 2), PixelNorm(b), *(ConvNeXtBlock(b) for _ in range(count)))
            for a, b, count in zip(widths, widths[1:], blocks, strict=False)
        )
        self.up = nn.ModuleList(decoder_block(b, a) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True))
        self.head_name, self.head = head, head_layers(head, widths[0], bands, classes)
        self.factor, self.reach = 2**depth, convnext_radius(depth, blocks[:depth])

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W)."""
        image_NCHW, levels = x_NCHW, [self.stem(x_NCHW)]
        for step in self.down:
            levels.append(step(levels[-1]))
        x_NCHW = levels.pop()
        for step in self.up:
            upsampled_NCHW = functional.interpolate(x_NCHW, scale_factor=2.0, mode="nearest")
            x_NCHW = step(torch.cat([upsampled_NCHW, levels.pop()], 1))
        logits: Tensor = self.head(head_input(self.head_name, x_NCHW, image_NCHW))
        return logits


class ConvNeXtBlock(nn.Module):
    """Residual block: a 7 x 7 depthwise convolution, then an inverted bottleneck of two 1 x 1 convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        depthwise = nn.Conv2d(width, width, KERNEL, padding=KERNEL // 2, groups=width)
        bottleneck = nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1)
        self.layers = nn.Sequential(depthwise, PixelNorm(width), *bottleneck)
        # Layer scale; not 1e-6 as for 300 epochs of ImageNet, since trainings here are short.
        self.scale = nn.Parameter(torch.full((1, width, 1, 1), 0.1))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """The same shape."""
        outputs_NCHW: Tensor = x_NCHW + self.scale * self.layers(x_NCHW)
        return outputs_NCHW


def decoder_block(coarse: int, fine: int) -> nn.Sequential:
    """Fuse the channels of an upsampled coarse level with the channels of its skip connection."""
    return nn.Sequential(nn.Conv2d(coarse + fine, fine, 3, padding=1), PixelNorm(fine), nn.GELU())


def convnext_radius(depth: int, blocks: tuple[int, ...]) -> int:
    """An upper bound of the receptive-field radius in pixels.

    Sum of the blocks of each level, the stem, a convolution for each level of the decoder, and the offset of a pixel
    within a pixel of the coarsest level.
    """
    encoder = sum(KERNEL // 2 * count * 2 ** (level + 1) for level, count in enumerate(blocks))
    return int(1 + encoder + (2**depth - 1) + 2 * (2**depth - 1))
