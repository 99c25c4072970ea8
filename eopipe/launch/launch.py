"""Run the workers of one node to their end, alone or together with other nodes, and raise what they ended with.

The first launcher of a training on many nodes holds the lease and publishes, the others work with it. A Slurm job over
many nodes is started once by Slurm, and starts itself on each of them through srun.
"""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from socket import socket
from types import FrameType
from typing import Any

from eopipe.contract import stage, to_args
from eopipe.errors import BY_CODE, EopipeError, PreemptedError, UpstreamError, UsageError
from eopipe.launch.environment import (
    ENDPOINT_FILE,
    LOOPBACK,
    RDZV_ENDPOINT,
    RDZV_FILE,
    RDZV_ID,
    ClusterEnvironment,
    Endpoint,
    NodeRange,
    address_towards,
    interface_of,
    nodes_of_step,
    open_endpoint,
    parse_nodes,
    read_endpoint,
    srun_command,
)
from eopipe.launch.failures import STATUS, check_disk_space, read_failure
from eopipe.launch.lease import STALE_S, hold_lease, is_alive, newest_token, read_holder
from eopipe.launch.world import AGENT_PID, LEAVES_GROUP, STOP_SIGNALS
from eopipe.publish import host_id

log = logging.getLogger("eopipe")
# Longer than a lease takes to be taken over from a host that died.
JOIN_S = 2 * STALE_S
# What a step of its own must know of the job; other variables would tie it to the step that this process runs in.
INHERITED = {"SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME"}
SQUEUE_TIMEOUT_S = 60


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


def launch(
    job: Path,
    token: int,
    *,
    processes: int,
    restarts: int,
    threads: int,
    wait_s: float,
    environment: Mapping[str, str],
    member: Membership | None = None,
) -> None:
    """Run the workers of this node on a job file; with a membership, workers of other nodes train with them.

    Raises the error that the workers left in `status.json` beside the job.
    """
    # Loads torch.
    from eopipe.launch import torchrun
    from eopipe.launch.rendezvous import GroupRendezvous

    torchrun.check_torch()
    address = member.address if member else LOOPBACK
    workers = torchrun.Workers(
        command=(sys.executable, "-P", "-u", "-m", "eopipe.training.worker", str(job)),
        environment=_variables(threads, address, leaves_group=bool(member and member.may_leave)) | dict(environment),
        processes=processes,
        restarts=restarts,
        log_folder=job.parent / "logs",
    )

    def rendezvous() -> torchrun.LocalRendezvous | GroupRendezvous:
        if member is None:
            return torchrun.LocalRendezvous(f"{job.parent.name}.{token}", address)
        # The store takes the socket over.
        listening = member.listening.detach() if member.listening else None
        return GroupRendezvous.join(member.endpoint, listening, address, member.nodes, wait_s)

    status, stopped = job.parent / STATUS, 0
    ended: torchrun.Ended = "failed"
    try:
        with torchrun.stop_on_signal():
            ended = torchrun.run_agent(workers, rendezvous, status, token)
            if member and not member.is_first:
                await_result(member, patient=ended == "done")
                return
    except torchrun.StoppedError as error:
        stopped = error.number
    _raise_failure(ended, status, stopped)


def _variables(threads: int, address: str, *, leaves_group: bool) -> dict[str, str]:
    """The environment variables of the workers of a node with this address."""
    variables = {
        AGENT_PID: str(os.getpid()),
        LEAVES_GROUP: str(int(leaves_group)),
        "OMP_NUM_THREADS": str(threads),
        "PYTHONHASHSEED": "0",
        # cuBLAS is deterministic only with a fixed workspace.
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }
    # gloo and NCCL are bound to loopback on one node, else to the interface with the route to the others.
    interface = interface_of(address)
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    return variables | {name: os.environ.get(name, interface) for name in names if interface or name in os.environ}


def _raise_failure(ended: str, status: Path, stopped: int) -> None:
    failure = read_failure(status)
    if failure and stopped and not failure.final:
        # It has healed; what ends this node now is the signal.
        failure = None
    if ended == "done" and not stopped and not (failure and failure.final):
        return
    if not failure:
        check_disk_space(status)
    if (not failure or failure.code == PreemptedError.code) and signal.SIGINT in (stopped, failure and failure.signal):
        raise KeyboardInterrupt
    if failure:
        raise failure.error()
    if stopped:
        raise PreemptedError("stopped by a signal; the last checkpoint is kept, run the same command again")
    if ended == "lost":
        raise PreemptedError("the other nodes ended or did not start; run the same command again to resume")
    raise EopipeError("the training workers failed; the log above says why")


def run_on_all_nodes(values: Mapping[str, Any]) -> bool:
    """Run the stage train on all nodes of this Slurm job; False where it is to run right here.

    Raises UsageError where the job does not have the nodes that train.nodes asks for, else the error of the first node.
    """
    nodes = parse_nodes(values["nodes"])
    allocated, cpus = check_allocation(nodes)
    if allocated == 1:
        return False
    arguments = [word for port in stage("train").ports for word in to_args(port, values[port.name])]
    size = NodeRange(1, allocated) if nodes.is_elastic else NodeRange(allocated, allocated)
    _run([*srun_command(size, cpus), sys.executable, "-P", "-m", "eopipe", "train", *arguments])
    return True


def check_allocation(nodes: NodeRange) -> tuple[int, int]:
    """Nodes of this Slurm job and CPUs of each; one node where the launcher is to run right here.

    Raises UsageError where the job does not have the nodes that train.nodes asks for.
    """
    job = os.environ.get("SLURM_JOB_ID")
    has_rendezvous = any(os.environ.get(name) for name in (RDZV_ID, RDZV_ENDPOINT, RDZV_FILE))
    if not job or nodes_of_step(os.environ) > 1 or has_rendezvous:
        return 1, 1
    allocated, cpus = _allocation(job)
    if not nodes.minimum <= allocated <= nodes.maximum:
        raise UsageError(
            f"train.nodes is {nodes}, but Slurm gave job {job} {allocated}; set train.nodes and the nodes of the rule "
            "train in the profile to the same number (check with `eopipe profile check`)"
        )
    return allocated, cpus


def _allocation(job: str) -> tuple[int, int]:
    """Nodes of a job and CPUs of each, from squeue, since Snakemake's executor hides the variables of Slurm."""
    command = ["squeue", "--noheader", f"--jobs={job}", "--format=%D %C"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SQUEUE_TIMEOUT_S, check=True)
        nodes, cpus = map(int, done.stdout.split()[:2])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UpstreamError(f"Slurm does not report how many nodes job {job} has: {error}; try again") from error
    return nodes, max(1, cpus // nodes)


def _run(command: list[str]) -> None:
    """Run a step to its end; a signal is passed on to its tasks, which save their state."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED or not name.startswith(("SLURM_", "SRUN_", "SBATCH_"))
    }
    step = subprocess.Popen(command, env=environment)

    def forward(_number: int, _frame: FrameType | None) -> None:
        # srun passes SIGTERM on to all of them; a second one would make it give up.
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        step.send_signal(signal.SIGTERM)

    previous = {number: signal.signal(number, forward) for number in STOP_SIGNALS}
    try:
        code = step.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if code:
        raise BY_CODE.get(code, EopipeError)("the Slurm step that trains failed; the first error above says why")
