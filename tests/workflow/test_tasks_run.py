"""The whole pipeline for other tasks than segmentation, with the example configs and fewer scenes."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rasterio
from projects import Project

Examples = Callable[[str], Project]


def metrics_of(project: Project) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((project.results / "metrics.json").read_text())
    return metrics


def test_the_regression_of_tree_cover_is_better_than_its_mean(example: Examples) -> None:
    project = example("tree-cover-values")
    metrics = metrics_of(project)
    assert (metrics["task"], metrics["unit"], metrics["classes"]) == ("regression", "%", ["tree cover density"])
    assert metrics["model"]["rmse"] < 0.9 * metrics["mean"]["rmse"]
    assert metrics["model"]["r2"] > 0.2
    with rasterio.open(project.results / "maps/mosaic/classes.tif") as file:
        values = file.read(1)
        assert (file.dtypes[0], file.units[0], file.descriptions[0]) == ("float32", "%", "tree cover density")
        assert np.isnan(file.nodata)
    assert 0 < np.nanmean(values) < 100
    with rasterio.open(project.results / "maps/mosaic/probabilities.tif") as file:
        spread, scenes, _ = file.read()
    assert (scenes[np.isfinite(values)] >= 1).all()
    assert (spread[scenes == 1] == 0).all()
    assert "RMSE" in (project.results / "report.html").read_text()
    assert json.loads((project.results / "export.json").read_text())["largest_difference"] <= 1e-4


@pytest.mark.exhaustive
def test_the_classification_of_chips_is_better_than_the_majority_class(example: Examples) -> None:
    project = example("forest-chips")
    metrics = metrics_of(project)
    assert metrics["task"] == "classification"
    assert metrics["test_chips"] > 20
    assert metrics["model"]["f1_macro"] > metrics["majority"]["f1_macro"] + 0.1
    with rasterio.open(project.results / "maps/mosaic/classes.tif") as file:
        classes = file.read(1)[:96, :96].reshape(12, 8, 12, 8)
    assert (classes == classes[:, :1, :, :1]).all()
    assert "test chips" in (project.results / "report.html").read_text()


@pytest.mark.exhaustive
def test_the_labels_of_chips_are_better_than_always_predicting_the_frequent_ones(example: Examples) -> None:
    project = example("tree-cover-labels")
    metrics = metrics_of(project)
    assert (metrics["task"], metrics["min_share"], metrics["threshold"]) == ("multilabel", 0.1, 0.5)
    assert metrics["test_chips"] > 20
    for score in ("f1_micro", "f1_macro", "mean_average_precision", "subset_accuracy"):
        assert metrics["model"][score] > metrics["majority"][score] + 0.1
    assert metrics["model"]["hamming_loss"] < metrics["majority"]["hamming_loss"] - 0.1
    with rasterio.open(project.results / "maps/mosaic/classes.tif") as file:
        assert file.descriptions == tuple(metrics["classes"])
        labels = file.read()[:, :96, :96].reshape(4, 12, 8, 12, 8)
    assert (labels == labels[:, :, :1, :, :1]).all()
    assert set(np.unique(labels)) == {0, 1}
    assert (labels.sum(0) > 1).any()
    page = (project.results / "report.html").read_text()
    assert "Co-occurrence of predicted labels" in page
    assert "Examples of test chips" in page
    assert json.loads((project.results / "export.json").read_text())["largest_difference"] <= 1e-4
