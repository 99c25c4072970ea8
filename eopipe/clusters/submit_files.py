"""Submit descriptions of HTCondor: what all of them have, for a training on one machine and for short jobs."""

import argparse
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from eopipe.arguments import Parser
from eopipe.contract import Input, stage, to_args
from eopipe.errors import UsageError, some_of
from eopipe.provenance.record import record_path
from eopipe.publish import make_executable, publish

# `job.sh` ends with this code instead of 75: the state is saved, start the job again.
RESUME_EXIT_CODE = 85
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
# A single job needs no shared file system: HTCondor transfers its inputs, checkpoints and outputs.
TRANSFERRED = """\
should_transfer_files   = YES
preserve_relative_paths = true
transfer_input_files    = {inputs}
transfer_output_files   = {outputs}
# A failed training has no model, and a missing output would put the job on hold.
when_to_transfer_output = ON_SUCCESS
# Every {every} seconds job.sh ends with {again}; HTCondor transfers the state and starts the job again at once.
checkpoint_exit_code    = {again}
transfer_checkpoint_files = {state}
"""
# Without checkpoints: a job that fails starts again by itself, without the others of its description.
SHORT = """\
should_transfer_files   = YES
preserve_relative_paths = true
transfer_input_files    = {inputs}
transfer_output_files   = {outputs}
# A job that fails has no output, and a missing one would put it on hold.
when_to_transfer_output = ON_SUCCESS
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
SHORT_SCRIPT = """\
#!/bin/sh
# What an HTCondor job runs: eopipe with the arguments of the job. Written by `eopipe condor`.
exec eopipe "$@"
"""
# Commands of HTCondor that are compared with each GPU of a machine, and the options that set them.
GPU_COMMANDS = {
    "gpus_minimum_memory": "--gpu-memory-mb",
    "gpus_minimum_capability": "--gpu-capability",
    "require_gpus": "--require-gpus",
}
# The variable of HTCondor whose values are the names of the parts, one for each job.
OF_PART = "$(part)"


def parser_of(prog: str, description: str | None, stage_name: str = "") -> Parser:
    """A parser with the options that all submit descriptions have, beside the arguments of a stage, if any."""
    epilog = f"and all arguments of eopipe {stage_name} --help" if stage_name else None
    parser = Parser(prog=prog, description=description, epilog=epilog, allow_abbrev=False)
    parser.add_argument(
        "--folder", type=Path, default=Path("condor"), help="output folder of the submit files [%(default)s]"
    )
    parser.add_argument("--memory-mb", type=int, default=4000, help="memory of a job [%(default)s]")
    parser.add_argument("--disk-mb", type=int, default=10_000, help="scratch space of a job [%(default)s]")
    parser.add_argument("--gpu", action="store_true", help="one GPU for each process")
    parser.add_argument("--gpu-memory-mb", type=int, help="memory that each GPU has at least (gpus_minimum_memory)")
    parser.add_argument(
        "--gpu-capability", metavar="X.Y", help="compute capability of each GPU, at least (gpus_minimum_capability)"
    )
    parser.add_argument(
        "--require-gpus", metavar="EXPR", help="ClassAd expression that holds for each GPU, such as of its DeviceName"
    )
    parser.add_argument("--requirements", metavar="EXPR", help="ClassAd expression that holds for the machine")
    parser.add_argument("--image", help="container image with eopipe, for nodes without it")
    return parser


def add_every(parser: Parser) -> None:
    """Add the option of how often checkpoints are transferred."""
    parser.add_argument(
        "--every", type=int, default=3600, help="seconds between transfers of the checkpoints [%(default)s]"
    )


def check_requests(options: argparse.Namespace) -> None:
    """Raise UsageError for requests that HTCondor would ignore or cannot read."""
    of_gpus = [option for option in GPU_COMMANDS.values() if _value(options, option) is not None]
    if of_gpus and not options.gpu:
        raise UsageError(f"{of_gpus[0]} is about GPUs, but the job requests none; add --gpu")
    if options.gpu_memory_mb is not None and options.gpu_memory_mb < 1:
        raise UsageError(f"--gpu-memory-mb is {options.gpu_memory_mb}; give the memory of a GPU in MB, such as 40000")
    if options.gpu_capability is not None and not re.fullmatch(r"\d{1,2}\.\d", options.gpu_capability, re.ASCII):
        raise UsageError(f"--gpu-capability is {options.gpu_capability!r}; give a compute capability such as 8.0")
    for option, example in (("--require-gpus", 'DeviceName == "NVIDIA L4"'), ("--requirements", "OpSysMajorVer >= 9")):
        if (expression := _value(options, option)) is not None and not _is_expression(expression):
            raise UsageError(f"{option} is {expression!r}; give one ClassAd expression in one line, such as {example}")
    for text in (str(options.folder), options.image or ""):
        literal(text)


def _value(options: argparse.Namespace, option: str) -> Any:
    return getattr(options, option.removeprefix("--").replace("-", "_"))


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


def publish_files(folder: Path, texts: Mapping[str, str], dag: str) -> int:
    """Write the files of a folder and print how to start its DAG."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with publish(folder / name) as draft:
            draft.write_text(text.replace("{folder}", str(folder)) if name.endswith(".dag") else text)
        if name.endswith(".sh"):
            make_executable(folder / name)
    print(f"wrote {some_of([*texts])} to {folder}; now: condor_submit_dag {folder / dag}")
    return 0


def short_job(
    options: argparse.Namespace,
    stage_name: str,
    values: dict[str, Any],
    outputs: Sequence[Path],
    name: str,
    script: str,
    queue: str = "1",
) -> str:
    """The submit description of jobs without checkpoints. Raises UsageError for what HTCondor cannot transfer."""
    inputs, first = input_paths(stage_name, values), outputs[0]
    carried = [first, record_path(first), *outputs[1:]]
    refuse_outside([*inputs, *carried], "use relative paths")
    text = SHORT.format(inputs=literal(_joined(inputs)), outputs=literal(_joined(carried)))
    footer = FOOTER.format(folder=options.folder, stage=stage_name, name=name, count=queue)
    return header(options, values, {}, stage_name, script) + text + footer


def input_paths(stage_name: str, values: dict[str, Any]) -> list[Path]:
    """The files and folders that a job of a stage reads."""
    return [path for port in stage(stage_name).of(Input) for path in _paths(values[port.name] or ())]


def literal(text: str) -> str:
    """Text without variables of HTCondor, but for the variable of the parts."""
    if set(text) & set("\r\n"):
        raise UsageError(f"{text!r} has a line break, which a submit description of HTCondor cannot have; remove it")
    return OF_PART.join(words.replace("$", "$(DOLLAR)") for words in text.split(OF_PART))


def training_job(options: argparse.Namespace, values: dict[str, Any], name: str) -> str:
    """The submit description of a training on one machine. Raises UsageError for what HTCondor cannot transfer."""
    values = values | {"state": state_of(values)}
    inputs = input_paths("train", values)
    outputs = [values["model"], record_path(values["model"])]
    remedy = "use relative paths, or --nodes of two and more on a shared file system"
    refuse_outside([*inputs, *outputs, values["state"]], remedy)
    paths = {"inputs": _joined(inputs), "outputs": _joined(outputs), "state": values["state"]}
    text = TRANSFERRED.format(again=RESUME_EXIT_CODE, every=options.every, **paths)
    environment = {"EOPIPE_EVERY": str(options.every), "EOPIPE_STATE": str(values["state"])}
    footer = FOOTER.format(folder=options.folder, stage="train", name=name, count=1)
    return header(options, values, environment) + text + footer


def refuse_outside(paths: Iterable[Path], remedy: str) -> None:
    """Raise UsageError for paths that HTCondor does not transfer."""
    if outside := [str(path) for path in paths if not _is_transferable(path)]:
        raise UsageError(
            "HTCondor transfers only files below the submit directory whose names have no comma; not "
            f"{', '.join(outside)}; {remedy}"
        )


def header(
    options: argparse.Namespace,
    values: dict[str, Any],
    environment: Mapping[str, str],
    stage_name: str = "train",
    script: str = "job.sh",
) -> str:
    """The lines that all submit descriptions have."""
    words = [stage_name, *(word for port in stage(stage_name).ports for word in to_args(port, values[port.name]))]
    processes = values.get("processes", 1)
    text = HEADER.format(
        universe="container" if options.image else "vanilla",
        folder=options.folder,
        script=script,
        stage=stage_name,
        arguments=quoted(map(literal, words)),
        environment=quoted(f"{name}={value}" for name, value in environment.items()),
        cpus=processes * values["threads"],
        memory_mb=options.memory_mb,
        disk_mb=options.disk_mb,
    )
    more = {"container_image": options.image, "requirements": options.requirements}
    if options.gpu:
        more |= {"request_gpus": processes}
        more |= {command: _value(options, option) for command, option in GPU_COMMANDS.items()}
    lines = (f"{name:<23} = {literal(str(value))}\n" for name, value in more.items() if value is not None)
    return text + "".join(lines)


def quoted(arguments: Iterable[str]) -> str:
    """Arguments as HTCondor reads them: all in double quotes, each in single ones, and both kinds doubled inside."""
    return '"' + " ".join(map(_quoted, arguments)).replace('"', '""') + '"'


def _quoted(argument: str) -> str:
    doubled = argument.replace("'", "''")
    return f"'{doubled}'" if not argument or set(argument) & set(" \t'") else argument


def _paths(value: Path | tuple[Path, ...]) -> tuple[Path, ...]:
    return value if isinstance(value, tuple) else (value,)


def _is_transferable(path: Path) -> bool:
    """Whether a path means the same file here and in a job's own folder."""
    return not path.is_absolute() and not os.path.normpath(path).startswith("..") and "," not in str(path)


def _joined(paths: Iterable[Path]) -> str:
    return ", ".join(dict.fromkeys(map(str, paths)))
