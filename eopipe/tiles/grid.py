"""The grid that a run shares: CRS, affine transform and shape, as an `odc.geo.GeoBox`."""

import math
import re
from collections.abc import Iterable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, Field

from eopipe.documents import OPEN, Number, PositiveCount, Text, checked, invertible
from eopipe.errors import BadInputError

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

Bounds = tuple[float, float, float, float]
# Rows and columns of a raster.
PixelWindow = tuple[slice, slice]
EARTH_RADIUS_M = 6371008.8
CODE = re.compile(r"[A-Za-z]\w*:[A-Za-z0-9.]+")


class _Grid(BaseModel, **OPEN):
    """The content of a grid file, as search writes it."""

    crs: Text
    shape: Annotated[list[PositiveCount], Field(min_length=2, max_length=2)]
    transform: Annotated[list[Number], AfterValidator(invertible)]


def grid_of_document(value: Any, name: str) -> "GeoBox":
    """The grid in the content of a file. Raises BadInputError for what is not a grid."""
    from affine import Affine
    from odc.geo.geobox import GeoBox
    from pyproj.exceptions import CRSError

    checked(_Grid, value, name, "a grid")
    try:
        grid = GeoBox(tuple(value["shape"]), Affine(*value["transform"][:6]), value["crs"])
    except (AssertionError, OverflowError, ValueError, CRSError) as error:
        raise BadInputError(f"{name} is not a grid: its CRS does not exist: {value['crs'][:60]!r}") from error
    if not grid.axis_aligned:
        raise BadInputError(f"{name} is not a usable grid: it is rotated")
    return grid


def crs_fields(grid: "GeoBox") -> dict[str, str | None]:
    """The CRS of a grid as the projection extension of STAC has it: `proj:code`, or null and `proj:wkt2`."""
    crs = grid.crs
    if crs is None or CODE.fullmatch(str(crs)):
        return {"proj:code": str(crs) if crs else None}
    authority = crs.proj.to_authority()
    return {"proj:code": ":".join(authority)} if authority else {"proj:code": None, "proj:wkt2": crs.to_wkt()}


def crs_of_fields(fields: Mapping[str, Any]) -> str | None:
    """What `crs_fields` wrote; null where a document states no CRS."""
    crs: str | None = fields.get("proj:code") or fields.get("proj:wkt2")
    return crs


def grid_json(grid: "GeoBox") -> dict[str, Any]:
    """The content of a grid file."""
    return {"crs": str(grid.crs), "shape": list(grid.shape), "transform": list(grid.affine)[:6]}


def make_grid(bounds: Bounds, crs: str, resolution: float, origin: tuple[float, float]) -> "GeoBox":
    """The smallest grid that covers bounds, its pixel edges at `origin` plus multiples of the resolution.

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


def _snap(value: float, origin: float, resolution: float, rounding: Any) -> int:
    """Index of the pixel edge at or beyond a coordinate, with a tolerance of a thousandth of a pixel."""
    index = (value - origin) / resolution
    if not math.isfinite(index):
        raise BadInputError(f"the coordinate {value:g} is beyond any grid with pixels of {resolution:g}")
    return round(index) if abs(index - round(index)) < 1e-3 else int(rounding(index))


def utm_crs(longitude: float, latitude: float) -> str:
    """The EPSG code of the UTM zone of a point, in degrees."""
    zone = int((longitude + 180) // 6) % 60 + 1
    return f"EPSG:{(32600 if latitude >= 0 else 32700) + zone}"


def same_grid(first: "GeoBox", second: "GeoBox") -> bool:
    """Whether two grids have the same CRS, shape and pixel positions, to a thousandth of a pixel."""
    if first.crs != second.crs or first.shape != second.shape:
        return False
    (height, width), a, b = first.shape, first.affine, second.affine
    # In pixels, since a fixed tolerance in units of the CRS can be a whole pixel in degrees.
    shift_x = abs(a.c - b.c) + abs(a.a - b.a) * width
    shift_y = abs(a.f - b.f) + abs(a.e - b.e) * height
    return bool(shift_x < 1e-3 * abs(a.a) and shift_y < 1e-3 * abs(a.e))


def overlaps(first: PixelWindow, second: PixelWindow) -> bool:
    """Whether two windows of a raster have a pixel in common."""
    return all(a.start < b.stop and b.start < a.stop for a, b in zip(first, second, strict=True))


def common_part(first: PixelWindow, second: PixelWindow) -> PixelWindow | None:
    """The pixels of a raster that are in both windows; None where there are none."""
    y, x = (slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(first, second, strict=True))
    return (y, x) if y.start < y.stop and x.start < x.stop else None


def within(part: PixelWindow, window: PixelWindow) -> PixelWindow:
    """Rows and columns of a part of a window, counted from the corner of the window."""
    y, x = (
        slice(inner.start - outer.start, inner.stop - outer.start) for inner, outer in zip(part, window, strict=True)
    )
    return y, x


def windows(shape: tuple[int, int], edge: int | tuple[int, int]) -> list[PixelWindow]:
    """Cut a raster into windows of this edge, or height and width, row by row; the last ones are smaller."""
    return parts_of((slice(0, shape[0]), slice(0, shape[1])), edge)


def parts_of(window: PixelWindow, edge: int | tuple[int, int]) -> list[PixelWindow]:
    """Cut a window into windows of this edge, or height and width, row by row; the last ones are smaller."""
    (height, width), (rows, columns) = (edge, edge) if isinstance(edge, int) else edge, window
    return [
        (slice(y, min(y + height, rows.stop)), slice(x, min(x + width, columns.stop)))
        for y in range(rows.start, rows.stop, height)
        for x in range(columns.start, columns.stop, width)
    ]


def blocks_around(windows: Iterable[PixelWindow], edge: int) -> list[PixelWindow]:
    """Windows without a common pixel that hold all pixels of some windows, row by row.

    Each is the smallest around what is in one block of `edge` pixels, so that their number and size follow from what
    the windows hold, whatever the size of the raster.
    """
    bounds: dict[tuple[int, int], tuple[int, int, int, int]] = {}
    for window in {(y.start, y.stop, x.start, x.stop) for y, x in windows}:
        top, bottom, left, right = window
        for row, column in product(range(top // edge, -(-bottom // edge)), range(left // edge, -(-right // edge))):
            first, last, west, east = bounds.get((row, column), window)
            block = row * edge, (row + 1) * edge, column * edge, (column + 1) * edge
            rows = max(min(top, first), block[0]), min(max(bottom, last), block[1])
            bounds[row, column] = *rows, max(min(left, west), block[2]), min(max(right, east), block[3])
    return [(slice(top, bottom), slice(left, right)) for _, (top, bottom, left, right) in sorted(bounds.items())]
