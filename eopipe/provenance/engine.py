"""Which workflow engine started a job: it stands above the job among the processes, and tells nothing itself."""

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path

# The commands of engines, and the packages that they come with.
COMMANDS = {
    "snakemake": "snakemake",
    "cwltool": "cwltool",
    "toil-cwl-runner": "toil",
    "_toil_worker": "toil",
    "streamflow": "streamflow",
}


def engine() -> str:
    """Name and version of the nearest engine, as `cwltool 3.1`; empty for a job that a person or a container began."""
    for words in _above(os.getppid()):
        # Behind the interpreter, its option and the command come words of any kind.
        for word in words[:3]:
            if package := COMMANDS.get(Path(word).name):
                return f"{package} {_version(package, words)}".strip()
    return ""


def _above(pid: int) -> Iterator[list[str]]:
    """The command lines of a process and of those above it; none where the system does not tell."""
    with suppress(OSError, ValueError):
        while pid > 1:
            yield Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
            pid = int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1])


def _version(package: str, words: list[str]) -> str:
    """The version that is installed beside the command or its interpreter."""
    # Of both, the place of the command is the nearer one.
    places = [Path(word).parent.parent for word in words[1::-1] if word.startswith("/")]
    rooms = [room for place in places for room in place.glob("lib/python*/*-packages")]
    return next((found.version for found in distributions(name=package, path=list(map(str, rooms)))), "")
