"""The window of a grid that a raster covers: a store holds this much of the grid, and no more."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import Float64Array
from eopipe.tiles.grid import PixelWindow

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

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
    from pyproj import Transformer

    x, y = Transformer.from_crs(crs, target_crs, always_xy=True).transform(*(affine * points))
    with np.errstate(invalid="ignore"):
        return np.stack(target_affine * (x, y))


def _clip(positions: Float64Array, edge: int) -> slice:
    begin = min(max(math.floor(positions.min()) - MARGIN, 0), edge)
    return slice(begin, max(min(math.ceil(positions.max()) + MARGIN, edge), begin))
