"""Server processes of the tests: ready before the first test, ended after the last one, even when pytest is killed."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE = 60


def skip_as_missing(message: str) -> None:
    """Skip the tests that need a server which is not installed."""
    pytest.skip(f"{message}; `make .venv/servers` gets it")


def program(name: str, *folders: str) -> str:
    """The path of an installed program, also outside PATH."""
    executable = shutil.which(name, path=os.pathsep.join([os.environ["PATH"], *folders]))
    if executable is None:
        skip_as_missing(f"{name} is not installed")
    return str(executable)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], log: Path, ready: Callable[[], bool], **options: object) -> Iterator[None]:
    """Run a server until the block ends; it also ends when this process is killed."""
    with log.open("ab") as out:
        server = subprocess.Popen(
            [program("setpriv"), "--pdeathsig", "TERM", *command],
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            **options,  # type: ignore[call-overload]
        )
    try:
        _wait(server, ready, log)
        yield
    finally:
        server.terminate()
        try:
            server.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait(server: "subprocess.Popen[bytes]", ready: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not ready():
        if server.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"a server of the tests did not start: {log.read_text()[-2000:]}")
        time.sleep(0.05)


def listens(port: int) -> bool:
    """Whether a process accepts connections on a port of the loopback."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
