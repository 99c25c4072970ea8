"""One job, made again: its command, and how its outputs compare."""

import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from eopipe.errors import BY_CODE, EopipeError, IntegrityError
from eopipe.provenance.jobs import Job
from eopipe.provenance.record import record_path
from eopipe.provenance.redact import kept
from eopipe.publish import MANIFEST, digest, read_json


def made_before(made: Iterable[Path], words: Sequence[str]) -> bool:
    """Whether a run of before that was interrupted has made this already."""
    places = list(made)
    record = record_path(places[0])
    told_ = read_json(record) if record.is_file() and all(place.exists() for place in places) else {}
    return told_.get("status") == "completed" and told_.get("arguments") == kept(["eopipe", *words])


def execute(job: Job, words: Sequence[str], log: Path) -> None:
    """Run the command of a job; raises the error that it ended with."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as file:
        file.write(f"{shlex.join(['eopipe', *words])}\n")
        file.flush()
        done = subprocess.run([sys.executable, "-m", "eopipe", *words], stdout=file, stderr=file, check=False)
    if done.returncode:
        kind: Callable[[str], EopipeError] = BY_CODE.get(done.returncode, IntegrityError)
        last = log.read_text(encoding="utf-8").strip().splitlines()[-1].removeprefix("error: ")
        raise kind(f"{job.title} ended with code {done.returncode}: {last} (see {log})")


def content(path: Path) -> str:
    """The digest of a file or a published folder, empty for another folder."""
    return digest(path) if path.is_file() or (path / MANIFEST).is_file() else ""


def differing(before: Path, made: Path) -> tuple[str, ...]:
    """The files of a folder that differ from those that the crate holds."""
    rows = [{(row["path"], row["sha256"]) for row in read_json(place / MANIFEST)["files"]} for place in (before, made)]
    return tuple(sorted({path for path, _ in rows[0] ^ rows[1]}))
