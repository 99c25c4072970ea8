"""From what a catalog holds to the frozen list: filtered, one version each, the best, sorted and unsigned."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from eopipe.errors import BadInputError
from eopipe.publish import sha256, write_json
from eopipe.scenes.item import Item, safe_href, scene_name
from eopipe.stac.query import Query, cloud_cover
from eopipe.stac.ranking import Best, solar_day
from eopipe.stac.redact import unsigned
from eopipe.stac.versions import Dropped, newest

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
        kept[name] = asset | {"href": unsigned(href)}
    links = [link for link in item.get("links", []) if _is_kept(link)]
    opened: Item = _unsigned(item | {"assets": kept, "links": links})
    return opened


def _unsigned(value: Any) -> Any:
    """The same without the signatures of its addresses, wherever an extension puts them."""
    if isinstance(value, dict):
        return {key: _unsigned(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_unsigned(one) for one in value]
    return unsigned(value) if isinstance(value, str) and value.startswith(("http://", "https://")) else value


def _is_kept(link: dict[str, Any]) -> bool:
    """Links that say where a scene comes from and under which licence; a path of this machine does not."""
    return link.get("rel") in LINKS and urlsplit(str(link.get("href"))).scheme in ("http", "https")
