"""No value of a label raster becomes a class, or nothing, without the user's knowledge."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import shapely
import zarr
from builders import write_features
from pyarrow import parquet
from scenery import Catalog, Run, write_raster
from test_label import NO_LABEL, label, square, stored, write_vectors

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError
from eopipe.labels.source_values import label_table
from eopipe.labels.vector_files import read_file
from eopipe.labels.vectors import read_features
from eopipe.tiles.store import Tiles

SHAPE = (64, 48)


def striped(*values: float, dtype: str = "uint8") -> AnyArray:
    """The values in equal stripes of rows; a label raster of 64 x 48 pixels."""
    return np.repeat(np.array(values, dtype), SHAPE[0] // len(values))[:, None] + np.zeros(SHAPE[1], dtype)


def lines_of(stderr: str) -> list[list[str]]:
    """The cells of the table in a message, whose last line is the cure."""
    return [line.split() for line in stderr.splitlines() if line.startswith("  ")][:-1]


def test_classes_coded_from_1_with_0_as_unlabelled_stop_with_the_table_and_the_codes_to_write(
    tmp_path: Path, run: Run
) -> None:
    source = write_raster(tmp_path / "cover.tif", striped(0, 1, 2, 1), nodata=None)
    arguments = ("--source", source, "--classes", "forest", "other")
    completed = label(run, tmp_path, *arguments).ends(3, "cover.tif has values that belong to no class")
    assert lines_of(completed.stderr) == [
        ["label", "value", "pixels", "class"],
        ["0", "768", "forest"],
        ["1", "1,536", "other"],
        ["2", "768", "no", "class"],
    ]
    completed.ends(3, "0 means unlabelled and the others in this order", "label.codes: [1, 2] and label.ignore: [0]")
    assert not (tmp_path / "labels.zarr").exists()
    label(run, tmp_path, *arguments, "--codes", 1, 2, "--ignore", 0).ends(0)
    np.testing.assert_array_equal(stored(tmp_path), striped(NO_LABEL, 0, 1, 0))


@pytest.mark.parametrize(("values", "arguments", "cure"), [
    ((1, 2), (), "if the values in this order mean forest, other, set label.codes: [1, 2]"),
    ((0, 1, 255), (), "the others mean unlabelled, set label.ignore: [255]"),
    ((0, 1, 7, 255), ("--ignore", 255), "the others mean unlabelled, set label.ignore: [255, 7]"),
    ((3, 5, 9), ("--codes", 3, 5), "if they mean unlabelled, set label.ignore: [9]"),
    ((3, 5, 9), ("--values", "forest=3", "other=5"), "name their class in label.values (class=value)"),
    ((-1, 0.5, 1), ("--codes", -1, 1), "if they mean unlabelled, set label.ignore: [0.5]"),
])  # fmt: skip
def test_a_value_that_no_option_explains_is_refused_with_a_cure(
    tmp_path: Path, run: Run, values: tuple[float, ...], arguments: tuple[Any, ...], cure: str
) -> None:
    pixels = striped(*values, dtype="float32" if 0.5 in values else "int16")[: 64 // len(values) * len(values)]
    source = write_raster(tmp_path / "cover.tif", pixels, nodata=None)
    label(run, tmp_path, "--source", source, "--classes", "forest", "other", *arguments).ends(3, cure)
    assert not (tmp_path / "labels.zarr").exists()


def test_a_raster_whose_values_are_all_explained_passes_and_its_store_has_the_table(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    source = write_raster(tmp_path / "cover.tif", striped(10, 20, 30, 40), nodata=40)
    arguments = ("--classes", "water", "wood", "--values", "water=10", "wood=20", "wood=21", "=30")
    caplog.set_level("INFO")
    label(run, tmp_path, "--source", source, *arguments).ends(0)
    np.testing.assert_array_equal(stored(tmp_path), striped(0, 1, NO_LABEL, NO_LABEL))
    assert "event=label_value source=cover.tif value='10' pixels=768 class='water'" in caplog.text
    assert label_table([tmp_path / "labels.zarr"]) == [
        "label value  pixels  class",
        "         10     768  water",
        "         20     768  wood",
        "         30     768  unlabelled",
    ]


def test_bins_explain_every_value_and_the_table_has_their_ranges(tmp_path: Path, run: Run) -> None:
    source = write_raster(tmp_path / "cover.tif", striped(0, 20, 60, 255), nodata=None)
    arguments = ("--classes", "bare", "open", "dense", "--bins", 10, 50, "--ignore", 255)
    assert label(run, tmp_path, "--source", source, *arguments).code == 0
    assert label_table([tmp_path / "labels.zarr"])[1:] == [
        "       < 10     768  bare",
        " 10 to < 50     768  open",
        "      >= 50     768  dense",
        " ignore 255     768  unlabelled",
    ]


def test_the_table_of_shapes_counts_the_shapes_of_each_value(tmp_path: Path, run: Run) -> None:
    features = (("Nadelwald", square(0, 0, 9, 9)), ("Laubwald", square(10, 0, 20, 9)), ("unklar", square(0, 20, 9, 30)))
    source = write_vectors(tmp_path / "truth.geojson", *features, ("Laubwald", square(30, 0, 40, 9)))
    arguments = ("--classes", "wood", "--values", "wood=Laubwald", "wood=Nadelwald", "=unklar")
    assert label(run, tmp_path, "--source", source, *arguments).code == 0
    assert Tiles(tmp_path / "labels.zarr").attributes["pixels"] == {"wood": 261}
    assert [line.split() for line in label_table([tmp_path / "labels.zarr"])] == [
        ["label", "value", "shapes", "class"],
        ["Laubwald", "2", "wood"],
        ["Nadelwald", "1", "wood"],
        ["unklar", "1", "unlabelled"],
    ]


def test_the_table_of_several_scenes_adds_their_pixels(catalog: Catalog, tmp_path: Path, run: Run) -> None:
    stores = []
    for name, values in (("first", (1, 2)), ("second", (0, 2))):
        item = catalog.add(name, bands={"cover": striped(*values)}, nodata=None)
        folder = catalog.root / f"s{len(catalog.items) - 1}"
        (folder / "scene.json").write_text(json.dumps(item))
        arguments = ("--scene", folder, "--asset", "cover", "--classes", "a", "b", "c", "d")
        label(run, tmp_path, *arguments).ends(0)
        stores.append((tmp_path / "labels.zarr").rename(tmp_path / f"{name}.zarr"))
    assert [line.split() for line in label_table(stores)[1:]] == [
        ["0", "1,536", "a"],
        ["1", "1,536", "b"],
        ["2", "3,072", "c"],
        ["3", "0", "d"],
        ["class", "d", "has", "no", "pixel", "on", "the", "grid"],
    ]


def test_a_continuous_raster_without_bins_or_measure_is_refused(tmp_path: Path, run: Run) -> None:
    heights = np.arange(64 * 48, dtype=np.float32).reshape(SHAPE)
    source = write_raster(tmp_path / "height.tif", heights, nodata=None)
    completed = label(run, tmp_path, "--source", source, "--classes", "low", "high")
    completed.ends(3, "a continuous raster: divide it into classes with label.bins, or set label.measure")


def test_an_ignored_stored_number_is_not_a_physical_value(tmp_path: Path, run: Run) -> None:
    import rasterio

    source = write_raster(tmp_path / "t.tif", striped(4, 20, dtype="int16"), nodata=None, driver="GTiff")
    with rasterio.open(source, "r+") as file:
        file.scales, file.offsets = (0.5,), (-6.0,)
    # 20 is stored, 4 is the physical value of 20.
    assert label(run, tmp_path, "--source", source, "--classes", "a", "b", "--bins", 0, "--ignore", 4).code == 0
    np.testing.assert_array_equal(stored(tmp_path), striped(NO_LABEL, 1))


@pytest.mark.parametrize("resampling", [(), ("--resampling", "average")])
def test_bins_of_a_finer_raster_are_applied_to_its_average(
    tmp_path: Path, run: Run, resampling: tuple[str, ...]
) -> None:
    fine = np.random.default_rng(3).integers(0, 101, (3 * 16, 3 * 12)).astype(np.uint8)
    source = write_raster(tmp_path / "cover.tif", fine, nodata=None)
    arguments = ("--source", source, "--classes", "open", "dense", "--bins", 50, *resampling)
    label(run, tmp_path, *arguments, shape=(16, 12), step=30.0).ends(0)
    np.testing.assert_array_equal(stored(tmp_path), fine.reshape(16, 3, 12, 3).mean((1, 3)) >= 50)


@pytest.mark.parametrize("resampling", ["bilinear", "cubic", "nearest"])
def test_bins_are_applied_after_any_resampling_of_numbers(tmp_path: Path, run: Run, resampling: str) -> None:
    ramp = np.arange(0, 96, 2, dtype=np.float32)[:, None] + np.zeros(36, np.float32)
    source = write_raster(tmp_path / "ramp.tif", ramp, nodata=None)
    arguments = ("--source", source, "--classes", "low", "high", "--bins", 49, "--resampling", resampling)
    label(run, tmp_path, *arguments, shape=(16, 12), step=30.0).ends(0)
    # The centre of a pixel of the grid is that of the middle one of three rows; the ramp is linear.
    np.testing.assert_array_equal(stored(tmp_path)[1:-1], np.broadcast_to(ramp[1::3, :12] >= 49, (16, 12))[1:-1])


def test_ignored_numbers_do_not_mix_with_others_when_a_finer_raster_is_averaged(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    fine = np.full((48, 36), 40, np.uint8)
    fine[::3, ::3], fine[:3, :3] = 255, 255
    source = write_raster(tmp_path / "cover.tif", fine, nodata=None)
    grid: dict[str, Any] = {"shape": (16, 12), "step": 30.0}
    arguments = ("--source", source, "--classes", "open", "dense", "--bins", 50)
    assert label(run, tmp_path, *arguments, "--ignore", 255, **grid).code == 0
    expected = np.zeros((16, 12))
    expected[0, 0] = NO_LABEL
    np.testing.assert_array_equal(stored(tmp_path), expected)
    completed = label(run, tmp_path, *arguments, "--ignore", 254, 255, "--resampling", "average", **grid)
    completed.ends(2, "would mix the ignored numbers 254, 255 with others")
    assert label(run, tmp_path, *arguments, "--ignore", 254, 255, **grid).code == 0
    np.testing.assert_array_equal(stored(tmp_path), expected)
    assert "event=labels_not_averaged" in caplog.text


def test_a_raster_as_coarse_as_the_grid_or_coarser_is_not_averaged(tmp_path: Path, run: Run) -> None:
    coarse = (np.arange(32 * 24) % 101).reshape(32, 24).astype(np.uint8)
    source = write_raster(tmp_path / "cover.tif", coarse, nodata=None, step=20.0)
    assert label(run, tmp_path, "--source", source, "--classes", "open", "dense", "--bins", 50).code == 0
    np.testing.assert_array_equal(stored(tmp_path), np.kron(coarse, np.ones((2, 2))) >= 50)


@pytest.mark.parametrize(("name", "message"), [
    ("places.tsv", "is a text table, which is not read; give a vector file (GeoPackage, GeoJSON"),
    ("places.tsv", "ogr2ogr places.gpkg places.tsv -oo X_POSSIBLE_NAMES=lon*"),
    ("places.kml", "is KML, which is not read"),
    ("places.xlsx", "is a spreadsheet, which is not read"),
    ("places.dbf", "is a part of a Shapefile, which is not read; give a vector file"),
])  # fmt: skip
def test_other_formats_of_labels_are_refused_with_what_is_read(
    tmp_path: Path, run: Run, name: str, message: str
) -> None:
    source = tmp_path / name
    source.write_text("<kml></kml>" if name.endswith("kml") else "x,y,class\n")
    label(run, tmp_path, "--source", source, "--classes", "wood").ends(2, message)


def test_a_scene_without_labels_is_published_as_such_with_a_warning(
    catalog: Catalog, tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    item = catalog.add("cloudy", bands={"cover": striped(9)}, nodata=None)
    (catalog.root / "s0" / "scene.json").write_text(json.dumps(item))
    source = ("--scene", catalog.root / "s0", "--asset", "cover")
    for options in (("--classes", "a", "b"), ("--measure", "height")):
        label(run, tmp_path, *source, *options, "--ignore", 9).ends(0)
        assert not Tiles(tmp_path / "labels.zarr").read("valid").any()
        assert "event=scene_without_labels scene=cloudy asset=cover" in caplog.text
        caplog.clear()


def points(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("text", [
    pytest.param("longitude,latitude,class\n{0},{1},well\n{2},{3},wood\n", id="commas"),
    pytest.param("\ufeffid;Lat;LON;class\r\n1;{1};{0};well\r\n\r\n2;{3};{2};wood\r\n", id="spreadsheet"),
    pytest.param('"decimalLatitude"\t"decimalLongitude"\t"class"\n{1}\t{0}\t"well"\n{3}\t{2}\t wood\n', id="GBIF"),
])  # fmt: skip
def test_a_table_of_points_labels_what_the_same_points_of_geojson_do(tmp_path: Path, run: Run, text: str) -> None:
    corners = [square(x + 0.5, y + 0.5, 40, 40)["coordinates"][0][0] for x, y in ((2, 3), (30, 20))]
    shapes = [(name, {"type": "Point", "coordinates": c}) for name, c in zip(("well", "wood"), corners, strict=True)]
    source = write_vectors(tmp_path / "p.geojson", *shapes)
    label(run, tmp_path, "--source", source, "--classes", "well", "wood").ends(0)
    expected = stored(tmp_path)
    assert sorted(np.unique(expected).tolist()) == [0, 1, 255]
    source = points(tmp_path / "points.csv", text.format(*(repr(degrees) for corner in corners for degrees in corner)))
    assert label(run, tmp_path, "--source", source, "--classes", "well", "wood").code == 0
    np.testing.assert_array_equal(stored(tmp_path), expected)


@pytest.mark.parametrize(("text", "message"), [
    ("x,y,class\n1,2,wood\n", "has the columns x, y, class; a table of points needs longitude and latitude"),
    ("lon,lat,kind\n1,2,wood\n", "has no attribute class; it has kind"),
    ("lon,lat,class\n1,2,wood\n1,95,wood\n", "has the latitude '95' in line 3; it needs degrees"),
    ("lon,lat,class\n500000,2,wood\n", "has the longitude '500000' in line 2; it needs degrees"),
    ("lon,lat,class\n1,north,wood\n", "has the latitude 'north' in line 2"),
    ("lon,lat,class\n1,2\n", "has 2 values in line 2, and 3 columns"),
    ("", "has the columns ; a table of points needs"),
])  # fmt: skip
def test_a_table_that_is_not_one_of_points_is_refused_with_its_line(
    tmp_path: Path, run: Run, text: str, message: str
) -> None:
    label(run, tmp_path, "--source", points(tmp_path / "points.csv", text), "--classes", "wood").ends(3, message)


def test_values_of_a_table_are_texts_as_in_the_file(tmp_path: Path) -> None:
    source = points(tmp_path / "p.csv", "lon,lat,code,height,name\n1,2,05,1.50,5\n1,2,,2,a\n1,2,7,,nan\n")
    assert [read_file(source, name, None, "").values for name in ("code", "height", "name")] == [
        ["05", None, "7"],
        ["1.50", "2", None],
        ["5", "a", "nan"],
    ]
    source.write_bytes("lon,lat,name\n1,2,w\u00e4ld\n".encode("latin-1"))
    with pytest.raises(BadInputError, match="is not a text in UTF-8"):
        read_file(source, "name", None, "")


def at(text: str) -> str:
    """A table of points in which {0}, {1}, … are places on the grid."""
    corners = [square(x + 0.5, y + 0.5, 40, 40)["coordinates"][0][0] for x, y in ((2, 3), (30, 20), (20, 9))]
    return text.format(*(f"{longitude!r},{latitude!r}" for longitude, latitude in corners))


def test_codes_with_and_without_zeros_are_different_classes(tmp_path: Path, run: Run) -> None:
    source = points(tmp_path / "p.csv", at("lon,lat,class\n{0},01\n{1},1\n{2},1.0\n"))
    assert label(run, tmp_path, "--source", source, "--classes", "01", "1", "1.0").code == 0
    assert np.unique(stored(tmp_path)).tolist() == [0, 1, 2, 255]
    completed = label(run, tmp_path, "--source", source, "--classes", "1", "2")
    completed.ends(3, "has features of class 01, 1.0; the classes are 1, 2")
    values = ("--classes", "a", "b", "--values", "a=01", "b=1", "=1.0")
    assert label(run, tmp_path, "--source", source, *values).code == 0
    assert np.unique(stored(tmp_path)).tolist() == [0, 1, 255]


def test_texts_of_geojson_stay_what_they_are(tmp_path: Path) -> None:
    source = tmp_path / "p.geojson"
    for text in ("2020/01/01", "2020-01-02T10:00:00+02:00", "10:30:00", "007"):
        write_vectors(source, (text, {"type": "Point", "coordinates": [1, 1]}))
        assert read_file(source, "class", None, "").values == [text]
    # GDAL reads the first as 9007199254740992, beside a feature without a value.
    codes = (9007199254740993, {"type": "Point", "coordinates": [1, 1]}), (None, None)
    write_vectors(source, *codes)  # type: ignore[arg-type]
    with pytest.raises(BadInputError, match="has a number of more than 15 digits in class"):
        read_file(source, "class", None, "")


@pytest.mark.parametrize(("text", "number"), [("1.50", 1.5), ("-3", -3.0), (" 1e3", 1000.0), ("nan", None)])
def test_a_measure_is_the_number_of_its_text(tmp_path: Path, run: Run, text: str, number: float | None) -> None:
    source = points(tmp_path / "p.csv", at("lon,lat,class\n{0}," + text + "\n{1},7\n"))
    assert label(run, tmp_path, "--source", source, "--measure", "height").code == 0
    values: AnyArray = np.asarray(zarr.open_group(str(tmp_path / "labels.zarr"), mode="r")["label"])
    assert sorted(values[np.isfinite(values)].tolist()) == sorted({number, 7.0} - {None})


@pytest.mark.parametrize("text", ["NA", "1e999", "1e39", "-inf", "1_000", "9" * 5000, "2020-01-01"])
def test_what_is_no_number_is_named_alone_where_a_measure_is_asked(tmp_path: Path, run: Run, text: str) -> None:
    source = points(tmp_path / "p.csv", at("lon,lat,class\n{0}," + text + "\n{1},12.5\n"))
    completed = label(run, tmp_path, "--source", source, "--measure", "height").ends(3)
    assert completed.stderr.strip().endswith(f"p.csv has values of class that are not numbers: {text}")


def test_a_long_field_of_a_table_ends_in_a_sentence(tmp_path: Path, run: Run) -> None:
    source = points(tmp_path / "p.csv", "lon,lat,class\n1,1,wood\n1,1," + "x" * 131_073 + "\n")
    completed = label(run, tmp_path, "--source", source, "--classes", "wood")
    completed.ends(3, "p.csv cannot be read as a table in line 3: field larger than field limit")
    source.write_bytes(source.read_bytes()[:-2] + b"\n")
    completed = label(run, tmp_path, "--source", source, "--classes", "wood").ends(3, "has features of class xxx")
    assert len(completed.stderr) < 25_000


def test_dates_of_points_are_said_not_to_be_used(tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture) -> None:
    longitude, latitude = square(2.5, 3.5, 9, 9)["coordinates"][0][0]
    rows = f"longitude,latitude,start_date,class\n{longitude!r},{latitude!r},2020-06-01,wood\n"
    assert label(run, tmp_path, "--source", points(tmp_path / "p.csv", rows), "--classes", "wood").code == 0
    assert "event=dates_of_points_not_used source=p.csv columns=start_date" in caplog.text
    assert Tiles(tmp_path / "labels.zarr").attributes["shapes"]["kind"] == "points"


def dated(path: Path, heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Path:
    """A file of points of the class wood at (1, 1), (2, 2), … degrees, each with its dates."""
    columns = {name: [row[number] for row in rows] for number, name in enumerate(heads)}
    if path.suffix == ".csv":
        lines = [f"{number},{number},wood,{','.join(row)}" for number, row in enumerate(rows, 1)]
        return points(path, "\n".join([f"lon,lat,class,{','.join(heads)}", *lines]))
    if path.suffix == ".parquet":
        shapes = [shapely.to_wkb(shapely.Point(number, number)) for number in range(1, len(rows) + 1)]
        table = pa.table({"class": ["wood"] * len(rows), "geometry": shapes, **columns})
        metadata = {"primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}}
        parquet.write_table(table.replace_schema_metadata({"geo": json.dumps(metadata)}), path)
        return path
    # GDAL makes dates of texts that all are dates.
    dates = [{name: text or None for name, text in zip(heads, row, strict=True)} for row in rows]
    features = ((shapely.Point(n, n), {"class": "wood"} | date) for n, date in enumerate(dates, 1))
    return write_features(path, *features)


@pytest.mark.parametrize("suffix", [".csv", ".geojson", ".parquet"])
@pytest.mark.parametrize(("heads", "rows", "expected"), [
    (("date",), [("2019-12-31",), ("2020-01-01",), ("2020-12-31",), ("2021-01-01",)], [2, 3]),
    (("Time",), [("2019-12-31T23:59:59Z",), ("2020-12-31T23:00:00Z",)], [2]),
    (("date",), [("2020",), ("2020-05",), ("",), ("2021",)], [1, 2]),
    # A time of day is no date, and a name of a date counts before one of a time.
    (("date", "time"), [("2023-08-01", "2020"), ("2020-08-01", "1030")], [2]),
    (("observed_on", "end_time"), [("2020-08-01", "10:30"), ("2021", "2020")], [1]),
    (("End", "Begin"), [("2019", "2018"), ("2021", "2019"), ("", "2020"), ("..", "2018")], [2, 3, 4]),
    # The label of a period counts where a day of it does.
    (("start_date", "end_date"), [("2018", "2019"), ("2019-06-01", "2020-05-31"), ("2018", "2022")], [2, 3]),
])  # fmt: skip
def test_of_a_file_with_dates_the_features_of_label_dates_count(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    heads: tuple[str, ...],
    rows: list[tuple[str, ...]],
    expected: list[int],
    suffix: str,
) -> None:
    features = read_features(dated(tmp_path / f"points{suffix}", heads, rows), "class", dates="2020")
    assert features.rows.tolist() == expected
    assert [shape.x for shape in features.shapes] == expected
    assert features.values == ["wood"] * len(expected)
    assert ("event=labels_without_date" in caplog.text) == (("",) in rows)


@pytest.mark.parametrize(("dates", "sentence"), [
    ("2020", "columns=date role='date of observation by name' used=1 of=1"),
    ("date=2020", "columns=date role='date of observation' used=1 of=1"),
    ("since,time=2020", "columns=since,time role='first and last date' used=1 of=1"),
])  # fmt: skip
def test_the_log_says_which_columns_have_the_dates(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, dates: str, sentence: str
) -> None:
    source = dated(tmp_path / "points.csv", ("since", "date", "time"), [("2018", "2020", "2021")])
    with caplog.at_level("INFO", "eopipe"):
        read_features(source, "class", dates=dates)
    assert f"event=labels_of_dates source=points.csv {sentence}" in caplog.text


COLUMNS = ("date", "eventDate"), [("2020", "2021"), ("2021", "2020-05-01")]
HALF = ("start_date",), [("2020",), ("2021",)]
TIME = ("time",), [("2020",), ("1030",)]


@pytest.mark.parametrize(("columns", "dates", "expected"), [
    (COLUMNS, "2020", "has the columns date, eventDate: neither one date nor a first and a last one"),
    (COLUMNS, "date=2020", [1]),
    (COLUMNS, " eventDate= 2020", [2]),
    (COLUMNS, "eventDate=2020", [2]),
    (COLUMNS, "date,eventDate=2021", "2021/2020-05-01 as the date of feature 2: the interval 2021/2020-05-01 ends"),
    (COLUMNS, "seen=2020", "has no column seen of label.dates; it has date, eventDate"),
    (HALF, "2020", 'two of them, as in label.dates: "start_date=2020"'),
    (HALF, "start_date=2020", [1]),
    (TIME, "2020", 'may be a time of day; if not, set label.dates: "time=2020"'),
    (TIME, "time=2020", [1]),
    ((("date", "from", "to"), [("2020", "2019", "2021")]), "2021", "has the columns date, from, to: neither"),
    ((("date", "from", "to"), [("2020", "2019", "2021")]), "from,to=2021", [1]),
    ((("date", "Date"), [("2020", "2019")]), "2021", "has the columns date, Date: neither"),
])  # fmt: skip
def test_columns_whose_names_leave_a_choice_are_named(
    tmp_path: Path,
    columns: tuple[tuple[str, ...], list[tuple[str, ...]]],
    dates: str,
    expected: list[int] | str,
) -> None:
    source = dated(tmp_path / "points.csv", *columns)
    if isinstance(expected, list):
        assert read_features(source, "class", dates=dates).rows.tolist() == expected
        return
    with pytest.raises(BadInputError) as refusal:
        read_features(source, "class", dates=dates)
    assert expected in str(refusal.value)


@pytest.mark.parametrize(
    "crs",
    ['"nonsense"', '{"a": 1}', "[" * 5000 + "]" * 5000, '{"a":' * 300 + "1" + "}" * 300, "9" * 5000, '{"a": 1e999}'],
)
def test_a_crs_that_is_none_ends_in_a_sentence(tmp_path: Path, run: Run, crs: str) -> None:
    source = dated(tmp_path / "p.parquet", ("date",), [("2020",)])
    table = parquet.read_table(source)
    metadata = f'{{"primary_column": "geometry", "columns": {{"geometry": {{"encoding": "WKB", "crs": {crs}}}}}}}'
    parquet.write_table(table.replace_schema_metadata({"geo": metadata}), source)
    label(run, tmp_path, "--source", source, "--classes", "wood").ends(3)


def test_dates_that_choose_no_label_or_cannot_are_refused(tmp_path: Path, run: Run) -> None:
    source = dated(tmp_path / "points.csv", ("date",), [("2020-01-01",), ("May 2020",)])
    others = points(tmp_path / "others.csv", "lon,lat,class\n1,1,wood\n")
    raster = write_raster(tmp_path / "cover.tif", striped(0, 1))
    refused = [
        (source, "2020", 3, "points.csv has May 2020 as the date of feature 2: 'May 2020' is not a date"),
        (dated(tmp_path / "one.csv", ("date",), [("2020",)]), "2019", 3, "none of the 1 features of"),
        (others, "2020", 3, "others.csv has no column of dates for label.dates"),
        (others, "a,b,c=2020", 2, "label.dates: a,b,c are 3 columns"),
        (others, "last year", 2, "label.dates: 'last year' is not a date or interval"),
        (raster, "2020", 2, "it is not for a raster"),
    ]
    for path, dates, code, sentence in refused:
        label(run, tmp_path, "--source", path, "--classes", "wood", "--dates", dates).ends(code, sentence)
    assert not (tmp_path / "labels.zarr").exists()
