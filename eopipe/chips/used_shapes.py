"""Which shapes of the label files a split uses, by class, and why it does not use the others.

Users count polygons and points, not chips and pixels. A shape is used in a split where one of its pixels, with a label
and valid in an image, is in a chip of it; where polygons are split, in a chip of its own split.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from eopipe.arrays import BoolArray, IntArray, UInt8Array
from eopipe.chips.candidates import MappedImage
from eopipe.chips.chip_blocks import blocks_of, covered_pixels
from eopipe.chips.polygons import classes_of_shapes, shape_numbers
from eopipe.chips.splits import NO_SPLIT, SPLITS
from eopipe.labels.shape_counts import SHAPES, UsedShapes
from eopipe.tiles.store import Tiles


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
