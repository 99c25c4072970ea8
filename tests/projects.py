"""A project folder in which the pipeline runs, as a user has one."""

import fcntl
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import warm
import yaml

ROOT = Path(__file__).parents[1]
# Stages of a run that one without composites, several trainings, a chip set, a labelled sample and products lacks.
OPTIONAL = {"import", "composite", "choose", "products", "estimate"}
DAYS = ("20170412", "20170621", "20180422", "20180701", "20180919", "20190616")


@dataclass(frozen=True)
class Project:
    """A working folder with a config of its own beside the sample."""

    folder: Path

    @property
    def results(self) -> Path:
        return self.folder / "results"

    def write(self, **changes: dict[str, Any]) -> None:
        """Write the demo's config with some sections changed: six scenes, each by itself, and a small model."""
        config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
        del config["composite"]
        small = {
            "search": {"ids": [f"S2_ROMANIA_{day}" for day in DAYS]},
            "train": {"epochs": 6, "batch": 8, "width": 8, "checkpoint_every": 10},
        }
        for part in (small, changes):
            for name, values in part.items():
                config[name] = {**config.get(name, {}), **values}
        (self.folder / "config.yaml").write_text(yaml.safe_dump(config))

    def command(self, *arguments: str) -> list[str]:
        return [warm.python(), "-m", "eopipe", "run", "--configfile", "config.yaml", "--cores", "2", *arguments]

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run to the end; `stdout` has both streams."""
        return subprocess.run(
            self.command(*arguments),
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
            check=False,
            env=environment(),
        )

    def planned(self, *arguments: str) -> list[str]:
        """The rules that a dry run lists, once for each job."""
        result = self.run("--dry-run", *arguments)
        assert result.returncode == 0, result.stdout
        return re.findall(r"^(?:local)?(?:rule|checkpoint) (\w+):", result.stdout, re.MULTILINE)

    def digests(self) -> dict[str, str]:
        """The sha256 of every payload of the results."""
        return digests_of(self.results)


def digests_of(results: Path) -> dict[str, str]:
    """The sha256 of every payload: no records, logs, benchmarks, and no crate, which has times."""
    payload = [
        p
        for p in results.rglob("*")
        if p.is_file()
        and not p.name.endswith(".run.json")
        and p.relative_to(results).parts[0] not in ("logs", "benchmarks", "crate")
    ]
    return {str(p.relative_to(results)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(payload)}


def made_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """A folder that the first process of `python -m dev.suites` makes for all of them, or this process alone."""
    if not (runs := os.environ.get("EOPIPE_SHARED_RUNS")):
        make(folder)
        return folder
    shared = Path(runs) / folder.name
    with Path(runs, f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (done := Path(runs, f"{folder.name}.done")).exists():
            shutil.rmtree(shared, ignore_errors=True)
            shared.mkdir()
            make(shared)
            done.touch()
    return shared


def environment() -> dict[str, str]:
    """The environment in which `eopipe` and `snakemake` start warm, and else as in an activated virtual environment."""
    return warm.environment()


def cold_environment() -> dict[str, str]:
    """The environment of an activated virtual environment: on the nodes of a cluster nothing starts warm."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants, in whichever process group."""
    os.kill(pid, signal.SIGSTOP)
    # Threads may have children, as Snakemake's do.
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            kill_tree(int(child))
    os.kill(pid, signal.SIGKILL)


def commands(log: str) -> list[list[str]]:
    """The arguments of every eopipe command that a dry run printed, without its redirections."""
    lines = [line[line.index("eopipe ") :] for line in log.splitlines() if "eopipe " in line]
    return [shlex.split(line.partition(" > ")[0])[1:] for line in lines]


def by_cwltool(project: Project, folder: Path, **inputs: Any) -> Path:
    """Run the config of a project under cwltool, as `eopipe cwl` writes it; the folder of the outputs."""
    command = [sys.executable, "-m", "eopipe", "cwl", str(project.folder / "config.yaml"), "--to", str(folder / "cwl")]
    subprocess.run(command, check=True, cwd=folder, env=environment())
    with (folder / "cwl/job.yml").open("a") as file:
        file.write(yaml.safe_dump(inputs) if inputs else "")
    config = yaml.safe_load((project.folder / "config.yaml").read_text())
    pipeline = "chip-set" if config.get("chip_set") else "finished-model" if config.get("model") else "pipeline"
    cwltool("--outdir", folder / "out", f"cwl/{pipeline}.cwl", "cwl/job.yml", cwd=folder)
    return folder / "out"


def cwltool(*arguments: object, cwd: Path) -> dict[str, Any]:
    # Tools see only the variables that are named; with PYTHONPATH they run the checkout under test.
    preserved = ["--preserve-environment", "PYTHONPATH"] if "PYTHONPATH" in os.environ else []
    result = subprocess.run(
        ["cwltool", "--quiet", *preserved, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env=environment(),
    )
    assert result.returncode == 0, result.stderr
    outputs: dict[str, Any] = json.loads(result.stdout)
    return outputs
