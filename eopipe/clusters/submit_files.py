"""Submit descriptions of HTCondor: what all of them have, for a training on one machine and for short jobs."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from eopipe.contract import Argument, Input, stage, to_args
from eopipe.errors import UsageError, some_of
from eopipe.own_files import write_files
from eopipe.provenance.record import record_path
from eopipe.text_table import shell_word

# `job.sh` ends with this code instead of 75: the state is saved, start the job again.
RESUME_EXIT_CODE = 85
# Marks of the files of this command: scripts and submit descriptions, and a DAG.
MARKS = ("Written by `eopipe condor`.", "# condor_submit_dag ")
HEADER = """\
# Written by `eopipe condor`.
universe                = {universe}
executable              = {folder}/{script}
arguments               = {arguments}
environment             = {environment}
batch_name              = eopipe-{stage}
request_cpus            = {cpus}
request_memory          = {memory_mb}MB
request_disk            = {disk_mb}MB
"""
# A job on one machine needs no shared file system: HTCondor transfers its inputs and outputs.
TRANSFERRED = """\
should_transfer_files   = YES
preserve_relative_paths = true
transfer_input_files    = {inputs}
transfer_output_files   = {outputs}
# A job that fails has no output, and a missing one would put it on hold.
when_to_transfer_output = ON_SUCCESS
"""
CHECKPOINTED = """\
# Every {every} seconds job.sh ends with {again}; HTCondor transfers the state and starts the job again at once.
checkpoint_exit_code    = {again}
transfer_checkpoint_files = {state}
"""
# Without checkpoints: a job that fails starts again by itself, without the others of its description.
RETRIED = """\
max_retries             = 3
# A usage error.
retry_until             = 2
"""
FOOTER = """\
log                     = {folder}/{stage}.log
output                  = {folder}/{name}.$(Process).out
error                   = {folder}/{name}.$(Process).err
queue {count}
"""
SCRIPT = "eopipe.sh"
SHORT_SCRIPT = """\
#!/bin/sh
# What an HTCondor job runs: eopipe with the arguments of the job. Written by `eopipe condor`.
exec eopipe "$@"
"""
# Commands of HTCondor that are compared with each GPU of a machine, and the options that set them.
GPU_COMMANDS = {
    "gpus_minimum_memory": "gpu_memory_mb",
    "gpus_minimum_capability": "gpu_capability",
    "require_gpus": "require_gpus",
}
# Changes of requests for a job that computes nothing on a GPU.
WITHOUT_GPU: dict[str, Any] = {"gpu": False, **dict.fromkeys(GPU_COMMANDS.values())}
# The variable of HTCondor whose values are the names of the parts, one for each job.
OF_PART = "$(part)"


@dataclass(frozen=True)
class JobRequests:
    """What all submit descriptions have. Raises UsageError for requests that HTCondor would ignore or cannot read."""

    folder: Annotated[Path, Argument("output folder of the submit files")] = Path("condor")
    memory_mb: Annotated[int, Argument("memory of a job")] = 4000
    disk_mb: Annotated[int, Argument("scratch space of a job")] = 10_000
    gpu: Annotated[bool, Argument("one GPU for each process")] = False
    gpu_memory_mb: Annotated[
        int | None, Argument("memory in MB that each GPU has at least (gpus_minimum_memory), such as 40000", ge=1)
    ] = None
    gpu_capability: Annotated[
        str | None, Argument("compute capability of each GPU, at least (gpus_minimum_capability)", value="X.Y")
    ] = None
    require_gpus: Annotated[
        str | None, Argument("ClassAd expression that holds for each GPU, such as of its DeviceName", value="EXPR")
    ] = None
    requirements: Annotated[str | None, Argument("ClassAd expression that holds for the machine", value="EXPR")] = None
    image: Annotated[str | None, Argument("container image with eopipe, for nodes without it", value="IMAGE")] = None

    def __post_init__(self) -> None:
        of_gpus = [name for name in GPU_COMMANDS.values() if getattr(self, name) is not None]
        if of_gpus and not self.gpu:
            flag = f"--{of_gpus[0].replace('_', '-')}"
            raise UsageError(f"{flag} is about GPUs, but the job requests none; add --gpu")
        if self.gpu_capability is not None and not re.fullmatch(r"\d{1,2}\.\d", self.gpu_capability, re.ASCII):
            raise UsageError(f"--gpu-capability is {self.gpu_capability!r}; give a compute capability such as 8.0")
        for option, expression, example in (
            ("--require-gpus", self.require_gpus, 'DeviceName == "NVIDIA L4"'),
            ("--requirements", self.requirements, "OpSysMajorVer >= 9"),
        ):
            if expression is not None and not _is_expression(expression):
                raise UsageError(
                    f"{option} is {expression!r}; give one ClassAd expression in one line, such as {example}"
                )
        for text in (str(self.folder), self.image or ""):
            literal(text)


@dataclass(frozen=True)
class TrainingRequests(JobRequests):
    """The same, and how often checkpoints are transferred."""

    every: Annotated[int, Argument("seconds between transfers of the checkpoints")] = 3600


def _is_expression(text: str) -> bool:
    """Whether HTCondor reads it as one expression; without HTCondor's parser, whether it stays in its line."""
    # A backslash at the end of a line joins the next one to it.
    if not text.strip() or set(text) & set("\r\n") or text.rstrip().endswith("\\"):
        return False
    try:
        import classad2
    except ImportError:
        return True
    try:
        classad2.ExprTree(text)
    except classad2.ClassAdException:
        return False
    return True


def training_script() -> str:
    """The script of a training's job."""
    return files("eopipe.clusters").joinpath("job.sh").read_text()


def state_of(values: dict[str, Any]) -> Path:
    """The state folder of a training."""
    model: Path = values["model"]
    return values["state"] or model.parent / f".{model.name}.state"


def dag(name: str, jobs: Mapping[str, Sequence[str]]) -> str:
    """A DAG of jobs by name, each with those that it waits for."""
    lines = [f"# condor_submit_dag {{folder}}/{name}.dag", *(f"JOB {job} {{folder}}/{job}.sub" for job in jobs)]
    lines += [f"PARENT {' '.join(parents)} CHILD {job}" for job, parents in jobs.items() if parents]
    return "\n".join([*lines, *(f"RETRY {job} 3 UNLESS-EXIT 2" for job in jobs), ""])


def publish_files(folder: Path, texts: dict[str, str], dag: str) -> None:
    """Write the files of a folder and print how to start its DAG."""
    places = {dag: texts[dag].replace("{folder}", str(folder))}
    write_files(folder, texts | places, *MARKS)
    print(f"wrote {some_of([*texts])} to {folder}; now: condor_submit_dag {shell_word(folder / dag)}")


def short_job(
    requests: JobRequests, stage_name: str, values: dict[str, Any], outputs: Sequence[Path], name: str, queue: str = "1"
) -> str:
    """The submit description of jobs without checkpoints. Raises UsageError for what HTCondor cannot transfer."""
    text = _transferred(stage_name, values, outputs, "use relative paths") + RETRIED
    return description(requests, stage_name, values, name, text, SCRIPT, queue=queue)


def training_job(requests: TrainingRequests, values: dict[str, Any], name: str) -> str:
    """The submit description of a training on one machine. Raises UsageError for what HTCondor cannot transfer."""
    state, every = state_of(values), requests.every
    values = values | {"state": state}
    cure = "use relative paths, or --nodes of two and more on a shared file system"
    text = _transferred("train", values, [values["model"]], cure, state)
    text += filled(CHECKPOINTED, again=RESUME_EXIT_CODE, every=every, state=state)
    environment = {"EOPIPE_EVERY": str(every), "EOPIPE_STATE": str(state)}
    return description(requests, "train", values, name, text, environment=environment)


def _transferred(stage_name: str, values: dict[str, Any], outputs: Sequence[Path], cure: str, *others: Path) -> str:
    """The lines on inputs and outputs with their record. Raises UsageError for paths that are not transferred."""
    inputs, first = input_paths(stage_name, values), outputs[0]
    carried = [first, record_path(first), *outputs[1:]]
    if outside := [str(path) for path in (*inputs, *carried, *others) if not _is_transferable(path)]:
        raise UsageError(
            "HTCondor transfers only files below the submit directory whose names have no comma; not "
            f"{', '.join(outside)}; {cure}"
        )
    lists = {"inputs": inputs, "outputs": carried}
    return filled(TRANSFERRED, **{name: ", ".join(dict.fromkeys(map(str, paths))) for name, paths in lists.items()})


def input_paths(stage_name: str, values: dict[str, Any]) -> list[Path]:
    """The files and folders that a job of a stage reads."""
    return [path for port in stage(stage_name).of(Input) for path in stage(stage_name).paths(port, values)]


def filled(template: str, **values: Any) -> str:
    """Lines of a submit description, in whose values nothing is a variable of HTCondor."""
    return template.format(**{name: literal(str(value)) for name, value in values.items()})


def literal(text: str) -> str:
    """Text without variables of HTCondor, but for the variable of the parts."""
    if set(text) & set("\r\n"):
        raise UsageError(f"{text!r} has a line break, which a submit description of HTCondor cannot have; remove it")
    return OF_PART.join(words.replace("$", "$(DOLLAR)") for words in text.split(OF_PART))


def description(
    requests: JobRequests,
    stage_name: str,
    values: dict[str, Any],
    name: str,
    of_files: str,
    script: str = "job.sh",
    environment: Mapping[str, str] = MappingProxyType({}),
    queue: int | str = 1,
) -> str:
    """A submit description, with the lines that say where files are."""
    words = [stage_name, *(word for port in stage(stage_name).ports for word in to_args(port, values[port.name]))]
    processes = values.get("processes", 1)
    text = filled(
        HEADER,
        universe="container" if requests.image else "vanilla",
        folder=requests.folder,
        script=script,
        stage=stage_name,
        arguments=quoted(words),
        environment=quoted(f"{name}={value}" for name, value in environment.items()),
        cpus=processes * values["threads"],
        memory_mb=requests.memory_mb,
        disk_mb=requests.disk_mb,
    )
    more = {"container_image": requests.image, "requirements": requests.requirements}
    if requests.gpu:
        more |= {"request_gpus": processes}
        more |= {command: getattr(requests, name) for command, name in GPU_COMMANDS.items()}
    lines = (f"{name:<23} = {literal(str(value))}\n" for name, value in more.items() if value is not None)
    footer = filled(FOOTER, folder=requests.folder, stage=stage_name, name=name, count=queue)
    return text + "".join(lines) + of_files + footer


def quoted(arguments: Iterable[str]) -> str:
    """Arguments as HTCondor reads them: all in double quotes, each in single ones, and both kinds doubled inside."""
    return '"' + " ".join(map(_quoted, arguments)).replace('"', '""') + '"'


def _quoted(argument: str) -> str:
    doubled = argument.replace("'", "''")
    return f"'{doubled}'" if not argument or set(argument) & set(" \t'") else argument


def _is_transferable(path: Path) -> bool:
    """Whether a path means the same file here and in a job's own folder."""
    return not path.is_absolute() and not os.path.normpath(path).startswith("..") and "," not in str(path)
