"""Daemons that write their process number into a file."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path


class ClusterError(Exception):
    """The cluster cannot do what a test needs; the message says why."""


def sh(*command: object, env: dict[str, str] | None = None) -> str:
    """The output of a command that must succeed."""
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, env=env, timeout=60
    )
    if result.returncode:
        raise ClusterError(f"{' '.join(map(str, command))}: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout


def wait(seconds: float, ready: Callable[[], bool], event: str) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise ClusterError(f"{event}: not within {seconds:.0f} s")
        time.sleep(0.05)


def number(file: Path) -> int | None:
    """The process id in a pid file, if the process is alive."""
    try:
        pid = int(file.read_text())
    except (OSError, ValueError):
        return None
    return pid if is_alive(pid) else None


def end(files: Iterable[Path], signal_number: int = signal.SIGTERM) -> None:
    """Signal all processes at once, then wait for all of them."""
    pids = [pid for pid in map(number, files) if pid]
    for pid in pids:
        os.kill(pid, signal_number)
    deadline = time.monotonic() + 10
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    """Whether a process is alive; a zombie is not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
