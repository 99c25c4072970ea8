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
    clean = re.sub(r"[^A-Za-z0-9_-]+", "_", item_id).strip("_-")[:80]
    return f"{clean or 'scene'}-{hashlib.sha256(item_id.encode()).hexdigest()[:12]}"


def safe_href(href: str, where: str) -> str:
    """Return a relative path or an http(s) address; refuse everything that GDAL or a shell could abuse."""
    kind, path = scheme(href), PurePosixPath(href)
    bad = "<" in href or not href.isprintable()
    if not bad and kind in ("http", "https") and urlsplit(href).hostname:
        return href
    if bad or kind or path.is_absolute() or ".." in path.parts:
        raise RefusedError(f"{where} points to {href[:80]!r}: only http(s) and paths inside the catalog are read")
    return path.as_posix()


def scheme(href: str) -> str:
    """The scheme of an address; empty for a path."""
    try:
        return urlsplit(href).scheme
    except ValueError:
        return "broken"


def checked(value: Any, where: str) -> Item:
    """Return a value that is a STAC Item with all that eopipe reads of one."""
    try:
        proper = (
            isinstance(value["id"], str)
            and isinstance(value["properties"], dict)
            and isinstance(value["geometry"], dict | None)
            and all(isinstance(asset["href"], str) for asset in value["assets"].values())
        )
    except (AttributeError, KeyError, TypeError):
        proper = False
    if not proper:
        raise BadInputError(f"{where} is not a STAC Item: it needs id, geometry, properties and assets with hrefs")
    return dict(value)


def read_item(path: Path) -> Item:
    """A STAC Item from its file."""
    return checked(read_json(path), str(path))


def read_scene(folder: Path) -> Item:
    """The STAC Item of a fetched scene."""
    return read_item(folder / ITEM_FILE)


def bands(folder: Path, item: Item, names: tuple[str, ...]) -> list[Band]:
    """The named bands of a fetched scene, in this order; all that are missing are named at once."""
    missing = [name for name in names if name not in item["assets"]]
    if missing:
        raise BadInputError(
            f"scene {item['id']} has no band {', '.join(missing)}; it has {', '.join(sorted(item['assets']))}"
        )
    return [_band(folder, item, name) for name in names]


def _band(folder: Path, item: Item, name: str) -> Band:
    asset, where = item["assets"][name], f"scene {item['id']}, asset {name}"
    told = (asset.get("raster:bands") or asset.get("bands") or [{}])[0]
    # STAC 1.1 allows the values on the asset itself.
    value = {k: told.get(k, asset.get(k, asset.get(f"raster:{k}"))) for k in ("scale", "offset", "nodata")}
    try:
        scale, offset, nodata = (None if v is None else float(v) for v in value.values())
    except (TypeError, ValueError) as error:
        raise BadInputError(f"{where} has scale, offset or nodata that is no number: {value}") from error
    scale, offset = _radiometry(item["properties"], scale, offset)
    return Band(name, folder / safe_href(asset["href"], where), scale, offset, nodata)


def _radiometry(told: dict[str, Any], scale: float | None, offset: float | None) -> tuple[float, float]:
    """Scale and offset of a band, with what the history of Sentinel-2 products demands."""
    baseline = told.get("s2:processing_baseline")
    if scale is None and offset is None and baseline:
        # ESA products state neither; since baseline 04.00 numbers are shifted by 1000.
        scale, offset = 1e-4, -0.1 if str(baseline) >= "04.00" else 0.0
    if told.get("earthsearch:boa_offset_applied") or told.get("sentinel:boa_offset_applied"):
        # The offset is taken out of the pixels already; items that still state it would apply it twice.
        offset = 0.0
    return 1.0 if scale is None else scale, offset or 0.0


def place(item: Item, asset: str) -> tuple[str | None, list[float] | None, list[int] | None]:
    """CRS, affine transform and shape of an asset, where the item tells them."""
    values = item["properties"] | item["assets"][asset]
    code = values.get("proj:code")
    if code is None and values.get("proj:epsg"):
        code = f"EPSG:{values['proj:epsg']}"
    return code, values.get("proj:transform"), values.get("proj:shape")
