"""Catalogs that are read: static ones on disk or on the web, with the credits of collections, and STAC-GeoParquet.

Rows of STAC-GeoParquet become items as its specification 1.1 says: columns that an Item has at its top stay there, all
others are properties, a missing value of a row is a missing field, `geometry` is WKB and `bbox` a struct. Row groups
whose statistics exclude the dates or the bounding box of the query are not read, so memory holds one row group, whose
declared size is limited: a few bytes of Parquet can be any number of rows.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eopipe.errors import BadInputError, RefusedError, UsageError
from eopipe.scenes.item import Item, as_collection, as_item, scheme
from eopipe.stac.query import Query, parse_interval
from eopipe.text_files import read_json
from eopipe.tiles.globe import unwrap

# From a document and an href in it to the address of what the href leads to.
Resolve = Callable[[str, str], str]
CREDITS = ("license", "providers", "sci:citation", "sci:doi")
CREDIT_LINKS = ("license", "cite-as")
SCIENTIFIC = "https://stac-extensions.github.io/scientific/v1.0.0/schema.json"
SUFFIXES = (".parquet", ".geoparquet")
TOP = ("type", "stac_version", "stac_extensions", "id", "links", "assets", "collection", "bbox", "geometry")
REQUIRED = ("id", "geometry", "assets")
METADATA = b"stac-geoparquet"
# Items of a catalog without a match that explain why.
MAX_EXPLAINED = 1000
# Bytes of a row group before compression, rows of a file that one query reads, and rows that are decoded at a time.
MAX_GROUP, MAX_ROWS, BATCH = 1 << 31, 1 << 22, 1 << 10


def from_disk(catalog: Path, query: Query) -> list[Item]:
    """The items of a catalog on disk: all of a static catalog, of STAC-GeoParquet those that a query selects.

    Asset paths become relative to its folder. Raises BadInputError for what is not a catalog or has a broken link,
    RefusedError for a link that leads outside.
    """
    if is_geoparquet(catalog):
        return from_parquet(catalog, query)
    resolve = _in_catalog(catalog.resolve())
    return [resolve_assets(item, str(path), resolve) for path, item in scan(catalog)]


def _in_catalog(root: Path) -> Resolve:
    """How hrefs of assets become paths relative to the folder of a catalog."""

    def resolve(document: str, href: str) -> str:
        target = (Path(document).parent / href).resolve()
        # A path outside becomes absolute, which is refused if the asset is selected.
        return str(target.relative_to(root) if target.is_relative_to(root) else target)

    return resolve


def is_geoparquet(catalog: Path) -> bool:
    """Whether a catalog is a Parquet file, or a folder of such files and not a static catalog."""
    if catalog.is_dir():
        return not (catalog / "catalog.json").exists() and bool(parquet_files(catalog))
    return catalog.suffix.lower() in SUFFIXES


def parquet_files(catalog: Path) -> list[Path]:
    """The Parquet files of a catalog, by name."""
    return sorted(path for path in catalog.iterdir() if path.suffix.lower() in SUFFIXES)


def scan(catalog: Path) -> Iterator[tuple[Path, Item]]:
    """Every item of a catalog on disk with its file, unchanged.

    Raises BadInputError for what is not a catalog or has a broken link, RefusedError for a link that leads outside.
    """
    root = catalog.resolve()
    start = root / "catalog.json"
    if root.is_file():
        raise BadInputError(f"{catalog} is a file; give the folder of a static STAC catalog, or a .parquet file")
    if not start.is_file():
        raise BadInputError(f"{catalog} has no catalog.json; give the folder of a static STAC catalog")

    def resolve(document: str, href: str) -> str:
        target = (Path(document).parent / href).resolve()
        if scheme(href) or not target.is_relative_to(root):
            raise RefusedError(f"{document} links to {href!r}, outside the catalog; make the catalog self-contained")
        if not target.is_file():
            raise BadInputError(f"{document} links to {href!r}, which is not there; add the file or remove the link")
        return str(target)

    for path, item in walk(str(start), lambda path: read_json(Path(path)), resolve):
        yield Path(path), item


def walk(start: str, read: Callable[[str], Any], resolve: Resolve) -> Iterator[tuple[str, Item]]:
    """Every item below a catalog with its address, credits of its collection included.

    A catalog that links to itself ends.
    """
    visited: set[str] = set()
    pending: list[tuple[str, dict[str, Any]]] = [(start, {})]
    while pending:
        address, collection = pending.pop()
        if address in visited:
            continue
        visited.add(address)
        value = read(address)
        if isinstance(value, dict) and value.get("type") == "Feature":
            yield address, add_credits(as_item(value, without_secrets(address)), collection)
            continue
        if isinstance(value, dict) and value.get("type") == "Collection":
            collection = as_collection(value, without_secrets(address))
        pending += [(resolve(address, href), collection) for href in hrefs(value, address, "child", "item")]


def without_secrets(address: str) -> str:
    """An address without its query and login, for messages; a path as it is."""
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.hostname}{parts.path}" if parts.hostname else address


def hrefs(value: Any, address: str, *relations: str) -> list[str]:
    """The hrefs of links with these relations. Raises BadInputError for what is not STAC."""
    try:
        return [str(link["href"]) for link in value.get("links", []) if link["rel"] in relations]
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInputError(f"{without_secrets(address)} is not STAC: it has no valid links") from error


def resolve_assets(item: Item, address: str, resolve: Resolve) -> Item:
    """Resolve relative hrefs of assets against the address of the item."""
    for asset in item["assets"].values():
        href = asset["href"]
        # What cannot be a path is refused if the asset is selected.
        if href.isprintable() and not (scheme(href) or href.startswith("/") or "<" in href):
            asset["href"] = resolve(address, href)
    return item


def add_credits(item: Item, collection: dict[str, Any]) -> Item:
    """The item with licence, providers and citation of its collection, where it states none itself."""
    inherited = {key: collection[key] for key in CREDITS if collection.get(key)}
    links = list(item.get("links") or [])
    for relation in CREDIT_LINKS:
        if not any(link.get("rel") == relation for link in links):
            links += [link for link in collection.get("links") or [] if link.get("rel") == relation]
    schemas = list(item.get("stac_extensions") or [])
    if any(key.startswith("sci:") for key in inherited) and not any("/scientific/" in schema for schema in schemas):
        schemas.append(SCIENTIFIC)
    return item | {"properties": inherited | item["properties"], "links": links, "stac_extensions": schemas}


def from_parquet(catalog: Path, query: Query) -> list[Item]:
    """The items that a query selects, or some others where it selects none.

    Raises BadInputError for a file that is not STAC-GeoParquet or has a row that is not an Item.
    """
    files = parquet_files(catalog) if catalog.is_dir() else [catalog]
    items = [item for file in files for item in _items(file, query)]
    if not items:
        # What there is instead, for the error of the search.
        items = list(islice((item for file in files for item in _items(file, Query())), MAX_EXPLAINED))
    root = (catalog if catalog.is_dir() else catalog.parent).resolve()
    return [resolve_assets(item, str(root / files[0].name), _in_catalog(root)) for item in items]


def _items(file: Path, query: Query) -> Iterator[Item]:
    try:
        from pyarrow import parquet
        from pyarrow.lib import ArrowException
    except ImportError as error:
        raise UsageError(f"{file} is GeoParquet, which needs pyarrow: pip install 'eopipe[parquet]'") from error
    if file.exists() and not file.is_file():
        raise BadInputError(f"{file} is not a regular file, which GeoParquet has to be")
    rows = 0
    try:
        with parquet.ParquetFile(file) as source:
            collections = _collections(source, file)
            for number in range(source.num_row_groups):
                group = source.metadata.row_group(number)
                if not _may_match(group, query):
                    continue
                rows += group.num_rows
                if group.total_byte_size > MAX_GROUP or rows > MAX_ROWS:
                    raise RefusedError(
                        f"{file} has a row group of {group.num_rows} rows and {group.total_byte_size} bytes; a search "
                        f"reads {MAX_ROWS} rows of a file, in groups of {MAX_GROUP} bytes: narrow its dates or area"
                    )
                batches = source.iter_batches(BATCH, row_groups=[number])
                for row in (row for batch in batches for row in batch.to_pylist()):
                    item = _item(row, file)
                    if query.matches(item):
                        yield add_credits(item, collections.get(str(item.get("collection")), {}))
    except (ArrowException, OSError) as error:
        raise BadInputError(f"{file} is not a readable Parquet file: {error}") from error
    except (OverflowError, ValueError) as error:
        raise BadInputError(f"{file} has a value that Python lacks, as a time beyond the year 9999: {error}") from error


def _collections(source: Any, file: Path) -> dict[str, Any]:
    """The collections in the metadata of a file, by id. Raises BadInputError for a file without the columns of STAC."""
    schema = source.schema_arrow
    if missing := [name for name in REQUIRED if name not in schema.names]:
        raise BadInputError(f"{file} is not STAC-GeoParquet: it has no column {', '.join(missing)}")
    try:
        collections = json.loads((schema.metadata or {}).get(METADATA, b"{}")).get("collections") or {}
    except (AttributeError, ValueError) as error:
        raise BadInputError(f"{file} is not STAC-GeoParquet: its metadata are not JSON") from error
    if not isinstance(collections, dict):
        raise BadInputError(f"{file} is not STAC-GeoParquet: the collections in its metadata are not an object")
    return {name: as_collection(value, f"collection {name!r} of {file}") for name, value in collections.items()}


def _may_match(group: Any, query: Query) -> bool:
    """Whether a row group may hold a selected item, by the least and largest values of its columns."""
    columns = (group.column(number) for number in range(group.num_columns))
    limits = {
        column.path_in_schema: (column.statistics.min, column.statistics.max)
        for column in columns
        if column.path_in_schema in ("datetime", "bbox.xmin", "bbox.xmax", "bbox.ymin", "bbox.ymax")
        and column.statistics
        and column.statistics.has_min_max
    }
    # A row that has text as its box is refused when it is read.
    is_number = {name: all(isinstance(limit, int | float) for limit in pair) for name, pair in limits.items()}
    limits = {name: pair for name, pair in limits.items() if name == "datetime" or is_number[name]}
    if query.datetime and "datetime" in limits and all(isinstance(limit, datetime) for limit in limits["datetime"]):
        start, end = parse_interval(query.datetime)
        first, last = (limit.replace(tzinfo=limit.tzinfo or UTC) for limit in limits["datetime"])
        # Items with an interval instead of a moment have no datetime, and are not in its statistics.
        has_intervals = any(group.column(n).path_in_schema == "start_datetime" for n in range(group.num_columns))
        if not has_intervals and (last < start or first > end):
            return False
    if query.geometry is None or not {"bbox.xmin", "bbox.xmax", "bbox.ymin", "bbox.ymax"} <= limits.keys():
        return True
    west, south, east, north = unwrap(query.geometry).bounds
    if limits["bbox.ymin"][0] > north or limits["bbox.ymax"][1] < south:
        return False
    # Longitudes say nothing where the area or an item crosses 180 degrees.
    is_cut = west < -180 or east > 180 or limits["bbox.xmin"][1] > limits["bbox.xmax"][0]
    return bool(is_cut or (limits["bbox.xmin"][0] <= east and limits["bbox.xmax"][1] >= west))


def _item(row: dict[str, Any], file: Path) -> Item:
    """The Item of a row. Raises BadInputError for a row that is not one."""
    from shapely import from_wkb
    from shapely.errors import ShapelyError
    from shapely.geometry import mapping

    label = f"item {row.get('id')!r} of {file}"
    fields = {name: plain for name, value in row.items() if (plain := _plain(value)) is not None}
    item: dict[str, Any] = {"type": "Feature"} | {name: fields[name] for name in TOP if name in fields}
    item["properties"] = {name: value for name, value in fields.items() if name not in TOP}
    if isinstance(box := item.get("bbox"), dict):
        names = ("xmin", "ymin", "zmin", "xmax", "ymax", "zmax")
        item["bbox"] = [box[name] for name in names if name in box]
    try:
        geometry = row["geometry"]
        item["geometry"] = None if geometry is None else json.loads(json.dumps(mapping(from_wkb(geometry))))
    except (ShapelyError, TypeError, ValueError) as error:
        raise BadInputError(f"{label} has a geometry that is not WKB: {error}") from error
    if not item["properties"].get("datetime") and "start_datetime" in item["properties"]:
        item["properties"]["datetime"] = None
    return as_item(item, str(file))


def _plain(value: Any) -> Any:
    """A value as JSON has it: times as text in UTC, without the fields that a row lacks."""
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        text = moment.isoformat().removesuffix("+00:00")
        return f"{text.rstrip('0') if '.' in text else text}Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: plain for name, part in value.items() if (plain := _plain(part)) is not None} or None
    return [_plain(part) for part in value] if isinstance(value, list) else value
