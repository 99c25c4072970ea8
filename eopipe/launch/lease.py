"""One training, one writer: a lease with a fencing token.

Holding flock is enough on one host. Over a network file system it may be granted twice, so the holder also
owns a numbered file: taking over means to create the next number, which only one can (O_EXCL), and whoever
finds a higher number than its own publishes no more (Kleppmann 2016, "How to do distributed locking").
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
from eopipe.publish import host_id, publish, write_json

log = logging.getLogger("eopipe")
BEAT_S = 5.0
# Some file systems show a change only after a minute (NFS attribute caches).
STALE_S = 75.0


def fence(state: Path, token: int) -> None:
    """Raise UsageError when another training holds a younger token than this one."""
    newest = newest_token(state)
    if newest > token:
        raise UsageError(f"another training has taken over {state} (token {newest} after {token}); this one stops")


def newest_token(state: Path) -> int:
    """The highest token that was ever given out; 0 for none."""
    return max((int(path.stem) for path in (state / "lease").glob("[0-9]*.json")), default=0)


@contextmanager
def lease(state: Path, beat_s: float = BEAT_S, stale_s: float = STALE_S, group: str = "") -> Iterator[int]:
    """Hold a training for this process alone; gives the token that its writers carry. `group` names who may join.

    Raises UsageError when it is held. Who died on this host is followed at once, a holder on another host after
    `stale_s` seconds without a sign of life.
    """
    room = state / "lease"
    room.mkdir(parents=True, exist_ok=True)
    with (room / "lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _running(_holder(room, newest_token(state))) from None
        token = _take(room, newest_token(state), stale_s, group)
        done = Event()
        heart = Thread(target=_beat, args=(room, token, beat_s, done, group), name="heartbeat", daemon=True)
        heart.start()
        try:
            yield token
        finally:
            done.set()
            heart.join()
            _tell(room, token, held=False, group=group)


def holder(state: Path, token: int) -> dict[str, Any]:
    """What the holder of a token says of itself; nothing where it says nothing."""
    return _holder(state / "lease", token)


def lives(holder: dict[str, Any]) -> bool:
    """Whether a holder is for sure a living process of this host."""
    return holder.get("host") == host_id() and bool(holder.get("held")) and _lives(holder)


def _take(room: Path, last: int, stale_s: float, group: str) -> int:
    """Create the next token if the last one's holder is gone."""
    holder = _holder(room, last)
    if holder.get("held", last > 0):
        _await_silence(room, last, holder, stale_s)
        log.warning("event=lease-taken-over token=%d from=%r", last + 1, holder)
    try:
        os.close(os.open(_path(room, last + 1), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    except FileExistsError:
        raise _running(_holder(room, last + 1)) from None
    _tell(room, last + 1, group=group)
    for token in range(last, 0, -1):
        if not _path(room, token).exists():
            break
        _path(room, token).unlink(missing_ok=True)
    return last + 1


def _await_silence(room: Path, token: int, holder: dict[str, Any], stale_s: float) -> None:
    """Return when a holder is dead for sure or long silent by our own clock; raise when it gives a sign of life."""
    if holder.get("host") == host_id():
        if _lives(holder):
            raise _running(holder)
        return
    log.warning("event=lease-watched for_s=%.0f holder=%r", stale_s, holder)
    until = time.monotonic() + stale_s
    while time.monotonic() < until:
        time.sleep(min(0.5, stale_s / 5))
        newest = newest_token(room.parent)
        if newest > token or _holder(room, token) != holder:
            raise _running(_holder(room, newest))


def _lives(holder: dict[str, Any]) -> bool:
    """Whether the process is there and is the one that took the lease, not one with its number."""
    return bool(_began(int(holder["pid"])) == holder["began"])


def _began(pid: int) -> str:
    """The start of a process in clock ticks since boot, which tells it from others with its number."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    return ""


def _beat(room: Path, token: int, every_s: float, done: Event, group: str) -> None:
    beat = 0
    while not done.wait(every_s):
        beat += 1
        # A file system that fails for a while must not end a training; the fence decides.
        with suppress(OSError, NoSpaceError):
            _tell(room, token, beat=beat, group=group)


def _tell(room: Path, token: int, *, beat: int = 0, held: bool = True, group: str = "") -> None:
    job = os.environ.get("SLURM_JOB_ID", "")
    me = {"host": host_id(), "pid": os.getpid(), "began": _began(os.getpid()), "job": job, "group": group}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with publish(_path(room, token)) as draft:
        write_json(draft, me | {"token": token, "held": held, "beat": beat, "time": now})


def _holder(room: Path, token: int) -> dict[str, Any]:
    """What a token's file says; nothing for one that was just created."""
    try:
        told: dict[str, Any] = json.loads(_path(room, token).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return told


def _path(room: Path, token: int) -> Path:
    return room / f"{token:06d}.json"


def _running(holder: dict[str, Any]) -> UsageError:
    return UsageError(f"this training is already running ({_who(holder)}); wait for it or stop it")


def _who(holder: dict[str, Any]) -> str:
    """Where to look for a holder, without the name of its host."""
    if not holder:
        return "it has just started"
    place = "this host" if holder["host"] == host_id() else "another host"
    return f"process {holder['pid']} on {place}" + f" in job {holder['job']}" * bool(holder["job"])
