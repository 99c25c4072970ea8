"""Formats of vector files: the shapes with attributes of each, and points in a table of longitudes and latitudes."""

import csv
import glob
import json
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import BoolArray, IntArray, ObjectArray
from eopipe.documents import read_document
from eopipe.errors import BadInputError, RefusedError, UsageError
from eopipe.stac.query import Interval, parse_interval
from eopipe.text_files import read_text
from eopipe.text_table import format_bytes, shell_word

PARQUET = (".parquet", ".geoparquet")
GEOJSON = (".geojson", ".json")
GEOJSON_TYPES = ("FeatureCollection", "Feature", "Polygon", "MultiPolygon", "Point", "MultiPoint", "GeometryCollection")
# Texts are read as a whole, in about five times their bytes; of GeoParquet what its columns have when decoded.
MAX_DECODED, MAX_FEATURES = 1 << 32, 20_000_000
# What binary formats begin with.
HEADS = {".gpkg": b"SQLite format 3\0", ".shp": b"\0\0\x27\x0a", ".fgb": b"fgb\x03fgb"}
POINTS = (".csv",)
VECTORS = (*GEOJSON, *HEADS, *PARQUET, *POINTS)
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
# Names of columns with the date of a feature, or with its first and its last one, in any case.
ROLES = (
    "date|datetime|event_?date|observed(_on)?|(observation|survey|acquisition)_date",
    "(start|begin|from)(_?date|_?datetime)?|(valid|date)_?from",
    "(end|to)(_?date|_?datetime)?|(valid|date)_?to",
)
# Columns of times may be times of day: they count where no other has the name of a date.
TIMES = ("time", "(start|begin)_?time", "end_?time")
TIME_OF_DAY = r"\d{1,4}|\d{6}|T?\d\d?:.*"
DELIMITERS = (",", ";", "\t")
# Shapes, columns by their names, CRS.
FileContent = tuple[ObjectArray, dict[str, list[Any]], str]
log = logging.getLogger("eopipe")


def source_conflicts(source: Path | None, dates: str | None, before: Path | None) -> list[str]:
    """Sentences where the name of a label file shows a format that is not read, or one that has no `dates`."""
    suffix = source.suffix.lower() if source else ""
    if dates is not None and (before or suffix not in VECTORS):
        other = "label.before, whose labels are of two dates" if before else "a raster, or an asset of each scene"
        return [f"label.dates chooses features of a vector file by its column of dates; it is not for {other}"]
    if dates is not None:
        try:
            _column_choice(dates)
        except UsageError as error:
            return [f"label.dates: {error}"]
    if source is None or suffix not in OTHER_FORMATS:
        return []
    command = f"ogr2ogr {shell_word(source.stem + '.gpkg')} {shell_word(source.name)}"
    if suffix == ".tsv":
        command += " -oo X_POSSIBLE_NAMES=lon* -oo Y_POSSIBLE_NAMES=lat* -a_srs EPSG:4326"
    return [
        f"label.source {source} is {OTHER_FORMATS[suffix]}, which is not read; give a vector file (GeoPackage, "
        "GeoJSON, Shapefile as .shp, FlatGeobuf, GeoParquet, CSV of points) or a raster (GeoTIFF, JPEG 2000)"
        + ("" if suffix in (".dbf", ".shx", ".prj", ".zip") else f"; QGIS converts it, or: {command}")
    ]


def _gdal_source(source: Path) -> Path | bytes:
    """What GDAL reads in the place of a vector file, such that it can only be of the format of its suffix.

    GDAL takes a file for a virtual dataset, a web service or a pipeline by words anywhere in its head; these read other
    files and ask servers. Binary formats have a zero byte before any words, and of GeoJSON it gets a copy without `<`.
    Raises BadInputError for other content, RefusedError for parts of a Shapefile that are links out of its folder.
    """
    suffix = source.suffix.lower()
    with source.open("rb") as file:
        head = file.read(16)
    if head.lstrip(b"\xef\xbb\xbf \r\n\t")[:1] == b"<":
        raise RefusedError(f"{source} is XML, which can read other files; give GeoJSON, GeoPackage or a Shapefile")
    if suffix in GEOJSON:
        return _plain_geojson(source)
    if suffix not in HEADS:
        raise BadInputError(f"{source} cannot be read as a vector file; give a GeoPackage, GeoJSON or Shapefile")
    if not head.startswith(HEADS[suffix]) or b"\0" not in head:
        raise BadInputError(f"{source} cannot be read as a vector file: its content is not of the format {suffix}")
    folder = source.resolve().parent
    for part in folder.glob(f"{glob.escape(source.resolve().stem)}.*") if suffix == ".shp" else ():
        if not part.resolve().is_relative_to(folder):
            raise RefusedError(f"{part} is a link out of the folder of {source.name}; copy the file there")
    return source


def _refuse_size(source: Path, size: int, most: int) -> None:
    if size > most:
        limit = f"at most {format_bytes(most)} of such a file are read; give a GeoPackage, or a part of it"
        raise RefusedError(f"{source} has {format_bytes(size)}, and {limit}")


def _plain_geojson(source: Path) -> bytes:
    """The content of a GeoJSON file as JSON without `<`; it has a name, by which its layer is called."""
    value = read_document(source, dict[str, Any], "GeoJSON")
    if value.get("type") not in GEOJSON_TYPES:
        raise BadInputError(f"{source} cannot be read as a vector file: it is not GeoJSON")
    return json.dumps({"name": source.stem} | value).replace("<", "\\u003c").encode()


@dataclass(frozen=True)
class Features:
    """Shapes of a file (shapely, None for a feature without geometry), the values of an attribute or None, the CRS.

    `rows` are their places in the file, from 1; `other_values` are the values of features of other dates.
    """

    source: Path
    shapes: ObjectArray
    values: list[Any]
    crs: str
    rows: IntArray
    other_values: tuple[Any, ...] = ()


def read_file(source: Path, attribute: str, layer: str | None, setting: str, dates: str | None = None) -> Features:
    """The features of a file, with `dates` those whose own date, or dates, are within them at least in part.

    `setting` is the one that names the layer, for errors. Raises BadInputError for a file that is not a vector file,
    for a missing attribute, layer or column of dates, and where no feature is of the dates; RefusedError for XML, which
    can read other files.
    """
    shapes, columns, crs = _content(source, attribute, layer, setting, dates)
    values, rows = [_plain(value, source, attribute) for value in columns[attribute]], np.arange(1, len(shapes) + 1)
    if dates is None:
        return Features(source, shapes, values, crs, rows)
    is_used = _of_dates(source, columns, attribute, dates)
    used, others = ([values[row] for row in np.flatnonzero(part)] for part in (is_used, ~is_used))
    return Features(source, shapes[is_used], used, crs, rows[is_used], tuple(others))


def read_shapes(source: Path, layer: str | None = None) -> tuple[ObjectArray, str]:
    """The shapes of a file of one layer, or of that layer, and their CRS, empty without one. Raises as `read_file`."""
    shapes, _, crs = _content(source, None, layer, "a file of that layer alone", None)
    return shapes, crs


def read_columns(source: Path, layer: str | None, setting: str) -> dict[str, list[Any]]:
    """The values of all columns of a file by their names. Raises as `read_file`."""
    columns = _content(source, None, layer, setting, None)[1]
    return {name: [_plain(value, source, name) for value in values] for name, values in columns.items()}


def _content(source: Path, attribute: str | None, layer: str | None, setting: str, dates: str | None) -> FileContent:
    """The shapes of a file with the columns of an attribute and of dates, or without an attribute with all columns."""
    if not source.is_file():
        raise BadInputError(f"{source} is not a file")
    suffix = source.suffix.lower()
    reader = _from_parquet if suffix in PARQUET else _from_table if suffix in POINTS else _from_gdal
    return reader(source, attribute, layer, setting, dates)


def _column_choice(dates: str) -> tuple[list[str], Interval]:
    """Columns and interval of `label.dates`: of observed=2019 or first,last=2019; of 2019 no columns."""
    columns, _, interval = dates.rpartition("=")
    names = [name.strip() for name in columns.split(",") if name.strip()]
    if len(names) > 2:
        raise UsageError(f"{columns} are {len(names)} columns; a feature has one date, or a first and a last one")
    return names, parse_interval(interval.strip())


def _date_columns(source: Path, names: Sequence[str], dates: str) -> list[str]:
    """The column with the date of a feature, or those with its first and last date: as `dates` or their names say.

    Raises BadInputError where there are none, or where names leave a choice.
    """
    chosen, _ = _column_choice(dates)
    if missing := [name for name in chosen if name not in names]:
        raise BadInputError(f"{source} has no column {' and '.join(missing)} of label.dates; it has {', '.join(names)}")
    for roles in () if chosen else (ROLES, TIMES):
        of_roles = [[name for name in names if re.fullmatch(role, name, re.IGNORECASE)] for role in roles]
        if not (by_name := [name for of_role in of_roles for name in of_role]):
            continue
        if [*map(len, of_roles)] in ([1, 0, 0], [0, 1, 1]):
            return by_name
        raise BadInputError(
            f"{source} has the columns {', '.join(by_name)}: neither one date nor a first and a last one of each "
            f'feature; name the column, or two of them, as in label.dates: "{by_name[0]}={dates}"'
        )
    if not chosen:
        such = "such as date, or start_date and end_date; it has"
        raise BadInputError(f"{source} has no column of dates for label.dates, {such} {', '.join(names)}")
    return chosen


def _of_dates(source: Path, columns: Mapping[str, Sequence[Any]], attribute: str, dates: str) -> BoolArray:
    """Which features are of the dates (feature,): whose day, or a day from their first to their last, is one of them.

    Raises BadInputError for what is not a date, and where none is of them. Those without a date are left out, with a
    warning.
    """
    chosen, (first, last) = _column_choice(dates)
    names = _date_columns(source, [name for name in columns if name != attribute], dates)
    is_used, undated = np.zeros(len(columns[attribute]), bool), 0
    has_times = not chosen and re.fullmatch("|".join(TIMES), names[0], re.IGNORECASE)
    for row, cells in enumerate(zip(*(columns[name] for name in names), strict=True)):
        texts = [text for cell in cells if (text := str(cell).strip()) not in ("", "None", "NaT", "nan")]
        text = "/".join(texts)
        try:
            if has_times and any(re.fullmatch(TIME_OF_DAY, part) for part in texts):
                raise UsageError(f'it may be a time of day; if not, set label.dates: "{",".join(names)}={dates}"')
            start, end = parse_interval(text) if text else (last, first)
        except (UsageError, ValueError) as error:
            raise BadInputError(f"{source} has {text} as the date of feature {row + 1}: {error}") from error
        undated += not text
        is_used[row] = bool(text) and start <= last and end >= first
    by = " and ".join(names)
    if not is_used.any():
        raise BadInputError(f"none of the {len(is_used)} features of {source} is of label.dates {dates}, by {by}")
    role = ("date of observation" if len(names) == 1 else "first and last date") + ("" if chosen else " by name")
    line = "event=labels_of_dates source=%s columns=%s role=%r used=%d of=%d"
    log.info(line, source.name, ",".join(names), role, is_used.sum(), len(is_used))
    if undated:
        log.warning("event=labels_without_date source=%s features=%d used=0", source.name, undated)
    return is_used


def _columns(source: Path, attribute: str | None, names: Sequence[str], dates: str | None) -> list[str]:
    """The columns to read of those that a file has. Raises BadInputError for missing ones."""
    if attribute is None:
        return [*names]
    if attribute not in names:
        raise BadInputError(f"{source} has no attribute {attribute}; it has {', '.join(names)}")
    others = [name for name in names if name != attribute]
    return [attribute, *(_date_columns(source, others, dates) if dates is not None else ())]


def _plain(value: Any, source: Path, attribute: str) -> Any:
    """The value that the file means: integers of a column with missing values are read as 21.0 and NaN."""
    if not isinstance(value, float):
        return value
    # Above, a float is not every whole number.
    if abs(value) >= 2**53 and value.is_integer():
        raise BadInputError(f"{source} has a number of more than 15 digits in {attribute}; store it as text")
    return None if math.isnan(value) else int(value) if value.is_integer() else value


def _from_gdal(source: Path, attribute: str | None, layer: str | None, setting: str, dates: str | None) -> FileContent:
    import pyogrio
    import pyogrio.raw

    # GDAL would make dates of texts that look like dates.
    options = {"DATE_AS_STRING": "YES"} if source.suffix.lower() in GEOJSON else {}
    content = _gdal_source(source)
    try:
        layers = [str(name) for name in pyogrio.list_layers(content)[:, 0]]
        if layer is None and len(layers) > 1:
            raise BadInputError(f"{source} has the layers {', '.join(layers)}; choose one with {setting}")
        if layer is not None and layer not in layers:
            raise BadInputError(f"{source} has no layer {layer}; it has {', '.join(layers)}")
        info = pyogrio.read_info(content, layer=layer, **options)
        if info["features"] > MAX_FEATURES:
            raise RefusedError(f"{source} has {info['features']:,} features, more than fit into memory; give a part")
        names = _columns(source, attribute, info["fields"].tolist(), dates)
        meta, _, wkb, fields = pyogrio.raw.read(content, layer=layer, columns=names, **options)
    except (pyogrio.errors.DataSourceError, pyogrio.errors.DataLayerError, IndexError, UnicodeDecodeError) as error:
        raise BadInputError(f"{source} cannot be read as a vector file: {error}") from error
    # Dates as text: Python has none with the nanoseconds of numpy's.
    columns = {
        name: (values.astype(str) if values.dtype.kind == "M" else values).tolist()
        for name, values in zip(meta["fields"], fields, strict=True)
    }
    return _shapes(wkb, source), columns, str(meta["crs"] or "")


def _from_parquet(
    source: Path, attribute: str | None, layer: str | None, setting: str, dates: str | None
) -> FileContent:
    """Read GeoParquet with pyarrow, since the usual builds of GDAL cannot."""
    try:
        from pyarrow import ArrowException, Table, parquet
    except ImportError as error:
        raise UsageError(
            f"{source} is GeoParquet, which needs pyarrow: pip install 'eopipe[parquet]', or give a GeoPackage"
        ) from error
    if layer is not None:
        raise UsageError(f"{source} is GeoParquet, which has no layers; omit {setting}")
    try:
        file = parquet.ParquetFile(source)
        schema = file.schema_arrow
        metadata = json.loads((schema.metadata or {})[b"geo"])
        column = metadata["primary_column"]
        geometry, encoding = metadata["columns"][column], metadata["columns"][column]["encoding"]
        names = _columns(source, attribute, [name for name in schema.names if name != column], dates)
        batches, size = list[Any](), 0
        for batch in file.iter_batches(1024, columns=[*names, column]):
            # Repeated values have few bytes in the file.
            _refuse_size(source, size := size + batch.nbytes, MAX_DECODED)
            batches.append(batch)
        table = Table.from_batches(batches, schema=None if batches else schema)
        columns = {name: table[name].to_pylist() for name in names}
        wkb, crs = np.array(table[column].to_pylist(), object), geometry.get("crs", DEFAULT_CRS)
    except (ArrowException, AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        raise BadInputError(f"{source} is not a GeoParquet file: {error}") from error
    if encoding != "WKB":
        raise BadInputError(f"{source} encodes its shapes as {encoding}; only WKB is supported")
    return _shapes(wkb, source), columns, json.dumps(crs) if isinstance(crs, dict) else crs or ""


def _from_table(source: Path, attribute: str | None, layer: str | None, setting: str, dates: str | None) -> FileContent:
    """Points of a CSV file with a header: longitude, latitude in degrees of WGS 84, and attributes."""
    import shapely

    if layer is not None:
        raise UsageError(f"{source} is a table of points, which has no layers; omit {setting}")
    rows = table_rows(source)
    heads = [name.strip() for name in next(rows, (0, [""]))[1]]
    lower = [name.lower() for name in heads]
    places = [[lower.index(name) for name in names if name in lower] for names in (LONGITUDES, LATITUDES)]
    if not all(places):
        raise BadInputError(
            f"{source} has the columns {', '.join(heads)}; a table of points needs longitude and latitude in degrees "
            "(WGS 84)"
        )
    others = [name for name in heads if name.lower() not in LONGITUDES + LATITUDES]
    names = _columns(source, attribute, others, dates)
    is_date = re.compile("|".join(ROLES + TIMES), re.IGNORECASE).fullmatch
    if dates is None and (unused := [*filter(is_date, heads)]):
        hint = "they label all scenes of the run, which search.datetime chooses; label.dates chooses labels by them"
        log.warning("event=dates_of_points_not_used source=%s columns=%s hint=%r", source.name, ",".join(unused), hint)
    degrees, columns = list[tuple[float, float]](), {name: list[str | None]() for name in names}
    for line, row in rows:
        if len(row) != len(heads):
            raise BadInputError(f"{source} has {len(row)} values in line {line}, and {len(heads)} columns")
        degrees.append((_degrees(source, line, row[places[0][0]], 180), _degrees(source, line, row[places[1][0]], 90)))
        for name, column in columns.items():
            column.append(row[heads.index(name)].strip() or None)
    shapes = np.asarray(shapely.points(np.array(degrees).reshape(-1, 2)), object)
    return shapes, columns, DEFAULT_CRS


def table_rows(source: Path) -> Iterator[tuple[int, list[str]]]:
    """Lines of a table with their numbers, without empty ones; the first line decides on the delimiter."""
    try:
        text = read_text(source)
    except UnicodeDecodeError as error:
        raise BadInputError(f"{source} is not a text in UTF-8: {error.reason} at byte {error.start}") from error
    delimiter = max(DELIMITERS, key=text.partition("\n")[0].count)
    reader = csv.reader(StringIO(text), delimiter=delimiter)
    try:
        yield from ((reader.line_num, row) for row in reader if any(row))
    except csv.Error as error:
        raise BadInputError(f"{source} cannot be read as a table in line {reader.line_num}: {error}") from error


def number_of(value: Any) -> float | None:
    """The number that a value is, or that a text means; None for another value, infinite for one that is too large."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    try:
        # Python reads 1_000 as a thousand, and nobody writes that in a table.
        return None if "_" in str(value) else float(value)
    except ValueError:
        return None


def _degrees(source: Path, line: int, text: str, most: float) -> float:
    """Degrees in a cell of a table; BadInputError for what is none."""
    value = number_of(text)
    # Longitudes may go from 0 to 360.
    if value is None or not -most <= value <= (360 if most > 90 else most):
        kind = "longitude" if most > 90 else "latitude"
        raise BadInputError(f"{source} has the {kind} {text.strip()!r} in line {line}; it needs degrees (WGS 84)")
    return value


def _shapes(wkb: Any, source: Path) -> ObjectArray:
    from shapely import from_wkb
    from shapely.errors import ShapelyError

    try:
        return np.asarray(from_wkb(wkb), object)
    except (ShapelyError, TypeError) as error:
        raise BadInputError(f"{source} has a shape that cannot be read: {error}") from error
