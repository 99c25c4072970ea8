"""Labels come onto the grid with the right class in the right place, and doubt is no label."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenery import CRS, LEFT, STEP, TOP, Array, Catalog, Ended, Run, numbered, write_raster

from eopipe.errors import UsageError
from eopipe.labels import Legend
from eopipe.publish import digest, write_json
from eopipe.store import NO_LABEL, Tiles

SMALL = ("--chunk", 16, "--shard", 32)


def label(run: Run, place: Path, *words: object, shape: tuple[int, int] = (64, 48), **grid: float) -> Ended:
    left, top, step = grid.get("left", LEFT), grid.get("top", TOP), grid.get("step", STEP)
    write_json(place / "grid.json", {"crs": CRS, "shape": shape, "transform": [step, 0.0, left, 0.0, -step, top]})
    return run("label", "--grid", place / "grid.json", "--labels", place / "labels.zarr", *SMALL, *words)


def stored(place: Path) -> Array:
    """Class numbers (y, x); the valid mask must agree with them."""
    store = Tiles(place / "labels.zarr")
    numbers = store.read("label")
    np.testing.assert_array_equal(store.read("valid"), numbers != NO_LABEL)
    return numbers


def test_bins_cut_a_continuous_raster_and_their_edges_belong_above(tmp_path: Path, run: Run) -> None:
    heights = numbered((64, 48), 0).astype(np.float32) / 100
    heights[0, 0] = np.nan
    source = write_raster(tmp_path / "height.tif", heights, nodata=-1)
    words = ("--classes", "low", "middle", "high", "--bins", "5.5", "20")
    ended = label(run, tmp_path, "--source", source, *words)
    assert ended.code == 0, ended.said
    expected = np.where(heights < 5.5, 0, np.where(heights < 20, 1, 2))
    expected[0, 0] = NO_LABEL
    np.testing.assert_array_equal(stored(tmp_path), expected)
    store = Tiles(tmp_path / "labels.zarr")
    assert store.names == ("low", "middle", "high")
    assert store.scene == ""
    assert store.attributes["pixels"] == {"low": 549, "middle": 1450, "high": 1072}


def test_codes_name_the_classes_and_ignored_or_unknown_codes_are_no_label(tmp_path: Path, run: Run) -> None:
    codes = (np.arange(64 * 48).reshape(64, 48) % 5 * 10).astype(np.uint8)
    source = write_raster(tmp_path / "codes.tif", codes, nodata=None)
    words = ("--classes", "water", "wood", "town", "--codes", 30, 10, 20, "--ignore", 20)
    ended = label(run, tmp_path, "--source", source, *words)
    assert ended.code == 0, ended.said
    expected = np.select([codes == 30, codes == 10], [0, 1], NO_LABEL)
    np.testing.assert_array_equal(stored(tmp_path), expected)


def test_without_codes_the_values_are_the_class_numbers(tmp_path: Path, run: Run) -> None:
    values = (np.arange(64 * 48).reshape(64, 48) % 4).astype(np.uint8)
    source = write_raster(tmp_path / "classes.tif", values, nodata=3)
    assert label(run, tmp_path, "--source", source, "--classes", "a", "b", "c").code == 0
    np.testing.assert_array_equal(stored(tmp_path), np.where(values == 3, NO_LABEL, values))


def test_labels_end_where_their_raster_ends(tmp_path: Path, run: Run) -> None:
    for nodata in (None, 255):
        source = write_raster(tmp_path / "classes.tif", np.zeros((32, 24), np.uint8), nodata=nodata)
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
    words = ("--source", source, "--classes", "a", "b", "--resampling", "mode")
    assert label(run, tmp_path, *words, shape=(16, 12), step=40.0).code == 0
    expected = np.zeros((16, 12))
    expected[:4, :4] = 1
    np.testing.assert_array_equal(stored(tmp_path), expected)


def test_an_asset_of_a_scene_gives_the_labels_of_that_scene(catalog: Catalog, tmp_path: Path, run: Run) -> None:
    item = catalog.add("a/b", bands={"cover": (np.arange(64 * 48).reshape(64, 48) % 2).astype(np.uint8)}, nodata=None)
    (catalog.root / "s0" / "scene.json").write_text(json.dumps(item))
    words = ("--scene", catalog.root / "s0", "--asset", "cover", "--classes", "a", "b")
    ended = label(run, tmp_path, *words)
    assert ended.code == 0, ended.said
    np.testing.assert_array_equal(stored(tmp_path), np.arange(64 * 48).reshape(64, 48) % 2)
    assert Tiles(tmp_path / "labels.zarr").scene.startswith("a_b-")
    ended = label(run, tmp_path, "--scene", catalog.root / "s0", "--asset", "truth")
    assert ended.code == 3
    assert "no band truth; it has cover" in ended.said


def square(left: int, top: int, right: int, bottom: int) -> dict[str, Any]:
    """A polygon in degrees over pixels of the grid, its edges bent like the grid's."""
    from pyproj import Transformer

    change = Transformer.from_crs(CRS, "EPSG:4326", always_xy=True)
    ring = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]
    corners = [change.transform(LEFT + STEP * x, TOP - STEP * y) for x, y in ring]
    return {"type": "Polygon", "coordinates": [corners]}


def write_vectors(path: Path, *features: tuple[Any, Any]) -> Path:
    rows = [{"type": "Feature", "properties": {"class": name}, "geometry": shape} for name, shape in features]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": rows}))
    return path


def test_polygons_in_degrees_land_on_the_pixels_they_cover(tmp_path: Path, run: Run) -> None:
    features = (("wood", square(4, 6, 20, 30)), ("water", square(10, 20, 40, 50)), ("unsure", square(0, 0, 2, 2)))
    source = write_vectors(tmp_path / "truth.geojson", *features, ("wood", None))
    # `ignore` holds numbers, so a class by name that is no label is left out of the file instead.
    ended = label(run, tmp_path, "--source", source, "--classes", "water", "wood", "unsure")
    assert ended.code == 0, ended.said
    expected = np.full((64, 48), NO_LABEL)
    expected[6:30, 4:20] = 1
    expected[20:50, 10:40] = 0
    expected[0:2, 0:2] = 2
    np.testing.assert_array_equal(stored(tmp_path), expected)


def test_numbers_in_vectors_are_codes(tmp_path: Path, run: Run) -> None:
    source = write_vectors(tmp_path / "truth.geojson", (7, square(0, 0, 9, 9)), (9, square(20, 20, 30, 30)))
    words = ("--source", source, "--classes", "a", "b", "--codes", 9, 7)
    assert label(run, tmp_path, *words).code == 0
    assert (stored(tmp_path)[:9, :9] == 1).all()
    assert (stored(tmp_path)[20:30, 20:30] == 0).all()
    assert label(run, tmp_path, "--source", source, "--classes", "b", "--codes", 7, "--ignore", 9).code == 0
    assert (stored(tmp_path)[20:30, 20:30] == NO_LABEL).all()


def test_a_polygon_far_larger_than_the_grid_covers_it_all(tmp_path: Path, run: Run) -> None:
    ring = [[-170, -80], [170, -80], [170, 80], [-170, 80], [-170, -80]]
    source = write_vectors(tmp_path / "truth.geojson", ("earth", {"type": "Polygon", "coordinates": [ring]}))
    ended = label(run, tmp_path, "--source", source, "--classes", "earth")
    assert ended.code == 0, ended.said
    assert (stored(tmp_path) == 0).all()


def test_other_attributes_and_formats_are_read(tmp_path: Path, run: Run) -> None:
    import pyogrio.raw
    from shapely import to_wkb
    from shapely.geometry import box

    shape = box(LEFT + 40, TOP - 300, LEFT + 200, TOP - 60)
    for name in ("truth.gpkg", "truth.fgb", "truth.shp"):
        place = {"crs": CRS, "geometry_type": "Polygon"}
        fields = {"field_data": [np.array(["wood"], object)], "fields": ["kind"]}
        pyogrio.raw.write(tmp_path / name, np.array([to_wkb(shape)], object), **fields, **place)
        words = ("--source", tmp_path / name, "--classes", "wood", "--attribute", "kind")
        ended = label(run, tmp_path, *words)
        assert ended.code == 0, ended.said
        expected = np.full((64, 48), NO_LABEL)
        expected[6:30, 4:20] = 0
        np.testing.assert_array_equal(stored(tmp_path), expected)


WRONG_VECTORS = {
    "a class that is not in the legend": (("lava", square(0, 0, 9, 9)), "class lava; the classes are water, wood"),
    "a number that is no code": ((7, square(0, 0, 9, 9)), "class 7; the classes are water, wood"),
    "a place outside the grid": (("wood", square(500, 500, 600, 600)), "has no label on the grid"),
    "nothing in it": (("wood", None), "has no label on the grid"),
}


@pytest.mark.parametrize("wrong", WRONG_VECTORS)
def test_vectors_are_refused_that_have(tmp_path: Path, run: Run, wrong: str) -> None:
    feature, said = WRONG_VECTORS[wrong]
    source = write_vectors(tmp_path / "truth.geojson", feature)
    ended = label(run, tmp_path, "--source", source, "--classes", "water", "wood")
    assert ended.code == 3, ended.said
    assert said in ended.said
    assert not (tmp_path / "labels.zarr").exists()


def test_a_missing_attribute_is_told_with_those_that_are_there(tmp_path: Path, run: Run) -> None:
    source = write_vectors(tmp_path / "truth.geojson", ("wood", square(0, 0, 9, 9)))
    ended = label(run, tmp_path, "--source", source, "--classes", "wood", "--attribute", "kind")
    assert ended.code == 3
    assert "has no attribute kind; it has class" in ended.said


@pytest.mark.parametrize(
    ("text", "code"), [("", 3), ("no vectors", 3), ("{}", 3), ("<OGRVRTDataSource></OGRVRTDataSource>", 8)]
)
def test_a_file_that_holds_no_vectors_is_told(tmp_path: Path, run: Run, text: str, code: int) -> None:
    (tmp_path / "truth.geojson").write_text(text)
    ended = label(run, tmp_path, "--source", tmp_path / "truth.geojson", "--classes", "wood")
    assert ended.code == code, ended.said
    assert "truth.geojson" in ended.said


def test_vectors_without_a_crs_are_told(tmp_path: Path, run: Run) -> None:
    import pyogrio.raw
    from shapely import to_wkb
    from shapely.geometry import box

    fields = {"field_data": [np.array(["wood"], object)], "fields": ["class"]}
    with pytest.warns(UserWarning, match="crs"):
        pyogrio.raw.write(
            tmp_path / "t.shp", np.array([to_wkb(box(0, 0, 1, 1))], object), geometry_type="Polygon", **fields
        )
    ended = label(run, tmp_path, "--source", tmp_path / "t.shp", "--classes", "wood")
    assert ended.code == 3
    assert "has no CRS" in ended.said


def test_a_label_raster_outside_the_grid_is_told(tmp_path: Path, run: Run) -> None:
    source = write_raster(tmp_path / "far.tif", np.zeros((32, 32), np.uint8), left=LEFT + 90_000, nodata=None)
    ended = label(run, tmp_path, "--source", source, "--classes", "a")
    assert ended.code == 3
    assert "far.tif lies at" in ended.said
    assert not (tmp_path / "labels.zarr").exists()


def test_a_label_raster_without_any_class_of_the_legend_is_told(tmp_path: Path, run: Run) -> None:
    source = write_raster(tmp_path / "odd.tif", np.full((64, 48), 9, np.uint8), nodata=None)
    ended = label(run, tmp_path, "--source", source, "--classes", "a", "b")
    assert ended.code == 3
    assert "odd.tif has no label on the grid" in ended.said


@pytest.mark.parametrize(
    "words",
    [
        ("--classes", "a", "b", "c", "--bins", "1"),
        ("--classes", "a", "b", "c", "--bins", "2", "1"),
        ("--classes", "a", "b", "--bins", "1", "--codes", "1", "2"),
        ("--classes", "a", "b", "--codes", "1"),
        ("--classes", "a", "b", "--codes", "1", "1"),
        ("--classes", "a", "a"),
        ("--asset", "cover"),
    ],
)
def test_a_legend_that_cannot_be_is_a_mistake_of_the_user(tmp_path: Path, run: Run, words: tuple[str, ...]) -> None:
    source = write_raster(tmp_path / "classes.tif", np.zeros((64, 48), np.uint8), nodata=None)
    chosen = () if words[0] == "--asset" else ("--source", source)
    assert label(run, tmp_path, *chosen, *words).code == 2


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
    legend = Legend(tuple(map(str, codes)), codes=tuple(codes), ignore=tuple(ignore))
    found = legend.read(np.array([values]), np.ones((1, len(values)), bool))[0]
    for value, number in zip(values, found, strict=True):
        wanted = codes.index(value) if value in codes and value not in ignore else NO_LABEL
        assert number == wanted
