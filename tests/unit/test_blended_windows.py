"""Models that take windows of one size, or see the whole of one: overlapping windows are blended without seams."""

import json
import math
from pathlib import Path

import builders
import numpy as np
import pytest
import torch
import zarr
from builders import BANDS, map_options
from builders import stage as run_stage
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from eopipe.arrays import AnyArray, BoolArray, Float64Array, FloatArray
from eopipe.chips.chips import Normaliser, fill_nearest
from eopipe.contract import stage
from eopipe.inference.mosaic import probabilities
from eopipe.inference.predictor import Predict, PredictorSettings, WindowPredictor, open_predictor
from eopipe.models import Architecture
from eopipe.models.model_folder import read_trained_model
from eopipe.tiles.store import Tiles
from eopipe.training.model_checks import fixed_window

CLASSES, CHIP, PATCH = ("a", "b", "c"), 32, 8
# A vision transformer with a table of positions, which takes images of one size only.
VIT = f"""\
import time

import torch
import zarr
from torch import nn


class ViT(nn.Module):
    def __init__(self, bands, classes, size={CHIP}):
        super().__init__()
        self.patches = nn.Conv2d(bands, 16, {PATCH}, {PATCH})
        self.positions = nn.Parameter(torch.randn((size // {PATCH}) ** 2, 16))
        self.block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, classes * {PATCH} ** 2)
        self.classes = classes

    def forward(self, x):
        tokens = self.patches(x)
        rows, columns = tokens.shape[2:]
        tokens = self.block(tokens.flatten(2).transpose(1, 2) + self.positions)
        pixels = self.head(tokens).reshape(x.shape[0], rows, columns, self.classes, {PATCH}, {PATCH})
        return pixels.permute(0, 3, 1, 4, 2, 5).reshape(x.shape[0], self.classes, rows * {PATCH}, columns * {PATCH})


class Relative(ViT):
    reach = float("inf")
    factor = {PATCH}

    def __init__(self, bands, classes):
        super().__init__(bands, classes, {PATCH})


class Stateful(nn.Module):
    # Keeps a value of a forward in itself, which another thread would change.

    reach, factor = 0, 1

    def __init__(self, bands, classes):
        super().__init__()
        self.head = nn.Conv2d(bands, classes, 1)

    def forward(self, x):
        self.mean = x.mean()
        time.sleep(0.02)
        return self.head(x) + self.mean * torch.arange(3.0)[:, None, None]
"""


def write_tiles(path: Path, height: int, width: int, hole: float = 0.0) -> Path:
    """Noise, a part of whose pixels is not valid."""
    random = np.random.default_rng(7)
    image = random.integers(500, 4000, (2, height, width)).astype(np.uint16)
    return builders.write_tiles(path, image, random.random((height, width)) >= hole)


def place_dependent(images: FloatArray) -> FloatArray:
    """A function like a network that sees its whole window: an output depends on all of it, and on its place there."""
    rows, columns = np.mgrid[: images.shape[2], : images.shape[3]].astype(np.float32)
    first = images.mean((1, 2, 3))[:, None, None] + rows * 0.01 + images[:, 0]
    return np.stack([first, np.broadcast_to(columns, first.shape)], 1)


def dense_reference(image: Float64Array, valid: BoolArray, size: int, classes: int, network: Predict) -> Float64Array:
    """All windows of a padded image at every half of their size, each weighted by a Hann window of scipy.

    Each is filled from its own valid pixels.
    """
    from scipy.signal.windows import hann

    step, (height, width) = size // 2, image.shape[1:]
    padded, known = (np.pad(array, [*[(0, 0)] * (array.ndim - 2), *[(size, 2 * size)] * 2]) for array in (image, valid))
    # The periodic window, sampled at the centres of pixels.
    ramp = hann(2 * size + 1)[1::2]
    total, weights = np.zeros((classes, *padded.shape[1:])), np.zeros(padded.shape[1:])
    for top in range(0, padded.shape[1] - size + 1, step):
        for left in range(0, padded.shape[2] - size + 1, step):
            window = np.s_[top : top + size, left : left + size]
            pixels = padded[:, *window].astype(np.float32)
            fill_nearest(pixels, known[window])
            total[:, *window] += network(pixels[None])[0] * np.outer(ramp, ramp)
            weights[window] += np.outer(ramp, ramp)
    inner = np.s_[size : size + height, size : size + width]
    return np.asarray(total[:, *inner] / weights[inner])


@settings(deadline=None, max_examples=12)
@given(
    height=st.integers(20, 90),
    width=st.integers(20, 90),
    size=st.sampled_from([8, 16, 32, 96]),
    edge=st.integers(5, 70),
)
def test_blended_windows_are_the_dense_reference_whatever_the_parts(
    tmp_path_factory: pytest.TempPathFactory, height: int, width: int, size: int, edge: int
) -> None:
    store = Tiles(write_tiles(tmp_path_factory.mktemp("tiles") / "a.zarr", height, width))
    normalise = Normaliser((0.2, 0.2), (0.1, 0.1))
    predictor = WindowPredictor([store], BANDS, normalise, place_dependent, edge, 0, 1, overlap=size)
    mapped = np.full((2, height, width), np.nan, np.float32)
    for y, x, result, count in probabilities(predictor, 2):
        mapped[:, y, x] = np.where(count > 0, result, np.nan)
    image = normalise(store.read("image"), store.scaling, store.valid())
    expected = dense_reference(image.astype(np.float64), store.valid(), size, 2, place_dependent)
    np.testing.assert_allclose(mapped, expected, rtol=1e-4, atol=1e-4)
    whole = WindowPredictor([store], BANDS, normalise, place_dependent, 1000, 0, 1, overlap=size)
    ((_, _, of_whole, _),) = probabilities(whole, 2)
    np.testing.assert_array_equal(mapped, of_whole)


@pytest.mark.parametrize(("size", "together"), [(16, 4), (64, 4), (96, 1)])
def test_four_small_windows_are_predicted_together_and_larger_ones_one_by_one(
    tmp_path: Path, size: int, together: int
) -> None:
    batches = set()

    def network(images: FloatArray) -> FloatArray:
        batches.add(len(images))
        return place_dependent(images)

    store = Tiles(write_tiles(tmp_path / "a.zarr", 70, 90))
    predictor = WindowPredictor([store], BANDS, Normaliser((0.2, 0.2), (0.1, 0.1)), network, 64, 0, 1, overlap=size)
    assert [*probabilities(predictor, 2)]
    assert batches == {together}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vit.py").write_text(VIT)
    return tmp_path


def architecture_of(name: str) -> Architecture:
    values = {"architecture": name, "arguments": (), "model_files": (), "weights_bands": (), "width": 4, "depth": 2}
    return Architecture.of(stage("train").with_derived(values), BANDS, len(CLASSES))


def write_model(folder: Path, name: str) -> Path:
    """A model folder as train writes it, with random weights."""
    torch.manual_seed(2)
    architecture = architecture_of(name)
    window = fixed_window(architecture.build(), architecture, CHIP)
    fields = {"architecture": architecture, "chip": CHIP, "window": window}
    return builders.write_model(folder, "segmentation", CLASSES, seed=2, **fields)


def predict(model: Path, tiles: Path, folder: Path, name: str, *options: object) -> AnyArray:
    return builders.predict(folder, model, [tiles], "--allow-code", name, *options)[1]


def test_a_transformer_of_one_size_is_mapped_with_the_same_bytes_whatever_the_window(project: Path) -> None:
    model, tiles = write_model(project / "model", "vit.py:ViT"), write_tiles(project / "a.zarr", 150, 170, hole=0.2)
    assert read_trained_model(model).window == CHIP
    maps = [predict(model, tiles, project / f"w{edge}", "vit.py:ViT", "--window", edge) for edge in (64, 200, 512)]
    for name in ("classes.tif", "probabilities.tif"):
        assert len({(project / f"w{edge}" / name).read_bytes() for edge in (64, 200, 512)}) == 1
    store, module = Tiles(tiles), read_trained_model(model, "vit.py:ViT").build(model)

    @torch.inference_mode()
    def network(images: FloatArray) -> FloatArray:
        return np.asarray(module(torch.from_numpy(images)).softmax(1).numpy())

    image = Normaliser((0.2, 0.2), (0.1, 0.1))(store.read("image"), store.scaling, store.valid())
    expected = dense_reference(image.astype(np.float64), store.valid(), CHIP, len(CLASSES), network)
    assert np.abs(maps[0] / 10_000 - expected)[:, store.valid()].max() < 2e-4


def test_a_transformer_with_symmetries_has_the_same_bytes_whatever_window_and_threads(project: Path) -> None:
    model, tiles = write_model(project / "model", "vit.py:ViT"), write_tiles(project / "a.zarr", 100, 130, hole=0.2)
    maps = []
    for options in (("--window", 64, "--threads", 1), ("--window", 512, "--threads", 2)):
        folder = project / "-".join(map(str, options))
        predict(model, tiles, folder, "vit.py:ViT", "--symmetries", 8, *options)
        maps.append([path.read_bytes() for path in sorted(folder.glob("*.tif"))])
    assert maps[0] == maps[1]


def test_a_model_that_sees_its_whole_window_is_blended_at_the_size_of_the_option(project: Path) -> None:
    model, tiles = write_model(project / "model", "vit.py:Relative"), write_tiles(project / "a.zarr", 96, 130)
    assert read_trained_model(model).window == 0
    assert architecture_of("vit.py:Relative").sees_whole_window
    first, second = (predict(model, tiles, project / f"w{n}", "vit.py:Relative", "--window", n) for n in (64, 128))
    assert (first.sum(0) >= 9_998).all()
    # Another window is another context, and so another result.
    assert (first != second).any()


def test_a_halo_of_blended_windows_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, tiles = write_model(project / "model", "vit.py:ViT"), write_tiles(project / "a.zarr", 64, 64)
    options = [*map_options(project), "--allow-code", "vit.py:ViT", "--halo", 8]
    assert run_stage("predict", "--model", model, "--tiles", tiles, *options) == 2
    assert "overlap by half and are blended, so there is no halo; remove it" in capsys.readouterr().err


@pytest.mark.exhaustive
def test_a_transformer_of_one_size_is_exported_for_that_size(project: Path) -> None:
    import onnx

    model, tiles = write_model(project / "model", "vit.py:ViT"), write_tiles(project / "a.zarr", 64, 64)
    outputs = ["--onnx", project / "model.onnx", "--check", project / "export.json", "--allow-code", "vit.py:ViT"]
    assert run_stage("export", "--model", model, "--tiles", tiles, *outputs) == 0
    (image,) = onnx.load(project / "model.onnx").graph.input
    assert [size.dim_value for size in image.type.tensor_type.shape.dim][1:] == [len(BANDS), CHIP, CHIP]
    assert image.type.tensor_type.shape.dim[0].dim_param
    report = json.loads((project / "export.json").read_text())
    assert (report["chips"], report["largest_difference"] < 1e-4) == (1, True)


def test_a_model_whose_code_fixes_the_number_of_images_is_not_exported(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "vit.py").write_text(VIT.replace("x.shape[0]", "len(x)"))
    model, tiles = write_model(project / "model", "vit.py:ViT"), write_tiles(project / "a.zarr", 64, 64)
    outputs = ["--onnx", project / "model.onnx", "--check", project / "export.json", "--allow-code", "vit.py:ViT"]
    assert run_stage("export", "--model", model, "--tiles", tiles, *outputs) == 2
    assert "its code fixes the number of images when it is traced" in capsys.readouterr().err
    assert not (project / "model.onnx").exists()


class GpuOnly(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("no CUDA device")


class Pooled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


def test_a_model_has_one_size_if_it_takes_no_wider_image_or_says_so(project: Path) -> None:
    vit = architecture_of("vit.py:ViT")
    assert fixed_window(vit.build(), vit, CHIP) == CHIP
    assert fixed_window(Pooled(), vit, CHIP) == 0
    assert fixed_window(GpuOnly(), vit, CHIP) == 0
    stated = Pooled()
    stated.window = 224
    assert fixed_window(stated, vit, CHIP) == 224
    unet = architecture_of("unet")
    assert fixed_window(unet.build(), unet, CHIP) == 0
    assert math.isfinite(unet.receptive_field_radius)


@pytest.mark.parametrize("name", ["unet", "vit.py:ViT", "vit.py:Stateful"])
def test_windows_side_by_side_change_no_byte(name: str, project: Path) -> None:
    model, tiles = write_model(project / "model", name), write_tiles(project / "a.zarr", 300, 200, hole=0.2)
    maps = []
    for threads in (1, 2, 5):
        predict(model, tiles, project / f"t{threads}", name, "--window", 64, "--threads", threads)
        maps.append([path.read_bytes() for path in sorted((project / f"t{threads}").glob("*.tif"))])
    assert maps[0] == maps[1] == maps[2]


SLOTS = {"slot": CHIP, "rows": 2, "columns": 3, "chips": 6, "bbox": [15.0, 45.0, 15.1, 45.1]}


def test_each_chip_of_a_chip_set_is_one_window_of_a_model_of_one_size(project: Path) -> None:
    model, tiles = write_model(project / "model", "vit.py:ViT"), write_tiles(project / "a.zarr", 2 * CHIP, 3 * CHIP)
    zarr.open_group(tiles, mode="r+").attrs["chip_set"] = SLOTS
    trained = read_trained_model(model, "vit.py:ViT")
    predictor = open_predictor(trained, model, [Tiles(tiles)], PredictorSettings(512, None, "cpu", 1))
    assert (predictor.edge, predictor.halo, predictor.overlap) == (CHIP, 0, 0)
    assert len(predictor.windows()) == 6
