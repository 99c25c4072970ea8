"""A training as a process, and what is left of it."""

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import warm
from patience import PATIENCE

from eopipe.cli import main
from eopipe.training.data import TrainingData, TrainingInputs
from eopipe.training.run import prepare_state
from eopipe.training_job import JOB, Knobs, Settings

# From a signal to the exit code, on a machine that does nothing else.
STOPPED_WITHIN_S = 25


@dataclass(frozen=True)
class Data:
    """Where the prepared inputs of a training lie."""

    root: Path
    tiles: list[str] = field(default_factory=list)

    def stores(self) -> list[str]:
        return ["--tiles", *self.tiles, "--labels", str(self.root / "all.zarr")]

    def cut(self) -> list[str]:
        return ["--chips", str(self.root / "split.json"), "--statistics", str(self.root / "statistics.json")]


def run_stage(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@dataclass
class Training:
    """One `eopipe train` as a process of its own, in its own process group."""

    data: Data
    folder: Path
    settings: tuple[str, ...] = ("--epochs", "3", "--processes", "2", "--width", "8", "--checkpoint-every", "3")
    # Of its own interpreters, where the launch is the subject; else forked from one that has loaded torch.
    cold_start: bool = False

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def interpreter(self) -> str:
        return sys.executable if self.cold_start else warm.python()

    def command(self, *more: str) -> list[str]:
        command = [self.interpreter(), "-m", "eopipe", "train", *self.data.stores(), *self.data.cut()]
        # Few steps, for the tests count them.
        batch = () if "--batch" in (*self.settings, *more) else ("--batch", "32")
        return [*command, "--model", str(self.model), "--state", str(self.state), *batch, *self.settings, *more]

    def start(self, *more: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command(*more), stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def run(self, *more: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        environment = os.environ | variables
        return subprocess.run(
            self.command(*more), capture_output=True, text=True, timeout=PATIENCE, check=False, env=environment
        )

    def newest(self) -> int:
        """The step of the newest checkpoint."""
        return max((int(path.name[5:]) for path in self.state.glob("*/step-*")), default=0)

    def wait_for_step(self, step: int, process: "subprocess.Popen[str]") -> None:
        """Wait until a checkpoint of at least this step is there."""
        deadline = time.monotonic() + PATIENCE
        while not any(int(p.name[5:]) >= step for p in self.state.glob("*/step-*")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.02)


def payload(model: Path) -> dict[str, bytes]:
    return {str(p.relative_to(model)): p.read_bytes() for p in model.rglob("*") if p.is_file()}


def workers(folder: Path) -> list[int]:
    """Processes whose command line names a folder."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if str(folder).encode() in command:
            pids.append(int(path.parent.name))
    return pids


def ranks(folder: Path) -> list[int]:
    """The workers of a training."""
    line = b"-u\0-m\0eopipe.training.worker"
    return [pid for pid in sorted(workers(folder)) if line in Path(f"/proc/{pid}/cmdline").read_bytes()]


def prepare(data: Data, state: Path, **other: Any) -> Path:
    """The job file of a training of small steps, each with a checkpoint."""
    inputs = TrainingInputs(
        tuple(map(Path, data.tiles)), (data.root / "all.zarr",), data.root / "split.json", data.root / "statistics.json"
    )
    settings = Settings(width=4, epochs=4, batch=8, learning_rate=1e-3, warmup=0.1, processes=2)
    knobs = Knobs(device="cpu", checkpoint_every=1, cache_mb=64, timeout_s=60.0)
    opened = TrainingData.open(inputs)
    job = opened.job(replace(settings, **other), knobs, state, state / "views")
    prepare_state(opened, job)
    return job.state / JOB
