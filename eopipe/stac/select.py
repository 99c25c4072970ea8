"""From what a catalog holds to the frozen list: filtered, one version each, the best, sorted and unsigned."""

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from eopipe.errors import BadInputError
from eopipe.fetch.signing import redact_href
from eopipe.publish import sha256, write_json
from eopipe.scenes.item import Item, safe_href, scene_name
from eopipe.stac.antimeridian import Geometry, shift_near, unwrap
from eopipe.stac.query import Query, cloud_cover, footprint, middle
from eopipe.stac.versions import Dropped, newest

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
            percent = _unseen(unit, clouds, unwrap(self.geometry))
        else:
            percent = sum(clouds) / len(clouds)
        return round(percent, 6), middle(unit[0]).isoformat(), unit[0]["id"]


def solar_day(item: Item, geometry: Geometry | None) -> date:
    """The date in local solar time (UTC and an hour for 15 degrees) at the area, or else at the scene.

    Scenes of one pass belong to one day everywhere, also where the UTC date changes between them.
    """
    place = unwrap(geometry) if geometry else footprint(item)
    longitude = 0.0 if place is None else (place.centroid.x + 180) % 360 - 180
    moment: datetime = middle(item)
    return (moment + timedelta(hours=longitude / 15)).date()


def _unseen(unit: list[Item], clouds: list[float], area: "BaseGeometry") -> float:
    """Percent of the area that a day shows cloudy or not at all, where scenes overlap the clearest counts."""
    import shapely

    clear, seen = 0.0, shapely.Polygon()
    for cloud, item in sorted(zip(clouds, unit, strict=True), key=lambda pair: (pair[0], pair[1]["id"])):
        place = footprint(item)
        part = area if place is None else shift_near(place, area).intersection(area)
        clear += (100 - cloud) * part.difference(seen).area
        seen = seen.union(part)
    return 100 - clear / area.area if area.area else min(clouds)


def _beaten(item: Item, window: str, place: int, percent: float) -> Dropped:
    return {"id": item["id"], "reason": "not best", "window": window, "place": place, "cloud": percent}


Missing = Literal["fail", "skip"]
LINKS = ("license", "cite-as", "derived_from", "via", "self")


@dataclass(frozen=True)
class Selection:
    """The scenes that later stages use, sorted by name, and the ones that were left out, with the reasons."""

    items: list[Item]
    dropped: list[Dropped]
    best: Best

    def write(self, folder: Path, told: Path) -> None:
        """Write one GeoJSON file a scene into a folder; into `told` the digest of the list, and what was left out."""
        rows = []
        for item in self.items:
            name = scene_name(item["id"])
            write_json(folder / f"{name}.geojson", item, indent=None)
            day = solar_day(item, self.best.geometry).isoformat()
            code = sha256(folder / f"{name}.geojson")
            cloud = cloud_cover(item)
            rows.append({"id": item["id"], "name": name, "sha256": code, "solar_day": day, "cloud_cover": cloud})
        lines = "".join(f"{row['sha256']}  {row['name']}\n" for row in rows)
        digest = hashlib.sha256(lines.encode()).hexdigest()
        write_json(told, {"digest": digest, "scenes": rows, "dropped": self.dropped})


def select(found: list[Item], query: Query, assets: tuple[str, ...], on_missing: Missing, best: Best) -> Selection:
    """Choose among the scenes of a catalog; the order in which it gives them does not matter.

    Raises BadInputError when scenes lack an asset and are not to be skipped, RefusedError for an unsafe address.
    """
    wanted, dropped = newest([item for item in found if query.matches(item)])
    whole, lacking = _with_assets(wanted, assets, on_missing)
    kept, beaten = best.choose(whole)
    frozen = sorted((_frozen(item, assets) for item in kept), key=lambda item: scene_name(item["id"]))
    told = sorted([*dropped, *lacking, *beaten], key=lambda row: (row["id"], json.dumps(row, sort_keys=True)))
    return Selection(frozen, told, best)


def _with_assets(items: list[Item], assets: tuple[str, ...], on_missing: Missing) -> tuple[list[Item], list[Dropped]]:
    """The scenes that have all wanted assets, and the others; these are named together, or left out."""
    gone = {item["id"]: [asset for asset in assets if asset not in item["assets"]] for item in items}
    wrong = sorted(name for name, lacking in gone.items() if lacking)
    if wrong and (on_missing == "fail" or len(wrong) == len(items)):
        have = ", ".join(sorted(set().union(*(item["assets"] for item in items))))
        told = "; ".join(f"{name} has no {', '.join(gone[name])}" for name in wrong)
        raise BadInputError(f"{len(wrong)} of {len(items)} scenes lack assets: {told} (there are {have})")
    whole = [item for item in items if not gone[item["id"]]]
    return whole, [{"id": name, "reason": "missing asset", "assets": gone[name]} for name in wrong]


def _frozen(item: Item, assets: tuple[str, ...]) -> Item:
    """An item as later stages read it: only the wanted assets, no signature, no path of another machine."""
    kept = {}
    for name in assets:
        asset = item["assets"][name]
        href = safe_href(asset["href"], f"scene {item['id']}, asset {name}")
        kept[name] = asset | {"href": redact_href(href)}
    links = [link for link in item.get("links", []) if _is_kept(link)]
    opened: Item = _redacted(item | {"assets": kept, "links": links})
    return opened


def _redacted(value: Any) -> Any:
    """The same without the signatures of its addresses, wherever an extension puts them."""
    if isinstance(value, dict):
        return {key: _redacted(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_redacted(one) for one in value]
    return redact_href(value) if isinstance(value, str) and value.startswith(("http://", "https://")) else value


def _is_kept(link: dict[str, Any]) -> bool:
    """Links that say where a scene comes from and under which licence; a path of this machine does not."""
    return link.get("rel") in LINKS and urlsplit(str(link.get("href"))).scheme in ("http", "https")
