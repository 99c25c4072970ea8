"""What the rules of a run ask of a cluster, by Snakemake's own reckoning."""

import re
import subprocess
import sys
from pathlib import Path

from eopipe.errors import UsageError
from eopipe.run.project import snakefile

Resources = dict[str, int | str]


def asked_by_rules(profile: str, config: Path) -> dict[str, Resources]:
    """The most that jobs of each rule ask for with a profile and a config; rules that run beside Snakemake do not.

    A dry run tells it. Before the search has ended, the size of the scenes is unknown, and their own rules are missing.
    """
    words = ["--snakefile", str(snakefile()), "--configfile", str(config), "--profile", profile]
    command = [sys.executable, "-m", "snakemake", *words, "--dry-run", "--forceall"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = f"{done.stdout}\n{done.stderr}"
    if done.returncode:
        said = [line.strip() for line in told.splitlines() if line.strip() and not line.startswith("Using profile")]
        raise UsageError(f"Snakemake cannot plan a run with profile {profile} and {config}: {' '.join(said[-3:])}")
    return read_plan(told)


def read_plan(told: str) -> dict[str, Resources]:
    """Read the jobs of a dry run."""
    found: dict[str, Resources] = {}
    for name, job in re.findall(r"^(?:rule|checkpoint) (\w+):\n((?:    .*\n?)+)", told, re.MULTILINE):
        if name == "all":
            continue
        asked = found.setdefault(name, {})
        for key, value in _resources(job).items():
            before = asked.get(key)
            asked[key] = max(value, before) if isinstance(value, int) and isinstance(before, int) else value
    return found


def _resources(job: str) -> Resources:
    line = re.search(r"^    resources: (.*)$", job, re.MULTILINE)
    threads = re.search(r"^    threads: (\d+)$", job, re.MULTILINE)
    told: Resources = {"cpus_per_task": int(threads[1]) if threads else 1}
    for name, value in re.findall(r"(\w+)=([^,=]+)(?=, \w+=|$)", line[1] if line else ""):
        # What is not known yet says nothing.
        if name in ("mem_mb", "runtime", "nodes", "tasks", "tasks_per_gpu", "cpus_per_task") and value.isdigit():
            told[name] = int(value)
        elif name in ("slurm_partition", "gres", "mpi"):
            told[name] = value
    return told
