"""A Snakemake profile for a Slurm site, with comments; the shape of a training, and the file systems of its nodes."""

import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from eopipe.clusters.slurm import Partition, Site, parse_gpus
from eopipe.contract import Argument
from eopipe.errors import UsageError
from eopipe.launch.environment import NodeRange, parse_nodes
from eopipe.reporting.wording import plural

# Slurm kills a job that is over its walltime half a minute after TERM, too soon for a large checkpoint. A signal other
# than TERM would end the job's own Snakemake at once, and the job with it.
EARLY_SIGNAL = "--signal=TERM@300"
# What snakemake-executor-plugin-slurm 2.8 accepts as gres; a type of Slurm's autodetection may be a100-sxm4-80gb.
EXECUTOR_GRES = re.compile(r"[a-zA-Z0-9_]+(:[a-zA-Z0-9_.]+)?(:\d+[TGM]?)?")
# squeue knows a job that has ended only while the controller remembers it.
STATUS_INTERVAL_S = 20
SETTINGS = """\
executor: slurm
{queue}
retries: 3                         # after a stop, a time limit or out of memory; only here, never in a rule
rerun-incomplete: true
keep-going: true
show-failed-logs: true
latency-wait: 60                   # seconds until a shared file system shows what a node wrote
local-cores: 2                     # of the login node: search, fetch and other small steps
benchmark-extended: true           # what jobs request, for `eopipe usage`
slurm-init-seconds-before-status-checks: {status_interval}
{status}
{requeue}
"""
# With job arrays nothing may hold back a part of the scenes that are ready (executor_patches.lost_jobs).
JOB_ARRAYS = """\
jobs: 10000                        # maximum in the queue; with job arrays at least the number of scenes
max-jobs-per-timespan: 10000/1s    # a lower rate would split job arrays
slurm-array-jobs: fetch,preprocess,label,composite,predict,predict_part   # all scenes that are ready
slurm-array-limit: 50              # tasks of one sbatch, whose command line is limited"""
SINGLE_JOBS = """\
jobs: {jobs:<29}# maximum in the queue, each by an sbatch of its own
max-jobs-per-timespan: 1/1s        # per minute, Snakemake would wait up to a minute at its end"""
MOUNTS = Path("/proc/self/mounts")
# Those that many machines mount; all others belong to one.
NETWORK_TYPES = {
    *("afs", "beegfs", "beegfs_nodev", "ceph", "ceph-fuse", "cephfs", "cifs", "gfs2", "glusterfs", "gpfs", "lustre"),
    *("nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "sshfs", "wekafs"),
}
# File systems of one kernel, also where its containers have names of their own; and cluster file systems with locks.
LOCAL_TYPES = {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
GLOBAL_LOCKS = {"ceph", "gfs2", "gpfs", "ocfs2"}


@dataclass(frozen=True)
class JobShape:
    """Nodes of a training, and for each of them: processes, CPUs, memory in MB and GPUs (one per process, or none)."""

    nodes: int = 1
    processes: int = 1
    cpus: int = 1
    memory_mb: int | None = None
    gpu_type: str | None = None

    def resources(self) -> dict[str, int | str]:
        """Resources of the rule `train` for Snakemake's Slurm executor.

        On many nodes the job's own Snakemake must not run in a job step of one node, which `mpi` prevents; there is
        one torchrun agent, and so one task, per node. `tasks_per_gpu: 0` keeps the executor from requesting tasks per
        GPU, which no number of nodes could satisfy. A GPU type that the executor does not accept is left out, which
        requests the same where a partition has no other (see `conflicts`).
        """
        resources: dict[str, int | str] = {"cpus_per_task": self.cpus}
        if self.memory_mb:
            resources["mem_mb"] = self.memory_mb
        if self.nodes > 1:
            resources |= {"nodes": self.nodes, "tasks": self.nodes, "mpi": "srun"}
        if self.gpu_type is not None:
            typed, untyped = f"gpu:{self.gpu_type}:{self.processes}", f"gpu:{self.processes}"
            is_typed = self.gpu_type and EXECUTOR_GRES.fullmatch(typed)
            resources |= {"gres": typed if is_typed else untyped, "tasks_per_gpu": 0}
        return resources

    def conflicts(self, partition: Partition) -> list[str]:
        """Why it can never start in a partition, a sentence each."""
        fitting = [node for node in partition.nodes if self._fits(node.cpus, node.memory_mb, dict(node.gpus))]
        sentences, name = [], f"partition {partition.name}"
        if not partition.is_up:
            sentences.append(f"{name} is down")
        if partition.max_nodes and self.nodes > partition.max_nodes:
            sentences.append(f"requests {self.nodes} nodes, but a job in {name} may use at most {partition.max_nodes}")
        if self.cpus > partition.cpus:
            sentences.append(f"requests {self.cpus} CPUs per node, but {name} has {partition.cpus}")
        if (self.memory_mb or 0) > partition.memory_mb:
            sentences.append(f"requests {self.memory_mb} MB per node, but {name} has {partition.memory_mb}")
        if self.gpu_type is not None and self._max_gpus(partition) < self.processes:
            gpu_type = f" {self.gpu_type}" if self.gpu_type else ""
            count = self._max_gpus(partition)
            sentences.append(f"requests {self.processes}{gpu_type} GPUs per node, but {name} has {count}")
        others = sorted({gpu_type for node in partition.nodes for gpu_type, _ in node.gpus} - {self.gpu_type})
        if not sentences and self.gpu_type and others and not EXECUTOR_GRES.fullmatch(f"gpu:{self.gpu_type}:1"):
            sentences.append(
                f"requests GPUs of type {self.gpu_type}, which Snakemake's Slurm executor does not accept (letters, "
                f"digits, _ and . only), and {name} also has {', '.join(t or 'GPUs without type' for t in others)}; "
                "write --gpu without a type and --constraint with a feature of the nodes (sinfo -o '%N %G %f')"
            )
        if not sentences and len(fitting) < self.nodes:
            sentences.append(f"requests {self.nodes} nodes, but {name} has {len(fitting)} that fit")
        return sentences

    def _max_gpus(self, partition: Partition) -> int:
        return max((self._of_type(dict(node.gpus)) for node in partition.nodes), default=0)

    def _of_type(self, gpus: dict[str, int]) -> int:
        return gpus.get(self.gpu_type, 0) if self.gpu_type else sum(gpus.values())

    def _fits(self, cpus: int, memory_mb: int, gpus: dict[str, int]) -> bool:
        has_gpus = self.gpu_type is None or self._of_type(gpus) >= self.processes
        return cpus >= self.cpus and memory_mb >= (self.memory_mb or 0) and has_gpus


def job_shape(resources: dict[str, Any]) -> JobShape:
    """The shape of a job from its resources."""
    cpus, memory = resources.get("cpus_per_task", 1), resources.get("mem_mb")
    gpu_type, processes = next(iter(parse_gpus(str(resources.get("gres", "")))), (None, 1))
    return JobShape(
        int(resources.get("nodes", 1)),
        processes,
        cpus if isinstance(cpus, int) else 1,
        memory if isinstance(memory, int) else None,
        gpu_type,
    )


@dataclass(frozen=True)
class ProfileOptions:
    """What a user says of the jobs of a cluster; for the rest there are its defaults."""

    partition: Annotated[str | None, Argument("partition of all other jobs [the cluster's default]")] = None
    training: Annotated[
        str | None, Argument("partition of the training [the other jobs' partition]", value="PARTITION")
    ] = None
    account: Annotated[str | None, Argument("account to charge [the only one that you have]")] = None
    qos: Annotated[str | None, Argument("quality of service of all jobs [the cluster's default]")] = None
    constraint: Annotated[str | None, Argument("features that the nodes of all jobs must have", value="FEATURES")] = (
        None
    )
    reservation: Annotated[str | None, Argument("reservation that all jobs use", value="NAME")] = None
    nodes: Annotated[int, Argument("nodes of a training", ge=1)] = 1
    processes: Annotated[int, Argument("processes, or GPUs, on each node", ge=1)] = 1
    gpu: Annotated[str | None, Argument("one GPU for each process, of a type or any", value="TYPE", bare="")] = None
    cpus: Annotated[int | None, Argument("CPUs per node [one for each process]", ge=1)] = None
    memory_mb: Annotated[int | None, Argument("memory per node [what the rule calculates from its input]")] = None
    preemptible: Annotated[bool, Argument("jobs may be pre-empted; Slurm requeues them")] = False
    jobs: Annotated[
        int | None, Argument("maximum number of jobs in the queue, if the site limits it; disables job arrays")
    ] = None

    @property
    def shape(self) -> JobShape:
        """What a training requests."""
        return JobShape(self.nodes, self.processes, self.cpus or self.processes, self.memory_mb, self.gpu)


def write_profile(site: Site, options: ProfileOptions) -> str:
    """The text of a profile. Raises UsageError for requests that the site cannot satisfy."""
    default = site.partition(options.partition) if options.partition else site.default_partition
    training = site.partition(options.training) if options.training else default
    conflicts = [f"the training {sentence}" for sentence in options.shape.conflicts(training)]
    conflicts += _preemption_conflicts(site, options)
    if conflicts:
        raise UsageError("; ".join(conflicts))
    lines = [f"# Snakemake on the Slurm cluster {site.name} (Slurm {site.version}); written by `eopipe profile slurm`."]
    lines += [_settings(site, options), "default-resources:", f"  slurm_partition: {default.name}"]
    if account := _account(site, options):
        lines.append(f"  slurm_account: {account}")
    # Quoted twice, since Snakemake evaluates a resource as an expression.
    for name, value in (("qos", options.qos), ("constraint", options.constraint)):
        lines += [f"  {name}: \"'{_name_in_slurm(name, value)}'\""] if value else []
    if default.max_minutes:
        lines += [
            "config:",
            f"  max_minutes: {default.max_minutes}  # limit of the partition; requests do not outgrow it",
        ]
    lines += ["set-resources:", "  train:", f"    slurm_partition: {training.name}"]
    lines += [f"    {name}: {value}" for name, value in options.shape.resources().items()]
    if training.max_minutes and training.max_minutes > 10:
        lines.append(
            f"    slurm_extra: '{EARLY_SIGNAL}'  # five minutes before the limit: save a checkpoint, resume in a retry"
        )
    if training.max_minutes:
        lines.append(f"    runtime: {training.max_minutes}  # limit of the partition; a retry resumes the training")
    return "\n".join(lines) + "\n"


def _settings(site: Site, options: ProfileOptions) -> str:
    status = "slurm-status-command: squeue      # the controller; by default the accounting database is queried"
    if site.min_job_age_s < 3 * STATUS_INTERVAL_S:
        if not site.has_accounting:
            raise UsageError(
                f"the cluster {site.name} forgets a job {site.min_job_age_s} s after its end and has no accounting, "
                f"so how it ended is unknown; ask for MinJobAge of at least {3 * STATUS_INTERVAL_S} s"
            )
        status = "slurm-status-command: sacct       # squeue forgets ended jobs too soon here"
    requeue = "slurm-no-requeue: true            # Snakemake, not Slurm, starts a lost job again"
    if options.preemptible:
        requeue = "slurm-requeue: true               # Slurm requeues a pre-empted job"
    queue = JOB_ARRAYS if options.jobs is None else SINGLE_JOBS.format(jobs=options.jobs)
    text = SETTINGS.format(queue=queue, status=status, requeue=requeue, status_interval=STATUS_INTERVAL_S).rstrip()
    if options.reservation:
        text += f"\nslurm-reservation: '{_name_in_slurm('reservation', options.reservation)}'"
    return text


def _name_in_slurm(option: str, value: str) -> str:
    if not re.fullmatch(r"[\w.,:&|!*+()\[\]-]+", value):
        raise UsageError(f"--{option} is {value!r}; a name in Slurm has no blanks or quotes")
    return value


def _preemption_conflicts(site: Site, options: ProfileOptions) -> list[str]:
    names = [name for name in (options.partition, options.training) if name]
    modes = {name: site.partition(name).preempt_mode for name in names}
    requeueing = [name for name, mode in modes.items() if mode == "REQUEUE"]
    if requeueing and not options.preemptible:
        # Without requeueing the executor waits forever for a job that was pre-empted.
        return [f"jobs in partition {requeueing[0]} may be pre-empted; add --preemptible, or choose another one"]
    cancelling = [name for name, mode in modes.items() if mode == "CANCEL"]
    if cancelling:
        return [f"partition {cancelling[0]} cancels pre-empted jobs, which Snakemake does not see; choose another one"]
    return []


def _account(site: Site, options: ProfileOptions) -> str | None:
    if options.account and site.accounts and options.account not in site.accounts:
        raise UsageError(f"you cannot charge account {options.account}; yours are {', '.join(site.accounts)}")
    if not options.account and len(site.accounts) > 1:
        raise UsageError(f"you can charge {', '.join(site.accounts)}; choose one with --account")
    return options.account or (site.accounts[0] if site.accounts else None)


def describe_training(train: dict[str, Any], profile: dict[str, Any] | None = None) -> str:
    """How the section train of a config will run, alone or with the settings of a profile."""
    profile = profile or {}
    resources = (profile.get("default-resources") or {}) | ((profile.get("set-resources") or {}).get("train") or {})
    nodes = parse_nodes(train["nodes"])
    if resources and nodes.minimum <= int(resources.get("nodes", 1)) <= nodes.maximum:
        nodes = NodeRange(*(int(resources.get("nodes", 1)),) * 2)
    count = f"{nodes.minimum} to {nodes.maximum} nodes" if nodes.is_elastic else plural(nodes.maximum, "node")
    size = f"{count} x {plural(train['processes'], 'process')} ({_describe_gpus(train, resources)})"
    cpus, memory = resources.get("cpus_per_task", train["processes"] * train["threads"]), resources.get("mem_mb")
    memory_text = f"{memory / 1000:.3g} GB" if isinstance(memory, int) else "as much memory as its input needs"
    launch = "one torchrun agent, without srun; rendezvous on the node itself"
    if nodes.maximum > 1:
        is_slurm = profile.get("executor") == "slurm"
        start = "through srun" if is_slurm else "each started by the same command (docs/clusters.md)"
        launch = f"one torchrun agent per node, {start}; rendezvous on the first node"
    return f"training: {size}, {plural(cpus, 'CPU')} and {memory_text} per node; {launch}"


def _describe_gpus(train: dict[str, Any], resources: dict[str, Any]) -> str:
    if "gres" in resources:
        count = job_shape(resources).processes
        return "1 GPU each" if count == train["processes"] else f"{plural(count, 'GPU')} per node"
    if resources or train["device"] == "cpu":
        return "no GPU"
    return "1 GPU each" if train["device"] == "cuda" else "1 GPU each if available"


@dataclass(frozen=True)
class Mount:
    """A file system and its mount point."""

    folder: Path
    type: str
    options: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether many machines see it."""
        return self.type.removeprefix("fuse.") in NETWORK_TYPES

    @property
    def locks_are_global(self) -> bool:
        """Whether flock() excludes all processes that see it, on whatever machine, and after a change of its name."""
        options = set(self.options.split(","))
        if self.type in ("nfs", "nfs4"):
            return not options & {"nolock", "local_lock=flock", "local_lock=all"}
        if self.type == "lustre":
            return "flock" in options
        return self.type in LOCAL_TYPES | GLOBAL_LOCKS

    def __str__(self) -> str:
        return f"{self.folder} ({self.type})"


def mounts(text: str | None = None) -> list[Mount]:
    """All file systems of this machine; none where it does not list them."""
    if text is None:
        text = MOUNTS.read_text() if MOUNTS.exists() else ""
    rows = [line.split() for line in text.splitlines()]
    # Blanks in names are octal numbers.
    unescape = partial(re.sub, r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)))
    return [Mount(Path(unescape(row[1])), row[2], row[3]) for row in rows if len(row) > 3]


def mount_of(folder: Path, known: list[Mount]) -> Mount | None:
    """The file system that holds a folder: the deepest, and of those the one mounted last."""
    resolved = folder.resolve()
    holding = [mount for mount in reversed(known) if resolved.is_relative_to(mount.folder)]
    return max(holding, key=lambda mount: len(mount.folder.parts), default=None)


def describe_sharing(folder: Path, known: list[Mount]) -> str:
    """A sentence on whether other nodes see what a run writes into a folder, as its type says: asking costs a job."""
    mount, shared = mount_of(folder, known), [str(mount) for mount in known if mount.is_shared]
    if mount and mount.is_shared:
        return f"{folder} is on {mount.type}, which nodes share"
    advice = f"use a folder of {', '.join(shared)}" if shared else "this machine has no shared file system"
    kind = mount.type if mount else "an unknown file system"
    return f"{folder} is on {kind}, which nodes may not see; {advice}"
