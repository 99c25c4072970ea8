"""Split chips by place, and prove that no place is in two splits.

Random splits of neighbouring chips leak; whole blocks or strips of the grid go to one split, with a buffer
between (Roberts et al. 2017, Ecography 40, doi:10.1111/ecog.02881).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from eopipe.errors import BadInputError, IntegrityError, UsageError

Method = Literal["blocks", "west-east", "east-west", "north-south", "south-north"]
Positions = npt.NDArray[np.int64]
SPLITS = ("train", "val", "test")
NOWHERE = 255


@dataclass(frozen=True)
class Plan:
    """How places are dealt out; sizes in pixels. `folds` 0 means one split by fractions."""

    method: Method
    fractions: tuple[float, ...]
    chip: int
    stride: int
    buffer: int
    block: int
    folds: int
    fold: int
    seed: int

    def __post_init__(self) -> None:
        """Check that fractions or folds deal out each place once."""
        if len(self.fractions) != len(SPLITS) or sum(self.fractions) > 1.0001:
            raise UsageError("split.fractions needs three numbers (train, val, test) that add up to at most 1")
        if self.folds and not (self.folds >= 3 and self.fold < self.folds):
            raise UsageError(f"fold {self.fold} of {self.folds}: there must be at least 3 folds, numbered from 0")


@dataclass(frozen=True)
class Zones:
    """Which split each block of the grid belongs to: `split[row // height, col // width]`."""

    split: npt.NDArray[np.uint8]
    height: int
    width: int

    def only(self, boxes: Positions, allowed: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Whether boxes (top, left, bottom, right) touch no block outside the allowed splits."""
        wrong = ~np.isin(self.split, allowed)
        summed = np.pad(wrong.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
        rows, cols = self.split.shape
        top, left = boxes[:, 0].clip(0) // self.height, boxes[:, 1].clip(0) // self.width
        bottom = np.minimum((boxes[:, 2] - 1) // self.height, rows - 1) + 1
        right = np.minimum((boxes[:, 3] - 1) // self.width, cols - 1) + 1
        found = summed[bottom, right] - summed[top, right] - summed[bottom, left] + summed[top, left]
        return np.asarray(found == 0)


def zones(shape: tuple[int, int], plan: Plan) -> Zones:
    """Deal the grid out to train, val and test."""
    height, width = shape
    groups = plan.folds or len(SPLITS)
    shares = [1 / groups] * groups if plan.folds else list(plan.fractions)
    if plan.method == "blocks":
        rows, cols = -(-height // plan.block), -(-width // plan.block)
        dealt = _deal(rows * cols, shares)
        order = np.random.Generator(np.random.Philox(key=plan.seed)).permutation(rows * cols)
        group = np.empty(rows * cols, np.uint8)
        group[order] = dealt
        return Zones(_roles(group, plan).reshape(rows, cols), plan.block, plan.block)
    across = plan.method in ("west-east", "east-west")
    group = _deal(width if across else height, shares)
    group = group[::-1] if plan.method in ("east-west", "south-north") else group
    role = _roles(group, plan)
    return Zones(role[None, :], height, 1) if across else Zones(role[:, None], 1, width)


def _deal(count: int, shares: list[float]) -> npt.NDArray[np.uint8]:
    """Numbers 0, 0, …, 1, 1, … in these shares; what the shares leave over goes nowhere."""
    edges = np.round(np.cumsum(shares) * count).astype(int)
    place = np.searchsorted(edges, np.arange(count), side="right")
    return np.where(place < len(shares), place, NOWHERE).astype(np.uint8)


def _roles(group: npt.NDArray[np.uint8], plan: Plan) -> npt.NDArray[np.uint8]:
    """Turn folds into splits: fold f is the test, the next one validates, the rest trains."""
    if not plan.folds:
        return group
    role = np.zeros_like(group)
    role[group == (plan.fold + 1) % plan.folds] = SPLITS.index("val")
    role[group == plan.fold] = SPLITS.index("test")
    return role


def place_chips(shape: tuple[int, int], plan: Plan) -> dict[str, Positions]:
    """Top-left corners (row, column) of the chips of each split, sorted.

    A chip lies wholly in its split. Test chips may touch the border; train chips keep the buffer to val and
    test, val chips keep it to test.
    """
    height, width = shape
    if plan.chip > min(shape):
        raise BadInputError(
            f"a chip of {plan.chip} pixels does not fit a grid of {height} x {width}; choose split.chip smaller"
        )
    dealt = zones(shape, plan)
    rows, cols = (np.arange(0, edge - plan.chip + 1, plan.stride) for edge in shape)
    corners = np.stack(np.meshgrid(rows, cols, indexing="ij"), -1).reshape(-1, 2)
    tight = np.hstack([corners, corners + plan.chip])
    wide = np.hstack([corners - plan.buffer, corners + plan.chip + plan.buffer])
    inside = [dealt.only(tight, [number]) for number in range(len(SPLITS))]
    clear = [dealt.only(wide, [0, NOWHERE]), dealt.only(wide, [0, 1, NOWHERE]), np.ones(len(corners), bool)]
    return {name: corners[inside[n] & clear[n]] for n, name in enumerate(SPLITS)}


def audit(chips: dict[str, Positions], chip: int, buffer: int) -> dict[str, int]:
    """The gap in pixels between the chips of every two splits, measured on the chips themselves.

    Raises IntegrityError when chips of two splits overlap or are nearer than the buffer.
    """
    from scipy.spatial import cKDTree

    gaps = {}
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        if len(chips[one]) and len(chips[other]):
            nearest, _ = cKDTree(chips[one]).query(chips[other], p=np.inf)
            gaps[f"{one}-{other}"] = int(nearest.min()) - chip
    near = [f"{pair} {gap}" for pair, gap in gaps.items() if gap < buffer]
    if near:
        raise IntegrityError(
            f"the split leaks: chips of two splits are nearer than {buffer} pixels ({'; '.join(near)})"
        )
    return gaps


def chip_counts(mask: npt.NDArray[np.bool_], corners: Positions, chip: int) -> npt.NDArray[np.int64]:
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
