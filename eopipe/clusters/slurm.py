"""Query Slurm for what a cluster has: partitions, nodes, GPUs, limits, accounting."""

import math
import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass

from eopipe.errors import UpstreamError, UsageError

QUERY_TIMEOUT_S = 30
# What Slurm writes where there is not a limit.
UNLIMITED = {"UNLIMITED", "INFINITE", "NONE", "N/A", "(null)", ""}
# How Slurm writes that it has no accounting: the word `none` until Slurm 23.02, an unset value since 23.11.
NO_ACCOUNTING = UNLIMITED | {"accounting_storage/none"}
# What its commands write where there is no slurm.conf; some of them wait for the file longer than a query.
UNCONFIGURED = re.compile(r"establish a configuration source|(?:cannot stat|unable to status) file")


@dataclass(frozen=True)
class Node:
    """What one node offers; memory in MB, GPUs by type (empty where Slurm names none)."""

    name: str
    cpus: int
    memory_mb: int
    gpus: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Partition:
    """Nodes under common limits; `max_minutes` is the walltime limit of a job, None without one."""

    name: str
    is_default: bool
    max_minutes: int | None
    max_nodes: int | None
    preempt_mode: str
    is_up: bool
    nodes: tuple[Node, ...]

    @property
    def gpus(self) -> int:
        """GPUs of the node that has most."""
        return max((sum(count for _, count in node.gpus) for node in self.nodes), default=0)

    @property
    def cpus(self) -> int:
        """CPUs of the node that has most."""
        return max((node.cpus for node in self.nodes), default=0)

    @property
    def memory_mb(self) -> int:
        """Memory of the node that has most, in MB."""
        return max((node.memory_mb for node in self.nodes), default=0)


@dataclass(frozen=True)
class Site:
    """A Slurm cluster as its user sees it.

    `accounts` may be charged; none without accounting. Where limits are not enforced, a job over the limits of its
    partition is not refused but waits forever. `min_job_age_s` is how long the controller remembers an ended job.
    """

    name: str
    version: str
    has_accounting: bool
    min_job_age_s: int
    partitions: tuple[Partition, ...]
    accounts: tuple[str, ...]
    enforces_limits: bool = True
    gres: tuple[str, ...] = ("gpu",)

    def partition(self, name: str) -> Partition:
        """The partition of this name; raises UsageError with the names of all."""
        for partition in self.partitions:
            if partition.name == name:
                return partition
        names = ", ".join(partition.name for partition in self.partitions)
        raise UsageError(f"the cluster {self.name} has no partition {name}; it has {names}")

    @property
    def default_partition(self) -> Partition:
        """The partition of a job that names none."""
        return next((partition for partition in self.partitions if partition.is_default), self.partitions[0])


def query_site() -> Site:
    """Query the cluster of this machine. Raises UsageError where there is none, UpstreamError where it is down."""
    config = dict(re.findall(r"^(\w+)\s*= (.*)$", query("scontrol", "show", "config"), re.MULTILINE))
    nodes = [
        Node(fields["NodeName"], int(fields["CPUTot"]), int(fields["RealMemory"]), parse_gpus(fields["Gres"]))
        for fields in parse_records(query("scontrol", "--oneliner", "show", "node"))
    ]
    partitions = parse_records(query("scontrol", "--oneliner", "show", "partition"))
    has_accounting = config["AccountingStorageType"] not in NO_ACCOUNTING
    return Site(
        name=config["ClusterName"],
        version=config["SLURM_VERSION"],
        has_accounting=has_accounting,
        min_job_age_s=int(config["MinJobAge"].split()[0]),
        partitions=tuple(_partition(fields, {node.name: node for node in nodes}) for fields in partitions),
        accounts=_accounts() if has_accounting else (),
        enforces_limits=config.get("EnforcePartLimits", "NO") != "NO",
        gres=() if config["GresTypes"] in UNLIMITED else tuple(config["GresTypes"].split(",")),
    )


def query(*command: str, timeout_s: int = QUERY_TIMEOUT_S) -> str:
    """The output of a Slurm command.

    Raises UsageError where it is missing or belongs to no cluster, UpstreamError where it fails.
    """
    if not shutil.which(command[0]):
        raise UsageError(f"{command[0]} is not installed here; run this on a login node of a Slurm cluster")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        _refuse_unconfigured(command[0], (error.stderr or b"").decode(errors="replace"))
        raise UpstreamError(f"Slurm does not answer: {command[0]} took over {timeout_s} s; try again later") from None
    if done.returncode:
        _refuse_unconfigured(command[0], done.stderr)
        lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise UpstreamError(f"Slurm does not answer: {command[0]} says {lines[-1] if lines else 'nothing'}")
    return done.stdout


def _refuse_unconfigured(program: str, messages: str) -> None:
    if UNCONFIGURED.search(messages):
        raise UsageError(
            f"{program} finds no slurm.conf here; run this on a login node of a Slurm cluster, or set SLURM_CONF"
        ) from None


def parse_records(text: str) -> list[dict[str, str]]:
    """Lines of `scontrol --oneliner` as names and values; a value may hold blanks."""
    return [dict(re.findall(r"([A-Za-z][\w/]*)=(.*?)(?=\s+[A-Za-z][\w/]*=|\s*$)", line)) for line in text.splitlines()]


def parse_gpus(gres: str) -> tuple[tuple[str, int], ...]:
    """GPUs by type from Slurm's gres: `gpu:a100:4(S:0-1),gpu:2` -> (("a100", 4), ("", 2))."""
    matches = re.findall(r"(?:^|,)gpu(?::([^:,(]+))??(?::(\d+))?(?=[(,]|$)", gres)
    return tuple((gpu_type, int(count or 1)) for gpu_type, count in matches)


def _partition(fields: dict[str, str], nodes: dict[str, Node]) -> Partition:
    max_nodes, hosts = fields.get("MaxNodes", ""), fields["Nodes"]
    # Slurm itself lists every node of `node[1-3]`.
    names = query("scontrol", "show", "hostnames", hosts).split() if hosts not in UNLIMITED else []
    return Partition(
        name=fields["PartitionName"],
        is_default=fields["Default"] == "YES",
        max_minutes=parse_minutes(fields["MaxTime"]),
        max_nodes=None if max_nodes in UNLIMITED else int(max_nodes),
        preempt_mode=fields.get("PreemptMode", "OFF"),
        is_up=fields["State"] == "UP",
        nodes=tuple(nodes[name] for name in names if name in nodes),
    )


def parse_minutes(text: str) -> int | None:
    """Slurm's `[days-]hours:minutes:seconds` in minutes; None without a limit."""
    return None if text in UNLIMITED else math.ceil(seconds_of(text) / 60)


def seconds_of(text: str) -> float:
    """Slurm's `[days-][hours:]minutes:seconds` in seconds."""
    days, _, clock = text.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = 60 * seconds + float(part or 0)
    return int(days or 0) * 86400 + seconds


def _accounts() -> tuple[str, ...]:
    # Not $USER: it may be unset, or name another user after `su`.
    user = pwd.getpwuid(os.geteuid()).pw_name
    options = ["--noheader", "--parsable2", "show", "assoc", f"user={user}", "format=account"]
    # The account root is the top of Slurm's tree and is not charged.
    return tuple(sorted(set(query("sacctmgr", *options).split()) - {"root"}))
