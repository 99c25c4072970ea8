"""The files of a sample that people label: a GeoPackage with a form for QGIS, and a table for Collect Earth Online.

The GeoPackage has the classes as a pick list twice: as a field domain of its schema extension (OGC 12-128r18, F.9),
which GDAL and QGIS read, and in the style of the layer, which QGIS loads by itself. It contains the design too, as
metadata of the file, so that the labelled file is all that an estimate needs.
"""

import json
import sqlite3
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from eopipe.areas.design import SampleDesign
from eopipe.areas.population import Population
from eopipe.labels.vectors import LAYER_DATE, write_layer
from eopipe.text_table import write_csv

LAYER, PIXELS, LABEL = "sample", "pixels", "label"
GEOPACKAGE, TABLE, DESIGN = "sample.gpkg", "sample.csv", "sample.json"
# By which the design is found among the metadata of a GeoPackage.
DESIGN_URI = "https://github.com/eopipe/eopipe/sample-design"
SCHEMA = "http://www.geopackage.org/spec121/#extension_schema"
METADATA = "http://www.geopackage.org/spec121/#extension_metadata"
DEGREES = "EPSG:4326"
# Bytes of an unpacked design: of a million pixels.
MAX_DESIGN = 1 << 28
# The tables of both extensions and of the styles of QGIS, as their specifications and GDAL write them.
TABLES = """
CREATE TABLE gpkg_data_columns (table_name TEXT NOT NULL, column_name TEXT NOT NULL, name TEXT, title TEXT,
  description TEXT, mime_type TEXT, constraint_name TEXT, CONSTRAINT pk_gdc PRIMARY KEY (table_name, column_name),
  CONSTRAINT gdc_tn UNIQUE (table_name, name));
CREATE TABLE gpkg_data_column_constraints (constraint_name TEXT NOT NULL, constraint_type TEXT NOT NULL, value TEXT,
  min NUMERIC, min_is_inclusive BOOLEAN, max NUMERIC, max_is_inclusive BOOLEAN, description TEXT,
  CONSTRAINT gdcc_ntv UNIQUE (constraint_name, constraint_type, value));
CREATE TABLE gpkg_metadata (id INTEGER CONSTRAINT m_pk PRIMARY KEY ASC NOT NULL, md_scope TEXT NOT NULL
  DEFAULT 'dataset', md_standard_uri TEXT NOT NULL, mime_type TEXT NOT NULL DEFAULT 'text/xml', metadata TEXT NOT NULL
  DEFAULT '');
CREATE TABLE gpkg_metadata_reference (reference_scope TEXT NOT NULL, table_name TEXT, column_name TEXT,
  row_id_value INTEGER, timestamp DATETIME NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ','now')), md_file_id INTEGER
  NOT NULL, md_parent_id INTEGER, CONSTRAINT crmr_mfi_fk FOREIGN KEY (md_file_id) REFERENCES gpkg_metadata(id));
CREATE TABLE layer_styles (id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL, f_table_catalog TEXT(256), f_table_schema
  TEXT(256), f_table_name TEXT(256), f_geometry_column TEXT(256), styleName TEXT(30), styleQML TEXT, styleSLD TEXT,
  useAsDefault BOOLEAN, description TEXT, owner TEXT(30), ui TEXT(30), update_time DATETIME DEFAULT
  (strftime('%Y-%m-%dT%H:%M:%fZ','now')));
"""
EXTENSIONS = (
    ("gpkg_data_columns", "gpkg_schema", SCHEMA),
    ("gpkg_data_column_constraints", "gpkg_schema", SCHEMA),
    ("gpkg_metadata", "gpkg_metadata", METADATA),
    ("gpkg_metadata_reference", "gpkg_metadata", METADATA),
)


def write_geopackage(path: Path, design: SampleDesign, population: Population, *, with_class: bool) -> None:
    """Write the points with blank labels, and the outlines of their pixels; the same design gives the same bytes."""
    import shapely

    pixels = design.pixels
    points = shapely.points([(pixel.longitude, pixel.latitude) for pixel in pixels])
    columns: dict[str, Any] = {
        "id": np.array([pixel.id for pixel in pixels], np.int32),
        LABEL: np.full(len(pixels), None, object) if not design.quantity else np.full(len(pixels), np.nan),
        "comment": np.full(len(pixels), None, object),
        "inclusion_probability": np.array([pixel.inclusion_probability for pixel in pixels]),
    }
    if with_class:
        columns["mapped"] = np.array([_mapped_text(design, pixel.mapped) for pixel in pixels], object)
    write_layer(path, LAYER, shapely.to_wkb(points), columns, "Point", DEGREES)
    outlines = np.array([*_outlines(design, population)], object)
    write_layer(path, PIXELS, shapely.to_wkb(outlines), {"id": columns["id"]}, "Polygon", DEGREES, append=False)
    with closing(sqlite3.connect(path)) as file, file:
        file.executescript(TABLES)
        _write_rows(file, design)


def _mapped_text(design: SampleDesign, mapped: float) -> str:
    return design.classes[int(mapped)] if not design.quantity else f"{mapped:.6g}"


def _outlines(design: SampleDesign, population: Population) -> Iterator[Any]:
    """The outline of each pixel in degrees."""
    import shapely

    from eopipe.tiles.globe import to_degrees

    for pixel in design.pixels:
        grid = population.maps[pixel.map].grid
        columns, rows = pixel.column + np.array([0, 1, 1, 0]), pixel.row + np.array([0, 0, 1, 1])
        affine = grid.affine
        x, y = affine.a * columns + affine.b * rows + affine.c, affine.d * columns + affine.e * rows + affine.f
        yield shapely.Polygon(np.column_stack(to_degrees(str(grid.crs)).transform(x, y)))


def _write_rows(file: sqlite3.Connection, design: SampleDesign) -> None:
    """Write pick list, style and design into the tables of the extensions."""
    file.executemany(
        "INSERT INTO gpkg_extensions (table_name, column_name, extension_name, definition, scope) "
        "VALUES (?, NULL, ?, ?, 'read-write')",
        EXTENSIONS,
    )
    noun = "class" if not design.quantity else f"value of {design.classes[0]}"
    row = (LAYER, LABEL, LABEL, f"What is there: the {noun}", "classes" if not design.quantity else None)
    file.execute(
        "INSERT INTO gpkg_data_columns (table_name, column_name, name, title, constraint_name) VALUES (?, ?, ?, ?, ?)",
        row,
    )
    if not design.quantity:
        file.executemany(
            "INSERT INTO gpkg_data_column_constraints (constraint_name, constraint_type, value, description) "
            "VALUES ('classes', 'enum', ?, ?)",
            [(name, name) for name in design.classes],
        )
    # Packed, since GDAL prints metadata, and who labels should not see what the map says.
    document = b64encode(zlib.compress(json.dumps(design.model_dump(mode="json")).encode())).decode()
    file.execute(
        "INSERT INTO gpkg_metadata (id, md_scope, md_standard_uri, mime_type, metadata) "
        "VALUES (1, 'dataset', ?, 'application/zlib', ?)",
        (DESIGN_URI, document),
    )
    file.execute(
        "INSERT INTO gpkg_metadata_reference (reference_scope, timestamp, md_file_id) VALUES ('geopackage', ?, 1)",
        (LAYER_DATE,),
    )
    styles = [(LAYER, _point_style(design)), (PIXELS, _outline_style())]
    file.executemany(
        "INSERT INTO layer_styles (f_table_catalog, f_table_schema, f_table_name, f_geometry_column, styleName, "
        "styleQML, styleSLD, useAsDefault, description, owner, update_time) "
        "VALUES ('', '', ?, 'geom', 'eopipe', ?, '', 1, 'form and symbols of eopipe sample', '', ?)",
        [(layer, style, LAYER_DATE) for layer, style in styles],
    )


def _options(values: dict[str, str]) -> str:
    rows = (f'<Option type="QString" name={quoteattr(k)} value={quoteattr(v)}/>' for k, v in values.items())
    return f'<Option type="Map">{"".join(rows)}</Option>'


def _point_style(design: SampleDesign) -> str:
    """The style of the points: hollow until they have a label, and a form with a pick list of the classes."""
    hollow, filled = (
        f'<symbol type="marker" name="{number}" alpha="1"><layer class="SimpleMarker" enabled="1" pass="0">'
        + _options(
            {"name": "circle", "size": "3", "color": color, "outline_color": "213,0,94,255", "outline_width": "0.6"}
        )
        + "</layer></symbol>"
        for number, color in ((0, "255,255,255,0"), (1, "213,0,94,255"))
    )
    choices = "".join(f'<Option type="Map">{_option(name)}</Option>' for name in design.classes)
    pick_list = f'<Option type="Map"><Option type="List" name="map">{choices}</Option></Option>'
    hidden, text = (
        f'<editWidget type="{kind}"><config><Option/></config></editWidget>' for kind in ("Hidden", "TextEdit")
    )
    pick = f'<editWidget type="ValueMap"><config>{pick_list}</config></editWidget>'
    fields = {"id": text, LABEL: text if design.quantity else pick, "comment": text, "inclusion_probability": hidden}
    configuration = "".join(f"<field name={quoteattr(name)}>{widget}</field>" for name, widget in fields.items())
    return _document(
        '<renderer-v2 type="RuleRenderer" symbollevels="0" enableorderby="0"><rules key="{root}">'
        f'<rule key="{{blank}}" symbol="0" filter="&quot;{LABEL}&quot; IS NULL" label="to label"/>'
        '<rule key="{labelled}" symbol="1" filter="ELSE" label="labelled"/></rules>'
        f"<symbols>{hollow}{filled}</symbols></renderer-v2>"
        f"<fieldConfiguration>{configuration}</fieldConfiguration>"
        f'<aliases><alias field="{LABEL}" index="2" name="What is there?"/></aliases>'
        '<editable><field name="id" editable="0"/><field name="inclusion_probability" editable="0"/></editable>'
        "<editorlayout>generatedlayout</editorlayout>"
    )


def _option(name: str) -> str:
    return f'<Option type="QString" name={quoteattr(name)} value={quoteattr(name)}/>'


def _outline_style() -> str:
    """The style of the pixels: their outlines alone, so that one sees what is inside."""
    outline = _options({"line_color": "213,0,94,255", "line_width": "0.4"})
    layer = f'<layer class="SimpleLine" enabled="1" pass="0">{outline}</layer>'
    symbol = f'<symbol type="fill" name="0" alpha="1">{layer}</symbol>'
    return _document(f'<renderer-v2 type="singleSymbol"><symbols>{symbol}</symbols></renderer-v2>')


def _document(content: str) -> str:
    head = "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>"
    return f'{head}\n<qgis version="3.22.0" styleCategories="Symbology|Forms|Fields">{content}</qgis>\n'


def write_table(path: Path, design: SampleDesign, *, with_class: bool) -> None:
    """Write the points as Collect Earth Online takes them (LON, LAT, PLOTID), with a blank label for spreadsheets."""
    heads = ["LON", "LAT", "PLOTID", LABEL, *(["mapped"] if with_class else [])]
    rows = (
        [f"{pixel.longitude:.8f}", f"{pixel.latitude:.8f}", pixel.id, ""]
        + ([_mapped_text(design, pixel.mapped)] if with_class else [])
        for pixel in design.pixels
    )
    write_csv(path, [heads, *rows])


def read_design(path: Path) -> SampleDesign | None:
    """The design in a GeoPackage of a sample; None where it has none. Raises BadInputError for a damaged one."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as file:
            rows: Sequence[tuple[str]] = file.execute(
                "SELECT metadata FROM gpkg_metadata WHERE md_standard_uri = ?", (DESIGN_URI,)
            ).fetchall()
    except sqlite3.Error:
        return None
    if not rows:
        return None
    try:
        unpacker = zlib.decompressobj()
        document = json.loads(unpacker.decompress(b64decode(rows[0][0]), MAX_DESIGN))
    except (ValueError, zlib.error):
        document = None
    return SampleDesign.of_document(document, f"the design in {path}")
