"""A training on packed chips of twelve UTM zones, with a map and scores of each store."""

import json
from pathlib import Path

import numpy as np
import pytest
from chip_files import EDGE, accuracy_of_maps, chips_of_splits, import_set, write_world
from scenery import Run, split_outputs


@pytest.mark.exhaustive
def test_a_model_learns_from_blocks_of_chips_in_twelve_zones(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyogrio

    write_world(tmp_path)
    # 16 chips of each store.
    monkeypatch.setattr("eopipe.chips.chip_set.SHARD", 2 * EDGE)
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
    cut = ("--chips", tmp_path / "split.json")
    settings = ("--statistics", tmp_path / "statistics.json", "--epochs", 8, "--width", 8, "--depth", 2, "--batch", 8)
    assert run("train", *stores, *cut, "--model", tmp_path / "model", *settings).code == 0
    history = json.loads((tmp_path / "model/history.json").read_text())
    assert history["validations"][-1]["val"]["accuracy"] > 0.97
    west, south, east, north = json.loads((tmp_path / "model/model.json").read_text())["bbox"]
    # The boxes of the stores, of which the first one crosses 180 degrees.
    assert np.allclose([west, south, east, north], [179.998, 5, 153.002, 45], atol=0.002)

    tiles, labels = (sorted((tmp_path / "set" / kind).iterdir()) for kind in ("tiles", "labels"))
    assert len(tiles) == 4
    refused_maps = ("--classes", tmp_path / "all.tif", "--probabilities", tmp_path / "all-p.tif")
    refused = run("predict", "--model", tmp_path / "model", "--tiles", *tiles, *refused_maps)
    assert "stores of a chip set have other chips at the same positions: predict one at a time" in refused.stderr
    maps = [tmp_path / f"{path.stem}.tif" for path in tiles]
    probabilities = [tmp_path / f"{path.stem}-p.tif" for path in tiles]
    for store, classes, shares in zip(tiles, maps, probabilities, strict=True):
        written = ("--classes", classes, "--probabilities", shares)
        assert run("predict", "--model", tmp_path / "model", "--tiles", store, *written).code == 0
    mapped, scores = ("--classes", *maps, "--probabilities", *probabilities), ("--metrics", tmp_path / "metrics.json")
    assert run("evaluate", *mapped, *stores, *cut, *scores).code == 0
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    expected = accuracy_of_maps(maps, labels, tmp_path / "split.json")
    assert 0.97 < metrics["model"]["accuracy"] == pytest.approx(expected, abs=1e-6)
    # Each chip is in a block of its own: the pieces of the intervals are blocks, not squares of the slots.
    assert metrics["intervals"]["pieces"] == len(ids["test"]) == metrics["calibration"]["intervals"]["pieces"]
    assert "blocks of 500 km" in metrics["intervals"]["method"]
    one_map = ("--classes", maps[0], "--probabilities", probabilities[0])
    assert "labels that differ from scene to scene" in run("evaluate", *one_map, *stores, *cut, *scores).stderr
