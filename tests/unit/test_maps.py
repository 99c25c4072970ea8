"""Maps, their scores and the exported model, from tiles that the tests write."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import builders
import numpy as np
import onnx
import pytest
import rasterio
import torch
from builders import (
    BANDS,
    grid_of,
    map_options,
    noise,
    predict,
    predict_files,
    read_bands,
    save_model,
    stage,
    write_labels,
    write_tiles,
)
from hypothesis import given
from hypothesis import strategies as st
from rasterio.enums import ColorInterp
from rio_cogeo.cogeo import cog_validate
from safetensors import safe_open
from scenery import split_outputs

from eopipe.arrays import UInt8Array
from eopipe.chips.chips import Normaliser
from eopipe.errors import IntegrityError
from eopipe.inference.predictor import padded_slice
from eopipe.models.input_check import TileProperties
from eopipe.models.model_folder import read_trained_model
from eopipe.models.networks import UNet, unet_radius
from eopipe.models.onnx import check_onnx, metadata, write_onnx
from eopipe.publish import publish
from eopipe.reporting.figures import class_colors, rgb
from eopipe.scenes.item import scene_tags, tagged_scenes
from eopipe.tasks.segmentation import ClassTables, confusion_matrix
from eopipe.text_files import read_json
from eopipe.tiles.store import NO_LABEL, Tiles

CLASSES = ("land", "water")


def write_model(path: Path, depth: int = 2) -> Path:
    """A U-Net with random weights; what it predicts depends on every pixel in its reach."""
    normaliser = Normaliser((0.1, 0.3), (0.05, 0.1))
    return builders.write_model(path, "segmentation", CLASSES, depth=depth, chip=16, normaliser=normaliser)


def test_a_map_has_no_seams_whatever_the_window(tmp_path: Path) -> None:
    model, tiles = write_model(tmp_path / "model"), [write_tiles(tmp_path / "a.zarr", noise(2, 150, 131))]
    whole = predict(tmp_path / "whole", model, tiles, "--window", 1024)
    parts = predict(tmp_path / "parts", model, tiles, "--window", 64)
    assert np.abs(whole[1].astype(int) - parts[1].astype(int)).max() <= 1
    assert (whole[0] != parts[0]).mean() < 1e-3


def test_without_its_halo_the_same_map_would_have_seams(tmp_path: Path) -> None:
    model, tiles = write_model(tmp_path / "model"), [write_tiles(tmp_path / "a.zarr", noise(2, 150, 131))]
    whole = predict(tmp_path / "whole", model, tiles, "--window", 1024)
    bare = predict(tmp_path / "bare", model, tiles, "--window", 64, "--halo", 0)
    assert np.abs(whole[1].astype(int) - bare[1].astype(int)).max() > 50


@pytest.mark.exhaustive
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_reach_of_the_model_is_what_it_says(depth: int) -> None:
    torch.manual_seed(0)
    model, edge = UNet(1, 2, 4, depth).double(), 32 * 2**depth
    x = torch.rand(1, 1, edge, edge, dtype=torch.float64, requires_grad=True)
    farthest = 0
    for position in range(edge // 2, edge // 2 + 2**depth):
        x.grad = None
        model(x)[0, 0, position, position].backward()
        assert x.grad is not None
        rows = x.grad[0, 0].abs().sum(1).nonzero().flatten()
        farthest = max(farthest, position - int(rows.min()), int(rows.max()) - position)
    assert 0.8 * unet_radius(depth) < farthest <= unet_radius(depth)


@given(st.integers(1, 500), st.integers(0, 400), st.integers(1, 200), st.integers(0, 64), st.sampled_from([1, 2, 4, 8]))
def test_a_widened_window_keeps_its_halo_and_starts_on_the_models_step(
    edge: int, start: int, length: int, halo: int, factor: int
) -> None:
    start = min(start, edge - 1)
    window = slice(start, min(start + length, edge))
    padded = padded_slice(edge, window, halo, factor)
    assert padded.start <= window.start - halo
    assert padded.stop >= window.stop + halo
    assert padded.start % factor == 0
    assert (padded.stop - padded.start) % factor == 0


def test_a_mosaic_takes_each_pixel_from_the_scenes_that_are_valid_there(tmp_path: Path) -> None:
    model, shape = write_model(tmp_path / "model"), (64, 64)
    left = np.zeros(shape, np.uint8)
    left[:, :30] = 1
    images = noise(2, *shape, seed=1), noise(2, *shape, seed=2)
    a = write_tiles(tmp_path / "a.zarr", images[0], left)
    b = write_tiles(tmp_path / "b.zarr", images[1], np.zeros(shape, np.uint8))
    alone = predict(tmp_path / "alone", model, [a])
    both = predict(tmp_path / "both", model, [b, a])
    np.testing.assert_array_equal(alone[1], both[1], "a scene that is nowhere valid changes nothing")
    assert (both[0][:, 30:] == NO_LABEL).all()
    assert (both[0][:, :30] != NO_LABEL).all()


def test_the_mean_of_two_scenes_is_their_mean(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    tiles = [write_tiles(tmp_path / f"{n}.zarr", noise(2, 48, 48, seed=seed)) for seed, n in enumerate("ab")]
    first, second = (predict(tmp_path / t.stem, model, [t])[1].astype(float) for t in tiles)
    both = predict(tmp_path / "both", model, tiles)[1]
    assert np.abs(both - (first + second) / 2).max() <= 1
    assert np.abs(both.sum(0).astype(int) - 10_000).max() <= 1


def test_maps_are_cloud_optimised_placed_and_named(tmp_path: Path) -> None:
    model, tiles = write_model(tmp_path / "model"), [write_tiles(tmp_path / "a.zarr", noise(2, 600, 520))]
    predict(tmp_path, model, tiles)
    with rasterio.open(tmp_path / "classes.tif") as file:
        assert file.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert (file.crs.to_epsg(), file.transform[2], file.nodata) == (32633, 500000.0, 255)
        assert file.overviews(1)
        assert file.tags()["classes"] == "0=land, 1=water"
        assert file.colorinterp == (ColorInterp.palette,)
    with rasterio.open(tmp_path / "probabilities.tif") as file:
        assert file.descriptions == CLASSES
        assert file.scales == (1e-4, 1e-4)


@pytest.mark.parametrize("colors", [(), ("#102030", "#0A0b0C")])
def test_a_map_of_classes_has_the_colours_of_the_report_and_transparent_nodata(
    tmp_path: Path, colors: tuple[str, ...]
) -> None:
    model = write_model(tmp_path / "model")
    valid = np.ones((40, 40), np.uint8)
    valid[:, :7] = 0
    tiles = [write_tiles(tmp_path / "a.zarr", noise(2, 40, 40), valid)]
    predict(tmp_path, model, tiles, *(["--colors", *colors] if colors else []))
    with rasterio.open(tmp_path / "classes.tif") as file:
        table = file.colormap(1)
        assert {n: table[n] for n in (0, 1)} == {n: (*rgb(c), 255) for n, c in enumerate(class_colors(CLASSES, colors))}
        assert table[NO_LABEL][3] == 0
        assert (file.read(1)[:, :7] == NO_LABEL).all()
        assert (file.read_masks(1)[:, :7] == 0).all()


def test_colours_that_do_not_match_the_classes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tiles = write_model(tmp_path / "model"), write_tiles(tmp_path / "a.zarr", noise(2, 32, 32))
    arguments = ["--model", model, "--tiles", tiles, *map_options(tmp_path)]
    assert stage("predict", *arguments, "--colors", "#ff0000") == 2
    assert "there are 1 colors for 2 classes: land, water" in capsys.readouterr().err
    assert not (tmp_path / "classes.tif").exists()


def test_bands_are_taken_by_name_and_a_missing_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_model(tmp_path / "model")
    with publish(tmp_path / "other", folder=True) as draft:
        for path in model.iterdir():
            (draft / path.name).write_bytes(path.read_bytes())
        (draft / "model.json").write_text((model / "model.json").read_text().replace('"nir"', '"swir16"'))
    tiles = write_tiles(tmp_path / "a.zarr", noise(2, 32, 32))
    assert stage("predict", "--model", tmp_path / "other", "--tiles", tiles, *map_options(tmp_path)) == 3
    assert "scene a has no band swir16, which the model needs; it has red, nir" in capsys.readouterr().err
    assert not (tmp_path / "classes.tif").exists()


def test_the_order_of_the_bands_in_a_store_changes_no_byte_of_a_map(tmp_path: Path) -> None:
    model, image = write_model(tmp_path / "model"), noise(2, 48, 40)
    maps = {}
    for name, bands, stored in (("same", BANDS, image), ("reversed", BANDS[::-1], image[::-1])):
        predict(tmp_path / name, model, [write_tiles(tmp_path / name / "a.zarr", stored, names=bands)])
        maps[name] = [(tmp_path / name / file).read_bytes() for file in ("classes.tif", "probabilities.tif")]
    assert maps["reversed"] == maps["same"]
    # The bands are not alike to the model, so that a swap could not go unseen.
    swapped = predict(tmp_path / "swapped", model, [write_tiles(tmp_path / "swapped/a.zarr", image[::-1])])[1]
    assert (swapped != read_bands(tmp_path / "same/probabilities.tif")).any()


def test_a_model_whose_weights_were_changed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tiles = write_model(tmp_path / "model"), write_tiles(tmp_path / "a.zarr", noise(2, 32, 32))
    weights = bytearray((model / "model.safetensors").read_bytes())
    weights[-3] ^= 1
    (model / "model.safetensors").write_bytes(weights)
    assert stage("predict", "--model", model, "--tiles", tiles, *map_options(tmp_path)) == 4
    assert "model.safetensors has other content than the manifest says" in capsys.readouterr().err


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=60))
def test_scores_are_what_counting_by_hand_gives(pairs: list[tuple[int, int]]) -> None:
    truth, predicted = (np.array(part) for part in zip(*pairs, strict=True))
    metrics = ClassTables(("a", "b", "c")).document(confusion_matrix(truth, predicted, 3).ravel())
    assert metrics["accuracy"] == pytest.approx((truth == predicted).mean(), abs=1e-6)
    for number, name in enumerate("abc"):
        both, either = (
            ((truth == number) & (predicted == number)).sum(),
            ((truth == number) | (predicted == number)).sum(),
        )
        iou = metrics["per_class"][name]["iou"]
        assert (iou is None) if not either else iou == pytest.approx(both / either, abs=1e-6)


def test_kappa_of_a_map_that_knows_nothing_is_zero() -> None:
    metrics = ClassTables(CLASSES).document(np.array([0, 632, 0, 2440]))
    assert metrics["kappa"] == 0.0
    assert metrics["per_class"]["land"]["precision"] is None


class Scene:
    """A scene with training labels in the west and test labels in the east: water where the near infrared is dark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        stream = np.random.default_rng(5)
        self.label = (stream.random((64, 96)) < 0.3).astype(np.uint8)
        image = noise(2, 64, 96)
        image[1] = np.where(self.label == 1, 600, 3000) + stream.integers(0, 300, self.label.shape)
        self.tiles = write_tiles(folder / "a.zarr", image)
        self.labels = write_labels(folder / "all.zarr", self.label, CLASSES)
        plan = ["--method", "west-east", "--fractions", "0.5", "0", "0.5", "--chip", "16"]
        assert stage("split", "--tiles", self.tiles, "--labels", self.labels, *split_outputs(folder), *plan) == 0

    def evaluate(self, classes: UInt8Array, made_from: str = "a") -> int:
        with rasterio.open(
            self.folder / "map.tif", "w", driver="GTiff", dtype="uint8", count=1, nodata=255,
            height=64, width=96, crs="EPSG:32633", transform=grid_of((64, 96)).affine,
        ) as file:  # fmt: skip
            file.write(classes, 1)
            file.update_tags(scenes=made_from)
        arguments = ["--classes", self.folder / "map.tif", "--tiles", self.tiles, "--labels", self.labels]
        arguments += ["--chips", self.folder / "split.json", "--metrics", self.folder / "metrics.json"]
        return stage("evaluate", *arguments)

    @property
    def metrics(self) -> dict[str, Any]:
        return dict(read_json(self.folder / "metrics.json"))


def test_only_the_test_places_count(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    classes = scene.label.copy()
    classes[:, :48] = 1 - classes[:, :48]
    assert scene.evaluate(classes) == 0
    assert scene.metrics["model"]["accuracy"] == 1.0
    classes = scene.label.copy()
    classes[:, 48:] = 1 - classes[:, 48:]
    assert scene.evaluate(classes) == 0
    assert scene.metrics["model"]["accuracy"] == 0.0
    assert scene.metrics["test_pixels"] == 64 * 48


def test_the_baselines_are_measured_in_the_same_places(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    assert scene.evaluate(scene.label) == 0
    east = scene.label[:, 48:]
    majority = scene.metrics["majority"]
    assert (majority["class"], majority["accuracy"]) == ("land", pytest.approx((east == 0).mean(), abs=1e-6))
    assert scene.metrics["pixel_baseline"]["accuracy"] > 0.99, "the near infrared tells all"


def test_pixels_that_the_map_does_not_cover_do_not_count(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    classes = scene.label.copy()
    classes[:32] = NO_LABEL
    assert scene.evaluate(classes) == 0
    assert scene.metrics["test_pixels"] == 32 * 48


def test_a_map_of_another_scene_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scene = Scene(tmp_path)
    assert scene.evaluate(scene.label, made_from="b") == 3
    assert "was made from other scenes than it is compared with: a, b" in capsys.readouterr().err
    assert not (tmp_path / "metrics.json").exists()


@pytest.mark.exhaustive
def test_onnx_gives_the_probabilities_of_the_model_at_any_size(tmp_path: Path) -> None:
    import onnxruntime

    model, tiles = write_model(tmp_path / "model"), write_tiles(tmp_path / "a.zarr", noise(2, 64, 64))
    arguments = ["--model", model, "--tiles", tiles, "--onnx", tmp_path / "m.onnx", "--check", tmp_path / "e.json"]
    assert stage("export", *arguments) == 0
    assert json.loads((tmp_path / "e.json").read_text())["largest_difference"] < 1e-5
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    for height, width in ((4, 4), (32, 48), (60, 20)):
        (probabilities,) = session.run(None, {"image": np.full((3, 2, height, width), 0.2, np.float32)})
        assert probabilities.shape == (3, 2, height, width)
        np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
    assert b"/eopipe/" not in (tmp_path / "m.onnx").read_bytes(), "no path of the machine that exported it"
    properties = session.get_modelmeta().custom_metadata_map
    assert (json.loads(properties["bands"]), json.loads(properties["classes"])) == (list(BANDS), list(CLASSES))
    assert (properties["task"], properties["chip"], properties["output_unit"]) == ("segmentation", "16", "1")
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)


@pytest.mark.parametrize("task", ["segmentation", "regression"])
def test_an_onnx_model_names_normalisation_pixel_size_units_and_what_qgis_reads(tmp_path: Path, task: str) -> None:
    trained = read_trained_model(write_model(tmp_path / "model"))
    tiles = TileProperties(10.0, ("reflectance",), ("2",))
    options = {"task": task, "target": (3.0, 2.0), "unit": "m"} if task == "regression" else {}
    properties = metadata(replace(trained, trained_on=tiles, **options))
    assert json.loads(properties["mean"]) == list(trained.normaliser.mean)
    assert json.loads(properties["std"]) == list(trained.normaliser.std)
    assert (json.loads(properties["pixel_size"]), json.loads(properties["band_units"])) == (10.0, ["reflectance"])
    # By the rules of Deepness: every value is JSON, classes are numbered from 0, the resolution is in cm.
    assert {int(number): name for number, name in json.loads(properties["class_names"]).items()} == dict(
        enumerate(CLASSES)
    )
    assert json.loads(properties["model_type"]) == {"segmentation": "Segmentor", "regression": "Regressor"}[task]
    assert (json.loads(properties["resolution"]), json.loads(properties["tile_size"])) == (1000, trained.chip)
    assert (json.loads(properties["standardization_mean"]), json.loads(properties["standardization_std"])) == (
        [0, 0],
        [1, 1],
    ), "the graph normalises"


def test_the_loader_of_transformers_reads_the_weights_and_they_are_those_of_the_model(tmp_path: Path) -> None:
    from transformers.modeling_utils import load_state_dict

    folder = write_model(tmp_path / "model")
    weights = load_state_dict(str(folder / "model.safetensors"))
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    built = read_trained_model(folder).build(folder).state_dict()
    assert set(weights) == set(built)
    assert all(torch.equal(weights[name], built[name]) for name in built)


def test_maps_are_valid_cogs_without_a_warning(tmp_path: Path) -> None:
    model, tiles = write_model(tmp_path / "model"), write_tiles(tmp_path / "a.zarr", noise(2, 600, 600))
    for path in predict_files(tmp_path, model, [tiles]):
        assert cog_validate(path, strict=True, quiet=True) == (True, [], [])


def test_the_header_of_a_map_of_many_scenes_stays_small_and_still_identifies_them() -> None:
    names = [f"S2B_MSIL2A_{number:06}_N0500_R065_T34TGS" for number in range(10_000)]
    tags = scene_tags(names)
    assert len(str(tags)) < 200
    assert tagged_scenes(tags, names) == names
    assert tagged_scenes(tags, names[1:]) == []
    assert tagged_scenes(scene_tags(names[:3]), names) == names[:3]


@pytest.mark.exhaustive
def test_an_onnx_model_that_differs_is_refused(tmp_path: Path) -> None:
    folder, trained = write_model(tmp_path / "one"), read_trained_model(write_model(tmp_path / "two"))
    write_onnx(tmp_path / "m.onnx", trained, folder)
    weights = {k: v + 0.1 for k, v in trained.architecture.build().state_dict().items()}
    save_model(tmp_path / "other", trained, weights=weights)
    tiles = Tiles(write_tiles(tmp_path / "a.zarr", noise(2, 64, 64)))
    with pytest.raises(IntegrityError, match="differs from the model by"):
        check_onnx(tmp_path / "m.onnx", trained, tmp_path / "other", tiles)
