"""The grid that a run shares: CRS, affine transform and shape, as an `odc.geo.GeoBox`."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.errors import BadInputError
from eopipe.publish import read_json

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

Bounds = tuple[float, float, float, float]
# Rows and columns of a raster.
PixelWindow = tuple[slice, slice]


def read_grid(path: Path) -> "GeoBox":
    """Read a grid file: CRS, six affine numbers and (height, width)."""
    from affine import Affine
    from odc.geo.geobox import GeoBox
    from pyproj.exceptions import CRSError

    value = read_json(path)
    try:
        grid = GeoBox(tuple(value["shape"]), Affine(*value["transform"]), value["crs"])
    except (KeyError, TypeError, ValueError, CRSError) as error:
        raise BadInputError(f"{path} is not a grid: it needs crs, transform and shape") from error
    if grid.crs is None or 0 in grid.shape or not grid.axis_aligned:
        raise BadInputError(f"{path} is no grid to work on: it is empty, turned, or has no CRS")
    return grid


def grid_json(grid: "GeoBox") -> dict[str, Any]:
    """What a grid file holds."""
    return {"crs": str(grid.crs), "shape": list(grid.shape), "transform": list(grid.affine)[:6]}


def make_grid(bounds: Bounds, crs: str, resolution: float, origin: tuple[float, float]) -> "GeoBox":
    """The smallest grid over bounds whose pixel edges lie on `origin` plus multiples of the resolution.

    Bounds are west, south, east, north in the units of the CRS.
    """
    from affine import Affine
    from odc.geo.geobox import GeoBox

    west, south, east, north = bounds
    left = _snap(west, origin[0], resolution, math.floor)
    right = _snap(east, origin[0], resolution, math.ceil)
    bottom = _snap(south, origin[1], resolution, math.floor)
    top = _snap(north, origin[1], resolution, math.ceil)
    x, y = origin[0] + left * resolution, origin[1] + top * resolution
    affine = Affine(resolution, 0.0, x, 0.0, -resolution, y)
    return GeoBox((top - bottom, right - left), affine, crs)


def _snap(value: float, origin: float, step: float, side: Any) -> int:
    """Index of the pixel edge at or beyond a coordinate; a thousandth of a pixel is forgiven."""
    cells = (value - origin) / step
    return round(cells) if abs(cells - round(cells)) < 1e-3 else int(side(cells))


def utm_crs(longitude: float, latitude: float) -> str:
    """The EPSG code of the UTM zone of a place, in degrees."""
    zone = int((longitude + 180) // 6) % 60 + 1
    return f"EPSG:{(32600 if latitude >= 0 else 32700) + zone}"


def same_grid(one: "GeoBox", other: "GeoBox") -> bool:
    """Whether two grids are the same place, to a thousandth of a pixel."""
    if one.crs != other.crs or one.shape != other.shape:
        return False
    (height, width), a, b = one.shape, one.affine, other.affine
    # In pixels, since a fixed tolerance in units of the CRS can be a whole pixel in degrees.
    across = abs(a.c - b.c) + abs(a.a - b.a) * width
    down = abs(a.f - b.f) + abs(a.e - b.e) * height
    return bool(across < 1e-3 * abs(a.a) and down < 1e-3 * abs(a.e))


def windows(shape: tuple[int, int], edge: int | tuple[int, int]) -> list[PixelWindow]:
    """Cut a raster into windows of this edge, or height and width, row by row; the last ones are smaller."""
    (height, width), (down, across) = shape, (edge, edge) if isinstance(edge, int) else edge
    return [
        (slice(y, min(y + down, height)), slice(x, min(x + across, width)))
        for y in range(0, height, down)
        for x in range(0, width, across)
    ]
