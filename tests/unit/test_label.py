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


def test_bins_cut_a_continuous_raster_and_their_edges_belong_above(tmp_path: Path, run: Run) -> None:
    heights = numbered((64, 48), 0).astype(np.float32) / 100
    heights[0, 0] = np.nan
    source = write_raster(tmp_path / "height.tif", heights, nodata=-1)
    arguments = ("--classes", "low", "middle", "high", "--bins", "5.5", "20")
    completed = label(run, tmp_path, "--source", source, *arguments)
    assert completed.code == 0, completed.stderr
    expected = np.where(heights < 5.5, 0, np.where(heights < 20, 1, 2))
    expected[0, 0] = NO_LABEL
    np.testing.assert_array_equal(stored(tmp_path), expected)
    store = Tiles(tmp_path / "labels.zarr")
    assert store.names == ("low", "middle", "high")
    assert store.scene == ""
    assert store.attributes["pixels"] == {"low": 549, "middle": 1450, "high": 1072}


def test_codes_name_the_classes_and_ignored_codes_are_unlabelled(tmp_path: Path, run: Run) -> None:
    codes = (np.arange(64 * 48).reshape(64, 48) % 5 * 10).astype(np.uint8)
    source = write_raster(tmp_path / "codes.tif", codes, nodata=None)
    arguments = ("--classes", "water", "wood", "--codes", 30, 10, "--ignore", 0, 20, 40)
    completed = label(run, tmp_path, "--source", source, *arguments)
    assert completed.code == 0, completed.stderr
    expected = np.select([codes == 30, codes == 10], [0, 1], NO_LABEL)
    np.testing.assert_array_equal(stored(tmp_path), expected)


def test_without_codes_the_values_are_the_class_numbers(tmp_path: Path, run: Run) -> None:
    values = (np.arange(64 * 48).reshape(64, 48) % 4).astype(np.uint8)
    source = write_raster(tmp_path / "classes.tif", values, nodata=3)
    assert label(run, tmp_path, "--source", source, "--classes", "a", "b", "c").code == 0
    np.testing.assert_array_equal(stored(tmp_path), np.where(values == 3, NO_LABEL, values))


def test_labels_end_where_their_raster_ends(tmp_path: Path, run: Run) -> None:
    types = [(None, "uint8"), (255, "uint8"), *((None, dtype) for dtype in ("uint16", "int16", "int32", "float32"))]
    for nodata, dtype in types:
        source = write_raster(tmp_path / "classes.tif", np.zeros((32, 24), dtype), nodata=nodata)
        assert label(run, tmp_path, "--source", source, "--classes", "a", left=LEFT - 80, top=TOP + 80).code == 0
        expected = np.full((64, 48), NO_LABEL)
        expected[8:40, 8:32] = 0
        np.testing.assert_array_equal(stored(tmp_path), expected)


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
    item = catalog.add("a/b", bands={"cover": (np.arange(64 * 48).reshape(64, 48) % 2).astype(np.uint8)}, nodata=None)
    (catalog.root / "s0" / "scene.json").write_text(json.dumps(item))
    arguments = ("--scene", catalog.root / "s0", "--asset", "cover", "--classes", "a", "b")
    completed = label(run, tmp_path, *arguments)
    assert completed.code == 0, completed.stderr
    np.testing.assert_array_equal(stored(tmp_path), np.arange(64 * 48).reshape(64, 48) % 2)
    assert Tiles(tmp_path / "labels.zarr").scene.startswith("a_b-")
    completed = label(run, tmp_path, "--scene", catalog.root / "s0", "--asset", "truth")
    assert completed.code == 3
    assert "no band truth; it has cover" in completed.stderr


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
    completed = label(run, tmp_path, "--source", source, "--classes", "water", "wood")
    assert completed.code == 0, completed.stderr
    expected = np.full((64, 48), NO_LABEL)
    expected[6:30, 4:20] = 1
    expected[20:50, 21:40] = 0
    np.testing.assert_array_equal(stored(tmp_path), expected)


@pytest.mark.parametrize(("overlap", "number"), [(None, NO_LABEL), ("invalid", NO_LABEL), ("last", 0), ("first", 1)])
def test_where_classes_overlap_pixels_are_unlabelled_unless_the_first_or_last_wins(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture, overlap: str | None, number: int
) -> None:
    # Wood overlaps water again: first and last agree there, but the pixels are ambiguous.
    features = (("wood", square(4, 6, 20, 30)), ("water", square(10, 20, 40, 50)), ("wood", square(15, 25, 18, 28)))
    source = write_vectors(tmp_path / "truth.geojson", *features, ("water", square(30, 40, 35, 45)))
    arguments = ["--source", source, "--classes", "water", "wood", *(["--overlap", overlap] if overlap else [])]
    assert label(run, tmp_path, *arguments).code == 0
    expected = np.full((64, 48), NO_LABEL)
    expected[20:50, 10:40] = 0
    expected[6:30, 4:20] = 1
    expected[20:30, 10:20] = number
    if overlap == "last":
        expected[25:28, 15:18] = 1
    np.testing.assert_array_equal(stored(tmp_path), expected)
    assert Tiles(tmp_path / "labels.zarr").attributes["conflicts"] == 100
    assert f"event=classes_disagree source=truth.geojson pixels=100 overlap={overlap or 'invalid'}" in caplog.text


def test_all_touched_labels_pixels_whose_centre_is_outside(tmp_path: Path, run: Run) -> None:
    source = write_vectors(tmp_path / "truth.geojson", ("wood", square(4.8, 6.8, 9.2, 8.2)))
    for arguments, rows, cols in (((), slice(7, 8), slice(5, 9)), (("--all-touched",), slice(6, 9), slice(4, 10))):
        assert label(run, tmp_path, "--source", source, "--classes", "wood", *arguments).code == 0
        expected = np.full((64, 48), NO_LABEL)
        expected[rows, cols] = 0
        np.testing.assert_array_equal(stored(tmp_path), expected)


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


def test_a_self_crossing_ring_is_repaired(tmp_path: Path, run: Run) -> None:
    first, second, third, fourth, _ = square(4, 4, 12, 12)["coordinates"][0]
    polygon = {"type": "Polygon", "coordinates": [[first, second, fourth, third, first]]}
    source = write_vectors(tmp_path / "truth.geojson", ("wood", polygon))
    completed = label(run, tmp_path, "--source", source, "--classes", "wood")
    assert completed.code == 0, completed.stderr
    assert stored(tmp_path)[5, 8] == 0
    assert stored(tmp_path)[8, 5] == NO_LABEL


def test_many_values_mean_one_class_in_vectors(tmp_path: Path, run: Run) -> None:
    features = ((111, square(0, 0, 9, 9)), (112, square(10, 0, 20, 9)), (311, square(0, 20, 9, 30)))
    source = write_vectors(
        tmp_path / "truth.geojson", *features, (999, square(30, 30, 40, 40)), (None, square(0, 40, 9, 50))
    )
    arguments = ("--classes", "town", "wood", "--values", "town=111", "town=112", "wood=311", "=999")
    completed = label(run, tmp_path, "--source", source, *arguments)
    assert completed.code == 0, completed.stderr
    expected = np.full((64, 48), NO_LABEL)
    expected[0:9, 0:9], expected[0:9, 10:20], expected[20:30, 0:9] = 0, 0, 1
    np.testing.assert_array_equal(stored(tmp_path), expected)
    completed = label(run, tmp_path, "--source", source, "--classes", "town", "--values", "town=111", "town=112")
    assert completed.code == 3
    assert "has features of class 311, 999; the classes are 111, 112" in completed.stderr


def test_values_in_another_language_mean_classes(tmp_path: Path, run: Run) -> None:
    features = (("Nadelwald", square(0, 0, 9, 9)), ("Laubwald", square(10, 0, 20, 9)), ("unklar", square(0, 20, 9, 30)))
    source = write_vectors(tmp_path / "truth.geojson", *features)
    arguments = ("--classes", "wood", "--values", "wood=Laubwald", "wood=Nadelwald", "=unklar")
    assert label(run, tmp_path, "--source", source, *arguments).code == 0
    assert Tiles(tmp_path / "labels.zarr").attributes["pixels"] == {"wood": 171}


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


def test_many_and_negative_values_mean_one_class_in_rasters(tmp_path: Path, run: Run) -> None:
    codes = np.array([-9999, -2, -1, 1, 2, 7])[np.arange(64 * 48).reshape(64, 48) % 6].astype(np.int16)
    source = write_raster(tmp_path / "codes.tif", codes, nodata=-9999)
    arguments = ("--classes", "low", "high", "--values", "low=-2", "high=2", "high=1", "=7", "--ignore", "-1")
    completed = label(run, tmp_path, "--source", source, *arguments)
    assert completed.code == 0, completed.stderr
    expected = np.select([codes == -2, np.isin(codes, (1, 2))], [0, 1], NO_LABEL)
    np.testing.assert_array_equal(stored(tmp_path), expected)


@pytest.mark.parametrize("dtype", ["int16", "int32", "float32"])
def test_codes_may_be_negative(tmp_path: Path, run: Run, dtype: str) -> None:
    codes = np.array([-9999, -3, -1, 0])[np.arange(64 * 48).reshape(64, 48) % 4].astype(dtype)
    source = write_raster(tmp_path / "codes.tif", codes, nodata=None)
    arguments = ("--classes", "a", "b", "--codes", -1, -3, "--ignore", -9999, 0)
    completed = label(run, tmp_path, "--source", source, *arguments)
    assert completed.code == 0, completed.stderr
    np.testing.assert_array_equal(stored(tmp_path), np.select([codes == -1, codes == -3], [0, 1], NO_LABEL))


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
    completed = label(run, tmp_path, *arguments)
    assert completed.code == 0, completed.stderr
    np.testing.assert_array_equal(stored(tmp_path), numbered((64, 48)) >= 1000)


def test_a_layer_is_chosen_by_name(tmp_path: Path, run: Run) -> None:
    import pyogrio.raw
    from shapely import to_wkb
    from shapely.geometry import box

    source = tmp_path / "truth.gpkg"
    for n, name in enumerate(("north", "south")):
        shape = box(LEFT, TOP - 300 - 300 * n, LEFT + 100, TOP - 300 * n)
        geometry = {"crs": CRS, "geometry_type": "Polygon", "layer": name}
        fields = {"field_data": [np.array([7], np.int32)], "fields": ["class"]}
        pyogrio.raw.write(source, np.array([to_wkb(shape)], object), append=bool(n), **fields, **geometry)
    arguments = ("--source", source, "--classes", "wood", "--codes", "7")
    assert label(run, tmp_path, *arguments, "--layer", "south").code == 0
    assert (stored(tmp_path)[30:60, :10] == 0).all()
    assert (stored(tmp_path)[:30] == NO_LABEL).all()
    for options, message in (
        ((), "has the layers north, south; choose one"),
        (("--layer", "x"), "no layer x; it has north"),
    ):
        completed = label(run, tmp_path, *arguments, *options)
        assert completed.code == 3
        assert message in completed.stderr


def test_a_column_of_numbers_with_missing_values_still_names_codes(tmp_path: Path, run: Run) -> None:
    import pyogrio.raw
    from shapely import to_wkb
    from shapely.geometry import box

    shapes = [box(LEFT + 100 * n, TOP - 100, LEFT + 100 * n + 100, TOP) for n in range(2)]
    pyogrio.raw.write(
        tmp_path / "truth.gpkg",
        np.array([to_wkb(shape) for shape in shapes], object),
        field_data=[np.array([7.0, np.nan])],
        fields=["class"],
        crs=CRS,
        geometry_type="Polygon",
    )
    assert label(run, tmp_path, "--source", tmp_path / "truth.gpkg", "--classes", "wood", "--codes", 7).code == 0
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
    arguments = ("--source", source, "--classes", "water", "wood")
    completed = label(run, tmp_path, *arguments)
    assert completed.code == 0, completed.stderr
    expected = np.full((64, 48), NO_LABEL)
    expected[6:30, 4:20], expected[40:50, 30:40] = 1, 0
    np.testing.assert_array_equal(stored(tmp_path), expected)
    completed = label(run, tmp_path, *arguments, "--attribute", "kind")
    assert completed.code == 3
    assert "has no attribute kind; it has class" in completed.stderr
    for change, message in (({"crs": None}, "has no CRS"), ({"encoding": "point"}, "only WKB is supported")):
        completed = label(run, tmp_path, "--source", write_parquet(tmp_path / "odd.parquet", **change), *arguments[2:])
        assert completed.code == 3
        assert message in completed.stderr
    (tmp_path / "no.parquet").write_bytes(b"PAR1 or not")
    assert label(run, tmp_path, "--source", tmp_path / "no.parquet", *arguments[2:]).code == 3


def test_geoparquet_without_pyarrow_says_what_to_do(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "truth.parquet").write_bytes(b"PAR1")
    completed = label(run, tmp_path, "--source", tmp_path / "truth.parquet", "--classes", "wood")
    assert completed.code == 2
    assert "pip install 'eopipe[parquet]'" in completed.stderr


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
    labels = []
    for shard in (16, 32, 64):
        arguments = ("--source", source, "--classes", "wood", "water", "--shard", shard)
        assert label(run, tmp_path, *arguments).code == 0
        labels.append(stored(tmp_path))
    np.testing.assert_array_equal(labels[0], labels[1])
    np.testing.assert_array_equal(labels[0], labels[2])


def test_numbers_in_vectors_are_codes(tmp_path: Path, run: Run) -> None:
    source = write_vectors(tmp_path / "truth.geojson", (7, square(0, 0, 9, 9)), (9, square(20, 20, 30, 30)))
    arguments = ("--source", source, "--classes", "a", "b", "--codes", 9, 7)
    assert label(run, tmp_path, *arguments).code == 0
    assert (stored(tmp_path)[:9, :9] == 1).all()
    assert (stored(tmp_path)[20:30, 20:30] == 0).all()
    assert label(run, tmp_path, "--source", source, "--classes", "b", "--codes", 7, "--ignore", 9).code == 0
    assert (stored(tmp_path)[20:30, 20:30] == NO_LABEL).all()


def test_a_polygon_far_larger_than_the_grid_covers_it_all(tmp_path: Path, run: Run) -> None:
    ring = [[-170, -80], [170, -80], [170, 80], [-170, 80], [-170, -80]]
    source = write_vectors(tmp_path / "truth.geojson", ("earth", {"type": "Polygon", "coordinates": [ring]}))
    completed = label(run, tmp_path, "--source", source, "--classes", "earth")
    assert completed.code == 0, completed.stderr
    assert (stored(tmp_path) == 0).all()


def test_other_attributes_and_formats_are_read(tmp_path: Path, run: Run) -> None:
    import pyogrio.raw
    from shapely import to_wkb
    from shapely.geometry import box

    shape = box(LEFT + 40, TOP - 300, LEFT + 200, TOP - 60)
    for name in ("truth.gpkg", "truth.fgb", "truth.shp"):
        geometry = {"crs": CRS, "geometry_type": "Polygon"}
        fields = {"field_data": [np.array(["wood"], object)], "fields": ["kind"]}
        pyogrio.raw.write(tmp_path / name, np.array([to_wkb(shape)], object), **fields, **geometry)
        arguments = ("--source", tmp_path / name, "--classes", "wood", "--attribute", "kind")
        completed = label(run, tmp_path, *arguments)
        assert completed.code == 0, completed.stderr
        expected = np.full((64, 48), NO_LABEL)
        expected[6:30, 4:20] = 0
        np.testing.assert_array_equal(stored(tmp_path), expected)


WRONG_VECTORS = {
    "a class that is not in the legend": (("lava", square(0, 0, 9, 9)), "class lava; the classes are water, wood"),
    "a number that is not a code": ((7, square(0, 0, 9, 9)), "class 7; the classes are water, wood"),
    "a shape outside the grid": (("wood", square(500, 500, 600, 600)), "has no label on the grid"),
    "nothing in it": (("wood", None), "has no label on the grid"),
}


@pytest.mark.parametrize("fault", WRONG_VECTORS)
def test_vectors_are_refused_that_have(tmp_path: Path, run: Run, fault: str) -> None:
    feature, message = WRONG_VECTORS[fault]
    source = write_vectors(tmp_path / "truth.geojson", feature)
    completed = label(run, tmp_path, "--source", source, "--classes", "water", "wood")
    assert completed.code == 3, completed.stderr
    assert message in completed.stderr
    assert not (tmp_path / "labels.zarr").exists()


def test_a_missing_attribute_is_reported_with_the_available_ones(tmp_path: Path, run: Run) -> None:
    source = write_vectors(tmp_path / "truth.geojson", ("wood", square(0, 0, 9, 9)))
    completed = label(run, tmp_path, "--source", source, "--classes", "wood", "--attribute", "kind")
    assert completed.code == 3
    assert "has no attribute kind; it has class" in completed.stderr


@pytest.mark.parametrize(
    ("text", "code"), [("", 3), ("no vectors", 3), ("{}", 3), ("<OGRVRTDataSource></OGRVRTDataSource>", 8)]
)
def test_a_file_without_vectors_is_reported(tmp_path: Path, run: Run, text: str, code: int) -> None:
    (tmp_path / "truth.geojson").write_text(text)
    completed = label(run, tmp_path, "--source", tmp_path / "truth.geojson", "--classes", "wood")
    assert completed.code == code, completed.stderr
    assert "truth.geojson" in completed.stderr


def test_vectors_without_a_crs_are_reported(tmp_path: Path, run: Run) -> None:
    import pyogrio.raw
    from shapely import to_wkb
    from shapely.geometry import box

    fields = {"field_data": [np.array(["wood"], object)], "fields": ["class"]}
    with pytest.warns(UserWarning, match="crs"):
        pyogrio.raw.write(
            tmp_path / "t.shp", np.array([to_wkb(box(0, 0, 1, 1))], object), geometry_type="Polygon", **fields
        )
    completed = label(run, tmp_path, "--source", tmp_path / "t.shp", "--classes", "wood")
    assert completed.code == 3
    assert "has no CRS" in completed.stderr


def test_a_label_raster_outside_the_grid_is_reported(tmp_path: Path, run: Run) -> None:
    source = write_raster(tmp_path / "far.tif", np.zeros((32, 32), np.uint8), left=LEFT + 90_000, nodata=None)
    completed = label(run, tmp_path, "--source", source, "--classes", "a")
    assert completed.code == 3
    assert "far.tif covers" in completed.stderr
    assert not (tmp_path / "labels.zarr").exists()


def test_a_label_raster_of_nodata_and_ignored_values_is_reported(tmp_path: Path, run: Run) -> None:
    source = write_raster(tmp_path / "empty.tif", np.full((64, 48), 9, np.uint8), nodata=None)
    completed = label(run, tmp_path, "--source", source, "--classes", "a", "b", "--ignore", 9)
    assert completed.code == 3
    assert "empty.tif has no label on the grid" in completed.stderr
    assert not (tmp_path / "labels.zarr").exists()


@pytest.mark.parametrize(
    "arguments",
    [
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
    ],
)
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
