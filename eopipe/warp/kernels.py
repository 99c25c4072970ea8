"""Resampling kernels as GDAL defines them: weights over source pixels by their distance from a place."""

from typing import Any, Literal

import numpy as np

from eopipe.arrays import AnyArray, BoolArray

Resampling = Literal["nearest", "bilinear", "cubic", "average", "mode"]
PIECE = 1 << 16
# Source pixels on either side that count, where a target pixel is no larger than one of the source.
RADIUS = {"nearest": 0.5, "bilinear": 1.0, "cubic": 2.0}
# Beyond this ratio of pixel sizes GDAL widens its kernels, so that no source pixel is passed over.
WIDE = 1 / 0.95


def weights(resampling: Resampling, distance: AnyArray) -> AnyArray:
    """Weight of a source pixel whose centre is so many pixels away."""
    x = np.abs(distance)
    if resampling == "bilinear":
        linear: AnyArray = np.maximum(0, 1 - x)
        return linear
    # Convolution with a = -0.5 (Catmull and Rom).
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def put(values: AnyArray, out: AnyArray, *, convex: bool) -> None:
    """Write mixed pixels as a type holds them: halves go up, as in GDAL; what is too large is the largest.

    `convex` mixes lie between the pixels that they are made of. The values are spoilt.
    """
    if out.dtype.kind in "iu":
        values += values.dtype.type(0.5)
        if out.dtype.kind == "i" or not convex:
            np.floor(values, out=values)
        if not convex:
            most = np.iinfo(out.dtype)
            np.clip(values, most.min, most.max, out=values)
    np.copyto(out, values, casting="unsafe")


def strips(window: tuple[slice, slice]) -> list[slice]:
    """Cut a window into rows of so few pixels that work on them stays in the cache of a core."""
    height, width = (cut.stop - cut.start for cut in window)
    rows = max(8, PIECE // max(1, width))
    return [slice(top, min(top + rows, height)) for top in range(0, height, rows)]


def joined(seen: list[BoolArray | None], rows: list[slice], shape: tuple[int, ...]) -> BoolArray | None:
    """Put together what strips tell of where measurements are; None: everywhere."""
    if all(part is None for part in seen):
        return None
    whole = np.ones(shape, bool)
    for cut, part in zip(rows, seen, strict=True):
        if part is not None:
            whole[cut] = part
    return whole


def float_of(dtype: np.dtype[Any]) -> type[np.floating[Any]]:
    """The type to mix pixels in: single precision is exact for two bytes."""
    return np.float32 if dtype.itemsize <= 2 or dtype == np.float32 else np.float64
