"""A DAG of HTCondor for the trainings of a run, trials with their rungs or members, from the commands of a dry run."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from eopipe.arguments import parse
from eopipe.clusters.submit_files import (
    SHORT_SCRIPT,
    WITHOUT_GPU,
    TrainingRequests,
    input_paths,
    publish_files,
    short_job,
    training_job,
    training_script,
)
from eopipe.contract import Argument, Output, stage
from eopipe.errors import BadInputError, UsageError, some_of
from eopipe.launch.environment import parse_nodes

COMMAND = re.compile(r"\beopipe (train|promote) (.*)")
# Where the output of a command goes is of the job that Snakemake starts.
REDIRECTION = ">"
SCRIPT = "eopipe.sh"


@dataclass(frozen=True)
class PlannedJob:
    """A training of a plan, or the choice of those that continue behind a rung."""

    stage: str
    values: dict[str, Any]

    @property
    def output(self) -> Path:
        """The file or folder that it makes."""
        path: Path = self.values[stage(self.stage).of(Output)[0].name]
        return path

    @property
    def name(self) -> str:
        """The name of its node: its output, in the characters that DAGMan permits."""
        return re.sub(r"[^A-Za-z0-9_-]+", "-", str(self.output))

    @property
    def inputs(self) -> list[Path]:
        """What it reads."""
        return input_paths(self.stage, self.values)


def condor_trainings(
    requests: TrainingRequests,
    plan: Annotated[Path, Argument("file with the output of snakemake --dry-run --printshellcmds", positional=True)],
) -> None:
    """Write HTCondor submit files for all trainings that a dry run of Snakemake plans: one DAG, a job for each."""
    jobs = read_plan(plan)
    names = {job.output: job.name for job in jobs}
    _check(plan, jobs, names)
    texts = {f"{job.name}.sub": _description(requests, job) for job in jobs}
    scripts = {"job.sh": training_script(), SCRIPT: SHORT_SCRIPT}
    publish_files(requests.folder, texts | scripts | {"trainings.dag": _dag(jobs, names)}, "trainings.dag")


def read_plan(plan: Path) -> list[PlannedJob]:
    """The trainings and rungs of a dry run's output. Raises BadInputError for a file without any."""
    try:
        text = plan.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"plan {plan} cannot be read: {error}") from error
    jobs = {}
    for name, line in COMMAND.findall(text):
        words = shlex.split(line)
        words = words[: words.index(REDIRECTION)] if REDIRECTION in words else words
        job = PlannedJob(name, parse(stage(name), words))
        jobs[job.output] = job
    if not jobs:
        raise BadInputError(
            f"plan {plan} has no training; write it with snakemake --dry-run --printshellcmds, when the split is there "
            "and a training is not"
        )
    return [*jobs.values()]


def _check(plan: Path, jobs: Sequence[PlannedJob], names: dict[Path, str]) -> None:
    """Raise an error for what one DAG cannot run."""
    if len({*names.values()}) < len(names):
        raise UsageError(f"plan {plan} has outputs whose names differ only in special characters; rename the folder")
    if any(job.stage == "train" and parse_nodes(job.values["nodes"]).maximum > 1 for job in jobs):
        raise UsageError(
            f"plan {plan} has trainings on several machines, of which a DAG of HTCondor starts one; set train.nodes to "
            "1, or write each training with eopipe condor and a --folder of its own"
        )
    if missing := sorted({str(path) for job in jobs for path in job.inputs if path not in names and not path.exists()}):
        raise BadInputError(
            f"{some_of(missing)} is not there, and no training of plan {plan} makes it; run snakemake up to the split "
            "first"
        )


def _description(requests: TrainingRequests, job: PlannedJob) -> str:
    if job.stage == "train":
        return training_job(requests, job.values, job.name)
    # It reads histories and computes nothing.
    requests, values = replace(requests, **WITHOUT_GPU), job.values | {"threads": 1}
    return short_job(requests, job.stage, values, [job.output], job.name, SCRIPT)


def _dag(jobs: Sequence[PlannedJob], names: dict[Path, str]) -> str:
    """The jobs, and which of them wait for which others: for those that make what they read."""
    lines = ["# condor_submit_dag {folder}/trainings.dag"]
    lines += [f"JOB {job.name} {{folder}}/{job.name}.sub" for job in jobs]
    for job in jobs:
        if parents := [names[path] for path in job.inputs if path in names]:
            lines.append(f"PARENT {' '.join(parents)} CHILD {job.name}")
    lines += [f"RETRY {job.name} 3 UNLESS-EXIT 2" for job in jobs]
    return "\n".join(lines) + "\n"
