"""What a crate holds: the files and folders of a run under names of the crate, hard-linked where that works.

A hard link costs no space, and the crate stays a snapshot: eopipe never writes into a published file but puts
a new one in its place.
"""

import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from eopipe.provenance.jobs import Data, Job
from eopipe.publish import MANIFEST, digest, files, read_json, size, write_manifest

# A folder with more files is a store: it is one thing, not its chunks.
LISTED = 32


@dataclass(frozen=True)
class Part:
    """A file or folder of the crate: its path there, its content, and the content of the files in it."""

    path: str
    content: Data
    files: tuple["Part", ...] = ()


def places(payload: Sequence[Path], jobs: Sequence[Job], taken: Collection[str]) -> dict[str, Path]:
    """Give every file and folder its name in the crate: its own, below the job that made it where two are alike.

    The names do not depend on where an engine puts the files. `taken` are names that the crate needs itself.
    """
    alike = defaultdict(list)
    for path in sorted(set(payload)):
        alike[path.name].append(path)
    found: dict[str, Path] = {}
    for name, paths in sorted(alike.items()):
        single = len(paths) == 1 and name not in taken
        found |= {name: paths[0]} if single else {f"{_maker(path, jobs)}/{name}": path for path in paths}
    return found


def _maker(path: Path, jobs: Sequence[Job]) -> str:
    content = digest(path) if path.is_file() or (path / MANIFEST).is_file() else ""
    made = (job for job in jobs for data in job.record.outputs if content and data.sha256 == content)
    job = next(made, None)
    return f"{job.stage}/{job.label}".rstrip("/") if job else content[:12] or "other"


def bring(source: Path, target: Path) -> None:
    """Put a file or folder into the crate; a folder without a manifest gets one."""
    if source.is_file():
        _link(source, target)
        return
    for file in files(source):
        _link(file, target / file.relative_to(source))
    if (source / MANIFEST).is_file():
        _link(source / MANIFEST, target / MANIFEST)
    else:
        write_manifest(target)


def bring_all(sources: Sequence[Path], folder: Path) -> None:
    """Put files into one folder of the crate, with a manifest: that of the folder they come from, if all came."""
    for source in sources:
        _link(source, folder / source.name)
    write_manifest(folder)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        # An engine may have staged a symbolic link, which would lead out of the crate.
        os.link(source.resolve(), target)
    except OSError:
        # Another file system, or one without links.
        shutil.copyfile(source, target)


def part(crate: Path, path: str, most: int = LISTED) -> Part:
    """Describe what the crate holds at a path; the files of a folder too, unless they are more than `most`."""
    place = crate / path
    bytes_, count = size(place)
    folder = place.is_dir()
    content = Data(port="", name=place.name, folder=folder, bytes=bytes_, files=count, sha256=digest(place))
    return Part(path, content, _listed(place, path, most) if folder else ())


def _listed(place: Path, path: str, most: int) -> tuple[Part, ...]:
    rows = read_json(place / MANIFEST)["files"]
    if (place / "zarr.json").exists() or len(rows) > most:
        return ()
    return tuple(Part(f"{path}/{row['path']}", _content(row["path"], row["size"], row["sha256"])) for row in rows)


def _content(path: str, bytes_: int, sha256: str) -> Data:
    return Data(port="", name=Path(path).name, folder=False, bytes=bytes_, files=1, sha256=sha256)
