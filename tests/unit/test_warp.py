"""Pixels come out where they say, on any grid, and as GDAL's own warp would have them."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import rasterio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rasterio.enums import Resampling as Method
from rasterio.transform import from_origin
from rasterio.vrt import WarpedVRT
from rasterio.warp import transform_bounds
from scenery import Array, write_raster

from eopipe.grid import make_grid, windows
from eopipe.scenes.item import Band
from eopipe.warping.kernels import Resampling
from eopipe.warping.placing import Direct, Placer, Reader
from eopipe.warping.rasters import SETTINGS

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

SHARED = Path(__file__).parents[3] / "shared" / "data" / "sentinel-2-l2a-33t"
QUIET = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(path: Path, grid: "GeoBox", how: Resampling, edge: int = 40) -> tuple[Array, Array, Reader]:
    """Read a raster on a grid, window by window: pixels, where they are measurements, and what read them."""
    with ExitStack() as stack:
        stack.enter_context(rasterio.Env(**SETTINGS))
        reader = Placer(grid, stack).reader(Band("red", path, 1.0, 0.0, None), how, "scene s, asset red")
        image, seen = np.zeros(grid.shape, reader.dtype), np.ones(grid.shape, bool)
        cuts = windows(grid.shape, edge)
        reader.plan(cuts)
        for turn, window in enumerate(cuts):
            there = reader.read(window, {}, image[window])
            seen[window] = True if there is None else there
            reader.release(turn)
        return image, seen, reader


def by_gdal(path: Path, grid: "GeoBox", how: str) -> tuple[Array, Array]:
    """Warp exactly with GDAL, its kernels as narrow as ours."""
    with rasterio.open(path) as source:
        place = {"crs": str(grid.crs), "transform": grid.affine, "width": grid.shape[1], "height": grid.shape[0]}
        exact = {"tolerance": 1e-6, "XSCALE": 1, "YSCALE": 1, "src_nodata": source.nodata}
        with WarpedVRT(source, resampling=Method[how], add_alpha=source.nodata is None, **place, **exact) as warped:
            return warped.read(1), warped.read_masks(1) > 0


def rugged(shape: tuple[int, int], dtype: str, nodata: float | None, seed: int = 4) -> Array:
    """Noise over the whole range of a type, a tenth of it no data if there is any."""
    random = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        pixels = random.normal(0, 50, shape).astype(dtype)
    else:
        most = np.iinfo(dtype)
        pixels = random.integers(most.min, most.max, shape, dtype, endpoint=True)
    if nodata is not None:
        pixels[random.random(shape) < 0.1] = nodata
        pixels[:9, :11] = nodata
    return pixels


GRIDS = [
    ("EPSG:32633", 10.0, (0.0, 0.0)),
    ("EPSG:32633", 10.0, (3.3, 7.1)),
    ("EPSG:32633", 5.0, (0.0, 0.0)),
    ("EPSG:32633", 7.0, (1.0, 2.0)),
    ("EPSG:32634", 10.0, (0.0, 0.0)),
    ("EPSG:3035", 9.7, (0.0, 0.0)),
]


@pytest.mark.parametrize(("crs", "step", "origin"), GRIDS, ids=str)
@pytest.mark.parametrize("how", ["nearest", "bilinear", "cubic"])
@pytest.mark.parametrize(("dtype", "nodata"), [("uint16", 0), ("uint8", None), ("int16", -32768), ("float32", -9999.0)])
def test_pixels_are_those_of_gdal(
    tmp_path: Path,
    crs: str,
    step: float,
    origin: tuple[float, float],
    how: Resampling,
    dtype: str,
    nodata: float | None,
) -> None:
    shape = (96, 70)
    file = write_raster(
        tmp_path / "r.tif", rugged(shape, dtype, nodata), nodata=nodata, driver="GTiff", top=5_100_001.0
    )
    with rasterio.open(file) as source:
        box = transform_bounds(source.crs, crs, *source.bounds)
    grid = make_grid(box, crs, step, origin)
    image, seen, reader = read(file, grid, how)
    assert isinstance(reader, Direct)
    expected, there = by_gdal(file, grid, how)
    np.testing.assert_array_equal(seen, there)
    apart = np.abs(image.astype(float) - expected)[there]
    assert np.quantile(apart, 0.999) <= (1e-3 if dtype == "float32" else 1)
    # Where hardly any weight is left beside gaps, GDAL's own millionth of a pixel tells in noise of the full range.
    assert apart.max() <= (0.1 if dtype == "float32" else 10)


@pytest.mark.parametrize("how", ["bilinear", "cubic", "average", "mode"])
@pytest.mark.parametrize("factor", [2, 3, 6])
def test_coarser_grids_take_every_pixel_as_gdal_does(tmp_path: Path, how: Resampling, factor: int) -> None:
    pixels = np.random.default_rng(1).integers(1, 6, (72, 60)).astype("uint16") * 100
    file = write_raster(tmp_path / "r.tif", pixels, driver="GTiff")
    box = (500_000.0, 5_099_280.0, 500_600.0, 5_100_000.0)
    grid = make_grid(box, "EPSG:32633", 10.0 * factor, (box[0], box[3]))
    image, seen, _ = read(file, grid, how)
    with rasterio.open(file) as source:
        place = {"crs": "EPSG:32633", "transform": grid.affine, "width": grid.shape[1], "height": grid.shape[0]}
        with WarpedVRT(source, resampling=Method[how], tolerance=1e-6, **place) as warped:
            expected = warped.read(1)
    assert seen.all()
    assert np.abs(image.astype(int) - expected).max() <= 1


def test_an_average_leaves_out_what_is_no_data(tmp_path: Path) -> None:
    pixels = np.array([[10, 0, 0, 0], [20, 30, 0, 0]], np.uint16)
    file = write_raster(tmp_path / "r.tif", pixels, driver="GTiff")
    grid = make_grid((500_000.0, 5_099_980.0, 500_040.0, 5_100_000.0), "EPSG:32633", 20.0, (0, 0))
    image, seen, _ = read(file, grid, "average")
    assert (image[0, 0], seen.tolist()) == (20, [[True, False]])


def plane(row: Array, column: Array) -> Array:
    """Encode places of pixels in numbers that are linear, so that mixing keeps them right."""
    return 8.0 * row + 3.0 * column + 1000.0


@QUIET
@given(data=st.data())
def test_pixels_that_tell_their_place_come_out_where_they_say(tmp_path: Path, data: st.DataObject) -> None:
    zone, south = data.draw(st.integers(1, 60)), data.draw(st.booleans())
    crs = f"EPSG:{(32700 if south else 32600) + zone}"
    step = data.draw(st.sampled_from([10.0, 20.0, 60.0]))
    left = data.draw(st.integers(30_000, 70_000)) * 10.0
    top = data.draw(st.integers(200_000, 700_000)) * 10.0 + (2_000_000.0 if south else 0.0)
    height, width = data.draw(st.tuples(st.integers(5, 60), st.integers(5, 60)))
    row, column = np.mgrid[:height, :width] + 0.5
    file = tmp_path / "place.tif"
    place = {"crs": crs, "transform": from_origin(left, top, step, step), "nodata": None}
    size = {"height": height, "width": width, "count": 1, "dtype": "float32", "tiled": True}
    with rasterio.open(file, "w", driver="GTiff", blockxsize=16, blockysize=16, **size, **place) as raster:
        raster.write(plane(row, column).astype("float32"), 1)
    other = data.draw(st.sampled_from([crs, crs, f"EPSG:{32600 + zone % 60 + 1}", "EPSG:3035", "EPSG:4326"]))
    fine = data.draw(st.sampled_from([1.0, 0.5, 1 / 3, 0.8]))
    with rasterio.open(file) as source:
        box = transform_bounds(source.crs, other, *source.bounds)
    pixel = step * fine if other != "EPSG:4326" else min(box[2] - box[0], box[3] - box[1]) / max(height, width) * fine
    origin = data.draw(st.tuples(st.floats(0, pixel), st.floats(0, pixel)))
    if max(box[2] - box[0], box[3] - box[1]) / pixel > 400:
        return  # around a pole of the other projection, or across its edge
    grid = make_grid(box, other, pixel, origin)
    how: Resampling = data.draw(st.sampled_from(["nearest", "bilinear", "cubic"]))
    image, seen, reader = read(file, grid, how, edge=data.draw(st.sampled_from([17, 64])))
    if not isinstance(reader, Direct):
        return
    from pyproj import Transformer

    columns, rows = np.meshgrid(np.arange(grid.shape[1]) + 0.5, np.arange(grid.shape[0]) + 0.5)
    x, y = Transformer.from_crs(other, crs, always_xy=True).transform(*(grid.affine * (columns, rows)))
    column, row = ~place["transform"] * (x, y)
    inside = (row > 1e-3) & (row < height - 1e-3) & (column > 1e-3) & (column < width - 1e-3)
    beyond = (row < -1e-3) | (row > height + 1e-3) | (column < -1e-3) | (column > width + 1e-3)
    assert seen[inside].all()
    assert not seen[beyond].any()
    # Half a pixel from the border nothing lies on the other side to mix with.
    inner = inside & (row > 0.5) & (row < height - 0.5) & (column > 0.5) & (column < width - 0.5)
    wrong = np.abs(image - plane(row, column))[inner] if how != "nearest" else _off(image, row, column)[inside]
    assert wrong.size == 0 or wrong.max() < 0.02


def _off(image: Array, row: Array, column: Array) -> Array:
    """Tell how far nearest pixels are beyond the half pixel on either axis that they may be off."""
    exact = plane(np.floor(row) + 0.5, np.floor(column) + 0.5)
    edge = np.minimum(np.abs(row - np.round(row)), np.abs(column - np.round(column))) < 1e-3
    return np.where(edge, 0, np.abs(image - exact))


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared scenes are not here")
@pytest.mark.parametrize("crs", ["EPSG:3035", "EPSG:32634"])
def test_the_shared_scenes_are_warped_as_gdal_does(crs: str) -> None:
    files = sorted(SHARED.glob("*/B0[48].tif")) + sorted(SHARED.glob("*/SCL.tif"))
    assert files
    for file in files[::5]:
        with rasterio.open(file) as source:
            box = transform_bounds(source.crs, crs, *source.bounds)
        grid = make_grid(box, crs, 120.0, (0, 0))
        how: Resampling = "nearest" if file.stem == "SCL" else "bilinear"
        image, seen, _ = read(file, grid, how, edge=512)
        expected, there = by_gdal(file, grid, how)
        np.testing.assert_array_equal(seen, there)
        apart = np.abs(image.astype(int) - expected)[there]
        assert np.count_nonzero(apart > 1) <= (1e-4 * apart.size if how == "nearest" else 0)
