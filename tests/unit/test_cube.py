"""A run opens as one lazy cube in xarray, with the pixels of its stores where they are on the grid."""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rioxarray  # noqa: F401 - georeferences arrays of xarray
import xarray
import zarr
from builders import grid_of, write_store
from hypothesis import given
from hypothesis import strategies as st
from odc.geo.geobox import GeoBox
from scenery import Catalog, Run, numbered

import eopipe
from eopipe.errors import BadInputError, UsageError
from eopipe.tiles.layout import Layout
from eopipe.tiles.shard_reader import StoredWindow
from eopipe.tiles.store import Tiles

LAYOUT, GRID = Layout(16, 32), grid_of((64, 80))
ROOT = Path(__file__).parents[2]
VALIDATORS = ROOT / ".venv/validators/bin/python"
BANDS = ("red", "nir")
# Row and column of each store in the grid, which are not in the order of their dates.
OFFSETS = {"late": (0, 0), "early": (16, 32)}
DATES = {"late": "2020-07-01T10:30:00Z", "early": "2019-07-01T10:00:00Z"}


def write(
    results: Path,
    scene: str,
    bands: tuple[str, ...] = BANDS,
    grid: GeoBox = GRID,
    attributes: dict[str, Any] | None = None,
) -> Path:
    """A store of 32 x 48 pixels whose numbers encode scene, band and place; a column is not valid."""
    offset = OFFSETS[scene]
    window = StoredWindow((int(grid.shape[0]), int(grid.shape[1])), offset, LAYOUT.shard)
    part = grid.translate_pix(*offset[::-1]).crop((32, 48))
    path = results / "tiles" / f"{scene}.zarr"
    pixels = np.arange(len(bands) * 32 * 48, dtype=np.uint16).reshape(len(bands), 32, 48) + 5000 * (scene == "late")
    arrays = {"image": pixels, "valid": np.broadcast_to(np.arange(48) != 5, (32, 48))}
    options: dict[str, Any] = {"layout": LAYOUT, "scaling": (0.5, -1.0), "window": window}
    return write_store(path, bands, arrays, part, **options, **(attributes or {"datetime": DATES[scene]}))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    for scene in OFFSETS:
        write(folder, scene)
    return folder


def expected(results: Path) -> tuple[np.ndarray, np.ndarray]:
    """The whole cube, by plain xarray from each store on its own."""
    image, valid = np.full((2, 2, 64, 80), np.nan, np.float32), np.zeros((2, 64, 80), bool)
    for number, scene in enumerate(("early", "late")):
        (row, column), path = OFFSETS[scene], results / f"tiles/{scene}.zarr"
        place = np.s_[row : row + 32, column : column + 48]
        with xarray.open_zarr(path) as store:
            image[number][:, *place] = store.image.values
            valid[number][place] = store.valid.values > 0
    return image, valid


def test_the_cube_has_every_pixel_at_its_place_in_the_order_of_time(results: Path) -> None:
    cube = eopipe.open_cube(results)
    image, valid = expected(results)
    np.testing.assert_array_equal(cube.image.values, image)
    np.testing.assert_array_equal(cube.valid.values, valid)
    assert cube.image.dims == ("time", "band", "y", "x")
    assert cube.scene.values.tolist() == ["early", "late"]
    assert cube.time.values.tolist() == np.array(["2019-07-01T10:00", "2020-07-01T10:30"], "datetime64[ns]").tolist()
    assert cube.band.values.tolist() == ["red", "nir"]
    assert cube.rio.crs == GRID.crs.proj
    assert cube.rio.transform() == GRID.affine
    pixel = cube.image.sel(band="nir", time="2020-07-01", x=500155, y=4999955).squeeze()
    assert float(pixel) == image[1, 1, 4, 15]


@given(data=st.data())
@pytest.mark.exhaustive
def test_any_index_gives_what_it_gives_of_the_whole(results: Path, data: st.DataObject) -> None:
    cube, (image, valid) = eopipe.open_cube(results), expected(results)
    key = tuple(
        data.draw(
            st.one_of(
                st.integers(-edge, edge - 1),
                st.builds(slice, st.integers(0, edge), st.integers(0, edge), st.integers(1, 3)),
                st.lists(st.integers(0, edge - 1), min_size=1, max_size=4),
            )
        )
        for edge in image.shape
    )
    by_name = dict(zip(("time", "band", "y", "x"), key, strict=True))
    whole = xarray.DataArray(image, dims=("time", "band", "y", "x")).isel(by_name)
    np.testing.assert_array_equal(cube.image.isel(by_name).values, whole.values)
    del by_name["band"]
    mask = xarray.DataArray(valid, dims=("time", "y", "x")).isel(by_name)
    np.testing.assert_array_equal(cube.valid.isel(by_name).values, mask.values)


def test_nothing_is_read_before_it_is_needed(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows = []
    read = Tiles.read
    monkeypatch.setattr(
        Tiles, "read", lambda store, name, y, x: windows.append((name, store.scene, y, x)) or read(store, name, y, x)
    )
    part = eopipe.open_cube(results).image.isel(time=0, y=slice(16, 20), x=slice(40, 44))
    assert windows == []
    part.load()
    assert windows == [(name, "early", slice(16, 20), slice(40, 44)) for name in ("image", "valid")]


def test_what_is_no_cube_is_refused(results: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="has no stores; a run writes them with preprocess"):
        eopipe.open_cube(tmp_path)
    with pytest.raises(BadInputError, match="composites has no stores"):
        eopipe.open_cube(results, "composites")
    write(tmp_path, "early")
    write(tmp_path, "late", bands=("red",))
    with pytest.raises(BadInputError, match="have different bands: red and red, nir"):
        eopipe.open_cube(tmp_path)
    write(tmp_path / "b", "early")
    write(tmp_path / "b", "late", grid=GRID.translate_pix(1, 0))
    with pytest.raises(BadInputError, match="are on different grids"):
        eopipe.open_cube(tmp_path / "b")


def made_of(folder: Path, run: Run, numbers: dict[str, np.ndarray], properties: dict[str, dict[str, Any]]) -> Path:
    """The folder of a run with stores that the stages made of scenes of one band, of which 0 is nodata."""
    catalog, names = Catalog(folder / "catalog"), list(numbers)
    for name, pixels in numbers.items():
        item = catalog.add(name, {"red": pixels}, nodata=0, properties=properties[name])
        item["assets"]["red"]["raster:bands"] = [{"scale": 0.0001, "offset": -0.1, "nodata": 0}]
    catalog.write()
    files = [f"--{key}={folder / key}" for key in ("items", "grid", "selection")]
    assert run("search", "--catalog", catalog.root, *files, "--assets", "red").code == 0
    for name in names:
        scene, store = folder / "scenes" / name, folder / "tiles" / f"{name}.zarr"
        item_file = folder / "items" / f"{name}.geojson"
        assert run("fetch", "--item", item_file, "--catalog", catalog.root, "--scene", scene).code == 0
        options = ("--bands", "red", "--mask", "none", "--chunk", 16, "--shard", 32)
        assert run("preprocess", "--scene", scene, "--grid", folder / "grid", "--tiles", store, *options).code == 0
    return folder


def test_pixels_without_data_are_nan_as_xarray_reads_the_store(tmp_path: Path, run: Run) -> None:
    pixels = numbered((64, 48))
    pixels[10:20, 30:40] = 0
    day = {"datetime": "2023-08-01T10:00:00Z"}
    folder = made_of(tmp_path, run, {"s": pixels}, {"s": day})
    image = eopipe.open_cube(folder).image
    with xarray.open_zarr(folder / "tiles/s.zarr") as store:
        np.testing.assert_allclose(image.values[0], store.image.values, atol=1e-7)
    assert np.isnan(image.values).sum() == np.count_nonzero(pixels == 0) >= 100


def test_data_of_zero_are_data_and_only_gaps_are_nan(tmp_path: Path) -> None:
    """Where data are 0, nothing in the image says which pixels are gaps: the mask does."""
    path = write(tmp_path, "early")
    image, valid = (zarr.open_array(path / name, mode="r+") for name in ("image", "valid"))
    image[:, 3, 4:7] = 0
    valid[3, 5:7] = 0
    image[0, 3, 6] = 8
    cube = eopipe.open_cube(tmp_path).image.values[0, :, 16 + 3, 32 + 4 : 32 + 7]
    np.testing.assert_array_equal(cube, [[-1, np.nan, 3], [-1, np.nan, np.nan]])


def test_times_are_in_utc_and_of_an_interval_the_middle(tmp_path: Path, run: Run) -> None:
    pixels = {name: numbered((64, 48)) for name in ("east", "long", "west")}
    interval = {"start_datetime": "2023-08-03T22:00:00-02:00", "end_datetime": "2023-08-06T00:00:00Z"}
    times = {
        "east": {"datetime": "2023-08-02T01:30:00+05:30"},
        "long": {"datetime": None, **interval},
        "west": {"datetime": "2023-08-01T23:00:00.250-03:00"},
    }
    folder = made_of(tmp_path, run, pixels, times)
    cube = eopipe.open_cube(folder)
    assert cube.scene.values.tolist() == ["east", "west", "long"]
    expected = np.array(["2023-08-01T20:00", "2023-08-02T02:00:00.250", "2023-08-05T00:00"], "datetime64[ns]")
    np.testing.assert_array_equal(cube.time.values, expected)
    for time, scene in zip(expected, ("east", "west", "long"), strict=True):
        with xarray.open_zarr(folder / f"tiles/{scene}.zarr") as store:
            assert store.time.values == time
    attributes = Tiles(folder / "tiles/long.zarr").attributes
    assert {key: attributes[key] for key in interval} == interval


def test_the_names_of_the_package_can_be_completed() -> None:
    assert "open_cube" in dir(eopipe)


def test_the_package_has_no_other_attributes() -> None:
    with pytest.raises(AttributeError, match="module 'eopipe' has no attribute 'open_cub'"):
        eopipe.open_cub  # noqa: B018


@pytest.mark.exhaustive
def test_with_dask_the_cube_is_chunked_and_has_the_same_pixels(results: Path) -> None:
    if not VALIDATORS.exists():
        pytest.skip("dask is not installed; run `make .venv/validators`")
    # In an environment of its own, since xarray opens stores otherwise where dask is.
    code = """
import sys, eopipe, numpy
plain, cube = eopipe.open_cube(sys.argv[1]), eopipe.open_cube(sys.argv[1], chunks={"y": 32, "x": 40})
assert cube.image.chunks == ((2,), (2,), (32, 32), (40, 40)), cube.image.chunks
assert plain.image.chunks is None
numpy.testing.assert_array_equal(cube.image.values, plain.image.values)
numpy.testing.assert_array_equal(cube.valid.values, plain.valid.values)
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [VALIDATORS, "-c", code, results], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_chunks_without_dask_name_the_package(results: Path) -> None:
    with pytest.raises(UsageError, match="needs dask: pip install dask"):
        eopipe.open_cube(results, chunks="auto")
