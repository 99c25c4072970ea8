"""Where a TIFF or JPEG 2000 file ends by what it lists: GDAL may open a cut one, without place, mask or nodata."""

import os
from pathlib import Path
from typing import BinaryIO

import numpy as np

from eopipe.arrays import AnyArray

# The first bytes of rasters, with the suffix of their files.
RASTER = {b"II*\0": ".tif", b"MM\0*": ".tif", b"II+\0": ".tif", b"MM\0+": ".tif", b"\0\0\0\x0c": ".jp2"}
# TIFF 6.0: bytes of a number of each type, and the tags of offsets and lengths of tiles, and of strips.
TIFF_WIDTHS = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8, 17: 8, 18: 8}
BLOCKS = ((324, 325), (273, 279))
# Masks and overviews have a directory each.
MAX_DIRECTORIES = 256


def truncation(path: Path) -> str:
    """How a TIFF or JPEG 2000 file, or what is left of any, is cut short; empty for whole and for other files."""
    with path.open("rb") as file:
        words = RasterWords(file, file.read(4))
        try:
            words.check()
        except EOFError as error:
            return f"is truncated: it has {words.bytes} of at least {error} bytes"
    return ""


class RasterWords:
    """The numbers of a raster file with these first bytes. What is beyond the end raises EOFError with its end."""

    def __init__(self, file: BinaryIO, magic: bytes) -> None:
        self.file, self.bytes, self.suffix = file, file.seek(0, os.SEEK_END), RASTER.get(magic)
        self.is_little, self.size = magic.startswith(b"I"), 8 if b"+" in magic else 4

    def check(self) -> None:
        """Read all that says where the parts of the file are."""
        self.need(4)
        if self.suffix == ".jp2":
            self.check_boxes()
        elif self.suffix:
            start, visited = int(self.read(self.size, f"u{self.size}")[0]), set[int]()
            while start and start not in visited and len(visited) < MAX_DIRECTORIES:
                visited.add(start)
                start = self.next_directory(start)

    def check_boxes(self) -> None:
        """Follow the boxes of JPEG 2000 (ISO 15444-1, annex I); a last box without length ends with FFD9."""
        start, has_pixels = 0, False
        while start < self.bytes or not has_pixels:
            length, kind = self.read(start, "u4,u4")[0].item()
            has_pixels |= kind == int.from_bytes(b"jp2c")
            if not length:
                length = self.bytes - start + int(self.read(self.bytes - 2, "u2")[0] != 0xFFD9)
            start += max(int(self.read(start + 8, "u8")[0]) if length == 1 else length, 8)
        self.need(start)

    def need(self, end: int) -> None:
        """Raise EOFError for a byte beyond the end of the file."""
        if end > self.bytes:
            raise EOFError(end)

    def read(self, start: int, kind: str, count: int = 1) -> AnyArray:
        """Numbers, or tuples of numbers, of a type."""
        dtype = np.dtype(kind).newbyteorder("<" if self.is_little else ">")
        self.need(start + dtype.itemsize * count)
        self.file.seek(start)
        return np.frombuffer(self.file.read(dtype.itemsize * count), dtype)

    def next_directory(self, start: int) -> int:
        """Check the entries of a directory of TIFF 6.0 or BigTIFF, and its blocks; return where the next one is."""
        size, blocks = self.size, dict[int, AnyArray]()
        first, entry = start + (8 if size == 8 else 2), f"u2,u2,u{size},u{size}"
        entries = self.read(first, entry, int(self.read(start, f"u{first - start}")[0]))
        for n, (tag, kind, count, place) in enumerate(entries.tolist()):
            width = TIFF_WIDTHS.get(kind, 0)
            start = place if count * width > size else first + n * entries.itemsize + 4 + size
            self.need(start + count * width)
            if width and any(tag in pair for pair in BLOCKS):
                blocks[tag] = self.read(start, f"u{width}", count).astype(np.uint64)
        for pair in BLOCKS:
            offsets, lengths = (blocks.get(tag, np.zeros(0, np.uint64)) for tag in pair)
            count = min(len(offsets), len(lengths))
            # A block without bytes was never written.
            self.need(int((offsets[:count] + lengths[:count])[lengths[:count] > 0].max(initial=0)))
        return int(self.read(first + entries.nbytes, f"u{size}")[0])
