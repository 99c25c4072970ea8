"""STAC-GeoParquet, written by rustac, gives the items of the static catalog that it was made of."""

import datetime as dt
import decimal
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import rustac
from pyarrow import parquet
from scenery import Catalog, Run, search_outputs
from shapely import box
from shapely.geometry import mapping

from eopipe.errors import BadInputError, RefusedError
from eopipe.stac.query import Query
from eopipe.stac.read import from_parquet

ASSETS = ("--assets", "blue", "red", "scl")


def fill(catalog: Catalog) -> Path:
    """Six scenes from south to north, a month apart, one with an interval and one with less fields."""
    for number in range(6):
        properties: dict[str, Any] = {"datetime": f"2023-0{number + 1}-01T10:00:00Z", "eo:cloud_cover": 10.5 * number}
        catalog.add(f"scene-{number}", top=5100000.0 + 5000.0 * number, properties=properties)
    late = catalog.items[5]["properties"]
    late |= {"datetime": None, "start_datetime": "2023-06-01T00:00:00.250Z", "end_datetime": "2023-06-02T00:00:00Z"}
    del catalog.items[1]["properties"]["eo:cloud_cover"]
    return catalog.write()


def write_parquet(catalog: Catalog, file: Path) -> Path:
    """The items as STAC-GeoParquet beside the catalog, hrefs relative to it."""
    items = json.loads(json.dumps(catalog.items))
    for number, item in enumerate(items):
        for asset in item["assets"].values():
            asset["href"] = f"s{number}/{asset['href'].removeprefix('./')}"
        longitudes, latitudes = zip(*item["geometry"]["coordinates"][0], strict=True)
        item["bbox"] = [min(longitudes), min(latitudes), max(longitudes), max(latitudes)]
    rustac.write_sync(str(file), items)
    return file


def frozen(run: Run, source: Path, target: Path, *options: str) -> dict[str, dict[str, Any]]:
    """The items that search freezes of a catalog, by name."""
    done = run("search", "--catalog", source, *search_outputs(target), *ASSETS, *options)
    assert done.code == 0, done.stderr
    return {path.stem: json.loads(path.read_text()) for path in (target / "items").glob("*.geojson")}


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--datetime", "2023-02-15/2023-04-15"),
        ("--datetime", "2023-06-01T12:00:00Z/2023-06-30"),
        ("--max-cloud", "25"),
        ("--ids", "scene-4"),
        ("--bbox", "14.9", "46.0", "15.1", "46.1"),
        ("--best", "1", "--per", "year"),
    ],
    ids=" ".join,
)
def test_a_search_selects_the_items_of_the_static_catalog(
    options: tuple[str, ...], catalog: Catalog, run: Run, tmp_path: Path
) -> None:
    folder = fill(catalog)
    expected = frozen(run, folder, tmp_path / "static", *options)
    assert expected
    actual = frozen(run, write_parquet(catalog, folder / "items.parquet"), tmp_path / "parquet", *options)
    assert actual.keys() == expected.keys()
    for name, item in actual.items():
        # The reference implementation adds a bbox and sorts extensions; times have the shortest text.
        for key in ("id", "collection", "geometry", "assets"):
            assert item[key] == expected[name][key], key
        properties = [
            {key: str(value).replace(".250Z", ".25Z") for key, value in each["properties"].items()}
            for each in (item, expected[name])
        ]
        assert properties[0] == properties[1]
    assert (tmp_path / "static/grid.json").read_text() == (tmp_path / "parquet/grid.json").read_text()


def test_scenes_of_a_parquet_file_are_fetched_from_the_paths_beside_it(
    catalog: Catalog, run: Run, tmp_path: Path
) -> None:
    file = write_parquet(catalog, fill(catalog) / "items.parquet")
    frozen(run, file, tmp_path, "--ids", "scene-2")
    item = tmp_path / "items/scene-2.geojson"
    assert run("fetch", "--item", item, "--scene", tmp_path / "scene", "--catalog", file).code == 0
    assert (tmp_path / "scene/red.tif").read_bytes() == (file.parent / "s2/red.tif").read_bytes()


def test_a_folder_of_files_is_one_catalog_and_row_groups_elsewhere_are_not_read(
    catalog: Catalog, run: Run, tmp_path: Path
) -> None:
    file = write_parquet(catalog, fill(catalog) / "items.parquet")
    table = parquet.read_table(file)
    order = sorted(range(6), key=lambda n: table["id"][n].as_py())
    folder = tmp_path / "parts"
    folder.mkdir()
    moments = table.take(order[:5]).drop_columns(["start_datetime", "end_datetime"])
    parquet.write_table(moments, folder / "a.parquet", row_group_size=1)
    parquet.write_table(table.take(order[5:]), folder / "b.parquet")
    assert [item["id"] for item in from_parquet(folder, Query())] == [f"scene-{n}" for n in range(6)]
    # A page of the first row group is damaged, which only a search that needs it meets.
    content = bytearray((folder / "a.parquet").read_bytes())
    column = parquet.ParquetFile(folder / "a.parquet").metadata.row_group(0).column(3)
    start = column.dictionary_page_offset or column.data_page_offset
    content[start : start + column.total_compressed_size] = bytes(column.total_compressed_size)
    (folder / "a.parquet").write_bytes(content)
    spring = from_parquet(folder, Query(datetime="2023-03/2023-05"))
    assert [item["id"] for item in spring] == ["scene-2", "scene-3", "scene-4"]
    north = {"type": "Polygon", "coordinates": [[[14, 46.08], [16, 46.08], [16, 47], [14, 47], [14, 46.08]]]}
    assert [item["id"] for item in from_parquet(folder, Query(geometry=north))] == [f"scene-{n}" for n in range(1, 6)]
    with pytest.raises(BadInputError, match=r"a\.parquet is not a readable Parquet file"):
        from_parquet(folder, Query())


def test_what_is_not_stac_geoparquet_is_refused_in_a_sentence(catalog: Catalog, run: Run, tmp_path: Path) -> None:
    good = write_parquet(catalog, fill(catalog) / "items.parquet")
    table = parquet.read_table(good)
    bad = {
        "text": b"no parquet",
        "cut": good.read_bytes()[:-100],
        "plain": pa.table({"id": ["a"], "value": [1]}),
        "wkb": table.set_column(table.schema.get_field_index("geometry"), "geometry", pa.array([b"?"] * 6)),
        "no id": table.set_column(table.schema.get_field_index("id"), "id", pa.array([None] * 6, "string")),
    }
    sentences = {
        "text": "is not a readable Parquet file",
        "cut": "is not a readable Parquet file",
        "plain": "is not STAC-GeoParquet: it has no column geometry, assets",
        "wkb": "has a geometry that is not WKB",
        "no id": "is not a STAC Item",
    }
    for name, content in bad.items():
        file = tmp_path / f"{name}.parquet"
        file.write_bytes(content) if isinstance(content, bytes) else parquet.write_table(content, file)
        outputs = ("--items", tmp_path / "i", "--grid", tmp_path / "g.json", "--selection", tmp_path / "s.json")
        done = run("search", "--catalog", file, *outputs, *ASSETS)
        assert (done.code, sentences[name] in done.stderr) == (3, True), done.stderr
        assert not (tmp_path / "i").exists()
    done = run("search", "--catalog", good, *outputs, *ASSETS, "--datetime", "2020")
    assert done.code == 3
    assert "without the dates 6 of 6 would" in done.stderr


def test_a_row_group_of_few_bytes_and_millions_of_rows_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    count = (1 << 22) + 1
    same = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["a"])
    table = pa.table(dict.fromkeys(("id", "geometry", "assets"), same))
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=count)
    assert (tmp_path / "a.parquet").stat().st_size < 100_000
    with pytest.raises(RefusedError, match=f"a.parquet has a row group of {count} rows and .* bytes; a search reads"):
        from_parquet(tmp_path / "a.parquet", Query())


def test_a_row_group_that_declares_too_many_bytes_is_refused(
    catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(catalog)
    file = write_parquet(catalog, catalog.root / "items.parquet")
    assert len(from_parquet(file, Query())) == 6
    monkeypatch.setattr("eopipe.stac.read.MAX_GROUP", 100)
    with pytest.raises(RefusedError, match=r"has a row group of 6 rows and \d+ bytes; .* in groups of 100 bytes"):
        from_parquet(file, Query())


def test_a_pipe_or_device_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.parquet")
    (tmp_path / "b.parquet").symlink_to("/dev/zero")
    for name in ("a.parquet", "b.parquet"):
        with pytest.raises(BadInputError, match=f"{name} is not a regular file"):
            from_parquet(tmp_path / name, Query())


def _row(**other: Any) -> dict[str, Any]:
    bounds = {"xmin": 15.0, "ymin": 46.0, "xmax": 15.1, "ymax": 46.1}
    row = {"id": "a", "geometry": None, "bbox": bounds, "collection": "c", "datetime": "2023-01-01T00:00:00Z"}
    return row | {"assets": {"red": {"href": "red.tif"}}, "links": []} | other


@pytest.mark.parametrize(
    ("row", "collections", "text"),
    [
        (_row(extra=b"\xff"), {}, "properties.extra is of the type bytes, which JSON does not have"),
        (_row(extra=decimal.Decimal("1.5")), {}, "properties.extra is of the type Decimal"),
        (_row(extra=dt.timedelta(1)), {}, "properties.extra is of the type timedelta"),
        (_row(extra=dt.time(1)), {}, "properties.extra is of the type time"),
        (_row(bbox=dict.fromkeys(("xmin", "ymin", "xmax", "ymax"), "a")), {}, "bbox.0 is 'a': write a number"),
        (
            _row(datetime=pa.scalar(10**17, pa.timestamp("ms"))),
            {},
            "as a time beyond the year 9999",
        ),
        (_row(), {"c": 5}, "collection 'c' of x.parquet is not a STAC Collection: it is 5: write an object"),
        (_row(), {"c": {"links": [5]}}, "links.0 is 5: write an object"),
        (_row(), [5], "the collections in its metadata are not an object"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_that_no_item_has_are_refused_in_a_sentence(
    row: dict[str, Any], collections: Any, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table = pa.table({name: pa.array([value]) for name, value in row.items()})
    metadata = {"stac-geoparquet": json.dumps({"collections": collections})}
    parquet.write_table(table.replace_schema_metadata(metadata), "x.parquet")
    with pytest.raises(BadInputError, match=re.escape(text)):
        from_parquet(Path("x.parquet"), Query(geometry=mapping(box(14.0, 45.0, 16.0, 47.0))))
