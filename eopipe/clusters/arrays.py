"""Array jobs of Snakemake's Slurm executor, which must never be offered a part of the jobs that are ready."""

from typing import Any

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
