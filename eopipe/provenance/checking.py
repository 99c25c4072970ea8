"""Compare a crate with its own metadata: its manifest, every checksum that an entity tells, and the folders in it."""

from collections.abc import Iterator
from pathlib import Path

from eopipe.errors import BadInputError
from eopipe.provenance.crate_reader import Crate, read_crate
from eopipe.publish import MANIFEST, Damage, read_json

Rows = dict[str, str]


def crate_damages(folder: Path) -> list[Damage]:
    """Where metadata, folders and manifest of a crate say different things; its files are held against the manifest.

    So each file is read once, by whoever checks the manifest. Raises BadInputError for what is no crate of eopipe.
    """
    crate = read_crate(folder)
    try:
        rows = _checksums(folder)
    except BadInputError:
        # Whoever checks the manifest tells it.
        return []
    return [Damage(what) for path, data in crate.held() for what in _held(crate, rows, path, data.folder, data.sha256)]


def _held(crate: Crate, rows: Rows, path: str, folder: bool, sha256: str) -> Iterator[str]:
    found = rows.get(f"{path}/{MANIFEST}" if folder else path)
    if found is None:
        yield f"{path} is in the metadata, but not in {MANIFEST}"
    elif found != sha256:
        yield f"{path} has other content than the metadata say"
    elif folder:
        yield from _inside(crate.folder, rows, path)


def _inside(root: Path, rows: Rows, path: str) -> Iterator[str]:
    """A folder that keeps its own manifest was published before it came into the crate; both have to agree."""
    try:
        known = _checksums(root / path)
    except BadInputError:
        return
    listed = {f"{path}/{name}": sha256 for name, sha256 in known.items()}
    here = {name: sha256 for name, sha256 in rows.items() if name.startswith(f"{path}/")}
    for name in sorted((listed.items() ^ here.items()) - {(f"{path}/{MANIFEST}", here[f"{path}/{MANIFEST}"])}):
        yield f"{name[0]} is not what the {MANIFEST} of {path} tells"


def _checksums(folder: Path) -> Rows:
    try:
        return {row["path"]: row["sha256"] for row in read_json(folder / MANIFEST)["files"]}
    except (KeyError, TypeError) as error:
        raise BadInputError(f"{folder / MANIFEST} is damaged") from error
