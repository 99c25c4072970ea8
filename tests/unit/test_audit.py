"""The audit finds every kind of leak that is planted, names the pair, and lets pass what the config allows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenery import Completed, Run, split_outputs
from stores import chips_by_split

from eopipe.arrays import AnyArray, Float64Array, IntArray, UInt16Array
from eopipe.chips import near_duplicates as fingerprints
from eopipe.chips.audit import KINDS, ChipSplit, audit, check_statistics, parse_allowed
from eopipe.chips.near_duplicates import find_similar_chips, fingerprint_chips
from eopipe.chips.splits import SPLITS, SplitMethod, SplitPlan, read_split
from eopipe.chips.statistics import measure_bands
from eopipe.errors import IntegrityError, UsageError
from eopipe.publish import read_json
from eopipe.tiles.grid import make_grid
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import Tiles, add_array, new_store

CHIP = 8
NONE = np.empty((0, 3), np.int64)


def dealt(
    train: list[list[int]],
    test: list[list[int]],
    val: list[list[int]] | None = None,
    *,
    groups: str = "ab",
    days: str = "12",
    **changes: Any,
) -> ChipSplit:
    """Samples of scenes a and b, split by strips unless a change says otherwise."""
    told: dict[str, Any] = {"method": "west-east", "fractions": (0.6, 0.2, 0.2), "chip": CHIP, "stride": CHIP}
    told |= {"buffer": 0, "block": 8, "folds": 0, "fold": 0, "seed": 0} | changes
    samples = {name: np.array(rows or NONE, np.int64) for name, rows in zip(SPLITS, (train, val, test), strict=True)}
    return ChipSplit(samples, ["a", "b"], list(groups), list(days), SplitPlan(**told))


PLANTED = {
    "overlap": dealt([[0, 0, 0], [0, 40, 0]], [[0, 0, 47], [1, 7, 3]]),
    "distance": dealt([[0, 0, 0]], [[0, 0, 40], [1, 0, 11]], buffer=4),
    "scene": dealt([[0, 0, 0], [1, 0, 0]], [[0, 40, 40]], method="group"),
    "group": dealt([[0, 0, 0]], [[1, 40, 40]], method="group", by="tile", groups="xx"),
    "random": dealt([[0, 0, 0]], [[0, 0, 8]], method="random"),
}
PAIRS = {
    "overlap": "train chip of scene a, row 0, column 0 and test chip of scene b, row 7, column 3",
    "distance": "train chip of scene a, row 0, column 0 and test chip of scene b, row 0, column 11 are 3 pixels apart",
    "scene": "train chip of scene a, row 0, column 0 and test chip of scene a, row 40, column 40",
    "group": "train chip of scene a, row 0, column 0 and test chip of scene b, row 40, column 40 are both of x",
    "random": "train chip of scene a, row 0, column 0 and test chip of scene a, row 0, column 8",
}


@pytest.mark.parametrize("kind", PLANTED)
def test_a_planted_leak_is_refused_with_its_pair_and_passes_with_a_reason(kind: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        audit(PLANTED[kind], None, {})
    assert f"{kind} (1 times)" in str(caught.value)
    assert PAIRS[kind] in str(caught.value)
    with pytest.raises(IntegrityError):
        audit(PLANTED[kind], None, {other: "why" for other in KINDS if other != kind})
    told = audit(PLANTED[kind], None, {kind: "why"})
    (found,) = told["allowed"]
    assert (found["kind"], found["count"], found["reason"]) == (kind, 1, "why")
    assert PAIRS[kind] in found["example"]


@pytest.mark.parametrize("method", ["group", "temporal"])
def test_where_scenes_are_split_a_place_repeats_on_other_days_but_not_on_one(method: SplitMethod) -> None:
    words: dict[str, Any] = {"method": method, "dates": ("2020-01-01",)}
    assert audit(dealt([[0, 0, 0]], [[1, 0, 0]], **words), None, {})["gap_pixels"] == {}
    with pytest.raises(IntegrityError, match="overlap"):
        audit(dealt([[0, 0, 0]], [[1, 0, 0]], days="11", **words), None, {})


def test_a_day_that_trains_and_tests_is_found() -> None:
    same = dealt([[0, 0, 0]], [[1, 40, 0]], method="temporal", dates=("2020-01-01",), groups="11", days="11")
    with pytest.raises(IntegrityError, match=r"group .* are both of 1"):
        audit(same, None, {})


def gap(one: IntArray, other: IntArray) -> int:
    """The least gap in pixels between chips of two lists, by brute force; below 0 they overlap."""
    return int(np.abs(one[:, None, 1:] - other[None, :, 1:]).max(-1).min()) - CHIP


ROWS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(0, 60)).map(list), min_size=1, max_size=12)


@settings(max_examples=60)
@given(train=ROWS, test=ROWS, buffer=st.integers(0, 20))
def test_the_gap_is_that_of_the_nearest_chips_and_no_leak_is_overlooked(
    train: list[list[int]], test: list[list[int]], buffer: int
) -> None:
    split = dealt(train, test, buffer=buffer)
    expected = gap(split.samples["train"], split.samples["test"])
    told = audit(split, None, {"overlap": "here", "distance": "here"})
    assert told["gap_pixels"] == {"train-test": expected}
    kinds = {finding["kind"] for finding in told["allowed"]}
    assert ("overlap" in kinds) == (expected < 0)
    assert bool(kinds) == (expected < buffer)


@pytest.mark.parametrize("method", ["blocks", "checkerboard", "south-north"])
def test_chips_that_were_placed_by_a_plan_pass(method: SplitMethod) -> None:
    plan = SplitPlan(method, (0.5, 0.2, 0.3), CHIP, 3, 5, 24, 0, 0, 0)
    samples = {name: np.insert(rows, 0, 0, axis=1) for name, rows in chips_by_split((120, 120), plan).items()}
    told = audit(ChipSplit(samples, ["a"], ["a"], ["1"], plan), None, {})
    assert told["allowed"] == []
    assert min(told["gap_pixels"].values()) >= 5


@pytest.mark.parametrize("entry", ["overlap", "overlap:", "overlap:  ", "leaks: all"])
def test_a_leak_needs_a_kind_and_a_reason(entry: str) -> None:
    with pytest.raises(UsageError, match="write 'kind: reason', with a kind of overlap, distance"):
        parse_allowed((entry,))
    assert parse_allowed(("near-duplicate: open sea: no structure",)) == {"near-duplicate": "open sea: no structure"}


# Chips that look alike, in stores.

SHAPE, EDGE = (64, 96), 16
SHARES = ("--method", "west-east", "--fractions", 0.5, 0, 0.5, "--chip", EDGE)


def scene(seed: int) -> UInt16Array:
    """Two bands of noise, smooth enough that the means of cells differ."""
    random = np.random.default_rng(seed)
    coarse = random.integers(1000, 4000, (2, SHAPE[0] // 2, SHAPE[1] // 2))
    return np.kron(coarse, np.ones((1, 2, 2))).astype(np.uint16)


def make_stores(place: Path, name: str, image: AnyArray, date: str | None = None) -> tuple[Path, Path]:
    """Write a scene and labels of two classes."""
    grid = make_grid((0.0, 0.0, SHAPE[1] * 10.0, SHAPE[0] * 10.0), "EPSG:32633", 10.0, (0, 0))
    layout = Layout(16, 32)
    with new_store(place / f"{name}.zarr", grid, ("red", "nir"), name, {"datetime": date}) as group:
        add_array(group, "image", image.shape, image.dtype, layout, scale_factor=0.1, add_offset=0.0)[:] = image
        add_array(group, "valid", SHAPE, "uint8", layout)[:] = 1
    if not (place / "all.zarr").exists():
        with new_store(place / "all.zarr", grid, ("x", "y"), "", {}) as group:
            add_array(group, "label", SHAPE, "uint8", layout)[:] = np.indices(SHAPE)[0] // 4 % 2
            add_array(group, "valid", SHAPE, "uint8", layout)[:] = 1
    return place / f"{name}.zarr", place / "all.zarr"


def split(run: Run, place: Path, images: dict[str, AnyArray], *words: object, **dates: str) -> Completed:
    stores = [make_stores(place, name, image, dates.get(name)) for name, image in images.items()]
    tiles = [tiles for tiles, _ in stores]
    return run("split", "--tiles", *tiles, "--labels", place / "all.zarr", *split_outputs(place), *words)


def copied(how: str) -> UInt16Array:
    """A scene whose training chip at (16, 0) is also its test chip at (32, 64), as it is or slightly changed."""
    image = scene(1)
    chip = image[:, 16:32, 0:16].astype(float)
    noise = np.random.default_rng(2).normal(0, 60, chip.shape)
    changed = {"same": chip, "noisy": chip + noise, "brighter": chip * 1.02 + 30, "smoothed": smooth(chip)}
    image[:, 32:48, 64:80] = changed[how].round().astype(np.uint16)
    return image


def smooth(chip: Float64Array) -> Float64Array:
    padded = np.pad(chip, ((0, 0), (0, 1), (0, 1)), mode="edge")
    return 0.9 * chip + 0.05 * padded[:, 1:, :-1] + 0.05 * padded[:, :-1, 1:]


PLACES = "train chip of scene s, row 16, column 0 and test chip of scene s, row 32, column 64"


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("same", "duplicate"),
        ("noisy", "near-duplicate"),
        ("brighter", "near-duplicate"),
        ("smoothed", "near-duplicate"),
    ],
)
def test_a_copied_chip_is_refused_with_its_pair_and_passes_with_a_reason(
    tmp_path: Path, run: Run, how: str, kind: str
) -> None:
    ended = split(run, tmp_path, {"s": copied(how)}, *SHARES)
    assert ended.code == 4, ended.stderr
    assert f"leaks. {kind} (1 times): {PLACES}" in ended.stderr
    assert not (tmp_path / "split.json").exists()
    tiles = tmp_path / "s.zarr", "--labels", tmp_path / "all.zarr"
    ended = run("split", "--tiles", *tiles, *split_outputs(tmp_path), *SHARES, "--allow", f"{kind}: a test of ours")
    assert ended.code == 0, ended.stderr
    (found,) = read_split(tmp_path / "split.json")["audit"]["allowed"]
    assert (found["kind"], found["reason"]) == (kind, "a test of ours")
    assert PLACES in found["example"]


def test_a_scene_that_was_copied_to_another_date_is_found(tmp_path: Path, run: Run) -> None:
    words, days = ("--method", "temporal", "--dates", "2020-02-01", "--chip", EDGE), ("2020-01-01", "2020-03-01")
    image = scene(1)
    ended = split(run, tmp_path, {"s": image, "t": image}, *words, s=days[0], t=days[1])
    assert ended.code == 4
    assert "duplicate (24 times): train chip of scene s, row 0, column 0 and test chip of scene t" in ended.stderr


def test_one_place_on_two_days_is_no_duplicate_as_long_as_something_changed(tmp_path: Path, run: Run) -> None:
    words, days = ("--method", "temporal", "--dates", "2020-02-01", "--chip", EDGE), ("2020-01-01", "2020-03-01")
    image = scene(1)
    later = (image + np.random.default_rng(0).normal(0, 150, image.shape)).clip(0).astype(np.uint16)
    ended = split(run, tmp_path, {"s": image, "t": later}, *words, s=days[0], t=days[1])
    assert ended.code == 0, ended.stderr


@pytest.mark.parametrize("value", [0, 7])
def test_chips_without_structure_are_like_no_other(tmp_path: Path, run: Run, value: int) -> None:
    image = scene(1)
    image[:, 16:32, 0:16] = image[:, 32:48, 64:80] = value
    assert split(run, tmp_path, {"s": image}, *SHARES).code == 0


def test_chips_of_noise_are_not_alike_and_the_memory_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Tiles(make_stores(tmp_path, "s", copied("noisy"))[0])
    rows = [
        np.array([[0, r, c] for r in range(0, 49, 4) for c in cols]) for cols in (range(0, 33, 4), range(48, 81, 4))
    ]
    samples = {"train": rows[0], "test": rows[1]}
    spread = {name: band["std"] for name, band in measure_bands([store], rows[0], EDGE)["bands"].items()}
    found = []
    for block in (4096, 5):
        monkeypatch.setattr(fingerprints, "BLOCK", block)
        found.append(list(find_similar_chips(fingerprint_chips([store], samples, EDGE, spread, 0.98), "train", "test")))
    assert [row[:3] for row in found[0]] == [row[:3] for row in found[1]]
    ((kind, count, (one, other), likeness),) = found[0]
    assert (kind, count) == ("near-duplicate", 1)
    assert (samples["train"][one].tolist(), samples["test"][other].tolist()) == ([0, 16, 0], [0, 32, 64])
    assert 0.98 <= likeness < 1


# Statistics from outside the training split.


@pytest.fixture
def made(tmp_path: Path, run: Run) -> tuple[dict[str, Any], dict[str, Any], list[Tiles]]:
    """The statistics, the split and the store of a run without a leak."""
    assert split(run, tmp_path, {"s": scene(1)}, *SHARES).code == 0
    told = read_json(tmp_path / "statistics.json")
    return told, read_split(tmp_path / "split.json"), [Tiles(tmp_path / "s.zarr")]


def test_statistics_of_the_training_chips_pass(made: tuple[Any, Any, list[Tiles]]) -> None:
    check_statistics(*made)


def plant(kind: str, told: dict[str, Any], made: dict[str, Any], stores: list[Tiles]) -> dict[str, Any]:
    """Statistics that saw more than the training chips, or pretend not to have."""
    samples = np.concatenate([made["samples"]["train"], made["samples"]["test"]])
    wide = measure_bands(stores, samples, made["chip"])
    return {
        "honest": wide,
        "signed": wide | {"samples": told["samples"]},
        "counted": wide | {"samples": told["samples"], "pixels": told["pixels"]},
    }[kind]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("honest", "measured on other chips than those that train"),
        ("signed", "count 6144 pixels of scene s, its training chips have 3072"),
        ("counted", "count other pixels in band nir, red than in all scenes"),
    ],
)
def test_statistics_from_outside_the_training_split_are_refused_unless_allowed(
    made: tuple[Any, Any, list[Tiles]], kind: str, said: str
) -> None:
    told, split_, stores = made
    planted = plant(kind, told, split_, stores)
    with pytest.raises(IntegrityError, match=said):
        check_statistics(planted, split_, stores)
    split_["audit"]["allow"] = {"statistics": "those of a pretrained model"}
    check_statistics(planted, split_, stores)


def test_train_refuses_statistics_of_another_split(tmp_path: Path, run: Run) -> None:
    assert split(run, tmp_path, {"s": scene(1)}, *SHARES).code == 0
    tiles = ("--tiles", tmp_path / "s.zarr", "--labels", tmp_path / "all.zarr")
    other = tmp_path / "other"
    other.mkdir()
    assert run("split", *tiles, *split_outputs(other), *SHARES, "--stride", 8).code == 0
    words = ("--chips", tmp_path / "split.json", "--statistics", other / "statistics.json", "--model", tmp_path / "m")
    ended = run("train", *tiles, *words)
    assert ended.code == 4
    assert "measured on other chips than those that train" in ended.stderr
