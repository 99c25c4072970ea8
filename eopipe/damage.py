"""Find what is broken below a folder.

Folders are compared with their manifests. Files, and manifests as a whole, are compared with the run records
beside them, so that a folder that was swapped for another or is gone is found too.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from eopipe.errors import BadInputError
from eopipe.publish import MANIFEST, Damage, Over, damages, digest, is_draft, read_json, sha256

RECORD = ".run.json"


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
