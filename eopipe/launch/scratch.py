"""Copies of what a training reads on the own disk of each node, where the site has one."""

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from eopipe.errors import EopipeError, NoSpaceError
from eopipe.publish import MANIFEST, host_id, read_json, verify

COPIES = "EOPIPE_COPIES"
NAME, HELD = "eopipe-copies-", ".held"
log = logging.getLogger("eopipe")


@contextmanager
def copies(folder: str | None, stores: Mapping[str, Sequence[Path]]) -> Iterator[dict[str, str]]:
    """Copy stores of each kind; gives what leads the workers of this node to the copies, and removes them at the end.

    Where there is no place for them, the workers read the stores where they lie.
    """
    where: dict[str, str] = {}
    with ExitStack() as stack:
        try:
            if folder:
                room = stack.enter_context(_room(_place(folder)))
                _fill(room, stores)
                where = {COPIES: str(room)}
        except (OSError, EopipeError) as error:
            stack.close()
            log.warning("event=no-copies host=%s told='%s; data is read where it lies'", host_id(), error)
        yield where


def copy_of(kind: str, store: Path) -> Path:
    """Where a worker reads a store: the copy on its node, or the store itself."""
    room = os.environ.get(COPIES)
    return Path(room, kind, store.name) if room else store


def _place(folder: str) -> Path:
    told = os.path.expandvars(folder)
    if "$" in told:
        raise NoSpaceError(f"train.scratch {folder} is not set on this node")
    return Path(told)


@contextmanager
def _room(folder: Path) -> Iterator[Path]:
    """A folder that is gone afterwards; after a kill the next one removes it, as nobody holds its lock."""
    for lock in folder.glob(f"{NAME}*{HELD}"):
        with suppress(OSError), lock.open() as file:
            if _hold(file.fileno()):
                shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                lock.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile(prefix=NAME, suffix=HELD, dir=folder) as file:
        _hold(file.fileno())
        room = Path(file.name).with_suffix("")
        room.mkdir(mode=0o700)
        try:
            yield room
        finally:
            shutil.rmtree(room, ignore_errors=True)


def _hold(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _fill(room: Path, stores: Mapping[str, Sequence[Path]]) -> None:
    rows = [row for paths in stores.values() for path in paths for row in read_json(path / MANIFEST)["files"]]
    need, free = sum(row["size"] for row in rows), shutil.disk_usage(room).free
    if need > free:
        raise NoSpaceError(f"{room.parent} has {free >> 20} MB free and {need >> 20} MB are needed")
    for kind, paths in stores.items():
        for path in paths:
            copy = room / kind / path.name
            shutil.copytree(path, copy)
            verify(copy)
    log.info("event=copies host=%s mb=%d files=%d", host_id(), need >> 20, len(rows))
