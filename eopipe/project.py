"""Commands for a person's own project: a config for an area, and the whole pipeline in one command."""

import fcntl
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from eopipe.contract import to_args
from eopipe.errors import UsageError

LOCK = Path(".snakemake/eopipe.lock")


def run(words: list[str]) -> int:
    """Run Snakemake with the given words, holding a lock that dies with this process.

    Whoever holds the lock knows that no other run is alive here, so a lock that a killed Snakemake left is
    stale and can go. Raises UsageError when a run is alive.
    """
    LOCK.parent.mkdir(exist_ok=True)
    with LOCK.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UsageError(f"a run is already going on in this folder: {file.read()}; wait for it or stop it") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} since {datetime.now(UTC).isoformat(timespec='seconds')}")
        file.flush()
        snakemake = [sys.executable, "-m", "snakemake"]
        if any(Path(".snakemake/locks").glob("*")):
            subprocess.run([*snakemake, *words, "--unlock"], check=True, capture_output=True)
        return subprocess.run([*snakemake, *words, "--rerun-incomplete"], check=False).returncode


def summary(results: str) -> str:
    """Where to look after a run, and the scores in one line each."""
    from eopipe.publish import read_json

    root = Path(results)
    metrics = read_json(root / "metrics.json")
    rows = (("this model", "model"), ("per-pixel trees", "pixel_baseline"), ("majority class", "majority"))
    lines = [f"{name:<16} accuracy {metrics[k]['accuracy']:.3f}   mIoU {metrics[k]['miou']:.3f}" for name, k in rows]
    places = (("report", "report.html"), ("map", "map.png"), ("metrics", "metrics.json"), ("crate", "crate/ro-crate-metadata.json"))
    return "\n".join(["", "In places that the model never saw:", *lines, "", *(f"{n:<8} {root / p}" for n, p in places)])
