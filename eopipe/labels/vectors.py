"""Vector files: shapes with one attribute, brought to the CRS of a grid."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import ObjectArray
from eopipe.errors import BadInputError, RefusedError, UsageError

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

PARQUET = (".parquet", ".geoparquet")
VECTORS = (".geojson", ".json", ".gpkg", ".shp", ".fgb", *PARQUET)
# What GeoParquet means where it tells no CRS.
DEGREES = "OGC:CRS84"


@dataclass(frozen=True)
class Features:
    """Shapes of a file (shapely, None for a feature without one), their attribute's values or None, their CRS."""

    shapes: ObjectArray
    values: list[Any]
    crs: str


def read_features(source: Path, attribute: str, layer: str | None = None) -> Features:
    """Read a vector file of one layer, or the named layer of many.

    Raises BadInputError for a file that holds no vectors, for a missing attribute, layer or CRS, RefusedError
    for XML, which can read other files.
    """
    _refuse_text(source)
    reader = _from_parquet if source.suffix.lower() in PARQUET else _from_gdal
    wkb, values, crs = reader(source, attribute, layer)
    if not crs:
        raise BadInputError(f"{source} has no CRS, so its shapes have no place")
    return Features(_valid(wkb, source), [_plain(value) for value in values], crs)


def to_grid(found: Features, grid: "GeoBox") -> ObjectArray:
    """Shapes in the grid's CRS, cut to its surroundings: what is far away has no place in it."""
    from pyproj import Transformer
    from shapely import clip_by_rect, segmentize, transform

    change = Transformer.from_crs(found.crs, str(grid.crs), always_xy=True)
    around = grid.pad(max(grid.shape) // 10 + 1).extent.boundingbox
    west, south, east, north = Transformer.from_crs(str(grid.crs), found.crs, always_xy=True).transform_bounds(*around)
    if west > east:
        west, east = -180.0, 180.0
    # A straight edge in one CRS bends in another.
    near = segmentize(clip_by_rect(found.shapes, west, south, east, north), (north - south) / 1000)
    moved = transform(near, lambda p: np.column_stack(change.transform(p[:, 0], p[:, 1])))
    return np.asarray(moved, object)


def _plain(value: Any) -> Any:
    """A value as the file means it: numbers of a column that has gaps come as 21.0 and NaN."""
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else int(value) if value.is_integer() else value


def _refuse_text(source: Path) -> None:
    """Refuse what GDAL could take for a virtual dataset, which reads other files."""
    with source.open("rb") as file:
        if file.read(64).lstrip()[:1] == b"<":
            raise RefusedError(f"{source} is XML, which can read other files; give GeoJSON, GeoPackage or a Shapefile")


def _from_gdal(source: Path, attribute: str, layer: str | None) -> tuple[Any, list[Any], str]:
    import pyogrio
    import pyogrio.raw

    try:
        layers = [str(name) for name in pyogrio.list_layers(source)[:, 0]]
        if layer is None and len(layers) > 1:
            raise BadInputError(f"{source} has the layers {', '.join(layers)}; choose one with label.layer")
        if layer is not None and layer not in layers:
            raise BadInputError(f"{source} has no layer {layer}; it has {', '.join(layers)}")
        meta, _, wkb, fields = pyogrio.raw.read(source, layer=layer, columns=[attribute])
        have = pyogrio.read_info(source, layer=layer)["fields"]
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError) as error:
        raise BadInputError(f"{source} cannot be read as vectors: {error}") from error
    if not fields:
        raise _no_attribute(source, attribute, have)
    return wkb, fields[0].tolist(), str(meta["crs"] or "")


def _no_attribute(source: Path, attribute: str, have: Any) -> BadInputError:
    return BadInputError(f"{source} has no attribute {attribute}; it has {', '.join(map(str, have))}")


def _from_parquet(source: Path, attribute: str, layer: str | None) -> tuple[Any, list[Any], str]:
    """GeoParquet through pyarrow, since the usual builds of GDAL do not read it."""
    import json

    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise UsageError(
            f"{source} is GeoParquet, which needs pyarrow: pip install 'eopipe[parquet]', or give a GeoPackage"
        ) from error
    if layer is not None:
        raise UsageError(f"{source} is GeoParquet, which has no layers; leave label.layer away")
    try:
        head = parquet.read_schema(source)
        told = json.loads((head.metadata or {})[b"geo"])
        column = told["primary_column"]
        place, encoding = told["columns"][column], told["columns"][column]["encoding"]
        if attribute not in head.names:
            raise _no_attribute(source, attribute, [name for name in head.names if name != column])
        table = parquet.read_table(source, columns=[attribute, column])
    except (ArrowException, KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"{source} is no GeoParquet file: {error}") from error
    if encoding != "WKB":
        raise BadInputError(f"{source} keeps its shapes as {encoding}; only WKB is read")
    wkb = np.array(table[column].to_pylist(), object)
    crs = place.get("crs", DEGREES)
    return wkb, table[attribute].to_pylist(), json.dumps(crs) if isinstance(crs, dict) else crs or ""


def _valid(wkb: Any, source: Path) -> ObjectArray:
    """Shapes of their bytes; rings that cross themselves are mended, or they could not be cut."""
    from shapely import from_wkb, is_valid, make_valid
    from shapely.errors import ShapelyError

    try:
        shapes = np.asarray(from_wkb(wkb), object)
    except (ShapelyError, TypeError) as error:
        raise BadInputError(f"{source} has a shape that cannot be read: {error}") from error
    broken = np.array([shape is not None for shape in shapes], bool) & ~is_valid(shapes)
    shapes[broken] = make_valid(shapes[broken])
    return shapes
