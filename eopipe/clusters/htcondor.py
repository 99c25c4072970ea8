"""Submit descriptions and DAGs for HTCondor: a training, from the arguments of `eopipe train`, or parts of a map.

A run with trials, rungs or members has a DAG for all trainings, from the commands of a dry run.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from eopipe.arguments import parse
from eopipe.clusters.submit_files import (
    OF_PART,
    RESUME_EXIT_CODE,
    SCRIPT,
    SHORT_SCRIPT,
    WITHOUT_GPU,
    JobRequests,
    TrainingRequests,
    dag,
    description,
    input_paths,
    publish_files,
    short_job,
    state_of,
    training_job,
    training_script,
)
from eopipe.contract import Argument, stage
from eopipe.errors import BadInputError, UsageError, some_of
from eopipe.launch.environment import ENDPOINT_FILE, RDZV_FILE, parse_nodes
from eopipe.run.images import names_of_parts

# Nodes of one training share its checkpoints.
SHARED = """\
should_transfer_files   = NO
getenv                  = PATH, VIRTUAL_ENV, CONDA_PREFIX, LD_LIBRARY_PATH
# A job that was stopped with its state saved stays in the queue.
on_exit_remove          = ExitCode =!= {again}
"""
MANY_NODES_DAG = """\
# condor_submit_dag {folder}/train.dag
# The others are submitted when the first node reports in its ad that it listens.
PROVISIONER first {folder}/first.sub
JOB others {folder}/others.sub
RETRY others 3 UNLESS-EXIT 2
"""
COMMAND = re.compile(r"\beopipe (train|choose(?= --reducer halving)) (.*)")
# Where the output of a command goes is of the job that Snakemake starts.
REDIRECTION = ">"


def condor(
    requests: TrainingRequests,
    arguments: Annotated[tuple[str, ...], Argument("arguments of the training", stage="train")] = (),
) -> None:
    """Write HTCondor submit files for a training, with the arguments of `eopipe train`."""
    values = parse(stage("train"), arguments)
    nodes = parse_nodes(values["nodes"])
    texts = {"job.sh": training_script()}
    if nodes.maximum == 1:
        texts |= {"train.sub": training_job(requests, values, "train"), "train.dag": dag("train", {"train": ()})}
    else:
        values = values | {"state": state_of(values)}
        texts |= {
            "first.sub": _many_nodes(requests, values, "first", 1),
            "others.sub": _many_nodes(requests, values, "others", nodes.maximum - 1),
            "train.dag": MANY_NODES_DAG,
        }
    publish_files(requests.folder, texts, "train.dag")


def condor_predict(
    requests: JobRequests,
    parts: Annotated[int, Argument("jobs that each make a part of the map, two or more", ge=2)],
    arguments: Annotated[tuple[str, ...], Argument("arguments of the map", stage="predict")] = (),
) -> None:
    """Write HTCondor submit files for a map in parts, with the arguments of `eopipe predict`."""
    values = parse(stage("predict"), arguments)
    for name in ("part", "finished_parts"):
        if values[name]:
            raise UsageError(f"--{name.replace('_', '-')} belongs to the jobs of the parts; remove it, --parts sets it")
    if values["places"]:
        raise UsageError("a map of --places is made by one job; run eopipe predict, or remove --places and --chips")
    write_map(requests, values, parts)


def write_map(requests: JobRequests, values: dict[str, Any], parts: int) -> None:
    """Write the folder of a map in parts and print how to start it.

    Raises UsageError for what HTCondor cannot transfer.
    """
    if values["model"].suffix == ".json":
        raise UsageError(f"model is {values['model']}, a file beside the weights; give the folder of the model")
    threads = values["threads"] or 1
    part, names = requests.folder / "parts" / OF_PART, names_of_parts(parts)
    kinds = {kind: f"{kind}.tif" for kind in ("classes", "probabilities")}
    of_part = {kind: part / name for kind, name in kinds.items()} | {"part": OF_PART, "threads": threads}
    every = tuple(Path(str(part / name).replace(OF_PART, number)) for number in names for name in kinds.values())
    # The join copies, which takes no GPU.
    of_join = {"finished_parts": every, "device": "cpu", "threads": 1}
    texts = {
        SCRIPT: SHORT_SCRIPT,
        "parts.sub": _map_job(requests, values, of_part, "parts", f"part in ({', '.join(names)})"),
        "join.sub": _map_job(replace(requests, **WITHOUT_GPU), values, of_join, "join", "1"),
        "predict.dag": dag("predict", {"parts": (), "join": ("parts",)}),
    }
    publish_files(requests.folder, texts, "predict.dag")


def _map_job(requests: JobRequests, values: dict[str, Any], changes: dict[str, Any], name: str, queue: str) -> str:
    """The submit description of the jobs that predict with some values changed; those may have `$(part)`."""
    of_job = values | changes
    return short_job(requests, "predict", of_job, [of_job["classes"], of_job["probabilities"]], name, queue)


def _many_nodes(requests: JobRequests, values: dict[str, Any], name: str, count: int) -> str:
    environment = {"EOPIPE_STATE": str(values["state"]), RDZV_FILE: str(values["state"] / ENDPOINT_FILE)}
    provisioner = ""
    if name == "first":
        environment["EOPIPE_PROVISIONER"] = "1"
        provisioner = "+WantIOProxy            = true\n"
    of_files = SHARED.format(again=RESUME_EXIT_CODE) + provisioner
    return description(requests, "train", values, name, of_files, environment=environment, queue=count)


@dataclass(frozen=True)
class PlannedJob:
    """A training of a plan, or the choice of those that continue behind a rung."""

    stage: str
    values: dict[str, Any]

    @property
    def output(self) -> Path:
        return stage(self.stage).outputs(self.values)[0]

    @property
    def name(self) -> str:
        """The name of its node: its output, in the characters that DAGMan permits."""
        return re.sub(r"[^A-Za-z0-9_-]+", "-", str(self.output))

    @property
    def inputs(self) -> list[Path]:
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
    # A job waits for those that make what it reads.
    texts["trainings.dag"] = dag("trainings", {job.name: [names[p] for p in job.inputs if p in names] for job in jobs})
    scripts = {"job.sh": training_script(), SCRIPT: SHORT_SCRIPT}
    publish_files(requests.folder, texts | scripts, "trainings.dag")


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
    return short_job(requests, job.stage, values, [job.output], job.name)


CONDOR = {"": condor, "predict": condor_predict, "trainings": condor_trainings}
