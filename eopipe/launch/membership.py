"""The launchers of one training: the first holds the lease and publishes, the others work with it."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from socket import socket

from eopipe.errors import PreemptedError, UsageError
from eopipe.launch.endpoint import MEETING, Meeting, answers, call, interface, read_meeting, way_to
from eopipe.launch.environment import Geometry, Place
from eopipe.launch.failures import STATUS, noted
from eopipe.launch.lease import STALE_S, holder, lease, lives, newest_token
from eopipe.publish import host_id

log = logging.getLogger("eopipe")
# Longer than a lease takes to be taken over from a host that died.
MEET_S = 2 * STALE_S


@dataclass(frozen=True)
class Seat:
    """A launcher's part in a group: only the first one has a socket, and writes."""

    place: Place
    state: Path
    path: Path
    meeting: Meeting
    listening: socket | None

    @property
    def first(self) -> bool:
        """Whether this launcher holds the lease."""
        return self.listening is not None

    @property
    def may_leave(self) -> bool:
        """Whether the others go on when this node is told to stop."""
        return not self.first and self.place.nodes.elastic

    def geometry(self, processes: int, restarts: int, wait_s: float) -> Geometry:
        """What torchrun is told here."""
        met, own = self.meeting, self.meeting.host if self.first else way_to(self.meeting.host)
        return Geometry(self.place.nodes, processes, met.group, met.host, met.port, own, restarts, wait_s)

    def open(self) -> None:
        """Let the others in: all that they read is written."""
        self.meeting.write(self.path)

    def done(self) -> None:
        """Tell the others that the model is published."""
        replace(self.meeting, done=True).write(self.path)


def interfaces(geometry: Geometry) -> dict[str, str]:
    """The interface that gloo and NCCL are bound to: loopback on one node, else that of the way to the others."""
    found = interface(geometry.address)
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return {name: os.environ.get(name, found) for name in names if found or name in os.environ}


@contextmanager
def seat(state: Path, place: Place) -> Iterator[Seat]:
    """Take the lease, or find who holds it for the same group.

    Raises UsageError when another training holds it, PreemptedError when the first one of the group does not come.
    """
    path, before = place.file or state / MEETING, newest_token(state)
    with ExitStack() as stack:
        refused: UsageError | None = None
        if not place.node:
            try:
                token = stack.enter_context(lease(state, group=place.group))
            except UsageError as error:
                if place.nodes.most == 1 or place.node == 0:
                    raise
                refused = error
            else:
                meeting, listening = call(place, token)
                with listening:
                    if place.port not in (0, meeting.port):
                        log.warning("event=port-taken wanted=%d took=%d", place.port, meeting.port)
                    yield Seat(place, state, path, meeting, listening)
                return
        found = _found(state, path, place, before, refused)
        log.info("event=group-joined group=%s port=%d", found.group, found.port)
        yield Seat(place, state, path, found, None)


def _found(state: Path, path: Path, place: Place, before: int, refused: UsageError | None) -> Meeting:
    """Wait for the first launcher to write down where it listens."""
    until, first = time.monotonic() + MEET_S, holder(state, before)
    while time.monotonic() < until:
        met, token = read_meeting(path), newest_token(state)
        told = holder(state, token)
        ours = told.get("group") == place.group
        named = met and not met.done and met.group == f"{place.group}.{token}"
        if met and named and told.get("held") and answers(met):
            return met
        if refused and told and not ours and (lives(told) or (token == before and told != first)):
            raise refused
        if ours and token > before and not told["held"]:
            break
        time.sleep(0.2)
    if refused and not ours:
        raise refused
    raise PreemptedError(f"the first node of {place.group} has not come, or gave up; run the same command again")


def verdict(seat: Seat, *, patient: bool) -> None:
    """Wait for the end of the first launcher; raise the error that the training ended with.

    Where this node failed by itself it waits for a minute or so only. Raises PreemptedError when the first one died.
    """
    token, last, since = seat.meeting.token, None, time.monotonic()
    while time.monotonic() - since < STALE_S:
        if newest_token(seat.state) > token:
            break
        told, met = holder(seat.state, token), read_meeting(seat.path)
        if not told or (met and met.secret == seat.meeting.secret and met.done):
            return
        if (failure := noted(seat.state / STATUS)) and failure.final and failure.token == token:
            raise failure.error()
        if not told["held"] or (told["host"] == host_id() and not lives(told)):
            break
        if patient and told != last:
            last, since = told, time.monotonic()
        time.sleep(0.2)
    raise PreemptedError("the first node of this training is gone, what was saved is kept; run the same command again")
