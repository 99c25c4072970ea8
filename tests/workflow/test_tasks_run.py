"""The whole pipeline for regression and for chip classification, with the example configs and fewer scenes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import yaml
from projects import DAYS, ROOT, Project


def run_example(folder: Path, example: str, **train: Any) -> dict[str, Any]:
    """Run an example on six scenes; return its metrics."""
    (folder / "sample").symlink_to(ROOT / "sample")
    config = yaml.safe_load((ROOT / f"config/examples/{example}.yaml").read_text())
    config["search"] |= {"ids": [f"S2_ROMANIA_{day}" for day in DAYS]}
    config["train"] |= train
    config |= {"results": "results", "state": "state"}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    result = Project(folder).run("--show-failed-logs")
    assert result.returncode == 0, result.stdout
    metrics: dict[str, Any] = json.loads((folder / "results/metrics.json").read_text())
    return metrics


@pytest.mark.exhaustive
def test_the_regression_of_tree_cover_is_better_than_its_mean(tmp_path: Path) -> None:
    metrics = run_example(tmp_path, "tree-cover-values", epochs=6, batch=16, width=8, processes=1)
    assert (metrics["task"], metrics["unit"], metrics["classes"]) == ("regression", "%", ["tree cover density"])
    assert metrics["model"]["rmse"] < 0.9 * metrics["mean"]["rmse"]
    assert metrics["model"]["r2"] > 0.2
    with rasterio.open(tmp_path / "results/maps/mosaic/classes.tif") as file:
        values = file.read(1)
        assert (file.dtypes[0], file.units[0], file.descriptions[0]) == ("float32", "%", "tree cover density")
        assert np.isnan(file.nodata)
    assert 0 < np.nanmean(values) < 100
    with rasterio.open(tmp_path / "results/maps/mosaic/probabilities.tif") as file:
        spread, scenes = file.read()
    assert (scenes[np.isfinite(values)] >= 1).all()
    assert (spread[scenes == 1] == 0).all()
    assert "RMSE" in (tmp_path / "results/report.html").read_text()
    assert json.loads((tmp_path / "results/export.json").read_text())["largest_difference"] <= 1e-4


@pytest.mark.exhaustive
def test_the_classification_of_chips_is_better_than_the_majority_class(tmp_path: Path) -> None:
    metrics = run_example(tmp_path, "forest-chips", epochs=6, batch=32, width=8, processes=1)
    assert metrics["task"] == "classification"
    assert metrics["test_chips"] > 20
    assert metrics["model"]["f1_macro"] > metrics["majority"]["f1_macro"] + 0.1
    with rasterio.open(tmp_path / "results/maps/mosaic/classes.tif") as file:
        classes = file.read(1)[:96, :96].reshape(12, 8, 12, 8)
    assert (classes == classes[:, :1, :, :1]).all()
    assert "test chips" in (tmp_path / "results/report.html").read_text()
