"""What each job of a run asked for and used, from Snakemake's benchmarks and eopipe's run records."""

import argparse
import ast
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from eopipe.clusters.slurm import gpus
from eopipe.errors import UsageError
from eopipe.publish import publish
from eopipe.text_table import format_table

BENCHMARKS, RECORD = "benchmarks", ".run.json"


@dataclass(frozen=True)
class Asked:
    """What a job asked for, on each of its nodes; None is what nobody told."""

    memory_mb: float | None = None
    minutes: float | None = None
    cpus: int | None = None
    gpus: int | None = None
    nodes: int = 1


@dataclass(frozen=True)
class Job:
    """One job that ended well, the last of its attempts. `name` is empty for the only one of its rule."""

    rule: str
    name: str
    seconds: float
    memory_mb: float | None
    cpu_s: float | None
    asked: Asked
    inputs: tuple[str, ...] = ()
    slurm: str = ""
    gpu_mb: float | None = None


def read_jobs(results: Path) -> list[Job]:
    """Every job that left a benchmark in the results; raises UsageError where none did."""
    files = sorted((results / BENCHMARKS).rglob("*.tsv"))
    records = _records(results)
    jobs = [job for file in files if (job := _job(file, results, records))]
    if not jobs:
        raise UsageError(f"no job left a benchmark in {results / BENCHMARKS}; run the pipeline through Snakemake first")
    return jobs


def _job(file: Path, results: Path, records: dict[str, list[tuple[Path, dict[str, Any]]]]) -> Job | None:
    lines = [line.split("\t") for line in file.read_text().splitlines()]
    if len(lines) < 2 or len(lines[-1]) != len(lines[0]):
        return None
    told = dict(zip(lines[0], lines[-1], strict=True))
    rule, *rest = file.relative_to(results / BENCHMARKS).with_suffix("").parts
    name = "/".join(rest)
    asked, record = _asked(told), _record(name, records.get(rule, []))
    used, alone = record.get("usage", {}), asked.nodes == 1
    return Job(
        rule,
        name,
        float(told["s"]),
        # On many nodes both see only the command that starts the steps.
        _most(told["max_rss"], used.get("max_rss_mb")) if alone else None,
        _most(told["cpu_time"], used.get("cpu_s")) if alone else None,
        asked,
        tuple(_literal(told.get("input_size_mb", ""))),
        _slurm(record),
        _gpu_memory(results / "logs" / file.relative_to(results / BENCHMARKS).with_suffix(".log")),
    )


def _slurm(record: dict[str, Any]) -> str:
    """The number of a job in Slurm; empty for those of others."""
    scheduler, _, job = str(record.get("place", {}).get("job", "")).partition(":")
    return job if scheduler == "slurm" else ""


def _asked(told: dict[str, str]) -> Asked:
    """What Snakemake's longer benchmarks say of a job; nothing for its shorter ones."""
    if "resources" not in told:
        return Asked()
    given = _literal(told["resources"])
    count = int(given.get("gpu", 0)) or sum(many for _, many in gpus(str(given.get("gres", ""))))
    cpus = int(given.get("cpus_per_task") or told["threads"])
    return Asked(given.get("mem_mb"), given.get("runtime"), cpus, count, int(given.get("nodes", 1)))


def _literal(text: str) -> dict[str, Any]:
    """A dictionary that Snakemake wrote as Python does; empty for what is none."""
    try:
        value = ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _most(*told: object) -> float | None:
    """The larger of what two measured; Snakemake tells NA of a job that ended before it looked."""
    known = [float(str(value)) for value in told if value not in (None, "NA", "-")]
    return max(known, default=None)


def _records(results: Path) -> dict[str, list[tuple[Path, dict[str, Any]]]]:
    found: dict[str, list[tuple[Path, dict[str, Any]]]] = {}
    for path, record in _read(results):
        if record.get("status") == "completed":
            found.setdefault(record["stage"], []).append((path, record))
    return found


def _read(results: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in sorted(results.rglob(f"*{RECORD}")):
        try:
            yield path, json.loads(path.read_text())
        except ValueError:
            continue


def _record(name: str, records: list[tuple[Path, dict[str, Any]]]) -> dict[str, Any]:
    """The record of a job: the only one of its stage, or the one whose file or folder has its name."""
    if not name:
        return records[0][1] if len(records) == 1 else {}
    for path, record in records:
        made = path.name.removesuffix(RECORD)
        if name in (made, Path(made).stem, path.parent.name):
            return record
    return {}


def _gpu_memory(log: Path) -> float | None:
    """The most memory of a GPU that a training told of."""
    if not log.is_file():
        return None
    found = re.findall(r"^event=device name=cuda memory_mb=(\d+)", log.read_text(errors="replace"), re.MULTILINE)
    return float(found[-1]) if found else None


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
        yield job, Account(seconds, max(memory, default=None), cpu, max(gpu, default=None), _asked_of_account(rows[0]))


def _asked_of_account(row: dict[str, str]) -> Asked:
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


HEAD = (
    "rule",
    "jobs",
    "MB asked",
    "used",
    "",
    "minutes asked",
    "used",
    "",
    "CPUs asked",
    "busy",
    "GPUs asked",
    "MB used",
)
UNTOLD = "-"


@dataclass(frozen=True)
class Row:
    """A rule: what its jobs asked for at most, and used at most; `busy` are the CPUs that worked on the average."""

    rule: str
    jobs: int
    asked_mb: float | None
    used_mb: float | None
    asked_minutes: float | None
    used_minutes: float
    asked_cpus: float | None
    busy: float | None
    asked_gpus: float | None
    gpu_mb: float | None

    def cells(self) -> Sequence[str]:
        """It as words, with shares of what was asked."""
        return (
            self.rule,
            str(self.jobs),
            *_pair(self.asked_mb, self.used_mb, "{:.0f}"),
            *_pair(self.asked_minutes, self.used_minutes, "{:.1f}"),
            _spoken(self.asked_cpus, "{:.0f}"),
            _spoken(self.busy, "{:.1f}"),
            _spoken(self.asked_gpus, "{:.0f}"),
            _spoken(self.gpu_mb, "{:.0f}"),
        )


def rows_of(jobs: Iterable[Job]) -> list[Row]:
    """A row for each rule; those that took the most time come first."""
    by_rule: dict[str, list[Job]] = {}
    for job in jobs:
        by_rule.setdefault(job.rule, []).append(job)
    time = {rule: sum(job.seconds for job in some) for rule, some in by_rule.items()}
    return [_row(rule, by_rule[rule]) for rule in sorted(by_rule, key=lambda rule: (-time[rule], rule))]


def _row(rule: str, jobs: list[Job]) -> Row:
    def most(of: Callable[[Job], float | None]) -> float | None:
        return max((value for job in jobs if (value := of(job)) is not None), default=None)

    measured = [job for job in jobs if job.cpu_s is not None]
    seconds = sum(job.seconds for job in measured)
    return Row(
        rule,
        len(jobs),
        most(lambda job: job.asked.memory_mb),
        most(lambda job: job.memory_mb),
        most(lambda job: job.asked.minutes),
        max(job.seconds for job in jobs) / 60,
        most(lambda job: job.asked.cpus),
        sum(job.cpu_s or 0 for job in measured) / seconds if seconds else None,
        most(lambda job: job.asked.gpus),
        most(lambda job: job.gpu_mb),
    )


def _pair(asked: float | None, used: float | None, form: str) -> Sequence[str]:
    share = f"{used / asked:.0%}" if asked and used is not None else ""
    return _spoken(asked, "{:.0f}"), _spoken(used, form), share


def _spoken(value: float | None, form: str) -> str:
    return UNTOLD if value is None else form.format(value)


def notes(jobs: Sequence[Job], accounts: str) -> list[str]:
    """What a reader must know of the figures, a sentence each."""
    told = [f"Each figure is the most of one job, its last attempt; {accounts}."]
    if any(job.asked.memory_mb is None for job in jobs):
        told.append("Snakemake wrote what jobs ask only with --benchmark-extended, which the profiles of eopipe set.")
    blind = sorted({job.rule for job in jobs if job.asked.nodes > 1 and job.memory_mb is None})
    if blind:
        told.append(f"Memory and CPUs of {', '.join(blind)}, on many nodes, only Slurm's accounts could tell.")
    return told


def lines(rows: Sequence[Row], said: Sequence[str]) -> list[str]:
    """What the terminal shows."""
    return [*format_table([HEAD, *(row.cells() for row in rows)], left=(0,)), "", *said]


def page(rows: Sequence[Row], said: Sequence[str]) -> str:
    """The same as HTML that opens anywhere."""
    from jinja2 import Environment, StrictUndefined

    style = (files("eopipe.reporting") / "style.css").read_text(encoding="utf-8")
    text = (files("eopipe.clusters") / "usage.html").read_text(encoding="utf-8")
    template = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(text)
    return template.render(style=style, head=HEAD, rows=[row.cells() for row in rows], said=said)


# Among the benchmarks, since it tells clocks and machines: it is no payload and in no crate.
PAGE = Path(BENCHMARKS, "usage.html")


def usage(words: list[str]) -> int:
    """Show what the jobs of a run asked for and used."""
    made = argparse.ArgumentParser(prog="eopipe usage", description=usage.__doc__)
    made.add_argument("results", type=Path, nargs="?", default=Path("results"), help="[%(default)s]")
    results = made.parse_args(words).results
    jobs, accounts = measured(results)
    rows, said = rows_of(jobs), notes(jobs, accounts)
    print("\n".join(lines(rows, said)))
    with publish(results / PAGE) as draft:
        draft.write_text(page(rows, said), encoding="utf-8")
    print(f"\nwrote {results / PAGE}; `eopipe profile tune` proposes formulas from this")
    return 0


def measured(results: Path) -> tuple[list[Job], str]:
    """The jobs of a run with all that is known of them, and how much the scheduler told."""
    return with_accounts(read_jobs(results))
