"""Resampling kernels as GDAL defines them: weights over source pixels by their distance from a place."""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Resampling = Literal["nearest", "bilinear", "cubic", "average", "mode"]
Floats = npt.NDArray[Any]
# Source pixels on either side that count, where a target pixel is no larger than one of the source.
RADIUS = {"nearest": 0.5, "bilinear": 1.0, "cubic": 2.0}
# Beyond this ratio of pixel sizes GDAL widens its kernels, so that no source pixel is passed over.
WIDE = 1 / 0.95


def weights(resampling: Resampling, distance: Floats) -> Floats:
    """Weight of a source pixel whose centre is so many pixels away."""
    x = np.abs(distance)
    if resampling == "bilinear":
        return np.maximum(0, 1 - x)
    # Convolution with a = -0.5 (Catmull and Rom).
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def rounded(values: Floats, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Numbers as a type of pixels holds them: halves go up, as in GDAL; what is too large is the largest."""
    if dtype.kind not in "iu":
        return values.astype(dtype, copy=False)
    most = np.iinfo(dtype)
    values = values + values.dtype.type(0.5)
    np.floor(values, out=values)
    return np.clip(values, most.min, most.max, out=values).astype(dtype)


def float_of(dtype: np.dtype[Any]) -> type[np.floating[Any]]:
    """The type to mix pixels in: single precision is exact for two bytes."""
    return np.float32 if dtype.itemsize <= 2 or dtype == np.float32 else np.float64
