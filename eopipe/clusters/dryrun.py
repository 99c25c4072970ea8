"""Resources that the rules of a run request, from what Snakemake prints in a dry run.

Its events, as objects, are given to logger plugins only, which Snakemake does not find in an editable installation.
"""

import re
import subprocess
import sys
from pathlib import Path

from eopipe.errors import UsageError
from eopipe.run.project import snakefile

Resources = dict[str, int | str]
# Resources that a cluster can refuse.
NUMBERS = ("mem_mb", "runtime", "nodes", "tasks", "tasks_per_gpu", "cpus_per_task")
WORDS = ("slurm_partition", "gres", "mpi")


def requested_by_rules(profile: str, config: Path) -> dict[str, Resources]:
    """The maximum that jobs of each rule request with a profile and a config.

    Before the search has run, the size of the scenes is unknown and the rules of single scenes are missing.
    """
    command = [sys.executable, "-P", "-m", "snakemake", "--snakefile", str(snakefile()), "--configfile", str(config)]
    command += ["--profile", profile, "--dry-run", "--forceall"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = f"{done.stdout}\n{done.stderr}"
    if done.returncode:
        lines = [line.strip() for line in output.splitlines()]
        reasons = [line for line in lines if line and not line.startswith("Using profile")]
        raise UsageError(f"Snakemake cannot plan a run with profile {profile} and {config}: {' '.join(reasons[-3:])}")
    return read_plan(output)


def read_plan(output: str) -> dict[str, Resources]:
    """The largest request of the jobs of each rule in the output of a dry run."""
    by_rule: dict[str, Resources] = {}
    for name, job in re.findall(r"^(?:rule|checkpoint) (\w+):\n((?:    .*\n?)+)", output, re.MULTILINE):
        if name == "all":
            continue
        rule = by_rule.setdefault(name, {})
        for key, value in _resources(job).items():
            known = rule.get(key)
            rule[key] = max(value, known) if isinstance(value, int) and isinstance(known, int) else value
    return by_rule


def _resources(job: str) -> Resources:
    line = re.search(r"^    resources: (.*)$", job, re.MULTILINE)
    threads = re.search(r"^    threads: (\d+)$", job, re.MULTILINE)
    resources: Resources = {"cpus_per_task": int(threads[1]) if threads else 1}
    for name, value in re.findall(r"(\w+)=([^,=]+)(?=, \w+=|$)", line[1] if line else ""):
        # What is not known yet is a word in the place of a number.
        if name in NUMBERS and value.isdigit():
            resources[name] = int(value)
        elif name in WORDS:
            resources[name] = value
    return resources
