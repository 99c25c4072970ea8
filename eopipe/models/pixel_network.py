"""The models of single pixels and their texture as modules, so that maps, Python and ONNX have them like any other."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from eopipe.errors import BadInputError, UsageError
from eopipe.models import pixel_models
from eopipe.models.pixel_models import LEAST_PROBABILITY, PARTS, REACH
from eopipe.train_options import BANDS, FEATURES, TEXTURE

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
