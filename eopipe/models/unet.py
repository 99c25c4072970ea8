"""U-Net (Ronneberger et al. 2015, arXiv:1505.04597), normalised over the channels of each pixel.

Layer normalisation per pixel (Ba et al. 2016, arXiv:1607.06450; as in ConvNeXt, arXiv:2201.03545) uses no other sample
and no other pixel. So the output depends neither on how a batch is partitioned over ranks, nor on how a scene is cut
into windows: a map is free of seams.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from eopipe.errors import UsageError
from eopipe.models import HEADS, LINEAR_HEAD, SPECTRAL_HEAD

# Channels between the two layers of the spectral head.
HEAD_WIDTH = 32


class UNet(nn.Module):
    """Images (N, bands, H, W), H and W multiples of 2**depth, to logits (N, classes, H, W); `head` is one of HEADS."""

    def __init__(self, bands: int, classes: int, width: int, depth: int, head: str = SPECTRAL_HEAD) -> None:
        super().__init__()
        widths = [width * 2**level for level in range(depth + 1)]
        # The first bias preserves the magnitude of the input; normalisation alone would keep only its direction.
        biases = [head == SPECTRAL_HEAD, *(False for _ in range(depth))]
        self.down = nn.ModuleList(map(conv_block, [bands, *widths[:-1]], widths, biases))
        self.up = nn.ModuleList(conv_block(a + b, a) for a, b in zip(widths[-2::-1], widths[:0:-1], strict=True))
        self.head_name, self.head = head, head_layers(head, width, bands, classes)
        self.factor, self.reach = 2**depth, unet_radius(depth)

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W)."""
        image_NCHW, skips = x_NCHW, list[Tensor]()
        for level, step in enumerate(self.down):
            x_NCHW = step(functional.max_pool2d(x_NCHW, 2) if level else x_NCHW)
            skips.append(x_NCHW)
        x_NCHW = skips.pop()
        for step in self.up:
            upsampled_NCHW = functional.interpolate(x_NCHW, scale_factor=2.0, mode="nearest")
            x_NCHW = step(torch.cat([upsampled_NCHW, skips.pop()], 1))
        logits: Tensor = self.head(head_input(self.head_name, x_NCHW, image_NCHW))
        return logits


def head_layers(name: str, width: int, bands: int, classes: int) -> nn.Module:
    """The last layers of a model, from `head_input` to logits of each pixel; `width` is the number of its features.

    Raises UsageError where there is no head of this name.
    """
    if name not in HEADS:
        raise UsageError(f"there is no head {name}; use {', '.join(HEADS)}")
    if name == LINEAR_HEAD:
        return nn.Conv2d(width, classes, 1)
    return nn.Sequential(nn.Conv2d(width + bands, HEAD_WIDTH, 1), nn.ReLU(), nn.Conv2d(HEAD_WIDTH, classes, 1))


def head_input(name: str, features_NCHW: Tensor, image_NCHW: Tensor) -> Tensor:
    """The features for a linear head; for a spectral one the image beside them.

    That is the spectrum of each pixel with its magnitude, which normalisation over channels has removed.
    """
    return features_NCHW if name == LINEAR_HEAD else torch.cat([features_NCHW, image_NCHW], 1)


class PixelNorm(nn.LayerNorm):
    """Layer normalisation over the channels of each pixel, (N, C, H, W) to the same."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Normalise each pixel; the result is stored with its channels last, which convolutions take without a copy."""
        return super().forward(x_NCHW.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def conv_block(in_channels: int, out_channels: int, has_bias: bool = False) -> nn.Sequential:
    """Two 3 x 3 convolutions with normalisation; the first may have a bias."""
    layers: list[nn.Module] = []
    for channels, bias in ((in_channels, has_bias), (out_channels, False)):
        layers += [nn.Conv2d(channels, out_channels, 3, padding=1, bias=bias), PixelNorm(out_channels), nn.ReLU()]
    return nn.Sequential(*layers)


def unet_radius(depth: int) -> int:
    """An upper bound of the receptive-field radius in pixels.

    Two convolutions for each level of encoder and decoder, and the offset of a pixel within one of the coarsest level.
    """
    return int(2 * (2 ** (depth + 1) - 1) + 3 * (2**depth - 1))
