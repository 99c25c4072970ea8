"""Areas on the globe: valid, in one piece to measure and in two to query, closed around a pole, and in another CRS.

Whatever has an outline in degrees asks here, and so does what compares places in degrees, since longitudes are on a
circle. An edge that is straight in one CRS bends in another: it has as many vertices as `DEVIATION_M` needs.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from eopipe.errors import BadInputError

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox
    from pyproj import CRS, Transformer
    from shapely.geometry.base import BaseGeometry

    from eopipe.arrays import Float64Array

Geometry = dict[str, Any]
DEGREES, CIRCLE, METRES_PER_DEGREE = "EPSG:4326", 360.0, 111_195.0
# The largest distance of an edge in degrees from the same edge in a CRS, and how often one is halved.
DEVIATION_M, HALVINGS = 10.0, 24
# Parts of each edge at least: a short one bends too.
EDGE_PARTS = 4
# Edges in degrees get a vertex this often in a CRS, less than 10 m from the true curve.
STEP_DEGREES = 0.1
# Closer to a pole than a tenth of a millimetre a place has any longitude.
AT_POLE = 90 - 1e-9


def unwrap(geometry: Geometry) -> "BaseGeometry":
    """A GeoJSON geometry, made valid and in one piece; where it crosses 180 degrees its longitudes continue beyond.

    An edge takes the short way round, since many catalogs write a footprint across 180 degrees without
    the cut that RFC 7946 (section 3.1.9) asks for; a ring around a pole contains it. What circles the Earth stays as
    it is. Raises ValueError, TypeError, AttributeError, KeyError or ShapelyError for what is not GeoJSON.
    """
    import shapely
    from shapely.geometry import shape

    parts = [short_way(part) for part in shapely.get_parts(shape(geometry))]
    area = shapely.union_all([valid(part) for part in parts])
    # What is cut at 180 degrees is in one piece, if that is narrower.
    moved = [_shift(part, CIRCLE) if part.centroid.x < 0 else part for part in shapely.get_parts(area)]
    return min(area, shapely.union_all(moved), key=lambda whole: whole.bounds[2] - whole.bounds[0])


def valid(area: "BaseGeometry") -> "BaseGeometry":
    """An area whose rings cross no edge, or an array of areas; what a ring covers twice is inside."""
    import numpy as np
    import shapely

    # Numbers near the largest float are refused by who reads them.
    with np.errstate(over="ignore"):
        return shapely.make_valid(area, method="structure", keep_collapsed=False)


def short_way(part: "BaseGeometry", crossing: float = CIRCLE / 2) -> "BaseGeometry":
    """A polygon or line some edge of which is longer than `crossing` degrees, drawn the short way round.

    Its longitudes continue beyond 180 degrees; another geometry is returned as it is.
    """
    import numpy as np
    import shapely

    is_area = part.geom_type == "Polygon"
    # The outer ring of a polygon is the first.
    rings = [shapely.get_coordinates(ring) for ring in (shapely.get_rings(part) if is_area else [part])]
    if not any((np.abs(np.diff(ring[:, 0])) > crossing).any() for ring in rings):
        return part
    unrolled = [np.column_stack([np.unwrap(ring[:, 0], period=CIRCLE), ring[:, 1]]) for ring in rings]
    drawn = _ring_areas(unrolled) if is_area else shapely.LineString(unrolled[0])
    # A ring without a width was drawn along 180 degrees on both sides.
    return drawn if drawn.area > 0 or not is_area else part


def split(geometry: "BaseGeometry") -> "BaseGeometry":
    """The same area with all longitudes from -180 to 180, cut at the antimeridian."""
    import shapely

    worlds = {k: shapely.box(CIRCLE * k - 180, -90, CIRCLE * k + 180, 90) for k in (-1, 0, 1)}
    parts = [_shift(geometry.intersection(world), -CIRCLE * k) for k, world in worlds.items()]
    # A cut can leave lines beside areas.
    areas = [part for part in shapely.get_parts(parts) if not part.is_empty and (part.area or not geometry.area)]
    return shapely.union_all(areas)


def from_crs(area: "BaseGeometry", crs: str) -> "BaseGeometry":
    """An area of a CRS in degrees, valid and cut at 180 degrees, of which no edge is further off than `DEVIATION_M`.

    Raises BadInputError where the CRS has no place on Earth for a part of it.
    """
    import shapely

    parts = [part for piece in _around_poles(area, crs) for part in shapely.get_parts(piece) if part.area]
    drawn = [_ring_areas([_edges_in_degrees(ring, crs) for ring in shapely.get_rings(part)]) for part in parts]
    whole = shapely.union_all([split(part) for part in drawn])
    if not whole.area:
        raise BadInputError(f"an area has no place on Earth in the CRS {crs[:60]}")
    return whole


def to_crs(area: "BaseGeometry", crs: str, step: float = STEP_DEGREES, source: str = DEGREES) -> "BaseGeometry":
    """An area in degrees, or in another CRS, in a CRS, valid; its edges get a vertex every `step`.

    Its bounds are not finite where the CRS has no place for a part of it.
    """
    import numpy as np
    import shapely

    change = transformer(source, crs)
    fine = shapely.segmentize(area, step)
    drawn = shapely.transform(fine, lambda p: np.column_stack(change.transform(p[:, 0], p[:, 1])))
    return valid(drawn) if np.isfinite(drawn.bounds).all() else drawn


def outline_of(grid: "GeoBox") -> "BaseGeometry":
    """The area of a grid in degrees, cut at 180 degrees."""
    return from_crs(grid.extent.geom, str(grid.crs))


def bounds_of(area: "BaseGeometry") -> tuple[float, float, float, float]:
    """West, south, east, north of an area that is cut at 180 degrees; west > east where it crosses them."""
    import shapely

    return common_bounds([part.bounds for part in shapely.get_parts(area)])


@cache
def transformer(source: "str | CRS", target: "str | CRS") -> "Transformer":
    """Between two CRS, x or longitude first; one costs 50 ms, and all scenes need the same."""
    from pyproj import Transformer

    return Transformer.from_crs(source, target, always_xy=True)


def to_degrees(crs: str) -> "Transformer":
    """The transformer from a CRS to longitude and latitude. Raises BadInputError for a CRS of another body."""
    from pyproj.exceptions import ProjError

    try:
        return transformer(crs, DEGREES)
    except ProjError as error:
        raise BadInputError(f"the CRS {crs[:60]!r} has no longitudes and latitudes on Earth") from error


def _around_poles(area: "BaseGeometry", crs: str) -> "Iterable[BaseGeometry]":
    """An area of a CRS; one with a pole in four parts around it, none of which circles it."""
    import math

    from shapely import box
    from shapely.geometry import Point

    area, change = valid(area), to_degrees(crs)
    west, south, east, north = area.bounds
    for latitude in (-90, 90):
        x, y = change.transform(0, latitude, direction="INVERSE")
        if math.isfinite(x) and math.isfinite(y) and area.intersects(Point(x, y)):
            columns, rows = ((west, x), (x, east)), ((south, y), (y, north))
            return [area.intersection(box(left, low, right, high)) for left, right in columns for low, high in rows]
    return [area]


def _edges_in_degrees(ring: "BaseGeometry", crs: str) -> "Float64Array":
    """The ring in degrees (n, 2), whose longitudes continue beyond 180: edges halved until they are where they were."""
    import numpy as np
    import shapely

    def located(points: "Float64Array") -> "Float64Array":
        degrees = np.column_stack(to_degrees(crs).transform(*points.T))
        if not np.isfinite(degrees).all():
            raise BadInputError(f"an area has no place on Earth in the CRS {crs[:60]}")
        return degrees

    west, south, east, north = ring.bounds
    points = shapely.get_coordinates(shapely.segmentize(ring, max(east - west, north - south) / EDGE_PARTS))
    degrees = located(points)
    for _ in range(HALVINGS):
        edges = _edges(degrees)
        middles = (points[:-1] + points[1:]) / 2
        expected, actual = edges.mean(1), located(middles)
        east = (actual[:, 0] - expected[:, 0] + CIRCLE / 2) % CIRCLE - CIRCLE / 2
        # At a pole every longitude is right.
        east *= np.cos(np.radians(actual[:, 1]))
        off = np.hypot(east, actual[:, 1] - expected[:, 1]) * METRES_PER_DEGREE
        is_bent = (off > DEVIATION_M) | (np.ptp(edges[..., 0], 1) > CIRCLE / 4)
        if not is_bent.any():
            break
        places = np.flatnonzero(is_bent) + 1
        points, degrees = np.insert(points, places, middles[is_bent], 0), np.insert(degrees, places, actual[is_bent], 0)
    drawn = _edges(degrees).reshape(-1, 2)
    drawn[:, 0] = np.unwrap(drawn[:, 0], period=CIRCLE)
    is_new = np.append(True, (np.diff(drawn, axis=0) != 0).any(1))
    return np.asarray(drawn[is_new])


def _edges(degrees: "Float64Array") -> "Float64Array":
    """Edges (n, 2, 2) of a line of vertices, the short way round; an end at a pole has the longitude of the other."""
    import numpy as np

    edges: Float64Array = np.stack([degrees[:-1], degrees[1:]], 1)
    at_pole = np.abs(edges[..., 1]) > AT_POLE
    for end in (0, 1):
        edges[:, end, 0] = np.where(at_pole[:, end], edges[:, 1 - end, 0], edges[:, end, 0])
    edges[..., 0] = np.unwrap(edges[..., 0], period=CIRCLE, axis=1)
    return np.asarray(edges)


def shift_near(geometry: "BaseGeometry", other: "BaseGeometry") -> "BaseGeometry":
    """A geometry, moved by whole circles of the Earth to be nearest to another one."""
    return _shift(geometry, CIRCLE * round((other.centroid.x - geometry.centroid.x) / CIRCLE))


def intersects(geometry: "BaseGeometry", other: "BaseGeometry") -> bool:
    """Whether two geometries have a point in common anywhere on Earth."""
    return any(_shift(geometry, CIRCLE * k).intersects(other) for k in (-1, 0, 1))


def counter_clockwise(geometry: Geometry) -> Geometry:
    """A GeoJSON geometry with outer rings counter-clockwise and holes clockwise (RFC 7946, section 3.1.6).

    Edges take the short way round, and positions stay as they are. What is not GeoJSON is returned unchanged.
    """
    try:
        if geometry["type"] == "Polygon":
            return geometry | {"coordinates": _wound(geometry["coordinates"])}
        if geometry["type"] == "MultiPolygon":
            return geometry | {"coordinates": [_wound(rings) for rings in geometry["coordinates"]]}
        if geometry["type"] == "GeometryCollection":
            return geometry | {"geometries": [counter_clockwise(part) for part in geometry["geometries"]]}
    except (IndexError, KeyError, TypeError, ValueError):
        return geometry
    return geometry


def _wound(rings: Sequence[Sequence[Any]]) -> list[Any]:
    """The rings of a polygon, the first counter-clockwise, the holes clockwise."""
    return [ring if (_signed_area(ring) < 0) == (n > 0) else ring[::-1] for n, ring in enumerate(rings)]


def _signed_area(ring: Sequence[Any]) -> float:
    """Twice the area of a ring in square degrees; negative for a clockwise one (shoelace formula)."""
    import numpy as np

    x, y = np.array([position[:2] for position in ring], float).T
    x = np.unwrap(x, period=CIRCLE)
    return float(np.sum(x * np.roll(y, -1) - np.roll(x, -1) * y))


def _ring_areas(rings: "Sequence[Float64Array]") -> "BaseGeometry":
    """The area of rings whose longitudes continue beyond 180, the outer one first, the holes moved to be in it."""
    import shapely

    outer, *holes = (valid(shapely.Polygon(_closed(ring))) for ring in rings)
    turned = [shift_near(hole, outer) for hole in holes]
    return outer.difference(shapely.union_all(turned)) if turned else outer


def _closed(ring: "Float64Array") -> "Float64Array":
    """A ring; one that circles a pole, and so ends a circle from its start, is closed along the pole."""
    import numpy as np

    if abs(ring[0, 0] - ring[-1, 0]) < CIRCLE / 2:
        return ring
    pole = np.copysign(90.0, ring[:, 1].mean())
    return np.concatenate([ring, [(ring[-1, 0], pole), (ring[0, 0], pole)]])


def _shift(geometry: "BaseGeometry", degrees: float) -> "BaseGeometry":
    from shapely.affinity import translate

    return translate(geometry, xoff=degrees) if degrees and not geometry.is_empty else geometry


def common_bounds(bounds: Sequence[Sequence[float]]) -> tuple[float, float, float, float]:
    """West, south, east, north in degrees of the narrowest box around boxes; west > east where it crosses 180."""
    import numpy as np

    boxes = np.array(bounds, np.float64)
    south, north = float(boxes[:, 1].min()), float(boxes[:, 3].max())
    order = np.argsort(boxes[:, 0] % CIRCLE, kind="stable")
    west, widths = boxes[order, 0] % CIRCLE, boxes[order, 2] - boxes[order, 0]
    ends = west + np.where(widths < CIRCLE, widths % CIRCLE, CIRCLE)
    # How far the boxes before the next one reach, the boxes of the last round included, and the gap up to the next one.
    end = np.maximum.accumulate(np.maximum(ends, ends.max() - CIRCLE))
    gaps = np.append(west[1:], west[0] + CIRCLE) - end
    widest = int(gaps.argmax())
    if gaps[widest] <= 0:
        return -180.0, south, 180.0, north
    first, last = float(west[(widest + 1) % len(west)]), float(end[widest])
    return (first + 180) % CIRCLE - 180, south, 180 - (180 - last) % CIRCLE, north
