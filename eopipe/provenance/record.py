"""Run records: what one job did, written beside its output, whichever engine started it.

A record is no part of the payload: it may hold clocks and machines, the payload may not.
"""

import os
import platform
import re
import resource
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

from eopipe import __version__
from eopipe.contract import Input, Output, Port, Stage, is_path
from eopipe.errors import UsageError
from eopipe.provenance.redact import redact_for_record, redact_message
from eopipe.publish import ENGINE, MANIFEST, digest, publish, read_json, size, write_json

# Where schedulers tell their id of the job; behind a dot PBS names its host.
SCHEDULERS = {"slurm": "SLURM_JOB_ID", "pbs": "PBS_JOBID", "lsf": "LSB_JOBID"}
GPUS = Path("/proc/driver/nvidia/gpus")
PACKAGES = ("numpy", "rasterio", "torch", "zarr")
CODE = Path(__file__).resolve().parents[2]


def record_path(output: Path) -> Path:
    """Where the record of a stage lies: beside its first output."""
    return output.parent / f"{output.name}.run.json"


def now() -> str:
    """The time with its zone, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def write_record(stage: Stage, values: dict[str, Any], words: list[str], start: str, error: str = "") -> None:
    """Write the record of a job that has ended, with its command; `error` is empty for one that went well."""
    outputs = stage.of(Output)
    record = {
        "stage": stage.name,
        "version": __version__,
        "status": "failed" if error else "completed",
        "error": redact_message(error, words),
        "start": start,
        "end": now(),
        "arguments": redact_for_record(["eopipe", *words]),
        "settings": {p.name: redact_for_record(values[p.name]) for p in stage.ports if not is_path(p)},
        "inputs": _entities(stage.of(Input), values),
        "outputs": [] if error else _outputs(outputs, values),
        "usage": _usage(),
        "place": _place(),
        "software": _software(),
        "project": _project(),
        "engine": engine(),
    }
    with publish(record_path(values[outputs[0].name])) as draft:
        write_json(draft, record)


def _entities(ports: Iterable[Port], values: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for port in ports:
        value = values[port.name]
        for path in value if isinstance(value, tuple) else (value,):
            if path is not None and path.exists():
                rows.append(_entity(port.name, path))
    return rows


def _outputs(ports: Sequence[Port], values: dict[str, Any]) -> list[dict[str, Any]]:
    """What was made; `beside` tells what lies in the folder of the record, whatever the command calls it."""
    home = values[ports[0].name].parent
    beside = {port.name: values[port.name] is not None and values[port.name].parent == home for port in ports}
    return [row | {"beside": beside[row["port"]]} for row in _entities(ports, values)]


def _entity(port: str, path: Path) -> dict[str, Any]:
    bytes_, count = size(path)
    known = path.is_file() or (path / "manifest.json").is_file()
    return {
        "port": port,
        "name": path.name,
        "folder": path.is_dir(),
        "bytes": bytes_,
        "files": count,
        "sha256": digest(path) if known else "",
    }


def _usage() -> dict[str, float]:
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
    peak = max(_own_peak(own.ru_maxrss), children.ru_maxrss) / 1024
    # Nobody needs more digits, and jobs whose figures are alike share them in a crate.
    return {"cpu_s": float(f"{cpu:.3g}"), "max_rss_mb": float(f"{peak:.3g}")}


def _own_peak(otherwise: int) -> int:
    """Most memory that this process held, in KiB; the mark of getrusage is inherited from whoever started it."""
    status = Path("/proc/self/status")
    told = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(told[1]) if told else otherwise


def _place() -> dict[str, Any]:
    """The class of machine and the scheduler's job, but no host or user name."""
    jobs = [f"{name}:{os.environ[word].partition('.')[0]}" for name, word in SCHEDULERS.items() if word in os.environ]
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": next(iter(_told(Path("/proc/cpuinfo"), "model name")), ""),
        "cores": os.cpu_count(),
        "accelerators": [one for path in sorted(GPUS.glob("*/information")) for one in _told(path, "Model")],
        "job": next(iter(jobs), ""),
    }


def _told(path: Path, word: str) -> list[str]:
    """What a file of the kernel says behind a word; nothing where there is no such file."""
    try:
        return re.findall(rf"^{word}\s*:\s*(\S.*?)\s*$", path.read_text(), re.MULTILINE)
    except OSError:
        return []


def _software() -> dict[str, str]:
    found = {"python": platform.python_version(), "git": commit()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _project() -> str:
    """The commit of the checkout that the job ran in, unless it is the code's own."""
    here = Path.cwd()
    near = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), CODE)
    return commit(near) if near != CODE else ""


def commit(checkout: Path = CODE) -> str:
    """The commit of a checkout, that of eopipe if not given, with + when files are changed; empty where it is none."""
    if not (checkout / ".git").exists():
        return ""
    # Many jobs look at once, and none may wait for the index.
    command = ["git", "--no-optional-locks", "describe", "--always", "--abbrev=40", "--dirty=+", "--exclude=*"]
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=10, check=False)
        return done.stdout.strip()
    return ""


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


def refuse_others(stage: Stage, values: dict[str, Any]) -> None:
    """Raise UsageError that lists every output in whose place lies a folder, or a file, that the stage did not make."""
    places = {port: values[port.name] for port in stage.of(Output) if values[port.name] is not None}
    maker = _maker(next(iter(places.values())))
    wrong = []
    for port, place in places.items():
        folder = isinstance(port.mark, Output) and port.mark.folder
        if place.is_file() if folder else place.is_dir():
            wrong.append(f"{port.flag} {place} is a {'file' if folder else 'folder'}")
        elif folder and maker != stage.name and _holds_others(place, maker):
            wrong.append(f"{port.flag} {place} holds {f'what {maker} made' if maker else 'other files'}")
    if wrong:
        raise UsageError(f"{stage.name} would replace what it did not make: {'; '.join(wrong)}; choose another path")


def _maker(first: Path) -> str:
    """The stage whose run record lies beside its first output; empty if there is none."""
    record = record_path(first)
    return str(read_json(record)["stage"]) if record.is_file() else ""


def _holds_others(folder: Path, maker: str) -> bool:
    """Whether a folder holds anything, and more than what was published without a record."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return bool(names - ENGINE) and (bool(maker) or MANIFEST not in names)
