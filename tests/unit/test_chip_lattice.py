"""Chips begin at the edge of each strip and block, so that a narrow split between two others has chips."""

import shutil
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scenery import Run, split_outputs
from stores import chips_by_split

from eopipe.arrays import IntArray
from eopipe.chips.splits import SPLITS, SplitMethod, SplitPlan, chip_positions, read_split, split_zones
from eopipe.config import check
from eopipe.planning.chip_forecast import forecast_splits
from eopipe.planning.frozen_scenes import find_scenes
from eopipe.text_files import write_json

ROOT = Path(__file__).parents[2]
SHAPES = st.tuples(st.integers(24, 150), st.integers(24, 150))
# Of blocks and checkerboards.
SQUARES: dict[str, Any] = {
    "method": st.sampled_from(["blocks", "checkerboard"]),
    "chip": st.sampled_from([8, 12, 16, 24]),
    "stride": st.integers(1, 30),
}
FRACTIONS = st.tuples(st.integers(1, 8), st.integers(0, 4), st.integers(1, 4), st.integers(0, 2)).map(
    lambda parts: tuple(part / sum(parts) for part in parts[:3])
)
COLUMN_STRIPS: tuple[SplitMethod, ...] = ("west-east", "east-west")
# The splits that each split keeps the buffer to.
OTHERS = {0: {1, 2}, 1: {2}, 2: set[int](), 255: set[int]()}


@st.composite
def strips(draw: st.DrawFn) -> SplitPlan:
    """Any plan of strips, for grids of 24 pixels and more."""
    folds = draw(st.sampled_from([0, 0, 3, 4, 5]))
    return SplitPlan(
        method=draw(st.sampled_from([*COLUMN_STRIPS, "north-south", "south-north"])),
        fractions=draw(FRACTIONS),
        chip=draw(st.sampled_from([8, 12, 16, 24])),
        stride=draw(st.integers(1, 30)),
        buffer=draw(st.integers(0, 20)),
        block=8,
        folds=folds,
        fold=draw(st.integers(0, folds - 1)) if folds else 0,
        seed=0,
    )


def blocks(method: SplitMethod, chip: int, stride: int, block: int) -> SplitPlan:
    return SplitPlan(method, (0.4, 0.3, 0.3), chip, stride, 0, block, 0, 0, 1)


def line_of(shape: tuple[int, int], plan: SplitPlan) -> list[int]:
    """The split of each position along the axis that the strips divide."""
    numbers: list[int] = split_zones(shape, plan).split.ravel().tolist()
    return numbers


def along(corners: IntArray, plan: SplitPlan) -> list[int]:
    """The positions of chips along the axis that the strips divide."""
    positions: list[int] = np.unique(corners[:, int(plan.method in COLUMN_STRIPS)]).tolist()
    return positions


def strips_of(line: list[int]) -> Iterator[tuple[int, int, int]]:
    """Split, start and end of each strip."""
    start = 0
    for number, run in groupby(line):
        end = start + len(list(run))
        yield number, start, end
        start = end


def is_clear(line: list[int], first: int, last: int, number: int) -> bool:
    """Whether no position is of a split that this one keeps apart from."""
    return not OTHERS[number] & set(line[max(first, 0) : last])


@settings(max_examples=150, deadline=None)
@given(shape=SHAPES, plan=strips())
def test_every_chip_lies_wholly_in_its_strip_and_keeps_the_buffer_to_others(
    shape: tuple[int, int], plan: SplitPlan
) -> None:
    line, edge = line_of(shape, plan), plan.chip + plan.buffer
    for number, corners in enumerate(chips_by_split(shape, plan).values()):
        assert (corners >= 0).all()
        assert (corners + plan.chip <= shape).all()
        for position in along(corners, plan):
            assert set(line[position : position + plan.chip]) == {number}
            assert is_clear(line, position - plan.buffer, position + edge, number)


@settings(max_examples=150, deadline=None)
@given(shape=SHAPES, plan=strips())
def test_the_chips_of_a_strip_begin_at_its_edge_behind_the_buffer_and_follow_by_the_stride(
    shape: tuple[int, int], plan: SplitPlan
) -> None:
    line, edge = line_of(shape, plan), plan.chip + plan.buffer
    chips = [along(corners, plan) for corners in chips_by_split(shape, plan).values()]
    for number, start, end in strips_of(line):
        if number >= len(SPLITS):
            continue
        first = next((p for p in range(start, end) if is_clear(line, p - plan.buffer, p, number)), end)
        expected = [p for p in range(first, end - plan.chip + 1, plan.stride) if is_clear(line, p, p + edge, number)]
        in_strip = [p for p in chips[number] if start <= p < end]
        last = len(line) - plan.chip
        assert [p for p in in_strip if p != last] == [p for p in expected if p != last]
        assert set(expected) <= set(in_strip), "the last position of the grid may be one more"


@settings(max_examples=100, deadline=None)
@given(shape=SHAPES, plan=strips())
def test_the_other_axis_of_strips_has_every_stride_and_the_last_position(
    shape: tuple[int, int], plan: SplitPlan
) -> None:
    axis = int(plan.method not in COLUMN_STRIPS)
    last = shape[axis] - plan.chip
    assert chip_positions(shape, plan)[axis].tolist() == sorted({*range(0, last + 1, plan.stride), last})


@settings(max_examples=100, deadline=None)
@given(shape=SHAPES, **SQUARES, block=st.integers(8, 64))
def test_every_block_that_holds_a_chip_has_one_at_its_corner(
    shape: tuple[int, int], method: SplitMethod, chip: int, stride: int, block: int
) -> None:
    plan = blocks(method, chip, stride, block)
    zones, chips = split_zones(shape, plan), chips_by_split(shape, plan)
    for name, corners in chips.items():
        assert (corners >= 0).all()
        assert (corners + chip <= shape).all()
        places = {tuple(corner) for corner in corners.tolist()}
        for row, col in np.argwhere(zones.split == SPLITS.index(name)).tolist():
            corner = row * block, col * block
            if chip <= block and all(np.add(corner, chip) <= shape):
                assert corner in places


@settings(max_examples=100, deadline=None)
@given(shape=SHAPES, **SQUARES, count=st.integers(1, 8))
def test_blocks_of_whole_strides_have_one_lattice_from_the_corner_of_the_grid(
    shape: tuple[int, int], method: SplitMethod, chip: int, stride: int, count: int
) -> None:
    plan = blocks(method, chip, stride, stride * count)
    for positions, edge in zip(chip_positions(shape, plan), shape, strict=True):
        assert positions.tolist() == sorted({*range(0, edge - chip + 1, stride), edge - chip})


def test_chips_as_far_apart_as_they_are_long_do_not_overlap_at_the_edge_of_a_block() -> None:
    rows, columns = chip_positions((200, 200), blocks("blocks", 16, 16, 40))
    assert rows.tolist() == columns.tolist() == [0, 16, 40, 56, 80, 96, 120, 136, 160, 176, 184]
    assert all(second - first >= 16 for first, second in pairwise(rows[:-1].tolist()))


def sample_config(method: str) -> dict[str, Any]:
    """The config of the demo with another method, from any folder."""
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    config["search"]["catalog"] = str(ROOT / "sample")
    config["label"]["source"] = str(ROOT / config["label"]["source"])
    config["split"]["method"] = method
    return check(config)


@pytest.mark.parametrize("method", ["west-east", "east-west", "north-south", "south-north"])
def test_the_demo_has_validation_chips_from_every_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.chdir(tmp_path)
    config = sample_config(method)
    forecast = next(forecast_splits(config, find_scenes(config), [config["split"]]))
    assert [len(forecast.corners[name]) > 0 for name in SPLITS] == [True, True, True]
    assert forecast.stops == forecast.warnings == ()


def test_a_scene_of_the_sample_that_is_split_from_east_to_west_has_validation_chips_at_column_36(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = sample_config("east-west")
    frozen = find_scenes(config)
    write_json(tmp_path / "grid.json", frozen.frame.json())
    shutil.copytree(next((ROOT / "sample").glob("*/S2_ROMANIA_20190830")), tmp_path / "scene")
    (tmp_path / "scene/S2_ROMANIA_20190830.json").rename(tmp_path / "scene/scene.json")
    stores = ("--grid", "grid.json", "--chunk", 32, "--shard", 128)
    bands = ("--bands", "blue", "green", "red", "nir", "--mask", "scl")
    assert run("preprocess", "--scene", "scene", "--tiles", "tiles.zarr", *bands, *stores).code == 0
    label = ("--source", config["label"]["source"], "--classes", "non-forest", "forest", "--bins", 50)
    assert run("label", "--labels", "labels.zarr", *label, *stores).code == 0
    plan = ("--method", "east-west", "--fractions", 0.48, 0.16, 0.36, "--chip", 16, "--stride", 8)
    ports = ("--tiles", "tiles.zarr", "--labels", "labels.zarr", *split_outputs(tmp_path))
    completed = run("split", *ports, *plan)
    assert completed.code == 0, completed.stderr
    split = read_split(tmp_path / "split.json")
    columns = {name: sorted(set(rows[:, 2].tolist())) for name, rows in split.samples.items()}
    assert columns == {"train": [52, 60, 68, 76, 84], "val": [36], "test": [0, 8, 16]}
    assert split.warnings == []
