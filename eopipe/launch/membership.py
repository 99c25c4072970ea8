"""The launchers of one training on many nodes: the first holds the lease and publishes, the others work with it."""

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from socket import socket

from eopipe.errors import PreemptedError, UsageError
from eopipe.launch.endpoint import ENDPOINT_FILE, Endpoint, address_towards, open_endpoint, read_endpoint
from eopipe.launch.environment import ClusterEnvironment, NodeRange
from eopipe.launch.failures import STATUS, read_failure
from eopipe.launch.lease import STALE_S, hold_lease, is_alive, newest_token, read_holder
from eopipe.publish import host_id

log = logging.getLogger("eopipe")
# Longer than a lease takes to be taken over from a host that died.
JOIN_S = 2 * STALE_S


@dataclass(frozen=True)
class Membership:
    """The part of a launcher in its group: only the first one has a listening socket, and writes."""

    nodes: NodeRange
    state: Path
    path: Path
    endpoint: Endpoint
    listening: socket | None

    @property
    def is_first(self) -> bool:
        """Whether this launcher holds the lease."""
        return self.listening is not None

    @property
    def may_leave(self) -> bool:
        """Whether the others continue when this node is asked to stop."""
        return not self.is_first and self.nodes.is_elastic

    @property
    def address(self) -> str:
        """The address of this node that the others reach."""
        return self.endpoint.host if self.is_first else address_towards(self.endpoint.host)

    def publish_endpoint(self) -> None:
        """Let the others in: all that they read is written."""
        self.endpoint.write(self.path)

    def publish_done(self) -> None:
        """Let the others know that the model is published."""
        replace(self.endpoint, done=True).write(self.path)


@contextmanager
def join_group(state: Path, environment: ClusterEnvironment) -> Iterator[Membership]:
    """Take the lease, or join the launcher that holds it for the same group.

    Raises UsageError when another training holds it, PreemptedError when the first launcher does not start.
    """
    path, newest = environment.file or state / ENDPOINT_FILE, newest_token(state)
    refusal: UsageError | None = None
    with ExitStack() as stack:
        if not environment.node_rank:
            try:
                token = stack.enter_context(hold_lease(state, group=environment.group))
            except UsageError as error:
                if environment.node_rank == 0:
                    raise
                refusal = error
            else:
                endpoint, listening = open_endpoint(environment, token)
                with listening:
                    if environment.port not in (0, endpoint.port):
                        log.warning("event=port_taken wanted=%d took=%d", environment.port, endpoint.port)
                    yield Membership(environment.nodes, state, path, endpoint, listening)
                return
        endpoint = _find_endpoint(state, path, environment, newest, refusal)
        log.info("event=group_joined group=%s port=%d", endpoint.group, endpoint.port)
        yield Membership(environment.nodes, state, path, endpoint, None)


def _find_endpoint(
    state: Path, path: Path, environment: ClusterEnvironment, newest: int, refusal: UsageError | None
) -> Endpoint:
    """Wait for the first launcher of the group to publish its endpoint.

    `newest` is the newest token when this launcher started, `refusal` why it did not get the lease itself.
    """
    group, deadline, first_holder = environment.group, time.monotonic() + JOIN_S, read_holder(state, newest)
    same_group = False
    while time.monotonic() < deadline:
        endpoint, token = read_endpoint(path), newest_token(state)
        holder = read_holder(state, token)
        same_group = holder.get("group") == group
        is_current = endpoint and not endpoint.done and endpoint.group == f"{group}.{token}"
        if endpoint and is_current and holder.get("held") and endpoint.is_reachable():
            return endpoint
        holder_acts = is_alive(holder) or (token == newest and holder != first_holder)
        if refusal and holder and not same_group and holder_acts:
            raise refusal
        if same_group and token > newest and not holder["held"]:
            break
        time.sleep(0.2)
    if refusal and not same_group:
        raise refusal
    raise PreemptedError(f"the first node of {group} did not start or has ended; run the same command again")


def await_result(member: Membership, *, patient: bool) -> None:
    """Wait for the end of the first launcher; raise the error that the training ended with.

    Where this node failed by itself it waits for about a minute only. Raises PreemptedError when the first node died.
    """
    token, last_holder, since = member.endpoint.token, None, time.monotonic()
    while time.monotonic() - since < STALE_S:
        if newest_token(member.state) > token:
            break
        holder, endpoint = read_holder(member.state, token), read_endpoint(member.path)
        is_same = endpoint and endpoint.secret == member.endpoint.secret
        if not holder or (endpoint and is_same and endpoint.done):
            return
        failure = read_failure(member.state / STATUS)
        if failure and failure.final and failure.token == token:
            raise failure.error()
        if not holder["held"] or (holder["host"] == host_id() and not is_alive(holder)):
            break
        if patient and holder != last_holder:
            last_holder, since = holder, time.monotonic()
        time.sleep(0.2)
    raise PreemptedError(
        "the first node of this training ended; the last checkpoint is kept, run the same command again"
    )
