"""All assets of a scene: fetched in parallel into a locked folder, laid out as a folder with its item; their sizes."""

import fcntl
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
from eopipe.fetch.cog_window import describe_window, fetch_window
from eopipe.fetch.download import download_asset, missing_bytes, part_name, raster_suffix
from eopipe.fetch.range_reader import catalog_file, remote_file
from eopipe.fetch.retry import ChangedError, FetchSession, RetryBudget, TransientError
from eopipe.fetch.zarr_array import confirm_array, describe_array, fetch_array
from eopipe.fetch.zarr_place import is_zarr
from eopipe.publish import link_or_copy
from eopipe.scenes.item import ITEM_FILE, Item, safe_href, scene_name, scheme, stated_raster
from eopipe.text_files import write_json

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

log = logging.getLogger("eopipe")
# Seconds between two looks at a folder that another process has locked.
LOCK_INTERVAL = 0.2
# The most severe of several failures gives the exit code: waiting does not cure a missing or damaged file.
BY_SEVERITY = (RefusedError, UsageError, IntegrityError, BadInputError, NoSpaceError, UpstreamError, PreemptedError)
REQUESTS_AT_A_TIME = 8


def fetch_assets(
    item: Item, catalog: Path | None, parts: Path, session: FetchSession, workers: int, grids: "Sequence[GeoBox]" = ()
) -> dict[str, Path]:
    """Fetch all assets of a scene into the folder of parts, by name; with grids only the blocks that they need.

    Raises one error that names every asset that failed; the others are kept for the next run.
    """
    assets = dict(sorted(item["assets"].items()))
    tasks: list[Callable[[], Path]] = []
    missing = 0
    for name, asset in assets.items():
        label = _label(item, name)
        part = parts / part_name(name, asset, *map(repr, grids))
        if grids or is_zarr(asset):
            fetch_part = fetch_array if is_zarr(asset) else fetch_window
            raster = stated_raster(item, name)
            tasks.append(partial(fetch_part, asset, label, catalog, part, grids, session, raster))
        else:
            tasks.append(partial(download_asset, asset, label, catalog, part, session))
            missing += missing_bytes(asset, part)
    check_free_space(parts, missing)
    fetched = dict(zip(assets, run_parallel(tasks, workers, session.stop), strict=True))
    arrays = [
        partial(confirm_array, asset, _label(item, name), catalog, fetched[name], session)
        for name, asset in assets.items()
        if is_zarr(asset)
    ]
    run_parallel(arrays, workers, session.stop)
    return fetched


def _label(item: Item, name: str) -> str:
    return f"scene {item['id']}, asset {name}"


def write_scene(item: Item, parts: dict[str, Path], folder: Path, *, is_window: bool) -> None:
    """Write the scene: its assets under plain names, and the item that points to them."""
    assets = item["assets"]
    for name, part in parts.items():
        file = folder / (scene_name(name) + raster_suffix(part, _label(item, name)))
        link_or_copy(part, file)
        asset = assets[name]
        if is_zarr(asset):
            asset = describe_array(asset, file, _label(item, name))
        elif is_window:
            asset = describe_window(asset, file)
        assets = assets | {name: asset | {"href": file.name}}
    write_json(folder / ITEM_FILE, item | {"assets": assets})


@contextmanager
def lock_folder(folder: Path, session: FetchSession) -> Iterator[None]:
    """Create the folder of unfinished downloads and keep other processes out of it until the block ends.

    Waits for another process that fetches into it, and uses what that one has fetched. Raises UsageError when it
    takes longer than the deadline, NoSpaceError when the disk or quota fills up.
    """
    handle = -1
    try:
        handle = _wait_for_lock(folder, time.monotonic() + session.deadline)
        yield
    except OSError as error:
        if is_full(error):
            raise no_space(folder) from error
        raise
    finally:
        if handle >= 0:
            os.close(handle)


def _wait_for_lock(folder: Path, deadline: float) -> int:
    """The handle of the locked folder."""
    is_logged = False
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
        if _try_lock(handle, folder) and _is_same_folder(handle, folder):
            return handle
        os.close(handle)
        if time.monotonic() > deadline:
            raise UsageError(f"another eopipe is still fetching into {folder}; wait until it has ended")
        if not is_logged:
            log.info("event=wait folder=%s reason='another eopipe is fetching into it'", folder.name)
        is_logged = True
        time.sleep(LOCK_INTERVAL)


def _try_lock(handle: int, folder: Path) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        log.info("event=no_lock folder=%s reason='the file system has no locks'", folder.name)
    return True


def _is_same_folder(handle: int, folder: Path) -> bool:
    """Whether the locked folder still has this name: the process that held the lock removes it at its end."""
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False


def check_free_space(folder: Path, required: int) -> None:
    """Raise NoSpaceError before anything is fetched when bytes of known number do not fit."""
    status = os.statvfs(folder)
    free = status.f_bavail * status.f_frsize
    if required > free:
        raise NoSpaceError(
            f"{folder} needs {required / 1e6:.1f} MB more, {free / 1e6:.1f} MB are free; free some space"
        )


def run_parallel(tasks: Sequence[Callable[[], Path]], workers: int, stop: threading.Event) -> list[Path]:
    """Run downloads in parallel; when some fail, the others still finish and every failure is reported.

    An interrupt sets `stop` and does not wait for servers that are silent.
    """
    pending, results = deque(enumerate(tasks)), dict[int, Path | BaseException]()
    # Not a pool: Python waits for the threads of a pool at exit, and a read can last a minute.
    threads = [threading.Thread(target=_work, args=(pending, results), daemon=True) for _ in range(workers)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except BaseException:
        stop.set()
        raise
    _raise_most_severe([error for _, error in sorted(results.items()) if isinstance(error, BaseException)])
    return [path for _, path in sorted(results.items()) if isinstance(path, Path)]


def _work(pending: "deque[tuple[int, Callable[[], Path]]]", results: dict[int, Path | BaseException]) -> None:
    # Another thread may take the last one meanwhile.
    with suppress(IndexError):
        while True:
            number, task = pending.popleft()
            try:
                results[number] = task()
            except BaseException as error:  # noqa: BLE001 - reported by the thread that waits
                results[number] = error


def _raise_most_severe(errors: list[BaseException]) -> None:
    """Raise one error for all failures, of the most severe kind."""
    for error in errors:
        if not isinstance(error, EopipeError):
            raise error
    for kind in BY_SEVERITY:
        if any(isinstance(error, kind) for error in errors):
            raise kind("; ".join(map(str, errors)))


@dataclass(frozen=True)
class AssetSize:
    """Bytes of one asset; an unknown size is 0."""

    scene: str
    asset: str
    bytes: int


def asset_sizes(items: Sequence[Item], catalog: Path | None, session: FetchSession) -> list[AssetSize]:
    """The size of every asset: from the item (`file:size`), its local file, or the server.

    A server is asked once for one byte of a file, since not all servers answer HEAD. Raises RefusedError for an
    address that is not safe.
    """
    rows = [(str(item["id"]), name, asset) for item in items for name, asset in sorted(item["assets"].items())]
    with ThreadPoolExecutor(REQUESTS_AT_A_TIME) as pool:
        sizes = pool.map(lambda row: _size(row[2], f"scene {row[0]}, asset {row[1]}", catalog, session), rows)
        return [AssetSize(scene, name, size) for (scene, name, _), size in zip(rows, sizes, strict=True)]


def local_file(asset: dict[str, Any], label: str, catalog: Path | None) -> Path | None:
    """The asset's file in a local catalog; None where it is elsewhere."""
    href = safe_href(asset["href"], label)
    with suppress(BadInputError, RefusedError):
        return None if scheme(href) else catalog_file(href, label, catalog)
    return None


def _size(asset: dict[str, Any], label: str, catalog: Path | None, session: FetchSession) -> int:
    if is_zarr(asset):
        # Many files, but only the files of the area are read.
        safe_href(asset["href"], label)
        return 0
    stated = asset.get("file:size")
    if isinstance(stated, int) and stated > 0:
        return stated
    file = local_file(asset, label, catalog)
    if file is not None:
        return file.stat().st_size
    href = safe_href(asset["href"], label)
    return _server_size(href, label, session) if scheme(href) else 0


def _server_size(href: str, label: str, session: FetchSession) -> int:
    """The length that the server reports; 0 where it reports none. A plan does not retry."""
    try:
        file = remote_file(href, label, session)
        with file.request(0, 1, "", RetryBudget(label, file.host, session)) as response:
            return response.total or 0
    except (TransientError, ChangedError, BadInputError, UpstreamError, UsageError):
        return 0
