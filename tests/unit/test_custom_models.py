"""Models of a user: beside the config, identified by their files, built from a copy, and reported as the user's."""

import importlib.metadata
import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from builders import describe_model, save_model
from safetensors.torch import save_file
from stac_schemas import schema_errors

from eopipe.arguments import parse
from eopipe.cli import report_error
from eopipe.config import check
from eopipe.contract import stage
from eopipe.errors import IntegrityError, ModelCodeError, UsageError
from eopipe.launch.failures import classify
from eopipe.models import Architecture
from eopipe.models.model_files import (
    copy_files,
    find_model_files,
    libraries,
    list_files,
    portable_names,
    read_arguments,
    resolved_arguments,
)
from eopipe.models.model_folder import read_model_card, read_trained_model
from eopipe.run import rules
from eopipe.scenes.item import read_item
from eopipe.training.model_checks import dry_run

NET = """\
from torch import nn
from blocks import Block

class Net(nn.Module):
    def __init__(self, bands, classes, scale=1.0):
        super().__init__()
        self.block = Block(bands, classes, scale)

    def forward(self, x):
        return self.block(x)
"""
BLOCKS = """\
from torch import nn
import layers.plain

class Block(nn.Module):
    def __init__(self, bands, classes, scale):
        super().__init__()
        self.conv = layers.plain.conv(bands, classes)
        self.scale = scale

    def forward(self, x):
        from layers.curves import curve
        return curve(self.conv(x)) * self.scale
"""
PLAIN = "from torch import nn\n\ndef conv(bands, classes):\n    return nn.Conv2d(bands, classes, 1)\n"
CURVES = "from .plain import conv\nfrom torch import relu as curve\n"


CONFIG = {
    "search": {"catalog": "catalog", "assets": ["blue", "green", "red", "nir", "scl"]},
    "label": {"source": "labels.gpkg", "classes": ["a", "b"]},
    "train": {"architecture": "mymodel:Net"},
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with a model that imports a module and a package beside it, and a file that it does not."""
    folder = tmp_path / "project"
    (folder / "layers").mkdir(parents=True)
    for name, text in {
        "mymodel.py": NET,
        "blocks.py": BLOCKS,
        "layers/__init__.py": "",
        "layers/plain.py": PLAIN,
        "layers/curves.py": CURVES,
        "unrelated.py": "raise RuntimeError('imported')\n",
    }.items():
        (folder / name).write_text(text)
    monkeypatch.chdir(folder)
    return folder


def found_files(architecture: str, *arguments: str, explicit: tuple[Path, ...] = ()) -> list[str]:
    values = {"architecture": architecture, "arguments": arguments, "model_files": explicit}
    return [str(path) for path in find_model_files(values)]


def architecture_of(name: str, *arguments: str) -> Architecture:
    values = {"architecture": name, "arguments": arguments, "model_files": (), "weights_bands": ()}
    values |= {"width": 4, "depth": 1}
    return Architecture.of(stage("train").with_derived(values), ("red", "nir"), 3)


def publish_model(folder: Path, architecture: Architecture) -> Path:
    """A model folder as train writes it."""
    return save_model(folder, describe_model("segmentation", ("a", "b", "c"), architecture=architecture))


@pytest.fixture
def model(project: Path, tmp_path: Path) -> Path:
    """The published model of the project."""
    return publish_model(tmp_path / "model", architecture_of("mymodel:Net"))


# Which files define a model


LIBRARIES = ("unet", "torch.nn:Identity", "transformers:Segformer", "eopipe.models.networks:UNet")


@pytest.mark.parametrize(
    ("name", "names"),
    [
        *((name, ["blocks.py", "layers", "mymodel.py"]) for name in ("mymodel:Net", "mymodel.py:Net")),
        ("layers.plain:conv", ["layers"]),
        ("models/mymodel.py:Net", ["models/blocks.py", "models/layers", "models/mymodel.py"]),
        ("elsewhere_net:conv", ["../elsewhere_net.py"]),
        *((name, []) for name in LIBRARIES),
    ],
)
def test_the_files_of_a_model_are_its_module_and_all_beside_it_that_it_imports(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, names: list[str]
) -> None:
    shutil.copytree(project, project / "models")
    (tmp_path / "elsewhere_net.py").write_text(PLAIN)
    monkeypatch.syspath_prepend(tmp_path)
    assert found_files(name) == [file.replace("..", str(tmp_path)) for file in names]


def test_files_and_folders_among_the_arguments_are_files_of_the_model(project: Path) -> None:
    (project / "w.safetensors").touch()
    (project / "encoder").mkdir()
    (project / "encoder/config.json").write_text("{}")
    (project / "resnet18").mkdir()
    arguments = ("weights=w.safetensors", 'more={"path": ["./encoder"]}', "name=resnet18", "size=0.5", "tag=a.b")
    assert found_files("torch.nn:Identity", *arguments) == ["w.safetensors", "encoder"]
    with pytest.raises(UsageError, match=r"train.arguments has weights=v.safetensors, but there is no such file in"):
        found_files("torch.nn:Identity", "weights=v.safetensors")
    with pytest.raises(UsageError, match=r"train.architecture names net.py, but there is no such file in"):
        found_files("net.py:Net")
    # The folder of the project itself is never one.
    assert found_files("torch.nn:Identity", "root=./", "top=../") == []


def test_listed_files_are_not_looked_for_again(project: Path, tmp_path: Path) -> None:
    for words in (("mymodel:Net",), ("torch.nn:Identity", "weights=sub/w.safetensors")):
        staged = tmp_path / "stage" / words[-1].rpartition("/")[2].replace("mymodel:Net", "mymodel.py")
        assert found_files(*words, explicit=(staged,)) == [str(staged)]


def test_the_command_line_the_config_and_the_rule_get_the_same_files(project: Path) -> None:
    required = ["--tiles", "t", "--labels", "l", "--chips", "c", "--statistics", "s", "--model", "m"]
    values = parse(stage("train"), [*required, "--architecture", "mymodel:Net"])
    assert values["model_files"] == (Path("blocks.py"), Path("layers"), Path("mymodel.py"))
    config = check(CONFIG)
    assert config["train"]["model_files"] == values["model_files"]
    layers = [f"layers/{name}.py" for name in ("__init__", "curves", "plain")]
    assert rules.named_files(config, "train")["model_files"] == ["blocks.py", *layers, "mymodel.py"]
    assert "--model-files blocks.py layers mymodel.py" in rules.options(config, "train")
    config["train"]["architecture"] = "unet"
    assert "libraries" not in rules.params_for(config, "train")


def test_a_folder_to_fine_tune_is_watched_by_its_manifest(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").touch()
    config = check(CONFIG | {"train": {"init": str(tmp_path)}})
    assert rules.named_files(config, "train") == {"init": str(tmp_path / "manifest.json")}


def test_names_are_the_same_wherever_the_files_are_and_two_files_of_one_are_refused(project: Path) -> None:
    (project / "sub").mkdir()
    weights = project / "sub" / "w.safetensors"
    weights.touch()
    (project / "sub/encoder").mkdir()
    (project / "sub/encoder/config.json").touch()
    arguments = (f"weights={weights}", 'both=["sub/w.safetensors", "a/b"]', "scale=2", "encoder=sub/encoder")
    files = list_files((Path("mymodel.py"), weights, Path("sub/encoder")), "mymodel.py:Net", arguments)
    assert [file.name for file in files] == ["files/encoder/config.json", "code/mymodel.py", "files/w.safetensors"]
    name, portable = portable_names(str(project / "mymodel.py:Net"), arguments, files)
    assert name == "mymodel.py:Net"
    assert portable == ("weights=w.safetensors", 'both=["w.safetensors", "a/b"]', "scale=2", "encoder=./encoder")
    values = {"weights": str(weights), "both": [str(weights), "a/b"], "scale": 2}
    assert resolved_arguments(portable, files) == values | {"encoder": str(project / "sub/encoder")}
    with pytest.raises(UsageError, match=r"several files mymodel\.py; rename"):
        list_files((Path("mymodel.py"), Path("layers/mymodel.py")), "mymodel:Net", ())


def test_libraries_are_those_that_the_code_imports(project: Path) -> None:
    pytest.importorskip("peft")
    peft = importlib.metadata.version("peft")
    (project / "blocks.py").write_text("import peft, torch, json\n" + BLOCKS)
    assert libraries("mymodel:Net", (Path("blocks.py"), Path("mymodel.py")))["peft"] == peft
    assert libraries("unet", ()) == {}
    # transformers does not need torch, but peft does.
    for items in ((), (Path("layers"),)):
        assert libraries("transformers:Segformer", items).keys() == {"transformers"}
    assert "transformers" not in libraries("peft:Model", ())


# Built from the copy


def test_a_model_is_built_without_the_python_path(project: Path) -> None:
    before = list(sys.path)
    model = architecture_of("mymodel:Net", "scale=2").build()
    assert model(torch.zeros(1, 2, 4, 4)).shape == (1, 3, 4, 4)
    assert sys.path == before
    assert not {"mymodel", "blocks", "layers", "unrelated"} & sys.modules.keys()
    assert not list(project.rglob("__pycache__"))


def test_two_versions_of_one_module_are_in_a_process(project: Path) -> None:
    x, old = torch.full((1, 2, 1, 1), 30.0), architecture_of("mymodel:Net").build()
    before = old(x)
    (project / "layers/curves.py").write_text("from torch import tanh as curve\n")
    new = architecture_of("mymodel:Net").build()
    new.load_state_dict(old.state_dict())
    after = new(x)
    assert torch.equal(old(x), before)
    assert not torch.equal(after, before)
    assert float(after.detach().abs().max()) <= 1


def test_a_published_model_does_not_change_with_the_users_files(project: Path, tmp_path: Path) -> None:
    save_file({"w": torch.full((1,), 3.0)}, "w.safetensors")
    (project / "mymodel.py").write_text(
        NET.replace("scale=1.0):", "weights):").replace("scale)", "float(load_file(weights)['w']))")
        + "\nfrom safetensors.torch import load_file\n"
    )
    architecture = architecture_of("mymodel:Net", "weights=w.safetensors")
    expected = architecture.build().eval()
    model = publish_model(tmp_path / "model", architecture)
    expected.load_state_dict(read_trained_model(model, "mymodel:Net").build(model).state_dict())
    x = torch.rand(1, 2, 8, 8)
    (project / "blocks.py").unlink()
    (project / "w.safetensors").unlink()
    (project / "mymodel.py").write_text("raise RuntimeError('imported')")
    trained = read_trained_model(model, "mymodel:Net")
    assert trained.architecture == architecture
    assert torch.equal(trained.build(model)(x), expected(x))


def test_the_item_of_a_model_lists_its_files_with_their_digests(model: Path) -> None:
    item, architecture = read_item(model / "model.json"), architecture_of("mymodel:Net")
    assert schema_errors(item) == []
    for file in architecture.files:
        asset = item["assets"][file.name]
        assert (asset["href"], asset["file:checksum"]) == (f"./{file.name}", f"1220{file.sha256}")
        assert asset["roles"] == ["mlm:source_code", "code"]
    assert read_model_card(model)["files"] == {file.name: file.sha256 for file in architecture.files}


@pytest.mark.parametrize("name", ["code/mymodel.py", "code/layers/plain.py", "files/w.safetensors"])
def test_a_changed_copy_is_refused_by_its_digest(project: Path, tmp_path: Path, name: str) -> None:
    save_file({"w": torch.zeros(1)}, "w.safetensors")
    model = publish_model(tmp_path / "model", architecture_of("mymodel:Net", "scale=w.safetensors"))
    marker = tmp_path / "executed"
    (model / name).write_text(f"import pathlib; pathlib.Path({str(marker)!r}).touch()")
    with pytest.raises(IntegrityError, match=f"{name} does not have the digest"):
        read_trained_model(model, "mymodel:Net").build(model)
    assert not marker.exists()


def test_files_that_are_not_listed_are_not_imported_and_reading_a_model_runs_none_of_its_code(model: Path) -> None:
    (model / "code/layers/plain").mkdir()
    for name in ("torch.py", "layers/plain/__init__.py"):
        (model / "code" / name).write_text("raise RuntimeError('imported')")
    assert read_trained_model(model, "mymodel:Net").build(model)
    (model / "code/mymodel.py").write_text("raise RuntimeError('imported')")
    assert read_trained_model(model).architecture.name == "mymodel:Net"


def test_workers_get_the_files_in_the_job(project: Path, tmp_path: Path) -> None:
    architecture, folder = architecture_of("mymodel:Net"), tmp_path / "state"
    copies = copy_files(architecture.files, folder)
    assert [file.path for file in copies] == [folder / file.name for file in architecture.files]
    (project / "mymodel.py").write_text("changed")
    with pytest.raises(IntegrityError, match=r"mymodel\.py does not have the digest"):
        copy_files(architecture.files, folder)


# Errors of the user's code

MISTAKES = {
    "name": (NET + "\nx = undefined\n", "mymodel.py line 12: NameError: name 'undefined' is not defined"),
    "syntax": (NET.replace("(self, x):", "(self, x)"), "mymodel.py line 9: SyntaxError: expected ':'"),
    "attribute": ("import torch\n\nclass Net(torch.nn.Modul): pass\n", "mymodel.py line 3: AttributeError: module"),
    "import": ("import nowhere_to_be\n", "mymodel.py line 1: ModuleNotFoundError: No module named 'nowhere_to_be'"),
    "exit": ("import sys\nsys.exit(3)\n", "mymodel.py line 2: SystemExit: 3"),
    "class": ("class Nett: pass\n", "module 'mymodel' has no attribute 'Net'"),
    "construct": (NET.replace("self.block =", "self.none.x ="), "mymodel.py line 7: AttributeError: 'Net' object has"),
    "helper": (NET.replace("scale)", "scale, 4)"), "mymodel.py line 7: TypeError: "),
    "bytes": ("x = '\0'\n", "mymodel.py"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_the_users_code_is_one_sentence_with_file_and_line(project: Path, name: str) -> None:
    text, sentence = MISTAKES[name]
    (project / "mymodel.py").write_text(text)
    with pytest.raises(UsageError, match=f"^model mymodel:Net cannot be .*{re.escape(sentence)}") as caught:
        architecture_of("mymodel:Net").build()
    assert [text for text in ("\n", "eopipe_model") if text in str(caught.value)] == []


def test_an_error_in_a_worker_is_the_models_and_no_bug_but_lack_of_memory_is_not(project: Path) -> None:
    fails = "if x.sum() > 0: raise MemoryError('no memory')\n        return x.reshape(7)"
    (project / "mymodel.py").write_text(NET.replace("return self.block(x)", fails))
    model = architecture_of("mymodel:Net").build()
    failures = []
    for value in (0.0, 1.0):
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            model(torch.full((1, 2, 4, 4), value))
        failures.append(classify(caught.value, Path()))
    assert [(failure.kind, failure.code) for failure in failures] == [("model", 2), ("memory", 6)]
    assert failures[0].reason.startswith("mymodel.py line 11: RuntimeError: shape '[7]' is invalid")


def test_a_failing_forward_is_told_by_the_users_frames_only(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "blocks.py").write_text(BLOCKS.replace("* self.scale", "@ self.scale"))
    architecture = architecture_of("mymodel:Net")
    model = architecture.build()
    frames = (
        "mymodel.py line 10, in forward: return self.block(x)",
        "blocks.py line 12, in forward: return curve(self.conv(x)) @ self.scale",
    )
    message = r"fails with a chip of 2 bands and 8 x 8 pixels: blocks\.py line 12: "
    with pytest.raises(ModelCodeError, match=message) as of_model:
        dry_run(model, architecture, 8, "segmentation")
    assert of_model.value.frames == frames
    with pytest.raises(TypeError) as caught:
        model(torch.zeros(1, 2, 4, 4))
    assert report_error(caught.value) == 2
    *printed, error = capsys.readouterr().err.splitlines()
    assert printed == [f"  {frame}" for frame in frames]
    assert error == "error: blocks.py line 12: TypeError: unsupported operand type(s) for @: 'Tensor' and 'float'"


def test_a_broken_library_is_told_with_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site" / "brokenvision"
    site.mkdir(parents=True)
    (site / "__init__.py").write_text("\nraise RuntimeError('operator nms does not exist\\nsee above')\n")
    monkeypatch.syspath_prepend(site.parent)
    with pytest.raises(UsageError) as caught:
        Architecture("brokenvision:Net", 2, 3, 4, 1).build()
    reason = "RuntimeError: operator nms does not exist (brokenvision/__init__.py line 2)"
    assert str(caught.value) == f"model brokenvision:Net cannot be imported: {reason}"


def test_a_module_that_is_nowhere_is_told_with_the_folder(project: Path) -> None:
    with pytest.raises(UsageError, match=f"neither nomodule.py or nomodule/ is in .*{re.escape(str(project))}"):
        architecture_of("nomodule:Net").build()


def test_values_of_arguments_are_json_or_text() -> None:
    arguments = ("a=1", "b=[1, 2]", "c=true", "d=resnet18", "e=null", "f=a=b", 'g="1"', "h=")
    values = {"a": 1, "b": [1, 2], "c": True, "d": "resnet18", "e": None, "f": "a=b", "g": "1", "h": ""}
    assert read_arguments(arguments) == values
