"""A store holds the whole chunks of the grid that its scene reaches, and reads as if it held all of the grid."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import pytest
import rioxarray  # noqa: F401 - georeferences arrays of xarray
import xarray
from affine import Affine
from builders import store_files, write_labels, write_store
from hypothesis import given
from hypothesis import strategies as st
from odc.geo.geobox import GeoBox
from pyproj import Transformer
from scenery import CRS, LEFT, STEP, TOP, Catalog, Run, numbered

from eopipe.composites.periods import CompositeRecipe, read_observations
from eopipe.composites.write import write_composite
from eopipe.errors import BadInputError
from eopipe.inspection.tiles_command import find_errors
from eopipe.loader.chip_reader import ChipReader, ChipRequest, ChipSource, view_chips, window_bytes
from eopipe.publish import files
from eopipe.text_files import read_json, write_json
from eopipe.tiles.cells import Cell, Frame, read_frame
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.layout import Layout, crop_cell
from eopipe.tiles.shard_reader import StoredWindow, open_array
from eopipe.tiles.store import Tiles
from eopipe.warp.footprints import covered_window

SHAPE, EDGE = (20, 30), 4096
# Row and column of the scene's first pixel in the large grid.
ROW, COLUMN = 1000, 2050
SMALL = ("--chunk", 16, "--shard", 64)


def preprocess(run: Run, catalog: Catalog, folder: Path, edge: int, *, number: int = 0, crs: str = CRS) -> Path:
    """The store of a scene on a grid whose corner is `ROW` rows and `COLUMN` columns before `LEFT`, `TOP`."""
    scene = catalog.root / f"s{number}"
    write_json(scene / "scene.json", catalog.items[number])
    transform = [STEP, 0.0, LEFT - COLUMN * STEP, 0.0, -STEP, TOP + ROW * STEP]
    folder.mkdir(exist_ok=True)
    write_json(folder / "grid.json", {"crs": crs, "shape": [edge, edge], "transform": transform})
    target = folder / f"{number}.zarr"
    outputs = ("--grid", folder / "grid.json", "--tiles", target, "--bands", "blue", "red")
    completed = run("preprocess", "--scene", scene, *outputs, *SMALL)
    assert completed.code == 0, completed.log
    return target


def bytes_of(store: Path) -> int:
    return sum(path.stat().st_size for path in files(store))


def test_a_small_scene_costs_the_same_on_a_grid_of_any_size(catalog: Catalog, run: Run, tmp_path: Path) -> None:
    catalog.add(shape=SHAPE)
    small, large = (preprocess(run, catalog, tmp_path / str(edge), edge) for edge in (EDGE, 16 * EDGE))
    assert Tiles(small).stored_shape == Tiles(large).stored_shape == (32, 64)
    assert len(files(large)) == len(files(small)) == store_files((32, 64), Layout(16, 64), 2) - 1
    assert abs(bytes_of(large) - bytes_of(small)) < 50
    assert find_errors(Tiles(large)) == []
    assert find_errors(Tiles(large, is_alone=True)) == []


def test_every_pixel_is_where_the_grid_says_and_no_other_is_valid(catalog: Catalog, run: Run, tmp_path: Path) -> None:
    catalog.add(shape=SHAPE)
    tiles = Tiles(preprocess(run, catalog, tmp_path / "run", EDGE))
    assert (tiles.shape, tiles.grid) == ((EDGE, EDGE), read_frame(tmp_path / "run/grid.json").only)
    expected = np.zeros((EDGE, EDGE), np.uint16)
    expected[ROW : ROW + SHAPE[0], COLUMN : COLUMN + SHAPE[1]] = numbered(SHAPE)
    np.testing.assert_array_equal(tiles.read("image")[0], expected)
    np.testing.assert_array_equal(tiles.read("valid") > 0, expected > 0)
    np.testing.assert_array_equal(
        tiles.physical(("blue",), slice(990, 1010), slice(2040, 2060))[0],
        expected[990:1010, 2040:2060] * np.float32(1e-4),
    )


def test_other_readers_find_the_pixels_at_their_place(catalog: Catalog, run: Run, tmp_path: Path) -> None:
    catalog.add(shape=SHAPE)
    path = preprocess(run, catalog, tmp_path / "run", EDGE)
    with xarray.open_zarr(path) as cube:
        blue = cube.image.sel(band="blue")
        assert blue.shape == (32, 64)
        place = blue.sel(x=LEFT + 3.5 * STEP, y=TOP - 7.5 * STEP)
        assert float(place) == pytest.approx(1e-4 * numbered(SHAPE)[7, 3])
        assert cube.rio.crs == pyproj.CRS(CRS)
        assert cube.rio.transform() == Tiles(path).stored_grid.affine
    alone = Tiles(path).alone()
    assert (alone.shape, alone.grid) == (alone.stored_shape, alone.stored_grid)
    np.testing.assert_array_equal(alone.read("image")[0] > 0, alone.read("valid") > 0)


@given(offset=st.tuples(st.integers(0, 40), st.integers(0, 40)), data=st.data())
@pytest.mark.exhaustive
def test_any_window_of_the_grid_is_that_of_the_padded_array(
    offset: tuple[int, int], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path, layout, grid_shape = tmp_path_factory.mktemp("store") / "t.zarr", Layout(16, 32), (80, 90)
    grid = GeoBox(grid_shape, Affine(STEP, 0, LEFT, 0, -STEP, TOP), CRS)
    window = StoredWindow(grid_shape, offset, layout.shard)
    part = grid.translate_pix(*offset[::-1]).crop((40, 50))
    pixels = numbered((40, 50))
    write_store(path, ("blue",), {"image": pixels[None]}, part, layout=layout, scaling=(1.0, 0.0), window=window)
    tiles, whole = Tiles(path), np.zeros(grid_shape, np.uint16)
    whole[offset[0] : offset[0] + 40, offset[1] : offset[1] + 50] = pixels
    assert tiles.grid == grid
    for _ in range(5):
        (top, bottom), (left, right) = (
            sorted(data.draw(st.tuples(st.integers(0, edge), st.integers(0, edge)))) for edge in grid_shape
        )
        np.testing.assert_array_equal(
            tiles.read("image", slice(top, bottom), slice(left, right))[0], whole[top:bottom, left:right]
        )
    with pytest.raises(BadInputError, match="has no window of rows 70 to 81"):
        open_array(path / "image").read(np.empty((1, 11, 1), np.uint16), 70, 0, (0,))


def test_a_chip_that_reaches_beyond_the_store_is_padded_with_pixels_that_are_not_valid(
    catalog: Catalog, run: Run, tmp_path: Path
) -> None:
    catalog.add(shape=SHAPE)
    path = preprocess(run, catalog, tmp_path / "run", EDGE)
    labels, grid = tmp_path / "labels.zarr", read_frame(tmp_path / "run/grid.json").only
    label = np.ones((EDGE, EDGE), np.uint8)
    write_labels(labels, label, ("a",), grid=grid, layout=Layout(256, 4096))
    tiles = Tiles(path)
    corner = (tiles.stored_window[0].start - 8, tiles.stored_window[1].stop - 8)
    reader = ChipReader([ChipSource(str(path), str(labels), (0, 1), (1.0, 0.0))], 16, np.dtype(np.uint16), 0)
    memory = np.full(window_bytes((0, 0, 16, 16), 2, reader.dtype, reader.label_dtype), 77, np.uint8)
    chip = view_chips(memory, (16, 16), 2, reader.dtype, reader.label_dtype)
    reader.read(ChipRequest(0, None, (0,), (corner,), (0,)), chip[None])
    window = tuple(slice(begin, begin + 16) for begin in corner)
    np.testing.assert_array_equal(chip.image, tiles.read("image", *window))
    np.testing.assert_array_equal(chip.valid, tiles.read("valid", *window))


@pytest.mark.parametrize(
    "window",
    [
        {"grid_shape": [30, 30], "offset": [0, 0], "shard": 64},
        {"grid_shape": [4096, 4096], "offset": [-1, 0], "shard": 64},
        {"grid_shape": [4096, 4096], "offset": [0, 0, 0], "shard": 64},
        {"grid_shape": [4096, 4096], "offset": ["0", 0], "shard": 64},
        {"grid_shape": [4096.0, 4096], "offset": [0, 0], "shard": 64},
        {"offset": [0, 0]},
        "all",
        [1],
    ],
    ids=str,
)
def test_a_window_that_is_not_in_its_grid_is_refused(window: Any, catalog: Catalog, run: Run, tmp_path: Path) -> None:
    catalog.add(shape=SHAPE)
    path = preprocess(run, catalog, tmp_path / "run", EDGE)
    for file in (path / "zarr.json", path / "image/zarr.json"):
        document = read_json(file)
        document["attributes"]["window"] = window
        file.write_text(json.dumps(document))
    with pytest.raises(BadInputError, match="has a window that is not a part of its grid"):
        Tiles(path)
    with pytest.raises(BadInputError, match="has a window that is not a part of its grid"):
        open_array(path / "image")


def test_a_composite_holds_what_any_of_its_scenes_reaches(catalog: Catalog, run: Run, tmp_path: Path) -> None:
    for number in range(2):
        catalog.add(f"scene{number}", shape=SHAPE, left=LEFT + number * 100 * STEP)
    stores = [preprocess(run, catalog, tmp_path / "run", EDGE, number=number) for number in range(2)]
    recipe = CompositeRecipe("median", "all")
    write_composite(tmp_path / "all.zarr", read_observations(tuple(stores), recipe), recipe, 1 << 20)
    first, second, composite = (Tiles(path) for path in (*stores, tmp_path / "all.zarr"))
    assert composite.stored_window == (
        first.stored_window[0],
        slice(first.stored_window[1].start, second.stored_window[1].stop),
    )
    for name in ("image", "valid"):
        expected = first.read(name) + second.read(name)
        np.testing.assert_array_equal(composite.read(name), expected)
    assert find_errors(composite) == []


RASTERS = st.tuples(
    st.sampled_from(["EPSG:4326", "EPSG:32633", "EPSG:32634", "EPSG:3035", "EPSG:32601", "EPSG:3413"]),
    st.floats(-1, 1),
    st.floats(-1, 1),
    st.floats(0.05, 3),
)
# A place in each CRS, and the size of a pixel.
PLACES = {
    "EPSG:4326": (15.6, 45.5, 0.002),
    "EPSG:32633": (547000.0, 5038000.0, 200.0),
    "EPSG:32634": (79000.0, 5060000.0, 200.0),
    "EPSG:3035": (4760000.0, 2500000.0, 200.0),
    "EPSG:32601": (500000.0, 7500000.0, 3000.0),
    "EPSG:3413": (0.0, 0.0, 20000.0),
}


@given(raster=RASTERS, grid_crs=st.sampled_from(["EPSG:32633", "EPSG:4326", "EPSG:3413"]))
@pytest.mark.exhaustive
def test_no_pixel_of_a_raster_is_outside_of_the_window_that_it_covers(
    raster: tuple[str, float, float, float], grid_crs: str
) -> None:
    crs, x, y, size = raster
    (left, top, step), (grid_left, grid_top, grid_step) = PLACES[crs], PLACES[grid_crs]
    step *= size
    transform = Affine(step, 0, left + x * 200 * step, 0, -step, top + y * 200 * step)
    grid = GeoBox(
        (400, 300),
        Affine(grid_step, 0, grid_left - 150 * grid_step, 0, -grid_step, grid_top + 200 * grid_step),
        grid_crs,
    )
    rows, columns = covered_window(pyproj.CRS(crs).to_wkt(), transform, (100, 120), grid)
    grid_rows, grid_columns = np.mgrid[0:400, 0:300] + 0.5
    places = Transformer.from_crs(grid_crs, crs, always_xy=True).transform(*(grid.affine * (grid_columns, grid_rows)))
    with np.errstate(invalid="ignore"):
        source_x, source_y = ~transform * places
    inside = (source_x > 0) & (source_x < 120) & (source_y > 0) & (source_y < 100)
    found_rows, found_columns = np.nonzero(inside)
    if found_rows.size:
        assert rows.start <= found_rows.min() <= found_rows.max() < rows.stop
        assert columns.start <= found_columns.min() <= found_columns.max() < columns.stop


def test_a_raster_in_a_corner_of_a_large_grid_covers_little_of_it() -> None:
    grid = GeoBox((16384, 16384), Affine(10, 0, 500000, 0, -10, 5000000), "EPSG:32633")
    same = covered_window(pyproj.CRS("EPSG:32633").to_wkt(), Affine(10, 0, 530000, 0, -10, 4980000), (100, 100), grid)
    assert same == (slice(1996, 2104), slice(2996, 3104))
    degrees = covered_window(
        pyproj.CRS("EPSG:4326").to_wkt(), Affine(1e-4, 0, 15.1, 0, -1e-4, 45.1), (1000, 1000), grid
    )
    assert max(axis.stop - axis.start for axis in degrees) < 1200


@given(
    parts=st.lists(
        st.tuples(st.integers(0, 100), st.integers(0, 30), st.integers(0, 100), st.integers(0, 30)),
        min_size=1,
        max_size=3,
    )
)
def test_a_crop_is_in_whole_chunks_and_holds_all_parts(parts: list[tuple[int, int, int, int]]) -> None:
    grid = GeoBox((100, 100), Affine(10, 0, 0, 0, -10, 0), "EPSG:32633")
    windows: list[PixelWindow] = [
        (slice(y, min(y + height, 100)), slice(x, min(x + width, 100))) for y, height, x, width in parts
    ]
    cell = Cell("", grid)
    cropped, window = crop_cell(Frame((cell,)), cell, windows, Layout(16, 32))
    (row, column), (height, width) = window.offset if window else (0, 0), map(int, cropped.shape)
    assert row % 16 == column % 16 == 0
    assert (row + height) % 16 == 0 or row + height == 100
    assert (column + width) % 16 == 0 or column + width == 100
    for y, x in windows:
        assert row <= y.start or y.start == 100
        assert y.stop <= row + height
        assert column <= x.start or x.start == 100
        assert x.stop <= column + width
