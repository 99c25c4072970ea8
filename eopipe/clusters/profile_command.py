"""`eopipe profile`: write a Snakemake profile for a cluster, or check one."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from eopipe.clusters.check_profile import (
    ProfileFile,
    config_conflicts,
    find_profile,
    read_profile,
    retry_notes,
    site_conflicts,
)
from eopipe.clusters.executor_patches import user_profiles
from eopipe.clusters.filesystems import describe_sharing, mounts
from eopipe.clusters.profile import JobShape, ProfileOptions, write_profile
from eopipe.clusters.slurm import query_site
from eopipe.config import load
from eopipe.contract import Argument
from eopipe.errors import UsageError
from eopipe.own_files import write_files
from eopipe.run.project import snakefile
from eopipe.text_table import shell_word

# Rules that run beside Snakemake unless the nodes are online.
LOCAL_RULES = {"search", "fetch"}
# Profiles of other engines than Slurm: templates to copy and adapt.
TEMPLATES = ("htcondor", "kubernetes", "lsf", "pbs")


Name = Annotated[str, Argument("name of the profile", value="PROFILE")]
IsShown = Annotated[bool, Argument("print the profile and write nothing")]
Resources = dict[str, int | str]
# Resources that a cluster can refuse.
NUMBERS = ("mem_mb", "runtime", "nodes", "tasks", "tasks_per_gpu", "cpus_per_task")
WORDS = ("slurm_partition", "gres", "mpi")


@dataclass(frozen=True)
class SlurmOptions:
    """What a user says of the jobs of a cluster."""

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


def write(options: SlurmOptions, name: Name = "slurm", show: IsShown = False) -> None:
    """Query the cluster, print a profile for it, and write that to your folder of Snakemake profiles."""
    cpus = options.cpus or options.processes
    shape = JobShape(options.nodes, options.processes, cpus, options.memory_mb, options.gpu)
    chosen = ProfileOptions(
        options.partition,
        options.training,
        options.account,
        options.preemptible,
        shape,
        options.jobs,
        qos=options.qos,
        constraint=options.constraint,
        reservation=options.reservation,
    )
    text = write_profile(query_site(), chosen)
    print(text, end="")
    print(describe_sharing(Path.cwd(), mounts()), file=sys.stderr)
    if not show:
        target = _new_folder(name) / "config.yaml"
        _write(target.parent, {target.name: text})
        print(f"\nwrote {target}; now: snakemake --profile {shell_word(name)}", file=sys.stderr)
        print_file(name)


def copy_of(engine: str) -> Callable[..., None]:
    """The command that copies the template of another engine's profile."""

    def copy(name: Name = engine, show: IsShown = False) -> None:
        """Print the template of a profile, and copy it with its scripts to your folder of Snakemake profiles."""
        template = snakefile(".").parent / "profiles" / engine
        print((template / "config.yaml").read_text(), end="")
        if show:
            return
        target = _new_folder(name)
        _write(target, {file.name: file.read_text() for file in sorted(template.iterdir())})
        print(f"\nwrote {target}; adapt it, then: snakemake --profile {shell_word(name)}", file=sys.stderr)
        print_file(name)

    return copy


def _new_folder(name: str) -> Path:
    target = user_profiles() / name
    if target.exists():
        raise UsageError(f"{target} exists already and is not overwritten; remove it, or choose another name")
    return target


def _write(folder: Path, texts: dict[str, str]) -> None:
    try:
        write_files(folder, texts)
    except UsageError as error:
        raise UsageError(
            f"{folder} cannot be written; set XDG_CONFIG_HOME to a writable folder, or use --show > FILE"
        ) from error


def print_file(name: str) -> ProfileFile:
    """Print which file a profile name means, and which files of the same name it hides."""
    profile_file = find_profile(name)
    print(f"--profile {name} means {profile_file.file}")
    for hidden in profile_file.hidden:
        print(f"it hides {hidden}")
    return profile_file


def _requested(name: str, file: Path, config: dict[str, Any]) -> dict[str, Resources]:
    """What the rules request whose jobs are submitted."""
    local = set() if config["online_nodes"] else LOCAL_RULES
    return {rule: resources for rule, resources in requested_by_rules(name, file).items() if rule not in local}


def check_profile(
    name: Annotated[str, Argument("name of the profile", positional=True)] = "slurm",
    configfile: Annotated[Path | None, Argument("config of the run; its jobs are checked too")] = None,
) -> None:
    """Print which file a profile name means, and check its requests against the cluster and the config."""
    settings = read_profile(print_file(name).file)
    config = load(configfile) if configfile else None
    conflicts: list[str] = []
    if settings.get("executor") == "slurm":
        requested = _requested(name, configfile, config) if config and configfile else {}
        site, rules = query_site(), (settings.get("set-resources") or {}) | requested
        conflicts += site_conflicts(settings | {"set-resources": rules}, site)
        if requested and not conflicts:
            for note in retry_notes(settings | {"set-resources": rules}, site):
                print(note)
    if config:
        conflicts += config_conflicts(settings, config["train"])
    if conflicts:
        raise UsageError("; ".join(conflicts))
    engine = settings.get("executor", "this machine")
    print(
        "the cluster has all that the profile requests"
        if engine == "slurm"
        else f"requests to {engine} are not checked"
    )


PROFILE = {"slurm": write, **{engine: copy_of(engine) for engine in TEMPLATES}, "check": check_profile}


def requested_by_rules(profile: str, config: Path) -> dict[str, Resources]:
    """The maximum that jobs of each rule request with a profile and a config.

    Before the search has run, the size of the scenes is unknown and the rules of single scenes are missing.
    """
    command = [sys.executable, "-P", "-m", "snakemake", "--snakefile", str(snakefile()), "--configfile", str(config)]
    command += ["--profile", profile, "--dry-run", "--forceall"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    output = f"{done.stdout}\n{done.stderr}"
    if done.returncode:
        lines = [line.strip() for line in output.splitlines()]
        reasons = [line for line in lines if line and not line.startswith("Using profile")]
        raise UsageError(f"Snakemake cannot plan a run with profile {profile} and {config}: {' '.join(reasons[-3:])}")
    return read_plan(output)


def read_plan(output: str) -> dict[str, Resources]:
    """The largest request of the jobs of each rule in the output of a dry run."""
    by_rule: dict[str, Resources] = {}
    for name, job in re.findall(r"^(?:rule|checkpoint) (\w+):\n((?:    .*\n?)+)", output, re.MULTILINE):
        if name == "all":
            continue
        rule = by_rule.setdefault(name, {})
        for key, value in _resources(job).items():
            known = rule.get(key)
            rule[key] = max(value, known) if isinstance(value, int) and isinstance(known, int) else value
    return by_rule


def _resources(job: str) -> Resources:
    line = re.search(r"^    resources: (.*)$", job, re.MULTILINE)
    threads = re.search(r"^    threads: (\d+)$", job, re.MULTILINE)
    resources: Resources = {"cpus_per_task": int(threads[1]) if threads else 1}
    for name, value in re.findall(r"(\w+)=([^,=]+)(?=, \w+=|$)", line[1] if line else ""):
        # What is not known yet is a word in the place of a number.
        if name in NUMBERS and value.isdigit():
            resources[name] = int(value)
        elif name in WORDS:
            resources[name] = value
    return resources
