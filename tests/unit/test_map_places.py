"""Maps of the places of one split: there they have the values of the map of everything, and elsewhere nothing."""

from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
import rasterio
import test_blended_windows as blended
from builders import (
    BANDS,
    LAYOUT,
    grid_of,
    noise,
    predict_files,
    stage,
    write_labels,
    write_model,
    write_scenes,
    write_tiles,
)
from hypothesis import given
from hypothesis import strategies as st
from test_blended_windows import project  # noqa: F401
from test_map_parts import CLASSES, digests

from eopipe.arrays import AnyArray, FloatArray
from eopipe.chips.chips import chips_in, covered_pixels, windows_with_chips
from eopipe.inference import predictor
from eopipe.provenance.lineage import MapPixel, splits_of
from eopipe.tiles.cells import Frame
from eopipe.tiles.grid import make_grid, windows
from eopipe.tiles.shard_reader import StoredWindow
from eopipe.tiles.store import Tiles, add_array, new_cell_stores

CHIP = 8


def write_split(path: Path, names: list[str], val: list[list[int]], chip: int = CHIP, **fields: Any) -> Path:
    """A split file whose validation chips are rows of (scene, row, column)."""
    samples = {"train": [[0, 0, 0]], "val": val, "test": [[0, 0, chip]]}
    return builders.write_split(path, names, ("a", "b"), chip, samples, **fields)


def predict(folder: Path, model: Path, tiles: list[Path], *options: object) -> tuple[Path, Path]:
    """Both files of a map with windows of 64 pixels."""
    return predict_files(folder, model, tiles, "--window", 64, *options)


def of_places(split: Path, name: str = "val") -> tuple[object, ...]:
    return "--chips", split, "--places", name


def read(path: Path) -> tuple[AnyArray, dict[str, str], Any]:
    with rasterio.open(path) as file:
        return file.read(), file.tags(), file.nodata


def check_places(
    some: tuple[Path, Path], whole: tuple[Path, Path], corners: list[list[int]], edge: int, chip: int = CHIP
) -> float:
    """Compare both maps by windows of an edge; the share of the map that is in windows with chips."""
    places = np.array(corners, np.int64).reshape(-1, 2)
    for path, path_of_whole in zip(some, whole, strict=True):
        (numbers, tags, nodata), (expected, tags_of_whole, _) = read(path), read(path_of_whole)
        assert tags.pop("places") == "val"
        assert tags == tags_of_whole
        assert numbers.shape == expected.shape
        shape = expected.shape[1:]
        in_chip = covered_pixels(places, chip, (slice(0, shape[0]), slice(0, shape[1])))
        assert numbers[:, in_chip].tobytes() == expected[:, in_chip].tobytes()
        mapped = np.zeros(shape, bool)
        for y, x in windows(shape, edge):
            mapped[y, x] = in_chip[y, x].any()
        elsewhere = numbers[:, ~mapped]
        assert (np.isnan(elsewhere) if np.isnan(nodata) else elsewhere == nodata).all()
    return float(mapped.mean())


@pytest.fixture
def pixels_predicted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Pixels of the images that models get."""
    counts, load = list[int](), predictor.load_predict_function

    def counted(*arguments: Any, **options: Any) -> predictor.Predict:
        function = load(*arguments, **options)

        def predicted(images: FloatArray) -> FloatArray:
            counts.append(len(images) * images.shape[2] * images.shape[3])
            return function(images)

        return predicted

    monkeypatch.setattr(predictor, "load_predict_function", counted)
    return counts


def large_scenes(folder: Path) -> list[Path]:
    """Two scenes of 4 x 3 windows, not all of whose pixels are valid."""
    random = np.random.default_rng(3)
    images = [random.integers(500, 4000, (2, 200, 140)).astype(np.uint16) for _ in range(2)]
    return [
        write_tiles(folder / f"s{n}.zarr", image, random.random((200, 140)) < 0.8) for n, image in enumerate(images)
    ]


@pytest.mark.parametrize("task", sorted(CLASSES))
def test_a_map_of_places_has_the_values_of_the_map_of_everything_there(
    task: str, tmp_path: Path, pixels_predicted: list[int]
) -> None:
    model, tiles = write_model(tmp_path / "model", task, CLASSES[task]), large_scenes(tmp_path)
    whole = predict(tmp_path / "whole", model, tiles)
    every = sum(pixels_predicted)
    # In one window, across two, across four and at the end; none.
    for number, val in enumerate(([[16, 24]], [[56, 8]], [[60, 60], [192, 132]], [[100, 61]], [])):
        pixels_predicted.clear()
        split = write_split(tmp_path / f"{number}.json", ["s0", "s1"], [[n, *corner] for n in (0, 1) for corner in val])
        some = predict(tmp_path / str(number), model, tiles, *of_places(split))
        share = check_places(some, whole, val, 64)
        assert share < 0.7
        assert sum(pixels_predicted) <= every * share * 1.5
    again = predict(tmp_path / "again", model, tiles)
    assert digests(again) == digests(whole)


@pytest.mark.parametrize("name", ["vit.py:ViT", "vit.py:Relative"])
def test_blended_windows_have_the_values_of_the_map_of_everything_too(name: str, project: Path) -> None:  # noqa: F811
    model = blended.write_model(project / "model", name)
    tiles = [blended.write_tiles(project / "a.zarr", 400, 600, hole=0.2)]
    whole = predict(project / "whole", model, tiles, "--allow-code", name)
    split = write_split(project / "split.json", ["a"], [[0, 40, 90], [0, 120, 350]])
    some = predict(project / "some", model, tiles, "--allow-code", name, *of_places(split))
    assert check_places(some, whole, [[40, 90], [120, 350]], 128 if name == "vit.py:ViT" else 256) < 0.6


def test_only_chips_of_the_scenes_of_the_map_count_where_scenes_are_split(tmp_path: Path) -> None:
    model, tiles = write_model(tmp_path / "model", "segmentation", ("a", "b")), large_scenes(tmp_path)
    val = [[0, 8, 8], [1, 150, 100]]
    by_scene = write_split(tmp_path / "scenes.json", ["s0", "s1"], val, by_scene=True)
    by_place = write_split(tmp_path / "places.json", ["s0", "s1"], val)
    for number, path in enumerate(tiles):
        whole = predict(tmp_path / f"whole-{number}", model, [path])
        some = predict(tmp_path / f"scene-{number}", model, [path], *of_places(by_scene))
        check_places(some, whole, [val[number][1:]], 64)
        some = predict(tmp_path / f"place-{number}", model, [path], *of_places(by_place))
        check_places(some, whole, [corner for _, *corner in val], 64)


def test_of_a_chip_set_the_slots_of_its_chips_are_mapped(project: Path) -> None:  # noqa: F811
    edge, val = blended.CHIP, [[1, 0, 32], [1, 32, 64], [0, 0, 0]]
    model = blended.write_model(project / "model", "vit.py:ViT")
    tiles = [write_tiles(project / "b.zarr", noise(2, 2 * edge, 3 * edge, seed=7), chip_set=blended.SLOTS)]
    options = ("--allow-code", "vit.py:ViT")
    whole = predict(project / "whole", model, tiles, *options)
    split = write_split(project / "split.json", ["a", "b"], val, edge, chip_set={"block_km": 50})
    some = predict(project / "some", model, tiles, *options, *of_places(split))
    assert check_places(some, whole, [[0, 32], [32, 64]], edge, edge) == 2 / 6


def test_each_cell_has_its_own_places(tmp_path: Path) -> None:
    # Both are in the middle of their zones.
    west, east = (
        make_grid((left, 5_000_000.0, left + 1200.0, 5_001_000.0), crs, 10.0, (0, 0))
        for left, crs in ((500_000.0, "EPSG:32632"), (500_000.0, "EPSG:32633"))
    )
    frame, random = Frame.of_grids([west, east]), np.random.default_rng(5)
    attributes = {"datetime": "2020-07-01T00:00:00Z", "collection": "test"}
    parts = [(cell, cell.grid, StoredWindow(frame.shape, (0, cell.column), 64)) for cell in frame.cells]
    with new_cell_stores(tmp_path / "s0.zarr", frame, BANDS, "s0", attributes, parts) as (_, groups):
        for cell, part in zip(frame.cells, groups, strict=True):
            image = add_array(part, "image", (2, *cell.shape), "uint16", LAYOUT, scale_factor=1e-4, add_offset=0)
            image[:] = random.integers(500, 4000, image.shape)
            add_array(part, "valid", cell.shape, "uint8", LAYOUT)[:] = 1
    model, column = write_model(tmp_path / "model", "segmentation", ("a", "b")), frame.cells[1].column
    split = write_split(
        tmp_path / "split.json",
        ["s0"],
        [[0, 8, 72], [0, 80, column + 16]],
        grid=Tiles(tmp_path / "s0.zarr").frame.json(),
    )
    for cell, corner in zip(frame.cells, ([8, 72], [80, 16]), strict=True):
        options = ("--cell", cell.id)
        whole = predict(tmp_path / f"whole-{cell.id}", model, [tmp_path / "s0.zarr"], *options)
        some = predict(tmp_path / cell.id, model, [tmp_path / "s0.zarr"], *options, *of_places(split))
        assert check_places(some, whole, [corner], 64) < 0.5
        assert (read(some[0])[0] != 255).any()


@given(
    corners=st.lists(st.tuples(st.integers(0, 290), st.integers(0, 290)), max_size=12),
    shape=st.tuples(st.integers(1, 300), st.integers(1, 300)),
    chip=st.integers(1, 90),
    edge=st.integers(1, 80),
)
def test_windows_with_chips_are_those_that_any_chip_reaches(
    corners: list[tuple[int, int]], shape: tuple[int, int], chip: int, edge: int
) -> None:
    every, places = windows(shape, edge)[:200], np.array(corners, np.int64).reshape(-1, 2)
    reached = [window for window in every if len(chips_in(places, chip, window))]
    assert windows_with_chips(every, places, chip) == reached


def test_places_that_do_not_fit_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tiles = write_model(tmp_path / "model", "segmentation", ("a", "b")), write_scenes(tmp_path, 2)
    split = write_split(tmp_path / "split.json", ["s0", "s1"], [[0, 8, 8]])
    other = write_split(tmp_path / "other.json", ["s1", "s2"], [[0, 8, 8]])
    moved = write_split(
        tmp_path / "moved.json", ["s0", "s1"], [[0, 8, 8]], grid=Frame.of_grids([grid_of((80, 73))]).json()
    )
    part = predict(tmp_path / "part", model, tiles, "--part", "1-of-2")
    target = ["--classes", tmp_path / "c.tif", "--probabilities", tmp_path / "p.tif"]
    arguments = ["--model", model, "--tiles", *tiles, "--window", 64, *target]
    refused = {
        "--chips and --places belong together": [("--chips", split), ("--places", "val")],
        "a map of --places is made by one job; remove --part": [
            (*of_places(split), "--part", "1-of-2"),
            (*of_places(split), "--finished-parts", *part),
        ],
        f"the split {other} was made from other scenes than those to map: s0": [of_places(other)],
        f"the split {moved} is on another grid than the tiles": [of_places(moved)],
        "--places is 'all'": [of_places(split, "all")],
    }
    for sentence, calls in refused.items():
        for options in calls:
            assert stage("predict", *arguments, *options) != 0
            assert sentence in " ".join(capsys.readouterr().err.split())
    of_condor = ["condor", "predict", "--parts", 3, "--", *arguments, *of_places(split)]
    assert stage(*of_condor) == 2
    assert "a map of --places is made by one job" in " ".join(capsys.readouterr().err.split())
    assert not any(path.exists() for path in (tmp_path / "c.tif", tmp_path / "p.tif"))


def test_a_map_of_places_is_not_taken_for_a_map_of_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, tiles = write_model(tmp_path / "model", "segmentation", ("a", "b")), write_scenes(tmp_path, 1)
    labels = write_labels(tmp_path / "labels.zarr", np.zeros((80, 72), np.uint8), ("a", "b"))
    split = write_split(tmp_path / "split.json", ["s0"], [[0, 8, 8]])
    for name in ("val", "test"):
        classes, probabilities = predict(tmp_path / name, model, tiles, *of_places(split, name))
        maps, stores = ["--classes", classes], ["--tiles", *tiles, "--labels", labels, "--chips", split]
        both, of_model = [*maps, "--probabilities", probabilities], ["--model", model]
        pages = [
            word for port in ("page", "picture", "model-card", "data-card") for word in (f"--{port}", tmp_path / port)
        ]
        for command in (
            ["evaluate", *maps, *stores, "--metrics", tmp_path / "metrics.json"],
            ["products", *both, "--products", tmp_path / "products"],
            ["catalog", *both, *of_model, "--tiles", *tiles, "--catalog", tmp_path / "catalog"],
            ["report", *both, *of_model, *stores, "--metrics", split, *pages],
            ["report", *both, *of_model, "--tiles", *tiles, *pages[:4]],
        ):
            assert stage(*command) != 0
            assert f"shows the {name} places alone" in " ".join(capsys.readouterr().err.split()), command[0]
    for port in ("metrics.json", "products", "catalog", "page"):
        assert not (tmp_path / port).exists()


def test_the_chips_of_a_pixel_are_those_that_cover_it_and_not_their_neighbours(tmp_path: Path) -> None:
    frame = {"crs": "EPSG:32633", "shape": [32, 32], "transform": [10, 0, 500_000, 0, -10, 5_000_000]}
    split = write_split(tmp_path / "split.json", ["a"], [[0, 8, 0], [0, 8, 4]], grid=frame)

    def splits(row: int, column: int) -> list[str]:
        return [*splits_of(split, MapPixel(row, column, 0.0, 0.0, "EPSG:32633"), set())]

    assert splits(7, 7) == ["split: train", "  train: 1 chips of 8 pixels, of 1 scenes, at row 0, column 0"]
    assert splits(7, 8)[0] == "split: test"
    corners = "row 8, column 0; row 8, column 4"
    assert splits(8, 7) == ["split: val", f"  val: 2 chips of 8 pixels, of 1 scenes, at {corners}"]
    assert splits(15, 11) == ["split: val", "  val: 1 chips of 8 pixels, of 1 scenes, at row 8, column 4"]
    assert splits(16, 7) == splits(8, 12) == ["split: in no chip of train, val or test"]
