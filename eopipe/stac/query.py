"""What scenes are wanted, and whether a scene is one of them."""

from dataclasses import dataclass
from typing import Any

from eopipe.errors import BadInputError
from eopipe.scenes.item import Item
from eopipe.stac.antimeridian import Geometry, joined, meet
from eopipe.stac.interval import interval, is_within


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
        return joined(item["geometry"])
    except (AttributeError, KeyError, TypeError, ValueError, ShapelyError) as error:
        raise BadInputError(f"scene {item['id']} has a broken geometry: {error}") from error


def _touches(item: Item, geometry: Geometry | None) -> bool:
    if geometry is None:
        return True
    place = footprint(item)
    return place is not None and meet(place, joined(geometry))


def _box(geometry: Geometry) -> str:
    west, south, east, north = joined(geometry).bounds
    return " ".join(f"{edge:.6g}" for edge in (west, south, east - 360 if east > 180 else east, north))
