"""Read chips from tile stores into memory of the caller, with a cache of decoded windows within a memory budget."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, UInt8Array
from eopipe.chips.chips import Normaliser, apply_symmetry
from eopipe.errors import BadInputError
from eopipe.tiles.shard_reader import ArrayReader, open_array
from eopipe.tiles.store import NO_LABEL, Tiles

# Arrays kept open; each may keep some shards open.
MAX_OPEN_ARRAYS = 48
LABEL_ARRAYS = ("label", "polygon")
Bounds = tuple[int, int, int, int]
CLASS_DTYPE, VALUE_DTYPE = np.dtype(np.uint8), np.dtype(np.float32)


@dataclass(frozen=True)
class ChipSource:
    """Source of the chips of a scene: folders of its stores, indices of the selected bands, scale and offset.

    With `polygons`, the numbers of those that have labels, pixels of all others have none.
    """

    tiles: str
    labels: str
    bands: tuple[int, ...]
    scaling: tuple[float, float]
    polygons: tuple[int, ...] | None = None


def chip_sources(pairs: Sequence[tuple[Tiles, Tiles]], bands: tuple[str, ...]) -> list[ChipSource]:
    """Chip sources with the bands selected by name; raises BadInputError where a scene lacks a band."""
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

    def __getitem__(self, index: Any) -> "ChipArrays":
        """Index all three arrays alike."""
        return ChipArrays(self.image[index], self.valid[index], self.label[index])


def view_chips(
    memory: UInt8Array, shape: tuple[int, int], bands: int, dtype: np.dtype[Any], label_dtype: np.dtype[Any]
) -> ChipArrays:
    """Arrays over (y, x) as views of memory that may be larger, see `window_bytes`."""
    pixels = shape[0] * shape[1]
    sizes = [pixels * bands * dtype.itemsize, pixels * label_dtype.itemsize, pixels]
    image, label, valid, _ = np.split(memory, np.cumsum(sizes))
    stored = image.view(dtype).reshape(bands, *shape)
    return ChipArrays(stored, valid.reshape(shape), label.view(label_dtype).reshape(shape))


@dataclass(frozen=True)
class ChipRequest:
    """Chips of one scene to read: their positions in the batch, and their corners (row, column).

    All are within `window` (top, left, bottom, right), which is cached in memory (None: not cached). `symmetries` are
    applied to finished chips only.
    """

    scene: int
    window: Bounds | None
    positions: Sequence[int]
    corners: Sequence[tuple[int, int]]
    symmetries: Sequence[int]


@dataclass(frozen=True)
class CachedWindow:
    """A decoded window, and the memory that contains it."""

    memory: UInt8Array
    chips: ChipArrays


@dataclass
class ChipReader:
    """Reads chips; caches decoded windows up to a budget in bytes (least recently used).

    With a normaliser it returns finished chips, as the model sees them.
    """

    sources: Sequence[ChipSource]
    chip: int
    dtype: np.dtype[Any]
    budget: int
    label_dtype: np.dtype[Any] = CLASS_DTYPE
    normaliser: Normaliser | None = None
    _arrays: "OrderedDict[tuple[int, str], ArrayReader]" = field(default_factory=OrderedDict)
    _cache: "OrderedDict[tuple[int, Bounds], CachedWindow]" = field(default_factory=OrderedDict)
    _largest: int = 0

    def read(self, request: ChipRequest, out: ChipArrays) -> None:
        """Fill the chips of a request into a batch (n, …)."""
        for position, corner, symmetry in zip(request.positions, request.corners, request.symmetries, strict=True):
            target = out[position]
            if self.normaliser:
                finish_chip(
                    self._stored_chip(request, corner, self._buffer),
                    target,
                    self.normaliser,
                    self._scaling(request),
                    symmetry,
                )
            elif request.window:
                copy_chip(self._stored_chip(request, corner, target), target)
            else:
                self._stored_chip(request, corner, target)

    def _stored_chip(self, request: ChipRequest, corner: tuple[int, int], buffer: ChipArrays) -> ChipArrays:
        """A chip as stored: a view of its cached window, else read into `buffer`."""
        if not request.window:
            self._read_window(request.scene, *corner, buffer)
            return buffer
        y, x = corner[0] - request.window[0], corner[1] - request.window[1]
        return self._cached_window(request.scene, request.window)[..., y : y + self.chip, x : x + self.chip]

    def _scaling(self, request: ChipRequest) -> tuple[float, float]:
        scale, offset = self.sources[request.scene].scaling
        return scale, offset

    @cached_property
    def _buffer(self) -> ChipArrays:
        bands, edges = len(self.sources[0].bands), (self.chip, self.chip)
        memory = np.empty(window_bytes((0, 0, *edges), bands, self.dtype, self.label_dtype), np.uint8)
        return view_chips(memory, edges, bands, self.dtype, self.label_dtype)

    def _cached_window(self, scene: int, window: Bounds) -> ChipArrays:
        key = (scene, window)
        if key not in self._cache:
            top, left, bottom, right = window
            bands = len(self.sources[scene].bands)
            memory = self._memory(window_bytes(window, bands, self.dtype, self.label_dtype))
            chips = view_chips(memory, (bottom - top, right - left), bands, self.dtype, self.label_dtype)
            self._read_window(scene, top, left, chips)
            self._cache[key] = CachedWindow(memory, chips)
        self._cache.move_to_end(key)
        return self._cache[key].chips

    def _memory(self, size: int) -> UInt8Array:
        """Memory of an evicted window if it is large enough, else new memory; new pages cost as much as a copy.

        Windows are evicted first, so that the cache never exceeds the budget.
        """
        self._largest, capacity = max(self._largest, size), size
        while self._cache and self.cached_bytes + size > self.budget:
            evicted = self._cache.popitem(last=False)[1].memory
            if evicted.nbytes >= size:
                return evicted
            del evicted
            # Windows have similar sizes: memory large enough for all will be reused.
            capacity = max(size, min(self._largest, self.budget - self.cached_bytes))
        return np.empty(capacity, np.uint8)

    @property
    def cached_bytes(self) -> int:
        """Bytes of all cached windows."""
        return sum(window.memory.nbytes for window in self._cache.values())

    def _read_window(self, scene: int, row: int, column: int, out: ChipArrays) -> None:
        self._array(scene, "image").read(out.image, row, column, self.sources[scene].bands)
        self._array(scene, "valid").read(out.valid, row, column, ())
        self._array(scene, "label").read(out.label, row, column, ())
        if (polygons := self.sources[scene].polygons) is not None:
            numbers = np.empty(out.label.shape, np.int32)
            self._array(scene, "polygon").read(numbers, row, column, ())
            out.label[~np.isin(numbers, polygons)] = NO_LABEL

    def _array(self, scene: int, name: str) -> ArrayReader:
        if (scene, name) not in self._arrays:
            source = self.sources[scene]
            self._arrays[scene, name] = open_array(Path(source.labels if name in LABEL_ARRAYS else source.tiles) / name)
            if len(self._arrays) > MAX_OPEN_ARRAYS:
                self._arrays.popitem(last=False)
        self._arrays.move_to_end((scene, name))
        return self._arrays[scene, name]


def copy_chip(chip: ChipArrays, out: ChipArrays) -> None:
    """Copy a chip as stored."""
    out.image[...], out.valid[...], out.label[...] = chip.image, chip.valid, chip.label


def finish_chip(
    chip: ChipArrays, out: ChipArrays, normaliser: Normaliser, scaling: tuple[float, float], symmetry: int
) -> None:
    """Finish a chip as the model sees it: symmetry first, on the stored type, then normalised as in prediction."""
    valid = apply_symmetry(chip.valid, symmetry) != 0
    normaliser.fill(out.image, apply_symmetry(chip.image, symmetry), scaling, valid)
    out.valid[...], out.label[...] = valid, apply_symmetry(chip.label, symmetry)
    if not valid.all():
        out.label[~valid] = np.nan if out.label.dtype.kind == "f" else NO_LABEL


def window_bytes(window: Bounds, bands: int, dtype: np.dtype[Any], label_dtype: np.dtype[Any] = CLASS_DTYPE) -> int:
    """Memory of a window in bytes."""
    return (window[2] - window[0]) * (window[3] - window[1]) * pixel_bytes(bands, dtype, label_dtype)


def pixel_bytes(bands: int, dtype: np.dtype[Any], label_dtype: np.dtype[Any]) -> int:
    """Memory of a pixel in bytes: its bands, valid and label."""
    return bands * dtype.itemsize + 1 + label_dtype.itemsize
