"""`eopipe run` on a cluster: it refuses requests that the cluster cannot satisfy, and explains why jobs failed."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from eopipe.clusters.executor_patches import refuse_missing_which
from eopipe.clusters.filesystems import mount_of, mounts
from eopipe.clusters.profile_command import find_profile, read_profile, site_conflicts
from eopipe.clusters.slurm import query_site
from eopipe.config import load
from eopipe.errors import UsageError
from eopipe.run import project
from eopipe.run.job_logs import error_in
from eopipe.run.locate import find_config, project_folder
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
usage: eopipe run [CONFIG] [OPTION ...] [TARGET ...]

Run the whole pipeline with Snakemake, or resume it: with CONFIG, a YAML file, or with config.yaml of this folder, in a
checkout with config/config.yaml. Paths in the config, and targets, are relative to the folder of the config (for one in
a folder `config`, to the folder above it). A lock allows one run at a time in a folder.

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
    argv = name_config(argv)
    folder, config = locate(argv)
    name, options = profile_of(argv), {argument.partition("=")[0] for argument in argv}
    if not name and not options & (HARMLESS | OWN_OUTPUT) and not any(re.match(r"-\w*[np]", word) for word in options):
        config += OUTPUT
    arguments = [*config, *argv]
    profile = read_profile(find_profile(name).file) if name and not HARMLESS & options else {}
    mount = mount_of(folder, mounts())
    locks = bool(mount and mount.locks_are_global)
    is_slurm = profile.get("executor") == "slurm"
    if is_slurm and (sentences := [*site_conflicts(profile, query_site())]):
        raise UsageError(f"{'; '.join(sentences)} (nothing was submitted)")
    before = set((folder / LOGS).glob("*.snakemake.log"))
    code = project.run(arguments, folder, locks_are_global=locks)
    if code and is_slurm:
        new = sorted(set((folder / LOGS).glob("*.snakemake.log")) - before)
        for sentence in failed_jobs("".join(file.read_text(errors="replace") for file in new)):
            print(message_line("error", sentence), file=sys.stderr)
    return code or (0 if options & NO_RUN else conclude(arguments, folder))


def conclude(argv: Sequence[str], folder: Path) -> int:
    """Name the report of a whole run, or warn where results were removed or changed their size; returns 0.

    Snakemake asks only for what the next job needs. Sizes alone are compared, so this takes a moment.
    """
    from eopipe.verify import missing_or_shortened

    names = option_values(argv, "--configfile", "--configfiles")
    try:
        results = folder / load(Path(names[0]) if names else find_config(folder))["results"]
    except UsageError:
        # A Snakefile of the user's own may have no config, or one elsewhere.
        return 0
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
    return 0


def is_partial(argv: Sequence[str]) -> bool:
    """Whether the arguments run nothing, or have words that may be targets: not the values of a common option."""
    values = option_values(argv, "--configfile", "--cores", "-c", "--jobs", "-j", "--profile", "--logger")
    options = {word.partition("=")[0] for word in argv if word.startswith("-")}
    is_dry = bool(options & HARMLESS) or any(re.match(r"-\w*n", word) for word in options)
    return is_dry or "--" in argv or any(not word.startswith("-") and word not in values for word in argv)


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
