"""What Slurm's accounting knows of jobs."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from eopipe.clusters.usage_jobs import Asked, Job

PATIENCE_S = 60
# A command line has its limits.
AT_ONCE = 500
FIELDS = (
    *("JobIDRaw", "ElapsedRaw", "TotalCPU", "MaxRSS", "ReqMem"),
    *("AllocCPUS", "AllocNodes", "TimelimitRaw", "AllocTRES", "TRESUsageInMax"),
)
# Slurm's M, and Snakemake's MB, are 2**20 bytes.
MB = {"": 2**-20, "K": 2**-10, "M": 1.0, "G": 2.0**10, "T": 2.0**20}


@dataclass(frozen=True)
class Account:
    """What a job asked for and used, on the node that used most; None is what Slurm did not tell."""

    seconds: float
    memory_mb: float | None
    cpu_s: float
    gpu_mb: float | None
    asked: Asked


def with_accounts(jobs: Sequence[Job]) -> tuple[list[Job], str]:
    """The jobs with what Slurm knows of them, and a sentence on how much that is."""
    ids = sorted({job.slurm for job in jobs if job.slurm}, key=int)
    if not ids:
        return list(jobs), "no job ran in Slurm: measured by Snakemake and eopipe alone"
    try:
        known = {job: told for job, told in _accounts(ids) if job in ids}
    except (OSError, subprocess.SubprocessError):
        return list(jobs), "Slurm keeps no accounts here: measured by Snakemake and eopipe alone"
    told = f"{len(known)} of {len(ids)} jobs of Slurm are in its accounts"
    return [_joined(job, known[job.slurm]) if job.slurm in known else job for job in jobs], told


def _accounts(ids: Sequence[str]) -> Iterator[tuple[str, Account]]:
    if not shutil.which("sacct"):
        raise FileNotFoundError("sacct")
    for start in range(0, len(ids), AT_ONCE):
        named = f"--jobs={','.join(ids[start : start + AT_ONCE])}"
        line = ["sacct", "--parsable2", "--noheader", named, f"--format={','.join(FIELDS)}"]
        told = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
        yield from accounts(told)


def accounts(told: str) -> Iterator[tuple[str, Account]]:
    """Read the lines of sacct: a job, then its steps."""
    jobs: dict[str, list[dict[str, str]]] = {}
    for line in told.splitlines():
        row = dict(zip(FIELDS, line.split("|"), strict=True))
        jobs.setdefault(row["JobIDRaw"].partition(".")[0], []).append(row)
    for job, rows in jobs.items():
        memory = [size for row in rows if (size := megabytes(row["MaxRSS"])) is not None]
        gpu = [size for row in rows if (size := megabytes(_among(row["TRESUsageInMax"], "gres/gpumem"))) is not None]
        seconds, cpu = float(rows[0]["ElapsedRaw"] or 0), seconds_of(rows[0]["TotalCPU"])
        yield job, Account(seconds, max(memory, default=None), cpu, max(gpu, default=None), _asked(rows[0]))


def _asked(row: dict[str, str]) -> Asked:
    nodes = max(1, int(row["AllocNodes"] or 1))
    cpus = int(row["AllocCPUS"] or 0) // nodes or None
    # Before 21.08 Slurm said whether it means each CPU or each node; since then it means all nodes together.
    each = {"c": cpus or 1, "n": 1}.get(row["ReqMem"][-1:], 1 / nodes)
    memory = (megabytes(row["ReqMem"].rstrip("cn")) or 0) * each or None
    limit = row["TimelimitRaw"]
    count = int(_among(row["AllocTRES"], "gres/gpu") or 0) // nodes
    return Asked(memory, float(limit) if limit.isdigit() else None, cpus, count, nodes)


def _joined(job: Job, told: Account) -> Job:
    """A job with what Slurm saw too: the larger figure of both, since each may have missed a peak."""
    asked = job.asked if job.asked.memory_mb is not None else told.asked
    memory = [size for size in (job.memory_mb, told.memory_mb) if size is not None]
    gpu = told.gpu_mb if told.gpu_mb is not None else job.gpu_mb
    return replace(
        job,
        seconds=max(job.seconds, told.seconds),
        memory_mb=max(memory, default=None),
        cpu_s=max(job.cpu_s or 0, told.cpu_s),
        gpu_mb=gpu,
        asked=asked,
    )


def megabytes(text: str) -> float | None:
    """Slurm's size, as 114532K, in MB."""
    found = re.fullmatch(r"([\d.]+)([KMGT]?)", text)
    return float(found[1]) * MB[found[2]] if found else None


def seconds_of(text: str) -> float:
    """Slurm's `[days-][hours:]minutes:seconds` in seconds."""
    days, _, rest = text.rpartition("-")
    seconds = 0.0
    for part in rest.split(":"):
        seconds = 60 * seconds + float(part or 0)
    return int(days or 0) * 86400 + seconds


def _among(text: str, name: str) -> str:
    """The value of a name in Slurm's list `cpu=4,mem=8G`."""
    return dict(pair.partition("=")[::2] for pair in text.split(",")).get(name, "")
