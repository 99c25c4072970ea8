"""Which block and chip fill all splits of a grid, and warnings about plans that waste it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from eopipe.arrays import IntArray, UInt8Array
from eopipe.chips.assign import splits_of_chips
from eopipe.chips.splits import COLUMN_STRIPS, NO_SPLIT, SPLITS, STRIPS, SplitPlan, chip_corners, split_zones

# `split.block` is at least this.
SMALLEST = 8
# A plan with this fraction of its chips in no split is worth a warning.
UNUSED = 0.5
BLOCKED = ("blocks", "checkerboard")
NO_VALIDATION = "no validation chips, so early stopping, the best checkpoint and calibration cannot work"


def count_blocks(shape: tuple[int, int], chip: int, block: int) -> int:
    """The blocks of a grid (height, width) that can hold a chip; those at its edges may be cut by it."""
    height, width = (edge // block + (edge % block >= chip) for edge in shape)
    return int(height * width) if block >= chip else 0


def choose_block(shape: tuple[int, int], plan: SplitPlan) -> int | None:
    """The largest block that fills every split with a fraction, where all pixels are usable; None if none does.

    Blocks are whole numbers of chips; each candidate is split as `split` does.
    """
    step = plan.chip if plan.chip >= SMALLEST else 2 * plan.chip
    # Powers of two of the chip first: they divide each other, and are what people write.
    doubled = [step << n for n in range(24) if step << n <= max(shape)]
    others = [block for block in range(step, max(shape) + 1, step) if block not in doubled]
    blocks = [*reversed(doubled), *reversed(others[:256])]
    return next((block for block in blocks if not empty_splits(shape, replace(plan, block=block))), None)


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


def describe_empty_split(name: str, shape: tuple[int, int] | None, plan: SplitPlan) -> str:
    """Why a split of this plan has no chip, and what gives it one; `shape` is None for a chip set: no grid."""
    head = f"the {name} split has no chip"
    if shape is None or not plan.by_place or plan.method == "group" or name not in empty_splits(shape, plan):
        return (
            f"{head} with enough usable, labelled pixels; choose a smaller split.min_valid, {_other_settings(plan)}, "
            "or more scenes, or compare the labels with the area"
        )
    if plan.method in BLOCKED:
        return f"{head}: {_describe_blocks(shape, plan)}"
    strip, buffer = split_zones(shape, plan).split == SPLITS.index(name), f" and a buffer of {plan.buffer}"
    reason = f"chips of {plan.chip} pixels{buffer if plan.buffer else ''} do not fit into its strip of {strip.sum()}"
    return f"{head}: {reason}; choose {_other_settings(plan)}"


def _describe_blocks(shape: tuple[int, int], plan: SplitPlan) -> str:
    count, needed = count_blocks(shape, plan.chip, plan.block), plan.folds or sum(f > 0 for f in plan.fractions)
    blocks = f"{count} block{'' if count == 1 else 's'} of {plan.block} px on a grid of {shape[0]} x {shape[1]}"
    if plan.block < plan.chip:
        return f"a chip of {plan.chip} pixels does not fit into a block of {plan.block}; set split.block: {plan.chip}"
    reason = f"{blocks}: at least {needed} are needed" if count < needed else f"{blocks} give it none"
    if block := choose_block(shape, plan):
        return f"{reason}; split.block: {block} gives {count_blocks(shape, plan.chip, block)}"
    return f"{reason}; no block works with chips of {plan.chip}: choose {_other_settings(plan)}"


def _other_settings(plan: SplitPlan) -> str:
    """The settings that decide which chips a split has, for a sentence."""
    shares = {
        "fewer split.folds": plan.folds > 0,
        "other split.dates": plan.method == "temporal",
        "other split.test_groups and split.val_groups": bool(plan.test_groups or plan.val_groups),
    }
    share = next((words for words, is_used in shares.items() if is_used), "other split.fractions")
    return f"a smaller split.chip{', a smaller split.buffer' if plan.buffer else ''} or {share}"


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
    return describe_empty_split("val", shape, plan)


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
