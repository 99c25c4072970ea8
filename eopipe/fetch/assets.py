"""All assets of a scene: brought side by side, then laid out as one folder with its item."""

import fcntl
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from eopipe.fetch.cog_window import clip, describe
from eopipe.fetch.download import bring, missing, part_name, place, suffix
from eopipe.fetch.retry import FetchSession
from eopipe.publish import write_json
from eopipe.scenes.item import ITEM_FILE, Item, scene_name

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox


def gather(
    item: Item, catalog: Path | None, room: Path, terms: FetchSession, workers: int, grid: "GeoBox | None"
) -> dict[str, Path]:
    """Bring all assets of a scene into the folder of parts, by name; with a grid only the blocks that it needs.

    Raises one error that tells of every asset that did not come; those that came are kept.
    """
    assets = dict(sorted(item["assets"].items()))
    tasks, need = [], 0
    for name, asset in assets.items():
        part = room / part_name(name, asset, *([repr(grid)] if grid else []))
        tasks.append(_task(asset, _where(item, name), catalog, part, terms, grid))
        need += 0 if grid else missing(asset, part)
    check_room(room, need)
    return dict(zip(assets, all_of(tasks, workers, terms.stop), strict=True))


def _task(
    asset: dict[str, Any], where: str, catalog: Path | None, part: Path, terms: FetchSession, grid: "GeoBox | None"
) -> Callable[[], Path]:
    if grid is None:
        return partial(bring, asset, where, catalog, part, terms)
    return partial(clip, asset, where, catalog, part, grid, terms)


def _where(item: Item, name: str) -> str:
    return f"scene {item['id']}, asset {name}"


def lay_out(item: Item, come: dict[str, Path], folder: Path, *, clipped: bool) -> None:
    """Write the scene: its assets under plain names, and the item that points to them."""
    assets = item["assets"]
    for name, part in come.items():
        file = folder / (scene_name(name) + suffix(part, _where(item, name)))
        place(part, file)
        told = describe(assets[name], file) if clipped else assets[name]
        assets = assets | {name: told | {"href": file.name}}
    write_json(folder / ITEM_FILE, item | {"assets": assets})


log = logging.getLogger("eopipe")
LOOK = 0.2
# The gravest failure gives the exit code: waiting does not heal a file that is missing or damaged.
GRAVEST = (RefusedError, UsageError, IntegrityError, BadInputError, NoSpaceError, UpstreamError, PreemptedError)


@contextmanager
def alone_in(room: Path, terms: FetchSession) -> Iterator[None]:
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
