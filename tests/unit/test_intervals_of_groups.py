"""The pieces of an interval are what the split kept whole: groups, where enough have places, and points."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import write_labels
from chip_files import EDGE, import_set, made_split, write_regions, write_world
from scenery import Run, split_outputs

from benchmarks.coverage import Coverage
from eopipe.arrays import AnyArray, Float64Array
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.splits import Split, read_split
from eopipe.errors import BadInputError
from eopipe.evaluation.correlation import Correlation, SamplingUnits, choose_units, placed_units
from eopipe.evaluation.intervals import Tally, correlated_pieces, intervals, measure_pieces
from eopipe.evaluation.maps import EvaluatedMap, EvaluationData
from eopipe.tasks.segmentation import ClassTables
from eopipe.tiles.store import Tiles

MEASURES = ClassTables(("land", "water"))
GROUPS, CHIPS, PIXELS, RATE = 12, 10, 100, 0.2
STORES = ("tiles", "labels")


def tables_of(errors: AnyArray) -> Float64Array:
    """Confusions (unit, 4) of units with these shares of wrong pixels, half of which are of each class."""
    right = PIXELS * (1 - errors.ravel()) / 2
    return np.stack([right, PIXELS / 2 - right, PIXELS / 2 - right, right], 1)


def units_at(places: AnyArray) -> SamplingUnits:
    """A unit at each place (n, 2)."""
    return placed_units(np.ones(len(places), np.int64), places.astype(np.float64), lambda number, rows, cols: rows)


def accuracy(correlation: Correlation, table: AnyArray) -> list[float] | None:
    tables = {"model": table}
    return intervals(correlated_pieces(correlation, 1, tables, MEASURES), tables, MEASURES)["model"]["accuracy"]


def test_errors_that_are_one_in_a_group_need_groups_as_pieces_for_95_percent() -> None:
    random = np.random.default_rng(3)
    coverages = {"groups": Coverage(), "squares": Coverage()}
    # Chips of all groups are mixed, so that neighbours are no more alike than others.
    squares = SamplingUnits(CHIPS, 10, np.arange(GROUPS * CHIPS))
    group_of = random.permutation(np.repeat(np.arange(GROUPS), CHIPS))
    groups = units_at(np.stack([squares.corners[group_of == group].mean(0) for group in range(GROUPS)]))
    fields = {"groups": Correlation(groups), "squares": Correlation(squares)}
    for _ in range(200):
        of_squares = tables_of(random.beta(8 * RATE, 8 * (1 - RATE), GROUPS)[group_of])
        of_groups = np.stack([of_squares[group_of == group].sum(0) for group in range(GROUPS)])
        for name, table in (("groups", of_groups), ("squares", of_squares)):
            coverages[name].add(accuracy(fields[name], table), 1 - RATE)
    share = {name: coverage.inside / coverage.stated for name, coverage in coverages.items()}
    assert share["groups"] >= 0.92
    assert share["squares"] < 0.6
    # Twelve groups at random places are enough to measure that they are not alike.
    assert coverages["groups"].stated > 0.75 * 200


def test_points_whose_errors_are_one_in_a_cluster_amount_to_the_clusters() -> None:
    random, independent = np.random.default_rng(5), list[float]()
    clusters = np.argwhere(np.ones((4, 4))) * 500
    points = np.repeat(clusters, 20, 0) + random.integers(0, 12, (320, 2))
    for errors in (np.repeat(random.beta(2, 8, 16), 20), random.beta(2, 8, 320)):
        pieces = measure_pieces(units_at(points), 1, {"model": tables_of(errors)}, MEASURES)
        independent.append(pieces.count / pieces.effects["model"])
    assert independent[0] < 24
    assert independent[1] > 160


def test_a_group_without_a_scored_pixel_is_no_piece() -> None:
    table = tables_of(np.random.default_rng(6).beta(2, 8, GROUPS))
    table[4] = 0
    units = units_at(np.argwhere(np.ones((3, 4))) * 100)
    result = Tally(units, MEASURES, {"model": table}, table[:1]).uncertainty(1, "linear")["intervals"]
    assert result["pieces"] == GROUPS - 1
    assert result["model"]["accuracy"] is not None
    np.testing.assert_array_equal(units.within(np.arange(GROUPS) != 4).centres, np.delete(units.centres, 4, 0))


# Splits of stores.


World = tuple[list[Tiles], list[Tiles], ChipPlaces]


@pytest.fixture
def world(tmp_path: Path, run: Run) -> World:
    """A chip set of 12 zones with three chips each, which are 1000 km apart."""
    write_world(tmp_path, GROUPS, 3)
    import_set(run, tmp_path)
    tiles, labels = ([Tiles(path) for path in sorted((tmp_path / f"set/{name}").iterdir())] for name in STORES)
    places = ChipPlaces.of(tiles)
    assert places is not None
    return tiles, labels, places


def split_of_world(places: ChipPlaces, tested: int, **plan: Any) -> tuple[Split, dict[str, list[str]]]:
    """A split with this many test zones, and two for validation; and the zones of the chips of each split."""
    zones = [f"z{zone:02d}" for zone in range(GROUPS)]
    names = {"train": zones[tested + 2 :], "val": zones[tested : tested + 2], "test": zones[:tested]}
    group_of = [record["group"] for record in places.records]
    rows = {name: [n for n, group in enumerate(group_of) if group in chosen] for name, chosen in names.items()}
    split = made_split(
        samples={name: places.samples[chosen] for name, chosen in rows.items()},
        chip=places.slot,
        chip_set={"block_km": 50.0},
        groups={name: [group_of[n] for n in chosen] for name, chosen in rows.items()},
        plan={"method": "group", "min_valid": 0.0} | plan,
    )
    return split, {name: [group_of[n] for n in chosen] for name, chosen in rows.items()}


def pieces_of_chips(units: SamplingUnits, split: Split, name: str = "test") -> list[int]:
    """The piece of each chip of a split, from its pixel in the middle."""
    middle = np.array([EDGE // 2])
    return [int(units.index_of(n, row + middle, col + middle)[0]) for n, row, col in split.samples[name].tolist()]


def of_stores(tiles: list[Tiles], labels: list[Tiles], split: Split) -> EvaluationData:
    groups = [EvaluatedMap(n, {}, [image], label) for n, (image, label) in enumerate(zip(tiles, labels, strict=True))]
    return EvaluationData(groups, tuple(split.classes), split)


@pytest.mark.parametrize("by", ["scene", "tile", "region", "column"])
def test_groups_of_a_chip_set_are_pieces_whatever_they_are(world: World, by: str) -> None:
    tiles, labels, places = world
    split, zones = split_of_world(places, 6, by=by)
    data = of_stores(tiles, labels, split)
    units = choose_units(data)
    assert (units.kind, len(units.used)) == ("groups", 6)
    pairs = set(zip(pieces_of_chips(units, split), zones["test"], strict=True))
    assert len(pairs) == len(dict(pairs)) == 6, "a piece for each zone"
    # Chips of a zone are along a meridian, up to 40 degrees of latitude apart; zones are 30 degrees apart.
    assert units.centres is not None
    assert np.hypot.reduce(units.centres[0] - units.centres[1]) == pytest.approx(3_000_000 / 10, rel=0.2)


def test_no_interval_rests_on_few_groups_or_on_what_they_consist_of(world: World) -> None:
    tiles, labels, places = world
    split, _ = split_of_world(places, 5, by="column")
    for name, count in (("test", 5), ("val", 2), ("train", 5)):
        units = choose_units(of_stores(tiles, labels, split), name)
        assert (units.kind, len(units.used)) == ("groups", count)
        tables = tables_of(np.random.default_rng(8).beta(2, 8, count))
        result = Tally(units, MEASURES, {"model": tables}, tables[:1]).uncertainty(1, "linear")["intervals"]
        assert result["model"]["accuracy"] is None
    split.samples["val"] = split.samples["val"][:0]
    assert len(choose_units(of_stores(tiles, labels, split), "val").used) == 0


def test_a_split_file_without_its_groups_has_blocks_as_pieces(world: World) -> None:
    tiles, labels, places = world
    split, _ = split_of_world(places, 7, by="region")
    split.groups = None
    units = choose_units(of_stores(tiles, labels, split))
    assert (units.kind, len(units.used)) == ("blocks of 50 km", 21)
    assert sorted(pieces_of_chips(units, split)) == list(range(21))


def test_a_split_says_the_group_of_each_chip(tmp_path: Path, run: Run) -> None:
    write_world(tmp_path, GROUPS, 3)
    stores = import_set(run, tmp_path)
    write_regions(tmp_path / "regions.geojson", GROUPS)
    for by, options in (
        ("column", ("--attribute", "group")),
        ("region", ("--regions", tmp_path / "regions.geojson", "--attribute", "name")),
    ):
        done = run("split", *stores, *split_outputs(tmp_path), "--method", "group", "--by", by, *options)
        assert done.code == 0, done.stderr
        split = read_split(tmp_path / "split.json")
        assert split.groups is not None
        of_splits = [set(names) for names in split.groups.values()]
        assert sum(map(len, of_splits)) == GROUPS, "each group is in one split"
        document = json.loads((tmp_path / "split.json").read_text())
        document["groups"]["test"].pop()
        (tmp_path / "split.json").write_text(json.dumps(document))
        with pytest.raises(BadInputError, match="it has groups of more or fewer samples"):
            read_split(tmp_path / "split.json")
        (tmp_path / "split.json").unlink()


@pytest.mark.parametrize("tested", [5, 6])
def test_tiles_are_pieces_on_a_grid(tmp_path: Path, tested: int) -> None:
    shape, chip = (32, 256), 16
    scenes = [f"S2A_33T{letter}L_2023081{day}_0_L2A" for letter in "UVWXYZ"[:tested] for day in (5, 7)]
    label = np.zeros(shape, np.uint8)
    stores = [Tiles(write_labels(tmp_path / f"{scene}.zarr", label, ("B04",), scene=scene)) for scene in scenes]
    # Every tile is 32 columns wide, and was seen on two days.
    rows = [(n, row, 32 * (n // 2) + col) for n in range(2 * tested) for row in (0, 16) for col in (0, 16)]
    split = made_split(
        samples={"train": [], "val": [], "test": rows},
        chip=chip,
        scenes=scenes,
        groups={"train": [], "val": [], "test": [f"tile {n // 2:02}" for n, _, _ in rows]},
        plan={"method": "group", "by": "tile", "min_valid": 0.0},
    )
    data = EvaluationData([EvaluatedMap(0, {}, stores, stores[0])], ("land",), split)
    units, (y, x) = choose_units(data), np.indices((32, 32 * tested)).reshape(2, -1)
    assert (units.kind, units.edge, len(units.used)) == ("groups", 0, tested)
    assert (units.index_of(0, y, x) == x // 32).all()
    assert units.centres is not None
    assert np.hypot.reduce(units.centres[3] - units.centres[1]) == pytest.approx(64, rel=0.01)
    assert units.index_of(0, y[:0], x[:0]).tolist() == []
