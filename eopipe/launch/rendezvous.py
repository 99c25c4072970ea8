"""The rendezvous of the agents of many nodes: torchrun's own, with signed states. Tested with torch 2.13.

| part of torch 2.13                                | here   | why                                                    |
|---------------------------------------------------|--------|--------------------------------------------------------|
| DynamicRendezvousHandler._state_holder,           | read   | nodes that left are noticed at once and cost no        |
| ._this_node                                       |        | restart                                                |
| ._stop_heartbeats, ._op_executor, ._get_deadline, | called | a node that is asked to stop leaves at once, not after |
| dynamic_rendezvous._RendezvousExitOp              |        | ten silent seconds                                     |
| TCPStore(master_listen_fd=)                       | called | torch listens on all addresses, a store here on one    |
| TORCH_DISABLE_SHARE_RDZV_TCP_STORE                | set    | in next_rendezvous: restarted ranks would read stale   |
|                                                   |        | addresses from a store that agents share (gloo)        |

The states that agents exchange carry a signature (HMAC-SHA-256, RFC 2104), since PyTorch unpickles what any process
writes into its store. `torchrun.check_torch` looks for these parts before a training is launched.
"""

import hmac
import inspect
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, cast

import torch

from eopipe.errors import UsageError
from eopipe.launch.environment import Endpoint, NodeRange

TESTED = "2.13"


def unsupported(reason: str) -> UsageError:
    """The error for a torch whose parts are not those that eopipe uses."""
    return UsageError(
        f"torch {torch.__version__} is not supported by eopipe ({reason}); eopipe was tested with {TESTED}"
    )


try:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]
    from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStateError
    from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dynamic
    from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
except ImportError as missing:
    raise unsupported(str(missing)) from missing

log = logging.getLogger("eopipe")
SIGNATURE_BYTES = 32
StateAndToken = tuple[bytes, Any]
# Methods with the parameters that are passed to them; names of attributes that __init__ sets.
Methods = tuple[tuple[Any, str, tuple[str, ...]], ...]
Attributes = tuple[tuple[Any, str], ...]
METHODS: Methods = (
    (dynamic.DynamicRendezvousHandler, "from_backend", ("run_id", "store", "backend", "min_nodes", "max_nodes")),
    (dynamic.DynamicRendezvousHandler, "_stop_heartbeats", ()),
    (dynamic.DynamicRendezvousHandler, "_get_deadline", ("timeout",)),
    (dynamic, "_RendezvousExitOp", ()),
)
ATTRIBUTES: Attributes = (
    (dynamic.DynamicRendezvousHandler, "_state_holder"),
    (dynamic.DynamicRendezvousHandler, "_this_node"),
    (dynamic.DynamicRendezvousHandler, "_op_executor"),
)


def missing_parts(methods: Methods, attributes: Attributes) -> list[str]:
    """The names of those that this torch lacks, or has with other parameters."""
    missing = [f"{owner.__name__}.{name}" for owner, name, parameters in methods if not _has(owner, name, parameters)]
    return missing + [
        f"{owner.__name__}.{name}" for owner, name in attributes if name not in owner.__init__.__code__.co_names
    ]


def _has(owner: Any, name: str, parameters: tuple[str, ...]) -> bool:
    method = getattr(owner, name, None)
    if getattr(method, "__isabstractmethod__", False):
        return False
    # Functions of C++ have no signature.
    return method is not None and (not parameters or set(parameters) <= inspect.signature(method).parameters.keys())


@contextmanager
def torch_variable(name: str, value: str) -> Iterator[None]:
    """Set a variable that torch reads from the environment only; afterwards it is as before."""
    previous = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        os.environ.update({} if previous is None else {name: previous})


class SignedBackend(dynamic.RendezvousBackend):
    """A rendezvous backend whose states are signed; raises RendezvousStateError for states of other processes."""

    def __init__(self, inner: C10dRendezvousBackend, secret: str) -> None:
        self.inner, self.secret = inner, secret.encode()

    @property
    def name(self) -> str:
        """The name that events carry."""
        return "eopipe"

    def get_state(self) -> StateAndToken | None:
        """The state that all agents share, and the token of this version of it."""
        signed = self.inner.get_state()
        return signed and (self.verified(signed[0]), signed[1])

    def set_state(self, state: bytes, token: Any | None = None) -> tuple[bytes, Any, bool] | None:
        """Change the state if no process did so since `token`; gives the one that holds now."""
        signed = self.inner.set_state(self.signature(state) + state, token)
        return signed and (self.verified(signed[0]), *signed[1:])

    def signature(self, state: bytes) -> bytes:
        """32 bytes that only members of the group can compute."""
        return hmac.digest(self.secret, state, "sha256")

    def verified(self, signed: bytes) -> bytes:
        state = signed[SIGNATURE_BYTES:]
        if not hmac.compare_digest(signed[:SIGNATURE_BYTES], self.signature(state)):
            # The agent may end by the failure of its workers, which save their state first.
            log.error("event=store_forged reason='a foreign process wrote into the store of this training'")
            raise RendezvousStateError("a foreign process wrote into the store of this training")
        return state


class GroupRendezvous(dynamic.DynamicRendezvousHandler):
    """The rendezvous of many nodes: it notices nodes that left, so that this costs none of the restarts."""

    world_size = 0

    @classmethod
    def join(
        cls, endpoint: Endpoint, listening: int | None, address: str, nodes: NodeRange, wait_s: float
    ) -> "GroupRendezvous":
        """Connect to the store of an endpoint, or serve it on the listening socket; both belong to this group."""
        store = TCPStore(
            endpoint.host,
            endpoint.port,
            is_master=listening is not None,
            timeout=timedelta(seconds=60),
            wait_for_workers=False,
            master_listen_fd=listening,
        )
        # A node counts as lost after ten silent seconds; one that comes within five of the first needs no restart.
        rendezvous = cls.from_backend(
            endpoint.group,
            store,
            SignedBackend(C10dRendezvousBackend(store, endpoint.group), endpoint.secret),
            nodes.minimum,
            nodes.maximum,
            address,
            dynamic.RendezvousTimeout(timedelta(seconds=max(1, int(wait_s))), timedelta(seconds=5)),
            keep_alive_interval=2,
            keep_alive_max_attempt=5,
        )
        return cast(GroupRendezvous, rendezvous)

    @property
    def use_agent_store(self) -> bool:
        """Whether workers use the store of the agents; restarted ranks would read stale addresses from it."""
        return False

    def next_rendezvous(self) -> RendezvousInfo:
        """Meet in the next round."""
        with torch_variable("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"):
            info = super().next_rendezvous()
        self.world_size = info.world_size
        return info

    def num_nodes_waiting(self) -> int:
        """Nodes that joined or left: the agent starts its workers again in the world that is left."""
        waiting = super().num_nodes_waiting()
        participants = self._state_holder.state.participants
        return waiting + max(self.world_size - len(participants), int(self._this_node not in participants))

    def leave(self) -> None:
        """Let the others know at once that this node leaves."""
        self._stop_heartbeats()
        self._op_executor.run(dynamic._RendezvousExitOp(), self._get_deadline(timedelta(seconds=5)))
