"""A split never leaks: chips of two splits never touch, whatever the plan."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scenery import Ended, Run

from eopipe.errors import BadInputError, IntegrityError, UsageError
from eopipe.grid import make_grid
from eopipe.publish import digest, read_json
from eopipe.splits import NOWHERE, SPLITS, Method, Plan, Positions, audit, chip_counts, place_chips, read_split, zones
from eopipe.store import NO_LABEL, Layout, add_array, new_store

METHODS: tuple[Method, ...] = ("blocks", "west-east", "east-west", "north-south", "south-north")
SHAPES = st.tuples(st.integers(24, 150), st.integers(24, 150))
FRACTIONS = st.tuples(st.integers(1, 8), st.integers(0, 4), st.integers(1, 4), st.integers(0, 2)).map(
    lambda parts: tuple(part / sum(parts) for part in parts[:3])
)


@st.composite
def plans(draw: st.DrawFn, folds: bool | None = None) -> Plan:
    """Any plan that the stage accepts, for grids of 24 pixels and more."""
    number = draw(st.integers(3, 6)) if (draw(st.booleans()) if folds is None else folds) else 0
    return Plan(
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


def gap(one: Positions, other: Positions, chip: int) -> int:
    """The least gap in pixels between chips of two lists, by brute force; below 0 they overlap."""
    apart = np.abs(one[:, None, :] - other[None, :, :]).max(-1)
    return int(apart.min()) - chip


@settings(max_examples=80)
@given(shape=SHAPES, plan=plans())
def test_chips_of_two_splits_keep_the_buffer_and_lie_in_the_grid(shape: tuple[int, int], plan: Plan) -> None:
    chips = place_chips(shape, plan)
    for one, other in (("train", "val"), ("train", "test"), ("val", "test")):
        if len(chips[one]) and len(chips[other]):
            assert gap(chips[one], chips[other], plan.chip) >= plan.buffer
    for corners in chips.values():
        assert (corners >= 0).all()
        assert (corners + plan.chip <= shape).all()
        assert (corners % plan.stride == 0).all()
        assert len(np.unique(corners, axis=0)) == len(corners)
    gaps = audit(chips, plan.chip, plan.buffer)
    for pair, measured in gaps.items():
        one, other = pair.split("-")
        assert measured == gap(chips[one], chips[other], plan.chip)


@settings(max_examples=30)
@given(shape=SHAPES, plan=plans())
def test_the_same_plan_places_the_same_chips(shape: tuple[int, int], plan: Plan) -> None:
    one, two = place_chips(shape, plan), place_chips(shape, plan)
    for name in SPLITS:
        np.testing.assert_array_equal(one[name], two[name])


@settings(max_examples=60)
@given(shape=SHAPES, plan=plans())
def test_no_chip_that_could_be_used_is_lost(shape: tuple[int, int], plan: Plan) -> None:
    dealt = zones(shape, plan)
    owner = np.repeat(np.repeat(dealt.split, dealt.height, 0), dealt.width, 1)[: shape[0], : shape[1]]
    foe = {"train": [1, 2], "val": [2], "test": []}
    for number, name in enumerate(SPLITS):
        expected = [
            (row, col)
            for row in range(0, shape[0] - plan.chip + 1, plan.stride)
            for col in range(0, shape[1] - plan.chip + 1, plan.stride)
            if (owner[row : row + plan.chip, col : col + plan.chip] == number).all()
            and not np.isin(around(owner, row, col, plan), foe[name]).any()
        ]
        assert place_chips(shape, plan)[name].tolist() == [list(place) for place in expected]


def around(owner: npt.NDArray[np.uint8], row: int, col: int, plan: Plan) -> npt.NDArray[np.uint8]:
    edge = plan.chip + plan.buffer
    return owner[max(row - plan.buffer, 0) : row + edge, max(col - plan.buffer, 0) : col + edge]


@settings(max_examples=60)
@given(shape=SHAPES, plan=plans(folds=True))
def test_folds_test_every_place_exactly_once(shape: tuple[int, int], plan: Plan) -> None:
    tested = np.zeros(zones(shape, plan).split.shape, int)
    for fold in range(plan.folds):
        dealt = zones(shape, fold_of(plan, fold))
        assert not (dealt.split == NOWHERE).any()
        tested += dealt.split == SPLITS.index("test")
        following = zones(shape, fold_of(plan, (fold + 1) % plan.folds))
        np.testing.assert_array_equal(dealt.split == 1, following.split == 2, "the next fold validates")
    assert (tested == 1).all()


def fold_of(plan: Plan, fold: int) -> Plan:
    return Plan(**(vars(plan) | {"fold": fold}))


@pytest.mark.parametrize("method", METHODS)
def test_fractions_are_shares_of_the_grid(method: Method) -> None:
    plan = Plan(method, (0.5, 0.2, 0.1), chip=8, stride=8, buffer=0, block=10, folds=0, fold=0, seed=1)
    dealt = zones((100, 100), plan)
    share = [float((dealt.split == number).mean()) for number in (0, 1, 2, NOWHERE)]
    assert share == pytest.approx([0.5, 0.2, 0.1, 0.2])


def test_strips_go_the_way_their_name_says() -> None:
    for method, first in (("west-east", (0, 0)), ("east-west", (0, 99)), ("south-north", (99, 0))):
        plan = Plan(method, (0.6, 0.2, 0.2), chip=8, stride=1, buffer=0, block=8, folds=0, fold=0, seed=0)
        train = place_chips((100, 100), plan)["train"]
        assert (train == np.minimum(first, 92)).all(1).any()
        assert not (train == 92 - np.minimum(first, 92)).all(1).any()


def test_another_seed_deals_other_blocks() -> None:
    plan = Plan("blocks", (0.6, 0.2, 0.2), chip=8, stride=8, buffer=0, block=16, folds=0, fold=0, seed=0)
    other = Plan(**(vars(plan) | {"seed": 1}))
    assert (zones((200, 200), plan).split != zones((200, 200), other).split).any()


def test_the_audit_catches_a_planted_leak() -> None:
    chips = {"train": np.array([[0, 0], [40, 0]]), "val": np.array([[0, 100]]), "test": np.array([[0, 47], [7, 3]])}
    with pytest.raises(IntegrityError, match="train-test -1"):
        audit(chips, 8, 0)
    chips["test"] = np.array([[0, 11]])
    assert audit(chips, 8, 3)["train-test"] == 3
    with pytest.raises(IntegrityError, match=r"nearer than 4 pixels \(train-test 3\)"):
        audit(chips, 8, 4)


@settings(max_examples=50)
@given(seed=st.integers(0, 1000), shape=SHAPES, chip=st.sampled_from([8, 12, 16, 24]), count=st.integers(0, 20))
def test_pixels_of_a_chip_are_counted_right(seed: int, shape: tuple[int, int], chip: int, count: int) -> None:
    random = np.random.default_rng(seed)
    mask = random.random(shape) < 0.4
    limit = np.array(shape) - chip + 1
    corners = (random.random((count, 2)) * limit).astype(np.int64)
    expected = [int(mask[row : row + chip, col : col + chip].sum()) for row, col in corners]
    assert chip_counts(mask, corners, chip).tolist() == expected


def test_a_chip_that_does_not_fit_is_told() -> None:
    plan = Plan("blocks", (0.6, 0.2, 0.2), chip=64, stride=64, buffer=0, block=64, folds=0, fold=0, seed=0)
    with pytest.raises(BadInputError, match="a chip of 64 pixels does not fit a grid of 200 x 63"):
        place_chips((200, 63), plan)


@pytest.mark.parametrize(
    "wrong", [{"fractions": (0.9, 0.2, 0.2)}, {"fractions": (0.5, 0.5)}, {"folds": 2}, {"folds": 3, "fold": 3}]
)
def test_a_plan_that_cannot_be_is_a_mistake_of_the_user(wrong: dict[str, Any]) -> None:
    good = {"fractions": (0.6, 0.2, 0.2), "folds": 0, "fold": 0}
    with pytest.raises(UsageError):
        Plan("blocks", chip=8, stride=8, buffer=0, block=8, seed=0, **(good | wrong))


# The stage itself, over stores.

SHAPE = (96, 96)
SHARES = ("--method", "west-east", "--fractions", 0.5, 0.25, 0.25)


def make_stores(
    place: Path,
    scene: str,
    *,
    valid: npt.NDArray[Any] | None = None,
    label: npt.NDArray[Any] | None = None,
    **grid: Any,
) -> tuple[Path, Path]:
    """Write one scene and its labels: west is class a, east is class b."""
    usable = np.ones(SHAPE, np.uint8) if valid is None else valid
    numbers = np.indices(SHAPE)[0] // 8 % 2 if label is None else label
    box = make_grid((grid.get("left", 0.0), 0.0, grid.get("left", 0.0) + 960.0, 960.0), "EPSG:32633", 10.0, (0, 0))
    layout = Layout(16, 32)
    with new_store(place / f"{scene}.zarr", box, ("red",), scene, {}) as group:
        add_array(group, "image", (1, *SHAPE), "uint16", layout, scale_factor=1.0, add_offset=0.0)[:] = 1
        add_array(group, "valid", SHAPE, "uint8", layout)[:] = usable
    with new_store(place / f"{scene}-label.zarr", box, grid.get("classes", ("a", "b")), scene, {}) as group:
        add_array(group, "label", SHAPE, "uint8", layout)[:] = numbers
        add_array(group, "valid", SHAPE, "uint8", layout)[:] = numbers != NO_LABEL
    return place / f"{scene}.zarr", place / f"{scene}-label.zarr"


def split(run: Run, place: Path, stores: list[tuple[Path, Path]], *words: object) -> Ended:
    tiles, labels = zip(*stores, strict=True)
    out = ("--chips", place / "split.json", "--chip", 16, "--block", 32)
    return run("split", "--tiles", *tiles, "--labels", *labels, *out, *words)


def test_samples_lie_where_pixels_are_usable_and_are_counted_by_class(tmp_path: Path, run: Run) -> None:
    valid = np.ones(SHAPE, np.uint8)
    valid[:, 40:60] = 0
    label = (np.indices(SHAPE)[0] // 8 % 2).astype(np.uint8)
    label[50:55] = NO_LABEL
    stores = [make_stores(tmp_path, "s", valid=valid, label=label)]
    ended = split(run, tmp_path, stores, *SHARES, "--min-valid", 0.7, "--stride", 4, "--buffer", 4)
    assert ended.code == 0, ended.said
    made = read_split(tmp_path / "split.json")
    usable = (valid > 0) & (label != NO_LABEL)
    for name in SPLITS:
        counted = np.zeros(2, int)
        for scene, row, col in made["samples"][name]:
            assert scene == 0
            window = (slice(row, row + 16), slice(col, col + 16))
            assert usable[window].mean() >= 0.7
            counted += [(usable[window] & (label[window] == number)).sum() for number in (0, 1)]
        assert list(made["pixels"][name].values()) == counted.tolist()
    assert all(distance >= 4 for distance in made["audit"]["gap_pixels"].values())


def test_the_order_of_the_stores_does_not_matter(tmp_path: Path, run: Run) -> None:
    stores = [make_stores(tmp_path, scene) for scene in ("c", "a", "b")]
    digests = set()
    for order in (stores, stores[::-1]):
        assert split(run, tmp_path, order).code == 0
        digests.add(digest(tmp_path / "split.json"))
    assert len(digests) == 1
    assert read_json(tmp_path / "split.json")["scenes"] == ["a", "b", "c"]


def test_a_place_is_in_one_split_in_all_scenes(tmp_path: Path, run: Run) -> None:
    half = np.ones(SHAPE, np.uint8)
    half[:48] = 0
    stores = [make_stores(tmp_path, "a", valid=half), make_stores(tmp_path, "b", valid=1 - half)]
    assert split(run, tmp_path, stores, "--stride", 5).code == 0
    made = read_split(tmp_path / "split.json")
    places = {name: made["samples"][name][:, 1:] for name in SPLITS}
    audit(places, 16, 0)


def test_a_class_that_a_split_lacks_is_told(tmp_path: Path, run: Run) -> None:
    label = np.zeros(SHAPE, np.uint8)
    label[:, :30] = 1
    ended = split(run, tmp_path, [make_stores(tmp_path, "s", label=label)], *SHARES)
    assert ended.code == 3
    assert "the labels of the test split have no pixel of class b" in ended.said
    assert not (tmp_path / "split.json").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--chip", 128), 3, "a chip of 128 pixels does not fit a grid of 96 x 96"),
        (("--buffer", 96), 3, "the train split has no chip"),
        (("--min-valid", 1.0, "--fractions", 1, 0, 0), 3, "the test split has no chip"),
        (("--fractions", 0.9, 0.9, 0.9), 2, "fractions"),
        (("--folds", 2), 2, "at least 3 folds"),
        (("--folds", 3, "--fold", 3), 2, "numbered from 0"),
    ],
)
def test_a_split_that_cannot_be_is_told(
    tmp_path: Path, run: Run, words: tuple[object, ...], code: int, said: str
) -> None:
    ended = split(run, tmp_path, [make_stores(tmp_path, "s")], *words)
    assert ended.code == code, ended.said
    assert said in ended.said


def test_stores_that_do_not_belong_together_are_told(tmp_path: Path, run: Run) -> None:
    a, b = make_stores(tmp_path, "a"), make_stores(tmp_path, "b", left=10.0)
    c = make_stores(tmp_path, "c", classes=("b", "a"))
    for stores, said in (
        ([a, (b[0], a[1])], "given twice"),
        ([a, b], "different grids"),
        ([a, c], "c-label.zarr has the classes b, a"),
        ([(a[0], c[1])], "no labels of scene a; there are labels of c"),
        ([(a[1], a[1])], "has no image; it has label"),
    ):
        ended = split(run, tmp_path, stores)
        assert ended.code == 3, ended.said
        assert said in ended.said


@pytest.mark.parametrize("text", ["{}", "[]", "5", '{"samples": 5}', '{"samples": {"train": [[1, 2]]}}'])
def test_a_file_that_is_no_split_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(BadInputError, match="is not a split file"):
        read_split(tmp_path / "split.json")
