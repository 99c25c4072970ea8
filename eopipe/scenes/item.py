"""A scene as a STAC Item: its name, its bands, and what a stored number of a band means."""

import hashlib
import math
import re
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from eopipe.errors import BadInputError, RefusedError
from eopipe.publish import read_json
from eopipe.scenes.radiometry import BandScaling, is_offset_applied, product_scaling

Item = dict[str, Any]
SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,119}")
ITEM_FILE = "scene.json"


@dataclass(frozen=True)
class SceneBand:
    """One asset of a scene on disk: physical value = stored * scale + offset.

    `nodata` is no value, as the item says; `product_nodata` is the product's, where neither item nor file say one.
    NaN means that every whole number is a value. `crs` is the item's word on the CRS of the file.
    """

    name: str
    path: Path
    scale: float
    offset: float
    nodata: float | None
    product_nodata: float | None = None
    crs: str | None = None

    def nodata_value(self, stated: float | None, kind: np.dtype[Any], where: str) -> float | None:
        """The number that is no data, where the file states this one: the item's word counts most.

        Raises BadInputError for a number that the pixels cannot hold.
        """
        value = stated if self.nodata is None else self.nodata
        if kind.kind not in "iu":
            return self.product_nodata if value is None else value
        if value is None:
            return self.product_nodata if _holds(kind, self.product_nodata) else None
        if math.isnan(value):
            return None
        if not _holds(kind, value):
            raise BadInputError(f"{where} has nodata {value:g}, which its {kind} pixels cannot hold; correct the item")
        return value

    def check_crs(self, found: int | None, where: str) -> None:
        """Compare the EPSG code of the file with the item's; raise BadInputError where they contradict."""
        told = (self.crs or "").upper()
        if found and told.startswith("EPSG:") and told != f"EPSG:{found}":
            raise BadInputError(
                f"{where} lies in EPSG:{found} as {self.path.name} says, but in {self.crs} as the item says; "
                "correct the one that is wrong"
            )


def _holds(kind: np.dtype[Any], value: float | None) -> bool:
    """Whether pixels of this kind of whole numbers can be this value."""
    return value is not None and np.iinfo(kind).min <= value <= np.iinfo(kind).max and value == int(value)


def scene_name(item_id: str) -> str:
    """A file name for a scene: its id, or a cleaned id with a hash where the id is no safe name."""
    if SAFE.fullmatch(item_id):
        return item_id
    clean = re.sub(r"[^A-Za-z0-9_-]+", "_", item_id).strip("_-")[:80]
    return f"{clean or 'scene'}-{hashlib.sha256(item_id.encode()).hexdigest()[:12]}"


def safe_href(href: str, where: str) -> str:
    """Return a relative path, an http(s) or an s3 address; refuse everything that GDAL or a shell could abuse."""
    kind, path = scheme(href), PurePosixPath(href)
    bad = "<" in href or not href.isprintable()
    if not bad and kind in ("http", "https", "s3") and urlsplit(href).hostname:
        return href
    if bad or kind or path.is_absolute() or ".." in path.parts:
        raise RefusedError(f"{where} points to {href[:80]!r}: only http(s), s3 and paths inside the catalog are read")
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


def bands(folder: Path, item: Item, names: tuple[str, ...]) -> list[SceneBand]:
    """The named bands of a fetched scene, in this order; all that are missing are named at once."""
    missing = [name for name in names if name not in item["assets"]]
    if missing:
        raise BadInputError(
            f"scene {item['id']} has no band {', '.join(missing)}; it has {', '.join(sorted(item['assets']))}"
        )
    return [_band(folder, item, name) for name in names]


def _band(folder: Path, item: Item, name: str) -> SceneBand:
    asset, where = item["assets"][name], f"scene {item['id']}, asset {name}"
    stated = _stated(asset, where)
    known = product_scaling(item, name)
    if stated.scale is None and stated.offset is None:
        stated = replace(stated, scale=known.scale, offset=known.offset)
    # The offset may be taken out of the pixels already; items that still state it would apply it twice.
    offset = 0.0 if is_offset_applied(item) else stated.offset or 0.0
    scale = 1.0 if stated.scale is None else stated.scale
    crs = place(item, name)[0]
    return SceneBand(name, folder / safe_href(asset["href"], where), scale, offset, stated.nodata, known.nodata, crs)


def _stated(asset: Item, where: str) -> BandScaling:
    """What the item says of a band: STAC 1.0 and 1.1 keep it in lists, 1.1 also on the asset itself."""
    told = (asset.get("raster:bands") or asset.get("bands") or [{}])[0]
    keys = ("scale", "offset", "nodata")
    found = {k: told.get(k, told.get(f"raster:{k}", asset.get(k, asset.get(f"raster:{k}")))) for k in keys}
    try:
        # The words nan, inf and -inf are legal in STAC.
        return BandScaling(**{k: None if v is None else float(v) for k, v in found.items()})
    except (TypeError, ValueError) as error:
        raise BadInputError(f"{where} has scale, offset or nodata that is no number: {found}") from error


def place(item: Item, asset: str) -> tuple[str | None, list[float] | None, list[int] | None]:
    """CRS, affine transform and shape of an asset, where the item tells them."""
    values = item["properties"] | item["assets"][asset]
    code = values.get("proj:code")
    if code is None and values.get("proj:epsg"):
        code = f"EPSG:{values['proj:epsg']}"
    return code, values.get("proj:transform"), values.get("proj:shape")
