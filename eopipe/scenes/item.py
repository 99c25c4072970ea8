"""A scene as a STAC Item: its name, its bands, and what a stored number of a band means."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from eopipe.errors import BadInputError, RefusedError
from eopipe.publish import read_json

Item = dict[str, Any]
SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,119}")
ITEM_FILE = "scene.json"


@dataclass(frozen=True)
class Band:
    """One asset of a scene on disk: physical value = stored * scale + offset; `nodata` is no value."""

    name: str
    path: Path
    scale: float
    offset: float
    nodata: float | None


def scene_name(item_id: str) -> str:
    """A file name for a scene: its id, or a cleaned id with a hash where the id is no safe name."""
    if SAFE.fullmatch(item_id):
        return item_id
    clean = re.sub(r"[^A-Za-z0-9_-]+", "_", item_id).strip("_")[:80]
    return f"{clean or 'scene'}-{hashlib.sha256(item_id.encode()).hexdigest()[:12]}"


def safe_href(href: str, where: str) -> str:
    """Return a relative path or an http(s) URL; refuse everything that GDAL or a shell could abuse."""
    parts = urlsplit(href)
    if parts.scheme in ("http", "https") and parts.hostname:
        return href
    path = PurePosixPath(href)
    bad = parts.scheme or path.is_absolute() or ".." in path.parts
    if bad or "<" in href or not href.isprintable():
        raise RefusedError(
            f"{where} points to {href[:80]!r}: only http(s) and paths inside the catalog are read"
        )
    return path.as_posix()


def read_scene(folder: Path) -> Item:
    """The STAC Item of a fetched scene."""
    item: Item = read_json(folder / ITEM_FILE)
    return item


def bands(folder: Path, item: Item, names: tuple[str, ...]) -> list[Band]:
    """The named bands of a fetched scene, in this order; all that are missing are named at once."""
    missing = [name for name in names if name not in item["assets"]]
    if missing:
        raise BadInputError(
            f"scene {item['id']} has no band {', '.join(missing)}; it has {', '.join(sorted(item['assets']))}"
        )
    return [_band(folder, item, name) for name in names]


def _band(folder: Path, item: Item, name: str) -> Band:
    asset = item["assets"][name]
    told = (asset.get("raster:bands") or asset.get("bands") or [{}])[0]
    # STAC 1.1 allows the values on the asset itself.
    value = {k: told.get(k, asset.get(k, asset.get(f"raster:{k}"))) for k in ("scale", "offset", "nodata")}
    scale, offset = value["scale"], value["offset"]
    if item["properties"].get("earthsearch:boa_offset_applied"):
        # The offset is taken out of the pixels already; items that still state it would apply it twice.
        offset = 0.0
    nodata = value["nodata"]
    return Band(
        name=name,
        path=folder / safe_href(asset["href"], f"scene {item['id']}, asset {name}"),
        scale=1.0 if scale is None else float(scale),
        offset=0.0 if offset is None else float(offset),
        nodata=None if nodata is None else float(nodata),
    )


def place(item: Item, asset: str) -> tuple[str | None, list[float] | None, list[int] | None]:
    """CRS, affine transform and shape of an asset, where the item tells them."""
    values = item["properties"] | item["assets"][asset]
    code = values.get("proj:code")
    if code is None and values.get("proj:epsg"):
        code = f"EPSG:{values['proj:epsg']}"
    return code, values.get("proj:transform"), values.get("proj:shape")
