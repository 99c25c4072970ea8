"""`eopipe verify`: find what is damaged below a folder, and on request run just those stages again.

Folders are compared with their manifests. Files, and manifests as a whole, are compared with the run records beside
them, so that a folder that was replaced or removed is found too, also where only another record names it, as an input.
Records have a digest; the record of a crate names the others. What none names, but for logs, is listed as not checked.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from eopipe.contract import STAGES, Argument, Knob, Port, Stage, to_args
from eopipe.errors import BadInputError, EopipeError, IntegrityError, RefusedError
from eopipe.models.model_files import is_permitted, permission_message
from eopipe.provenance.crate_reader import RunCrate, crate_damages, is_crate, read_crate
from eopipe.provenance.jobs import RunRecord, named_inputs, recorded_command
from eopipe.provenance.record import check_unchanged, record_path
from eopipe.publish import (
    ENGINE,
    MANIFEST,
    RECORD,
    Damage,
    MapFunction,
    damage_message,
    digest,
    find_damage,
    is_draft,
    sha256,
)
from eopipe.text_files import read_json
from eopipe.text_table import message_line

# Folders of what Snakemake's jobs print and measure, which no digest covers.
OF_JOBS = ("logs", "benchmarks")
# More paths than these are counted, not listed.
LISTED_PATHS = 20
# Knobs with names that a repair uses where the command line permits them.
PERMITTED = ("allow_code", "private_hosts")


@dataclass(frozen=True)
class PublishedOutput:
    """An output of a stage; `sha256`, `command` and `size_bytes` are empty if no run record has them."""

    path: Path
    folder: bool
    sha256: str = ""
    command: tuple[str, ...] = ()
    size_bytes: int | None = None


@dataclass
class ScanResult:
    """Outputs that were checked, the damage of those that are damaged, and what could not be checked.

    `unchecked` are files that no manifest, run record or crate names, `manifest_only` folders without run record;
    `warnings` are sentences.
    """

    checked: list[PublishedOutput]
    damaged: dict[PublishedOutput, list[Damage]] = field(default_factory=dict)
    unchecked: list[Path] = field(default_factory=list)
    manifest_only: list[Path] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(self, output: PublishedOutput, damage: str = "") -> None:
        """Add what was checked beside the outputs that records name."""
        self.checked += [] if output in self.checked else [output]
        if damage:
            self.damaged.setdefault(output, []).append(Damage(damage))


@dataclass
class Survey:
    """What is at or below a path: outputs by run records, these, damaged ones, other published folders, files.

    Both `folders` and `files` are without those that records name. Drafts are of writers that work, or were killed.
    """

    recorded: list[PublishedOutput]
    records: dict[Path, RunRecord]
    damaged: list[Path]
    folders: list[Path]
    files: list[Path]
    drafts: list[Path]


def scan(root: Path, threads: int) -> ScanResult:
    """Check all outputs at or below a path.

    Raises BadInputError when the path does not exist or holds no output of eopipe, and for a crate by other software
    or of a newer version that was asked for.
    """
    if not root.exists() and not record_path(root).is_file():
        raise BadInputError(f"there is no {root}; give a file or folder that eopipe made")
    survey = _survey(root)
    result = ScanResult([*survey.recorded, *(PublishedOutput(path, folder=True) for path in survey.folders)])
    with ThreadPoolExecutor(threads) as pool:
        for output in result.checked:
            if damage := damage_of(output, pool.map):
                result.damaged[output] = damage
    _compare_with_records(result, survey, root)
    if not result.checked:
        raise BadInputError(f"{root} is not an output of eopipe: there is no {MANIFEST} and no run record")
    if survey.drafts:
        result.warnings.append(
            f"{_listed(survey.drafts)}: what a writer that was killed had not finished, unless it still writes; the "
            "next job with this output removes it, one of another host after a day"
        )
    _check_crates(result, survey, root)
    result.checked.sort(key=lambda output: output.path)
    return result


def _survey(root: Path) -> Survey:
    """Walk a folder. Files inside a published folder are parts of it; drafts and hidden folders are left out."""
    folders, records, others, drafts = [], [], [], []
    for parent, subfolders, names in os.walk(root):
        if MANIFEST in names:
            folders.append(Path(parent))
            subfolders.clear()
            continue
        drafts += [Path(parent, name) for name in sorted([*subfolders, *names]) if is_draft(name)]
        subfolders[:] = sorted(name for name in subfolders if not is_draft(name) and not name.startswith("."))
        subfolders[:] = [name for name in subfolders if name not in OF_JOBS]
        paths = [Path(parent, name) for name in sorted(set(names) - ENGINE) if not is_draft(name)]
        records += [path for path in paths if path.name.endswith(RECORD)]
        others += [path for path in paths if not path.name.endswith(RECORD)]
    recorded: dict[Path, PublishedOutput] = {}
    readable, damaged = {}, []
    for record in sorted({*records, *filter(Path.is_file, [record_path(root)])}):
        try:
            value: dict[str, Any] = read_json(record)
            check_unchanged(record, value, RunRecord.model_fields)
            recorded |= {output.path: output for output in _outputs(record, value)}
            readable[record] = RunRecord.model_validate(value)
        except (AttributeError, EopipeError, KeyError, TypeError, ValueError):
            damaged.append(record)
    recorded = {path: output for path, output in recorded.items() if path == root or root in path.parents}
    unrecorded = [[path for path in paths if path not in recorded] for paths in (folders, others)]
    return Survey(list(recorded.values()), readable, damaged, unrecorded[0], unrecorded[1], drafts)


def _outputs(record: Path, value: dict[str, Any]) -> list[PublishedOutput]:
    """The outputs of a run record that are in its folder: the first one always is, others may be elsewhere.

    Raises BadInputError, or an error of Python, for a file that is not a run record.
    """
    command, rows = tuple(map(str, value["arguments"])), value["outputs"]
    parents = {flag: Path(path).parent for flag, path in pairwise(command)}
    folders = [parents.get(f"--{row['port'].replace('_', '-')}") for row in rows]
    if invalid := [row["name"] for row in rows if row["name"] in ("", "..") or row["name"] != Path(row["name"]).name]:
        raise BadInputError(f"{record} has an output {invalid[0]!r}, which is not the name of a file")
    return [
        PublishedOutput(record.parent / row["name"], bool(row["folder"]), str(row["sha256"]), command, row.get("bytes"))
        for row, at in zip(rows, folders, strict=True)
        # Records of earlier versions lack `beside`.
        if row.get("beside", at == folders[0])
    ]


def missing_or_shortened(root: Path) -> tuple[list[Path], int]:
    """Recorded outputs below a folder that were removed or have other sizes now, and how many are recorded."""
    recorded = _survey(root).recorded
    return sorted(output.path for output in recorded if damage_of(output, map, content=False)), len(recorded)


def damage_of(output: PublishedOutput, map_files: MapFunction, *, content: bool = True) -> list[Damage]:
    """The damage of one output; empty if it is intact. `content=False` compares names and sizes only."""
    if not output.path.exists():
        return [Damage("it is missing")]
    if not (output.path.is_dir() if output.folder else output.path.is_file()):
        return [Damage(f"it is not a {'folder' if output.folder else 'file'}")]
    if not output.folder:
        return _damage_of_file(output, content)
    damage = find_damage(output.path, map_files, content=content)
    if not damage and content and output.sha256 and digest(output.path) != output.sha256:
        return [Damage(f"its {MANIFEST} is not the one in its run record; was the folder replaced?")]
    return damage


def _damage_of_file(output: PublishedOutput, content: bool) -> list[Damage]:
    if not content:
        is_other_size = output.size_bytes is not None and output.path.stat().st_size != output.size_bytes
        return [Damage("it has another size than its run record says")] if is_other_size else []
    try:
        is_changed = sha256(output.path) != output.sha256
    except OSError as error:
        return [Damage(f"it cannot be read: {error.strerror}")]
    return [Damage("it has other content than its run record says")] if is_changed else []


def verify(
    path: Annotated[Path, Argument("folder of results, a crate, or one output of a stage", positional=True)],
    threads: Annotated[int | None, Argument("threads that compute checksums [all cores]", ge=1)] = None,
    repair: Annotated[
        bool,
        Argument("rebuild damaged outputs with the commands in their run records; start it in the folder of the run"),
    ] = False,
    allow_code: Annotated[
        str | None,
        Argument(
            "permission for --repair to run the code of a custom model: the train.architecture of the run",
            value="CODE",
        ),
    ] = None,
    private_hosts: Annotated[
        tuple[str, ...],
        Argument("permission for --repair to fetch from these: the fetch.private_hosts of the run", value="HOST"),
    ] = (),
) -> int:
    """Find removed, truncated or changed files; rebuild them on request."""
    result = scan(path, threads or len(os.sched_getaffinity(0)))
    for output, damage in sorted(result.damaged.items(), key=lambda entry: entry[0].path):
        print(message_line("error", damage_message(output.path, damage)), file=sys.stderr)
        if output.command and not repair:
            print(f"  {shlex.join(output.command)}", file=sys.stderr)
    if repair and result.damaged:
        # Files beside one output may be written too.
        is_output = any(output.path == path for output in result.checked)
        folder = (path.parent if is_output else path).resolve()
        return _repair_all(result, Repair(folder, allow_code, private_hosts))
    if not result.damaged and is_crate(path):
        checksums = len(list(read_crate(path).data_entities()))
        print(f"{checksums} checksums of the metadata are right; digest of the crate: {digest(path)}")
    total = len(result.checked)
    print(f"{total - len(result.damaged)} of {total} files and folders are intact")
    _print_unchecked(result)
    return IntegrityError.code if result.damaged else 0


def _print_unchecked(result: ScanResult) -> None:
    """Print what the number of intact files and folders does not cover."""
    for sentence in result.warnings:
        print(message_line("warning", sentence), file=sys.stderr)
    if result.manifest_only:
        print(f"without run record, compared with their own manifest only: {_listed(result.manifest_only)}")
    if result.unchecked:
        print(f"not checked, since no manifest, run record or crate names them: {_listed(result.unchecked)}")


def _listed(paths: list[Path]) -> str:
    omitted = len(paths) - LISTED_PATHS
    return ", ".join([*map(str, paths[:LISTED_PATHS]), *([f"and {omitted} more"] if omitted > 0 else [])])


def _check_crates(result: ScanResult, survey: Survey, root: Path) -> None:
    """Add where the metadata of crates differ from their files, and the run records that crates lack.

    Raises BadInputError for metadata that are unreadable although intact, if the path is the crate's.
    """
    for output in [output for output in result.checked if output.folder and is_crate(output.path)]:
        try:
            if damage := crate_damages(output.path):
                result.damaged.setdefault(output, []).extend(damage)
            elif output not in result.damaged and _lacks_record(read_crate(output.path), survey):
                result.add(PublishedOutput(record_path(output.path), folder=False), "it is missing, its crate is not")
        except BadInputError as error:
            if output not in result.damaged and output.path == root:
                raise
            if output not in result.damaged:
                result.warnings.append(f"{output.path} is as its manifest says, but its metadata are not read: {error}")


def _lacks_record(crate: RunCrate, survey: Survey) -> bool:
    """Whether a crate describes what is beside it, and neither it nor another crate there has a run record."""
    beside = [output for output in survey.recorded if output.path.parent == crate.folder.parent]
    described = {data.sha256 for job in crate.jobs for data in job.record.outputs}
    return not any(is_crate(output.path) for output in beside) and any(output.sha256 in described for output in beside)


def _compare_with_records(result: ScanResult, survey: Survey, root: Path) -> None:
    """Add damaged records and inputs that are gone; compare with the record of a crate what has none."""
    for path in survey.damaged:
        result.add(PublishedOutput(path, folder=False), "it is not the run record that was written; its job is unknown")
    known = {*survey.damaged, *(output.path for output in survey.recorded)}
    again, compared = [], {output.path for output in result.damaged}
    for path, code, output in named_inputs(root, survey.records, known, survey.folders):
        is_other = damage_of(PublishedOutput(path, path.is_dir(), code), map)
        if not path.exists():
            result.add(PublishedOutput(path, folder=False), f"it is missing, and {output} was made of it")
        elif not path.name.endswith(RECORD):
            text = f"it has no run record, and its content differs from the one that {output} was made of"
            result.add(PublishedOutput(path, path.is_dir()), text if is_other else "")
            compared.add(path)
        elif is_other:
            again.append(path)
    if again:
        result.warnings.append(
            f"{_listed(again)}: not the record that the crate was made of: either the stage ran again and the next run "
            "updates the crate, or file and record were changed together"
        )
    result.unchecked = [path for path in survey.files if path not in compared]
    result.manifest_only = [path for path in survey.folders if path not in compared and not is_crate(path)]


@dataclass(frozen=True)
class Repair:
    """What a repair may do: write below a resolved folder, run the code of one model, fetch from private hosts."""

    folder: Path
    allow_code: str | None
    private_hosts: Sequence[str]

    def check_inside(self, path: Path, owner: str) -> None:
        """Raise RefusedError for a path outside of the folder, links followed."""
        if not path.resolve().is_relative_to(self.folder):
            raise RefusedError(
                f"{owner} would write {path}, which is outside of {self.folder}; nothing was written. If the record is "
                "yours, run its command yourself"
            )

    def command(self, definition: Stage, values: dict[str, Any]) -> list[str]:
        """The command of a stage with the recorded values, without knobs that name folders or programs.

        Raises RefusedError where it would write outside of the folder, or run code or ask hosts that are not allowed.
        """
        for path in definition.outputs(values):
            self.check_inside(path, f"the command in its run record, eopipe {definition.name},")
        if not is_permitted(values.get("architecture", ""), (self.allow_code,)):
            raise RefusedError(permission_message("its run record", values["architecture"]))
        hosts = values.get("private_hosts") or ()
        if missing := [host for host in hosts if host not in self.private_hosts]:
            raise RefusedError(
                f"its run record names hosts inside a private network, {', '.join(missing)}, and a record from others "
                f"can name any; if you trust it add --private-hosts {shlex.join(hosts)}"
            )
        values |= {"allow_code": self.allow_code}
        ports = [port for port in definition.ports if not _names_place(port) or port.name in PERMITTED]
        return [definition.name, *(word for port in ports for word in to_args(port, values[port.name]))]


def _names_place(port: Port) -> bool:
    """Whether a port is a knob with the name of a folder or program, rather than a number or one of some words."""
    return isinstance(port.mark, Knob) and (port.is_list or port.base in (str, Path))


def _repair_all(result: ScanResult, repair: Repair) -> int:
    """Rebuild damaged outputs, inputs before what is derived from them; print what could not be rebuilt."""
    code = 0
    for output in sorted(result.damaged, key=_order):
        try:
            print(f"{output.path} {_repair(output, result.damaged[output], repair)}")
        except EopipeError as error:
            print(message_line("error", f"{output.path}: {error}"), file=sys.stderr)
            code = code or error.code
    return code


def _order(output: PublishedOutput) -> tuple[int, Path]:
    name = output.command[1] if len(output.command) > 1 else ""
    return (STAGES.index(name) if name in STAGES else len(STAGES)), output.path


def _repair(output: PublishedOutput, damage: list[Damage], repair: Repair) -> str:
    """Repair one output and say how; files that do not belong there are moved out, never removed."""
    extra_folder = output.path.with_name(f"{output.path.name}.extra")
    repair.check_inside(output.path, "a repair")
    for extra in (entry.extra for entry in damage if entry.extra):
        target = extra_folder / extra.relative_to(output.path)
        repair.check_inside(target, "a repair")
        target.parent.mkdir(parents=True, exist_ok=True)
        extra.rename(target)
    if all(entry.extra for entry in damage):
        return f"is intact again: what did not belong there is in {extra_folder.name}"
    _rebuild(output, repair)
    if damage_of(PublishedOutput(output.path, output.folder, output.sha256), map):
        return "was rebuilt with different content; what is derived from it has to be rebuilt too"
    return "was rebuilt with the same content"


def _rebuild(output: PublishedOutput, repair: Repair) -> None:
    definition, values = recorded_command(output.command)
    targets = definition.outputs(values)
    if output.path.resolve() not in {target.resolve() for target in targets}:
        raise BadInputError(
            f"the command in its run record writes {', '.join(map(str, targets))}; start this where the run was started"
        )
    done = subprocess.run([sys.executable, "-P", "-m", "eopipe", *repair.command(definition, values)], check=False)
    if done.returncode:
        raise IntegrityError(f"it could not be rebuilt: eopipe {definition.name} exited with code {done.returncode}")
