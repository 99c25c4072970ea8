"""Whether what a profile asks for can run: on the cluster, and with the config."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eopipe.clusters.executor_patches import lost_jobs
from eopipe.clusters.profile import FIRST_LOOK_S, geometry_of
from eopipe.clusters.slurm import Partition, Site
from eopipe.errors import UsageError
from eopipe.launch.environment import nodes_of

# A job of Snakemake's executor starts Snakemake twice before it does anything.
LEAST_MB = 500


def read_profile(file: Path) -> dict[str, Any]:
    """The settings of a profile. Raises UsageError where it is none."""
    import yaml

    try:
        told = yaml.safe_load(file.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise UsageError(f"{file} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(told, dict):
        raise UsageError(f"{file} is no profile: it holds no settings")
    return told


def with_site(told: dict[str, Any], site: Site) -> Iterator[str]:
    """What of a profile cannot run on a cluster, a sentence each."""
    common = told.get("default-resources") or {}
    rules = {"the ordinary rules": {}} | {
        f"rule {name}": own for name, own in (told.get("set-resources") or {}).items()
    }
    requeues = bool(told.get("slurm-requeue"))
    for who, own in rules.items():
        asked = common | own
        try:
            there = site.partition(asked["slurm_partition"]) if "slurm_partition" in asked else site.default
        except UsageError as error:
            yield f"{who}: {error}"
            continue
        yield from (f"{who}: {sentence}" for sentence in _of_rule(asked, there, requeues=requeues))
        yield from (f"{who}: {sentence}" for sentence in _gres(str(own.get("gres", "")), site))
    if told.get("slurm-status-command") == "sacct" and not site.accounting:
        yield f"slurm-status-command is sacct, but the cluster {site.name} keeps no accounts; set it to squeue"
    if told.get("slurm-status-command") != "sacct" and site.keeps_finished_s < 3 * FIRST_LOOK_S:
        yield f"the cluster {site.name} forgets a job {site.keeps_finished_s} s after its end; set the command to sacct"
    if lost := lost_jobs(told):
        yield lost
    account = common.get("slurm_account")
    if account and not site.accounting:
        yield f"the cluster {site.name} keeps no accounts; take slurm_account away"
    elif account and site.accounts and account not in site.accounts:
        yield f"you cannot charge account {account}; yours are {', '.join(site.accounts)}"


def of_retries(told: dict[str, Any], site: Site) -> Iterator[str]:
    """Which retries of rules would ask for more time than their partition gives, a sentence each."""
    retries = int(told.get("retries") or 0)
    for name, asked in (told.get("set-resources") or {}).items():
        there = site.partition(asked["slurm_partition"]) if "slurm_partition" in asked else site.default
        runtime = asked.get("runtime")
        # That of a training is the same at each attempt.
        if name == "train" or not isinstance(runtime, int) or not there.minutes:
            continue
        first = there.minutes // runtime
        if 0 < first <= retries:
            ends = "is refused" if site.enforces else "waits for ever, since this cluster does not enforce its limits"
            yield (
                f"note: rule {name} asks {runtime} minutes and as many more at each retry; retry {first} is over the "
                f"{there.minutes} of partition {there.name} and {ends}"
            )


def _gres(asked: str, site: Site) -> Iterator[str]:
    names = [word.partition(":")[0] for word in asked.split(",") if word]
    there = ", ".join(site.gres) or "none"
    yield from (f"you asked the gres {name}; the cluster has {there}" for name in names if name not in site.gres)


def _of_rule(asked: dict[str, Any], there: Partition, *, requeues: bool) -> Iterator[str]:
    yield from geometry_of(asked).conflicts(there)
    runtime, memory = asked.get("runtime"), asked.get("mem_mb")
    if isinstance(runtime, int) and there.minutes and runtime > there.minutes:
        yield f"you asked {runtime} minutes; a job in partition {there.name} has at most {there.minutes}"
    if isinstance(memory, int) and memory < LEAST_MB:
        yield f"you asked {memory} MB; Snakemake alone needs {LEAST_MB}"
    if there.preempted == "REQUEUE" and not requeues:
        yield f"jobs in partition {there.name} may be pre-empted; set slurm-requeue: true instead of slurm-no-requeue"
    nodes = int(asked.get("nodes", 1))
    if nodes > 1 and (asked.get("mpi") != "srun" or asked.get("tasks") != nodes):
        yield f"{nodes} nodes need mpi: srun and tasks: {nodes}"
    if nodes == 1 and "mpi" in asked:
        yield "mpi is for many nodes; leave it away"
    if "gres" in asked and asked.get("tasks_per_gpu") != 0:
        yield "a gres needs tasks_per_gpu: 0, or Slurm is asked for more tasks than there is room for"


def with_config(told: dict[str, Any], train: dict[str, Any]) -> Iterator[str]:
    """What of a profile does not go together with the section train of a config, a sentence each."""
    asked = (told.get("set-resources") or {}).get("train") or {}
    nodes, given = nodes_of(train["nodes"]), int(asked.get("nodes", 1))
    if not nodes.least <= given <= nodes.most:
        yield f"the profile gives the training {given} nodes, and train.nodes is {nodes}; make them alike"
    if "gres" in asked and geometry_of(asked).processes < train["processes"]:
        count = geometry_of(asked).processes
        yield f"the profile gives a node {count} GPUs, and train.processes is {train['processes']}; one process a GPU"
