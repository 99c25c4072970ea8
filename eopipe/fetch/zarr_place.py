"""Zarr stores of assets: in a catalog on disk, on a web server, or in a bucket; and the place of an array of one.

Their files are read through the requests of this package. How STAC describes them:
https://github.com/radiantearth/stac-best-practices (best-practices-zarr.md), and the items of the EOPF Sentinel Zarr
Samples, whose assets are single arrays. What states CRS and affine transform, in this order: attributes `proj:` and
`spatial:` of the array (EOPF products, GeoZarr conventions), the CF grid mapping and coordinate arrays (CF 1.11,
sections 4 and 5.6), the groups above (`proj:`, and `other_metadata` and `stac_discovery` of EOPF products), the STAC
Item.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Annotated, Any
from urllib.parse import urlsplit

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, Field

from eopipe.documents import OPEN, Number, checked, whole
from eopipe.errors import BadInputError, EopipeError, IntegrityError
from eopipe.scenes.item import StatedRaster, scheme

MEDIA_TYPE = re.compile(r"application/(vnd[.+]|x-)?zarr\b")
RASTERS = (".tif", ".tiff", ".jp2")
# Names of the files of a store that describe its nodes; all others are chunks.
METADATA = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
X_NAMES, Y_NAMES = ("x", "lon", "longitude", "easting"), ("y", "lat", "latitude", "northing")
CRS_KEYS = ("proj:code", "proj:epsg", "proj:wkt2", "proj:projjson", "horizontal_CRS_code", "horizontal_crs_code")
# How far a pixel centre may be from an even spacing, in pixels.
EVEN = 1e-2
MAX_AXIS = 1 << 20


def is_zarr(asset: dict[str, Any]) -> bool:
    """Whether an asset is a Zarr store or a part of one, by its media type or its address."""
    if MEDIA_TYPE.match(str(asset.get("type") or "").lower()):
        return True
    href = str(asset["href"])
    is_store = bool(store_and_path(href))
    return not asset.get("type") and is_store and not urlsplit(href).path.lower().endswith(RASTERS)


def store_and_path(href: str) -> tuple[str, str] | None:
    """The address of the store and the path in it, by the name of the folder; None where no folder is called ….zarr."""
    if scheme(href) == "broken":
        # Refused as any other address that is not one.
        return None
    parts = urlsplit(href)
    names = parts.path.rstrip("/").split("/")
    place = next((number for number, name in enumerate(names) if name.lower().endswith(".zarr")), None)
    if place is None:
        return None
    return parts._replace(path="/".join(names[: place + 1])).geturl(), "/".join(names[place + 1 :])


def _grid_mapping(value: str) -> str:
    if not value.partition(":")[0].strip():
        raise ValueError("write the name of a variable")
    return value


def _six_numbers(value: str) -> str:
    if len([float(part) for part in value.split()]) != 6:
        raise ValueError("write six numbers")
    return value


Edges = Annotated[list[Annotated[Any, BeforeValidator(whole)]], Field(min_length=2)]
# Some writers put a number into a list.
OneNumber = Number | Annotated[list[Number], Field(min_length=1, max_length=1)]


class _Attributes(BaseModel, **OPEN):
    """The attributes of arrays and groups whose values are used as they are."""

    dimensions: list[str] | None = Field(None, alias="_ARRAY_DIMENSIONS")
    mapping: Annotated[str, AfterValidator(_grid_mapping)] | None = Field(None, alias="grid_mapping")
    affine: Annotated[str, AfterValidator(_six_numbers)] | None = Field(None, alias="GeoTransform")
    shape: Edges | None = Field(None, alias="spatial:shape")
    projected_shape: Edges | None = Field(None, alias="proj:shape")
    scale: OneNumber | None = Field(None, alias="scale_factor")
    offset: OneNumber | None = Field(None, alias="add_offset")


@dataclass(frozen=True)
class PlacedArray:
    """An array (…, y, x) of a store with its CRS and transform; `path` is that in the store, `stated` by the item."""

    array: Any
    path: str
    label: str
    stated: StatedRaster

    @property
    def shape(self) -> tuple[int, int]:
        height, width = self.array.shape[-2:]
        return height, width

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """West, south, east, north."""
        (height, width), t = self.shape, self.transform
        x, y = zip(*(t @ corner for corner in product((0, width), (0, height))), strict=True)
        return min(x), min(y), max(x), max(y)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the axes; empty where the store has none."""
        names = self.attributes.get("_ARRAY_DIMENSIONS") or getattr(self.array.metadata, "dimension_names", None)
        return tuple(map(str, names or ()))

    @cached_property
    def attributes(self) -> dict[str, Any]:
        return attributes_of(self.array, self.label)

    @cached_property
    def groups(self) -> list[dict[str, Any]]:
        """The attributes of the groups above, from the nearest to the root."""
        import zarr

        names, rows = self.path.split("/")[:-1], []
        for count in range(len(names), -1, -1):
            path = "/".join(names[:count])
            group = open_node(zarr.open_group, self.array.store, path, self.label, use_consolidated=False)
            rows.append({} if group is None else attributes_of(group, f"the group /{path} of {self.label}"))
        return rows

    def sibling(self, name: str) -> Any:
        """Another array of the same group; None where there is none."""
        import zarr

        parent = self.path.rpartition("/")[0]
        return open_node(zarr.open_array, self.array.store, f"{parent}/{name}".strip("/"), self.label)

    @cached_property
    def grid_mapping(self) -> dict[str, Any]:
        """The attributes of the CF grid mapping; empty where the array has none."""
        # Several grid mappings with their coordinates (CF 5.6) begin with the name of the first.
        name = str(self.attributes.get("grid_mapping") or "spatial_ref").partition(":")[0].split()[0]
        variable = self.sibling(name)
        return {} if variable is None else attributes_of(variable, f"{name} of {self.label}")

    @cached_property
    def crs(self) -> Any:
        """The CRS. Raises BadInputError where the store and the item state none, or one that does not exist."""
        from pyproj.exceptions import CRSError as NoSuchCRS
        from rasterio.crs import CRS
        from rasterio.errors import CRSError

        for value in self._crs_candidates():
            try:
                return CRS.from_wkt(_projected(value).to_wkt())
            except (CRSError, NoSuchCRS, KeyError, TypeError, ValueError) as error:
                raise BadInputError(f"{self.label} has a CRS that does not exist: {str(value)[:60]!r}") from error
        raise BadInputError(
            f"{self.label} has no CRS: neither proj:code, proj:epsg or proj:wkt2, nor a grid mapping, nor the item"
        )

    def _crs_candidates(self) -> Iterator[Any]:
        yield from _stated_crs(self.attributes)
        if self.grid_mapping:
            mapping = self.grid_mapping
            yield mapping.get("crs_wkt") or mapping.get("spatial_ref") or mapping
        for attributes in self.groups:
            yield from _stated_crs(attributes)
        if self.stated.crs:
            yield self.stated.crs

    @cached_property
    def transform(self) -> Any:
        """The affine transform. Raises BadInputError where the store and the item state none."""
        from affine import Affine

        holders = [self.attributes, *([] if not self._is_of_group() else self.groups[:1])]
        for holder in holders:
            if numbers := holder.get("spatial:transform") or holder.get("proj:transform"):
                transform = _affine(numbers, self.label)
                is_node = holder.get("spatial:registration") == "node"
                return transform @ Affine.translation(-0.5, -0.5) if is_node else transform
        axes = [self._axis(number) for number in (-1, -2)]
        if None not in axes:
            (x, across), (y, down) = axes  # type: ignore[misc]
            return Affine(across, 0.0, x - across / 2, 0.0, down, y - down / 2)
        if text := self.grid_mapping.get("GeoTransform"):
            c, a, b, f, d, e = map(float, text.split())
            return _affine((a, b, c, d, e, f), self.label)
        if self.stated.transform and self.stated.shape in (None, self.shape):
            return _affine(self.stated.transform, self.label)
        raise BadInputError(
            f"{self.label} has no place: neither proj:transform nor spatial:transform, nor evenly spaced coordinates"
        )

    def _is_of_group(self) -> bool:
        """Whether the transform of the group applies to this array: it states the same shape."""
        shape = self.groups[0].get("spatial:shape") or self.groups[0].get("proj:shape")
        return shape is not None and list(shape)[-2:] == list(self.shape)

    def _axis(self, number: int) -> tuple[float, float] | None:
        """First pixel centre and spacing of an axis, by its coordinate array; None where it has none.

        Raises BadInputError where the spacing is not even.
        """
        defaults = X_NAMES if number == -1 else Y_NAMES
        names = self.names[number:][:1] or defaults
        coordinate = next((array for name in names if (array := self.sibling(name)) is not None), None)
        length = self.shape[number]
        if coordinate is None or coordinate.shape != (length,) or not 2 <= length <= MAX_AXIS:
            return None
        attributes = attributes_of(coordinate, f"{names[0]} of {self.label}")
        numbers = _coordinates(coordinate, f"coordinates {names[0]} of {self.label}")
        scale, offset = scaling(attributes)
        values = numbers.astype(value_type(numbers.dtype, attributes)).astype(np.float64) * scale + offset
        step = (values[-1] - values[0]) / (len(values) - 1)
        even = values[0] + step * np.arange(len(values))
        if not step or not np.isfinite(values).all() or np.abs(values - even).max() > EVEN * abs(step):
            raise BadInputError(f"{self.label} has coordinates {names[0]} that are not evenly spaced")
        return float(values[0]), float(step)


def open_node(opener: Callable[..., Any], store: Any, path: str, label: str, **options: Any) -> Any:
    """An array or a group of a store by a function of zarr; None where the store has none at this path.

    Raises BadInputError where zarr cannot read the metadata.
    """
    from zarr.errors import NodeTypeValidationError

    try:
        return opener(store, path=path, mode="r", **options)
    except EopipeError:
        raise
    except (FileNotFoundError, NodeTypeValidationError):
        return None
    except Exception as error:  # zarr has no class of its own for metadata that it cannot read.
        raise BadInputError(
            f"{label} cannot be read as a Zarr array: the metadata of /{path}: {first_line(error)}"
        ) from error


def first_line(error: BaseException) -> str:
    """What an exception of zarr says, in a line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def attributes_of(node: Any, label: str) -> dict[str, Any]:
    """The attributes of an array or a group. Raises BadInputError for those that are read and have wrong values."""
    try:
        attributes = dict(node.attrs)
    except (TypeError, ValueError) as error:
        raise BadInputError(f"the attributes of {label} are not an object: {first_line(error)}") from error
    names = {field.alias or name for name, field in _Attributes.model_fields.items()}
    # Other attributes are free, and may have numbers that are not finite.
    read_attributes = {key: attributes[key] for key in names & attributes.keys()}
    checked(_Attributes, read_attributes, f"the metadata of {label}", "metadata of a raster in Zarr")
    return attributes


def _coordinates(array: Any, label: str) -> Any:
    """The numbers of a coordinate array. Raises BadInputError for other values, IntegrityError for damaged chunks."""
    # zarr is imported only now.
    from eopipe.fetch.zarr_codecs import limit_codecs

    if array.dtype.kind not in "iuf" or not all(array.chunks):
        raise BadInputError(f"{label} are of type {array.dtype} in chunks of {array.chunks}; they have to be numbers")
    try:
        return np.asarray(limit_codecs(array, label)[:])
    except (EopipeError, MemoryError):
        raise
    except Exception as error:  # Each codec has errors of its own.
        raise IntegrityError(f"{label} are damaged: {first_line(error)}") from error


def scaling(attributes: dict[str, Any]) -> tuple[float, float]:
    """Scale and offset of checked attributes (CF 8.1): physical value = stored * scale + offset."""
    stated = ((attributes.get(key), default) for key, default in (("scale_factor", 1.0), ("add_offset", 0.0)))
    scale, offset = (default if value is None else value for value, default in stated)
    # Some writers put the number into a list.
    scale, offset = (float(value[0] if isinstance(value, list) else value) for value in (scale, offset))
    return scale, offset


def value_type(stored: "np.dtype[Any]", attributes: Mapping[str, Any]) -> "np.dtype[Any]":
    """The type of the values of an array in native byte order: of integers, `_Unsigned` says whether they have a sign.

    The classic netCDF format has no unsigned types, so that files declare them by this attribute (as xarray reads it).
    """
    kinds = {("i", "true"): "u", ("u", "false"): "i"}
    kind = kinds.get((stored.kind, str(attributes.get("_Unsigned"))), stored.kind)
    return np.dtype(np.uint8) if stored.kind == "b" else np.dtype(f"{kind}{stored.itemsize}")


def _stated_crs(attributes: dict[str, Any]) -> Iterator[Any]:
    """What attributes of an array or a group state as the CRS."""
    other, discovery = attributes.get("other_metadata"), attributes.get("stac_discovery")
    properties = discovery.get("properties") if isinstance(discovery, dict) else None
    for holder in (attributes, other, properties):
        if isinstance(holder, dict):
            yield from (holder[key] for key in CRS_KEYS if holder.get(key))


def _projected(value: Any) -> Any:
    """A CRS from a code, a number, WKT, PROJJSON or CF attributes."""
    from pyproj import CRS

    if isinstance(value, dict):
        return CRS.from_json_dict(value) if "$schema" in value else CRS.from_cf(value)
    return CRS.from_user_input(int(value) if str(value).isdigit() else value)


def _affine(numbers: Any, label: str) -> Any:
    from affine import Affine

    try:
        transform = Affine(*map(float, numbers[:6]))
    except (OverflowError, TypeError, ValueError):
        transform = Affine(0, 0, 0, 0, 0, 0)
    if transform.is_degenerate or not np.isfinite(tuple(transform)).all():
        raise BadInputError(f"{label} has the transform {numbers!r}, which is not six numbers that can be inverted")
    return transform
