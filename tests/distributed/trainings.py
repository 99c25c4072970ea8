"""A training as a process, and what is left of it."""

import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from eopipe.cli import main


@dataclass(frozen=True)
class Data:
    """Where the prepared inputs of a training lie."""

    root: Path
    tiles: list[str] = field(default_factory=list)

    def stores(self) -> list[str]:
        return ["--tiles", *self.tiles, "--labels", str(self.root / "all.zarr")]

    def cut(self) -> list[str]:
        return ["--chips", str(self.root / "split.json"), "--statistics", str(self.root / "statistics.json")]


def run_stage(*words: object) -> int:
    return main([str(word) for word in words])


@dataclass
class Training:
    """One `eopipe train` as a process of its own, in its own process group."""

    data: Data
    folder: Path
    settings: tuple[str, ...] = ("--epochs", "3", "--processes", "2", "--width", "8", "--checkpoint-every", "3")

    @property
    def model(self) -> Path:
        return self.folder / "model"

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def command(self, *more: str) -> list[str]:
        words = [sys.executable, "-m", "eopipe", "train", *self.data.stores(), *self.data.cut()]
        return [*words, "--model", str(self.model), "--state", str(self.state), *self.settings, *more]

    def start(self, *more: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command(*more), stdout=pipe, stderr=pipe, text=True, start_new_session=True)

    def run(self, *more: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.command(*more), capture_output=True, text=True, timeout=180, check=False)

    def wait_for_step(self, step: int, process: "subprocess.Popen[str]") -> None:
        """Wait until a checkpoint of at least this step is there."""
        until = time.monotonic() + 120
        while not any(int(p.name[5:]) >= step for p in self.state.glob("*/step-*")):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < until
            time.sleep(0.02)


def payload(model: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in model.iterdir()}


def workers(folder: Path) -> list[int]:
    """Processes whose command line names a folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            told = path.read_bytes()
        except OSError:
            continue
        if str(folder).encode() in told:
            found.append(int(path.parent.name))
    return found
