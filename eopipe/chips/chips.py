"""Chips: tile stores with their label stores, pixels block by block, the class of a chip, and its normalised pixels.

Where there are no data a model has the nearest pixel that has some, in training as in prediction. Memory holds one
block of many chips, and time follows what they cover.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray, IndexArray, IntArray
from eopipe.errors import BadInputError
from eopipe.tiles.grid import PixelWindow, parts_of
from eopipe.tiles.store import NO_LABEL, Tiles

# Edge in pixels of the blocks in which chips are counted, and of those in which each covered pixel is read once; a
# larger chip is a block by itself.
BLOCK, COVERED_BLOCK = 2048, 1024
# How invalid pixels are filled, by the name in a model's item; models from before the second one name none.
ZERO, NEAREST = "zero", "nearest"
Fill = Callable[[AnyArray, BoolArray, int | None], None]


def blocks_of(windows: Sequence[PixelWindow]) -> Iterator[PixelWindow]:
    """Windows cut into blocks."""
    return (block for window in windows for block in parts_of(window, BLOCK))


def blocks_of_chips(corners: IntArray, chip: int) -> Iterator[tuple[IntArray, PixelWindow]]:
    """Chips (n, 2) in blocks of neighbours: their numbers in rising order, and the window that they cover."""
    block = corners // max(BLOCK, chip)
    for numbers in _groups(block, np.arange(len(corners))):
        (top, left), (bottom, right) = corners[numbers].min(0).tolist(), (corners[numbers].max(0) + chip).tolist()
        yield numbers, (slice(top, bottom), slice(left, right))


def covered_blocks(corners: IntArray, chip: int, multiple: int = 1) -> Iterator[tuple[PixelWindow, BoolArray]]:
    """Windows of the frame that do not overlap, row by row, and the masks (y, x) of the pixels that chips cover.

    Each window is around the covered pixels of its block, and without its parts that are cut by squares of `multiple`
    pixels.
    """
    corners = np.unique(corners, axis=0)
    edge = -(-max(COVERED_BLOCK, chip) // multiple) * multiple
    blocks = np.concatenate([(corners + np.array(end) * (chip - 1)) // edge for end in np.ndindex(2, 2)])
    touching = np.unique(np.column_stack([blocks, np.tile(np.arange(len(corners)), 4)]), axis=0)
    for numbers in _groups(touching[:, :2], touching[:, 2]):
        first, chosen = touching[numbers[0], :2] * edge, corners[touching[numbers, 2]]
        (top, left), (bottom, right) = np.maximum(chosen.min(0), first), np.minimum(chosen.max(0) + chip, first + edge)
        (top, left), (bottom, right) = (
            -(-np.array([top, left]) // multiple) * multiple,
            np.array([bottom, right]) // multiple * multiple,
        )
        if top >= bottom or left >= right:
            continue
        window = slice(int(top), int(bottom)), slice(int(left), int(right))
        yield window, covered_pixels(chosen, chip, window)


def _groups(blocks: IntArray, numbers: IntArray) -> list[IntArray]:
    """The indices of equal blocks (n, 2), by row, column and number."""
    if not len(blocks):
        return []
    order = np.lexsort((numbers, blocks[:, 1], blocks[:, 0]))
    is_first = (np.diff(blocks[order], axis=0) != 0).any(1)
    return np.split(order, np.flatnonzero(is_first) + 1)


def chips_reaching(windows: Sequence[PixelWindow], corners: IntArray, chip: int) -> IntArray:
    """The chips (n, 2) that reach any of some windows."""
    numbers = np.unique(np.concatenate([chips_in(corners, chip, window) for window in windows]))
    reaching: IntArray = corners[numbers]
    return reaching


def chips_in(corners: IntArray, chip: int, window: PixelWindow) -> IntArray:
    """The numbers of the chips (n, 2) that reach a window."""
    (top, bottom), (left, right) = ((axis.start, axis.stop) for axis in window)
    return np.flatnonzero((corners > [top - chip, left - chip]).all(1) & (corners < [bottom, right]).all(1))


def windows_with_chips(windows: Sequence[PixelWindow], corners: IntArray, chip: int) -> list[PixelWindow]:
    """The windows that a chip (n, 2) of `chip` pixels reaches, in their order."""
    corners = corners[np.argsort(corners[:, 0], kind="stable")]
    reached = []
    for y, x in windows:
        first, last = np.searchsorted(corners[:, 0], [y.start - chip + 1, y.stop])
        columns = corners[first:last, 1]
        if ((columns > x.start - chip) & (columns < x.stop)).any():
            reached.append((y, x))
    return reached


def chip_counts(mask: BoolArray, corners: IntArray, chip: int) -> IntArray:
    """Number of set pixels of a mask (y, x) in each chip."""
    counts = np.zeros(len(corners), np.int64)
    for row in np.unique(corners[:, 0]):
        in_row = corners[:, 0] == row
        columns = np.pad(mask[row : row + chip].sum(0, dtype=np.int64).cumsum(), (1, 0))
        left = corners[in_row, 1]
        counts[in_row] = columns[left + chip] - columns[left]
    return counts


def min_usable_pixels(min_valid: float, pixels: Any) -> Any:
    """The valid, labelled pixels that chips need, by their pixels: at least one."""
    return np.maximum(1.0, min_valid * pixels)


def class_counts(usable: BoolArray, numbers: AnyArray | None, corners: IntArray, chip: int, classes: int) -> IntArray:
    """Usable pixels of each class (n, classes) in the chips at these corners of a window.

    `numbers` (y, x) are the classes' numbers; None counts all usable pixels as one class.
    """
    if numbers is None:
        return chip_counts(usable, corners, chip)[:, None]
    of_class = np.where(usable, numbers, classes)
    counts = np.zeros((len(corners), classes), np.int64)
    for row, (y, x) in zip(counts, corners.tolist(), strict=True):
        row[:] = np.bincount(of_class[y : y + chip, x : x + chip].ravel(), minlength=classes)[:classes]
    return counts


def covered_pixels(corners: IntArray, chip: int, window: PixelWindow) -> BoolArray:
    """The pixels (y, x) of a window that chips at some corners cover."""
    mask = np.zeros(tuple(axis.stop - axis.start for axis in window), bool)
    for y, x in (corners[chips_in(corners, chip, window)] - [axis.start for axis in window]).tolist():
        mask[max(y, 0) : y + chip, max(x, 0) : x + chip] = True
    return mask


def pair_stores(tiles: tuple[Path, ...], labels: tuple[Path, ...]) -> list[tuple[Tiles, Tiles]]:
    """Pair every tile store with the label store of its scene, or with the one of all scenes.

    Sorted by scene; raises BadInputError for different grids or classes, missing labels or a scene given twice.
    """
    stores = {store.scene: store for store in map(Tiles, tiles)}
    label_stores = {store.scene: store for store in map(Tiles, labels)}
    if len(stores) < len(tiles) or len(label_stores) < len(labels):
        raise BadInputError("the same scene is given twice among the tiles or labels")
    missing = sorted(scene for scene in stores if not label_stores.keys() & {scene, ""})
    if missing:
        available = ", ".join(sorted(label_stores))
        raise BadInputError(f"no labels of scene {', '.join(missing)}; there are labels of {available}")
    pairs = [(stores[scene], label_stores.get(scene) or label_stores[""]) for scene in sorted(stores)]
    _check_pairs(pairs)
    return pairs


def has_value(numbers: AnyArray) -> BoolArray:
    """Mask of pixels of a label or map with a class number or a value."""
    return np.asarray(np.isfinite(numbers) if numbers.dtype.kind == "f" else numbers != NO_LABEL)


def read_truth(label: Tiles, y: slice, x: slice) -> AnyArray:
    """Class numbers or values (y, x) of labels in a window; 255 or NaN where there is none."""
    numbers = label.read("label", y, x)
    return np.where(label.valid(y, x), numbers, np.nan if numbers.dtype.kind == "f" else NO_LABEL)


def is_continuous(labels: Tiles) -> bool:
    """Whether labels are values of a quantity (float, NaN where unlabelled), not class numbers."""
    return bool(labels.array("label").dtype.kind == "f")


def quantity_of(labels: Tiles) -> str:
    """The quantity that labels measure; empty where they are classes."""
    return labels.names[0] if is_continuous(labels) else ""


def unit_of(labels: Tiles) -> str:
    """The unit of continuous labels; empty if they have none."""
    return str(labels.attributes.get("unit", ""))


def _check_pairs(pairs: list[tuple[Tiles, Tiles]]) -> None:
    """Check that chip positions and class numbers mean the same in all stores."""
    frame, first = pairs[0][0].frame, pairs[0][1]
    elsewhere = [store for pair in pairs for store in pair if not store.frame.is_same(frame)]
    if elsewhere:
        raise BadInputError(
            f"tiles and labels are on different grids: {', '.join(str(store.path) for store in elsewhere)} "
            f"and {pairs[0][0].path}; create all of them with one grid"
        )
    for image, label in pairs:
        image.array("image")
        label.array("label")
        if is_continuous(label) != is_continuous(first) or unit_of(label) != unit_of(first):
            raise BadInputError(f"{label.path} and {first.path} have different units, or only one is continuous")
        if label.names != first.names:
            raise BadInputError(
                f"{label.path} has the classes {', '.join(label.names)}, "
                f"{first.path} has {', '.join(first.names)}; create all labels with the same classes"
            )


@dataclass(frozen=True)
class Normaliser:
    """Mean and standard deviation of each band in physical units, from training chips only."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, stored: AnyArray, scaling: tuple[float, float], valid: BoolArray) -> FloatArray:
        """Normalise stored numbers (band, y, x) to about zero mean and unit variance; invalid pixels become 0."""
        out = np.empty(stored.shape, np.float32)
        self.fill(out, stored, scaling, valid)
        return out

    def fill(self, out: FloatArray, stored: AnyArray, scaling: tuple[float, float], valid: BoolArray) -> None:
        """Normalise into `out`, band by band, so that a band is read from memory once and stays in the cache."""
        scale, offset = map(np.float32, scaling)
        invalid = None if valid.all() else ~valid
        for band, numbers, mean, std in zip(out, stored, self.mean, self.std, strict=True):
            np.copyto(band, numbers, casting="unsafe")
            np.multiply(band, scale, out=band)
            np.add(band, offset, out=band)
            np.subtract(band, np.float32(mean), out=band)
            np.divide(band, np.float32(std), out=band)
            if invalid is not None:
                band[invalid] = 0


# The symmetry that undoes each of the eight: the two quarter turns undo each other, any other one itself.
INVERSE_SYMMETRIES = (0, 1, 2, 3, 4, 6, 5, 7)


def apply_symmetry(array: AnyArray, symmetry: int) -> AnyArray:
    """Apply one of the eight symmetries of the square to the last two axes, as a view."""
    if symmetry & 4:
        array = array.swapaxes(-1, -2)
    return array[..., :: -1 if symmetry & 2 else 1, :: -1 if symmetry & 1 else 1]


def chip_votes_in_area(
    label: AnyArray, usable: BoolArray, area: BoolArray, edge: int, classes: int, min_pixels: float
) -> tuple[IntArray, IntArray]:
    """Chips of `edge` pixels that are completely inside an area (y, x), and their pixels of each class (n, class).

    They are numbered row by row. `usable` marks the pixels of the label that count; a chip needs `min_pixels` of them.
    """
    rows, columns = (length // edge for length in label.shape)
    crop = np.s_[: rows * edge, : columns * edge]
    y, x = np.nonzero(usable[crop])
    votes = count_votes(y // edge * columns + x // edge, label[y, x], (rows * columns, classes))
    is_whole = area[crop].reshape(rows, edge, columns, edge).all((1, 3)).ravel()
    chosen = np.flatnonzero(is_whole & (votes.sum(1) >= min_pixels))
    return chosen, votes[chosen]


def count_votes(chips: AnyArray, classes: AnyArray, shape: tuple[int, int]) -> IntArray:
    """Counts (chip, class) of pixels (n,), or of any two numbers of each."""
    flat = chips.astype(np.int64) * shape[1] + classes.astype(np.int64)
    return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)


def class_numbers(label: Tiles, y: slice, x: slice) -> AnyArray | None:
    """Class numbers (y, x) of a window; None of continuous labels, all of which count as one class."""
    return None if is_continuous(label) else label.read("label", y, x)


def chip_votes(pairs: list[tuple[Tiles, Tiles]], samples: IntArray, chip: int) -> IntArray:
    """The number of labelled and valid pixels of each class (n, class) in each sample (scene, row, column)."""
    classes = len(pairs[0][1].names)
    votes = np.zeros((len(samples), classes), np.int64)
    for scene in np.unique(samples[:, 0]):
        image, label = pairs[scene]
        of_scene = np.flatnonzero(samples[:, 0] == scene)
        for numbers, (y, x) in blocks_of_chips(samples[of_scene, 1:], chip):
            chosen = of_scene[numbers]
            usable, inside = image.valid(y, x) & label.valid(y, x), samples[chosen, 1:] - (y.start, x.start)
            votes[chosen] = class_counts(usable, class_numbers(label, y, x), inside, chip, classes)
    return votes


def fill_nearest(image: AnyArray, valid: BoolArray, reach: int | None = None) -> None:
    """Give each invalid pixel of an image (band, y, x) the values of the nearest valid one (mask y, x), in place.

    Distances are the larger one of rows and columns; among equals it is the pixel above, then the one on the left.
    Pixels with no valid one within `reach` pixels (None: in the image) stay as they are. Where all valid pixels within
    `reach` of an invalid one are in the image its values depend on its place alone, not on where the image ends.
    """
    if reach == 0 or valid.all() or not valid.any():
        return
    copy_pixels(image, *nearest_valid(valid, reach))


def copy_pixels(image: AnyArray, rows_columns: IndexArray, of: IndexArray) -> None:
    """Give pixels at rows and columns (2, n) of an image (band, y, x) the values of others, in place."""
    for band in image:
        band[*rows_columns] = band[*of]


def nearest_valid(valid: BoolArray, reach: int | None, margin: int = 0) -> tuple[IndexArray, IndexArray]:
    """Rows and columns (2, n) of the invalid pixels of a mask (y, x) that are filled, and of the pixels that they take.

    Those within `margin` pixels of the edges of the mask are not filled.
    All pixels that are nearer than the nearest valid one are invalid. So that one is in the top row of the square of
    this distance, or else in its left and right columns, or else in its bottom row.
    """
    from scipy.ndimage import distance_transform_cdt

    height, width = valid.shape
    distance = distance_transform_cdt(~valid, "chessboard")
    inner = distance[margin : height - margin, margin : width - margin]
    rows, columns = (axis + margin for axis in np.nonzero(inner if reach is None else (inner > 0) & (inner <= reach)))
    radius = distance[rows, columns].astype(np.intp)
    # The next valid column from a pixel on in its row, and the next valid row in its column; outside of the mask none.
    none = height + width
    y, x = np.arange(height, dtype=np.int32)[:, None], np.arange(width, dtype=np.int32)[None]
    column_from = np.full((height + 1, width), 2 * none, np.int32)
    column_from[:height] = np.minimum.accumulate(np.where(valid, x, np.int32(2 * none))[:, ::-1], 1)[:, ::-1]
    row_from = np.full((height, width + 1), 2 * none, np.int32)
    row_from[:, :width] = np.minimum.accumulate(np.where(valid, y, np.int32(2 * none))[::-1], 0)[::-1]
    left, right = columns - radius, columns + radius
    first, beyond_left = np.maximum(left, 0), np.where(left < 0, width, left)
    from_row = np.maximum(rows - radius, 0)
    on_left, on_right = row_from[from_row, beyond_left], row_from[from_row, np.minimum(right, width)]
    beside = np.minimum(on_left, on_right)
    above = column_from[np.where(rows < radius, height, rows - radius), first]
    below = column_from[np.minimum(rows + radius, height), first]
    # The two columns begin in the top row, where the corner on the left is that row's first.
    choices = [above <= right, beside < rows + radius]
    source_rows = np.select(choices, [rows - radius, beside], rows + radius)
    source_columns = np.select(choices, [above, np.where(on_left <= on_right, left, right)], below)
    return np.stack([rows, columns]), np.stack([source_rows, source_columns])


def keep_zeros(image: AnyArray, valid: BoolArray, reach: int | None = None) -> None:
    """Leave the image as it is: the normalisation has put zeros where pixels are not valid."""


FILLS: dict[str, Fill] = {ZERO: keep_zeros, NEAREST: fill_nearest}
