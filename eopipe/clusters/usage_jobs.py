"""What each job of a run asked for and used, from Snakemake's benchmarks and eopipe's run records."""

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eopipe.clusters.slurm import gpus
from eopipe.errors import UsageError

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
