"""Chips cut from stores into memory of the caller's, within a budget of memory."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eopipe.errors import BadInputError
from eopipe.samples.arrays import Array, open_array
from eopipe.store import Tiles

# Arrays that stay open; each may hold some shards open.
ARRAYS = 48
Pixels = npt.NDArray[Any]
CLASSES, VALUES = np.dtype(np.uint8), np.dtype(np.float32)
Window = tuple[int, int, int, int]


@dataclass(frozen=True)
class Source:
    """Where the chips of a scene come from: folders of its stores, and the number of each band that is wanted."""

    tiles: str
    labels: str
    bands: tuple[int, ...]


def sources_of(pairs: Sequence[tuple[Tiles, Tiles]], bands: tuple[str, ...]) -> list[Source]:
    """Sources by band name; raises BadInputError where a scene lacks a band."""
    for tiles, _ in pairs:
        missing = [band for band in bands if band not in tiles.names]
        if missing:
            raise BadInputError(f"{tiles.path} has no band {', '.join(missing)}; it has {', '.join(tiles.names)}")
    return [
        Source(str(tiles.path), str(labels.path), tuple(tiles.names.index(band) for band in bands))
        for tiles, labels in pairs
    ]


@dataclass(frozen=True)
class Rows:
    """Chips in memory: image (n, band, chip, chip) as stored, valid and label (n, chip, chip).

    Valid is uint8, and so are class numbers; labels that are values are float32.
    """

    image: Pixels
    valid: Pixels
    label: Pixels

    def __getitem__(self, where: Any) -> "Rows":
        """The same part of each."""
        return Rows(self.image[where], self.valid[where], self.label[where])

    @property
    def nbytes(self) -> int:
        """Bytes of all."""
        return self.image.nbytes + self.valid.nbytes + self.label.nbytes


def rows(shape: tuple[int, ...], bands: int, dtype: np.dtype[Any], label: np.dtype[Any] = CLASSES) -> Rows:
    """New memory for pixels over (…, y, x), their labels of a type."""
    image = np.empty((*shape[:-2], bands, *shape[-2:]), dtype)
    return Rows(image, np.empty(shape, np.uint8), np.empty(shape, label))


@dataclass(frozen=True)
class Piece:
    """Chips of one scene to cut: their places in the batch, and their corners (row, column).

    All lie in `window` (top, left, bottom, right), which is kept in memory where it is given.
    """

    scene: int
    window: Window | None
    places: Sequence[int]
    corners: Sequence[tuple[int, int]]


@dataclass
class Cutter:
    """Cuts chips; keeps decoded windows up to a budget in bytes, least recently used first out."""

    sources: Sequence[Source]
    chip: int
    dtype: np.dtype[Any]
    budget: int
    label: np.dtype[Any] = CLASSES
    _arrays: "OrderedDict[tuple[int, str], Array]" = field(default_factory=OrderedDict)
    _kept: "OrderedDict[tuple[int, Window], Rows]" = field(default_factory=OrderedDict)

    def cut(self, piece: Piece, into: Rows) -> None:
        """Fill rows of a batch."""
        block = self._block(piece.scene, piece.window) if piece.window else None
        top, left = piece.window[:2] if piece.window else (0, 0)
        for place, (row, column) in zip(piece.places, piece.corners, strict=True):
            target = into[place]
            if block is None:
                self._read(piece.scene, row, column, target)
                continue
            y, x = slice(row - top, row - top + self.chip), slice(column - left, column - left + self.chip)
            target.image[...] = block.image[:, y, x]
            target.valid[...] = block.valid[y, x]
            target.label[...] = block.label[y, x]

    def _block(self, scene: int, window: Window) -> Rows:
        key = (scene, window)
        if key not in self._kept:
            top, left, bottom, right = window
            bands = len(self.sources[scene].bands)
            size = block_bytes(window, bands, self.dtype, self.label)
            # Make room first, so that no more than the budget is ever held.
            while self._kept and sum(block.nbytes for block in self._kept.values()) + size > self.budget:
                self._kept.popitem(last=False)
            block = rows((bottom - top, right - left), bands, self.dtype, self.label)
            self._read(scene, top, left, block)
            self._kept[key] = block
        self._kept.move_to_end(key)
        return self._kept[key]

    def _read(self, scene: int, row: int, column: int, into: Rows) -> None:
        self._array(scene, "image").read(into.image, row, column, self.sources[scene].bands)
        self._array(scene, "valid").read(into.valid, row, column, ())
        self._array(scene, "label").read(into.label, row, column, ())

    def _array(self, scene: int, name: str) -> Array:
        if (scene, name) not in self._arrays:
            source = self.sources[scene]
            self._arrays[scene, name] = open_array(Path(source.labels if name == "label" else source.tiles) / name)
            if len(self._arrays) > ARRAYS:
                self._arrays.popitem(last=False)
        self._arrays.move_to_end((scene, name))
        return self._arrays[scene, name]


def block_bytes(window: Window, bands: int, dtype: np.dtype[Any], label: np.dtype[Any] = CLASSES) -> int:
    """Memory that a window takes: its bands, valid and label."""
    return (window[2] - window[0]) * (window[3] - window[1]) * pixel_bytes(bands, dtype, label)


def pixel_bytes(bands: int, dtype: np.dtype[Any], label: np.dtype[Any]) -> int:
    """Memory that a pixel takes: its bands, valid and label."""
    return bands * dtype.itemsize + 1 + label.itemsize
