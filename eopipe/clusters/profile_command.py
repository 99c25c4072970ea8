"""`eopipe profile`: write a Snakemake profile for a cluster, or check one."""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

from eopipe.clusters.executor_patches import lost_jobs, profile_file, profile_folders
from eopipe.clusters.profile import (
    EXECUTOR_GRES,
    STATUS_INTERVAL_S,
    ProfileOptions,
    describe_sharing,
    job_shape,
    mounts,
    write_profile,
)
from eopipe.clusters.slurm import Partition, Site, query_site
from eopipe.config import load
from eopipe.contract import Argument
from eopipe.errors import UsageError
from eopipe.launch.environment import parse_nodes
from eopipe.own_files import write_files
from eopipe.run.locate import shipped
from eopipe.run.project import snakefile
from eopipe.text_files import parse_yaml, read_text
from eopipe.text_table import shell_word

# Rules that run beside Snakemake unless the nodes are online.
LOCAL_RULES = {"search", "fetch"}
# Profiles of other engines than Slurm: templates to copy and adapt.
TEMPLATES = ("htcondor", "kubernetes", "lsf", "pbs")
# A job of Snakemake's executor starts Snakemake twice before it does anything.
MIN_MEMORY_MB = 500
Name = Annotated[str, Argument("name of the profile", value="PROFILE")]
IsShown = Annotated[bool, Argument("print the profile and write nothing")]
Resources = dict[str, int | str]
# Resources that a cluster can refuse.
NUMBERS = ("mem_mb", "runtime", "nodes", "tasks", "tasks_per_gpu", "cpus_per_task")
WORDS = ("slurm_partition", "gres", "mpi")


def write(options: ProfileOptions, name: Name = "slurm", show: IsShown = False) -> None:
    """Query the cluster, print a profile for it, and write that to your folder of Snakemake profiles."""
    text = write_profile(query_site(), options)
    print(text, end="")
    print(describe_sharing(Path.cwd(), mounts()), file=sys.stderr)
    if not show:
        _install(name, {"config.yaml": text}, "now")


def copy_of(engine: str) -> Callable[..., None]:
    """The command that copies the template of another engine's profile."""

    def copy(name: Name = engine, show: IsShown = False) -> None:
        """Print the template of a profile, and copy it with its scripts to your folder of Snakemake profiles."""
        template = shipped(f"profiles/{engine}")
        print((template / "config.yaml").read_text(), end="")
        if not show:
            _install(name, {file.name: file.read_text() for file in sorted(template.iterdir())}, "adapt it, then")

    return copy


def _install(name: str, texts: dict[str, str], advice: str) -> None:
    """Write the files of a new profile to the user's folder of profiles, and print how to use it."""
    folder = profile_folders()[0] / name
    if folder.exists():
        raise UsageError(f"{folder} exists already and is not overwritten; remove it, or choose another name")
    try:
        write_files(folder, texts)
    except UsageError as error:
        raise UsageError(
            f"{folder} cannot be written; set XDG_CONFIG_HOME to a writable folder, or use --show > FILE"
        ) from error
    target = folder.joinpath(*texts) if len(texts) == 1 else folder
    print(f"\nwrote {target}; {advice}: snakemake --profile {shell_word(name)}", file=sys.stderr)
    print_file(name)


def print_file(name: str) -> Path:
    """Print which file a profile name means, which is returned, and which files of the same name it hides."""
    file, *hidden = find_profile(name)
    print("\n".join([f"--profile {name} means {file}", *(f"it hides {other}" for other in hidden)]))
    return file


def check_profile(
    name: Annotated[str, Argument("name of the profile", positional=True)] = "slurm",
    configfile: Annotated[Path | None, Argument("config of the run; its jobs are checked too")] = None,
) -> None:
    """Print which file a profile name means, and check its requests against the cluster and the config."""
    settings = read_profile(print_file(name))
    config, engine = load(configfile) if configfile else None, settings.get("executor", "this machine")
    conflicts: list[str] = []
    if engine == "slurm":
        local = LOCAL_RULES if config and not config["online_nodes"] else set()
        by_rule = requested_by_rules(name, configfile) if configfile else {}
        requested = {rule: resources for rule, resources in by_rule.items() if rule not in local}
        site, rules = query_site(), (settings.get("set-resources") or {}) | requested
        conflicts += site_conflicts(settings | {"set-resources": rules}, site)
        if requested and not conflicts:
            for note in retry_notes(settings | {"set-resources": rules}, site):
                print(note)
    if config:
        conflicts += config_conflicts(settings, config["train"])
    if conflicts:
        raise UsageError("; ".join(conflicts))
    are_met = "the cluster has all that the profile requests"
    print(are_met if engine == "slurm" else f"requests to {engine} are not checked")


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


def find_profile(name: str) -> list[Path]:
    """The file that a profile's name means, and behind it the files of the same name that it hides.

    Searched where Snakemake does, in its order: a path, the working folder, the user's profiles, the site's. Raises
    UsageError, with all folders, where there is none.
    """
    folders = [Path.cwd(), *profile_folders()]
    if Path(name).exists():
        folders.insert(0, Path(name).parent)
    files = [file for folder in folders if (file := profile_file(folder / Path(name).name))]
    if not files:
        searched = ", ".join(map(str, folders))
        raise UsageError(
            f"there is no profile {name} in {searched}; `eopipe profile slurm` writes one for your cluster"
        )
    return [files[0], *(file for file in files[1:] if file.resolve() != files[0].resolve())]


def read_profile(file: Path) -> dict[str, Any]:
    """The settings of a profile. Raises UsageError where the file is not a profile."""
    import yaml

    try:
        settings = parse_yaml(read_text(file))
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{file} is not a profile: it has no settings")
    return settings


def site_conflicts(profile: dict[str, Any], site: Site) -> Iterator[str]:
    """What of a profile cannot run on a cluster, a sentence each."""
    common = profile.get("default-resources") or {}
    rules = {f"rule {name}": resources for name, resources in (profile.get("set-resources") or {}).items()}
    for subject, resources in ({"default-resources": {}} | rules).items():
        requested = common | resources
        try:
            partition = _partition_of(requested, site)
        except UsageError as error:
            yield f"{subject}: {error}"
            continue
        sentences = [*_partition_conflicts(requested, partition, requeues=bool(profile.get("slurm-requeue")))]
        names = [part.partition(":")[0] for part in str(resources.get("gres", "")).split(",") if part]
        available = ", ".join(site.gres) or "none"
        sentences += [f"requests the gres {n}, but the cluster has {available}" for n in names if n not in site.gres]
        yield from (f"{subject}: {sentence}" for sentence in sentences)
    uses_accounting = profile.get("slurm-status-command") == "sacct"
    if uses_accounting and not site.has_accounting:
        yield f"slurm-status-command is sacct, but the cluster {site.name} has no accounting; set it to squeue"
    if not uses_accounting and site.min_job_age_s < 3 * STATUS_INTERVAL_S:
        yield (
            f"the cluster {site.name} forgets a job {site.min_job_age_s} s after its end; "
            "set slurm-status-command to sacct"
        )
    if sentence := lost_jobs(profile):
        yield sentence
    account = common.get("slurm_account")
    if account and not site.has_accounting:
        yield f"the cluster {site.name} has no accounting; omit slurm_account"
    elif account and site.accounts and account not in site.accounts:
        yield f"you cannot charge account {account}; yours are {', '.join(site.accounts)}"


def retry_notes(profile: dict[str, Any], site: Site) -> Iterator[str]:
    """Which rules would request more time in a retry than their partition allows, a sentence for each partition."""
    retries, settings = int(profile.get("retries") or 0), profile.get("config")
    limit = settings.get("max_minutes") if isinstance(settings, dict) else None
    growing: dict[Partition, list[str]] = {}
    for name, resources in (profile.get("set-resources") or {}).items():
        partition, runtime = _partition_of(resources, site), resources.get("runtime")
        # The runtime of a training is the same in each attempt.
        if name == "train" or not isinstance(runtime, int) or not partition.max_minutes:
            continue
        if runtime <= partition.max_minutes < min(runtime * (retries + 1), limit or runtime * (retries + 1)):
            growing.setdefault(partition, []).append(name)
    end = "is refused" if site.enforces_limits else "waits forever, since this cluster does not enforce limits"
    for partition, rules in growing.items():
        yield (
            f"note: a retry of {', '.join(rules)} may request more than the {partition.max_minutes} minutes of "
            f"partition {partition.name}, and {end}; "
            f"write config: {{max_minutes: {partition.max_minutes}}} in the profile"
        )


def _partition_of(resources: dict[str, Any], site: Site) -> Partition:
    return site.partition(resources["slurm_partition"]) if "slurm_partition" in resources else site.default_partition


def _partition_conflicts(resources: dict[str, Any], partition: Partition, *, requeues: bool) -> Iterator[str]:
    yield from job_shape(resources).conflicts(partition)
    runtime, memory = resources.get("runtime"), resources.get("mem_mb")
    if isinstance(runtime, int) and partition.max_minutes and runtime > partition.max_minutes:
        limit = f"a job in partition {partition.name} may run at most {partition.max_minutes}"
        yield f"requests {runtime} minutes, but {limit}"
    if isinstance(memory, int) and memory < MIN_MEMORY_MB:
        yield f"requests {memory} MB, but Snakemake alone needs {MIN_MEMORY_MB}"
    if partition.preempt_mode == "REQUEUE" and not requeues:
        name = partition.name
        yield f"jobs in partition {name} may be pre-empted; set slurm-requeue: true instead of slurm-no-requeue"
    nodes = int(resources.get("nodes", 1))
    if nodes > 1 and (resources.get("mpi") != "srun" or resources.get("tasks") != nodes):
        yield f"{nodes} nodes need mpi: srun and tasks: {nodes}"
    if nodes == 1 and "mpi" in resources:
        yield "mpi is for many nodes; omit it"
    if "gres" in resources and not EXECUTOR_GRES.fullmatch(gres := str(resources["gres"])):
        yield (
            f"Snakemake's Slurm executor does not accept the gres {gres}; write gpu:NUMBER, or gpu:TYPE:NUMBER with a "
            "type of letters, digits, _ and . only"
        )
    if "gres" in resources and resources.get("tasks_per_gpu") != 0:
        yield "a gres needs tasks_per_gpu: 0; otherwise the executor requests more tasks than fit"


def config_conflicts(profile: dict[str, Any], train: dict[str, Any]) -> Iterator[str]:
    """What of a profile contradicts the section train of a config, a sentence each."""
    resources = (profile.get("set-resources") or {}).get("train") or {}
    nodes, profile_nodes = parse_nodes(train["nodes"]), int(resources.get("nodes", 1))
    if not nodes.minimum <= profile_nodes <= nodes.maximum:
        yield (
            f"the profile gives the training {profile_nodes} nodes, but train.nodes is {nodes}; "
            f'set train.nodes: "{profile_nodes}" in the config, or other nodes in the profile'
        )
    gpus = job_shape(resources).processes
    if "gres" in resources and gpus < train["processes"]:
        yield (
            f"the profile gives a node {gpus} GPUs, but train.processes is {train['processes']}; "
            f"set train.processes: {gpus} in the config, or another gres in the profile"
        )
