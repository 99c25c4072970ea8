"""Where a launcher runs, and where its group meets: functions of the environment, and the endpoint of the group.

One agent per node. A launcher of many nodes gets its node rank and its group from the step of Slurm that it runs in, or
from EOPIPE_RDZV_ID, EOPIPE_RDZV_ENDPOINT and EOPIPE_RDZV_FILE, or else from its training alone. The first launcher
listens and publishes its address in a file for the others.
"""

import json
import os
import re
import secrets
import socket
import struct
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from fcntl import ioctl
from itertools import product
from pathlib import Path
from typing import Any

from eopipe.errors import UsageError

RDZV_ID, RDZV_ENDPOINT, RDZV_FILE = "EOPIPE_RDZV_ID", "EOPIPE_RDZV_ENDPOINT", "EOPIPE_RDZV_FILE"
# Slurm jobs on one host get different ports, below those that Linux assigns by itself.
LOWEST_PORT, PORTS = 20000, 10000
# Beside the checkpoints of a training, unless EOPIPE_RDZV_FILE names another file.
ENDPOINT_FILE = "meeting.json"
LOOPBACK = "127.0.0.1"
# An address for documentation (RFC 5737): the route to it is the way out, and nothing is sent.
OUTSIDE_ADDRESS = "192.0.2.1"
SIOCGIFADDR = 0x8915


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


@dataclass(frozen=True)
class Endpoint:
    """Where the first agent of a group listens, its fencing token, and what the members share.

    `secret` signs the messages of the agents; `done` says that the model is published.
    """

    group: str
    token: int
    host: str
    port: int
    secret: str
    done: bool = False

    def write(self, path: Path) -> None:
        """Write it where only this user can read it; whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
            json.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)

    def is_reachable(self) -> bool:
        """Whether a process listens there."""
        with suppress(OSError), socket.create_connection((self.host, self.port), timeout=5):
            return True
        return False


def read_endpoint(path: Path) -> Endpoint | None:
    """What the first launcher wrote; None where the file is missing or not whole."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Endpoint(**content)
    except (OSError, ValueError, TypeError):
        return None


def open_endpoint(environment: ClusterEnvironment, token: int) -> tuple[Endpoint, socket.socket]:
    """Listen for the other launchers of a group; gives the endpoint to publish and the listening socket."""
    listening = listen(listen_address(environment), environment.port)
    host, port = listening.getsockname()
    return Endpoint(f"{environment.group}.{token}", token, host, port, secrets.token_hex(32)), listening


def listen(host: str, port: int) -> socket.socket:
    """Listen on one address of this node: on that port, or on a free one where it is taken."""
    for candidate in (port, 0):
        listening = socket.socket()
        # The port of an earlier run stays reserved for a minute otherwise.
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError, OverflowError):
            listening.bind((host, candidate))
            listening.listen(1024)
            return listening
        listening.close()
    raise OSError(f"no port is free on {host}")


def listen_address(environment: ClusterEnvironment) -> str:
    """The IPv4 address of this node that the others of its group reach."""
    if environment.host:
        with suppress(OSError):
            address = socket.gethostbyname(environment.host)
            listen(address, 0).close()
            return address
    addresses = [address_towards(host) for host in (*environment.peers, OUTSIDE_ADDRESS)]
    return next((address for address in addresses if address and not address.startswith("127.")), LOOPBACK)


def address_towards(host: str) -> str:
    """The local address of the route to a host; empty where there is none."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, 9))
        return str(probe.getsockname()[0])
    return ""


def interface_of(address: str) -> str:
    """The network interface that has an IPv4 address; empty where none has it first."""
    if address.startswith("127."):
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                reply = ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
                if socket.inet_ntoa(reply[20:24]) == address:
                    return name
    return ""
