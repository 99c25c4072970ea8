"""Read bands of a scene onto a grid, window by window."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.errors import BadInputError, IntegrityError, RefusedError
from eopipe.scenes.item import SceneBand
from eopipe.tiles.grid import Bounds, PixelWindow
from eopipe.warp.separable import Resampling

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# Only these formats are opened: a text file that GDAL takes for a raster (VRT, WMS) can read other files.
DRIVERS = {".jp2": "JP2OpenJPEG"}
MOST_PIXELS = 2**33
# One thread: with more, a truncated JPEG 2000 file reads as zeros without an error. Of blocks we keep our own.
SETTINGS: dict[str, Any] = {
    "GDAL_NUM_THREADS": "1",
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_VRT_ENABLE_PYTHON": "NO",
    "GDAL_CACHEMAX": 64 << 20,
}


@contextmanager
def warped(
    band: SceneBand, grid: "GeoBox", resampling: Resampling, where: str, dtype: str | None = None
) -> Iterator[Any]:
    """Open a band as it would look on the grid, in the file's type or another; a window decodes only what it needs.

    GDAL takes the direct path without interpolation where the pixels coincide.
    Raises IntegrityError for a file that cannot be read, BadInputError for one without a place.
    """
    import rasterio
    from rasterio.enums import Resampling as Method
    from rasterio.vrt import WarpedVRT

    with ExitStack() as stack:
        stack.enter_context(rasterio.Env(**SETTINGS))
        source = stack.enter_context(open_raster(band, where))
        check_place(source, grid, band, where)
        height, width = grid.shape
        nodata = band.nodata_value(source.nodata, np.dtype(source.dtypes[0]), where)
        yield stack.enter_context(
            WarpedVRT(
                source,
                crs=str(grid.crs),
                transform=grid.affine,
                width=width,
                height=height,
                resampling=Method[resampling],
                src_nodata=nodata,
                # Without a nodata value only an alpha band tells what lies beyond the file.
                add_alpha=nodata is None,
                dtype=dtype,
                # The approximation of GDAL may be an eighth of a pixel off.
                tolerance=1e-6,
            )
        )


def open_raster(band: SceneBand, where: str) -> Any:
    """Open the file of a band, if it is a raster of an allowed format with a place.

    Raises BadInputError for a missing file or place, RefusedError for XML and for sizes that no scene has,
    IntegrityError for a file that cannot be read.
    """
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning, RasterioIOError

    if not band.path.is_file():
        raise BadInputError(f"{where} is missing: there is no {band.path}")
    with band.path.open("rb") as file:
        if file.read(64).lstrip()[:1] == b"<":
            raise RefusedError(
                f"{where} ({band.path.name}) is XML, which can read other files; only rasters are opened"
            )
    try:
        with warnings.catch_warnings():
            # A file without a place is refused below.
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            source = rasterio.open(band.path, driver=DRIVERS.get(band.path.suffix.lower(), "GTiff"))
    except RasterioIOError as error:
        raise IntegrityError(f"{where} ({band.path.name}) cannot be read: {error}") from error
    if source.crs is None or source.transform.is_identity:
        raise BadInputError(f"{where} ({band.path.name}) has no CRS or no geotransform, so it has no place")
    if source.width * source.height > MOST_PIXELS:
        raise RefusedError(f"{where} declares {source.width} x {source.height} pixels, more than any scene has")
    return source


def check_place(source: Any, grid: "GeoBox", band: SceneBand, where: str) -> None:
    """Refuse a raster that lies elsewhere (it would read as nothing but nodata), or where its item says it does not."""
    from rasterio.errors import RasterioError

    box = grid.extent.boundingbox
    try:
        west, south, east, north = _bounds(source.crs.to_wkt(), str(grid.crs), tuple(source.bounds))
        apart = west > box.right or east < box.left or south > box.top or north < box.bottom
    except RasterioError:
        apart = True
    if apart:
        raise BadInputError(
            f"{where} lies at {', '.join(f'{edge:g}' for edge in source.bounds)} in {source.crs}, "
            f"outside the grid at {', '.join(f'{edge:g}' for edge in box)} in {grid.crs}"
        )
    band.check_crs(source.crs.to_epsg(), where)


@lru_cache(maxsize=64)
def _bounds(crs: str, other: str, bounds: Bounds) -> Bounds:
    """Bounds in another CRS; the bands of a scene share them, and they take a while."""
    from rasterio.warp import transform_bounds

    west, south, east, north = transform_bounds(crs, other, *bounds)
    return west, south, east, north


def read_window(source: Any, window: PixelWindow, where: str) -> tuple[AnyArray, BoolArray]:
    """Read pixels of an opened band and where they are measurements; a broken block is an error, never zeros."""
    from rasterio.errors import RasterioIOError
    from rasterio.windows import Window

    box = Window.from_slices(*window)
    try:
        pixels, there = source.read(1, window=box), source.read_masks(1, window=box) > 0
    except RasterioIOError as error:
        row, column = window[0].start, window[1].start
        raise IntegrityError(f"{where} is truncated or damaged near row {row}, column {column}: {error}") from error
    if pixels.dtype.kind == "f":
        there &= np.isfinite(pixels)
    return pixels, there
