"""A job that somebody cancelled is not begun again behind their back."""

import os
import subprocess

from eopipe.errors import PreemptedError

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
