"""Read windows of a store's arrays into memory of the caller: what zarr-python does, at the speed of the codec.

zarr-python needs several times as long for a chip as its decoding takes. Here the index of a shard is read once, a
chunk is one `pread`, its crc32c is checked, and Blosc decodes it where it is needed. Arrays with other codecs are read
by zarr-python.
"""

import json
import os
import struct
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, UInt8Array, UInt64Array
from eopipe.errors import BadInputError, IntegrityError

# Offset and length in the shard index of a chunk that is not stored.
EMPTY_CHUNK = np.iinfo(np.uint64).max
# Shards of an array that stay open, each a file and an index of a few KB.
MAX_OPEN_SHARDS = 8
CRC32C_BYTES = 4
# In the header of Blosc.
BLOSC_SIZES = struct.Struct("<4xI4xI")
# Attribute of an array that has some of its shards, since nothing is in the others: row and column of each.
WRITTEN_SHARDS = "written_shards"
INNER_CODECS = ("bytes", "blosc", "crc32c")
BandIndices = tuple[int, ...]


def open_array(path: Path) -> "ArrayReader":
    """Open an array of a store by its folder; raises BadInputError for a folder without a readable array.

    An array of a store with several cells is in the groups of these, and has no folder of its own.
    """
    if not path.exists() and (cells := sorted(path.parent.glob(f"*/{path.name}/zarr.json"))):
        readers = [open_array(metadata.parent) for metadata in cells]
        windowed = [reader for reader in readers if isinstance(reader, WindowedArrayReader)]
        if len(windowed) < len(readers) or len({reader.shape for reader in windowed}) > 1:
            raise BadInputError(f"{path.parent} is not a store of tiles: its cells have no common frame")
        return WindowedArrayReader([part for reader in windowed for part in reader.parts])
    try:
        metadata = json.loads((path / "zarr.json").read_bytes())
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} is not a readable Zarr array: {error}") from error
    reader: ShardedArrayReader | ZarrArrayReader
    try:
        reader = ShardedArrayReader(path, _parse_metadata(metadata))
    except (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError):
        reader = ZarrArrayReader(path)
    attributes = metadata.get("attributes") if isinstance(metadata, dict) else None
    window = StoredWindow.of(attributes if isinstance(attributes, dict) else {}, reader.shape[-2:], str(path))
    return WindowedArrayReader([(reader, window)]) if window else reader


@dataclass(frozen=True)
class StoredWindow:
    """The part of the run's grid that a store holds: shape of the grid, and row and column where the store begins.

    Nothing of a scene is outside of it: pixels there read as 0, which is not valid. `shard` is the edge of a shard of
    a large store; shards of this one may be smaller.
    """

    ATTRIBUTE = "window"
    grid_shape: tuple[int, int]
    offset: tuple[int, int]
    shard: int

    @classmethod
    def of(cls, attributes: Mapping[str, Any], stored: tuple[int, ...], name: str) -> "StoredWindow | None":
        """The window in the attributes of an array or a store of this shape; None if it holds the whole grid."""
        value = attributes.get(cls.ATTRIBUTE)
        if value is None:
            return None
        try:
            pairs, shard = [tuple(value[key]) for key in ("grid_shape", "offset")], value["shard"]
            is_inside = all(type(number) is int for pair in (*pairs, (shard,)) for number in pair) and all(
                begin >= 0 and begin + length <= edge
                for begin, length, edge in zip(pairs[1], stored, pairs[0], strict=True)
            )
        except (KeyError, TypeError, ValueError):
            is_inside = False
        if not is_inside:
            raise BadInputError(f"{name} has a window that is not a part of its grid: {value}")
        (height, width), (row, column) = pairs
        return cls((height, width), (row, column), shard)

    def attributes(self) -> dict[str, Any]:
        """The attribute of an array or a store."""
        value = {"grid_shape": list(self.grid_shape), "offset": list(self.offset), "shard": self.shard}
        return {self.ATTRIBUTE: value}


@dataclass(frozen=True)
class ShardedArrayMetadata:
    """Shape of an array, of its shards and of their inner chunks, each (y, x) or (band, y, x), and its data type.

    In an array that has only the shards of `written` (row, column) the others read as `fill_value`.
    """

    shape: tuple[int, ...]
    shard: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: np.dtype[Any]
    written: frozenset[tuple[int, int]] | None = None
    fill_value: Any = 0

    @property
    def chunk_grid(self) -> tuple[int, int]:
        """Rows and columns of chunks in a shard."""
        return self.shard[-2] // self.chunk[-2], self.shard[-1] // self.chunk[-1]


def _parse_metadata(document: dict[str, Any]) -> ShardedArrayMetadata:
    """Parse the `zarr.json` of an array that eopipe wrote; raises one of the errors of Python for any other."""
    (outer,), keys = document["codecs"], document["chunk_key_encoding"]
    sharding = outer["configuration"]
    inner, index = sharding["codecs"], sharding["index_codecs"]
    supported = (
        outer["name"] == "sharding_indexed"
        and tuple(codec["name"] for codec in inner) == INNER_CODECS
        and [codec["name"] for codec in index] == ["bytes", "crc32c"]
        and all(codecs[0].get("configuration", {}).get("endian", "little") == "little" for codecs in (inner, index))
        and sharding.get("index_location", "end") == "end"
        and (keys["name"], keys.get("configuration", {}).get("separator", "/")) == ("default", "/")
    )
    shape, chunk = tuple(document["shape"]), tuple(sharding["chunk_shape"])
    shard = tuple(document["chunk_grid"]["configuration"]["chunk_shape"])
    one_band_axis = shape[:-2] == shard[:-2] == chunk[:-2]
    edges = (*shape, *shard, *chunk)
    is_sized = len(shape) == len(shard) == len(chunk) and all(type(edge) is int and edge > 0 for edge in edges)
    dtype = np.dtype(document["data_type"])
    supported = supported and document["node_type"] == "array" and dtype.kind in "biuf"
    if not supported or not is_sized or not one_band_axis or len(shape) not in (2, 3):
        raise KeyError("codecs")
    if any(outer_edge % edge for outer_edge, edge in zip(shard, chunk, strict=True)):
        raise ValueError("chunks do not fill their shards")
    attributes = document.get("attributes")
    if not isinstance(attributes, dict) or WRITTEN_SHARDS not in attributes:
        return ShardedArrayMetadata(shape, shard, chunk, dtype)
    written = frozenset((int(row), int(column)) for row, column in attributes[WRITTEN_SHARDS])
    return ShardedArrayMetadata(shape, shard, chunk, dtype, written, np.asarray(document["fill_value"]).astype(dtype))


@dataclass
class OpenShard:
    """An open shard: its file, and offset and length in bytes of its chunks as an index (rows, columns, 2)."""

    path: Path
    file: int
    index: UInt64Array

    def __del__(self) -> None:
        os.close(self.file)


@dataclass
class ShardedArrayReader:
    """An array in shards as eopipe writes them (`eopipe.tiles.layout`)."""

    path: Path
    metadata: ShardedArrayMetadata
    _shards: "OrderedDict[tuple[int, int], OpenShard]" = field(default_factory=OrderedDict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array: (y, x) or (band, y, x)."""
        return self.metadata.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.metadata.dtype

    def read(self, out: AnyArray, y: int, x: int, bands: BandIndices) -> None:
        """Fill `out` (…, y, x) from these bands, its first pixel being row `y` and column `x` of the raster.

        Whole chunks are decoded into `out`, others are copied. Raises IntegrityError for a file that does not match
        its checksum.
        """
        height, width = self.metadata.shape[-2:]
        chunk_height, chunk_width = self.metadata.chunk[-2:]
        bottom, right = y + out.shape[-2], x + out.shape[-1]
        if not (0 <= y <= bottom <= height and 0 <= x <= right <= width):
            raise BadInputError(f"{self.path} has no window of rows {y} to {bottom}, columns {x} to {right}")
        for top in range(y // chunk_height * chunk_height, bottom, chunk_height):
            rows = slice(max(top, y), min(top + chunk_height, bottom))
            for left in range(x // chunk_width * chunk_width, right, chunk_width):
                columns = slice(max(left, x), min(left + chunk_width, right))
                part = out[..., rows.start - y : rows.stop - y, columns.start - x : columns.stop - x]
                offset = rows.start - top, columns.start - left
                self._read_chunk(part, top // chunk_height, left // chunk_width, offset, bands)

    def _read_chunk(self, part: AnyArray, row: int, column: int, offset: tuple[int, int], bands: BandIndices) -> None:
        """Fill `part` from the chunk at this row and column of chunks, from a pixel offset in the chunk on."""
        metadata, (rows, columns) = self.metadata, self.metadata.chunk_grid
        if metadata.written is not None and (row // rows, column // columns) not in metadata.written:
            part[...] = metadata.fill_value
            return
        whole = part.shape == metadata.chunk and part.flags.c_contiguous and part.dtype == metadata.dtype
        if whole and bands == tuple(range(len(bands))):
            self._decode(part, row, column)
            return
        self._decode(self._buffer, row, column)
        y, x = offset
        crop = self._buffer[..., y : y + part.shape[-2], x : x + part.shape[-1]]
        if crop.ndim == 2 or bands == tuple(range(len(crop))):
            part[...] = crop
            return
        for target, band in zip(part, bands, strict=True):
            target[...] = crop[band]

    @cached_property
    def _buffer(self) -> AnyArray:
        """Memory for one decoded chunk, used again and again."""
        return np.empty(self.metadata.chunk, self.metadata.dtype)

    def _decode(self, chunk: AnyArray, row: int, column: int) -> None:
        from numcodecs import blosc

        rows, columns = self.metadata.chunk_grid
        shard = self._shard(row // rows, column // columns)
        start, length = map(int, shard.index[row % rows, column % columns])
        name = f"chunk {row}, {column} of {shard.path}"
        if start == EMPTY_CHUNK:
            raise IntegrityError(f"{name} is missing; rebuild the store")
        data = os.pread(shard.file, length, start)
        encoded = _checked(data, length, name)
        # Blosc trusts its header, which holds the sizes of the decoded and of the encoded bytes.
        if len(encoded) < 16 or BLOSC_SIZES.unpack_from(data) != (chunk.nbytes, len(encoded)):
            raise IntegrityError(f"{name} has a different number of pixels than its array declares; rebuild the store")
        # How many threads Blosc uses is a setting of the process (`blosc.use_threads`), which stays as it is.
        try:
            blosc.decompress(encoded, chunk)
        except RuntimeError as error:
            raise IntegrityError(f"{name} cannot be decoded: {error}; rebuild the store") from error

    def _shard(self, row: int, column: int) -> OpenShard:
        if (row, column) not in self._shards:
            self._shards[row, column] = self._open_shard(row, column)
            if len(self._shards) > MAX_OPEN_SHARDS:
                self._shards.popitem(last=False)
        self._shards.move_to_end((row, column))
        return self._shards[row, column]

    def _open_shard(self, row: int, column: int) -> OpenShard:
        path = self.path.joinpath("c", *["0"] * (len(self.metadata.shape) - 2), str(row), str(column))
        rows, columns = self.metadata.chunk_grid
        size = 16 * rows * columns + CRC32C_BYTES
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise IntegrityError(f"shard {path} cannot be read: {error.strerror}; rebuild the store") from error
        shard = OpenShard(path, file, np.empty(0, np.uint64))
        start = os.fstat(file).st_size - size
        data = os.pread(file, size, start) if start >= 0 else b""
        index = _checked(data, size, f"the index of shard {path}")
        shard.index = index.view("<u8").reshape(rows, columns, 2)
        return shard


def _checked(data: bytes, length: int, name: str) -> UInt8Array:
    """The bytes without their crc32c, not copied; raises IntegrityError where they do not match it."""
    import google_crc32c

    body = np.frombuffer(data, np.uint8)[:-CRC32C_BYTES]
    if len(data) != length or length <= CRC32C_BYTES:
        raise IntegrityError(f"{name} is truncated; rebuild the store")
    if google_crc32c.value(body) != int.from_bytes(data[-CRC32C_BYTES:], "little"):
        raise IntegrityError(f"{name} does not match its crc32c checksum; rebuild the store")
    return body


class ZarrArrayReader:
    """An array that eopipe did not write, read by zarr-python."""

    def __init__(self, path: Path) -> None:
        import zarr

        try:
            self._array: Any = zarr.open_array(path, mode="r")
        except (OSError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise BadInputError(f"{path} is not a readable Zarr array: {error}") from error
        self.path, self.dtype = path, np.dtype(self._array.dtype)
        self.shape: tuple[int, ...] = self._array.shape

    def read(self, out: AnyArray, y: int, x: int, bands: BandIndices) -> None:
        """Read the window, then choose the bands."""
        window = (..., slice(y, y + out.shape[-2]), slice(x, x + out.shape[-1]))
        try:
            pixels = np.asarray(self._array[window])
            out[...] = pixels[list(bands)] if pixels.ndim == 3 else pixels
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise IntegrityError(f"rows from {y}, columns from {x} of {self.path} cannot be read: {error}") from error


@dataclass
class WindowedArrayReader:
    """An array that holds a window of the run's grid, or one of each cell in the frame, read by positions there."""

    parts: list[tuple[ShardedArrayReader | ZarrArrayReader, StoredWindow]]

    @property
    def path(self) -> Path:
        """The folder of the array, or of the first cell's."""
        return self.parts[0][0].path

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.parts[0][0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array on the whole grid or frame: (y, x) or (band, y, x)."""
        stored, window = self.parts[0]
        return (*stored.shape[:-2], *window.grid_shape)

    def read(self, out: AnyArray, y: int, x: int, bands: BandIndices) -> None:
        """Fill `out` (…, y, x) as the stored arrays do, with zeros where the grid has more than the store."""
        height, width = self.shape[-2:]
        bottom, right = y + out.shape[-2], x + out.shape[-1]
        if not (0 <= y <= bottom <= height and 0 <= x <= right <= width):
            raise BadInputError(f"{self.path} has no window of rows {y} to {bottom}, columns {x} to {right}")
        reached, missing = [], (bottom - y) * (right - x)
        for stored, window in self.parts:
            first_row, first_column = window.offset
            top, end_row = max(y, first_row), min(bottom, first_row + stored.shape[-2])
            left, end_column = max(x, first_column), min(right, first_column + stored.shape[-1])
            if top < end_row and left < end_column:
                missing -= (end_row - top) * (end_column - left)
                part = out[..., top - y : end_row - y, left - x : end_column - x]
                reached.append((stored, part, top - first_row, left - first_column))
        if missing:
            out[...] = 0
        for stored, part, top, left in reached:
            stored.read(part, top, left, bands)


ArrayReader = ShardedArrayReader | ZarrArrayReader | WindowedArrayReader
