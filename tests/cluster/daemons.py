"""Daemons that write their process number into a file."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path


class ClusterError(Exception):
    """The cluster cannot do what a test asks for; says why."""


def sh(*words: object, env: dict[str, str] | None = None) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False, env=env, timeout=60)
    if done.returncode:
        raise ClusterError(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def wait(seconds: float, ready: Callable[[], bool], what: str) -> None:
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > until:
            raise ClusterError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.05)


def number(file: Path) -> int | None:
    """The process that a file tells, if it lives."""
    try:
        pid = int(file.read_text())
    except (OSError, ValueError):
        return None
    return pid if lives(pid) else None


def end(files: Iterable[Path], how: int = signal.SIGTERM) -> None:
    """Signal all at once and wait for them, since each takes its time."""
    pids = [pid for pid in map(number, files) if pid]
    for pid in pids:
        os.kill(pid, how)
    until = time.monotonic() + 10
    while any(lives(pid) for pid in pids):
        if time.monotonic() > until:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def lives(pid: int) -> bool:
    """Whether a process runs; one that ended and waits for its parent does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
