"""What a split uses of the polygons and points of a label file, counted as their owner counts them."""

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import grid_of, stage, write_features, write_store
from scipy import ndimage
from shapely import Point, box

from eopipe.chips.candidates import usable_share
from eopipe.chips.chips import min_usable_pixels
from eopipe.chips.splits import SPLITS, Split, read_split
from eopipe.evaluation.correlation import MAX_UNITS, choose_units, placed_units
from eopipe.evaluation.maps import EvaluationData
from eopipe.inference.map_files import new_map
from eopipe.planning.chip_forecast import split_arguments
from eopipe.reporting import split_maps
from eopipe.scenes.item import scene_tags
from eopipe.text_files import write_json
from eopipe.tiles.geotiff import MapFormat
from eopipe.tiles.grid import grid_json
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import Tiles

SHAPE, STEP = (256, 256), 10.0
GRID = grid_of(SHAPE)
CLASSES = ("field", "forest", "built")
Shapes = list[tuple[str, Any, str]]


def at(column: float, row: float, width: float = 0.0) -> Any:
    """A square of pixels, or a point, by its column and row."""
    x, y = 500_000 + STEP * column, 5_000_000 - STEP * row
    return box(x, y - STEP * width, x + STEP * width, y) if width else Point(x, y)


def polygons() -> Shapes:
    """190 fields of two to four pixels, of which some are off the grid, tiny, in a cloud, or of another year."""
    rng, shapes = np.random.default_rng(4), Shapes()
    places = rng.permutation([(row, col) for row in range(4, 250, 16) for col in range(4, 250, 16)])[:178]
    for number, (row, col) in enumerate(places.tolist()):
        name = CLASSES[min(number % 5 // 2, 2)]
        shapes.append((name, at(col, row, int(rng.integers(2, 5))), "2021" if number % 10 else "2019"))
    shapes += [("field", at(-40, row, 3), "2021") for row in range(0, 50, 10)]
    shapes += [("built", at(col + 12.6, 12.6, 0.2), "2021") for col in range(0, 112, 16)]
    assert len(shapes) == 190
    return shapes


def points() -> Shapes:
    """600 points, many of which are in one pixel with another."""
    rng = np.random.default_rng(5)
    places = rng.integers(0, 256, (550, 2)).tolist()
    places += places[:50]
    return [(CLASSES[number % 3 if number < 550 else (number - 550) % 3], at(c + 0.5, r + 0.5), "2021")
            for number, (r, c) in enumerate(places)]  # fmt: skip


def prepare(folder: Path, shapes: Shapes) -> None:
    """A file of labels, and tiles of one scene whose north-west corner is a cloud."""
    features = [(shape, {"class": name, "date": date}) for name, shape, date in shapes]
    write_features(folder / "own.geojson", *features, crs="EPSG:32633")
    write_json(folder / "grid.json", grid_json(GRID))
    valid = np.ones(SHAPE, np.uint8)
    valid[:48, :48] = 0
    pixels = np.random.default_rng(6).integers(1, 3000, (1, *SHAPE)).astype(np.uint16)
    options: dict[str, Any] = {"layout": Layout(64, 64), "scaling": (1.0, 0.0), "datetime": "2021-06-01T00:00:00Z"}
    write_store(folder / "a.zarr", ("B04",), {"image": pixels, "valid": valid}, **options)


def label(folder: Path, *options: str) -> None:
    paths = ["--grid", folder / "grid.json", "--labels", folder / "labels.zarr", "--source", folder / "own.geojson"]
    assert stage("label", *paths, "--classes", *CLASSES, *options) == 0


def split(folder: Path, *options: str) -> Split:
    outputs = [
        word
        for name in ("chips", "statistics", "map", "outlines")
        for word in (f"--{name}", folder / {"map": "split.png", "outlines": "split.gpkg"}.get(name, f"{name}.json"))
    ]
    inputs = ["--tiles", folder / "a.zarr", "--labels", folder / "labels.zarr", "--chip", "32"]
    allow = ["--allow", "autocorrelation: noise", "near-duplicate: noise", "polygon: a test"]
    assert stage("split", *inputs, *outputs, *options, *allow) == 0
    return read_split(folder / "chips.json")


def used_by_hand(folder: Path, document: Split) -> dict[str, int]:
    """The shapes with a valid pixel in a chip of a split, by class, from the whole arrays."""
    tiles, labels = Tiles(folder / "a.zarr"), Tiles(folder / "labels.zarr")
    numbers, usable = labels.read("polygon"), tiles.valid(slice(0, 256), slice(0, 256)) & (labels.read("valid") > 0)
    classes, used = labels.read("label"), set[int]()
    for position, name in enumerate(SPLITS):
        for _, row, column in document.samples[name].tolist():
            window = np.s_[row : row + 32, column : column + 32]
            shapes = {int(number) for number in np.unique(numbers[window][usable[window]])} - {0}
            of_split = document.polygons.get("")
            used |= {n for n in shapes if of_split is None or of_split[n - 1] == position}
    names = [CLASSES[int(classes[numbers == number][0])] for number in used]
    return dict(Counter(names))


BY_POLYGON = ("--method", "group", "--by", "polygon", "--fractions", "0.5", "0.2", "0.3")
BLOCKS = ("--method", "blocks", "--block", "64", "--fractions", "0.5", "0.25", "0.25")


@pytest.mark.parametrize(
    "method", [(*BY_POLYGON, "--buffer", "14"), (*BLOCKS, "--buffer", "8")], ids=["polygon", "blocks"]
)
def test_polygons_that_are_used_and_not_used_add_up_to_the_file(tmp_path: Path, method: tuple[str, ...]) -> None:
    shapes = polygons()
    prepare(tmp_path, shapes)
    label(tmp_path, "--dates", "2021")
    document = split(tmp_path, *method)
    assert document.shapes is not None
    of_file = Counter(name for name, _, _ in shapes)
    for name, row in document.shapes.classes.items():
        assert row.file == of_file[name] == row.used + sum(row.dropped.values())
    by_hand = used_by_hand(tmp_path, document)
    assert {name: row.used for name, row in document.shapes.classes.items()} == by_hand
    rows = document.shapes.classes
    assert rows["field"].dropped["outside"] == 5
    assert rows["built"].dropped["hidden"] == 7
    assert sum(row.dropped.get("dates", 0) for row in rows.values()) == sum(date == "2019" for _, _, date in shapes)
    assert sum(row.dropped.get("masked", 0) for row in rows.values()) > 0
    assert sum(row.dropped.get("apart", 0) for row in rows.values()) > 0
    # Any labelled pixel makes a chip usable.
    assert document.plan.min_valid == 0
    assert not any("sparse" in row.dropped for row in rows.values())


def test_points_of_one_pixel_are_counted_too(tmp_path: Path) -> None:
    prepare(tmp_path, points())
    label(tmp_path)
    document = split(tmp_path, *BLOCKS)
    assert document.shapes is not None
    assert document.shapes.kind == "points"
    assert document.shapes.file == 600
    assert all(row.file == row.used + sum(row.dropped.values()) for row in document.shapes.classes.values())
    assert sum(row.dropped.get("hidden", 0) for row in document.shapes.classes.values()) >= 50
    assert {name: row.used for name, row in document.shapes.classes.items()} == used_by_hand(tmp_path, document)


def test_the_log_the_card_and_the_picture_say_what_the_split_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare(tmp_path, polygons())
    label(tmp_path)
    drawn = list[Any]()
    monkeypatch.setattr(split_maps, "write_map", lambda path, content: (drawn.append(content), path.write_bytes(b"")))
    with caplog.at_level(logging.INFO):
        document = split(tmp_path, *BY_POLYGON, "--min-valid", "0.03")
    used = document.shapes
    assert used is not None
    assert sum(row.dropped.get("sparse", 0) for row in used.classes.values()) > 10
    names = {"train": "Training", "val": "Validation", "test": "Test"}
    assert list(drawn[0].classes[:3]) == [f"{names[name]}, {used.in_split(name)} polygons" for name in SPLITS]
    of_picture = drawn[0].panels[0].numbers
    for number, name in enumerate(SPLITS):
        assert ndimage.label(of_picture == number)[1] == used.in_split(name), "polygons that are drawn"
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    head = f"{used.used} of 190 polygons of the labels are used (field {used.classes['field'].used} of "
    assert any(head in message for message in warnings)
    assert any("in chips with too few labelled pixels (split.min_valid)" in message for message in warnings)


def test_half_of_a_chip_must_be_labelled_by_a_raster_and_any_pixel_by_shapes(tmp_path: Path) -> None:
    prepare(tmp_path, points())
    label(tmp_path)
    of_points = Tiles(tmp_path / "labels.zarr")
    assert usable_share(None, [of_points]) == 0
    assert usable_share(None, [Tiles(tmp_path / "a.zarr")]) == usable_share(None, [None]) == 0.5
    assert usable_share(0.25, [of_points]) == 0.25
    assert min_usable_pixels(0.0, np.array([16, 64])).tolist() == [1, 1]
    assert min_usable_pixels(0.5, np.array([16, 64])).tolist() == [8, 32]


def test_a_plan_asks_the_same_rule(tmp_path: Path) -> None:
    from eopipe.config import model

    _, request = split_arguments(model()().model_dump(by_alias=True)["split"])
    assert request.min_valid is None


@pytest.mark.parametrize("shapes", [polygons, points], ids=["polygons", "points"])
def test_the_pieces_of_an_interval_are_the_polygons_that_were_split(
    tmp_path: Path, shapes: Callable[[], Shapes]
) -> None:
    prepare(tmp_path, shapes())
    label(tmp_path)
    document = split(tmp_path, *BY_POLYGON, "--buffer", "2")
    assert document.shapes is not None
    with new_map(tmp_path / "map.tif", GRID, MapFormat("uint8", 255, ("class",), scene_tags(["a"]))) as file:
        # Nothing is mapped in the cloud.
        file.write(np.where(Tiles(tmp_path / "a.zarr").valid(slice(0, 256), slice(0, 256)), 0, 255).astype(np.uint8), 1)
    paths = (tmp_path / "a.zarr",), (tmp_path / "labels.zarr",), tmp_path / "chips.json"
    data = EvaluationData.read((tmp_path / "map.tif",), *paths)
    units = choose_units(data)
    assert not units.are_independent
    assert units.kind == document.shapes.kind == shapes.__name__
    numbers = Tiles(tmp_path / "labels.zarr").read("polygon")
    polygons_of_pieces = dict[int, set[int]]()
    for pixels in data.pixels("test"):
        index = units.index_of(0, pixels.rows, pixels.cols)
        for piece, number in zip(index.tolist(), numbers[pixels.rows, pixels.cols].tolist(), strict=True):
            polygons_of_pieces.setdefault(piece, set()).add(number)
    assert all(len(of_piece) == 1 for of_piece in polygons_of_pieces.values())
    assert len(polygons_of_pieces) == document.shapes.in_split("test")
    for piece, (number,) in polygons_of_pieces.items():
        rows, cols = np.nonzero(numbers == number)
        assert units.centres is not None
        np.testing.assert_allclose(units.centres[piece], (rows.mean(), cols.mean()), atol=2)


def test_many_polygons_are_joined_with_their_neighbours_into_pieces_of_whole_polygons() -> None:
    rows, cols = np.divmod(np.arange(3000), 60)
    sizes = np.full(3001, 4)
    sizes[0] = 0
    sums = np.vstack([[0, 0], 4 * np.column_stack([8 * rows, 8 * cols])]).astype(np.float64)
    units = placed_units(sizes, sums, lambda _, row, col: 1 + row * 60 + col)
    assert 100 < len(units.used) <= MAX_UNITS
    index = units.index_of(0, rows, cols)
    assert units.centres is not None
    distance = np.hypot(*(units.centres[index] - np.column_stack([8 * rows, 8 * cols])).T)
    assert distance.max() < 32
