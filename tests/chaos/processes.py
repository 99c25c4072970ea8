"""The processes of one run, found by a variable in their environment, whoever their parents are."""

import os
import re
import signal
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

TAG = "EOPIPE_CHAOS"
# What a process is, by its command line; the first that matches.
KINDS = {
    "snakemake": r"-m snakemake",
    "cwltool": r"bin/cwltool ",
    "run": r"eopipe run ",
    "worker": r"eopipe\.training\.worker|eopipe\.loader\.worker_main",
    "import": r"eopipe import ",
    "stage": r"eopipe [a-z]+ ",
}


@dataclass(frozen=True)
class Process:
    """A living process."""

    pid: int
    kind: str
    command: str

    def send(self, number: int) -> None:
        """Send a signal, if it is still alive."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)


@dataclass(frozen=True)
class Tag:
    """A name that all processes of a run have in their environment."""

    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def environment(self) -> dict[str, str]:
        """The environment for the first process: interpreters of their own, in which PYTHONPATH may name a checkout."""
        return os.environ | {TAG: self.name}

    def alive(self) -> list[Process]:
        """Its processes, without those that have ended and were not waited for."""
        folders = (path for path in Path("/proc").iterdir() if path.name.isdigit())
        return [process for folder in folders if (process := self._process(folder))]

    def _process(self, folder: Path) -> Process | None:
        with suppress(OSError):
            if f"{TAG}={self.name}".encode() not in (folder / "environ").read_bytes().split(b"\0"):
                return None
            if (folder / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return None
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            kind = next((kind for kind, pattern in KINDS.items() if re.search(pattern, command)), "other")
            return Process(int(folder.name), kind, command[:200])
        return None

    def await_end(self, seconds: float) -> list[Process]:
        """Wait until no process is left; gives those that live on after this time."""
        deadline = time.monotonic() + seconds
        while (alive := self.alive()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return alive

    def end(self) -> None:
        """Kill all of them."""
        for process in self.alive():
            process.send(signal.SIGKILL)
