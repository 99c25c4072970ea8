"""Models of segmentation-models-pytorch resume to the same weights."""

import os
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name
from projects import ROOT
from safetensors.torch import load_file
from trainings import Training

from eopipe.models.model_folder import read_model_card

FOLDER = ROOT / ".venv/libraries"
ARCHITECTURE = ("--architecture", "segmentation_models_pytorch:Unet", "--depth", "3")
ARGUMENTS = ("encoder_name=resnet18", "encoder_weights=null", "encoder_depth=3", "decoder_channels=[16, 8, 8]")
UNET = ("--epochs", "2", "--processes", "2", *ARCHITECTURE, "--arguments", *ARGUMENTS)

# Layers that smp builds and does not use at a lower depth.
UNUSED = ("encoder.layer3", "encoder.layer4")


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Versions of the libraries that the processes of this test can import."""
    if not (FOLDER / "installed").exists():
        pytest.skip("the libraries are not installed: run `make .venv/libraries`")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER), str(ROOT / "tests/libraries")]))
    return {canonicalize_name(item.name): item.version for item in distributions(path=[str(FOLDER)])}


@pytest.mark.exhaustive
@pytest.mark.launch
def test_a_unet_of_smp_resumes_to_the_same_weights(
    training: Training, libraries: dict[str, str], tmp_path: Path
) -> None:
    whole = replace(training, folder=tmp_path / "whole")
    whole.folder.mkdir()
    completed = whole.run(*UNET, "--freeze", *UNUSED)
    assert completed.returncode == 0, completed.stderr
    card = read_model_card(whole.model)
    software = {canonicalize_name(name): version for name, version in card["software"].items()}
    names = ("segmentation-models-pytorch", "timm")
    assert {name: software[name] for name in names} == {name: libraries[name] for name in names}
    process = training.start(*UNET, "--freeze", *UNUSED, "--checkpoint-every", "1")
    training.wait_for_step(2, process)
    process.kill()
    process.communicate()
    completed = training.run(*UNET, "--freeze", *UNUSED, "--checkpoint-every", "1")
    assert completed.returncode == 0, completed.stderr
    weights, expected = (load_file(model / "model.safetensors") for model in (training.model, whole.model))
    assert weights.keys() == expected.keys()
    assert all(weights[name].equal(value) for name, value in expected.items())


@pytest.mark.exhaustive
@pytest.mark.launch
def test_layers_that_a_model_does_not_use_are_a_mistake_with_its_remedy(
    training: Training, libraries: dict[str, str]
) -> None:
    completed = training.run(*UNET)
    assert completed.returncode == 2, completed.stderr
    assert "some parameters of the model have no influence on its output" in completed.stderr.splitlines()[-1]
    assert "name these layers in train.freeze" in completed.stderr.splitlines()[-1]
