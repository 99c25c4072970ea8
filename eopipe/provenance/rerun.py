"""`eopipe rerun`: make a crate's run again and compare every digest."""

import argparse
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from eopipe import __version__
from eopipe.errors import BadInputError, IntegrityError, UsageError
from eopipe.provenance.crate_reader import Crate, crate_damages, read_crate
from eopipe.provenance.jobs import Data
from eopipe.provenance.record import commit
from eopipe.provenance.rerun_jobs import FROZEN, Again
from eopipe.publish import MANIFEST, damage_message, digest, verify


def rerun(words: list[str]) -> int:
    """Make a crate's run again in a new folder and say whether every digest is the same.

    Raises IntegrityError where a digest differs or the crate is damaged.
    """
    given = _parser().parse_args(words)
    crate = read_crate(given.crate)
    verify(crate.folder)
    if wrong := crate_damages(crate.folder):
        raise IntegrityError(damage_message(crate.folder, wrong))
    check_code(crate, other=given.other_code)
    here = crate.folder.resolve()
    again = Again(crate, given.to or here.with_name(f"{here.name}-again"))
    again.have |= outside(crate, given.data, [need for job in again.jobs for need in job.record.inputs])
    again.open()
    for line in drift(crate):
        print(line)
    again.run(max(1, given.cores))
    return again.close()


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="eopipe rerun",
        description="Make a crate's run again in a new folder, with the frozen scenes and settings that the crate "
        "tells, and compare every digest. The crate decides what is downloaded and computed.",
    )
    made.add_argument("crate", type=Path, help="folder that eopipe crate made")
    made.add_argument("--to", type=Path, help="new folder of what is made again; CRATE-again if not given")
    made.add_argument(
        "--data", type=Path, default=Path(), help="folder with what the crate only names: labels, catalogs [.]"
    )
    made.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)), help="jobs at a time [all cores]")
    made.add_argument("--other-code", action="store_true", help="compare another version of eopipe with the crate's")
    return made


def check_code(crate: Crate, *, other: bool) -> None:
    """Raise UsageError where the crate was made by another version of eopipe, or from another commit than is here."""
    made, here = sorted({job.record.version for job in crate.jobs}), commit().rstrip("+")
    known = sorted({one.rstrip("+") for one in crate.commits})
    wrong = ""
    if made != [__version__]:
        wrong = f"eopipe {' and '.join(made)}, and this is {__version__}; install that one"
    elif known and here and known != [here]:
        wrong = f"the code of commit {' and '.join(known)}, and this is {here}; check that one out"
    if wrong and not other:
        raise UsageError(f"{crate.folder} was made by {wrong}, or compare with --other-code")


def drift(crate: Crate) -> Iterator[str]:
    """What is not as it was, a line each: it may be why a digest differs."""
    for name, numbers in sorted(_libraries(crate).items()):
        here = _installed(name)
        if numbers != {here}:
            yield f"note: {name} was {' and '.join(sorted(numbers))} and is {here or 'not installed'} here"
    if any(one.endswith("+") for one in crate.commits):
        yield "note: the run was made from changed files (+ behind its commit), which no commit holds"
    if commit().endswith("+"):
        yield "note: files of this checkout are changed, so it is not the code of its commit"


def _libraries(crate: Crate) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for job in crate.jobs:
        for name, number in job.record.software.items():
            found.setdefault(name, set()).add(number)
    return found


def _installed(name: str) -> str:
    if name == "python":
        return platform.python_version()
    with suppress(PackageNotFoundError):
        return version(name)
    return ""


def outside(crate: Crate, data: Path, needed: Sequence[Data]) -> dict[str, Path]:
    """Find what the run was given and the crate does not hold, by its content.

    Looks at the paths that the crate's config names, then for the name in a folder and in the folders in it. Raises
    BadInputError that lists all that is not found.
    """
    made = {output.key for job in crate.jobs if job.stage != FROZEN for output in job.record.outputs}
    have = crate.places.keys() | made
    wanted = {one.key: one for one in needed if one.key not in have}
    named = [data / word for word in _words(crate)]
    found = {key: _found(one, data, named) for key, one in wanted.items()}
    gone = [wanted[key] for key, path in found.items() if path is None]
    if gone:
        told = "; ".join(f"{one.name} ({_known_by(one)})" for one in gone)
        raise BadInputError(f"{crate.folder} names what it does not hold: {told}; put it into {data} or give --data")
    return {key: path for key, path in found.items() if path}


def _words(crate: Crate) -> Iterator[str]:
    """Every word of the config."""
    rest: list[Any] = [yaml.safe_load(crate.config.read_text(encoding="utf-8"))] if crate.config else []
    while rest:
        one = rest.pop()
        if isinstance(one, str):
            yield one
        rest += one.values() if isinstance(one, dict) else one if isinstance(one, list) else []


def _found(wanted: Data, data: Path, named: Sequence[Path]) -> Path | None:
    near = [path for path in named if path.name == wanted.name]
    places = [*near, data / wanted.name, *sorted(data.glob(f"*/{wanted.name}"))]
    return next((path for path in places if _is(path, wanted)), None)


def _is(path: Path, wanted: Data) -> bool:
    """Whether a path has the content that is wanted."""
    if path.is_file():
        return not wanted.folder and path.stat().st_size == wanted.bytes and digest(path) == wanted.sha256
    if not (path.is_dir() and wanted.folder):
        return False
    # A catalog has no digest of its own; what is fetched from it has.
    return not wanted.sha256 or ((path / MANIFEST).is_file() and digest(path) == wanted.sha256)


def _known_by(one: Data) -> str:
    return f"sha256 {one.sha256}" if one.sha256 else f"a folder of {one.files} files, {one.bytes} bytes"
