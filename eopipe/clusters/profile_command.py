"""`eopipe profile`: write a Snakemake profile for a cluster, or check one."""

import argparse
import sys
from pathlib import Path
from typing import Any

from eopipe.arguments import Parser
from eopipe.clusters.check_profile import (
    ProfileFile,
    config_conflicts,
    find_profile,
    read_profile,
    retry_notes,
    site_conflicts,
)
from eopipe.clusters.dryrun import Resources, requested_by_rules
from eopipe.clusters.executor_patches import user_profiles
from eopipe.clusters.filesystems import describe_sharing, mounts
from eopipe.clusters.profile import JobShape, ProfileOptions, write_profile
from eopipe.clusters.slurm import query_site
from eopipe.config import load
from eopipe.errors import EopipeError, UsageError, no_space
from eopipe.publish import make_executable, publish
from eopipe.run.project import snakefile

# Rules that run beside Snakemake unless the nodes are online.
LOCAL_RULES = {"search", "fetch"}
# Profiles of other engines than Slurm: templates to copy and adapt.
TEMPLATES = ("htcondor", "kubernetes", "lsf", "pbs")


def profile(argv: list[str]) -> int:
    """Write a Snakemake profile for your cluster, or check one."""
    options = _parser().parse_args(argv)
    return int(options.command(options))


def _parser() -> Parser:
    parser = Parser(prog="eopipe profile", description=profile.__doc__)
    commands = parser.add_subparsers(required=True, metavar="slurm|htcondor|kubernetes|lsf|pbs|check")
    slurm = commands.add_parser("slurm", help="query the cluster and write a profile for it", description=write.__doc__)
    slurm.set_defaults(command=write)
    slurm.add_argument("--partition", help="partition of all other jobs [the cluster's default]")
    slurm.add_argument("--training", metavar="PARTITION", help="partition of the training [the other jobs' partition]")
    slurm.add_argument("--account", help="account to charge [the only one that you have]")
    slurm.add_argument("--qos", help="quality of service of all jobs [the cluster's default]")
    slurm.add_argument("--constraint", metavar="FEATURES", help="features that the nodes of all jobs must have")
    slurm.add_argument("--reservation", metavar="NAME", help="reservation that all jobs use")
    slurm.add_argument("--nodes", type=int, default=1, help="nodes of a training [%(default)s]")
    slurm.add_argument("--processes", type=int, default=1, help="processes, or GPUs, on each node [%(default)s]")
    slurm.add_argument("--gpu", nargs="?", const="", metavar="TYPE", help="one GPU for each process, of a type or any")
    slurm.add_argument("--cpus", type=int, help="CPUs per node [one for each process]")
    slurm.add_argument("--memory-mb", type=int, help="memory per node [what the rule calculates from its input]")
    slurm.add_argument("--preemptible", action="store_true", help="jobs may be pre-empted; Slurm requeues them")
    slurm.add_argument(
        "--jobs", type=int, help="maximum number of jobs in the queue, if the site limits it; disables job arrays"
    )
    slurm.add_argument("--name", default="slurm", help="name of the profile [%(default)s]")
    slurm.add_argument("--show", action="store_true", help="print the profile and write nothing")
    for name in TEMPLATES:
        template = commands.add_parser(name, help="copy the template of a profile to adapt", description=copy.__doc__)
        template.set_defaults(command=copy, template=name)
        template.add_argument("--name", default=name, help="name of the profile [%(default)s]")
        template.add_argument("--show", action="store_true", help="print the template and write nothing")
    check = commands.add_parser(
        "check", help="show which file a profile name means, and check its requests", description=check_profile.__doc__
    )
    check.set_defaults(command=check_profile)
    check.add_argument("name", nargs="?", default="slurm", help="name of the profile [%(default)s]")
    check.add_argument("--configfile", type=Path, help="config of the run; its jobs are checked too")
    return parser


def write(options: argparse.Namespace) -> int:
    """Query the cluster, print a profile for it, and write that to your folder of Snakemake profiles."""
    cpus = options.cpus or options.processes
    shape = JobShape(options.nodes, options.processes, cpus, options.memory_mb, options.gpu)
    partitions = (options.partition, options.training)
    limits = {"qos": options.qos, "constraint": options.constraint, "reservation": options.reservation}
    chosen = ProfileOptions(*partitions, options.account, options.preemptible, shape, options.jobs, **limits)
    text = write_profile(query_site(), chosen)
    print(text, end="")
    print(describe_sharing(Path.cwd(), mounts()), file=sys.stderr)
    if not options.show:
        target = _new_folder(options.name) / "config.yaml"
        _publish(target, text)
        print(f"\nwrote {target}; now: snakemake --profile {options.name}", file=sys.stderr)
        print_file(options.name)
    return 0


def copy(options: argparse.Namespace) -> int:
    """Print the template of a profile, and copy it with its scripts to your folder of Snakemake profiles."""
    template = snakefile(".").parent / "profiles" / options.template
    print((template / "config.yaml").read_text(), end="")
    if options.show:
        return 0
    target = _new_folder(options.name)
    for file in sorted(template.iterdir()):
        _publish(target / file.name, file.read_text())
        # Scripts of the wheel come without their mode.
        if file.suffix in (".sh", ".py"):
            make_executable(target / file.name)
    print(f"\nwrote {target}; adapt it, then: snakemake --profile {options.name}", file=sys.stderr)
    print_file(options.name)
    return 0


def _new_folder(name: str) -> Path:
    target = user_profiles() / name
    if target.exists():
        raise UsageError(f"{target} exists already and is not overwritten; remove it, or choose another name")
    return target


def _publish(target: Path, text: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with publish(target) as draft:
            draft.write_text(text)
    except OSError as error:
        if isinstance(error, PermissionError) or error.errno == 30:
            raise UsageError(
                f"{target.parent} cannot be written; set XDG_CONFIG_HOME to a writable folder, or use --show > FILE"
            ) from error
        raise EopipeError(str(no_space(target))) from error


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


def check_profile(options: argparse.Namespace) -> int:
    """Print which file a profile name means, and check its requests against the cluster and the config."""
    settings = read_profile(print_file(options.name).file)
    config = load(options.configfile) if options.configfile else None
    conflicts: list[str] = []
    if settings.get("executor") == "slurm":
        requested = _requested(options.name, options.configfile, config) if config else {}
        site, rules = query_site(), (settings.get("set-resources") or {}) | requested
        conflicts += site_conflicts(settings | {"set-resources": rules}, site)
        if requested and not conflicts:
            print("\n".join(retry_notes(settings | {"set-resources": rules}, site)))
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
    return 0
