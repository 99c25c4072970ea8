"""Split chips by place: whole blocks, squares or strips of the grid go to one split, with a buffer between.

Random splits of neighbouring chips leak (Roberts et al. 2017, Ecography 40, doi:10.1111/ecog.02881).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from eopipe.arrays import BoolArray, IntArray, UInt8Array
from eopipe.errors import BadInputError, UsageError

SplitMethod = Literal[
    "blocks", "checkerboard", "west-east", "east-west", "north-south", "south-north", "temporal", "group", "random"
]
GroupKind = Literal["scene", "tile", "region"]
SPLITS = ("train", "val", "test")
NO_SPLIT = 255


@dataclass(frozen=True)
class SplitPlan:
    """How places or scenes are dealt out; sizes in pixels. `folds` 0 means one split by fractions.

    `by` says what a group is; groups that are not named to validate or test are dealt out at random. `dates`
    (ISO) are the first days of val and test; a single one is that of test.
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
        """Check that fractions, folds or dates deal out each place or scene once."""
        if len(self.fractions) != len(SPLITS) or sum(self.fractions) > 1.0001:
            raise UsageError("split.fractions needs three numbers (train, val, test) that add up to at most 1")
        if self.folds and not (self.folds >= 3 and self.fold < self.folds):
            raise UsageError(f"fold {self.fold} of {self.folds}: there must be at least 3 folds, numbered from 0")
        if self.method == "temporal" and not (self.dates and list(self.dates) == sorted(set(self.dates))):
            raise UsageError("split.method temporal needs split.dates: the first day of val and that of test, in order")
        if self.method == "temporal" and (self.folds or len(self.dates) > 2):
            raise UsageError("split.method temporal has one or two split.dates and no folds")
        both = sorted(set(self.val_groups) & set(self.test_groups))
        if both:
            raise UsageError(f"split.val_groups and split.test_groups both name {', '.join(both)}")

    @property
    def by_scene(self) -> bool:
        """Whether scenes are dealt out, so that a place may be in two splits at other dates."""
        return self.method == "temporal" or (self.method == "group" and self.by == "scene")

    @property
    def by_place(self) -> bool:
        """Whether places are kept apart, whatever the scene."""
        return not self.by_scene and self.method != "random"


@dataclass(frozen=True)
class SplitZones:
    """Which split each block of the grid belongs to: `split[row // height, col // width]`; 255 is none."""

    split: UInt8Array
    height: int
    width: int

    def only(self, boxes: IntArray, allowed: Sequence[int]) -> BoolArray:
        """Whether boxes (top, left, bottom, right) touch no block outside the allowed splits."""
        wrong = ~np.isin(self.split, allowed)
        summed = np.pad(wrong.cumsum(0, dtype=np.int32).cumsum(1, dtype=np.int32), ((1, 0), (1, 0)))
        rows, cols = self.split.shape
        top, left = boxes[:, 0].clip(0) // self.height, boxes[:, 1].clip(0) // self.width
        bottom = np.minimum((boxes[:, 2] - 1) // self.height, rows - 1) + 1
        right = np.minimum((boxes[:, 3] - 1) // self.width, cols - 1) + 1
        found = summed[bottom, right] - summed[top, right] - summed[bottom, left] + summed[top, left]
        return np.asarray(found == 0)


def split_zones(shape: tuple[int, int], plan: SplitPlan) -> SplitZones:
    """Deal the grid out to train, val and test."""
    height, width = shape
    if plan.method in ("blocks", "checkerboard"):
        size = -(-height // plan.block), -(-width // plan.block)
        group = (
            _checkerboard(shape, plan) if plan.method == "checkerboard" else assign_at_random(size[0] * size[1], plan)
        )
        return SplitZones(group.reshape(size), plan.block, plan.block)
    across = plan.method in ("west-east", "east-west")
    group = _in_shares(width if across else height, shares(plan))
    role = roles(group[::-1] if plan.method in ("east-west", "south-north") else group, plan)
    return SplitZones(role[None, :], height, 1) if across else SplitZones(role[:, None], 1, width)


def shares(plan: SplitPlan) -> list[float]:
    """The share of each fold, or of each split."""
    return [1 / plan.folds] * plan.folds if plan.folds else list(plan.fractions)


def assign_at_random(count: int, plan: SplitPlan) -> UInt8Array:
    """The split of each of some things that are dealt out at random."""
    group = np.empty(count, np.uint8)
    order = np.random.Generator(np.random.Philox(key=plan.seed)).permutation(count)
    group[order] = _in_shares(count, shares(plan))
    return roles(group, plan)


def _checkerboard(shape: tuple[int, int], plan: SplitPlan) -> UInt8Array:
    """One colour trains; squares of the other go to val and test at random, in the ratio of their fractions."""
    starts = [np.arange(0, edge, plan.block) for edge in shape]
    diagonal = np.add.outer(*(np.arange(len(start)) for start in starts)) + plan.seed % 2
    if plan.folds:
        return roles((diagonal % plan.folds).astype(np.uint8), plan)
    _, val, test = plan.fractions
    squares = np.random.Generator(np.random.Philox(key=plan.seed)).permutation(np.flatnonzero(diagonal.ravel() % 2))
    # What the rim of the grid leaves of a square may hold no chip, so it is dealt out last.
    whole = np.logical_and.outer(*(start + plan.chip <= edge for start, edge in zip(starts, shape, strict=True)))
    squares = squares[np.argsort(~whole.ravel()[squares], kind="stable")]
    told = np.floor(np.arange(len(squares) + 1) * (test / (val + test) if val else 1.0) + 1e-9)
    role = np.zeros(diagonal.size, np.uint8)
    role[squares] = np.where(np.diff(told) > 0, SPLITS.index("test"), SPLITS.index("val"))
    return role


def _in_shares(count: int, parts: list[float]) -> UInt8Array:
    """Numbers 0, 0, …, 1, 1, … in these shares; what the shares leave over goes nowhere."""
    edges = np.round(np.cumsum(parts) * count).astype(int)
    place = np.searchsorted(edges, np.arange(count), side="right")
    return np.where(place < len(parts), place, NO_SPLIT).astype(np.uint8)


def roles(group: UInt8Array, plan: SplitPlan) -> UInt8Array:
    """Turn folds into splits: fold f is the test, the next one validates, the rest trains."""
    if not plan.folds:
        return group
    role = np.zeros_like(group)
    role[group == (plan.fold + 1) % plan.folds] = SPLITS.index("val")
    role[group == plan.fold] = SPLITS.index("test")
    return role


def chip_corners(shape: tuple[int, int], plan: SplitPlan) -> IntArray:
    """Top-left corners (row, column) of all chips of the grid, row by row."""
    height, width = shape
    if plan.chip > min(shape):
        raise BadInputError(
            f"a chip of {plan.chip} pixels does not fit a grid of {height} x {width}; choose split.chip smaller"
        )
    rows, cols = (np.arange(0, edge - plan.chip + 1, plan.stride) for edge in shape)
    return np.stack(np.meshgrid(rows, cols, indexing="ij"), -1).reshape(-1, 2)


def splits_of_chips(corners: IntArray, dealt: SplitZones, plan: SplitPlan) -> UInt8Array:
    """The split of the chips at these corners; 255 for one that is in none.

    A chip lies wholly in its split. Test chips may touch the border; train chips keep the buffer to val and
    test, val chips keep it to test.
    """
    tight = np.hstack([corners, corners + plan.chip])
    wide = np.hstack([corners - plan.buffer, corners + plan.chip + plan.buffer])
    clear = [dealt.only(wide, [0, NO_SPLIT]), dealt.only(wide, [0, 1, NO_SPLIT]), np.ones(len(corners), bool)]
    found = np.full(len(corners), NO_SPLIT, np.uint8)
    for number in range(len(SPLITS)):
        found[dealt.only(tight, [number]) & clear[number]] = number
    return found


def covered_pixels(shape: tuple[int, ...], samples: IntArray, chip: int) -> BoolArray:
    """The pixels (y, x) that the chips of some samples (scene, row, column) cover."""
    mask = np.zeros(shape, bool)
    for row, col in np.unique(samples[:, 1:], axis=0):
        mask[row : row + chip, col : col + chip] = True
    return mask


def chip_counts(mask: BoolArray, corners: IntArray, chip: int) -> IntArray:
    """How many pixels of a mask (y, x) are set in each chip."""
    counts = np.zeros(len(corners), np.int64)
    for row in np.unique(corners[:, 0]):
        here = corners[:, 0] == row
        columns = np.pad(mask[row : row + chip].sum(0, dtype=np.int64).cumsum(), (1, 0))
        left = corners[here, 1]
        counts[here] = columns[left + chip] - columns[left]
    return counts


def read_split(path: Any) -> dict[str, Any]:
    """Read a split file; samples become arrays of (scene, row, column)."""
    from eopipe.publish import read_json

    value: dict[str, Any] = read_json(path)
    try:
        value["samples"] = {k: np.array(v, np.int64).reshape(-1, 3) for k, v in value["samples"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadInputError(f"{path} is not a split file: it has no samples") from error
    return value
