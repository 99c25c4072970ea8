"""Footprints of scenes and of the grid in any CRS, the pixels that scenes cover, the window that a raster covers."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import BoolArray, Float64Array
from eopipe.scenes.item import Item, asset_key, asset_projection
from eopipe.stac import query
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.globe import shift_near, to_crs, transformer
from eopipe.tiles.grid import PixelWindow, common_part, parts_of, within

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# Edge of the windows in which the pixels at the border of a zone are counted, and of those in which covered ones are.
AREA_BLOCK, BLOCK = 128, 2048


def footprint(item: Item, grid: "GeoBox") -> Any:
    """The footprint of a scene (shapely) in the CRS of a grid; None if the item has no geometry."""
    area = query.footprint(item)
    if area is None:
        return None
    is_in_degrees = grid.crs is not None and grid.crs.geographic
    return to_crs(shift_near(area, grid_extent(grid)) if is_in_degrees else area, str(grid.crs))


@dataclass(frozen=True)
class CellFootprint:
    """The rows and columns of a cell around the footprint (shapely) of a scene; all without a footprint."""

    cell: Cell
    window: PixelWindow
    outline: Any

    @property
    def in_frame(self) -> PixelWindow:
        """Rows and columns in the frame."""
        y, x = self.window
        return y, slice(x.start + self.cell.column, x.stop + self.cell.column)

    def covers(self, part: PixelWindow) -> BoolArray:
        """The pixels (y, x) of a part of the window, by positions in the frame, whose centre is in the footprint."""
        from rasterio.features import rasterize

        grid = self.cell.grid[within(part, self.cell.window)]
        shape = int(grid.shape[0]), int(grid.shape[1])
        if self.outline is None or self.outline.contains(grid_extent(grid)):
            return np.ones(shape, bool)
        return np.asarray(rasterize([self.outline], out_shape=shape, transform=grid.affine, dtype="uint8"), bool)


def cell_footprints(item: Item, frame: Frame) -> list[CellFootprint]:
    """The footprints of a scene in the cells of a run; none in a cell that it does not touch."""
    footprints = []
    for cell in frame.cells:
        outline = footprint(item, cell.grid)
        if outline is None:
            footprints.append(CellFootprint(cell, (slice(0, cell.shape[0]), slice(0, cell.shape[1])), None))
        elif not outline.is_empty:
            left, lower, right, upper = outline.bounds
            columns, rows = ~cell.grid.affine * (np.array([left, left, right, right]), np.array([lower, upper] * 2))
            y, x = _enclosing(rows, cell.shape[0]), _enclosing(columns, cell.shape[1])
            if y.start < y.stop and x.start < x.stop:
                footprints.append(CellFootprint(cell, (y, x), outline))
    return footprints


def _enclosing(positions: Float64Array, edge: int) -> slice:
    """The pixels of an axis from the least to the greatest position, and one more at both ends."""
    start, stop = math.floor(positions.min()) - 1, math.ceil(positions.max()) + 1
    return slice(min(max(start, 0), edge), max(min(stop, edge), 0))


@dataclass(frozen=True)
class Coverage:
    """The pixels of the frame that an image covers: windows of the frame, each with the footprints of scenes in it.

    The pixels are never held as a whole: memory is that of a window that is asked for.
    """

    frame: Frame
    parts: tuple[tuple[PixelWindow, tuple[CellFootprint, ...]], ...]

    @classmethod
    def of(cls, frame: Frame, footprints: Iterable[CellFootprint]) -> "Coverage":
        """The pixels whose centre is in a footprint."""
        return cls(frame, tuple((place.in_frame, (place,)) for place in footprints))

    @classmethod
    def union(cls, frame: Frame, members: "Sequence[Coverage]") -> "Coverage":
        """The pixels that any of some images covers: one window for each cell."""
        parts = []
        for cell in frame.cells:
            places = [p for member in members for _, places in member.parts for p in places if p.cell is cell]
            if places:
                parts.append((bounds_of([place.in_frame for place in places]), tuple(places)))
        return cls(frame, tuple(parts))

    @classmethod
    def whole(cls, frame: Frame) -> "Coverage":
        """All pixels of the cells."""
        wholes = (CellFootprint(cell, (slice(0, cell.shape[0]), slice(0, cell.shape[1])), None) for cell in frame.cells)
        return cls.of(frame, wholes)

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the frame."""
        return self.frame.shape

    @property
    def windows(self) -> tuple[PixelWindow, ...]:
        """Rows and columns of the frame outside of which nothing is covered."""
        return tuple(window for window, _ in self.parts)

    @cached_property
    def pixels(self) -> int:
        """Number of covered pixels, in each window."""
        blocks = (block for window in self.windows for block in parts_of(window, BLOCK))
        return sum(int(np.count_nonzero(self.valid(*block))) for block in blocks)

    @cached_property
    def share(self) -> float:
        """The covered part of the pixels that belong to a cell."""
        return self.count(self.windows) / area_of(self.frame)

    def count(self, windows: Iterable[PixelWindow]) -> int:
        """Number of covered pixels of some windows of the frame that belong to a cell."""
        parts, blocks = self.windows, (block for window in windows for block in parts_of(window, BLOCK))
        reached = (block for block in blocks if any(common_part(part, block) for part in parts))
        return sum(int(np.count_nonzero(self.valid(*block) & self.frame.belonging(*block))) for block in reached)

    def valid(self, y: slice, x: slice) -> BoolArray:
        """The covered pixels (y, x) of a window of the frame."""
        out = np.zeros((y.stop - y.start, x.stop - x.start), bool)
        for place in (place for _, places in self.parts for place in places):
            if out.all():
                break
            if part := common_part(place.in_frame, (y, x)):
                out[within(part, (y, x))] |= place.covers(part)
        return out


def bounds_of(windows: Sequence[PixelWindow]) -> PixelWindow:
    """The smallest window around some."""
    y, x = (
        slice(min(axis.start for axis in axes), max(axis.stop for axis in axes)) for axes in zip(*windows, strict=True)
    )
    return y, x


@lru_cache(maxsize=4)
def area_of(frame: Frame) -> int:
    """Number of pixels that belong to a cell."""
    return sum(_area(cell, slice(0, cell.shape[0]), slice(0, cell.shape[1])) for cell in frame.cells)


def _area(cell: Cell, y: slice, x: slice) -> int:
    """Number of pixels of a window that belong to its cell: a window is quartered until it is small or on one side."""
    (top, bottom), (left, right) = ((slice(a.start, a.start + 1), slice(a.stop - 1, a.stop)) for a in (y, x))
    edges = [cell.belongs(*edge) for edge in ((top, x), (bottom, x), (y, left), (y, right))]
    if all(edge.all() for edge in edges):
        return int(y.stop - y.start) * int(x.stop - x.start)
    # A zone is bounded by two meridians and the equator, and wider than a window that its outline does not touch.
    if not any(edge.any() for edge in edges):
        return 0
    if max(y.stop - y.start, x.stop - x.start) <= AREA_BLOCK:
        return int(np.count_nonzero(cell.belongs(y, x)))
    return sum(_area(cell, rows, columns) for rows in _halves(y) for columns in _halves(x))


def _halves(axis: slice) -> list[slice]:
    middle = (axis.start + axis.stop) // 2
    halves = [slice(axis.start, middle), slice(middle, axis.stop)]
    return [half for half in halves if half.start < half.stop]


def reached_cells(item: Item, frame: Frame, bands: Sequence[str]) -> list[Cell]:
    """The cells that a band of a scene reaches, from its projection metadata, or else from its footprint."""
    if frame.only is not None:
        return [*frame.cells]
    windows = [[_stated_window(item, band, cell.grid) for band in bands] for cell in frame.cells]
    is_stated = all(None not in of_cell for of_cell in windows)
    around = [] if is_stated else [place.cell for place in cell_footprints(item, frame)]
    return [
        cell
        for cell, of_cell in zip(frame.cells, windows, strict=True)
        if (None in of_cell and cell in around)
        or any(window and window[0].start < window[0].stop and window[1].start < window[1].stop for window in of_cell)
    ]


def _stated_window(item: Item, band: str, grid: "GeoBox") -> PixelWindow | None:
    from affine import Affine, TransformNotInvertibleError
    from pyproj.exceptions import CRSError

    if asset_key(band) not in item["assets"]:
        return None
    code, transform, shape = asset_projection(item, asset_key(band))
    if not (code and transform and shape):
        return None
    try:
        return _covered(code, Affine(*transform[:6]), (shape[0], shape[1]), grid)
    except (CRSError, TransformNotInvertibleError):
        # preprocess reads both from the file.
        return None


@lru_cache(maxsize=4096)
def _covered(crs: str, transform: Any, shape: tuple[int, int], grid: "GeoBox") -> PixelWindow:
    """Scenes of one place share their transform."""
    return covered_window(crs, transform, shape, grid)


def grid_extent(grid: "GeoBox", margin: int = 0) -> Any:
    """The rectangle of the grid (shapely) in its CRS, with a margin in pixels."""
    from shapely.geometry import box

    return box(*(grid.pad(margin) if margin else grid).extent.boundingbox)


def exterior_rings(geometry: Any) -> list[Float64Array]:
    """The outer rings (n, 2) of a shapely geometry."""
    from shapely import get_exterior_ring, get_parts

    return [np.asarray(ring.coords)[:, :2] for ring in get_exterior_ring(get_parts(geometry)) if ring is not None]


# Pixels beyond the edge of a raster that resampling may fill, and the error of the transformed edges.
MARGIN = 2
# Points of each edge of a raster that are transformed; straight edges become curves.
EDGE_POINTS = 101
# Points along each edge of the grid that are looked for in the raster.
GRID_POINTS = 33


def covered_window(crs: str, transform: Any, shape: tuple[int, int], grid: "GeoBox") -> PixelWindow:
    """Rows and columns of the grid that a raster may fill, with a margin for the kernel; all where that is not known.

    `transform` and `shape` belong to the raster, `crs` is its WKT.
    """
    everything = slice(0, int(grid.shape[0])), slice(0, int(grid.shape[1]))
    height, width = shape
    steps = np.linspace(0, 1, EDGE_POINTS)
    ends_x, ends_y = np.array([-MARGIN, width + MARGIN]), np.array([-MARGIN, height + MARGIN])
    outline = np.concatenate([_lattice(width * steps, ends_y), _lattice(ends_x, height * steps)], 1)
    in_grid = _transformed(outline, transform, crs, ~grid.affine, str(grid.crs))
    if not np.isfinite(in_grid).all():
        return everything
    columns, rows = in_grid
    window = _clip(rows, everything[0].stop), _clip(columns, everything[1].stop)
    # Around a pole or the 180th meridian the outline does not enclose the raster.
    samples = _lattice(np.linspace(0, grid.shape[1], GRID_POINTS), np.linspace(0, grid.shape[0], GRID_POINTS))
    x, y = _transformed(samples, grid.affine, str(grid.crs), ~transform, crs)
    in_raster = (x >= 0) & (x <= width) & (y >= 0) & (y <= height)
    in_window = np.ones(in_raster.shape, bool)
    for positions, axis in zip(samples, window[::-1], strict=True):
        in_window &= (positions >= axis.start) & (positions <= axis.stop)
    return everything if (in_raster & ~in_window).any() else window


def _lattice(x: Float64Array, y: Float64Array) -> Float64Array:
    """Every pair of an x and a y, as (2, n)."""
    return np.stack(np.meshgrid(x, y)).reshape(2, -1)


def _transformed(points: Float64Array, affine: Any, crs: str, target_affine: Any, target_crs: str) -> Float64Array:
    """Points (2, n), from pixels of one raster to pixels of another; infinite where they have no place there."""
    x, y = transformer(crs, target_crs).transform(*(affine * points))
    with np.errstate(invalid="ignore"):
        return np.stack(target_affine * (x, y))


def _clip(positions: Float64Array, edge: int) -> slice:
    begin = min(max(math.floor(positions.min()) - MARGIN, 0), edge)
    return slice(begin, max(min(math.ceil(positions.max()) + MARGIN, edge), begin))
