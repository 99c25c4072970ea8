"""The part of a remote GeoTIFF that a grid needs: its blocks are read in ranges and stored as a local GeoTIFF.

GDAL decodes the blocks but never opens an address: it reads from a `RangeCache`, whose bytes arrive through the
requests of this package, with their retries, signatures and checks.
"""

import zlib
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, UInt8Array
from eopipe.errors import BadInputError, IntegrityError, RefusedError
from eopipe.fetch.download import mark_complete
from eopipe.fetch.range_reader import MAX_BLOCK, RangeCache, RangeReader, gdal_text, open_geotiff, open_range_reader
from eopipe.fetch.retry import FetchSession
from eopipe.publish import publish, sha256
from eopipe.scenes.item import StatedRaster
from eopipe.scenes.item_comparison import compare_place
from eopipe.tiles.globe import transformer

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

MAX_PIXELS = 2**33
# Decoded bytes that are copied at once, and the edge of the tiles that are written where the source has strips.
STEP, TILE = 1 << 25, 256
# Pixels around the area: what cubic interpolation reads, and slack for the choice of datum shift.
MARGIN, KERNEL = 4, 2
# Points along each edge of the grid that are projected to find its area.
LATTICE = 65
# What GDAL says of a block: where it is in the file, and its bytes.
TAGS = ("OFFSET", "SIZE")
OPTIONS: dict[str, Any] = {
    "GDAL_NUM_THREADS": "1",
    "GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR",
    "GDAL_PAM_ENABLED": "NO",
    "GDAL_TIFF_INTERNAL_MASK": "YES",
    "GDAL_CACHEMAX": 64 << 20,
}
# What an item says of a whole file, which does not hold for a part of it.
OF_WHOLE_FILE = ("proj:bbox", "proj:centroid", "proj:geometry", "proj:projjson", "proj:wkt2")


def fetch_window(
    asset: dict[str, Any],
    label: str,
    catalog: Path | None,
    part: Path,
    grids: "Sequence[GeoBox]",
    session: FetchSession,
    raster: StatedRaster,
) -> Path:
    """Fetch the blocks of a GeoTIFF that any of the grids needs into the file `part`; return it.

    `raster` is what the item says of the whole file: of a part it cannot be compared any more.
    Raises BadInputError (missing, not a GeoTIFF, outside the grid, another place than the item says), IntegrityError
    (damaged, another size than the item says), UpstreamError (server).
    """
    if part.with_suffix(".whole").exists():
        return part
    reader = open_range_reader(asset["href"], label, session, catalog)
    stated = asset.get("file:size")
    if stated is not None and stated != reader.size:
        raise IntegrityError(f"{label} has {reader.size} bytes, the catalog says {stated}: it is another version")
    write_window(reader, grids, part, label, raster)
    return mark_complete(part)


def describe_window(asset: dict[str, Any], file: Path) -> dict[str, Any]:
    """The asset of the item for a part of its file: with the size, checksum and georeferencing of that part."""
    import rasterio

    fields = {key: value for key, value in asset.items() if key not in OF_WHOLE_FILE}
    with rasterio.open(file, driver="GTiff") as source:
        projection = {"proj:shape": list(source.shape), "proj:transform": list(source.transform)[:6]}
    return fields | projection | {"file:size": file.stat().st_size, "file:checksum": f"1220{sha256(file)}"}


def write_window(
    reader: RangeReader, grids: "Sequence[GeoBox]", target: Path, label: str, raster: StatedRaster | None = None
) -> None:
    """Write the part of a remote GeoTIFF that grids in any CRS need as the GeoTIFF `target`.

    The part consists of whole blocks: pixels, mask, nodata, scale and descriptions are as in the original, in place.
    Overviews are not read. What was written is decoded and compared before `target` appears.
    Raises BadInputError (not a GeoTIFF, no georeferencing, outside the grid), IntegrityError (truncated or damaged),
    RefusedError (larger than any scene) and what `reader` raises; there is no `target` then.
    """
    import rasterio
    from rasterio.errors import RasterioError

    cache = RangeCache(reader, label)
    _check_format(cache.read(0, min(8, reader.size)), label)
    with rasterio.Env(**OPTIONS), open_geotiff(cache) as source:
        _check_size(source, label)
        if raster is not None and source.crs is not None:
            compare_place(raster, source, label, grids)
        window = WindowCopy(cache, source, needed_window(source, grids, label))
        try:
            with publish(target) as draft:
                window.write(draft)
        except RasterioError as error:
            raise IntegrityError(f"the window of {label} could not be written: {gdal_text(error)}") from error


def _check_format(magic: bytes, label: str) -> None:
    """Refuse a file that does not start with the first bytes of a TIFF file."""
    if magic[:4] in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return
    if magic.lstrip()[:1] == b"<":
        raise RefusedError(f"{label} is XML, which can read other files; only rasters are opened")
    if magic[:4] in (b"\0\0\0\x0c", b"\xff\x4f\xff\x51"):
        raise BadInputError(f"{label} is JPEG 2000, of which no window can be verified; fetch whole assets instead")
    if len(magic) < 8:
        raise IntegrityError(f"{label} is truncated: it ends after {len(magic)} bytes")
    raise BadInputError(f"{label} is not a GeoTIFF: its first bytes are {magic[:4]!r}; fetch whole assets instead")


def _check_size(source: Any, label: str) -> None:
    """Refuse what does not fit into memory, before any of it is decoded."""
    height, width = source.block_shapes[0]
    decoded = height * width * source.count * _pixel_type(source).itemsize
    if source.width * source.height > MAX_PIXELS or decoded > MAX_BLOCK:
        raise RefusedError(
            f"{label} declares {source.width} x {source.height} pixels in blocks of {decoded} bytes, "
            "more than any scene has"
        )


def needed_window(source: Any, grids: "Sequence[GeoBox]", label: str) -> Any:
    """The window of whole blocks that contains the area of all grids. Raises BadInputError when there is none.

    `source` has crs, transform, shape, bounds and block_shapes as a dataset of rasterio has them.
    """
    from rasterio.windows import Window

    crs, transform = source.crs, source.transform
    if crs is None or transform.is_identity or transform.is_degenerate:
        raise BadInputError(f"{label} has no CRS or no geotransform, so it cannot be located")
    parts = [part for grid in grids if (part := _needed_by(source, grid, label))]
    if not parts:
        boxes = (f"{', '.join(f'{edge:g}' for edge in grid.extent.boundingbox)} in {grid.crs}" for grid in grids)
        raise BadInputError(
            f"{label} is at {', '.join(f'{edge:g}' for edge in source.bounds)} in {crs}, "
            f"outside the grid at {' and '.join(boxes)}"
        )
    rows, columns = ((min(low for low, _ in axis), max(high for _, high in axis)) for axis in zip(*parts, strict=True))
    return Window.from_slices(rows, columns)


def _needed_by(source: Any, grid: "GeoBox", label: str) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Rows and columns of the blocks that contain the area of a grid; None where it is outside of the raster."""
    from pyproj.exceptions import ProjError

    height, width = source.shape
    try:
        low, high, margin = _area(grid, source.crs, ~source.transform)
    except ProjError as error:
        raise BadInputError(f"{label} is in {source.crs}, to which {grid.crs} cannot be transformed") from error
    if not (low < (width, height)).all() or not (high > 0).all():
        return None
    block_height, block_width = source.block_shapes[0]
    rows = _span(low[1] - margin[1], high[1] + margin[1], block_height, height)
    return rows, _span(low[0] - margin[0], high[0] + margin[0], block_width, width)


def _span(low: float, high: float, block: int, edge: int) -> tuple[int, int]:
    """First pixel, and the one behind the last, of the blocks from `low` to `high`."""
    return int(max(low, 0) // block) * block, min(int(-(-min(high, edge) // block)) * block, edge)


def _area(grid: "GeoBox", crs: Any, to_pixel: Any) -> tuple[Any, Any, Any]:
    """Smallest and largest (column, row) of a raster that a grid covers, and how far interpolation reads beyond.

    All three are float (2,); infinite bounds mean that the grid is nowhere in the CRS of the raster.
    """
    height, width = grid.shape
    points = np.meshgrid(np.linspace(0, width, LATTICE), np.linspace(0, height, LATTICE))
    change = transformer(str(grid.crs), crs.to_wkt())
    pixels = np.stack(_apply(to_pixel, *change.transform(*_apply(grid.affine, *points))))
    is_finite = np.isfinite(pixels).all(0)
    if not is_finite.any():
        return np.full(2, np.inf), np.full(2, -np.inf), np.zeros(2)
    low, high = pixels[:, is_finite].min(1), pixels[:, is_finite].max(1)
    if not is_finite.all():
        # The grid leaves the projection of the raster, somewhere between the points of the lattice.
        return low, high, np.full(2, np.inf)
    ratio = np.maximum(_max_step(pixels, 1, 1) / height, _max_step(pixels, 1, 2) / width) * (LATTICE - 1)
    # A curve deviates from the straight line between two points by an eighth of its second difference.
    bend = np.maximum(_max_step(pixels, 2, 1), _max_step(pixels, 2, 2)) / 8
    return low, high, MARGIN + KERNEL * np.maximum(ratio, 1) + bend


def _apply(affine: Any, x: Any, y: Any) -> tuple[Any, Any]:
    return affine.a * x + affine.b * y + affine.c, affine.d * x + affine.e * y + affine.f


def _max_step(pixels: Float64Array, order: int, axis: int) -> Float64Array:
    """Largest difference of neighbours on the lattice (2, y, x), in columns and in rows."""
    steps: Float64Array = np.abs(np.diff(pixels, order, axis)).reshape(2, -1).max(1)
    return steps


class WindowCopy:
    """Copies a window of whole blocks into a GeoTIFF, a few blocks at a time."""

    def __init__(self, cache: RangeCache, source: Any, window: Any) -> None:
        from rasterio.enums import MaskFlags

        self.cache, self.source, self.window = cache, source, window
        height, width = source.block_shapes[0]
        # A tile of a TIFF file has edges of multiples of 16 pixels; strips become tiles.
        is_tile = width != source.width and not (height % 16 or width % 16)
        self.tile = (height, width) if is_tile else (TILE, TILE)
        flags = source.mask_flag_enums[0]
        self.has_mask = MaskFlags.per_dataset in flags and MaskFlags.alpha not in flags
        bands = list(source.indexes)
        self.band_groups = [bands] if source.profile.get("interleave") == "pixel" else [[band] for band in bands]

    def write(self, draft: Path) -> None:
        """Write the window. Raises IntegrityError for damaged blocks, RasterioError where it cannot be stored."""
        import rasterio
        from rasterio.errors import RasterioIOError

        checksum = 0
        masks: list[UInt8Array] = []
        with rasterio.open(draft, "w", **self._profile()) as target:
            self._describe(target)
            for bands, step in self._steps():
                pixels, mask = self._read(bands, self._in_source(step))
                target.write(pixels, bands, window=step)
                checksum = _crc32(pixels, mask, checksum)
                masks += [] if mask is None else [mask]
        if self.cache.error:
            raise self.cache.error
        if self.has_mask:
            # Where a mask ends up among the blocks would depend on GDAL's cache, so it follows them.
            with rasterio.open(draft, "r+") as target:
                for mask, (_, step) in zip(masks, self._steps(), strict=False):
                    bits = np.unpackbits(mask, count=step.height * step.width)
                    target.write_mask(bits.reshape(step.height, step.width) * np.uint8(255), window=step)
        with rasterio.open(draft) as stored:
            if (stored.crs, stored.transform) != (self.source.crs, self.source.window_transform(self.window)):
                raise BadInputError(
                    f"{self.cache.label} has a CRS that cannot be stored in a GeoTIFF; fetch whole assets instead"
                )
            again = 0
            for bands, step in self._steps():
                again = _crc32(*self._decode(stored, bands, step), again)
        if again != checksum:
            raise RasterioIOError("the stored pixels differ from those that were read")

    def _profile(self) -> dict[str, Any]:
        """How the window is stored: as the source is, but in tiles and without loss."""
        source, dtype = self.source, _pixel_type(self.source)
        predictor = {"i": 2, "u": 2, "f": 3}.get(dtype.kind, 1) if dtype.itemsize in (2, 4) else 1
        colors = [color.name for color in source.colorinterp]
        is_rgb = colors[:3] == ["red", "green", "blue"] and dtype in (np.uint8, np.uint16)
        return {
            "driver": "GTiff",
            "width": self.window.width,
            "height": self.window.height,
            "count": source.count,
            "dtype": source.dtypes[0],
            "nodata": source.nodata,
            "crs": source.crs,
            "transform": source.window_transform(self.window),
            "tiled": True,
            "blockysize": self.tile[0],
            "blockxsize": self.tile[1],
            "interleave": "pixel" if len(self.band_groups) == 1 else "band",
            "photometric": "RGB" if is_rgb else "PALETTE" if colors == ["palette"] else "MINISBLACK",
            "compress": "DEFLATE",
            "predictor": predictor,
            "BIGTIFF": "IF_SAFER",
        }

    def _describe(self, target: Any) -> None:
        """Copy what the source says of its bands; statistics of the whole file do not hold for a part."""
        source = self.source
        target.colorinterp = source.colorinterp
        if source.colorinterp[0].name == "palette":
            target.write_colormap(1, source.colormap(1))
        for name in ("descriptions", "units", "scales", "offsets"):
            if getattr(source, name) != getattr(target, name):
                setattr(target, name, getattr(source, name))
        target.update_tags(**source.tags())
        for band in source.indexes:
            tags = {key: text for key, text in source.tags(band).items() if not key.startswith("STATISTICS_")}
            target.update_tags(band, **tags)

    def _steps(self) -> Iterator[tuple[list[int], Any]]:
        """Bands, and windows of whole tiles, in the order in which the target stores them."""
        from rasterio.windows import Window

        height, width = self.window.height, self.window.width
        across = -(-width // self.tile[1])
        for bands in self.band_groups:
            tile_bytes = len(bands) * _pixel_type(self.source).itemsize * self.tile[0] * self.tile[1]
            # Several rows of tiles, or a part of one.
            rows = max(1, STEP // (tile_bytes * across)) * self.tile[0]
            columns = min(across, max(1, STEP // tile_bytes)) * self.tile[1]
            for row, column in product(range(0, height, rows), range(0, width, columns)):
                yield bands, Window(column, row, min(columns, width - column), min(rows, height - row))

    def _in_source(self, step: Any) -> Any:
        from rasterio.windows import Window

        return Window(self.window.col_off + step.col_off, self.window.row_off + step.row_off, step.width, step.height)

    def _read(self, bands: list[int], box: Any) -> tuple[AnyArray, UInt8Array | None]:
        """Pixels (band, y, x) of a window of the source, with the first band also its mask, as packed bits."""
        from rasterio.errors import RasterioError

        blocks = list(self._blocks(box))
        self.cache.prefetch([self._range(bands[0], *block) for block in blocks])
        try:
            return self._decode(self.source, bands, box)
        except RasterioError:
            height, width = self.source.block_shapes[0]
            for row, column in blocks:
                self._check_block(bands, row * height, column * width)
            raise

    def _blocks(self, box: Any) -> Iterator[tuple[int, int]]:
        """Row and column of each block of the source that a window touches."""
        height, width = self.source.block_shapes[0]
        rows = range(box.row_off // height, -(-(box.row_off + box.height) // height))
        return product(rows, range(box.col_off // width, -(-(box.col_off + box.width) // width)))

    def _range(self, band: int, row: int, column: int) -> tuple[int, int]:
        """Offset and length of a block in the file; none for a block that was never written."""
        offset, length = (self.source.get_tag_item(f"BLOCK_{key}_{column}_{row}", "TIFF", bidx=band) for key in TAGS)
        if self.cache.error:
            raise self.cache.error
        return int(offset or 0), int(length or 0)

    def _decode(self, raster: Any, bands: list[int], box: Any) -> tuple[AnyArray, UInt8Array | None]:
        pixels = raster.read(bands, window=box)
        mask = np.packbits(raster.read_masks(1, window=box) > 0) if self.has_mask and 1 in bands else None
        return pixels, mask

    def _check_block(self, bands: list[int], row: int, column: int) -> None:
        """Raise IntegrityError, with its place, for a block that cannot be decoded."""
        from rasterio.errors import RasterioError
        from rasterio.windows import Window

        height, width = self.source.block_shapes[0]
        box = Window(column, row, min(width, self.source.width - column), min(height, self.source.height - row))
        try:
            self._decode(self.source, bands, box)
        except RasterioError as error:
            place = f"row {row}, column {column}"
            damaged = IntegrityError(f"{self.cache.label} is damaged in its block at {place}: {gdal_text(error)}")
            raise self.cache.error or damaged from error


def _pixel_type(source: Any) -> "np.dtype[Any]":
    # GDAL has pairs of integers, NumPy has not.
    return np.dtype("complex64" if source.dtypes[0] == "complex_int16" else source.dtypes[0])


def _crc32(pixels: AnyArray, mask: UInt8Array | None, checksum: int) -> int:
    """A checksum, continued with pixels and their mask."""
    checksum = zlib.crc32(np.ascontiguousarray(pixels).data, checksum)
    return checksum if mask is None else zlib.crc32(mask.data, checksum)
