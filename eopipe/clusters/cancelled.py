"""A job that somebody cancelled is not begun again behind their back."""

import os
import subprocess

from eopipe.errors import PreemptedError

PATIENCE_S = 20


def refuse_cancelled() -> None:
    """Raise PreemptedError where this job of Slurm stands for one of the same run that was cancelled.

    Snakemake's executor takes a cancelled job for a failed one and submits it again. Jobs of one run have one name,
    and those of one rule and its wildcards one comment. A later run, with another name, goes on as ever.
    """
    job = os.environ.get("SLURM_JOB_ID")
    mine = _ask("--jobs", job, "--format=%j|%k") if job else []
    if not job or not mine or mine[0].endswith("|(null)"):
        return
    name, _, comment = mine[0].partition("|")
    before = _ask("--name", name, "--states=CANCELLED", "--format=%A|%k")
    gone = [line.partition("|")[0] for line in before if line.partition("|")[2] == comment]
    if gone:
        raise PreemptedError(
            f"job {gone[-1]} was cancelled, so this run does not begin it again; run the same command again to go on"
        )


def _ask(*words: str) -> list[str]:
    """Lines of squeue; none where it does not answer, since a job should not fail for that."""
    line = ["squeue", "--noheader", *words]
    try:
        done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]
