"""Candidate chips: positions of the grid, or slots of a chip set, with enough usable pixels.

`split` finds them in stores and `plan` in footprints. Only what images cover is read, block by block, so that time
follows the covered pixels and memory holds one block.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from eopipe.arrays import BoolArray, IntArray, UInt8Array
from eopipe.chips.chip_blocks import blocks_of, blocks_of_chips, chip_counts, class_counts, min_usable_pixels
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.chip_table import SplitImage
from eopipe.chips.chips import class_numbers
from eopipe.chips.polygons import splits_of_pixels
from eopipe.chips.splits import SPLITS, STRIPS, SplitPlan, SplitRequest, chip_corners, chip_positions
from eopipe.labels.shape_counts import SHAPES
from eopipe.tiles.grid import PixelWindow, overlaps, within
from eopipe.tiles.store import LEFT_OUT, Tiles


class MappedImage(SplitImage, Protocol):
    """An image with the windows of the frame outside of which no pixel is valid."""

    @property
    def windows(self) -> Sequence[PixelWindow]:
        """Rows and columns of the frame, which do not overlap."""

    def valid(self, y: slice, x: slice) -> BoolArray:
        """Mask (y, x) of a window of the frame."""


@dataclass(frozen=True)
class CandidateChips:
    """Chips that may become samples (n, 3), their pixels of each class (n, classes), the valid fraction of scenes.

    `split_of_polygons` (n,) is the split of each where polygons are split, else 0. `unlabelled` is the number of chips
    of each scene without a labelled pixel, `positions` the number of all chips that it reaches; `reasons` says for each
    scene why it has no chip at all, and is empty where it may have some.
    """

    samples: IntArray
    pixels: IntArray
    valid: list[float]
    unlabelled: list[int]
    positions: list[int]
    reasons: list[str]
    split_of_polygons: UInt8Array


@dataclass(frozen=True)
class _SceneChips:
    """Chips of one scene: pixels of each class (split, n, classes), and whether enough are usable."""

    pixels: IntArray
    is_enough: BoolArray
    unlabelled: int
    valid_pixels: int
    labelled_pixels: int


def find_candidates(
    images: Sequence[MappedImage],
    labels: Sequence[Tiles | None],
    plan: SplitPlan,
    request: SplitRequest,
    polygons: dict[str, list[int]] | None = None,
    places: ChipPlaces | None = None,
) -> CandidateChips:
    """The chips with enough usable pixels, scene by scene, row by row; none of scenes that are left out.

    For a chip set these are the slots whose chip has enough usable pixels. Where polygons are split, each split has
    the chips that contain pixels of its polygons, and only those pixels count. A label that is not there yet has one
    class everywhere.
    """
    classes, min_valid = len(labels[0].names) if labels[0] else 1, usable_share(request.min_valid, labels)
    # One row for each split of the polygons.
    samples = [[np.empty((0, 3), np.int64)] for _ in range(len(SPLITS) if polygons else 1)]
    pixels = [[np.empty((0, classes), np.int64)] for _ in samples]
    fractions, unlabelled, positions, reasons = list[float](), list[int](), list[int](), list[str]()
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        corners, sizes = _corners(number, image, plan, places)
        chips = _count_chips(image, label, corners, sizes, plan, min_valid, polygons)
        positions.append(len(corners))
        unlabelled.append(chips.unlabelled)
        fractions.append(chips.valid_pixels / math.prod(image.shape))
        reasons.append(_reason_without_chips(image, chips))
        for part, counts in enumerate(chips.pixels if not reasons[-1] else ()):
            chosen = chips.is_enough & (counts.any(1) if polygons else True)
            samples[part].append(np.insert(corners[chosen], 0, number, axis=1))
            pixels[part].append(counts[chosen])
    by_split = [np.concatenate(rows) for rows in samples]
    return CandidateChips(
        np.concatenate(by_split),
        np.concatenate([rows for part in pixels for rows in part]),
        fractions,
        unlabelled,
        positions,
        reasons,
        np.repeat(np.arange(len(by_split), dtype=np.uint8), [len(rows) for rows in by_split]),
    )


def usable_share(min_valid: float | None, labels: Sequence[Tiles | None]) -> float:
    """The share of a chip that must be valid and labelled: without a setting half, of shapes any labelled pixel."""
    if min_valid is not None:
        return min_valid
    return 0.0 if any(label and SHAPES in label.attributes for label in labels) else 0.5


def _corners(number: int, image: MappedImage, plan: SplitPlan, places: ChipPlaces | None) -> tuple[IntArray, IntArray]:
    """Row and column (n, 2) of the chips that an image reaches, row by row, and the pixels (n,) of each."""
    if places:
        return places.corners(number), places.sizes(number)
    cells = [cell for cell in image.frame.cells if plan.chip <= min(cell.shape)]
    if not cells:
        # It says why no chip fits.
        chip_corners(max((cell.shape for cell in image.frame.cells), key=min), plan)
    # Strips over several grids have no edges in common with their chips.
    lattice = plan if len(image.frame.cells) == 1 or plan.method not in STRIPS else replace(plan, method="random")
    parts = [np.empty((0, 2), np.int64)]
    for cell in cells:
        rows_and_columns = chip_positions(cell.shape, lattice)
        for window in (within(window, cell.window) for window in image.windows if overlaps(window, cell.window)):
            axes = (_touching(*axis, plan.chip) for axis in zip(rows_and_columns, window, strict=True))
            corners = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 2)
            parts.append(corners + np.array([0, cell.column]))
    corners = np.concatenate(parts)
    # Chips of several cells too are row by row.
    corners = corners[np.lexsort((corners[:, 1], corners[:, 0]))]
    return corners, np.full(len(corners), plan.chip**2, np.int64)


def _touching(positions: IntArray, window: slice, chip: int) -> IntArray:
    """The positions of chips that reach a window of their axis."""
    if window.start >= window.stop:
        return positions[:0]
    first, last = np.searchsorted(positions, (window.start - chip, window.stop - 1), "right")
    return positions[first:last]


def _count_chips(
    image: MappedImage,
    label: Tiles | None,
    corners: IntArray,
    sizes: IntArray,
    plan: SplitPlan,
    min_valid: float,
    polygons: dict[str, list[int]] | None,
) -> _SceneChips:
    """Count the pixels of the chips of one scene."""
    classes = len(label.names) if label else 1
    pixels = np.zeros((len(SPLITS) if polygons else 1, len(corners), classes), np.int64)
    is_enough, unlabelled, labelled_pixels = np.zeros(len(corners), bool), 0, 0
    for numbers, (y, x) in blocks_of_chips(corners, plan.chip):
        inside = corners[numbers] - (y.start, x.start)
        valid, labelled = image.valid(y, x), label.valid(y, x) if label else image.frame.belonging(y, x)
        usable = valid & labelled
        labelled_pixels += int(np.count_nonzero(labelled))
        unlabelled += int(np.count_nonzero(chip_counts(labelled, inside, plan.chip) == 0))
        enough = chip_counts(usable, inside, plan.chip) >= min_usable_pixels(min_valid, sizes[numbers])
        is_enough[numbers] = enough
        chosen, values = numbers[enough], class_numbers(label, y, x) if label else None
        split_of_pixel = splits_of_pixels(label, polygons, y, x) if polygons and label else None
        for part, counts in enumerate(pixels):
            counted = usable if split_of_pixel is None else usable & (split_of_pixel == part)
            counts[chosen] = class_counts(counted, values, inside[enough], plan.chip, classes)
    # Chips with gaps between them do not cover all of these.
    valid_pixels = sum(int(np.count_nonzero(image.valid(*block))) for block in blocks_of(image.windows))
    return _SceneChips(pixels, is_enough, unlabelled, valid_pixels, labelled_pixels)


def _reason_without_chips(image: MappedImage, chips: _SceneChips) -> str:
    """Why a scene has no chip at all; empty where it may have some."""
    attributes: dict[str, Any] = image.attributes
    if reason := (attributes.get(LEFT_OUT) or {}).get(image.scene):
        return str(reason)
    if not chips.valid_pixels:
        quality = attributes.get("quality") or {}
        return "all pixels are nodata" if quality.get("nodata") == 1 else "all pixels are nodata or masked"
    return "" if chips.labelled_pixels else "no pixel has a label"
