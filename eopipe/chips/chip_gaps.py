"""Gaps between chips: in the frame of a run, across the borders of its cells, or at the true places of a chip set.

`split` keeps chips apart by the gaps that the audit measures. A chip of another cell is turned against the pixels of
this one, so it counts with the box around its corners.
"""

from dataclasses import dataclass

import numpy as np

from eopipe.arrays import Float64Array, IntArray, UInt8Array
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.splits import KEPT_APART, NO_SPLIT
from eopipe.tiles.cells import Cell, Frame

# A distance in pixels that no two chips of one day have.
OTHER_DAY = 1 << 40


@dataclass(frozen=True)
class ChipGaps:
    """How far chips of `chip` pixels are apart; with `places` these are those of a chip set, else they are in a frame.

    `days` has a number for each store where chips of other days are far away.
    """

    chip: int
    frame: Frame | None = None
    places: ChipPlaces | None = None
    days: IntArray | None = None

    def nearest(self, first: IntArray, second: IntArray) -> tuple[Float64Array, IntArray]:
        """For each sample (n, 3) of `second`: the gap in pixels to the nearest of `first`, and that one's number there.

        A gap is of rows or of columns, whichever is larger, and negative where two chips overlap.
        """
        from scipy.spatial import cKDTree

        if self.places:
            return self.places.nearest_pixels(first, second)
        points, others = (self._points(samples) for samples in (first, second))
        corners, number = np.unique(points, axis=0, return_index=True)
        distance, nearest = cKDTree(corners).query(others, p=np.inf)
        gaps, nearest = distance - self.chip, number[nearest]
        if self.frame and len(self.frame.cells) > 1:
            across, neighbour = gaps_across_cells(self.frame, first[:, 1:], second[:, 1:], self.chip)
            nearest = np.where(across < gaps, neighbour, nearest)
            gaps = np.minimum(gaps, across)
        return gaps, nearest

    def _points(self, samples: IntArray) -> IntArray:
        day = np.zeros(len(samples), np.int64) if self.days is None else self.days[samples[:, 0]] * OTHER_DAY
        return np.column_stack([samples[:, 1:], day])

    def keep_apart(self, samples: IntArray, splits: UInt8Array, buffer: int) -> UInt8Array:
        """Remove chips that overlap those of the splits from which theirs is kept apart, or are in the buffer (pixels).

        First val chips near to test chips, then train chips near to those of both.
        """
        for number in sorted(KEPT_APART, reverse=True):
            chosen, is_other = np.flatnonzero(splits == number), np.isin(splits, KEPT_APART[number])
            if len(chosen) and is_other.any():
                gaps, _ = self.nearest(samples[is_other], samples[chosen])
                splits[chosen[gaps < buffer]] = NO_SPLIT
        return splits


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
