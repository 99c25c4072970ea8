"""Arrays of a store, read window by window into memory of the caller's: what zarr-python does, at the codec's speed.

A chip costs zarr-python several times as long as its decoding does. Here the index of a shard is read once, a chunk
is one `pread`, its crc32c is checked, and Blosc decodes it where it belongs. Arrays that were coded in another way
go through zarr-python.
"""

import json
import os
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from eopipe.arrays import AnyArray, UInt8Array, UInt64Array
from eopipe.errors import BadInputError, IntegrityError
from eopipe.tiles.shard_writer import EMPTY_CHUNK

# Shards of an array that stay open, each a file and an index of a few KB.
MAX_OPEN_SHARDS = 8
CRC32C_BYTES = 4
INNER_CODECS = ("bytes", "blosc", "crc32c")
BandIndices = tuple[int, ...]


class ArrayReader(Protocol):
    """Numbers over (y, x) or (band, y, x), of a type."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""

    def read(self, out: AnyArray, y: int, x: int, bands: BandIndices) -> None:
        """Fill `out` (…, y, x) from these bands, at this row and column of the raster.

        Raises IntegrityError for a file that is not what its checksum says.
        """


def open_array(path: Path) -> ArrayReader:
    """An array of a store by its folder; raises BadInputError where there is none."""
    try:
        told = json.loads((path / "zarr.json").read_bytes())
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} is not a Zarr array that can be read: {error}") from error
    try:
        return ShardedArrayReader(path, _parse_metadata(told))
    except (KeyError, TypeError, ValueError):
        return ZarrArrayReader(path)


@dataclass(frozen=True)
class ShardedArrayMetadata:
    """How an array is cut: its shape, that of a shard and of a chunk, each (y, x) or (band, y, x), and its type."""

    shape: tuple[int, ...]
    shard: tuple[int, ...]
    chunk: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of chunks in a shard."""
        return self.shard[-2] // self.chunk[-2], self.shard[-1] // self.chunk[-1]


def _parse_metadata(told: dict[str, Any]) -> ShardedArrayMetadata:
    """Read the metadata of an array that eopipe wrote; raises KeyError, TypeError or ValueError for another."""
    (outer,), keys = told["codecs"], told["chunk_key_encoding"]
    how = outer["configuration"]
    known = (
        outer["name"] == "sharding_indexed"
        and tuple(codec["name"] for codec in how["codecs"]) == INNER_CODECS
        and [codec["name"] for codec in how["index_codecs"]] == ["bytes", "crc32c"]
        and all(codecs[0].get("configuration", {}).get("endian", "little") == "little" for codecs in _both(how))
        and how.get("index_location", "end") == "end"
        and (keys["name"], keys.get("configuration", {}).get("separator", "/")) == ("default", "/")
    )
    shard = told["chunk_grid"]["configuration"]["chunk_shape"]
    cut = ShardedArrayMetadata(
        tuple(told["shape"]), tuple(shard), tuple(how["chunk_shape"]), np.dtype(told["data_type"])
    )
    bands = {(edges[:-2]) for edges in (cut.shape, cut.shard, cut.chunk)}
    if not known or len(bands) != 1 or len(cut.shape) not in (2, 3):
        raise KeyError("codecs")
    return cut


def _both(how: dict[str, Any]) -> tuple[Any, Any]:
    return how["codecs"], how["index_codecs"]


@dataclass
class OpenShard:
    """An open shard: its file and where its chunks lie, (rows, columns, 2) of offset and length in bytes."""

    path: Path
    file: int
    index: UInt64Array

    def __del__(self) -> None:
        os.close(self.file)


@dataclass
class ShardedArrayReader:
    """An array in shards as eopipe writes them (`eopipe.tiles.shard_writer`)."""

    path: Path
    cut: ShardedArrayMetadata
    _open: "OrderedDict[tuple[int, int], OpenShard]" = field(default_factory=OrderedDict)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers."""
        return self.cut.dtype

    def read(self, out: AnyArray, y: int, x: int, bands: BandIndices) -> None:
        """Decode straight into `out` what is a whole chunk of it; the rest by way of a copy."""
        high, wide = self.cut.chunk[-2:]
        bottom, right = y + out.shape[-2], x + out.shape[-1]
        if not (0 <= y <= bottom <= self.cut.shape[-2] and 0 <= x <= right <= self.cut.shape[-1]):
            raise BadInputError(f"{self.path} has no window of rows {y} to {bottom}, columns {x} to {right}")
        for top in range(y // high * high, bottom, high):
            for left in range(x // wide * wide, right, wide):
                rows, columns = (
                    slice(max(top, y), min(top + high, bottom)),
                    slice(max(left, x), min(left + wide, right)),
                )
                part = out[..., rows.start - y : rows.stop - y, columns.start - x : columns.stop - x]
                self._chunk(part, top // high, left // wide, (rows.start - top, columns.start - left), bands)

    def _chunk(self, part: AnyArray, row: int, column: int, at: tuple[int, int], bands: BandIndices) -> None:
        whole = part.shape == self.cut.chunk and part.flags.c_contiguous and part.dtype == self.cut.dtype
        if whole and bands == tuple(range(len(bands))):
            self._decode(part, row, column)
            return
        self._decode(self._spare, row, column)
        crop = self._spare[..., at[0] : at[0] + part.shape[-2], at[1] : at[1] + part.shape[-1]]
        if crop.ndim == 2:
            part[...] = crop
            return
        for target, band in zip(part, bands, strict=True):
            target[...] = crop[band]

    @cached_property
    def _spare(self) -> AnyArray:
        """A chunk on its way, in memory that is used again."""
        return np.empty(self.cut.chunk, self.cut.dtype)

    def _decode(self, chunk: AnyArray, row: int, column: int) -> None:
        from numcodecs import blosc

        down, across = self.cut.grid
        shard = self._shard(row // down, column // across)
        start, length = map(int, shard.index[row % down, column % across])
        told = f"chunk {row}, {column} of {shard.path}"
        if start == EMPTY_CHUNK:
            raise IntegrityError(f"{told} is missing; make the store again")
        data = os.pread(shard.file, length, start)
        coded = _checked(data, length, told)
        # Blosc believes its header, which tells the sizes of what it holds.
        if [int(size) for size in coded[:16].view("<u4")[[1, 3]]] != [chunk.nbytes, len(coded)]:
            raise IntegrityError(f"{told} holds another number of pixels than its array says; make the store again")
        # One thread: chips are read side by side as it is.
        blosc.use_threads = False
        try:
            blosc.decompress(coded, chunk)
        except RuntimeError as error:
            raise IntegrityError(f"{told} cannot be decoded: {error}; make the store again") from error

    def _shard(self, row: int, column: int) -> OpenShard:
        if (row, column) not in self._open:
            self._open[row, column] = self._load(row, column)
            if len(self._open) > MAX_OPEN_SHARDS:
                self._open.popitem(last=False)
        self._open.move_to_end((row, column))
        return self._open[row, column]

    def _load(self, row: int, column: int) -> OpenShard:
        path = self.path.joinpath("c", *["0"] * (len(self.cut.shape) - 2), str(row), str(column))
        down, across = self.cut.grid
        size = 16 * down * across + CRC32C_BYTES
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise IntegrityError(f"shard {path} cannot be read: {error.strerror}; make the store again") from error
        shard = OpenShard(path, file, np.empty(0, np.uint64))
        start = os.fstat(file).st_size - size
        data = os.pread(file, size, start) if start >= 0 else b""
        index = _checked(data, size, f"the index of shard {path}")
        shard.index = index.view("<u8").reshape(down, across, 2)
        return shard


def _checked(data: bytes, length: int, told: str) -> UInt8Array:
    """The bytes without their checksum; never a copy."""
    import google_crc32c

    body = np.frombuffer(data, np.uint8)[:-CRC32C_BYTES]
    if len(data) != length or length <= CRC32C_BYTES:
        raise IntegrityError(f"{told} is cut short; make the store again")
    if google_crc32c.value(body) != int.from_bytes(data[-CRC32C_BYTES:], "little"):
        raise IntegrityError(f"{told} does not have its checksum; make the store again")
    return body


class ZarrArrayReader:
    """An array that eopipe did not write, read by zarr-python."""

    def __init__(self, path: Path) -> None:
        import zarr

        try:
            self._array: Any = zarr.open_array(path, mode="r")
        except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
            raise BadInputError(f"{path} is not a Zarr array that can be read: {error}") from error
        self.path, self.dtype = path, np.dtype(self._array.dtype)

    def read(self, out: AnyArray, y: int, x: int, bands: BandIndices) -> None:
        """Read the window, then choose the bands."""
        window = (..., slice(y, y + out.shape[-2]), slice(x, x + out.shape[-1]))
        try:
            found = np.asarray(self._array[window])
        except (ValueError, RuntimeError) as error:
            raise IntegrityError(f"rows from {y}, columns from {x} of {self.path} cannot be read: {error}") from error
        out[...] = found[list(bands)] if found.ndim == 3 else found
