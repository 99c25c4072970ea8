"""A Slurm that does not answer for a while must not stop a run that watches it."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from eopipe.errors import PreemptedError

AGAIN_S = 10.0
Status = tuple[dict[str, str] | None, float | None]
PLUGIN = "snakemake_executor_plugin_slurm"


def be_patient() -> None:
    """Let Snakemake's executor ask until it is answered.

    By itself (2.8.0) it forgets its jobs after five questions in a row without an answer, and waits for ever for none;
    where it cannot learn how long jobs are remembered, it also turns to accounts that may not be kept.
    """
    plugin: Any = sys.modules.get(PLUGIN)
    if plugin and plugin.query_job_status.__module__ != __name__:
        plugin.query_job_status = patient(plugin.query_job_status)
        plugin.get_min_job_age = remembering(plugin.get_min_job_age)


def patient(ask: Callable[..., Awaitable[Status]]) -> Callable[..., Awaitable[Status]]:
    """The same question, repeated until there is an answer."""

    async def asked(command: str, logger: Any) -> Status:
        answer, silent = await ask(command, logger), False
        while answer[0] is None:
            if not silent:
                logger.warning("Slurm does not answer; jobs go on, and it is asked again until it does.")
            silent = True
            await asyncio.sleep(AGAIN_S)
            answer = await ask(command, logger)
        return answer

    return asked


def remembering(ask: Callable[[], int | None]) -> Callable[[], int | None]:
    """The newest answer that there was."""
    known: list[int] = []

    def asked() -> int | None:
        now = ask()
        known[:] = known if now is None else [now]
        return known[0] if known else None

    return asked


# More jobs than any project has ready at a time.
MANY = 10000


def lost_jobs(told: dict[str, Any]) -> str | None:
    """Why jobs of a profile would never be submitted, in one sentence.

    The executor waits until all ready jobs of a rule are given to it, and forgets those that it was given before
    (snakemake-executor-plugin-slurm, issue 473): a run over more scenes than `jobs` would wait for ever.
    """
    jobs, rate = told.get("jobs"), str(told.get("max-jobs-per-timespan", "100/1s"))
    count = rate.partition("/")[0]
    wrong = [f"jobs: {jobs}"] if isinstance(jobs, int) and jobs < MANY else []
    wrong += [f"max-jobs-per-timespan: {rate}"] if count.isdigit() and int(count) < MANY else []
    if not told.get("slurm-array-jobs") or not wrong:
        return None
    return (
        f"{' and '.join(wrong)} with slurm-array-jobs leaves scenes waiting for ever; allow {MANY}, or take arrays "
        "away (--slurm-array-jobs '')"
    )


def refuse_lost_jobs(workflow: Any) -> None:
    """Raise Snakemake's WorkflowError where a run that starts would leave jobs behind."""
    from snakemake.exceptions import WorkflowError

    rate = workflow.scheduling_settings.max_jobs_per_timespan
    told = {
        "jobs": workflow.resource_settings.nodes,
        "max-jobs-per-timespan": f"{rate.max_jobs}/1s" if rate else "",
        "slurm-array-jobs": getattr(workflow.executor_settings, "array_jobs", None),
    }
    if wrong := lost_jobs(told):
        raise WorkflowError(wrong)


PATIENCE_S = 20


def refuse_cancelled() -> None:
    """Raise PreemptedError where this job of Slurm stands for one of the same run that was cancelled.

    Snakemake's executor takes a cancelled job for a failed one and submits it again. Jobs of one run have one name,
    and those of one rule and its wildcards one comment; all of an array have that of its first, so they tell nothing
    about each other. A later run, with another name, goes on as ever.
    """
    job = os.environ.get("SLURM_JOB_ID")
    told = _jobs() if job else []
    mine = next((one for one in told if one[0] == job), None)
    if not mine or mine[4] == "(null)":
        return
    _, array, _, name, comment = mine
    gone = [n for n, other, *end in told if end == ["CANCELLED", name, comment] and other != array]
    if gone:
        raise PreemptedError(
            f"job {gone[-1]} was cancelled, so this run does not begin it again; run the same command again to go on"
        )


def _jobs() -> list[list[str]]:
    """Number, array, state, name and comment of the user's jobs, by one question; none where squeue does not answer."""
    line = ["squeue", "--noheader", f"--user={os.geteuid()}", "--states=all", "--format=%A|%F|%T|%j|%k"]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [row for line in done.stdout.splitlines() if len(row := line.strip().split("|", 4)) == 5]
