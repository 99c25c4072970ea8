"""Open rasters of allowed formats safely, check their location, and warp them to a grid with GDAL.

Which pixels are data, by nodata value, alpha band or mask, and finite numbers, is the same for every reader.
"""

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.errors import BadInputError, IntegrityError, OutsideGridError
from eopipe.scenes.item import SceneBand, file_scaling
from eopipe.scenes.item_comparison import compare_bands, compare_place
from eopipe.text_table import shell_word
from eopipe.tiles.geotiff import SETTINGS, check_file, refuse_huge
from eopipe.tiles.grid import Bounds, PixelWindow
from eopipe.warp.separable import Resampling

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# GDAL takes an alpha band for the mask only of 8 and 16 bits without sign, and only as the second or fourth of as many
# bands; this table makes a mask of any: 0 and below is masked.
ALPHA_TO_MASK = "<LUT>0:0,1e-30:255</LUT>"
# Only GeoTIFF and these formats are opened: a text file that GDAL takes for a raster (VRT, WMS) can read other files.
DRIVERS = {".jp2": "JP2OpenJPEG"}


def alpha_band(source: Any) -> int | None:
    """The number of the alpha band of an opened raster, from 1; None where it has none beside its data."""
    from rasterio.enums import ColorInterp

    is_alpha = [meaning == ColorInterp.alpha for meaning in source.colorinterp]
    return None if all(is_alpha) or not any(is_alpha) else source.indexes[is_alpha.index(True)]


def data_bands(source: Any) -> list[int]:
    """The numbers of the bands, from 1, without alpha bands; of a raster of alpha bands only all of them."""
    from rasterio.enums import ColorInterp

    bands = [n for n, meaning in zip(source.indexes, source.colorinterp, strict=True) if meaning != ColorInterp.alpha]
    return bands or list(source.indexes)


def has_mask(source: Any) -> bool:
    """Whether a raster has an alpha band or a mask beside its pixels."""
    from rasterio.enums import MaskFlags

    return alpha_band(source) is not None or any(MaskFlags.per_dataset in flags for flags in source.mask_flag_enums)


def read_mask(source: Any, window: Any) -> BoolArray | None:
    """What the alpha band or the mask of a raster says of a window (None: there is neither). Raises RasterioIOError."""
    alpha = alpha_band(source)
    if alpha is not None:
        return np.asarray(source.read(alpha, window=window) > 0)
    return np.asarray(source.read_masks(1, window=window) > 0) if has_mask(source) else None


def not_nodata(values: AnyArray, nodata: float | None) -> BoolArray | None:
    """Which values are not the nodata value (None: all). NaN is left to `np.isfinite`."""
    if nodata is None or np.isnan(nodata):
        return None
    # A number that float32 cannot hold becomes infinite, which is not valid either.
    with np.errstate(over="ignore"):
        return np.asarray(values != np.asarray(nodata).astype(values.dtype)[()])


def valid_pixels(source: Any, band: int, window: Any, values: AnyArray) -> BoolArray:
    """Which pixels of a band are data, by all that its file says; `values` are the window's."""
    valid = np.ones(values.shape, bool)
    for part in (read_mask(source, window), not_nodata(values, source.nodatavals[band - 1])):
        if part is not None:
            valid &= part
    if values.dtype.kind == "f":
        valid &= np.isfinite(values)
    return valid


def single_band_vrt(source: Any, band: int, nodata: float | None) -> str:
    """The XML of a raster of one band, as GDAL warps it rightly: its mask is the alpha band or mask of the source.

    Beside a nodata value GDAL ignores a mask, so there what is masked gets this value.
    """
    dtype = _gdal_type(np.dtype(source.dtypes[band - 1]))
    alpha = alpha_band(source)
    numbers = f"<Scale>{source.scales[band - 1]!r}</Scale><Offset>{source.offsets[band - 1]!r}</Offset>"
    mask = ""
    if alpha is not None:
        mask = _source("ComplexSource", source.name, str(alpha), ALPHA_TO_MASK)
    elif has_mask(source):
        mask = _source("SimpleSource", source.name, "mask,1")
    if mask:
        mask = f'<MaskBand><VRTRasterBand dataType="Byte">{mask}</VRTRasterBand></MaskBand>'
    pixels = _source("SimpleSource", source.name, str(band))
    raster = _dataset(source, f'<VRTRasterBand dataType="{dtype}" band="1">{numbers}{pixels}</VRTRasterBand>{mask}')
    if nodata is None or not mask:
        return raster
    filled = _source("ComplexSource", raster, "1", "<UseMaskBand>true</UseMaskBand>")
    value = f"<NoDataValue>{nodata!r}</NoDataValue>"
    return _dataset(source, f'<VRTRasterBand dataType="{dtype}" band="1">{value}{numbers}{filled}</VRTRasterBand>')


def _dataset(source: Any, bands: str) -> str:
    place = ",".join(map(repr, source.transform.to_gdal()))
    return (
        f'<VRTDataset rasterXSize="{source.width}" rasterYSize="{source.height}"><SRS>{escape(source.crs.to_wkt())}'
        f"</SRS><GeoTransform>{place}</GeoTransform>{bands}</VRTDataset>"
    )


def _source(kind: str, file: str, band: str, more: str = "") -> str:
    name = f'<SourceFilename relativeToVRT="0">{escape(file)}</SourceFilename>'
    return f"<{kind}>{name}<SourceBand>{band}</SourceBand>{more}</{kind}>"


def _gdal_type(dtype: np.dtype[Any]) -> str:
    kind = {"u": "UInt", "i": "Int", "f": "Float"}[dtype.kind]
    return "Byte" if dtype == np.uint8 else f"{kind}{8 * dtype.itemsize}"


@contextmanager
def warped(
    band: SceneBand, grid: "GeoBox", resampling: Resampling, name: str, dtype: str | None = None
) -> Iterator[Any]:
    """Open a band as GDAL warps it to the grid, in the file's data type or another; reading a window decodes its part.

    GDAL copies without interpolation where the pixels coincide. Raises IntegrityError for a file that cannot be read,
    BadInputError for a file without georeference.
    """
    import rasterio
    from rasterio.enums import Resampling as Method
    from rasterio.vrt import WarpedVRT

    with ExitStack() as stack:
        stack.enter_context(rasterio.Env(**SETTINGS))
        source, number = stack.enter_context(open_band(band, name))
        check_location(source, grid, name)
        height, width = grid.shape
        nodata = band.nodata_value(source.nodata, np.dtype(source.dtypes[number - 1]), name)
        if source.count > 1 or has_mask(source):
            source = stack.enter_context(rasterio.open(single_band_vrt(source, number, nodata)))
        yield stack.enter_context(
            WarpedVRT(
                source,
                crs=str(grid.crs),
                transform=grid.affine,
                width=width,
                height=height,
                resampling=Method[resampling],
                src_nodata=nodata,
                # Without a nodata value only an alpha band marks pixels outside of the file.
                add_alpha=nodata is None,
                dtype=dtype,
                # By default the positions of GDAL may be wrong by an eighth of a pixel.
                tolerance=1e-6,
            )
        )


def pixels_per_edge(band: SceneBand, grid: "GeoBox", name: str) -> float:
    """Pixels of a band's file along the edge of a pixel at the centre of the grid; above 1 the file is finer.

    1 where the grid is outside of what the CRS of the file can express. Raises what `open_raster` raises.
    """
    import rasterio
    from rasterio.errors import RasterioError
    from rasterio.warp import transform_bounds

    (height, width), affine = grid.shape, grid.affine
    corners = [affine * (width / 2 + step, height / 2 + step) for step in (-0.5, 0.5)]
    (x0, y0), (x1, y1) = corners
    with rasterio.Env(**SETTINGS), open_band(band, name) as (source, _):
        try:
            edges = transform_bounds(str(grid.crs), source.crs, min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
        except RasterioError:
            return 1.0
        across, down = source.res
    west, south, east, north = edges
    ratio = math.sqrt(abs((east - west) * (north - south) / (across * down)))
    return ratio if math.isfinite(ratio) else 1.0


def stated_nodata(band: SceneBand, name: str) -> float | None:
    """The nodata value that the item or the file of a band states."""
    import rasterio

    with rasterio.Env(**SETTINGS), open_band(band, name) as (source, number):
        return band.nodata_value(source.nodata, np.dtype(source.dtypes[number - 1]), name)


@contextmanager
def open_band(band: SceneBand, name: str) -> Iterator[tuple[Any, int]]:
    """Open the file of a band, and the number of its only band of data; raises as `open_raster` and `only_band`."""
    with open_raster(band, name) as source:
        yield source, only_band(source, f"{name} ({band.path.name})", band)


def only_band(source: Any, name: str, band: SceneBand | None = None) -> int:
    """The number of the band of data that is meant, from 1; `name` names the raster in errors.

    Raises BadInputError where a raster has several and none is named, or not the one that is named.
    """
    numbers, number = data_bands(source), band.number if band else None
    if number in numbers or (number is None and len(numbers) == 1):
        return number or numbers[0]
    listed = ", ".join(f"{n} {source.descriptions[n - 1] or source.colorinterp[n - 1].name}" for n in numbers)
    if number is not None:
        raise BadInputError(f"{name} has no band {number} of data; its bands are {listed}")
    cure = f"write it as a file of its own, for example with gdal_translate -b {numbers[0]}"
    if band and band.stated:
        cure = f"name it as {band.name}#{numbers[0]}"
    raise BadInputError(f"{name} has {len(numbers)} bands ({listed}), where one is expected; choose one and {cure}")


def open_raster(band: SceneBand, name: str) -> Any:
    """Open the file of a band, a georeferenced raster of an allowed format; `name` is the band's in errors.

    Raises BadInputError for a missing file or georeference and for complex numbers, RefusedError for XML and for sizes
    that no scene has, IntegrityError for a file that cannot be read.
    """
    import rasterio
    from rasterio.errors import NotGeoreferencedWarning, RasterioIOError

    check_file(band.path, name)
    try:
        with warnings.catch_warnings():
            # A file without georeference is refused below.
            warnings.simplefilter("ignore", NotGeoreferencedWarning)
            source = rasterio.open(band.path, driver=DRIVERS.get(band.path.suffix.lower(), "GTiff"))
    except RasterioIOError as error:
        raise IntegrityError(f"{name} ({band.path.name}) cannot be read: {error}") from error
    if source.crs is None or source.transform.is_identity:
        raise BadInputError(f"{name} ({band.path.name}) is not georeferenced: it has no CRS or no geotransform")
    if source.dtypes[0].startswith("complex"):
        raise BadInputError(
            f"{name} ({band.path.name}) has complex numbers ({source.dtypes[0]}), of which a model takes none; write "
            "their amplitude, such as gdal_translate "
            f"{shell_word(f'DERIVED_SUBDATASET:AMPLITUDE:{band.path.name}')} amplitude.tif"
        )
    refuse_huge(source, f"{name} ({band.path.name})")
    return source


def compare_with_item(band: SceneBand, name: str, grids: "Sequence[GeoBox]") -> SceneBand:
    """Warn of what the item of a band says otherwise than its file; the band as `compare_bands` returns it.

    Raises as `open_band` and `compare_place`.
    """
    import rasterio

    if band.stated is None:
        return band
    with rasterio.Env(**SETTINGS), open_band(band, name) as (source, number):
        compare_place(band.stated, source, name, grids)
        return compare_bands(band, source, number, name)


def check_location(source: Any, grid: "GeoBox", name: str) -> None:
    """Refuse a raster outside of the grid, which would read as nodata only."""
    from rasterio.errors import RasterioError

    box = grid.extent.boundingbox
    try:
        west, south, east, north = _bounds(source.crs.to_wkt(), str(grid.crs), tuple(source.bounds))
        is_outside = west > box.right or east < box.left or south > box.top or north < box.bottom
    except RasterioError:
        is_outside = True
    if is_outside:
        raise OutsideGridError(
            f"{name} covers {', '.join(f'{edge:g}' for edge in source.bounds)} in {source.crs}, "
            f"which is outside the grid at {', '.join(f'{edge:g}' for edge in box)} in {grid.crs}"
        )


@lru_cache(maxsize=64)
def _bounds(crs: str, target_crs: str, bounds: Bounds) -> Bounds:
    """Bounds in another CRS, cached since the bands of a scene share them and they are slow to compute."""
    from rasterio.warp import transform_bounds

    west, south, east, north = transform_bounds(crs, target_crs, *bounds)
    return west, south, east, north


def read_window(source: Any, window: PixelWindow, name: str) -> tuple[AnyArray, BoolArray]:
    """Read pixels of an opened band and their valid mask; raises IntegrityError for a damaged block."""
    from rasterio.errors import RasterioIOError
    from rasterio.windows import Window

    box, number = Window.from_slices(*window), data_bands(source)[0]
    try:
        pixels = source.read(number, window=box)
        return pixels, valid_pixels(source, number, box, pixels)
    except RasterioIOError as error:
        row, column = window[0].start, window[1].start
        raise IntegrityError(f"{name} is truncated or damaged near row {row}, column {column}: {error}") from error


def physical(stored: AnyArray, source: Any, stated: tuple[float, float] = (1.0, 0.0)) -> AnyArray:
    """Physical values of numbers of a raster of one band, by the scale and offset of its item, else of the file."""
    scale, offset = stated if stated != (1.0, 0.0) else file_scaling(source)
    return stored if (scale, offset) == (1.0, 0.0) else stored * scale + offset
