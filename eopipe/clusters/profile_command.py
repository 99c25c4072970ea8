"""`eopipe profile`: write a Snakemake profile for a cluster, or check one."""

import argparse
import sys
from pathlib import Path

from eopipe.clusters.check_profile import of_retries, read_profile, with_config, with_site
from eopipe.clusters.dryrun import requested_by_rules
from eopipe.clusters.executor_patches import user_profiles
from eopipe.clusters.filesystems import mounts, sharing
from eopipe.clusters.find_profile import ProfileFile, find_profile
from eopipe.clusters.profile import Geometry, Wishes, text
from eopipe.clusters.slurm import site
from eopipe.config import load
from eopipe.errors import EopipeError, UsageError, no_space
from eopipe.publish import publish
from eopipe.run.project import snakefile

# Profiles of other engines than Slurm: templates to copy and adapt.
TEMPLATES = ("htcondor", "kubernetes", "lsf", "pbs")


def profile(words: list[str]) -> int:
    """Write a Snakemake profile for your cluster, or check one."""
    given = _parser().parse_args(words)
    return int(given.work(given))


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="eopipe profile", description=profile.__doc__)
    what = made.add_subparsers(required=True, metavar="slurm|htcondor|kubernetes|lsf|pbs|check")
    slurm = what.add_parser("slurm", help="ask the cluster and write a profile for it", description=write.__doc__)
    slurm.set_defaults(work=write)
    slurm.add_argument("--partition", help="of the ordinary jobs [the cluster's default]")
    slurm.add_argument("--training", metavar="PARTITION", help="of the training [that of the ordinary jobs]")
    slurm.add_argument("--account", help="whom to charge [the only one that you have]")
    slurm.add_argument("--nodes", type=int, default=1, help="nodes of a training [%(default)s]")
    slurm.add_argument("--processes", type=int, default=1, help="processes, or GPUs, on each of them [%(default)s]")
    slurm.add_argument("--gpu", nargs="?", const="", metavar="TYPE", help="one GPU for each process, of a type or any")
    slurm.add_argument("--cpus", type=int, help="CPUs of a node [one for each process]")
    slurm.add_argument("--memory-mb", type=int, help="memory of a node [what the rule reckons]")
    slurm.add_argument("--preemptible", action="store_true", help="jobs may be pre-empted and then wait to go on")
    slurm.add_argument("--jobs", type=int, help="most jobs in the queue, where a site limits them; then no arrays")
    slurm.add_argument("--name", default="slurm", help="name of the profile [%(default)s]")
    slurm.add_argument("--show", action="store_true", help="print it and write nothing")
    for name in TEMPLATES:
        template = what.add_parser(name, help="copy the template of a profile to adapt", description=copy.__doc__)
        template.set_defaults(work=copy, template=name)
        template.add_argument("--name", default=name, help="name of the profile [%(default)s]")
        template.add_argument("--show", action="store_true", help="print it and write nothing")
    check = what.add_parser("check", help="tell what a profile means and what cannot run", description=check_it.__doc__)
    check.set_defaults(work=check_it)
    check.add_argument("name", nargs="?", default="slurm")
    check.add_argument("--configfile", type=Path, help="config that will run with it")
    return made


def write(given: argparse.Namespace) -> int:
    """Ask the cluster what it has, show a profile for it, and write that to your Snakemake folder."""
    cpus = given.cpus or given.processes
    shape = Geometry(given.nodes, given.processes, cpus, given.memory_mb, given.gpu)
    partitions = (given.partition, given.training)
    made = text(site(), Wishes(*partitions, given.account, given.preemptible, shape, given.jobs))
    print(made, end="")
    print(sharing(Path.cwd(), mounts()), file=sys.stderr)
    if not given.show:
        _install(given.name, made)
    return 0


def _install(name: str, made: str) -> None:
    """Write a profile to the user's folder, where there is none of this name, and say what the name now means."""
    target = _free(name) / "config.yaml"
    _publish(target, made)
    print(f"\nwrote {target}; now: snakemake --profile {name}", file=sys.stderr)
    tell(name)


def copy(given: argparse.Namespace) -> int:
    """Show the template of a profile, and copy it with its scripts to your Snakemake folder, to be adapted there."""
    template = snakefile(".").parent / "profiles" / given.template
    print((template / "config.yaml").read_text(), end="")
    if given.show:
        return 0
    target = _free(given.name)
    for file in sorted(template.iterdir()):
        _publish(target / file.name, file.read_text())
        # Scripts of the wheel come without their mode.
        (target / file.name).chmod(0o755 if file.suffix in (".sh", ".py") else 0o644)
    print(f"\nwrote {target}; adapt it, then: snakemake --profile {given.name}", file=sys.stderr)
    tell(given.name)
    return 0


def _free(name: str) -> Path:
    target = user_profiles() / name
    if target.exists():
        raise UsageError(f"{target} exists already and is left as it is; remove it, or choose another name")
    return target


def _publish(target: Path, made: str) -> None:
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with publish(target) as draft:
            draft.write_text(made)
    except OSError as error:
        if isinstance(error, PermissionError) or error.errno == 30:
            raise UsageError(
                f"{target.parent} cannot be written; set XDG_CONFIG_HOME to a folder of yours, or say --show > file"
            ) from error
        raise EopipeError(str(no_space(target))) from error


def tell(name: str) -> ProfileFile:
    """Say which file a name resolves to, and which ones of the same name it hides."""
    found = find_profile(name)
    print(f"--profile {name} means {found.file}")
    for hidden in found.hidden:
        print(f"it hides {hidden}")
    return found


def check_it(given: argparse.Namespace) -> int:
    """Say which file a name resolves to, and what of it the cluster or the config cannot give."""
    told = read_profile(tell(given.name).file)
    config = load(given.configfile) if given.configfile else None
    wrong: list[str] = []
    if told.get("executor") == "slurm":
        asked = requested_by_rules(given.name, given.configfile) if given.configfile else {}
        there, whole = site(), told | {"set-resources": (told.get("set-resources") or {}) | asked}
        wrong += with_site(whole, there)
        for sentence in of_retries(whole, there) if asked and not wrong else ():
            print(sentence)
    if config:
        wrong += with_config(told, config["train"])
    if wrong:
        raise UsageError("; ".join(wrong))
    engine = told.get("executor", "this machine")
    print("what it asks for can run" if engine == "slurm" else f"what {engine} can give is not asked")
    return 0
