"""Which baselines are fitted, that they are those of scikit-learn, and which one is chosen, by what."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import write_store
from chip_files import made_split
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_baselines import halves, noisy, store
from threadpoolctl import threadpool_limits

from eopipe.arrays import AnyArray
from eopipe.evaluation.baseline import BASELINES, Baselines, DrawnPixels, FeatureModel, sampled_pixels
from eopipe.evaluation.evaluate import evaluate_maps
from eopipe.evaluation.maps import EvaluationData

CHIP = 8


def with_split(data: EvaluationData, columns: dict[str, tuple[int, int]], **fields: Any) -> EvaluationData:
    """The same with strips of columns as areas of the splits."""
    height = data.frame.shape[0]
    samples = {
        name: [(0, row, col) for row in range(0, height, CHIP) for col in range(*ends, CHIP)]
        for name, ends in ({"train": (0, 0), "val": (0, 0), "test": (0, 0)} | columns).items()
    }
    return replace(data, split=made_split(chip=CHIP, samples=samples, **fields))


def thirds(data: EvaluationData, val: int = 40) -> EvaluationData:
    return with_split(data, {"train": (0, 80), "val": (80, 80 + val), "test": (120, 160)})


@pytest.mark.parametrize("task", ["segmentation", "regression"])
def test_each_baseline_is_what_scikit_learn_gives_for_the_same_pixels(tmp_path: Path, task: str) -> None:
    # With validation places, so that no folds are fitted besides.
    data = thirds(noisy(tmp_path, task))
    features, truth, _ = sampled_pixels(data, 400, 3)
    pixels = next(data.pixels("test"))
    predicted = Baselines.fit(data, 400, 3).predict(pixels.group, pixels.rows, pixels.cols)
    tested = pixels.group.features.of(pixels.rows, pixels.cols)
    trees = ExtraTreesClassifier if task == "segmentation" else ExtraTreesRegressor
    linear = LogisticRegression(max_iter=300) if task == "segmentation" else Ridge()
    for columns, prefix in ((3, ""), (9, "texture_")):
        train, test = features[:, :columns].astype(np.float64), tested[:, :columns].astype(np.float64)
        forest = trees(100, min_samples_leaf=2, random_state=3).fit(train, truth)
        line = make_pipeline(StandardScaler(), linear).fit(train, truth)
        for name, estimator in (("extra_trees", forest), ("linear", line)):
            expected = estimator.predict(test)
            np.testing.assert_allclose(predicted[prefix + name], expected, rtol=2e-5, err_msg=prefix + name)


def test_a_pixel_without_a_value_in_a_band_is_no_obstacle() -> None:
    features = np.random.default_rng(1).random((200, 6)).astype(np.float32)
    features[::7, 0], features[:, 2] = np.nan, np.nan
    truth = features[:, 1] > 0.5
    pixels = DrawnPixels(features, truth, np.zeros((200, 3), np.int64))
    for key in BASELINES:
        assert (FeatureModel.fit(key, pixels, 2, 0).answer(features) == truth).mean() > 0.9, key


@pytest.mark.exhaustive
def test_threads_and_the_order_of_the_pixels_change_no_number(tmp_path: Path) -> None:
    data = noisy(tmp_path)
    pixels = next(data.pixels("test"))
    features = pixels.group.features.of(pixels.rows, pixels.cols)
    order = np.random.default_rng(0).permutation(len(features))
    fitted = list[dict[str, FeatureModel]]()
    for threads in (1, 3):
        with threadpool_limits(threads):
            models = Baselines.fit(data, 2_000, 0).models
            fitted.append(models)
            for model in models.values():
                np.testing.assert_array_equal(model.answer(features[order]), model.answer(features)[order])
    for key in BASELINES:
        for name, array in fitted[0][key].arrays.items():
            np.testing.assert_array_equal(array, fitted[1][key].arrays[name], err_msg=f"{key} {name}")


@pytest.mark.parametrize(("bands", "left_out"), [
    (33, []), (34, ["texture_baseline"]), (101, ["pixel_baseline", "texture_baseline"]),
])  # fmt: skip
def test_boosted_trees_are_left_out_above_100_features(tmp_path: Path, bands: int, left_out: list[str]) -> None:
    rng = np.random.default_rng(2)
    values = rng.random((bands, 32, 32))
    data = halves([store(tmp_path / "a.zarr", values)], (values[0] > 0.5).astype(np.uint8))
    metrics = evaluate_maps(data, 300, 0)
    assert [key for key in BASELINES if key not in metrics] == left_out
    assert [*metrics["baseline"].get("left_out", {})] == left_out


def test_the_choice_is_by_the_validation_places_and_no_label_of_the_test_places_moves_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    values = rng.random((2, 160, 160))
    # The sum tells the class in the west and in the middle; in the east the product of the signs does.
    truth = (values.sum(0) + rng.normal(0, 0.1, (160, 160)) > 1).astype(np.uint8)
    truth[:, 120:] = ((values[0] > 0.5) & (values[1] > 0.1))[:, 120:]
    (tmp_path / "other").mkdir()
    metrics = evaluate_maps(thirds(halves([store(tmp_path / "a.zarr", values)], truth)), 2_000, 0)
    assert metrics["baseline"]["by"] == "mIoU on 6400 pixels of the validation places"
    chosen, scores = metrics["baseline"]["name"], metrics["baseline"]["scores"]
    assert chosen == max(scores, key=scores.__getitem__)
    of_test = {key: metrics[key]["miou"] for key in BASELINES}
    assert of_test[chosen] < max(of_test.values()), "in the test places another one is better"
    truth[:, 120:] = rng.integers(0, 2, (160, 40))
    again = evaluate_maps(thirds(halves([store(tmp_path / "other/a.zarr", values)], truth)), 2_000, 0)
    assert again["baseline"] == metrics["baseline"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", ["few", "one class"])
def test_validation_places_that_are_few_or_lack_a_class_do_not_choose(tmp_path: Path, case: str) -> None:
    values = np.random.default_rng(5).random((2, 56, 160))
    truth = (values.sum(0) > 1).astype(np.uint8)
    if case == "one class":
        truth[:, 80:120] = 0
    data = halves([store(tmp_path / "a.zarr", values)], truth)
    # A column of chips has 448 pixels, two have 896.
    by = [Baselines.fit(thirds(data, val), 5_000, 0).choice["by"] for val in (8, 16)]
    folds = "mIoU on 3 folds of the training places, by whole squares of 16 pixels"
    assert by == [folds, folds if case == "one class" else "mIoU on 896 pixels of the validation places"]


def leaking(tmp_path: Path) -> EvaluationData:
    """Labels by squares of 16 pixels: a band that is another in each square, and a noisy one that tells the class."""
    rng = np.random.default_rng(8)
    truth = np.kron(rng.integers(0, 2, (10, 10)), np.ones((16, 16))).astype(np.uint8)
    signature = np.kron(rng.permutation(100).reshape(10, 10) / 100, np.ones((16, 16)))
    values = np.stack([signature + 0.002 * rng.random(truth.shape), 2 + truth + rng.normal(0, 0.4, truth.shape)])
    return halves([store(tmp_path / "a.zarr", values)], truth)


def with_polygons(data: EvaluationData, polygons: AnyArray) -> EvaluationData:
    """The same with the number of a polygon for each pixel, all of which train but those in the east."""
    group = data.groups[0]
    path, label = group.label.path, {name: group.label.read(name) for name in ("label", "valid")}
    shutil.rmtree(path)
    write_store(path, data.names, label | {"polygon": polygons.astype(np.uint16)}, group.label.grid, scene="a")
    fields = {"polygons": {"a": [0 if number % 10 < 5 else 2 for number in range(100)]}}
    fields |= {"plan": {"method": "group", "by": "polygon", "min_valid": 0.1}}
    whole = with_split(data, {"train": (0, 160), "test": (0, 160)}, **fields)
    return replace(whole, groups=[replace(group, label=type(group.label)(path))])


@pytest.mark.parametrize("unit", ["blocks", "polygons"])
def test_folds_hold_whole_blocks_or_polygons_together(
    tmp_path: Path, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Boosted trees take most of the time and are not compared.
    monkeypatch.setattr("eopipe.evaluation.baseline.MAX_BOOSTED", 0)
    data = leaking(tmp_path)
    if unit == "blocks":
        plan = {"method": "blocks", "block": 16, "min_valid": 0.1}
        data = with_split(data, {"train": (0, 80), "test": (80, 160)}, plan=plan)
    else:
        data = with_polygons(data, np.kron(np.arange(1, 101).reshape(10, 10), np.ones((16, 16))))
    choice = Baselines.fit(data, 6_000, 0).choice
    assert choice["by"] == f"mIoU on 3 folds of the training places, by whole {unit}"
    # Pixels that are left out at random lie in the squares that train: trees learn the squares by heart.
    train = sampled_pixels(data, 6_000, 1)
    is_out = np.random.default_rng(0).random(len(train.truth)) < 0.3
    training, out = train.chosen(~is_out), train.chosen(is_out)
    compared = ("extra_trees", "linear")
    correct = {key: FeatureModel.fit(key, training, 2, 1).answer(out.features) == out.truth for key in compared}
    assert correct["extra_trees"].mean() > correct["linear"].mean() + 0.05
    assert choice["scores"]["linear"] > choice["scores"]["extra_trees"] + 0.05
    assert "linear" in choice["name"]


def test_values_are_chosen_by_their_error(tmp_path: Path) -> None:
    choice = Baselines.fit(thirds(noisy(tmp_path, "regression")), 2_000, 0).choice
    assert choice["by"] == "RMSE on 6400 pixels of the validation places"
    # Their truth is the sum of the bands.
    assert choice["name"] == min(choice["scores"], key=choice["scores"].__getitem__) == "linear"


def test_training_places_of_one_piece_say_that_nothing_was_chosen(tmp_path: Path) -> None:
    values = np.random.default_rng(5).random((1, 8, 160))
    data = halves([store(tmp_path / "a.zarr", values)], (values[0] > 0.5).astype(np.uint8))
    choice = Baselines.fit(with_split(data, {"train": (0, 8), "test": (80, 160)}), 5_000, 0).choice
    assert choice == {"name": "texture_extra_trees", "by": "nothing, since the training places are one piece"}
