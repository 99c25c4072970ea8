"""What rules asked for beside what their jobs used: for a terminal, and as a page."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from eopipe.clusters.usage_jobs import Job
from eopipe.text_table import format_table

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
