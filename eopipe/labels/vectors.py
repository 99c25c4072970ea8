"""Vector files: shapes with one attribute, reprojected to the CRS of a grid."""

import logging
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
# Formats that users have labels in and that are not read, with what their files are.
OTHER_FORMATS = {
    **dict.fromkeys((".csv", ".tsv", ".txt"), "a text table"),
    **dict.fromkeys((".xls", ".xlsx", ".ods"), "a spreadsheet"),
    **dict.fromkeys((".kml", ".kmz"), "KML"),
    ".gml": "GML",
    ".gpx": "GPX",
    ".zip": "a ZIP archive",
    **dict.fromkeys((".dbf", ".shx", ".prj"), "a part of a Shapefile"),
}
log = logging.getLogger("eopipe")
# The CRS of GeoParquet without a CRS.
DEFAULT_CRS = "OGC:CRS84"


@dataclass(frozen=True)
class Features:
    """Shapes of a file (shapely, None for a feature without geometry), the values of an attribute or None, the CRS."""

    shapes: ObjectArray
    values: list[Any]
    crs: str


def source_conflicts(source: Path | None) -> list[str]:
    """A sentence where the name of a label file shows a format that is not read."""
    suffix = source.suffix.lower() if source else ""
    if source is None or suffix not in OTHER_FORMATS:
        return []
    command = f"ogr2ogr {source.stem}.gpkg {source.name}"
    if suffix in (".csv", ".tsv"):
        command += " -oo X_POSSIBLE_NAMES=lon* -oo Y_POSSIBLE_NAMES=lat* -a_srs EPSG:4326"
    return [
        f"label.source {source} is {OTHER_FORMATS[suffix]}, which is not read; give a vector file (GeoPackage, "
        "GeoJSON, Shapefile as .shp, FlatGeobuf, GeoParquet) or a raster (GeoTIFF, JPEG 2000)"
        + ("" if suffix in (".dbf", ".shx", ".prj", ".zip") else f"; QGIS converts it, or: {command}")
    ]


def warn_of_points(source: Path, shapes: ObjectArray) -> None:
    """Warn where shapes are points, since each labels a single pixel, and split requires half a chip by default."""
    from shapely import GeometryType, get_type_id

    is_point = np.isin(get_type_id(shapes), (GeometryType.POINT, GeometryType.MULTIPOINT))
    if is_point.any():
        log.warning(
            "event=labels_are_points source=%s points=%d each_labels='the pixel that contains it' hint='set "
            "split.min_valid, the minimum fraction of labelled pixels in a chip, to 0, or give polygons'",
            source.name,
            int(is_point.sum()),
        )


def read_features(source: Path, attribute: str, layer: str | None = None) -> Features:
    """Read a vector file of one layer, or the named layer.

    Raises BadInputError for a file that is not a vector file, for a missing attribute, layer or CRS, RefusedError
    for XML, which can read other files.
    """
    refuse_xml(source)
    reader = _from_parquet if source.suffix.lower() in PARQUET else _from_gdal
    wkb, values, crs = reader(source, attribute, layer)
    if not crs:
        raise BadInputError(f"{source} has no CRS, so its shapes cannot be located")
    return Features(_valid(wkb, source), [_plain(value) for value in values], crs)


def to_grid(features: Features, grid: "GeoBox") -> ObjectArray:
    """Shapes in the grid's CRS, clipped to its surroundings, since distant coordinates may not be projectable."""
    from pyproj import Transformer
    from shapely import clip_by_rect, segmentize, transform

    to_grid_crs = Transformer.from_crs(features.crs, str(grid.crs), always_xy=True)
    from_grid_crs = Transformer.from_crs(str(grid.crs), features.crs, always_xy=True)
    padded = grid.pad(max(grid.shape) // 10 + 1).extent.boundingbox
    west, south, east, north = from_grid_crs.transform_bounds(*padded)
    if west > east:
        west, east = -180.0, 180.0
    # A straight edge in one CRS is a curve in another.
    nearby = segmentize(clip_by_rect(features.shapes, west, south, east, north), (north - south) / 1000)
    reprojected = transform(nearby, lambda p: np.column_stack(to_grid_crs.transform(p[:, 0], p[:, 1])))
    return np.asarray(reprojected, object)


def _plain(value: Any) -> Any:
    """The value that the file means: integers of a column with missing values are read as 21.0 and NaN."""
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else int(value) if value.is_integer() else value


def refuse_xml(source: Path) -> None:
    """Refuse what GDAL could open as a virtual dataset, which reads other files. Raises RefusedError."""
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
        available = pyogrio.read_info(source, layer=layer)["fields"]
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError) as error:
        raise BadInputError(f"{source} cannot be read as a vector file: {error}") from error
    if not fields:
        raise _no_attribute(source, attribute, available)
    return wkb, fields[0].tolist(), str(meta["crs"] or "")


def _no_attribute(source: Path, attribute: str, available: Any) -> BadInputError:
    return BadInputError(f"{source} has no attribute {attribute}; it has {', '.join(map(str, available))}")


def _from_parquet(source: Path, attribute: str, layer: str | None) -> tuple[Any, list[Any], str]:
    """Read GeoParquet with pyarrow, since the usual builds of GDAL cannot."""
    import json

    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise UsageError(
            f"{source} is GeoParquet, which needs pyarrow: pip install 'eopipe[parquet]', or give a GeoPackage"
        ) from error
    if layer is not None:
        raise UsageError(f"{source} is GeoParquet, which has no layers; omit label.layer")
    try:
        schema = parquet.read_schema(source)
        metadata = json.loads((schema.metadata or {})[b"geo"])
        column = metadata["primary_column"]
        geometry, encoding = metadata["columns"][column], metadata["columns"][column]["encoding"]
        if attribute not in schema.names:
            raise _no_attribute(source, attribute, [name for name in schema.names if name != column])
        table = parquet.read_table(source, columns=[attribute, column])
    except (ArrowException, KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"{source} is not a GeoParquet file: {error}") from error
    if encoding != "WKB":
        raise BadInputError(f"{source} encodes its shapes as {encoding}; only WKB is supported")
    wkb = np.array(table[column].to_pylist(), object)
    crs = geometry.get("crs", DEFAULT_CRS)
    return wkb, table[attribute].to_pylist(), json.dumps(crs) if isinstance(crs, dict) else crs or ""


def _valid(wkb: Any, source: Path) -> ObjectArray:
    """Shapes from WKB; invalid ones, such as self-crossing rings, are repaired, since they could not be clipped."""
    from shapely import from_wkb, is_valid, make_valid
    from shapely.errors import ShapelyError

    try:
        shapes = np.asarray(from_wkb(wkb), object)
    except (ShapelyError, TypeError) as error:
        raise BadInputError(f"{source} has a shape that cannot be read: {error}") from error
    invalid = np.array([shape is not None for shape in shapes], bool) & ~is_valid(shapes)
    shapes[invalid] = make_valid(shapes[invalid])
    return shapes
