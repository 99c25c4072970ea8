"""Labels are on the grid with the right class at the right pixel, and ambiguous pixels are unlabelled."""

import json
import sys
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import grid_of, write_features
from hypothesis import given, settings
from hypothesis import strategies as st
from scenery import CRS, LEFT, STEP, TOP, Catalog, Completed, Run, numbered, write_raster

from eopipe.arrays import AnyArray
from eopipe.errors import UsageError
from eopipe.labels.kinds import Legend
from eopipe.labels.sources import LabelShapes
from eopipe.publish import digest
from eopipe.text_files import write_json
from eopipe.tiles.store import NO_LABEL, Tiles

SMALL = ("--chunk", 16, "--shard", 32)


def label(run: Run, folder: Path, *arguments: object, shape: tuple[int, int] = (64, 48), **grid: float) -> Completed:
    left, top, step = grid.get("left", LEFT), grid.get("top", TOP), grid.get("step", STEP)
    write_json(folder / "grid.json", {"crs": CRS, "shape": shape, "transform": [step, 0.0, left, 0.0, -step, top]})
    return run("label", "--grid", folder / "grid.json", "--labels", folder / "labels.zarr", *SMALL, *arguments)


def stored(folder: Path) -> AnyArray:
    """Class numbers (y, x); the valid mask must agree with them."""
    store = Tiles(folder / "labels.zarr")
    numbers = store.read("label")
    np.testing.assert_array_equal(store.read("valid"), numbers != NO_LABEL)
    return numbers


def painted(*areas: tuple[tuple[slice, slice], int]) -> AnyArray:
    """Class numbers of these areas, the later over the earlier ones, and no label elsewhere."""
    numbers = np.full((64, 48), NO_LABEL)
    for area, number in areas:
        numbers[area] = number
    return numbers


def test_bins_cut_a_continuous_raster_and_their_edges_belong_above(tmp_path: Path, run: Run) -> None:
    heights = numbered((64, 48), 0).astype(np.float32) / 100
    heights[0, 0] = np.nan
    source = write_raster(tmp_path / "height.tif", heights, nodata=-1)
    arguments = ("--classes", "low", "middle", "high", "--bins", "5.5", "20")
    label(run, tmp_path, "--source", source, *arguments).ends(0)
    expected = np.where(heights < 5.5, 0, np.where(heights < 20, 1, 2))
    expected[0, 0] = NO_LABEL
    np.testing.assert_array_equal(stored(tmp_path), expected)
    store = Tiles(tmp_path / "labels.zarr")
    assert store.names == ("low", "middle", "high")
    assert store.scene == ""
    assert store.attributes["pixels"] == {"low": 549, "middle": 1450, "high": 1072}


@pytest.mark.parametrize(("values", "dtype", "nodata", "options", "numbers"), [
    ((0, 10, 20, 30, 40), "uint8", None, "--classes water wood --codes 30 10 --ignore 0 20 40", (255, 1, 255, 0, 255)),
    ((0, 1, 2, 3), "uint8", 3, "--classes a b c", (0, 1, 2, 255)),
    ((-9999, -2, -1, 1, 2, 7), "int16", -9999,
     "--classes low high --values low=-2 high=2 high=1 =7 --ignore -1", (255, 0, 255, 1, 1, 255)),
    *(((-9999, -3, -1, 0), dtype, None, "--classes a b --codes -1 -3 --ignore -9999 0", (255, 1, 0, 255))
      for dtype in ("int16", "int32", "float32")),
])  # fmt: skip
def test_each_value_of_a_raster_is_the_class_that_the_options_say_or_unlabelled(
    tmp_path: Path,
    run: Run,
    values: tuple[int, ...],
    dtype: str,
    nodata: float | None,
    options: str,
    numbers: tuple[int, ...],
) -> None:
    index = numbered((64, 48), 0) % len(values)
    source = write_raster(tmp_path / "codes.tif", np.array(values, dtype)[index], nodata=nodata)
    label(run, tmp_path, "--source", source, *options.split()).ends(0)
    np.testing.assert_array_equal(stored(tmp_path), np.array(numbers)[index])


def test_labels_end_where_their_raster_ends(tmp_path: Path, run: Run) -> None:
    types = [(None, "uint8"), (255, "uint8"), *((None, dtype) for dtype in ("uint16", "int16", "int32", "float32"))]
    for nodata, dtype in types:
        source = write_raster(tmp_path / "classes.tif", np.zeros((32, 24), dtype), nodata=nodata)
        label(run, tmp_path, "--source", source, "--classes", "a", left=LEFT - 80, top=TOP + 80).ends(0)
        np.testing.assert_array_equal(stored(tmp_path), painted((np.s_[8:40, 8:32], 0)))


def test_mode_takes_the_class_of_most_pixels(tmp_path: Path, run: Run) -> None:
    fine = np.zeros((64, 48), np.uint8)
    fine[::2, ::2] = 1
    fine[:16, :16] = 1
    fine[0, 0] = 0
    source = write_raster(tmp_path / "classes.tif", fine, nodata=None)
    arguments = ("--source", source, "--classes", "a", "b", "--resampling", "mode")
    assert label(run, tmp_path, *arguments, shape=(16, 12), step=40.0).code == 0
    expected = np.zeros((16, 12))
    expected[:4, :4] = 1
    np.testing.assert_array_equal(stored(tmp_path), expected)


def test_an_asset_of_a_scene_gives_the_labels_of_that_scene(catalog: Catalog, tmp_path: Path, run: Run) -> None:
    cover = (numbered((64, 48), 0) % 2).astype(np.uint8)
    item = catalog.add("a/b", bands={"cover": cover}, nodata=None)
    (catalog.root / "s0" / "scene.json").write_text(json.dumps(item))
    label(run, tmp_path, "--scene", catalog.root / "s0", "--asset", "cover", "--classes", "a", "b").ends(0)
    np.testing.assert_array_equal(stored(tmp_path), cover)
    assert Tiles(tmp_path / "labels.zarr").scene.startswith("a_b-")
    label(run, tmp_path, "--scene", catalog.root / "s0", "--asset", "truth").ends(3, "no band truth; it has cover")


def square(left: int, top: int, right: int, bottom: int) -> dict[str, Any]:
    """A polygon in degrees over pixels of the grid, its edges bent like the grid's."""
    from pyproj import Transformer

    change = Transformer.from_crs(CRS, "EPSG:4326", always_xy=True)
    ring = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
    corners = [change.transform(LEFT + STEP * x, TOP - STEP * y) for x, y in ring]
    return {"type": "Polygon", "coordinates": [corners]}


def write_vectors(path: Path, *features: tuple[Any, Any]) -> Path:
    return write_features(path, *((shape, {"class": name}) for name, shape in features))


def test_polygons_in_degrees_land_on_the_pixels_they_cover(tmp_path: Path, run: Run) -> None:
    features = (("wood", square(4, 6, 20, 30)), ("water", square(21, 20, 40, 50)), (None, square(0, 0, 2, 2)))
    source = write_vectors(tmp_path / "truth.geojson", *features, ("wood", None))
    label(run, tmp_path, "--source", source, "--classes", "water", "wood").ends(0)
    np.testing.assert_array_equal(stored(tmp_path), painted((np.s_[6:30, 4:20], 1), (np.s_[20:50, 21:40], 0)))


@pytest.mark.parametrize(("overlap", "number"), [(None, NO_LABEL), ("invalid", NO_LABEL), ("last", 0), ("first", 1)])
def test_where_classes_overlap_pixels_are_unlabelled_unless_the_first_or_last_wins(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture, overlap: str | None, number: int
) -> None:
    # Wood overlaps water again: first and last agree there, but the pixels are ambiguous.
    features = (("wood", square(4, 6, 20, 30)), ("water", square(10, 20, 40, 50)), ("wood", square(15, 25, 18, 28)))
    source = write_vectors(tmp_path / "truth.geojson", *features, ("water", square(30, 40, 35, 45)))
    chosen = ["--overlap", overlap] if overlap else []
    label(run, tmp_path, "--source", source, "--classes", "water", "wood", *chosen).ends(0)
    expected = painted((np.s_[20:50, 10:40], 0), (np.s_[6:30, 4:20], 1), (np.s_[20:30, 10:20], number))
    if overlap == "last":
        expected[25:28, 15:18] = 1
    np.testing.assert_array_equal(stored(tmp_path), expected)
    assert Tiles(tmp_path / "labels.zarr").attributes["conflicts"] == 100
    assert f"event=classes_disagree source=truth.geojson pixels=100 overlap={overlap or 'invalid'}" in caplog.text


def test_all_touched_labels_pixels_whose_centre_is_outside(tmp_path: Path, run: Run) -> None:
    source = write_vectors(tmp_path / "truth.geojson", ("wood", square(4.8, 6.8, 9.2, 8.2)))
    for arguments, area in (((), np.s_[7:8, 5:9]), (("--all-touched",), np.s_[6:9, 4:10])):
        label(run, tmp_path, "--source", source, "--classes", "wood", *arguments).ends(0)
        np.testing.assert_array_equal(stored(tmp_path), painted((area, 0)))


def test_points_and_lines_label_the_pixels_that_contain_them(tmp_path: Path, run: Run) -> None:
    ring = square(10, 20, 40, 50)["coordinates"][0]
    point, line = {"type": "Point", "coordinates": ring[0]}, {"type": "LineString", "coordinates": ring[1:3]}
    inside = square(2.5, 3.5, 9, 9)["coordinates"][0][0]
    features = (("well", {"type": "Point", "coordinates": inside}), ("road", line), ("well", point))
    source = write_vectors(tmp_path / "truth.geojson", *features)
    assert label(run, tmp_path, "--source", source, "--classes", "well", "road").code == 0
    numbers = stored(tmp_path)
    assert numbers[3, 2] == 0
    assert (numbers == 0).sum() == 2
    assert 30 <= (numbers == 1).sum() <= 32
    counts = {"file": 2, "dates": 0, "outside": 0}
    shapes = Tiles(tmp_path / "labels.zarr").attributes["shapes"]
    assert shapes == {"kind": "shapes", "classes": {"well": counts, "road": counts | {"file": 1}}}


def test_a_self_crossing_ring_is_repaired(tmp_path: Path, run: Run) -> None:
    first, second, third, fourth, _ = square(4, 4, 12, 12)["coordinates"][0]
    polygon = {"type": "Polygon", "coordinates": [[first, second, fourth, third, first]]}
    source = write_vectors(tmp_path / "truth.geojson", ("wood", polygon))
    label(run, tmp_path, "--source", source, "--classes", "wood").ends(0)
    assert stored(tmp_path)[5, 8] == 0
    assert stored(tmp_path)[8, 5] == NO_LABEL


def test_many_values_mean_one_class_in_vectors(tmp_path: Path, run: Run) -> None:
    features = ((111, square(0, 0, 9, 9)), (112, square(10, 0, 20, 9)), (311, square(0, 20, 9, 30)))
    features += ((999, square(30, 30, 40, 40)), (None, square(0, 40, 9, 50)))
    source = write_vectors(tmp_path / "truth.geojson", *features)
    arguments = ("--classes", "town", "wood", "--values", "town=111", "town=112", "wood=311", "=999")
    label(run, tmp_path, "--source", source, *arguments).ends(0)
    expected = painted((np.s_[0:9, 0:9], 0), (np.s_[0:9, 10:20], 0), (np.s_[20:30, 0:9], 1))
    np.testing.assert_array_equal(stored(tmp_path), expected)
    completed = label(run, tmp_path, "--source", source, "--classes", "town", "--values", "town=111", "town=112")
    completed.ends(3, "has features of class 311, 999; the classes are 111, 112")


@pytest.mark.parametrize("forms", [("NFD", "NFC"), ("NFC", "NFD")])
def test_class_names_that_look_the_same_are_the_same(tmp_path: Path, run: Run, forms: tuple[str, str]) -> None:
    in_file, in_config = (unicodedata.normalize(form, "forêt") for form in forms)
    source = write_vectors(tmp_path / "truth.geojson", (in_file, square(0, 0, 9, 9)), ("Föhre", square(10, 0, 20, 9)))
    values = (f"{in_config}={in_config}", f"{in_config}={unicodedata.normalize(forms[1], 'Föhre')}")
    assert label(run, tmp_path, "--source", source, "--classes", in_config, "--values", *values).code == 0
    assert Tiles(tmp_path / "labels.zarr").attributes["pixels"] == {in_config: 171}


def test_two_classes_that_look_the_same_are_refused() -> None:
    with pytest.raises(UsageError, match="classes has forêt twice"):
        Legend((unicodedata.normalize("NFD", "forêt"), unicodedata.normalize("NFC", "forêt")))


def test_a_code_that_the_pixels_cannot_hold_is_a_class_without_pixels_and_reported(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    source = write_raster(tmp_path / "codes.tif", np.full((64, 48), 255, np.uint8), nodata=None)
    assert label(run, tmp_path, "--source", source, "--classes", "a", "b", "--codes", -1, 255).code == 0
    assert (stored(tmp_path) == 1).all()
    assert "event=classes_without_pixels source=codes.tif classes='a'" in caplog.text
    assert Tiles(tmp_path / "labels.zarr").attributes["pixels"] == {"a": 0, "b": 64 * 48}


def test_bins_are_physical_values_by_scale_and_offset_of_the_file(tmp_path: Path, run: Run) -> None:
    import rasterio

    stored_numbers = numbered((64, 48), 1, "int16")
    source = write_raster(tmp_path / "t.tif", stored_numbers, nodata=3, driver="GTiff")
    with rasterio.open(source, "r+") as file:
        file.scales, file.offsets = (0.5,), (-10.0,)
    assert label(run, tmp_path, "--source", source, "--classes", "cold", "warm", "--bins", "10").code == 0
    expected = np.where(stored_numbers < 40, 0, 1)
    expected[stored_numbers == 3] = NO_LABEL
    np.testing.assert_array_equal(stored(tmp_path), expected)


def test_bins_are_physical_values_by_scale_and_offset_of_the_item(catalog: Catalog, tmp_path: Path, run: Run) -> None:
    item = catalog.add(bands={"height": numbered((64, 48))})
    (catalog.root / "s0" / "scene.json").write_text(json.dumps(item))
    arguments = ("--scene", catalog.root / "s0", "--asset", "height", "--classes", "low", "high", "--bins", "0.1")
    label(run, tmp_path, *arguments).ends(0)
    np.testing.assert_array_equal(stored(tmp_path), numbered((64, 48)) >= 1000)


def write_layer(path: Path, values: list[Any], *bounds: tuple[float, float, float, float], **options: Any) -> Path:
    """Boxes of pixels (left, top, right, bottom) of the grid with the attribute class, or another one."""
    import pyogrio.raw
    from shapely import box, to_wkb

    shapes = [
        box(LEFT + STEP * x, TOP - STEP * low, LEFT + STEP * right, TOP - STEP * y) for x, y, right, low in bounds
    ]
    options = {"fields": ["class"], "crs": CRS, "geometry_type": "Polygon"} | options
    pyogrio.raw.write(path, np.array([to_wkb(shape) for shape in shapes], object), [np.array(values)], **options)
    return path


def test_a_layer_is_chosen_by_name(tmp_path: Path, run: Run) -> None:
    write_layer(tmp_path / "truth.gpkg", [7], (0, 0, 10, 30), layer="north")
    source = write_layer(tmp_path / "truth.gpkg", [7], (0, 30, 10, 60), layer="south", append=True)
    arguments = ("--source", source, "--classes", "wood", "--codes", "7")
    label(run, tmp_path, *arguments, "--layer", "south").ends(0)
    np.testing.assert_array_equal(stored(tmp_path), painted((np.s_[30:60, :10], 0)))
    label(run, tmp_path, *arguments).ends(3, "has the layers north, south; choose one")
    label(run, tmp_path, *arguments, "--layer", "x").ends(3, "no layer x; it has north")


def test_a_column_of_numbers_with_missing_values_still_names_codes(tmp_path: Path, run: Run) -> None:
    source = write_layer(tmp_path / "truth.gpkg", [7.0, np.nan], (0, 0, 10, 10), (10, 0, 20, 10))
    label(run, tmp_path, "--source", source, "--classes", "wood", "--codes", 7).ends(0)
    assert Tiles(tmp_path / "labels.zarr").attributes["pixels"] == {"wood": 100}


def write_parquet(path: Path, **changes: Any) -> Path:
    """GeoParquet of two squares, as its specification 1.1 writes it."""
    import pyarrow as pa
    from pyarrow import parquet
    from shapely import to_wkb
    from shapely.geometry import shape

    shapes = [to_wkb(shape(square(4, 6, 20, 30))), to_wkb(shape(square(30, 40, 40, 50)))]
    table = pa.table({"class": ["wood", "water"], "geometry": shapes})
    column = {"encoding": "WKB", "geometry_types": ["Polygon"]} | changes
    metadata = {"version": "1.1.0", "primary_column": "geometry", "columns": {"geometry": column}}
    parquet.write_table(table.replace_schema_metadata({"geo": json.dumps(metadata)}), path)
    return path


def test_geoparquet_is_read(tmp_path: Path, run: Run) -> None:
    source = write_parquet(tmp_path / "truth.parquet")
    classes = ("--classes", "water", "wood")
    label(run, tmp_path, "--source", source, *classes).ends(0)
    np.testing.assert_array_equal(stored(tmp_path), painted((np.s_[6:30, 4:20], 1), (np.s_[40:50, 30:40], 0)))
    refused = label(run, tmp_path, "--source", source, *classes, "--attribute", "kind")
    refused.ends(3, "has no attribute kind; it has class")
    for change, message in (({"crs": None}, "has no CRS"), ({"encoding": "point"}, "only WKB is supported")):
        write_parquet(tmp_path / "odd.parquet", **change)
        label(run, tmp_path, "--source", tmp_path / "odd.parquet", *classes).ends(3, message)
    (tmp_path / "no.parquet").write_bytes(b"PAR1 or not")
    label(run, tmp_path, "--source", tmp_path / "no.parquet", *classes).ends(3)


def test_geoparquet_without_pyarrow_says_what_to_do(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "truth.parquet").write_bytes(b"PAR1")
    completed = label(run, tmp_path, "--source", tmp_path / "truth.parquet", "--classes", "wood")
    completed.ends(2, "pip install 'eopipe[parquet]'")


def test_a_raster_half_a_pixel_off_gives_each_pixel_the_class_at_its_centre(tmp_path: Path, run: Run) -> None:
    codes = (np.arange(64 * 48).reshape(64, 48) % 7).astype(np.uint8)
    source = write_raster(tmp_path / "classes.tif", codes, nodata=None, left=LEFT - 5, top=TOP + 6)
    arguments = ("--source", source, "--classes", *"abcdefg")
    # A centre of the grid is slightly below and to the right of where four pixels of the source meet.
    assert label(run, tmp_path, *arguments, left=LEFT + 1, shape=(60, 40)).code == 0
    np.testing.assert_array_equal(stored(tmp_path), codes[1:61, 1:41])


def test_a_raster_in_another_crs_gives_each_pixel_the_class_at_its_centre(tmp_path: Path, run: Run) -> None:
    from pyproj import Transformer

    change = Transformer.from_crs(CRS, "EPSG:4326", always_xy=True)
    west, north = change.transform(LEFT, TOP + 200)
    step, codes = 1e-4, (np.arange(120 * 120).reshape(120, 120) % 11).astype(np.uint8)
    source = write_raster(
        tmp_path / "c.tif", codes, nodata=None, left=west - 20 * step, top=north, step=step, crs="EPSG:4326"
    )
    assert label(run, tmp_path, "--source", source, "--classes", *"abcdefghijk").code == 0
    rows, cols = np.mgrid[:64, :48]
    x, y = change.transform(LEFT + STEP * (cols + 0.5), TOP - STEP * (rows + 0.5))
    col, row = (x - west) / step + 20, (north - y) / step
    clear = np.minimum(np.minimum(col % 1, 1 - col % 1), np.minimum(row % 1, 1 - row % 1)) > 1e-3
    expected = codes[row.astype(int), col.astype(int)]
    np.testing.assert_array_equal(stored(tmp_path)[clear], expected[clear])
    assert clear.mean() > 0.9


@given(
    seed=st.integers(0, 10_000),
    georeference=st.sampled_from(
        [("EPSG:32633", 500e3, 5.1e6, 10.0), ("EPSG:3035", 4.5e6, 2.6e6, 100.0), ("EPSG:32735", 4e5, 8e6, 30.0)]
    ),
    shape=st.tuples(st.integers(8, 40), st.integers(8, 40)),
    degrees=st.booleans(),
)
@settings(max_examples=25)
def test_a_pixel_has_the_class_of_the_polygon_that_holds_its_centre(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    georeference: tuple[str, float, float, float],
    shape: tuple[int, int],
    degrees: bool,
) -> None:
    import shapely
    from pyproj import Transformer

    crs, left, top, step = georeference
    grid = grid_of(shape, step, left, top, crs)
    source_crs = "EPSG:4326" if degrees else crs
    change = Transformer.from_crs(crs, source_crs, always_xy=True)
    random = np.random.default_rng(seed)
    polygons = []
    for _ in range(3):
        # Corners at growing angles around a centre: a ring that does not cross itself.
        angles = np.sort(random.uniform(0, 2 * np.pi, 7))
        reach, middle = random.uniform(2, 25, 7), random.uniform(0, 40, 2)
        x, y = change.transform(
            left + step * (middle[0] + reach * np.cos(angles)), top - step * (middle[1] + reach * np.sin(angles))
        )
        polygons.append(shapely.make_valid(shapely.Polygon(np.column_stack([x, y]))))
    features = zip(polygons, ({"class": name} for name in "abc"), strict=True)
    source = tmp_path_factory.mktemp("burn") / "truth.geojson"
    write_features(source, *features, crs="" if degrees else crs)
    rows, cols = np.mgrid[: shape[0], : shape[1]]
    x, y = change.transform(left + step * (cols + 0.5), top - step * (rows + 0.5))
    centres = shapely.points(x, y)
    inside = np.stack([shapely.contains(polygon, centres) for polygon in polygons])
    expected = np.where(inside.sum(0) == 1, inside.argmax(0), NO_LABEL)
    # On an edge both answers are right: a fiftieth of a pixel is left out.
    pixel = np.hypot(*(np.array(change.transform(left + step, top)) - change.transform(left, top)))
    clear = np.min([shapely.distance(shapely.boundary(p), centres) for p in polygons], 0) > 0.02 * pixel
    shapes = LabelShapes(source, grid, Legend(("a", "b", "c")), "class")
    numbers = shapes.rasterize(grid, "invalid", all_touched=False).labels
    np.testing.assert_array_equal(numbers[clear], expected[clear])


def test_shapes_are_the_same_whatever_the_shards(tmp_path: Path, run: Run) -> None:
    features = (("wood", square(4, 6, 40, 60)), ("water", square(10, 20, 45, 50)))
    source = write_vectors(tmp_path / "truth.geojson", *features)
    for shard in (16, 32, 64):
        label(run, tmp_path, "--source", source, "--classes", "wood", "water", "--shard", shard).ends(0)
        expected = painted((np.s_[6:60, 4:40], 0), (np.s_[20:50, 10:45], 1), (np.s_[20:50, 10:40], NO_LABEL))
        np.testing.assert_array_equal(stored(tmp_path), expected)


def test_numbers_in_vectors_are_codes(tmp_path: Path, run: Run) -> None:
    source = write_vectors(tmp_path / "truth.geojson", (7, square(0, 0, 9, 9)), (9, square(20, 20, 30, 30)))
    label(run, tmp_path, "--source", source, "--classes", "a", "b", "--codes", 9, 7).ends(0)
    np.testing.assert_array_equal(stored(tmp_path), painted((np.s_[:9, :9], 1), (np.s_[20:30, 20:30], 0)))
    label(run, tmp_path, "--source", source, "--classes", "b", "--codes", 7, "--ignore", 9).ends(0)
    np.testing.assert_array_equal(stored(tmp_path), painted((np.s_[:9, :9], 0)))


def test_a_polygon_far_larger_than_the_grid_covers_it_all(tmp_path: Path, run: Run) -> None:
    ring = [[-170, -80], [170, -80], [170, 80], [-170, 80], [-170, -80]]
    source = write_vectors(tmp_path / "truth.geojson", ("earth", {"type": "Polygon", "coordinates": [ring]}))
    label(run, tmp_path, "--source", source, "--classes", "earth").ends(0)
    assert (stored(tmp_path) == 0).all()


@pytest.mark.parametrize("name", ["truth.gpkg", "truth.fgb", "truth.shp"])
def test_other_attributes_and_formats_are_read(tmp_path: Path, run: Run, name: str) -> None:
    source = write_layer(tmp_path / name, ["wood"], (4, 6, 20, 30), fields=["kind"])
    label(run, tmp_path, "--source", source, "--classes", "wood", "--attribute", "kind").ends(0)
    np.testing.assert_array_equal(stored(tmp_path), painted((np.s_[6:30, 4:20], 0)))


@pytest.mark.parametrize(("feature", "options", "message"), [
    (("lava", square(0, 0, 9, 9)), (), "class lava; the classes are water, wood"),
    ((7, square(0, 0, 9, 9)), (), "class 7; the classes are water, wood"),
    (("wood", square(500, 500, 600, 600)), (), "has no label on the grid"),
    (("wood", None), (), "has no label on the grid"),
    (("wood", square(0, 0, 9, 9)), ("--attribute", "kind"), "has no attribute kind; it has class"),
], ids=["no class of the legend", "no code", "outside of the grid", "nothing", "no attribute"])  # fmt: skip
def test_vectors_without_a_label_that_is_a_class_are_refused(
    tmp_path: Path, run: Run, feature: tuple[Any, Any], options: tuple[str, ...], message: str
) -> None:
    source = write_vectors(tmp_path / "truth.geojson", feature)
    label(run, tmp_path, "--source", source, "--classes", "water", "wood", *options).ends(3, message)
    assert not (tmp_path / "labels.zarr").exists()


@pytest.mark.parametrize(
    ("text", "code"), [("", 3), ("no vectors", 3), ("{}", 3), ("<OGRVRTDataSource></OGRVRTDataSource>", 8)]
)
def test_a_file_without_vectors_is_reported(tmp_path: Path, run: Run, text: str, code: int) -> None:
    (tmp_path / "truth.geojson").write_text(text)
    label(run, tmp_path, "--source", tmp_path / "truth.geojson", "--classes", "wood").ends(code, "truth.geojson")


def test_vectors_without_a_crs_are_reported(tmp_path: Path, run: Run) -> None:
    with pytest.warns(UserWarning, match="crs"):
        source = write_layer(tmp_path / "t.shp", ["wood"], (0, 0, 1, 1), crs=None)
    label(run, tmp_path, "--source", source, "--classes", "wood").ends(3, "has no CRS")


@pytest.mark.parametrize(("name", "value", "left", "message"), [
    ("far", 0, LEFT + 90_000, "far.tif covers"), ("empty", 9, LEFT, "empty.tif has no label on the grid")
])  # fmt: skip
def test_a_label_raster_outside_the_grid_or_of_ignored_values_is_reported(
    tmp_path: Path, run: Run, name: str, value: int, left: float, message: str
) -> None:
    source = write_raster(tmp_path / f"{name}.tif", np.full((64, 48), value, np.uint8), left=left, nodata=None)
    label(run, tmp_path, "--source", source, "--classes", "a", "b", "--ignore", 9).ends(3, message)
    assert not (tmp_path / "labels.zarr").exists()


@pytest.mark.parametrize("arguments", [
    ("--classes", "a", "b", "c", "--bins", "1"),
    ("--classes", "a", "b", "c", "--bins", "2", "1"),
    ("--classes", "a", "b", "--bins", "1", "--codes", "1", "2"),
    ("--classes", "a", "b", "--codes", "1"),
    ("--classes", "a", "b", "--codes", "1", "1"),
    ("--classes", "a", "a"),
    ("--classes", "a", "b", "--values", "a=1"),
    ("--classes", "a", "--values", "1"),
    ("--classes", "a", "--values", "a=1", "a=1"),
    ("--classes", "a", "--values", "b=1", "a=2"),
    ("--classes", "a", "--values", "a=oak"),
    ("--classes", "a", "--values", "a=1", "--codes", "1"),
    ("--classes", "a", "b", "--codes", "1", "2", "--ignore", "2"),
    ("--classes", "a", "--values", "a=1", "--ignore", "1"),
    ("--classes", "a", "b", "--ignore", "0"),
    ("--asset", "cover"),
])  # fmt: skip
def test_an_inconsistent_legend_is_a_usage_error(tmp_path: Path, run: Run, arguments: tuple[str, ...]) -> None:
    source = write_raster(tmp_path / "classes.tif", np.zeros((64, 48), np.uint8), nodata=None)
    chosen = () if arguments[0] == "--asset" else ("--source", source)
    assert label(run, tmp_path, *chosen, *arguments).code == 2


def test_as_many_classes_as_numbers_are_possible() -> None:
    Legend(tuple(map(str, range(255))))
    with pytest.raises(UsageError, match="255"):
        Legend(tuple(map(str, range(256))))


def test_the_same_labels_have_the_same_bytes(tmp_path: Path, run: Run) -> None:
    source = write_vectors(tmp_path / "truth.geojson", ("wood", square(4, 6, 20, 30)))
    digests = set()
    for _ in range(2):
        assert label(run, tmp_path, "--source", source, "--classes", "wood").code == 0
        digests.add(digest(tmp_path / "labels.zarr"))
    assert len(digests) == 1


@given(
    values=st.lists(st.integers(-300, 300), min_size=1, max_size=30),
    codes=st.lists(st.integers(-300, 300), unique=True, min_size=1, max_size=5),
    ignore=st.lists(st.integers(-300, 300), max_size=3),
)
def test_a_value_gets_the_class_of_its_code(values: list[int], codes: list[int], ignore: list[int]) -> None:
    ignore = [value for value in ignore if value not in codes]
    legend = Legend(tuple(map(str, codes)), codes=tuple(codes), ignore=tuple(ignore))
    numbers = legend.of_raster(np.array([values]), np.ones((1, len(values)), bool))[0]
    for value, number in zip(values, numbers, strict=True):
        expected = codes.index(value) if value in codes else NO_LABEL
        assert number == expected
