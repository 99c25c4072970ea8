"""Calibration: the temperature that is fitted, what it does to a map, and how calibration is measured."""

from copy import copy
from pathlib import Path
from typing import Any

import builders
import numpy as np
import pytest
import torch
from builders import describe_model, map_options, read_bands, save_model, stage, west_east, write_labels, write_tiles
from hypothesis import given
from hypothesis import strategies as st
from scenery import covered_area
from torchmetrics.functional.classification import multiclass_calibration_error

from eopipe.arrays import AnyArray, Float64Array, FloatArray, IntArray
from eopipe.evaluation.calibration import calibration_intervals, jackknife, reliability_measures, reliability_sums
from eopipe.evaluation.correlation import SamplingUnits
from eopipe.evaluation.fit_calibration import LabelledSamples
from eopipe.inference.temperature import HIGHEST, LOWEST, fit_temperature
from eopipe.tasks.task import apply_temperature
from eopipe.text_files import read_json, write_json
from eopipe.tiles.store import NO_LABEL

CLASSES, SHAPE, CHIP = ("land", "water", "ice"), (96, 160), 16


def softmax(logits: AnyArray) -> Float64Array:
    powers = np.exp(logits - logits.max(0))
    return np.asarray(powers / powers.sum(0), np.float64)


def draw(probability: AnyArray, seed: int = 0) -> IntArray:
    """One class for each column of probabilities (class, ...)."""
    uniform = np.random.default_rng(seed).random(probability.shape[1:])
    return np.minimum((probability.cumsum(0) < uniform).sum(0), len(probability) - 1).astype(np.int64)


@pytest.mark.parametrize("temperature", [0.2, 0.5, 1.0, 3.0])
def test_the_fit_recovers_the_temperature_of_overconfident_and_underconfident_probabilities(temperature: float) -> None:
    logits = np.random.default_rng(1).normal(scale=2, size=(4, 20_000))
    truth = draw(softmax(logits))
    assert fit_temperature(softmax(logits * temperature), truth) == pytest.approx(temperature, rel=0.05)


@given(st.lists(st.floats(1e-4, 1), min_size=2, max_size=6, unique=True), st.floats(LOWEST, HIGHEST))
def test_a_temperature_changes_no_class_and_the_sum_stays_one(weights: list[float], temperature: float) -> None:
    probability = np.array(weights, np.float32)[:, None] / np.float32(sum(weights))
    calibrated = apply_temperature(probability, temperature)
    assert calibrated[int(probability.argmax())] == calibrated.max()
    assert calibrated.sum() == pytest.approx(1, abs=1e-5)


def test_probabilities_that_underflowed_keep_a_finite_loss_and_temperature_one_changes_no_bit() -> None:
    probability = np.array([[1.0, 0.0, 0.3], [0.0, 1.0, 0.7]], np.float32)
    np.testing.assert_array_equal(apply_temperature(probability, 1.0), probability)
    assert np.isfinite(apply_temperature(probability, 0.05)).all()
    assert LOWEST <= fit_temperature(probability, np.array([1, 1, 1])) <= HIGHEST


def test_samples_without_an_error_do_not_make_the_map_certain() -> None:
    probability = np.full((2, 98), 0.2, np.float32)
    probability[0] = 0.8
    calibrated = apply_temperature(probability, fit_temperature(probability, np.zeros(98, np.int64)))
    assert calibrated[0, 0] == pytest.approx(0.99, abs=1e-3), "98 of 98 are as if 99 of 100 were correct"


def sums_of(probability: AnyArray, truth: IntArray, unit: IntArray, units: int) -> Float64Array:
    return reliability_sums(probability, probability.argmax(0), truth, unit, units)


def test_ece_brier_score_and_log_loss_are_those_of_torchmetrics_and_of_the_definitions() -> None:
    probability = softmax(np.random.default_rng(2).normal(scale=2, size=(3, 5000)))
    truth = draw(probability**0.5 / (probability**0.5).sum(0))
    measures = reliability_measures(sums_of(probability, truth, np.zeros(5000, np.int64), 1))
    reference = multiclass_calibration_error(torch.tensor(probability.T), torch.tensor(truth), 3, n_bins=15, norm="l1")
    assert measures["ece"][0] == pytest.approx(float(reference), abs=1e-6)
    hot = np.eye(3)[truth].T
    assert measures["brier"][0] == pytest.approx(((probability - hot) ** 2).sum(0).mean())
    assert measures["nll"][0] == pytest.approx(-np.log(probability[truth, np.arange(5000)]).mean())
    assert measures["accuracy"][0] == (probability.argmax(0) == truth).mean()


def test_intervals_contain_the_truth_of_simulated_maps_with_correlated_errors() -> None:
    # Each of 20 blocks has an effect that all its pixels share; pixels alone would seem far more certain.
    stream, contained, draws = np.random.default_rng(3), {"brier": 0, "nll": 0, "ece": 0}, 300
    confidence, truth_ece = 0.9, 0.1
    expected = {"brier": 0.2 * 2 * 0.81 + 0.8 * 2 * 0.01, "ece": truth_ece}
    expected["nll"] = -(0.8 * np.log(0.9) + 0.2 * np.log(0.1))
    for _ in range(draws):
        errors = stream.beta(4, 16, 20)
        is_wrong = stream.random((20, 100)) < errors[:, None]
        probability = np.stack([np.full(2000, confidence), np.full(2000, 1 - confidence)])
        sums = sums_of(probability, is_wrong.ravel().astype(np.int64), np.repeat(np.arange(20), 100), 20)
        for name, (low, high) in jackknife(sums, reliability_measures).items():
            if name in contained:
                contained[name] += low <= expected[name] <= high
    assert all(0.92 <= count / draws <= 0.98 for count in contained.values()), contained


def test_below_six_independent_squares_there_is_no_interval_however_many_squares_there_are() -> None:
    side, pixels = 6, 200
    stream, units = np.random.default_rng(5), SamplingUnits(side, 10, np.arange(side**2))
    probability = np.tile([[0.9], [0.1]], side**2 * pixels)
    squares = np.repeat(np.arange(side**2), pixels)
    # Errors rise from one side to the other, or are in every second square.
    smooth, uneven = np.linspace(0.0, 0.4, side).repeat(side), 0.4 * (np.indices((side, side)).sum(0) % 2).ravel()
    errors = [(stream.random(len(squares)) < share[squares]).astype(np.int64) for share in (smooth, uneven)]
    rising, checkered = (
        calibration_intervals(sums_of(probability, is_wrong, squares, side**2), units) for is_wrong in errors
    )
    assert rising["pieces"] == checkered["pieces"] == 36
    assert rising["independent"] < 6 < checkered["independent"]
    assert [rising[name] for name in ("ece", "brier", "nll")] == [None] * 3
    assert all(checkered[name][0] < checkered[name][1] for name in ("ece", "brier", "nll"))


def samples_of(
    stream: np.random.Generator, temperatures: list[float], count: int = 300, units: SamplingUnits | None = None
) -> LabelledSamples:
    """Samples of regions with a temperature each; regions are independent pieces, or of 25 squares of a grid each."""
    parts = []
    for temperature in temperatures:
        logits = stream.normal(scale=2, size=(3, count))
        parts.append((softmax(logits * temperature), draw(softmax(logits), int(stream.integers(1 << 30)))))
    probability, truth = (np.concatenate(part, -1) for part in zip(*parts, strict=True))
    unit = np.repeat(np.arange(len(parts)), count)
    if units:
        square, start = stream.integers(0, 25, len(unit)), 12 * unit
        unit = np.searchsorted(units.used, (start + square // 5) * units.columns + square % 5)
    return LabelledSamples(probability, truth, unit, units or SamplingUnits(0, 0, np.arange(len(parts))))


@pytest.mark.parametrize("middle", [0.7, 1.0, 1.35])
@pytest.mark.parametrize("regions", [2, 5])
def test_a_temperature_of_few_regions_is_not_applied(regions: int, middle: float) -> None:
    stream, fits = np.random.default_rng(regions), []
    for _ in range(10):
        samples = samples_of(stream, (middle * np.exp(stream.normal(0, 0.5, regions))).tolist())
        fits.append(fit_temperature(samples.probability, samples.truth))
        applied, pieces = samples.proven_temperature(fits[-1])
        assert (applied, pieces["pieces"]) == (1.0, regions)
        assert pieces["independent"] == pytest.approx(regions, abs=0.2)
    assert max(fits) / min(fits) > 1.5


@pytest.mark.parametrize(("middle", "least"), [(2.0, 0.6), (0.5, 0.6)])
def test_many_regions_prove_nearly_all_of_a_temperature(middle: float, least: float) -> None:
    stream, gains = np.random.default_rng(8), {}
    for regions in (12, 150):
        samples = samples_of(stream, (middle * np.exp(stream.normal(0, 0.3, regions))).tolist())
        fitted = fit_temperature(samples.probability, samples.truth)
        applied, pieces = samples.proven_temperature(fitted)
        gains[regions] = np.log(applied) / np.log(fitted)
        assert pieces["pieces"] == regions
        assert 0.9 * regions < pieces["independent"] <= regions
        tested = samples_of(stream, (middle * np.exp(stream.normal(0, 0.3, 20))).tolist())
        assert tested.scores(applied)["ece"] - tested.scores(1.0)["ece"] < -0.03
    assert least - 0.2 < gains[12] < gains[150] < 1
    assert gains[150] > 0.85


@pytest.mark.parametrize("middle", [0.75, 1.0, 1.35])
@pytest.mark.parametrize("regions", [2, 7, 12, 40])
def test_ece_of_new_regions_hardly_rises_where_a_fitted_temperature_often_raises_it(
    regions: int, middle: float
) -> None:
    stream, changes, unshrunken = np.random.default_rng(9), [], []
    for _ in range(20):
        samples = samples_of(stream, (middle * np.exp(stream.normal(0, 0.4, regions))).tolist())
        fitted, new = fit_temperature(samples.probability, samples.truth), middle * np.exp(stream.normal(0, 0.4, 40))
        tested = samples_of(stream, new.tolist(), 100)
        before = tested.scores(1.0)["ece"]
        changes.append(tested.scores(samples.proven_temperature(fitted)[0])["ece"] - before)
        unshrunken.append(tested.scores(fitted)["ece"] - before)
    is_worse, was_worse = (np.mean(np.array(values) > 0.01) for values in (changes, unshrunken))
    assert is_worse <= (0.05 if regions > 5 else 0), (is_worse, was_worse)
    assert np.mean(changes) <= 0.002
    assert max(changes) <= max(0.02, 0.5 * max(unshrunken))
    if middle == 1:
        assert was_worse >= 0.15
    elif regions == 40:
        assert np.mean(changes) < 0.3 * np.mean(unshrunken) < 0


def test_squares_of_two_regions_are_few_pieces_however_many_they_are() -> None:
    columns, square = 6, np.arange(5)
    used = np.concatenate([(12 * n + np.repeat(square, 5)) * columns + np.tile(square, 5) for n in range(2)])
    samples = samples_of(np.random.default_rng(3), [4.0, 2.0], 6000, SamplingUnits(columns, 16, used))
    applied, pieces = samples.proven_temperature(fit_temperature(samples.probability, samples.truth))
    assert pieces["pieces"] == 50
    assert (applied, pieces["independent"] < 6) == (1.0, True)


def test_pieces_without_an_error_and_one_large_piece_prove_nothing() -> None:
    truth, unit = np.zeros(2000, np.int64), np.repeat(np.arange(20), 100)
    certain = np.tile(np.array([[0.8], [0.2]]), 2000)
    samples = LabelledSamples(certain, truth, unit, SamplingUnits(0, 0, np.arange(20)))
    fitted = fit_temperature(certain, truth)
    assert fitted < 0.5
    assert samples.proven_temperature(fitted) == (1.0, {"pieces": 20, "independent": 0.0})
    stream = np.random.default_rng(2)
    large, others = samples_of(stream, [3.0], 6000), samples_of(stream, [3.0] * 9, 50)
    both = LabelledSamples(
        np.hstack([large.probability, others.probability]),
        np.concatenate([large.truth, others.truth]),
        np.concatenate([large.unit, others.unit + 1]),
        SamplingUnits(0, 0, np.arange(10)),
    )
    applied, pieces = both.proven_temperature(fit_temperature(both.probability, both.truth))
    assert (applied, pieces["independent"] < 2) == (1.0, True)


class Mosaic:
    """Two scenes, a random model, and labels drawn from its sharpened mean probabilities, so that T is known.

    The west trains, the middle validates, the east tests; one column of the labels is missing.
    """

    def __init__(self, folder: Path, task: str = "segmentation", truth: float = 0.2) -> None:
        self.folder = folder
        stream = np.random.default_rng(4)
        self.tiles = []
        for name in ("a", "b"):
            image = stream.integers(500, 4000, (2, *SHAPE)).astype(np.uint16)
            self.tiles.append(write_tiles(folder / f"{name}.zarr", image, stream.random(SHAPE) < 0.8))
        names = ("height",) if task == "regression" else CLASSES
        self.model = save_model(folder / "model", describe_model(task, names, chip=CHIP))
        self.split = write_split(folder / "split.json", names)
        self.classes, self.probability = self.predict(folder / "plain")
        label: AnyArray = np.ones(SHAPE, np.float32)
        if task != "regression":
            label = draw(apply_temperature(self.probability.astype(np.float64), truth)).astype(np.uint8)
            label[:, 70] = NO_LABEL
        if task == "classification":
            label = np.repeat(np.repeat(label[::CHIP, ::CHIP], CHIP, 0), CHIP, 1)
        self.label, self.labels = label, write_labels(folder / "all.zarr", label, names)

    def predict(self, folder: Path, *options: object) -> tuple[AnyArray, FloatArray]:
        classes, probabilities = builders.predict(folder, self.model, self.tiles, *options)
        return classes, (probabilities / 10_000).astype(np.float32)

    def calibrate(self, name: str = "calibration.json", *options: object) -> int:
        inputs = ["--model", self.model, "--tiles", *self.tiles, "--labels", self.labels, "--chips", self.split]
        return stage("calibrate", *inputs, "--calibration", self.folder / name, *options)

    def read(self, name: str = "calibration.json") -> dict[str, Any]:
        return dict(read_json(self.folder / name))

    def evaluate(self, folder: Path) -> dict[str, Any]:
        inputs = ["--tiles", *self.tiles, "--labels", self.labels, "--chips", self.split]
        return builders.evaluate(folder, *map_options(folder), *inputs)


def changed(mosaic: Mosaic, **fields: Any) -> Mosaic:
    """The same model with another split, or on some of the scenes."""
    other = copy(mosaic)
    vars(other).update(fields)
    return other


def write_split(path: Path, names: tuple[str, ...], **changes: Any) -> Path:
    samples = changes.pop("samples", west_east(SHAPE, CHIP, 48, 96))
    return builders.write_split(path, ["a", "b"], names, CHIP, samples, **changes)


@pytest.fixture(scope="module")
def mosaic(tmp_path_factory: pytest.TempPathFactory) -> Mosaic:
    mosaic = Mosaic(tmp_path_factory.mktemp("mosaic"))
    assert mosaic.calibrate() == 0
    return mosaic


def test_the_temperature_of_a_mosaic_is_fitted_on_the_labelled_pixels_of_its_validation_places(mosaic: Mosaic) -> None:
    content = mosaic.read()
    comparable = (mosaic.label != NO_LABEL) & (mosaic.classes != NO_LABEL)
    assert content["pixels"] == comparable[:, 48:96].sum()
    assert content["temperature"] == pytest.approx(0.2, rel=0.15)
    assert content["after"]["nll"] < content["before"]["nll"]
    assert content["after"]["accuracy"] == content["before"]["accuracy"]


@pytest.mark.exhaustive
def test_a_calibrated_map_has_the_same_classes_and_is_calibrated_where_it_is_tested(mosaic: Mosaic) -> None:
    folder = mosaic.folder / "calibrated"
    classes, probability = mosaic.predict(folder, "--calibration", mosaic.folder / "calibration.json")
    np.testing.assert_array_equal(classes, mosaic.classes)
    assert (folder / "classes.tif").read_bytes() == (mosaic.folder / "plain/classes.tif").read_bytes()
    covered = classes != NO_LABEL
    expected = apply_temperature(mosaic.probability[:, covered], mosaic.read()["temperature"])
    # The map without a calibration is rounded to 1/10000, and 1/T is about 5.
    assert np.abs(probability[:, covered] - expected).max() < 1e-3
    before, after = mosaic.evaluate(mosaic.folder / "plain"), mosaic.evaluate(folder)
    assert after["model"] == before["model"], "the scores of classes are the same"
    assert after["calibration"]["ece"] < 0.05 < before["calibration"]["ece"]
    assert after["calibration"]["nll"] < before["calibration"]["nll"]
    assert after["calibration"]["temperature"] == pytest.approx(mosaic.read()["temperature"])
    assert before["calibration"]["temperature"] is None
    low, high = after["calibration"]["intervals"]["ece"]
    assert low <= after["calibration"]["ece"] <= high
    bins = after["calibration"]["bins"]
    assert sum(row["samples"] for row in bins) == after["test_pixels"]
    difference = sum(row["samples"] * abs(row["confidence"] - row["accuracy"]) for row in bins) / after["test_pixels"]
    assert after["calibration"]["ece"] == pytest.approx(difference, abs=1e-5)


def test_the_windows_change_the_temperature_by_nothing_that_matters(mosaic: Mosaic) -> None:
    assert mosaic.calibrate("small.json", "--window", 64) == 0
    assert mosaic.read("small.json")["temperature"] == pytest.approx(mosaic.read()["temperature"], rel=1e-3)
    assert mosaic.read("small.json")["pixels"] == mosaic.read()["pixels"]


def test_of_too_many_pixels_some_are_drawn(mosaic: Mosaic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eopipe.evaluation.fit_calibration.MAX_SAMPLES", 2000)
    assert mosaic.calibrate("drawn.json") == 0
    assert 1800 < mosaic.read("drawn.json")["pixels"] < 2200
    assert mosaic.read("drawn.json")["temperature"] == pytest.approx(mosaic.read()["temperature"], rel=0.2)


def test_the_calibration_of_another_model_is_refused(mosaic: Mosaic, capsys: pytest.CaptureFixture[str]) -> None:
    write_json(mosaic.folder / "other.json", mosaic.read() | {"model": "eopipe-unet-0"})
    outputs = ["--classes", mosaic.folder / "no.tif", "--probabilities", mosaic.folder / "none.tif"]
    arguments = ["predict", "--model", mosaic.model, "--tiles", *mosaic.tiles, *outputs, "--calibration"]
    assert stage(*arguments, mosaic.folder / "other.json") == 3
    assert "the calibration is of model eopipe-unet-0, not of eopipe-unet-" in capsys.readouterr().err
    assert stage(*arguments, mosaic.split) == 3
    assert "is not a calibration" in capsys.readouterr().err
    assert not (mosaic.folder / "no.tif").exists()


def test_without_validation_places_the_temperature_is_one_and_the_file_says_why(mosaic: Mosaic) -> None:
    samples = read_json(mosaic.split)["samples"] | {"val": []}
    split = write_split(mosaic.folder / "empty.json", CLASSES, samples=samples)
    assert changed(mosaic, split=split).calibrate("empty-calibration.json") == 0
    content = mosaic.read("empty-calibration.json")
    assert (content["temperature"], content["pixels"]) == (1.0, 0)
    assert content["reason"] == "the split has no labelled and valid validation place"
    _, probability = mosaic.predict(mosaic.folder / "one", "--calibration", mosaic.folder / "empty-calibration.json")
    np.testing.assert_array_equal(probability, mosaic.probability)


def test_too_few_samples_fit_no_temperature(mosaic: Mosaic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eopipe.evaluation.fit_calibration.MIN_SAMPLES", 10_000)
    assert mosaic.calibrate("few.json") == 0
    assert mosaic.read("few.json")["temperature"] == 1
    assert "validation pixels are fewer than 10000" in mosaic.read("few.json")["reason"]


def test_maps_of_scenes_that_are_split_have_the_temperature_of_those_that_validate(
    mosaic: Mosaic, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Every sample of the split is of the first scene, so the map of the second one has no part in it.
    split = write_split(mosaic.folder / "scenes.json", CLASSES, by_scene=True)
    assert changed(mosaic, split=split).calibrate("scenes-calibration.json") == 0
    content = mosaic.read("scenes-calibration.json")
    assert (content["maps"], content["scenes"]) == ("each image", ["a", "b"])
    first = changed(mosaic, tiles=mosaic.tiles[:1])
    of_scene = first.predict(tmp_path / "first")[1]
    is_val = covered_area(SHAPE, read_json(split)["samples"]["val"], CHIP)
    is_val &= (read_bands(tmp_path / "first/classes.tif")[0] != NO_LABEL) & (mosaic.label != NO_LABEL)
    assert content["pixels"] == is_val.sum()
    expected = fit_temperature(of_scene[:, is_val], mosaic.label[is_val].astype(np.int64))
    # Maps are rounded to 1/10000.
    assert content["fitted"] == pytest.approx(expected, rel=0.01)
    assert expected < content["temperature"] < 0.25
    calibration = ["--calibration", mosaic.folder / "scenes-calibration.json"]
    with caplog.at_level("WARNING", "eopipe"):
        _, calibrated = first.predict(tmp_path / "one", *calibration)
        assert "other_scenes" not in caplog.text
        mosaic.predict(tmp_path / "both", *calibration)
    assert "it fits maps of one of its own scenes" in caplog.text
    expected_shares = apply_temperature(of_scene[:, is_val], content["temperature"])
    np.testing.assert_allclose(calibrated[:, is_val], expected_shares, atol=0.01)


@pytest.mark.exhaustive
def test_maps_of_single_scenes_are_scored_though_one_has_no_test_places(mosaic: Mosaic, tmp_path: Path) -> None:
    split = write_split(tmp_path / "split.json", CLASSES, by_scene=True)
    maps = [builders.predict_files(tmp_path / path.stem, mosaic.model, [path]) for path in mosaic.tiles]
    named = [word for kind, of_scenes in zip(("classes", "probabilities"), zip(*maps, strict=True), strict=True)
             for word in (f"--{kind}", *of_scenes)]  # fmt: skip
    inputs = ["--tiles", *mosaic.tiles, "--labels", mosaic.labels, "--chips", split]
    metrics = builders.evaluate(tmp_path, *named, *inputs)
    # Every sample of the split is of the first scene.
    counted = sum(row[0] for row in metrics["calibration"]["bins"] if isinstance(row, list))
    assert metrics["maps"] == 2
    assert metrics["test_pixels"] > 0
    assert counted in (0, metrics["test_pixels"])


def test_a_regression_has_temperature_one(tmp_path: Path) -> None:
    mosaic = Mosaic(tmp_path, "regression")
    assert mosaic.calibrate() == 0
    assert mosaic.read()["reason"] == "a regression has values instead of probabilities"
    mosaic.predict(tmp_path / "again", "--calibration", tmp_path / "calibration.json")
    for name in ("classes.tif", "probabilities.tif"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_a_chip_classifier_is_calibrated_on_whole_chips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mosaic = Mosaic(tmp_path, "classification", truth=0.1)
    monkeypatch.setattr("eopipe.evaluation.fit_calibration.MIN_SAMPLES", 10)
    assert mosaic.calibrate() == 0
    content = mosaic.read()
    assert content["chips"] == 18, "6 rows of 3 columns"
    assert content["after"]["nll"] <= content["before"]["nll"] + 0.01
    classes, _ = mosaic.predict(tmp_path / "calibrated", "--calibration", tmp_path / "calibration.json")
    np.testing.assert_array_equal(classes, mosaic.classes)
    metrics = mosaic.evaluate(tmp_path / "calibrated")
    assert sum(row["samples"] for row in metrics["calibration"]["bins"]) == metrics["test_chips"]


def test_several_labels_are_calibrated_on_whole_chips_and_stay_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mosaic = Mosaic(tmp_path, "multilabel")
    assert mosaic.calibrate("few.json") == 0
    assert mosaic.read("few.json")["reason"] == "18 validation chips are fewer than 50"
    monkeypatch.setattr("eopipe.evaluation.fit_calibration.MIN_SAMPLES", 18)
    assert mosaic.calibrate("unproven.json") == 0
    reason = mosaic.read("unproven.json")["reason"]
    assert "18 validation chips and their errors amount to about 0.0 independent pieces" in reason
    monkeypatch.setattr("eopipe.evaluation.fit_calibration.MIN_PIECES", 0)
    assert mosaic.calibrate() == 0
    content = mosaic.read()
    assert content["chips"] == 18, "6 rows of 3 columns"
    assert content["temperature"] != 1
    assert content["after"]["nll"] <= content["before"]["nll"] + 0.01
    mosaic.predict(tmp_path / "calibrated", "--calibration", tmp_path / "calibration.json")
    folders = tmp_path / "plain", tmp_path / "calibrated"
    labels, probabilities = ([folder / f"{name}.tif" for folder in folders] for name in ("classes", "probabilities"))
    assert labels[0].read_bytes() == labels[1].read_bytes()
    assert probabilities[0].read_bytes() != probabilities[1].read_bytes()
    metrics = mosaic.evaluate(tmp_path / "calibrated")
    decisions = metrics["test_chips"] * len(CLASSES)
    assert sum(row["samples"] for row in metrics["calibration"]["bins"]) == decisions
    assert metrics["calibration"]["accuracy"] == pytest.approx(1 - metrics["model"]["hamming_loss"], abs=1e-6)
