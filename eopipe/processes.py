"""Which processes of this machine live; work in the threads of one, its signals, and the memory that it keeps.

A process that has ended and that its parent has not yet waited for does not live.
"""

import ctypes
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# States in `/proc/PID/stat` of a process that has ended (proc(5)). In a container whose process 1 waits for nobody it
# keeps its number and its folder there for ever.
ENDED = ("Z", "X", "x")
# Parameters of mallopt(3). M_MMAP_MAX: no array has a mapping of its own, which ends when the array is freed (glibc
# before 2.35 takes no M_MMAP_THRESHOLD above 32 MB). M_TRIM_THRESHOLD: the heap does not shrink. M_ARENA_MAX: threads
# share it, since the heap of a thread has at most 64 MB and ends when it is empty.
KEPT_MEMORY = {-4: 0, -1: -1, -8: 1}


def is_alive(pid: int) -> bool:
    """Whether a process of this host runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    fields = _status(pid)
    return not fields or fields[0] not in ENDED


def start_time(pid: int) -> str:
    """The start of a living process in clock ticks since boot, which distinguishes it from others with its number.

    Empty for one that has ended, and where there is no `/proc`.
    """
    fields = _status(pid)
    return fields[19] if fields and fields[0] not in ENDED else ""


def _status(pid: int) -> list[str]:
    """The fields of `/proc/PID/stat` from the state on; none where there is no such process, or no `/proc`."""
    try:
        # The name of the program before them may hold anything.
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def parent_commands() -> Iterator[list[str]]:
    """The command lines of the parent of this process and of its parents; none where the system has no `/proc`."""
    pid = os.getppid()
    with suppress(OSError):
        while pid > 1:
            yield Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
            pid = int(next(iter(_status(pid)[1:]), 0))


def keep_freed_memory() -> None:
    """Let this process use the memory of freed arrays again; without the allocator of glibc nothing changes.

    The layers of a model allocate and free the same large arrays for each window or batch. By default glibc returns
    them to the kernel, which clears each page: a seventh to a quarter of the time of a map.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        for parameter, value in KEPT_MEMORY.items():
            mallopt(parameter, value)


def map_in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    threads: int,
    prepare: Callable[[], object] | None = None,
) -> Iterator[Result]:
    """Results in the order of the items, computed by threads (0: one per core) that run only a little ahead.

    Each thread calls `prepare` first.
    """
    count = threads or len(os.sched_getaffinity(0))
    pool, futures = ThreadPoolExecutor(count, initializer=prepare), deque[Future[Result]]()
    try:
        for item in items:
            futures.append(pool.submit(function, item))
            if len(futures) > count + 1:
                yield futures.popleft().result()
        while futures:
            yield futures.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def signal_handlers(handlers: Mapping[int, Any]) -> Iterator[None]:
    """Handle signals by these functions, and as before behind the block."""
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
