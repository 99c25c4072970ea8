"""U-Net (Ronneberger et al. 2015, arXiv:1505.04597), normalised over the channels of each pixel.

Layer normalisation per pixel (Ba et al. 2016, arXiv:1607.06450; as in ConvNeXt, arXiv:2201.03545) uses no other sample
and no other pixel. So the output depends neither on how a batch is partitioned over ranks, nor on how a scene is cut
into windows: a map is free of seams.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class UNet(nn.Module):
    """Images (N, bands, H, W), H and W multiples of 2**depth, to logits (N, classes, H, W)."""

    def __init__(self, bands: int, classes: int, width: int, depth: int) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(conv_block(a, b) for a, b in zip([bands, *widths[:-1]], widths, strict=True))
        self.up = nn.ModuleList(conv_block(a + b, a) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True))
        self.head = nn.Conv2d(width, classes, 1)
        self.factor, self.reach = 2**depth, unet_radius(depth)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W)."""
        skips: list[Tensor] = []
        for level, step in enumerate(self.down):
            x_NCHW = step(functional.max_pool2d(x_NCHW, 2) if level else x_NCHW)
            skips.append(x_NCHW)
        x_NCHW = skips.pop()
        for step in self.up:
            upsampled_NCHW = functional.interpolate(x_NCHW, scale_factor=2.0, mode="nearest")
            x_NCHW = step(torch.cat([upsampled_NCHW, skips.pop()], 1))
        logits: Tensor = self.head(x_NCHW)
        return logits


class PixelNorm(nn.LayerNorm):
    """Layer normalisation over the channels of each pixel, (N, C, H, W) to the same."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Normalise each pixel."""
        return super().forward(x_NCHW.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).contiguous()


def conv_block(in_channels: int, out_channels: int) -> nn.Sequential:
    """Two 3 x 3 convolutions with normalisation."""
    layers: list[nn.Module] = []
    for channels in (in_channels, out_channels):
        layers += [nn.Conv2d(channels, out_channels, 3, padding=1, bias=False), PixelNorm(out_channels), nn.ReLU()]
    return nn.Sequential(*layers)


def unet_radius(depth: int) -> int:
    """An upper bound of the receptive-field radius in pixels.

    Two convolutions for each level of encoder and decoder, and the offset of a pixel within one of the coarsest level.
    """
    return int(2 * (2 ** (depth + 1) - 1) + 3 * (2**depth - 1))
