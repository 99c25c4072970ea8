"""Read rasters thinned out to what a picture can show, window by window: memory does not grow with the map."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, FloatArray, IntArray, UInt8Array
from eopipe.errors import BadInputError

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

Window = Callable[[slice, slice], AnyArray]
EDGE = 1024


@dataclass(frozen=True)
class Thin:
    """A raster of `shape` (height, width) drawn as cells of `step` x `step` pixels; the last ones are smaller."""

    shape: tuple[int, int]
    step: int

    @property
    def cells(self) -> tuple[int, int]:
        """Height and width in cells."""
        return -(-self.shape[0] // self.step), -(-self.shape[1] // self.step)

    def middles(self, axis: int) -> IntArray:
        """Give the row (axis 0) or column (axis 1) of the pixel that stands for each cell."""
        return np.minimum(np.arange(0, self.shape[axis], self.step) + self.step // 2, self.shape[axis] - 1)


def thin(shape: tuple[int, int], longest: int) -> Thin:
    """Cells for a picture of at most `longest` pixels a side."""
    return Thin((int(shape[0]), int(shape[1])), -(-max(shape) // longest))


def pick(read: Window, cells: Thin) -> AnyArray:
    """Take the middle pixel of each cell (…, y, x), so that two rasters can be compared pixel by pixel."""
    rows, cols = cells.middles(0), cells.middles(1)

    def part(y: slice, x: slice) -> AnyArray:
        return read(y, x)[..., _inside(rows, y), :][..., _inside(cols, x)]

    return _assemble(part, cells)


def mean(read: Window, cells: Thin) -> AnyArray:
    """Take the mean of each cell (…, y, x) over what is finite; NaN where nothing is."""

    def part(y: slice, x: slice) -> AnyArray:
        values = read(y, x)
        there = np.isfinite(values)
        count = _summed(there.astype(np.float32), cells.step)
        total = _summed(np.where(there, values, 0).astype(np.float32), cells.step)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)

    return _assemble(part, cells)


def _inside(places: IntArray, window: slice) -> IntArray:
    here: IntArray = places[(places >= window.start) & (places < window.stop)] - int(window.start)
    return here


def _summed(values: AnyArray, step: int) -> AnyArray:
    for axis in (-2, -1):
        values = np.add.reduceat(values, np.arange(0, values.shape[axis], step), axis)
    return values


def _assemble(part: Window, cells: Thin) -> AnyArray:
    rows, cols = (_cuts(edge, cells.step) for edge in cells.shape)
    return np.concatenate([np.concatenate([part(y, x) for x in cols], -1) for y in rows], -2)


def _cuts(length: int, step: int) -> list[slice]:
    """Windows along one axis that hold whole cells."""
    edge = max(step, EDGE // step * step)
    return [slice(start, min(start + edge, length)) for start in range(0, length, edge)]


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a map with rasterio."""
    import rasterio
    from rasterio.errors import RasterioIOError

    try:
        source = rasterio.open(path)
    except RasterioIOError as error:
        raise BadInputError(f"{path} cannot be read as a map: {error}") from error
    with source:
        yield source


def grid_of(source: Any) -> "GeoBox":
    """Where an opened map lies."""
    from odc.geo.geobox import GeoBox

    return GeoBox(source.shape, source.transform, source.crs)


def pick_classes(path: Path, cells: Thin) -> UInt8Array:
    """Class numbers (y, x) of a map, 255 where there is none."""
    with opened(path) as source:
        return pick(lambda y, x: _read(source, y, x)[0], cells).astype(np.uint8)


def pick_values(path: Path, cells: Thin) -> FloatArray:
    """Values (y, x) of the first band of a map, NaN where there is none."""
    with opened(path) as source:
        return pick(lambda y, x: _read(source, y, x)[0], cells).astype(np.float32)


def pick_confidence(path: Path, cells: Thin) -> FloatArray:
    """Read the highest probability (y, x) of a map of probabilities; NaN where there is none."""
    with opened(path) as source:

        def best(y: slice, x: slice) -> AnyArray:
            stored = _read(source, y, x)
            there = (stored != source.nodata).all(0)
            return np.where(there, stored.max(0) * source.scales[0], np.nan).astype(np.float32)

        return pick(best, cells)


def _read(source: Any, y: slice, x: slice) -> AnyArray:
    from rasterio.errors import RasterioIOError

    try:
        return np.asarray(source.read(window=((y.start, y.stop), (x.start, x.stop))))
    except RasterioIOError as error:
        raise BadInputError(f"{source.name} is damaged: {error}; make the map again") from error
