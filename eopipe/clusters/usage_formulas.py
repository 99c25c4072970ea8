"""Formulas of memory and time, from what jobs used.

A line over the size of the input: its slope is the median of the slopes between any two jobs, so that one odd job does
not turn it, and its height is such that no job lies above. Where the jobs are few, or their inputs alike, nothing can
be said of a slope: the largest figure stands. Headroom comes on top, and each retry asks for as much again.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

from eopipe.clusters.usage import Job
from eopipe.run.rules import volume

# Fewer jobs than this, or inputs that differ by less than this factor, tell no slope.
LEAST_JOBS, LEAST_SPREAD = 5, 2.0
# Pairs of so many jobs are counted; a thousand scenes have half a million of them.
MOST_JOBS = 200
# Snakemake itself, twice in a job; and the time until a job of Slurm does something.
MEMORY, MEMORY_MORE_MB = 1.3, 500
TIME, TIME_MORE_MINUTES = 2.0, 5
# Snakemake evaluates it; the files of a rule may be manifests, which stand for folders.
INPUT_MB = "__import__('eopipe.run.rules').run.rules.volume(input)"

Point = tuple[float | None, float]


@dataclass(frozen=True)
class Formula:
    """`base + slope x MB of input`, times the attempt."""

    base: int
    slope: float = 0.0

    def __str__(self) -> str:
        """It as Snakemake evaluates it in a profile."""
        if not self.slope:
            return f"{self.base} * attempt"
        return f"round({self.base} + {self.slope:g} * {INPUT_MB}) * attempt"


@dataclass(frozen=True)
class Proposal:
    """Formulas for a rule, and a sentence on what they come from."""

    rule: str
    formulas: dict[str, Formula]
    why: str


def propose(jobs: Sequence[Job]) -> list[Proposal]:
    """A proposal for every rule, by name."""
    rules = sorted({job.rule for job in jobs})
    return [_proposal(rule, [job for job in jobs if job.rule == rule]) for rule in rules]


def _proposal(rule: str, jobs: list[Job]) -> Proposal:
    sizes = [_size(job) for job in jobs]
    minutes = line([(size, job.seconds / 60) for size, job in zip(sizes, jobs, strict=True)])
    found = {"runtime": _formula(minutes, TIME, TIME_MORE_MINUTES, step=5)}
    used = [(size, job.memory_mb) for size, job in zip(sizes, jobs, strict=True) if job.memory_mb is not None]
    if used:
        found = {"mem_mb": _formula(line(used), MEMORY, MEMORY_MORE_MB, step=100)} | found
    known = [size for size in sizes if size is not None]
    return Proposal(rule, found, _why(jobs, known, sloped=any(formula.slope for formula in found.values())))


def line(points: Sequence[Point]) -> tuple[float, float]:
    """Base and slope of a line that no point (size or None, value) lies above."""
    known = sorted((size, value) for size, value in points if size is not None)
    highest = max(value for _, value in points)
    if len(known) < max(LEAST_JOBS, len(points)) or known[-1][0] < LEAST_SPREAD * max(known[0][0], 1.0):
        return highest, 0.0
    some = known[:: math.ceil(len(known) / MOST_JOBS)]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(some, 2) if b[0] > a[0]]
    slope = max(0.0, median(slopes))
    base = max(value - slope * size for size, value in known)
    return (base, slope) if slope * known[-1][0] > 0.1 * highest else (highest, 0.0)


def _formula(found: tuple[float, float], factor: float, more: float, step: int) -> Formula:
    """With headroom, rounded up."""
    base, slope = found
    wanted = math.ceil((factor * max(base, 0.0) + more) / step) * step
    return Formula(wanted, _up(factor * slope))


def _up(value: float) -> float:
    """A number with two digits that is not smaller."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.12g}")


def _size(job: Job) -> float | None:
    """MB of the inputs of a job; None where some are gone, or nobody told which they were."""
    try:
        return float(volume(job.inputs)) if job.inputs and all(map(_there, job.inputs)) else None
    except (OSError, ValueError, KeyError):
        return None


def _there(path: str) -> bool:
    return Path(path).is_file()


def _why(jobs: list[Job], sizes: list[float], *, sloped: bool) -> str:
    count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
    memory = [job.memory_mb for job in jobs if job.memory_mb is not None]
    used = f"{max(memory):.0f} MB, " if memory else ""
    told = f"{count}{_of(sizes)} used at most {used}{max(job.seconds for job in jobs) / 60:.1f} minutes"
    return told if sloped else f"{told}; good for inputs like these"


def _of(sizes: list[float]) -> str:
    if not sizes:
        return ""
    least, most = f"{min(sizes):.0f}", f"{max(sizes):.0f}"
    return f" with {most if least == most else f'{least} to {most}'} MB of input"
