"""Checkpoints: one published folder a step, the newest one that verifies wins."""

import logging
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.errors import EopipeError, IntegrityError
from eopipe.publish import publish, read_json, verify, write_json

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

log = logging.getLogger("eopipe")


@dataclass
class Progress:
    """Where a training stands; data position and random streams are functions of the step."""

    step: int = 0
    losses: float = 0.0
    history: list[Any] = field(default_factory=list)


def save(folder: Path, progress: Progress, model: "nn.Module", optimiser: "Optimizer", keep: int) -> None:
    """Write weights, optimiser and progress of a step; drop all but the newest `keep` checkpoints."""
    from safetensors.torch import save_file

    with publish(folder / f"step-{progress.step:09d}", folder=True) as draft:
        save_file({k: v.contiguous() for k, v in model.state_dict().items()}, draft / "model.safetensors")
        save_file(_moments(optimiser), draft / "optimiser.safetensors")
        write_json(draft / "state.json", asdict(progress))
    for old in steps(folder)[:-keep]:
        shutil.rmtree(old)


def _moments(optimiser: "Optimizer") -> "dict[str, Tensor]":
    """The optimiser's tensors by parameter number and name, as `12.exp_avg`."""
    import torch

    state = optimiser.state_dict()["state"]
    return {
        f"{number}.{name}": torch.as_tensor(value).contiguous()
        for number, values in state.items()
        for name, value in values.items()
    }


def steps(folder: Path) -> list[Path]:
    """The checkpoints in a folder, oldest first."""
    return sorted(folder.glob("step-*"))


def restore(folder: Path, model: "nn.Module", optimiser: "Optimizer") -> Progress:
    """Load the newest checkpoint that verifies; step 0 when there is none.

    A damaged one is set aside with a word in the log and the one before is used.
    """
    for path in reversed(steps(folder)):
        try:
            verify(path)
        except IntegrityError as error:
            log.warning("event=checkpoint-damaged step=%s reason=%r", path.name, str(error))
            continue
        return _load(path, model, optimiser)
    return Progress()


def _load(path: Path, model: "nn.Module", optimiser: "Optimizer") -> Progress:
    from safetensors.torch import load_file

    model.load_state_dict(load_file(path / "model.safetensors"))
    state: dict[int, dict[str, Any]] = {}
    for key, value in load_file(path / "optimiser.safetensors").items():
        number, name = key.split(".", 1)
        state.setdefault(int(number), {})[name] = value
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    return Progress(**read_json(path / "state.json"))


def write_status(folder: Path, error: EopipeError | None) -> None:
    """Leave the exit code and its reason, since torchrun flattens every failure to 1."""
    with publish(folder / "status.json") as draft:
        write_json(draft, {"code": error.code if error else 0, "reason": str(error) if error else ""})
