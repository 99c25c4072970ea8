"""Each task over two UTM zones and on chip sets: the maps, their scores on every test chip or pixel, and the report."""

import json
from pathlib import Path

import numpy as np
import pytest
import rasterio
import two_zones
import yaml
from chip_files import EDGE, separable, write_chip
from projects import Project
from scenery import Run
from test_two_zones import centres

from eopipe.arrays import AnyArray
from eopipe.chips.splits import read_split
from eopipe.tiles.cells import read_frame
from eopipe.tiles.store import Tiles

CHIP = 16


BLOCKS = {"block": 64, "chip": CHIP, "fractions": [0.6, 0.2, 0.2], "buffer": 8}
# The scenes see the same places.
ALLOWED = ["place: scenes of one place are split", "overlap: scenes of one day are split"]
BY_SCENE = {"method": "group", "by": "scene", "chip": CHIP, "fractions": [0.4, 0.3, 0.3], "allow": ALLOWED}


def run_of(task: str, folder: Path, **sections: dict[str, object]) -> Project:
    """A run of a task; the values of a regression are the numbers of the classes."""
    project = Project(folder)
    two_zones.write_project(folder, two_zones.SCENES | (two_zones.EAST if sections else {}))
    config = two_zones.CONFIG | {"split": BLOCKS}
    config |= {"train": two_zones.CONFIG["train"] | {"task": task, "epochs": 8}}
    if task == "regression":
        config |= {"label": {"source": "labels.tif", "measure": "height", "chunk": 64, "shard": 256}}
    config |= sections
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    done = project.run()
    assert done.returncode == 0, done.stdout
    return project


def bands_of(path: Path) -> AnyArray:
    with rasterio.open(path) as file:
        return np.asarray(file.read())


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", ["classification", "multilabel"])
def test_chips_of_two_zones_are_classified_and_scored_each_once(task: str, tmp_path: Path) -> None:
    project = run_of(task, tmp_path)
    split, metrics = (
        read_split(project.results / "split.json"),
        json.loads((project.results / "metrics.json").read_text()),
    )
    samples, counted = split.samples["test"], 0
    for cell in read_frame(project.results / "grid.json").cells:
        mapped = bands_of(project.results / f"maps/mosaic.{cell.id}/classes.tif")
        is_in_cell = (samples[:, 2] >= cell.column) & (samples[:, 2] < cell.window[1].stop)
        chips = np.unique(samples[is_in_cell, 1:] - (0, cell.column), axis=0)
        assert len(chips) > 0
        for row, column in chips.tolist():
            part = mapped[:, row : row + CHIP, column : column + CHIP]
            # The last chips of a row or column overlap others, since their cell is no multiple of chips.
            if row % CHIP == 0 and column % CHIP == 0:
                inside = (part != 255).all(0)
                assert len(np.unique(part[:, inside], axis=1).T) == 1
                counted += 1
    assert counted > 20
    # Chips with neighbours at their side make whole squares, too.
    assert counted <= metrics["test_chips"] <= len(np.unique(samples[:, 1:], axis=0))
    score = "accuracy" if task == "classification" else "f1_micro"
    assert metrics["model"][score] > metrics["majority"][score]
    assert json.loads((project.results / "calibration.json").read_text())["chips"] > 20
    assert "utm33n" in (project.results / "report.html").read_text()


@pytest.mark.exhaustive
def test_values_are_mapped_and_scored_over_two_zones(tmp_path: Path, run: Run) -> None:
    project = run_of("regression", tmp_path)
    metrics = json.loads((project.results / "metrics.json").read_text())
    assert metrics["model"]["r2"] > 0.5
    samples = read_split(project.results / "split.json").samples["test"]
    assert metrics["test_pixels"] > 0.9 * CHIP**2 * len(np.unique(samples[:, 1:], axis=0))
    maps = ("--classes", tmp_path / "classes.tif", "--probabilities", tmp_path / "probabilities.tif")
    inputs = ("--model", project.results / "model", "--tiles", *sorted(project.results.glob("tiles/*.zarr")))
    done = run("predict", *inputs, *maps, "--cell", "utm32n", "--halo", 2048)
    assert done.code == 2
    assert "predict.halo is 2048: pixels of another cell begin at 2048, and" in done.stderr


def reached_cells(project: Project) -> set[str]:
    """The names of the maps that there have to be: each scene with each cell that its store has."""
    stores = [Tiles(path) for path in project.results.glob("tiles/*.zarr")]
    return {f"{store.scene}.{part.cell}" for store in stores for part in store.parts}


def check_empty_map(project: Project, names: set[str], run: Run) -> None:
    """A map of a cell that its scene does not reach is empty, and changes no score and no product."""
    results, empty = project.results, project.folder / "empty"
    stores, model = sorted(results.glob("tiles/*.zarr")), ("--model", results / "model")
    kinds = ("classes", "probabilities")
    outputs = [word for kind in kinds for word in (f"--{kind}", empty / f"{kind}.tif")]
    tiles = ("--tiles", results / "tiles/T33-east.zarr", "--calibration", results / "calibration.json")
    done = run("predict", *model, *tiles, *outputs, "--cell", "utm32n", "--device", "cpu")
    assert done.code == 0, done.stderr
    assert (bands_of(empty / "classes.tif") == 255).all()
    folders = [*(results / "maps" / name for name in sorted(names)), empty]
    maps = {kind: (f"--{kind}", *(folder / f"{kind}.tif" for folder in folders)) for kind in kinds}
    labelled = ("--tiles", *stores, "--labels", results / "labels/all.zarr", "--chips", results / "split.json")
    done = run("evaluate", *maps["classes"], *maps["probabilities"], *labelled, "--metrics", empty / "metrics.json")
    assert done.code == 0, done.stderr
    assert (empty / "metrics.json").read_bytes() == (results / "metrics.json").read_bytes()
    both, items = (*maps["classes"], *maps["probabilities"]), ("--scenes", *sorted(results.glob("items/*.geojson")))
    done = run("catalog", *model, *both, "--tiles", *stores, *items, "--catalog", empty / "catalog")
    assert done.code == 0, done.stderr
    done = run("products", *both, "--products", empty / "products")
    assert done.code == 0, done.stderr
    assert {path.name for path in (empty / "products").glob("classes.*.tif")} == {
        f"classes.{name}.tif" for name in names | {"T33-east.utm32n"}
    }


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", ["segmentation", "classification", "multilabel"])
def test_scenes_that_are_split_have_maps_and_scores_of_their_own_in_each_cell(
    task: str, tmp_path: Path, run: Run
) -> None:
    project = run_of(task, tmp_path, split=BY_SCENE)
    names = {path.name for path in (project.results / "maps").iterdir()}
    assert names == reached_cells(project)
    assert {name for name in names if name.startswith("T33-east")} == {"T33-east.utm33n"}
    split = read_split(project.results / "split.json")
    metrics = json.loads((project.results / "metrics.json").read_text())
    assert metrics["maps"] == 4
    tested = {split.scenes[number] for number in split.samples["test"][:, 0]}
    assert {scene["scene"] for scene in metrics["scenes"]} == tested
    total = metrics["test_pixels" if task == "segmentation" else "test_chips"]
    assert sum(scene["count"] for scene in metrics["scenes"]) == total > 0
    score = "f1_micro" if task == "multilabel" else "accuracy"
    assert metrics["model"][score] > max(0.8, metrics["majority"][score])
    calibration = json.loads((project.results / "calibration.json").read_text())
    assert calibration["maps"] == "each image"
    report = (project.results / "report.html").read_text()
    assert all(f"{name.replace('.', ' ')}" in report for name in names if name.partition(".")[0] in tested)
    if task == "segmentation":
        for name in names:
            mapped, longitude, latitude = centres(project.results / f"maps/{name}/classes.tif")
            assert (mapped != 255).any()
            assert (mapped == two_zones.classes_at(longitude, latitude))[mapped != 255].mean() > 0.9
        check_empty_map(project, names, run)


@pytest.mark.exhaustive
def test_labels_of_each_scene_are_compared_with_its_maps_in_each_cell(tmp_path: Path) -> None:
    labels = {"asset": "red", "measure": "red", "chunk": 64, "shard": 256}
    project = run_of("regression", tmp_path, label=labels, preprocess={"bands": ["nir"], "chunk": 64, "shard": 256})
    assert {path.name for path in (project.results / "maps").iterdir()} == reached_cells(project)
    metrics = json.loads((project.results / "metrics.json").read_text())
    assert metrics["maps"] == 4
    # Both bands tell the class, each with a noise of its own.
    assert metrics["model"]["r2"] > 0.5


def chips_of_classes(folder: Path) -> tuple[str, ...]:
    """Chips by class, which the difference of two bands tells; the options of their import."""
    for number in range(48):
        dice, kind = np.random.default_rng(number), number % 2
        bands = 1000 + dice.normal(0, 60, (2, EDGE, EDGE)) + np.array([200 * kind, -200 * kind])[:, None, None]
        place = {
            "left": 3e5 + 20_000 * (number // 2 % 6),
            "top": 5e6 - 20_000 * (number // 12),
            "names": ("red", "nir"),
        }
        write_chip(folder / f"classes/{'ab'[kind]}/c{number:02d}.tif", bands.astype(np.uint16), **place)
    return "--folders", "classes"


def chips_with_masks(folder: Path) -> tuple[str, ...]:
    """Chips with masks of squares, some of them with one class alone; the options of their import."""
    for number in range(48):
        bands, mask = separable(number)
        if number % 3 == 0:
            bands, mask = np.broadcast_to(bands[:, :1, :1], bands.shape), np.full_like(mask, mask[0, 0])
        place = {"left": 3e5 + 20_000 * (number % 12), "top": 5e6 - 20_000 * (number // 12)}
        write_chip(folder / f"images/c{number:02d}.tif", np.ascontiguousarray(bands), names=("red", "nir"), **place)
        write_chip(folder / f"masks/c{number:02d}.tif", mask, **place)
    return "--images", "images/*.tif", "--masks", "masks/*.tif", "--classes", "a", "b"


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", ["classification", "multilabel"])
def test_a_chip_set_goes_from_its_files_to_the_scores_of_a_task(
    task: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = chips_of_classes(tmp_path) if task == "classification" else chips_with_masks(tmp_path)
    assert run("import", "set", *options).code == 0
    # Chips of folders are classified without another word.
    assert run("init", "project", "--chips", "set", *(("--task", task) if task == "multilabel" else ())).code == 0
    project = Project(tmp_path / "project")
    config = yaml.safe_load((project.folder / "config.yaml").read_text())
    assert config["train"]["task"] == task
    config["train"] |= {"epochs": 40, "batch": 8, "width": 8, "depth": 2}
    (project.folder / "config.yaml").write_text(yaml.safe_dump(config))
    done = project.run()
    assert done.returncode == 0, done.stdout
    metrics = json.loads((project.results / "metrics.json").read_text())
    # A map of a store has each chip in its slot, so that all test chips are counted, each once.
    assert metrics["test_chips"] == len(read_split(project.results / "split.json").samples["test"]) > 0
    score = "accuracy" if task == "classification" else "f1_micro"
    assert metrics["model"][score] > metrics["majority"][score]
    assert "test chips" in (project.results / "report.html").read_text()
