"""Forests, boosted trees and linear models: those of scikit-learn, as tensors, trained and mapped like any model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from builders import write_labels
from rasterio import open as open_raster
from scenery import Run, split_outputs
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_baselines import NAMES, store

from eopipe.arrays import AnyArray, FloatArray
from eopipe.errors import BadInputError
from eopipe.models import Architecture
from eopipe.models.model_folder import read_trained_model, read_weights
from eopipe.models.pixel_models import LEAST_PROBABILITY, TREES, FitOptions, fit, mistake_in, outputs, sum_of_leaves
from eopipe.publish import digest
from eopipe.tiles.store import Tiles
from eopipe.train_options import BOOSTING, FOREST, LINEAR, PIXEL_MODELS

EDGE, CHIP = 96, 16


def pixels(count: int = 600, seed: int = 0) -> tuple[FloatArray, AnyArray]:
    """Features (n, 6) with few different numbers in two columns, and their sum with noise."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(count, 6)).astype(np.float32)
    features[:, :2] = np.round(features[:, :2] * 3) / 3
    return features, features[:, :3].sum(1) + rng.normal(0, 0.3, count)


def truth_of(total: AnyArray, classes: int) -> AnyArray:
    return np.digitize(total, np.quantile(total, np.arange(1, classes) / classes)) if classes else total


@pytest.mark.parametrize("classes", [0, 2, 4])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_model_is_what_scikit_learn_fits(classes: int, is_weighted: bool) -> None:
    features, total = pixels()
    truth, (other, _) = truth_of(total, classes), pixels(seed=1)
    weights = np.arange(1, classes + 1) / classes if is_weighted else np.zeros(0)
    of_samples = weights[truth] if classes and is_weighted else None
    forest = (ExtraTreesClassifier if classes else ExtraTreesRegressor)(TREES, min_samples_leaf=2, random_state=3)
    linear = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300) if classes else Ridge())
    fitted = {
        FOREST: forest.fit(features, truth, sample_weight=of_samples),
        LINEAR: linear.fit(features.astype(np.float64), truth, **{f"{linear.steps[1][0]}__sample_weight": of_samples}),
    }
    for kind, estimator in fitted.items():
        actual = outputs(kind, fit(kind, features, truth, classes, FitOptions(3, weights)), other)
        if classes:
            shares = np.exp(actual - actual.max(1, keepdims=True))
            expected = np.maximum(estimator.predict_proba(other), LEAST_PROBABILITY if kind == FOREST else 0)
            expected /= expected.sum(1, keepdims=True)
            np.testing.assert_allclose(shares / shares.sum(1, keepdims=True), expected, atol=2e-5, err_msg=kind)
        else:
            np.testing.assert_allclose(actual[:, 0], estimator.predict(other), atol=2e-5, err_msg=kind)


@pytest.mark.exhaustive
@pytest.mark.parametrize("classes", [0, 2, 4])
def test_boosted_trees_are_the_mean_of_three_fits_with_seeds_of_their_own(classes: int) -> None:
    features, total = pixels()
    truth, (other, _) = truth_of(total, classes), pixels(seed=1)
    boosted = HistGradientBoostingClassifier if classes else HistGradientBoostingRegressor
    seeds = np.random.SeedSequence(5).generate_state(3).tolist()
    fits = [boosted(random_state=seed, early_stopping="auto").fit(features, truth) for seed in seeds]
    raw = [fitted.decision_function(other) if classes else fitted.predict(other) for fitted in fits]
    expected, actual = np.mean(raw, 0), outputs(BOOSTING, fit(BOOSTING, features, truth, classes, FitOptions(5)), other)
    if classes == 2:
        np.testing.assert_allclose(actual[:, 1] - actual[:, 0], expected, atol=1e-4)
    else:
        np.testing.assert_allclose(actual, expected.reshape(len(actual), -1), atol=1e-4)


def test_a_feature_as_large_as_a_threshold_goes_where_scikit_learn_sends_it() -> None:
    features, total = pixels()
    truth = truth_of(total, 2)
    model = ExtraTreesClassifier(TREES, min_samples_leaf=2, random_state=0).fit(features, truth)
    thresholds = np.concatenate([tree.tree_.threshold[tree.tree_.feature == 0] for tree in model.estimators_])
    nearest = thresholds.astype(np.float32)
    # On both sides of thresholds of double precision, by the smallest steps that there are, and of equal numbers.
    steps = [nearest, *(np.nextafter(nearest, np.float32(end)) for end in (-np.inf, np.inf))]
    tested = np.repeat(pixels(seed=2)[0][:1], 3 * len(nearest), 0)
    tested[:, 0] = np.concatenate(steps)
    assert (nearest > thresholds).any()
    assert (nearest < thresholds).any()
    shares = sum_of_leaves(fit(FOREST, features, truth, 2, FitOptions()), tested)
    np.testing.assert_allclose(shares, model.predict_proba(tested), atol=1e-6)


@pytest.mark.parametrize("kind", PIXEL_MODELS)
def test_threads_change_no_byte(kind: str) -> None:
    features, total = pixels()
    fitted = [fit(kind, features, truth_of(total, 3), 3, FitOptions(7, threads=threads)) for threads in (1, 3)]
    for name, array in fitted[0].items():
        np.testing.assert_array_equal(array, fitted[1][name], err_msg=name)


@pytest.mark.parametrize("kind", PIXEL_MODELS)
def test_a_class_that_no_training_pixel_has_is_hardly_ever_predicted_and_a_single_one_always(kind: str) -> None:
    features, total = pixels()
    two = outputs(kind, fit(kind, features, 2 * truth_of(total, 2), 3, FitOptions()), features)
    assert set(two.argmax(1)) == {0, 2}
    of_one = outputs(kind, fit(kind, features, np.full(len(features), 1), 3, FitOptions()), features)
    assert set(of_one.argmax(1)) == {1}


@pytest.mark.parametrize(("name", "change", "mistake"), [
    ("left", lambda left: left * (left == np.arange(len(left))), "a node is before its parent"),
    ("left", lambda left: left + 0.5, "its tables of nodes have another type"),
    ("root", lambda root: root[:, None], "its tables of nodes have another type"),
    ("right", lambda right: right[:-1], "its tables of nodes have different lengths"),
    ("feature", lambda feature: feature + 6, "a node has a number that there is not"),
    ("root", lambda root: root - 1, "a node has a number that there is not"),
    ("threshold", lambda threshold: threshold * np.nan, "it has numbers that are not finite"),
])  # fmt: skip
def test_trees_that_no_training_makes_are_refused(name: str, change: Any, mistake: str) -> None:
    features, total = pixels()
    trees = fit(FOREST, features, truth_of(total, 2), 2, FitOptions())
    assert mistake_in(trees, 6) == ""
    damaged = trees | {name: change(trees[name])}
    assert mistake_in(damaged, 6) == mistake
    model = Architecture(FOREST, 2, 2, 4, 1).build()
    with pytest.raises(BadInputError, match=f"the trees of a model are damaged: {mistake}"):
        model.load_state_dict({key: torch.from_numpy(array) for key, array in damaged.items()})


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A scene of two bands with a hole, whose class is how rough it is, labels, and a split."""
    folder, rng = tmp_path_factory.mktemp("pixels"), np.random.default_rng(1)
    rows, columns = np.indices((EDGE, EDGE))
    truth = ((rows // 24 + columns // 24) % 2).astype(np.uint8)
    smooth = np.abs((rows + 3 * columns) % 128 / 64 - 1)
    image = np.stack([np.where(truth == 1, rng.random(truth.shape), smooth), rng.random(truth.shape)])
    valid = np.ones(truth.shape, np.uint8)
    valid[40:52, 30:39] = 0
    height = (image.sum(0) * 10).astype(np.float32)
    store(folder / "a.zarr", image, valid)
    write_labels(folder / "label.zarr", truth, NAMES)
    write_labels(folder / "height.zarr", height, ("height",))
    return folder


def trained(run: Run, project: Path, model: Path, *arguments: object, labels: str = "label") -> Path:
    outputs_of_split = split_outputs(project / labels)
    inputs = "--tiles", project / "a.zarr", "--labels", project / f"{labels}.zarr"
    if not (project / labels / "split.json").exists():
        (project / labels).mkdir(exist_ok=True)
        shape = "--chip", CHIP, "--block", 48, "--fractions", 0.5, 0.25, 0.25, "--buffer", 0
        done = run("split", *inputs, *outputs_of_split, *shape, "--min-valid", 0.01)
        assert done.code == 0, done.stderr
    split = "--chips", project / labels / "split.json", "--statistics", project / labels / "statistics.json"
    done = run("train", *inputs, *split, "--model", model, *arguments)
    assert done.code == 0, done.stderr
    return model


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.exhaustive] * (kind != "forest")) for kind in PIXEL_MODELS]
)
def test_a_model_is_trained_mapped_without_seams_and_exported(
    run: Run, project: Path, tmp_path: Path, kind: str
) -> None:
    model = trained(run, project, tmp_path / "model", "--architecture", kind)
    again = trained(run, project, tmp_path / "again", "--architecture", kind, "--threads", 2)
    assert digest(model) == digest(again), "threads change no byte"
    maps = []
    for window in (96, 64):
        path = tmp_path / f"{window}.tif"
        outputs_of_map = "--classes", path, "--probabilities", tmp_path / f"p{window}.tif"
        done = run("predict", "--tiles", project / "a.zarr", "--model", model, *outputs_of_map, "--window", window)
        assert done.code == 0, done.stderr
        with open_raster(path) as file, open_raster(tmp_path / f"p{window}.tif") as shares:
            maps.append((file.read(1), shares.read()))
    for first, second in zip(*maps, strict=True):
        np.testing.assert_array_equal(first, second)
    label = Tiles(project / "label.zarr").read("label")
    is_mapped = maps[0][0] != 255
    correct = (maps[0][0] == label)[is_mapped].mean()
    # Texture alone tells the classes, and a straight line cannot see it in the bands.
    assert correct > 0.9, correct
    history = json.loads((model / "history.json").read_text())["validations"]
    assert history[0]["val"]["accuracy"] > 0.85
    onnx = "--onnx", tmp_path / "model.onnx", "--check", tmp_path / "check.json"
    done = run("export", "--model", model, "--tiles", project / "a.zarr", *onnx)
    assert done.code == 0, done.stderr
    assert json.loads((tmp_path / "check.json").read_text())["largest_difference"] < 1e-5


@pytest.mark.parametrize("kind", PIXEL_MODELS)
def test_values_are_learned_from_no_more_pixels_than_asked_for(
    run: Run, project: Path, tmp_path: Path, kind: str
) -> None:
    arguments = "--task", "regression", "--architecture", kind, "--arguments", "features=bands"
    model = trained(run, project, tmp_path / "model", *arguments, labels="height")
    rmse = json.loads((model / "history.json").read_text())["validations"][0]["val"]["rmse"]
    assert rmse < 1.0, "the values are the sum of the bands, from 0 to 20"
    few = trained(run, project, tmp_path / "few", *arguments, "--max-pixels", 20, labels="height")
    if kind == FOREST:
        assert len(read_weights(few)["left"]) < 20 * 2 * TREES < len(read_weights(model)["left"])


def test_a_linear_model_of_a_version_before_has_no_texture(run: Run, project: Path, tmp_path: Path) -> None:
    arguments = "--architecture", LINEAR, "--arguments", "features=bands"
    model = trained(run, project, tmp_path / "model", *arguments)
    item = json.loads((model / "model.json").read_text())
    text = json.dumps(item).replace('"features=bands"', "")
    assert text != json.dumps(item)
    (model / "model.json").write_text(text)
    earlier = read_trained_model(model)
    assert earlier.architecture.receptive_field_radius == 0
    image = torch.rand(1, 2, 8, 8)
    expected = torch.nn.functional.conv2d(image, *(read_weights(model)[name] for name in ("weight", "bias")))
    with torch.inference_mode():
        torch.testing.assert_close(earlier.build(model)(image), expected)


@pytest.mark.parametrize(("arguments", "message"), [
    (("--task", "classification"), "train has forest, a model of pixels, and task classification"),
    (("--arguments", "features=all"), "there are no features all; use bands or texture"),
    (("--arguments", "depth=3"), "Forest does not take depth"),
])  # fmt: skip
def test_what_a_forest_cannot_do_is_refused(
    run: Run, project: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    trained(run, project, tmp_path / "model", "--architecture", LINEAR)
    inputs = "--tiles", project / "a.zarr", "--labels", project / "label.zarr"
    split = "--chips", project / "label/split.json", "--statistics", project / "label/statistics.json"
    done = run("train", *inputs, *split, "--model", tmp_path / "other", "--architecture", FOREST, *arguments)
    assert done.code == 2
    assert message in done.stderr
    assert not (tmp_path / "other").exists()
    init = "--init", tmp_path / "model", "--model", tmp_path / "other"
    done = run("train", *inputs, *split, "--architecture", FOREST, *init)
    assert "train.init has weights to start from, and forest is fitted; remove it" in done.stderr
