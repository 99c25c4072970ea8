"""One scene under several names: of each, the newest processing stays.

Agencies reprocess their archives. Sentinel-2 scenes then appear again under another id with a higher
processing baseline (N0500 after N0301) and other radiometry; both at once would count the same sky twice.
"""

import json
import re
from typing import Any

from eopipe.scenes.item import Item, scene_name
from eopipe.stac.antimeridian import shift_near
from eopipe.stac.query import footprint

# Sentinel-2 product names: https://sentiwiki.copernicus.eu/web/s2-products
PRODUCT = re.compile(
    r"(?P<platform>S2[A-D])_MSI(?P<level>L\d[A-C])_(?P<start>\d{8}T\d{6})"
    r"(?:_N(?P<baseline>\d{4}))?_R\d{3}_T(?P<tile>\d\d[A-Z]{3})_(?P<made>\d{8}T\d{6})"
)
TAKE = re.compile(r"G(?P<platform>S2[A-D])_(?P<start>\d{8}T\d{6})_\d+_N(?P<baseline>\d\d\.\d\d)")
Dropped = dict[str, Any]


def newest(items: list[Item]) -> tuple[list[Item], list[Dropped]]:
    """The newest version of each scene, and the others with the reason; the order of the list does not matter."""
    alone, first = _without_copies(items)
    kept: list[Item] = []
    dropped = list(first)
    for group in _grouped(alone):
        stay: list[Item] = []
        for item in sorted(group, key=_age, reverse=True):
            better = next((other for other in stay if _covers(other, item)), None)
            if better is None:
                stay.append(item)
            else:
                dropped.append(_superseded(item, better))
        kept += stay
    return kept, dropped


def _without_copies(items: list[Item]) -> tuple[list[Item], list[Dropped]]:
    """One item a name; of copies that differ the one that was updated last."""
    unique: dict[str, Item] = {}
    dropped: dict[str, Dropped] = {}
    for item in sorted(items, key=_age, reverse=True):
        stays = unique.setdefault(scene_name(item["id"]), item)
        if stays != item:
            # Equal copies are how a server pages, not what it holds.
            when = item["properties"].get("updated")
            dropped[_text(item)] = {"id": item["id"], "reason": "duplicate", "updated": when}
    return list(unique.values()), list(dropped.values())


def _grouped(items: list[Item]) -> list[list[Item]]:
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(_taken(item) or item["id"], []).append(item)
    return list(groups.values())


def _taken(item: Item) -> tuple[str, ...] | None:
    """What all versions of a Sentinel-2 scene have in common: satellite, level, moment and tile."""
    told, name = item["properties"], _product(item)
    if name:
        return name["platform"], name["level"], name["start"], name["tile"]
    take = TAKE.fullmatch(str(told.get("s2:datatake_id") or told.get("eopf:datatake_id") or ""))
    tile = _tile(told)
    if not (take and tile):
        return None
    level = str(told.get("s2:product_type") or "S2MSI2A").removeprefix("S2MSI")
    return take["platform"], f"L{level}", take["start"], tile


def _product(item: Item) -> "re.Match[str] | None":
    """The product's name, as the item or its id tells it."""
    return PRODUCT.search(str(item["properties"].get("s2:product_uri") or "")) or PRODUCT.search(item["id"])


def _tile(told: dict[str, Any]) -> str:
    named = told.get("s2:mgrs_tile") or told.get("grid:code")
    if named:
        return str(named).removeprefix("MGRS-").removeprefix("T").zfill(5)
    return "".join(str(told.get(f"mgrs:{part}") or "") for part in ("utm_zone", "latitude_band", "grid_square"))


def baseline(item: Item) -> str:
    """Processing baseline of a Sentinel-2 scene as 05.09; nothing where it tells none."""
    told, name = item["properties"], _product(item)
    stated = told.get("s2:processing_baseline") or told.get("processing:version")
    if stated:
        return str(stated).zfill(5)
    number = name["baseline"] if name else None
    return f"{number[:2]}.{number[2:]}" if number else ""


def _age(item: Item) -> tuple[str, ...]:
    """What sorts versions of a scene, the newest last; the text itself at the end, so that no order is left open."""
    told, name = item["properties"], _product(item)
    made = told.get("s2:generation_time") or (name["made"] if name else "")
    made = re.sub(r"\D", "", str(made))[:14]
    changed = str(told.get("updated") or told.get("created") or "")
    return baseline(item), made, changed, _text(item)


def _text(item: Item) -> str:
    return json.dumps(item, sort_keys=True)


def _covers(newer: Item, older: Item) -> bool:
    """Whether two versions show the same ground; the two parts of a split granule hardly overlap."""
    one, other = footprint(newer), footprint(older)
    if one is None or other is None:
        return True
    shared = shift_near(one, other).intersection(other).area
    return bool(shared >= min(one.area, other.area) / 2)


def _superseded(item: Item, better: Item) -> Dropped:
    old, new = baseline(item) or "unknown", baseline(better) or "unknown"
    why = f"baseline {new} instead of {old}" if old != new else "processed later"
    return {"id": item["id"], "reason": "superseded", "by": better["id"], "why": why}
