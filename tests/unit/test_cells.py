"""Runs over several UTM zones: every place on Earth is in one cell, and cells hold what single grids would."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import two_zones
from builders import BANDS, predict_files, write_features, write_model
from hypothesis import given
from hypothesis import strategies as st
from pyproj import Transformer
from scenery import Run, split_outputs, write_raster
from shapely import box, transform
from stores import ImageOfSplit, table_of

import eopipe
from eopipe.chips.chips import pair_stores
from eopipe.chips.splits import read_split
from eopipe.cli import main
from eopipe.errors import BadInputError
from eopipe.evaluation.maps import EvaluatedMap
from eopipe.inference.map_files import new_map
from eopipe.reporting.rasters import map_files
from eopipe.stac.choose_grid import choose_cells
from eopipe.text_files import write_json
from eopipe.tiles.cells import GAP, Frame, read_frame
from eopipe.tiles.geotiff import MapFormat
from eopipe.tiles.grid import grid_json, make_grid
from eopipe.tiles.layout import Layout
from eopipe.tiles.shard_reader import StoredWindow
from eopipe.tiles.store import Tiles, add_array, new_cell_stores

AREA = {
    "type": "Polygon",
    "coordinates": [[[11.975, 44.992], [12.018, 44.992], [12.018, 45.028], [11.975, 45.028], [11.975, 44.992]]],
}
LAYOUT = ("--chunk", "64", "--shard", "256")
ALLOWED = ("place: scenes of one place are split", "overlap: scenes of one day are split")


@st.composite
def areas(draw: st.DrawFn) -> tuple[float, float, float, float]:
    """A rectangle in degrees: west, south, width, height; often at the border of zones, at 180 degrees, the equator."""
    west = draw(st.one_of(st.integers(-30, 29).map(lambda n: 6.0 * n - 0.1), st.floats(-180, 179)))
    south = draw(st.one_of(st.just(-0.05), st.floats(-70, 70)))
    return west, south, draw(st.floats(0.02, 0.4)), draw(st.floats(0.02, 0.3))


def rectangle(west: float, south: float, width: float, height: float) -> dict[str, Any]:
    """The area as GeoJSON, cut at 180 degrees."""
    parts = [(west, min(west + width, 180.0))] + ([(-180.0, west + width - 360)] if west + width > 180 else [])
    rings = [
        [[[a, south], [b, south], [b, south + height], [a, south + height], [a, south]]] for a, b in parts if b > a
    ]
    return {"type": "MultiPolygon", "coordinates": rings}


@given(area=areas(), seed=st.integers(0, 2**16))
def test_every_place_of_an_area_is_in_one_cell_wherever_on_earth(
    area: tuple[float, float, float, float], seed: int
) -> None:
    west, south, width, height = area
    west = west + 360 if west < -180 else west
    frame = choose_cells([], ("red",), rectangle(west, south, width, height), "utm", 60.0)
    dice = np.random.default_rng(seed)
    longitude = (west + width * dice.uniform(0.02, 0.98, 300) + 180) % 360 - 180
    latitude = south + height * dice.uniform(0.02, 0.98, 300)
    cells = np.zeros(300, int)
    for cell in frame.cells:
        change = Transformer.from_crs("EPSG:4326", str(cell.grid.crs), always_xy=True)
        columns, rows = ~cell.grid.affine * change.transform(longitude, latitude)
        inside = (rows >= 0) & (rows < cell.shape[0]) & (columns >= 0) & (columns < cell.shape[1])
        belongs = cell.belongs(slice(0, cell.shape[0]), slice(0, cell.shape[1]))
        cells[inside] += belongs[rows[inside].astype(int), columns[inside].astype(int)]
    # A pixel is in one zone or the other by its centre.
    border = np.minimum(longitude % 6, 6 - longitude % 6) * 111_320 * np.cos(np.radians(latitude))
    is_clear = (border > 50) & (np.abs(latitude) * 110_570 > 50)
    assert (cells[is_clear] == 1).all()


def two_cells() -> Frame:
    return choose_cells([], ("red",), AREA, "utm", 10.0)


def test_cells_lie_side_by_side_in_the_frame_and_a_grid_file_keeps_them(tmp_path: Path) -> None:
    frame = two_cells()
    first, second = frame.cells
    assert [cell.id for cell in frame.cells] == ["utm32n", "utm33n"]
    assert second.column == first.shape[1] + GAP
    assert frame.shape == (max(first.shape[0], second.shape[0]), second.column + second.shape[1])
    write_json(tmp_path / "grid.json", frame.json())
    assert read_frame(tmp_path / "grid.json").is_same(frame)
    with pytest.raises(BadInputError, match="no cell 'utm34n'; it has utm32n, utm33n"):
        frame.cell("utm34n")


def test_a_map_of_a_cell_has_no_data_where_the_pixels_of_the_other_zone_belong(tmp_path: Path) -> None:
    # Around the border at 12 degrees; the image is valid everywhere, in both cells.
    frame = choose_cells([], ("red",), AREA, "utm", 40.0)
    parts = [(cell, cell.grid, StoredWindow(frame.shape, (0, cell.column), 64)) for cell in frame.cells]
    attributes = {"datetime": "2023-08-01T10:00:00Z"}
    with new_cell_stores(tmp_path / "s.zarr", frame, BANDS, "s", attributes, parts) as (_, groups):
        for cell, part in zip(frame.cells, groups, strict=True):
            scaling = {"scale_factor": 1e-4, "add_offset": 0.0}
            add_array(part, "image", (2, *cell.shape), "uint16", Layout(32, 64), **scaling)[:] = 1000
            add_array(part, "valid", cell.shape, "uint8", Layout(32, 64))[:] = 1
    for task, classes in (("segmentation", ("a", "b")), ("regression", ("height",))):
        model = write_model(tmp_path / task, task, classes)
        for cell in frame.cells:
            options = ("--cell", cell.id, "--window", 64)
            paths = predict_files(tmp_path / f"{task}-{cell.id}", model, [tmp_path / "s.zarr"], *options)
            rows, columns = np.mgrid[: cell.shape[0], : cell.shape[1]] + 0.5
            change = Transformer.from_crs(str(cell.grid.crs), "EPSG:4326", always_xy=True)
            longitude = change.transform(*(cell.grid.affine * (columns, rows)))[0]
            belongs = (longitude < two_zones.BORDER) == (cell.id == "utm32n")
            assert 0.05 < belongs.mean() < 0.95
            for path in paths:
                with rasterio.open(path) as file:
                    for mask in file.read_masks():
                        np.testing.assert_array_equal(mask > 0, belongs)


@pytest.mark.parametrize(("top", "left"), [(0, 0), (30, 10), (50, 30), (70, 40), (90, 60)])
def test_a_window_that_is_partly_or_wholly_below_a_cell_or_beside_it_has_the_map_where_the_cell_is(
    top: int, left: int, tmp_path: Path
) -> None:
    west, east = (
        make_grid((0.0, 0.0, 480.0, edge), crs, 10.0, (0, 0))
        for edge, crs in ((600.0, "EPSG:32632"), (1000.0, "EPSG:32633"))
    )
    frame = Frame.of_grids([west, east])
    label = tmp_path / "label.zarr"
    parts = [(cell, cell.grid, StoredWindow(frame.shape, (0, cell.column), 64)) for cell in frame.cells]
    with new_cell_stores(label, frame, ("a", "b"), "", {}, parts) as (_, groups):
        for cell, part in zip(frame.cells, groups, strict=True):
            add_array(part, "label", cell.shape, "uint8", Layout(32, 64))
    everything, paths = np.full((frame.shape[0], frame.shape[1] + 64), 255, np.uint8), {}
    for number, cell in enumerate(frame.cells):
        numbers = (np.arange(np.prod(cell.shape)) % 100 + 100 * number).reshape(cell.shape).astype(np.uint8)
        everything[cell.window] = numbers
        paths[cell.id] = write_raster(tmp_path / f"{cell.id}.tif", numbers, nodata=None)
    evaluated = EvaluatedMap(0, paths, [Tiles(label)], Tiles(label))
    for first in (0, frame.cells[1].column):
        window = slice(top, top + 10), slice(first + left, first + left + 20)
        np.testing.assert_array_equal(evaluated.mapped(*window), everything[window])


def test_an_area_in_one_zone_has_the_grid_that_it_always_had(tmp_path: Path) -> None:
    west = {"type": "Polygon", "coordinates": [[[11.5, 45], [11.6, 45], [11.6, 45.1], [11.5, 45.1], [11.5, 45]]]}
    frame, plain = (choose_cells([], ("red",), west, crs, 10.0) for crs in ("utm", "auto"))
    assert frame.is_same(plain)
    assert frame.json() == grid_json(plain.cells[0].grid)


def test_distant_parts_of_an_area_are_cells_of_their_own_and_near_ones_are_not() -> None:
    # Three fields: two a kilometre apart, one 200 km away in the same zone, one in the next.
    fields = {"near": (15.0, 45.0), "nearer": (15.0, 45.012), "far": (14.0, 46.5), "east": (18.5, 45.0)}
    rings = [[[[x, y], [x + 0.01, y], [x + 0.01, y + 0.003], [x, y + 0.003], [x, y]]] for x, y in fields.values()]
    frame = choose_cells([], ("red",), {"type": "MultiPolygon", "coordinates": rings}, "utm", 10.0)
    assert [cell.id for cell in frame.cells] == ["utm33n-1", "utm33n-2", "utm34n"]
    assert Frame.of_document(frame.json(), "grid.json").is_same(frame)
    # A grid of all of them would have 400 times as many pixels.
    assert sum(height * width for height, width in (cell.shape for cell in frame.cells)) < 60_000
    for x, y in ((x + 0.005, y + 0.001) for x, y in fields.values()):
        count = 0
        for cell in frame.cells:
            place = Transformer.from_crs("EPSG:4326", str(cell.grid.crs), always_xy=True).transform(x, y)
            column, row = ~cell.grid.affine * place
            count += 0 <= row < cell.shape[0] and 0 <= column < cell.shape[1]
        assert count == 1


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda cells: cells[0].pop("column"), "needs an id and a column"),
        (lambda cells: cells[0].update(id="utm31n"), "the id of a cell is its UTM zone"),
        (lambda cells: cells[1].update(column=100), "columns that do not overlap"),
        (lambda cells: cells.pop(), "columns that do not overlap"),
        (lambda cells: cells[1].pop("transform"), "transform is missing"),
    ],
)
def test_a_grid_file_with_a_mistake_is_refused_in_a_sentence(change: Any, sentence: str, tmp_path: Path) -> None:
    document = two_cells().json()
    change(document["cells"])
    write_json(tmp_path / "grid.json", document)
    with pytest.raises(BadInputError, match=sentence):
        read_frame(tmp_path / "grid.json")


@given(seed=st.integers(0, 2**16), chip=st.sampled_from([16, 32, 64]))
def test_the_gap_of_chips_across_the_border_is_that_on_the_ground(seed: int, chip: int) -> None:
    frame, dice = two_cells(), np.random.default_rng(seed)
    corners = []
    for cell in frame.cells:
        rows, columns = dice.integers(0, cell.shape[0] - chip, 20), dice.integers(0, cell.shape[1] - chip, 20)
        corners.append(np.column_stack([rows, columns + cell.column]))
    samples = {name: np.insert(part, 0, 0, axis=1) for name, part in zip(("west", "east"), corners, strict=True)}
    table, chips = table_of(samples, chip, [ImageOfSplit("s", {}, frame)])
    gaps, nearest = table.gaps(chips["west"], chips["east"])
    west, east = frame.cells
    change = Transformer.from_crs(str(east.grid.crs), str(west.grid.crs), always_xy=True)
    places = {}
    for name, cell, boxes in (("west", west, corners[0]), ("east", east, corners[1])):
        x, y = cell.grid.affine * (boxes[:, 1] - cell.column, boxes[:, 0])
        places[name] = box(x, y - 10 * chip, x + 10 * chip, y)
    seen_from_west = transform(places["east"], lambda points: np.column_stack(change.transform(*points.T)))
    for number, place in enumerate(seen_from_west):
        distances = np.array([place.distance(other) for other in places["west"]]) / 10
        # Boxes around turned chips are up to a tenth larger, and the gap is the longer of both axes.
        assert gaps[number] <= distances.min() + 1
        assert distances[nearest[number]] <= np.hypot(gaps[number] + 0.2 * chip, gaps[number] + 0.2 * chip) + 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fetched scenes of two zones, the grid of both, and the grid of each cell by itself."""
    folder = tmp_path_factory.mktemp("cells")
    two_zones.write_project(folder)
    frame = two_cells()
    write_json(folder / "grid.json", frame.json())
    for cell in frame.cells:
        write_json(folder / f"{cell.id}.json", grid_json(cell.grid))
    for number, name in enumerate(two_zones.SCENES):
        item = folder / f"catalog/s{number}/item.json"
        assert main(["fetch", "--item", str(item), "--scene", str(folder / name), "--catalog", str(item.parent)]) == 0
    return folder


def tiles(run: Run, folder: Path, scene: str, grid: str) -> Path:
    """The tiles of a scene on a grid."""
    target = folder / f"tiles-{grid}" / f"{scene}.zarr"
    if not target.exists():
        places = ("--scene", folder / scene, "--grid", folder / f"{grid}.json", "--tiles", target)
        done = run("preprocess", *places, "--bands", "red", "nir", *LAYOUT)
        assert done.code == 0, done.stderr
    return target


def same_pixels(store: Tiles, alone: Tiles, name: str, cell: str) -> None:
    """Compare an array in a cell of the frame with a store of that cell alone."""
    window = store.frame.cell(cell).window
    np.testing.assert_array_equal(store.read(name, *window), alone.read(name))


@pytest.mark.parametrize("scene", two_zones.SCENES)
def test_a_cell_holds_what_a_run_of_its_own_would(scene: str, folder: Path, run: Run) -> None:
    store = Tiles(tiles(run, folder, scene, "grid"))
    assert [part.cell for part in store.parts] == ["utm32n", "utm33n"]
    for part in store.parts:
        alone = Tiles(tiles(run, folder, scene, part.cell))
        for name in ("image", "valid"):
            same_pixels(store, alone, name, part.cell)
        # The pixels of a scene in its own zone are copied.
        assert part.alone().stored_grid.crs == store.frame.cell(part.cell).grid.crs
    gap = slice(0, 10), slice(store.frame.cells[0].shape[1] + 5, store.frame.cells[0].shape[1] + 90)
    assert not store.read("valid", *gap).any()
    rows, (_, columns) = slice(0, 50), store.frame.cells[1].window
    straddling = store.read("valid", rows, slice(0, store.shape[1]))
    np.testing.assert_array_equal(straddling[:, columns], store.read("valid", rows, columns))


def test_a_composite_of_cells_is_that_of_each_cell(folder: Path, run: Run) -> None:
    composites = {}
    for grid in ("grid", "utm32n", "utm33n"):
        target = folder / f"composite-{grid}.zarr"
        stores = [tiles(run, folder, scene, grid) for scene in two_zones.SCENES]
        done = run("composite", "--tiles", *stores, "--composite", target, "--method", "median", "--period", "year")
        assert done.code == 0, done.stderr
        composites[grid] = Tiles(target)
    for cell in ("utm32n", "utm33n"):
        for name in ("image", "valid", "count"):
            same_pixels(composites["grid"], composites[cell], name, cell)


def labels(run: Run, folder: Path, target: Path, *arguments: object) -> Tiles:
    done = run("label", "--grid", folder / "grid.json", "--labels", target, *arguments, *LAYOUT)
    assert done.code == 0, done.stderr
    return Tiles(target)


def test_a_place_has_a_label_in_the_cell_of_its_zone_only(folder: Path, run: Run, tmp_path: Path) -> None:
    store = labels(run, folder, tmp_path / "all.zarr", "--source", folder / "labels.tif", "--classes", "a", "b")
    counts = np.zeros(2, int)
    for cell in store.frame.cells:
        valid, label = store.read("valid", *cell.window) > 0, store.read("label", *cell.window)
        np.testing.assert_array_equal(valid, cell.belongs(slice(0, cell.shape[0]), slice(0, cell.shape[1])))
        counts += np.bincount(label[valid], minlength=2)
    assert store.attributes["pixels"] == {"a": counts[0], "b": counts[1]}
    assert sum(row["count"] for row in store.attributes["source_values"]) == counts.sum()
    area = 111_320 * np.cos(np.radians(45.01)) * (12.018 - 11.975) * 111_130 * (45.028 - 44.992)
    # The corners of the cells are beyond the area, which is turned against their pixels.
    assert 1 < 10**2 * counts.sum() / area < 1.1


def test_values_and_polygons_are_on_one_side_of_the_border_too(folder: Path, run: Run, tmp_path: Path) -> None:
    values = labels(run, folder, tmp_path / "v.zarr", "--source", folder / "labels.tif", "--measure", "height")
    crossing = [[[11.99, 45.0], [12.01, 45.0], [12.01, 45.01], [11.99, 45.01], [11.99, 45.0]]]
    eastern = [[[12.012, 45.0], [12.016, 45.0], [12.016, 45.01], [12.012, 45.01], [12.012, 45.0]]]
    polygons = [({"type": "Polygon", "coordinates": rings}, {"class": "a"}) for rings in (eastern, crossing)]
    write_features(tmp_path / "places.geojson", *polygons)
    shapes = labels(run, folder, tmp_path / "p.zarr", "--source", tmp_path / "places.geojson", "--classes", "a")
    for cell in values.frame.cells:
        belongs = cell.belongs(slice(0, cell.shape[0]), slice(0, cell.shape[1]))
        assert not np.isfinite(values.read("label", *cell.window)[~belongs]).any()
        numbers = shapes.read("polygon", *cell.window)
        assert not numbers[~belongs].any()
        # The second shape of the file is number 2 in both cells.
        assert set(np.unique(numbers)) == ({0, 2} if cell.id == "utm32n" else {0, 1, 2})


def test_change_has_the_from_to_classes_of_both_cells(folder: Path, run: Run, tmp_path: Path) -> None:
    arguments = ("--source", folder / "labels.tif", "--classes", "a", "b")
    plain = labels(run, folder, tmp_path / "plain.zarr", *arguments).attributes["pixels"]
    change = labels(run, folder, tmp_path / "change.zarr", *arguments, "--before", folder / "labels.tif")
    assert change.attributes["pixels"] == {"a to a": plain["a"], "a to b": 0, "b to a": 0, "b to b": plain["b"]}


@pytest.mark.exhaustive
@pytest.mark.parametrize("method", ["west-east", "south-north"])
def test_strips_follow_each_other_on_the_ground_over_two_zones(
    folder: Path, run: Run, tmp_path: Path, method: str
) -> None:
    labels(run, folder, tmp_path / "all.zarr", "--source", folder / "labels.tif", "--classes", "a", "b")
    stores = [tiles(run, folder, scene, "grid") for scene in two_zones.SCENES]
    arguments = ("--tiles", *stores, "--labels", tmp_path / "all.zarr", *split_outputs(tmp_path), "--chip", 16)
    done = run("split", *arguments, "--method", method, "--buffer", 4, "--fractions", 0.5, 0.2, 0.3)
    assert done.code == 0, done.stderr
    split, frame = read_split(tmp_path / "split.json"), two_cells()
    along: dict[str, list[float]] = {}
    for name, samples in split.samples.items():
        for _, row, column in samples.tolist():
            cell = next(cell for cell in frame.cells if cell.column <= column < cell.window[1].stop)
            # Chips are counted from the edges of their own grid.
            assert (column - cell.column) % 16 in (0, cell.shape[1] % 16)
            assert row % 16 in (0, cell.shape[0] % 16)
            longitude, latitude = cell.degrees(*(cell.grid.affine * (column - cell.column + 8, row + 8)))
            along.setdefault(name, []).append(longitude if method == "west-east" else latitude)
    assert max(along["train"]) < min(along["val"]) < max(along["val"]) < min(along["test"])
    assert split.audit.gap_pixels["train-test"] >= 4
    assert len({column < GAP for column in split.samples["train"][:, 2]}) == (2 if method == "south-north" else 1)


def scene_maps(folder: Path, pairs: list[tuple[Tiles, Tiles]]) -> dict[str, list[Path]]:
    """Maps with the labels of each scene in each cell that it reaches: of classes with probabilities, or of values."""
    paths: dict[str, list[Path]] = {"classes": [], "probabilities": []}
    for image, label in pairs:
        for cell in (image.frame.cell(part.cell) for part in image.parts):
            numbers, tags = label.read("label", *cell.window), {"scenes": image.scene, "cell": cell.id}
            is_mapped = image.valid(*cell.window) & label.valid(*cell.window)
            tags |= {"task": "regression"} if numbers.dtype.kind == "f" else {}
            blank = np.nan if "task" in tags else 255
            shares = np.stack([numbers == 0, numbers == 1]) * 9000 + 500
            for kind, layers, names, steps in (
                ("classes", np.where(is_mapped, numbers, blank)[None].astype(numbers.dtype), ("class",), 1),
                ("probabilities", np.where(is_mapped, shares, 65_535).astype("uint16"), ("a", "b"), 10_000),
            ):
                nodata = blank if kind == "classes" else 65_535
                layout = MapFormat(str(layers.dtype), nodata, names, tags, steps=steps)
                paths[kind].append(folder / f"{kind}-{image.scene}-{cell.id}.tif")
                with new_map(paths[kind][-1], cell.grid, layout) as file:
                    file.write(layers)
    return paths


@pytest.mark.parametrize(
    ("method", "of_scenes"),
    [
        pytest.param(("temporal", "--dates", "2023-08-03"), False, marks=pytest.mark.exhaustive),
        pytest.param(("temporal", "--dates", "2023-08-03"), True, marks=pytest.mark.exhaustive),
        pytest.param(("group", "--by", "scene"), False, marks=pytest.mark.exhaustive),
        (("group", "--by", "scene"), True),
    ],
)
def test_each_scene_has_a_map_of_its_own_in_each_cell_that_it_reaches(
    folder: Path, run: Run, tmp_path: Path, method: tuple[str, ...], of_scenes: bool
) -> None:
    sources: dict[str, list[object]] = {"": ["--source", folder / "labels.tif", "--classes", "a", "b"]}
    if of_scenes:
        sources = {name: ["--scene", folder / name, "--asset", "red", "--measure", "red"] for name in two_zones.SCENES}
    stored = [labels(run, folder, tmp_path / f"l-{name}.zarr", *words).path for name, words in sources.items()]
    stores = tuple(tiles(run, folder, scene, "grid") for scene in two_zones.SCENES)
    inputs = ("--tiles", *stores, "--labels", *stored)
    done = run("split", *inputs, *split_outputs(tmp_path), "--chip", 32, "--method", *method, "--allow", *ALLOWED)
    assert done.code == 0, done.stderr
    pairs, split = pair_stores(stores, tuple(stored)), read_split(tmp_path / "split.json")
    maps = scene_maps(tmp_path, pairs)
    # They are placed by what they say themselves.
    arguments = ["evaluate", *inputs, "--chips", tmp_path / "split.json", "--metrics", tmp_path / "m.json"]
    both = [] if of_scenes else ["--probabilities", *maps["probabilities"][::-1]]
    done = run(*arguments, *both, "--classes", *maps["classes"][1:], maps["classes"][0])
    assert done.code == 0, done.stderr
    metrics, count = json.loads((tmp_path / "m.json").read_text()), 0
    for number, (image, label) in enumerate(pairs):
        is_tested = np.zeros(image.shape, bool)
        for _, row, column in split.samples["test"][split.samples["test"][:, 0] == number].tolist():
            is_tested[row : row + 32, column : column + 32] = True
        count += int((is_tested & image.valid() & label.valid()).sum())
    assert metrics["test_pixels"] == count == sum(scene["count"] for scene in metrics["scenes"])
    assert (metrics["model"]["rmse"] == 0) if of_scenes else (metrics["model"]["accuracy"] == 1)
    if not of_scenes:
        assert metrics["calibration"]["confidence"] == pytest.approx(0.95)
        files = map_files(tuple(maps["classes"]), tuple(maps["probabilities"][::-1]), [i for i, _ in pairs], ("a", "b"))
        assert [(file.scene, [*file.classes]) for file in files] == [
            (image.scene, [part.cell for part in image.parts]) for image, _ in pairs
        ]
    for other, sentence in (
        (maps["classes"][1:], "has pixels in cell utm32n, but there is no map of them"),
        (maps["classes"] + maps["classes"][:1], "are maps of the same scenes in cell utm32n; give one of them"),
    ):
        done = run(*arguments, "--classes", *other)
        assert done.code == 3
        assert sentence in done.stderr


def test_a_cube_of_several_cells_is_of_one_that_is_named(folder: Path, run: Run) -> None:
    stores = [tiles(run, folder, scene, "grid") for scene in two_zones.SCENES]
    with pytest.raises(BadInputError, match="name one with cell=: utm32n, utm33n"):
        eopipe.open_cube(folder, "tiles-grid")  # type: ignore[arg-type]
    cube = eopipe.open_cube(folder, "tiles-grid", cell="utm33n")  # type: ignore[arg-type]
    first = Tiles(stores[0])
    number = cube.scene.values.tolist().index(first.scene)
    np.testing.assert_array_equal(cube.valid[number], first.read("valid", *first.frame.cell("utm33n").window) > 0)
    assert run("tiles", "check", stores[0]).code == 0
