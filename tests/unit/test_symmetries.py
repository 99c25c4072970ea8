"""Maps that are means over the symmetries of the square: what the mean is, its seams, tags, and its calibration."""

import json
from dataclasses import replace
from pathlib import Path

import builders
import numpy as np
import pytest
import rasterio
from builders import BANDS, map_options, predict, stage, write_split, write_store
from hypothesis import given, settings
from hypothesis import strategies as st

from eopipe.arrays import FloatArray
from eopipe.chips.chips import Normaliser
from eopipe.config import validate
from eopipe.errors import UsageError
from eopipe.inference.images import SYMMETRIES, check_symmetries, mean_prediction
from eopipe.inference.mosaic import probabilities
from eopipe.inference.predictor import WindowPredictor
from eopipe.tiles.store import Tiles

CHIP, SHAPE = 16, (150, 131)
NORMALISER = Normaliser((0.2, 0.2), (0.1, 0.1))
TASKS = {
    "segmentation": ("land", "water"),
    "classification": ("land", "water"),
    "multilabel": ("land", "water", "ice"),
    "regression": ("height",),
}


def write_tiles(
    path: Path, shape: tuple[int, int] = SHAPE, names: tuple[str, ...] = BANDS, turns: int = 0, valid_share: float = 0.9
) -> Path:
    """Noise in image and labels, a part of whose pixels is not valid, rotated by quarter turns."""
    random = np.random.default_rng(3)
    image = np.rot90(random.integers(500, 4000, (len(BANDS), *shape)).astype(np.uint16), turns, (1, 2))
    label, valid = (np.rot90(random.random(shape) < share, turns) for share in (0.5, valid_share))
    arrays = {"image": image, "label": label, "valid": valid}
    return write_store(path, names, arrays, datetime="2020-07-01T00:00:00Z")


def write_model(folder: Path, task: str) -> Path:
    """A U-Net with random weights, whose predictions depend on the orientation of the image."""
    return builders.write_model(folder, task, TASKS[task], depth=2, chip=CHIP)


def oriented(images: FloatArray) -> FloatArray:
    """A function whose outputs depend on the place in the window."""
    rows, columns = np.mgrid[: images.shape[2], : images.shape[3]].astype(np.float32)
    return np.stack([images[:, 0] * (rows + 1), images[:, 1] * columns**2], 1)


def test_the_mean_is_that_of_the_transformed_images_transformed_back() -> None:
    images = np.random.default_rng(0).normal(size=(3, 2, 8, 12)).astype(np.float32)
    turned = [np.rot90(oriented(np.rot90(images, k, (2, 3)).copy()), -k, (2, 3)) for k in range(4)]
    flipped = [
        np.rot90(oriented(np.rot90(images[..., ::-1], k, (2, 3)).copy()), -k, (2, 3))[..., ::-1] for k in range(4)
    ]
    expected = {1: turned[:1], 2: [turned[0], flipped[0]], 4: turned, 8: turned + flipped}
    for count, parts in expected.items():
        mean = mean_prediction(oriented, images, count)
        assert mean.dtype == np.float32
        np.testing.assert_allclose(mean, np.mean(parts, 0, np.float64), rtol=1e-6)
    assert mean_prediction(oriented, images, 1).tobytes() == oriented(images).tobytes()


@given(st.sampled_from([*SYMMETRIES]), st.integers(1, 9), st.integers(1, 9))
def test_a_rotated_image_has_the_rotated_mean_over_rotations(count: int, height: int, width: int) -> None:
    images = np.random.default_rng(height).normal(size=(1, 2, height, width)).astype(np.float32)
    flip_of_mean = mean_prediction(oriented, images, count)[..., ::-1]
    turn_of_mean = np.rot90(mean_prediction(oriented, images, count), 1, (2, 3))
    if count in (2, 8):
        np.testing.assert_allclose(mean_prediction(oriented, images[..., ::-1].copy(), count), flip_of_mean, rtol=1e-5)
    if count in (4, 8):
        turned = mean_prediction(oriented, np.rot90(images, 1, (2, 3)).copy(), count)
        np.testing.assert_allclose(turned, turn_of_mean, rtol=1e-5)


def test_infinite_outputs_of_invalid_pixels_are_not_a_warning() -> None:
    def infinite(images: FloatArray) -> FloatArray:
        return np.broadcast_to(np.array([-np.inf, np.inf], np.float32), images.shape)

    assert np.isnan(mean_prediction(infinite, np.zeros((1, 1, 2, 2), np.float32), 2)).all()


@pytest.mark.parametrize("task", [*TASKS])
def test_a_map_over_eight_symmetries_has_no_seams_and_differs_from_a_single_prediction(
    tmp_path: Path, task: str
) -> None:
    model, tiles, eight = write_model(tmp_path / "model", task), write_tiles(tmp_path / "a.zarr"), ("--symmetries", 8)
    whole = predict(tmp_path / "whole", model, [tiles], "--window", 1024, *eight)
    parts = predict(tmp_path / "parts", model, [tiles], "--window", 64, *eight)
    single = predict(tmp_path / "single", model, [tiles])
    values = 0 if task == "regression" else 1
    tolerance = 1e-4 if task == "regression" else 1
    difference = [np.abs(parts[values].astype(float) - other[values].astype(float)) for other in (whole, single)]
    assert np.nanmax(difference[0]) <= tolerance
    assert np.nanmax(difference[1]) > 10 * tolerance
    with rasterio.open(tmp_path / "whole/classes.tif") as file, rasterio.open(tmp_path / "single/classes.tif") as other:
        assert file.tags()["symmetries"] == "8"
        assert "symmetries" not in other.tags()


@settings(deadline=None, max_examples=4)
@given(size=st.sampled_from([8, 16, 32]), edge=st.integers(5, 70), count=st.sampled_from([2, 4, 8]))
def test_blended_windows_are_the_same_whatever_the_parts_with_symmetries(
    tmp_path_factory: pytest.TempPathFactory, size: int, edge: int, count: int
) -> None:
    store = Tiles(write_tiles(tmp_path_factory.mktemp("tiles") / "a.zarr", (61, 75)))
    predictor = WindowPredictor([store], BANDS, NORMALISER, oriented, edge, 0, 1, overlap=size, symmetries=count)
    mapped = np.full((2, 61, 75), np.nan, np.float32)
    for y, x, result, _ in probabilities(predictor, 2):
        mapped[:, y, x] = result
    ((_, _, whole, scenes),) = probabilities(replace(predictor, edge=1000), 2)
    np.testing.assert_array_equal(mapped, whole)
    ((_, _, single, _),) = probabilities(replace(predictor, edge=1000, symmetries=1), 2)
    assert (whole != single)[:, scenes > 0].any()


def test_the_map_of_a_rotated_scene_is_the_rotated_map(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "segmentation")
    first, turned = (write_tiles(tmp_path / f"{n}.zarr", (64, 96), turns=n, valid_share=1.0) for n in range(2))
    maps = [predict(tmp_path / path.stem, model, [path], "--symmetries", 4)[1].astype(int) for path in (first, turned)]
    assert maps[1].shape == (2, 96, 64)
    # Of valid pixels that are equally near to one without data the upper left is taken, whatever the orientation.
    inner = np.s_[:, 23:-23, 23:-23]
    assert np.abs(np.rot90(maps[0], 1, (1, 2)) - maps[1])[inner].max() <= 1


def test_a_calibration_is_fitted_to_the_symmetries_of_the_map_and_others_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, tiles = write_model(tmp_path / "model", "segmentation"), write_tiles(tmp_path / "a.zarr", (64, 64))
    labels = write_tiles(tmp_path / "labels/a.zarr", (64, 64), TASKS["segmentation"])
    corners = [[0, row, column] for row in range(0, 64, CHIP) for column in range(0, 64, CHIP)]
    samples = {"train": corners[:4], "val": corners[4:], "test": []}
    split = write_split(tmp_path / "split.json", ["a"], TASKS["segmentation"], CHIP, samples)
    inputs = ["--model", model, "--tiles", tiles, "--labels", labels, "--chips", split]
    fitted = {}
    for count in (1, 4):
        path = tmp_path / f"{count}.json"
        assert stage("calibrate", *inputs, "--calibration", path, "--symmetries", count) == 0
        fitted[count] = json.loads(path.read_text())
    assert ("symmetries" in fitted[1], fitted[4]["symmetries"]) == (False, 4)
    probability = predict(tmp_path / "four", model, [tiles], "--symmetries", 4)[1][:, CHIP:] / 10_000
    label, valid = (Tiles(labels).read(name)[CHIP:] for name in ("label", "valid"))
    loss = -np.log(np.where(label == 1, probability[1], probability[0]))[valid > 0].mean()
    # Maps are rounded to 1/10000.
    assert fitted[4]["before"]["nll"] == pytest.approx(loss, abs=3e-5) != fitted[1]["before"]["nll"]
    predict(tmp_path / "calibrated", model, [tiles], "--symmetries", 4, "--calibration", tmp_path / "4.json")
    assert stage("predict", *inputs[:4], *map_options(tmp_path), "--calibration", tmp_path / "4.json") == 3
    assert "fitted for symmetries 4, not 1; calibrate again" in capsys.readouterr().err
    assert not (tmp_path / "classes.tif").exists()


@pytest.mark.parametrize("count", [3, 5, 6, 7])
def test_symmetries_that_are_not_a_group_are_refused_by_stage_and_config(count: int) -> None:
    with pytest.raises(UsageError, match=f"symmetries is {count}; use 1 "):
        check_symmetries(count)
    _, mistakes, _ = validate({"predict": {"symmetries": count}})
    assert any(f"symmetries is {count}; use 1 " in sentence for sentence in mistakes)


def test_calibrate_takes_the_symmetries_of_predict() -> None:
    _, mistakes, _ = validate({"calibrate": {"symmetries": 2}})
    assert any("set predict.symmetries, which is for all" in sentence for sentence in mistakes), mistakes
