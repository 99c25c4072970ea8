"""Start `python -m eopipe`, `eopipe` and `snakemake` as forks of one process that has loaded all they need.

For tests whose subject is not the start: a start costs about 50 ms instead of 1 to 4 s. The server (server.py) is
started by whoever needs it first, is shared by all processes of a test session, and ends with it.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
FOLDER = "EOPIPE_WARM_START"
START_S = 120
# Kept so that nobody waits for its end: it outlives the test that started it.
_servers: list["subprocess.Popen[bytes]"] = []


def open_session() -> None:
    """Choose the folder of the session's server, in the process that runs the session."""
    if FOLDER not in os.environ:
        os.environ[FOLDER] = tempfile.mkdtemp(prefix="eopipe-warm-")
        Path(os.environ[FOLDER], "session").write_text(str(os.getpid()))


def close_session() -> None:
    """End the server and remove its folder, if this process opened the session."""
    folder = Path(os.environ[FOLDER])
    if (folder / "session").read_text() != str(os.getpid()):
        return
    # What is started after this opens a session of its own.
    del os.environ[FOLDER]
    if (folder / "pid").exists():
        os.kill(int((folder / "pid").read_text()), 9)
    for server in _servers:
        # One that did not become ready in time has no number there.
        server.kill()
        server.wait()
    shutil.rmtree(folder, ignore_errors=True)


def commands() -> Path:
    """The folder of the warm `python`, `eopipe` and `snakemake`; starts the server if nobody did."""
    folder = Path(os.environ[FOLDER])
    ready = folder / "ready"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not ready.exists():
            line = [sys.executable, str(HERE / "server.py"), str(folder)]
            with (folder / "log").open("w") as log:
                server = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            _servers.append(server)
            until = time.monotonic() + START_S
            while not ready.exists():
                assert server.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < until, f"no warm server in {START_S} s: {(folder / 'log').read_text()}"
                time.sleep(0.05)
    return folder / "bin"


def python() -> str:
    """An interpreter that forks `-m eopipe` and its like, and runs everything else itself."""
    return str(commands() / "python")


def environment() -> dict[str, str]:
    """The environment with the warm commands first on the path, then those beside this interpreter."""
    return os.environ | {"PATH": f"{commands()}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
