"""`eopipe verify`: tell what is broken, and make just that again."""

import argparse
import os
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

from eopipe.contract import STAGES, Output, stage
from eopipe.damage import Published, Survey, survey, wrong_with
from eopipe.errors import BadInputError, EopipeError, IntegrityError
from eopipe.provenance.crate_reader import crate_damages, is_crate, read_crate
from eopipe.publish import Damage, digest, told


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
