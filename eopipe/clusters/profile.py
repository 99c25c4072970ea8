"""A Snakemake profile for a site, as text that explains itself."""

import re
from dataclasses import dataclass, field
from typing import Any

from eopipe.clusters.slurm import Partition, Site
from eopipe.errors import UsageError
from eopipe.launch.environment import Nodes, nodes_of

# Slurm kills a job that is over its time half a minute after it says so, too soon for a large checkpoint. A signal
# other than TERM would end the job's own Snakemake at once, and the job with it.
WARNING = "--signal=TERM@300"
# A job that ended is told by squeue only while the controller remembers it.
FIRST_LOOK_S = 20
SETTINGS = """\
executor: slurm
{queue}
retries: {retries}                         # stopped, too long, out of memory: again; only here, never in a rule
rerun-incomplete: true
keep-going: true
show-failed-logs: true
latency-wait: 60                   # seconds until a shared file system shows what a node wrote
local-cores: 2                     # of the login node: search, fetch and other small steps
persistence-backend: db            # three files instead of one for each output
benchmark-extended: true           # what jobs request, for `eopipe usage`
slurm-init-seconds-before-status-checks: {first_look}
{status}
{requeue}
"""
# With arrays nothing may keep back a part of the scenes that are ready (arrays.py).
ARRAYS = """\
jobs: 10000                        # in the queue at a time; with arrays never less than there are scenes
max-jobs-per-timespan: 10000/1s    # less would tear arrays apart
slurm-array-jobs: fetch,preprocess,label,composite,predict   # all scenes that are ready
slurm-array-limit: 50              # in one sbatch, whose line may not grow too long"""
ONE_BY_ONE = """\
jobs: {jobs:<29}# most jobs in the queue at a time, each by an sbatch of its own
max-jobs-per-timespan: 1/1s        # over a minute Snakemake would wait up to a minute at its end"""


@dataclass(frozen=True)
class Geometry:
    """Nodes, and for each of them: processes, CPUs, memory in MB and GPUs (one a process, or none)."""

    nodes: int = 1
    processes: int = 1
    cpus: int = 1
    memory_mb: int | None = None
    gpu: str | None = None

    def resources(self) -> dict[str, int | str]:
        """Resources of the rule `train` for Snakemake's Slurm executor.

        On many nodes the job's own Snakemake must not stand in a step of one node, which `mpi` says; one torchrun
        agent a node makes one task a node. `tasks_per_gpu: 0` keeps the executor from asking for tasks by GPU,
        which no count of nodes could meet.
        """
        told: dict[str, int | str] = {"cpus_per_task": self.cpus}
        if self.memory_mb:
            told["mem_mb"] = self.memory_mb
        if self.nodes > 1:
            told |= {"nodes": self.nodes, "tasks": self.nodes, "mpi": "srun"}
        if self.gpu is not None:
            kind = f"{self.gpu}:" if self.gpu else ""
            told |= {"gres": f"gpu:{kind}{self.processes}", "tasks_per_gpu": 0}
        return told

    def conflicts(self, there: Partition) -> list[str]:
        """Why it can never start in a partition, a sentence each."""
        fitting = [node for node in there.nodes if self._fits(node.cpus, node.memory_mb, dict(node.gpus))]
        wrong, name = [], f"partition {there.name}"
        if not there.up:
            wrong.append(f"{name} is down")
        if there.most_nodes and self.nodes > there.most_nodes:
            wrong.append(f"you asked {self.nodes} nodes; a job in {name} has at most {there.most_nodes}")
        if self.cpus > there.cpus:
            wrong.append(f"you asked {self.cpus} CPUs a node; {name} has {there.cpus}")
        if (self.memory_mb or 0) > there.memory_mb:
            wrong.append(f"you asked {self.memory_mb} MB a node; {name} has {there.memory_mb}")
        if self.gpu is not None and self._gpus(there) < self.processes:
            kind = f" {self.gpu}" if self.gpu else ""
            wrong.append(f"you asked {self.processes}{kind} GPUs a node; {name} has {self._gpus(there)}")
        if not wrong and len(fitting) < self.nodes:
            wrong.append(f"you asked {self.nodes} nodes; {name} has {len(fitting)} that fit")
        return wrong

    def _gpus(self, there: Partition) -> int:
        return max((self._of_kind(dict(node.gpus)) for node in there.nodes), default=0)

    def _of_kind(self, gpus: dict[str, int]) -> int:
        return gpus.get(self.gpu, 0) if self.gpu else sum(gpus.values())

    def _fits(self, cpus: int, memory_mb: int, gpus: dict[str, int]) -> bool:
        enough = self.gpu is None or self._of_kind(gpus) >= self.processes
        return cpus >= self.cpus and memory_mb >= (self.memory_mb or 0) and enough


def geometry_of(asked: dict[str, Any]) -> Geometry:
    """The shape of a job from its resources."""
    cpus, memory = asked.get("cpus_per_task", 1), asked.get("mem_mb")
    found = re.fullmatch(r"gpu(?::([^:\d][^:]*))?(?::(\d+))?", str(asked.get("gres", "")))
    count, kind = (int(found[2] or 1), found[1] or "") if found else (1, None)
    return Geometry(
        int(asked.get("nodes", 1)),
        count,
        cpus if isinstance(cpus, int) else 1,
        memory if isinstance(memory, int) else None,
        kind,
    )


@dataclass(frozen=True)
class Wishes:
    """What a user says of the runs to come; what is not said is the cluster's default."""

    partition: str | None = None
    training: str | None = None
    account: str | None = None
    preemptible: bool = False
    geometry: Geometry = field(default_factory=Geometry)
    jobs: int | None = None
    retries: int = 3


def text(site: Site, wishes: Wishes) -> str:
    """The profile. Raises UsageError for what the site cannot give."""
    ordinary = site.partition(wishes.partition) if wishes.partition else site.default
    training = site.partition(wishes.training) if wishes.training else ordinary
    wrong = [*wishes.geometry.conflicts(training), *_requeueing(site, wishes)]
    if wrong:
        raise UsageError("; ".join(wrong))
    lines = [f"# Snakemake on the Slurm cluster {site.name} (Slurm {site.version}); made by `eopipe profile slurm`."]
    lines += [_settings(site, wishes), "default-resources:", f"  slurm_partition: {ordinary.name}"]
    if account := _account(site, wishes):
        lines.append(f"  slurm_account: {account}")
    lines += ["set-resources:", "  train:", f"    slurm_partition: {training.name}"]
    lines += [f"    {name}: {value}" for name, value in wishes.geometry.resources().items()]
    if training.minutes and training.minutes > 10:
        lines.append(
            f"    slurm_extra: '{WARNING}'  # five minutes before a limit: it saves its state and goes on in a retry"
        )
    if training.minutes:
        lines.append(f"    runtime: {training.minutes}  # the partition's limit; a longer training goes on by itself")
    return "\n".join(lines) + "\n"


def _settings(site: Site, wishes: Wishes) -> str:
    status = "slurm-status-command: squeue      # the database of jobs would be asked otherwise"
    if site.keeps_finished_s < 3 * FIRST_LOOK_S:
        if not site.accounting:
            raise UsageError(
                f"the cluster {site.name} forgets a job {site.keeps_finished_s} s after its end and accounts for none, "
                f"so nobody can tell how it ended; ask for MinJobAge of at least {3 * FIRST_LOOK_S} s"
            )
        status = "slurm-status-command: sacct       # squeue forgets ended jobs too soon here"
    requeue = "slurm-no-requeue: true            # Snakemake, not Slurm, starts a lost job again"
    if wishes.preemptible:
        requeue = "slurm-requeue: true               # a pre-empted job waits and goes on by itself"
    queue = ARRAYS if wishes.jobs is None else ONE_BY_ONE.format(jobs=wishes.jobs)
    told = {"queue": queue, "retries": wishes.retries, "first_look": FIRST_LOOK_S}
    return SETTINGS.format(**told, status=status, requeue=requeue).rstrip()


def _requeueing(site: Site, wishes: Wishes) -> list[str]:
    names = [name for name in (wishes.partition, wishes.training) if name]
    modes = {name: site.partition(name).preempted for name in names}
    asked = [name for name, mode in modes.items() if mode == "REQUEUE"]
    if asked and not wishes.preemptible:
        # Without requeueing the executor waits for ever for a job that was pre-empted.
        return [f"jobs in partition {asked[0]} may be pre-empted; say --preemptible, or choose another one"]
    cancelled = [name for name, mode in modes.items() if mode == "CANCEL"]
    if cancelled:
        return [f"partition {cancelled[0]} cancels pre-empted jobs, which Snakemake does not see; choose another one"]
    return []


def _account(site: Site, wishes: Wishes) -> str | None:
    if wishes.account and site.accounts and wishes.account not in site.accounts:
        raise UsageError(f"you cannot charge account {wishes.account}; yours are {', '.join(site.accounts)}")
    if not wishes.account and len(site.accounts) > 1:
        raise UsageError(f"you can charge {', '.join(site.accounts)}; say which with --account")
    return wishes.account or (site.accounts[0] if site.accounts else None)


def shape(train: dict[str, Any], told: dict[str, Any] | None = None) -> str:
    """How the section train of a config will run, alone or with the settings of a profile."""
    given = told or {}
    asked = (given.get("default-resources") or {}) | ((given.get("set-resources") or {}).get("train") or {})
    nodes = nodes_of(train["nodes"])
    if asked and nodes.least <= int(asked.get("nodes", 1)) <= nodes.most:
        nodes = Nodes(*(int(asked.get("nodes", 1)),) * 2)
    count = f"{nodes.least}" if nodes.least == nodes.most else f"{nodes.least} to {nodes.most}"
    each = f"{count} {_many(nodes.most, 'node')} x {train['processes']} {_many(train['processes'], 'process')}"
    way = _way(nodes, slurm=given.get("executor") == "slurm")
    return f"training: {each} ({_gpus(train, asked)}), {_room(train, asked)} a node; {way}"


def _gpus(train: dict[str, Any], asked: dict[str, Any]) -> str:
    if "gres" in asked:
        there = geometry_of(asked).processes
        return "1 GPU each" if there == train["processes"] else f"{there} {_many(there, 'GPU')} a node"
    if asked or train["device"] == "cpu":
        return "no GPU"
    return "1 GPU each" if train["device"] == "cuda" else "1 GPU each where there are any"


def _room(train: dict[str, Any], asked: dict[str, Any]) -> str:
    cpus = asked.get("cpus_per_task", train["processes"] * train["threads"])
    memory = asked.get("mem_mb")
    spoken = f"{memory / 1000:.3g} GB" if isinstance(memory, int) else "as much memory as its input needs"
    return f"{cpus} {_many(cpus, 'CPU')} and {spoken}"


def _way(nodes: Nodes, *, slurm: bool) -> str:
    if nodes.most == 1:
        return "one torchrun agent, without srun; rendezvous on the node itself"
    start = "through srun" if slurm else "each started by the same line (docs/nodes.md)"
    return f"one torchrun agent a node, {start}; rendezvous on the first node"


def _many(count: object, word: str) -> str:
    """The word for so many."""
    return word if count == 1 else word + ("es" if word.endswith("s") else "s")
