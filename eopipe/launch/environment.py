"""Where a launcher finds itself, and the geometry of torchrun that follows: functions of the environment alone.

One agent a node. On one node the agents meet on loopback. On many nodes they are told apart by the step of Slurm
they run in, or by what EOPIPE_RDZV_ID, EOPIPE_RDZV_ENDPOINT and EOPIPE_RDZV_FILE say, or by their training alone.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from eopipe.errors import UsageError

LOOPBACK = "127.0.0.1"
ID, ENDPOINT, FILE = "EOPIPE_RDZV_ID", "EOPIPE_RDZV_ENDPOINT", "EOPIPE_RDZV_FILE"
# Slurm's jobs of one host get ports of their own, below those that Linux gives out by itself.
LOWEST, PORTS = 20000, 10000


@dataclass(frozen=True)
class Nodes:
    """How few and how many nodes train together."""

    least: int
    most: int

    @property
    def elastic(self) -> bool:
        """Whether nodes may come and go."""
        return self.least < self.most

    def __str__(self) -> str:
        return f"{self.least}:{self.most}"


@dataclass(frozen=True)
class Place:
    """A launcher among those of its group.

    `node` 0 is the first one; with None, whoever takes the lease is. Port 0 is any free one. `others` are the hosts
    that the first one must be reached from; without `host` it listens where the way to them begins.
    """

    nodes: Nodes
    group: str
    node: int | None = None
    host: str = ""
    port: int = 0
    others: tuple[str, ...] = ()
    file: Path | None = None


@dataclass(frozen=True)
class Geometry:
    """What torchrun is told on one node: where the first agent listens, and this node's own address."""

    nodes: Nodes
    processes: int
    group: str
    host: str
    port: int
    address: str
    restarts: int = 3
    wait_s: float = 600.0

    def words(self) -> list[str]:
        """Torchrun's options."""
        # A node counts as gone after ten silent seconds; whoever comes within five of the first needs no restart.
        waits = f"join_timeout={max(1, int(self.wait_s))},last_call_timeout=5"
        waits += ",keep_alive_interval=2,keep_alive_max_attempt=5"
        return [
            f"--nnodes={self.nodes}",
            f"--nproc-per-node={self.processes}",
            f"--max-restarts={self.restarts}",
            "--rdzv-backend=eopipe",
            f"--rdzv-endpoint={self.host}:{self.port}",
            f"--rdzv-id={self.group}",
            f"--rdzv-conf={waits}",
            f"--local-addr={self.address}",
        ]


def nodes_of(told: str) -> Nodes:
    """Read `2` or `1:4`. Raises UsageError for anything else."""
    found = re.fullmatch(r"(\d+)(?::(\d+))?", told)
    nodes = Nodes(int(found[1]), int(found[2] or found[1])) if found else Nodes(0, 0)
    if not 1 <= nodes.least <= nodes.most:
        raise UsageError(f"train.nodes is {told!r}; give a number like 2, or the fewest and the most like 1:4")
    return nodes


def hosts(told: str) -> tuple[str, ...]:
    """The names in a node list of Slurm, in its order: `n[1-3,07],m09` (as `scontrol show hostnames` gives)."""
    words = re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", told)
    return tuple(name for word in words for name in _named(word))


def _named(word: str) -> list[str]:
    parts = re.split(r"\[([^\]]*)\]", word)
    choices = [_numbers(part) if at % 2 else [part] for at, part in enumerate(parts)]
    return ["".join(chosen) for chosen in product(*choices)]


def _numbers(told: str) -> list[str]:
    """The numbers of `1-3,07`, as wide as they are written."""
    found = []
    for part in told.split(","):
        first, _, last = part.partition("-")
        found += [f"{n:0{len(first)}}" for n in range(int(first), int(last or first) + 1)]
    return found


def port_of(job: str) -> int:
    """The port that a job of Slurm tries first."""
    return LOWEST + int(re.sub(r"\D", "", job) or 0) % PORTS


def locate(environment: Mapping[str, str], nodes: Nodes, training: str) -> Place:
    """Where a launcher is: alone, told by the environment, in a step of Slurm, or anywhere.

    `training` names the group where nothing else does. Raises UsageError where the place and train.nodes cannot
    go together.
    """
    if any(environment.get(name) for name in (ID, ENDPOINT, FILE)) and nodes.most > 1:
        return _told(environment, nodes, training)
    if environment.get("SLURM_JOB_ID"):
        return _in_slurm(environment, nodes, training)
    return Place(nodes, training, host=LOOPBACK if nodes.most == 1 else "")


def _told(environment: Mapping[str, str], nodes: Nodes, training: str) -> Place:
    endpoint, file = environment.get(ENDPOINT, ""), environment.get(FILE, "")
    found = re.fullmatch(r"([^:\s]*)(?::(\d{1,5}))?", endpoint)
    if not found or int(found[2] or 0) > 65535:
        raise UsageError(f"{ENDPOINT} is {endpoint!r}; give it as host:port")
    group = environment.get(ID) or training
    if not re.fullmatch(r"[\w.-]+", group):
        raise UsageError(f"{ID} is {group!r}; use letters, digits, dots and hyphens")
    return Place(nodes, group, host=found[1], port=int(found[2] or 0), file=Path(file).absolute() if file else None)


def _in_slurm(environment: Mapping[str, str], nodes: Nodes, training: str) -> Place:
    step = int(environment.get("SLURM_STEP_NUM_NODES", "1"))
    if step > 1:
        return _in_step(environment, nodes, step)
    return Place(nodes, training, host=LOOPBACK if nodes.most == 1 else "")


def _in_step(environment: Mapping[str, str], nodes: Nodes, step: int) -> Place:
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS", environment.get("SLURM_NTASKS", str(step))))
    if not nodes.least <= step <= nodes.most or tasks != step:
        line = " ".join(srun(nodes, 1))
        raise UsageError(
            f"this step of Slurm has {step} nodes and {tasks} tasks, but train.nodes is {nodes}; "
            f"it wants one task a node: {line}"
        )
    job = environment["SLURM_JOB_ID"]
    words = (job, environment.get("SLURM_STEP_ID", "0"), environment.get("SLURM_RESTART_COUNT", "0"))
    names = hosts(environment.get("SLURM_STEP_NODELIST", environment.get("SLURM_JOB_NODELIST", "")))
    node = int(environment.get("SLURM_NODEID", environment.get("SLURM_PROCID", "0")))
    return Place(nodes, "slurm-" + "-".join(words), node, port=port_of(job), others=names[1:])


def srun(nodes: Nodes, cpus: int) -> list[str]:
    """The start of a line that runs the rest once on each of the most nodes of an allocation, with all their memory.

    When the first one ends, the others have half a minute to end too: the end of one must not cut short what another
    saves, and who waits for a dead one waits in vain.
    """
    each = [f"--nodes={nodes.most}", f"--ntasks={nodes.most}", "--ntasks-per-node=1", f"--cpus-per-task={cpus}"]
    ends = ["--no-kill", "--wait=0"] if nodes.elastic else ["--wait=30"]
    return ["srun", "--overlap", *each, "--mem=0", "--kill-on-bad-exit=0", *ends]
