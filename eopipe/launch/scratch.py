"""Copies of the inputs of a training on each node's own disk, where the site has one."""

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from eopipe.errors import EopipeError, NoSpaceError
from eopipe.publish import MANIFEST, host_id, verify
from eopipe.text_files import read_json

COPIES = "EOPIPE_COPIES"
NAME, LOCK = "eopipe-copies-", ".held"
log = logging.getLogger("eopipe")


@contextmanager
def local_copies(folder: str | None, stores: Mapping[str, Sequence[Path]]) -> Iterator[dict[str, str]]:
    """Copy stores of each kind to a local folder; removes the copies at the end.

    Gives the environment variable that points the workers of this node to the copies. Where copies are not possible,
    a warning says why and the workers read the stores in place.
    """
    environment: dict[str, str] = {}
    with ExitStack() as stack:
        try:
            if folder:
                copies = stack.enter_context(_temporary_folder(_expand(folder)))
                _copy(copies, stores)
                environment = {COPIES: str(copies)}
        except (OSError, EopipeError) as error:
            stack.close()
            log.warning("event=no_copies host=%s reason='%s' action=read-in-place", host_id(), error)
        yield environment


def local_path(kind: str, store: Path) -> Path:
    """The path from which a worker reads a store: the copy on its node, or the store itself."""
    copies = os.environ.get(COPIES)
    return Path(copies, kind, store.name) if copies else store


def _expand(folder: str) -> Path:
    expanded = os.path.expandvars(folder)
    if "$" in expanded:
        raise NoSpaceError(f"train.scratch {folder} is not set on this node")
    return Path(expanded)


@contextmanager
def _temporary_folder(parent: Path) -> Iterator[Path]:
    """A folder that is removed afterwards; after a kill the next launcher removes it, as no process locks it."""
    for lock in parent.glob(f"{NAME}*{LOCK}"):
        with suppress(OSError), lock.open() as file:
            if _lock(file.fileno()):
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile(prefix=NAME, suffix=LOCK, dir=parent) as file:
        _lock(file.fileno())
        folder = Path(file.name).with_suffix("")
        folder.mkdir(mode=0o700)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _copy(folder: Path, stores: Mapping[str, Sequence[Path]]) -> None:
    rows = [row for paths in stores.values() for path in paths for row in read_json(path / MANIFEST)["files"]]
    needed, free = sum(row["size"] for row in rows), shutil.disk_usage(folder).free
    if needed > free:
        raise NoSpaceError(f"{folder.parent} has {free >> 20} MB free and {needed >> 20} MB are needed")
    for kind, paths in stores.items():
        for path in paths:
            copy = folder / kind / path.name
            shutil.copytree(path, copy)
            verify(copy)
    log.info("event=copies host=%s mb=%d files=%d", host_id(), needed >> 20, len(rows))
