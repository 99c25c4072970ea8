"""One scene under several names: of each, the newest processing is kept.

Agencies reprocess their archives. Sentinel-2 scenes then appear again under another id with a higher
processing baseline (N0500 after N0301) and other radiometry; both together would count the same sky twice.
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
    r"(?:_N(?P<baseline>\d{4}))?_R\d{3}_T(?P<tile>\d\d[A-Z]{3})_(?P<processed>\d{8}T\d{6})"
)
DATATAKE = re.compile(r"G(?P<platform>S2[A-D])_(?P<start>\d{8}T\d{6})_\d+_N(?P<baseline>\d\d\.\d\d)")
Dropped = dict[str, Any]


def newest(items: list[Item]) -> tuple[list[Item], list[Dropped]]:
    """The newest version of each scene, and the others with the reason; the order of the list does not matter."""
    unique, dropped = _without_copies(items)
    chosen: list[Item] = []
    for group in _by_acquisition(unique):
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


def _by_acquisition(items: list[Item]) -> list[list[Item]]:
    groups: dict[Any, list[Item]] = {}
    for item in items:
        groups.setdefault(_acquisition(item) or item["id"], []).append(item)
    return list(groups.values())


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
