"""Trainings of 1, 2 and 4 gloo workers on made-up chips, in many ways, one launch for each number of workers.

`python tests/distributed/worlds.py` writes golden.json: the losses of one plain process. Do so only where a change
of the losses is meant, and say in the changelog why.
"""

import atexit
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import pytest

HERE = Path(__file__).parent
GOLDEN = HERE / "golden.json"
Runs = dict[str, dict[str, Any]]


def way(model: str = "unet", /, **settings: Any) -> dict[str, Any]:
    """One training: its model and how its settings differ from plain ones."""
    name = model if model == "unet" else f"faulty_models:{model}"
    return {"settings": {"architecture": name, **settings}}


def resumed_from(saved: Path, first: int, plan: dict[str, Any]) -> dict[str, Any]:
    """A training that resumes from the state of another."""
    return plan | {"begin": f"{saved}.safetensors", "first": first}


WAYS: dict[str, dict[str, Any]] = {
    "plain": way(),
    "fsdp": way(strategy="fsdp"),
    "accumulated": way(accumulate=2),
    "fsdp-accumulated": way(strategy="fsdp", accumulate=2) | {"steps": 8},
    "recomputed": way() | {"recompute": True, "steps": 8},
    "channels-last": way(channels_last=True) | {"steps": 8},
    "bf16": way(precision="bf16") | {"steps": 8},
    "fp16": way(precision="fp16") | {"steps": 8},
    "clipped": way(clip=0.05) | {"steps": 8},
    "uncompiled": way(compile=True) | {"steps": 3},
    "hungry": way("Hungry") | {"steps": 8},
    "dropping": way("Dropping") | {"steps": 8},
    "fsdp-hungry": way("Hungry", strategy="fsdp") | {"steps": 8},
    "averaged": way(ema=0.9) | {"steps": 8},
    "fsdp-averaged": way(strategy="fsdp", ema=0.9) | {"steps": 8},
    "deterministic-ignored": way(deterministic=True) | {"ignored": 3, "steps": 6},
    "ignored": way() | {"ignored": 3, "steps": 6},
    "deterministic": way(deterministic=True),
    "deterministic-dropping": way("Dropping", deterministic=True) | {"steps": 8},
    "deterministic-batchwise": way("Batchwise", deterministic=True) | {"steps": 8},
    "deterministic-fp16": way(deterministic=True, precision="fp16") | {"steps": 8},
    "deterministic-recomputed": way("Keeping", deterministic=True) | {"steps": 8},
    "deterministic-hungry": way("Hungry", deterministic=True) | {"may_fail": True},
}


def plan(folder: Path, size: int) -> dict[str, Any]:
    """All ways, and trainings that go on where one of another number of workers, or of the same, stopped."""
    folder_of_size = folder / str(size)
    chained = {
        2: {"chain": WAYS["deterministic-batchwise"] | {"steps": 3}, "fsdp-half": WAYS["fsdp"] | {"steps": 10}},
        1: {
            "chain": resumed_from(folder / "2/chain", 3, WAYS["deterministic-batchwise"] | {"steps": 5}),
            "fsdp-rest": resumed_from(folder / "2/fsdp-half", 10, WAYS["fsdp"]),
            "plain-rest": resumed_from(folder / "2/fsdp-half", 10, WAYS["plain"]),
        },
        4: {"chain": resumed_from(folder / "1/chain", 5, WAYS["deterministic-batchwise"])},
    }
    again = {
        f"{name}-{part}": training
        for name in ("dropping", "fp16", "fsdp-accumulated")
        for part, training in (
            ("begun", WAYS[name] | {"steps": 4}),
            ("resumed", resumed_from(folder_of_size / f"{name}-begun", 4, WAYS[name])),
        )
    }
    # Four workers without a compiler do what two do, and take twice as long.
    ways = WAYS if size < 4 else {name: training for name, training in WAYS.items() if name != "uncompiled"}
    return ways | chained[size] | again


# There is no compiler, nor anything that it left behind.
NO_COMPILER = {"CXX": "/nonexistent"}


def launch(size: int, ways: dict[str, Any], folder: Path, base_environment: dict[str, str] = NO_COMPILER) -> Runs:
    """Train in all these ways with so many workers."""
    out = folder / str(size)
    out.mkdir()
    (folder / f"{size}.json").write_text(json.dumps(ways))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    line = [*torchrun, str(HERE / "worker_of_worlds.py"), str(folder / f"{size}.json"), str(out)]
    variables = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "OMP_NUM_THREADS": "1"}
    environment = os.environ | base_environment | variables
    completed = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert completed.returncode == 0, completed.stderr
    (out / "log").write_text(completed.stderr)
    return {name: json.loads((out / f"{name}.json").read_text()) for name in ways}


# A chained training goes on from one of another number of workers.
AFTER = {1: 2, 4: 1}


class Launches(dict[int, Runs]):
    """What came of all ways by the number of workers, and what they logged; launched when it is first asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        atexit.register(self._folder.cleanup)

    def __missing__(self, size: int) -> Runs:
        folder = Path(self._folder.name)
        if size in AFTER:
            self[AFTER[size]]
        self[size] = launch(size, plan(folder, size), folder)
        self[size]["log"] = {"text": (folder / str(size) / "log").read_text()}
        return self[size]


@cache
def trained() -> Launches:
    """The launches of this process."""
    return Launches()


# They share the launches.
IN_ONE_SLICE = pytest.mark.exhaustive(by="worlds")
SIZES = (1, 2, 4)


if __name__ == "__main__":
    golden = launch(1, {"plain": WAYS["plain"]}, Path(mkdtemp()))["plain"]
    GOLDEN.write_text(json.dumps({"losses": [round(loss, 6) for loss in golden["losses"]]}, indent=1) + "\n")
