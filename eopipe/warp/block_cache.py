"""A raster on disk, decoded block by block: each block once, by whichever thread needs it first."""

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

# Decoding blocks one by one costs more than it saves below this edge; strips are taken together up to it.
LEAST = 256
MOST = 4096


@dataclass(frozen=True)
class DecodedBlock:
    """Values of a block (y, x), and where they are measurements; None where all of them are."""

    values: AnyArray
    there: BoolArray | None
    odd: int


class BlockCache:
    """The first band of a raster. `read` may be called from any thread."""

    def __init__(self, open_: Callable[[], Any], nodata: float | None, where: str) -> None:
        self._open, self.where = open_, where
        self._handles: SimpleQueue[Any] = SimpleQueue()
        self._lock = Lock()
        self._found: dict[tuple[int, int], Future[DecodedBlock]] = {}
        self._last: dict[tuple[int, int], int] = {}
        with self._handle() as source:
            self.shape: tuple[int, int] = source.shape
            self.dtype: np.dtype[Any] = np.dtype(source.dtypes[0])
            self.edges = _edges(source.block_shapes[0], self.shape)
            self._masked = nodata is None and _has_mask(source)
        self._nodata = None if nodata is None else _as(nodata, self.dtype)
        self.odd = 0

    def plan(self, windows: list[PixelWindow]) -> None:
        """Tell the windows that will be read, in order, so that a block is forgotten after its last use."""
        for turn, window in enumerate(windows):
            self._last.update(dict.fromkeys(self._keys(window), turn))

    def release(self, turn: int) -> None:
        """Forget the blocks that no window after this one needs."""
        with self._lock:
            for key in [key for key in self._found if self._last.get(key, turn) <= turn]:
                del self._found[key]

    def read(self, window: PixelWindow) -> tuple[AnyArray, BoolArray | None]:
        """Pixels of a window that lies in the raster, and where they are measurements; None: everywhere.

        Raises IntegrityError for a block that cannot be decoded.
        """
        found = self._blocks(window)
        if len(found) == 1:
            ((at, block),) = found.items()
            _, cut = _overlap(window, self._corner(at), block.values.shape)
            return block.values[cut], None if block.there is None else block.there[cut]
        values = np.empty([cut.stop - cut.start for cut in window], self.dtype)
        there = None if all(block.there is None for block in found.values()) else np.ones(values.shape, bool)
        for at, block in found.items():
            corner = self._corner(at)
            into, cut = _overlap(window, corner, block.values.shape)
            values[into] = block.values[cut]
            if there is not None and block.there is not None:
                there[into] = block.there[cut]
        return values, there

    def close(self) -> None:
        """Close the datasets; nothing may be reading any more."""
        while not self._handles.empty():
            self._handles.get().close()

    def _corner(self, key: tuple[int, int]) -> tuple[int, int]:
        return key[0] * self.edges[0], key[1] * self.edges[1]

    def _keys(self, window: PixelWindow) -> list[tuple[int, int]]:
        rows, columns = (
            range(cut.start // edge, -(-cut.stop // edge)) if cut.stop > cut.start else range(0)
            for cut, edge in zip(window, self.edges, strict=True)
        )
        return [(row, column) for row in rows for column in columns]

    def _blocks(self, window: PixelWindow) -> dict[tuple[int, int], DecodedBlock]:
        """Decode what nobody has begun yet, then wait for what others have."""
        futures = {}
        for key in self._keys(window):
            with self._lock:
                mine = key not in self._found
                futures[key] = self._found.setdefault(key, Future())
            if mine:
                self._decode(key, futures[key])
        return {key: future.result() for key, future in futures.items()}

    def _decode(self, key: tuple[int, int], future: "Future[DecodedBlock]") -> None:
        try:
            block = self._read_block(key)
        except BaseException as error:
            future.set_exception(error)
            raise
        with self._lock:
            self.odd += block.odd
        future.set_result(block)

    def _read_block(self, key: tuple[int, int]) -> DecodedBlock:
        from rasterio.errors import RasterioIOError
        from rasterio.windows import Window as Box

        (row, column), (height, width) = self._corner(key), self.shape
        box = Box(column, row, min(self.edges[1], width - column), min(self.edges[0], height - row))
        with self._handle() as source:
            try:
                values = source.read(1, window=box)
                there = source.read_masks(1, window=box) > 0 if self._masked else None
            except RasterioIOError as error:
                raise IntegrityError(
                    f"{self.where} is truncated or damaged near row {row}, column {column} "
                    f"(block {key[0]}, {key[1]} of {Path(source.name).name}): {error}"
                ) from error
        return self._judged(values, there)

    def _judged(self, values: AnyArray, there: BoolArray | None) -> DecodedBlock:
        odd = 0
        if self._nodata is not None and not np.isnan(self._nodata):
            there = values != self._nodata
        if values.dtype.kind == "f":
            finite = np.isfinite(values)
            odd = int((~finite & ~np.isnan(values)).sum()) if _is_nan(self._nodata) else int((~finite).sum())
            there = finite if there is None else there & finite
        return DecodedBlock(values, None if there is None or there.all() else there, odd)

    @contextmanager
    def _handle(self) -> Iterator[Any]:
        """A dataset that no other thread uses now; GDAL's own may not be shared."""
        try:
            source = self._handles.get_nowait()
        except Empty:
            source = self._open()
        try:
            yield source
        finally:
            self._handles.put(source)


def _edges(block: tuple[int, int], shape: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns that are decoded at a time: whole blocks, unless one alone would fill the memory."""
    rows, columns = (max(1, -(-LEAST // edge)) * edge for edge in block)
    rows, columns = min(rows, shape[0]), min(columns, shape[1])
    return (rows, columns) if rows * columns <= MOST**2 else (min(rows, MOST // 2), min(columns, MOST // 2))


def _has_mask(source: Any) -> bool:
    from rasterio.enums import MaskFlags

    return MaskFlags.per_dataset in source.mask_flag_enums[0]


def _as(nodata: float, dtype: np.dtype[Any]) -> Any:
    # A number that float32 cannot hold becomes infinite, which is no measurement either.
    with np.errstate(over="ignore"):
        return np.asarray(nodata).astype(dtype)[()]


def _is_nan(nodata: Any) -> bool:
    return nodata is not None and bool(np.isnan(nodata))


def _overlap(window: PixelWindow, corner: tuple[int, int], shape: tuple[int, ...]) -> tuple[PixelWindow, PixelWindow]:
    """What a block and a window share: as seen from the window, and from the block."""
    begin = [max(cut.start, at) for cut, at in zip(window, corner, strict=True)]
    end = [min(cut.stop, at + edge) for cut, at, edge in zip(window, corner, shape, strict=True)]
    seen = [
        tuple(slice(a - o, b - o) for a, b, o in zip(begin, end, origin, strict=True))
        for origin in ([cut.start for cut in window], corner)
    ]
    return (seen[0][0], seen[0][1]), (seen[1][0], seen[1][1])
