"""Geometries in degrees, also across the antimeridian: in one piece to measure, in two to query a server."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

Geometry = dict[str, Any]
CIRCLE = 360.0


def unwrap(geometry: Geometry) -> "BaseGeometry":
    """A GeoJSON geometry in one piece; where it crosses 180 degrees its longitudes continue beyond.

    An edge takes the short way round, since many catalogs write a footprint across 180 degrees without
    the cut that RFC 7946 (section 3.1.9) asks for. What circles the Earth or a pole stays as it is.
    Raises ValueError, TypeError, AttributeError, KeyError or ShapelyError for what is not GeoJSON.
    """
    import shapely
    from shapely.geometry import shape

    parts = [_short_way(part) for part in shapely.get_parts(shape(geometry))]
    apart = shapely.union_all(parts)
    moved = shapely.union_all([_shift(part, CIRCLE) if part.centroid.x < 0 else part for part in parts])
    return moved if _width(moved) < _width(apart) else apart


def split(geometry: "BaseGeometry") -> "BaseGeometry":
    """The same area with all longitudes from -180 to 180, cut at the antimeridian."""
    import shapely

    worlds = {k: shapely.box(CIRCLE * k - 180, -90, CIRCLE * k + 180, 90) for k in (-1, 0, 1)}
    parts = [_shift(geometry.intersection(world), -CIRCLE * k) for k, world in worlds.items()]
    areas = [part for part in parts if not part.is_empty and (part.area or not geometry.area)]
    return shapely.union_all(areas)


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


def _short_way(part: "BaseGeometry") -> "BaseGeometry":
    """A polygon whose edges jump by more than 180 degrees, drawn the short way round."""
    import numpy as np
    import shapely
    from shapely.geometry import Polygon

    if not isinstance(part, Polygon):
        return part
    rings = [shapely.get_coordinates(ring) for ring in (part.exterior, *part.interiors)]
    if not any((np.abs(np.diff(ring[:, 0])) > CIRCLE / 2).any() for ring in rings):
        return part
    unrolled = [np.column_stack([np.unwrap(ring[:, 0], period=CIRCLE), ring[:, 1]]) for ring in rings]
    outer = unrolled[0]
    circles = [np.round((outer[:, 0].mean() - ring[:, 0].mean()) / CIRCLE) for ring in unrolled[1:]]
    holes = [ring + np.array([CIRCLE * count, 0]) for count, ring in zip(circles, unrolled[1:], strict=True)]
    # A ring that does not close circles a pole; one without a width was drawn along 180 degrees on both sides.
    is_closed = abs(outer[0, 0] - outer[-1, 0]) < CIRCLE / 2
    drawn = Polygon(outer, holes) if is_closed else part
    return drawn if drawn.area > 0 else part


def _shift(geometry: "BaseGeometry", degrees: float) -> "BaseGeometry":
    from shapely.affinity import translate

    return translate(geometry, xoff=degrees) if degrees and not geometry.is_empty else geometry


def _width(geometry: "BaseGeometry") -> float:
    return float(geometry.bounds[2] - geometry.bounds[0])


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
