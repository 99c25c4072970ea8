"""The baselines on landscapes whose truth is known: texture, season, three fits, and windows of features."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builders import west_east, write_store, write_tiles
from chip_files import made_split
from scenery import write_raster

from eopipe.arrays import AnyArray, UInt8Array
from eopipe.chips.chips import fill_nearest
from eopipe.errors import BadInputError
from eopipe.evaluation.baseline import BASELINES, sampled_pixels
from eopipe.evaluation.evaluate import evaluate_maps
from eopipe.evaluation.features import PixelFeatures
from eopipe.evaluation.maps import EvaluatedMap, EvaluationData
from eopipe.evaluation.metrics_document import metrics_type
from eopipe.reporting import wording
from eopipe.reporting.verdict import verdict
from eopipe.tasks import TASKS
from eopipe.tiles.store import CHIP_SET, Tiles

NAMES = ("smooth", "rough")


def store(
    path: Path, values: AnyArray, valid: AnyArray | None = None, day: str = "2020-07-01", **attributes: Any
) -> Tiles:
    """A store of physical values (band, y, x) between 0 and 6."""
    image, names = np.round(values * 1e4).astype(np.uint16), tuple(f"b{n}" for n in range(len(values)))
    return Tiles(write_tiles(path, image, valid, names, day=day, **attributes))


def halves(
    stores: list[Tiles], truth: AnyArray, task: str = "segmentation", mapped: AnyArray | None = None
) -> EvaluationData:
    """A map, by default a perfect one, that is trained in the west and tested in the east."""
    path, grid = stores[0].path.with_suffix(".label.zarr"), stores[0].grid
    shutil.rmtree(path, ignore_errors=True)
    write_store(path, NAMES, {"label": truth}, grid)
    classes = write_raster(path.with_suffix(".tif"), truth if mapped is None else mapped, nodata=None)
    split = made_split(chip=8, samples=west_east(truth.shape, 8, truth.shape[1] // 2))
    names, unit = (NAMES, "") if task == "segmentation" else (("height",), "m")
    return EvaluationData([EvaluatedMap(0, {"": classes}, stores, Tiles(path))], names, split, TASKS[task], unit)


def patches(height: int, width: int) -> UInt8Array:
    """Two classes in squares of 32 pixels, like a chess board."""
    rows, cols = np.indices((height, width)) // 32
    return ((rows + cols) % 2).astype(np.uint8)


@pytest.mark.exhaustive
def test_where_texture_decides_only_the_trees_with_texture_are_right(tmp_path: Path) -> None:
    rng, truth = np.random.default_rng(1), patches(128, 128)
    # The values of both classes are spread evenly from 0 to 1; those of the smooth class rise and fall slowly.
    rows, cols = np.indices(truth.shape)
    smooth = np.abs((rows + 3 * cols) % 128 / 64 - 1) * 0.98 + 0.02 * rng.random(truth.shape)
    image = np.where(truth == 1, rng.random(truth.shape), smooth)[None]
    metrics = evaluate_maps(halves([store(tmp_path / "a.zarr", image)], truth), 100_000, 0)
    assert metrics["pixel_baseline"]["accuracy"] < 0.65
    assert metrics["texture_baseline"]["accuracy"] > 0.95
    assert metrics["texture_baseline"]["method"] == (
        "boosted trees on the bands of each pixel and their mean and standard deviation in 5 x 5 pixels, mean of 3 fits"
    )


@pytest.mark.exhaustive
def test_where_the_season_decides_both_trees_see_the_median_of_the_valid_dates(tmp_path: Path) -> None:
    rng, truth = np.random.default_rng(2), patches(64, 64)
    stores = []
    for number, day in enumerate(("2020-01-10", "2020-07-01", "2020-07-11", "2020-08-01")):
        # Bright in summer, or bright in winter: the mean over the year is the same.
        values = np.where((truth == 1) == (number > 0), 0.6, 0.2) + 0.02 * rng.random(truth.shape)
        valid = np.ones(truth.shape, np.uint8)
        if number == 2:
            valid[::3], values[::3] = 0, 6.0
        stores.append(store(tmp_path / f"{number}.zarr", values[None], valid, day))
    metrics = evaluate_maps(halves(stores, truth), 100_000, 0)
    assert all(metrics[name]["accuracy"] > 0.98 for name in BASELINES)
    features = PixelFeatures(stores).of(*np.divmod(np.arange(truth.size), 64))
    winter, summer = features[:, 0].reshape(64, 64), features[:, 1].reshape(64, 64)
    physical = np.concatenate([date.physical(("b0",)) for date in stores])
    np.testing.assert_array_equal(winter, physical[0])
    np.testing.assert_allclose(summer[0], physical[[1, 3], 0].mean(0), rtol=1e-6)
    np.testing.assert_allclose(summer[1], np.median(physical[1:, 1], axis=0), rtol=1e-6)


def test_the_season_of_a_scene_of_an_interval_is_that_of_its_middle(tmp_path: Path) -> None:
    values = np.full((3, 1, 64, 64), [[[[1.0]]], [[[2.0]]], [[[3.0]]]])
    interval = {"datetime": None, "start_datetime": "2020-02-20T00:00:00Z", "end_datetime": "2020-03-20T00:00:00Z"}
    stores = [
        store(tmp_path / "winter.zarr", values[0], day="2020-01-10"),
        store(tmp_path / "spring.zarr", values[1], day="2020-04-10"),
        store(tmp_path / "interval.zarr", values[2], **interval),
    ]
    features = PixelFeatures(stores).of(np.array([5]), np.array([6]))
    np.testing.assert_allclose(features[0, :2], [1.0, 2.5])
    undated = store(tmp_path / "undated.zarr", values[2], datetime=None)
    with pytest.raises(BadInputError, match=r"undated.zarr has no datetime, .* run preprocess again"):
        PixelFeatures([stores[0], undated]).of(np.array([5]), np.array([6]))


def test_features_of_windows_are_those_of_the_whole_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    values, valid = rng.random((2, 50, 70)), (rng.random((50, 70)) < 0.8).astype(np.uint8)
    valid[20:30, 20:30] = 0
    image = store(tmp_path / "a.zarr", values, valid)
    places = [rng.permutation(part) for part in np.nonzero(np.ones((50, 70)))]
    whole = PixelFeatures([image]).of(*places)
    monkeypatch.setattr("eopipe.evaluation.features.WINDOW", 16)
    np.testing.assert_array_equal(PixelFeatures([image]).of(*places), whole)
    margins, values = ((0, 0), (4, 4), (4, 4)), np.where(valid, image.physical(image.names), np.nan)
    margins, values = ((0, 0), (4, 4), (4, 4)), np.where(valid, image.physical(image.names), np.nan)
    padded = np.pad(values, margins, constant_values=np.nan)
    fill_nearest(padded, np.isfinite(padded[0]), 2)
    windows = np.lib.stride_tricks.sliding_window_view(padded[:, 2:-2, 2:-2], (5, 5), axis=(1, 2))
    around = windows[:, places[0], places[1]]
    expected = around.mean((2, 3)), around.astype(np.float64).std((2, 3))
    assert np.isnan(whole).any()
    assert np.isfinite(whole[valid[places[0], places[1]] > 0]).all(), "a valid pixel has all its neighbours"
    np.testing.assert_allclose(whole[:, 2:], np.concatenate(expected).T, rtol=1e-4, atol=1e-6)


def test_the_texture_of_a_constant_is_exactly_0(tmp_path: Path) -> None:
    image = store(tmp_path / "a.zarr", np.full((1, 32, 32), 0.1234))
    assert not PixelFeatures([image]).of(*np.divmod(np.arange(1024), 32))[:, 2].any()


def test_the_texture_of_a_packed_chip_has_no_pixel_of_its_neighbours(tmp_path: Path) -> None:
    levels = np.kron(np.arange(12).reshape(3, 4) / 4, np.ones((16, 16)))[None]
    slots = {"slot": 16, "rows": 3, "columns": 4, "chips": 12, "bbox": [15, 45, 16, 46]}
    chips = store(tmp_path / "a.zarr", levels, **{CHIP_SET: slots})
    features = PixelFeatures([chips]).of(*np.divmod(np.arange(48 * 64), 64))
    assert not features[:, 2].any()
    scene = store(tmp_path / "b.zarr", levels)
    assert PixelFeatures([scene]).of(*np.divmod(np.arange(48 * 64), 64))[:, 2].any()


def noisy(tmp_path: Path, task: str = "segmentation") -> EvaluationData:
    """A landscape of which more than 10,000 pixels train, so that fits depend on their seeds."""
    rng = np.random.default_rng(4)
    hidden = rng.random((3, 160, 160))
    values = hidden.sum(0) + rng.normal(0, 0.5, (160, 160))
    truth = (values > 1.5).astype(np.uint8) if task == "segmentation" else values.astype(np.float32)
    return halves([store(tmp_path / f"{task}.zarr", hidden)], truth, task)


def test_pixels_of_two_seeds_are_different_ones_of_more_and_no_more_than_the_maximum(tmp_path: Path) -> None:
    first, second = (sampled_pixels(noisy(tmp_path), 500, seed) for seed in (5, 6))
    assert [(len(features), len(truth)) for features, truth, _ in (first, second)] == [(500, 500)] * 2
    assert not np.array_equal(first.features, second.features)
    np.testing.assert_array_equal(second.features, sampled_pixels(noisy_again(tmp_path), 500, 6).features)


def noisy_again(tmp_path: Path) -> EvaluationData:
    (tmp_path / "again").mkdir()
    return noisy(tmp_path / "again")


@pytest.mark.parametrize(("count", "max_pixels"), [(0, 500), (1, 100_000)])
def test_a_class_of_at_most_one_training_pixel_is_no_obstacle(tmp_path: Path, count: int, max_pixels: int) -> None:
    data = noisy(tmp_path)
    truth = np.zeros(data.frame.shape, np.uint8)
    truth[0, :count] = 1
    rare = halves(data.groups[0].stores, truth)
    metrics = evaluate_maps(rare, max_pixels, 0)
    assert all(metrics[name]["accuracy"] > 0.9 for name in BASELINES), metrics


@pytest.mark.exhaustive
def test_every_baseline_has_a_name_and_the_chosen_one_an_interval(tmp_path: Path) -> None:
    assert list(wording.BASELINES) == list(BASELINES)
    data = noisy(tmp_path)
    metrics = evaluate_maps(data, 2_000, 0)
    assert "not_mapped" not in metrics
    assert sum(metrics["map_pixels"].values()) == data.frame.shape[0] * data.frame.shape[1]
    assert {"gain", "simple_gain"} <= metrics["intervals"].keys()
    low, high = metrics["intervals"]["gain"]["accuracy"]
    gain = metrics["model"]["accuracy"] - metrics[metrics["baseline"]["name"]]["accuracy"]
    # The map is perfect, and no gain can be larger.
    assert low < gain == pytest.approx(high, abs=1e-6)


@pytest.mark.exhaustive
def test_a_class_that_no_pixel_of_the_map_has_is_named_in_the_headline(tmp_path: Path) -> None:
    data = noisy(tmp_path)
    everything = slice(0, data.frame.shape[0]), slice(0, data.frame.shape[1])
    truth = data.groups[0].truth(*everything)
    metrics = evaluate_maps(halves(data.groups[0].stores, truth, mapped=np.zeros_like(truth)), 2_000, 0)
    assert metrics["not_mapped"] == [data.names[1]]
    assert metrics["map_pixels"] == {data.names[0]: truth.size, data.names[1]: 0}
    assert verdict(metrics_type("segmentation").model_validate(metrics)).headline.endswith(
        f" The map has no pixel of “{data.names[1]}”."
    )
