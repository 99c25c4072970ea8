"""Rasters decimated to what an image can show, window by window: memory does not grow with the raster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from eopipe.arrays import AnyArray, IntArray
from eopipe.tiles.grid import PixelWindow, blocks_around, windows
from eopipe.tiles.store import Tiles

# Reads a window (rows, columns) of a raster as an array (..., y, x).
WindowReader = Callable[[slice, slice], AnyArray]
WINDOW_EDGE = 1024


@dataclass(frozen=True)
class Decimation:
    """A raster (height, width) drawn as an image whose pixels show `step` x `step` of its own; the last show fewer."""

    raster_shape: tuple[int, int]
    step: int

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the image."""
        return -(-self.raster_shape[0] // self.step), -(-self.raster_shape[1] // self.step)

    def centres(self, axis: int) -> IntArray:
        """Row (axis 0) or column (axis 1) of the raster at the centre of each pixel of the image."""
        edge = self.raster_shape[axis]
        return np.minimum(np.arange(0, edge, self.step) + self.step // 2, edge - 1)


def decimate(shape: tuple[int, int], longest: int) -> Decimation:
    """The decimation to an image whose edges are at most `longest` pixels."""
    return Decimation((int(shape[0]), int(shape[1])), -(-max(shape) // longest))


def read_centres(
    read: WindowReader, decimation: Decimation, reached: list[PixelWindow] | None = None, blank: float = 0
) -> AnyArray:
    """The raster at the centre of each pixel of the image (..., y, x), so that rasters can be compared by pixel.

    Outside of the windows `reached`, nothing is read, and pixels are `blank`.
    """
    rows, cols = decimation.centres(0), decimation.centres(1)

    def read_part(y: slice, x: slice) -> AnyArray:
        (first_y, inside_y), (first_x, inside_x) = _within(rows, y), _within(cols, x)
        part = read(slice(first_y, first_y + inside_y[-1] + 1), slice(first_x, first_x + inside_x[-1] + 1))
        return part[..., inside_y, :][..., inside_x]

    return _read_by_window(read_part, decimation, reached, blank)


def read_means(read: WindowReader, decimation: Decimation, reached: list[PixelWindow] | None = None) -> AnyArray:
    """The mean of the finite values in each pixel of the image (..., y, x); NaN where there are none.

    Outside of the windows `reached`, nothing is read.
    """

    def read_part(y: slice, x: slice) -> AnyArray:
        values = read(y, x)
        is_finite = np.isfinite(values)
        count = _block_sums(is_finite.astype(np.float32), decimation.step)
        total = _block_sums(np.where(is_finite, values, 0).astype(np.float32), decimation.step)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)

    return _read_by_window(read_part, decimation, reached, np.nan)


def _within(centres: IntArray, window: slice) -> tuple[int, IntArray]:
    """The first of the centres inside of a window, and how far they are from it."""
    inside = centres[np.searchsorted(centres, window.start) : np.searchsorted(centres, window.stop)]
    return int(inside[0]), inside - inside[0]


def _block_sums(values: AnyArray, step: int) -> AnyArray:
    for axis in (-2, -1):
        values = np.add.reduceat(values, np.arange(0, values.shape[axis], step), axis)
    return values


def _read_by_window(
    read_part: WindowReader, decimation: Decimation, reached: list[PixelWindow] | None, blank: float
) -> AnyArray:
    everything = windows(decimation.raster_shape, _window_edge(decimation))
    image: AnyArray | None = None
    # One is read in any case, for the data type.
    for window in everything if reached is None else reached or everything[:1]:
        part = read_part(*window)
        if image is None:
            image = np.full((*part.shape[:-2], *decimation.shape), blank, part.dtype)
        top, left = (axis.start // decimation.step for axis in window)
        image[..., top : top + part.shape[-2], left : left + part.shape[-1]] = part
    assert image is not None
    return image


def windows_of_stores(decimation: Decimation, stores: Sequence[Tiles], margin: int = 0) -> list[PixelWindow]:
    """Windows of whole pixels of the image around what any of some stores hold, and `margin` pixels around that."""
    edges, step = decimation.raster_shape, decimation.step

    def grown(axis: slice, edge: int) -> slice:
        return slice(max(axis.start - margin, 0) // step * step, min(-(-(axis.stop + margin) // step) * step, edge))

    reached = ((grown(y, edges[0]), grown(x, edges[1])) for store in stores for y, x in store.windows)
    return blocks_around(reached, _window_edge(decimation))


def _window_edge(decimation: Decimation) -> int:
    """The edge of the windows that are read, which hold whole pixels of the image."""
    return max(decimation.step, WINDOW_EDGE // decimation.step * decimation.step)
