"""The part of an array of a Zarr store that a grid needs, as a local GeoTIFF with CRS, transform, nodata and scale."""

import logging
import math
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError, EopipeError, IntegrityError, RefusedError, UpstreamError
from eopipe.fetch.cog_window import MAX_PIXELS, OPTIONS, STEP, TILE, describe_window, needed_window
from eopipe.fetch.download import mark_complete
from eopipe.fetch.range_reader import MAX_BLOCK
from eopipe.fetch.retry import FetchSession
from eopipe.fetch.zarr_place import (
    METADATA,
    X_NAMES,
    PlacedArray,
    first_line,
    open_node,
    scaling,
    value_type,
)
from eopipe.publish import publish
from eopipe.scenes.item import StatedRaster, stated_scaling
from eopipe.scenes.item_comparison import compare_place
from eopipe.text_files import read_json, write_json

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

log = logging.getLogger("eopipe")
DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "float64")
# Codecs that run code of the store, or whose values are objects.
OBJECT_CODECS = {"pickle", "json2", "msgpack2", "vlen-utf8", "vlen-bytes", "vlen-array", "categorize"}
GEOTIFF = "image/tiff; application=geotiff"
# Ending of the file beside a part that has the versions of what was read for it.
VERSIONS = ".versions"
# Chunks that are asked for to learn whether an array has any.
MAX_PROBES = 256


def fetch_array(
    asset: dict[str, Any],
    label: str,
    catalog: Path | None,
    part: Path,
    grids: "Sequence[GeoBox]",
    session: FetchSession,
    stated: StatedRaster,
) -> Path:
    """Fetch the chunks of an array that any of the grids needs, or all, into the GeoTIFF `part`; return it.

    Raises BadInputError (missing, not an array, no CRS, outside the grid), IntegrityError (damaged), UpstreamError
    (server), RefusedError (unsafe address or codec, absurd size), UsageError (a package is needed).
    """
    if part.with_suffix(".whole").exists() and part.with_suffix(VERSIONS).exists():
        return part
    array = open_asset_array(asset, label, catalog, session, stated)
    compare_place(stated, array, label, grids)
    _write(array, grids, part)
    with publish(part.with_suffix(VERSIONS)) as draft:
        write_json(draft, array.array.store.versions)
    return mark_complete(part)


def confirm_array(asset: dict[str, Any], label: str, catalog: Path | None, part: Path, session: FetchSession) -> Path:
    """Compare the store of a fetched array, also of an earlier run, with what was read of it.

    Raises UpstreamError where it has changed; the next run fetches the array again. When all assets of a scene are
    fetched, this shows that all of them existed together at that moment.
    """
    # zarr is imported only now.
    from eopipe.fetch.zarr_files import changed_error, open_store

    store, _ = open_store(asset, label, catalog, session)
    try:
        if key := store.changed(read_json(part.with_suffix(VERSIONS))):
            raise changed_error(label, key)
    except UpstreamError:
        part.with_suffix(VERSIONS).unlink()
        raise
    return part


def describe_array(asset: dict[str, Any], file: Path, label: str) -> dict[str, Any]:
    """The asset of the item for the GeoTIFF of an array; scale, offset and nodata of the store where it has none."""
    import rasterio

    with rasterio.open(file, driver="GTiff") as source:
        in_store = {"scale": source.scales[0], "offset": source.offsets[0], "nodata": source.nodata}
    if (in_store["scale"], in_store["offset"]) == (1.0, 0.0):
        in_store["scale"] = in_store["offset"] = None
    item = stated_scaling(asset, label)
    more = {
        # The texts nan, inf and -inf are valid in STAC.
        k: v if math.isfinite(v) else str(v)
        for k, v in in_store.items()
        if v is not None and getattr(item, k) is None
    }
    key = "raster:bands" if asset.get("raster:bands") or not asset.get("bands") else "bands"
    first, *others = asset.get(key) or [{}]
    fields = {k: v for k, v in asset.items() if not k.startswith(("zarr:", "cube:", "xarray:"))}
    fields |= {"type": GEOTIFF}
    return describe_window(fields | ({key: [first | more, *others]} if more else {}), file)


def open_asset_array(
    asset: dict[str, Any], label: str, catalog: Path | None, session: FetchSession, stated: StatedRaster
) -> "StoredArray":
    """Open the array of an asset; of a group, the array that its only band names. Raises as `fetch_array`."""
    import zarr

    from eopipe.fetch.zarr_codecs import limit_codecs
    from eopipe.fetch.zarr_files import open_store

    store, path = open_store(asset, label, catalog, session)
    node = open_node(zarr.open, store, path, label)
    bands = [str(band.get("name") or "") for band in asset.get("bands") or []]
    if isinstance(node, zarr.Group) and len(bands) == 1 and bands[0]:
        path = f"{path}/{bands[0]}".strip("/")
        node = open_node(zarr.open, store, path, label)
    if node is None:
        raise BadInputError(f"{label} is missing: the store has neither an array nor a group at /{path}")
    if isinstance(node, zarr.Group):
        names = list[str]()
        with suppress(NotImplementedError, ValueError):
            names = sorted(name for name, _ in node.arrays())
        arrays = f"its arrays are {', '.join(names)}" if names else "the store does not list its arrays"
        raise BadInputError(f"{label} is the group /{path} of a Zarr store, not an array; {arrays}")
    array = StoredArray(node, path.strip("/"), label, stated, stated_scaling(asset, label).nodata is not None)
    array.check()
    return replace(array, array=limit_codecs(array.array, label))


@dataclass(frozen=True)
class StoredArray(PlacedArray):
    """An array of a store: what `needed_window` reads of a raster, and pixels by windows.

    Where the item states nodata (`has_nodata_in_item`), the pixels stay as they are.
    """

    has_nodata_in_item: bool = False

    @property
    def block_shapes(self) -> list[tuple[int, int]]:
        """Rows and columns of a chunk, which of a shard is read by itself."""
        height, width = self.array.chunks[-2:]
        return [(height, width)]

    def check(self) -> None:
        """Refuse what is not one raster of numbers, or does not fit into memory, before any of it is decoded."""
        shape, dtype, label = self.array.shape, self.array.dtype, self.label
        if len(shape) < 2 or any(edge != 1 for edge in shape[:-2]):
            axes = f" ({', '.join(self.names)})" if self.names else ""
            raise BadInputError(f"{label} has the shape {shape}{axes}; two axes (y, x) are read, and more of length 1")
        if self.names and len(self.names) != len(shape):
            raise BadInputError(f"{label} has {len(shape)} axes, but names of {len(self.names)}: {self.names!r}")
        if self.names and self.names[-2].lower() in X_NAMES:
            raise BadInputError(f"{label} has the axes {', '.join(self.names)}; the last two have to be (y, x)")
        if codecs := _codecs(self.array.metadata.to_dict()) & OBJECT_CODECS:
            raise RefusedError(f"{label} is encoded by {', '.join(sorted(codecs))}, and only numbers are read")
        if dtype != np.dtype(bool) and dtype.name not in DTYPES:
            raise BadInputError(f"{label} has values of type {dtype}; a GeoTIFF holds {', '.join(DTYPES)}")
        decoded = int(np.prod(self.array.chunks)) * dtype.itemsize
        if shape[-1] * shape[-2] > MAX_PIXELS or decoded > MAX_BLOCK or not decoded or not all(shape):
            raise RefusedError(
                f"{label} declares {shape[-1]} x {shape[-2]} pixels in chunks of {decoded} bytes, which no scene has"
            )

    def check_chunks(self) -> None:
        """Raise BadInputError where no chunk of the array exists; warn of chunks that were read and do not exist.

        They read as the fill value, so that an address that is wrong for all of them would be a scene of one value.
        """
        versions = self.array.store.versions
        folder = f"{self.path}/".lstrip("/")
        keys = [key for key in versions if key.startswith(folder) and key.rpartition("/")[2] not in METADATA]
        missing = sum(versions[key] is None for key in keys)
        if missing == len(keys) and not self._has_chunk():
            raise BadInputError(f"{self.label} has metadata but no pixels: none of the chunks of /{self.path} exists")
        if missing:
            log.warning(
                "event=missing_chunks asset=%s chunks=%d share=%.2f reason='they read as the fill value'",
                self.label, missing, missing / len(keys),
            )  # fmt: skip

    def _has_chunk(self) -> bool:
        """Whether any chunk exists: of many the first, the last and others with the same distance."""
        from zarr.core.sync import sync

        metadata, files = self.array.metadata, self.array.shards or self.array.chunks
        counts = [-(-length // edge) for length, edge in zip(self.array.shape, files, strict=True)]
        total = math.prod(counts)
        for number in sorted({round(place) for place in np.linspace(0, total - 1, min(total, MAX_PROBES))}):
            key = metadata.encode_chunk_key(tuple(map(int, np.unravel_index(number, counts))))
            if sync(self.array.store.exists(f"{self.path}/{key}".lstrip("/"))):
                return True
        return False

    def read(self, rows: slice, columns: slice) -> AnyArray:
        """A window (y, x). Raises IntegrityError, with its place, for a chunk that cannot be decoded."""
        first = (0,) * (len(self.array.shape) - 2)
        try:
            pixels: AnyArray = np.asarray(self.array[(*first, rows, columns)])
        except (EopipeError, MemoryError):
            raise
        except Exception as error:
            place = f"rows {rows.start} to {rows.stop}, columns {columns.start} to {columns.stop}"
            raise IntegrityError(f"{self.label} is damaged in its {place}: {first_line(error)}") from error
        pixels = pixels.astype(self.dtype)
        others = self.fill_values[1:]
        if others and not self.has_nodata_in_item:
            # A GeoTIFF has one nodata value.
            pixels[np.isin(pixels, others)] = self.fill_values[0]
        return pixels

    @cached_property
    def dtype(self) -> "np.dtype[Any]":
        """The type of the pixels that are read; a mask is of bytes."""
        return value_type(self.array.dtype, self.attributes)

    @cached_property
    def fill_values(self) -> list[float]:
        """The values of pixels without data: `_FillValue`, `missing_value` and, of Zarr 2 as in xarray, its fill value.

        Where there is none of them, what products have instead.
        """
        stated = [self.attributes.get(key) for key in ("_FillValue", "missing_value", "nodata", "fill_value")]
        of_array = self.array.metadata.fill_value if self.array.metadata.zarr_format == 2 else None
        candidates = [value for value in (*stated[:2], of_array) if value is not None]
        candidates = candidates or [value for value in stated[2:] if value is not None][:1]
        # A list, as some writers have it, means each of its values.
        values = [
            self._number(part) for value in candidates for part in (value if isinstance(value, list) else [value])
        ]
        is_integer = self.dtype.kind in "iu"
        return list(dict.fromkeys(value for value in values if not (is_integer and math.isnan(value))))

    def _number(self, value: Any) -> float:
        """A fill value as the pixels have it, with the sign that they have."""
        from xarray.backends.zarr import FillValueCoder

        try:
            if isinstance(value, str) and value.lower() not in ("nan", "inf", "-inf"):
                value = FillValueCoder.decode(value, self.dtype)
            number = float(value)
        except (TypeError, ValueError) as error:
            raise BadInputError(f"{self.label} has the fill value {value!r}, which is not a number") from error
        if self.dtype.kind not in "iu" or math.isnan(number):
            return number
        stored, limits = value_type(self.array.dtype, {}), np.iinfo(self.dtype)
        # As the pixels are stored; some writers state it as they are read.
        if stored.kind != self.dtype.kind and np.iinfo(stored).min <= number <= np.iinfo(stored).max:
            number = float(np.array(number).astype(stored).astype(self.dtype))
        if not limits.min <= number <= limits.max:
            raise BadInputError(
                f"{self.label} has the fill value {number:g}, which its {self.dtype} pixels cannot hold"
            )
        return number


def _codecs(metadata: Any) -> set[str]:
    """The names of all codecs in the metadata of an array, those inside of shards too."""
    if isinstance(metadata, dict):
        names = {str(metadata.get("id") or metadata.get("name") or "").removeprefix("numcodecs.")}
        return names.union(*(_codecs(value) for key, value in metadata.items() if key != "attributes"))
    return set().union(*map(_codecs, metadata)) if isinstance(metadata, list | tuple) else set()


def _write(array: StoredArray, grids: "Sequence[GeoBox]", target: Path) -> None:
    """Write the chunks that the grids need, or all, as the GeoTIFF `target`, which is compared before it appears."""
    import rasterio
    from rasterio.errors import RasterioError
    from rasterio.windows import Window
    from rasterio.windows import transform as shifted

    height, width = array.shape
    window = needed_window(array, grids, array.label) if grids else Window(0, 0, width, height)
    scale, offset = scaling(array.attributes)
    dtype, nodata = array.dtype, next(iter(array.fill_values), None)
    profile = {"driver": "GTiff", "count": 1, "width": window.width, "height": window.height, "dtype": dtype.name}
    profile |= {"crs": array.crs, "transform": shifted(window, array.transform), "nodata": nodata}
    profile |= {"tiled": True, "blockxsize": TILE, "blockysize": TILE, "compress": "DEFLATE", "BIGTIFF": "IF_SAFER"}
    strips = [Window(0, row, window.width, min(TILE, window.height - row)) for row in range(0, window.height, TILE)]
    try:
        with publish(target) as draft, tempfile.TemporaryFile(dir=target.parent) as file, rasterio.Env(**OPTIONS):
            _store_pixels(array, window, file)
            array.check_chunks()
            stored = again = zlib.crc32(b"")
            with rasterio.open(draft, "w", **profile) as raster:
                raster.scales, raster.offsets = (scale,), (offset,)
                for strip in strips:
                    pixels = _pixels(file, strip, dtype)
                    stored = zlib.crc32(pixels.data, stored)
                    raster.write(pixels, 1, window=strip)
            with rasterio.open(draft) as raster:
                for strip in strips:
                    again = zlib.crc32(raster.read(1, window=strip).data, again)
            if again != stored:
                raise IntegrityError(f"the window of {array.label} could not be written: the stored pixels differ")
    except RasterioError as error:
        # Behind `publish`, which says that the disk is full where that is the reason.
        raise IntegrityError(f"the window of {array.label} could not be written: {first_line(error)}") from error


def _store_pixels(array: StoredArray, window: Any, file: BinaryIO) -> None:
    """Write the pixels of a window into a file, row by row of the window.

    Chunks and tiles of the GeoTIFF differ, and a row of chunks need not fit into memory. Not through a mapping, where a
    full disk is a signal that ends the process.
    """
    for rows, columns in _steps(array, window):
        for row, line in enumerate(array.read(rows, columns), rows.start - window.row_off):
            file.seek((row * window.width + columns.start - window.col_off) * array.dtype.itemsize)
            file.write(line.tobytes())
    file.flush()


def _pixels(file: BinaryIO, strip: Any, dtype: "np.dtype[Any]") -> AnyArray:
    """Rows of a file of whole rows of pixels."""
    file.seek(strip.row_off * strip.width * dtype.itemsize)
    data = file.read(strip.height * strip.width * dtype.itemsize)
    return np.frombuffer(data, dtype).reshape(strip.height, strip.width)


def _steps(array: StoredArray, window: Any) -> Iterator[tuple[slice, slice]]:
    """Rows and columns of the whole array, in steps of few whole chunks, or of whole shards that are small."""
    shards = array.array.shards
    item = array.array.dtype.itemsize
    is_small = shards is not None and int(np.prod(shards)) * item <= STEP
    down, across = shards[-2:] if is_small else array.block_shapes[0]
    count = max(1, STEP // (down * across * item))
    bottom, right = window.row_off + window.height, window.col_off + window.width
    left = window.col_off // across * across
    for row, column in product(range(window.row_off // down * down, bottom, down), range(left, right, across * count)):
        rows = slice(max(row, window.row_off), min(row + down, bottom))
        yield rows, slice(max(column, window.col_off), min(column + across * count, right))
