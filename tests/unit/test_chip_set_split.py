"""Splits of chip sets: true places decide, not slots; blocks, groups and the audit."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
import yaml
import zarr
from builders import write_features
from chip_files import EDGE, chips_of_splits, import_set, separable, write_chip, write_world
from hypothesis import example, given
from hypothesis import strategies as st
from scenery import Completed, Run, split_outputs
from shapely import box

from eopipe.chips.assign import order_along
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.chip_set import INDEX_ARRAY
from eopipe.chips.chip_table import ChipGround, ChipTable, equal_area_blocks
from eopipe.errors import BadInputError
from eopipe.reporting.split_maps import outlines_of
from eopipe.tiles.globe import common_bounds, split
from eopipe.tiles.store import Tiles

LONGITUDES = st.floats(-180, 180, exclude_max=True)


def places_of(corners: list[tuple[str, float, float]], edge: int = 64) -> ChipPlaces:
    """Chips of 10 m pixels by CRS and upper left corner, in slots of one row."""
    from pyproj import Transformer

    records: list[dict[str, Any]] = []
    for number, (crs, left, top) in enumerate(corners):
        change = Transformer.from_crs(crs, "EPSG:4326", always_xy=True)
        longitude, latitude = change.transform(left + 5 * edge, top - 5 * edge)
        record = {"id": str(number), "source": f"{number}.tif", "date": None, "crs": crs, "height": edge, "width": edge}
        record["transform"] = [10, 0, left, 0, -10, top]
        records.append(record | {"longitude": longitude, "latitude": latitude, "row": 0, "column": number * edge})
    samples = np.array([(0, 0, number * edge) for number in range(len(records))])
    return ChipPlaces(edge, samples, tuple(records))


@given(
    zone=st.integers(1, 60),
    easting=st.integers(200_000, 800_000),
    northing=st.integers(0, 8_500_000),
    columns=st.integers(-200, 200),
    rows=st.integers(-200, 200),
)
def test_gaps_in_one_zone_are_those_in_pixels(zone: int, easting: int, northing: int, columns: int, rows: int) -> None:
    crs = f"EPSG:{32600 + zone}"
    places = places_of([(crs, easting, northing), (crs, easting + 10 * columns, northing + 10 * rows)])
    gaps, _ = ChipTable.of_set(places).gaps(np.array([0]), np.array([1]))
    assert gaps[0] == max(abs(columns), abs(rows)) - 64


def test_a_gap_across_180_degrees_is_that_on_the_ground() -> None:
    from pyproj import Geod, Transformer

    corners = []
    for crs, longitude in (("EPSG:32601", -179.99), ("EPSG:32660", 179.99)):
        x, y = Transformer.from_crs("EPSG:4326", crs, always_xy=True).transform(longitude, 10)
        corners.append((crs, x - 320, y + 320))
    places = places_of(corners)
    _, _, metres = Geod(ellps="WGS84").inv(-179.99, 10, 179.99, 10)
    gaps, _ = ChipGround.of_set(places).gaps(np.array([0]), np.array([1]))
    # The chips are turned against each other by a third of a degree, and count with the boxes around them.
    assert metres - 648 < gaps[0] < metres - 640


def test_far_chips_are_apart_by_a_great_circle() -> None:
    places = places_of([("EPSG:32631", 5e5, 0.0), ("EPSG:32661", 2e6, 2e6)])
    gaps, _ = ChipGround.of_set(places).gaps(np.array([0]), np.array([1]))
    assert gaps[0] == pytest.approx(6371008.8 * np.pi / 2, rel=0.002)


def test_the_nearest_chip_is_that_with_the_smallest_gap() -> None:
    dice = np.random.default_rng(1)
    corners = [("EPSG:32633", x, y) for x, y in (dice.integers(0, 1000, (80, 2)) * 10 + (5e5, 5e6)).tolist()]
    places = places_of(corners)
    first, second = np.arange(40), np.arange(40, 80)
    gaps, nearest = ChipTable.of_set(places).gaps(first, second)
    xy = np.array([corner[1:] for corner in corners]) / 10
    expected = np.abs(xy[second, None] - xy[None, first]).max(-1) - 64
    assert (gaps == expected.min(1)).all()
    assert (expected[np.arange(40), nearest] == expected.min(1)).all()


def test_blocks_have_the_same_area_from_the_equator_to_the_polar_circle() -> None:
    dice = np.random.default_rng(2)
    z = dice.uniform(-np.sin(np.radians(66)), np.sin(np.radians(66)), 400_000)
    degrees = np.column_stack([dice.uniform(-180, 180, len(z)), np.degrees(np.arcsin(z))])
    cells, counts = np.unique(equal_area_blocks(degrees, 1000), axis=0, return_counts=True)
    # Rows at the border of the band are incomplete.
    inner = counts[(cells[:, 0] > cells[:, 0].min()) & (cells[:, 0] < cells[:, 0].max())]
    expected = 1e6 / (4 * np.pi * 6371.0088**2 * np.sin(np.radians(66))) * len(z)
    assert np.abs(inner / expected - 1).max() < 0.15


@example(boxes=[(0.0, 0.5), (-0.25, 1.0)])
@given(boxes=st.lists(st.tuples(LONGITUDES, st.floats(1e-3, 20)), min_size=1, max_size=8))
def test_common_bounds_cover_every_box(boxes: list[tuple[float, float]]) -> None:
    bounds = [(west, 0.0, (west + width + 180) % 360 - 180, 1.0) for west, width in boxes]
    west, _, east, _ = common_bounds(bounds)
    width = 360 if (west, east) == (-180, 180) else (east - west) % 360
    for first, span in boxes:
        assert (first - west + 1e-9) % 360 + span <= width + 1e-6 or width == 360


def split_set(run: Run, folder: Path, *options: object) -> Completed:
    return run("split", *import_set(run, folder), *split_outputs(folder), *options)


def split_world(run: Run, folder: Path, *options: object, chips: int = 5) -> tuple[int, str]:
    write_world(folder, 6, chips)
    done = split_set(run, folder, *options)
    return done.code, done.stderr


def test_groups_by_a_column_of_the_index_stay_whole(run: Run, tmp_path: Path) -> None:
    options = ("--method", "group", "--by", "column", "--attribute", "group")
    assert split_world(run, tmp_path, *options, "--test-groups", "z01", "--val-groups", "z00") == (0, "")
    ids = chips_of_splits(tmp_path)
    assert ids["test"] == [f"z01-{chip}" for chip in range(5)]
    assert ids["val"] == [f"z00-{chip}" for chip in range(5)]
    assert len(ids["train"]) == 20


@pytest.mark.parametrize("turn", [0, 360])
def test_groups_by_region_are_those_of_the_polygon_with_the_centre_also_beyond_180_degrees(
    run: Run, tmp_path: Path, turn: int
) -> None:
    regions = {"west": [-181, -90], "middle": [-90, -40], "rest": [-40, 20]}
    features = [(box(left + turn, 0, right + turn, 40), {"region": name}) for name, (left, right) in regions.items()]
    write_features(tmp_path / "r.geojson", *features)
    options = ("--method", "group", "--by", "region", "--regions", tmp_path / "r.geojson")
    assert split_world(run, tmp_path, *options, "--test-groups", "middle", "--val-groups", "rest") == (0, "")
    ids = chips_of_splits(tmp_path)
    # The fifth chip of each zone is north of all regions.
    assert {name[:3] for name in ids["test"]} == {"z03", "z04"}
    assert {name[4] for names in ids.values() for name in names} == set("0123")


def overlapping(folder: Path, shift: int) -> None:
    """Six chips of one zone, of which the last two are `shift` pixels apart."""
    lefts = [5e5 + 20_000 * number for number in range(5)]
    for number, left in enumerate([*lefts, lefts[-1] + 10 * shift]):
        bands, mask = separable(number)
        write_chip(folder / f"images/c{number}-0.tif", bands, names=("red", "nir"), left=left)
        write_chip(folder / f"masks/c{number}-0.tif", mask, left=left)


def test_stores_of_a_chip_set_without_a_chip_are_refused(run: Run, tmp_path: Path) -> None:
    write_world(tmp_path, 4, 1)
    import_set(run, tmp_path)
    store = tmp_path / "set/tiles/chips-0000.zarr"
    metadata = json.loads((store / "zarr.json").read_text()) | {"consolidated_metadata": None}
    (store / "zarr.json").write_text(json.dumps(metadata))
    array = zarr.create_array(store / INDEX_ARRAY, shape=(0,), chunks=(1,), dtype="string", overwrite=True)
    array[:] = np.array([], object)
    with pytest.raises(BadInputError, match="is of a chip set without a chip"):
        ChipPlaces.of([Tiles(store)])


@pytest.mark.exhaustive
@pytest.mark.parametrize(("shift", "sentence"), [(16, "random (1 times)"), (EDGE + 7, "")])
def test_random_splits_are_audited_by_true_places(run: Run, tmp_path: Path, shift: int, sentence: str) -> None:
    overlapping(tmp_path, shift)
    options = ("--method", "random", "--fractions", 0.5, 0, 0.5)
    stores = import_set(run, tmp_path)
    for seed in range(20):
        done = run("split", *stores, *split_outputs(tmp_path), *options, "--seed", seed)
        if "overlap (1 times): train chip c" in done.stderr:
            break
    if not sentence:
        assert "overlap" not in done.stderr
        return
    done.ends(4, sentence, "chip c4-0", "chip c5-0")


@pytest.mark.exhaustive
def test_blocks_remove_chips_within_the_buffer_of_another_split(run: Run, tmp_path: Path) -> None:
    overlapping(tmp_path, EDGE + 7)
    stores, lost = import_set(run, tmp_path), set()
    for seed in range(12):
        options = ("--block-km", 0.3, "--fractions", 0.5, 0, 0.5, "--buffer", 8, "--seed", seed)
        assert run("split", *stores, *split_outputs(tmp_path), *options).code == 0
        ids = chips_of_splits(tmp_path)
        lost |= {f"c{n}-0" for n in range(6)} - {*ids["train"], *ids["test"]}
        assert not ({"c4-0", "c5-0"} & {*ids["train"]} and {"c4-0", "c5-0"} & {*ids["test"]})
    assert lost
    assert lost <= {"c4-0", "c5-0"}


@pytest.mark.parametrize(("options", "sentence"), [
    (("--method", "checkerboard"), "split.method checkerboard does not work on a chip set"),
    (("--method", "group", "--by", "polygon"), "split.method group by polygon does not work on a chip set"),
    (("--method", "temporal", "--dates", "2024-01-01"), "scene images/z00-0.tif, images/z01-0.tif, "),
    (("--method", "group", "--by", "tile"), "scene images/z00-0.tif has no tile in grid:code or its id"),
    (("--method", "group", "--by", "column", "--attribute", "colour"), "no column colour; it has class, column,"),
    (("--method", "group", "--by", "region"), "needs split.regions"),
    (("--block-km", 30_000), "the chips are in 1 blocks of 30000 km, and at least 3 are needed"),
])  # fmt: skip
def test_what_a_chip_set_cannot_be_split_by_is_one_sentence(
    run: Run, tmp_path: Path, options: tuple[object, ...], sentence: str
) -> None:
    code, text = split_world(run, tmp_path, *options, chips=1)
    assert sentence in text
    assert code in (2, 3)


def write_dates(folder: Path, masks: Callable[[int, int], int], days: tuple[str, ...]) -> None:
    """Five chips, each on several days; `masks` is the number of the mask of a place on a day."""
    for place in range(5):
        for number, day in enumerate(days):
            name, left = f"p{place}-{day}", 5e5 + 20_000 * place
            bands, _ = separable(100 * place + number)
            _, mask = separable(masks(place, number))
            write_chip(folder / f"images/{name}.tif", bands, names=("red", "nir"), left=left)
            write_chip(folder / f"masks/{name}.tif", mask, left=left)


DAYS = ("20230601", "20240601", "20250601")
BY_DATE = ("--method", "temporal", "--dates", "2024-01-01", "2025-01-01")


def test_a_temporal_split_of_a_chip_set_is_by_the_dates_of_its_chips(run: Run, tmp_path: Path) -> None:
    write_dates(tmp_path, lambda place, day: 10 * place + day, DAYS)
    split_set(run, tmp_path, *BY_DATE).ends(0)
    ids = chips_of_splits(tmp_path)
    assert ids == {
        name: [f"p{place}-{day}" for place in range(5)]
        for name, day in zip(("train", "val", "test"), DAYS, strict=True)
    }


def test_places_with_one_label_on_all_dates_leak_in_a_temporal_split_of_a_chip_set(run: Run, tmp_path: Path) -> None:
    write_dates(tmp_path, lambda place, day: 10 * place if place else day, DAYS)
    stores = import_set(run, tmp_path)
    # A fifth of the labels is new on each day, so kappa is about 0.8.
    assert run("split", *stores, *split_outputs(tmp_path), *BY_DATE).code == 0
    write_dates(tmp_path, lambda place, day: 10 * place, DAYS)
    done = split_set(run, tmp_path, *BY_DATE).ends(4)
    example = "100.0 % of the test pixels were in train with this label, such as pixels of train chip p0-20230601"
    assert "place (5 times): labels of a place are the same in both splits: " + example in done.stderr


def test_chips_of_one_day_that_overlap_leak_in_a_split_by_scene(run: Run, tmp_path: Path) -> None:
    write_dates(tmp_path, lambda place, day: 10 * place + day, (*DAYS[:2], "20240601b"))
    options = ("--method", "group", "--by", "scene", "--fractions", 0.5, 0, 0.5)
    done = split_set(run, tmp_path, *options).ends(4)
    pair = re.search(r"overlap \(\d times\): train chip (p\d)-(\w+) and test chip (p\d)-(\w+)", done.stderr)
    assert pair, done.stderr
    assert pair[1] == pair[3]
    assert {pair[2], pair[4]} == {"20240601", "20240601b"}


def test_by_scene_the_windows_of_one_image_stay_together(run: Run, tmp_path: Path) -> None:
    rows = []
    for number in range(6):
        place: dict[str, Any] = {"left": 5e5 + 20_000 * number}
        images, masks = zip(*(separable(10 * number + part) for part in range(3)), strict=True)
        write_chip(tmp_path / f"images/s{number}.tif", np.concatenate(images, -1), names=("red", "nir"), **place)
        write_chip(tmp_path / f"masks/s{number}.tif", np.concatenate(masks, -1), **place)
        files = {"image": f"images/s{number}.tif", "mask": f"masks/s{number}.tif"}
        rows += [files | {"id": f"s{number}-{part}", "window": [EDGE * part, 0, EDGE, EDGE]} for part in range(3)]
    (tmp_path / "windows.json").write_text(json.dumps(rows))
    windows = ("--windows", tmp_path / "windows.json", "--classes", "land", "water")
    assert run("import", tmp_path / "set", *windows).code == 0
    stores = ("--tiles", tmp_path / "set/tiles/chips-0000.zarr", "--labels", tmp_path / "set/labels/chips-0000.zarr")
    run("split", *stores, *split_outputs(tmp_path), "--method", "group", "--by", "scene").ends(0)
    images_of = {name: {chip[:2] for chip in chips} for name, chips in chips_of_splits(tmp_path).items()}
    assert [len(images_of[name]) for name in ("train", "val", "test")] == [4, 1, 1]
    assert len(set.union(*images_of.values())) == 6


@given(
    west=LONGITUDES,
    east_and_north=st.lists(st.tuples(st.integers(0, 170), st.integers(-80, 80)), min_size=1, max_size=20),
)
@example(west=175, east_and_north=[(0, 10), (2, 20), (9, 0), (4, 20)])
@example(west=-59.159250290626375, east_and_north=[(0, 10), (2, 20), (9, 0), (4, 20)])
def test_places_are_in_the_order_of_their_side_wherever_they_begin(
    west: float, east_and_north: list[tuple[int, int]]
) -> None:
    east, north = np.array(east_and_north, np.float64).T
    degrees = np.column_stack([(west + east + 180) % 360 - 180, north])
    distances = {"west-east": east, "east-west": -east, "north-south": -north, "south-north": north}
    for method, distance in distances.items():
        ranks = order_along(degrees, method)
        # Places of one meridian may differ in their last bits.
        later = distance[:, None] > distance
        assert (ranks[:, None] > ranks)[later].all(), method


@pytest.mark.parametrize("method", ["west-east", "east-west", "north-south", "south-north"])
def test_strips_of_a_chip_set_follow_each_other_on_the_ground(run: Run, tmp_path: Path, method: str) -> None:
    code, text = split_world(run, tmp_path, "--method", method, "--fractions", 0.5, 0.2, 0.3, chips=4)
    assert code == 0, text
    index = {row["id"]: row for row in json.loads((tmp_path / "set/chips.json").read_text())["chips"]}
    # The first zone is at 180 degrees, and the others are east of it.
    along = {
        "west-east": lambda row: (row["longitude"] - 170) % 360,
        "east-west": lambda row: -((row["longitude"] - 170) % 360),
        "north-south": lambda row: -row["latitude"],
        "south-north": lambda row: row["latitude"],
    }[method]
    ids = chips_of_splits(tmp_path)
    ranges = {name: [along(index[chip]) for chip in ids[name]] for name in ("train", "val", "test")}
    assert sum(map(len, ids.values())) == len(index) == 24
    assert max(ranges["train"]) < min(ranges["val"])
    assert max(ranges["val"]) < min(ranges["test"])
    assert min(map(len, ids.values())) >= 2


@pytest.mark.parametrize("split", [{"method": "blocks", "block_km": 300}, {"method": "north-south"}])
def test_the_plan_of_a_chip_set_is_its_split(
    run: Run, tmp_path: Path, split: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Several stores, whose slots are at the same positions.
    monkeypatch.setattr("eopipe.chips.chip_set.STORE", 64)
    monkeypatch.setattr("eopipe.chips.chip_set.SHARD", 64)
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path, 6, 4)
    stores = import_set(run, tmp_path)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"chip_set": "set", "split": split, "train": {"depth": 1}}))
    planned = run("plan")
    assert planned.code == 0, planned.stderr
    assert "stores of set, nothing to fetch" in planned.stdout
    document = json.loads((tmp_path / "plan/plan.json").read_text())
    options = [f"--{key.replace('_', '-')}={value}" for key, value in split.items()]
    assert run("split", *stores, *split_outputs(tmp_path), *options).code == 0
    content = json.loads((tmp_path / "split.json").read_text())
    for name, rows in content["samples"].items():
        classes = {row: counts["pixels"] for row, counts in document["chips"][name]["classes"].items()}
        assert document["chips"][name]["chips"] == document["chips"][name]["places"] == len(rows)
        assert classes == content["pixels"][name]
    assert len({store for store, _, _ in content["samples"]["train"]}) > 1
    # Every pixel of these chips has a label.
    assert f"over {len(content['samples']['train']) * EDGE**2} labelled pixels" in "".join(document["training"])


def test_smaller_chips_are_judged_by_their_own_pixels(run: Run, tmp_path: Path) -> None:
    write_world(tmp_path, 6, 2)
    for folder in ("images", "masks"):
        bands, mask = separable(77)
        small = bands[:, :12, :12] if folder == "images" else mask[:12, :12]
        names = ("red", "nir") if folder == "images" else ()
        write_chip(tmp_path / folder / "z09-9.tif", small, names=names)
    split_set(run, tmp_path, "--min-valid", 0.9, "--block-km", 100).ends(0)
    assert "z09-9" in [name for names in chips_of_splits(tmp_path).values() for name in names]


@pytest.fixture
def project(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a chip set in twelve zones."""
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path, chips=1)
    import_set(run, tmp_path)
    return tmp_path


def checked(run: Run, folder: Path, split: dict[str, Any], **train: Any) -> Completed:
    """What `eopipe check` says to a config of the set."""
    config = {"chip_set": "set", "split": split, "train": train | {"depth": 1}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return run("check")


@pytest.mark.parametrize(("split", "sentence"), [
    ({"method": "group", "by": "column", "attribute": "group", "test_groups": ["z99"]}, "z99"),
    ({"method": "group", "by": "column", "attribute": "continent"}, "continent"),
    ({"method": "checkerboard"}, "split.method checkerboard does not work on a chip set"),
    ({"method": "blocks", "block_km": 30000}, "choose a smaller split.block_km"),
])  # fmt: skip
def test_check_refuses_a_split_that_the_index_of_a_chip_set_does_not_allow(
    run: Run, project: Path, split: dict[str, Any], sentence: str
) -> None:
    completed = checked(run, project, split).ends(2, sentence)
    assert completed.stderr.count("\n") == 1, "one sentence"


def test_check_says_that_a_chip_set_has_no_validation_chips(run: Run, project: Path) -> None:
    groups = {"method": "group", "by": "column", "attribute": "group", "test_groups": ["z01"]}
    completed = checked(run, project, groups).ends(0)
    assert "warning: no validation chips" in completed.stdout
    assert "split.val_groups are not; name some of the others" in completed.stdout
    completed = checked(run, project, groups | {"val_groups": ["z02"]})
    assert "no validation chips" not in completed.stdout
    assert "warning: the val split has 1 chip: below 6 independent pieces calibrate applies no" in completed.stdout


def test_outlines_drawn_together_are_those_that_are_cut_one_by_one() -> None:
    from pyproj import Transformer

    middle, _ = Transformer.from_crs("EPSG:4326", "EPSG:32601", always_xy=True).transform(-180, 45)
    corners = [("EPSG:32601", middle - 320, 4_983_000), ("EPSG:32601", 4e5, 5e6), ("EPSG:32733", 5e5, 5e6)]
    places = places_of(corners)
    shapes = shapely.from_wkb(outlines_of(places, places.samples[::-1]))
    # The last one crosses 180 degrees.
    assert [len(shape.geoms) for shape in shapes] == [1, 1, 2]
    for shape, outline in zip(shapes, places.outlines[::-1], strict=True):
        unrolled = np.column_stack([np.unwrap(outline[:, 0], period=360), outline[:, 1]])
        parts = shapely.get_parts(split(shapely.Polygon(unrolled)))
        assert shapely.equals_exact(shape, shapely.MultiPolygon([part for part in parts if part.area]))
