"""Which scenes a search selects: the area of interest, dates as STAC writes them, and whether a scene matches."""

import logging
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.documents import read_document
from eopipe.errors import BadInputError, UsageError
from eopipe.scenes.item import Item, acquisition_time, moment_of
from eopipe.text_table import shell_word
from eopipe.tiles.globe import CIRCLE, Geometry, intersects, split, unwrap

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

log = logging.getLogger("eopipe")
Interval = tuple[datetime, datetime]
ALWAYS: Interval = (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))

# What reading of something else ends in, beside errors of shapely.
NOT_GEOJSON = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
# Some catalogs round a pole up.
POLE = 90.001
# Vector files that are not GeoJSON.
OTHER_FORMATS = (".fgb", ".gml", ".gpkg", ".kml", ".kmz", ".parquet", ".shp", ".zip")


def parse_interval(text: str) -> Interval:
    """First and last moment (UTC) of a date or interval; a year, month or day means all of it.

    >>> [str(moment) for moment in parse_interval("2023-08/2023-09-02")]
    ['2023-08-01 00:00:00+00:00', '2023-09-02 23:59:59.999999+00:00']
    """
    start, slash, end = text.partition("/")
    try:
        first, last = _edge(start, 0), _edge(end if slash else start, 1)
    except ValueError as error:
        raise UsageError(f"{text!r} is not a date or interval; write 2023-08-01 or 2023-08-01/2023-09-30") from error
    if last < first:
        raise UsageError(f"the interval {text} ends before it starts")
    return first, last


def _edge(text: str, side: int) -> datetime:
    if text in ("", ".."):
        return ALWAYS[side]
    if not re.fullmatch(r"\d{4}(-\d\d){0,2}", text):
        return moment_of(text)
    start = moment_of(text + "-01" * (2 - text.count("-")))
    return _next(start, text.count("-")) - timedelta(microseconds=1) if side else start


def _next(start: datetime, dashes: int) -> datetime:
    """The start of the next year, month or day."""
    if dashes == 0:
        return start.replace(year=start.year + 1)
    if dashes == 1:
        return start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
    return start + timedelta(days=1)


def middle_time(item: Item) -> datetime:
    """The moment (UTC) of acquisition, or the middle of its interval. Raises BadInputError for an item without one."""
    try:
        time = acquisition_time(item["properties"])
    except ValueError as error:
        raise BadInputError(f"scene {item['id']} has no valid datetime: {error}") from error
    if time is None:
        raise BadInputError(f"scene {item['id']} has no valid datetime: {item['properties'].get('datetime')}")
    return time


def is_within(item: Item, text: str | None) -> bool:
    """Whether a scene was acquired in an interval, at least for a part of its time."""
    if not text:
        return True
    properties = item["properties"]
    first, last = (properties.get("datetime") or properties.get(key) for key in ("start_datetime", "end_datetime"))
    if not (first and last):
        return False
    start, end = parse_interval(text)
    try:
        return moment_of(str(first)) <= end and moment_of(str(last)) >= start
    except ValueError as error:
        raise BadInputError(f"scene {item['id']} has no valid datetime: {first}") from error


@dataclass(frozen=True)
class Query:
    """Which scenes are selected; `geometry` is GeoJSON in degrees, `datetime` a STAC interval."""

    collections: tuple[str, ...] = ()
    geometry: Geometry | None = None
    datetime: str | None = None
    max_cloud: float = 100.0
    ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a wrong date before a server is queried."""
        parse_interval(self.datetime or "")

    def __str__(self) -> str:
        parts = [
            ", ".join(self.collections) or "any collection",
            self.datetime or "any date",
            f"the area {_bounds(self.geometry)}" if self.geometry else "anywhere",
            f"cloud cover up to {self.max_cloud:g} %",
            f"ids {', '.join(self.ids)}" if self.ids else "",
        ]
        return ", ".join(filter(None, parts))

    def matches(self, item: Item) -> bool:
        """Whether a scene is selected, also one without a cloud cover. Raises BadInputError for broken items."""
        cloud = cloud_cover(item)
        return (
            (not self.collections or item.get("collection") in self.collections)
            and (not self.ids or item["id"] in self.ids)
            and (cloud is None or cloud <= self.max_cloud)
            and is_within(item, self.datetime)
            and (self.area is None or _touches(item, self.area))
        )

    @cached_property
    def area(self) -> Any:
        """The geometry in one piece (a shapely geometry), for all scenes; None for every place."""
        return unwrap(self.geometry) if self.geometry else None


def cloud_cover(item: Item) -> float | None:
    """Cloud cover of a scene in percent, if it states one."""
    cover: float | None = item["properties"].get("eo:cloud_cover")
    return cover


def footprint(item: Item) -> Any:
    """The footprint of a scene in one piece (a shapely geometry); None where it has none."""
    from shapely.errors import ShapelyError

    if item["geometry"] is None:
        return None
    try:
        area = unwrap(item["geometry"])
        if area.is_empty:
            return None
        # Sums of numbers near the largest float overflow.
        if not math.isfinite(area.centroid.x) or not -POLE <= area.bounds[1] <= area.bounds[3] <= POLE:
            raise ValueError("it has coordinates that are not on Earth")
        return area
    except (*NOT_GEOJSON, ShapelyError) as error:
        raise BadInputError(f"scene {item['id']} has an invalid geometry: {error}") from error


def _touches(item: Item, area: Any) -> bool:
    ground = footprint(item)
    return ground is not None and intersects(ground, area)


def _bounds(geometry: Geometry) -> str:
    west, south, east, north = unwrap(geometry).bounds
    return " ".join(f"{edge:.6g}" for edge in (west, south, east - 360 if east > 180 else east, north))


def area_geometry(area: Path | None, bbox: tuple[float, ...]) -> Geometry | None:
    """The area of interest as one GeoJSON geometry in degrees, from a file or a box; cut in two at 180 degrees.

    Raises UsageError for a wrong box, BadInputError for a file without an area.
    """
    from shapely import segmentize
    from shapely.geometry import mapping

    if area is None and not bbox:
        return None
    geometry = _from_bbox(bbox) if bbox else _from_file(area or Path())
    # An edge over more than half of the Earth would be read as the short way round.
    return dict(mapping(segmentize(split(geometry), CIRCLE / 4)))


def _from_bbox(bbox: tuple[float, ...]) -> "BaseGeometry":
    """The box west south east north; it crosses 180 degrees where west is larger than east."""
    from shapely.geometry import box

    is_valid = len(bbox) == 4 and all(-180 <= x <= 180 for x in bbox[::2]) and -90 <= bbox[1] < bbox[3] <= 90
    # Across 180 degrees a box wider than half the Earth is two confused numbers.
    if not is_valid or 0 <= bbox[0] - bbox[2] < 180:
        raise UsageError(
            f"bbox {' '.join(map(str, bbox))} is not west south east north in degrees; "
            "only across 180 degrees west is larger than east"
        )
    west, south, east, north = bbox
    return box(west, south, east if west < east else east + 360, north)


def _from_file(area: Path) -> "BaseGeometry":
    """The union of all polygons of a GeoJSON file."""
    from shapely import union_all
    from shapely.errors import ShapelyError
    from shapely.geometry import box, mapping, shape

    if area.suffix.lower() in OTHER_FORMATS:
        raise BadInputError(
            f"{area} is not GeoJSON, which search.area has to be; `eopipe init NAME --area {shell_word(area)}` writes "
            "it as GeoJSON"
        )
    value = read_document(area, dict[str, Any], "GeoJSON")
    try:
        features = value.get("features", [value])
        # A feature without a geometry is nowhere.
        outlines = [outline for feature in features if (outline := feature.get("geometry", feature)) is not None]
        warn_of_repair(area, [shape(outline) for outline in outlines])
        union = union_all([unwrap(outline) for outline in outlines])
        geometry = unwrap(mapping(union))
    except (*NOT_GEOJSON, ShapelyError) as error:
        raise BadInputError(f"{area} is not GeoJSON with polygons") from error
    if geometry.is_empty or not geometry.within(box(-360, -90, 540, 90)):
        raise BadInputError(f"{area} contains no valid area; GeoJSON coordinates are longitude, latitude in degrees")
    return geometry


def warn_of_repair(area: Path, shapes: Iterable[Any]) -> None:
    """Log that an outline crosses itself, of which all that it goes around is the area."""
    from shapely import is_valid_reason

    if reasons := [reason for each in shapes if (reason := is_valid_reason(each)) != "Valid Geometry"]:
        log.warning("event=area_repaired area=%s outlines=%d reason=%r", area.name, len(reasons), reasons[0])


def explain_no_match(items: list[Item], query: Query) -> str:
    """Why none of the scenes of a catalog matches, and what would: collections, area, dates, cloud cover."""
    available = sorted({str(item.get("collection") or "") for item in items} - {""})
    unknown = [name for name in query.collections if name not in available]
    if items and unknown:
        return f"there is no collection {', '.join(unknown)}; there are {', '.join(available) or 'none'}"
    swapped = replace(query, geometry=_swapped(query.geometry))
    if query.geometry and (count := sum(map(swapped.matches, items))):
        return f"with latitude and longitude swapped {count} scenes match; coordinates are longitude, latitude"
    relaxed = {
        "the area": replace(query, geometry=None),
        "the dates": replace(query, datetime=None),
        "the limit of cloud cover": replace(query, max_cloud=100.0),
        "the ids": replace(query, ids=()),
    }
    counts = {name: sum(map(other.matches, items)) for name, other in relaxed.items() if other != query}
    rows = [f"without {name} {count} of {len(items)} would" for name, count in counts.items() if count]
    return "; ".join(["widen the dates, area or cloud cover", *rows])


def _swapped(geometry: Geometry | None) -> Geometry | None:
    """The geometry with longitude and latitude swapped; none where that is not on Earth."""
    from shapely import transform
    from shapely.geometry import mapping, shape

    if geometry is None:
        return None
    swapped = transform(shape(geometry), lambda points: points[:, ::-1])
    _, south, _, north = swapped.bounds
    return dict(mapping(swapped)) if -90 <= south <= north <= 90 else geometry
