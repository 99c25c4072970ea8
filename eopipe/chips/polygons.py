"""Group splits by polygon: every polygon of the labels is in one split, and other pixels of its chips are masked.

Polygons are often smaller than a chip, so a chip may be in several splits: of each it has the labels of that split's
polygons only. No label is in two splits; what a chip shows around them may be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from eopipe.arrays import IntArray, UInt8Array
from eopipe.chips.assign import without_empty_splits
from eopipe.chips.chips import blocks_of, chips_reaching, covered_blocks
from eopipe.chips.splits import NO_SPLIT, SPLITS, SplitPlan, assign_at_random
from eopipe.errors import BadInputError
from eopipe.tiles.store import CHIP_SET, NO_LABEL, Tiles


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
        splits[scene] = _without_neighbours(label, _assign(label, plan), plan.buffer).tolist()
    return splits


def _assign(label: Tiles, plan: SplitPlan) -> UInt8Array:
    """The split of each polygon, at random in the fractions within each class, so that every split has every class."""
    class_of = classes_of_shapes(label)
    splits = np.full(len(class_of), NO_SPLIT, np.uint8)
    for number in np.unique(class_of[class_of != NO_LABEL]).tolist():
        members = np.flatnonzero(class_of == number)
        of_class = replace(plan, seed=plan.seed + number)
        splits[members] = without_empty_splits(assign_at_random(len(members), of_class), plan)
    return splits[1:]


def classes_of_shapes(label: Tiles) -> IntArray:
    """The class of shape 1, 2, … of a label store by its number; 255 at 0, and for shapes without a pixel."""
    class_of = np.full(1, NO_LABEL, np.int64)
    for window in blocks_of(label.windows):
        shapes = shape_numbers(label, *window)
        class_of = np.pad(class_of, (0, max(0, int(shapes.max()) + 1 - len(class_of))), constant_values=NO_LABEL)
        class_of[shapes[shapes > 0]] = label.read("label", *window)[shapes > 0]
    return class_of


def shape_numbers(label: Tiles, y: slice, x: slice) -> IntArray:
    """The number of the shape of each labelled pixel (y, x), 0 for none; of one shape a class that is its class."""
    has_polygons = label.has_array("polygon")
    numbers = label.read("polygon" if has_polygons else "label", y, x).astype(np.int64) + (not has_polygons)
    return np.where(label.valid(y, x), numbers, 0)


def _without_neighbours(label: Tiles, splits: UInt8Array, buffer: int) -> UInt8Array:
    """Without val polygons within the buffer of test, and train polygons within the buffer of either."""
    from scipy.ndimage import maximum_filter

    if not buffer:
        return splits
    by_pixel = np.append(np.uint8(NO_SPLIT), splits)
    for name, others in (("val", ("test",)), ("train", ("val", "test"))):
        near = np.zeros(len(by_pixel), bool)
        for window in blocks_of(label.windows):
            starts = [max(axis.start - buffer, 0) for axis in window]
            y, x = (slice(start, axis.stop + buffer) for start, axis in zip(starts, window, strict=True))
            polygons = label.read("polygon", y, x)
            is_other = np.isin(by_pixel[polygons], [SPLITS.index(other) for other in others])
            is_near = maximum_filter(is_other, 2 * buffer + 1, mode="constant")
            inner = tuple(slice(a.start - s, a.stop - s) for a, s in zip(window, starts, strict=True))
            near[polygons[inner][is_near[inner]]] = True
        by_pixel[near & (by_pixel == SPLITS.index(name))] = NO_SPLIT
    return by_pixel[1:]


def polygon_gaps(
    pairs: Sequence[tuple[Any, Tiles]], polygons: dict[str, list[int]], samples: Mapping[str, IntArray], chip: int
) -> dict[str, int]:
    """The gap in pixels between the nearest labelled polygons of every two splits, in the chips of the split.

    It is the Chebyshev distance minus one within a cell; splits that are in no cell together have none.
    """
    from scipy.spatial import cKDTree

    gaps: dict[str, int] = {}
    for label in {label.scene: label for _, label in pairs}.values():
        reached = {name: chips_reaching(label.windows, rows[:, 1:], chip) for name, rows in samples.items()}
        edges = {name: _polygon_edges(label, polygons, name, corners, chip) for name, corners in reached.items()}
        for cell in label.frame.cells:
            left, right = cell.window[1].start, cell.window[1].stop
            of_cell = {name: p[(p[:, 1] >= left) & (p[:, 1] < right)] for name, p in edges.items()}
            for first, second in combinations(SPLITS, 2):
                if len(of_cell[first]) and len(of_cell[second]):
                    distance, _ = cKDTree(of_cell[first]).query(of_cell[second], p=np.inf)
                    key, gap = f"{first}-{second}", int(distance.min()) - 1
                    gaps[key] = min(gaps.get(key, gap), gap)
    return gaps


def _polygon_edges(label: Tiles, polygons: dict[str, list[int]], split: str, corners: IntArray, chip: int) -> IntArray:
    """Row and column (n, 2) of the pixels at the edges of a split's polygons, in chips at some corners."""
    from scipy.ndimage import binary_erosion

    edges = [np.empty((0, 2), np.int64)]
    for (y, x), covered in covered_blocks(corners, chip):
        area = covered & (splits_of_pixels(label, polygons, y, x) == SPLITS.index(split))
        # Beyond a block there may be more of the polygon, so its pixels at the border of the block are too many.
        edges.append(np.argwhere(area & ~binary_erosion(area)) + np.array([y.start, x.start]))
    return np.concatenate(edges)


def splits_of_pixels(
    label: Tiles, polygons: dict[str, list[int]], y: slice = slice(None), x: slice = slice(None)
) -> UInt8Array:
    """The split of each pixel (y, x) of a window by its polygon; 255 for one in none."""
    by_number = np.array([NO_SPLIT, *polygons[label.scene]], np.uint8)
    return np.asarray(by_number[label.read("polygon", y, x)], np.uint8)


def labelled_ground_pixels(
    labels: Sequence[Tiles], samples: IntArray, chip: int, polygons: dict[str, list[int]] | None = None, split: int = 0
) -> int:
    """Labelled pixels on the ground in samples (scene, row, column) of a split, each once for all chips and dates.

    `labels` belong to the scenes, `split` is a number in SPLITS. Where polygons are split only those of the split
    count; the slots in the stores of a chip set are at places of their own. Reads the labels block by block.
    """
    groups = [([*{label.scene: label for label in labels}.values()], samples[:, 1:])]
    if any(CHIP_SET in label.attributes for label in labels):
        groups = [([label], samples[samples[:, 0] == number, 1:]) for number, label in enumerate(labels)]
    total = 0
    for stores, corners in groups:
        for window, covered in covered_blocks(corners, chip):
            labelled = np.zeros_like(covered)
            for label in stores:
                of_label = label.valid(*window)
                labelled |= of_label & (splits_of_pixels(label, polygons, *window) == split) if polygons else of_label
            total += int(np.count_nonzero(labelled & covered))
    return total


def polygon_numbers(polygons: Mapping[str, list[int]], label: Tiles, name: str) -> IntArray:
    """The numbers of the polygons of a split in a label store."""
    return np.flatnonzero(np.array(polygons[label.scene]) == SPLITS.index(name)) + 1
