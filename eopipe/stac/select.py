"""From a catalog to the frozen list: filtered, one version each, ranked, sorted, and without secrets."""

import hashlib
import json
import re
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from eopipe.errors import BadInputError, some_of
from eopipe.fetch.signing import redact_href
from eopipe.publish import sha256
from eopipe.scenes.item import Item, safe_href, scene_name, scheme
from eopipe.stac.query import Query, cloud_cover, footprint, middle_time
from eopipe.text_files import write_json
from eopipe.tiles.globe import Geometry, counter_clockwise, shift_near, unwrap

if TYPE_CHECKING:
    from shapely.geometry.base import BaseGeometry

Per = Literal["all", "year", "month", "week", "day"]
Group = Literal["scene", "solar-day"]
Missing = Literal["fail", "skip"]
# Dates in one window of time give the same text.
WINDOWS = {"all": "all", "year": "%Y", "month": "%Y-%m", "week": "%G-W%V", "day": "%Y-%m-%d"}
# Relations of the links that are kept.
LINKS = ("license", "cite-as", "derived_from", "via", "self")
# Sentinel-2 product names: https://sentiwiki.copernicus.eu/web/s2-products
PRODUCT = re.compile(
    r"(?P<platform>S2[A-D])_MSI(?P<level>L\d[A-C])_(?P<start>\d{8}T\d{6})"
    r"(?:_N(?P<baseline>\d{4}))?_R\d{3}_T(?P<tile>\d\d[A-Z]{3})_(?P<processed>\d{8}T\d{6})"
)
DATATAKE = re.compile(r"G(?P<platform>S2[A-D])_(?P<start>\d{8}T\d{6})_\d+_N(?P<baseline>\d\d\.\d\d)")
Dropped = dict[str, Any]


@dataclass(frozen=True)
class Ranking:
    """How many scenes or days are kept per window: all when `count` is None; `geometry` is the area in degrees."""

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
        # Where some have a cloud cover, the others come last; where none has, as radar, only coverage counts.
        unknown = 100.0 if any(cloud_cover(item) is not None for item in items) else 0.0
        chosen: list[Item] = []
        dropped: list[Dropped] = []
        for window, units in sorted(windows.items()):
            ranked = sorted([(self._rank(unit, unknown), unit) for unit in units], key=lambda pair: pair[0])
            chosen += [item for _, unit in ranked[: self.count] for item in unit]
            for place, (rank, unit) in enumerate(ranked[self.count :], self.count + 1):
                reason = {"reason": "not best", "window": window, "place": place, "cloud": rank[0]}
                dropped += [{"id": item["id"]} | reason for item in unit]
        return chosen, dropped

    def _units(self, items: list[Item]) -> list[tuple[date, list[Item]]]:
        """Scenes, or all scenes of a solar day together, each with its day."""
        days: dict[tuple[date, str], list[Item]] = defaultdict(list)
        for item in sorted(items, key=lambda item: item["id"]):
            day = solar_day(item, self.geometry)
            days[day, item["id"] if self.group == "scene" else ""].append(item)
        return [(day, unit) for (day, _), unit in days.items()]

    def _rank(self, unit: list[Item], unknown: float) -> tuple[float, str, str]:
        """Percent of cloud, then the earlier one, then the name; of a day what is not covered counts as cloud."""
        clouds = [unknown if (cloud := cloud_cover(item)) is None else cloud for item in unit]
        if self.group == "solar-day" and self.geometry:
            percent = _not_clear(unit, clouds, unwrap(self.geometry))
        else:
            percent = sum(clouds) / len(clouds)
        return round(percent, 6), middle_time(unit[0]).isoformat(), unit[0]["id"]


def solar_day(item: Item, geometry: Geometry | None) -> date:
    """The date in local solar time (UTC and an hour for 15 degrees) at the area, or else at the scene.

    Scenes of one pass belong to one day everywhere, also where the UTC date changes between them.
    """
    area = unwrap(geometry) if geometry else footprint(item)
    longitude = 0.0 if area is None else (area.centroid.x + 180) % 360 - 180
    return (middle_time(item) + timedelta(hours=longitude / 15)).date()


def _not_clear(unit: list[Item], clouds: list[float], area: "BaseGeometry") -> float:
    """Percent of the area that a day shows cloudy or not at all; where scenes overlap the clearest counts."""
    import shapely

    clear, covered = 0.0, shapely.Polygon()
    for cloud, item in sorted(zip(clouds, unit, strict=True), key=lambda pair: (pair[0], pair[1]["id"])):
        scene = footprint(item)
        part = area if scene is None else shift_near(scene, area).intersection(area)
        clear += (100 - cloud) * part.difference(covered).area
        covered = covered.union(part)
    return 100 - clear / area.area if area.area else min(clouds)


@dataclass(frozen=True)
class Selection:
    """The scenes that later stages use, sorted by name, and the dropped ones with the reasons."""

    items: list[Item]
    dropped: list[Dropped]
    ranking: Ranking

    def write(self, folder: Path, summary: Path) -> None:
        """Write one GeoJSON file per scene; into `summary` the digest of the list and the dropped scenes."""
        rows = []
        for item in self.items:
            name = scene_name(item["id"])
            write_json(folder / f"{name}.geojson", item, indent=None)
            day = solar_day(item, self.ranking.geometry).isoformat()
            code = sha256(folder / f"{name}.geojson")
            cloud = cloud_cover(item)
            rows.append({"id": item["id"], "name": name, "sha256": code, "solar_day": day, "cloud_cover": cloud})
        lines = "".join(f"{row['sha256']}  {row['name']}\n" for row in rows)
        digest = hashlib.sha256(lines.encode()).hexdigest()
        write_json(summary, {"digest": digest, "scenes": rows, "dropped": self.dropped})


def select(
    items: list[Item], query: Query, assets: tuple[str, ...], on_missing: Missing, ranking: Ranking
) -> Selection:
    """Select among the scenes of a catalog; their order does not matter.

    Raises BadInputError when scenes lack an asset and are not to be skipped, RefusedError for an unsafe address.
    """
    matching, superseded = newest([item for item in items if query.matches(item)])
    complete, incomplete = _with_assets(matching, assets, on_missing)
    chosen, not_best = ranking.choose(complete)
    frozen = sorted((_frozen(item, assets) for item in chosen), key=lambda item: scene_name(item["id"]))
    _check_names(frozen)
    dropped = [*superseded, *incomplete, *not_best]
    return Selection(frozen, sorted(dropped, key=lambda row: (row["id"], json.dumps(row, sort_keys=True))), ranking)


def _check_names(items: list[Item]) -> None:
    """Raise BadInputError for scenes whose file names differ only by case: some file systems take them for one."""
    ids: dict[str, str] = {}
    for item in items:
        other = ids.setdefault(scene_name(item["id"]).casefold(), item["id"])
        if other != item["id"]:
            raise BadInputError(
                f"scenes {other} and {item['id']} differ only by upper and lower case, which some file systems do not "
                "distinguish; choose one of them with search.ids"
            )


def _with_assets(items: list[Item], assets: tuple[str, ...], on_missing: Missing) -> tuple[list[Item], list[Dropped]]:
    """The scenes that have all selected assets, and the others; these are named together, or dropped."""
    missing = {item["id"]: [asset for asset in assets if asset not in item["assets"]] for item in items}
    incomplete = sorted(name for name, lacking in missing.items() if lacking)
    if incomplete and (on_missing == "fail" or len(incomplete) == len(items)):
        available = ", ".join(sorted(set().union(*(item["assets"] for item in items))))
        lacking = sorted({tuple(missing[name]) for name in incomplete})
        groups = ((assets, [name for name in incomplete if tuple(missing[name]) == assets]) for assets in lacking)
        details = "; ".join(f"no {', '.join(assets)} in {some_of(names)}" for assets, names in groups)
        raise BadInputError(f"{len(incomplete)} of {len(items)} scenes lack assets: {details} (there are {available})")
    complete = [item for item in items if not missing[item["id"]]]
    return complete, [{"id": name, "reason": "missing asset", "assets": missing[name]} for name in incomplete]


def _frozen(item: Item, assets: tuple[str, ...]) -> Item:
    """An item as later stages read it: only the selected assets, no signature, no path of another machine."""
    selected = {}
    for name in assets:
        asset = item["assets"][name]
        href = safe_href(asset["href"], f"scene {item['id']}, asset {name}")
        selected[name] = asset | {"href": redact_href(href)}
    # They show the origin or the licence of a scene; a path of this machine does not.
    links = [each for each in item.get("links", []) if each.get("rel") in LINKS]
    links = [each for each in links if scheme(str(each.get("href"))) in ("http", "https")]
    geometry = counter_clockwise(item["geometry"]) if item["geometry"] else None
    frozen: Item = _redacted(item | {"assets": selected, "links": links, "geometry": geometry})
    return frozen


def _redacted(value: Any) -> Any:
    """The same without the signatures of its addresses, in whatever extension they are."""
    if isinstance(value, dict):
        return {key: _redacted(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_redacted(entry) for entry in value]
    return redact_href(value) if isinstance(value, str) and value.startswith(("http://", "https://")) else value


def newest(items: list[Item]) -> tuple[list[Item], list[Dropped]]:
    """The newest version of each scene, and the others with the reason; the order of the list does not matter."""
    unique, dropped = _without_copies(items)
    chosen: list[Item] = []
    by_acquisition: dict[Any, list[Item]] = {}
    for item in unique:
        by_acquisition.setdefault(_acquisition(item) or item["id"], []).append(item)
    for group in by_acquisition.values():
        current: list[Item] = []
        for item in sorted(group, key=_age, reverse=True):
            newer = next((other for other in current if _covers(other, item)), None)
            if newer is None:
                current.append(item)
            else:
                dropped.append(_superseded(item, newer))
        chosen += current
    return chosen, dropped


def _without_copies(items: list[Item]) -> tuple[list[Item], list[Dropped]]:
    """One item per name; of copies that differ the one that was updated last."""
    unique: dict[str, Item] = {}
    dropped: dict[str, Dropped] = {}
    for item in sorted(items, key=_age, reverse=True):
        if unique.setdefault(scene_name(item["id"]), item) != item:
            # Equal copies are an effect of paging, not of what the server holds.
            updated = item["properties"].get("updated")
            dropped[_text(item)] = {"id": item["id"], "reason": "duplicate", "updated": updated}
    return list(unique.values()), list(dropped.values())


def _acquisition(item: Item) -> tuple[str, ...] | None:
    """What all versions of a Sentinel-2 scene have in common: satellite, level, time and tile."""
    properties, product = item["properties"], _product(item)
    if product:
        return product["platform"], product["level"], product["start"], product["tile"]
    datatake = DATATAKE.fullmatch(str(properties.get("s2:datatake_id") or properties.get("eopf:datatake_id") or ""))
    tile = _tile(properties)
    if not (datatake and tile):
        return None
    level = str(properties.get("s2:product_type") or "S2MSI2A").removeprefix("S2MSI")
    return datatake["platform"], f"L{level}", datatake["start"], tile


def _product(item: Item) -> "re.Match[str] | None":
    """The product's name, from the item or its id."""
    return PRODUCT.search(str(item["properties"].get("s2:product_uri") or "")) or PRODUCT.search(item["id"])


def _tile(properties: dict[str, Any]) -> str:
    code = properties.get("s2:mgrs_tile") or properties.get("grid:code")
    if code:
        return str(code).removeprefix("MGRS-").removeprefix("T").zfill(5)
    parts = ("utm_zone", "latitude_band", "grid_square")
    return "".join(str(properties.get(f"mgrs:{part}") or "") for part in parts)


def baseline(item: Item) -> str:
    """Processing baseline of a Sentinel-2 scene as 05.09; empty where it has none."""
    properties, product = item["properties"], _product(item)
    stated = properties.get("s2:processing_baseline") or properties.get("processing:version")
    if stated:
        return str(stated).zfill(5)
    number = product["baseline"] if product else None
    return f"{number[:2]}.{number[2:]}" if number else ""


def _age(item: Item) -> tuple[str, ...]:
    """What sorts versions of a scene, the newest last; the item's text comes last, so that no order is left open."""
    properties, product = item["properties"], _product(item)
    processed = properties.get("s2:generation_time") or (product["processed"] if product else "")
    processed = re.sub(r"\D", "", str(processed))[:14]
    changed = str(properties.get("updated") or properties.get("created") or "")
    return baseline(item), processed, changed, _text(item)


def _text(item: Item) -> str:
    return json.dumps(item, sort_keys=True)


def _covers(newer: Item, older: Item) -> bool:
    """Whether two versions show the same ground; the two parts of a split granule hardly overlap."""
    new_area, old_area = footprint(newer), footprint(older)
    if new_area is None or old_area is None:
        return True
    shared = shift_near(new_area, old_area).intersection(old_area).area
    return bool(shared >= min(new_area.area, old_area.area) / 2)


def _superseded(item: Item, newer: Item) -> Dropped:
    old, new = baseline(item) or "unknown", baseline(newer) or "unknown"
    reason = f"baseline {new} instead of {old}" if old != new else "processed later"
    return {"id": item["id"], "reason": "superseded", "by": newer["id"], "why": reason}
