"""Retries of requests: back-off, Retry-After, deadlines, connections to one host, and the stop signal."""

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Literal, TypeVar

from eopipe.errors import PreemptedError, UpstreamError

log = logging.getLogger("eopipe")
# With one response in three a fault, each of a thousand assets still arrives.
MAX_ATTEMPTS = 10
# Seconds: half of the first wait, the longest wait of the back-off, the longest that a Retry-After can ask for.
BACKOFF, MAX_BACKOFF, MAX_RETRY_AFTER = 0.5, 30.0, 120.0
# Seconds to connect, and between two chunks of a response.
TIMEOUT = (10.0, 60.0)
# A server that is slower than this (bytes per second, after GRACE seconds) hangs.
MIN_RATE, GRACE = 1000.0, 60.0
# Bytes of a response body that are passed on at once.
CHUNK = 1 << 16
# Statuses of a request that may succeed later, beside those of 500 and more.
TRANSIENT = (408, 425, 429)

Sign = Literal["auto", "none", "planetary-computer"]
Result = TypeVar("Result")


class TransientError(Exception):
    """A request failed and is worth another attempt: the reason, and the seconds that the server asks to wait."""

    def __init__(self, reason: str, wait: float = 0.0, *, slow: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.wait, self.slow = reason, wait, slow


class ChangedError(Exception):
    """The server has another version of the file than before, or answered with another range."""


@dataclass(frozen=True)
class RangeResponse:
    """Bytes of a file from `start` on, and its length where the server states it.

    `tag` is the strong ETag of its version; where there is none, `modified` is what else the server says of it.
    """

    start: int
    total: int | None
    tag: str
    modified: str
    body: Iterator[bytes]


class Clock:
    """The time as retries see it; a test replaces it by one that does not wait."""

    def now(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Wait for these seconds, or until `stop` is set."""
        stop.wait(seconds)


# Parallel connections to one host.
PER_HOST = 8


@dataclass(frozen=True)
class FetchSession:
    """What the requests of one job share: the deadline of each asset in seconds, limits, signing, connections.

    `private_hosts` are hosts that may be requested though they are not public.
    """

    deadline: float = 3600.0
    sign: Sign = "auto"
    private_hosts: tuple[str, ...] = ()
    stop: threading.Event = field(default_factory=threading.Event)
    clock: Clock = field(default_factory=Clock)
    _slots: dict[str, threading.BoundedSemaphore] = field(default_factory=dict)
    _resources: dict[Callable[["FetchSession"], Any], Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def connection_slot(self, host: str) -> threading.BoundedSemaphore:
        """What a request to this host holds; there are `PER_HOST` of them."""
        with self._lock:
            return self._slots.setdefault(host, threading.BoundedSemaphore(PER_HOST))

    def resource(self, create: Callable[["FetchSession"], Result]) -> Result:
        """What `create` returns, created at the first use and shared by the whole session: a connection pool."""
        with self._lock:
            if create not in self._resources:
                self._resources[create] = create(self)
            resource: Result = self._resources[create]
            return resource

    def __enter__(self) -> "FetchSession":
        return self

    def __exit__(self, *_error: object) -> None:
        for resource in self._resources.values():
            resource.close()
        self._resources.clear()


class RetryBudget:
    """The retries of one asset: failures in a row without progress are counted, and the deadline ends them all."""

    def __init__(self, label: str, host: str, session: FetchSession, deadline: float = 0.0) -> None:
        self.label, self.host, self.session, self.failures = label, host, session, 0
        self.deadline = deadline or session.clock.now() + session.deadline
        self.last_reason = "no response"

    def remaining(self) -> float:
        """Seconds until the deadline. Raises UpstreamError when there are none, PreemptedError after a stop."""
        if self.session.stop.is_set():
            raise PreemptedError(f"the download of {self.label} was stopped; the next run continues it")
        remaining = self.deadline - self.session.clock.now()
        if remaining <= 0:
            raise self.exhausted(f"not within {self.session.deadline:g} s, last: {self.last_reason}")
        return remaining

    def timeout(self) -> tuple[float, float]:
        """Seconds to connect, and between two chunks of a response."""
        remaining = self.remaining()
        return min(TIMEOUT[0], remaining), min(TIMEOUT[1], remaining)

    def exhausted(self, reason: str) -> UpstreamError:
        """The error for an asset that the server does not deliver."""
        return UpstreamError(f"{self.host} did not deliver {self.label} ({reason}); try again later")

    def back_off(self, error: TransientError, *, progressed: bool) -> None:
        """Wait for the next attempt; `progressed` says that the last one received bytes.

        Raises UpstreamError after the last attempt.
        """
        # An attempt that received bytes does not count, or a large file over a bad connection never arrives.
        self.failures = 1 if progressed and not error.slow else self.failures + 1
        self.last_reason = error.reason
        if self.failures >= MAX_ATTEMPTS:
            raise self.exhausted(f"last: {error.reason}")
        wait = min(error.wait, MAX_RETRY_AFTER) or min(BACKOFF * 2**self.failures, MAX_BACKOFF)
        if wait > self.remaining():
            raise self.exhausted(f"last: {error.reason}; the next attempt in {wait:.0f} s would be after the deadline")
        log.warning(
            "event=retry asset=%s attempt=%d reason=%r wait_s=%.1f", self.label, self.failures, error.reason, wait
        )
        self.session.clock.wait(wait * (1 + random.random() / 10), self.session.stop)  # noqa: S311
        self.remaining()


def retry(attempt: Callable[[], Result], received: Callable[[], int], budget: RetryBudget) -> Result:
    """What an attempt returns, repeated until it no longer raises TransientError; `received` counts the bytes so far.

    Raises UpstreamError when the attempts or the time are used up.
    """
    while True:
        before = received()
        try:
            return attempt()
        except TransientError as error:
            budget.back_off(error, progressed=received() > before)


def guard_rate(body: Iterable[bytes], budget: RetryBudget) -> Iterator[bytes]:
    """Pass on the chunks of a body. Raises TransientError when it trickles, UpstreamError at the deadline."""
    clock = budget.session.clock
    start, received = clock.now(), 0
    for chunk in body:
        budget.remaining()
        yield chunk
        received += len(chunk)
        elapsed = clock.now() - start
        if elapsed > GRACE and received < MIN_RATE * elapsed:
            raise TransientError(f"slower than {MIN_RATE:.0f} bytes per second", slow=True)
    # A connection that was broken at the deadline looks like one that has ended.
    budget.remaining()


def retry_after(header: str) -> float:
    """Seconds that a Retry-After header asks for, as a number or a date; 0 when it has neither."""
    if header.isdigit():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (TypeError, ValueError):
        return 0.0
