"""Which shapes of the label files a split uses, by class, and why it does not use the others.

Users count polygons and points, not chips and pixels. A shape is used in a split where one of its pixels, with a label
and valid in an image, is in a chip of it; where polygons are split, in a chip of its own split.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, IntArray, UInt8Array
from eopipe.chips.chip_blocks import blocks_of, covered_pixels
from eopipe.chips.splits import NO_SPLIT, SPLITS
from eopipe.labels.shape_counts import SHAPES, UsedShapes
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.store import NO_LABEL, Tiles


class LabelledImage(Protocol):
    """What is asked of an image: where it may have data, and where it has."""

    @property
    def windows(self) -> Sequence[PixelWindow]:
        """Rows and columns of the frame."""

    def valid(self, y: slice, x: slice) -> BoolArray:
        """Mask (y, x) of a window of the frame."""


@dataclass
class _Shapes:
    """The shapes 1, 2, … of a label store: class, how far each comes, and the splits (shape, split) that have it."""

    label: Tiles
    splits: UInt8Array
    classes: IntArray = field(default_factory=lambda: np.full(1, NO_LABEL, np.int64))
    has_data: BoolArray = field(default_factory=lambda: np.zeros(1, bool))
    is_in_chip: BoolArray = field(default_factory=lambda: np.zeros(1, bool))
    is_in_split: BoolArray = field(default_factory=lambda: np.zeros((1, len(SPLITS)), bool))

    @classmethod
    def of(cls, label: Tiles, splits: Sequence[int]) -> "_Shapes":
        """The shapes with a pixel; `splits` are their own where polygons are split, else none."""
        shapes = cls(label, np.array([NO_SPLIT, *splits], np.uint8))
        for window in blocks_of(label.windows):
            numbers, is_shape = shapes.read(*window)
            missing = int(numbers.max(initial=0)) + 1 - len(shapes.classes)
            shapes.classes = np.pad(shapes.classes, (0, max(missing, 0)), constant_values=NO_LABEL)
            shapes.classes[numbers[is_shape]] = label.read("label", *window)[is_shape]
        count = len(shapes.classes)
        shapes.has_data, shapes.is_in_chip = np.zeros(count, bool), np.zeros(count, bool)
        shapes.is_in_split = np.zeros((count, len(SPLITS)), bool)
        return shapes

    def read(self, y: slice, x: slice) -> tuple[AnyArray, BoolArray]:
        """The number of the shape of each pixel (y, x), and where there is one; of one shape a class its class."""
        valid = self.label.valid(y, x)
        if self.label.has_array("polygon"):
            numbers = self.label.read("polygon", y, x)
            return numbers, valid & (numbers > 0)
        return np.where(valid, self.label.read("label", y, x).astype(np.int64) + 1, 0), valid

    def add(self, image: LabelledImage, samples: IntArray, roles: UInt8Array, chip: int) -> None:
        """Note the shapes of an image, whose candidate chips (n, 2) have roles (n,): a split, or 255."""
        for y, x in blocks_of(image.windows):
            if not self.label.reaches((y, x)):
                continue
            numbers, is_shape = self.read(y, x)
            is_shape &= image.valid(y, x)
            if not is_shape.any():
                continue
            self.has_data[numbers[is_shape]] = True
            self.is_in_chip[numbers[is_shape & covered_pixels(samples, chip, (y, x))]] = True
            for number in range(len(SPLITS)):
                shapes_of_split = numbers[is_shape & covered_pixels(samples[roles == number], chip, (y, x))]
                is_own = (
                    self.splits[shapes_of_split] == number
                    if len(self.splits) > 1
                    else np.ones(shapes_of_split.shape, bool)
                )
                self.is_in_split[shapes_of_split[is_own], number] = True

    def reasons(self) -> Iterator[tuple[str, BoolArray]]:
        """Each reason that is known from pixels, with the shapes (shape,) that it is of."""
        is_used = self.is_in_split.any(1)
        is_apart = self.is_in_chip & ~is_used
        if len(self.splits) > 1:
            is_apart |= self.has_data & (self.splits == NO_SPLIT)
        yield "masked", ~self.has_data
        yield "sparse", self.has_data & ~self.is_in_chip & ~is_apart
        yield "apart", is_apart


def used_shapes(
    images: Sequence[LabelledImage],
    labels: Sequence[Tiles],
    samples: IntArray,
    roles: UInt8Array,
    chip: int,
    polygons: Mapping[str, list[int]],
) -> UsedShapes | None:
    """The shapes of each class that are used; None where the labels are of no shapes with classes.

    `samples` (n, 3) are candidate chips and `roles` (n,) their splits, 255 for none; `polygons` the splits of polygons.
    """
    stores = {label.scene: label for label in labels}
    of_files = [label.attributes[SHAPES] for label in stores.values() if SHAPES in label.attributes]
    if not of_files or not any(of_file["classes"] for of_file in of_files):
        return None
    shapes = {scene: _Shapes.of(label, polygons.get(scene, ())) for scene, label in stores.items()}
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        of_image = samples[:, 0] == number
        shapes[label.scene].add(image, samples[of_image, 1:], roles[of_image], chip)
    names = labels[0].names
    return UsedShapes.model_validate(
        {
            "kind": of_files[0]["kind"],
            "classes": {name: _count(number, name, of_files, [*shapes.values()]) for number, name in enumerate(names)},
        }
    )


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
