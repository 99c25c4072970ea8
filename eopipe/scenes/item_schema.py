"""What eopipe reads of a STAC Item, with types and limits: items of others are checked here, before any other use.

Fields of extensions that eopipe does not read are not checked, except that all of an item must be JSON: finite numbers
and text that can be written as UTF-8. Sources: STAC 1.1.0 and 1.0.0 and the extensions eo, file, projection, raster.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

# Levels of lists and objects: geometries have four, and metadata that providers nest a few more.
MAX_DEPTH = 60
# Sentences of one message, and letters of a wrong value in it.
MAX_SENTENCES, MAX_VALUE = 3, 60
OPEN = ConfigDict(extra="allow", strict=True)
EXPECTED = {
    "missing": "it is needed",
    "string_type": "write text",
    "string_too_short": "write some text",
    "list_type": "write a list",
    "dict_type": "write an object",
    "model_type": "write an object",
    "model_attributes_type": "write an object",
}


def _number(value: Any) -> Any:
    """A number; booleans and texts are none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("write a number")
    return value


def _whole(value: Any) -> Any:
    """A whole number, also as 10980.0, as some providers write it."""
    if _number(value) != int(value):
        raise ValueError("write a whole number")
    return value


def _positive(value: Any) -> Any:
    if not 0 < _whole(value) < 2**31:
        raise ValueError("write a number of pixels")
    return value


def _size(value: Any) -> Any:
    if not 0 <= _whole(value) < 2**63:
        raise ValueError("write a number of bytes")
    return value


def _epsg(value: Any) -> Any:
    if not (isinstance(value, str) and value.isdigit()) and not 0 < _whole(value) < 2**31:
        raise ValueError("write the number of the EPSG code, or null")
    return value


def _band_number(value: Any) -> Any:
    """A number of a band; the texts nan, inf and -inf are valid in STAC, and some providers write numbers as text."""
    if not isinstance(value, str):
        return _number(value)
    try:
        float(value)
    except ValueError:
        raise ValueError('write a number, or "nan", "inf" or "-inf"') from None
    return value


def _invertible(value: list[Any]) -> list[Any]:
    if len(value) not in (6, 9):
        raise ValueError("write the six or nine numbers of an affine transform")
    a, b, _, d, e, _ = value[:6]
    if not math.isfinite(a * e - b * d) or a * e == b * d:
        raise ValueError("write the numbers of an affine transform that can be inverted")
    return value


def _code(value: str) -> str:
    if not value.isprintable() or ":" not in value.strip(":"):
        raise ValueError("write an authority and a code, such as EPSG:32635, or null")
    return value


def _box(value: list[Any]) -> list[Any]:
    if len(value) not in (4, 6):
        raise ValueError("write four or six numbers")
    return value


Number = Annotated[Any, BeforeValidator(_number)]
BandNumber = Annotated[Any, BeforeValidator(_band_number)]
Text = Annotated[str, Field(min_length=1)]


class _Projected(BaseModel):
    """Fields of the projection extension, of a whole item or of an asset."""

    model_config = OPEN

    code: Annotated[str, AfterValidator(_code)] | None = Field(None, alias="proj:code")
    epsg: Annotated[Any, BeforeValidator(_epsg)] | None = Field(None, alias="proj:epsg")
    transform: Annotated[list[Number], AfterValidator(_invertible)] | None = Field(None, alias="proj:transform")
    shape: Annotated[list[Annotated[Any, BeforeValidator(_positive)]], Field(min_length=2, max_length=2)] | None = (
        Field(None, alias="proj:shape")
    )


class _Provider(BaseModel):
    model_config = OPEN

    name: str


class _Properties(_Projected):
    datetime: str | None = None
    start_datetime: str | None = None
    end_datetime: str | None = None
    license: str | None = None
    providers: list[_Provider] | None = None


class _Band(BaseModel):
    model_config = OPEN

    scale: BandNumber | None = None
    offset: BandNumber | None = None
    nodata: BandNumber | None = None
    raster_scale: BandNumber | None = Field(None, alias="raster:scale")
    raster_offset: BandNumber | None = Field(None, alias="raster:offset")


class _Asset(_Projected, _Band):
    href: str
    size: Annotated[Any, BeforeValidator(_size)] | None = Field(None, alias="file:size")
    checksum: str | None = Field(None, alias="file:checksum")
    raster_bands: list[_Band] | None = Field(None, alias="raster:bands")
    bands: list[_Band] | None = None
    roles: list[str] | None = None


class _Link(BaseModel):
    model_config = OPEN

    rel: str
    href: str


class _Geometry(BaseModel):
    model_config = OPEN

    type: Literal[
        "Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon", "GeometryCollection"
    ]


class _Item(BaseModel):
    model_config = OPEN

    id: Text
    type: Literal["Feature"] = "Feature"
    properties: _Properties
    geometry: _Geometry | None
    bbox: Annotated[list[Number], AfterValidator(_box)] | None = None
    collection: str | None = None
    stac_extensions: list[str] | None = None
    links: list[_Link] = []
    assets: dict[str, _Asset]


def item_mistakes(value: Any) -> list[str]:
    """What of a value is not as in a STAC Item, each with its field; empty for an Item."""
    try:
        mistakes = list(_not_json(value))
        if not mistakes:
            _Item.model_validate(value)
    except ValidationError as error:
        mistakes = list(dict.fromkeys(_sentence(row) for row in error.errors(include_url=False)))
    more = len(mistakes) - MAX_SENTENCES
    return mistakes[:MAX_SENTENCES] + ([f"and {more} more"] if more > 0 else [])


def _not_json(value: Any) -> Iterator[str]:
    """Numbers and texts that JSON does not have, though Python reads and writes them."""
    pending: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while pending:
        path, entry = pending.pop()
        if len(path) > MAX_DEPTH:
            yield f"{_name(path[:3])} is nested in more than {MAX_DEPTH} levels"
            return
        if isinstance(entry, dict):
            for key in entry:
                if not _is_unicode(key):
                    yield f"{_name(path)} has the key {key!r}: it is not Unicode text"
            pending += [((*path, key), inner) for key, inner in entry.items()]
        elif isinstance(entry, list):
            pending += [((*path, number), inner) for number, inner in enumerate(entry)]
        elif isinstance(entry, str) and not _is_unicode(entry):
            yield f"{_name(path)} is {entry[:MAX_VALUE]!r}: it is not Unicode text"
        elif isinstance(entry, float) and not math.isfinite(entry):
            yield f"{_name(path)} is {entry}, which JSON does not have; write null, or the text {str(entry)!r}"
        elif isinstance(entry, int) and abs(entry) >= 10**300:
            yield f"{_name(path)} is too large a number"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sentence(error: Any) -> str:
    # The names that pydantic gives to the alternatives of a field are not part of its path.
    path = [part for part in error["loc"] if not str(part).startswith(("function-", "list[", "constrained-"))]
    if error["type"] == "missing":
        return f"{_name(path)} is missing"
    value = repr(error["input"])
    excerpt = value if len(value) <= MAX_VALUE else f"{value[:MAX_VALUE]}…"
    # An address may have a signature.
    excerpt = "an address" if "://" in value else excerpt
    message = str(error.get("ctx", {}).get("error", "")) or EXPECTED.get(error["type"]) or error["msg"].lower()
    return f"{_name(path)} is {excerpt}: {message}"


def _name(path: Any) -> str:
    return ".".join(str(part).encode("utf-8", "replace").decode() for part in path) or "it"
