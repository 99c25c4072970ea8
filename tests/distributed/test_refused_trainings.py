"""What a training refuses before torchrun starts: at once, in one sentence, and with nothing run or written."""

import pickle
import resource
from pathlib import Path

import pytest
from trainings import Training

# Of processor time, which other programs do not change.
AT_ONCE_S = 5.0
MODELS = """
from torch import nn
class Grey(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(1, 2)
    def forward(self, x):
        return self.first(x[:, :1].movedim(1, 3)).movedim(3, 1)[:, :1]
class Unpadded(nn.Conv2d):
    window = 8
    def __init__(self, bands, classes):
        super().__init__(bands, classes, 3)
class Wide(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(13, 2)
    def forward(self, x):
        return self.first(x.movedim(1, 3)).movedim(3, 1)
"""


def spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (("--learning-rate", "fast"), 2, "--learning-rate"),
        (("--deterministic", "--strategy", "fsdp"), 2, "it needs train.strategy ddp"),
        (("--architecture", "own_models:Missing"), 2, "has no attribute 'Missing'"),
        (("--architecture", "own_models:Wide"), 2, "fails with a chip of 4 bands and 16 x 16 pixels"),
        (("--architecture", "own_models:Grey"), 2, "gives (1, 1, 16, 16) instead of (1, 2, 16, 16)"),
        (("--init", "{empty}"), 3, "has no model.json"),
    ],
    ids=["word", "settings", "class", "bands", "classes", "init"],
)
def test_t15_what_cannot_work_is_refused_at_once_before_torchrun(
    training: Training, tmp_path: Path, options: tuple[str, ...], code: int, why: str
) -> None:
    (tmp_path / "own_models.py").write_text(MODELS)
    (tmp_path / "empty").mkdir()
    arguments, before = [option.format(empty=tmp_path / "empty") for option in options], spent()
    completed = training.run(*arguments, PYTHONPATH=str(tmp_path))
    assert completed.returncode == code, completed.stderr
    assert why in completed.stderr.splitlines()[-1]
    assert "torch.distributed" not in completed.stderr
    assert spent() - before < AT_ONCE_S
    assert not list(training.state.glob("*/logs"))


def test_a_model_whose_map_is_stretched_is_a_warning_of_the_log(training: Training, tmp_path: Path) -> None:
    (tmp_path / "own_models.py").write_text(MODELS)
    # Its window ends the training before torchrun.
    completed = training.run("--architecture", "own_models:Unpadded", PYTHONPATH=str(tmp_path))
    assert completed.returncode == 2, completed.stderr
    assert "event=model_output_stretched reason=" in completed.stderr
    assert "gives maps of 14 x 14 pixels for chips of 16 x 16, which are stretched to the chip" in completed.stderr


class Trap:
    """Runs code as soon as it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("name", ["model.pt", "model.safetensors", ".metadata"])
def test_t17_a_pickle_to_begin_with_is_refused_unopened(training: Training, tmp_path: Path, name: str) -> None:
    source, fallen = tmp_path / "source", tmp_path / "fallen"
    source.mkdir()
    (source / name).write_bytes(pickle.dumps(Trap(fallen)))
    completed = training.run("--init", str(source))
    assert completed.returncode == 8, completed.stderr
    assert completed.stderr.splitlines()[-1].startswith(f"error: {source / name} is a pickle")
    assert "torch.distributed" not in completed.stderr
    assert not fallen.exists()
