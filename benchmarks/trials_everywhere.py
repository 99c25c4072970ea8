"""Twelve trials with two rungs, everywhere: `python benchmarks/trials_everywhere.py FOLDER [RUN …]`, as root for Slurm.

For a grid and for Halton points: by Snakemake with two cores, by cwltool, as jobs of the tests' Slurm, and by Snakemake
that is killed six times. Prints a row for each, and fails where the leaderboard has other bytes than the first one.
"""

import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests/cluster"), str(ROOT / "tests")]

import warm  # noqa: E402
from cluster_project import ClusterProject  # noqa: E402
from projects import DAYS, Project, environment, kill_tree  # noqa: E402

from eopipe.publish import sha256  # noqa: E402
from eopipe.run.project import SNAKEFILE  # noqa: E402
from slurm import Cluster  # noqa: E402

GRID = {"width": [4, 8, 16], "learning_rate": [0.0005, 0.002, 0.008, 0.03]}
WITH_RANGE = GRID | {"learning_rate": {"low": 0.0005, "high": 0.03, "log": True}}
SAMPLERS = {"grid": {"space": GRID}, "halton": {"space": WITH_RANGE, "sampler": "halton", "count": 12}}
FILES = ("trials.json", "trials.html", "model/manifest.json")
KILLS, LONGEST_S, PATIENCE_S = 6, 40, 1500


def main() -> None:
    """Run each where no run is named, and print a row for each."""
    print("| sampler | run | s | jobs | steps | SHA-256 of trials.json |\n|---|---|---:|---:|---:|---|")
    for sampler, trials in SAMPLERS.items():
        digests = set()
        for name in sys.argv[2:] or RUNS:
            project, before = new_project(Path(sys.argv[1]).resolve() / f"{sampler}-{name}", trials), time.monotonic()
            RUNS[name](project)
            seconds, folder = time.monotonic() - before, project.folder
            results = folder / "out" if name == "cwltool" else project.results
            digests.add(tuple(sha256(results / file) for file in FILES))
            steps = sum(row["steps"] for row in json.loads((results / "trials.json").read_text())["trials"])
            # The crate has copies of the records.
            records = [path for path in folder.glob("results/**/*.run.json") if "crate" not in path.parts]
            jobs = len(records) or len(re.findall(r"\[job \S+\] completed success", (folder / "run.log").read_text()))
            row = [sampler, name, f"{seconds:.0f}", jobs, steps, sha256(results / "trials.json")[:12]]
            print(f"| {' | '.join(map(str, row))} |", flush=True)
        if len(digests) > 1:
            sys.exit(f"{', '.join(FILES)} have other bytes in one of these runs")


def new_project(folder: Path, trials: dict[str, Any]) -> Project:
    """Two scenes of the sample and twelve short trainings, in a folder as `eopipe init` writes it."""
    folder.mkdir(parents=True)
    (folder / "Snakefile").write_text(SNAKEFILE)
    (folder / "sample").symlink_to(ROOT / "sample")
    project, ids = Project(folder), [f"S2_ROMANIA_{day}" for day in DAYS[:2]]
    train = {"epochs": None, "steps": 40, "processes": 1}
    project.write(search={"ids": ids}, train=train, trials=trials | {"rungs": [0.25, 0.5]})
    return project


def start(project: Project, *command: str) -> "subprocess.Popen[bytes]":
    """A process in a project, with its log there."""
    with (project.folder / "run.log").open("a") as log:
        return subprocess.Popen(command, cwd=project.folder, stdout=log, stderr=log, env=environment())


def run(project: Project, *command: str) -> None:
    """Run a command in a project to its end, by default Snakemake's command."""
    if start(project, *command or project.command()).wait(PATIENCE_S):
        sys.exit(f"{project.folder / 'run.log'} says why the run failed")


def by_cwltool(project: Project) -> None:
    """By cwltool, one job after the other."""
    run(project, sys.executable, "-m", "eopipe", "cwl", "config.yaml", "--to", "cwl")
    run(project, "cwltool", "--preserve-environment=PYTHONPATH", "--outdir=out", "cwl/pipeline.cwl", "cwl/job.yml")


def by_slurm(project: Project) -> None:
    """As jobs of a Slurm of four nodes on this machine."""
    cluster, clustered = Cluster(), ClusterProject(project)
    cluster.start()
    try:
        clustered.profile()
        if clustered.end(clustered.start(), PATIENCE_S):
            sys.exit(clustered.snakemake_log)
    finally:
        clustered.kill_all()
        cluster.stop()


def killed(project: Project) -> None:
    """By Snakemake, of which all processes are killed at random moments."""
    moments = random.Random(KILLS)  # noqa: S311
    for _ in range(KILLS):
        process = start(project, *project.command())
        try:
            process.wait(timeout=moments.uniform(2, LONGEST_S))
            sys.exit("the run ended before it was killed often enough; use more steps or shorter moments")
        except subprocess.TimeoutExpired:
            kill_tree(process.pid)
            process.wait(timeout=60)
    run(project)


RUNS = {"snakemake": run, "cwltool": by_cwltool, "slurm": by_slurm, "killed": killed}


if __name__ == "__main__":
    warm.open_session()
    try:
        main()
    finally:
        warm.close_session()
