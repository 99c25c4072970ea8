"""Which processes of this machine live, and work in the threads of one.

A process that has ended and that its parent has not yet waited for does not live.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

# States in `/proc/PID/stat` of a process that has ended (proc(5)). In a container whose process 1 waits for nobody it
# keeps its number and its folder there for ever.
ENDED = ("Z", "X", "x")


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
