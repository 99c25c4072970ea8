"""Chips of two splits keep the buffer, whatever the plan; scenes, tiles, regions and days are in one split."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import shapely
import zarr
from builders import grid_of, write_features, write_labels, write_store
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scenery import Completed, Run, covered_area, split_outputs
from stores import chips_by_split, table_of

from eopipe.arrays import AnyArray, IntArray, UInt8Array
from eopipe.chips.chips import chip_counts
from eopipe.chips.polygons import labelled_ground_pixels
from eopipe.chips.splits import (
    NO_SPLIT,
    SPLITS,
    Split,
    SplitMethod,
    SplitPlan,
    chip_positions,
    read_split,
    split_zones,
)
from eopipe.errors import BadInputError, UsageError
from eopipe.publish import digest
from eopipe.reporting.figures import SPLIT_COLORS, rgb
from eopipe.text_files import read_json
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import NO_LABEL, Tiles
from eopipe.training.data import TrainingData, TrainingInputs

STRIPS: tuple[SplitMethod, ...] = ("west-east", "east-west", "north-south", "south-north")
METHODS: tuple[SplitMethod, ...] = ("blocks", "checkerboard", *STRIPS)
SHAPES = st.tuples(st.integers(24, 150), st.integers(24, 150))
FRACTIONS = st.tuples(st.integers(1, 8), st.integers(0, 4), st.integers(1, 4), st.integers(0, 2)).map(
    lambda parts: tuple(part / sum(parts) for part in parts[:3])
)


@st.composite
def plans(draw: st.DrawFn, folds: bool | None = None) -> SplitPlan:
    """Any plan that the stage accepts, for grids of 24 pixels and more."""
    number = draw(st.integers(3, 6)) if (draw(st.booleans()) if folds is None else folds) else 0
    return SplitPlan(
        method=draw(st.sampled_from(METHODS)),
        fractions=draw(FRACTIONS),
        chip=draw(st.sampled_from([8, 12, 16, 24])),
        stride=draw(st.integers(1, 30)),
        buffer=draw(st.integers(0, 20)),
        block=draw(st.integers(8, 64)),
        folds=number,
        fold=draw(st.integers(0, number - 1)) if number else 0,
        seed=draw(st.integers(0, 2**63)),
    )


def gap(first: IntArray, second: IntArray, chip: int) -> int:
    """The minimum gap in pixels between chips of two lists, by brute force; negative if they overlap."""
    distances = np.abs(first[:, None, :] - second[None, :, :]).max(-1)
    return int(distances.min()) - chip


@settings(max_examples=80)
@given(shape=SHAPES, plan=plans())
def test_chips_of_two_splits_keep_the_buffer_and_are_in_the_grid(shape: tuple[int, int], plan: SplitPlan) -> None:
    chips = chips_by_split(shape, plan)
    for first, second in (("train", "val"), ("train", "test"), ("val", "test")):
        if len(chips[first]) and len(chips[second]):
            assert gap(chips[first], chips[second], plan.chip) >= plan.buffer
    for corners in chips.values():
        assert (corners >= 0).all()
        assert (corners + plan.chip <= shape).all()
        assert len(np.unique(corners, axis=0)) == len(corners)
    for name, corners in chips_by_split(shape, plan).items():
        np.testing.assert_array_equal(corners, chips[name], "the same plan places the same chips")


@settings(max_examples=60)
@given(shape=SHAPES, plan=plans())
def test_no_chip_that_could_be_used_is_lost(shape: tuple[int, int], plan: SplitPlan) -> None:
    zones = split_zones(shape, plan)
    owner = np.repeat(np.repeat(zones.split, zones.height, 0), zones.width, 1)[: shape[0], : shape[1]]
    others, reach = {"train": [1, 2], "val": [2], "test": []}, plan.chip + plan.buffer
    for number, name in enumerate(SPLITS):
        rows, cols = chip_positions(shape, plan)
        expected = [
            [row, col]
            for row in rows.tolist()
            for col in cols.tolist()
            if (owner[row : row + plan.chip, col : col + plan.chip] == number).all()
            and not np.isin(
                owner[max(row - plan.buffer, 0) : row + reach, max(col - plan.buffer, 0) : col + reach], others[name]
            ).any()
        ]
        assert chips_by_split(shape, plan)[name].tolist() == expected


@settings(max_examples=60)
@given(shape=SHAPES, plan=plans(folds=True))
def test_folds_test_every_position_exactly_once(shape: tuple[int, int], plan: SplitPlan) -> None:
    tested = np.zeros(split_zones(shape, plan).split.shape, int)
    for fold in range(plan.folds):
        zones = split_zones(shape, replace(plan, fold=fold))
        assert not (zones.split == NO_SPLIT).any()
        tested += zones.split == SPLITS.index("test")
        following = split_zones(shape, replace(plan, fold=(fold + 1) % plan.folds))
        np.testing.assert_array_equal(zones.split == 1, following.split == 2, "the next fold validates")
    assert (tested == 1).all()


@pytest.mark.parametrize("method", ["blocks", *STRIPS])
def test_fractions_are_shares_of_the_grid(method: SplitMethod) -> None:
    plan = SplitPlan(method, (0.5, 0.2, 0.1), chip=8, stride=8, buffer=0, block=10, folds=0, fold=0, seed=1)
    zones = split_zones((100, 100), plan)
    share = [float((zones.split == number).mean()) for number in (0, 1, 2, NO_SPLIT)]
    assert share == pytest.approx([0.5, 0.2, 0.1, 0.2])


def test_strips_go_the_way_their_name_says() -> None:
    for method, first in (("west-east", (0, 0)), ("east-west", (0, 99)), ("south-north", (99, 0))):
        plan = SplitPlan(method, (0.6, 0.2, 0.2), chip=8, stride=1, buffer=0, block=8, folds=0, fold=0, seed=0)
        train = chips_by_split((100, 100), plan)["train"]
        assert (train == np.minimum(first, 92)).all(1).any()
        assert not (train == 92 - np.minimum(first, 92)).all(1).any()


def test_another_seed_assigns_other_blocks() -> None:
    plan = SplitPlan("blocks", (0.6, 0.2, 0.2), chip=8, stride=8, buffer=0, block=16, folds=0, fold=0, seed=0)
    assert (split_zones((200, 200), plan).split != split_zones((200, 200), replace(plan, seed=1)).split).any()


@pytest.mark.parametrize(("val", "test"), [(0.0, 0.5), (0.1, 0.1), (0.1, 0.3)])
def test_a_checkerboard_trains_on_one_colour_and_divides_the_other(val: float, test: float) -> None:
    plan = SplitPlan("checkerboard", (0.5, val, test), chip=8, stride=8, buffer=0, block=10, folds=0, fold=0, seed=1)
    splits = split_zones((100, 100), plan).split
    assert (splits == 0).sum() == 50
    assert (splits == 2).sum() == pytest.approx(50 * test / (val + test), abs=1)
    trains = splits == 0
    assert not (trains[1:] & trains[:-1]).any()
    assert not (trains[:, 1:] & trains[:, :-1]).any()
    other = split_zones((100, 100), replace(plan, seed=2)).split
    np.testing.assert_array_equal(other == 0, ~trains)


@settings(max_examples=50)
@given(seed=st.integers(0, 1000), shape=SHAPES, chip=st.sampled_from([8, 12, 16, 24]), count=st.integers(0, 20))
def test_pixels_of_a_chip_are_counted_right(seed: int, shape: tuple[int, int], chip: int, count: int) -> None:
    random = np.random.default_rng(seed)
    mask = random.random(shape) < 0.4
    limit = np.array(shape) - chip + 1
    corners = (random.random((count, 2)) * limit).astype(np.int64)
    expected = [int(mask[row : row + chip, col : col + chip].sum()) for row, col in corners]
    assert chip_counts(mask, corners, chip).tolist() == expected


def test_a_chip_that_does_not_fit_is_reported() -> None:
    plan = SplitPlan("blocks", (0.6, 0.2, 0.2), chip=64, stride=64, buffer=0, block=64, folds=0, fold=0, seed=0)
    with pytest.raises(BadInputError, match="a chip of 64 pixels does not fit into a grid of 200 x 63"):
        chips_by_split((200, 63), plan)


@pytest.mark.parametrize(
    "changes", [{"fractions": (0.9, 0.2, 0.2)}, {"fractions": (0.5, 0.5)}, {"folds": 2}, {"folds": 3, "fold": 3}]
)
def test_an_inconsistent_plan_is_a_usage_error(changes: dict[str, Any]) -> None:
    consistent = {"fractions": (0.6, 0.2, 0.2), "folds": 0, "fold": 0}
    with pytest.raises(UsageError):
        SplitPlan("blocks", chip=8, stride=8, buffer=0, block=8, seed=0, **(consistent | changes))


# The stage itself, over stores.

SHAPE = (96, 96)
SAME_LABELS = "place: labels of the tests never change"
SHARES = ("--method", "west-east", "--fractions", 0.5, 0.25, 0.25)


def make_stores(
    folder: Path,
    scene: str,
    *,
    valid: AnyArray | None = None,
    label: AnyArray | None = None,
    date: str | None = None,
    left: float = 0.0,
    classes: tuple[str, ...] = ("a", "b"),
    attributes: dict[str, Any] | None = None,
) -> tuple[Path, Path]:
    """Write one scene of noise and its labels, classes a and b in stripes."""
    numbers = (np.indices(SHAPE)[0] // 8 % 2 if label is None else label).astype(np.uint8)
    noise = np.random.default_rng(list(scene.encode())).integers(0, 1000, (1, *SHAPE)).astype(np.uint16)
    arrays = {"image": noise} | ({} if valid is None else {"valid": valid})
    place = {"grid": grid_of(SHAPE, left=left, top=960.0), "layout": Layout(16, 32), "scene": scene}
    options = {"scaling": (1.0, 0.0), "datetime": date} | place | (attributes or {})
    tiles = write_store(folder / f"{scene}.zarr", ("red",), arrays, **options)
    return tiles, write_labels(folder / f"{scene}-label.zarr", numbers, classes, **place)


def split(run: Run, folder: Path, stores: list[tuple[Path, Path]], *arguments: object) -> Completed:
    tiles, labels = zip(*stores, strict=True)
    # Labels of the scenes are the same, which a split by scene must accept.
    common = ("--chip", 16, "--block", 32, "--allow", SAME_LABELS)
    return run("split", "--tiles", *tiles, "--labels", *labels, *split_outputs(folder), *common, *arguments)


def placed(run: Run, folder: Path, stores: list[tuple[Path, Path]], *arguments: object) -> Split:
    """The file of a split that is accepted."""
    split(run, folder, stores, *arguments).ends(0)
    return read_split(folder / "split.json")


def test_samples_have_usable_pixels_and_are_counted_by_class(tmp_path: Path, run: Run) -> None:
    valid, label = np.ones(SHAPE, np.uint8), (np.indices(SHAPE)[0] // 8 % 2).astype(np.uint8)
    valid[:, 40:60], label[50:55] = 0, NO_LABEL
    stores = [make_stores(tmp_path, "s", valid=valid, label=label)]
    result = placed(run, tmp_path, stores, *SHARES, "--min-valid", 0.7, "--stride", 4, "--buffer", 4)
    usable = (valid > 0) & (label != NO_LABEL)
    for name in SPLITS:
        counted = np.zeros(2, int)
        for scene, row, col in result.samples[name]:
            assert scene == 0
            window = (slice(row, row + 16), slice(col, col + 16))
            assert usable[window].mean() >= 0.7
            counted += [(usable[window] & (label[window] == number)).sum() for number in (0, 1)]
        assert list(result.pixels[name].values()) == counted.tolist()
    assert all(distance >= 4 for distance in result.audit.gap_pixels.values())


def test_without_a_minimum_every_chip_with_a_usable_pixel_is_a_sample_and_no_other(tmp_path: Path, run: Run) -> None:
    valid, label = np.ones(SHAPE, np.uint8), (np.indices(SHAPE)[0] // 8 % 2).astype(np.uint8)
    # Chips without a valid pixel, without a label, and with pixels that are valid or labelled, but never both.
    valid[:16, 16:], label[16:32, :80] = 0, NO_LABEL
    valid[32:48, 0::2], label[32:48, 1::2] = 0, NO_LABEL
    # Of each kind of hole one chip has a single usable pixel.
    valid[3, 40], label[20, 70], valid[40, 90] = 1, 1, 1
    stores = [make_stores(tmp_path, "s", valid=valid, label=label)]
    assert split(run, tmp_path, stores, *SHARES[2:], "--min-valid", 0.0, "--block", 16).code == 0
    samples = np.concatenate([*read_split(tmp_path / "split.json").samples.values()])[:, 1:]
    usable = ((valid > 0) & (label != NO_LABEL)).reshape(6, 16, 6, 16).sum((1, 3))
    assert np.sort(usable.ravel())[:17].tolist() == [0] * 13 + [1] * 3 + [256]
    assert sorted(map(tuple, samples.tolist())) == list(map(tuple, (16 * np.argwhere(usable)).tolist()))


def test_the_order_of_the_stores_does_not_matter(tmp_path: Path, run: Run) -> None:
    stores = [make_stores(tmp_path, scene) for scene in ("c", "a", "b")]
    digests = set()
    for order in (stores, stores[::-1]):
        assert split(run, tmp_path, order).code == 0
        digests.add(digest(tmp_path / "split.json"))
    assert len(digests) == 1
    assert read_json(tmp_path / "split.json")["scenes"] == ["a", "b", "c"]


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 40), st.integers(0, 40), st.integers(0, 2)), max_size=30),
    st.integers(0, 12),
)
def test_of_chips_that_are_not_kept_apart_those_with_the_fewest_to_spare_go(
    chips: list[tuple[int, int, int, int]], buffer: int
) -> None:
    rows = np.array(chips, np.int64).reshape(-1, 4)
    samples, assigned = rows[:, :3], rows[:, 3].astype(np.uint8)
    table, _ = table_of({"all": samples}, 8)
    splits = table.keep_apart(assigned.copy(), buffer)

    def is_near(chip: int, other: int) -> bool:
        return max(abs(samples[chip, 1:] - samples[other, 1:])) < 8 + buffer

    # Test chips stay; a val chip goes where a test chip is near, a train chip where one that stays in val or test is.
    for chip, split in enumerate(assigned.tolist()):
        others = [other for other in range(len(rows)) if splits[other] in {0: (1, 2), 1: (2,), 2: ()}[split]]
        assert splits[chip] == (NO_SPLIT if any(is_near(chip, other) for other in others) else split)


def test_a_position_is_in_one_split_in_all_scenes(tmp_path: Path, run: Run) -> None:
    half = np.ones(SHAPE, np.uint8)
    half[:48] = 0
    stores = [make_stores(tmp_path, "a", valid=half), make_stores(tmp_path, "b", valid=1 - half)]
    result = placed(run, tmp_path, stores, "--stride", 5).samples
    for name in ("test", "val"):
        assert gap(result["train"][:, 1:], result[name][:, 1:], 16) >= 0


def test_a_class_that_a_split_lacks_is_reported(tmp_path: Path, run: Run) -> None:
    label = np.zeros(SHAPE, np.uint8)
    label[:, :30] = 1
    completed = split(run, tmp_path, [make_stores(tmp_path, "s", label=label)], *SHARES)
    completed.ends(3, "the labels of the test split have no pixel of class b")
    assert not (tmp_path / "split.json").exists()


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (("--chip", 128), 3, "a chip of 128 pixels does not fit into a grid of 96 x 96"),
    (("--buffer", 96), 3, "the train split has no chip"),
    (("--min-valid", 1.0, "--fractions", 1, 0, 0), 3, "the test split has no chip"),
    (("--fractions", 0.9, 0.9, 0.9), 2, "fractions"),
    (("--folds", 2), 2, "at least 3 folds"),
    (("--folds", 3, "--fold", 3), 2, "numbered from 0"),
    (("--method", "temporal"), 2, "needs split.dates"),
    (("--method", "temporal", "--dates", "2020-02-01", "2020-01-01"), 2, "in order"),
    (("--method", "temporal", "--dates", "1 May"), 2, "should match pattern"),
    (("--method", "temporal", "--dates", "2020-01-01", "--folds", 3), 2, "no folds"),
    (("--method", "temporal", "--dates", "2020-01-01"), 3, "scene s has no datetime"),
    (("--method", "group", "--by", "tile"), 3, "scene s has no tile in grid:code or its id"),
    (("--method", "group"), 3, "1 groups (s) cannot fill 3 splits"),
    (("--method", "group", "--test-groups", "x"), 3, "split.val_groups or split.test_groups name scene x; there are s"),
    (("--method", "group", "--test-groups", "s", "--val-groups", "s"), 2, "both name s"),
    (("--method", "group", "--by", "region"), 2, "needs split.regions"),
    (("--allow", "overlap"), 2, "should match pattern"),
    (("--allow", "nonsense: because"), 2, "with a kind of overlap, distance"),
    (("--method", "random", "--fractions", 1, 0, 0), 3, "the test split has no chip"),
])  # fmt: skip
def test_an_impossible_split_is_reported(
    tmp_path: Path, run: Run, arguments: tuple[object, ...], code: int, message: str
) -> None:
    split(run, tmp_path, [make_stores(tmp_path, "s")], *arguments).ends(code, message)


def test_stores_that_do_not_match_are_reported(tmp_path: Path, run: Run) -> None:
    a, b = make_stores(tmp_path, "a"), make_stores(tmp_path, "b", left=10.0)
    c = make_stores(tmp_path, "c", classes=("b", "a"))
    for stores, message in (
        ([a, (b[0], a[1])], "given twice"),
        ([a, b], "different grids"),
        ([a, c], "c-label.zarr has the classes b, a"),
        ([(a[0], c[1])], "no labels of scene a; there are labels of c"),
        ([(a[1], a[1])], "has no array image; it has label"),
    ):
        split(run, tmp_path, stores).ends(3, message)


DAYS = {"a": "2020-01-05", "b": "2020-02-05T23:59:00Z", "c": "2020-03-01T00:30:00+02:00", "d": "2020-03-01"}


def scenes_by_split(folder: Path) -> dict[str, set[str]]:
    """The scenes of each split."""
    result = read_split(folder / "split.json")
    return {name: {result.scenes[n] for n in result.samples[name][:, 0]} for name in SPLITS}


@pytest.mark.parametrize(("dates", "expected"), [
    (("2020-02-01", "2020-03-01"), {"train": {"a"}, "val": {"b", "c"}, "test": {"d"}}),
    (("2020-02-05",), {"train": {"a"}, "val": set(), "test": {"b", "c", "d"}}),
])  # fmt: skip
def test_scenes_are_split_by_the_day_in_utc(
    tmp_path: Path, run: Run, dates: tuple[str, ...], expected: dict[str, set[str]]
) -> None:
    stores = [make_stores(tmp_path, scene, date=day) for scene, day in DAYS.items()]
    split(run, tmp_path, stores, "--method", "temporal", "--dates", *dates).ends(0)
    assert scenes_by_split(tmp_path) == expected
    result = read_split(tmp_path / "split.json")
    assert result.by_scene is True
    assert result.audit.gap_pixels == {}, "positions repeat on other days"
    samples = np.concatenate([*result.samples.values()])
    every_position = [[row, column] for row in range(0, 96, 16) for column in range(0, 96, 16)]
    assert [samples[samples[:, 0] == n, 1:].tolist() for n in range(len(DAYS))] == [every_position] * len(DAYS)


@pytest.mark.exhaustive
def test_in_a_split_by_scene_only_the_maps_of_test_scenes_are_scored(tmp_path: Path, run: Run) -> None:
    tiles = [make_stores(tmp_path, scene, date=DAYS[scene])[0] for scene in "ad"]
    labels = make_stores(tmp_path, "")[1]
    stores = ("--tiles", *tiles, "--labels", labels)
    days = ("--method", "temporal", "--dates", "2020-02-01", "--allow", SAME_LABELS)
    assert run("split", *stores, *split_outputs(tmp_path), "--chip", 16, *days).code == 0
    truth, grid = Tiles(labels).read("label"), Tiles(labels).grid
    for scenes, prediction in (("a", 1 - truth), ("d", truth), ("a d", truth)):
        profile = {"crs": str(grid.crs), "transform": grid.affine, "height": 96, "width": 96}
        with rasterio.open(tmp_path / f"{scenes}.tif", "w", "GTiff", count=1, dtype="uint8", **profile) as file:
            file.write(prediction, 1)
            file.update_tags(scenes=scenes)
    arguments = (*stores, "--chips", tmp_path / "split.json", "--metrics", tmp_path / "metrics.json", "--classes")
    assert run("evaluate", *arguments, tmp_path / "a.tif", tmp_path / "d.tif").code == 0
    scored = read_json(tmp_path / "metrics.json")
    assert (scored["model"]["accuracy"], scored["test_pixels"]) == (1.0, 96 * 96)
    assert [(scene["scene"], scene["date"], scene["count"]) for scene in scored["scenes"]] == [
        ("d", DAYS["d"], 96 * 96)
    ]
    assert scored["scenes"][0]["scores"]["accuracy"] == 1.0
    completed = run("evaluate", *arguments, tmp_path / "a d.tif")
    completed.ends(3, "one mosaic mixes the scenes that train and test; give a map for each scene")


@pytest.mark.exhaustive
def test_groups_stay_whole_and_every_fold_tests_others(tmp_path: Path, run: Run) -> None:
    stores = [make_stores(tmp_path, scene) for scene in "abcdef"]
    tested: list[str] = []
    for fold in range(3):
        assert split(run, tmp_path, stores, "--method", "group", "--folds", 3, "--fold", fold).code == 0
        scenes = scenes_by_split(tmp_path)
        assert not scenes["train"] & scenes["test"]
        assert not scenes["train"] & scenes["val"]
        tested += sorted(scenes["test"])
    assert sorted(tested) == list("abcdef")


def test_few_groups_fill_every_split_that_has_a_fraction(tmp_path: Path, run: Run) -> None:
    stores = [make_stores(tmp_path, scene) for scene in "abc"]
    assert split(run, tmp_path, stores, "--method", "group").code == 0
    assert [len(scenes) for scenes in scenes_by_split(tmp_path).values()] == [1, 1, 1]


def half(side: str) -> UInt8Array:
    """Valid mask of a tile: the west or the east half, and 16 columns in the middle in both."""
    valid = np.zeros(SHAPE, np.uint8)
    valid[:, slice(0, 56) if side == "west" else slice(40, 96)] = 1
    return valid


def test_tiles_that_overlap_keep_the_buffer_in_their_overlap(tmp_path: Path, run: Run) -> None:
    west = ["S2A_33TWL_20230815_0_L2A", "HLS.S30.T33TWL.2023213T100000.v2.0"]
    stores = [make_stores(tmp_path, scene, valid=half("west")) for scene in west]
    east = {"attributes": {"grid:code": "MGRS-33TWM"}}
    stores.append(make_stores(tmp_path, "east", valid=half("east"), **east))
    arguments = ("--method", "group", "--by", "tile", "--test-groups", "33TWM", "--stride", 4, "--buffer", 6)
    split(run, tmp_path, stores, *arguments, "--min-valid", 1.0).ends(0)
    assert scenes_by_split(tmp_path) == {"train": set(west), "val": set(), "test": {"east"}}
    result = read_split(tmp_path / "split.json")
    distance = gap(result.samples["train"][:, 1:], result.samples["test"][:, 1:], 16)
    assert distance == result.audit.gap_pixels["train-test"] == 8, "columns 16 + 16 to 40, in steps of 4"


@pytest.mark.parametrize("scene", ["LC09_L2SP_190028_20230801_02_T1", "LC08_190028_2023"])
def test_a_landsat_scene_has_a_path_and_row(tmp_path: Path, run: Run, scene: str) -> None:
    stores = [make_stores(tmp_path, scene), make_stores(tmp_path, "LE07_L2SP_191028_20230801_02_T1")]
    arguments = ("--method", "group", "--by", "tile", "--test-groups", "190028", "--buffer", 96)
    # Both cover the same area.
    split(run, tmp_path, stores, *arguments).ends(3, "the train split has no chip")


def test_regions_stay_whole_and_keep_the_buffer(tmp_path: Path, run: Run) -> None:
    bounds = {"north": (0, 520, 960, 960), "southwest": (0, 0, 480, 440), "southeast": (480, 0, 960, 440)}
    shapes = [(shapely.box(*numbers), {"name": name}) for name, numbers in bounds.items()]
    file = write_features(tmp_path / "regions.geojson", *shapes, crs="EPSG:32633")
    arguments = ("--method", "group", "--by", "region", "--regions", file, "--attribute", "name")
    south = ("--test-groups", "southwest", "southeast")
    document = placed(run, tmp_path, [make_stores(tmp_path, "s")], *arguments, *south, "--stride", 2)
    result = document.samples
    assert result["train"][:, 1].max() + 16 == 44
    assert result["test"][:, 1].min() == 52
    assert document.groups is not None
    assert set(document.groups["train"]) == {"north"}
    columns = result["test"][:, 2]
    assert {40, 44} <= set(columns.tolist()), "chips in both regions, and one centred between them"
    assert document.groups["test"] == [
        "southeast" if middle >= 48 else "southwest" for middle in (columns + 8).tolist()
    ]
    split(run, tmp_path, [make_stores(tmp_path, "t")], *arguments[:-1], "id").ends(3, "id")


def test_a_scene_without_pixels_or_labels_is_left_out_with_a_warning_and_without_any_other_refused(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    nothing = np.zeros(SHAPE, np.uint8)
    quality = {"quality": {"nodata": 1.0, "masked": 0.0, "saturated": 0.0, "not_finite": 0}}
    stores = [
        make_stores(tmp_path, "a"),
        make_stores(tmp_path, "gap", valid=nothing, attributes=quality),
        make_stores(tmp_path, "cloud", valid=nothing),
        make_stores(tmp_path, "unlabelled", label=np.full(SHAPE, NO_LABEL)),
        make_stores(tmp_path, "bad", valid=nothing, attributes={"left_out": {"bad": "asset red is XML"}}),
    ]
    split(run, tmp_path, stores).ends(0)
    reasons = {row.scene: row.reason for row in read_split(tmp_path / "split.json").left_out}
    assert reasons == {
        "gap": "all pixels are nodata",
        "cloud": "all pixels are nodata or masked",
        "unlabelled": "no pixel has a label",
        "bad": "asset red is XML",
    }
    for scene, reason in reasons.items():
        assert f"event=scene_left_out scene={scene} reason={reason!r}" in caplog.text
    assert set().union(*scenes_by_split(tmp_path).values()) == {"a"}
    named = "no scene can be used (gap: all pixels are nodata; unlabelled: no pixel has a label)"
    split(run, tmp_path, [stores[1], stores[3]]).ends(3, named)


def test_every_chip_is_counted_by_its_outcome(tmp_path: Path, run: Run) -> None:
    bare = np.indices(SHAPE)[0] // 8 % 2
    bare[:32] = NO_LABEL
    stores = [make_stores(tmp_path, "a", valid=half("west")), make_stores(tmp_path, "b", label=bare)]
    arguments = ("--method", "north-south", "--fractions", 0.5, 0.17, 0.33)
    result = placed(run, tmp_path, stores, "--buffer", 8, *arguments)
    outcomes = {row.scene: row.model_dump(exclude={"scene"}) for row in result.fates}
    # 6 x 6 chips of 16 pixels; 56 columns are 3 whole chips and half of the fourth, which is just enough.
    assert (outcomes["a"]["unlabelled"], outcomes["a"]["unusable"]) == (0, 12)
    assert (outcomes["b"]["unlabelled"], outcomes["b"]["unusable"]) == (12, 0)
    assert [sum(row.values()) for row in outcomes.values()] == [36, 36]
    assert outcomes["a"]["spare"] > 0
    for number, scene in enumerate("ab"):
        samples = [rows[rows[:, 0] == number] for rows in result.samples.values()]
        assert outcomes[scene]["samples"] == sum(map(len, samples))


def test_random_chips_are_refused_until_a_reason_is_given(tmp_path: Path, run: Run) -> None:
    stores = [make_stores(tmp_path, "s")]
    split(run, tmp_path, stores, "--method", "random").ends(4, "random", "train chip of scene s, row")
    assert not [path.name for path in tmp_path.iterdir() if path.stem in ("split", "statistics")]
    (finding,) = placed(run, tmp_path, stores, "--method", "random", "--allow", "random: to compare with").audit.allowed
    assert (finding.kind, finding.reason) == ("random", "to compare with")


def test_a_val_split_without_a_chip_is_a_warning_in_log_and_file_with_settings_that_give_it_one(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    stores = [make_stores(tmp_path, "s")]
    narrow = ("--method", "east-west", "--stride", 8, "--fractions", 0.5, 0.125, 0.375)
    result = placed(run, tmp_path, stores, *narrow)
    assert [len(result.samples[name]) > 0 for name in SPLITS] == [True, False, True]
    (sentence,) = result.warnings
    assert sentence.startswith(
        "no validation chips, so early stopping, the best checkpoint and calibration cannot work"
    )
    assert f"event=split_plan message={sentence!r}" in caplog.text
    assert "chips of 16 pixels do not fit into its strip of 12" in sentence
    for cure in (("--fractions", 0.45, 0.175, 0.375), ("--chip", 12)):
        assert split(run, tmp_path, stores, *narrow, *cure).code == 0
        cured = read_split(tmp_path / "split.json")
        assert len(cured.samples["val"]), cure
        assert cured.warnings == []


def test_a_class_without_validation_pixels_is_a_warning_of_the_training(
    tmp_path: Path, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    label = (np.indices(SHAPE)[0] // 8 % 2).astype(np.uint8)
    label[:, 48:72] = 0
    stores = [make_stores(tmp_path, "s"), make_stores(tmp_path, "t", label=label)]
    for (tiles, labels), is_warned in zip(stores, (False, True), strict=True):
        assert split(run, tmp_path, [(tiles, labels)], *SHARES).code == 0
        TrainingData.open(TrainingInputs((tiles,), (labels,), tmp_path / "split.json", tmp_path / "statistics.json"))
        sentence = "the labels of the val split have no pixel of class b, so "
        assert (f"event=class_without_validation message='{sentence}" in caplog.text) == is_warned


def test_a_val_split_that_was_not_asked_for_or_is_masked_is_told_apart(tmp_path: Path, run: Run) -> None:
    assert placed(run, tmp_path, [make_stores(tmp_path, "s")], *SHARES[:2], "--fractions", 0.5, 0, 0.5).warnings == []
    valid = np.ones(SHAPE, np.uint8)
    valid[:, 48:72] = 0
    (sentence,) = placed(run, tmp_path, [make_stores(tmp_path, "t", valid=valid)], *SHARES, "--min-valid", 0.9).warnings
    assert "the val split has no chip with enough usable, labelled pixels; choose a smaller split.min_valid" in sentence


def test_changing_test_pixels_does_not_change_the_statistics(tmp_path: Path, run: Run) -> None:
    tiles, labels = make_stores(tmp_path, "s")
    assert split(run, tmp_path, [(tiles, labels)], *SHARES).code == 0
    before, samples = digest(tmp_path / "statistics.json"), read_split(tmp_path / "split.json").samples
    image = zarr.open_group(tiles, mode="r+")["image"]
    image[:, :, 48:] = np.random.default_rng(5).integers(0, 60_000, (1, 96, 48))
    # The manifest would reveal the change; this test is about the input of the statistics only.
    (tiles / "manifest.json").unlink()
    assert split(run, tmp_path, [(tiles, labels)], *SHARES).code == 0
    assert digest(tmp_path / "statistics.json") == before
    np.testing.assert_array_equal(read_split(tmp_path / "split.json").samples["test"], samples["test"])


def test_the_chips_are_georeferenced_polygons_with_split_and_classes(tmp_path: Path, run: Run) -> None:
    import pyogrio

    result = placed(run, tmp_path, [make_stores(tmp_path, "s")], *SHARES)
    meta, _, shapes, fields = pyogrio.raw.read(tmp_path / "split.gpkg", layer="chips")
    columns = dict(zip(meta["fields"], fields, strict=True))
    assert meta["crs"] == "EPSG:32633"
    for name in SPLITS:
        in_split = columns["split"] == name
        rows = np.stack([columns["row"][in_split], columns["column"][in_split]], -1)
        np.testing.assert_array_equal(rows, result.samples[name][:, 1:])
        for label in ("a", "b"):
            assert columns[f"pixels {label}"][in_split].sum() == result.pixels[name][label]
            assert (columns[f"pixels {label}"][in_split] > 0).sum() == result.chips[name][label]
    bounds = shapely.bounds(shapely.from_wkb(shapes))
    np.testing.assert_array_equal(bounds[:, 0], columns["column"] * 10)
    np.testing.assert_array_equal(bounds[:, 3], 960 - columns["row"] * 10)
    assert (bounds[:, 2:] - bounds[:, :2] == 160).all()


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", [SHARES, ("--method", "temporal", "--dates", "2020-02-01")])
def test_two_runs_write_the_same_bytes(tmp_path: Path, run: Run, method: tuple[object, ...]) -> None:
    stores = [make_stores(tmp_path, scene, date=DAYS[scene]) for scene in "ab"]
    digests = []
    for clock in ("1", "2"):
        (tmp_path / clock).mkdir()
        tiles, labels = zip(*stores, strict=True)
        arguments = ("--tiles", *tiles, "--labels", *labels, *split_outputs(tmp_path / clock), "--chip", 16, *method)
        assert run("split", *arguments, "--allow", SAME_LABELS).code == 0
        names = ("split.json", "split.gpkg", "split.png", "statistics.json")
        digests.append([digest(tmp_path / clock / name) for name in names])
    assert digests[0] == digests[1]
    with closing(sqlite3.connect(tmp_path / "1/split.gpkg")) as database:
        changes = database.execute("select last_change from gpkg_contents").fetchall()
    assert changes == [("2000-01-01T00:00:00.000Z",)], "no clock"


def test_the_map_shows_each_position_in_the_colour_of_its_split(tmp_path: Path, run: Run) -> None:
    assert split(run, tmp_path, [make_stores(tmp_path, "s")], *SHARES).code == 0
    with Image.open(tmp_path / "split.png") as picture:
        pixels = np.asarray(picture.convert("RGB"))
    row = pixels[len(pixels) // 2]
    for color, share in zip(SPLIT_COLORS, (0.5, 0.5 / 3, 1 / 6), strict=True):
        has_color = (row == rgb(color)).all(-1)
        assert has_color.any(), share
    starts = [int((row == rgb(color)).all(-1).argmax()) for color in SPLIT_COLORS]
    assert starts == sorted(starts), "from west to east: train, val, test"


@pytest.mark.parametrize("text", ["{}", "[]", "5", '{"samples": 5}', '{"samples": {"train": [[1, 2]]}}'])
def test_a_file_that_is_not_a_split_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(BadInputError, match="is not a split file"):
        read_split(tmp_path / "split.json")


@pytest.mark.parametrize("block", [8, 40, 1024])
@pytest.mark.parametrize("chip", [8, 20])
def test_a_labelled_pixel_on_the_ground_is_counted_once_whatever_chips_and_dates_have_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, chip: int
) -> None:
    monkeypatch.setattr("eopipe.chips.chips.COVERED_BLOCK", block)
    rng = np.random.default_rng(block + chip)
    labels = rng.choice([0, 1, NO_LABEL], (2, *SHAPE), p=[0.2, 0.2, 0.6]).astype(np.uint8)
    stores = [Tiles(make_stores(tmp_path, scene, label=labels[n])[1]) for n, scene in enumerate("ab")]
    samples = np.column_stack([rng.integers(0, limit, 12) for limit in (2, SHAPE[0] - chip + 1, SHAPE[1] - chip + 1)])
    expected = covered_area(SHAPE, samples, chip) & (labels != NO_LABEL).any(0)
    assert labelled_ground_pixels(stores, samples, chip) == np.count_nonzero(expected)
    twice = np.concatenate([samples, samples[:, [0, 1, 2]] * [0, 1, 1]])
    assert labelled_ground_pixels(stores, twice, chip) == np.count_nonzero(expected)
