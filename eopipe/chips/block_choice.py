"""Which block and chip fill all splits of a grid, and warnings about plans that waste it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from eopipe.arrays import IntArray, UInt8Array
from eopipe.chips.assign import splits_of_chips
from eopipe.chips.splits import COLUMN_STRIPS, NO_SPLIT, SPLITS, STRIPS, SplitPlan, chip_corners, split_zones

# `split.block` and `split.chip` are at least this, and a chip is a multiple of the second.
SMALLEST, CHIP_STEP = 8, 4
# A plan with this fraction of its chips in no split is worth a warning.
UNUSED = 0.5
BLOCKED = ("blocks", "checkerboard")
NO_VALIDATION = "no validation chips, so early stopping, the best checkpoint and calibration cannot work"


@dataclass(frozen=True)
class BlockChoice:
    """An edge of blocks in pixels, and the number of blocks of the grid that can hold a chip."""

    block: int
    count: int


def count_blocks(shape: tuple[int, int], chip: int, block: int) -> int:
    """The blocks of a grid (height, width) that can hold a chip; those at its edges may be cut by it."""
    height, width = (edge // block + (edge % block >= chip) for edge in shape)
    return int(height * width) if block >= chip else 0


def choose_block(
    shape: tuple[int, int],
    chip: int,
    fractions: tuple[float, ...] = (0.7, 0.15, 0.15),
    *,
    buffer: int = 0,
    seed: int = 0,
    largest: int | None = None,
    min_blocks: int = 3,
) -> BlockChoice | None:
    """The largest block that fills every split with a fraction, where all pixels are usable; None if none does.

    Blocks are whole numbers of chips; each candidate is split as `split` does, with this seed. `largest` is an upper
    limit of the block in pixels, `min_blocks` the minimum number of blocks that can hold a chip.
    """
    plan = SplitPlan("blocks", fractions, chip, chip, buffer, SMALLEST, 0, 0, seed)
    return _choose_block(shape, plan, largest or max(shape), min_blocks)


def _choose_block(shape: tuple[int, int], plan: SplitPlan, largest: int, min_blocks: int = 3) -> BlockChoice | None:
    step = plan.chip if plan.chip >= SMALLEST else 2 * plan.chip
    # Powers of two of the chip first: they divide each other, and are what people write.
    doubled = [step * 2**n for n in range(24) if step * 2**n <= largest]
    others = [block for block in range(step, min(largest, max(shape)) + 1, step) if block not in doubled]
    for block in [*reversed(doubled), *reversed(others[:256])]:
        choice = BlockChoice(block, count_blocks(shape, plan.chip, block))
        if choice.count >= min_blocks and not empty_splits(shape, replace(plan, block=block)):
            return choice
    return None


def empty_splits(shape: tuple[int, int], plan: SplitPlan) -> list[str]:
    """The splits with a fraction that have no chip although all pixels of the grid are usable."""
    if plan.chip > min(shape):
        return list(SPLITS)
    if plan.method in STRIPS:
        # A strip crosses the grid, so one row or column of chips is enough.
        shape = (plan.chip, shape[1]) if plan.method in COLUMN_STRIPS else (shape[0], plan.chip)
    needed = [name for name, share in zip(SPLITS, plan.fractions, strict=True) if share > 0 or plan.folds]
    splits = splits_of_chips(chip_corners(shape, plan), split_zones(shape, plan), plan)
    return [name for name in needed if not (splits == SPLITS.index(name)).any()]


def describe_empty_split(name: str, shape: tuple[int, int], plan: SplitPlan) -> str:
    """Why a split of this plan has no chip, and which block and chip would give it one, in one sentence."""
    head = f"the {name} split has no chip"
    is_spatial = plan.by_place and plan.method != "group"
    if not is_spatial or name not in empty_splits(shape, plan):
        return (
            f"{head} with enough usable, labelled pixels; choose a smaller split.min_valid or smaller chips, more "
            "scenes, or compare the labels with the area"
        )
    if plan.method in BLOCKED:
        return f"{head}: {_describe_blocks(shape, plan)}"
    chip = _largest_chip(shape, plan)
    cure = f"split.chip: {chip} is the largest that works" if chip else "choose other split.fractions"
    buffer = f" and a buffer of {plan.buffer}" if plan.buffer else ""
    return f"{head}: chips of {plan.chip} pixels{buffer} do not fit into its strip; {cure}"


def _describe_blocks(shape: tuple[int, int], plan: SplitPlan) -> str:
    count, needed = count_blocks(shape, plan.chip, plan.block), plan.folds or sum(f > 0 for f in plan.fractions)
    blocks = f"{count} block{'' if count == 1 else 's'} of {plan.block} px on a grid of {shape[0]} x {shape[1]}"
    if plan.block < plan.chip:
        return f"a chip of {plan.chip} pixels does not fit into a block of {plan.block}; set split.block: {plan.chip}"
    reason = f"{blocks}: at least {needed} are needed" if count < needed else f"{blocks} give it none"
    choice = _choose_block(shape, plan, max(shape))
    if choice:
        return f"{reason}; split.block: {choice.block} gives {choice.count}"
    chip = _largest_chip(shape, plan)
    if chip:
        return f"{reason}; no block works with chips of {plan.chip}, the largest that does is {chip}"
    return f"{reason}; {_other_settings(plan)}"


def _other_settings(plan: SplitPlan) -> str:
    other = "fewer split.folds" if plan.folds else "other split.fractions"
    return f"choose {other}{' or a smaller split.buffer' if plan.buffer else ''}"


def _largest_chip(shape: tuple[int, int], plan: SplitPlan) -> int | None:
    """The largest smaller chip with which no split is empty: with this block, else with the best block for it."""
    for chip in range(min(plan.chip - CHIP_STEP, *shape) // CHIP_STEP * CHIP_STEP, SMALLEST - 1, -CHIP_STEP):
        smaller = replace(plan, chip=chip, stride=min(plan.stride, chip))
        if not empty_splits(shape, smaller):
            return chip
        if plan.method in BLOCKED and _choose_block(shape, smaller, max(shape)):
            return chip
    return None


def wants_validation(plan: SplitPlan) -> bool:
    """Whether a plan asks for a val split: by a fraction, by folds, by two dates or by named groups."""
    if plan.method == "temporal":
        return len(plan.dates) > 1
    if plan.method == "group" and plan.test_groups:
        return bool(plan.val_groups)
    return bool(plan.folds) or plan.fractions[SPLITS.index("val")] > 0


def describe_missing_validation(shape: tuple[int, int] | None, plan: SplitPlan) -> str:
    """Why the val split of this plan has no chip, and what gives it one; `shape` is None for a chip set: no grid."""
    if plan.method == "group" and plan.test_groups and not plan.val_groups:
        return "split.test_groups are given and split.val_groups are not; name some of the others"
    if not wants_validation(plan):
        cure = "name two split.dates" if plan.method == "temporal" else "raise the second of split.fractions"
        return f"the split asks for none; {cure}"
    is_geometric = shape is not None and plan.by_place and plan.method != "group"
    if shape is None or not is_geometric or "val" not in empty_splits(shape, plan):
        more = {
            "a smaller split.buffer": plan.buffer > 0,
            "other split.dates": plan.method == "temporal",
            "other split.val_groups": bool(plan.val_groups),
            "a larger split.fractions for val": plan.method != "temporal" and not (plan.folds or plan.val_groups),
        }
        cures = ["a smaller split.min_valid or split.chip", *(cure for cure, helps in more.items() if helps)]
        return f"no chip of val has enough usable, labelled pixels; choose {' or '.join(cures)}"
    if plan.method in BLOCKED:
        return _describe_blocks(shape, plan)
    return _describe_strip(shape, plan)


def _describe_strip(shape: tuple[int, int], plan: SplitPlan) -> str:
    buffer = f" and a buffer of {plan.buffer}" if plan.buffer else ""
    reason = f"chips of {plan.chip} pixels{buffer} do not fit into the strip of val"
    if cures := list(_cures_of_strips(shape, plan)):
        return f"{reason}; {' or '.join(cures)} would fit"
    return f"{reason}; {_other_settings(plan)}"


def _cures_of_strips(shape: tuple[int, int], plan: SplitPlan) -> Iterator[str]:
    """Settings, each of which alone gives every split of strips a chip."""
    train, val, test = plan.fractions
    for percent in range(1, 0 if plan.folds else int(100 * train)):
        fractions = (round(train - percent / 100, 4), round(val + percent / 100, 4), test)
        if not empty_splits(shape, replace(plan, fractions=fractions)):
            yield f"split.fractions: [{', '.join(f'{share:g}' for share in fractions)}]"
            break
    if chip := _largest_chip(shape, plan):
        yield f"split.chip: {chip}"
    for method in STRIPS:
        if not empty_splits(shape, replace(plan, method=method)):
            yield f"split.method: {method}"
            break


def describe_unvalidated(pixels: Mapping[str, int]) -> str:
    """A sentence on the classes that the validation pixels, by class, lack; empty where they lack none or all."""
    names = [name for name, count in pixels.items() if not count]
    if not names or len(names) == len(pixels):
        return ""
    return (
        f"the labels of the val split have no pixel of class {', '.join(names)}, so neither the best checkpoint nor "
        "the calibration depends on it; split another way, or give it more labels"
    )


def plan_warnings(
    plan: SplitPlan, samples: IntArray, splits: UInt8Array, shape: tuple[int, int] | None
) -> Iterator[str]:
    """Sentences about a plan without validation or that wastes chips.

    `splits` is the split of each candidate chip, 255 for none; `shape` the grid's shape, None for a chip set.
    """
    # Without named groups it may be meant.
    is_wanted = wants_validation(plan) or (plan.method == "group" and plan.test_groups)
    if is_wanted and len(samples) and not (splits == SPLITS.index("val")).any():
        yield f"{NO_VALIDATION}: {describe_missing_validation(shape, plan)}"
    if plan.method in BLOCKED and plan.block % plan.chip:
        fitting = plan.block // plan.chip * plan.chip
        instead = f"; {max(fitting, plan.chip)} or {fitting + plan.chip} would be" if fitting else ""
        yield f"split.block {plan.block} is not a multiple of split.chip {plan.chip}, so chips cross borders{instead}"
    unused = int(np.count_nonzero(splits == NO_SPLIT))
    if len(samples) and unused >= UNUSED * len(samples):
        yield (
            f"{100 * unused / len(samples):.0f} % of the chips are in no split, because of "
            f"{'the buffer and ' if plan.buffer else ''}the borders between splits; choose a larger split.block, "
            "smaller chips or a smaller stride"
        )
