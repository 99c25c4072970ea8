"""Candidate chips: positions of the grid, or slots of a chip set, with enough usable pixels; the shapes in them.

`split` finds them in stores and `plan` in footprints. Only what images cover is read, block by block, so that time
follows the covered pixels and memory holds one block.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from eopipe.arrays import BoolArray, IntArray, UInt8Array
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.chip_table import SplitImage
from eopipe.chips.chips import (
    blocks_of,
    blocks_of_chips,
    chip_counts,
    class_counts,
    class_numbers,
    covered_pixels,
    min_usable_pixels,
)
from eopipe.chips.polygons import classes_of_shapes, shape_numbers, splits_of_pixels
from eopipe.chips.splits import NO_SPLIT, SPLITS, STRIPS, SplitPlan, SplitRequest, chip_corners, chip_positions
from eopipe.labels.vectors import SHAPES, UsedShapes
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


class _Shapes:
    """The shapes of a label store: class, how far each comes, and the splits (shape, split) that have it."""

    def __init__(self, label: Tiles, splits: Sequence[int]) -> None:
        """No shape is used yet; `splits` are the split of each where polygons are split, else none."""
        self.label, self.classes = label, classes_of_shapes(label)
        self.splits = np.array([NO_SPLIT, *splits], np.uint8) if splits else None
        self.has_data, self.is_in_chip = np.zeros((2, len(self.classes)), bool)
        self.is_in_split = np.zeros((len(self.classes), len(SPLITS)), bool)

    def add(self, image: MappedImage, samples: IntArray, roles: UInt8Array, chip: int) -> None:
        """Note the shapes of an image, whose candidate chips (n, 2) have roles (n,): a split, or 255."""
        for y, x in blocks_of(image.windows):
            if not self.label.reaches((y, x)):
                continue
            numbers = np.where(image.valid(y, x), shape_numbers(self.label, y, x), 0)
            self.has_data[numbers] = True
            self.is_in_chip[numbers[covered_pixels(samples, chip, (y, x))]] = True
            for number in range(len(SPLITS)):
                shapes = numbers[covered_pixels(samples[roles == number], chip, (y, x))]
                is_own = True if self.splits is None else self.splits[shapes] == number
                self.is_in_split[shapes, number] |= is_own

    def reasons(self) -> Iterator[tuple[str, BoolArray]]:
        """Each reason that is known from pixels, with the shapes (shape,) that it is of."""
        is_apart = self.is_in_chip & ~self.is_in_split.any(1)
        if self.splits is not None:
            is_apart |= self.has_data & (self.splits == NO_SPLIT)
        yield "masked", ~self.has_data
        yield "sparse", self.has_data & ~self.is_in_chip & ~is_apart
        yield "apart", is_apart


def used_shapes(
    images: Sequence[MappedImage],
    labels: Sequence[Tiles],
    samples: IntArray,
    roles: UInt8Array,
    chip: int,
    polygons: Mapping[str, list[int]],
) -> UsedShapes | None:
    """The shapes of each class that are used; None where the labels are of no shapes with classes.

    Users count polygons and points, not chips and pixels. A shape is used in a split where one of its pixels, with a
    label and valid in an image, is in a chip of it; where polygons are split, in a chip of its own split.
    `samples` (n, 3) are candidate chips and `roles` (n,) their splits, 255 for none; `polygons` the splits of polygons.
    """
    stores = {label.scene: label for label in labels}
    of_files = [label.attributes[SHAPES] for label in stores.values() if SHAPES in label.attributes]
    if not of_files or not any(of_file["classes"] for of_file in of_files):
        return None
    shapes = {scene: _Shapes(label, polygons.get(scene, ())) for scene, label in stores.items()}
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        of_image = samples[:, 0] == number
        shapes[label.scene].add(image, samples[of_image, 1:], roles[of_image], chip)
    classes = {name: _count(k, name, of_files, [*shapes.values()]) for k, name in enumerate(labels[0].names)}
    return UsedShapes.model_validate({"kind": of_files[0]["kind"], "classes": classes})


def _count(number: int, name: str, of_files: list[Any], stores: list[_Shapes]) -> dict[str, Any]:
    """The shapes of one class: in the files, used, in each split, and not used by reason."""
    rows = [of_file["classes"][name] for of_file in of_files]
    total, *others = (sum(int(row[key]) for row in rows) for key in ("file", "dates", "outside"))
    labelled = sum(int((store.classes == number).sum()) for store in stores)
    dropped = dict(zip(("dates", "outside", "hidden"), (*others, total - sum(others) - labelled), strict=True))
    for store in stores:
        for reason, is_of_reason in store.reasons():
            count = int((is_of_reason & (store.classes == number)).sum())
            dropped[reason] = dropped.get(reason, 0) + count
    by_split = sum(store.is_in_split[store.classes == number].sum(0) for store in stores)
    splits = dict(zip(SPLITS, np.asarray(by_split).tolist(), strict=True))
    used = total - sum(dropped.values())
    return {"file": total, "used": used, "splits": splits, "dropped": {k: v for k, v in dropped.items() if v}}
