"""How many shapes of the label files there are of each class, and how many of them a split uses.

The first is in the attributes of the label store of a file, the second in the file of the split.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel

from eopipe.arrays import BoolArray, IntArray, ObjectArray
from eopipe.documents import OPEN, Count, Text
from eopipe.tiles.store import NO_LABEL

# The attribute of a label store whose labels are of shapes.
SHAPES = "shapes"
# The counts of shapes without classes: values, and labels of two dates.
NOT_COUNTED: dict[str, Any] = {SHAPES: {"kind": SHAPES, "classes": {}}}
# Why a shape is not used, in the order in which it is looked at.
REASONS = {
    "dates": "of other dates than label.dates",
    "outside": "outside of the grid",
    "hidden": "without a pixel of their own (small, or under others)",
    "masked": "where no image has data",
    "sparse": "in chips with too few labelled pixels (split.min_valid)",
    "apart": "in no split (at the edge of one, or within split.buffer of another)",
}
# The share of the shapes that are not used from which a warning says so.
MANY = 0.1


class _ShapesOfClass(BaseModel):
    """Shapes of a class: in the label files, used, used in each split, and not used by reason."""

    model_config = OPEN

    file: Count
    used: Count
    splits: dict[str, Count]
    dropped: dict[str, Count]


class UsedShapes(BaseModel):
    """The polygons, points, lines or shapes (`kind`) of the label files by class."""

    model_config = OPEN

    kind: Text
    classes: dict[str, _ShapesOfClass]

    @property
    def file(self) -> int:
        return sum(row.file for row in self.classes.values())

    @property
    def used(self) -> int:
        """The shapes that are used, in one split or several."""
        return sum(row.used for row in self.classes.values())

    def in_split(self, name: str) -> int:
        return sum(row.splits[name] for row in self.classes.values())


def kind_of_shapes(shapes: ObjectArray) -> str:
    """What the shapes of a file are called: polygons, points or lines; shapes where they are of several kinds."""
    kinds = {shape.geom_type.removeprefix("Multi") for shape in shapes if shape is not None and not shape.is_empty}
    names = {"Polygon": "polygons", "Point": "points", "LineString": "lines"}
    return names.get(kinds.pop(), SHAPES) if len(kinds) == 1 else SHAPES


def shape_counts(
    kind: str, classes: Sequence[str], numbers: IntArray, is_on_grid: BoolArray, of_other_dates: Sequence[int]
) -> dict[str, Any]:
    """The attribute: shapes of each class in the file, of these of other dates than `label.dates`, and off the grid.

    `numbers` (shape,) are classes of the shapes of the dates, `of_other_dates` of the others; 255 means none.
    """
    chosen = np.bincount(numbers[numbers != NO_LABEL], minlength=len(classes))
    outside = np.bincount(numbers[(numbers != NO_LABEL) & ~is_on_grid], minlength=len(classes))
    others = np.bincount(np.array([n for n in of_other_dates if n != NO_LABEL], np.int64), minlength=len(classes))
    rows = zip(classes, chosen.tolist(), outside.tolist(), others.tolist(), strict=True)
    counts = {name: {"file": n + other, "dates": other, "outside": out} for name, n, out, other in rows}
    return {SHAPES: {"kind": kind, "classes": counts}}


def shape_sentences(used: UsedShapes | None) -> list[str]:
    """How many shapes of each class are used, and why others are not, in sentences."""
    if used is None or used.used == used.file:
        return []
    parts = [f"{name} {row.used} of {row.file}" for name, row in used.classes.items()]
    reasons = {key: sum(row.dropped.get(key, 0) for row in used.classes.values()) for key in REASONS}
    why = [f"{count} {REASONS[key]}" for key, count in reasons.items() if count]
    counts = f"{used.used} of {used.file} {used.kind} of the labels are used"
    return [f"{counts} ({', '.join(parts)}).", f"Not used are {', '.join(why)}."]


def has_lost_many(used: UsedShapes | None) -> bool:
    """Whether more than a tenth of the shapes of all classes, or of one class, are not used."""
    rows = [] if used is None else [(used.used, used.file), *((row.used, row.file) for row in used.classes.values())]
    return any(count < (1 - MANY) * total for count, total in rows)
