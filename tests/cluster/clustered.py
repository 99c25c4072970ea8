"""A project on the throwaway cluster: its training goes over nodes of Slurm."""

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml
from projects import Project, environment

MODEL = "results/model/manifest.json"
# Small enough for a minute, large enough to be hit in the middle.
TRAIN = {"epochs": 15, "checkpoint_every": 5, "nodes": "2", "processes": 2, "deterministic": True, "threads": 1}


@dataclass(frozen=True)
class Clustered:
    """A project whose inputs of the training are made, and a profile of its own."""

    project: Project

    @property
    def folder(self) -> Path:
        return self.project.folder

    def profile(self, *, train: dict[str, object] | None = None, **changes: object) -> None:
        """Write the site's profile with quick looks at the queue and other changes; None takes a setting away."""
        words = ["profile", "slurm", "--show", "--training", "gpu", "--gpu", "--nodes", "2", "--processes", "2"]
        command = [sys.executable, "-m", "eopipe", *words]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
        made = yaml.safe_load(shown.stdout)
        quick = {"slurm-init-seconds-before-status-checks": 3, "latency-wait": 20, "retries": 2}
        made = {k: v for k, v in (made | quick | changes).items() if v is not None}
        made["set-resources"]["train"] |= {"mem_mb": 3000} | (train or {})
        (self.folder / "slurm").mkdir(exist_ok=True)
        (self.folder / "slurm/config.yaml").write_text(yaml.safe_dump(made))

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Begin `snakemake --profile slurm`, the literal command."""
        command = [sys.executable, "-m", "snakemake", "--profile", "slurm", *words]
        place = environment() | {"PYTHONUNBUFFERED": "1"}
        with (self.folder / "snakemake.log").open("a") as out:
            return subprocess.Popen(command, cwd=self.folder, stdout=out, stderr=out, text=True, env=place)

    def end(self, process: "subprocess.Popen[str]", seconds: float = 240) -> int:
        """Its exit code; it may not hang."""
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            process.wait(60)
            raise AssertionError(f"Snakemake hangs: {self.told[-3000:]}") from None

    @property
    def told(self) -> str:
        """What Snakemake said so far."""
        return (self.folder / "snakemake.log").read_text()

    @property
    def job(self) -> str:
        """The newest job of Slurm of the training."""
        return re.findall(r"has been submitted with SLURM jobid (\d+) \(log: [^)]*rule_train", self.told)[-1]

    def submissions(self) -> int:
        """How often the training was submitted."""
        return len(re.findall(r"has been submitted with SLURM jobid \d+ \(log: [^)]*rule_train", self.told))

    def wait_for(self, ready: Callable[[], object], what: str, seconds: float = 90) -> None:
        """Wait until something is so."""
        until = time.monotonic() + seconds
        while not ready():
            assert time.monotonic() < until, f"{what}: {self.told[-2000:]}"
            time.sleep(0.2)

    def wait_for_step(self, step: int) -> None:
        """Wait for a checkpoint of at least this step."""
        found = self.folder / "state/train"
        self.wait_for(lambda: any(int(p.name[5:]) >= step for p in found.glob("*/step-*")), f"step {step}")

    def weights(self) -> bytes:
        """The trained model."""
        return (self.folder / "results/model/model.safetensors").read_bytes()

    def log(self) -> str:
        """What the training said last."""
        return (self.folder / "results/logs/train.log").read_text()


def alone(project: Project) -> bytes:
    """Weights of the same training by four processes of one machine, without Slurm."""
    config = yaml.safe_load((project.folder / "config.yaml").read_text())
    config["train"] |= {"nodes": "1", "processes": 4}
    (project.folder / "alone.yaml").write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "snakemake", "--configfile", "alone.yaml", "--cores", "4", MODEL]
    done = subprocess.run(
        command, cwd=project.folder, capture_output=True, text=True, check=False, env=environment(), timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return (project.folder / "results/model/model.safetensors").read_bytes()


def link(project: Project, root: Path) -> None:
    """A Snakefile of the project, as `eopipe init` writes it."""
    from eopipe.project import SNAKEFILE

    (project.folder / "Snakefile").write_text(SNAKEFILE)
    (project.folder / "sample").symlink_to(root / "sample")
