"""Formats of vector files: the shapes with an attribute of each, and points in a table of longitudes and latitudes."""

import csv
import logging
import math
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import ObjectArray
from eopipe.errors import BadInputError, RefusedError, UsageError

PARQUET = (".parquet", ".geoparquet")
POINTS = (".csv",)
VECTORS = (".geojson", ".json", ".gpkg", ".shp", ".fgb", *PARQUET, *POINTS)
# Formats that users have labels in and that are not read, with what their files are.
OTHER_FORMATS = {
    **dict.fromkeys((".tsv", ".txt"), "a text table"),
    **dict.fromkeys((".xls", ".xlsx", ".ods"), "a spreadsheet"),
    **dict.fromkeys((".kml", ".kmz"), "KML"),
    ".gml": "GML",
    ".gpx": "GPX",
    ".zip": "a ZIP archive",
    **dict.fromkeys((".dbf", ".shx", ".prj"), "a part of a Shapefile"),
}
# The CRS of GeoParquet without a CRS.
DEFAULT_CRS = "OGC:CRS84"
# Columns of a table of points, in any case: as sits, rslearn and GBIF name them.
LONGITUDES, LATITUDES = ("longitude", "lon", "decimallongitude"), ("latitude", "lat", "decimallatitude")
DATES = {"date", "datetime", "time", "start_date", "end_date", "eventdate"}
DELIMITERS = (",", ";", "\t")
log = logging.getLogger("eopipe")


def source_conflicts(source: Path | None) -> list[str]:
    """A sentence where the name of a label file shows a format that is not read."""
    suffix = source.suffix.lower() if source else ""
    if source is None or suffix not in OTHER_FORMATS:
        return []
    command = f"ogr2ogr {source.stem}.gpkg {source.name}"
    if suffix == ".tsv":
        command += " -oo X_POSSIBLE_NAMES=lon* -oo Y_POSSIBLE_NAMES=lat* -a_srs EPSG:4326"
    return [
        f"label.source {source} is {OTHER_FORMATS[suffix]}, which is not read; give a vector file (GeoPackage, "
        "GeoJSON, Shapefile as .shp, FlatGeobuf, GeoParquet, CSV of points) or a raster (GeoTIFF, JPEG 2000)"
        + ("" if suffix in (".dbf", ".shx", ".prj", ".zip") else f"; QGIS converts it, or: {command}")
    ]


def refuse_xml(source: Path) -> None:
    """Refuse what GDAL could open as a virtual dataset, which reads other files. Raises RefusedError."""
    with source.open("rb") as file:
        if file.read(64).lstrip()[:1] == b"<":
            raise RefusedError(f"{source} is XML, which can read other files; give GeoJSON, GeoPackage or a Shapefile")


def read_file(source: Path, attribute: str, layer: str | None, setting: str) -> tuple[ObjectArray, list[Any], str]:
    """Shapes (shapely, None for a feature without geometry), values of an attribute or None, and CRS of a file.

    `setting` is the one that names the layer, for errors. Raises BadInputError for a file that is not a vector file,
    for a missing attribute or layer, RefusedError for XML, which can read other files.
    """
    refuse_xml(source)
    suffix = source.suffix.lower()
    reader = _from_parquet if suffix in PARQUET else _from_table if suffix in POINTS else _from_gdal
    shapes, values, crs = reader(source, attribute, layer, setting)
    return shapes, [_plain(value) for value in values], crs


def _plain(value: Any) -> Any:
    """The value that the file means: integers of a column with missing values are read as 21.0 and NaN."""
    if not isinstance(value, float):
        return value
    return None if math.isnan(value) else int(value) if value.is_integer() else value


def _from_gdal(source: Path, attribute: str, layer: str | None, setting: str) -> tuple[ObjectArray, list[Any], str]:
    import pyogrio
    import pyogrio.raw

    try:
        layers = [str(name) for name in pyogrio.list_layers(source)[:, 0]]
        if layer is None and len(layers) > 1:
            raise BadInputError(f"{source} has the layers {', '.join(layers)}; choose one with {setting}")
        if layer is not None and layer not in layers:
            raise BadInputError(f"{source} has no layer {layer}; it has {', '.join(layers)}")
        meta, _, wkb, fields = pyogrio.raw.read(source, layer=layer, columns=[attribute])
        available = pyogrio.read_info(source, layer=layer)["fields"]
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError) as error:
        raise BadInputError(f"{source} cannot be read as a vector file: {error}") from error
    if not fields:
        raise _no_attribute(source, attribute, available)
    return _shapes(wkb, source), fields[0].tolist(), str(meta["crs"] or "")


def _no_attribute(source: Path, attribute: str, available: Any) -> BadInputError:
    return BadInputError(f"{source} has no attribute {attribute}; it has {', '.join(map(str, available))}")


def _from_parquet(source: Path, attribute: str, layer: str | None, setting: str) -> tuple[ObjectArray, list[Any], str]:
    """Read GeoParquet with pyarrow, since the usual builds of GDAL cannot."""
    import json

    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise UsageError(
            f"{source} is GeoParquet, which needs pyarrow: pip install 'eopipe[parquet]', or give a GeoPackage"
        ) from error
    if layer is not None:
        raise UsageError(f"{source} is GeoParquet, which has no layers; omit {setting}")
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
    return _shapes(wkb, source), table[attribute].to_pylist(), json.dumps(crs) if isinstance(crs, dict) else crs or ""


def _from_table(source: Path, attribute: str, layer: str | None, setting: str) -> tuple[ObjectArray, list[Any], str]:
    """Points of a CSV file with a header: longitude, latitude in degrees of WGS 84, and attributes."""
    import shapely

    if layer is not None:
        raise UsageError(f"{source} is a table of points, which has no layers; omit {setting}")
    rows = _table_rows(source)
    heads = [name.strip() for name in next(rows, (0, [""]))[1]]
    lower = [name.lower() for name in heads]
    places = [[lower.index(name) for name in names if name in lower] for names in (LONGITUDES, LATITUDES)]
    if not all(places):
        raise BadInputError(
            f"{source} has the columns {', '.join(heads)}; a table of points needs longitude and latitude in degrees "
            "(WGS 84)"
        )
    if attribute not in heads:
        raise _no_attribute(source, attribute, [name for name in heads if name.lower() not in LONGITUDES + LATITUDES])
    if dates := [name for name in heads if name.lower() in DATES]:
        hint = "they label all scenes of the run: choose these with search.datetime"
        log.warning("event=dates_of_points_not_used source=%s columns=%s hint=%r", source.name, ",".join(dates), hint)
    column, degrees, values = heads.index(attribute), list[tuple[float, float]](), list[str]()
    for line, row in rows:
        if len(row) != len(heads):
            raise BadInputError(f"{source} has {len(row)} values in line {line}, and {len(heads)} columns")
        degrees.append((_degrees(source, line, row[places[0][0]], 180), _degrees(source, line, row[places[1][0]], 90)))
        values.append(row[column].strip())
    return np.asarray(shapely.points(np.array(degrees).reshape(-1, 2)), object), _typed(values), DEFAULT_CRS


def _table_rows(source: Path) -> Iterator[tuple[int, list[str]]]:
    """Lines of a table with their numbers, without empty ones; the first line decides on the delimiter."""
    try:
        text = source.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{source} is not a text in UTF-8: {error.reason} at byte {error.start}") from error
    delimiter = max(DELIMITERS, key=text.partition("\n")[0].count)
    reader = csv.reader(StringIO(text), delimiter=delimiter)
    return ((reader.line_num, row) for row in reader if any(row))


def _degrees(source: Path, line: int, text: str, most: float) -> float:
    """Degrees in a cell of a table; BadInputError for what is none."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # Longitudes may go from 0 to 360.
    if not -most <= value <= (360 if most > 90 else most):
        kind = "longitude" if most > 90 else "latitude"
        raise BadInputError(f"{source} has the {kind} {text.strip()!r} in line {line}; it needs degrees (WGS 84)")
    return value


def _typed(texts: list[str]) -> list[Any]:
    """Values of a column: whole numbers or numbers where all are, else texts; None for empty cells."""
    for kind in (int, float):
        try:
            return [kind(text) if text else None for text in texts]
        except ValueError:
            continue
    return [text or None for text in texts]


def _shapes(wkb: Any, source: Path) -> ObjectArray:
    from shapely import from_wkb
    from shapely.errors import ShapelyError

    try:
        return np.asarray(from_wkb(wkb), object)
    except (ShapelyError, TypeError) as error:
        raise BadInputError(f"{source} has a shape that cannot be read: {error}") from error
