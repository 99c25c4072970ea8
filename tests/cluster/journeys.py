"""What is done to trainings on a real Slurm; all of it at the same time, since most of it is waiting."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from contextlib import suppress
from pathlib import Path

from clustered import MODEL, Clustered
from daemons import sh, wait
from slurm_conf import CPUS

from slurm import Cluster

# What `eopipe run --profile slurm` shall make.
GOAL = ("--configfile", "config.yaml", "--", MODEL)
# The longest first; more at a time would only wait for the two cores.
JOURNEYS, AT_A_TIME = ("two nodes", "over its limit", "pre-emptible", "one node", "cancelled", "full scratch"), 3


def set_out(pool: Executor, cluster: Cluster, made: Mapping[str, Clustered]) -> dict[str, "Future[Clustered]"]:
    """Begin all of them. One over two nodes loses node2, one wants nodes 3 and 4 for itself, the others share node1."""
    return {
        "two nodes": pool.submit(over_two_nodes, made["two nodes"], cluster),
        "over its limit": pool.submit(over_its_limit, made["over its limit"]),
        "pre-emptible": pool.submit(while_preempted, made["pre-emptible"]),
        "one node": pool.submit(on_one_node, made["one node"]),
        "cancelled": pool.submit(cancelled, made["cancelled"]),
        "full scratch": pool.submit(on_full_scratch, made["full scratch"], cluster),
    }


def over_two_nodes(travelling: Clustered, cluster: Cluster) -> Clustered:
    """Two processes on each; an agent killed, a warning before the limit, a lost node."""
    travelling.configure(nodes="2", processes=2)
    words = ("--training", "gpu", "--gpu", "--nodes", "2", "--processes", "2")
    travelling.profile(
        *words, retries=3, train={"mem_mb": 1800, "slurm_extra": "--nodelist=node[1-2] --signal=TERM@15"}
    )
    travelling.brake.touch()
    process = travelling.start(MODEL)
    travelling.strike("an agent is killed", lambda _: kill_agent(travelling))
    travelling.brake.write_text("4")
    travelling.strike("warning before the limit, two nodes", nearly_over)
    travelling.brake.write_text("")

    def lose(_: str) -> None:
        cluster.kill_node(2)
        # sinfo tells one state of several.
        wait(150, lambda: "DOWN" in sh("scontrol", "show", "node", "node2"), "the loss is noticed")
        cluster.start_node(2)

    travelling.strike("a node dies", lose)
    return finished(travelling, process)


def on_one_node(travelling: Clustered) -> Clustered:
    """A warning before the limit."""
    on_the_first_node(travelling, retries=1)
    process = travelling.run(*GOAL)
    travelling.brake.write_text("4")
    travelling.strike("warning before the limit, one node", nearly_over)
    return finished(travelling, process)


def over_its_limit(travelling: Clustered) -> Clustered:
    """Over its limit as often as it may be tried, and the same command again."""
    on_the_first_node(travelling, retries=1)
    process = travelling.run(*GOAL)
    travelling.brake.write_text("4")
    travelling.strike("over its walltime", over)
    travelling.under_way()
    over(travelling.jobs[-1])
    assert travelling.end(process) == 1
    return finished(travelling, travelling.run(*GOAL))


def on_full_scratch(travelling: Clustered, cluster: Cluster) -> Clustered:
    """No room for the next checkpoint, and the same command again when there is some."""
    travelling.place_state(cluster.small / "state")
    on_the_first_node(travelling, retries=0)
    process = travelling.run(*GOAL)
    travelling.under_way()
    fill(cluster.small / "others")
    assert travelling.end(process) == 1
    (cluster.small / "others").unlink()
    return finished(travelling, travelling.run(*GOAL))


def cancelled(travelling: Clustered) -> Clustered:
    """Cancelled by its user, and begun again by the same command, on files of nodes whose clocks are ahead."""
    on_the_first_node(travelling, retries=1)
    process = travelling.start(MODEL)
    travelling.under_way()
    sh("scancel", travelling.jobs[-1])
    assert travelling.end(process) != 0
    ahead = time.time() + 180
    for path in (*travelling.folder.glob("results/**/*"), *travelling.folder.glob("state/**/*")):
        os.utime(path, (ahead, ahead))
    return finished(travelling, travelling.start(MODEL))


def while_preempted(travelling: Clustered) -> Clustered:
    """Pre-empted with a time of grace, in which it saves and ends, and without one: Slurm starts it again."""
    travelling.configure(nodes="2", processes=1)
    words = ("--training", "low", "--partition", "low", "--preemptible", "--nodes", "2")
    travelling.profile(*words, train={"slurm_extra": "--nodelist=node[3-4]"})
    travelling.brake.touch()
    process = travelling.start(MODEL)
    travelling.strike("pre-empted, with grace", lambda _: urgent())
    sh("scontrol", "update", "PartitionName=low", "GraceTime=0")

    def at_once() -> None:
        # Slurm would wait two minutes.
        words = ["scontrol", "update", f"jobid={travelling.jobs[-1]}", "StartTime=now"]
        subprocess.run(words, capture_output=True, check=False)

    travelling.strike("pre-empted, without grace", lambda _: urgent(), at_once)
    return finished(travelling, process)


def on_the_first_node(travelling: Clustered, retries: int) -> None:
    """Let it be of a single process there, with the brake on."""
    travelling.configure(processes=1)
    travelling.profile(retries=retries, train={"slurm_extra": "--nodelist=node1 --signal=TERM@15"})
    travelling.brake.touch()


def finished(travelling: Clustered, process: "subprocess.Popen[str]") -> Clustered:
    """Let it go its way to the end, without the brake."""
    travelling.brake.unlink()
    assert travelling.end(process) == 0, travelling.told[-8000:]
    return travelling


def kill_agent(travelling: Clustered) -> None:
    worker = sh("pgrep", "-f", f"eopipe.training.worker {travelling.folder}").split()[-1]
    os.kill(int(sh("ps", "-o", "ppid=", "-p", worker)), signal.SIGKILL)


def nearly_over(job: str) -> None:
    """Its walltime ends soon. Slurm looks every half minute, and warns by that much earlier."""
    sh("scontrol", "update", f"jobid={job}", "EndTime=now+45")


def over(job: str) -> None:
    """Its walltime ends before the warning could come."""
    sh("scontrol", "update", f"jobid={job}", "EndTime=now+1")


def urgent() -> None:
    """A job of more worth wants the nodes for some seconds."""
    where = ("-w", "node[3-4]", "-N2", "-n2", f"-c{CPUS}", "-t2", "-p", "debug")
    sh("sbatch", *where, "-o", "/dev/null", "--wrap", "sleep 3")


def fill(file: Path) -> None:
    """Take all the room that is left."""
    with suppress(OSError), file.open("wb", buffering=0) as open_file:
        while open_file.write(bytes(4096)):
            pass
