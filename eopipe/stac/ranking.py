"""The best scenes or days of a window of time, by their clouds."""

from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from eopipe.scenes.item import Item
from eopipe.stac.antimeridian import Geometry, around, joined
from eopipe.stac.interval import middle
from eopipe.stac.query import cloud_cover, footprint
from eopipe.stac.versions import Dropped

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

Per = Literal["all", "year", "month", "week", "day"]
Group = Literal["scene", "solar-day"]
# Dates that lie in one window give the same text.
WINDOWS = {"all": "all", "year": "%Y", "month": "%Y-%m", "week": "%G-W%V", "day": "%Y-%m-%d"}


@dataclass(frozen=True)
class Best:
    """How many of what stay in each window: all when `count` is None; `geometry` is the area in degrees."""

    count: int | None = None
    per: Per = "all"
    group: Group = "scene"
    geometry: Geometry | None = None

    def choose(self, items: list[Item]) -> tuple[list[Item], list[Dropped]]:
        """The least cloudy units of each window, and the other scenes with the reason."""
        if self.count is None:
            return items, []
        windows: dict[str, list[list[Item]]] = defaultdict(list)
        for day, unit in self._units(items):
            windows[day.strftime(WINDOWS[self.per])].append(unit)
        # Where some tell their clouds, the others come last; where none does, as of radar, what is seen counts.
        unknown = 100.0 if any(cloud_cover(item) is not None for item in items) else 0.0
        kept: list[Item] = []
        dropped: list[Dropped] = []
        for window, units in sorted(windows.items()):
            ranked = sorted([(self._rank(unit, unknown), unit) for unit in units], key=lambda pair: pair[0])
            kept += [item for _, unit in ranked[: self.count] for item in unit]
            for place, (rank, unit) in enumerate(ranked[self.count :], self.count + 1):
                dropped += [_beaten(item, window, place, rank[0]) for item in unit]
        return kept, dropped

    def _units(self, items: list[Item]) -> list[tuple[date, list[Item]]]:
        """Scenes, or all scenes of a solar day together, each with its day."""
        days: dict[tuple[date, str], list[Item]] = defaultdict(list)
        for item in sorted(items, key=lambda item: item["id"]):
            day = solar_day(item, self.geometry)
            days[day, item["id"] if self.group == "scene" else ""].append(item)
        return [(day, unit) for (day, _), unit in days.items()]

    def _rank(self, unit: list[Item], unknown: float) -> tuple[float, str, str]:
        """Percent of cloud, then the earlier one, then the name; of a day what is unseen counts as cloud."""
        clouds = [unknown if (cloud := cloud_cover(item)) is None else cloud for item in unit]
        if self.group == "solar-day" and self.geometry:
            percent = _unseen(unit, clouds, joined(self.geometry))
        else:
            percent = sum(clouds) / len(clouds)
        return round(percent, 6), middle(unit[0]).isoformat(), unit[0]["id"]


def solar_day(item: Item, geometry: Geometry | None) -> date:
    """The date in local solar time (UTC and an hour for 15 degrees) at the area, or else at the scene.

    Scenes of one pass belong to one day everywhere, also where the UTC date changes between them.
    """
    place = joined(geometry) if geometry else footprint(item)
    longitude = 0.0 if place is None else (place.centroid.x + 180) % 360 - 180
    moment: datetime = middle(item)
    return (moment + timedelta(hours=longitude / 15)).date()


def _unseen(unit: list[Item], clouds: list[float], area: "BaseGeometry") -> float:
    """Percent of the area that a day shows cloudy or not at all, where scenes overlap the clearest counts."""
    import shapely

    clear, seen = 0.0, shapely.Polygon()
    for cloud, item in sorted(zip(clouds, unit, strict=True), key=lambda pair: (pair[0], pair[1]["id"])):
        place = footprint(item)
        part = area if place is None else around(place, area).intersection(area)
        clear += (100 - cloud) * part.difference(seen).area
        seen = seen.union(part)
    return 100 - clear / area.area if area.area else min(clouds)


def _beaten(item: Item, window: str, place: int, percent: float) -> Dropped:
    return {"id": item["id"], "reason": "not best", "window": window, "place": place, "cloud": percent}
