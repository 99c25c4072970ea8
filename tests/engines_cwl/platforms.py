"""The engines that run the sample: each a command line of its own, in its own environment and folder."""

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
import yaml
from projects import DAYS, ROOT, Project, environment

from eopipe.contract import STAGES

ROOMS = ROOT / ".venv/engines"
# The table of docs/cwl.md tells times, so then no engine is killed.
TIMED = "EOPIPE_WRITE_TABLE" in os.environ
SCENES = [f"S2_ROMANIA_{day}" for day in (DAYS[0], DAYS[3])]
SMALL = {"epochs": 2, "batch": 8, "width": 4}
# What no digest is compared of, and no plain run leaves out.
BARE = {"with_onnx": False, "with_report": False, "with_crate": False}
CWL = ROOT / "cwl/pipeline.cwl"
# What is compared: of Snakemake's folder, of a folder of CWL outputs.
PAYLOAD = {
    "tiles": [(f"tiles/{scene}.zarr", f"{scene}.zarr") for scene in SCENES],
    "weights": [("model", "model")],
    "metrics": [("metrics.json", "metrics.json")],
    "map": [(f"maps/mosaic/{name}.tif", f"{name}.tif") for name in ("classes", "probabilities")],
}


@dataclass(frozen=True)
class Run:
    """What an engine made of the sample in a folder, and how long it took."""

    engine: str
    folder: Path
    version: str
    seconds: float
    digests: dict[str, str]


@dataclass(frozen=True)
class Engine:
    """How an engine is called in a folder, where its commands lie, where it leaves what it made, how it goes on."""

    name: str
    command: Callable[[Path], list[str]]
    told: tuple[str, ...]
    room: str = ""
    made: str = "out"
    # What it tells when it begins to train, and how it goes on after it was killed then.
    trains: str = ""
    again: Callable[[Path], list[str]] | None = None

    def path(self, folder: Path) -> str:
        """Eopipe of the checkout under test, since engines hand down a PATH and little else; then its own commands."""
        own = [str(ROOMS / self.room / "bin")] if self.room else []
        return ":".join([str(folder / "bin"), *own, environment()["PATH"]])

    def start(self, folder: Path) -> "subprocess.Popen[str]":
        """Begin in this folder, as the leader of a group of processes."""
        if self.room and not (ROOMS / self.room).is_dir():
            pytest.skip(f"there is no {self.name}; `make .venv/engines` gets it")
        _eopipe(folder / "bin")
        place = environment() | {"PATH": self.path(folder), "HOME": str(folder)}
        words = ["env", *self.command(folder)]
        with (folder / "engine.log").open("a") as log:
            return subprocess.Popen(
                words, cwd=folder, env=place, stdout=log, stderr=log, text=True, start_new_session=True
            )

    def killed(self, folder: Path) -> None:
        """Begin, and end it with all that it started when it begins to train."""
        process = self.start(folder)
        until = time.monotonic() + 300
        while not re.search(self.trains, (folder / "engine.log").read_text()):
            assert process.poll() is None, (folder / "engine.log").read_text()[-4000:]
            assert time.monotonic() < until
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)

    def run(self, folder: Path) -> Run:
        """Run the sample to its end."""
        began = time.monotonic()
        code = self.start(folder).wait(400)
        seconds = time.monotonic() - began
        assert code == 0, (folder / "engine.log").read_text()[-4000:]
        return Run(self.name, folder, self.version(), seconds, self.digests(folder))

    def version(self) -> str:
        """What it says of itself."""
        place = environment() | {"PATH": self.path(Path())}
        done = subprocess.run(["env", *self.told], capture_output=True, text=True, check=True, env=place)
        found = re.search(r"\d+\.\d+[\w.]*", done.stdout + done.stderr)
        assert found
        return found[0]

    def digests(self, folder: Path) -> dict[str, str]:
        """A digest of the bytes of all files, for each thing that is compared."""
        column = 0 if self.name == "Snakemake" else 1
        return {
            thing: _digest([folder / self.made / names[column] for names in pairs]) for thing, pairs in PAYLOAD.items()
        }


def _eopipe(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    script = folder / "eopipe"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{ROOT}" exec "{sys.executable}" -m eopipe "$@"\n')
    script.chmod(0o755)


def _digest(paths: list[Path]) -> str:
    lines = []
    for path in paths:
        files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
        lines += [f"{hashlib.sha256(f.read_bytes()).hexdigest()}  {f.relative_to(path.parent)}\n" for f in files]
    assert lines
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def job(folder: Path, **changes: object) -> Path:
    """The job file of the sample: three scenes, a small model."""
    told = yaml.safe_load((ROOT / "cwl/pipeline.yml").read_text())
    told["catalog"] = {"class": "Directory", "path": str(ROOT / "sample")}
    told["source"] = {"class": "File", "path": str(ROOT / "sample/tree_cover_density_2018.tif")}
    told["lock"]["path"] = str(ROOT / "constraints.txt")
    (folder / "job.yml").write_text(yaml.safe_dump(told | SMALL | {"ids": SCENES} | changes))
    return folder / "job.yml"


def _snakemake(folder: Path) -> list[str]:
    (folder / "sample").symlink_to(ROOT / "sample")
    project = Project(folder)
    project.write(search={"ids": SCENES}, train=SMALL)
    return project.command()


def cwltool(folder: Path, **changes: object) -> list[str]:
    """Cwltool that keeps what each step made."""
    return ["cwltool", "--cachedir", "cache", "--outdir", "out", str(CWL), str(job(folder, **changes))]


def toil(folder: Path, *more: str, **changes: object) -> list[str]:
    """Toil with its job store in the folder."""
    places = ["--jobStore", str(folder / "jobs"), "--workDir", str(folder), "--coordinationDir", str(folder)]
    return ["toil-cwl-runner", *places, *more, "--outdir", "out", str(CWL), str(job(folder, **changes))]


def streamflow(folder: Path, **changes: object) -> list[str]:
    """StreamFlow without containers."""
    plain = {"step": "/", "deployment": {"type": "none", "config": {}}}
    config = {"file": str(CWL), "settings": str(job(folder, **changes)), "docker": [plain]}
    told = {"version": "v1.0", "workflows": {"eopipe": {"type": "cwl", "config": config}}}
    (folder / "streamflow.yml").write_text(yaml.safe_dump(told))
    return ["streamflow", "run", "--name", "eopipe", "--outdir", "out", "streamflow.yml"]


# No partition of the throwaway cluster lets a job run for hours.
BRIEF = {"ToolTimeLimit": {"timelimit": 1800}}


def _toil_slurm(folder: Path) -> list[str]:
    told = {f"{name}.cwl": {"requirements": BRIEF} for name in STAGES}
    space = {"cwltool": "http://commonwl.org/cwltool#"}
    (folder / "brief.yml").write_text(yaml.safe_dump({"$namespaces": space, "cwltool:overrides": told}))
    return toil(folder, "--overrides", str(folder / "brief.yml"), *SLURM, **BARE)


SLURM = ("--batchSystem", "slurm", "--statePollingWait", "1", "--slurmTime", "00:30:00")
SNAKEMAKE = Engine("Snakemake", _snakemake, (sys.executable, "-m", "snakemake", "--version"), made="results")
CWLTOOL = Engine("cwltool", cwltool, ("cwltool", "--version"), trains=r"\[job train\]", again=cwltool)
TOIL = Engine(
    "Toil",
    toil,
    ("toil-cwl-runner", "--version"),
    "toil",
    trains=r"Issued job .*train\.cwl",
    again=lambda folder: toil(folder, "--restart"),
)
TOIL_SLURM = Engine("Toil on Slurm", _toil_slurm, ("toil-cwl-runner", "--version"), "toil")
STREAMFLOW = Engine(
    "StreamFlow",
    streamflow,
    ("streamflow", "version"),
    "streamflow",
    trains=r"EXECUTING.*/train",
    again=streamflow,
)
