"""`eopipe verify`: find what is damaged below a folder, and on request run just those stages again.

Folders are compared with their manifests. Files, and manifests as a whole, are compared with the run records
beside them, so that a folder that was replaced by another or removed is found too.
"""

import argparse
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from eopipe.contract import STAGES, Output, stage
from eopipe.errors import BadInputError, EopipeError, IntegrityError
from eopipe.provenance.crate_reader import crate_damages, is_crate, read_crate
from eopipe.publish import (
    MANIFEST,
    RECORD,
    Damage,
    MapFunction,
    damage_message,
    digest,
    find_damage,
    is_draft,
    read_json,
    sha256,
)


@dataclass(frozen=True)
class PublishedOutput:
    """An output of a stage; `sha256` and `command` are empty if no run record has them."""

    path: Path
    folder: bool
    sha256: str = ""
    command: tuple[str, ...] = ()


@dataclass
class ScanResult:
    """Outputs that were checked, and the damage of those that are damaged."""

    checked: list[PublishedOutput]
    damaged: dict[PublishedOutput, list[Damage]] = field(default_factory=dict)


def scan(root: Path, threads: int) -> ScanResult:
    """Check all outputs at or below a path.

    Raises BadInputError when the path does not exist or holds no output of eopipe.
    """
    if not root.exists() and not _record_of(root).is_file():
        raise BadInputError(f"there is no {root}; give a file or folder that eopipe made")
    result = ScanResult(sorted(published_outputs(root), key=lambda output: output.path))
    if not result.checked:
        raise BadInputError(f"{root} is not an output of eopipe: there is no {MANIFEST} and no run record")
    with ThreadPoolExecutor(threads) as pool:
        for output in result.checked:
            if damage := damage_of(output, pool.map):
                result.damaged[output] = damage
    return result


def published_outputs(root: Path) -> Iterator[PublishedOutput]:
    """All outputs of stages at or below a path; files inside a published folder are parts of it."""
    folders, records = [], []
    for parent, subfolders, files in os.walk(root):
        if MANIFEST in files:
            folders.append(Path(parent))
            subfolders.clear()
        else:
            subfolders[:] = [name for name in subfolders if not is_draft(name)]
            records += [Path(parent, name) for name in files if name.endswith(RECORD)]
    recorded = {output.path: output for record in sorted([_record_of(root), *records]) for output in _outputs(record)}
    recorded = {path: output for path, output in recorded.items() if path == root or root in path.parents}
    yield from recorded.values()
    yield from (PublishedOutput(folder, folder=True) for folder in folders if folder not in recorded)


def _record_of(path: Path) -> Path:
    return path.parent / f"{path.name}{RECORD}"


def _outputs(record: Path) -> Iterator[PublishedOutput]:
    """The outputs of a run record that are in its folder: the first one always is, others may be elsewhere."""
    try:
        value: dict[str, Any] = read_json(record)
        command = tuple(map(str, value["arguments"]))
        parents = {flag: Path(path).parent for flag, path in pairwise(command)}
        folders = [parents.get(f"--{row['port'].replace('_', '-')}") for row in value["outputs"]]
        # Records of earlier versions lack `beside`.
        beside = [row.get("beside", at == folders[0]) for at, row in zip(folders, value["outputs"], strict=True)]
        rows = [(record.parent / row["name"], bool(row["folder"]), str(row["sha256"])) for row in value["outputs"]]
    except (AttributeError, BadInputError, KeyError, TypeError):
        # A record is not payload: if it cannot be read, the manifest is all there is to compare with.
        return
    for is_beside, (path, folder, checksum) in zip(beside, rows, strict=True):
        if is_beside:
            yield PublishedOutput(path, folder, checksum, command)


def damage_of(output: PublishedOutput, map_files: MapFunction) -> list[Damage]:
    """The damage of one output; empty if it is intact."""
    if not output.path.exists():
        return [Damage("it is missing")]
    if output.path.is_dir() != output.folder:
        return [Damage(f"it is not a {'folder' if output.folder else 'file'}")]
    if not output.folder:
        is_changed = sha256(output.path) != output.sha256
        return [Damage("it has other content than its run record says")] if is_changed else []
    damage = find_damage(output.path, map_files)
    if not damage and output.sha256 and digest(output.path) != output.sha256:
        return [Damage(f"its {MANIFEST} is not the one in its run record; was the folder replaced?")]
    return damage


def verify(argv: list[str]) -> int:
    """Find removed, truncated or changed files; rebuild them on request."""
    parser = argparse.ArgumentParser(prog="eopipe verify", description=verify.__doc__)
    parser.add_argument("path", type=Path, help="folder of results, a crate, or one output of a stage")
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="threads that compute checksums [all cores]"
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="rebuild damaged outputs with the commands in their run records; start it in the folder of the run",
    )
    arguments = parser.parse_args(argv)
    crate = read_crate(arguments.path) if is_crate(arguments.path) else None
    result = scan(arguments.path, max(1, arguments.threads))
    _check_crates(result)
    for output, damage in result.damaged.items():
        print(f"error: {damage_message(output.path, damage)}", file=sys.stderr)
        if output.command and not arguments.repair:
            print(f"  {shlex.join(output.command)}", file=sys.stderr)
    if arguments.repair and result.damaged:
        return _repair_all(result)
    if crate and not result.damaged:
        checksums = len(list(crate.data_entities()))
        print(f"{checksums} checksums of the metadata are right; digest of the crate: {digest(crate.folder)}")
    total = len(result.checked)
    print(f"{total - len(result.damaged)} of {total} files and folders are intact")
    return IntegrityError.code if result.damaged else 0


def _check_crates(result: ScanResult) -> None:
    """Add where the metadata of a crate differ from its files."""
    for output in result.checked:
        if is_crate(output.path) and (damage := crate_damages(output.path)):
            result.damaged.setdefault(output, []).extend(damage)


def _repair_all(result: ScanResult) -> int:
    """Rebuild damaged outputs, inputs before what is derived from them; print what could not be rebuilt."""
    code = 0
    for output in sorted(result.damaged, key=_order):
        try:
            print(f"{output.path} {_repair(output, result.damaged[output])}")
        except EopipeError as error:
            print(f"error: {output.path}: {error}", file=sys.stderr)
            code = code or error.code
    return code


def _order(output: PublishedOutput) -> tuple[int, Path]:
    name = output.command[1] if len(output.command) > 1 else ""
    return (STAGES.index(name) if name in STAGES else len(STAGES)), output.path


def _repair(output: PublishedOutput, damage: list[Damage]) -> str:
    """Repair one output and say how; files that do not belong there are moved out, never removed."""
    extra_folder = output.path.with_name(f"{output.path.name}.extra")
    for extra in (entry.extra for entry in damage if entry.extra):
        target = extra_folder / extra.relative_to(output.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        extra.rename(target)
    if all(entry.extra for entry in damage):
        return f"is intact again: what did not belong there is in {extra_folder.name}"
    _rebuild(output)
    if damage_of(PublishedOutput(output.path, output.folder, output.sha256), map):
        return "was rebuilt with different content; what is derived from it has to be rebuilt too"
    return "was rebuilt with the same content"


def _rebuild(output: PublishedOutput) -> None:
    command = list(output.command)
    if len(command) < 2 or command[1] not in STAGES:
        raise IntegrityError("there is no run record with its command; run the stage again")
    flags = [port.flag for port in stage(command[1]).of(Output)]
    targets = [Path(value) for flag, value in pairwise(command) if flag in flags]
    if output.path.resolve() not in {target.resolve() for target in targets}:
        raise BadInputError(
            f"the command in its run record writes {', '.join(map(str, targets))}; start this where the run was started"
        )
    done = subprocess.run([sys.executable, "-m", "eopipe", *command[1:]], check=False)
    if done.returncode:
        raise IntegrityError(f"it could not be rebuilt: eopipe {command[1]} exited with code {done.returncode}")
