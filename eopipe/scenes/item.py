"""A scene as a STAC Item: its name, its time, its hrefs, its bands with scale, offset and nodata."""

import hashlib
import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from eopipe.errors import BadInputError, RefusedError
from eopipe.scenes.products import BandScaling, is_offset_applied, is_offset_unapplied, offset_doubt, product_scaling
from eopipe.text_files import read_json
from eopipe.tiles.grid import crs_of_fields

log = logging.getLogger("eopipe")
Item = dict[str, Any]
SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,119}")
ITEM_FILE = "scene.json"
# What an item states instead of `datetime`.
INTERVAL = ("start_datetime", "end_datetime")
# A band of an asset of several bands, by its number from 1.
BAND_OF_ASSET = re.compile(r"(.+)#([1-9]\d{0,3})")
# The most scenes whose names are in the header of a map.
LISTED_SCENES = 256
# What file systems hold, in bytes of a name and of a path.
MAX_NAME, MAX_PATH = 255, 4096
# What is written instead of the number of a CRS code that is not known.
UNKNOWN = ("", "none", "null", "nan", "unknown", "undefined")


@dataclass(frozen=True)
class StatedRaster:
    """What an item says of the raster of an asset, to be compared with its file; None and 0 where it says nothing."""

    crs: str | None
    transform: tuple[float, ...] | None
    shape: tuple[int, int] | None
    scaling: BandScaling = field(default_factory=BandScaling)
    band_count: int = 0


@dataclass(frozen=True)
class SceneBand:
    """One asset of a scene on disk: physical value = stored * scale + offset.

    `nodata` is what the item states; `product_nodata` is the product's, where neither item nor file state one.
    NaN means that every integer is a value. `unit` is the unit of the physical values and `stated` what else is said of
    the file, both by the item; None for a file without item. `doubt` says why the offset of stored integers is not
    known; empty where it is. `number` is the band's number in a file of several, from 1; None for the only one.
    """

    name: str
    path: Path
    scale: float
    offset: float
    nodata: float | None
    product_nodata: float | None = None
    stated: StatedRaster | None = None
    unit: str = ""
    doubt: str = ""
    number: int | None = None

    def nodata_value(self, in_file: float | None, dtype: np.dtype[Any], label: str) -> float | None:
        """The nodata value of pixels of a type, where the file states `in_file`: the item has priority.

        Raises BadInputError for a value that the pixels cannot have.
        """
        value = in_file if self.nodata is None else self.nodata
        if dtype.kind not in "iu":
            return self.product_nodata if value is None else value
        if value is None:
            return self.product_nodata if _can_be(dtype, self.product_nodata) else None
        if math.isnan(value):
            return None
        if not _can_be(dtype, value):
            raise BadInputError(f"{label} has nodata {value:g}, which its {dtype} pixels cannot hold; correct the item")
        return value


def _can_be(dtype: np.dtype[Any], value: float | None) -> bool:
    """Whether pixels of this integer type can have this value."""
    return value is not None and np.iinfo(dtype).min <= value <= np.iinfo(dtype).max and value == int(value)


def scene_name(item_id: str) -> str:
    """A file name for a scene: its id, or a cleaned id with a hash where the id is not a safe name."""
    if SAFE.fullmatch(item_id):
        return item_id
    clean = re.sub(r"[^A-Za-z0-9_-]+", "_", item_id).strip("_-")[:80]
    return f"{clean or 'scene'}-{hashlib.sha256(item_id.encode()).hexdigest()[:12]}"


def acquisition_time(properties: Mapping[str, Any]) -> datetime | None:
    """The moment (UTC) in properties of a STAC Item or attributes of a store; None where they state none.

    Raises ValueError for what is not a time.
    """
    stated = properties.get("datetime")
    first, last = (stated or properties.get(key) for key in INTERVAL)
    if not (first and last):
        return None
    start, end = (moment_of(str(text)) for text in (first, last))
    # Solar days and intervals around it have to exist too; catalogs write the last year for "no end".
    if not (datetime.min.year < start.year and end.year < datetime.max.year):
        raise ValueError(f"the year {start.year} or {end.year}")
    return (start + (end - start) / 2).astimezone(UTC)


def datetime_text(properties: Mapping[str, Any]) -> str | None:
    """`datetime` as it is stated, or the middle of the interval in UTC; None where there is neither.

    Raises ValueError for an interval without valid times.
    """
    if stated := properties.get("datetime"):
        return str(stated)
    time = acquisition_time(properties)
    return None if time is None else time.isoformat().replace("+00:00", "Z")


def day_text(properties: Mapping[str, Any]) -> str:
    """The day of an item or a store as its date in ISO 8601; empty without one."""
    return str(properties.get("datetime") or properties.get(INTERVAL[0]) or "")[:10]


def time_attributes(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The attributes of a store that say when: `datetime`, and the interval where that is its middle."""
    interval = {key: properties[key] for key in INTERVAL if properties.get(key) and not properties.get("datetime")}
    return {"datetime": datetime_text(properties)} | interval


def moment_of(text: str) -> datetime:
    """A time as in ISO 8601; UTC if it names no zone."""
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def safe_href(href: str, label: str) -> str:
    """Return a relative path, an http(s) or an s3 address; refuse everything that GDAL or a shell could abuse."""
    kind, path = scheme(href), PurePosixPath(href)
    is_plain = href.isprintable() and "<" not in href
    if is_plain and kind in ("http", "https", "s3") and re.fullmatch(r"\S+", urlsplit(href).hostname or ""):
        return href
    if not is_plain or kind or path.is_absolute() or ".." in path.parts:
        raise RefusedError(f"{label} points to {href[:80]!r}: only http(s), s3 and paths inside the catalog are read")
    if len(href.encode()) > MAX_PATH or any(len(name.encode()) > MAX_NAME for name in path.parts):
        raise BadInputError(f"{label} points to {href[:80]!r}…, which is too long for a file name")
    return path.as_posix()


def scheme(href: str) -> str:
    """The scheme of an address; empty for a path."""
    try:
        return urlsplit(href).scheme
    except ValueError:
        return "broken"


def as_item(value: Any, label: str) -> Item:
    """Return a value that is a STAC Item in all that eopipe reads of one, unchanged.

    Raises BadInputError with the item and its fields for any other.
    """
    from eopipe.documents import mistakes
    from eopipe.scenes.item_schema import StacItem

    if sentences := mistakes(StacItem, value):
        name = value.get("id") if isinstance(value, dict) else None
        scene = f"scene {name[:80]!r}: " if isinstance(name, str) else ""
        raise BadInputError(f"{label} is not a STAC Item: {scene}{'; '.join(sentences)}")
    return dict(value)


def as_collection(value: Any, label: str) -> dict[str, Any]:
    """Return a value that is a STAC Collection in all that its items inherit, unchanged.

    Raises BadInputError with its fields for any other.
    """
    from eopipe.documents import checked
    from eopipe.scenes.item_schema import StacCollection

    return dict(checked(StacCollection, value, label, "a STAC Collection"))


def read_item(path: Path) -> Item:
    """A STAC Item from its file."""
    return as_item(read_json(path), str(path))


def read_scene(folder: Path) -> Item:
    """The STAC Item of a fetched scene."""
    return read_item(folder / ITEM_FILE)


def bands(folder: Path, item: Item, names: tuple[str, ...], offset: float | None = None) -> list[SceneBand]:
    """The named bands of a fetched scene, in this order; `offset` replaces an offset that is in doubt.

    Raises BadInputError that names all missing ones.
    """
    missing = [name for name in names if asset_key(name) not in item["assets"]]
    if missing:
        raise BadInputError(
            f"scene {item['id']} has no band {', '.join(missing)}; it has {', '.join(sorted(item['assets']))}"
        )
    return [_band(folder, item, name, offset) for name in names]


def _band(folder: Path, item: Item, name: str, offset_in_doubt: float | None) -> SceneBand:
    key, number = asset_key(name), band_number(name)
    asset, label = item["assets"][key], f"scene {item['id']}, asset {name}"
    stated = stated_scaling(asset, label, number or 1)
    product, doubt = product_scaling(item, key), offset_doubt(item, key, stated)
    states_neither = stated.scale is None and stated.offset is None
    if doubt and offset_in_doubt is not None:
        stated, doubt = replace(stated, scale=stated.scale or product.scale, offset=offset_in_doubt), ""
    elif doubt and states_neither:
        # Only integers are refused; what floating-point pixels of unknown processing hold is read as it is.
        product = BandScaling()
    elif states_neither or (stated.offset is None and stated.scale == product.scale and is_offset_unapplied(item)):
        stated = replace(stated, scale=product.scale, offset=product.offset)
    # The offset may have been removed from the pixels already; items that still state it would apply it twice.
    offset = 0.0 if is_offset_applied(item) else stated.offset or 0.0
    scale = 1.0 if stated.scale is None else stated.scale
    path, unit = folder / safe_href(asset["href"], label), _stated_unit(asset, number or 1)
    raster = stated_raster(item, name)
    return SceneBand(name, path, scale, offset, stated.nodata, product.nodata, raster, unit, doubt, number)


def asset_key(name: str) -> str:
    """The key of the asset of a band: visual of visual#2, and of visual."""
    match = BAND_OF_ASSET.fullmatch(name)
    return match[1] if match else name


def band_number(name: str) -> int | None:
    """The number of a band in its asset: 2 of visual#2; None where only the asset is named."""
    match = BAND_OF_ASSET.fullmatch(name)
    return int(match[2]) if match else None


def _stated_band(asset: Item, number: int) -> Item:
    """What an item says of a band of an asset; of the first, where it does not describe as many."""
    bands_of_asset = asset.get("raster:bands") or asset.get("bands") or [{}]
    band: Item = bands_of_asset[number - 1 if number <= len(bands_of_asset) else 0]
    return band


def _stated_unit(asset: Item, number: int) -> str:
    """The unit of a band in STAC 1.0 and 1.1; empty if it is not stated."""
    band = _stated_band(asset, number)
    return str(next((holder[key] for holder in (band, asset) for key in ("unit", "raster:unit") if key in holder), ""))


def stated_scaling(asset: Item, label: str, number: int = 1) -> BandScaling:
    """What the item says of a band: STAC 1.0 and 1.1 keep it in lists, 1.1 also on the asset itself.

    Raises BadInputError for what is not a number.
    """
    band = _stated_band(asset, number)
    keys = ("scale", "offset", "nodata")
    values = {k: band.get(k, band.get(f"raster:{k}", asset.get(k, asset.get(f"raster:{k}")))) for k in keys}
    try:
        # The texts nan, inf and -inf are valid in STAC.
        return BandScaling(**{k: None if v is None else float(v) for k, v in values.items()})
    except (TypeError, ValueError) as error:
        raise BadInputError(f"{label} has a scale, offset or nodata that is not a number: {values}") from error


def file_scaling(source: Any, number: int = 1) -> tuple[float, float]:
    """Scale and offset of a band in an open file. Raises BadInputError for a scale that makes all numbers the same."""
    scale, offset = source.scales[number - 1], source.offsets[number - 1]
    if not math.isfinite(scale) or scale == 0:
        raise BadInputError(f"{Path(source.name).name} has the scale {scale:g}; correct it, or remove it from the file")
    return scale, offset


def stated_raster(item: Item, name: str) -> StatedRaster:
    """What the item says of the raster of an asset, or of one of its bands."""
    key = asset_key(name)
    asset = item["assets"][key]
    crs, transform, shape = asset_projection(item, key)
    count = max(len(asset.get(field_name) or ()) for field_name in ("raster:bands", "bands"))
    return StatedRaster(
        crs,
        tuple(transform[:6]) if transform else None,
        (shape[0], shape[1]) if shape else None,
        stated_scaling(asset, f"scene {item['id']}, asset {name}", band_number(name) or 1),
        count,
    )


def asset_projection(item: Item, asset: str) -> tuple[str | None, list[float] | None, list[int] | None]:
    """CRS, affine transform and shape of an asset, where the item states them."""
    values = item["properties"] | item["assets"][asset]
    code = crs_of_fields(values)
    # Written by programs that format a code which they do not know.
    if code is not None and code.rpartition(":")[2].strip().lower() in UNKNOWN:
        code = None
    if code is None and values.get("proj:epsg"):
        code = f"EPSG:{int(values['proj:epsg'])}"
    shape = values.get("proj:shape")
    return code, _in_order(values.get("proj:transform"), item["id"]), [int(edge) for edge in shape] if shape else None


def _in_order(transform: list[float] | None, item: str) -> list[float] | None:
    """The numbers of an affine transform in the order of STAC.

    `gdalinfo -json` writes them in the order of GDAL, the origin first (https://github.com/OSGeo/gdal/issues/13358). In
    the order of STAC such numbers would be a shear without a pixel height, which no raster is.
    """
    if not transform or len(transform) != 6 or any((transform[2], transform[4])) or not transform[0]:
        return transform
    _warn_of_order(item)
    x, a, b, y, d, e = transform
    return [a, b, x, d, e, y]


@cache
def _warn_of_order(item: str) -> None:
    log.warning("event=transform_in_order_of_gdal item=%r field=proj:transform", item)


def scene_tags(names: Sequence[str]) -> dict[str, str]:
    """The tags of a map that identify its scenes: their names, or, of more than 256, their number and a digest.

    The header of a cloud-optimised file is read before every access, so it has to stay small.
    """
    if len(names) <= LISTED_SCENES:
        return {"scenes": " ".join(names)}
    return {"scene_count": str(len(names)), "scenes_sha256": _digest_of(names)}


def tagged_scenes(tags: dict[str, str], candidates: Sequence[str]) -> list[str]:
    """The scenes of a map by its tags; where those have a digest only, the candidates if it is theirs, else none."""
    if checksum := tags.get("scenes_sha256"):
        return [*candidates] if checksum == _digest_of(candidates) else []
    return tags.get("scenes", "").split()


def _digest_of(names: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()
