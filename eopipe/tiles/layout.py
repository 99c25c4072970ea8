"""How an array is cut into shards (files) and inner chunks (read units), and the writer of its shards.

Shards are as specified for `sharding_indexed`: encoded inner chunks, then an index and its crc32c. zarr-python needs
several times as long to write one as the codec does: it copies, and spends its time in Python.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import numpy as np
from pydantic import BaseModel, Field

from eopipe.arrays import AnyArray
from eopipe.documents import OPEN, Number, PositiveCount, Time, checked
from eopipe.errors import UsageError
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.grid import PixelWindow, windows
from eopipe.tiles.shard_reader import EMPTY_CHUNK, StoredWindow

if TYPE_CHECKING:
    import zarr
    from odc.geo.geobox import GeoBox

Codec = Literal["lz4", "zstd"]
LEVELS: dict[str, int] = {"lz4": 5, "zstd": 1}


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


class _ChipSlots(BaseModel, **OPEN):
    """The attribute of a store of packed chips: edge, rows and columns of its slots, bounds of the chips in degrees."""

    slot: Annotated[PositiveCount, Field(le=4096)]
    rows: PositiveCount
    columns: PositiveCount
    chips: PositiveCount
    bbox: Annotated[list[Number], Field(min_length=4, max_length=4)]


class _StoreAttributes(BaseModel, **OPEN):
    """The attributes of a store that are used as they are, beside its identity."""

    datetime: Time | None = None
    start_datetime: Time | None = None
    end_datetime: Time | None = None
    valid_fraction: Number | None = None
    sensors: list[str] = []
    baselines: list[str] = []
    # Where there is one, it is not null.
    chip_set: Annotated[_ChipSlots, Field()] = cast(_ChipSlots, None)


def check_attributes(attributes: dict[str, Any], label: str) -> None:
    """Raise BadInputError for times, a share of valid pixels or slots of packed chips that are none."""
    read = {key: attributes[key] for key in _StoreAttributes.model_fields.keys() & attributes.keys()}
    checked(_StoreAttributes, read, f"the metadata of {label}", "metadata of a store of tiles")


@dataclass(frozen=True)
class Layout:
    """Sharding of an array: edge of an inner chunk (read unit) and of a shard (file) in pixels, and the codec."""

    chunk: int = 256
    shard: int = 4096
    codec: Codec = "lz4"

    def __post_init__(self) -> None:
        """Check that a shard is a whole number of chunks."""
        if self.shard % self.chunk:
            raise UsageError(
                f"the shard edge of {self.shard} pixels is not a multiple of the chunk edge of {self.chunk}"
            )

    def shards(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Height and width of a shard of this raster: whole chunks, and no larger than the raster needs."""
        height, width = (min(self.shard, -(-edge // self.chunk) * self.chunk) for edge in shape)
        return height, width

    def files(self, shape: tuple[int, int]) -> int:
        """Number of shards of a raster of this shape."""
        height, width = self.shards(shape)
        return -(-shape[0] // height) * -(-shape[1] // width)

    @property
    def encoder(self) -> ChunkEncoder:
        return ChunkEncoder(self.chunk, self.codec, LEVELS[self.codec])


@dataclass(frozen=True)
class ShardRegion:
    """Rows of chunks of one shard, which are read, encoded and written at a time; `last` completes the shard."""

    window: PixelWindow
    shard: tuple[int, int]
    last: bool


def shard_regions(shape: tuple[int, int], layout: Layout, min_rows: int = 1) -> list[ShardRegion]:
    """Cut a raster into regions of a minimum number of rows (or a whole shard), from top to bottom over its full width.

    So only a few rows of a source are needed at a time, however wide its blocks are.
    """
    height, width = layout.shards(shape)
    rows = min(height, -(-max(min_rows, 1) // layout.chunk) * layout.chunk)
    regions = []
    for top in range(0, shape[0], height):
        bottom = min(top + height, shape[0])
        for y, x in windows((bottom - top, shape[1]), (rows, width)):
            window = (slice(top + y.start, top + y.stop), x)
            regions.append(ShardRegion(window, (top // height, x.start // width), window[0].stop == bottom))
    return regions


def crop_cell(
    frame: Frame, cell: Cell, parts: list[PixelWindow], layout: Layout
) -> tuple["GeoBox", StoredWindow | None]:
    """The grid of the whole chunks of a cell that any of its windows touches, and their window in the frame.

    Chunks are counted from the corner of the cell, so the chunks of all scenes coincide. There is no window where the
    grid fills the frame.
    """
    chunk, bounds = layout.chunk, []
    for axis, edge in enumerate(cell.shape):
        begin = min(window[axis].start for window in parts) // chunk * chunk
        end = max(window[axis].stop for window in parts)
        # A raster that only touches the grid has one chunk, without a valid pixel.
        begin = min(begin, (edge - 1) // chunk * chunk)
        bounds.append((begin, min(max(-(-end // chunk), begin // chunk + 1) * chunk, edge)))
    (top, bottom), (left, right) = bounds
    shape = bottom - top, right - left
    window = StoredWindow(frame.shape, (top, cell.column + left), layout.shard)
    return cell.grid.translate_pix(left, top).crop(shape), None if shape == frame.shape else window


class ArrayWriter:
    """Writes an array of a new store, region by region in the order of `shard_regions`; each shard has one writer."""

    def __init__(self, array: "zarr.Array[Any]", layout: Layout) -> None:
        store: Any = array.store
        self._folder = Path(store.root) / array.path / "c"
        self._bands = ["0"] * (len(array.shape) - 2)
        raster = (array.shape[-2], array.shape[-1])
        height, width = layout.shards(raster)
        self._chunks = (height // layout.chunk, width // layout.chunk)
        self._layout = layout
        self._open_shards: dict[tuple[int, int], ShardWriter] = {}

    def encode(self, pixels: AnyArray) -> list[list[bytes]]:
        """Encode the pixels (…, y, x) of a region; may be called from any thread."""
        chunk, encoder = self._layout.chunk, self._layout.encoder
        return [encoder.row(pixels[..., y : y + chunk, :]) for y in range(0, pixels.shape[-2], chunk)]

    def write(self, region: ShardRegion, rows: list[list[bytes]]) -> None:
        """Write an encoded region; the last one of a shard adds its index."""
        path = self._folder.joinpath(*self._bands, *map(str, region.shard))
        shard = self._open_shards.setdefault(region.shard, ShardWriter(path, *self._chunks))
        for row in rows:
            shard.append(row)
        if region.last:
            self._open_shards.pop(region.shard).finish()
