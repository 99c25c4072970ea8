"""A raster file, decoded block by block: each block once, by the first thread that needs it."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.errors import IntegrityError
from eopipe.tiles.grid import PixelWindow
from eopipe.warp.open_raster import not_nodata, read_mask

# Smaller blocks are decoded together up to this edge, since each call costs more than it decodes.
MIN_EDGE = 256
# Larger ones are decoded in pieces, since one of them alone could fill the memory.
MAX_EDGE = 4096
BlockKey = tuple[int, int]


@dataclass(frozen=True)
class DecodedBlock:
    """Pixels of a block (y, x), their valid mask (None: all valid), and the number of undeclared NaN and infinities."""

    values: AnyArray
    valid: BoolArray | None
    non_finite: int


class BlockCache:
    """A band of a raster. `read` may be called from any thread; `name` is the band's in errors."""

    def __init__(self, open_dataset: Callable[[], Any], band: int, nodata: float | None, name: str) -> None:
        self._open_dataset, self.band, self.name = open_dataset, band, name
        self._datasets: SimpleQueue[Any] = SimpleQueue()
        self._lock = Lock()
        self._blocks: dict[BlockKey, Future[DecodedBlock]] = {}
        self._last_use: dict[BlockKey, int] = {}
        with self._dataset() as source:
            self.shape: tuple[int, int] = source.shape
            self.dtype: np.dtype[Any] = np.dtype(source.dtypes[band - 1])
            self.edges = _edges(source.block_shapes[band - 1], self.shape)
        self._nodata = nodata
        self.non_finite = 0

    def plan(self, windows: list[PixelWindow]) -> None:
        """Announce the windows that will be read, in order, so that a block is dropped after its last use."""
        for number, window in enumerate(windows):
            self._last_use.update(dict.fromkeys(self._keys(window), number))

    def release(self, number: int) -> None:
        """Drop the blocks that no window after this one needs."""
        with self._lock:
            for key in [key for key in self._blocks if self._last_use.get(key, number) <= number]:
                del self._blocks[key]

    def read(self, window: PixelWindow) -> tuple[AnyArray, BoolArray | None]:
        """Pixels of a window of the raster, and their valid mask (None: all valid).

        Raises IntegrityError for a block that cannot be decoded.
        """
        blocks = self._decoded(window)
        if len(blocks) == 1:
            ((key, block),) = blocks.items()
            _, crop = _overlap(window, self._corner(key), block.values.shape)
            return block.values[crop], None if block.valid is None else block.valid[crop]
        values = np.empty([axis.stop - axis.start for axis in window], self.dtype)
        valid = None if all(block.valid is None for block in blocks.values()) else np.ones(values.shape, bool)
        for key, block in blocks.items():
            target, crop = _overlap(window, self._corner(key), block.values.shape)
            values[target] = block.values[crop]
            if valid is not None and block.valid is not None:
                valid[target] = block.valid[crop]
        return values, valid

    def close(self) -> None:
        """Close the datasets; no thread may be reading any more."""
        while not self._datasets.empty():
            self._datasets.get().close()

    def _corner(self, key: BlockKey) -> tuple[int, int]:
        return key[0] * self.edges[0], key[1] * self.edges[1]

    def _keys(self, window: PixelWindow) -> list[BlockKey]:
        rows, columns = (
            range(axis.start // edge, -(-axis.stop // edge)) if axis.stop > axis.start else range(0)
            for axis, edge in zip(window, self.edges, strict=True)
        )
        return [(row, column) for row in rows for column in columns]

    def _decoded(self, window: PixelWindow) -> dict[BlockKey, DecodedBlock]:
        """Decode the blocks that no thread has begun, then wait for the others."""
        futures = {}
        for key in self._keys(window):
            with self._lock:
                is_first = key not in self._blocks
                futures[key] = self._blocks.setdefault(key, Future())
            if is_first:
                self._decode(key, futures[key])
        return {key: future.result() for key, future in futures.items()}

    def _decode(self, key: BlockKey, future: "Future[DecodedBlock]") -> None:
        try:
            block = self._read_block(key)
        except BaseException as error:
            future.set_exception(error)
            raise
        with self._lock:
            self.non_finite += block.non_finite
        future.set_result(block)

    def _read_block(self, key: BlockKey) -> DecodedBlock:
        from rasterio.errors import RasterioIOError
        from rasterio.windows import Window

        (row, column), (height, width) = self._corner(key), self.shape
        window = Window(column, row, min(self.edges[1], width - column), min(self.edges[0], height - row))
        with self._dataset() as source:
            try:
                values = source.read(self.band, window=window)
                mask = read_mask(source, window)
            except RasterioIOError as error:
                raise IntegrityError(
                    f"{self.name} is truncated or damaged near row {row}, column {column} "
                    f"(block {key[0]}, {key[1]} of {Path(source.name).name}): {error}"
                ) from error
        return self._masked(values, mask)

    def _masked(self, values: AnyArray, mask: BoolArray | None) -> DecodedBlock:
        non_finite, valid = 0, not_nodata(values, self._nodata)
        if mask is not None:
            valid = mask if valid is None else valid & mask
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            # NaN that is declared as nodata is not counted.
            is_declared = self._nodata is not None and np.isnan(self._nodata)
            undeclared = ~finite & ~np.isnan(values) if is_declared else ~finite
            non_finite = int(undeclared.sum())
            valid = finite if valid is None else valid & finite
        return DecodedBlock(values, None if valid is None or valid.all() else valid, non_finite)

    @contextmanager
    def _dataset(self) -> Iterator[Any]:
        """A dataset that no other thread uses meanwhile; GDAL's datasets may not be shared."""
        try:
            source = self._datasets.get_nowait()
        except Empty:
            source = self._open_dataset()
        try:
            yield source
        finally:
            self._datasets.put(source)


def _edges(block: tuple[int, int], shape: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns to decode at a time: whole blocks, unless one block alone could fill the memory."""
    rows, columns = (max(1, -(-MIN_EDGE // edge)) * edge for edge in block)
    rows, columns = min(rows, shape[0]), min(columns, shape[1])
    return (rows, columns) if rows * columns <= MAX_EDGE**2 else (min(rows, MAX_EDGE // 2), min(columns, MAX_EDGE // 2))


def _overlap(window: PixelWindow, corner: tuple[int, int], shape: tuple[int, ...]) -> tuple[PixelWindow, PixelWindow]:
    """The intersection of a block and a window, in pixels of the window and in pixels of the block."""
    begin = [max(axis.start, first) for axis, first in zip(window, corner, strict=True)]
    end = [min(axis.stop, first + edge) for axis, first, edge in zip(window, corner, shape, strict=True)]
    in_window, in_block = (
        tuple(slice(a - o, b - o) for a, b, o in zip(begin, end, origin, strict=True))
        for origin in ([axis.start for axis in window], corner)
    )
    return (in_window[0], in_window[1]), (in_block[0], in_block[1])
