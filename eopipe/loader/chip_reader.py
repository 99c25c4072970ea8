"""Chips cut from stores into memory of the caller's, within a budget of memory."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, UInt8Array
from eopipe.chips.chips import Normaliser
from eopipe.errors import BadInputError
from eopipe.tiles.shard_reader import ArrayReader, open_array
from eopipe.tiles.store import NO_LABEL, Tiles

# Arrays that stay open; each may hold some shards open.
ARRAYS = 48
Bounds = tuple[int, int, int, int]
CLASS_DTYPE, VALUE_DTYPE = np.dtype(np.uint8), np.dtype(np.float32)


@dataclass(frozen=True)
class ChipSource:
    """Where the chips of a scene come from: folders of its stores, number of each band wanted, scale and offset."""

    tiles: str
    labels: str
    bands: tuple[int, ...]
    scaling: tuple[float, float]


def chip_sources(pairs: Sequence[tuple[Tiles, Tiles]], bands: tuple[str, ...]) -> list[ChipSource]:
    """Sources by band name; raises BadInputError where a scene lacks a band."""
    for tiles, _ in pairs:
        missing = [band for band in bands if band not in tiles.names]
        if missing:
            raise BadInputError(f"{tiles.path} has no band {', '.join(missing)}; it has {', '.join(tiles.names)}")
    return [
        ChipSource(str(tiles.path), str(labels.path), tuple(tiles.names.index(band) for band in bands), tiles.scaling)
        for tiles, labels in pairs
    ]


@dataclass(frozen=True)
class ChipArrays:
    """Chips in memory: image (n, band, chip, chip), valid and label (n, chip, chip).

    As they are stored, or as a model sees them: float32, normalised, transformed by a symmetry, with no label where
    invalid. Labels are class numbers, or values (float32).
    """

    image: AnyArray
    valid: AnyArray
    label: AnyArray

    def __getitem__(self, where: Any) -> "ChipArrays":
        """The same part of each."""
        return ChipArrays(self.image[where], self.valid[where], self.label[where])


def view_chips(
    memory: UInt8Array, shape: tuple[int, int], bands: int, dtype: np.dtype[Any], kind: np.dtype[Any]
) -> ChipArrays:
    """Pixels over (y, x) in memory that may be larger, see `window_bytes`; `kind` is the type of labels."""
    pixels = shape[0] * shape[1]
    sizes = [pixels * bands * dtype.itemsize, pixels * kind.itemsize, pixels]
    image, label, valid, _ = np.split(memory, np.cumsum(sizes))
    stored = image.view(dtype).reshape(bands, *shape)
    return ChipArrays(stored, valid.reshape(shape), label.view(kind).reshape(shape))


@dataclass(frozen=True)
class ChipRequest:
    """Chips of one scene to cut: their places in the batch, and their corners (row, column).

    All lie in `window` (top, left, bottom, right), which is kept in memory where it is given. `ways` says how to
    turn each that a model is to see.
    """

    scene: int
    window: Bounds | None
    places: Sequence[int]
    corners: Sequence[tuple[int, int]]
    ways: Sequence[int]


@dataclass(frozen=True)
class CachedWindow:
    """A decoded window, and the memory that it lies in."""

    memory: UInt8Array
    chips: ChipArrays


@dataclass
class ChipReader:
    """Cuts chips; keeps decoded windows up to a budget in bytes, least recently used first out.

    With a normaliser chips come as a model sees them.
    """

    sources: Sequence[ChipSource]
    chip: int
    dtype: np.dtype[Any]
    budget: int
    label: np.dtype[Any] = CLASS_DTYPE
    normaliser: Normaliser | None = None
    _arrays: "OrderedDict[tuple[int, str], ArrayReader]" = field(default_factory=OrderedDict)
    _kept: "OrderedDict[tuple[int, Bounds], CachedWindow]" = field(default_factory=OrderedDict)
    _largest: int = 0

    def cut(self, piece: ChipRequest, into: ChipArrays) -> None:
        """Fill the chips of a request into a batch (n, …)."""
        for place, corner, way in zip(piece.places, piece.corners, piece.ways, strict=True):
            target = into[place]
            if self.normaliser:
                finish_chip(self._chip(piece, corner, self._spare), target, self.normaliser, self._scaling(piece), way)
            elif piece.window:
                copy_chip(self._chip(piece, corner, target), target)
            else:
                self._chip(piece, corner, target)

    def _chip(self, piece: ChipRequest, corner: tuple[int, int], spare: ChipArrays) -> ChipArrays:
        """A chip as stored: a part of its block, else read into the memory that is given."""
        if not piece.window:
            self._read(piece.scene, *corner, spare)
            return spare
        y, x = corner[0] - piece.window[0], corner[1] - piece.window[1]
        return self._block(piece.scene, piece.window)[..., y : y + self.chip, x : x + self.chip]

    def _scaling(self, piece: ChipRequest) -> tuple[float, float]:
        scale, offset = self.sources[piece.scene].scaling
        return scale, offset

    @cached_property
    def _spare(self) -> ChipArrays:
        bands, edges = len(self.sources[0].bands), (self.chip, self.chip)
        memory = np.empty(window_bytes((0, 0, *edges), bands, self.dtype, self.label), np.uint8)
        return view_chips(memory, edges, bands, self.dtype, self.label)

    def _block(self, scene: int, window: Bounds) -> ChipArrays:
        key = (scene, window)
        if key not in self._kept:
            top, left, bottom, right = window
            bands = len(self.sources[scene].bands)
            memory = self._memory(window_bytes(window, bands, self.dtype, self.label))
            block = view_chips(memory, (bottom - top, right - left), bands, self.dtype, self.label)
            self._read(scene, top, left, block)
            self._kept[key] = CachedWindow(memory, block)
        self._kept.move_to_end(key)
        return self._kept[key].chips

    def _memory(self, size: int) -> UInt8Array:
        """Memory of a block that is dropped, if one must be and it is large enough; new pages cost as much as a copy.

        Room is made first, so that no more than the budget is ever held.
        """
        self._largest, room = max(self._largest, size), size
        while self._kept and self.held + size > self.budget:
            old = self._kept.popitem(last=False)[1].memory
            if old.nbytes >= size:
                return old
            del old
            # Blocks are nearly alike: what is large enough for all will be used again.
            room = max(size, min(self._largest, self.budget - self.held))
        return np.empty(room, np.uint8)

    @property
    def held(self) -> int:
        """Bytes of all blocks in memory."""
        return sum(block.memory.nbytes for block in self._kept.values())

    def _read(self, scene: int, row: int, column: int, into: ChipArrays) -> None:
        self._array(scene, "image").read(into.image, row, column, self.sources[scene].bands)
        self._array(scene, "valid").read(into.valid, row, column, ())
        self._array(scene, "label").read(into.label, row, column, ())

    def _array(self, scene: int, name: str) -> ArrayReader:
        if (scene, name) not in self._arrays:
            source = self.sources[scene]
            self._arrays[scene, name] = open_array(Path(source.labels if name == "label" else source.tiles) / name)
            if len(self._arrays) > ARRAYS:
                self._arrays.popitem(last=False)
        self._arrays.move_to_end((scene, name))
        return self._arrays[scene, name]


def copy_chip(chip: ChipArrays, into: ChipArrays) -> None:
    """A chip as it is."""
    into.image[...], into.valid[...], into.label[...] = chip.image, chip.valid, chip.label


def finish_chip(
    chip: ChipArrays, into: ChipArrays, normaliser: Normaliser, scaling: tuple[float, float], way: int
) -> None:
    """A chip as a model sees it: symmetry first, while it is small, then normalised bit by bit as in prediction."""
    valid = apply_symmetry(chip.valid, way) != 0
    normaliser.fill(into.image, apply_symmetry(chip.image, way), scaling, valid)
    into.valid[...], into.label[...] = valid, apply_symmetry(chip.label, way)
    if not valid.all():
        into.label[~valid] = np.nan if into.label.dtype.kind == "f" else NO_LABEL


def apply_symmetry(array: AnyArray, way: int) -> AnyArray:
    """One of the eight symmetries of the square on the last two axes, as a view."""
    if way & 4:
        array = array.swapaxes(-1, -2)
    return array[..., :: -1 if way & 2 else 1, :: -1 if way & 1 else 1]


def window_bytes(window: Bounds, bands: int, dtype: np.dtype[Any], label: np.dtype[Any] = CLASS_DTYPE) -> int:
    """Memory that a window takes."""
    return (window[2] - window[0]) * (window[3] - window[1]) * pixel_bytes(bands, dtype, label)


def pixel_bytes(bands: int, dtype: np.dtype[Any], label: np.dtype[Any]) -> int:
    """Memory that a pixel takes: its bands, valid and label."""
    return bands * dtype.itemsize + 1 + label.itemsize
