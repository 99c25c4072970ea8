"""Pretrained weights meet the bands of a run by name, in the unit and normalisation that they expect."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from eopipe.chips.chips import Normaliser
from eopipe.errors import BadInputError, UsageError
from eopipe.models import Architecture
from eopipe.models.build import change_input_bands
from eopipe.models.model_folder import TrainedModel, read_trained_model, write_model_folder
from eopipe.training.data import weights_normaliser
from eopipe.training.model_checks import dry_run
from eopipe.training_job import Settings

RGB = ("red", "green", "blue")
KERNELS = {"red": 10.0, "green": 1.0, "blue": 0.1}
MODULE = f"{__name__}:"


class Photo(nn.Module):
    """As a model with weights of photographs: its first layer weighs red 10, green 1 and blue 0.1."""

    def __init__(self, in_channels: int = 3, num_classes: int = 2) -> None:
        super().__init__()
        self.stem = nn.Conv2d(in_channels, 1, 1, bias=False)
        self.head = nn.Conv2d(1, num_classes, 1)
        with torch.no_grad():
            self.stem.weight.copy_(torch.tensor([*KERNELS.values()])[:in_channels].reshape(1, -1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stem(x))


def kernels(bands: tuple[str, ...], weights_bands: tuple[str, ...] = RGB) -> dict[str, float]:
    """The kernels of a widened first layer by band, without the common factor."""
    architecture = Architecture(MODULE + "Photo", len(bands), 2, 4, 1, bands, weights_bands=weights_bands)
    weight = architecture.build().get_parameter("model.stem.weight").detach().flatten()
    factor = len(weights_bands) / len(bands)
    return dict(zip(bands, (weight / factor).tolist(), strict=True))


@given(st.permutations(["blue", "green", "red", "nir", "swir16"]))
def test_the_weights_of_a_photograph_meet_the_band_of_their_name_in_any_order(order: list[str]) -> None:
    mean = sum(KERNELS.values()) / 3
    assert kernels(tuple(order)) == pytest.approx(KERNELS | {"nir": mean, "swir16": mean})


def test_three_bands_in_another_order_are_sorted_too() -> None:
    assert kernels(("blue", "green", "red")) == pytest.approx(KERNELS)


def test_each_date_of_a_band_has_its_kernel() -> None:
    bands = tuple(f"{band}_{part}" for part in ("MAM", "JJA") for band in ("blue", "green", "red"))
    assert kernels(bands) == pytest.approx({band: KERNELS[band.partition("_")[0]] for band in bands})


@given(st.integers(0, 6))
def test_bands_with_equal_values_give_what_the_narrow_layer_gave(more: int) -> None:
    module = nn.Sequential(nn.Sequential(nn.Conv2d(3, 3, 3, 2, 1)), nn.ReLU(), nn.Conv2d(3, 3, 1))
    grey, last = torch.rand(2, 1, 8, 8), module[2].weight
    with torch.inference_mode():
        before = module(grey.expand(-1, 3, -1, -1))
        change_input_bands(module, (*RGB, *(f"band{number}" for number in range(more))), RGB)
        torch.testing.assert_close(module(grey.expand(-1, 3 + more, -1, -1)), before)
    assert module[2].weight is last, "only the first layer is another one"


def test_without_declared_bands_a_first_layer_is_not_changed_but_refused_with_the_setting() -> None:
    architecture = Architecture(MODULE + "Photo", 4, 2, 4, 1, (*RGB, "nir"), ("in_channels=3",))
    with pytest.raises(UsageError, match=r"first layer takes 3 channels: .* in train\.weights_bands, such as \[red,"):
        dry_run(architecture.build(), architecture, 8, "segmentation")


@pytest.mark.parametrize(
    ("bands", "weights_bands", "message"),
    [
        (("blue", "green", "nir"), RGB, "train.weights_bands has red, which the images do not have"),
        (("B02", "B03", "B04"), RGB, "has red, green, blue, which the images do not have (B02, B03, B04)"),
        (RGB, (), ""),
    ],
)
def test_a_band_of_the_weights_that_the_images_lack_is_named(
    bands: tuple[str, ...], weights_bands: tuple[str, ...], message: str
) -> None:
    architecture = Architecture(MODULE + "Photo", 3, 2, 4, 1, bands, weights_bands=weights_bands)
    if not message:
        assert architecture.build()
        return
    with pytest.raises(UsageError) as caught:
        architecture.build()
    assert message in str(caught.value)


def test_a_first_layer_of_another_number_of_channels_is_refused() -> None:
    architecture = Architecture(MODULE + "Photo", 3, 2, 4, 1, RGB, ("in_channels=2",), weights_bands=RGB)
    with pytest.raises(UsageError, match=r"lists 3 bands .* first layer that takes 2 channels"):
        architecture.build()


def test_a_trained_model_is_built_with_the_bands_of_its_weights(tmp_path: Path) -> None:
    bands = ("blue", "green", "red", "nir")
    architecture = Architecture(MODULE + "Photo", 4, 2, 4, 1, bands, weights_bands=RGB)
    trained = TrainedModel(architecture, bands, ("a", "b"), Normaliser((0.0,) * 4, (1.0,) * 4), 16)
    write_model_folder(tmp_path, trained, architecture.build().state_dict(), [], {})
    assert read_trained_model(tmp_path).architecture == architecture
    assert read_trained_model(tmp_path, MODULE + "Photo").build(tmp_path)(torch.zeros(1, 4, 8, 8)).shape == (1, 2, 8, 8)


# Unit and normalisation

OF_CHIPS = Normaliser((0.05, 0.08, 0.1, 0.3), (0.02, 0.03, 0.04, 0.1))
BANDS = ("blue", "green", "red", "nir")


def weights(**changes: Any) -> Settings:
    declared = {"weights_bands": RGB, "weights_mean": (0.485, 0.456, 0.406), "weights_std": (0.229, 0.224, 0.225)}
    return Settings(architecture="my:Net", **declared | changes)


def test_bands_that_the_weights_know_have_the_normalisation_that_they_expect() -> None:
    normaliser = weights_normaliser(OF_CHIPS, BANDS, weights())
    assert normaliser.mean == (0.406, 0.456, 0.485, 0.3)
    assert normaliser.std == (0.225, 0.224, 0.229, 0.1)
    assert weights_normaliser(OF_CHIPS, BANDS, Settings()) == OF_CHIPS
    assert weights_normaliser(OF_CHIPS, BANDS, weights(weights_mean=(), weights_std=())) == OF_CHIPS


def test_the_unit_of_the_weights_is_converted() -> None:
    numbers = {"weights_mean": (1100.0, 900.0, 600.0), "weights_std": (500.0, 400.0, 300.0)}
    normaliser = weights_normaliser(OF_CHIPS, BANDS, weights(**numbers, weights_scale=10000.0))
    np.testing.assert_allclose(normaliser.mean, (0.06, 0.09, 0.11, 0.3))
    np.testing.assert_allclose(normaliser.std, (0.03, 0.04, 0.05, 0.1))


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e8])
def test_another_unit_than_declared_is_refused_with_both_numbers(scale: float) -> None:
    numbers = {"weights_mean": (1100.0, 900.0, 600.0), "weights_std": (500.0, 400.0, 300.0)}
    with pytest.raises(BadInputError, match=r"red is 0\.1 ± 0\.04, not .*; set train\.weights_scale"):
        weights_normaliser(OF_CHIPS, BANDS, weights(**numbers, weights_scale=scale))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (weights(weights_std=()), "train.weights_mean and train.weights_std need one number per band"),
        (weights(weights_mean=(1.0,), weights_std=(1.0,)), "train.weights_mean has 1 numbers for the 3 bands"),
        (weights(weights_bands=()), "weights_scale need train.weights_bands"),
        (replace(weights(), architecture="unet"), "train.weights_bands is for pretrained weights of a custom model"),
    ],
)
def test_incomplete_declarations_are_told(settings: Settings, sentence: str) -> None:
    assert any(sentence in text for text in settings.conflicts())


def test_settings_without_effect_decide_nothing() -> None:
    assert not [name for name in Settings().deciding() if name.startswith("weights_")]
    assert weights().conflicts() == []
    assert weights().deciding()["weights_bands"] == RGB
