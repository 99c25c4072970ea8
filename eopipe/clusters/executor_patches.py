"""Internals of Snakemake and of its Slurm executor plugin that eopipe replaces or uses.

| internal | use | why | versions |
|---|---|---|---|
| `snakemake_executor_plugin_slurm.query_job_status` | replaced: repeats the query until Slurm answers | after five \
queries without an answer the executor drops its jobs and waits forever | 2.8.0 |
| `snakemake_executor_plugin_slurm.get_min_job_age` | replaced: keeps the last known answer | without one the executor \
queries accounting, which may not exist | 2.8.0 |
| `ExecutorSettings.array_jobs` of the plugin | read | array jobs need all ready jobs of a rule at once \
(issue 473); their tasks have the CPUs of the first | 2.8.0 |
| name and comment of a submitted job | read from squeue | the executor submits a cancelled job again | 2.8.0 |
| `--attempt` of a job's own Snakemake | read from `/proc` | only a repeated job asks Slurm whether an earlier one was \
cancelled | 9.18.1 to 9.27.1 |
| handler of SIGTERM that `JobScheduler` installs | called once, in a thread | it takes locks that the interrupted \
thread may hold: a second SIGTERM, as from a group and its leader, stopped it for ever | 9.18.1 to 9.27.1 |
| `snakemake_executor_plugin_slurm` calls `which` when it is imported, which Snakemake does in every run | checked \
| without the program it ends with a traceback | 2.8.0 |
| `Workflow.configfiles` | read | the demo's config is only for runs without another | 9.18.1 to 9.27.1 |
| `Workflow.current_basedir`, `.sourcecache.open` | used | the folder of the rules, which a project may include \
or use from a repository | 9.18.1 to 9.27.1 |
| `Workflow.dag.needrun_jobs` | called | what a job cannot write is said before the first one \
| 9.18.1 to 9.27.1 |
| `Workflow._onstart`, `._onsuccess` | replaced: call eopipe's handler too | handlers of a module are ignored \
| 9.18.1 to 9.27.1 |
| `Workflow.executor_settings`, `.resource_settings.nodes`, `.scheduling_settings.max_jobs_per_timespan` | read \
| limits that would split array jobs | 9.18.1 to 9.27.1 |
| `Workflow.resource_settings._parsed_overwrite_resources`, `._parsed_overwrite_threads` | extended | what a profile \
requests for a stage holds for its folds | 9.18.1 to 9.27.1 |
| `snakemake.cli.get_profile_dir`, `snakemake.common.get_appdirs` | called | which file a profile's name means \
| 9.18.1 to 9.27.1 |

An internal that is missing is reported in one sentence with the versions that eopipe was tested with: one of Snakemake
as an error, one of the plugin as a warning, with which the executor is used as it is. Every job imports this module, so
it imports nothing heavy.
"""

import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from eopipe.clusters.slurm import query
from eopipe.errors import PreemptedError, UpstreamError, UsageError, as_workflow_errors
from eopipe.processes import parent_commands

PLUGIN, PACKAGE = "snakemake_executor_plugin_slurm", "snakemake-executor-plugin-slurm"
TESTED = {"snakemake": "9.18 to 9.27", PACKAGE: "2.8"}
# Seconds between two queries of a Slurm that does not answer.
RETRY_INTERVAL_S = 10.0
SQUEUE_TIMEOUT_S = 20
# The same signal within these seconds was sent once, by two ways.
REPEATED_WITHIN_S = 5.0
# More jobs than any project has ready at a time.
UNLIMITED_JOBS = 10000
# The rules of a checkout that a run needs and its crate contains.
RULES = (
    *("areas", "chips", "common", "crate", "finished", "folds"),
    *("labels", "maps", "model", "repeated", "scenes", "tiles"),
)
WORKFLOW_FILES = (
    *("Snakefile", "constraints.txt", "workflow/Snakefile", "workflow/envs/eopipe.yaml"),
    *(f"workflow/rules/{name}.smk" for name in RULES),
)
Status = tuple[dict[str, str] | None, float | None]


def internal(owner: Any, path: str, package: str) -> Any:
    """An attribute of a package's internals, by its dotted path. Raises UsageError where this version has none."""
    from importlib.metadata import version

    value = owner
    for name in path.split("."):
        if not hasattr(value, name):
            raise UsageError(
                f"{package} {version(package)} has no {path}; eopipe was tested with {package} {TESTED[package]}"
            )
        value = getattr(value, name)
    return value


def _of_workflow(workflow: Any, path: str) -> Any:
    """An attribute of a workflow. Raises Snakemake's WorkflowError."""
    with as_workflow_errors():
        return internal(workflow, path, "snakemake")


def refuse_missing_which() -> None:
    """Raise UsageError where Snakemake would fail for the program `which`, since it loads the Slurm executor."""
    if find_spec(PLUGIN) and not shutil.which("which"):
        raise UsageError(
            "the program which is not in the PATH, and Snakemake's Slurm executor needs it; install the package which "
            "(in Debian debianutils), or remove snakemake-executor-plugin-slurm"
        )


def config_files(workflow: Any) -> list[str]:
    """The config files of a run so far: first from the command line, then those that a Snakefile names."""
    return [str(path) for path in _of_workflow(workflow, "configfiles")]


def share_requests(workflow: Any, rules: dict[str, str]) -> None:
    """Request for each rule what a profile (set-resources, set-threads) requests for another, if not for itself."""
    for setting in ("_parsed_overwrite_resources", "_parsed_overwrite_threads"):
        requested = _of_workflow(workflow, f"resource_settings.{setting}")
        requested |= {name: requested[like] for name, like in rules.items() if like in requested} | dict(requested)


def has_job_arrays(workflow: Any) -> bool:
    """Whether jobs are submitted as arrays; during a run, for earlier the executor has no settings."""
    return bool(getattr(_of_workflow(workflow, "executor_settings"), "array_jobs", None))


def workflow_folder(workflow: Any, copies: Path = Path(".snakemake/eopipe")) -> Path:
    """The folder above `workflow/rules`, from the file of rules that is being read.

    Rules of a remote module (`github(...)`, `git+file:`) are in a repository: its files are copied into `copies`.
    """
    from eopipe.publish import publish

    rules = _of_workflow(workflow, "current_basedir")
    if isinstance(rules, os.PathLike):
        return Path(rules).parents[1]
    read = _of_workflow(workflow, "sourcecache.open")
    texts = {}
    for name in WORKFLOW_FILES:
        with read(rules.join(f"../../{name}")) as file:
            # Snakemake reads a file of a repository without its last line end.
            texts[name] = f"{file.read().rstrip()}\n"
    folder = copies / sha256("".join(texts.values()).encode()).hexdigest()[:16]
    for name, text in texts.items():
        if not (folder / name).is_file():
            # Other processes may write it at the same time, with the same text.
            with publish(folder / name) as draft:
                draft.write_text(text, encoding="utf-8")
    return folder


def begin_run(workflow: Any, config: dict[str, Any]) -> None:
    """What Snakemake does before its first job."""
    from eopipe.chips.import_set import hold_chip_set
    from eopipe.run.locate import imports_chips
    from eopipe.run.project import claim_results, hold_lock, refuse_unwritable, reset_future_times

    with as_workflow_errors():
        hold_lock(Path(config["results"]))
        for file in config_files(workflow)[:1]:
            claim_results(Path(config["results"]), os.path.relpath(file))
        # The lock of what the run packs itself is for that job first.
        if config["chip_set"] and not imports_chips(config):
            hold_chip_set(Path(config["chip_set"]))
        # Whole folders; of scenes and their stores there may be many thousand.
        jobs = [job for job in _of_workflow(workflow, "dag.needrun_jobs")() if not job.wildcards]
        refuse_unwritable(sorted(Path(file) for job in jobs for file in job.output))
    survive_repeated_signals()
    prepare_executor(workflow)
    print(reset_future_times(config), end="")


def add_handlers(workflow: Any, start: Callable[[], Any], success: Callable[[], Any]) -> None:
    """Call `start` when jobs start and `success` after the last one, also where the workflow is used as a module.

    Handlers that the using workflow has are called before. A module that is read again adds none.
    """
    for attribute, action in (("_onstart", start), ("_onsuccess", success)):
        earlier = _of_workflow(workflow, attribute)
        if not isinstance(earlier, _Handler):
            setattr(workflow, attribute, _Handler(earlier, action))


@dataclass(frozen=True)
class _Handler:
    """A handler that a workflow had before, followed by eopipe's."""

    earlier: Callable[[Any], Any]
    action: Callable[[], Any]

    def __call__(self, log: Any) -> None:
        self.earlier(log)
        self.action()


def profile_folders() -> tuple[Path, Path]:
    """The folder of the user's own profiles, and that of all users of a machine."""
    refuse_missing_which()
    from snakemake import common

    folders = internal(common, "get_appdirs", "snakemake")()
    return Path(folders.user_config_dir), Path(folders.site_config_dir)


def profile_file(path: Path) -> Path | None:
    """The file of a profile, by Snakemake's own rule, since it knows the versions in file names; None without one."""
    from snakemake import cli

    if path.is_file():
        return path
    candidate = internal(cli, "get_profile_dir", "snakemake")(str(path)) if path.is_dir() else None
    return candidate[1] if candidate else None


def survive_repeated_signals() -> None:
    """Let Snakemake count a signal that reaches it twice as one: a scheduler signals a process group and its leader."""
    if threading.current_thread() is not threading.main_thread():
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    received: dict[int, float] = {}

    def on_signal(number: int, frame: FrameType | None) -> None:
        previous, received[number] = received.get(number), time.monotonic()
        handler = handlers[signal.Signals(number)]
        if not callable(handler) or (previous is not None and received[number] - previous <= REPEATED_WITHIN_S):
            return
        if number == signal.SIGTERM:
            threading.Thread(target=handler, args=(number, None)).start()
        else:
            handler(number, frame)

    for number in (number for number, handler in handlers.items() if callable(handler)):
        signal.signal(number, on_signal)


def prepare_executor(workflow: Any) -> None:
    """Let the Slurm executor wait for Slurm, and refuse a run that would lose jobs.

    Raises Snakemake's WorkflowError.
    """
    settings, settings_class = _of_workflow(workflow, "executor_settings"), None
    if (plugin := sys.modules.get(PLUGIN)) is None:
        return
    with _or_warning():
        settings_class = internal(plugin, "ExecutorSettings", PACKAGE)
    if not settings_class or not isinstance(settings, settings_class):
        return
    with _or_warning():
        patch_plugin(plugin)
    rate = _of_workflow(workflow, "scheduling_settings.max_jobs_per_timespan")
    profile = {
        "jobs": _of_workflow(workflow, "resource_settings.nodes"),
        "max-jobs-per-timespan": f"{rate.max_jobs}/1s" if rate else "",
    }
    with _or_warning():
        profile["slurm-array-jobs"] = internal(settings, "array_jobs", PACKAGE)
    if sentence := lost_jobs(profile):
        with as_workflow_errors():
            raise UsageError(sentence)


@contextmanager
def _or_warning() -> Iterator[None]:
    """Warn where this version of the plugin has no such internal."""
    from snakemake.logging import logger

    try:
        yield
    except UsageError as error:
        logger.warning(f"{error}. The executor is used as it is: while Slurm does not answer, it may lose jobs.")


def lost_jobs(profile: dict[str, Any]) -> str | None:
    """Why jobs of a profile would never be submitted, in one sentence; None where all would.

    The executor waits until all ready jobs of a rule are given to it, and forgets those that it was given before
    (snakemake-executor-plugin-slurm, issue 473): a run over more scenes than `jobs` would wait forever.
    """
    jobs, rate = profile.get("jobs"), str(profile.get("max-jobs-per-timespan", "100/1s"))
    count = rate.partition("/")[0]
    limits = [f"jobs: {jobs}"] if isinstance(jobs, int) and jobs < UNLIMITED_JOBS else []
    limits += [f"max-jobs-per-timespan: {rate}"] if count.isdigit() and int(count) < UNLIMITED_JOBS else []
    if not profile.get("slurm-array-jobs") or not limits:
        return None
    return (
        f"{' and '.join(limits)} with slurm-array-jobs leaves scenes waiting forever; allow {UNLIMITED_JOBS}, or run "
        "without job arrays (--slurm-array-jobs '')"
    )


def patch_plugin(plugin: Any) -> None:
    """Replace the queries of the Slurm executor plugin, once. Raises UsageError where this version has others."""
    query, min_job_age = (internal(plugin, name, PACKAGE) for name in ("query_job_status", "get_min_job_age"))
    if query.__module__ != __name__:
        plugin.query_job_status = repeat_until_answered(query)
        plugin.get_min_job_age = keep_last_answer(min_job_age)


def repeat_until_answered(query: Callable[..., Awaitable[Status]]) -> Callable[..., Awaitable[Status]]:
    """The same query, repeated until there is an answer."""

    async def repeated(command: str, logger: Any) -> Status:
        from asyncio import sleep

        answer, warned = await query(command, logger), False
        while answer[0] is None:
            if not warned:
                logger.warning("Slurm does not answer; jobs continue, and the query is repeated until it does.")
            warned = True
            await sleep(RETRY_INTERVAL_S)
            answer = await query(command, logger)
        return answer

    return repeated


def keep_last_answer(query: Callable[[], int | None]) -> Callable[[], int | None]:
    """The same query, with the last known answer where there is none now."""
    last: list[int] = []

    def answered() -> int | None:
        answer = query()
        last[:] = last if answer is None else [answer]
        return last[0] if last else None

    return answered


def refuse_cancelled() -> None:
    """Raise PreemptedError where this Slurm job repeats one of the same run that was cancelled.

    Snakemake's executor takes a cancelled job for a failed one and submits it again. Jobs of one run have one name,
    and jobs of one rule and its wildcards one comment; all tasks of an array have the first task's, so they do not
    count among each other. A later run, with another name, starts the job. A first attempt asks Slurm nothing.
    """
    job_id = os.environ.get("SLURM_JOB_ID")
    if not job_id or snakemake_attempt() == 1:
        return
    this_job = next((job for job in _squeue(f"--jobs={job_id}", "--states=all") if job[0] == job_id), None)
    if not this_job or this_job[4] == "(null)":
        return
    _, array, _, name, comment = this_job
    jobs = _squeue(f"--user={os.geteuid()}", f"--name={name}", "--states=CANCELLED")
    cancelled = [number for number, other, *end in jobs if end == ["CANCELLED", name, comment] and other != array]
    if cancelled:
        raise PreemptedError(
            f"job {cancelled[-1]} was cancelled, so this run does not start it again; run the same command to resume"
        )


def snakemake_attempt() -> int | None:
    """The attempt of this job, from the command line of the Snakemake that started it; None where there is none."""
    for words in parent_commands():
        value = words[words.index("--attempt") + 1] if "--attempt" in words[:-1] else ""
        if value.isdecimal():
            return int(value)
    return None


def _squeue(*which: str) -> list[list[str]]:
    """Number, array, state, name and comment of some jobs, by one query; none where squeue does not answer."""
    try:
        text = query("squeue", "--noheader", *which, "--format=%A|%F|%T|%j|%k", timeout_s=SQUEUE_TIMEOUT_S)
    except (OSError, UsageError, UpstreamError):
        return []
    return [row for line in text.splitlines() if len(row := line.strip().split("|", 4)) == 5]
