"""The built-in networks, and ensembles of models.

Convolutions are normalised over the channels of each pixel (Ba et al. 2016, arXiv:1607.06450; docs/adr), which
uses no other sample and no other pixel. So the output depends neither on how a batch is partitioned over ranks, nor on
how a scene is cut into windows: a map is free of seams.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from eopipe.composites.periods import channels_by_date
from eopipe.errors import BadInputError, UsageError
from eopipe.models import HEADS, LINEAR_HEAD, SPECTRAL_HEAD, pixel_models
from eopipe.models.pixel_models import LEAST_PROBABILITY, PARTS, REACH
from eopipe.tasks import TASKS
from eopipe.train_options import BANDS, FEATURES, TEXTURE

# Channels between the two layers of the spectral head.
HEAD_WIDTH = 32


class UNet(nn.Module):
    """Images (N, bands, H, W), H and W multiples of 2**depth, to logits (N, classes, H, W); `head` is one of HEADS.

    Ronneberger et al. 2015, arXiv:1505.04597.
    """

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


# Channels of the first downsampled level, and blocks of each level, of which the first `depth` are used.
SIZES = {"atto": (40, (2, 2, 6, 2, 2, 2)), "tiny": (96, (3, 3, 9, 3, 3, 3)), "small": (96, (3, 3, 27, 3, 3, 3))}
KERNEL = 7


class ConvNeXt(nn.Module):
    """Images (N, bands, H, W), H and W multiples of 2**depth, to logits (N, classes, H, W); `head` is one of HEADS.

    The encoder of Liu et al. 2022 (arXiv:2201.03545) with the decoder of a U-Net. Unlike in the paper's classifier, the
    stem does not downsample by 4: full resolution is kept as the first skip connection, so that fields and roads of few
    pixels survive. No stochastic depth.
    """

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


ATTENTION_HEADS = 4


class TemporalAttention(nn.Module):
    """Images (N, bands x dates, H, W) to logits (N, classes, H, W).

    The dates are in the names of the bands, as red_MAM and red_JJA; without them each pixel has one date. A date is
    embedded in `width` x 4 channels. One learned query a head attends to the dates of a pixel, and each head has its
    own share of the channels (the lightweight encoder of Garnot and Landrieu 2020, arXiv:2007.00586). Raises UsageError
    where a date lacks a band.
    """

    factor, reach = 1, 0

    def __init__(self, bands: int, classes: int, width: int, names: tuple[str, ...] = ()) -> None:
        super().__init__()
        order = channels_by_date(names) or [list(range(bands))]
        self.dates, inner = len(order), ATTENTION_HEADS * width
        # Rebuilt with the model, so not part of its weights.
        self.register_buffer("order", torch.tensor(order).flatten(), persistent=False)
        self.embed = pixelwise(len(order[0]), inner, inner)
        self.place = nn.Parameter(torch.randn(1, self.dates, inner, 1, 1) * 0.1)
        self.key = nn.Conv2d(inner, ATTENTION_HEADS, 1)
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
        weighted = placed.unflatten(2, (ATTENTION_HEADS, -1)) * attention[:, :, :, None]
        logits: Tensor = self.head(weighted.sum(1).flatten(1, 2))
        return logits


def pixelwise(in_channels: int, hidden: int, out_channels: int) -> nn.Sequential:
    """Two 1 x 1 convolutions with normalisation."""
    # Its bias preserves the magnitude of the input; normalisation alone would keep only its direction.
    first = nn.Conv2d(in_channels, hidden, 1), PixelNorm(hidden), nn.ReLU()
    second = nn.Conv2d(hidden, out_channels, 1, bias=False), PixelNorm(out_channels), nn.ReLU()
    return nn.Sequential(*first, *second)


# The arrays of trees, in the order in which the operator takes them.
TREE_ARRAYS = {"root": torch.int32, "left": torch.int32, "right": torch.int32, "feature": torch.int32}
TREE_ARRAYS |= {"threshold": torch.float32, "value": torch.float32, "base": torch.float32}


@torch.library.custom_op("eopipe::sum_of_leaves", mutates_args=())
def sum_of_leaves(rows: Tensor, arrays: list[Tensor]) -> Tensor:
    """The operator for `pixel_models.sum_of_leaves`: (pixel, feature) to (pixel, column); ONNX has another one."""
    named = {name: array.cpu().numpy() for name, array in zip(TREE_ARRAYS, arrays, strict=True)}
    return torch.from_numpy(pixel_models.sum_of_leaves(named, rows.cpu().numpy())).to(rows.device)


@sum_of_leaves.register_fake
def _(rows: Tensor, arrays: list[Tensor]) -> Tensor:
    return rows.new_empty(rows.shape[0], arrays[-1].shape[0])


class PixelModel(nn.Module):
    """Images (N, bands, H, W) to the features of each pixel; subclasses give logits, or values (N, 1, H, W).

    `features` is one of FEATURES. Beyond the edges of an image texture sees its outermost pixels.
    """

    factor = 1

    def __init__(self, features: str) -> None:
        super().__init__()
        if features not in FEATURES:
            raise UsageError(f"there are no features {features}; use {' or '.join(FEATURES)}")
        self.features, self.reach = features, REACH if features == TEXTURE else 0

    def of_pixels(self, x_NCHW: Tensor) -> Tensor:
        """Features (N, feature, H, W)."""
        if self.features == BANDS:
            return x_NCHW
        padded = functional.pad(x_NCHW, (REACH,) * 4, mode="replicate").double()
        return torch.cat([x_NCHW, *(part.float() for part in pixel_models.texture(padded))], 1)


class Linear(PixelModel):
    """Logistic or ridge regression: images (N, bands, H, W) to logits (N, classes, H, W)."""

    def __init__(self, bands: int, classes: int, features: str = TEXTURE) -> None:
        super().__init__(features)
        self.weight = nn.Parameter(torch.zeros(classes, bands * PARTS[features], 1, 1))
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W)."""
        return functional.conv2d(self.of_pixels(x_NCHW), self.weight, self.bias)


class Boosting(PixelModel):
    """Boosted trees: images (N, bands, H, W) to logits (N, classes, H, W).

    How many nodes the trees have is known when weights are loaded.
    """

    def __init__(self, bands: int, classes: int, features: str = TEXTURE) -> None:
        super().__init__(features)
        self.width = bands * PARTS[features]
        shapes = {"value": (1, classes), "base": (classes,)}
        for name, dtype in TREE_ARRAYS.items():
            self.register_buffer(name, torch.zeros(shapes.get(name, (1,)), dtype=dtype))

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W), or values (N, 1, H, W)."""
        features_NHWC = self.of_pixels(x_NCHW).permute(0, 2, 3, 1)
        sums = sum_of_leaves(features_NHWC.reshape(-1, self.width), [self.get_buffer(name) for name in TREE_ARRAYS])
        sums_NCHW: Tensor = sums.reshape(*features_NHWC.shape[:3], sums.shape[1]).permute(0, 3, 1, 2)
        return sums_NCHW

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        """Load trees of any size. Raises BadInputError for trees that no training makes."""
        arrays = {name: state_dict[prefix + name] for name in TREE_ARRAYS if prefix + name in state_dict}
        if len(arrays) == len(TREE_ARRAYS):
            numbers = {name: array.cpu().numpy() for name, array in arrays.items()}
            if mistake := pixel_models.mistake_in(numbers, self.width):
                raise BadInputError(f"the trees of a model are damaged: {mistake}; train it again")
            for name in TREE_ARRAYS.keys() - {"base"}:
                self.register_buffer(name, torch.empty_like(arrays[name], device=self.get_buffer("base").device))
        super()._load_from_state_dict(state_dict, prefix, *arguments)


class Forest(Boosting):
    """Extra trees: images (N, bands, H, W) to the logarithms (N, classes, H, W) of their shares, or to values."""

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W), or values (N, 1, H, W)."""
        shares_NCHW = super().forward(x_NCHW)
        return shares_NCHW.clamp(min=LEAST_PROBABILITY).log() if shares_NCHW.shape[1] > 1 else shares_NCHW


class Ensemble(nn.Module):
    """Images (N, bands, H, W) to the logits of the mean probabilities of the members, or to the mean of their values.

    Logits have the shape (N, classes, H, W), for a chip classifier (N, classes, 1, 1). Their softmax, or sigmoid for
    several labels for each chip, is the mean of the members' softmax or sigmoid (deep ensembles, Lakshminarayanan et
    al. 2017, arXiv:1612.01474). They are in single precision.
    """

    def __init__(self, members: Iterable[nn.Module], task: str) -> None:
        super().__init__()
        self.members, self.task = nn.ModuleList(members), TASKS[task]

    def forward(self, x_NCHW: Tensor) -> Tensor:
        """Logits (N, classes, H, W) or (N, classes, 1, 1), or values (N, 1, H, W) of a regression."""
        return self.task.mean_output(self.member_outputs(x_NCHW))

    def member_outputs(self, x_NCHW: Tensor) -> Tensor:
        """The outputs (member, N, channel, H, W) of the members, of chips (member, N, channel, 1, 1)."""
        # The logits of a chip are a mean over its pixels, before they become probabilities.
        return torch.stack([self.task.pooled(member(x_NCHW).float()) for member in self.members])


def ensemble_weights(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The weights of each member under the names that they have in an `Ensemble`."""
    return {f"members.{n}.{name}": tensor for n, member in enumerate(weights) for name, tensor in member.items()}
