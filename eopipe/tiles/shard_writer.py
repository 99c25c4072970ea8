"""Shards of a Zarr v3 array as specified for `sharding_indexed`: encoded inner chunks, then an index and its crc32c.

zarr-python needs several times as long to write a shard as the codec does: it copies, and spends its time in Python.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from eopipe.arrays import AnyArray

# Offset and length in the shard index of a chunk that is not stored.
EMPTY_CHUNK = np.iinfo(np.uint64).max


@dataclass(frozen=True)
class ChunkEncoder:
    """Encodes chunks (band, y, x) of this edge: Blosc with bit shuffle, then crc32c."""

    chunk: int
    codec: str
    level: int

    def row(self, pixels: AnyArray) -> list[bytes]:
        """Encode pixels (…, y, x) of one row of chunks; the last chunk is padded with the fill value, zero."""
        return [self._encode(pixels[..., x : x + self.chunk]) for x in range(0, pixels.shape[-1], self.chunk)]

    def _encode(self, pixels: AnyArray) -> bytes:
        from numcodecs import Blosc

        blosc = Blosc(self.codec, self.level, Blosc.BITSHUFFLE, typesize=pixels.dtype.itemsize)
        return with_crc32c(blosc.encode(self._padded(pixels)))

    def _padded(self, pixels: AnyArray) -> AnyArray:
        shape = (*pixels.shape[:-2], self.chunk, self.chunk)
        # The `bytes` codec of the stores is little-endian.
        dtype = pixels.dtype.newbyteorder("<")
        if pixels.shape == shape:
            return np.ascontiguousarray(pixels, dtype)
        chunk = np.zeros(shape, dtype)
        chunk[..., : pixels.shape[-2], : pixels.shape[-1]] = pixels
        return chunk


def with_crc32c(data: bytes) -> bytes:
    """Bytes followed by their crc32c."""
    import google_crc32c

    return data + int(google_crc32c.value(data)).to_bytes(4, "little")


@dataclass
class ShardWriter:
    """One shard that is being written at `path`: one writer appends its rows of chunks in order."""

    path: Path
    rows: int
    columns: int
    index: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0

    def append(self, row: Sequence[bytes]) -> None:
        """Append the next row of encoded chunks; columns beyond the raster may be missing."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            for chunk in row:
                self.index.append((self.end, len(chunk)))
                self.end += len(chunk)
                file.write(chunk)
        self.index += [(EMPTY_CHUNK, EMPTY_CHUNK)] * (self.columns - len(row))

    def finish(self) -> None:
        """Append the shard index; rows beyond the raster may be missing."""
        missing = self.rows * self.columns - len(self.index)
        index = np.array(self.index + [(EMPTY_CHUNK, EMPTY_CHUNK)] * missing, "<u8")
        with self.path.open("ab") as file:
            file.write(with_crc32c(index.tobytes()))
