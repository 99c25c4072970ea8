"""The area of interest, in degrees."""

from pathlib import Path
from typing import TYPE_CHECKING

from eopipe.errors import BadInputError, UsageError
from eopipe.publish import read_json
from eopipe.stac.antimeridian import Geometry, joined, split

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry


def area_geometry(area: Path | None, bbox: tuple[float, ...]) -> Geometry | None:
    """The area as one GeoJSON geometry in degrees, from a file or a box; cut in two where it crosses 180 degrees.

    Raises UsageError for a wrong box, BadInputError for a file without an area.
    """
    from shapely.geometry import mapping

    if area is None and not bbox:
        return None
    place = _boxed(bbox) if bbox else _drawn(area or Path())
    return dict(mapping(split(place)))


def _boxed(bbox: tuple[float, ...]) -> "BaseGeometry":
    """The box west south east north; it crosses 180 degrees where west is larger than east."""
    from shapely.geometry import box

    proper = len(bbox) == 4 and all(-180 <= x <= 180 for x in bbox[::2]) and -90 <= bbox[1] < bbox[3] <= 90
    # Across 180 degrees a box wider than half the Earth is two mixed up numbers.
    if not proper or 0 <= bbox[0] - bbox[2] < 180:
        raise UsageError(
            f"bbox {' '.join(map(str, bbox))} is not west south east north in degrees; "
            "only across 180 degrees west is larger than east"
        )
    west, south, east, north = bbox
    return box(west, south, east if west < east else east + 360, north)


def _drawn(area: Path) -> "BaseGeometry":
    """The union of all polygons of a GeoJSON file."""
    from shapely import union_all
    from shapely.errors import ShapelyError
    from shapely.geometry import box, mapping

    value = read_json(area)
    try:
        features = value.get("features", [value])
        union = union_all([joined(f.get("geometry", f)) for f in features])
        place = joined(mapping(union))
    except (AttributeError, KeyError, TypeError, ValueError, ShapelyError) as error:
        raise BadInputError(f"{area} is not GeoJSON with polygons") from error
    if place.is_empty or not place.within(box(-360, -90, 540, 90)):
        raise BadInputError(f"{area} holds no area in degrees; GeoJSON is longitude, latitude")
    return place
