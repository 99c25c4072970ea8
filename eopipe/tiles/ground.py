"""How long and how large pixels and shapes are on the ground: metres and hectares on the ellipsoid of a CRS.

Units of a projection are not metres of the ground: in EPSG:3857 at 60 degrees a unit is half a metre.
"""

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, ObjectArray
from eopipe.tiles.globe import transformer

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# A scale of a projection that differs by less from 1, as in a UTM zone, is taken for 1 in a pixel's metres, which are
# then what the CRS says; a scale that differs by more from 1 is worth a warning.
SMALL_SCALE, LARGE_SCALE = 0.005, 0.05
# Pixels between two whose area is measured; the scale of a projection changes by less than 1e-5 between them.
AREA_STEP = 32
# Metres after which the edge of a shape gets another vertex: a straight line of a projection is not a geodesic.
LONGEST_EDGE_M = 1000.0
METRES_PER_RADIAN = 6_371_000.0
SQUARE_METRES_PER_HECTARE = 10_000.0


def pixel_metres(grid: "GeoBox") -> tuple[float, float]:
    """Width and height in metres on the ground of the pixel in the centre of a grid.

    In the units of the CRS where these are metres of the ground to half a percent, as in a UTM zone; of grids
    without a place on Earth, such as the slots of a chip set; and without a CRS.
    """
    crs = grid.crs
    nominal = _units_of_pixel(grid)
    if crs is None or not _is_on_a_planet(crs):
        return nominal
    row, column = grid.shape[0] / 2, grid.shape[1] / 2
    columns, rows = np.array([-0.5, 0.5, 0, 0]) + column, np.array([0, 0, -0.5, 0.5]) + row
    longitude, latitude = _to_degrees(crs.proj, *_coordinates(grid, columns, rows))
    geod: Any = crs.proj.get_geod()
    _, _, lengths = geod.inv(longitude[::2], latitude[::2], longitude[1::2], latitude[1::2])
    width, height = map(float, lengths)
    # Beyond the domain of a projection.
    is_measured = math.isfinite(width) and math.isfinite(height)
    close = not crs.geographic and all(
        math.isclose(a, b, rel_tol=SMALL_SCALE) for a, b in zip((width, height), nominal, strict=True)
    )
    return (width, height) if is_measured and not close else nominal


def scale_warning(grid: "GeoBox") -> str:
    """A sentence where pixels on the ground differ by 5 % from what the units of a projection say; else empty."""
    crs = grid.crs
    if crs is None or crs.geographic or not _is_on_a_planet(crs):
        return ""
    (width, height), (unit_width, unit_height) = pixel_metres(grid), _units_of_pixel(grid)
    if abs(math.sqrt(width * height / (unit_width * unit_height)) - 1) <= LARGE_SCALE:
        return ""
    return (
        f"pixels of {unit_width:g} m in {crs} are {width:.4g} m wide on the ground here, and sizes and areas are those "
        "on the ground; in a projection for this place, such as its UTM zone, the two are the same"
    )


def _units_of_pixel(grid: "GeoBox") -> tuple[float, float]:
    """Width and height of a pixel in metres of a projection, or radians."""
    affine, crs = grid.affine, grid.crs
    width, height = math.hypot(affine.a, affine.d), math.hypot(affine.b, affine.e)
    factor = crs.proj.axis_info[0].unit_conversion_factor if crs else 1.0
    return width * factor, height * factor


def _is_on_a_planet(crs: Any) -> bool:
    ellipsoid = crs.proj.ellipsoid
    return bool(ellipsoid and ellipsoid.semi_major_metre > METRES_PER_RADIAN / 100)


def pixel_hectares(grid: "GeoBox", y: slice, x: slice) -> Float64Array:
    """The area (y, x) in hectares of each pixel of a window on the ellipsoid of the CRS.

    It is measured at some pixels, in degrees in each row, and interpolated between them.
    """
    crs = grid.crs
    assert crs is not None
    if not _is_on_a_planet(crs):
        width, height = _units_of_pixel(grid)
        return np.full((y.stop - y.start, x.stop - x.start), width * height / SQUARE_METRES_PER_HECTARE)
    rows = _samples(y, 1 if crs.geographic else AREA_STEP)
    # In degrees all pixels of a row have one area.
    columns = np.array([x.start]) if crs.geographic else _samples(x, AREA_STEP)
    corner_rows = rows[:, None, None] + np.array([0, 0, 1, 1])
    corner_columns = columns[None, :, None] + np.array([0, 1, 1, 0])
    shape = len(rows), len(columns), 4
    columns_of_corners, rows_of_corners = np.broadcast_to(corner_columns, shape), np.broadcast_to(corner_rows, shape)
    easting, northing = _coordinates(grid, columns_of_corners, rows_of_corners)
    longitude, latitude = _to_degrees(crs.proj, easting.reshape(-1, 4), northing.reshape(-1, 4))
    geod: Any = crs.proj.get_geod()
    measured = [geod.polygon_area_perimeter(*corners)[0] for corners in zip(longitude, latitude, strict=True)]
    hectares = np.abs(np.array(measured).reshape(len(rows), len(columns))) / SQUARE_METRES_PER_HECTARE
    interpolated: Float64Array = _weights(y, rows) @ hectares @ _weights(x, columns).T
    return interpolated


def _samples(part: slice, step: int) -> AnyArray:
    """Positions of a slice: every `step`-th, and the last."""
    return np.unique(np.append(np.arange(part.start, part.stop, step), part.stop - 1))


def _weights(part: slice, samples: AnyArray) -> Float64Array:
    """The weight (position, sample) of each sample at each position of a slice, for linear interpolation."""
    positions = np.arange(part.start, part.stop)
    return np.stack([np.interp(positions, samples, unit) for unit in np.eye(len(samples))], axis=1)


def _coordinates(grid: "GeoBox", columns: AnyArray, rows: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Easting and northing of positions in pixels."""
    a, b, c, d, e, f = grid.affine[:6]
    return a * columns + b * rows + c, d * columns + e * rows + f


def _to_degrees(crs: Any, easting: AnyArray, northing: AnyArray) -> tuple[Float64Array, Float64Array]:
    """Longitude and latitude, in the datum of the CRS itself."""
    longitude, latitude = transformer(crs, crs.geodetic_crs).transform(easting, northing)
    return longitude, latitude


def shape_hectares(shapes: ObjectArray, crs: Any) -> Float64Array:
    """The area in hectares of each polygon (shapely) on the ellipsoid of its CRS (pyproj); 0 for other shapes."""
    from shapely import get_coordinates, get_parts, get_rings, segmentize

    units = METRES_PER_RADIAN if crs.is_geographic else 1.0
    longest_edge = LONGEST_EDGE_M / (units * crs.axis_info[0].unit_conversion_factor)
    parts, shape_of_part = get_parts(shapes, return_index=True)
    rings, part_of_ring = get_rings(segmentize(parts, longest_edge), return_index=True)
    points, ring_of_point = get_coordinates(rings, return_index=True)
    longitude, latitude = _to_degrees(crs, points[:, 0], points[:, 1])
    geod, ends = crs.get_geod(), np.searchsorted(ring_of_point, np.arange(len(rings) + 1)).tolist()
    areas = np.array(
        [abs(geod.polygon_area_perimeter(longitude[a:b], latitude[a:b])[0]) for a, b in pairwise(ends)], np.float64
    )
    # The first ring of a polygon is the outer one.
    is_hole = np.append(False, part_of_ring[1:] == part_of_ring[:-1])[: len(rings)]
    signed = np.where(is_hole, -areas, areas) / SQUARE_METRES_PER_HECTARE
    # Without shapes the sums are integers.
    return np.bincount(shape_of_part[part_of_ring], signed, minlength=len(shapes)).astype(np.float64)
