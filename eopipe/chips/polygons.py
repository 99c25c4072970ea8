"""Group splits by polygon: every polygon of the labels is in one split, and other pixels of its chips are masked.

Polygons are often smaller than a chip, so a chip may be in several splits: of each it has the labels of that split's
polygons only. No label is in two splits; what a chip shows around them may be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, Int32Array, IntArray, UInt8Array
from eopipe.chips.groups import without_empty_splits
from eopipe.chips.splits import NO_SPLIT, SPLITS, SplitPlan, assign_at_random, covered_pixels
from eopipe.errors import BadInputError
from eopipe.tiles.store import NO_LABEL, Tiles

# Edge in pixels of the blocks in which labels are counted.
GROUND_BLOCK = 1024


def split_polygons(labels: Sequence[Tiles], plan: SplitPlan) -> dict[str, list[int]]:
    """The split of polygon 1, 2, … of each label store, by its scene; 255 for a polygon in no split.

    Raises BadInputError for labels that have no polygons.
    """
    stores = {label.scene: label for label in labels}
    splits = {}
    for scene, label in sorted(stores.items()):
        if not label.has_array("polygon"):
            raise BadInputError(
                f"{label.path} has no polygons, so split.by polygon cannot be used; give classes of a vector "
                "file with several shapes of a class"
            )
        polygons, classes = label.read("polygon"), label.read("label")
        splits[scene] = _without_neighbours(polygons, _assign(polygons, classes, plan), plan.buffer).tolist()
    return splits


def _assign(polygons: Int32Array, classes: AnyArray, plan: SplitPlan) -> UInt8Array:
    """The split of each polygon, at random in the fractions within each class, so that every split has every class."""
    class_of = np.full(int(polygons.max()) + 1, NO_LABEL, np.int64)
    class_of[polygons[polygons > 0]] = classes[polygons > 0]
    splits = np.full(len(class_of), NO_SPLIT, np.uint8)
    for number in np.unique(class_of[class_of != NO_LABEL]).tolist():
        members = np.flatnonzero(class_of == number)
        of_class = replace(plan, seed=plan.seed + number)
        splits[members] = without_empty_splits(assign_at_random(len(members), of_class), plan)
    return splits[1:]


def _without_neighbours(polygons: Int32Array, splits: UInt8Array, buffer: int) -> UInt8Array:
    """Without val polygons within the buffer of test, and train polygons within that of both."""
    from scipy.ndimage import maximum_filter

    if not buffer:
        return splits
    by_pixel = np.append(np.uint8(NO_SPLIT), splits)
    for name, others in (("val", ("test",)), ("train", ("val", "test"))):
        is_other = np.isin(by_pixel[polygons], [SPLITS.index(other) for other in others])
        near = np.unique(polygons[maximum_filter(is_other, 2 * buffer + 1, mode="constant")])
        near = near[by_pixel[near] == SPLITS.index(name)]
        by_pixel[near] = NO_SPLIT
    return by_pixel[1:]


def polygon_gaps(
    pairs: Sequence[tuple[Any, Tiles]], polygons: dict[str, list[int]], samples: Mapping[str, IntArray], chip: int
) -> dict[str, int]:
    """The gap in pixels between the nearest labelled polygons of every two splits, in the chips of the split.

    It is the Chebyshev distance minus one within a cell; splits that are in no cell together have none.
    """
    from scipy.ndimage import distance_transform_cdt

    areas = {name: covered_pixels(pairs[0][1].shape, rows, chip) for name, rows in samples.items()}
    gaps: dict[str, int] = {}
    for label in {label.scene: label for _, label in pairs}.values():
        for cell in label.frame.cells:
            splits = splits_of_pixels(label, polygons, *cell.window)
            of_cell = {name: areas[name][cell.window] & (splits == SPLITS.index(name)) for name in SPLITS}
            for first, second in combinations(SPLITS, 2):
                if of_cell[first].any() and of_cell[second].any():
                    distance = distance_transform_cdt(~of_cell[first], "chessboard")[of_cell[second]].min()
                    key = f"{first}-{second}"
                    gaps[key] = min(gaps.get(key, int(distance) - 1), int(distance) - 1)
    return gaps


def splits_of_pixels(
    label: Tiles, polygons: dict[str, list[int]], y: slice = slice(None), x: slice = slice(None)
) -> UInt8Array:
    """The split of each pixel (y, x) of a window by its polygon; 255 for one in none."""
    by_number = np.array([NO_SPLIT, *polygons[label.scene]], np.uint8)
    return np.asarray(by_number[label.read("polygon", y, x)], np.uint8)


def labelled_ground_pixels(
    labels: Sequence[Tiles], samples: IntArray, chip: int, polygons: dict[str, list[int]] | None = None
) -> int:
    """Labelled pixels on the ground in training samples (scene, row, column), each once for all chips and dates.

    Of split polygons only those of the training count. Reads the labels block by block.
    """
    corners = np.unique(samples[:, 1:], axis=0)
    edge, total = max(GROUND_BLOCK, chip), 0
    shape = labels[0].shape
    offsets = [np.array(corner) * (chip - 1) for corner in np.ndindex(2, 2)]
    blocks = np.unique(np.concatenate([(corners + offset) // edge for offset in offsets]), axis=0)
    for row, column in (blocks * edge).tolist():
        bottom, right = min(row + edge, shape[0]), min(column + edge, shape[1])
        inside = (corners > [row - chip, column - chip]).all(1) & (corners < [bottom, right]).all(1)
        covered = np.zeros((bottom - row, right - column), bool)
        for y, x in (corners[inside] - [row, column]).tolist():
            covered[max(0, y) : y + chip, max(0, x) : x + chip] = True
        window = slice(row, bottom), slice(column, right)
        labelled = np.zeros_like(covered)
        for label in labels:
            of_label = label.read("valid", *window) > 0
            labelled |= of_label & (splits_of_pixels(label, polygons, *window) == 0) if polygons else of_label
        total += int(np.count_nonzero(labelled & covered))
    return total


def polygon_numbers(polygons: Mapping[str, list[int]], label: Tiles, name: str) -> IntArray:
    """The numbers of the polygons of a split in a label store."""
    return np.flatnonzero(np.array(polygons[label.scene]) == SPLITS.index(name)) + 1
