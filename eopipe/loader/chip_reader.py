"""Read chips from tile stores into memory of the caller, with a cache of decoded windows within a memory budget.

Batches are in shared memory: a ring buffer of slots that are refilled and never copied between processes.
"""

import mmap
import os
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, IntArray, UInt8Array
from eopipe.chips.chips import INVERSE_SYMMETRIES, Normaliser, apply_symmetry, fill_nearest, has_value
from eopipe.errors import BadInputError
from eopipe.tiles.shard_reader import ArrayReader, open_array
from eopipe.tiles.store import NO_LABEL, Tiles

# Arrays kept open; each may keep some shards open.
MAX_OPEN_ARRAYS = 48
LABEL_ARRAYS = ("label", "polygon")
Bounds = tuple[int, int, int, int]
CLASS_DTYPE, VALUE_DTYPE = np.dtype(np.uint8), np.dtype(np.float32)
PAGE = mmap.PAGESIZE


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
    applied to finished chips only. With `draws`, random numbers, each chip is cropped around one of its labelled
    pixels; the crop stays inside its `bounds` (top, left, bottom, right).
    """

    scene: int
    window: Bounds | None
    positions: Sequence[int]
    corners: Sequence[tuple[int, int]]
    symmetries: Sequence[int]
    draws: Sequence[int] = ()
    bounds: Sequence[Bounds] = ()


class TrainingPlaces:
    """The pixels of the training chips of each scene, from samples (n, 3) of scene, row and column."""

    def __init__(self, samples: IntArray, chip: int) -> None:
        self.chip = chip
        ordered = samples[np.argsort(samples[:, 1], kind="stable")]
        self._corners = {int(scene): ordered[ordered[:, 0] == scene, 1:] for scene in np.unique(samples[:, 0])}

    def mask(self, scene: int, corner: tuple[int, int], edge: int) -> BoolArray:
        """Which pixels (edge, edge) of a window at a corner are in a training chip."""
        corners, mask = self._corners[scene] - np.array(corner), np.zeros((edge, edge), bool)
        first, last = np.searchsorted(corners[:, 0], (1 - self.chip, edge))
        near = corners[first:last]
        for y, x in near[(near[:, 1] > -self.chip) & (near[:, 1] < edge)].tolist():
            mask[max(0, y) : y + self.chip, max(0, x) : x + self.chip] = True
        return mask


@dataclass(frozen=True)
class CachedWindow:
    """A decoded window, and the memory that contains it."""

    memory: UInt8Array
    chips: ChipArrays


@dataclass
class ChipReader:
    """Reads chips; caches decoded windows up to a budget in bytes (least recently used).

    With a normaliser it returns finished chips, as the model sees them. A crop of `crop` pixels has the labels of the
    training `places`; what surrounds them is seen without.
    """

    sources: Sequence[ChipSource]
    chip: int
    dtype: np.dtype[Any]
    budget: int
    label_dtype: np.dtype[Any] = CLASS_DTYPE
    normaliser: Normaliser | None = None
    crop: int = 0
    places: TrainingPlaces | None = None
    _arrays: "OrderedDict[tuple[int, str], ArrayReader]" = field(default_factory=OrderedDict)
    _cache: "OrderedDict[tuple[int, Bounds], CachedWindow]" = field(default_factory=OrderedDict)
    _buffers: dict[int, ChipArrays] = field(default_factory=dict)
    _largest: int = 0

    def edge_of(self, request: ChipRequest) -> int:
        """Edge in pixels of what a request gives."""
        return self.crop if request.draws else self.chip

    def read(self, request: ChipRequest, out: ChipArrays) -> None:
        """Fill the chips of a request into a batch (n, …)."""
        edge = self.edge_of(request)
        for number, position in enumerate(request.positions):
            (row, column), target = request.corners[number], out[position]
            corner = row, column
            if request.draws:
                corner = self._crop_corner(request, corner, request.draws[number], request.bounds[number])
            # A view of the cache is copied before it changes.
            is_read_in_place = not (self.normaliser or request.window)
            chip = self._stored_chip(request, corner, target if is_read_in_place else self._buffer(edge))
            places = self.places.mask(request.scene, corner, edge) if request.draws and self.places else None
            if self.normaliser:
                finish_chip(chip, target, self.normaliser, self._scaling(request), request.symmetries[number], places)
            else:
                if request.window:
                    copy_chip(chip, target)
                fill_nearest(target.image, target.valid != 0)
                if places is not None:
                    target.label[~places] = no_label(target.label)

    def _crop_corner(self, request: ChipRequest, corner: tuple[int, int], draw: int, bounds: Bounds) -> tuple[int, int]:
        """The corner of the crop around the labelled pixel that a random number chooses, inside the bounds."""
        chip = self._stored_chip(request, corner, self._buffer(self.chip), with_image=False)
        labelled = has_value(chip.label) & (chip.valid != 0)
        pixels = np.flatnonzero(labelled)
        row, column = divmod(int(pixels[draw % len(pixels)]), self.chip) if len(pixels) else (self.chip // 2,) * 2
        top, left, bottom, right = bounds
        half = self.crop // 2
        y = min(max(corner[0] + row - half, top), bottom - self.crop)
        return y, min(max(corner[1] + column - half, left), right - self.crop)

    def _stored_chip(
        self, request: ChipRequest, corner: tuple[int, int], buffer: ChipArrays, with_image: bool = True
    ) -> ChipArrays:
        """A chip of the buffer's size as stored: a view of its cached window, else read into `buffer`."""
        if not request.window:
            self._read_window(request.scene, *corner, buffer, with_image)
            return buffer
        y, x = corner[0] - request.window[0], corner[1] - request.window[1]
        edge = buffer.label.shape[-1]
        return self._cached_window(request.scene, request.window)[..., y : y + edge, x : x + edge]

    def _scaling(self, request: ChipRequest) -> tuple[float, float]:
        scale, offset = self.sources[request.scene].scaling
        return scale, offset

    def _buffer(self, edge: int) -> ChipArrays:
        if edge not in self._buffers:
            bands = len(self.sources[0].bands)
            memory = np.empty(window_bytes((0, 0, edge, edge), bands, self.dtype, self.label_dtype), np.uint8)
            self._buffers[edge] = view_chips(memory, (edge, edge), bands, self.dtype, self.label_dtype)
        return self._buffers[edge]

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

    def _read_window(self, scene: int, row: int, column: int, out: ChipArrays, with_image: bool = True) -> None:
        if with_image:
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
    chip: ChipArrays,
    out: ChipArrays,
    normaliser: Normaliser,
    scaling: tuple[float, float],
    symmetry: int,
    places: BoolArray | None = None,
) -> None:
    """Finish a chip as the model sees it: symmetry first, on the stored type, then normalised as in prediction.

    Its pixels without data are filled from its own valid pixels, as they are before the symmetry. Only `places` (y, x)
    keep their label.
    """
    valid = apply_symmetry(chip.valid, symmetry) != 0
    normaliser.fill(out.image, apply_symmetry(chip.image, symmetry), scaling, valid)
    fill_nearest(apply_symmetry(out.image, INVERSE_SYMMETRIES[symmetry]), chip.valid != 0)
    out.valid[...], out.label[...] = valid, apply_symmetry(chip.label, symmetry)
    is_kept = valid if places is None else valid & apply_symmetry(places, symmetry)
    if not is_kept.all():
        out.label[~is_kept] = no_label(out.label)


def no_label(label: AnyArray) -> float:
    """The value of a pixel without a label in an array of labels."""
    return np.nan if label.dtype.kind == "f" else NO_LABEL


def window_bytes(window: Bounds, bands: int, dtype: np.dtype[Any], label_dtype: np.dtype[Any] = CLASS_DTYPE) -> int:
    """Memory of a window in bytes."""
    return (window[2] - window[0]) * (window[3] - window[1]) * pixel_bytes(bands, dtype, label_dtype)


def pixel_bytes(bands: int, dtype: np.dtype[Any], label_dtype: np.dtype[Any]) -> int:
    """Memory of a pixel in bytes: its bands, valid and label."""
    return bands * dtype.itemsize + 1 + label_dtype.itemsize


@dataclass(frozen=True)
class SlotLayout:
    """Layout of the ring: slots, chips per slot, bands, edge of a chip in pixels, types of image and label."""

    slots: int
    chips: int
    bands: int
    chip: int
    dtype: str
    label: str = "u1"

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Bytes of image, valid mask and label of a slot, in whole pages."""
        pixels = self.chips * self.chip**2
        image, label = pixels * self.bands * np.dtype(self.dtype).itemsize, pixels * np.dtype(self.label).itemsize
        return _page_aligned(image), _page_aligned(pixels), _page_aligned(label)

    @property
    def nbytes(self) -> int:
        """Bytes of the ring."""
        return self.slots * sum(self.sizes)


class SharedMemorySlots:
    """Slots in an anonymous file: its memory is freed with the last process that has it open, even a killed one.

    Pages that no batch needs are never allocated.
    """

    def __init__(self, layout: SlotLayout, file: int | None = None) -> None:
        self.layout = layout
        self.file = os.memfd_create("eopipe-ring") if file is None else file
        if file is None:
            os.ftruncate(self.file, layout.nbytes)
        self.memory = mmap.mmap(self.file, layout.nbytes)
        self.slots = [self.batch(number, layout.chip) for number in range(layout.slots)]

    def batch(self, number: int, edge: int) -> ChipArrays:
        """The memory of a slot as chips of an edge in pixels, at most the layout's."""
        layout, (image, valid, label) = self.layout, self.layout.sizes
        start = number * (image + valid + label)
        raster = (layout.chips, edge, edge)
        bands = (layout.chips, layout.bands, edge, edge)

        def view(offset: int, dtype: str, view_shape: tuple[int, ...]) -> Any:
            return np.ndarray(view_shape, dtype, self.memory, start + offset)

        return ChipArrays(
            view(0, layout.dtype, bands), view(image, "u1", raster), view(image + valid, layout.label, raster)
        )


def _page_aligned(size: int) -> int:
    return -(-size // PAGE) * PAGE
