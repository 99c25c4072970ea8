"""Which pixels of a raster are data, by nodata value, alpha band or mask, and finite numbers: for every reader."""

from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from eopipe.arrays import AnyArray, BoolArray

# GDAL takes an alpha band for the mask only of 8 and 16 bits without sign, and only as the second or fourth of as many
# bands; this table makes a mask of any: 0 and below is masked.
ALPHA_TO_MASK = "<LUT>0:0,1e-30:255</LUT>"


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
