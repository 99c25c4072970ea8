"""What predict refuses: tiles unlike those of the training, and numbers that are not finite."""

import json
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rasterio
import torch
from builders import describe_model, grid_of, map_options, read_bands, save_model, stage, write_store
from PIL import Image

from eopipe.arrays import AnyArray
from eopipe.chips.chips import Normaliser
from eopipe.errors import BadInputError, DivergedError
from eopipe.inference.mosaic import cells, probabilities
from eopipe.inference.predictor import WindowPredictor
from eopipe.loader.prefetch import BatchRequest
from eopipe.models.input_check import TileProperties, check_tiles, unfamiliar_inputs
from eopipe.models.model_folder import read_trained_model
from eopipe.stac.write import ItemExtent
from eopipe.tiles.store import Tiles
from eopipe.training.validation import Validation
from eopipe.training_job import Settings

BANDS, CLASSES, SHAPE = ("vv", "vh"), ("land", "water"), (64, 80)
UTM = "EPSG:32633"


def write_tiles(
    folder: Path,
    name: str,
    *,
    pixel: float = 10.0,
    crs: str = UTM,
    dtype: str = "float32",
    scale: float = 1.0,
    values: AnyArray | None = None,
    **attributes: Any,
) -> Tiles:
    """A store without valid pixels in its first column."""
    west, north = (15.0, 45.0) if crs == "EPSG:4326" else (500000.0, 5000000.0)
    image = np.random.default_rng(0).integers(1, 400, (2, *SHAPE)) if values is None else values
    arrays = {"image": image.astype(dtype), "valid": np.broadcast_to(np.arange(SHAPE[1]) > 0, SHAPE)}
    attributes = {"datetime": "2020-07-01", **attributes, "scaling": (scale, 0.0)}
    return Tiles(
        write_store(folder / f"{name}.zarr", BANDS, arrays, grid_of(SHAPE, pixel, west, north, crs), **attributes)
    )


DAYS = (datetime(2019, 1, 1, 12, tzinfo=UTC), datetime(2020, 12, 31, 12, tzinfo=UTC))


def write_model(
    path: Path, trained_on: TileProperties | None, weight: float | None = None, scores: dict[str, Any] | None = None
) -> Path:
    fields = {"mean": 200.0, "std": 100.0, "chip": 16, "trained_on": trained_on}
    trained = describe_model("segmentation", CLASSES, BANDS, **fields)
    files = {"test-scores.json": json.dumps(scores)} if scores else {}
    return save_model(path, trained, weight=weight, files=files, extent=ItemExtent(None, (), *DAYS))


def predict(folder: Path, model: Path, store: Tiles, *options: str) -> int:
    return stage("predict", "--model", model, "--tiles", store.path, *map_options(folder), *options)


def test_a_model_keeps_what_it_was_trained_on_in_its_stac_item(tmp_path: Path) -> None:
    stores = [write_tiles(tmp_path, "a", unit="dB"), write_tiles(tmp_path, "b", unit="dB", level="L1C")]
    properties = TileProperties.of(stores)
    assert properties == TileProperties(10.0, ("dB",), ("", "1"), (7,))
    assert read_trained_model(write_model(tmp_path / "model", properties)).trained_on == properties
    assert read_trained_model(write_model(tmp_path / "old", None)).trained_on is None


def test_inputs_of_another_season_sensor_baseline_or_range_of_values_are_named(tmp_path: Path) -> None:
    def store(name: str, **attributes: Any) -> Tiles:
        return write_tiles(tmp_path, name, **attributes)

    training = [
        store("a", datetime="2020-07-01", sensors=["msi"], baselines=["05.09"]),
        store("b", datetime="2020-11-01"),
    ]
    trained_on = TileProperties.of(training, {"vv": (10.0, 20.0), "vh": (0.0, 1.0)})
    ordinary = np.linspace(9.9, 20.1, 101)
    like = [store("c", datetime="2023-12-24", sensors=["msi"], baselines=["05.09"]), store("d", datetime="2023-06-01")]
    assert unfamiliar_inputs(trained_on, like, {"vv": ordinary, "vh": np.zeros(5)}) == []
    unlike = [
        store("e", start_datetime="2022-12-30", end_datetime="2023-02-01", sensors=["msi", "oli"], baselines=["02.14"])
    ]
    assert unfamiliar_inputs(trained_on, unlike, {"vv": np.array([5, 15, 15, 25, 25]), "vh": np.zeros(5)}) == [
        "Scenes are of another season: Jan, Feb; the training has Jul, Nov.",
        "Scenes are of another sensor: oli; the training has msi.",
        "Scenes are of another processing baseline: 02.14; the training has 05.09.",
        "vv: 20 % of the pixels are below 10 and 40 % above 20, between which 98 % of the training pixels are.",
    ]


def test_tiles_of_another_pixel_size_stop_predict_unless_it_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_model(tmp_path / "model", TileProperties.of([write_tiles(tmp_path, "coarse", pixel=120.0)]))
    store = write_tiles(tmp_path, "fine")
    assert predict(tmp_path, model, store) == 3
    message = capsys.readouterr().err
    assert "their pixels are 10 m wide, in the training 120 m" in message
    assert "predict.allow as 'pixel-size: reason'" in message
    assert not (tmp_path / "classes.tif").exists()
    assert predict(tmp_path, model, store, "--allow", "unit: known") == 3
    assert predict(tmp_path, model, store, "--allow", "pixel-size: a test of scale") == 0
    assert predict(tmp_path, write_model(tmp_path / "old", None), store) == 0


@pytest.mark.parametrize(
    ("training", "tiles", "kind"),
    [
        ({"unit": "dB"}, {}, "unit"),
        ({}, {"unit": "dB"}, "unit"),
        ({"dtype": "uint16", "scale": 1e-4}, {"dtype": "uint16"}, "unit"),
        ({"level": "L2A"}, {"level": "L1C"}, "level"),
        ({"collection": "sentinel-2-l2a"}, {"collection": "sentinel-2-l1c"}, "level"),
        ({"collection": "landsat-c2-l2"}, {"level": "Level-1"}, "level"),
        ({"pixel": 10.0}, {"pixel": 15.0}, "pixel-size"),
    ],
)
def test_a_difference_of_unit_or_level_is_refused(
    tmp_path: Path, training: dict[str, Any], tiles: dict[str, Any], kind: str
) -> None:
    trained_on = TileProperties.of([write_tiles(tmp_path, "a", **training)])
    stores = [write_tiles(tmp_path, "b", **tiles)]
    with pytest.raises(BadInputError, match=f"'{kind}: reason'"):
        check_tiles(trained_on, stores, ())
    check_tiles(trained_on, stores, (f"{kind}: known",))


@pytest.mark.parametrize(
    ("training", "tiles"),
    [
        ({"dtype": "uint16", "scale": 1e-4}, {"dtype": "float32"}),
        ({"dtype": "uint16", "scale": 1e-4}, {"dtype": "uint16", "scale": 2.75e-5}),
        ({"unit": "reflectance"}, {"unit": "1"}),
        ({"collection": "sentinel-2-l2a"}, {"collection": "landsat-c2-l2"}),
        ({"collection": "sentinel-2-l2a"}, {"collection": "own"}),
        ({"collection": "hls2-l30"}, {"collection": "hls2-s30"}),
        ({"pixel": 10.0}, {"pixel": 1e-4, "crs": "EPSG:4326"}),
    ],
)
def test_what_means_the_same_is_accepted(tmp_path: Path, training: dict[str, Any], tiles: dict[str, Any]) -> None:
    trained_on = TileProperties.of([write_tiles(tmp_path, "a", **training)])
    check_tiles(trained_on, [write_tiles(tmp_path, "b", **tiles)], ())


def test_a_model_that_answers_nan_is_refused_with_scene_and_window(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, store = write_model(tmp_path / "model", None, float("nan")), write_tiles(tmp_path, "a")
    assert predict(tmp_path, model, store, "--window", "64") == 7
    message = capsys.readouterr().err
    assert "the model's output is NaN or infinite at 4032 of 4032 valid places" in message
    assert "scene a, rows 0 to 64, columns 0 to 64" in message
    assert not (tmp_path / "classes.tif").exists()


def test_valid_pixels_that_are_not_finite_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = np.ones((2, *SHAPE), np.float32)
    image[1, 30, 40], image[0, 5, 0] = np.inf, np.nan
    model, store = write_model(tmp_path / "model", None), write_tiles(tmp_path, "a", values=image)
    assert predict(tmp_path, model, store) == 3
    assert "1 valid pixels of scene a, rows 0 to 64, columns 0 to 80" in capsys.readouterr().err


def ratio(images: AnyArray) -> AnyArray:
    """Probabilities of a model that divides by its input: NaN at the zeros of invalid pixels."""
    with np.errstate(invalid="ignore"):
        share = images[:, :1] / (images[:, :1] + images[:, 1:])
    return np.concatenate([share, 1 - share], 1)


def chip_ratio(images: AnyArray) -> AnyArray:
    return ratio(images.mean((2, 3), keepdims=True) * np.float32("nan"))


def test_an_output_that_is_not_finite_where_no_pixel_is_valid_does_not_matter(tmp_path: Path) -> None:
    store = write_tiles(tmp_path, "a")
    plain = Normaliser((0.0, 0.0), (1.0, 1.0))
    for _, x, probability, count in probabilities(WindowPredictor([store], BANDS, plain, ratio, 40, 0, 1), 2):
        assert np.isfinite(probability).all()
        assert (count == (np.arange(x.start, x.stop) > 0)).all()
    with pytest.raises(DivergedError, match="scene a, rows 0 to 32, columns 0 to 32"):
        list(cells(WindowPredictor([store], BANDS, plain, chip_ratio, 32, 0, 1), 2, 16))


class SingleWorld:
    """A world of one process."""

    device = torch.device("cpu")
    sum = staticmethod(lambda values: values)


def validated(outputs_NCHW: torch.Tensor, *, whole: bool) -> dict[str, Any]:
    """Scores of outputs for a chip of class 0 whose first row is not labelled."""
    labels = torch.zeros(1, 4, 4, dtype=torch.uint8)
    labels[0, 0] = 255
    names = SimpleNamespace(names=("other", "forest"))
    settings = Settings(task="classification" if whole else "segmentation")
    architecture = SimpleNamespace(classes=2)
    job: Any = SimpleNamespace(architecture=architecture, pairs=[(None, names)], settings=settings, target=())
    batch: Any = SimpleNamespace(labels_NHW=labels, request=BatchRequest("val", np.zeros(1, np.int64)))
    world: Any = SingleWorld()
    validation = Validation(job, 1)
    validation.update(outputs_NCHW, batch)
    return validation.compute(world)


def test_a_validation_names_the_classes_of_its_labels_that_are_never_predicted() -> None:
    outputs = torch.zeros(1, 2, 4, 4)
    assert "never_predicted" not in validated(outputs, whole=False), "no label is forest"
    outputs[:, 1] = 1
    assert validated(outputs, whole=False)["never_predicted"] == ["other"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_validation_refuses_outputs_that_are_not_finite_where_there_is_a_label(*, whole: bool) -> None:
    outputs = torch.zeros(1, 2, 4, 4)
    assert validated(outputs, whole=whole)["accuracy"] == 1
    outputs[0, 0, 2, 1] = float("nan")
    with pytest.raises(DivergedError, match="NaN or infinite for 1 labelled validation samples"):
        validated(outputs, whole=whole)


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    """A model of the ranges of its training, and its maps of a scene."""
    store = write_tiles(tmp_path, "a", datetime="2021-01-05", sensors=["<oli>"])
    ranges = {"vv": (1.0, 200.0), "vh": (0.0, 500.0)}
    trained_on = replace(TileProperties.of([store], ranges), months=(7,), sensors=("msi",))
    assert predict(tmp_path, write_model(tmp_path / "model", trained_on), store) == 0
    return tmp_path


def report(folder: Path, *options: str) -> int:
    inputs = ["--model", folder / "model", "--tiles", folder / "a.zarr", *map_options(folder)]
    return stage("report", *inputs, "--page", folder / "report.html", "--picture", folder / "map.png", *options)


def test_the_report_of_a_map_without_labels_has_its_areas_and_what_is_unlike_the_training(mapped: Path) -> None:
    assert report(mapped, "--title", "A <map>") == 0
    page = (mapped / "report.html").read_text().replace("\u202f", " ")
    counts = np.bincount(read_bands(mapped / "classes.tif").ravel(), minlength=256)
    assert counts[255] == SHAPE[0]
    for number, name in enumerate(CLASSES):
        share = 100 * counts[number] / counts[:2].sum()
        cells = (f"{counts[number]:,}".replace(",", " "), f"{round(counts[number] / 100)} ha", f"{share:.1f} %")
        assert f"<td>{'</td><td>'.join(cells)}</td>" in page, name
    assert "A &lt;map&gt;" in page
    assert "The inputs are unlike the training inputs in 3 ways" in page
    for words in ("another season: Jan; the training has Jul", "another sensor: &lt;oli&gt;", "vv: 0 % of"):
        assert words in page
    assert "vh: " not in page
    assert "without a calibration" in page
    with Image.open(mapped / "map.png") as picture:
        assert picture.width > 500


def scored(folder: Path, recall: float, classes: tuple[str, ...] = CLASSES) -> None:
    """A model that fits the inputs, with its test scores: of the second class this recall."""
    store = Tiles(folder / "a.zarr")
    ranges = dict.fromkeys(BANDS, (-1000000.0, 1000000.0))
    rows = [{"iou": r, "precision": r, "recall": r, "f1": r, "pixels": 50} for r in (0.9, recall)]
    per_class = dict(zip(classes, rows, strict=True))
    scores = {"accuracy": 0.9, "miou": 0.8, "f1_macro": 0.8, "kappa": 0.7, "confusion": [], "per_class": per_class}
    metrics = {"classes": classes, "maps": 1, "test_pixels": 100, "model": scores, "pixel_baseline": scores}
    metrics |= {"majority": scores | {"class": "land"}, "intervals": {"model": {"accuracy": [0.8, 0.95]}}}
    shutil.rmtree(folder / "model")
    write_model(folder / "model", replace(TileProperties.of([store]), ranges=ranges), scores=metrics)


@pytest.mark.parametrize(("recall", "tone", "sentence"), [
    (0.6, "good", ""),
    (0.0, "mixed", " The map of the training is right at no test pixel of “water”."),
])  # fmt: skip
def test_the_report_of_a_map_has_the_test_scores_of_the_model_and_no_green_headline_over_a_dead_class(
    recall: float, tone: str, sentence: str, mapped: Path
) -> None:
    scored(mapped, recall)
    assert report(mapped) == 0
    page = (mapped / "report.html").read_text()
    assert f'class="verdict {tone}"' in page
    assert f'<p class="head">The inputs are like the training inputs.{sentence}</p>' in page
    assert (
        "The map has no labels, so nothing is scored here. The test of the training, on 100 test pixels of images of "
        "2019-01-01 to 2020-12-31: accuracy 0.900 (0.800 to 0.950), mIoU 0.800."
    ) in page
    assert f"<td>{recall:.3f}</td>" in page
    assert "test scores of the training" in page


def test_the_report_of_a_map_does_not_know_scores_that_are_not_with_the_model(mapped: Path) -> None:
    assert report(mapped) == 0
    assert "The test scores of the model are not known here" in (mapped / "report.html").read_text()


def test_test_scores_of_other_classes_are_refused(mapped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scored(mapped, 0.5, ("land", "ice"))
    assert report(mapped) == 3
    assert "test-scores.json has scores of land, ice, the model maps land, water" in capsys.readouterr().err


def test_the_report_of_a_map_is_the_same_byte_for_byte(mapped: Path) -> None:
    pages = []
    for _ in range(2):
        assert report(mapped) == 0
        pages.append([(mapped / name).read_bytes() for name in ("report.html", "map.png")])
    assert pages[0] == pages[1]


def test_the_report_of_a_map_refuses_maps_of_other_classes(mapped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with rasterio.open(mapped / "probabilities.tif", "r+", IGNORE_COG_LAYOUT_BREAK="YES") as source:
        source.descriptions = ("land", "ice")
    assert report(mapped) == 3
    assert "holds the classes land, ice; the run has land, water" in capsys.readouterr().err
    assert not (mapped / "report.html").exists()
