"""`eopipe usage`: resources that the jobs of a run requested and used, as a table.

The figures come from Snakemake's benchmarks, eopipe's run records and, where Slurm has it, job accounting.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from eopipe.clusters.slurm import parse_gpus, query, seconds_of
from eopipe.contract import Argument
from eopipe.errors import UpstreamError, UsageError
from eopipe.publish import RECORD
from eopipe.text_table import format_table

BENCHMARKS = "benchmarks"
SACCT_TIMEOUT_S = 60
# Job ids in one command line of sacct.
JOBS_PER_CALL = 500
SACCT_FIELDS = ("JobIDRaw", "ElapsedRaw", "TotalCPU", "MaxRSS", "TRESUsageInMax")
# Slurm's M, and Snakemake's MB, are 2**20 bytes.
MB_PER_UNIT = {"": 2**-20, "K": 2**-10, "M": 1.0, "G": 2.0**10, "T": 2.0**20}
HEADER = (
    *("rule", "jobs", "MB requested", "used", "", "minutes requested", "used", ""),
    *("CPUs requested", "busy", "", "GPUs requested", "MB used"),
)
UNKNOWN = "-"


@dataclass(frozen=True)
class Requested:
    """What a job requested on each of its nodes; None is not known."""

    memory_mb: float | None = None
    minutes: float | None = None
    cpus: int | None = None
    gpus: int | None = None
    nodes: int = 1


@dataclass(frozen=True)
class JobUsage:
    """The last attempt of a job that succeeded: what it requested, and its peaks; None is not known.

    What Slurm measured of it, on the node with the largest use, has no rule.
    """

    rule: str
    seconds: float
    memory_mb: float | None
    cpu_s: float | None
    requested: Requested
    slurm_job: str = ""
    gpu_mb: float | None = None


def usage(results: Annotated[Path, Argument("results folder of the run", positional=True)] = Path("results")) -> None:
    """Show the memory, time, CPUs and GPUs that the jobs of each rule requested and used."""
    jobs, accounting = with_accounting(read_jobs(results))
    print("\n".join([*table(jobs), "", *notes(jobs, accounting)]))


def read_jobs(results: Path) -> list[JobUsage]:
    """Every job that wrote a benchmark in the results; raises UsageError where none did."""
    files = sorted((results / BENCHMARKS).rglob("*.tsv"))
    records = _records(results)
    jobs = [job for file in files if (job := _job(file, results, records))]
    if not jobs:
        raise UsageError(
            f"there is no benchmark of a job in {results / BENCHMARKS}; run the pipeline through Snakemake first"
        )
    return jobs


def _job(file: Path, results: Path, records: dict[str, list[tuple[Path, dict[str, Any]]]]) -> JobUsage | None:
    lines = [line.split("\t") for line in file.read_text().splitlines()]
    if len(lines) < 2 or len(lines[-1]) != len(lines[0]):
        return None
    benchmark = dict(zip(lines[0], lines[-1], strict=True))
    rule, *parts = file.relative_to(results / BENCHMARKS).with_suffix("").parts
    requested, record = _requested(benchmark), _record("/".join(parts), records.get(rule, []))
    measured, one_node = record.get("usage", {}), requested.nodes == 1
    return JobUsage(
        rule,
        float(benchmark["s"]),
        # On many nodes both see only the command that starts the job steps.
        _maximum(benchmark["max_rss"], measured.get("max_rss_mb")) if one_node else None,
        _maximum(benchmark["cpu_time"], measured.get("cpu_s")) if one_node else None,
        requested,
        _slurm_job(record),
        _gpu_memory(results / "logs" / file.relative_to(results / BENCHMARKS).with_suffix(".log")),
    )


def _requested(benchmark: dict[str, str]) -> Requested:
    """What Snakemake's extended benchmarks say of a job; nothing for its ordinary ones."""
    if "resources" not in benchmark:
        return Requested()
    resources = _literal(benchmark["resources"])
    gpus = int(resources.get("gpu", 0)) or sum(count for _, count in parse_gpus(str(resources.get("gres", ""))))
    cpus = int(resources.get("cpus_per_task") or benchmark["threads"])
    return Requested(resources.get("mem_mb"), resources.get("runtime"), cpus, gpus, int(resources.get("nodes", 1)))


def _literal(text: str) -> dict[str, Any]:
    """A dictionary that Snakemake wrote as a Python literal; empty for anything else."""
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _maximum(*measurements: object) -> float | None:
    """The larger of two measurements; Snakemake writes NA for a job that ended before it looked."""
    return max((float(str(value)) for value in measurements if value not in (None, "NA", "-")), default=None)


def _records(results: Path) -> dict[str, list[tuple[Path, dict[str, Any]]]]:
    """Run records of jobs that succeeded, by stage."""
    by_stage: dict[str, list[tuple[Path, dict[str, Any]]]] = {}
    for path in sorted(results.rglob(f"*{RECORD}")):
        try:
            record = json.loads(path.read_text())
        except ValueError:
            continue
        if record.get("status") == "completed":
            by_stage.setdefault(record["stage"], []).append((path, record))
    return by_stage


def _record(name: str, records: list[tuple[Path, dict[str, Any]]]) -> dict[str, Any]:
    """The record of a job: the only one of its stage, or the one whose file or folder has its name."""
    if not name:
        return records[0][1] if len(records) == 1 else {}
    for path, record in records:
        output = path.name.removesuffix(RECORD)
        if name in (output, Path(output).stem, path.parent.name):
            return record
    return {}


def _slurm_job(record: dict[str, Any]) -> str:
    """The id of a Slurm job; empty for jobs of other schedulers."""
    scheduler, _, job = str(record.get("place", {}).get("job", "")).partition(":")
    return job if scheduler == "slurm" else ""


def _gpu_memory(log: Path) -> float | None:
    """The peak GPU memory that the log of a training gives."""
    if not log.is_file():
        return None
    peaks = re.findall(r"\bevent=device name=cuda memory_mb=(\d+)", log.read_text(errors="replace"), re.MULTILINE)
    return float(peaks[-1]) if peaks else None


def with_accounting(jobs: Sequence[JobUsage]) -> tuple[list[JobUsage], str]:
    """The jobs with what Slurm's accounting measured, and a sentence on how many of them it knows."""
    ids = sorted({job.slurm_job for job in jobs if job.slurm_job}, key=int)
    if not ids:
        return list(jobs), "no job ran in Slurm: measured by Snakemake and eopipe alone"
    try:
        accounts = {job: account for job, account in _sacct(ids) if job in ids}
    except (OSError, UsageError, UpstreamError):
        return list(jobs), "Slurm has no accounting here: measured by Snakemake and eopipe alone"
    merged = [_merged(job, accounts[job.slurm_job]) if job.slurm_job in accounts else job for job in jobs]
    return merged, f"{len(accounts)} of {len(ids)} Slurm jobs are in its accounting"


def _sacct(ids: Sequence[str]) -> Iterator[tuple[str, JobUsage]]:
    for start in range(0, len(ids), JOBS_PER_CALL):
        jobs = f"--jobs={','.join(ids[start : start + JOBS_PER_CALL])}"
        command = ("sacct", "--parsable2", "--noheader", jobs, f"--format={','.join(SACCT_FIELDS)}")
        yield from parse_sacct(query(*command, timeout_s=SACCT_TIMEOUT_S))


def parse_sacct(text: str) -> Iterator[tuple[str, JobUsage]]:
    """Read the lines of sacct: a job, then its steps."""
    jobs: dict[str, list[dict[str, str]]] = {}
    for line in text.splitlines():
        row = dict(zip(SACCT_FIELDS, line.split("|"), strict=True))
        jobs.setdefault(row["JobIDRaw"].partition(".")[0], []).append(row)
    for job, rows in jobs.items():
        memory = [size for row in rows if (size := megabytes(row["MaxRSS"])) is not None]
        # Such as `cpu=4,mem=8G,gres/gpumem=3000M`.
        used = [dict(pair.partition("=")[::2] for pair in row["TRESUsageInMax"].split(",")) for row in rows]
        gpu = [size for row in used if (size := megabytes(row.get("gres/gpumem", ""))) is not None]
        seconds, cpu = float(rows[0]["ElapsedRaw"] or 0), seconds_of(rows[0]["TotalCPU"])
        largest, largest_gpu = max(memory, default=None), max(gpu, default=None)
        yield job, JobUsage("", seconds, largest, cpu, Requested(), job, largest_gpu)


def _merged(job: JobUsage, account: JobUsage) -> JobUsage:
    """The larger figure of benchmark and accounting, since each may have missed a peak."""
    return replace(
        job,
        seconds=max(job.seconds, account.seconds),
        memory_mb=_maximum(job.memory_mb, account.memory_mb),
        cpu_s=_maximum(job.cpu_s, account.cpu_s),
        gpu_mb=account.gpu_mb if account.gpu_mb is not None else job.gpu_mb,
    )


def megabytes(text: str) -> float | None:
    """Slurm's size, as 114532K, in MB."""
    size = re.fullmatch(r"([\d.]+)([KMGT]?)", text)
    return float(size[1]) * MB_PER_UNIT[size[2]] if size else None


def table(jobs: Iterable[JobUsage]) -> list[str]:
    """Lines with a row for each rule; those that took the most time come first."""
    by_rule: dict[str, list[JobUsage]] = {}
    for job in jobs:
        by_rule.setdefault(job.rule, []).append(job)
    seconds = {rule: sum(job.seconds for job in group) for rule, group in by_rule.items()}
    rules = sorted(by_rule, key=lambda rule: (-seconds[rule], rule))
    return format_table([HEADER, *(_cells(rule, by_rule[rule]) for rule in rules)], left=(0,))


def _cells(rule: str, jobs: list[JobUsage]) -> Sequence[str]:
    """The largest request and the largest use of a rule's jobs, with the ratio; CPUs that are busy on average."""

    def largest(value_of: Callable[[JobUsage], float | None]) -> float | None:
        return max((value for job in jobs if (value := value_of(job)) is not None), default=None)

    measured = [job for job in jobs if job.cpu_s is not None]
    seconds = sum(job.seconds for job in measured)
    busy = sum(job.cpu_s or 0 for job in measured) / seconds if seconds else None
    return (
        rule,
        str(len(jobs)),
        *_pair(largest(lambda job: job.requested.memory_mb), largest(lambda job: job.memory_mb), "{:.0f}"),
        *_pair(largest(lambda job: job.requested.minutes), max(job.seconds for job in jobs) / 60, "{:.1f}"),
        *_pair(largest(lambda job: job.requested.cpus), busy, "{:.1f}"),
        _cell(largest(lambda job: job.requested.gpus), "{:.0f}"),
        _cell(largest(lambda job: job.gpu_mb), "{:.0f}"),
    )


def _pair(requested: float | None, used: float | None, form: str) -> Sequence[str]:
    efficiency = f"{used / requested:.0%}" if requested and used is not None else ""
    return _cell(requested, "{:.0f}"), _cell(used, form), efficiency


def _cell(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else form.format(value)


def notes(jobs: Sequence[JobUsage], accounting: str) -> list[str]:
    """What a reader must know of the figures, a sentence each."""
    sentences = [f"Each figure is the largest of one job, in its last attempt; {accounting}."]
    if any(job.requested.memory_mb is None for job in jobs):
        sentences.append("What jobs requested is only in benchmarks that Snakemake writes with --benchmark-extended.")
    unmeasured = sorted({job.rule for job in jobs if job.requested.nodes > 1 and job.memory_mb is None})
    if unmeasured:
        sentences.append(f"On many nodes memory and CPUs of {', '.join(unmeasured)} need Slurm's accounting.")
    return sentences
