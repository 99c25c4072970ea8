"""What eopipe reads of a STAC Item, with types and limits: items of others are checked here, before any other use.

Fields of extensions that eopipe does not read are not checked, except that all of an item must be JSON: finite numbers
and text that can be written as UTF-8. Sources: STAC 1.1.0 and 1.0.0 and the extensions eo, file, projection, raster.
"""

import math
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from eopipe.documents import OPEN, Number, Text, invertible, number, whole


def _positive(value: Any) -> Any:
    if not 0 < whole(value) < 2**31:
        raise ValueError("write a number of pixels")
    return value


def _size(value: Any) -> Any:
    if not 0 <= whole(value) < 2**63:
        raise ValueError("write a number of bytes")
    return value


def _epsg(value: Any) -> Any:
    if not (isinstance(value, str) and value.isdigit()) and not 0 < whole(value) < 2**31:
        raise ValueError("write the number of the EPSG code, or null")
    return value


def _band_number(value: Any) -> Any:
    """A number of a band; the texts nan, inf and -inf are valid in STAC, and some providers write numbers as text."""
    if not isinstance(value, str):
        return number(value)
    try:
        float(value)
    except ValueError:
        raise ValueError('write a number, or "nan", "inf" or "-inf"') from None
    return value


def _scale(value: Any) -> Any:
    """A scale, by which every stored number gives another value."""
    if not math.isfinite(float(value)) or float(value) == 0:
        raise ValueError("write a scale that is not 0, or leave it out")
    return value


def _code(value: str) -> str:
    if not value.isprintable() or ":" not in value.strip(":"):
        raise ValueError("write an authority and a code, such as EPSG:32635, or null")
    return value


def _box(value: list[Any]) -> list[Any]:
    if len(value) not in (4, 6):
        raise ValueError("write four or six numbers")
    south, north = value[1], value[len(value) // 2 + 1]
    if not -90 <= south <= north <= 90:
        raise ValueError("write a south and a north from -90 to 90")
    return value


BandNumber = Annotated[Any, BeforeValidator(_band_number)]
Scale = Annotated[BandNumber, AfterValidator(_scale)]


class _Projected(BaseModel, **OPEN):
    """Fields of the projection extension, of a whole item or of an asset."""

    code: Annotated[str, AfterValidator(_code)] | None = Field(None, alias="proj:code")
    wkt2: str | None = Field(None, alias="proj:wkt2")
    epsg: Annotated[Any, BeforeValidator(_epsg)] | None = Field(None, alias="proj:epsg")
    transform: Annotated[list[Number], AfterValidator(invertible)] | None = Field(None, alias="proj:transform")
    shape: Annotated[list[Annotated[Any, BeforeValidator(_positive)]], Field(min_length=2, max_length=2)] | None = (
        Field(None, alias="proj:shape")
    )


class _Provider(BaseModel, **OPEN):
    name: str


class _Properties(_Projected):
    # By the extension eo, in percent.
    cloud_cover: Annotated[Number, Field(ge=0, le=100)] | None = Field(None, alias="eo:cloud_cover")
    datetime: str | None = None
    start_datetime: str | None = None
    end_datetime: str | None = None
    license: str | None = None
    providers: list[_Provider] | None = None


class _Band(BaseModel, **OPEN):
    scale: Scale | None = None
    offset: BandNumber | None = None
    nodata: BandNumber | None = None
    raster_scale: Scale | None = Field(None, alias="raster:scale")
    raster_offset: BandNumber | None = Field(None, alias="raster:offset")


class _Asset(_Projected, _Band):
    href: str
    size: Annotated[Any, BeforeValidator(_size)] | None = Field(None, alias="file:size")
    checksum: str | None = Field(None, alias="file:checksum")
    raster_bands: list[_Band] | None = Field(None, alias="raster:bands")
    bands: list[_Band] | None = None
    roles: list[str] | None = None


class _Link(BaseModel, **OPEN):
    rel: str
    href: str


class _Geometry(BaseModel, **OPEN):
    type: Literal[
        "Point", "MultiPoint", "LineString", "MultiLineString", "Polygon", "MultiPolygon", "GeometryCollection"
    ]


class StacItem(BaseModel, **OPEN):
    """What eopipe reads of a STAC Item."""

    id: Text
    type: Literal["Feature"] = "Feature"
    properties: _Properties
    geometry: _Geometry | None
    bbox: Annotated[list[Number], AfterValidator(_box)] | None = None
    collection: str | None = None
    stac_extensions: list[str] | None = None
    links: list[_Link] = []
    assets: dict[str, _Asset]


class StacCollection(BaseModel, **OPEN):
    """What items inherit of their STAC Collection."""

    license: str | None = None
    providers: list[_Provider] | None = None
    citation: str | None = Field(None, alias="sci:citation")
    doi: str | None = Field(None, alias="sci:doi")
    links: list[_Link] | None = None
