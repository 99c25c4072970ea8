"""An ensemble is one model whose prediction is the mean of those of its members, for every stage behind it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from builders import BANDS, describe_model, predict, save_model, stage, write_scenes
from stac_schemas import schema_errors

import eopipe
from eopipe.arrays import AnyArray
from eopipe.chips.chips import Normaliser
from eopipe.errors import BadInputError
from eopipe.inspection.models import LoadedModel
from eopipe.models import Architecture
from eopipe.models.combine import read_members
from eopipe.models.model_files import list_files
from eopipe.models.model_folder import (
    CARD,
    HISTORY,
    WEIGHTS,
    TrainedModel,
    read_model_card,
    read_trained_model,
    read_weights,
)
from eopipe.models.networks import Ensemble
from eopipe.models.onnx import write_onnx
from eopipe.models.pixel_models import FitOptions, fit
from eopipe.scenes.item import read_item
from eopipe.tasks import TASKS
from eopipe.telemetry.journal import METRICS
from eopipe.training.model_checks import check_init_folder

SEEDS = (0, 1, 2)
NAMES = {
    "segmentation": ("land", "water", "ice"),
    "classification": ("land", "water", "ice"),
    "multilabel": ("land", "water", "ice"),
    "regression": ("height",),
}
NET = """\
from torch import nn

class Net(nn.Module):
    def __init__(self, bands, classes):
        super().__init__()
        self.conv = nn.Conv2d(bands, classes, 3, padding=1)

    def forward(self, x):
        return self.conv(x)
"""


def described(task: str = "segmentation") -> TrainedModel:
    """A small U-Net of a task."""
    return describe_model(task, NAMES[task])


def write_member(path: Path, trained: TrainedModel, seed: int, **options: Any) -> Path:
    """A model folder as a training with this seed writes it, with outputs that are far from those of other seeds."""
    torch.manual_seed(seed)
    weights = trained.architecture.build().state_dict()
    weights |= {name: 8 * tensor for name, tensor in weights.items() if name.startswith("head.2")}
    settings = {"seed": seed, "steps": 100, "learning_rate": 0.004} | options
    history = [{"step": 100 + seed, "val": None, "loss": 0.1}]
    files = {METRICS: f'{{"event": "step", "step": {seed + 1}, "loss": 0.5}}\n'}
    return save_model(path, trained, weights=weights, history=history, settings=settings, files=files)


def write_members(folder: Path, task: str = "segmentation") -> list[Path]:
    return [write_member(folder / f"model-member-{seed}", described(task), seed) for seed in SEEDS]


def combine(target: Path, *members: Path) -> Path:
    assert stage("choose", "--reducer", "mean", "--models", *members, "--model", target) == 0
    return target


def probabilities(task: str, outputs: AnyArray) -> AnyArray:
    """What outputs (N, channel, y, x) mean, without torch."""
    if task == "regression":
        return outputs * 4.0 + 10.0
    outputs = outputs.astype(np.float64)
    if task in ("classification", "multilabel"):
        outputs = outputs.mean((2, 3), keepdims=True)
    if task == "multilabel":
        return 1 / (1 + np.exp(-outputs))
    powers: AnyArray = np.exp(outputs - outputs.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


@pytest.mark.parametrize("task", NAMES)
def test_predictions_are_the_mean_of_those_of_the_members_and_not_of_their_logits(tmp_path: Path, task: str) -> None:
    members = write_members(tmp_path, task)
    trained = read_trained_model(combine(tmp_path / "model", *members))
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(4, len(BANDS), 16, 24)).astype(np.float32))
    module = trained.build(tmp_path / "model")
    with torch.inference_mode():
        actual = TASKS[task].predictions(module(images), trained.target).numpy()
        outputs = np.stack([read_trained_model(path).build(path)(images).numpy() for path in members])
    expected = np.mean([probabilities(task, output) for output in outputs], 0)
    np.testing.assert_allclose(actual, expected, atol=1e-5 if task != "regression" else 1e-4)
    assert isinstance(module, Ensemble)
    assert not module.training
    if task != "regression":
        assert np.abs(probabilities(task, outputs.mean(0)) - expected).max() > 0.02


@pytest.mark.parametrize("task", NAMES)
def test_a_map_of_an_ensemble_is_the_mean_of_the_maps_of_its_members(tmp_path: Path, task: str) -> None:
    tiles, members = write_scenes(tmp_path, 2), write_members(tmp_path, task)
    model = combine(tmp_path / "model", *members)
    maps = [predict(path.with_suffix(".maps"), path, tiles) for path in (model, *members)]
    kind = 0 if task == "regression" else 1
    mapped, *of_members = (image[kind].astype(np.float64) for image in maps)
    # Probabilities are stored in steps of 1/10000.
    np.testing.assert_allclose(mapped[:3] if kind else mapped, np.mean(of_members, 0), atol=1.01 if kind else 1e-4)
    image = np.random.default_rng(1).random((2, 40, 40)).astype(np.float32)
    loaded = [eopipe.load_model(path) for path in (model, *members)]
    in_memory, *of_each = (member.predict(image) for member in loaded)
    np.testing.assert_allclose(in_memory, np.mean(of_each, 0), atol=1e-5 if kind else 1e-4)
    assert [member.members for member in loaded] == [3, 1, 1, 1]


def test_probabilities_near_zero_and_one_stay_finite() -> None:
    outputs = torch.tensor([[-200.0], [200.0], [-200.0]])[:, :, None, None]
    agreeing, mirrored = torch.nn.Identity(), torch.nn.Conv2d(1, 1, 1, bias=False)
    torch.nn.init.constant_(mirrored.weight, -1.0)
    same = Ensemble([agreeing, agreeing], "multilabel")(outputs)
    mixed = Ensemble([agreeing, mirrored], "multilabel")(outputs)
    assert torch.isfinite(same).all()
    np.testing.assert_allclose(same.sigmoid().flatten().tolist(), [0, 1, 0], atol=1e-6)
    np.testing.assert_allclose(mixed.sigmoid().flatten().tolist(), [0.5, 0.5, 0.5], atol=1e-6)


def test_an_output_of_a_member_that_is_not_finite_is_not_hidden() -> None:
    good, bad = torch.nn.Conv2d(1, 2, 1), torch.nn.Conv2d(1, 2, 1)
    torch.nn.init.constant_(bad.weight, torch.nan)
    for task in NAMES:
        assert torch.isnan(
            TASKS[task].predictions(Ensemble([good, bad], task)(torch.ones(1, 1, 2, 2)), (0.0, 1.0))
        ).all()


def test_the_order_of_members_changes_nothing_but_rounding_and_the_same_order_no_byte(tmp_path: Path) -> None:
    members = write_members(tmp_path)
    first, again = combine(tmp_path / "a", *members), combine(tmp_path / "b", *members)
    for path in sorted(path.relative_to(first) for path in first.rglob("*") if path.is_file()):
        assert (first / path).read_bytes() == (again / path).read_bytes(), path
    reverse = combine(tmp_path / "c", *reversed(members))
    image = np.random.default_rng(1).random((2, 40, 40)).astype(np.float32)
    one_way, other_way = (eopipe.load_model(path).predict(image) for path in (first, reverse))
    np.testing.assert_allclose(one_way, other_way, atol=1e-6)


def test_the_folder_says_what_it_is_and_has_the_histories_of_all_members(tmp_path: Path) -> None:
    members = write_members(tmp_path)
    model = combine(tmp_path / "model", *members)
    item, card, first = read_item(model / CARD), read_model_card(model), read_model_card(members[0])
    assert schema_errors(item) == []
    assert item["properties"]["eopipe:members"] == 3
    sentence = "Ensemble of 3 models with different seeds, whose predictions are averaged, of the task segmentation,"
    assert item["properties"]["description"].startswith(sentence)
    assert card["parameters"] == 3 * first["parameters"]
    assert card["settings"] == {"seeds": [0, 1, 2], "steps": 100, "learning_rate": 0.004}
    same = set(first) - {"parameters", "settings"}
    assert {name: card[name] for name in same} == {name: first[name] for name in same}
    assert read_trained_model(model) == replace(read_trained_model(members[0]), members=3)
    for number, path in enumerate(members):
        for name in (HISTORY, METRICS):
            assert (model / "members" / str(number) / name).read_bytes() == (path / name).read_bytes()
            assert f"members/{number}/{name}" in item["assets"]
    assert (model / HISTORY).read_bytes() == (members[0] / HISTORY).read_bytes()
    assert item["assets"]["members/2/history.json"]["title"] == "history of the training of member 2"
    assert "ensemble" in LoadedModel(model, read_trained_model(model), 1)._repr_html_()
    tensors, of_second = read_weights(model), read_weights(members[1])
    assert {name for name in tensors if name.startswith("members.1.")} == {f"members.1.{name}" for name in of_second}


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", NAMES)
def test_the_onnx_model_of_an_ensemble_gives_what_the_ensemble_gives(tmp_path: Path, task: str) -> None:
    tiles, model = write_scenes(tmp_path, 1)[0], combine(tmp_path / "model", *write_members(tmp_path, task))
    onnx, check = tmp_path / "model.onnx", tmp_path / "check.json"
    assert stage("export", "--model", model, "--tiles", tiles, "--onnx", onnx, "--check", check) == 0
    assert json.loads(check.read_text())["largest_difference"] < 1e-5
    session = onnxruntime.InferenceSession(onnx, providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map["members"] == "3"


def test_a_custom_model_keeps_its_files_and_needs_permission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(NET)
    files = list_files([Path("net.py")], "net.py:Net", ())
    architecture = Architecture("net.py:Net", len(BANDS), 3, 4, 1, BANDS, (), files)
    trained = replace(described(), architecture=architecture)
    members = [write_member(tmp_path / f"m{seed}", trained, seed) for seed in (0, 1)]
    model, tiles = combine(tmp_path / "model", *members), write_scenes(tmp_path, 1)
    assert (model / "code/net.py").read_text() == NET
    words = ["predict", "--model", model, "--tiles", *tiles, "--classes", "c.tif", "--probabilities", "p.tif"]
    assert stage(*words) != 0
    assert "--allow-code" in capsys.readouterr().err
    maps = [
        predict(path.with_suffix(".maps"), path, tiles, "--allow-code", "net.py:Net")[1] for path in (model, *members)
    ]
    np.testing.assert_allclose(maps[0][:3], np.mean(maps[1:], 0), atol=1.01)


def other(**changes: Any) -> TrainedModel:
    trained = described()
    sizes = {name: changes.pop(name) for name in ("width", "depth") if name in changes}
    return replace(trained, architecture=replace(trained.architecture, **sizes), **changes)


@pytest.mark.parametrize(
    ("trained", "message"),
    [
        (other(bands=("red", "swir")), "bands is ['red', 'nir'] there and ['red', 'swir'] here"),
        (other(classes=("land", "water", "snow")), "classes is"),
        (other(normaliser=Normaliser((0.2, 0.3), (0.1, 0.1))), "mean is"),
        (other(normaliser=Normaliser((0.2, 0.2), (0.1, 0.2))), "std is"),
        (other(chip=16), "chip is 8 there and 16 here"),
        (other(task="classification"), "task is segmentation there and classification here"),
    ],
)
def test_members_of_other_data_are_refused(
    tmp_path: Path, trained: TrainedModel, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = write_member(tmp_path / "first", described(), 0), write_member(tmp_path / "second", trained, 1)
    assert stage("choose", "--reducer", "mean", "--models", *paths, "--model", tmp_path / "model") == BadInputError.code
    error = capsys.readouterr().err
    assert f"{paths[1]} does not fit {paths[0]}" in error
    assert message in error
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("place", range(4))
def test_a_member_at_any_place_that_differs_from_the_others_is_refused(place: int, tmp_path: Path) -> None:
    members = [write_member(tmp_path / f"m{n}", described(), n) for n in range(4)]
    assert [member.folder for member in read_members(members)] == members
    different = write_member(tmp_path / "other", other(chip=16), 9)
    models = [*members[:place], different, *members[place + 1 :]]
    pair = models[place or 1], models[0]
    with pytest.raises(BadInputError, match=f"^{pair[0]} does not fit {pair[1]}, the first member: "):
        read_members(models)


def of_kinds(folder: Path, task: str) -> list[Path]:
    """Members of three kinds: a small and a large U-Net, and a forest of stumps."""
    trained = described(task)
    large = replace(trained, architecture=Architecture("unet", len(BANDS), len(trained.classes), 8, 2))
    forest = replace(trained, architecture=Architecture("forest", len(BANDS), len(trained.classes), 4, 1))
    features = np.random.default_rng(5).normal(size=(50, 6)).astype(np.float32)
    truth = np.arange(50) % 3 if task == "segmentation" else features[:, 0]
    arrays = fit("forest", features, truth, 3 if task == "segmentation" else 0, FitOptions(2))
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    path = save_model(folder / "forest", forest, weights=tensors, settings={"seed": 2, "max_pixels": 50})
    return [write_member(folder / "small", trained, 0), write_member(folder / "large", large, 1, width=8), path]


@pytest.mark.parametrize("task", ["segmentation", pytest.param("regression", marks=pytest.mark.exhaustive)])
def test_members_of_several_kinds_are_one_model(tmp_path: Path, task: str) -> None:
    members = of_kinds(tmp_path, task)
    model = combine(tmp_path / "model", *members)
    trained = read_trained_model(model)
    assert [kind.name for kind in trained.kinds] == ["unet", "unet", "forest"]
    assert (trained.factor, trained.members) == (4, 3)
    card = read_model_card(model)
    assert card["settings"] == {"seeds": [0, 1, 2]}, "settings that differ are left out"
    item = read_item(model / CARD)
    assert "Ensemble of 3 models of several kinds: unet, unet, forest" in item["properties"]["description"]
    assert schema_errors(item) == []
    images = torch.from_numpy(np.random.default_rng(0).normal(size=(4, len(BANDS), 16, 24)).astype(np.float32))
    with torch.inference_mode():
        actual = TASKS[task].predictions(trained.build(model)(images), trained.target).numpy()
        outputs = np.stack([read_trained_model(path).build(path)(images).numpy() for path in members])
    expected = np.mean([probabilities(task, output) for output in outputs], 0)
    np.testing.assert_allclose(actual, expected, atol=1e-5 if task != "regression" else 1e-4)
    write_onnx(tmp_path / "model.onnx", trained, model)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    physical = images.numpy() * 0.1 + 0.2
    (exported,) = session.run(None, {"image": physical})
    np.testing.assert_allclose(exported, actual, atol=1e-4 if task != "regression" else 1e-3)


def test_kinds_that_do_not_fit_the_number_of_members_or_no_training_has_are_refused(tmp_path: Path) -> None:
    model = combine(tmp_path / "model", *of_kinds(tmp_path, "segmentation"))
    kinds = json.loads((model / CARD).read_text())["properties"]["eopipe:kinds"]
    for change, message in (
        (kinds[:2], "it has 2 kinds for 3 members"),
        ([*kinds[:2], kinds[2] | {"width": 0}], "width has 0"),
    ):
        changed(model, lambda properties, change=change: properties.update({"eopipe:kinds": change}))
        with pytest.raises(BadInputError, match=message):
            read_trained_model(model)


@pytest.mark.parametrize(
    ("changes", "options"),
    [({"target": (10.0, 5.0)}, "target"), ({"unit": "cm"}, "unit"), ({"min_share": 0.4}, "min_share")],
)
def test_members_of_another_scale_are_refused(
    tmp_path: Path, changes: dict[str, Any], options: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trained = described("multilabel" if options == "min_share" else "regression")
    paths = (
        write_member(tmp_path / "first", trained, 0),
        write_member(tmp_path / "second", replace(trained, **changes), 1),
    )
    assert stage("choose", "--reducer", "mean", "--models", *paths, "--model", tmp_path / "model") == BadInputError.code
    assert f"{options} is" in capsys.readouterr().err


def test_one_model_the_same_weights_twice_and_an_ensemble_are_no_members(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    members = write_members(tmp_path)
    twin = write_member(tmp_path / "twin", described(), 1)
    ensemble = combine(tmp_path / "model", *members)
    for models, message in (
        (members[:1], "an ensemble has 2 to 64 members, not 1"),
        ([*members, twin], f"{members[1]} and {twin} have the same weights"),
        ([members[0], ensemble], f"{ensemble} is an ensemble itself"),
    ):
        assert stage("choose", "--reducer", "mean", "--models", *models, "--model", tmp_path / "again") != 0
        assert message in capsys.readouterr().err
        assert not (tmp_path / "again").exists()


def changed(model: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A model whose item someone has changed."""
    item = json.loads((model / CARD).read_text())
    change(item["properties"])
    (model / CARD).write_text(json.dumps(item))
    return model


@pytest.mark.parametrize(
    ("count", "message"),
    [(10**9, "members has 1000000000"), (65, "members has 65"), (0, "that no model has"), ("3", "that no model has")],
)
def test_an_absurd_number_of_members_is_refused(tmp_path: Path, count: object, message: str) -> None:
    model = combine(tmp_path / "model", *write_members(tmp_path))
    changed(model, lambda properties: properties.update({"eopipe:members": count}))
    with pytest.raises(BadInputError, match=message):
        read_trained_model(model)


@pytest.mark.parametrize("count", [2, 64])
def test_weights_of_another_number_of_members_are_refused_before_any_memory_is_allocated(
    tmp_path: Path, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = combine(tmp_path / "model", *write_members(tmp_path))
    changed(model, lambda properties: properties.update({"eopipe:members": count}))
    trained, devices = read_trained_model(model), list[str]()
    build = Architecture.build

    def recorded(architecture: Architecture) -> torch.nn.Module:
        module = build(architecture)
        devices.append(next(module.parameters()).device.type)
        return module

    monkeypatch.setattr(Architecture, "build", recorded)
    with pytest.raises(BadInputError, match=r"do not fit its model\.json"):
        trained.build(model)
    assert devices == ["meta"] * count


def test_a_training_does_not_start_from_an_ensemble(tmp_path: Path) -> None:
    members = write_members(tmp_path)
    check_init_folder(members[0])
    with pytest.raises(BadInputError, match=r"is an ensemble of 3 models, .* give train.init the model folder of one"):
        check_init_folder(combine(tmp_path / "model", *members))


def test_damaged_weights_of_a_member_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    members = write_members(tmp_path)
    content = (members[1] / WEIGHTS).read_bytes()
    (members[1] / WEIGHTS).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert stage("choose", "--reducer", "mean", "--models", *members, "--model", tmp_path / "model") != 0
    assert "model.safetensors has other content than the manifest says" in capsys.readouterr().err
