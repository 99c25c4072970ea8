"""Pixels of many chips, read block by block: memory holds one block, time follows what the chips cover."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, IntArray
from eopipe.tiles.grid import PixelWindow, parts_of

# Edge in pixels of the blocks in which chips are counted, and of those in which each covered pixel is read once; a
# larger chip is a block by itself.
BLOCK, COVERED_BLOCK = 2048, 1024


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
