"""What scenes are wanted, and whether a scene is one of them."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.errors import BadInputError, UsageError
from eopipe.publish import read_json
from eopipe.scenes.item import Item
from eopipe.stac.antimeridian import Geometry, intersects, split, unwrap

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

Moments = tuple[datetime, datetime]
ALWAYS: Moments = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))


def interval(text: str) -> Moments:
    """First and last moment (UTC) of a date or interval; a year, month or day stands for all of it.

    >>> [str(moment) for moment in interval("2023-08/2023-09-02")]
    ['2023-08-01 00:00:00+00:00', '2023-09-02 23:59:59.999999+00:00']
    """
    start, slash, end = text.partition("/")
    try:
        first, last = _edge(start, 0), _edge(end if slash else start, 1)
    except ValueError as error:
        raise UsageError(f"{text!r} is no date or interval; write 2023-08-01 or 2023-08-01/2023-09-30") from error
    if last < first:
        raise UsageError(f"the interval {text} ends before it starts")
    return first, last


def _edge(text: str, side: int) -> datetime:
    if text in ("", ".."):
        return ALWAYS[side]
    if not re.fullmatch(r"\d{4}(-\d\d){0,2}", text):
        return _moment(text)
    begin = _moment(text + "-01" * (2 - text.count("-")))
    return _next(begin, text.count("-")) - timedelta(microseconds=1) if side else begin


def _next(begin: datetime, dashes: int) -> datetime:
    """Where the next year, month or day begins."""
    if dashes == 0:
        return begin.replace(year=begin.year + 1)
    if dashes == 1:
        return begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
    return begin + timedelta(days=1)


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def middle(item: dict[str, Any]) -> datetime:
    """The moment (UTC) when a scene was taken, or the middle of its time. Raises BadInputError when it tells none."""
    told = item["properties"]
    try:
        first, last = (_moment(str(told.get("datetime") or told[key])) for key in ("start_datetime", "end_datetime"))
    except (KeyError, ValueError) as error:
        raise BadInputError(f"scene {item['id']} has no proper datetime: {told.get('datetime')}") from error
    return first + (last - first) / 2


def is_within(item: dict[str, Any], text: str | None) -> bool:
    """Whether a scene was taken in an interval, at least for a part of its time."""
    if not text:
        return True
    told = item["properties"]
    first, last = (told.get("datetime") or told.get(key) for key in ("start_datetime", "end_datetime"))
    if not (first and last):
        return False
    start, end = interval(text)
    try:
        return _moment(str(first)) <= end and _moment(str(last)) >= start
    except ValueError as error:
        raise BadInputError(f"scene {item['id']} has no proper datetime: {first}") from error


@dataclass(frozen=True)
class Query:
    """What scenes are wanted; `geometry` is GeoJSON in degrees, `datetime` a STAC interval."""

    collections: tuple[str, ...] = ()
    geometry: Geometry | None = None
    datetime: str | None = None
    max_cloud: float = 100.0
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a wrong date before a server is asked."""
        interval(self.datetime or "")

    def __str__(self) -> str:
        told = [
            ", ".join(self.collections) or "any collection",
            self.datetime or "any date",
            f"the area {_box(self.geometry)}" if self.geometry else "anywhere",
            f"cloud cover up to {self.max_cloud:g} %",
            f"ids {', '.join(self.ids)}" if self.ids else "",
        ]
        return ", ".join(filter(None, told))

    def matches(self, item: Item) -> bool:
        """Whether a scene is wanted; one that tells no cloud cover is. Raises BadInputError for broken items."""
        cloud = cloud_cover(item)
        return (
            (not self.collections or item.get("collection") in self.collections)
            and (not self.ids or item["id"] in self.ids)
            and (cloud is None or cloud <= self.max_cloud)
            and is_within(item, self.datetime)
            and _touches(item, self.geometry)
        )


def cloud_cover(item: Item) -> float | None:
    """Cloud cover of a scene in percent, where it tells it. Raises BadInputError when it is no number."""
    told = item["properties"].get("eo:cloud_cover")
    if told is None or (isinstance(told, int | float) and not isinstance(told, bool)):
        return told
    raise BadInputError(f"scene {item['id']} has a cloud cover that is no number: {told!r}")


def footprint(item: Item) -> Any:
    """The footprint of a scene in one piece (a shapely geometry); None where it tells none."""
    from shapely.errors import ShapelyError

    if item["geometry"] is None:
        return None
    try:
        return unwrap(item["geometry"])
    except (AttributeError, KeyError, TypeError, ValueError, ShapelyError) as error:
        raise BadInputError(f"scene {item['id']} has a broken geometry: {error}") from error


def _touches(item: Item, geometry: Geometry | None) -> bool:
    if geometry is None:
        return True
    place = footprint(item)
    return place is not None and intersects(place, unwrap(geometry))


def _box(geometry: Geometry) -> str:
    west, south, east, north = unwrap(geometry).bounds
    return " ".join(f"{edge:.6g}" for edge in (west, south, east - 360 if east > 180 else east, north))


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
        union = union_all([unwrap(f.get("geometry", f)) for f in features])
        place = unwrap(mapping(union))
    except (AttributeError, KeyError, TypeError, ValueError, ShapelyError) as error:
        raise BadInputError(f"{area} is not GeoJSON with polygons") from error
    if place.is_empty or not place.within(box(-360, -90, 540, 90)):
        raise BadInputError(f"{area} holds no area in degrees; GeoJSON is longitude, latitude")
    return place
