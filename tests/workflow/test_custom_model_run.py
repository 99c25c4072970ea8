"""A custom model from the project folder to the crate, its rerun without that folder, and its training under CWL."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import yaml
from projects import DAYS, ROOT, Project, cwltool, environment
from safetensors.torch import save_file

from eopipe.publish import sha256
from eopipe.text_files import read_json

# They share the run.
pytestmark = pytest.mark.exhaustive(by="custom model")
NET = """\
import torch
from layers.convolution import conv
from safetensors.torch import load_file

class Net(torch.nn.Module):
    factor, reach = 1, 1

    def __init__(self, bands, classes, weights):
        super().__init__()
        self.conv = conv(bands, classes)
        self.scale = load_file(weights)["scale"]

    def forward(self, x):
        return torch.relu(self.conv(x)) * self.scale
"""
CONVOLUTION = "from torch import nn\n\ndef conv(bands, classes):\n    return nn.Conv2d(bands, classes, 3, padding=1)\n"
TRAIN = {"epochs": 1, "batch": 8, "architecture": "mymodel.py:Net", "arguments": ["weights=w.safetensors"]}
COPIES = ("code/layers/__init__.py", "code/layers/convolution.py", "code/mymodel.py", "files/w.safetensors")


@pytest.fixture(scope="module")
def custom(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished project with a model of its own: a module, a package that it imports, and a file of weights."""
    folder = tmp_path_factory.mktemp("custom")
    (folder / "sample").symlink_to(ROOT / "sample")
    (folder / "layers").mkdir()
    (folder / "layers/__init__.py").touch()
    (folder / "layers/convolution.py").write_text(CONVOLUTION)
    (folder / "mymodel.py").write_text(NET)
    save_file({"scale": torch.full((1,), 2.0)}, folder / "w.safetensors")
    project = Project(folder)
    project.write(search={"ids": [f"S2_ROMANIA_{day}" for day in DAYS[:2]]}, train=TRAIN)
    result = project.run("--show-failed-logs")
    assert result.returncode == 0, result.stdout
    return project


def test_the_crate_has_the_files_of_the_model_and_who_read_them(custom: Project) -> None:
    crate = custom.results / "crate"
    graph = {entity["@id"]: entity for entity in read_json(crate / "ro-crate-metadata.json")["@graph"]}
    for name in COPIES:
        assert graph[f"model/{name}"]["sha256"] == sha256(crate / "model" / name)
    inputs = {reference["@id"] for reference in graph["#job/train"]["object"]}
    assert {"model/code/mymodel.py", "model/files/w.safetensors"} <= inputs
    versions = {entity["name"] for name, entity in graph.items() if name.startswith("#library/")}
    assert "safetensors" in versions


def test_the_crate_is_rerun_without_the_files_of_the_user(custom: Project, tmp_path: Path) -> None:
    shutil.copytree(custom.results / "crate", tmp_path / "crate")
    # Another model of that name is not looked at.
    (tmp_path / "mymodel.py").write_text(NET.replace("relu", "tanh"))
    command = [*custom.command()[:3], "rerun", "crate", "--data", str(ROOT)]
    variables = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=variables)
    assert (refused.returncode, "--allow-code mymodel.py:Net" in refused.stderr) == (8, True), refused.stderr
    assert not (tmp_path / "crate-again").exists()
    only = [*command[:-1], str(custom.results), "--only", "predict"]
    refused = subprocess.run(only, cwd=tmp_path, capture_output=True, text=True, check=False, env=variables)
    assert "predict of crate names code to run, mymodel.py:Net" in refused.stderr
    assert (refused.returncode, (tmp_path / "crate-again").exists()) == (8, False)
    command += ["--allow-code", "mymodel.py:Net"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=variables)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "identical: " in result.stdout.splitlines()[-1]
    again = tmp_path / "crate-again/train/model"
    assert [sha256(again / name) for name in COPIES] == [sha256(custom.results / "model" / name) for name in COPIES]


def test_cwl_stages_the_files_and_gives_the_same_model(custom: Project, tmp_path: Path) -> None:
    results, project = custom.results, custom.folder
    stores = sorted((results / "tiles").glob("*.zarr"))
    json_format = "https://www.iana.org/assignments/media-types/application/json"
    config = yaml.safe_load((project / "config.yaml").read_text())["train"]
    job = config | {
        "tiles": [{"class": "Directory", "path": str(path)} for path in stores],
        "labels": [{"class": "Directory", "path": str(results / "labels/all.zarr")}],
        "chips": {"class": "File", "path": str(results / "split.json"), "format": json_format},
        "statistics": {"class": "File", "path": str(results / "statistics.json"), "format": json_format},
        "model_files": [
            {"class": "Directory", "path": str(project / "layers")},
            *({"class": "File", "path": str(project / name)} for name in ("mymodel.py", "w.safetensors")),
        ],
    }
    (tmp_path / "job.yml").write_text(yaml.safe_dump(job))
    cwltool("--outdir", tmp_path / "out", ROOT / "cwl/train.cwl", "job.yml", cwd=tmp_path)
    assert sha256(tmp_path / "out/model/manifest.json") == sha256(results / "model/manifest.json")


@pytest.mark.parametrize("name", ["layers/convolution.py", "mymodel.py", "w.safetensors"])
def test_an_edit_of_any_file_of_the_model_reruns_the_training_and_what_follows(custom: Project, name: str) -> None:
    path = custom.folder / name
    content, status = path.read_bytes(), path.stat()
    try:
        if path.suffix == ".py":
            path.write_text(path.read_text().replace("padding=1", "padding=1, bias=False").replace("relu", "tanh"))
        else:
            save_file({"scale": torch.full((1,), 3.0)}, path)
        rules = custom.planned()
    finally:
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert {"train", "predict", "evaluate", "export", "report", "crate"} <= set(rules)
    assert not {"search", "fetch", "preprocess", "label", "split"} & set(rules)


def test_damage_of_the_copy_is_reported_by_verify(custom: Project, tmp_path: Path) -> None:
    shutil.copytree(custom.results / "model", tmp_path / "model")
    (tmp_path / "model/code/mymodel.py").write_text(NET.replace("relu", "tanh"))
    command = [*custom.command()[:3], "verify", str(tmp_path / "model")]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment())
    assert result.returncode == 4
    assert "code/mymodel.py" in result.stdout + result.stderr
