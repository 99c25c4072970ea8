"""A training on packed chips of twelve UTM zones."""

import json
from pathlib import Path

import numpy as np
import pytest
from chip_files import chips_of_splits, import_set, write_world
from scenery import Run, split_outputs


@pytest.mark.slow
def test_a_model_learns_from_blocks_of_chips_in_twelve_zones(run: Run, tmp_path: Path) -> None:
    import pyogrio

    write_world(tmp_path)
    stores = import_set(run, tmp_path)
    options = ("--block-km", 500, "--fractions", 0.6, 0.2, 0.2, "--buffer", 10)
    assert run("split", *stores, *split_outputs(tmp_path), *options).code == 0
    ids = chips_of_splits(tmp_path)
    assert sorted(name for names in ids.values() for name in names) == [f"z{n // 5:02d}-{n % 5}" for n in range(60)]
    # Slots are neighbours, the places are a thousand kilometres apart.
    audit = json.loads((tmp_path / "split.json").read_text())["audit"]
    assert 100_000 < audit["gap_pixels"]["train-test"] < 120_000
    bounds = pyogrio.read_bounds(tmp_path / "split.gpkg")[1]
    # Of the chips that 180 degrees cuts both parts are in the layer.
    assert (bounds[2] - bounds[0] > 359).sum() == 5
    assert bounds[[1, 3]].min() == pytest.approx(5, abs=0.01)
    cut = ("--chips", tmp_path / "split.json", "--statistics", tmp_path / "statistics.json")
    settings = ("--epochs", 8, "--width", 8, "--depth", 2, "--batch", 8)
    assert run("train", *stores, *cut, "--model", tmp_path / "model", *settings).code == 0
    history = json.loads((tmp_path / "model/history.json").read_text())
    assert history["epochs"][-1]["val"]["accuracy"] > 0.97
    maps, tiles = ("--classes", tmp_path / "map.tif"), stores[:2]
    probabilities = ("--probabilities", tmp_path / "p.tif")
    assert run("predict", "--model", tmp_path / "model", *tiles, *maps, *probabilities).code == 0
    metrics = ("--metrics", tmp_path / "metrics.json")
    assert run("evaluate", *maps, *stores, "--chips", tmp_path / "split.json", *metrics).code == 0
    assert json.loads((tmp_path / "metrics.json").read_text())["model"]["accuracy"] > 0.97
    west, south, east, north = json.loads((tmp_path / "model/model.json").read_text())["bbox"]
    assert np.allclose([west, south, east, north], [-147, 5, -180, 45], atol=0.01)
