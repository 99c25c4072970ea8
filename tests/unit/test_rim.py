"""Where data end, a model sees the nearest pixel that has some: maps are as good there as elsewhere."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from builders import describe_model, save_model
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.ndimage import binary_dilation, gaussian_filter, maximum_filter, minimum_filter
from stores import nearest_by_hand
from torch import nn

from eopipe.arrays import AnyArray, BoolArray, FloatArray, UInt8Array
from eopipe.chips.chips import FILLS, NEAREST, ZERO, Normaliser, apply_symmetry, fill_nearest
from eopipe.errors import BadInputError, UsageError
from eopipe.inference.mosaic import probabilities
from eopipe.inference.predictor import WindowPredictor, check_gap
from eopipe.inspection.models import ArrayImage, load_model
from eopipe.loader.chip_reader import ChipArrays, finish_chip
from eopipe.models import Architecture
from eopipe.models.combine import EnsembleMember
from eopipe.models.model_folder import read_trained_model
from eopipe.publish import publish
from eopipe.text_files import write_json

BANDS, CLASSES, EDGE, NEAR = ("red", "nir"), 3, 128, 24
STEPS = 200


@settings(deadline=None, max_examples=300)
@given(
    valid=arrays(bool, st.tuples(st.integers(1, 9), st.integers(1, 9))),
    reach=st.sampled_from([None, 0, 1, 2, 3, 5]),
)
def test_an_invalid_pixel_has_the_values_of_the_nearest_valid_one(valid: BoolArray, reach: int | None) -> None:
    image = np.arange(2.0 * valid.size).reshape(2, *valid.shape)
    filled = image.copy()
    fill_nearest(filled, valid, reach)
    np.testing.assert_array_equal(filled, nearest_by_hand(image, valid, reach))


class ViT(nn.Module):
    """A transformer that takes images of one size only."""

    def __init__(self, size: int = 32, patch: int = 4, width: int = 32) -> None:
        super().__init__()
        self.patches, self.patch = nn.Conv2d(len(BANDS), width, patch, patch), patch
        self.positions = nn.Parameter(0.02 * torch.randn((size // patch) ** 2, width))
        self.block = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        self.head = nn.Linear(width, CLASSES * patch**2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x)
        tokens = self.block(tokens.flatten(2).transpose(1, 2) + self.positions)
        pixels = self.head(tokens).transpose(1, 2).unflatten(2, (x.shape[2] // self.patch, -1))
        return nn.functional.pixel_shuffle(pixels, self.patch)


class Convolution(nn.Module):
    """Shore where any pixel within 6 pixels is like a pond, else land by its spectrum."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        is_pond = (0.5 - x.abs().amax(1, keepdim=True)).relu()
        ponds = nn.functional.conv2d(is_pond, torch.ones(1, 1, 13, 13), padding=6)
        return torch.cat([-x[:, :1], x[:, :1], 10 * (ponds - 1.5)], 1)


def scene(seed: int, edge: int = EDGE, ponds: int = 1) -> tuple[FloatArray, UInt8Array]:
    """An image (band, y, x) of two kinds of land with ponds, and its classes; land within 6 pixels of a pond is shore.

    A pond has the mean spectrum, so that a model takes zeros for one.
    """
    random = np.random.default_rng(seed)
    land = gaussian_filter(random.normal(size=(edge, edge)), 10) > 0
    pond = np.zeros((edge, edge), bool)
    for y, x in random.integers(8, edge - 16, (ponds, 2)).tolist():
        pond[y : y + 8, x : x + 8] = True
    image = np.where(pond, 0, np.stack([2.0 * land - 1, 1 - 2.0 * land])) + random.normal(0, 0.2, (2, edge, edge))
    is_shore = binary_dilation(pond, np.ones((3, 3)), 6)
    return image.astype(np.float32), np.where(is_shore, 2, land).astype(np.uint8)


@cache
def trained(name: str, seed: int) -> tuple[nn.Module, int, int]:
    """A model trained on windows of another scene, its reach and its factor; a ViT has the reach 0.

    The ViT is trained in double precision, so that what it learns does not depend on the processor: it is right in .94
    of the pixels, too few to recognise a training that has learned (`has_learned`).
    """
    if name == "convolution":
        return Convolution(), 6, 1
    torch.manual_seed(seed)
    architecture = Architecture("unet" if name == "vit" else name, len(BANDS), CLASSES, 8, 2, BANDS)
    module = ViT().double() if name == "vit" else architecture.build()
    image, label = (torch.from_numpy(array) for array in scene(100 + seed, 256, 60))
    image = image.to(next(module.parameters()).dtype)
    optimiser = torch.optim.AdamW(module.parameters(), 5e-3)
    for _ in range(STEPS):
        corners = torch.randint(0, 256 - 32, (16, 2)).tolist()
        windows = [np.s_[..., y : y + 32, x : x + 32] for y, x in corners]
        images, labels = (torch.stack([array[window] for window in windows]) for array in (image, label))
        loss = nn.functional.cross_entropy(module(images), labels.long())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    sizes = (0, 1) if name == "vit" else (architecture.receptive_field_radius, architecture.factor)
    return module.float().eval(), *sizes


def class_map(name: str, seed: int, image: FloatArray, fill: str = NEAREST, edge: int = 64) -> AnyArray:
    """The classes (y, x) of an image, NaN where there are no data, with windows of `edge` pixels."""
    module, reach, factor = trained(name, seed)

    @torch.inference_mode()
    def predict(images: FloatArray) -> FloatArray:
        return np.asarray(module(torch.from_numpy(images)).softmax(1).numpy())

    predictor = WindowPredictor(
        [ArrayImage("scene", image, BANDS)], BANDS, Normaliser((0.0, 0.0), (1.0, 1.0)), predict, edge, reach, factor,
        overlap=32 if name == "vit" else 0, reach=0 if fill == ZERO else reach, fill=FILLS[fill],
    )  # fmt: skip
    mapped = np.full((CLASSES, *image.shape[1:]), np.nan, np.float32)
    for y, x, result, count in probabilities(predictor, CLASSES):
        mapped[:, y, x] = np.where(count > 0, result, np.nan)
    return mapped


def cuts() -> Iterator[tuple[str, BoolArray]]:
    """Which pixels of a scene are left: of one that ends, one with holes, one with the wedge of an orbit."""
    rows, columns = np.mgrid[:EDGE, :EDGE]
    yield "edge", columns < 70
    centres = np.random.default_rng(0).integers(0, EDGE, (14, 2)).tolist()
    yield "holes", np.all([np.hypot(rows - y, columns - x) > 7 for y, x in centres], 0)
    yield "wedge", rows * 2 + columns > 150


def accuracies_near(name: str, seed: int, cut: str, fill: str) -> tuple[float, float]:
    """Accuracy of the map of a whole scene and of what is left, on the pixels of the latter within 24 of the cut."""
    image, label = scene(seed)
    valid = dict(cuts())[cut]
    near = valid & binary_dilation(~valid, np.ones((3, 3)), NEAR)
    partial = np.where(valid, image, np.nan)[:, :, : 70 if cut == "edge" else EDGE]
    near_of_partial = near[:, : partial.shape[2]]
    whole = class_map(name, seed, image, fill).argmax(0)[near]
    left = class_map(name, seed, partial, fill).argmax(0)[near_of_partial]
    return float((whole == label[near]).mean()), float((left == label[near]).mean())


def has_learned(name: str, seed: int) -> bool:
    """Whether a training has learned what a pond is, which depends on how the processor rounds."""
    return all(accuracies_near(name, seed, cut, NEAREST)[0] >= 0.99 for cut, _ in cuts())


@pytest.mark.parametrize(
    "name", ["convolution", "vit", *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("unet", "convnext"))]
)
def test_a_map_is_as_good_where_data_end_as_that_of_the_whole_scene(name: str) -> None:
    seed = 0 if name in ("convolution", "vit") else next(seed for seed in range(1, 8) if has_learned(name, seed))
    for cut, _ in cuts():
        whole, left = accuracies_near(name, seed, cut, ZERO)
        assert whole - left >= 0.03, f"{cut}: with zeros the scene is to show the fault, {whole} and {left}"
        whole, left = accuracies_near(name, seed, cut, NEAREST)
        assert whole - left <= 0.01, f"{cut}: {whole} and {left}"


@pytest.mark.parametrize("name", ["convolution", "vit"])
def test_what_a_pixel_sees_where_data_end_is_the_same_in_all_windows(name: str) -> None:
    image, _ = scene(5)
    valid = np.all([mask for _, mask in cuts()], 0) & (np.random.default_rng(1).random((EDGE, EDGE)) > 0.02)
    maps = [class_map(name, 0, np.where(valid, image, np.nan), edge=edge) for edge in (16, 48, 64, 200)]
    assert np.isfinite(maps[0]).all(0).tolist() == valid.tolist()
    assert np.ptp(np.nan_to_num(maps), 0).max() < 1e-5


@settings(deadline=None, max_examples=40)
@given(
    valid=arrays(bool, st.tuples(st.integers(1, 30), st.integers(1, 30)), fill=st.booleans()),
    edge=st.integers(3, 30),
    reach=st.integers(1, 5),
    factor=st.sampled_from([1, 4]),
)
def test_all_that_a_valid_pixel_sees_depends_on_its_place_alone(
    valid: BoolArray, edge: int, reach: int, factor: int
) -> None:
    # Numbers of pixels, of which the network shows the largest and the smallest within reach, so no sum is rounded.
    image, size = np.arange(1.0, valid.size + 1, dtype=np.float32).reshape(1, *valid.shape), 2 * reach + 1

    def extremes(images: FloatArray) -> FloatArray:
        filters = (maximum_filter, minimum_filter)
        return np.concatenate([f(images, (1, 1, size, size), mode="constant") for f in filters], 1)

    stores, normalise = [ArrayImage("a", np.where(valid, image, np.nan), BANDS[:1])], Normaliser((0.0,), (1.0,))
    predictor = WindowPredictor(stores, BANDS[:1], normalise, extremes, edge, reach, factor, reach=reach)
    beyond = [(3 * reach, 3 * reach)] * 2
    known = np.pad(valid, beyond)
    expected = extremes(nearest_by_hand(np.pad(image * valid, [(0, 0), *beyond]), known)[None])[0]
    for y, x, mapped, count in probabilities(predictor, 2):
        part = np.s_[3 * reach + y.start : 3 * reach + y.stop, 3 * reach + x.start : 3 * reach + x.stop]
        np.testing.assert_array_equal(mapped, np.where(count > 0, expected[:, *part], 0))


@settings(deadline=None, max_examples=40)
@given(valid=arrays(bool, (12, 12)), symmetry=st.integers(0, 7))
def test_a_crop_is_filled_from_its_own_pixels_before_it_is_turned(valid: BoolArray, symmetry: int) -> None:
    random = np.random.default_rng(3)
    stored = ChipArrays(random.integers(1, 4000, (2, 12, 12)).astype(np.uint16), valid, np.zeros((12, 12), np.uint8))
    normalise, scaling = Normaliser((0.2, 0.1), (0.1, 0.2)), (1e-4, 0.0)
    turned = ChipArrays(np.empty((2, 12, 12), np.float32), np.empty((12, 12), np.uint8), np.empty((12, 12), np.int64))
    finish_chip(stored, turned, normalise, scaling, symmetry)
    expected = nearest_by_hand(normalise(stored.image, scaling, valid), valid)
    np.testing.assert_array_equal(turned.image, apply_symmetry(expected, symmetry))
    # As before where all is valid.
    complete = ChipArrays(stored.image, np.ones_like(valid), stored.label)
    finish_chip(complete, turned, normalise, scaling, symmetry)
    of_all = (stored.image * np.float32(1e-4) - np.float32([[[0.2]], [[0.1]]])) / np.float32([[[0.1]], [[0.2]]])
    np.testing.assert_array_equal(turned.image, apply_symmetry(of_all, symmetry))


def test_cells_do_not_lend_pixels_to_each_other() -> None:
    # Where a gap is wider than twice the reach of 6 pixels, what is beyond changes nothing.
    image, _ = scene(5)
    cell = np.where(np.indices((EDGE, EDGE))[1] < 40, image, np.nan)
    neighbour = cell.copy()
    neighbour[:, :, 40 + 13 :] = 100
    alone, beside = (class_map("convolution", 0, pixels)[:, :, :40] for pixels in (cell, neighbour))
    np.testing.assert_array_equal(alone, beside)


def test_a_new_model_is_filled_and_one_from_before_sees_zeros(tmp_path: Path) -> None:
    architecture = Architecture("unet", len(BANDS), CLASSES, 8, 1, BANDS)
    normalise, margin = Normaliser((0.2, 0.1), (0.1, 0.2)), 4 * architecture.receptive_field_radius
    fields = {"architecture": architecture, "normaliser": normalise}
    described, module = describe_model("segmentation", ("a", "b", "c"), BANDS, **fields), architecture.build().eval()
    save_model(tmp_path / "new", described, weights=module.state_dict())
    item = json.loads((tmp_path / "new/model.json").read_text())
    assert item["properties"].pop("eopipe:fill") == "nearest"
    assert "the values of the nearest valid one" in item["properties"]["mlm:input"][0]["description"]
    # As the versions before wrote it.
    with publish(tmp_path / "old", folder=True) as draft:
        shutil.copytree(tmp_path / "new", draft, dirs_exist_ok=True)
        write_json(draft / "model.json", item)
    image = np.random.default_rng(3).random((2, 12, 16), np.float32)
    image[:, 3:7, 4:9] = np.nan
    beyond = [(margin, margin)] * 2
    known = np.pad(np.isfinite(image[0]), beyond)
    zeros = np.pad(normalise(image, (1.0, 0.0), np.isfinite(image[0])), [(0, 0), *beyond])
    for name, pixels in (("old", zeros), ("new", nearest_by_hand(zeros, known))):
        model = load_model(tmp_path / name)
        assert model.trained.fill == {"old": ZERO, "new": NEAREST}[name]
        crop = np.s_[:, margin : 12 + margin, margin : 16 + margin]
        expected = module(torch.from_numpy(pixels[None])).softmax(1)[0].detach().numpy()[crop]
        np.testing.assert_allclose(model.predict(image), np.where(np.isfinite(image[0]), expected, np.nan), atol=1e-5)
    other = [EnsembleMember.read(tmp_path / name) for name in ("new", "old")]
    with pytest.raises(BadInputError, match="fill is nearest there and missing here"):
        other[1].check_fits(other[0])
    item["properties"]["eopipe:fill"] = "mean"
    (tmp_path / "old/model.json").write_text(json.dumps(item))
    with pytest.raises(BadInputError, match="fill has 'mean': input should be 'zero' or 'nearest'"):
        read_trained_model(tmp_path / "old")


def test_a_reach_that_two_cells_have_in_common_is_refused() -> None:
    predictor = WindowPredictor([], BANDS, Normaliser((), ()), lambda images: images, 64, 1023, 1, reach=1023)
    check_gap(predictor)
    with pytest.raises(UsageError, match=r"predict.halo is 1024: pixels of another cell begin at 2048.*below 1024"):
        check_gap(replace(predictor, halo=1024, reach=1024))
    with pytest.raises(UsageError, match="windows of 4096 pixels reach two cells"):
        check_gap(replace(predictor, overlap=4096))
