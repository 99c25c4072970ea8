"""Files of maps, opened as GeoTIFF whatever their content says that they are: other formats read other files."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError, IntegrityError, RefusedError
from eopipe.tiles.raster_end import truncation

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

MAX_PIXELS = 2**33
# Red, green and blue of 0 to 255 of each number.
ColorTable = dict[int, tuple[int, int, int]]
# Bytes of the largest block, which GDAL decodes as a whole.
MAX_BLOCK = 1 << 28
# One thread: with more, a truncated JPEG 2000 file reads as zeros without an error. `BlockCache` keeps the blocks.
SETTINGS: dict[str, Any] = {
    "GDAL_NUM_THREADS": "1",
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_VRT_ENABLE_PYTHON": "NO",
    "GDAL_CACHEMAX": 64 << 20,
}


@dataclass(frozen=True)
class MapFormat:
    """How a file of a map is written: data type, nodata, the names of its bands, and tags.

    `colors` are for the numbers of a single band, nodata being transparent. A value is a number divided by `steps`.
    """

    dtype: str
    nodata: float | None
    names: tuple[str, ...]
    tags: dict[str, Any] = field(default_factory=dict)
    colors: ColorTable | None = None
    steps: int = 1
    units: tuple[str, ...] = ()


@contextmanager
def open_map(path: Path) -> Iterator[Any]:
    """Open a map with rasterio, to be read in the block; raises as `keep_open`."""
    import rasterio

    # One of these settings keeps GDAL from overviews in other files, which a tag of the map may name.
    with rasterio.Env(**SETTINGS), keep_open(path) as source:
        yield source


def keep_open(path: Path) -> Any:
    """Open a map of which each pixel is read as it is, without overviews.

    Raises as `check_file` and `refuse_huge`, and BadInputError for what is no GeoTIFF.
    """
    import rasterio
    from rasterio.errors import RasterioIOError

    check_file(path, "map")
    try:
        with rasterio.Env(**SETTINGS):
            source = rasterio.open(path, driver="GTiff")
    except RasterioIOError as error:
        raise BadInputError(f"{path} cannot be read as a map: {error}") from error
    refuse_huge(source, f"map {path}")
    return source


def read_window(file: Any, y: slice, x: slice, bands: list[int] | None = None) -> AnyArray:
    """Stored numbers (band, y, x) of a window of an opened map, of all bands or of some by their numbers from 1.

    Raises IntegrityError for a damaged map.
    """
    from rasterio.errors import RasterioIOError

    try:
        return np.asarray(file.read(bands, window=((y.start, y.stop), (x.start, x.stop))))
    except RasterioIOError as error:
        raise IntegrityError(f"{file.name} is damaged: {error}; run predict again") from error


def refuse_huge(source: Any, name: str) -> None:
    """Raise RefusedError for a raster of more pixels than any scene has, or with blocks that do not fit into memory."""
    if source.width * source.height > MAX_PIXELS:
        raise RefusedError(f"{name} declares {source.width} x {source.height} pixels, more than any scene has")
    rows, columns = source.block_shapes[0]
    block = rows * columns * np.dtype(source.dtypes[0]).itemsize
    if block > MAX_BLOCK and source.driver == "GTiff":
        raise RefusedError(
            f"{name} has blocks of {rows} x {columns} pixels, which do not fit into memory; rewrite it in tiles with "
            "gdal_translate -of COG"
        )


def check_file(path: Path, name: str) -> None:
    """Raise BadInputError for a path without a file, RefusedError for XML, IntegrityError for a file cut short."""
    try:
        if not path.is_file():
            raise BadInputError(f"{name} is missing: {path} does not exist")
        with path.open("rb") as file:
            start = file.read(64).lstrip()
        cut = truncation(path)
    except OSError as error:
        # Such as a name that is too long, or a lack of permission.
        raise BadInputError(f"{name} cannot be read: {error.strerror}") from error
    if start[:1] == b"<":
        raise RefusedError(f"{name} ({path.name}) is XML, which can read other files; only rasters are opened")
    if cut:
        raise IntegrityError(f"{name} ({path}) {cut}, so a whole copy is needed")


def grid_of(source: Any) -> "GeoBox":
    """The grid of an opened map."""
    from odc.geo.geobox import GeoBox

    return GeoBox(source.shape, source.transform, source.crs)
