"""How servers are asked: so many at a time, so often again, so long, and not a moment after the user says stop."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Literal

from eopipe.errors import PreemptedError, UpstreamError

log = logging.getLogger("eopipe")
# One answer in three may be a fault, and still each of a thousand assets comes.
ATTEMPTS = 10
# Seconds: what the first wait is twice of, how long waits become by themselves, and at a server's wish.
BACKOFF, LONGEST, MAX_WAIT = 0.5, 30.0, 120.0
# Seconds to connect, and between two pieces of an answer.
TIMEOUT = (10.0, 60.0)
# Slower than this (bytes a second, after so many seconds) is a server that hangs.
SLOWEST, GRACE = 1000.0, 60.0
# What is handed on at once of a body.
BLOCK = 1 << 16

Sign = Literal["auto", "none", "planetary-computer"]


class Again(Exception):  # noqa: N818 - an event, no error that a user meets
    """A request has to be made again: why, and how many seconds the server wants us to wait."""

    def __init__(self, reason: str, wait: float = 0.0, *, slow: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.wait, self.slow = reason, wait, slow


class Changed(Exception):  # noqa: N818 - an event, no error that a user meets
    """The server has another version of the file than the one that was begun, or answered with another part."""


@dataclass(frozen=True)
class Reply:
    """Bytes of a file from `start` on; its length in bytes and strong ETag, each empty where it is not told."""

    start: int
    total: int | None
    tag: str
    changed: str
    body: Iterator[bytes]


@dataclass(frozen=True)
class FetchSession:
    """What the assets of one job share: seconds for each asset, connections to a host, signing, the stop signal."""

    deadline: float = 3600.0
    per_host: int = 8
    sign: Sign = "auto"
    stop: threading.Event = field(default_factory=threading.Event)
    _hosts: dict[str, threading.BoundedSemaphore] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def turn(self, host: str) -> threading.BoundedSemaphore:
        """What a request holds while its host is at work for it."""
        with self._lock:
            return self._hosts.setdefault(host, threading.BoundedSemaphore(self.per_host))


class Patience:
    """The tries of one asset: those in a row that bring nothing are counted, and the deadline ends them all."""

    def __init__(self, where: str, host: str, terms: FetchSession, ends: float = 0.0) -> None:
        self.where, self.host, self.terms, self.failed = where, host, terms, 0
        self.ends = ends or time.monotonic() + terms.deadline
        self.reason = "no answer"

    def left(self) -> float:
        """Seconds until the deadline. Raises UpstreamError when there are none, PreemptedError after a stop."""
        if self.terms.stop.is_set():
            raise PreemptedError(f"{self.where} was stopped; what came is kept for the next run")
        left = self.ends - time.monotonic()
        if left <= 0:
            raise self.lost(f"not within {self.terms.deadline:g} s, last: {self.reason}")
        return left

    def timeout(self) -> tuple[float, float]:
        """Seconds to connect, and between two pieces of an answer."""
        left = self.left()
        return min(TIMEOUT[0], left), min(TIMEOUT[1], left)

    def lost(self, why: str) -> UpstreamError:
        """Make the error of an asset that does not come."""
        return UpstreamError(f"{self.host} did not deliver {self.where} ({why}); try again later")

    def pause(self, again: Again, *, moved: bool) -> None:
        """Wait for the next try; `moved` tells that this one brought something. Raises UpstreamError at the last."""
        # An attempt that brought something is no failure, or a large file over a bad line never arrives.
        self.failed = 1 if moved and not again.slow else self.failed + 1
        self.reason = again.reason
        if self.failed >= ATTEMPTS:
            raise self.lost(f"last: {again.reason}")
        wait = min(again.wait, MAX_WAIT) or min(BACKOFF * 2**self.failed, LONGEST)
        if wait > self.left():
            raise self.lost(f"last: {again.reason}; the next try in {wait:.0f} s would be after the deadline")
        log.warning(
            "event=retry asset=%s attempt=%d reason=%r wait_s=%.1f", self.where, self.failed, again.reason, wait
        )
        self.terms.stop.wait(wait * (1 + random.random() / 10))  # noqa: S311
        self.left()


def insist(attempt: Callable[[], None], have: Callable[[], int], patience: Patience) -> None:
    """Try until an attempt raises Again no more; `have` tells how many bytes have come so far.

    Raises UpstreamError when the tries or the time are used up.
    """
    while True:
        before = have()
        try:
            return attempt()
        except Again as again:
            patience.pause(again, moved=have() > before)


def paced(body: Iterable[bytes], patience: Patience) -> Iterator[bytes]:
    """Hand a body on as it comes in. Raises Again when it trickles, UpstreamError at the deadline."""
    began, came = time.monotonic(), 0
    for block in body:
        patience.left()
        yield block
        came += len(block)
        taken = time.monotonic() - began
        if taken > GRACE and came < SLOWEST * taken:
            raise Again(f"less than {SLOWEST:.0f} bytes a second", slow=True)


def retry_after(told: str) -> float:
    """Seconds that a Retry-After header asks for, which states seconds or a date; 0 when it says neither."""
    if told.isdigit():
        return float(told)
    try:
        return max(0.0, parsedate_to_datetime(told).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0
