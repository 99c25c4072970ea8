"""How a raster is cut into shards and chunks: files, parts that are written at a time, and their writer."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from eopipe.arrays import AnyArray
from eopipe.errors import NoSpaceError, UsageError
from eopipe.tiles.grid import PixelWindow, windows
from eopipe.tiles.shard_writer import ChunkEncoder, ShardWriter

if TYPE_CHECKING:
    import zarr

Codec = Literal["lz4", "zstd"]
LEVELS: dict[str, int] = {"lz4": 5, "zstd": 1}


@dataclass(frozen=True)
class Layout:
    """How arrays are cut: edge of a chunk (read unit) and of a shard (file) in pixels, and the codec."""

    chunk: int = 256
    shard: int = 4096
    codec: Codec = "lz4"

    def __post_init__(self) -> None:
        """Check that a shard is whole chunks."""
        if self.shard % self.chunk:
            raise UsageError(f"a shard of {self.shard} pixels is no multiple of a chunk of {self.chunk}")

    def shards(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Shard of this raster: no larger than needed, always whole chunks."""
        height, width = (min(self.shard, -(-edge // self.chunk) * self.chunk) for edge in shape)
        return height, width

    def files(self, shape: tuple[int, int]) -> int:
        """Number of shards that a raster of this shape takes."""
        height, width = self.shards(shape)
        return -(-shape[0] // height) * -(-shape[1] // width)

    @property
    def coder(self) -> ChunkEncoder:
        """What codes the chunks."""
        return ChunkEncoder(self.chunk, self.codec, LEVELS[self.codec])


def store_files(shape: tuple[int, int], layout: Layout, arrays: int) -> int:
    """Number of files of a published store whose raster arrays are so many.

    Shards and metadata of each array, those of two coordinates, place, group and manifest.
    """
    return arrays * (layout.files(shape) + 1) + 2 * 2 + 1 + 2


def check_file_budget(shape: tuple[int, int], layout: Layout, arrays: int, most: int | None) -> None:
    """Raise NoSpaceError where a store would take more files than allowed."""
    files = store_files(shape, layout, arrays)
    if most is not None and files > most:
        raise NoSpaceError(
            f"a store of {shape[0]} x {shape[1]} pixels takes {files} files, more than the {most} allowed; "
            f"choose shards larger than {layout.shard} pixels, or allow more"
        )


@dataclass(frozen=True)
class ShardRegion:
    """Rows of chunks of one shard: what is read, coded and written at a time."""

    window: PixelWindow
    shard: tuple[int, int]
    last: bool


def shard_regions(shape: tuple[int, int], layout: Layout, least: int = 1) -> list[ShardRegion]:
    """Cut a raster into parts of at least so many rows (or a whole shard), from the top down over its full width.

    So no more of a source than a few rows is needed at a time, however wide its blocks are.
    """
    height, width = layout.shards(shape)
    rows = min(height, -(-max(least, 1) // layout.chunk) * layout.chunk)
    found = []
    for top in range(0, shape[0], height):
        bottom = min(top + height, shape[0])
        for y, x in windows((bottom - top, shape[1]), (rows, width)):
            window = (slice(top + y.start, top + y.stop), x)
            found.append(ShardRegion(window, (top // height, x.start // width), window[0].stop == bottom))
    return found


class ArrayWriter:
    """Writes an array of a new store, part by part in the order of `parts`: one writer, whole shards."""

    def __init__(self, array: "zarr.Array[Any]", layout: Layout) -> None:
        store: Any = array.store
        self._folder = Path(store.root) / array.path / "c"
        self._bands = ["0"] * (len(array.shape) - 2)
        raster = (array.shape[-2], array.shape[-1])
        height, width = layout.shards(raster)
        self._chunks = (height // layout.chunk, width // layout.chunk)
        self._layout = layout
        self._open: dict[tuple[int, int], ShardWriter] = {}

    def code(self, pixels: AnyArray) -> list[list[bytes]]:
        """Code the pixels (…, y, x) of a part; any thread may."""
        chunk, coder = self._layout.chunk, self._layout.coder
        return [coder.row(pixels[..., y : y + chunk, :]) for y in range(0, pixels.shape[-2], chunk)]

    def write(self, part: ShardRegion, rows: list[list[bytes]]) -> None:
        """Write a coded part; the last one of a shard closes it."""
        path = self._folder.joinpath(*self._bands, *map(str, part.shard))
        shard = self._open.setdefault(part.shard, ShardWriter(path, *self._chunks))
        for row in rows:
            shard.append(row)
        if part.last:
            self._open.pop(part.shard).finish()
