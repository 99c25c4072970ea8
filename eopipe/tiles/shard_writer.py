"""Shards of a Zarr v3 array, as its text on `sharding_indexed` says: coded chunks, then an index with a checksum.

zarr-python takes several times as long to write one as the codec does: it copies, and spends its time in Python.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from eopipe.arrays import AnyArray

# What the index says of a chunk that is not there.
EMPTY_CHUNK = np.iinfo(np.uint64).max


@dataclass(frozen=True)
class ChunkEncoder:
    """Codes chunks (band, y, x) of this edge: Blosc with shuffled bits, then crc32c."""

    chunk: int
    cname: str
    level: int

    def row(self, pixels: AnyArray) -> list[bytes]:
        """Code pixels (…, y, x) of one row of chunks; the last chunk is filled up with zeros."""
        return [self._code(pixels[..., x : x + self.chunk]) for x in range(0, pixels.shape[-1], self.chunk)]

    def _code(self, pixels: AnyArray) -> bytes:
        from numcodecs import Blosc

        blosc = Blosc(self.cname, self.level, Blosc.BITSHUFFLE, typesize=pixels.dtype.itemsize)
        return with_crc32c(blosc.encode(self._whole(pixels)))

    def _whole(self, pixels: AnyArray) -> AnyArray:
        shape = (*pixels.shape[:-2], self.chunk, self.chunk)
        # Zarr stores little-endian numbers unless told otherwise.
        dtype = pixels.dtype.newbyteorder("<")
        if pixels.shape == shape:
            return np.ascontiguousarray(pixels, dtype)
        whole = np.zeros(shape, dtype)
        whole[..., : pixels.shape[-2], : pixels.shape[-1]] = pixels
        return whole


def with_crc32c(data: bytes) -> bytes:
    """Bytes followed by their crc32c."""
    import google_crc32c

    return data + int(google_crc32c.value(data)).to_bytes(4, "little")


@dataclass
class ShardWriter:
    """One shard in the making, at `path`: rows of chunks come in order, from one writer."""

    path: Path
    rows: int
    columns: int
    places: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0

    def append(self, row: Sequence[bytes]) -> None:
        """Add the next row of coded chunks; columns beyond the raster may be missing."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("ab") as file:
            for chunk in row:
                self.places.append((self.end, len(chunk)))
                self.end += len(chunk)
                file.write(chunk)
        self.places += [(EMPTY_CHUNK, EMPTY_CHUNK)] * (self.columns - len(row))

    def finish(self) -> None:
        """Add the index; rows beyond the raster may be missing."""
        missing = self.rows * self.columns - len(self.places)
        index = np.array(self.places + [(EMPTY_CHUNK, EMPTY_CHUNK)] * missing, "<u8")
        with self.path.open("ab") as file:
            file.write(with_crc32c(index.tobytes()))
