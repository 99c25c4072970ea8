"""A split without a chip names a block or a chip that works, and a plan that wastes chips says so."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stores import chips_by_split

from eopipe.chips.block_choice import (
    choose_block,
    count_blocks,
    describe_empty_split,
    describe_missing_validation,
    empty_splits,
    plan_warnings,
    wants_validation,
)
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


def test_a_chip_that_is_too_large_for_any_block_says_so() -> None:
    message = describe_empty_split("test", (300, 300), plan_of(chip=256))
    assert message.endswith("no block works with chips of 256: choose a smaller split.chip or other split.fractions")
    assert choose_block((300, 300), plan_of(chip=256)) is None


def test_a_strip_that_is_narrower_than_a_chip_is_named_with_its_width() -> None:
    plan = plan_of("west-east", chip=64)
    message = describe_empty_split("test", (400, 400), plan)
    assert message.endswith(
        "chips of 64 pixels do not fit into its strip of 60; choose a smaller split.chip or other split.fractions"
    )
    assert empty_splits((400, 400), plan_of("west-east", chip=60)) == []
    assert empty_splits((400, 400), plan_of("west-east", chip=64)) != []


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
    plan = plan_of(chip=chip, seed=seed)
    block = choose_block((height, width), plan)
    if block is None:
        assert count_blocks((height, width), chip, chip) < 7
        return
    assert block % chip == 0
    assert count_blocks((height, width), chip, block) >= 3
    chips = chips_by_split((height, width), replace(plan, block=block))
    assert all(len(chips[name]) for name in SPLITS)


def test_a_grid_smaller_than_a_chip_has_no_block() -> None:
    assert choose_block((100, 100), plan_of()) is None


def test_a_plan_that_wastes_chips_is_a_warning() -> None:
    samples = np.zeros((100, 3), np.int64)
    splits = np.full(100, NO_SPLIT, np.uint8)
    splits[:25] = np.arange(25) % 2
    (crossing, unused) = plan_warnings(plan_of(chip=48, block=100, buffer=8), samples, splits, (400, 400))
    assert crossing == "split.block 100 is not a multiple of split.chip 48, so chips cross borders; 96 or 144 would be"
    assert unused.startswith("75 % of the chips are in no split, because of the buffer and the borders between splits")
    used = np.arange(100, dtype=np.uint8) % 3
    assert list(plan_warnings(plan_of(block=512), samples, used, (2048, 2048))) == []
    assert list(plan_warnings(plan_of("west-east", block=100), samples, used, (2048, 2048))) == []


@settings(max_examples=80, deadline=None)
@given(
    shape=st.tuples(st.integers(64, 200), st.integers(64, 200)),
    method=st.sampled_from(["blocks", "checkerboard", "west-east", "east-west", "north-south", "south-north"]),
    percent=st.integers(1, 20),
    chip=st.sampled_from([8, 16, 24]),
    buffer=st.sampled_from([0, 4, 12]),
)
def test_a_block_that_a_plan_without_validation_names_gives_all_splits_a_chip(
    shape: tuple[int, int], method: SplitMethod, percent: int, chip: int, buffer: int
) -> None:
    fractions = (round(0.65 - percent / 100, 4), percent / 100, 0.35)
    plan = SplitPlan(method, fractions, chip, chip // 2, buffer, 32, 0, 0, 0)
    sentence = describe_missing_validation(shape, plan)
    if "val" not in empty_splits(shape, plan):
        assert "has no chip with enough usable, labelled pixels; choose a smaller split.min_valid" in sentence
        return
    if block := re.search(r"split\.block: (\d+) gives", sentence):
        assert empty_splits(shape, replace(plan, block=int(block[1]))) == []
        return
    assert "a smaller split.chip" in sentence or "set split.block" in sentence


@pytest.mark.parametrize(
    ("changes", "is_wanted"),
    [
        ({}, True),
        ({"fractions": (0.5, 0.0, 0.5)}, False),
        ({"fractions": (0.5, 0.0, 0.5), "folds": 3}, True),
        ({"method": "temporal", "dates": ("2020-01-01",)}, False),
        ({"method": "temporal", "dates": ("2020-01-01", "2020-02-01"), "fractions": (1.0, 0.0, 0.0)}, True),
        ({"method": "group", "test_groups": ("a",)}, False),
        ({"method": "group", "test_groups": ("a",), "val_groups": ("b",)}, True),
    ],
)
def test_validation_is_wanted_with_a_fraction_folds_a_second_date_or_named_groups(
    changes: dict[str, Any], is_wanted: bool
) -> None:
    plan = replace(plan_of(), **changes)
    assert wants_validation(plan) == is_wanted
    train_only = plan_warnings(plan, np.zeros((1, 3), np.int64), np.zeros(1, np.uint8), None)
    # Named groups without those of val may be a mistake.
    is_said = any("no validation chips" in sentence for sentence in train_only)
    assert is_said == (is_wanted or bool(plan.test_groups))
