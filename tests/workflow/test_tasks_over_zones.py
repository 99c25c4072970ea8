"""Each task over two UTM zones: the maps of both cells, their scores on every test chip or pixel, and the report."""

import json
from pathlib import Path

import numpy as np
import pytest
import rasterio
import two_zones
import yaml
from projects import Project
from scenery import Run

from eopipe.arrays import AnyArray
from eopipe.chips.splits import read_split
from eopipe.tiles.cells import read_frame

CHIP = 16


def run_of(task: str, folder: Path) -> Project:
    """A run of a task; the values of a regression are the numbers of the classes."""
    project = Project(folder)
    two_zones.write_project(folder)
    config = two_zones.CONFIG | {"split": {"block": 64, "chip": CHIP, "fractions": [0.6, 0.2, 0.2], "buffer": 8}}
    config |= {"train": two_zones.CONFIG["train"] | {"task": task, "epochs": 8}}
    if task == "regression":
        config |= {"label": {"source": "labels.tif", "measure": "height", "chunk": 64, "shard": 256}}
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
    assert "predict.halo is 2048: pixels of another cell begin at 2048" in done.stderr
