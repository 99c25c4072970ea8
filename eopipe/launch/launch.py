"""Run the workers of one node to their end, alone or together with other nodes, and raise what they ended with."""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from eopipe.errors import EopipeError, PreemptedError
from eopipe.launch.endpoint import LOOPBACK, interface_of
from eopipe.launch.failures import STATUS, check_disk_space, read_failure
from eopipe.launch.membership import Membership, await_result
from eopipe.launch.world import AGENT_PID, LEAVES_GROUP


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
