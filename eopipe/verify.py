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
from eopipe.publish import MANIFEST, RECORD, Damage, Over, damages, digest, is_draft, read_json, sha256, told


@dataclass(frozen=True)
class Published:
    """A file or folder that a stage made; `sha256` and `command` are empty where no record tells them."""

    path: Path
    folder: bool
    sha256: str = ""
    command: tuple[str, ...] = ()


@dataclass
class Survey:
    """What was looked at, and what is wrong with it."""

    seen: list[Published]
    broken: dict[Published, list[Damage]] = field(default_factory=dict)


def survey(root: Path, threads: int) -> Survey:
    """Check all that was published at or below a path.

    Raises BadInputError when there is no such path or nothing there was made by eopipe.
    """
    if not root.exists() and not _record_of(root).is_file():
        raise BadInputError(f"there is no {root}; give a file or folder that eopipe made")
    found = Survey(sorted(published(root), key=lambda one: one.path))
    if not found.seen:
        raise BadInputError(f"{root} holds nothing that eopipe made: there is no {MANIFEST} and no run record")
    with ThreadPoolExecutor(threads) as pool:
        for one in found.seen:
            if wrong := wrong_with(one, pool.map):
                found.broken[one] = wrong
    return found


def published(root: Path) -> Iterator[Published]:
    """All that stages made at or below a path; what lies inside a published folder is a part of it."""
    folders, records = [], [_record_of(root)]
    for place, inside, files in os.walk(root):
        if MANIFEST in files:
            folders.append(Path(place))
            inside.clear()
        else:
            inside[:] = [name for name in inside if not is_draft(name)]
            records += [Path(place, name) for name in files if name.endswith(RECORD)]
    made = {one.path: one for record in sorted(records) for one in _outputs(record, root)}
    yield from made.values()
    yield from (Published(folder, folder=True) for folder in folders if folder not in made)


def _record_of(path: Path) -> Path:
    return path.parent / f"{path.name}{RECORD}"


def _outputs(record: Path, root: Path) -> Iterator[Published]:
    """What a record tells to have been made in its folder; the first output always is, others may be elsewhere."""
    try:
        value: dict[str, Any] = read_json(record)
        words = tuple(map(str, value["arguments"]))
        given = {word: Path(after).parent for word, after in pairwise(words)}
        places = [given.get(f"--{row['port'].replace('_', '-')}") for row in value["outputs"]]
        # Records of before do not say it themselves.
        near = [row.get("beside", at == places[0]) for at, row in zip(places, value["outputs"], strict=True)]
        rows = [(record.parent / row["name"], bool(row["folder"]), str(row["sha256"])) for row in value["outputs"]]
    except (AttributeError, BadInputError, KeyError, TypeError):
        # A record is no payload; without one that can be read, the manifest alone has to do.
        return
    for beside, (path, folder, checksum) in zip(near, rows, strict=True):
        if (path == root or root in path.parents) and beside:
            yield Published(path, folder, checksum, words)


def wrong_with(one: Published, over: Over) -> list[Damage]:
    """What is wrong with one thing that was published; nothing if all is well."""
    if not one.path.exists():
        return [Damage("it is missing")]
    if one.path.is_dir() != one.folder:
        return [Damage(f"it is no {'folder' if one.folder else 'file'}")]
    if not one.folder:
        return [Damage("it has other content than its run record says")] * (sha256(one.path) != one.sha256)
    wrong = damages(one.path, over)
    if not wrong and one.sha256 and digest(one.path) != one.sha256:
        return [Damage(f"its {MANIFEST} is not the one that its run record tells; is it another's folder?")]
    return wrong


def verify(words: list[str]) -> int:
    """Find removed, truncated or changed files; make them again on request."""
    made = argparse.ArgumentParser(prog="eopipe verify", description=verify.__doc__)
    made.add_argument("path", type=Path, help="folder of results, a crate, or one file or folder that a stage made")
    made.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="[all cores]")
    made.add_argument(
        "--repair",
        action="store_true",
        help="run the commands in the run records of what is damaged; start it where the run was started",
    )
    given = made.parse_args(words)
    crate = read_crate(given.path) if is_crate(given.path) else None
    found = survey(given.path, max(1, given.threads))
    _look_into_crates(found)
    for one, wrong in found.broken.items():
        print(f"error: {told(one.path, wrong)}", file=sys.stderr)
        if one.command and not given.repair:
            print(f"  {shlex.join(one.command)}", file=sys.stderr)
    if given.repair and found.broken:
        return _repair(found)
    if crate and not found.broken:
        print(f"{len(list(crate.held()))} checksums of the metadata hold; digest of the crate: {digest(crate.folder)}")
    print(f"{len(found.seen) - len(found.broken)} of {len(found.seen)} files and folders are as they were made")
    return IntegrityError.code if found.broken else 0


def _look_into_crates(found: Survey) -> None:
    """Add what the metadata of crates tell otherwise than their manifests."""
    for one in found.seen:
        if is_crate(one.path) and (wrong := crate_damages(one.path)):
            found.broken.setdefault(one, []).extend(wrong)


def _repair(found: Survey) -> int:
    """Make what is broken again, inputs before what is made of them; tell what could not be made."""
    failed = 0
    for one in sorted(found.broken, key=_order):
        try:
            print(f"{one.path} {_mended(one, found.broken[one])}")
        except EopipeError as error:
            print(f"error: {one.path}: {error}", file=sys.stderr)
            failed = failed or error.code
    return failed


def _order(one: Published) -> tuple[int, Path]:
    known = one.command[1] if len(one.command) > 1 else ""
    return (STAGES.index(known) if known in STAGES else len(STAGES)), one.path


def _mended(one: Published, wrong: list[Damage]) -> str:
    """Put one thing right and say how; files that do not belong there are moved out, never removed."""
    aside = one.path.with_name(f"{one.path.name}.extra")
    for extra in (damage.extra for damage in wrong if damage.extra):
        place = aside / extra.relative_to(one.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        extra.rename(place)
    if all(damage.extra for damage in wrong):
        return f"is whole again: what did not belong there is in {aside.name}"
    _run_again(one)
    if wrong_with(Published(one.path, one.folder, one.sha256), map):
        return "was made again with another content; what was made of it has to be made again too"
    return "was made again, as it was"


def _run_again(one: Published) -> None:
    words = list(one.command)
    if len(words) < 2 or words[1] not in STAGES:
        raise IntegrityError("there is no run record that tells how it was made; run the stage again")
    flags = [port.flag for port in stage(words[1]).of(Output)]
    targets = [Path(after) for word, after in pairwise(words) if word in flags]
    if one.path.resolve() not in {target.resolve() for target in targets}:
        raise BadInputError(
            f"its run record tells to make {', '.join(map(str, targets))}; start this where the run was started"
        )
    done = subprocess.run([sys.executable, "-m", "eopipe", *words[1:]], check=False)
    if done.returncode:
        raise IntegrityError(f"it could not be made again: eopipe {words[1]} ended with code {done.returncode}")
