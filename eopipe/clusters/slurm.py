"""Ask Slurm what it has: partitions, nodes, GPUs, limits, accounting."""

import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass

from eopipe.errors import UpstreamError, UsageError

PATIENCE_S = 30
# What Slurm says where nothing limits.
UNLIMITED = {"UNLIMITED", "INFINITE", "NONE", "N/A", "(null)", ""}


@dataclass(frozen=True)
class Node:
    """What one node offers; memory in MB, GPUs by type (empty where Slurm tells none)."""

    name: str
    cpus: int
    memory_mb: int
    gpus: tuple[tuple[str, int], ...]
    up: bool


@dataclass(frozen=True)
class Partition:
    """Nodes under common limits; `minutes` is the longest job, None without a limit."""

    name: str
    default: bool
    minutes: int | None
    most_nodes: int | None
    preempted: str
    up: bool
    nodes: tuple[Node, ...]

    @property
    def gpus(self) -> int:
        """GPUs of its best node."""
        return max((sum(count for _, count in node.gpus) for node in self.nodes), default=0)

    @property
    def cpus(self) -> int:
        """CPUs of its largest node."""
        return max((node.cpus for node in self.nodes), default=0)

    @property
    def memory_mb(self) -> int:
        """Memory of its largest node in MB."""
        return max((node.memory_mb for node in self.nodes), default=0)


@dataclass(frozen=True)
class Site:
    """A Slurm cluster as its user sees it.

    `accounts` may be charged, none where nothing is accounted. Where it does not enforce limits, a job over those of
    its partition is not refused but waits for ever.
    """

    name: str
    version: str
    accounting: bool
    requeues: bool
    keeps_finished_s: int
    partitions: tuple[Partition, ...]
    accounts: tuple[str, ...]
    enforces: bool = True
    gres: tuple[str, ...] = ("gpu",)

    def partition(self, name: str) -> Partition:
        """The partition of this name; raises UsageError with those that there are."""
        for one in self.partitions:
            if one.name == name:
                return one
        there = ", ".join(one.name for one in self.partitions)
        raise UsageError(f"the cluster {self.name} has no partition {name}; it has {there}")

    @property
    def default(self) -> Partition:
        """The partition of a job that names none."""
        return next((one for one in self.partitions if one.default), self.partitions[0])


def ask(*words: str) -> str:
    """The answer of a Slurm command. Raises UsageError where it is missing, UpstreamError where it fails."""
    if not shutil.which(words[0]):
        raise UsageError(f"there is no {words[0]} here; run this on a login node of a Slurm cluster")
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        raise UpstreamError(f"Slurm does not answer: {words[0]} took over {PATIENCE_S} s; try again later") from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise UpstreamError(f"Slurm does not answer: {words[0]} says {said[-1] if said else 'nothing'}")
    return done.stdout


def site() -> Site:
    """Ask the cluster that this machine belongs to."""
    config = dict(re.findall(r"^(\w+)\s*= (.*)$", ask("scontrol", "show", "config"), re.MULTILINE))
    nodes = {told["NodeName"]: _node(told) for told in records(ask("scontrol", "--oneliner", "show", "node"))}
    partitions = records(ask("scontrol", "--oneliner", "show", "partition"))
    accounting = config["AccountingStorageType"] != "accounting_storage/none"
    return Site(
        name=config["ClusterName"],
        version=config["SLURM_VERSION"],
        accounting=accounting,
        requeues=config["JobRequeue"] == "1",
        keeps_finished_s=int(config["MinJobAge"].split()[0]),
        partitions=tuple(_partition(told, nodes) for told in partitions),
        accounts=_accounts() if accounting else (),
        enforces=config.get("EnforcePartLimits", "NO") != "NO",
        gres=() if config["GresTypes"] in UNLIMITED else tuple(config["GresTypes"].split(",")),
    )


def records(text: str) -> list[dict[str, str]]:
    """Lines of `scontrol --oneliner` as name and value; a value may hold blanks."""
    return [dict(re.findall(r"([A-Za-z][\w/]*)=(.*?)(?=\s+[A-Za-z][\w/]*=|\s*$)", line)) for line in text.splitlines()]


def _node(told: dict[str, str]) -> Node:
    state = told["State"].partition("+")[0].rstrip("*").upper()
    gone = {"DOWN", "DRAIN", "DRAINED", "FAIL", "FAILING", "UNKNOWN", "INVAL"}
    up = state not in gone and "DRAIN" not in told["State"]
    return Node(told["NodeName"], int(told["CPUTot"]), int(told["RealMemory"]), parse_gpus(told["Gres"]), up)


def parse_gpus(gres: str) -> tuple[tuple[str, int], ...]:
    """GPUs by type from the words of Slurm: `gpu:a100:4(S:0-1),gpu:2` -> (("a100", 4), ("", 2))."""
    found = re.findall(r"(?:^|,)gpu(?::([^:,(]+))??(?::(\d+))?(?=[(,]|$)", gres)
    return tuple((kind, int(count or 1)) for kind, count in found)


def _partition(told: dict[str, str], nodes: dict[str, Node]) -> Partition:
    inside = tuple(nodes[name] for name in hosts(told["Nodes"]) if name in nodes)
    most = told.get("MaxNodes", "")
    return Partition(
        name=told["PartitionName"],
        default=told["Default"] == "YES",
        minutes=minutes(told["MaxTime"]),
        most_nodes=None if most in UNLIMITED else int(most),
        preempted=told.get("PreemptMode", "OFF"),
        up=told["State"] == "UP",
        nodes=inside,
    )


def hosts(names: str) -> list[str]:
    """Every node of a list as `node[1-3]`, by Slurm itself."""
    return ask("scontrol", "show", "hostnames", names).split() if names not in UNLIMITED else []


def minutes(text: str) -> int | None:
    """Slurm's `[days-]hours:minutes:seconds` in minutes; None without a limit."""
    if text in UNLIMITED:
        return None
    days, _, rest = text.rpartition("-")
    hours, mins, seconds = map(int, rest.split(":"))
    return int(days or 0) * 1440 + hours * 60 + mins + (seconds > 0)


def _accounts() -> tuple[str, ...]:
    # Not $USER: it may be unset, or be somebody else's after `su`.
    user = pwd.getpwuid(os.geteuid()).pw_name
    words = ["--noheader", "--parsable2", "show", "assoc", f"user={user}", "format=account"]
    # The account root is the top of Slurm's tree, which is no one's to charge.
    return tuple(sorted(set(ask("sacctmgr", *words).split()) - {"root"}))
