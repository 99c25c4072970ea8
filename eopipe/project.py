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
