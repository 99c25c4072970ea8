"""The audit finds every kind of planted leak, names the pair of chips, and accepts what the config allows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import BANDS, write_labels, write_store
from hypothesis import given, settings
from hypothesis import strategies as st
from scenery import Completed, Run, split_outputs
from stores import ImageOfSplit, chips_by_split, table_of

from eopipe.arrays import AnyArray, Float64Array, IntArray, UInt16Array
from eopipe.chips import near_duplicates
from eopipe.chips.audit import KINDS, ChipSplit, audit, check_statistics, parse_allowed
from eopipe.chips.near_duplicates import find_similar_chips, fingerprint_chips
from eopipe.chips.splits import SPLITS, Split, SplitMethod, SplitPlan, read_split
from eopipe.chips.statistics import Statistics, measure_bands, read_statistics
from eopipe.errors import IntegrityError, UsageError
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import Tiles

CHIP = 8
NONE = np.empty((0, 3), np.int64)


def split_of(
    train: list[list[int]],
    test: list[list[int]],
    val: list[list[int]] | None = None,
    *,
    tiles: str = "ab",
    days: tuple[str, str] = ("2024-01-01", "2024-01-02"),
    **changes: Any,
) -> ChipSplit:
    """Samples of scenes a and b, split by strips unless a change says otherwise."""
    plan: dict[str, Any] = {"method": "west-east", "fractions": (0.6, 0.2, 0.2), "chip": CHIP, "stride": CHIP}
    plan |= {"buffer": 0, "block": 8, "folds": 0, "fold": 0, "seed": 0} | changes
    samples = {name: np.array(rows or NONE, np.int64) for name, rows in zip(SPLITS, (train, val, test), strict=True)}
    images = [
        ImageOfSplit(scene, {"datetime": day, "grid:code": tile})
        for scene, day, tile in zip("ab", days, tiles, strict=True)
    ]
    return ChipSplit(*table_of(samples, CHIP, images), SplitPlan(**plan))


PLANTED = {
    "overlap": split_of([[0, 0, 0], [0, 40, 0]], [[0, 0, 47], [1, 7, 3]]),
    "distance": split_of([[0, 0, 0]], [[0, 0, 40], [1, 0, 11]], buffer=4),
    "scene": split_of([[0, 0, 0], [1, 0, 0]], [[0, 40, 40]], method="group"),
    "group": split_of([[0, 0, 0]], [[1, 40, 40]], method="group", by="tile", tiles="xx"),
    "random": split_of([[0, 0, 0]], [[0, 0, 8]], method="random"),
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
    report = audit(PLANTED[kind], None, {kind: "why"})
    (finding,) = report["allowed"]
    assert (finding["kind"], finding["count"], finding["reason"]) == (kind, 1, "why")
    assert PAIRS[kind] in finding["example"]


@pytest.mark.parametrize("method", ["group", "temporal"])
def test_in_a_split_by_scene_a_position_repeats_on_other_days_but_not_on_one(method: SplitMethod) -> None:
    arguments: dict[str, Any] = {"method": method, "dates": ("2020-01-01",)}
    assert audit(split_of([[0, 0, 0]], [[1, 0, 0]], **arguments), None, {})["gap_pixels"] == {}
    with pytest.raises(IntegrityError, match="overlap"):
        audit(split_of([[0, 0, 0]], [[1, 0, 0]], days=("2024-01-01",) * 2, **arguments), None, {})


def test_a_day_in_train_and_test_is_found() -> None:
    days = ("2024-01-01",) * 2
    same = split_of([[0, 0, 0]], [[1, 40, 0]], method="temporal", dates=("2020-01-01",), days=days)
    with pytest.raises(IntegrityError, match=r"group .* are both of 2024-01-01"):
        audit(same, None, {})


def gap(first: IntArray, second: IntArray) -> int:
    """The minimum gap in pixels between chips of two lists, by brute force; negative if they overlap."""
    return int(np.abs(first[:, None, 1:] - second[None, :, 1:]).max(-1).min()) - CHIP


ROWS = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(0, 60)).map(list), min_size=1, max_size=12)


@settings(max_examples=60)
@given(train=ROWS, test=ROWS, buffer=st.integers(0, 20))
def test_the_gap_is_that_of_the_nearest_chips_and_no_leak_is_overlooked(
    train: list[list[int]], test: list[list[int]], buffer: int
) -> None:
    split = split_of(train, test, buffer=buffer)
    expected = gap(split.samples["train"], split.samples["test"])
    report = audit(split, None, {"overlap": "here", "distance": "here"})
    assert report["gap_pixels"] == {"train-test": expected}
    kinds = {finding["kind"] for finding in report["allowed"]}
    assert ("overlap" in kinds) == (expected < 0)
    assert bool(kinds) == (expected < buffer)


@pytest.mark.parametrize("method", ["blocks", "checkerboard", "south-north"])
def test_chips_of_a_plan_pass(method: SplitMethod) -> None:
    plan = SplitPlan(method, (0.5, 0.2, 0.3), CHIP, 3, 5, 24, 0, 0, 0)
    samples = {name: np.insert(rows, 0, 0, axis=1) for name, rows in chips_by_split((120, 120), plan).items()}
    report = audit(ChipSplit(*table_of(samples, CHIP), plan), None, {})
    assert report["allowed"] == []
    assert min(report["gap_pixels"].values()) >= 5


@pytest.mark.parametrize("entry", ["overlap", "overlap:", "overlap:  ", "leaks: all"])
def test_a_leak_needs_a_kind_and_a_reason(entry: str) -> None:
    with pytest.raises(UsageError, match="write 'kind: reason', with a kind of overlap, distance"):
        parse_allowed((entry,))
    assert parse_allowed(("near-duplicate: open sea: no structure",)) == {"near-duplicate": "open sea: no structure"}


# Similar chips, in stores.

SHAPE, EDGE = (64, 96), 16
SHARES = ("--method", "west-east", "--fractions", 0.5, 0, 0.5, "--chip", EDGE)


def scene(seed: int) -> UInt16Array:
    """Two bands of noise, smooth enough that the means of cells differ."""
    random = np.random.default_rng(seed)
    coarse = random.integers(1000, 4000, (2, SHAPE[0] // 2, SHAPE[1] // 2))
    return np.kron(coarse, np.ones((1, 2, 2))).astype(np.uint16)


def make_stores(folder: Path, name: str, image: AnyArray, date: str | None = None) -> tuple[Path, Path]:
    """Write a scene and labels of two classes."""
    options: dict[str, Any] = {"layout": Layout(16, 32), "scaling": (0.1, 0.0), "datetime": date}
    tiles, labels = write_store(folder / f"{name}.zarr", BANDS, {"image": image}, **options), folder / "all.zarr"
    if not labels.exists():
        write_labels(labels, (np.indices(SHAPE)[0] // 4 % 2).astype(np.uint8), ("x", "y"), layout=Layout(16, 32))
    return tiles, labels


def split(run: Run, folder: Path, images: dict[str, AnyArray], *arguments: object, **dates: str) -> Completed:
    stores = [make_stores(folder, name, image, dates.get(name)) for name, image in images.items()]
    tiles = [tiles for tiles, _ in stores]
    return run("split", "--tiles", *tiles, "--labels", folder / "all.zarr", *split_outputs(folder), *arguments)


def copied(change: str) -> UInt16Array:
    """A scene whose training chip at (16, 0) is also its test chip at (32, 64), as it is or slightly changed."""
    image = scene(1)
    chip = image[:, 16:32, 0:16].astype(float)
    noise = np.random.default_rng(2).normal(0, 60, chip.shape)
    changed = {"same": chip, "noisy": chip + noise, "brighter": chip * 1.02 + 30, "smoothed": smooth(chip)}
    image[:, 32:48, 64:80] = changed[change].round().astype(np.uint16)
    return image


def smooth(chip: Float64Array) -> Float64Array:
    padded = np.pad(chip, ((0, 0), (0, 1), (0, 1)), mode="edge")
    return 0.9 * chip + 0.05 * padded[:, 1:, :-1] + 0.05 * padded[:, :-1, 1:]


PLACES = "train chip of scene s, row 16, column 0 and test chip of scene s, row 32, column 64"


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ("same", "duplicate"),
        ("noisy", "near-duplicate"),
        ("brighter", "near-duplicate"),
        ("smoothed", "near-duplicate"),
    ],
)
def test_a_copied_chip_is_refused_with_its_pair_and_passes_with_a_reason(
    tmp_path: Path, run: Run, change: str, kind: str
) -> None:
    completed = split(run, tmp_path, {"s": copied(change)}, *SHARES)
    assert completed.code == 4, completed.stderr
    assert f"leaks. {kind} (1 times): {PLACES}" in completed.stderr
    assert not (tmp_path / "split.json").exists()
    tiles = tmp_path / "s.zarr", "--labels", tmp_path / "all.zarr"
    completed = run(
        "split", "--tiles", *tiles, *split_outputs(tmp_path), *SHARES, "--allow", f"{kind}: accepted in a test"
    )
    assert completed.code == 0, completed.stderr
    (finding,) = read_split(tmp_path / "split.json").audit.allowed
    assert (finding.kind, finding.reason) == (kind, "accepted in a test")
    assert PLACES in finding.example


def test_a_scene_that_was_copied_to_another_date_is_found(tmp_path: Path, run: Run) -> None:
    arguments, days = ("--method", "temporal", "--dates", "2020-02-01", "--chip", EDGE), ("2020-01-01", "2020-03-01")
    image = scene(1)
    completed = split(run, tmp_path, {"s": image, "t": image}, *arguments, s=days[0], t=days[1])
    assert completed.code == 4
    assert "duplicate (24 times): train chip of scene s, row 0, column 0 and test chip of scene t" in completed.stderr


def test_one_place_on_two_days_is_no_duplicate_as_long_as_something_changed(tmp_path: Path, run: Run) -> None:
    arguments: tuple[object, ...] = ("--method", "temporal", "--dates", "2020-02-01", "--chip", EDGE)
    days, image = ("2020-01-01", "2020-03-01"), scene(1)
    later = (image + np.random.default_rng(0).normal(0, 150, image.shape)).clip(0).astype(np.uint16)
    arguments = (*arguments, "--allow", "place: two days of one place")
    completed = split(run, tmp_path, {"s": image, "t": later}, *arguments, s=days[0], t=days[1])
    assert completed.code == 0, completed.stderr


@pytest.mark.parametrize("value", [0, 7])
def test_chips_without_structure_are_similar_to_no_other(tmp_path: Path, run: Run, value: int) -> None:
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
    spread = {name: band.std for name, band in measure_bands([store], rows[0], EDGE).bands.items()}
    results = []
    for block in (4096, 5):
        monkeypatch.setattr(near_duplicates, "BLOCK", block)
        results.append(
            list(find_similar_chips(fingerprint_chips([store], *table_of(samples, EDGE), spread), "train", "test"))
        )
    assert [row[:3] for row in results[0]] == [row[:3] for row in results[1]]
    ((kind, count, (train, test), correlation),) = results[0]
    assert (kind, count) == ("near-duplicate", 1)
    assert (samples["train"][train].tolist(), samples["test"][test].tolist()) == ([0, 16, 0], [0, 32, 64])
    assert 0.98 <= correlation < 1


# Statistics from outside the training split.


@pytest.fixture
def finished(tmp_path: Path, run: Run) -> tuple[Statistics, Split, list[Tiles]]:
    """The statistics, the split and the store of a run without a leak."""
    assert split(run, tmp_path, {"s": scene(1)}, *SHARES).code == 0
    return (
        read_statistics(tmp_path / "statistics.json"),
        read_split(tmp_path / "split.json"),
        [Tiles(tmp_path / "s.zarr")],
    )


def test_statistics_of_the_training_chips_pass(finished: tuple[Statistics, Split, list[Tiles]]) -> None:
    check_statistics(*finished)


def plant(kind: str, statistics: Statistics, split_file: Split, stores: list[Tiles]) -> Statistics:
    """Statistics of more than the training chips, which may pretend to be of them."""
    samples = np.concatenate([split_file.samples["train"], split_file.samples["test"]])
    all_chips = measure_bands(stores, samples, split_file.chip)
    return {
        "honest": all_chips,
        "signed": all_chips.model_copy(update={"samples": statistics.samples}),
        "counted": all_chips.model_copy(update={"samples": statistics.samples, "pixels": statistics.pixels}),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("honest", "measured on other chips than the training chips"),
        ("signed", "count 6144 pixels of scene s, but its training chips have 3072"),
        ("counted", "pixel counts of band nir, red differ from the scenes'"),
    ],
)
def test_statistics_from_outside_the_training_split_are_refused_unless_allowed(
    finished: tuple[Statistics, Split, list[Tiles]], kind: str, message: str
) -> None:
    statistics, split_, stores = finished
    planted = plant(kind, statistics, split_, stores)
    with pytest.raises(IntegrityError, match=message):
        check_statistics(planted, split_, stores)
    split_.audit.allow = {"statistics": "those of a pretrained model"}
    check_statistics(planted, split_, stores)


def test_train_refuses_statistics_of_another_split(tmp_path: Path, run: Run) -> None:
    assert split(run, tmp_path, {"s": scene(1)}, *SHARES).code == 0
    tiles = ("--tiles", tmp_path / "s.zarr", "--labels", tmp_path / "all.zarr")
    other = tmp_path / "other"
    other.mkdir()
    assert run("split", *tiles, *split_outputs(other), *SHARES, "--stride", 8).code == 0
    files = ("--chips", tmp_path / "split.json", "--statistics", other / "statistics.json")
    completed = run("train", *tiles, *files, "--model", tmp_path / "m")
    assert completed.code == 4
    assert "measured on other chips than the training chips" in completed.stderr
