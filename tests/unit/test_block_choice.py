"""A split without a chip names a block or a chip that works, and a plan that wastes chips says so."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import chips_by_split

from eopipe.chips.block_choice import choose_block, count_blocks, describe_empty_split, empty_splits, plan_warnings
from eopipe.chips.splits import NO_SPLIT, SPLITS, SplitMethod, SplitPlan

FRACTIONS = (0.7, 0.15, 0.15)


def plan_of(method: SplitMethod = "blocks", chip: int = 128, block: int = 512, **changes: int) -> SplitPlan:
    return SplitPlan(method, FRACTIONS, chip, chip, changes.get("buffer", 0), block, 0, 0, changes.get("seed", 0))


def test_a_block_that_is_too_large_for_the_grid_is_named_with_one_that_works() -> None:
    assert describe_empty_split("test", (401, 401), plan_of()) == (
        "the test split has no chip: 1 block of 512 px on a grid of 401 x 401: at least 3 are needed; "
        "split.block: 128 gives 9"
    )
    assert empty_splits((401, 401), plan_of(block=128)) == []


def test_a_chip_that_is_too_large_for_any_block_is_named_with_one_that_works() -> None:
    message = describe_empty_split("test", (300, 300), plan_of(chip=256))
    assert "no block works with chips of 256, the largest that does is " in message
    chip = int(message.rpartition(" ")[2])
    assert choose_block((300, 300), chip, FRACTIONS)
    assert choose_block((300, 300), chip + 4, FRACTIONS) is None


def test_a_strip_that_is_narrower_than_a_chip_names_the_largest_chip() -> None:
    plan = plan_of("west-east", chip=64)
    message = describe_empty_split("test", (400, 400), plan)
    assert message.endswith("chips of 64 pixels do not fit into its strip; split.chip: 56 is the largest that works")
    assert empty_splits((400, 400), plan_of("west-east", chip=56)) == []


def test_masks_are_the_reason_where_the_geometry_works() -> None:
    assert "split.min_valid" in describe_empty_split("test", (2048, 2048), plan_of(block=256))


@settings(max_examples=60, deadline=None)
@given(
    height=st.integers(64, 900),
    width=st.integers(64, 900),
    chip=st.sampled_from([8, 16, 32, 64]),
    seed=st.integers(0, 9),
)
def test_a_block_that_is_chosen_fills_every_split(height: int, width: int, chip: int, seed: int) -> None:
    choice = choose_block((height, width), chip, FRACTIONS, seed=seed)
    if choice is None:
        assert count_blocks((height, width), chip, chip) < 7
        return
    assert choice.block % chip == 0
    assert choice.count == count_blocks((height, width), chip, choice.block) >= 3
    chips = chips_by_split((height, width), plan_of(chip=chip, block=choice.block, seed=seed))
    assert all(len(chips[name]) for name in SPLITS)


def test_a_limit_and_a_minimum_number_of_blocks_are_kept() -> None:
    assert choose_block((4000, 4000), 128, FRACTIONS, largest=512).block == 512  # type: ignore[union-attr]
    choice = choose_block((4000, 4000), 128, FRACTIONS, min_blocks=100)
    assert choice
    assert (choice.block, choice.count) == (256, 256)
    assert choose_block((100, 100), 128, FRACTIONS) is None


def test_a_plan_that_wastes_chips_is_a_warning() -> None:
    samples = np.zeros((100, 3), np.int64)
    splits = np.full(100, NO_SPLIT, np.uint8)
    splits[:25] = 0
    (crossing, unused) = plan_warnings(plan_of(chip=48, block=100, buffer=8), samples, splits)
    assert crossing == "split.block 100 is not a multiple of split.chip 48, so chips cross borders; 96 or 144 would be"
    assert unused.startswith("75 % of the chips are in no split, because of the buffer and the borders between splits")
    assert list(plan_warnings(plan_of(block=512), samples, np.zeros(100, np.uint8))) == []
    assert list(plan_warnings(plan_of("west-east", block=100), samples, np.zeros(100, np.uint8))) == []
