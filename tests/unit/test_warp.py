"""Pixels are resampled to their position on any grid, with the values of GDAL's own warp."""

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import rasterio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rasterio.enums import Resampling as Method
from rasterio.transform import from_origin
from rasterio.vrt import WarpedVRT
from rasterio.warp import transform_bounds
from scenery import write_raster

from eopipe.arrays import AnyArray
from eopipe.scenes.item import SceneBand
from eopipe.tiles.grid import make_grid, windows
from eopipe.warp.open_raster import SETTINGS
from eopipe.warp.readers import BandOpener, BandReader, BlockBandReader
from eopipe.warp.separable import Resampling

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

SHARED = Path(__file__).parents[3] / "shared" / "data" / "sentinel-2-l2a-33t"
# Metres of a degree of latitude, at least; UTM zones where EPSG:3035 is used.
DEGREE, EUROPE = 111_700, range(28, 39)
QUIET = settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(path: Path, grid: "GeoBox", resampling: Resampling, edge: int = 40) -> tuple[AnyArray, AnyArray, BandReader]:
    """Read a raster on a grid, window by window: pixels, valid mask, and the reader."""
    with ExitStack() as stack:
        stack.enter_context(rasterio.Env(**SETTINGS))
        reader = BandOpener(grid, stack).open(SceneBand("red", path, 1.0, 0.0, None), resampling, "scene s, asset red")
        image, valid = np.zeros(grid.shape, reader.dtype), np.ones(grid.shape, bool)
        parts = windows(grid.shape, edge)
        reader.plan(parts)
        for number, window in enumerate(parts):
            mask = reader.read(window, {}, image[window])
            valid[window] = True if mask is None else mask
            reader.release(number)
        return image, valid, reader


def by_gdal(path: Path, grid: "GeoBox", resampling: str) -> tuple[AnyArray, AnyArray]:
    """Warp exactly with GDAL, its kernels as narrow as ours."""
    with rasterio.open(path) as source:
        georeference = {"crs": str(grid.crs), "transform": grid.affine, "width": grid.shape[1], "height": grid.shape[0]}
        exact = {"tolerance": 1e-6, "XSCALE": 1, "YSCALE": 1, "src_nodata": source.nodata}
        with WarpedVRT(
            source, resampling=Method[resampling], add_alpha=source.nodata is None, **georeference, **exact
        ) as warped:
            return warped.read(1), warped.read_masks(1) > 0


def noise_of(shape: tuple[int, int], dtype: str, nodata: float | None, span: int | None = None) -> AnyArray:
    """Noise over the whole range of a data type or `span` numbers, a tenth of it nodata if that is defined."""
    random = np.random.default_rng(4)
    if np.dtype(dtype).kind == "f":
        pixels = random.uniform(0, span or 400, shape).astype(dtype)
    else:
        limits = np.iinfo(dtype)
        maximum = limits.max if span is None else min(limits.max, limits.min + span)
        pixels = random.integers(limits.min, maximum, shape, dtype, endpoint=True)
    if nodata is not None:
        pixels[random.random(shape) < 0.1] = nodata
        pixels[:9, :11] = nodata
    return pixels


def grid_over(file: Path, crs: str, step: float, origin: tuple[float, float] = (0, 0)) -> "GeoBox":
    """The smallest grid over a raster."""
    with rasterio.open(file) as source:
        box = transform_bounds(source.crs, crs, *source.bounds)
    return make_grid(box, crs, step, origin)


# The last: PROJ before 9.6 inverts the projection of EPSG:3035 to half a millimetre, 5e-5 of a pixel. Where pyproj
# has an older PROJ than GDAL, neighbours that differ by 65,000 end up 3 apart, so they differ by less here.
GRIDS = [
    ("EPSG:32633", 10.0, (0.0, 0.0), None),
    ("EPSG:32633", 10.0, (3.3, 7.1), None),
    ("EPSG:32633", 5.0, (0.0, 0.0), None),
    ("EPSG:32633", 7.0, (1.0, 2.0), None),
    ("EPSG:32634", 10.0, (0.0, 0.0), None),
    ("EPSG:3035", 9.7, (0.0, 0.0), 10_000),
]


@pytest.mark.parametrize(("crs", "step", "origin", "span"), GRIDS, ids=str)
@pytest.mark.parametrize("resampling", ["nearest", "bilinear", "cubic"])
@pytest.mark.parametrize(("dtype", "nodata"), [("uint16", 0), ("uint8", None), ("int16", -32768), ("float32", -9999.0)])
def test_pixels_are_those_of_gdal(
    tmp_path: Path,
    crs: str,
    step: float,
    origin: tuple[float, float],
    span: int | None,
    resampling: Resampling,
    dtype: str,
    nodata: float | None,
) -> None:
    noise = noise_of((96, 70), dtype, nodata, span)
    file = write_raster(tmp_path / "r.tif", noise, nodata=nodata, driver="GTiff", top=5_100_001.0)
    grid = grid_over(file, crs, step, origin)
    image, valid, reader = read(file, grid, resampling)
    assert isinstance(reader, BlockBandReader)
    expected, expected_valid = by_gdal(file, grid, resampling)
    np.testing.assert_array_equal(valid, expected_valid)
    assert expected_valid.sum() > 5000
    assert np.abs(image.astype(float) - expected)[expected_valid].max() <= (
        1e-4 * (span or 10) if dtype == "float32" else 1
    )


@pytest.mark.parametrize(("crs", "step"), [("EPSG:3035", 9.7), ("EPSG:32634", 8.0)])
def test_bilinear_pixels_are_means_of_the_valid_pixels_around_their_position(
    tmp_path: Path, crs: str, step: float
) -> None:
    noise = noise_of((96, 70), "uint16", 0)
    file = write_raster(tmp_path / "r.tif", noise, nodata=0, driver="GTiff")
    grid = grid_over(file, crs, step)
    image, valid, _ = read(file, grid, "bilinear")
    with rasterio.open(file) as source:
        row, column = positions(grid, source.crs.to_wkt(), source.transform)
    total, share = np.zeros(grid.shape), np.zeros(grid.shape)
    for down in (0, 1):
        for right in (0, 1):
            y, x = np.floor(row - 0.5).astype(int) + down, np.floor(column - 0.5).astype(int) + right
            exists = (y >= 0) & (y < 96) & (x >= 0) & (x < 70)
            value = noise[y.clip(0, 95), x.clip(0, 69)]
            weight = (1 - np.abs(row - 0.5 - y)) * (1 - np.abs(column - 0.5 - x)) * (exists & (value > 0))
            total, share = total + weight * value, share + weight
    assert np.abs(image[valid] - total[valid] / share[valid]).max() < 0.51


@pytest.mark.parametrize("resampling", ["bilinear", "cubic", "average", "mode"])
@pytest.mark.parametrize("factor", [2, 3, 6])
def test_coarser_grids_take_every_pixel_as_gdal_does(tmp_path: Path, resampling: Resampling, factor: int) -> None:
    pixels = np.random.default_rng(1).integers(1, 6, (72, 60)).astype("uint16") * 100
    file = write_raster(tmp_path / "r.tif", pixels, driver="GTiff")
    box = (500_000.0, 5_099_280.0, 500_600.0, 5_100_000.0)
    grid = make_grid(box, "EPSG:32633", 10.0 * factor, (box[0], box[3]))
    image, valid, _ = read(file, grid, resampling)
    with rasterio.open(file) as source:
        georeference = {"crs": "EPSG:32633", "transform": grid.affine, "width": grid.shape[1], "height": grid.shape[0]}
        with WarpedVRT(source, resampling=Method[resampling], tolerance=1e-6, **georeference) as warped:
            expected = warped.read(1)
    assert valid.all()
    assert np.abs(image.astype(int) - expected).max() <= 1


def test_an_average_omits_nodata(tmp_path: Path) -> None:
    pixels = np.array([[10, 0, 0, 0], [20, 30, 0, 0]], np.uint16)
    file = write_raster(tmp_path / "r.tif", pixels, driver="GTiff")
    grid = make_grid((500_000.0, 5_099_980.0, 500_040.0, 5_100_000.0), "EPSG:32633", 20.0, (0, 0))
    image, valid, _ = read(file, grid, "average")
    assert (image[0, 0], valid.tolist()) == (20, [[True, False]])


def plane(row: AnyArray, column: AnyArray) -> AnyArray:
    """Encode positions of pixels in linear numbers, which resampling preserves."""
    return 8.0 * row + 3.0 * column + 1000.0


@pytest.mark.parametrize("kind", ["own", "neighbour", "EPSG:3035", "EPSG:4326"])
@pytest.mark.parametrize("resampling", ["nearest", "bilinear", "cubic"])
@QUIET
@given(data=st.data())
@pytest.mark.exhaustive
def test_pixels_that_encode_their_position_arrive_there(
    tmp_path: Path, kind: str, resampling: Resampling, data: st.DataObject
) -> None:
    crs, left, top, step = data.draw(georeference_in(EUROPE if kind == "EPSG:3035" else range(1, 61)))
    height, width = data.draw(st.tuples(st.integers(5, 60), st.integers(5, 60)))
    file = tmp_path / "positions.tif"
    row, column = np.mgrid[:height, :width] + 0.5
    write_raster(
        file, plane(row, column).astype("float32"), left=left, top=top, step=step, crs=crs, nodata=None, driver="GTiff"
    )
    target_crs = {"own": crs, "neighbour": data.draw(neighbour_of(crs))}.get(kind, kind)
    with rasterio.open(file) as source:
        box = transform_bounds(source.crs, target_crs, *source.bounds)
    pixel = step * data.draw(st.sampled_from([1.0, 0.5, 1 / 3, 0.8])) / (DEGREE if kind == "EPSG:4326" else 1)
    grid = make_grid(box, target_crs, pixel, data.draw(st.tuples(st.floats(0, pixel), st.floats(0, pixel))))
    image, valid, reader = read(file, grid, resampling, edge=data.draw(st.sampled_from([17, 64])))
    assert isinstance(reader, BlockBandReader)
    row, column = positions(grid, crs, from_origin(left, top, step, step))
    # At the border of a pixel rounding decides on which side of it a position is.
    inside = (row > 1e-3) & (row < height - 1e-3) & (column > 1e-3) & (column < width - 1e-3)
    outside = (row < -1e-3) | (row > height + 1e-3) | (column < -1e-3) | (column > width + 1e-3)
    assert inside.sum() >= 12
    assert valid[inside].all()
    assert not valid[outside].any()
    # Half a pixel from the border no pixel of the other side is mixed in.
    inner = inside & (row > 0.5) & (row < height - 0.5) & (column > 0.5) & (column < width - 0.5)
    error = np.abs(image - plane(row, column))[inner] if resampling != "nearest" else _error(image, row, column)[inside]
    assert error.size
    assert error.max() < 2e-3


def georeference_in(zones: Iterable[int]) -> st.SearchStrategy[tuple[str, float, float, float]]:
    """UTM zone, left, top and pixel size of rasters within 100 km of the middle of a zone, up to 63 degrees off."""

    def place(zone: int, left: int, top: int, step: float, south: bool) -> tuple[str, float, float, float]:
        south = south and zone not in EUROPE
        crs = f"EPSG:{(32700 if south else 32600) + zone}"
        return crs, left * 10.0, top * 10.0 + (2_000_000.0 if south else 0.0), step

    rows = st.integers(400_000, 700_000) if zones is EUROPE else st.integers(200_000, 700_000)
    columns, steps = st.integers(40_000, 60_000), st.sampled_from([10.0, 20.0, 60.0])
    return st.builds(place, st.sampled_from(list(zones)), columns, rows, steps, st.booleans())


def neighbour_of(crs: str) -> st.SearchStrategy[str]:
    """The UTM zones to the left and the right, of the same hemisphere."""
    family, zone = divmod(int(crs[5:]), 100)
    return st.sampled_from([f"EPSG:{family}{(zone - 1 + off) % 60 + 1:02}" for off in (-1, 1)])


def positions(grid: "GeoBox", crs: str, transform: Any) -> tuple[AnyArray, AnyArray]:
    """Rows and columns of the pixels of a grid in a raster, without any approximation."""
    from pyproj import Transformer

    columns, rows = np.meshgrid(np.arange(grid.shape[1]) + 0.5, np.arange(grid.shape[0]) + 0.5)
    x, y = Transformer.from_crs(str(grid.crs), crs, always_xy=True).transform(*(grid.affine * (columns, rows)))
    column, row = ~transform * (x, y)
    return row, column


def _error(image: AnyArray, row: AnyArray, column: AnyArray) -> AnyArray:
    """The error of nearest pixels beyond the half pixel on either axis that they may be off."""
    exact = plane(np.floor(row) + 0.5, np.floor(column) + 0.5)
    edge = np.minimum(np.abs(row - np.round(row)), np.abs(column - np.round(column))) < 1e-3
    return np.where(edge, 0, np.abs(image - exact))


SCENES = sorted(SHARED.glob("S2*")) if SHARED.is_dir() else []


@pytest.mark.skipif(not SCENES, reason="the shared scenes are not available")
@pytest.mark.parametrize("scene", SCENES, ids=lambda path: path.name)
@pytest.mark.parametrize(
    ("crs", "origin"), [("EPSG:3035", (0, 0)), ("EPSG:32634", (0, 0)), ("EPSG:32633", (37.0, 53.0))]
)
@pytest.mark.exhaustive
def test_the_shared_scenes_are_warped_as_gdal_does(scene: Path, crs: str, origin: tuple[float, float]) -> None:
    for name in ("B02", "B03", "B04", "B08", "SCL"):
        file = scene / f"{name}.tif"
        # A corner, with its border and the edge of the orbit; all of it was compared with the same outcome.
        grid = grid_over(file, crs, 120.0, origin)[-260:, :300]
        resampling: Resampling = "nearest" if name == "SCL" else "bilinear"
        image, valid, reader = read(file, grid, resampling, edge=256)
        assert isinstance(reader, BlockBandReader)
        expected, expected_valid = by_gdal(file, grid, resampling)
        difference = np.abs(image.astype(int) - expected)
        with rasterio.open(file) as source:
            row, column = positions(grid, source.crs.to_wkt(), source.transform)
        # Where two pixels are equally near, either may be the nearest.
        unambiguous = np.minimum(np.abs(row - np.round(row)), np.abs(column - np.round(column))) > 1e-4
        np.testing.assert_array_equal(valid[unambiguous], expected_valid[unambiguous])
        assert expected_valid.any()
        assert (
            difference[expected_valid & valid].max() <= 1
            if resampling == "bilinear"
            else not difference[expected_valid & unambiguous].any()
        )
