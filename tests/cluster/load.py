"""The load of a run: calls that the controller answered, as Slurm counts them, and files in the folder."""

import re
from collections import Counter
from pathlib import Path

from daemons import sh

SUBMISSIONS, QUEUE = "REQUEST_SUBMIT_BATCH_JOB", "REQUEST_JOB_INFO"


def reset_counters() -> None:
    """Reset the counters of the controller."""
    sh("sdiag", "--reset")


def calls() -> dict[str, int]:
    """Calls by their kind: sbatch, squeue, …"""
    return {kind: int(count) for kind, count in re.findall(r"^\t([A-Z_]+)\s+\(.*?\) count:(\d+)", sh("sdiag"), re.M)}


def busy_ms() -> float:
    """Milliseconds that the controller spent on all of them."""
    return sum(map(int, re.findall(r"^\t[A-Z_]+\s+\(.*?total_time:(\d+)", sh("sdiag"), re.M))) / 1000


def files(folder: Path) -> Counter[str]:
    """Number of files by the two outermost folders that contain them."""
    folders = [path.relative_to(folder).parts[:-1] for path in folder.rglob("*") if path.is_file()]
    return Counter("/".join(parts[:2]) for parts in folders)
