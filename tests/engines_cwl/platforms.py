"""The engines that run the sample: each with its own command line, environment and folder."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import warm
import yaml
from projects import DAYS, ROOT, Project, environment

from eopipe.contract import STAGES

ENVIRONMENTS = ROOT / ".venv/engines"
# The table of docs/cwl.md has times, so no engine is killed when it is written.
TIMED = "EOPIPE_WRITE_TABLE" in os.environ
SCENES = [f"S2_ROMANIA_{day}" for day in (DAYS[0], DAYS[3])]
SMALL = {"epochs": 2, "batch": 8, "width": 4}
# Without the outputs whose digests are not compared: each job of the other engines takes seconds.
MINIMAL = {"with_onnx": False, "with_report": False, "with_crate": False}
SHORT = {} if TIMED else MINIMAL
CWL = ROOT / "cwl/pipeline.cwl"
# What is compared: paths in Snakemake's folder of results, and in a folder of CWL outputs.
PAYLOAD = {
    "tiles": [(f"tiles/{scene}.zarr", f"{scene}.zarr") for scene in SCENES],
    "weights": [("model", "model")],
    "metrics": [("metrics.json", "metrics.json")],
    "map": [(f"maps/mosaic/{name}.tif", f"{name}.tif") for name in ("classes", "probabilities")],
}


@dataclass(frozen=True)
class Run:
    """A run of the sample by an engine: its folder, duration and digests."""

    engine: str
    folder: Path
    version: str
    seconds: float
    digests: dict[str, str]


@dataclass(frozen=True)
class Engine:
    """An engine: its command line for a folder, its environment, its folder of outputs, and how it resumes."""

    name: str
    command: Callable[[Path], list[str]]
    version_command: tuple[str, ...]
    environment: str = ""
    outputs: str = "out"
    # The pattern in its log when training starts, and the command that resumes it after it was killed then.
    training_pattern: str = ""
    resume: Callable[[Path], list[str]] | None = None

    def path(self, folder: Path) -> str:
        """The PATH, which engines pass on with little else: eopipe of the checkout under test, then the engine."""
        commands = [str(ENVIRONMENTS / self.environment / "bin")] if self.environment else []
        return ":".join([str(folder / "bin"), *commands, environment()["PATH"]])

    def require(self) -> None:
        """Skip the test where the engine is not installed."""
        if self.environment and not (ENVIRONMENTS / self.environment).is_dir():
            pytest.skip(f"{self.name} is not installed; run `make .venv/engines`")

    def start(self, folder: Path) -> "subprocess.Popen[str]":
        """Start the engine in a folder, as leader of a process group."""
        self.require()
        # The nodes of Slurm are not where the warm start is, and its times are those of no user.
        _eopipe(folder / "bin", sys.executable if TIMED or self is TOIL_SLURM else warm.python())
        variables = environment() | {"PATH": self.path(folder), "HOME": str(folder)}
        command = ["env", *self.command(folder)]
        with (folder / "engine.log").open("a") as log:
            return subprocess.Popen(
                command, cwd=folder, env=variables, stdout=log, stderr=log, text=True, start_new_session=True
            )

    def kill_during_training(self, folder: Path) -> None:
        """Start the engine; kill it and all its processes when training starts."""
        process = self.start(folder)
        deadline = time.monotonic() + 300
        while not re.search(self.training_pattern, (folder / "engine.log").read_text()):
            assert process.poll() is None, (folder / "engine.log").read_text()[-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    def run(self, folder: Path) -> Run:
        """Run the sample to its end."""
        start = time.monotonic()
        code = self.start(folder).wait(400)
        seconds = time.monotonic() - start
        assert code == 0, (folder / "engine.log").read_text()[-4000:]
        return Run(self.name, folder, self.version(), seconds, self.digests(folder))

    def version(self) -> str:
        """The version that its command prints."""
        self.require()
        variables = environment() | {"PATH": self.path(Path())}
        result = subprocess.run(
            ["env", *self.version_command], capture_output=True, text=True, check=True, env=variables
        )
        version = re.search(r"\d+\.\d+[\w.]*", result.stdout + result.stderr)
        assert version
        return version[0]

    def digests(self, folder: Path) -> dict[str, str]:
        """The digest of all files of each part of the payload."""
        column = 0 if self.name == "Snakemake" else 1
        return {
            name: _digest([folder / self.outputs / paths[column] for paths in pairs]) for name, pairs in PAYLOAD.items()
        }


def _eopipe(folder: Path, interpreter: str) -> None:
    folder.mkdir(exist_ok=True)
    script = folder / "eopipe"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{interpreter}" -m eopipe "$@"\n')
    script.chmod(0o755)


def _digest(paths: list[Path]) -> str:
    lines = []
    for path in paths:
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        lines += [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.relative_to(path.parent)}\n" for f in files]
    assert lines
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def job(folder: Path, **changes: object) -> Path:
    """The job file of the sample: two scenes, each by itself, a small model."""
    demo = yaml.safe_load((ROOT / "cwl/pipeline.yml").read_text())
    inputs = {name: value for name, value in demo.items() if not name.startswith("composite_")}
    for value in inputs.values():
        if isinstance(value, dict):
            value["location"] = str(ROOT / "cwl" / value["location"])
    small = {f"train_{name}": value for name, value in SMALL.items()} | {"search_ids": SCENES}
    (folder / "job.yml").write_text(yaml.safe_dump(inputs | small | changes))
    return folder / "job.yml"


def _snakemake(folder: Path) -> list[str]:
    (folder / "sample").symlink_to(ROOT / "sample")
    project = Project(folder)
    project.write(search={"ids": SCENES}, train=SMALL)
    return project.command()


def cwltool(folder: Path, **changes: object) -> list[str]:
    """Cwltool with a cache of the outputs of each step."""
    return ["cwltool", "--cachedir", "cache", "--outdir", "out", str(CWL), str(job(folder, **changes))]


def toil(folder: Path, *options: str, **changes: object) -> list[str]:
    """Toil with its job store in the folder."""
    folders = ["--jobStore", str(folder / "jobs"), "--workDir", str(folder), "--coordinationDir", str(folder)]
    return ["toil-cwl-runner", *folders, *options, "--outdir", "out", str(CWL), str(job(folder, **SHORT | changes))]


def streamflow(folder: Path, **changes: object) -> list[str]:
    """StreamFlow without containers."""
    plain = {"step": "/", "deployment": {"type": "none", "config": {}}}
    config = {"file": str(CWL), "settings": str(job(folder, **SHORT | changes)), "docker": [plain]}
    document = {"version": "v1.0", "workflows": {"eopipe": {"type": "cwl", "config": config}}}
    (folder / "streamflow.yml").write_text(yaml.safe_dump(document))
    return ["streamflow", "run", "--name", "eopipe", "--outdir", "out", "streamflow.yml"]


def _toil_slurm(folder: Path) -> list[str]:
    # No partition of the temporary cluster lets a job run for hours.
    return toil(folder, *SLURM, **MINIMAL | {f"{name}_timelimit_s": 1800 for name in STAGES})


SLURM = ("--batchSystem", "slurm", "--statePollingWait", "1", "--slurmTime", "00:30:00")
SNAKEMAKE = Engine("Snakemake", _snakemake, (sys.executable, "-m", "snakemake", "--version"), outputs="results")
CWLTOOL = Engine("cwltool", cwltool, ("cwltool", "--version"), training_pattern=r"\[job train\]", resume=cwltool)
TOIL = Engine(
    "Toil",
    toil,
    ("toil-cwl-runner", "--version"),
    "toil",
    training_pattern=r"Issued job .*train\.cwl",
    resume=lambda folder: toil(folder, "--restart"),
)
TOIL_SLURM = Engine("Toil on Slurm", _toil_slurm, ("toil-cwl-runner", "--version"), "toil")
# It has no cache: after a kill it would begin again.
STREAMFLOW = Engine("StreamFlow", streamflow, ("streamflow", "version"), "streamflow")
