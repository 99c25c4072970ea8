"""Chips of two cells that are neighbours on the ground, though they are far apart in the frame of the run.

A chip of another cell is turned against the pixels of this one, so it counts with the box around its corners.
"""

import numpy as np

from eopipe.arrays import Float64Array, IntArray, UInt8Array
from eopipe.chips.splits import NO_SPLIT, SPLITS, SplitPlan
from eopipe.tiles.cells import Cell, Frame


def gaps_across_cells(frame: Frame, first: IntArray, second: IntArray, chip: int) -> tuple[Float64Array, IntArray]:
    """For each chip (row, column) of `second`: the gap in pixels to the nearest chip of `first` in another cell.

    Also the number of that chip. The gap is negative where they overlap, and infinite without chips in other cells.
    """
    from scipy.spatial import cKDTree

    gaps, nearest = np.full(len(second), np.inf), np.zeros(len(second), np.int64)
    for cell in frame.cells:
        numbers = np.flatnonzero(_is_in(cell, first))
        if not len(numbers):
            continue
        tree = cKDTree(first[numbers] + chip / 2)
        for other in frame.cells:
            chosen = np.flatnonzero(_is_in(other, second)) if other is not cell else np.empty(0, np.int64)
            if not len(chosen):
                continue
            centres, halves = _boxes_in(cell, other, second[chosen], chip)
            distance, index = tree.query(centres, p=np.inf)
            gap = distance - (chip / 2 + halves)
            is_closer = gap < gaps[chosen]
            gaps[chosen[is_closer]] = gap[is_closer]
            nearest[chosen[is_closer]] = numbers[index[is_closer]]
    return gaps, nearest


def _is_in(cell: Cell, corners: IntArray) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    columns = cell.window[1]
    return np.asarray((corners[:, 1] >= columns.start) & (corners[:, 1] < columns.stop))


def _boxes_in(cell: Cell, other: Cell, corners: IntArray, chip: int) -> tuple[Float64Array, Float64Array]:
    """Chips of another cell as boxes in the frame, where they would be if this cell extended so far.

    Centres (n, 2) as row and column, and half of the longer edge (n,).
    """
    from pyproj import Transformer

    steps = np.array([(0, 0), (0, chip), (chip, 0), (chip, chip)])
    positions = (corners[:, None] + steps - (0, other.column)).reshape(-1, 2)
    change = Transformer.from_crs(str(other.grid.crs), str(cell.grid.crs), always_xy=True)
    x, y = change.transform(*(other.grid.affine * (positions[:, 1], positions[:, 0])))
    columns, rows = ~cell.grid.affine * (x, y)
    boxes = np.stack([rows, columns + cell.column], -1).reshape(-1, 4, 2)
    low, high = boxes.min(1), boxes.max(1)
    # A place that the CRS cannot express is far away.
    is_finite = np.isfinite(low).all(1) & np.isfinite(high).all(1)
    centres = np.where(is_finite[:, None], (low + high) / 2, -1e12)
    return centres, np.where(is_finite, (high - low).max(1) / 2, 0.0)


def without_neighbours_across(samples: IntArray, splits: UInt8Array, frame: Frame, plan: SplitPlan) -> UInt8Array:
    """Remove val chips within the buffer of test chips of another cell, and train chips within that of both."""
    for name, others in (("val", ("test",)), ("train", ("val", "test"))):
        numbers = np.flatnonzero(splits == SPLITS.index(name))
        is_other = np.isin(splits, [SPLITS.index(other) for other in others])
        gaps, _ = gaps_across_cells(frame, samples[is_other, 1:], samples[numbers, 1:], plan.chip)
        splits[numbers[gaps < plan.buffer]] = NO_SPLIT
    return splits
