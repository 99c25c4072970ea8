"""Run records: what one job did, written beside its output, whichever engine started it.

A record is not part of the payload: it may name times and machines, the payload may not.
"""

import hashlib
import os
import platform
import re
import resource
import subprocess
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from eopipe import __version__
from eopipe.contract import STAGES, Input, Output, Port, Stage, is_path
from eopipe.contract import stage as stage_named
from eopipe.errors import EopipeError, IntegrityError, UsageError
from eopipe.models.model_files import installed_version, libraries
from eopipe.own_files import is_foreign
from eopipe.processes import map_in_order, parent_commands
from eopipe.provenance.jobs import current_stage
from eopipe.provenance.redact import redact_for_record, redact_message, url_without_credentials
from eopipe.publish import MANIFEST, content_digest, foreign_conflict, publish, published_digest, sha256, size
from eopipe.text_files import read_json, write_json

# The environment variables with a scheduler's job id; PBS appends its host behind a dot.
SCHEDULERS = {"slurm": "SLURM_JOB_ID", "pbs": "PBS_JOBID", "lsf": "LSB_JOBID"}
IMAGE_FILES = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
GPUS = Path("/proc/driver/nvidia/gpus")
PACKAGES = ("numpy", "rasterio", "torch", "zarr")
# The commit of a checkout and its changed files, without files of its submodules, which have settings of their own.
STATUS = ("status", "--porcelain=v2", "--branch", "--no-ahead-behind", "-uno", "--ignore-submodules=all")
HEAD = "# branch.oid "
# In the title of a page.
PAGE_MARK = "· eopipe "
# Stages that run a model.
MODEL_USERS = ("calibrate", "predict", "export")
# The key of the digest of a record's own text, in which this digest is empty.
OWN_DIGEST = "record_sha256"
UNFINISHED = "the job has not ended: it runs, or was killed before it could say why"
CODE = Path(__file__).resolve().parents[2]
# Written by setup.py.
BUILT_COMMIT = CODE / "eopipe/commit.txt"
# The commands of workflow engines, and the packages that contain them.
ENGINE_COMMANDS = {
    "snakemake": "snakemake",
    "cwltool": "cwltool",
    "toil-cwl-runner": "toil",
    "_toil_worker": "toil",
    "streamflow": "streamflow",
}


def record_path(output: Path) -> Path:
    """The run record of a job: beside its first output."""
    return output.parent / f"{output.name}.run.json"


def now() -> str:
    """The time with its zone, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def record_start(stage: Stage, values: dict[str, Any], arguments: list[str]) -> str:
    """Write a record of a failed job unless there is a record: it names the maker of what a killed job leaves.

    Returns the time of the start.
    """
    start, path = now(), record_path(stage.outputs(values)[0])
    if not path.exists():
        unknown = {"inputs": [], "outputs": [], "usage": {}, "software": {}, "project": ""}
        _publish_record(path, _job(stage, values, arguments, start, UNFINISHED) | unknown)
    return start


def write_record(
    stage: Stage, values: dict[str, Any], arguments: list[str], start: str, error: str = ""
) -> dict[str, Any]:
    """Write the record of a job that has ended, with its command; `error` is empty for one that succeeded.

    Returns the record. The record of a completed job stays where a later one failed and has left its folder as it was.
    """
    record = _job(stage, values, arguments, start, error) | {
        "inputs": _data(stage, stage.of(Input), values),
        "outputs": [] if error else _outputs(stage, values),
        "usage": _usage(),
        "software": _software() | _model_libraries(stage, values),
        "project": _project_commit(),
    }
    first = stage.outputs(values)[0]
    if not (error and _is_described(first)):
        _publish_record(record_path(first), record)
    return record


def _is_described(folder: Path) -> bool:
    """Whether a published folder has the record of the job that wrote it."""
    with suppress(EopipeError, OSError, KeyError, TypeError):
        rows = read_json(record_path(folder))["outputs"]
        return any(row["name"] == folder.name and row["sha256"] == sha256(folder / MANIFEST) for row in rows)
    return False


def _job(stage: Stage, values: dict[str, Any], arguments: list[str], start: str, error: str) -> dict[str, Any]:
    """What a record says of the command, its status and where it ran."""
    return {
        "stage": stage.name,
        "version": __version__,
        "status": "failed" if error else "completed",
        "error": redact_message(error, arguments),
        "start": start,
        "end": now(),
        "arguments": redact_for_record(["eopipe", *arguments]),
        "settings": {p.name: redact_for_record(values[p.name]) for p in stage.ports if not is_path(p)},
        "place": _host_class(),
        "engine": engine(),
        "container": container(),
    }


def _publish_record(path: Path, record: dict[str, Any]) -> None:
    with publish(path) as draft:
        write_json(draft, record | {OWN_DIGEST: ""})
        write_json(draft, record | {OWN_DIGEST: sha256(draft)})


def check_unchanged(path: Path, record: dict[str, Any], keys: Collection[str]) -> None:
    """Raise IntegrityError for a record with another text than the one that was written.

    One of an earlier version has no digest of its own, and no other keys than these.
    """
    text = path.read_bytes().replace(record.get(OWN_DIGEST, "").encode(), b"", 1)
    is_earlier = OWN_DIGEST not in record and record.keys() <= {*keys}
    if not is_earlier and hashlib.sha256(text).hexdigest() != record.get(OWN_DIGEST):
        raise IntegrityError(f"{path} was changed after it was written")


def _data(stage: Stage, ports: Iterable[Port], values: dict[str, Any]) -> list[dict[str, Any]]:
    paths = [(port, path) for port in ports for path in stage.paths(port, values)]
    # Path.exists raises OSError for a name that is too long.
    existing = [(port, path) for port, path in paths if os.path.exists(path)]  # noqa: PTH110
    sources = [source for port in ports if _has_files(port) and (source := values[port.name])]
    text_of_folder = cache(lambda folder: _path_text(folder, sources))

    def row(pair: tuple[Port, Path]) -> dict[str, Any]:
        port, path = pair
        place = {"path": str(text_of_folder(path.parent) / path.name)} if _has_files(port) else {}
        return _data_row(port, path) | place

    # A chip set has many thousand files, in few folders.
    return [*map_in_order(row, existing, threads=0)]


def _has_files(port: Port) -> bool:
    return isinstance(port.mark, Input) and bool(port.mark.files)


def _path_text(folder: Path, sources: Iterable[Path]) -> Path:
    """A folder from the one on that the command names, or as a list of files has it; else from the working folder."""
    for source in sources:
        base, name = (source, source.name) if source.is_dir() else (source.parent, "")
        if folder.is_relative_to(base):
            return Path(name) / folder.relative_to(base)
    return Path(redact_for_record(str(folder)))


def _outputs(stage: Stage, values: dict[str, Any]) -> list[dict[str, Any]]:
    """The outputs; `beside` is true for those in the folder of the record, whatever path the command uses.

    Behind an output are the stores in it, with their `path` from that folder.
    """
    home, rows = stage.outputs(values)[0].parent, []
    for port in stage.of(Output):
        for row in _data(stage, [port], values):
            rows += [row | {"beside": values[port.name].parent == home}, *_stores(port, values[port.name])]
    return rows


def _stores(port: Port, folder: Path) -> list[dict[str, Any]]:
    names = port.mark.stores if isinstance(port.mark, Output) else ()
    paths = [path.parent for name in names for path in sorted((folder / name).glob(f"*/{MANIFEST}"))]
    return [_data_row(port, path) | {"beside": False, "path": f"{path.relative_to(folder.parent)}"} for path in paths]


def _data_row(port: Port, path: Path) -> dict[str, Any]:
    bytes_, count = size(path)
    # The files that are used of a folder that may be large, as a catalog, have digests of their own.
    is_small = isinstance(port.mark, Input) and bool(port.mark.derived)
    return {
        "port": port.name,
        "name": path.name,
        "folder": path.is_dir(),
        "bytes": bytes_,
        "files": count,
        "sha256": content_digest(path) if is_small else published_digest(path),
    }


def _usage() -> dict[str, float]:
    """Processor seconds of this process and its children, and the peak memory of one of them in MB."""
    process, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = process.ru_utime + process.ru_stime + children.ru_utime + children.ru_stime
    peak = max(_peak_memory(process.ru_maxrss), children.ru_maxrss) / 1024
    # Three digits are enough, and jobs with the same values share an entity in a crate.
    return {"cpu_s": float(f"{cpu:.3g}"), "max_rss_mb": float(f"{peak:.3g}")}


def _peak_memory(default: int) -> int:
    """Peak memory of this process in KiB; the value of getrusage is inherited from the parent process."""
    status = Path("/proc/self/status")
    peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(peak[1]) if peak else default


def _host_class() -> dict[str, Any]:
    """The class of machine and the scheduler's job id, but no host or user name."""
    jobs = [f"{name}:{os.environ[key].partition('.')[0]}" for name, key in SCHEDULERS.items() if key in os.environ]
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": next(iter(_kernel_values(Path("/proc/cpuinfo"), "model name")), ""),
        "cores": os.cpu_count(),
        "accelerators": [gpu for path in sorted(GPUS.glob("*/information")) for gpu in _kernel_values(path, "Model")],
        "job": next(iter(jobs), ""),
    }


def _kernel_values(path: Path, key: str) -> list[str]:
    """The values of a key in a file of `/proc`; none if the file does not exist."""
    try:
        return re.findall(rf"^{key}\s*:\s*(\S.*?)\s*$", path.read_text(), re.MULTILINE)
    except OSError:
        return []


def _software() -> dict[str, str]:
    """Versions of Python and the main packages, and the commit of eopipe."""
    versions = {"python": platform.python_version(), "git": commit()}
    return versions | {name: number for name in PACKAGES if (number := installed_version(name))}


def _model_libraries(stage: Stage, values: dict[str, Any]) -> dict[str, str]:
    """Versions of the libraries of a custom model: of the one that is trained, or as installed of one that is used."""
    if stage.name == "train":
        return libraries(values["architecture"], values["model_files"])
    model = values.get("model")
    if stage.name not in MODEL_USERS or not isinstance(model, Path):
        return {}
    # Loads NumPy, which not every stage needs.
    from eopipe.models.model_folder import read_model_card

    with suppress(EopipeError):
        names = read_model_card(model).get("software", {})
        return {name: number for name in names if (number := installed_version(name))}
    return {}


def _project_commit() -> str:
    """The commit of the checkout that the job runs in, unless that is eopipe's own."""
    folder = Path.cwd()
    checkout = next((path for path in (folder, *folder.parents) if (path / ".git").exists()), CODE)
    return commit(checkout) if checkout != CODE else ""


def commit(checkout: Path = CODE) -> str:
    """The commit of a checkout (default: eopipe's), with `+` if files are changed; empty if it is not a checkout.

    An installed eopipe has the one that it was built from.
    """
    if not (checkout / ".git").exists():
        return BUILT_COMMIT.read_text() if checkout == CODE and BUILT_COMMIT.is_file() else ""
    with suppress(OSError, subprocess.TimeoutExpired):
        filters = _git(checkout, (), "config", "--includes", "--name-only", "--get-regexp", r"^filter\.")
        switched_off = tuple(f"{name}=" for name in filters if not name.endswith(".required"))
        switched_off += tuple(f"{name}=false" for name in filters if name.endswith(".required"))
        lines = _git(checkout, switched_off, *STATUS)
        head = next((line.removeprefix(HEAD) for line in lines if line.startswith(HEAD)), "(initial)")
        is_changed = any(not line.startswith("#") for line in lines)
        return "" if head == "(initial)" else f"{head}{'+' if is_changed else ''}"
    return ""


def _git(checkout: Path, settings: Sequence[str], *arguments: str) -> list[str]:
    """The lines that git prints; the settings of the checkout, which may be of another person, start no program.

    They could name one for the state of its files, for hooks, for filters of files and for a download of objects.
    """
    # Many jobs ask at once, and none may wait for the lock of the index.
    command = ["git", "--no-optional-locks", "--no-pager"]
    for setting in ("core.fsmonitor=false", "core.hooksPath=/dev/null", "safe.bareRepository=explicit", *settings):
        command += ["-c", setting]
    environment = os.environ | {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1"}
    result = subprocess.run(
        [*command, *arguments], cwd=checkout, env=environment, capture_output=True, text=True, timeout=10, check=False
    )
    return result.stdout.splitlines()


def engine() -> str:
    """Name and version of the nearest workflow engine among the parent processes, such as `cwltool 3.1`.

    Engines do not identify themselves to their jobs. Empty for a job that a person or a container started.
    """
    for arguments in parent_commands():
        # The command, or the script or module that follows an interpreter and its options; later ones may be anything.
        program = next((argument for argument in arguments[1:] if not argument.startswith("-")), "")
        for argument in (arguments[0], program):
            if package := ENGINE_COMMANDS.get(Path(argument).name):
                return f"{package} {_engine_version(package, arguments[0], program)}".strip()
    return ""


def container() -> str:
    """The image of the container that this process runs in, as far as it says so; empty outside of a container.

    The images of eopipe and the workflow set EOPIPE_CONTAINER; Apptainer sets the path of its image.
    """
    name = os.environ.get("EOPIPE_CONTAINER") or next(filter(None, map(os.environ.get, IMAGE_FILES)), "")
    return url_without_credentials(name) if "://" in name else Path(name).name if name.startswith("/") else name


def _engine_version(package: str, command: str, program: str) -> str:
    """The version of the package that is installed beside the program or the command, its interpreter."""
    prefixes = [Path(argument).parent.parent for argument in (program, command) if argument.startswith("/")]
    folders = [str(folder) for prefix in prefixes for folder in prefix.glob("lib/python*/*-packages")]
    return next((distribution.version for distribution in distributions(name=package, path=folders)), "")


def refuse_foreign_outputs(stage: Stage, values: dict[str, Any]) -> None:
    """Raise UsageError that lists every output path where there is a folder or file that the stage did not make.

    Stages that make the same output, such as the model of `train` and `choose`, replace each other's.
    """
    paths = {port: values[port.name] for port in stage.of(Output) if values[port.name] is not None}
    record = record_path(stage.outputs(values)[0])
    maker, _ = current_stage(str(read_json(record)["stage"]) if record.is_file() else "")
    names = {port.name for port in stage_named(maker).of(Output)} if maker in STAGES else set()
    conflicts = []
    for port, path in paths.items():
        is_folder = isinstance(port.mark, Output) and port.mark.folder
        if is_folder and maker and port.name not in names and path.is_dir() and any(path.iterdir()):
            conflicts.append(f"{port.flag} {path} contains outputs of {maker}")
        elif port.name == "page" and path.is_file() and is_foreign(path, PAGE_MARK):
            conflicts.append(f"{port.flag} {path}")
        elif conflict := foreign_conflict(path, folder=is_folder):
            conflicts.append(f"{port.flag} {conflict}")
    if conflicts:
        raise UsageError(
            f"{stage.name} would overwrite files that it did not write: {'; '.join(conflicts)}; choose another path"
        )
