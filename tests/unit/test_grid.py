"""The grid that a run shares covers what it should, on the pixels it should, and no more."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eopipe.errors import BadInputError
from eopipe.text_files import write_json
from eopipe.tiles.cells import read_frame
from eopipe.tiles.grid import blocks_around, grid_json, make_grid, same_grid, utm_crs, windows

COORDINATES = st.floats(-9e6, 9e6)
SIZES = st.floats(1.0, 30000.0)
STEPS = st.sampled_from([1.0, 1.5, 10.0, 20.0, 60.0, 30.0, 250.0])


@given(west=COORDINATES, south=COORDINATES, width=SIZES, height=SIZES, step=STEPS, x0=COORDINATES, y0=COORDINATES)
def test_a_grid_covers_its_bounds_on_the_origin_and_no_more(
    west: float, south: float, width: float, height: float, step: float, x0: float, y0: float
) -> None:
    east, north = west + width, south + height
    grid = make_grid((west, south, east, north), "EPSG:32633", step, (x0, y0))
    left, bottom, right, top = grid.extent.boundingbox
    tolerance = 2e-3 * step
    assert left <= west + tolerance
    assert bottom <= south + tolerance
    assert right >= east - tolerance
    assert top >= north - tolerance
    for edge, origin in ((left, x0), (right, x0), (bottom, y0), (top, y0)):
        assert math.isclose((edge - origin) / step, round((edge - origin) / step), abs_tol=1e-5)
    assert west - left < step
    assert south - bottom < step
    assert right - east < step
    assert top - north < step


def test_bounds_on_pixel_edges_get_no_extra_pixel() -> None:
    grid = make_grid((500000.0, 4999990.004, 500020.001, 5000000.0), "EPSG:32633", 10.0, (0.0, 0.0))
    assert grid.shape == (1, 2)


@given(height=st.integers(1, 70), width=st.integers(1, 70), edge=st.integers(1, 80))
def test_windows_tile_a_raster_exactly_once(height: int, width: int, edge: int) -> None:
    counts = np.zeros((height, width), int)
    for y, x in windows((height, width), edge):
        assert 0 < y.stop - y.start <= edge
        assert 0 < x.stop - x.start <= edge
        assert y.stop <= height
        assert x.stop <= width
        counts[y, x] += 1
    assert (counts == 1).all()


WINDOWS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 20), st.integers(0, 30), st.integers(1, 20)), max_size=5
)


@given(sizes=WINDOWS, edge=st.integers(1, 25))
def test_blocks_around_windows_hold_all_their_pixels_once(sizes: list[tuple[int, ...]], edge: int) -> None:
    parts = [(slice(y, y + height), slice(x, x + width)) for y, height, x, width in sizes]
    is_held, counts, blocks = np.zeros((50, 50), bool), np.zeros((50, 50), int), blocks_around(parts, edge)
    for part in parts:
        is_held[part] = True
    for y, x in blocks:
        counts[y, x] += 1
        rows, columns = (slice(axis.start // edge * edge, (axis.start // edge + 1) * edge) for axis in (y, x))
        assert y.stop <= rows.stop
        assert x.stop <= columns.stop
        inside = np.argwhere(is_held[rows, columns]) + np.array([rows.start, columns.start])
        # The smallest one around what is in its block.
        assert inside.min(0).tolist() == [y.start, x.start]
        assert (inside.max(0) + 1).tolist() == [y.stop, x.stop]
    assert (counts[is_held] == 1).all()
    assert counts.max() <= 1


def test_a_grid_file_gives_the_same_grid_back(tmp_path: Path) -> None:
    grid = make_grid((12.3, 45.6, 12.4, 45.7), "EPSG:4326", 1 / 3600, (0.0, 0.0))
    write_json(tmp_path / "grid.json", grid_json(grid))
    assert read_frame(tmp_path / "grid.json").only == grid


def test_grids_in_degrees_that_differ_by_a_tenth_of_a_pixel_are_not_the_same() -> None:
    step = 9e-5
    grid = make_grid((12.0, 45.0, 12.1, 45.1), "EPSG:4326", step, (0.0, 0.0))
    shifted = make_grid((12.0, 45.0, 12.1, 45.1), "EPSG:4326", step, (step / 10, 0.0))
    assert same_grid(grid, grid)
    assert not same_grid(grid, shifted)
    assert not same_grid(grid, grid.translate_pix(1, 0))
    assert not same_grid(grid, grid.pad(1))
    assert not same_grid(grid, grid[1:, :])


GOOD = {"crs": "EPSG:32633", "shape": [4, 5], "transform": [10.0, 0.0, 500000.0, 0.0, -10.0, 5000000.0]}
BAD = {
    "no crs": {"crs": None},
    "unknown crs": {"crs": "EPSG:999999"},
    "three numbers of shape": {"shape": [1, 2, 3]},
    "no pixels": {"shape": [0, 5]},
    "truth values": {"shape": [True, 5]},
    "an object as crs": {"crs": {"a": 1}},
    "no crs of a text": {"crs": "x"},
    "a shape of one number": {"shape": 4},
    "words": {"shape": ["a", "b"]},
    "half a transform": {"transform": [10.0, 0.0]},
    "rotated": {"transform": [7.0, 7.0, 0.0, 7.0, -7.0, 0.0]},
}


@pytest.mark.parametrize("fault", BAD)
def test_a_grid_file_without_a_usable_grid_is_bad_input(tmp_path: Path, fault: str) -> None:
    write_json(tmp_path / "grid.json", GOOD | BAD[fault])
    with pytest.raises(BadInputError, match=r"grid\.json"):
        read_frame(tmp_path / "grid.json")


def test_bounds_beyond_any_grid_are_bad_input() -> None:
    with pytest.raises(BadInputError, match=r"the coordinate -1e\+300 is beyond any grid with pixels of 1e-10"):
        make_grid((-1e300, 0.0, 1.0, 1.0), "EPSG:32633", 1e-10, (0.0, 0.0))


@pytest.mark.parametrize("text", ["", "[", "[]", "null", "{}", "[" * 100000])
def test_a_grid_file_that_is_broken_is_bad_input(tmp_path: Path, text: str) -> None:
    (tmp_path / "grid.json").write_text(text)
    with pytest.raises(BadInputError, match=r"grid\.json"):
        read_frame(tmp_path / "grid.json")


@pytest.mark.parametrize(
    ("longitude", "latitude", "code"),
    [(15.5, 46.0, 32633), (-179.9, -17.0, 32701), (180.0, 0.0, 32601), (-180.0, -0.1, 32701), (0.0, 51.0, 32631)],
)
def test_a_point_has_its_utm_zone(longitude: float, latitude: float, code: int) -> None:
    assert utm_crs(longitude, latitude) == f"EPSG:{code}"
