"""What a model maps, how a window of it is read, which may extend beyond its raster, and means over symmetries."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray
from eopipe.chips.chips import INVERSE_SYMMETRIES, Normaliser, apply_symmetry
from eopipe.errors import UsageError
from eopipe.tiles.grid import PixelWindow


class PredictableImage(Protocol):
    """What a model maps: pixels of named bands on a grid, read by windows, such as a tile store."""

    @property
    def scene(self) -> str:
        """What messages call it."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""

    @property
    def scaling(self) -> tuple[float, float]:
        """Scale and offset that turn stored numbers into physical ones."""

    def valid(self, y: slice, x: slice) -> BoolArray:
        """Mask (y, x) of the usable pixels of a window."""

    def read(self, name: str, y: slice, x: slice) -> AnyArray:
        """The stored numbers (band, y, x) of a window of `image`."""

    def reaches(self, window: PixelWindow) -> bool:
        """Whether it has any pixel of a window."""


def read_valid(tiles: PredictableImage, y: slice, x: slice) -> BoolArray:
    """Valid mask (y, x) of a window; False beyond the raster."""
    inside, beyond = within_raster(tiles.shape, (y, x))
    return np.pad(tiles.valid(*inside), beyond)


def read_normalised(
    tiles: PredictableImage, bands: tuple[str, ...], normalise: Normaliser, window: PixelWindow, valid: BoolArray
) -> FloatArray:
    """Normalised image (band, y, x) of a window, which may extend beyond the raster; zeros where it is not valid."""
    inside, beyond = within_raster(tiles.shape, window)
    order = [tiles.names.index(band) for band in bands]
    stored = np.pad(tiles.read("image", *inside)[order], ((0, 0), *beyond))
    return normalise(stored, tiles.scaling, valid)


def widened(window: PixelWindow, margin: int) -> PixelWindow:
    """A window with some pixels on each side."""
    y, x = (slice(axis.start - margin, axis.stop + margin) for axis in window)
    return y, x


def within_raster(shape: tuple[int, int], window: PixelWindow) -> tuple[PixelWindow, list[tuple[int, int]]]:
    """The part of a window that is in a raster, and the pixels beyond it: above and below, left and right."""
    y, x = (slice(max(axis.start, 0), min(axis.stop, edge)) for axis, edge in zip(window, shape, strict=True))
    return (y, x), [(a.start - b.start, b.stop - a.stop) for a, b in zip((y, x), window, strict=True)]


# Numbers for `apply_symmetry` in the order of the sum: none, also left to right, the four rotations, all.
SYMMETRIES = {1: (0,), 2: (0, 1), 4: (0, 5, 3, 6), 8: tuple(range(8))}


def check_symmetries(count: int) -> None:
    """Raise UsageError for a number of symmetries that does not make a group."""
    if count not in SYMMETRIES:
        raise UsageError(f"symmetries is {count}; use 1 (none), 2 (flip), 4 (rotations) or 8 (rotations and flips)")


def mean_prediction(predict: Callable[[FloatArray], FloatArray], images: FloatArray, count: int) -> FloatArray:
    """Mean over symmetries of the predictions (N, channel, H, W), or (N, channel, 1, 1), of images (N, band, H, W).

    The sum is in float64 in the order of SYMMETRIES, the mean in float32; over one it is the prediction, bit by bit.
    A symmetry of the image changes the mean by that symmetry alone (test-time augmentation, Wang et al. 2019,
    doi:10.1016/j.neucom.2019.01.103).
    """
    if count == 1:
        return predict(images)
    total = predict(images).astype(np.float64)
    for symmetry in SYMMETRIES[count][1:]:
        output = predict(np.ascontiguousarray(apply_symmetry(images, symmetry)))
        # A model may have infinite outputs of both signs for the zeros of invalid pixels.
        with np.errstate(invalid="ignore"):
            total += apply_symmetry(output, INVERSE_SYMMETRIES[symmetry])
    return np.asarray(total / count, np.float32)
