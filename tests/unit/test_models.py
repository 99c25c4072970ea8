"""Models: receptive fields, arguments, input bands, and frozen parameters."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from eopipe.chips.chips import Normaliser
from eopipe.composites.periods import channels_by_date
from eopipe.errors import UsageError
from eopipe.models import DEFAULT_RADIUS, Architecture
from eopipe.models.build import WrappedModel, freeze
from eopipe.models.model_folder import TrainedModel, read_trained_model, write_model_folder
from eopipe.models.networks import Linear, TemporalAttention
from eopipe.models.onnx import write_onnx
from eopipe.tasks.task import pixel_outputs

SEASONAL = ("red_MAM", "red_JJA", "nir_MAM", "nir_JJA")
BUILT_IN = [
    Architecture("unet", 4, 3, 8, 2, SEASONAL),
    Architecture("convnext", 4, 3, 4, 1, SEASONAL),
    Architecture("convnext", 4, 3, 4, 2, SEASONAL, ("size=atto",)),
    Architecture("temporal", 4, 3, 4, 2, SEASONAL),
    Architecture("linear", 4, 3, 4, 2, SEASONAL),
]
MODULE = f"{__name__}:"


def name_of(value: Any) -> str:
    return f"{value.name}-{value.depth}" if isinstance(value, Architecture) else str(value)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)


def trained(architecture: Architecture) -> TrainedModel:
    bands = SEASONAL[: architecture.bands]
    return TrainedModel(architecture, bands, ("a", "b", "c"), Normaliser((0.0,) * len(bands), (1.0,) * len(bands)), 16)


@pytest.mark.parametrize("architecture", BUILT_IN, ids=name_of)
def test_a_model_sees_no_other_sample_and_as_far_as_it_says(architecture: Architecture) -> None:
    model, radius = architecture.build().double(), architecture.receptive_field_radius
    if isinstance(model, Linear):
        # A fresh one gives 0 everywhere.
        nn.init.normal_(model.weight)
    step = architecture.factor
    edge = -(-(2 * radius + 2 * step + 2) // step) * step
    x = torch.rand(2, 4, edge, edge, dtype=torch.float64, requires_grad=True)
    largest = 0
    for position in (edge // 2, edge // 2 + step - 1):
        (gradient,) = torch.autograd.grad(model(x)[0, 0, position, position], x)
        assert not gradient[1].any()
        rows = gradient[0].abs().sum((0, 2)).nonzero().flatten()
        largest = max(largest, position - int(rows.min()), int(rows.max()) - position)
    assert 0.8 * radius <= largest <= radius


@pytest.mark.parametrize("architecture", BUILT_IN, ids=name_of)
def test_a_window_with_its_halo_gives_what_the_whole_gives(architecture: Architecture) -> None:
    model, step = architecture.build().double(), architecture.factor
    halo = -(-architecture.receptive_field_radius // step) * step
    x = torch.rand(1, 4, 3 * halo + 4 * step, 2 * halo + 4 * step, dtype=torch.float64)
    with torch.inference_mode():
        whole, part = model(x), model(x[..., step : 2 * halo + 3 * step, step : 2 * halo + 3 * step])
    inner = slice(halo, halo + 2 * step)
    outer = slice(halo + step, halo + 3 * step)
    torch.testing.assert_close(part[..., inner, inner], whole[..., outer, outer], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("architecture", BUILT_IN, ids=name_of)
def test_a_model_overfits_four_chips(architecture: Architecture) -> None:
    model = architecture.build()
    y = torch.arange(3).repeat_interleave(4).expand(2, 8, 12)
    # A pattern that is visible in each pixel alone, which the temporal model too can learn.
    x = torch.randn(2, 4, 8, 12) + 4.0 * (y[:, None] == torch.arange(4)[:, None, None])
    optimiser = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(30):
        optimiser.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimiser.step()
    assert all(p.grad is not None and p.grad.any() for p in model.parameters())
    assert float(loss.detach()) < 0.3


@pytest.mark.parametrize("architecture", BUILT_IN, ids=name_of)
@pytest.mark.exhaustive
def test_a_trained_model_is_built_again_from_its_folder_and_exported(
    architecture: Architecture, tmp_path: Path
) -> None:
    import onnxruntime

    card, model = trained(architecture), architecture.build().eval()
    write_model_folder(tmp_path, card, model.state_dict(), [], {})
    again = read_trained_model(tmp_path)
    assert again.architecture == architecture
    x = torch.rand(1, 4, 16, 24)
    with torch.inference_mode():
        expected = model(x).softmax(1)
        assert torch.equal(again.build(tmp_path)(x).softmax(1), expected)
    write_onnx(tmp_path / "model.onnx", again, tmp_path)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    for sizes in ((1, 16, 24), (3, 8, 8)):
        x = torch.rand(sizes[0], 4, *sizes[1:])
        with torch.inference_mode():
            expected = model(x).softmax(1)
        np.testing.assert_allclose(session.run(None, {"image": x.numpy()})[0], expected.numpy(), atol=1e-5)


@pytest.mark.parametrize("name", ["unet", "convnext"])
def test_a_model_folder_of_before_the_spectral_head_gives_the_same_logits(name: str, tmp_path: Path) -> None:
    architecture = Architecture(name, 4, 3, 8, 2, SEASONAL, ("head=linear",))
    model = architecture.build().eval()
    weights = {"unet": ("head.weight", "down.0.0.weight"), "convnext": ("head.weight", "stem.0.weight")}[name]
    assert set(weights) < model.state_dict().keys()
    assert name == "convnext" or "down.0.0.bias" not in model.state_dict()
    write_model_folder(tmp_path, trained(architecture), model.state_dict(), [], {})
    item = json.loads((tmp_path / "model.json").read_text())
    assert '"head=linear"' in json.dumps(item)
    (tmp_path / "model.json").write_text(json.dumps(item).replace('"head=linear"', ""))
    x = torch.rand(1, 4, 16, 24)
    with torch.inference_mode():
        assert torch.equal(read_trained_model(tmp_path).build(tmp_path)(x), model(x))


@pytest.mark.parametrize("name", ["unet", "convnext"])
def test_a_model_sees_how_bright_a_pixel_is(name: str) -> None:
    image = torch.rand(1, 4, 32, 32)

    def difference(head: str) -> float:
        model = Architecture(name, 4, 3, 8, 2, (), (head,)).build()
        with torch.inference_mode():
            return float((model(image) - model(2 * image))[..., 8:-8, 8:-8].abs().max())

    # A convolution without bias, then a division by the deviation over channels: the magnitude is gone.
    assert name == "convnext" or difference("head=linear") < 1e-3
    assert difference("head=spectral") > 0.1
    with pytest.raises(UsageError, match="there is no head deep; use linear, spectral"):
        difference("head=deep")


def test_sizes_of_convnext_grow_and_others_are_refused() -> None:
    counts = []
    for size in ("atto", "tiny", "small"):
        with torch.device("meta"):
            model = Architecture("convnext", 4, 3, 4, 4, (), (f"size={size}",)).build()
        counts.append(sum(p.numel() for p in model.parameters()))
    assert counts == sorted(set(counts))
    with pytest.raises(UsageError, match="convnext has no size huge; use atto, tiny, small"):
        Architecture("convnext", 4, 3, 4, 2, (), ("size=huge",)).build()


def test_looking_at_a_model_changes_no_random_number() -> None:
    before = torch.get_rng_state()
    assert Architecture("unet", 4, 3, 4, 2).factor == 4
    assert torch.equal(torch.get_rng_state(), before)


# Dates


def test_channels_are_sorted_into_dates_by_their_names() -> None:
    assert channels_by_date(("nir_JJA", "red_MAM", "red_JJA", "nir_MAM")) == [[3, 1], [0, 2]]
    assert channels_by_date(("red_10", "red_02")) == [[1], [0]]
    assert (
        channels_by_date(("red", "nir"))
        == channels_by_date(("red_MAM", "nir"))
        == channels_by_date(("b_16", "b_17"))
        == channels_by_date(())
        == []
    )
    with pytest.raises(UsageError, match="the same bands for every date; missing: nir_MAM"):
        channels_by_date(("red_MAM", "red_JJA", "nir_JJA"))


def test_the_order_of_the_bands_in_a_stack_does_not_matter() -> None:
    x, swapped = torch.rand(2, 4, 3, 3), [3, 1, 2, 0]
    # The bands of a date keep the order in which they first come, so only dates are swapped here.
    model = TemporalAttention(4, 2, 4, ("red_MAM", "nir_MAM", "red_JJA", "nir_JJA")).eval()
    other = TemporalAttention(4, 2, 4, ("red_JJA", "nir_JJA", "red_MAM", "nir_MAM")).eval()
    other.load_state_dict(model.state_dict())
    with torch.inference_mode():
        torch.testing.assert_close(other(x[:, [2, 3, 0, 1]]), model(x))
        assert not torch.allclose(model(x[:, swapped]), model(x))


def test_attention_learns_the_only_date_that_decides_the_class() -> None:
    names = tuple(f"{band}_{month:02}" for band in ("red", "nir") for month in range(1, 7))
    model = TemporalAttention(12, 2, 4, names)
    x = torch.randn(1, 12, 16, 16)
    y = (x[:, 3] > 0).long()
    optimiser = torch.optim.AdamW(model.parameters(), 1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    assert float((model(x).argmax(1) == y).float().mean()) > 0.9


# Custom models


class Rgb(nn.Module):
    """As a pretrained model: three bands by default, a smaller map, in a mapping."""

    def __init__(self, in_channels: int = 3, num_classes: int = 21, layers: int = 1, style: str = "plain") -> None:
        super().__init__()
        self.stem = nn.Conv2d(in_channels, 6, 3, 2, 1)
        self.head = nn.Sequential(*(nn.Conv2d(6, 6, 1) for _ in range(layers)), nn.Conv2d(6, num_classes, 1))
        self.style = style

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"aux": x, "out": self.head(self.stem(x))}


class Timm(nn.Conv2d):
    factor, reach = 1, 3

    def __init__(self, in_chans: int, **options: Any) -> None:
        super().__init__(in_chans, options["classes"], 1)


class Row(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(3)


class Vector(nn.Module):
    def __init__(self, bands: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((2, 3))


def no_module(bands: int) -> int:
    return bands


def test_a_custom_model_is_called_with_the_parameters_of_its_signature() -> None:
    architecture = Architecture(MODULE + "Rgb", 5, 4, 8, 2, (), ("layers=3", "style=bold"))
    model = architecture.build()
    assert isinstance(model, WrappedModel)
    assert isinstance(model.model, Rgb)
    assert (model.model.stem.in_channels, len(model.model.head), model.model.style) == (5, 4, "bold")
    assert model(torch.rand(2, 5, 16, 24)).shape == (2, 4, 16, 24), "unwrapped and enlarged"
    assert (architecture.receptive_field_radius, architecture.factor) == (DEFAULT_RADIUS, 4)


def test_a_custom_model_may_state_its_reach_and_factor_and_take_any_argument() -> None:
    architecture = Architecture(MODULE + "Timm", 5, 4, 8, 2, (), ("classes=7",))
    assert architecture.build()(torch.rand(1, 5, 4, 4)).shape == (1, 7, 4, 4)
    assert (architecture.receptive_field_radius, architecture.factor) == (3, 1)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("Rgb", ("colour=1",), "Rgb does not take colour; it takes in_channels, num_classes, layers, style"),
        ("Rgb", ("layers",), "train.arguments layers must be of the form name=value"),
        ("Rgb", ("layers=many",), "cannot be built"),
        ("Vector", ("bands=[]", "a=1"), "does not take a"),
        ("no_module", (), "is not a torch.nn.Module but a function"),
    ],
)
def test_a_model_that_cannot_be_built_gives_one_sentence(name: str, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        Architecture(MODULE + name, 4, 2, 8, 2, (), arguments).build()
    assert "\n" not in str(caught.value)


def test_a_model_without_maps_is_reported_in_one_sentence() -> None:
    with pytest.raises(UsageError, match="where logits of shape"):
        Architecture(MODULE + "Row", 4, 2, 8, 2).build()(torch.rand(1, 4, 4, 4))


def test_a_model_of_whole_chips_has_one_output_for_each_and_none_for_pixels() -> None:
    outputs = Architecture(MODULE + "Vector", 4, 2, 8, 2).build()(torch.rand(3, 4, 4, 4))
    assert outputs.shape[2:] == (1, 1)
    with pytest.raises(UsageError, match=r"that is train\.task classification"):
        pixel_outputs(outputs, torch.zeros(3, 4, 4))


# Frozen parameters


def test_frozen_parameters_stay_and_the_others_are_trained() -> None:
    model = freeze(Architecture(MODULE + "Rgb", 4, 2, 8, 1).build(), ("stem.",))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 0.1)
    model(torch.rand(1, 4, 8, 8)).square().mean().backward()
    optimiser.step()
    same = {name for name, value in model.state_dict().items() if torch.equal(value, before[name])}
    assert same == {"model.stem.weight", "model.stem.bias"}


def test_prefixes_to_freeze_must_exist_and_leave_parameters_to_train() -> None:
    with pytest.raises(UsageError, match="encoder, but no parameter has that prefix; names start with down, head, up"):
        freeze(Architecture("unet", 4, 2, 8, 1).build(), ("encoder",))
    with pytest.raises(UsageError, match="leaves no parameter to train"):
        freeze(Architecture("unet", 4, 2, 8, 1).build(), ("",))


def test_this_module_can_be_imported_by_name() -> None:
    assert sys.modules[__name__].Rgb is Rgb
