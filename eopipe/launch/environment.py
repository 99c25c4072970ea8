"""Where a launcher runs: functions of the environment alone.

One agent per node. A launcher of many nodes gets its node rank and its group from the step of Slurm that it runs in, or
from EOPIPE_RDZV_ID, EOPIPE_RDZV_ENDPOINT and EOPIPE_RDZV_FILE, or else from its training alone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from eopipe.errors import UsageError

RDZV_ID, RDZV_ENDPOINT, RDZV_FILE = "EOPIPE_RDZV_ID", "EOPIPE_RDZV_ENDPOINT", "EOPIPE_RDZV_FILE"
# Slurm jobs on one host get different ports, below those that Linux assigns by itself.
LOWEST_PORT, PORTS = 20000, 10000


@dataclass(frozen=True)
class NodeRange:
    """The minimum and maximum number of nodes that train together."""

    minimum: int
    maximum: int

    @property
    def is_elastic(self) -> bool:
        """Whether nodes may join and leave."""
        return self.minimum < self.maximum

    def __str__(self) -> str:
        return f"{self.minimum}:{self.maximum}" if self.is_elastic else f"{self.minimum}"


@dataclass(frozen=True)
class ClusterEnvironment:
    """A launcher as a part of its group.

    Node rank 0 is the first launcher; with None it is the one that takes the lease. Port 0 is any free port. `peers`
    are the hosts that must reach the first launcher; without `host` it listens on its address towards them.
    """

    nodes: NodeRange
    group: str
    node_rank: int | None = None
    host: str = ""
    port: int = 0
    peers: tuple[str, ...] = ()
    file: Path | None = None


def parse_nodes(text: str) -> NodeRange:
    """Read `2` or `1:4`. Raises UsageError for anything else."""
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text)
    nodes = NodeRange(int(match[1]), int(match[2] or match[1])) if match else NodeRange(0, 0)
    if not 1 <= nodes.minimum <= nodes.maximum:
        raise UsageError(f"train.nodes is {text!r}; give a number of nodes like 2, or MIN:MAX like 1:4")
    return nodes


def expand_hostlist(hostlist: str) -> tuple[str, ...]:
    """The host names of a Slurm hostlist in its order: `n[1-3,07],m09` (as `scontrol show hostnames` prints them)."""
    patterns = re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", hostlist)
    return tuple(name for pattern in patterns for name in _expand_pattern(pattern))


def _expand_pattern(pattern: str) -> list[str]:
    parts = re.split(r"\[([^\]]*)\]", pattern)
    choices = [_expand_ranges(part) if index % 2 else [part] for index, part in enumerate(parts)]
    return ["".join(combination) for combination in product(*choices)]


def _expand_ranges(ranges: str) -> list[str]:
    """The numbers of `1-3,07` with their zero padding."""
    numbers = []
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        numbers += [f"{n:0{len(first)}}" for n in range(int(first), int(last or first) + 1)]
    return numbers


def rendezvous_port(job_id: str) -> int:
    """The port that a Slurm job tries first."""
    return LOWEST_PORT + int(re.sub(r"\D", "", job_id) or 0) % PORTS


def detect_environment(environment: Mapping[str, str], nodes: NodeRange, training: str) -> ClusterEnvironment:
    """Where a launcher of many nodes runs: as its variables say, in a Slurm step, or anywhere.

    `training` names the group where nothing else does. Raises UsageError where the allocation does not fit train.nodes.
    """
    if any(environment.get(name) for name in (RDZV_ID, RDZV_ENDPOINT, RDZV_FILE)):
        return _from_variables(environment, nodes, training)
    if nodes_of_step(environment) > 1:
        check_step(environment, nodes)
        return _from_step(environment, nodes)
    return ClusterEnvironment(nodes, training)


def _from_variables(environment: Mapping[str, str], nodes: NodeRange, training: str) -> ClusterEnvironment:
    endpoint, file = environment.get(RDZV_ENDPOINT, ""), environment.get(RDZV_FILE, "")
    match = re.fullmatch(r"([^:\s]*)(?::(\d{1,5}))?", endpoint)
    if not match or int(match[2] or 0) > 65535:
        raise UsageError(f"{RDZV_ENDPOINT} is {endpoint!r}; give it as host:port")
    group = environment.get(RDZV_ID) or training
    if not re.fullmatch(r"[\w.-]+", group):
        raise UsageError(f"{RDZV_ID} is {group!r}; use letters, digits, dots and hyphens")
    path = Path(file).absolute() if file else None
    return ClusterEnvironment(nodes, group, host=match[1], port=int(match[2] or 0), file=path)


def nodes_of_step(environment: Mapping[str, str]) -> int:
    """How many nodes the Slurm step of this process has; 1 outside Slurm."""
    return int(environment.get("SLURM_STEP_NUM_NODES", "1")) if environment.get("SLURM_JOB_ID") else 1


def check_step(environment: Mapping[str, str], nodes: NodeRange) -> None:
    """Raise UsageError where the Slurm step of this process does not have one task on each node of train.nodes."""
    step = nodes_of_step(environment)
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", environment.get("SLURM_NTASKS", str(step))))
    if step > 1 and (not nodes.minimum <= step <= nodes.maximum or tasks != step):
        line = " ".join(srun_command(nodes, 1))
        raise UsageError(
            f"this step of Slurm has {step} nodes and {tasks} tasks, but train.nodes is {nodes}; "
            f"it needs one task per node: {line}"
        )


def _from_step(environment: Mapping[str, str], nodes: NodeRange) -> ClusterEnvironment:
    job_id = environment["SLURM_JOB_ID"]
    # A requeued job is another group: it never meets what it was before.
    ids = (job_id, environment.get("SLURM_STEP_ID", "0"), environment.get("SLURM_RESTART_COUNT", "0"))
    hosts = expand_hostlist(environment.get("SLURM_STEP_NODELIST", environment.get("SLURM_JOB_NODELIST", "")))
    node_rank = int(environment.get("SLURM_NODEID", environment.get("SLURM_PROCID", "0")))
    return ClusterEnvironment(nodes, "slurm-" + "-".join(ids), node_rank, port=rendezvous_port(job_id), peers=hosts[1:])


def srun_command(nodes: NodeRange, cpus: int) -> list[str]:
    """The start of a line that runs the rest once on each of the maximum nodes of an allocation, with all their memory.

    When the first task ends, the others have half a minute to end too: the end of one task must not cut short what
    another one saves, and a task that waits for a dead one waits in vain.
    """
    size = [f"--nodes={nodes.maximum}", f"--ntasks={nodes.maximum}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}"]
    endings = ["--no-kill", "--wait=0"] if nodes.is_elastic else ["--wait=30"]
    return ["srun", "--overlap", *size, "--mem=0", "--kill-on-bad-exit=0", *endings]
