"""Many downloads at a time in a folder that only one process works in, stopped at once when the user says so."""

import fcntl
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from eopipe.errors import (
    BadInputError,
    EopipeError,
    IntegrityError,
    NoSpaceError,
    PreemptedError,
    RefusedError,
    UpstreamError,
    UsageError,
    is_full,
    no_space,
)
from eopipe.fetch.retry import Terms

log = logging.getLogger("eopipe")
LOOK = 0.2
# The gravest failure gives the exit code: waiting does not heal a file that is missing or damaged.
GRAVEST = (RefusedError, UsageError, IntegrityError, BadInputError, NoSpaceError, UpstreamError, PreemptedError)


@contextmanager
def alone_in(room: Path, terms: Terms) -> Iterator[None]:
    """Make the folder of unfinished downloads and keep other processes out of it until the block ends.

    Waits for another process that is at work there; what that brought is used. Raises UsageError when it takes
    longer than the deadline, NoSpaceError when the disk or quota fills up.
    """
    handle = -1
    try:
        handle = _enter(room, time.monotonic() + terms.deadline)
        yield
    except OSError as error:
        if is_full(error):
            raise no_space(room) from error
        raise
    finally:
        if handle >= 0:
            os.close(handle)


def _enter(room: Path, ends: float) -> int:
    told = False
    while True:
        room.mkdir(parents=True, exist_ok=True)
        handle = os.open(room, os.O_RDONLY)
        if _lock(handle, room) and _is_still(handle, room):
            return handle
        os.close(handle)
        if time.monotonic() > ends:
            raise UsageError(f"another eopipe is still fetching into {room}; wait until it has ended")
        if not told:
            log.info("event=wait folder=%s reason='another eopipe is fetching into it'", room.name)
        told = True
        time.sleep(LOOK)


def _lock(handle: int, room: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        log.info("event=no_lock folder=%s reason='the file system has no locks'", room.name)
    return True


def _is_still(handle: int, room: Path) -> bool:
    """Whether the locked folder is the one of this name: the process before removes it when it has ended."""
    try:
        return os.path.samestat(os.fstat(handle), room.stat())
    except FileNotFoundError:
        return False


def check_room(room: Path, need: int) -> None:
    """Raise NoSpaceError before anything is fetched when the bytes that are known to come cannot fit."""
    there = os.statvfs(room)
    free = there.f_bavail * there.f_frsize
    if need > free:
        raise NoSpaceError(f"{room} needs {need / 1e6:.1f} MB more, {free / 1e6:.1f} MB are free; free some space")


def all_of(tasks: Sequence[Callable[[], Path]], workers: int, stop: threading.Event) -> list[Path]:
    """Run downloads side by side; when some fail, the rest still finish and every failure is told.

    An interrupt sets `stop` and does not wait for servers that are silent.
    """
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(tasks)):
        todo.put(number)
    done: dict[int, Path | BaseException] = {}
    # Not a pool: a pool's threads are waited for at exit, and a read can last a minute.
    crew = [threading.Thread(target=_work, args=(tasks, todo, done), daemon=True) for _ in range(workers)]
    try:
        for thread in crew:
            thread.start()
        for thread in crew:
            thread.join()
    except BaseException:
        stop.set()
        raise
    failed = [done[n] for n in range(len(tasks)) if isinstance(done[n], BaseException)]
    _tell([error for error in failed if isinstance(error, BaseException)])
    return [path for n in range(len(tasks)) if isinstance(path := done[n], Path)]


def _work(
    tasks: Sequence[Callable[[], Path]], todo: "queue.SimpleQueue[int]", done: dict[int, Path | BaseException]
) -> None:
    while True:
        try:
            number = todo.get_nowait()
        except queue.Empty:
            return
        try:
            done[number] = tasks[number]()
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits
            done[number] = error


def _tell(failed: list[BaseException]) -> None:
    """Raise one error for all that failed, the gravest kind."""
    for error in failed:
        if not isinstance(error, EopipeError):
            raise error
    for kind in GRAVEST:
        if any(isinstance(error, kind) for error in failed):
            raise kind("; ".join(map(str, failed)))
