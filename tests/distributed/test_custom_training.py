"""A model beside the config is trained, mapped and exported from a copy of its files."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import warm
from safetensors.torch import load_file, save_file
from trainings import Training

from eopipe.models.model_folder import read_model_card
from eopipe.publish import sha256, write_manifest
from eopipe.text_files import read_json

NET = """\
import torch
from blocks import conv
from safetensors.torch import load_file

class Net(torch.nn.Module):
    def __init__(self, bands, classes, weights):
        super().__init__()
        self.conv = conv(bands, classes)
        self.scale = load_file(weights)["scale"]

    def forward(self, x):
        return torch.relu(self.conv(x)) * self.scale
"""
BLOCKS = "from torch import nn\n\ndef conv(bands, classes):\n    return nn.Conv2d(bands, classes, 3, padding=1)\n"
OPTIONS = ("--epochs", "1", "--processes", "2", "--architecture", "mymodel:Net", "--arguments", "weights=w.safetensors")


@dataclass(frozen=True)
class Folder:
    """A project folder with a custom model, in which stages run without PYTHONPATH."""

    path: Path
    training: Training

    def run(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        command = [warm.python(), "-m", "eopipe", *map(str, arguments)]
        variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            command, cwd=self.path, capture_output=True, text=True, timeout=180, check=False, env=variables
        )

    def train(self, *options: str) -> "subprocess.CompletedProcess[str]":
        return self.run(*self.training.command(*OPTIONS, *options)[3:])

    def predict(self, model: Path, name: str, code: str = "mymodel:Net") -> "subprocess.CompletedProcess[str]":
        maps = ("--classes", self.path / f"{name}.tif", "--probabilities", self.path / f"{name}-p.tif")
        return self.run(
            "predict", "--model", model, "--tiles", self.training.data.tiles[0], *maps, "--allow-code", code
        )


@pytest.fixture
def folder(training: Training, tmp_path: Path) -> Folder:
    project = tmp_path / "project"
    project.mkdir()
    (project / "mymodel.py").write_text(NET)
    (project / "blocks.py").write_text(BLOCKS)
    save_file({"scale": torch.full((1,), 2.0)}, project / "w.safetensors")
    training.settings = ()
    return Folder(project, training)


@pytest.mark.exhaustive
def test_a_model_beside_the_config_is_mapped_from_its_copy_whatever_the_user_edits(folder: Folder) -> None:
    completed = folder.train()
    assert completed.returncode == 0, completed.stderr
    model = folder.training.model
    names = ["code/blocks.py", "code/mymodel.py", "files/w.safetensors"]
    assert read_model_card(model)["files"] == {name: sha256(folder.path / name.partition("/")[2]) for name in names}
    record = read_json(model.with_name("model.run.json"))
    inputs = {row["name"]: row["sha256"] for row in record["inputs"] if row["port"] == "model_files"}
    assert inputs == {name: sha256(folder.path / name) for name in ("blocks.py", "mymodel.py", "w.safetensors")}
    assert "safetensors" in record["software"]
    assert folder.predict(model, "before").returncode == 0
    (folder.path / "mymodel.py").write_text(NET.replace("relu", "tanh"))
    (folder.path / "blocks.py").unlink()
    save_file({"scale": torch.full((1,), 7.0)}, folder.path / "w.safetensors")
    assert folder.predict(model, "after").returncode == 0
    assert sha256(folder.path / "after-p.tif") == sha256(folder.path / "before-p.tif")
    outputs = ("--onnx", folder.path / "m.onnx", "--check", folder.path / "m.json")
    exported = folder.run(
        "export", "--model", model, "--tiles", folder.training.data.tiles[0], *outputs, "--allow-code", "mymodel:Net"
    )
    assert exported.returncode == 0, exported.stderr
    (model / "code/mymodel.py").write_text(NET.replace("relu", "tanh"))
    tampered = folder.predict(model, "tampered")
    assert (tampered.returncode, "code/mymodel.py has other content" in tampered.stderr) == (4, True), tampered.stderr
    # As somebody does who knows the manifest.
    write_manifest(model)
    tampered = folder.predict(model, "tampered")
    assert (tampered.returncode, "does not have the digest" in tampered.stderr) == (4, True), tampered.stderr


def test_an_error_in_a_step_is_the_users_with_its_line_and_no_bug(folder: Folder) -> None:
    (folder.path / "mymodel.py").write_text(
        NET.replace(
            "        return torch.relu", "        assert not self.training, 'never learns'\n        return torch.relu"
        )
    )
    completed = folder.train()
    assert completed.returncode == 2, completed.stderr
    assert completed.stderr.splitlines()[-1] == "error: mymodel.py line 12: AssertionError: never learns"
    assert "mymodel.py line 12, in forward: assert not self.training, 'never learns'" in completed.stderr
    assert "Traceback" not in completed.stderr
    assert "bug" not in completed.stderr


def test_a_mistake_in_the_file_ends_the_command_at_once_with_its_line(folder: Folder) -> None:
    (folder.path / "blocks.py").write_text(BLOCKS.replace("nn.Conv2d", "nn.Conv2D"))
    completed = folder.train()
    assert completed.returncode == 2, completed.stderr
    line = "error: model mymodel:Net cannot be built: blocks.py line 4: AttributeError: module 'torch.nn' has no "
    assert completed.stderr.splitlines()[-1].startswith(line)
    assert "mymodel.py line 8, in __init__: self.conv = conv(bands, classes)" in completed.stderr
    assert "Traceback" not in completed.stderr
    assert not folder.training.state.exists()


@pytest.mark.exhaustive
def test_weights_of_photographs_in_a_folder_meet_their_bands_and_are_in_the_model(folder: Folder) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_sizes": [8, 16, 16, 16], "depths": [1] * 4, "sr_ratios": [1] * 4, "decoder_hidden_size": 16}
    source = transformers.SegformerForSemanticSegmentation(transformers.SegformerConfig(num_labels=2, **sizes))
    source.save_pretrained(folder.path / "encoder")
    options = ["--architecture", "transformers:SegformerForSemanticSegmentation.from_pretrained"]
    options += ["--freeze", "segformer"]
    options += ["--arguments", "pretrained_model_name_or_path=./encoder", "num_labels=2", "use_safetensors=true"]
    declared = ("--weights-mean", "0.06", "0.08", "0.06", "--weights-std", "0.05", "0.05", "0.05")
    completed = folder.train(*options, "--weights-bands", "red", "green", "blue", *declared)
    assert completed.returncode == 0, completed.stderr
    model = folder.training.model
    card = read_model_card(model)
    assert card["bands"] == ["blue", "green", "red", "nir"]
    assert (card["mean"][:3], card["std"][2]) == ([0.06, 0.08, 0.06], 0.05)
    assert card["software"]["transformers"] == transformers.__version__
    first = next(name for name, layer in source.named_modules() if isinstance(layer, torch.nn.Conv2d))
    kernels = load_file(model / "model.safetensors")[f"model.{first}.weight"]
    original = source.get_parameter(f"{first}.weight").detach()
    expected = torch.cat([original[:, [2, 1, 0]], original.mean(1, keepdim=True)], 1) * 3 / 4
    torch.testing.assert_close(kernels, expected)
    (folder.path / "encoder/model.safetensors").unlink()
    predicted = folder.predict(model, "map", options[1])
    assert predicted.returncode == 0, predicted.stderr
