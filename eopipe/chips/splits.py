"""Spatial splits: whole blocks, squares or strips of the grid are assigned to one split, with a buffer between.

Random splits of neighbouring chips leak (Roberts et al. 2017, Ecography 40, doi:10.1111/ecog.02881).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, BeforeValidator, Field, GetPydanticSchema, PlainSerializer, WrapValidator

from eopipe.arrays import BoolArray, IntArray, UInt8Array
from eopipe.chips.chips import min_usable_pixels
from eopipe.documents import OPEN, Count, NotNegative, Number, Share, Text, read_model
from eopipe.errors import BadInputError, UsageError
from eopipe.labels.vectors import UsedShapes

SplitMethod = Literal[
    "blocks", "checkerboard", "west-east", "east-west", "north-south", "south-north", "temporal", "group", "random"
]
COLUMN_STRIPS: tuple[SplitMethod, ...] = ("west-east", "east-west")
STRIPS: tuple[SplitMethod, ...] = (*COLUMN_STRIPS, "north-south", "south-north")
GroupKind = Literal["scene", "tile", "region", "polygon", "column"]
SPLITS = ("train", "val", "test")
NO_SPLIT = 255
# The splits to which the chips of each split keep the buffer.
KEPT_APART: dict[int, tuple[int, ...]] = {0: (1, 2), 1: (2,), 2: (), NO_SPLIT: ()}


class _Finding(BaseModel, **OPEN):
    """A finding of the audit, with an example; `reason` is why it was accepted."""

    kind: str
    example: str
    count: Count = 1
    splits: str = ""
    reason: str = ""
    share: Share | None = None


class _Audit(BaseModel, **OPEN):
    """The leakage audit: distances between splits in pixels, accepted findings and warnings, and the label range."""

    gap_pixels: dict[str, int]
    allow: dict[str, str] = {}
    allowed: list[_Finding] = []
    warnings: list[_Finding] = []
    label_range: NotNegative | None = None


class _Plan(BaseModel, **OPEN):
    method: str
    min_valid: Share
    by: str = "scene"
    block: Count = 0
    folds: Count = 0
    fold: Count = 0


class _LeftOut(BaseModel, **OPEN):
    scene: str
    reason: str


class _SceneFate(BaseModel, **OPEN):
    """The positions of chips of a scene by what became of them; `samples` are in a split, `spare` in none."""

    scene: str
    unlabelled: Count
    unusable: Count
    spare: Count
    samples: Count


class _Blocks(BaseModel, **OPEN):
    block_km: Annotated[Number, Field(gt=0)]


Position = Annotated[int, Field(ge=0, lt=2**31)]
_Row = Annotated[list[Position], Field(min_length=3, max_length=3)]


def _sample_rows(value: Any, check: Any) -> IntArray:
    """An array as it is, the lists of a file after a check of each."""
    return value if isinstance(value, np.ndarray) else np.array(check(value), np.int64).reshape(-1, 3)


def _names_each_split(value: Any) -> Any:
    if isinstance(value, dict):
        for name in sorted(set(SPLITS) ^ value.keys(), key=str):
            raise ValueError(f"{name} is {'missing' if name in SPLITS else 'no split'}")
    return value


_Rows = Annotated[list[_Row], WrapValidator(_sample_rows), PlainSerializer(np.ndarray.tolist)]
_Samples = Annotated[IntArray, GetPydanticSchema(lambda _, handler: handler(_Rows))]
_EachSplit = BeforeValidator(_names_each_split)


class Samples(BaseModel, **OPEN):
    """The samples of a split, rows of (scene, row, column) by split, and the polygons of each where these are split."""

    samples: Annotated[dict[str, _Samples], _EachSplit]
    polygons: dict[str, list[Position]] = {}


class Split(Samples):
    """A split file: what the stage split writes, and all that others read of it; sizes in pixels.

    `pixels` and `chips` count pixels, and chips with such pixels, by split and class; `grid` is the document of the
    frame, `chip_set` the blocks of a split of a chip set, `groups` the group of each sample of a split by group.
    """

    scenes: Annotated[list[str], Field(min_length=1)]
    classes: Annotated[list[Text], Field(min_length=1)]
    chip: Annotated[int, Field(ge=1, le=2**20)]
    plan: _Plan
    audit: _Audit
    pixels: Annotated[dict[str, dict[str, Count]], _EachSplit]
    chips: dict[str, dict[str, Count]] = {}
    grid: Any = None
    fates: list[_SceneFate] = []
    left_out: list[_LeftOut] = []
    by_scene: bool = False
    warnings: list[str] = []
    chip_set: _Blocks | None = None
    groups: Annotated[dict[str, list[str]] | None, _EachSplit] = None
    shapes: UsedShapes | None = None

    @property
    def is_mosaic(self) -> bool:
        """Whether all images may have one map: they are not split themselves, and their chips are on one grid."""
        return not self.by_scene and self.chip_set is None

    @property
    def min_usable_pixels(self) -> float:
        """Usable pixels that a whole chip of a map needs; chips of a set, which may be smaller, have enough."""
        return 1.0 if self.chip_set else float(min_usable_pixels(self.plan.min_valid, self.chip**2))

    def json_document(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_unset=True)


@dataclass(frozen=True)
class SplitPlan:
    """How positions or scenes are assigned to splits; sizes in pixels. 0 `folds` means one split by fractions.

    `by` is the unit of a group split; without named test groups they are assigned at random. `dates` (ISO) are the
    first days of val and test; a single one starts test.
    """

    method: SplitMethod
    fractions: tuple[float, ...]
    chip: int
    stride: int
    buffer: int
    block: int
    folds: int
    fold: int
    seed: int
    by: GroupKind = "scene"
    dates: tuple[str, ...] = ()
    val_groups: tuple[str, ...] = ()
    test_groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that fractions, folds, dates and groups are consistent."""
        if len(self.fractions) != len(SPLITS) or sum(self.fractions) > 1.0001:
            raise UsageError("split.fractions needs three numbers (train, val, test) that add up to at most 1")
        if self.folds and not (self.folds >= 3 and self.fold < self.folds):
            raise UsageError(f"fold {self.fold} of {self.folds}: there must be at least 3 folds, numbered from 0")
        if self.method == "temporal" and not (self.dates and list(self.dates) == sorted(set(self.dates))):
            raise UsageError("split.method temporal needs split.dates: the first days of val and test, in order")
        if self.method == "temporal" and (self.folds or len(self.dates) > 2):
            raise UsageError("split.method temporal has one or two split.dates and no folds")
        if self.by == "polygon" and (self.method != "group" or self.val_groups or self.test_groups):
            raise UsageError("split.by polygon needs split.method group, without val_groups and test_groups")
        if self.folds and self.test_groups:
            raise UsageError("split.test_groups names the groups of one split; remove it, or the folds")
        in_both = sorted(set(self.val_groups) & set(self.test_groups))
        if in_both:
            raise UsageError(f"split.val_groups and split.test_groups both name {', '.join(in_both)}")

    @property
    def by_scene(self) -> bool:
        """Whether scenes are assigned, so that a position may be in two splits on different days."""
        return self.method == "temporal" or (self.method == "group" and self.by == "scene")

    @property
    def by_polygon(self) -> bool:
        """Whether polygons of the labels are assigned, so that a chip may be in two splits with different labels."""
        return self.method == "group" and self.by == "polygon"

    @property
    def by_place(self) -> bool:
        """Whether positions are kept apart, whatever the scene."""
        return not self.by_scene and not self.by_polygon and self.method != "random"


@dataclass(frozen=True)
class SplitRequest:
    """Inputs of a split besides its plan: stores, minimum valid fraction, regions, and accepted findings."""

    tiles: tuple[Path, ...]
    labels: tuple[Path, ...]
    min_valid: float | None
    regions: Path | None = None
    attribute: str = "region"
    allow: tuple[str, ...] = ()
    block_km: float = 50.0


@dataclass(frozen=True)
class SplitZones:
    """The split of each block of the grid: `split[row // height, col // width]`; 255 is none."""

    split: UInt8Array
    height: int
    width: int

    def within(self, boxes: IntArray, allowed: Sequence[int]) -> BoolArray:
        """Whether boxes (top, left, bottom, right) touch only blocks of the allowed splits."""
        is_other = ~np.isin(self.split, allowed)
        # A summed-area table counts the blocks of other splits in each box.
        summed = np.pad(is_other.cumsum(0, dtype=np.int32).cumsum(1, dtype=np.int32), ((1, 0), (1, 0)))
        rows, cols = self.split.shape
        top, left = boxes[:, 0].clip(0) // self.height, boxes[:, 1].clip(0) // self.width
        bottom = np.minimum((boxes[:, 2] - 1) // self.height, rows - 1) + 1
        right = np.minimum((boxes[:, 3] - 1) // self.width, cols - 1) + 1
        count = summed[bottom, right] - summed[top, right] - summed[bottom, left] + summed[top, left]
        return np.asarray(count == 0)


def zones_of_grids(shapes: Sequence[tuple[int, int]], plan: SplitPlan) -> list[SplitZones]:
    """Assign the positions of several grids to train, val and test: their blocks together, in the fractions."""
    if plan.method == "blocks":
        counts = [tuple(-(-edge // plan.block) for edge in shape) for shape in shapes]
        parts = np.split(_random_blocks(shapes, plan), np.cumsum([rows * columns for rows, columns in counts])[:-1])
        return [
            SplitZones(part.reshape(count), plan.block, plan.block) for part, count in zip(parts, counts, strict=True)
        ]
    return [split_zones(shape, plan) for shape in shapes]


def split_zones(shape: tuple[int, int], plan: SplitPlan) -> SplitZones:
    """Assign the positions of a grid to train, val and test."""
    height, width = shape
    if plan.method == "blocks":
        return zones_of_grids([shape], plan)[0]
    if plan.method == "checkerboard":
        rows, columns = -(-height // plan.block), -(-width // plan.block)
        return SplitZones(_checkerboard(shape, plan).reshape(rows, columns), plan.block, plan.block)
    by_column = plan.method in COLUMN_STRIPS
    order = np.arange(width if by_column else height)
    splits = strips_of(order[::-1] if plan.method in ("east-west", "south-north") else order, plan)
    return SplitZones(splits[None, :], height, 1) if by_column else SplitZones(splits[:, None], 1, width)


def strips_of(order: IntArray, plan: SplitPlan) -> UInt8Array:
    """The split of places by their ranks (n,) along an axis: the first fraction of the ranks trains."""
    numbers = _in_fractions(int(order.max()) + 1, fractions_of(plan))
    return splits_of_folds(numbers[order], plan)


def fractions_of(plan: SplitPlan) -> list[float]:
    """The fraction of each fold, or of each split."""
    return [1 / plan.folds] * plan.folds if plan.folds else list(plan.fractions)


def assign_at_random(count: int, plan: SplitPlan) -> UInt8Array:
    """The split of each of `count` units, assigned at random."""
    folds = np.empty(count, np.uint8)
    order = np.random.Generator(np.random.Philox(key=plan.seed)).permutation(count)
    folds[order] = _in_fractions(count, fractions_of(plan))
    return splits_of_folds(folds, plan)


def _random_blocks(shapes: Sequence[tuple[int, int]], plan: SplitPlan) -> UInt8Array:
    """Blocks in these fractions, at random; those that the edge of a grid cuts may contain no chip, so apart."""
    holds_chip = np.concatenate([_holds_chip(shape, plan) for shape in shapes])
    order = np.random.Generator(np.random.Philox(key=plan.seed)).permutation(holds_chip.size)
    folds = np.empty(holds_chip.size, np.uint8)
    for blocks in (order[holds_chip[order]], order[~holds_chip[order]]):
        folds[blocks] = _in_fractions(len(blocks), fractions_of(plan))
    return splits_of_folds(folds, plan)


def _holds_chip(shape: tuple[int, int], plan: SplitPlan) -> BoolArray:
    """Whether each block of the grid, row by row, is large enough for a chip."""
    height, width = (np.minimum(plan.block, edge - np.arange(0, edge, plan.block)) >= plan.chip for edge in shape)
    return np.logical_and.outer(height, width).ravel()


def _checkerboard(shape: tuple[int, int], plan: SplitPlan) -> UInt8Array:
    """One colour trains; squares of the other go to val and test at random, in the ratio of their fractions."""
    starts = [np.arange(0, edge, plan.block) for edge in shape]
    diagonal = np.add.outer(*(np.arange(len(start)) for start in starts)) + plan.seed % 2
    if plan.folds:
        return splits_of_folds((diagonal % plan.folds).astype(np.uint8), plan)
    _, val, test = plan.fractions
    squares = np.random.Generator(np.random.Philox(key=plan.seed)).permutation(np.flatnonzero(diagonal.ravel() % 2))
    # A square that the edge of the grid cuts may contain no chip, so it is assigned last.
    squares = squares[np.argsort(~_holds_chip(shape, plan)[squares], kind="stable")]
    test_squares = np.floor(np.arange(len(squares) + 1) * (test / (val + test) if val else 1.0) + 1e-9)
    split = np.zeros(diagonal.size, np.uint8)
    split[squares] = np.where(np.diff(test_squares) > 0, SPLITS.index("test"), SPLITS.index("val"))
    return split


def _in_fractions(count: int, fractions: list[float]) -> UInt8Array:
    """Numbers 0, 0, …, 1, 1, … in these fractions; the remainder is in no split."""
    edges = np.round(np.cumsum(fractions) * count).astype(int)
    numbers = np.searchsorted(edges, np.arange(count), side="right")
    return np.where(numbers < len(fractions), numbers, NO_SPLIT).astype(np.uint8)


def splits_of_folds(folds: UInt8Array, plan: SplitPlan) -> UInt8Array:
    """Turn folds into splits: fold f is the test split, the next one the validation split, the others train."""
    if not plan.folds:
        return folds
    splits = np.zeros_like(folds)
    splits[folds == (plan.fold + 1) % plan.folds] = SPLITS.index("val")
    splits[folds == plan.fold] = SPLITS.index("test")
    return splits


def chip_corners(shape: tuple[int, int], plan: SplitPlan) -> IntArray:
    """Top-left corners (row, column) of all chips of the grid, row by row."""
    height, width = shape
    if plan.chip > min(shape):
        raise BadInputError(
            f"a chip of {plan.chip} pixels does not fit into a grid of {height} x {width}; choose a smaller split.chip"
        )
    return np.stack(np.meshgrid(*chip_positions(shape, plan), indexing="ij"), -1).reshape(-1, 2)


def chip_positions(shape: tuple[int, int], plan: SplitPlan) -> tuple[IntArray, IntArray]:
    """The rows and the columns at which chips begin: every stride from the edge of each strip or block.

    The last position of the grid is one of them, so that no row or column is outside of all chips. Positions less
    than a stride before the next edge are none, unless their chip ends before it.
    """
    rows, columns = (_lattice(*axis, plan) for axis in zip(shape, _lattice_edges(shape, plan), strict=True))
    return rows, columns


def _lattice(length: int, edges: IntArray, plan: SplitPlan) -> IntArray:
    stops, step = [*edges[1:].tolist(), length], min(plan.stride, plan.chip)
    parts = [np.arange(first, stop - step + 1, plan.stride) for first, stop in zip(edges.tolist(), stops, strict=True)]
    last = length - plan.chip
    positions = np.append(np.concatenate(parts), last)
    return np.unique(positions[positions <= last])


def _lattice_edges(shape: tuple[int, int], plan: SplitPlan) -> tuple[IntArray, IntArray]:
    """The edges from which chips are counted, in rows and in columns: 0 first, rising."""
    start = np.zeros(1, np.int64)
    if plan.method in STRIPS:
        edges = _strip_edges(split_zones(shape, plan).split.ravel(), plan)
        return (start, edges) if plan.method in COLUMN_STRIPS else (edges, start)
    if plan.method in ("blocks", "checkerboard") and plan.block >= plan.chip:
        rows, columns = (np.arange(0, edge, plan.block, dtype=np.int64) for edge in shape)
        return rows, columns
    return start, start


def _strip_edges(splits: UInt8Array, plan: SplitPlan) -> IntArray:
    """The first position of each strip that keeps the buffer to the strips before; none of a strip without one."""
    starts = np.append(0, np.flatnonzero(np.diff(splits)) + 1).tolist()
    stops, numbers = [*starts[1:], len(splits)], splits[starts].tolist()
    edges = []
    for n, (start, stop, number) in enumerate(zip(starts, stops, numbers, strict=True)):
        others = [other for other, split in zip(stops[:n], numbers, strict=False) if split in KEPT_APART[number]]
        first = max([start, *(other + plan.buffer for other in others)])
        if first < stop:
            edges.append(first)
    return np.array(edges, np.int64)


def read_split(path: Path) -> Split:
    """Read a split file. Raises BadInputError for another file, with the fields that are wrong."""
    split = read_model(path, Split, "a split file", "samples")
    if any(len(rows) and rows[:, 0].max() >= len(split.scenes) for rows in split.samples.values()):
        raise BadInputError(f"{path} is not a split file: it has samples of more scenes than it names")
    if any(len(groups) != len(split.samples[name]) for name, groups in (split.groups or {}).items()):
        raise BadInputError(f"{path} is not a split file: it has groups of more or fewer samples than it has")
    return split


def read_samples(path: Path) -> Samples:
    """The samples of a split file, and its polygons. Raises BadInputError for another file."""
    return read_model(path, Samples, "a split file", "samples")
