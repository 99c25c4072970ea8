"""How agents gather for torchrun: c10d's rendezvous on a socket of our own, and only signed words count.

PyTorch 2.13 listens on all addresses and unpickles what anybody may write into its store, so whoever reaches the
port would run code in the agents. Here the launcher binds one address, and the state that agents exchange carries
a signature (HMAC-SHA-256, RFC 2104) by a secret that only the user's own processes read.
"""

import hmac
import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.rendezvous import (
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStateError,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import (
    DynamicRendezvousHandler,
    RendezvousBackend,
    RendezvousTimeout,
    _RendezvousExitOp,
)

from eopipe.launch.endpoint import LISTENING, MET, read_meeting

log = logging.getLogger("eopipe")
SIGNATURE = 32
WAITS = ("join_timeout", "last_call_timeout", "keep_alive_interval", "keep_alive_max_attempt")
Found = tuple[bytes, Any, bool] | None
# What torchrun has made of this class here; it does not tell.
_joined: list["Gathering"] = []


class Signed(RendezvousBackend):  # type: ignore[misc,unused-ignore]
    """A backend whose words are signed; raises RendezvousStateError for those of somebody else."""

    def __init__(self, inner: C10dRendezvousBackend, secret: str) -> None:
        self.inner, self.secret = inner, secret.encode()

    @property
    def name(self) -> str:
        """The name that events carry."""
        return "eopipe"

    def get_state(self) -> tuple[bytes, Any] | None:
        """The state that all agents share, and what tells this state of it."""
        found = self.inner.get_state()
        return found and (self.opened(found[0]), found[1])

    def set_state(self, state: bytes, token: Any | None = None) -> Found:
        """Change the state if nobody did so since `token`; gives the one that holds now."""
        found: Found = self.inner.set_state(self.signature(state) + state, token)
        return found and (self.opened(found[0]), *found[1:])

    def signature(self, state: bytes) -> bytes:
        """32 bytes that only members of the group can make."""
        return hmac.digest(self.secret, state, "sha256")

    def opened(self, told: bytes) -> bytes:
        """The state without its signature."""
        state = told[SIGNATURE:]
        if not hmac.compare_digest(told[:SIGNATURE], self.signature(state)):
            # What ends the agent may be its workers, which save their state first.
            log.error("event=store-forged reason='somebody else wrote into the store of this training'")
            raise RendezvousStateError("somebody else wrote into the store of this training")
        return state


class Gathering(DynamicRendezvousHandler):
    """A rendezvous that notices who has left, so that this costs none of the restarts for failures."""

    met = 0

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet in the next round."""
        info = super().next_rendezvous()
        self.met = info.world_size
        return info

    def num_nodes_waiting(self) -> int:
        """Nodes that came or went: the agent starts its workers again in the world that is there now."""
        waiting = super().num_nodes_waiting()
        there = self._state_holder.state.participants
        return waiting + max(self.met - len(there), int(self._this_node not in there))

    def leave(self) -> None:
        """Tell the others at once that this node goes, instead of by silence."""
        self._stop_heartbeats()
        self._op_executor.run(_RendezvousExitOp(), self._get_deadline(timedelta(seconds=5)))


def register() -> None:
    """Make torchrun know the backend `eopipe`."""
    _joined.clear()
    rendezvous_handler_registry.register("eopipe", _gather)


def leave() -> None:
    """Let the agent of this process leave its group."""
    for gathering in _joined:
        gathering.leave()


def _gather(parameters: RendezvousParameters) -> Gathering:
    _joined.append(_gathering(parameters))
    return _joined[-1]


def _gathering(parameters: RendezvousParameters) -> Gathering:
    meeting = read_meeting(Path(os.environ[MET]))
    if not meeting or meeting.group != parameters.run_id:
        raise RendezvousStateError("this group has met elsewhere")
    inner = C10dRendezvousBackend(_store(parameters.endpoint), parameters.run_id)
    join, last_call, every, times = (int(parameters.get(name)) for name in WAITS)
    gathering = Gathering.from_backend(
        parameters.run_id,
        inner._store,
        Signed(inner, meeting.secret),
        parameters.min_nodes,
        parameters.max_nodes,
        parameters.local_addr,
        RendezvousTimeout(timedelta(seconds=join), timedelta(seconds=last_call)),
        every,
        times,
    )
    return cast(Gathering, gathering)


def _store(endpoint: str) -> TCPStore:
    host, _, port = endpoint.rpartition(":")
    listening = os.environ.pop(LISTENING, "")
    return TCPStore(
        host,
        int(port),
        is_master=bool(listening),
        timeout=timedelta(seconds=60),
        wait_for_workers=False,
        master_listen_fd=int(listening) if listening else None,
    )
