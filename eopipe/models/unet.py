"""U-Net (Ronneberger et al. 2015, arXiv:1505.04597), normalised over the channels of each pixel.

Layer normalisation per pixel (Ba et al. 2016, arXiv:1607.06450; as in ConvNeXt, arXiv:2201.03545) looks at no
other sample and no other place. So the result depends neither on how a batch is dealt out to processes, nor
on how a scene is cut into windows: a map has no seams.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class UNet(nn.Module):
    """Images (N, bands, H, W), H and W multiples of 2**depth, to logits (N, classes, H, W)."""

    def __init__(self, bands: int, classes: int, width: int, depth: int) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        self.down = nn.ModuleList(block(a, b) for a, b in zip([bands, *widths[:-1]], widths, strict=True))
        self.up = nn.ModuleList(block(a + b, a) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True))
        self.head = nn.Conv2d(width, classes, 1)
        self.factor, self.reach = 2**depth, reach(depth)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W)."""
        skips: list[Tensor] = []
        for level, step in enumerate(self.down):
            x_NCHW = step(functional.max_pool2d(x_NCHW, 2) if level else x_NCHW)
            skips.append(x_NCHW)
        x_NCHW = skips.pop()
        for step in self.up:
            wide = functional.interpolate(x_NCHW, scale_factor=2.0, mode="nearest")
            x_NCHW = step(torch.cat([wide, skips.pop()], 1))
        logits: Tensor = self.head(x_NCHW)
        return logits


class PixelNorm(nn.LayerNorm):
    """Layer normalisation over the channels of each pixel, (N, C, H, W) to the same."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Normalise each pixel."""
        return super().forward(x_NCHW.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).contiguous()


def block(into: int, out: int) -> nn.Sequential:
    """Two 3 x 3 convolutions with normalisation."""
    layers: list[nn.Module] = []
    for channels in (into, out):
        layers += [nn.Conv2d(channels, out, 3, padding=1, bias=False), PixelNorm(out), nn.ReLU()]
    return nn.Sequential(*layers)


def reach(depth: int) -> int:
    """Pixels around an output pixel that can change it, at most.

    Two convolutions a level, down and up, and the place of the pixel within the coarsest one.
    """
    return int(2 * (2 ** (depth + 1) - 1) + 3 * (2**depth - 1))
