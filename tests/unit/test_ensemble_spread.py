"""The spread of the members of an ensemble: the last band of the second file of its map, for every reader of maps."""

import json
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rasterio
import test_stac as stac
from builders import predict_files as predict
from builders import stage, write_labels, write_scenes
from scenery import Catalog, Run, split_outputs
from test_calibration import SHAPE, Mosaic
from test_ensemble import NAMES, combine, described, write_member, write_members
from test_map_parts import digests, from_parts
from test_map_places import of_places
from test_map_places import write_split as write_places

from eopipe.arrays import AnyArray, Float64Array
from eopipe.evaluation.calibration import ProbabilityMaps
from eopipe.inference.map_files import map_files, stored
from eopipe.models.model_folder import model_id, read_trained_model
from eopipe.tasks import TASKS
from eopipe.tasks.task import SPREAD, without_spread
from eopipe.text_files import write_json
from eopipe.tiles.store import Tiles

CALIBRATION = {"temperature": 2.0, "scenes": ["s0", "s1"], "summary": "of this test"}


def read(path: Path) -> Float64Array:
    """The bands of a map in their unit, NaN where there is no data."""
    with rasterio.open(path) as file:
        stored = file.read()
        is_empty = np.isnan(stored) if np.isnan(file.nodata) else stored == file.nodata
        return np.asarray(np.where(is_empty, np.nan, stored * np.array(file.scales)[:, None, None]), np.float64)


def expected_spread(task: str, model: tuple[Path, Path], members: list[tuple[Path, Path]]) -> Float64Array:
    """The spread by its definition, of the maps that the members make one by one."""
    deviations: Float64Array = np.stack([read(files[0 if task == "regression" else 1]) for files in members]).std(0)
    if task == "regression":
        return np.asarray(deviations[0])
    if task == "multilabel":
        return np.asarray(deviations.max(0))
    mapped = np.nan_to_num(read(model[0]))[:1].astype(int)
    return np.asarray(np.take_along_axis(deviations, mapped, 0)[0])


def check_spread(folder: Path, task: str, models: list[Path], tiles: list[Path], *options: object) -> None:
    """Compare the spread of an ensemble, the first model, with that of its members."""
    whole, *members = (predict(folder / path.name, path, tiles, *options) for path in models)
    actual, expected = read(whole[1])[-1], expected_spread(task, whole, members)
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(read(whole[0])[0]))
    # Both are of probabilities in steps of 1/10000.
    np.testing.assert_allclose(actual, expected, atol=1.5e-4)
    assert np.nanmax(actual) > 0.05


@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize("task", NAMES)
def test_the_stored_spread_is_the_deviation_of_the_mapped_class(task: str, temperature: float) -> None:
    trained, dice = replace(described(task), members=3), np.random.default_rng(2)
    of_members = dice.dirichlet([1.0] * 3, (3, 6, 5)).transpose(0, 3, 1, 2)
    scene_count = dice.integers(0, 3, (6, 5))

    def numbers_of(prediction: AnyArray) -> list[AnyArray]:
        layers = TASKS[task].layers(prediction, scene_count, len(trained.classes), temperature)
        both = map_files(trained, ["a"], {}, None, None)
        return [stored(layer, description, scene_count > 0) for layer, description in zip(layers, both, strict=True)]

    if task == "regression":
        values = of_members[:, :1]
        prediction = np.concatenate([values.mean(0), dice.random((1, 6, 5)), values.std(0)]).astype(np.float32)
        expected = np.where(scene_count > 0, values.std(0)[0], np.nan)
        spread = numbers_of(prediction)[1][-1]
    else:
        prediction = np.concatenate([of_members.mean(0), of_members.std(0)]).astype(np.float32)
        numbers, second = numbers_of(prediction)
        spread, expected = np.where(second[-1] == 65_535, np.nan, second[-1] * 1e-4), np.full((6, 5), np.nan)
        for row, column in np.argwhere(scene_count > 0):
            deviations = of_members[:, :, row, column].std(0)
            expected[row, column] = deviations.max() if task == "multilabel" else deviations[numbers[0, row, column]]
    np.testing.assert_allclose(spread, expected, atol=6e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [(), ("--symmetries", 4), ("--window", 64)])
@pytest.mark.parametrize("task", NAMES)
def test_the_spread_is_that_of_the_maps_of_the_members(task: str, options: tuple[object, ...], tmp_path: Path) -> None:
    members = write_members(tmp_path, task)
    models = [combine(tmp_path / "model", *members), *members]
    check_spread(tmp_path / "maps", task, models, write_scenes(tmp_path, 2), *options)


@pytest.mark.parametrize("task", ["segmentation", "regression"])
def test_windows_that_are_blended_have_it_too(task: str, tmp_path: Path) -> None:
    trained = replace(described(task), window=16)
    members = [write_member(tmp_path / f"m{seed}", trained, seed) for seed in (0, 1)]
    models = [combine(tmp_path / "model", *members), *members]
    check_spread(tmp_path / "maps", task, models, write_scenes(tmp_path, 2), "--symmetries", 2)


@pytest.mark.parametrize("task", NAMES)
def test_it_is_one_more_band_with_a_name_and_other_models_have_none(task: str, tmp_path: Path) -> None:
    tiles, members, names = write_scenes(tmp_path, 1), write_members(tmp_path, task), NAMES[task]
    bands = ("standard deviation of height", "scenes") if task == "regression" else names
    for path, expected in ((members[0], bands), (combine(tmp_path / "model", *members), (*bands, SPREAD))):
        with rasterio.open(predict(path.with_suffix(".maps"), path, tiles)[1]) as file:
            assert file.descriptions == expected
            assert file.tags().get("members") == (None if path == members[0] else "3")
            assert set(file.scales) == {1.0 if task == "regression" else 1e-4}
            assert file.units[-1] == ((expected == bands and "1") or "m" if task == "regression" else None)
            assert without_spread(file.descriptions) == bands


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", NAMES)
def test_a_map_of_parts_has_the_bytes_of_the_whole_and_places_have_its_values(task: str, tmp_path: Path) -> None:
    tiles, model = write_scenes(tmp_path, 2), combine(tmp_path / "model", *write_members(tmp_path, task))
    window = "--window", 64
    whole = predict(tmp_path / "whole", model, tiles, *window)
    parts = [predict(tmp_path / f"{n}", model, tiles, *window, "--part", f"{n}-of-3") for n in (1, 2, 3)]
    assert digests(predict(tmp_path / "all", model, tiles, *window, *from_parts(parts))) == digests(whole)
    split = write_places(tmp_path / "split.json", ["s0", "s1"], [[0, 8, 8]])
    places = predict(tmp_path / "places", model, tiles, *window, *of_places(split))
    for first, second in zip(places, whole, strict=True):
        some, every = read(first), read(second)
        np.testing.assert_array_equal(some[:, :64, :64], every[:, :64, :64])
        assert np.isnan(some[:, 64:]).all()


@pytest.mark.parametrize("task", ["segmentation", "multilabel"])
def test_a_calibration_changes_probabilities_and_not_the_spread(task: str, tmp_path: Path) -> None:
    tiles, model = write_scenes(tmp_path, 2), combine(tmp_path / "model", *write_members(tmp_path, task))
    write_json(tmp_path / "calibration.json", CALIBRATION | {"model": model_id(model)})
    plain = predict(tmp_path / "plain", model, tiles)
    fitted = predict(tmp_path / "fitted", model, tiles, "--calibration", tmp_path / "calibration.json")
    assert digests(plain)[0] == digests(fitted)[0]
    before, after = read(plain[1]), read(fitted[1])
    np.testing.assert_array_equal(before[-1], after[-1])
    assert np.nanmax(np.abs(before[:-1] - after[:-1])) > 0.02


def without_last_band(source: Path, target: Path) -> Path:
    """The map as it would be without the spread."""
    with rasterio.open(source) as file:
        bands, profile = file.read()[:-1], file.profile | {"count": file.count - 1, "driver": "GTiff"}
        with rasterio.open(target, "w", **profile) as other:
            other.write(bands)
            other.descriptions, other.scales = file.descriptions[:-1], file.scales[:-1]
            other.units = file.units[:-1]
            other.update_tags(**file.tags())
    return target


@pytest.fixture(scope="module", params=[*NAMES])
def finished(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mosaic:
    """Two scenes with labels, and the map of an ensemble."""
    task, folder = str(request.param), tmp_path_factory.mktemp("run")
    finished = copy(Mosaic(folder, task))
    trained = replace(described(task), chip=16)
    members = [write_member(folder / f"member-{seed}", trained, seed) for seed in (0, 1)]
    finished.model = combine(folder / "ensemble", *members)
    finished.predict(folder / "map")
    random = np.random.default_rng(2)
    if task == "regression":
        heights = random.normal(10, 4, SHAPE).astype(np.float32)
        finished.labels = write_labels(folder / "heights.zarr", heights, NAMES[task])
    if task == "classification":
        of_chips = np.kron(random.integers(0, 3, (6, 10)), np.ones((16, 16))).astype(np.uint8)
        finished.labels = write_labels(folder / "chips.zarr", of_chips, NAMES[task])
    options = ["--chip", "16", "--method", "west-east", "--fractions", "0.4", "0.3", "0.3", "--min-valid", "0.1"]
    stores = ["--tiles", *finished.tiles, "--labels", finished.labels]
    assert stage("split", *stores, *split_outputs(folder / "split"), *options) == 0
    finished.split = folder / "split/split.json"
    return finished


def task_of(finished: Mosaic) -> str:
    return read_trained_model(finished.model).task


def scored(finished: Mosaic) -> Path:
    if not (finished.folder / "map/metrics.json").exists():
        finished.evaluate(finished.folder / "map")
    return finished.folder / "map/metrics.json"


@pytest.mark.exhaustive
def test_scores_are_those_of_a_map_without_the_spread(
    finished: Mosaic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = json.loads(scored(finished).read_text())
    assert ("calibration" in metrics) == (task_of(finished) != "regression")
    monkeypatch.setattr("eopipe.evaluation.fit_calibration.MIN_SAMPLES", 5)
    assert finished.calibrate() == 0
    assert ("fitted" in finished.read()) == (task_of(finished) != "regression")
    if task_of(finished) not in ("segmentation", "multilabel"):
        return
    (tmp_path / "classes.tif").hardlink_to(finished.folder / "map/classes.tif")
    without_last_band(finished.folder / "map/probabilities.tif", tmp_path / "probabilities.tif")
    other = finished.evaluate(tmp_path)
    assert metrics == other


def page_of(finished: Mosaic, kind: str, folder: Path, probabilities: Path) -> str:
    """The report of a map by the model of a training, or by a finished model."""
    maps = ["--classes", finished.folder / "map/classes.tif", "--probabilities", probabilities]
    arguments = ["--model", finished.model, *maps, "--tiles", *finished.tiles]
    arguments += ["--page", folder / "page.html", "--picture", folder / "map.png"]
    if kind == "training":
        arguments += ["--metrics", scored(finished), "--chips", finished.split, "--labels", finished.labels]
        arguments += ["--model-card", folder / "model-card.md", "--data-card", folder / "data-card.md"]
    assert stage("report", *arguments) == 0
    return (folder / "page.html").read_text()


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["training", "finished"])
def test_pages_show_the_spread_beside_the_map_and_say_what_it_is(finished: Mosaic, kind: str, tmp_path: Path) -> None:
    probabilities = finished.folder / "map/probabilities.tif"
    page = page_of(finished, kind, tmp_path / "with", probabilities)
    other = page_of(finished, kind, tmp_path / "without", without_last_band(probabilities, tmp_path / "p.tif"))
    for text in ("Spread of the members: median", "The spread of the members is the standard deviation"):
        assert page.count(text) == 1
        assert text not in other
    median = float(np.nanmedian(read(probabilities)[-1]))
    of_page = float(page.partition("Spread of the members: median ")[2].split()[0].rstrip(","))
    assert of_page == pytest.approx(median, rel=0.01)


def test_products_have_the_entropy_of_the_classes_alone(finished: Mosaic, tmp_path: Path) -> None:
    if task_of(finished) not in ("segmentation", "classification"):
        return
    plain = without_last_band(finished.folder / "map/probabilities.tif", tmp_path / "p.tif")
    for name, path in (("a", finished.folder / "map/probabilities.tif"), ("b", plain)):
        files = ["--classes", finished.folder / "map/classes.tif", "--probabilities", path]
        assert stage("products", *files, "--products", tmp_path / name) == 0
    np.testing.assert_array_equal(read(tmp_path / "a/entropy.tif"), read(tmp_path / "b/entropy.tif"))


def test_the_item_of_a_map_lists_the_band(tmp_path: Path, catalog: Catalog, run: Run) -> None:
    folder = stac.make(tmp_path, catalog, run)
    trained = replace(described(), bands=stac.BANDS)
    model = combine(folder / "ensemble", *(write_member(folder / f"m{seed}", trained, seed) for seed in (0, 1)))
    for name in ("classes.tif", "probabilities.tif"):
        (folder / name).unlink()
    assert stac.predict(run, folder, model).code == 0
    assert stac.write_catalog(run, folder, model=model).code == 0
    item = json.loads((folder / "stac/maps/map/map.json").read_text())
    band = item["assets"]["probabilities"]["raster:bands"][-1]
    assert (band["name"], band["nodata"], band["scale"]) == (SPREAD, 65_535, 1e-4)


def test_samples_of_probabilities_have_a_number_for_each_class(finished: Mosaic) -> None:
    class Samples:
        rows, cols = np.array([3, 40]), np.array([5, 90])
        group = SimpleNamespace(number=0, frame=Tiles(finished.tiles[0]).frame)

        def __getitem__(self, chosen: AnyArray) -> "Samples":
            return self

    samples: Any = Samples()
    maps = ProbabilityMaps([{"": finished.folder / "map/probabilities.tif"}], {})
    ((numbers, _),) = maps.read(samples)
    assert len(numbers) == (2 if task_of(finished) == "regression" else 3)
