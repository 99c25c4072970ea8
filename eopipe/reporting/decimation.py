"""Rasters decimated to what an image can show, window by window: memory does not grow with the raster."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from eopipe.arrays import AnyArray, IntArray
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.store import Tiles

# Reads a window (rows, columns) of a raster as an array (..., y, x).
WindowReader = Callable[[slice, slice], AnyArray]
# Whether a window of the frame may have data.
WindowTest = Callable[[PixelWindow], bool]
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
    read: WindowReader, decimation: Decimation, is_covered: WindowTest | None = None, blank: float = 0
) -> AnyArray:
    """The raster at the centre of each pixel of the image (..., y, x), so that rasters can be compared by pixel.

    Windows that are not covered are not read: pixels are `blank` there.
    """
    rows, cols = decimation.centres(0), decimation.centres(1)

    def read_part(y: slice, x: slice) -> AnyArray:
        return read(y, x)[..., _within(rows, y), :][..., _within(cols, x)]

    return _read_by_window(read_part, decimation, is_covered, blank)


def read_means(read: WindowReader, decimation: Decimation, is_covered: WindowTest | None = None) -> AnyArray:
    """The mean of the finite values in each pixel of the image (..., y, x); NaN where there are none."""

    def read_part(y: slice, x: slice) -> AnyArray:
        values = read(y, x)
        is_finite = np.isfinite(values)
        count = _block_sums(is_finite.astype(np.float32), decimation.step)
        total = _block_sums(np.where(is_finite, values, 0).astype(np.float32), decimation.step)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)

    return _read_by_window(read_part, decimation, is_covered, np.nan)


def _within(positions: IntArray, window: slice) -> IntArray:
    """The positions inside of a window, relative to its start."""
    inside: IntArray = positions[(positions >= window.start) & (positions < window.stop)] - int(window.start)
    return inside


def _block_sums(values: AnyArray, step: int) -> AnyArray:
    for axis in (-2, -1):
        values = np.add.reduceat(values, np.arange(0, values.shape[axis], step), axis)
    return values


def _read_by_window(
    read_part: WindowReader, decimation: Decimation, is_covered: WindowTest | None, blank: float
) -> AnyArray:
    rows, cols = (_windows_along(edge, decimation.step) for edge in decimation.raster_shape)
    windows = [(y, x) for y in rows for x in cols]
    # One is read in any case, for the data type.
    covered = [window for window in windows if is_covered is None or is_covered(window)] or windows[:1]
    image: AnyArray | None = None
    for window in covered:
        part = read_part(*window)
        if image is None:
            image = np.full((*part.shape[:-2], *decimation.shape), blank, part.dtype)
        top, left = (axis.start // decimation.step for axis in window)
        image[..., top : top + part.shape[-2], left : left + part.shape[-1]] = part
    assert image is not None
    return image


def covered_by(stores: Sequence[Tiles], margin: int = 0) -> WindowTest:
    """Whether windows of the frame come within `margin` pixels of what any of some stores hold."""
    boxes = np.array([(y.start, y.stop, x.start, x.stop) for store in stores for y, x in store.windows])
    top, bottom, left, right = boxes.T + np.array([-margin, margin, -margin, margin])[:, None]

    def is_covered(window: PixelWindow) -> bool:
        y, x = window
        return bool(((top < y.stop) & (y.start < bottom) & (left < x.stop) & (x.start < right)).any())

    return is_covered


def _windows_along(length: int, step: int) -> list[slice]:
    """Windows along one axis that hold whole pixels of the image."""
    edge = max(step, WINDOW_EDGE // step * step)
    return [slice(start, min(start + edge, length)) for start in range(0, length, edge)]
