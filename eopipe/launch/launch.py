"""Run the workers of one node to their end, alone or together with other nodes, and raise what they ended with.

A Slurm job over many nodes is started once by Slurm, and starts itself on each of them through srun.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from eopipe.contract import stage, to_args
from eopipe.errors import BY_CODE, EopipeError, PreemptedError, UpstreamError, UsageError
from eopipe.launch.endpoint import LOOPBACK, interface_of
from eopipe.launch.environment import (
    RDZV_ENDPOINT,
    RDZV_FILE,
    RDZV_ID,
    NodeRange,
    nodes_of_step,
    parse_nodes,
    srun_command,
)
from eopipe.launch.failures import STATUS, check_disk_space, read_failure
from eopipe.launch.membership import Membership, await_result
from eopipe.launch.world import AGENT_PID, LEAVES_GROUP, STOP_SIGNALS

# What a step of its own must know of the job; other variables would tie it to the step that this process runs in.
INHERITED = {"SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME"}
SQUEUE_TIMEOUT_S = 60


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
