"""Faults of trainings on a real Slurm; run concurrently, since most of the time is waiting."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path

from cluster_project import MODEL, ClusterProject
from daemons import sh, wait
from slurm_conf import CPUS

from slurm import Cluster

# The arguments of `eopipe run --profile slurm`.
GOAL = ("--configfile", "config.yaml", "--", MODEL)
# The longest first; more concurrent ones would only wait for the two cores.
JOURNEYS, CONCURRENT = ("two nodes", "over its limit", "pre-emptible", "one node", "cancelled", "full scratch"), 3


def start_journeys(
    pool: Executor, cluster: Cluster, projects: Mapping[str, ClusterProject]
) -> dict[str, "Future[ClusterProject]"]:
    """Start all of them. One on two nodes loses node2, one uses nodes 3 and 4, the others share node1."""
    return {
        "two nodes": pool.submit(over_two_nodes, projects["two nodes"], cluster),
        "over its limit": pool.submit(over_its_limit, projects["over its limit"]),
        "pre-emptible": pool.submit(while_preempted, projects["pre-emptible"]),
        "one node": pool.submit(on_one_node, projects["one node"]),
        "cancelled": pool.submit(cancelled, projects["cancelled"]),
        "full scratch": pool.submit(on_full_scratch, projects["full scratch"], cluster),
    }


def over_two_nodes(training: ClusterProject, cluster: Cluster) -> ClusterProject:
    """Two processes on each; an agent killed, a warning before the limit, a lost node."""
    training.configure(nodes="2", processes=2)
    options = ("--training", "gpu", "--gpu", "--nodes", "2", "--processes", "2")
    training.profile(
        *options, retries=3, train={"mem_mb": 1800, "slurm_extra": "--nodelist=node[1-2] --signal=TERM@15"}
    )
    training.brake.touch()
    process = training.start(MODEL)
    training.inject_fault("an agent is killed", lambda _: kill_agent(training))
    training.brake.write_text("4")
    training.inject_fault("warning before the limit, two nodes", nearly_over)
    training.brake.write_text("")

    def lose(_: str) -> None:
        cluster.kill_node(2)
        # sinfo prints only one of several states.
        wait(150, lambda: "DOWN" in sh("scontrol", "show", "node", "node2"), "Slurm notices the loss")
        cluster.start_node(2)

    training.inject_fault("a node dies", lose)
    return finished(training, process)


def on_one_node(training: ClusterProject) -> ClusterProject:
    """A warning before the limit."""
    on_the_first_node(training, retries=1)
    process = training.run(*GOAL)
    training.brake.write_text("4")
    training.inject_fault("warning before the limit, one node", nearly_over)
    return finished(training, process)


def over_its_limit(training: ClusterProject) -> ClusterProject:
    """Over its time limit in every retry, and the same command again."""
    on_the_first_node(training, retries=1)
    process = training.run(*GOAL)
    training.brake.write_text("4")
    training.inject_fault("over its walltime", over)
    training.wait_for_checkpoint()
    over(training.jobs[-1])
    assert training.end(process) == 1
    return finished(training, training.run(*GOAL))


def on_full_scratch(training: ClusterProject, cluster: Cluster) -> ClusterProject:
    """No space for the next checkpoint, and the same command again when there is space."""
    training.move_state(cluster.small / "state")
    on_the_first_node(training, retries=0)
    process = training.run(*GOAL)
    training.wait_for_checkpoint()
    fill(cluster.small / "others")
    assert training.end(process) == 1
    (cluster.small / "others").unlink()
    return finished(training, training.run(*GOAL))


def cancelled(training: ClusterProject) -> ClusterProject:
    """Cancelled by its user, and restarted by the same command, on files from nodes whose clocks are ahead."""
    on_the_first_node(training, retries=1)
    process = training.start(MODEL)
    training.wait_for_checkpoint()
    sh("scancel", training.jobs[-1])
    assert training.end(process) != 0
    ahead = time.time() + 180
    for path in (*training.folder.glob("results/**/*"), *training.folder.glob("state/**/*")):
        os.utime(path, (ahead, ahead))
    return finished(training, training.start(MODEL))


def while_preempted(training: ClusterProject) -> ClusterProject:
    """Pre-empted with a grace time, in which it saves and exits, and without: Slurm requeues it."""
    training.configure(nodes="2", processes=1)
    options = ("--training", "low", "--partition", "low", "--preemptible", "--nodes", "2")
    training.profile(*options, train={"slurm_extra": "--nodelist=node[3-4]"})
    training.brake.touch()
    process = training.start(MODEL)
    training.inject_fault("pre-empted, with grace", lambda _: urgent())
    sh("scontrol", "update", "PartitionName=low", "GraceTime=0")

    def at_once() -> None:
        # Slurm would wait two minutes.
        command = ["scontrol", "update", f"jobid={training.jobs[-1]}", "StartTime=now"]
        subprocess.run(command, capture_output=True, check=False)

    training.inject_fault("pre-empted, without grace", lambda _: urgent(), at_once)
    return finished(training, process)


def on_the_first_node(training: ClusterProject, retries: int) -> None:
    """Configure a single process on node1, with the brake on."""
    training.configure(processes=1)
    training.profile(retries=retries, train={"slurm_extra": "--nodelist=node1 --signal=TERM@15"})
    training.brake.touch()


def finished(training: ClusterProject, process: "subprocess.Popen[str]") -> ClusterProject:
    """Run it to the end, without the brake."""
    training.brake.unlink()
    assert training.end(process) == 0, training.snakemake_log[-8000:]
    return training


def kill_agent(training: ClusterProject) -> None:
    worker = sh("pgrep", "-f", f"eopipe.training.worker {training.folder}").split()[-1]
    os.kill(int(sh("ps", "-o", "ppid=", "-p", worker)), signal.SIGKILL)


def nearly_over(job: str) -> None:
    """Let its walltime end soon. Slurm checks every half minute, and warns earlier by as much."""
    sh("scontrol", "update", f"jobid={job}", "EndTime=now+45")


def over(job: str) -> None:
    """Let its walltime end before a warning is possible."""
    sh("scontrol", "update", f"jobid={job}", "EndTime=now+1")


def urgent() -> None:
    """A job of higher priority needs the nodes for some seconds."""
    options = ("-w", "node[3-4]", "-N2", "-n2", f"-c{CPUS}", "-t2", "-p", "debug")
    sh("sbatch", *options, "-o", "/dev/null", "--wrap", "sleep 3")


def fill(file: Path) -> None:
    """Fill the file system."""
    with suppress(OSError), file.open("wb", buffering=0) as open_file:
        while open_file.write(bytes(4096)):
            pass
