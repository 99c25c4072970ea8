"""What a model maps, and how a window of it is read, which may extend beyond its raster."""

from typing import Protocol

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray
from eopipe.chips.chips import Normaliser
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
