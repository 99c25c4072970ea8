"""Maps of values and of chips, their scores and the exported model, from tiles that the tests write."""

import json
from pathlib import Path

import numpy as np
import pytest
import rasterio
from builders import (
    BANDS,
    evaluate,
    map_options,
    predict,
    stage,
    west_east,
    write_labels,
    write_model,
    write_scenes,
    write_split,
    write_tiles,
)
from chip_files import made_split
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn
from sklearn.metrics import mean_squared_error, r2_score
from stores import nearest_by_hand

from eopipe.arrays import AnyArray
from eopipe.chips.chips import Normaliser, pair_stores
from eopipe.errors import BadInputError
from eopipe.inference.mosaic import cells, values
from eopipe.inference.predictor import WindowPredictor
from eopipe.tasks import TASKS
from eopipe.tiles.store import NO_LABEL, Tiles
from eopipe.training.data import count_chips

SHAPE = (80, 72)
PLAIN = Normaliser((0.0, 0.0), (1.0, 1.0))


def split_halves(path: Path, names: list[str], classes: tuple[str, ...], chip: int = 8) -> Path:
    """The west trains, the east tests."""
    return write_split(path, names, classes, chip, west_east(SHAPE, chip, 40))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[Tiles]:
    return [Tiles(path) for path in write_scenes(tmp_path_factory.mktemp("scenes"), 2)]


def first_band(images: AnyArray) -> AnyArray:
    return images[:, :1]


def test_values_are_the_mean_of_the_valid_scenes_and_the_spread_is_their_deviation(tmp_path: Path) -> None:
    stores = [Tiles(path) for path in write_scenes(tmp_path, 4)]
    predictor = WindowPredictor(stores, BANDS, PLAIN, first_band, 32, 0, 1)
    mean, spread, counts = np.zeros(SHAPE), np.zeros(SHAPE), np.zeros(SHAPE, int)
    for y, x, both, count in values(predictor):
        mean[y, x], spread[y, x], counts[y, x] = *both, count
    valid = np.stack([store.read("valid") > 0 for store in stores])
    stack = np.where(valid, np.stack([store.physical(("red",))[0] for store in stores]), np.nan)
    np.testing.assert_array_equal(counts, valid.sum(0))
    known = counts > 0
    np.testing.assert_allclose(mean[known], np.nanmean(stack[:, known], 0), rtol=1e-5)
    np.testing.assert_allclose(spread[known], np.nanstd(stack[:, known], 0), atol=1e-6)


@settings(max_examples=12, deadline=None)
@given(chip=st.sampled_from([4, 8, 12, 16]), whole=st.integers(1, 5))
def test_each_cell_is_one_chip_weighted_by_its_valid_pixels(two: list[Tiles], chip: int, whole: int) -> None:
    def share(images: AnyArray) -> AnyArray:
        return images.mean((1, 2, 3))[:, None, None, None]

    images = [store.physical(BANDS) for store in two]
    masks = [store.read("valid") > 0 for store in two]
    probabilities, counts = np.zeros(SHAPE), np.zeros(SHAPE, int)
    for y, x, chance, count in cells(WindowPredictor(two, BANDS, PLAIN, share, whole * chip, 0, 1), 1, chip):
        probabilities[y, x], counts[y, x] = chance[0], count
    for row in range(0, SHAPE[0], chip):
        for col in range(0, SHAPE[1], chip):
            box = slice(row, row + chip), slice(col, col + chip)
            valid = [mask[box] for mask in masks]
            # Of a chip that ends beyond the raster the pixels there are filled too, from its own.
            beyond = [(0, chip - length) for length in valid[0].shape]
            chips = [
                nearest_by_hand(np.pad(image[:, *box], [(0, 0), *beyond]) * np.pad(v, beyond), np.pad(v, beyond))
                for image, v in zip(images, valid, strict=True)
            ]
            sums = [pixels.mean() for pixels in chips]
            weights = [int(v.sum()) for v in valid]
            expected = np.dot(sums, weights) / max(sum(weights), 1)
            np.testing.assert_allclose(probabilities[box], expected, rtol=1e-4, atol=1e-7)
            assert (counts[box] == sum(weights)).all()


def test_a_map_of_values_has_no_seams_and_its_scores_are_those_of_scikit_learn(tmp_path: Path) -> None:
    tiles, names = write_scenes(tmp_path, 2), ("height",)
    model = write_model(tmp_path / "model", "regression", names)
    whole, _ = predict(tmp_path / "whole", model, tiles, "--window", 1024)
    predicted, (spread, count) = predict(tmp_path, model, tiles, "--window", 64)
    np.testing.assert_allclose(predicted, whole, rtol=1e-5)
    assert np.isnan(predicted[16:32, :16]).all()
    assert (spread[:16, :16] == 0).all()
    assert (count[:16, :16] == 1).all()
    label = (10 + 3 * np.random.default_rng(3).normal(size=SHAPE)).astype(np.float32)
    label[::7] = np.nan
    labels = write_labels(tmp_path / "labels.zarr", label, names)
    split = split_halves(tmp_path / "split.json", [path.stem for path in tiles], names)
    inputs = ["--tiles", *tiles, "--labels", labels, "--chips", split]
    metrics = evaluate(tmp_path, "--classes", tmp_path / "classes.tif", *inputs)
    valid = np.isfinite(label) & np.isfinite(predicted)
    test, train = valid.copy(), valid.copy()
    test[:, :40], train[:, 40:] = False, False
    assert metrics["test_pixels"] == test.sum()
    assert metrics["model"]["rmse"] == pytest.approx(mean_squared_error(label[test], predicted[test]) ** 0.5, rel=1e-5)
    assert metrics["model"]["r2"] == pytest.approx(r2_score(label[test], predicted[test]), abs=1e-5)
    assert metrics["mean"]["value"] == pytest.approx(label[train].mean(), rel=1e-5)
    assert metrics["mean"]["rmse"] == pytest.approx(
        np.sqrt(np.mean((label[test] - label[train].mean()) ** 2)), rel=1e-4
    )
    assert metrics["unit"] == "m"


@pytest.mark.exhaustive
def test_the_onnx_model_of_values_and_of_chips_gives_what_the_model_gives(tmp_path: Path) -> None:
    tiles = write_scenes(tmp_path, 1)[0]
    tasks = (("regression", ("height",)), ("classification", ("land", "water")), ("multilabel", ("land", "water")))
    for task, names in tasks:
        model, outputs = (
            write_model(tmp_path / task, task, names),
            (tmp_path / f"{task}.onnx", tmp_path / f"{task}.json"),
        )
        assert stage("export", "--model", model, "--tiles", tiles, "--onnx", outputs[0], "--check", outputs[1]) == 0
        assert json.loads(outputs[1].read_text())["largest_difference"] < 1e-5


def test_chips_of_the_test_places_are_counted_once_by_the_majority_of_their_pixels(tmp_path: Path) -> None:
    tiles, names = write_scenes(tmp_path, 2), ("land", "water")
    model = write_model(tmp_path / "model", "classification", names)
    predicted, _ = predict(tmp_path, model, tiles)
    blocks = predicted.reshape(10, 8, 9, 8)
    assert (blocks == blocks[:, :1, :, :1]).all()
    rng = np.random.default_rng(4)
    label = np.where(np.kron(rng.random((10, 9)), np.ones((8, 8))) < 0.5, 0, 1)
    label[rng.random(SHAPE) < 0.2] ^= 1
    # Too little of this test chip is labelled.
    label[:8, 40:48][1:] = NO_LABEL
    labels = write_labels(tmp_path / "labels.zarr", label.astype(np.uint8), names)
    split = split_halves(tmp_path / "split.json", [path.stem for path in tiles], names)
    inputs = ["--tiles", *tiles, "--labels", labels, "--chips", split]
    metrics = evaluate(tmp_path, "--classes", tmp_path / "classes.tif", *inputs)
    expected = np.zeros((2, 2), int)
    for row in range(0, 80, 8):
        for col in range(40, 72, 8):
            box = slice(row, row + 8), slice(col, col + 8)
            valid = (label[box] != NO_LABEL) & (predicted[box] != NO_LABEL)
            if valid.sum() >= 32:
                expected[int((label[box][valid] == 1).mean() > 0.5), predicted[row, col]] += 1
    assert metrics["test_chips"] == 39
    assert metrics["model"]["confusion"] == expected.tolist()
    assert np.sum(metrics["pixel_baseline"]["confusion"]) == np.sum(metrics["majority"]["confusion"]) == 39


@pytest.mark.exhaustive
def test_labels_of_test_chips_have_the_share_of_the_model_and_the_scores_of_scikit_learn(tmp_path: Path) -> None:
    tiles, names = write_scenes(tmp_path, 2), ("land", "water", "ice")
    model = write_model(tmp_path / "model", "multilabel", names)
    _, stored = predict(tmp_path, model, tiles)
    with rasterio.open(tmp_path / "classes.tif") as file:
        presence, tags = file.read(), file.tags()
        assert (file.descriptions, file.nodata, tags["task"], tags["min_share"]) == (names, 255, "multilabel", "0.3")
    covered = stored[0] != 65_535
    np.testing.assert_array_equal(presence == NO_LABEL, np.broadcast_to(~covered, presence.shape))
    np.testing.assert_array_equal((presence == 1)[:, covered], (stored >= 5000)[:, covered])
    assert 0 < (presence == 1).sum() < 3 * covered.sum()
    rng = np.random.default_rng(5)
    label = rng.choice([0, 1, 2, NO_LABEL], SHAPE, p=[0.35, 0.3, 0.25, 0.1]).astype(np.uint8)
    labels = write_labels(tmp_path / "labels.zarr", label, names)
    split = split_halves(tmp_path / "split.json", [path.stem for path in tiles], names)
    inputs = ["--tiles", *tiles, "--labels", labels, "--chips", split]
    metrics = evaluate(tmp_path, *map_options(tmp_path), *inputs)
    truth, predicted, ranking = [], [], []
    for row in range(0, 80, 8):
        for col in range(40, 72, 8):
            box = slice(row, row + 8), slice(col, col + 8)
            valid = label[box][(label[box] != NO_LABEL) & covered[box]]
            if valid.size >= 32:
                truth.append([(valid == number).sum() / valid.size >= 0.3 for number in range(3)])
                predicted.append(presence[:, row, col] == 1)
                ranking.append(stored[:, row, col])
    x, y = np.array(truth), np.array(predicted)
    assert (metrics["test_chips"], metrics["min_share"]) == (len(x), 0.3)
    for average in ("micro", "macro"):
        expected = sklearn.f1_score(x, y, average=average, zero_division=np.nan)
        assert metrics["model"][f"f1_{average}"] == pytest.approx(expected, abs=1e-6)
    assert metrics["model"]["hamming_loss"] == pytest.approx(sklearn.hamming_loss(x, y), abs=1e-6)
    assert metrics["model"]["subset_accuracy"] == pytest.approx(sklearn.accuracy_score(x, y), abs=1e-6)
    expected = sklearn.average_precision_score(x, np.array(ranking))
    assert metrics["model"]["mean_average_precision"] == pytest.approx(expected, abs=1e-5)
    assert metrics["cooccurrence"]["truth"] == (x.T.astype(int) @ x.astype(int)).tolist()
    assert metrics["cooccurrence"]["predicted"] == (y.T.astype(int) @ y.astype(int)).tolist()
    assert sum(row["samples"] for row in metrics["calibration"]["bins"]) == x.size
    for example in metrics["examples"]:
        layers = presence[:, example["row"], example["column"]]
        assert example["predicted"] == [name for name, value in zip(names, layers, strict=True) if value == 1]


def test_training_chips_that_all_have_the_same_labels_are_refused(tmp_path: Path) -> None:
    names, label = ("land", "water"), np.tile(np.array([[0, 1]], np.uint8), (80, 36))
    tiles = write_tiles(tmp_path / "s0.zarr", np.full((2, *SHAPE), 1000, np.uint16))
    split = made_split(chip=8, samples={"train": [[0, 0, 0], [0, 8, 8]], "val": [], "test": []})
    pairs = pair_stores((tiles,), (write_labels(tmp_path / "both.zarr", label, names),))
    with pytest.raises(BadInputError, match="every training chip is labelled land, water"):
        count_chips(TASKS["multilabel"], split, pairs, 0.05)
    label[8:, 8:] = 1
    pairs = pair_stores((tiles,), (write_labels(tmp_path / "water.zarr", label, names),))
    assert count_chips(TASKS["multilabel"], split, pairs, 0.05) == ({"land": 1, "water": 2}, 2)


def test_a_map_of_labels_of_other_classes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiles, names = write_scenes(tmp_path, 1), ("land", "water")
    predict(tmp_path, write_model(tmp_path / "model", "multilabel", names), tiles)
    labels = write_labels(tmp_path / "labels.zarr", np.ones(SHAPE, np.uint8), ("sand", "sea"))
    split = split_halves(tmp_path / "split.json", ["s0"], ("sand", "sea"))
    arguments = ["--tiles", *tiles, "--labels", labels, "--chips", split, "--metrics", tmp_path / "metrics.json"]
    assert stage("evaluate", "--classes", tmp_path / "classes.tif", *arguments) == 3
    assert "has the labels land, water; the label stores have sand, sea" in capsys.readouterr().err


def test_a_map_of_another_task_than_the_labels_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiles, names = write_scenes(tmp_path, 1), ("land", "water")
    predict(tmp_path, write_model(tmp_path / "model", "classification", names), tiles)
    labels = write_labels(tmp_path / "labels.zarr", np.ones(SHAPE, np.float32), ("height",))
    split = split_halves(tmp_path / "split.json", ["s0"], ("height",))
    arguments = ["--tiles", *tiles, "--labels", labels, "--chips", split, "--metrics", tmp_path / "metrics.json"]
    assert stage("evaluate", "--classes", tmp_path / "classes.tif", *arguments) == 3
    assert "is of task classification, but the labels measure height" in capsys.readouterr().err
    labels = write_labels(tmp_path / "classes.zarr", np.ones(SHAPE, np.uint8), names)
    arguments[arguments.index(tmp_path / "labels.zarr")] = labels
    arguments[arguments.index(split)] = split_halves(tmp_path / "other.json", ["s0"], names, 4)
    assert stage("evaluate", "--classes", tmp_path / "classes.tif", *arguments) == 3
    assert "has cells of 8 pixels, the split chips of 4" in capsys.readouterr().err
