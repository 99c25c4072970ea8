"""`eopipe run` on a cluster: it refuses requests that the cluster cannot satisfy, and explains why jobs failed."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from eopipe.clusters.executor_patches import refuse_missing_which
from eopipe.clusters.profile import mount_of, mounts
from eopipe.clusters.profile_command import find_profile, read_profile, site_conflicts
from eopipe.clusters.slurm import query_site
from eopipe.config import load
from eopipe.errors import DriftError, UsageError
from eopipe.reporting.status import STATUS, MapStatus
from eopipe.run import project
from eopipe.run.job_logs import error_in
from eopipe.run.locate import find_config, project_folder
from eopipe.run.periods import config_of_period
from eopipe.text_table import message_line, shell_word

LOGS = Path(".snakemake/log")
# With these nothing is submitted.
HARMLESS = {"-n", "--dry-run", "--dryrun", "--executor", "-e", "--unlock", "--list"}
# With these nothing is planned.
NO_RUN = {"--unlock", "--list", "-l", "--version", "-v", "--lint", "--cleanup-metadata"}
# With these, or a profile, the caller decides what Snakemake prints.
OWN_OUTPUT = {"--logger", "--quiet", "-q", "--verbose", "--printshellcmds", "-p", "--workflow-profile"}
# As in the profile `local`: a live bar on a terminal, and the logs of failed jobs.
OUTPUT = ["--logger", "rich", "--show-failed-logs"]
# A switch behind --configfile, so that targets of the caller are not taken as more configs.
AFTER_CONFIG = "--rerun-incomplete"
# Options whose value may be a YAML file, and is another thing than the config of a run.
OTHER_YAML = {"--profile", "--workflow-profile", "--snakefile", "-s", "--report-metadata"}
HELP = """\
usage: eopipe run [CONFIG] [--datetime D] [--fail-on drift] [OPTION ...] [TARGET ...]

Run the whole pipeline with Snakemake, or resume it: with CONFIG, a YAML file, or with config.yaml of this folder, in a
checkout with config/config.yaml. Paths in the config, and targets, are relative to the folder of the config (for one in
a folder `config`, to the folder above it). A lock allows one run at a time with the same results.

  --datetime D       map a period, such as 2026-06 or 2026-06/2026-08, with the finished model of the project, into
                     results/2026-06: with config/2026-06.yaml, which the first run of the period writes
  --fail-on drift    end with 10 where the inputs of a finished model are unlike its training's, or a class is missing

Every option of Snakemake is accepted; `snakemake --help` lists them all. The most common ones:
  --configfile FILE  the same as CONFIG; its project may be another folder
  --cores N          number of CPU cores to use [all]
  --profile NAME     Snakemake profile, e.g. of a cluster (`eopipe profile` writes one)
  --dry-run          list the jobs, run nothing
  --forcerun STAGE   run a stage again, and what depends on it
  TARGET             files or rules to build [all results]; after --configfile, or if one is a YAML file, put `--`
                     before them

Exit code: 0 everything is done, 1 a job failed (its error is printed last), 2 the command or the config is wrong,
130 or 143 stopped by a signal (running jobs save their state first), 137 Snakemake was killed. Then, and after 1, the
same command resumes the run. `eopipe command STAGE` prints the command of a job, to run it by hand.\
"""
RESUME = "run the same command again to resume"
# What ended a job, in Slurm's words.
STATES = {
    "TIMEOUT": f"ran over its time limit each time; {RESUME}, or give it more (runtime)",
    "OUT_OF_MEMORY": "needs more memory; raise its mem_mb in set-resources of the profile",
    "NODE_FAIL": f"lost its node; {RESUME}",
    "BOOT_FAIL": f"lost its node; {RESUME}",
    "CANCELLED": f"was cancelled; {RESUME}",
    "PREEMPTED": f"was pre-empted; {RESUME}",
    "DEADLINE": f"could not end before its deadline; {RESUME}",
}
# Messages of sbatch with a remedy; the first that matches.
REFUSALS = {
    r"contact slurm controller|timed out|Connection refused": f"when it answers (`sinfo`), {RESUME}",
    r"partition": "set slurm_partition to one that `sinfo` shows",
    r"account|association": "set slurm_account to one that you may charge (`sacctmgr show assoc user=$USER`)",
    r"[Mm]emory|configuration|processors|CPU|node count": "request less in set-resources of the profile",
    r"gres|GRES": "set gres to one that `sinfo -o %G` shows",
    r"[Qq][Oo][Ss]": "set qos to one that you may use (`sacctmgr show assoc user=$USER format=account,qos`)",
    r"[Ff]eature": "set constraint to features that `sinfo -o %f` shows",
    r"reservation": "set slurm-reservation to one that `scontrol show reservation` shows for you",
    r"time limit": "lower its runtime in set-resources of the profile",
}

# Logs of jobs are printed in between, with failures of their own Snakemake, which have no message.
FAILED = re.compile(
    r"^Error in (?:rule|checkpoint) (\w+):\n    message: (?!None\n)(.*?)\n    jobid: (\d+)", re.M | re.S
)
REFUSED = re.compile(r"sbatch failed\. The error message was '(.*?)'\.\n", re.DOTALL)


def run(argv: list[str]) -> int:
    """Run the pipeline; on Slurm, explain at the end in one sentence why each job failed."""
    if {"-h", "--help"} & set(argv):
        print(HELP)
        return 0
    refuse_missing_which()
    refuse_dotted_settings(argv)
    argv, period, fails_on_drift = own_options(argv)
    argv = name_config(argv)
    if period:
        argv = name_period(argv, period)
    folder, config = locate(argv)
    name, options = profile_of(argv), {argument.partition("=")[0] for argument in argv}
    if not name and not options & (HARMLESS | OWN_OUTPUT) and not any(re.match(r"-\w*[np]", word) for word in options):
        config += OUTPUT
    arguments = [*config, *argv]
    settings = settings_of(arguments, folder)
    results = Path(settings["results"]) if settings else None
    if fails_on_drift and settings and not settings["model"]:
        raise UsageError("--fail-on drift is about the inputs of a finished model, and this config trains one")
    profile = read_profile(find_profile(name)[0]) if name and not HARMLESS & options else {}
    mount = mount_of(folder, mounts())
    locks = bool(mount and mount.locks_are_global)
    is_slurm = profile.get("executor") == "slurm"
    if is_slurm and (sentences := [*site_conflicts(profile, query_site())]):
        raise UsageError(f"{'; '.join(sentences)} (nothing was submitted)")
    before = set((folder / LOGS).glob("*.snakemake.log"))
    code = project.run(arguments, folder, results or Path("results"), locks_are_global=locks)
    if code and is_slurm:
        new = sorted(set((folder / LOGS).glob("*.snakemake.log")) - before)
        # Runs with other results may have been here at the same time.
        texts = (text for file in new if f"{results}/" in (text := file.read_text(errors="replace")) or not results)
        for sentence in failed_jobs("".join(texts)):
            print(message_line("error", sentence), file=sys.stderr)
    if code or options & NO_RUN or not results:
        return code
    conclude(arguments, folder / results)
    if not is_dry(argv):
        warn_of_drift(folder / results / STATUS, fails_on_drift)
    return 0


def warn_of_drift(path: Path, is_failure: bool) -> None:
    """Print what is unusual about a map of a finished model. Raises DriftError if that is to be a failure."""
    if not path.is_file():
        if is_failure:
            raise UsageError(
                f"there is no {os.path.relpath(path)} that --fail-on drift could read; run all of the rules"
            )
        return
    findings = MapStatus.read(path).findings
    for sentence in findings:
        print(message_line("warning", sentence), file=sys.stderr)
    if findings and is_failure:
        raise DriftError(f"the map has drifted, see {os.path.relpath(path)} and the report beside it")


def own_options(argv: list[str]) -> tuple[list[str], str, bool]:
    """The arguments without those that are not Snakemake's: the period, and whether drift is a failure.

    Raises UsageError for options without a value, or with one that does not exist.
    """
    end = argv.index("--") if "--" in argv else len(argv)
    rest, values = list[str](), dict[str, str]()
    words = iter(argv[:end])
    for word in words:
        option, equals, value = word.partition("=")
        if option not in ("--datetime", "--fail-on"):
            rest.append(word)
            continue
        values[option] = value if equals else next(words, "")
        if not values[option] or values[option].startswith("-"):
            raise UsageError(f"{option} needs a value: --datetime 2026-06, --fail-on drift")
    if values.get("--fail-on", "drift") != "drift":
        raise UsageError(f"--fail-on {values['--fail-on']} does not exist; there is --fail-on drift")
    return [*rest, *argv[end:]], values.get("--datetime", ""), "--fail-on" in values


def name_period(argv: list[str], period: str) -> list[str]:
    """The arguments with the config of a period in the place of the project's."""
    names = option_values(argv, "--configfile", "--configfiles")
    if len(names) > 1 or option_values(argv, "--directory", "-d"):
        raise UsageError("--datetime needs the one config of a project, in the folder of which it runs")
    config = Path(names[0]) if names else find_config()
    of_period = str(config_of_period(config, period))
    if names:
        return [of_period if word == names[0] else word.replace(f"={names[0]}", f"={of_period}") for word in argv]
    return ["--configfile", of_period, AFTER_CONFIG, *argv]


def settings_of(argv: Sequence[str], folder: Path) -> dict[str, Any]:
    """The config of a run; empty where it is wrong, or a Snakefile of the user's own has none, or one elsewhere."""
    names = option_values(argv, "--configfile", "--configfiles")
    try:
        return load(Path(names[0]) if names else find_config(folder))
    except UsageError:
        return {}


def conclude(argv: Sequence[str], results: Path) -> None:
    """Name the report of a whole run, or warn where results were removed or changed their size.

    Snakemake asks only for what the next job needs. Sizes alone are compared, so this takes a moment.
    """
    from eopipe.verify import missing_or_shortened

    damaged, total = missing_or_shortened(results) if results.is_dir() else ([], 0)
    if damaged:
        print(
            f"warning: {len(damaged)} of {total} results were removed or changed since they were made, such as "
            f"{os.path.relpath(damaged[0])}; `eopipe verify {shell_word(os.path.relpath(results))}` lists them, with "
            "--repair it rebuilds them",
            file=sys.stderr,
        )
    report = results / "report.html"
    # Snakemake's own last lines, and its progress bars, are below the summary of the workflow.
    if report.is_file() and not damaged and not is_partial(argv):
        print(f"The run is complete; its report is {os.path.relpath(report)}", flush=True)


def is_partial(argv: Sequence[str]) -> bool:
    """Whether the arguments run nothing, or have words that may be targets: not the values of a common option."""
    values = option_values(argv, "--configfile", "--cores", "-c", "--jobs", "-j", "--profile", "--logger")
    return is_dry(argv) or "--" in argv or any(not word.startswith("-") and word not in values for word in argv)


def is_dry(argv: Sequence[str]) -> bool:
    """Whether the arguments run nothing."""
    options = {word.partition("=")[0] for word in argv if word.startswith("-")}
    return bool(options & HARMLESS) or any(re.match(r"-\w*n", word) for word in options)


def name_config(argv: list[str]) -> list[str]:
    """The arguments with --configfile before their first word that is a YAML file, unless they have that option.

    Raises UsageError where there is no such file. Words behind `--` are targets, whatever their names are.
    """
    if option_values(argv, "--configfile", "--configfiles"):
        return argv
    words = argv[: argv.index("--")] if "--" in argv else argv
    for place, (before, word) in enumerate(zip(["", *words], words, strict=False)):
        if word.endswith((".yaml", ".yml")) and not word.startswith("-") and before not in OTHER_YAML:
            config = str(find_config(Path(word)))
            return ["--configfile", config, AFTER_CONFIG, *argv[:place], *argv[place + 1 :]]
    return argv


def locate(argv: Sequence[str]) -> tuple[Path, list[str]]:
    """The project folder of a run, and the option for its config where the arguments name none.

    Raises UsageError where there is no config.
    """
    if folders := option_values(argv, "--directory", "-d"):
        return Path(folders[0]), []
    configs = option_values(argv, "--configfile", "--configfiles")
    if missing := [name for name in configs if not Path(name).is_file()]:
        raise UsageError(
            f"there is no config file {', '.join(missing)}; put targets before --configfile, or after `--` at the end"
        )
    if configs:
        folder = project_folder(Path(configs[0]))
        return Path() if folder == Path.cwd() else folder, []
    # A Snakefile names its config, and a profile may.
    if Path("Snakefile").is_file():
        return Path(), []
    try:
        return Path(), ["--configfile", str(find_config()), AFTER_CONFIG]
    except UsageError:
        if profile_of(argv):
            return Path(), []
        raise


def option_values(argv: Sequence[str], *names: str) -> list[str]:
    """The values of an option: those behind it, up to the next option."""
    values, is_open = [], False
    for argument in argv:
        option, equals, value = argument.partition("=")
        if argument.startswith("-"):
            is_open = option in names and not equals
            values += [value] if option in names and equals else []
        elif is_open:
            values.append(argument)
    return values


def profile_of(argv: Sequence[str]) -> str:
    """The profile that the arguments or the environment name; empty where they name none."""
    return next(iter(option_values(argv, "--profile")), os.environ.get("SNAKEMAKE_PROFILE", ""))


def refuse_dotted_settings(argv: Sequence[str]) -> None:
    """Raise UsageError for `--config train.epochs=1`, which Snakemake refuses with a traceback."""
    for entry in option_values(argv, "--config", "-C"):
        key, _, value = entry.partition("=")
        section, dot, name = key.partition(".")
        if dot:
            raise UsageError(f"--config {entry}: write --config {section}='{{{name}: {value}}}', or edit the config")
        if not re.fullmatch(r"[a-zA-Z_]\w+=.*", entry, re.DOTALL):
            raise UsageError(f"--config {entry}: write SECTION='{{NAME: VALUE}}', such as train='{{epochs: 5}}'")


def failed_jobs(log: str) -> Iterator[str]:
    """A sentence for each job in Snakemake's log that failed and did not succeed later: of its last attempt that ran.

    Slurm may refuse the attempts behind it, which request more. Its events are not available here either (dryrun.py).
    """
    finished = set(re.findall(r"^Finished jobid: (\d+)", log, re.MULTILINE))
    all_failures = list(FAILED.finditer(log))
    starts = [*(failure.start() for failure in all_failures), len(log)]
    # Where Snakemake stopped before a job did, there is none.
    attempts: dict[str, list[tuple[re.Match[str], str]]] = {}
    for failure, (start, end) in zip(all_failures, pairwise(starts), strict=True):
        attempts.setdefault(failure[3], []).append((failure, log[start:end]))
    for job, of_job in attempts.items():
        if job not in finished:
            ran = [attempt for attempt in of_job if not REFUSED.search(attempt[0][2])]
            failure, block = (ran or of_job)[-1]
            yield f"rule {failure[1]}: {_reason(failure[2], block)}"


def _reason(message: str, block: str) -> str:
    if refused := REFUSED.search(message):
        return _refusal(refused[1])
    ended = re.search(r"job '(\w+)' failed.*?status is: '(\w+)'", message, re.DOTALL)
    if ended and ended[2] in STATES:
        return f"its job {ended[1]} {STATES[ended[2]]}"
    # The first error of the job's own log, which is printed below the message, is the cause of the others.
    return error_in(block) or f"{' '.join(message.split())}; the log above says more"


def _refusal(output: str) -> str:
    lines = [line.removeprefix("sbatch: error: ").strip() for line in output.splitlines() if line.strip()]
    reason = lines[-1].removeprefix("Batch job submission failed: ") if lines else "no reason given"
    remedies = (remedy for pattern, remedy in REFUSALS.items() if re.search(pattern, output))
    remedy = next(remedies, "contact your cluster's support")
    return f"Slurm refused its job: {reason}; {remedy}"
