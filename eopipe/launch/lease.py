"""One training, one writer: a lease with a fencing token.

Holding flock is enough on one host. A network file system may grant it twice, so the lease holder also owns a numbered
file: to take over is to create the next number, which only one process can (O_EXCL), and a process that sees a number
higher than its own publishes no more (Kleppmann 2016, "How to do distributed locking").
"""

import fcntl
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Thread
from typing import Any

from eopipe.errors import NoSpaceError, UsageError
from eopipe.processes import start_time
from eopipe.publish import host_id, publish
from eopipe.text_files import write_json

log = logging.getLogger("eopipe")
HEARTBEAT_S = 5.0
# Some file systems show a change only after a minute (NFS attribute caches).
STALE_S = 75.0


def fence(state: Path, token: int) -> None:
    """Raise UsageError when another training holds a newer fencing token than this one."""
    newest = newest_token(state)
    if newest > token:
        raise UsageError(f"another training has taken over {state} (token {newest} after {token}); this one stops")


def newest_token(state: Path) -> int:
    """The highest token that was ever given out; 0 for none."""
    return max((int(path.stem) for path in (state / "lease").glob("[0-9]*.json")), default=0)


@contextmanager
def hold_lease(
    state: Path, heartbeat_s: float = HEARTBEAT_S, stale_s: float = STALE_S, group: str = ""
) -> Iterator[int]:
    """Hold a training for this process alone; gives the fencing token of its writers. `group` names who may join.

    Raises UsageError when another process holds it. A holder that died on this host is followed at once, one on another
    host after `stale_s` seconds without a heartbeat.
    """
    folder = state / "lease"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _already_running(_read(folder, newest_token(state))) from None
        token = _next_token(folder, newest_token(state), stale_s, group)
        done = Event()
        heart = Thread(target=_beat, args=(folder, token, heartbeat_s, done, group), name="heartbeat", daemon=True)
        heart.start()
        try:
            yield token
        finally:
            done.set()
            heart.join()
            _write(folder, token, is_held=False, group=group)


def read_holder(state: Path, token: int) -> dict[str, Any]:
    """What the holder of a token wrote about itself; empty where it has written nothing yet."""
    return _read(state / "lease", token)


def is_alive(holder: dict[str, Any]) -> bool:
    """Whether a lease holder is for sure a living process of this host."""
    return holder.get("host") == host_id() and bool(holder.get("held")) and _process_lives(holder)


def _next_token(folder: Path, last: int, stale_s: float, group: str) -> int:
    """Create the next token if the holder of the last one is dead or released it."""
    holder = _read(folder, last)
    if holder.get("held", last > 0):
        _await_silence(folder, last, holder, stale_s)
        log.warning("event=lease_taken_over token=%d from=%r", last + 1, holder)
    try:
        os.close(os.open(_path(folder, last + 1), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        raise _already_running(_read(folder, last + 1)) from None
    _write(folder, last + 1, group=group)
    for token in range(last, 0, -1):
        if not _path(folder, token).exists():
            break
        _path(folder, token).unlink(missing_ok=True)
    return last + 1


def _await_silence(folder: Path, token: int, holder: dict[str, Any], stale_s: float) -> None:
    """Return when a holder is dead for sure or long silent by our own clock; raise when it shows a heartbeat."""
    if holder.get("host") == host_id():
        if _process_lives(holder):
            raise _already_running(holder)
        return
    log.warning("event=lease_watched for_s=%.0f holder=%r", stale_s, holder)
    deadline = time.monotonic() + stale_s
    while time.monotonic() < deadline:
        time.sleep(min(0.5, stale_s / 5))
        newest = newest_token(folder.parent)
        if newest > token or _read(folder, token) != holder:
            raise _already_running(_read(folder, newest))


def _process_lives(holder: dict[str, Any]) -> bool:
    """Whether the process exists and is the one that took the lease, not a later one with its number."""
    return bool(start_time(int(holder["pid"])) == holder["began"])


def _beat(folder: Path, token: int, every_s: float, done: Event, group: str) -> None:
    beat = 0
    while not done.wait(every_s):
        beat += 1
        # A file system that fails for a while must not end a training; the fence decides.
        with suppress(OSError, NoSpaceError):
            _write(folder, token, beat=beat, group=group)


def _write(folder: Path, token: int, *, beat: int = 0, is_held: bool = True, group: str = "") -> None:
    job = os.environ.get("SLURM_JOB_ID", "")
    process = {"host": host_id(), "pid": os.getpid(), "began": start_time(os.getpid()), "job": job, "group": group}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with publish(_path(folder, token)) as draft:
        write_json(draft, process | {"token": token, "held": is_held, "beat": beat, "time": now})


def _read(folder: Path, token: int) -> dict[str, Any]:
    """The content of a token's file; empty for one that was just created."""
    try:
        content: dict[str, Any] = json.loads(_path(folder, token).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content


def _path(folder: Path, token: int) -> Path:
    return folder / f"{token:06d}.json"


def _already_running(holder: dict[str, Any]) -> UsageError:
    return UsageError(f"this training is already running ({_location(holder)}); wait for it or stop it")


def _location(holder: dict[str, Any]) -> str:
    """Where to look for a holder, without the name of its host."""
    if not holder:
        return "it has just started"
    host = "this host" if holder["host"] == host_id() else "another host"
    job = f" in job {holder['job']}" if holder["job"] else ""
    return f"process {holder['pid']} on {host}{job}"
