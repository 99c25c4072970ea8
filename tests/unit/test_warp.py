"""Pixels come out where they say, on any grid, and as GDAL's own warp would have them."""

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


def read(path: Path, grid: "GeoBox", how: Resampling, edge: int = 40) -> tuple[AnyArray, AnyArray, BandReader]:
    """Read a raster on a grid, window by window: pixels, where they are measurements, and what read them."""
    with ExitStack() as stack:
        stack.enter_context(rasterio.Env(**SETTINGS))
        reader = BandOpener(grid, stack).reader(SceneBand("red", path, 1.0, 0.0, None), how, "scene s, asset red")
        image, seen = np.zeros(grid.shape, reader.dtype), np.ones(grid.shape, bool)
        cuts = windows(grid.shape, edge)
        reader.plan(cuts)
        for turn, window in enumerate(cuts):
            there = reader.read(window, {}, image[window])
            seen[window] = True if there is None else there
            reader.release(turn)
        return image, seen, reader


def by_gdal(path: Path, grid: "GeoBox", how: str) -> tuple[AnyArray, AnyArray]:
    """Warp exactly with GDAL, its kernels as narrow as ours."""
    with rasterio.open(path) as source:
        place = {"crs": str(grid.crs), "transform": grid.affine, "width": grid.shape[1], "height": grid.shape[0]}
        exact = {"tolerance": 1e-6, "XSCALE": 1, "YSCALE": 1, "src_nodata": source.nodata}
        with WarpedVRT(source, resampling=Method[how], add_alpha=source.nodata is None, **place, **exact) as warped:
            return warped.read(1), warped.read_masks(1) > 0


def rugged(shape: tuple[int, int], dtype: str, nodata: float | None, span: int | None = None) -> AnyArray:
    """Noise over the whole range of a type or `span` numbers, a tenth of it no data if there is any."""
    random = np.random.default_rng(4)
    if np.dtype(dtype).kind == "f":
        pixels = random.uniform(0, span or 400, shape).astype(dtype)
    else:
        kind = np.iinfo(dtype)
        most = kind.max if span is None else min(kind.max, kind.min + span)
        pixels = random.integers(kind.min, most, shape, dtype, endpoint=True)
    if nodata is not None:
        pixels[random.random(shape) < 0.1] = nodata
        pixels[:9, :11] = nodata
    return pixels


def over(file: Path, crs: str, step: float, origin: tuple[float, float] = (0, 0)) -> "GeoBox":
    """The smallest grid over a raster."""
    with rasterio.open(file) as source:
        box = transform_bounds(source.crs, crs, *source.bounds)
    return make_grid(box, crs, step, origin)


# The last: PROJ before 9.6 inverts the projection of EPSG:3035 to half a millimetre, 5e-5 of a pixel. Where pyproj
# brings an older one than GDAL does, neighbours that differ by 65,000 come out 3 apart, so they differ by less here.
GRIDS = [
    ("EPSG:32633", 10.0, (0.0, 0.0), None),
    ("EPSG:32633", 10.0, (3.3, 7.1), None),
    ("EPSG:32633", 5.0, (0.0, 0.0), None),
    ("EPSG:32633", 7.0, (1.0, 2.0), None),
    ("EPSG:32634", 10.0, (0.0, 0.0), None),
    ("EPSG:3035", 9.7, (0.0, 0.0), 10_000),
]


@pytest.mark.parametrize(("crs", "step", "origin", "span"), GRIDS, ids=str)
@pytest.mark.parametrize("how", ["nearest", "bilinear", "cubic"])
@pytest.mark.parametrize(("dtype", "nodata"), [("uint16", 0), ("uint8", None), ("int16", -32768), ("float32", -9999.0)])
def test_pixels_are_those_of_gdal(
    tmp_path: Path,
    crs: str,
    step: float,
    origin: tuple[float, float],
    span: int | None,
    how: Resampling,
    dtype: str,
    nodata: float | None,
) -> None:
    noise = rugged((96, 70), dtype, nodata, span)
    file = write_raster(tmp_path / "r.tif", noise, nodata=nodata, driver="GTiff", top=5_100_001.0)
    grid = over(file, crs, step, origin)
    image, seen, reader = read(file, grid, how)
    assert isinstance(reader, BlockBandReader)
    expected, there = by_gdal(file, grid, how)
    np.testing.assert_array_equal(seen, there)
    assert there.sum() > 5000
    assert np.abs(image.astype(float) - expected)[there].max() <= (1e-4 * (span or 10) if dtype == "float32" else 1)


@pytest.mark.parametrize(("crs", "step"), [("EPSG:3035", 9.7), ("EPSG:32634", 8.0)])
def test_bilinear_pixels_are_means_of_the_measurements_around_their_place(
    tmp_path: Path, crs: str, step: float
) -> None:
    noise = rugged((96, 70), "uint16", 0)
    file = write_raster(tmp_path / "r.tif", noise, nodata=0, driver="GTiff")
    grid = over(file, crs, step)
    image, seen, _ = read(file, grid, "bilinear")
    with rasterio.open(file) as source:
        row, column = places(grid, source.crs.to_wkt(), source.transform)
    total, share = np.zeros(grid.shape), np.zeros(grid.shape)
    for down in (0, 1):
        for right in (0, 1):
            y, x = np.floor(row - 0.5).astype(int) + down, np.floor(column - 0.5).astype(int) + right
            there = (y >= 0) & (y < 96) & (x >= 0) & (x < 70)
            value = noise[y.clip(0, 95), x.clip(0, 69)]
            weight = (1 - np.abs(row - 0.5 - y)) * (1 - np.abs(column - 0.5 - x)) * (there & (value > 0))
            total, share = total + weight * value, share + weight
    assert np.abs(image[seen] - total[seen] / share[seen]).max() < 0.51


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


def plane(row: AnyArray, column: AnyArray) -> AnyArray:
    """Encode places of pixels in numbers that are linear, so that mixing keeps them right."""
    return 8.0 * row + 3.0 * column + 1000.0


@pytest.mark.parametrize("kind", ["own", "neighbour", "EPSG:3035", "EPSG:4326"])
@pytest.mark.parametrize("how", ["nearest", "bilinear", "cubic"])
@QUIET
@given(data=st.data())
def test_pixels_that_tell_their_place_come_out_where_they_say(
    tmp_path: Path, kind: str, how: Resampling, data: st.DataObject
) -> None:
    crs, left, top, step = data.draw(place_in(EUROPE if kind == "EPSG:3035" else range(1, 61)))
    height, width = data.draw(st.tuples(st.integers(5, 60), st.integers(5, 60)))
    file = tmp_path / "place.tif"
    row, column = np.mgrid[:height, :width] + 0.5
    write_raster(
        file, plane(row, column).astype("float32"), left=left, top=top, step=step, crs=crs, nodata=None, driver="GTiff"
    )
    other = {"own": crs, "neighbour": data.draw(beside(crs))}.get(kind, kind)
    with rasterio.open(file) as source:
        box = transform_bounds(source.crs, other, *source.bounds)
    pixel = step * data.draw(st.sampled_from([1.0, 0.5, 1 / 3, 0.8])) / (DEGREE if kind == "EPSG:4326" else 1)
    grid = make_grid(box, other, pixel, data.draw(st.tuples(st.floats(0, pixel), st.floats(0, pixel))))
    image, seen, reader = read(file, grid, how, edge=data.draw(st.sampled_from([17, 64])))
    assert isinstance(reader, BlockBandReader)
    row, column = places(grid, crs, from_origin(left, top, step, step))
    # The border of a pixel is where rounding decides on which side of it a place lies.
    inside = (row > 1e-3) & (row < height - 1e-3) & (column > 1e-3) & (column < width - 1e-3)
    beyond = (row < -1e-3) | (row > height + 1e-3) | (column < -1e-3) | (column > width + 1e-3)
    assert inside.sum() >= 12
    assert seen[inside].all()
    assert not seen[beyond].any()
    # Half a pixel from the border nothing lies on the other side to mix with.
    inner = inside & (row > 0.5) & (row < height - 0.5) & (column > 0.5) & (column < width - 0.5)
    wrong = np.abs(image - plane(row, column))[inner] if how != "nearest" else _off(image, row, column)[inside]
    assert wrong.size
    assert wrong.max() < 2e-3


def place_in(zones: Iterable[int]) -> st.SearchStrategy[tuple[str, float, float, float]]:
    """UTM zone, left, top and pixel size of rasters within 100 km of the middle of a zone, up to 63 degrees off."""

    def place(zone: int, left: int, top: int, step: float, south: bool) -> tuple[str, float, float, float]:
        south = south and zone not in EUROPE
        crs = f"EPSG:{(32700 if south else 32600) + zone}"
        return crs, left * 10.0, top * 10.0 + (2_000_000.0 if south else 0.0), step

    rows = st.integers(400_000, 700_000) if zones is EUROPE else st.integers(200_000, 700_000)
    columns, steps = st.integers(40_000, 60_000), st.sampled_from([10.0, 20.0, 60.0])
    return st.builds(place, st.sampled_from(list(zones)), columns, rows, steps, st.booleans())


def beside(crs: str) -> st.SearchStrategy[str]:
    """The UTM zones to the left and the right, of the same hemisphere."""
    family, zone = divmod(int(crs[5:]), 100)
    return st.sampled_from([f"EPSG:{family}{(zone - 1 + off) % 60 + 1:02}" for off in (-1, 1)])


def places(grid: "GeoBox", crs: str, transform: Any) -> tuple[AnyArray, AnyArray]:
    """Rows and columns of the pixels of a grid in a raster, without any approximation."""
    from pyproj import Transformer

    columns, rows = np.meshgrid(np.arange(grid.shape[1]) + 0.5, np.arange(grid.shape[0]) + 0.5)
    x, y = Transformer.from_crs(str(grid.crs), crs, always_xy=True).transform(*(grid.affine * (columns, rows)))
    column, row = ~transform * (x, y)
    return row, column


def _off(image: AnyArray, row: AnyArray, column: AnyArray) -> AnyArray:
    """Tell how far nearest pixels are beyond the half pixel on either axis that they may be off."""
    exact = plane(np.floor(row) + 0.5, np.floor(column) + 0.5)
    edge = np.minimum(np.abs(row - np.round(row)), np.abs(column - np.round(column))) < 1e-3
    return np.where(edge, 0, np.abs(image - exact))


SCENES = sorted(SHARED.glob("S2*")) if SHARED.is_dir() else []


@pytest.mark.skipif(not SCENES, reason="the shared scenes are not here")
@pytest.mark.parametrize("scene", SCENES, ids=lambda path: path.name)
@pytest.mark.parametrize(
    ("crs", "origin"), [("EPSG:3035", (0, 0)), ("EPSG:32634", (0, 0)), ("EPSG:32633", (37.0, 53.0))]
)
def test_the_shared_scenes_are_warped_as_gdal_does(scene: Path, crs: str, origin: tuple[float, float]) -> None:
    for name in ("B02", "B03", "B04", "B08", "SCL"):
        file = scene / f"{name}.tif"
        # A corner, with its border and the edge of the orbit; all of it was compared with the same outcome.
        grid = over(file, crs, 120.0, origin)[-260:, :300]
        how: Resampling = "nearest" if name == "SCL" else "bilinear"
        image, seen, reader = read(file, grid, how, edge=256)
        assert isinstance(reader, BlockBandReader)
        expected, there = by_gdal(file, grid, how)
        apart = np.abs(image.astype(int) - expected)
        with rasterio.open(file) as source:
            row, column = places(grid, source.crs.to_wkt(), source.transform)
        # What is nearest is a matter of taste where two pixels are equally near.
        clear = np.minimum(np.abs(row - np.round(row)), np.abs(column - np.round(column))) > 1e-4
        np.testing.assert_array_equal(seen[clear], there[clear])
        assert there.any()
        assert apart[there & seen].max() <= 1 if how == "bilinear" else not apart[there & clear].any()
