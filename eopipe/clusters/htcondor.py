"""Submit descriptions and DAGs for HTCondor: a training, from the arguments of `eopipe train`, or parts of a map."""

import argparse
import os
import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from eopipe.arguments import Parser, parse
from eopipe.contract import Input, stage, to_args
from eopipe.errors import UsageError
from eopipe.launch.endpoint import ENDPOINT_FILE
from eopipe.launch.environment import RDZV_FILE, parse_nodes
from eopipe.provenance.record import record_path
from eopipe.publish import make_executable, publish
from eopipe.run.rules import names_of_parts

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
# Nodes of one training share its checkpoints.
SHARED = """\
should_transfer_files   = NO
getenv                  = PATH, VIRTUAL_ENV, CONDA_PREFIX, LD_LIBRARY_PATH
# A job that was stopped with its state saved stays in the queue.
on_exit_remove          = ExitCode =!= {again}
"""
# A map has no checkpoints: a job that fails starts again by itself, without the others of its description.
OF_MAP = """\
should_transfer_files   = YES
preserve_relative_paths = true
transfer_input_files    = {inputs}
transfer_output_files   = {outputs}
# A job that fails has no map, and a missing output would put it on hold.
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
SINGLE_NODE_DAG = """\
# condor_submit_dag {folder}/train.dag
JOB train {folder}/train.sub
RETRY train 3 UNLESS-EXIT 2
"""
MANY_NODES_DAG = """\
# condor_submit_dag {folder}/train.dag
# The others are submitted when the first node reports in its ad that it listens.
PROVISIONER first {folder}/first.sub
JOB others {folder}/others.sub
RETRY others 3 UNLESS-EXIT 2
"""
MAP_DAG = """\
# condor_submit_dag {folder}/predict.dag
JOB parts {folder}/parts.sub
JOB join {folder}/join.sub
PARENT parts CHILD join
RETRY parts 3 UNLESS-EXIT 2
RETRY join 3 UNLESS-EXIT 2
"""
MAP_SCRIPT = """\
#!/bin/sh
# What an HTCondor job runs: eopipe with the arguments of the job. Written by `eopipe condor predict`.
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


def condor(argv: list[str]) -> int:
    """Write HTCondor submit files for a training, with the arguments of `eopipe train`.

    Or for a map in parts: `eopipe condor predict --parts 16`, with the arguments of `eopipe predict`.
    """
    if argv[:1] == ["predict"]:
        return condor_predict(argv[1:])
    parser = _parser("eopipe condor", condor.__doc__, "train")
    parser.add_argument(
        "--every", type=int, default=3600, help="seconds between transfers of the checkpoints [%(default)s]"
    )
    options, train_argv = parser.parse_known_args(argv)
    _check_requests(options)
    return write(options, parse(stage("train"), train_argv))


def condor_predict(argv: list[str]) -> int:
    """Write HTCondor submit files for a map in parts, with the arguments of `eopipe predict`."""
    parser = _parser("eopipe condor predict", condor_predict.__doc__, "predict")
    parser.add_argument("--parts", type=int, required=True, help="jobs that each make a part of the map")
    options, predict_argv = parser.parse_known_args(argv)
    _check_requests(options)
    # A word of its own between the arguments of both, where it is given.
    values = parse(stage("predict"), predict_argv[1:] if predict_argv[:1] == ["--"] else predict_argv)
    if options.parts < 2:
        raise UsageError(f"--parts is {options.parts}, but a map is made in 2 parts or more")
    for name in ("part", "finished_parts"):
        if values[name]:
            raise UsageError(f"--{name.replace('_', '-')} belongs to the jobs of the parts; remove it, --parts sets it")
    if values["places"]:
        raise UsageError("a map of --places is made by one job; run eopipe predict, or remove --places and --chips")
    return write_map(options, values)


def _parser(prog: str, description: str | None, stage_name: str) -> Parser:
    """A parser with the options that all submit descriptions have."""
    parser = Parser(
        prog=prog,
        description=description,
        epilog=f"and all arguments of eopipe {stage_name} --help",
        allow_abbrev=False,
    )
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


def _check_requests(options: argparse.Namespace) -> None:
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
        _literal(text)


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


def write(options: argparse.Namespace, values: dict[str, Any]) -> int:
    """Write the folder and print how to start it. Raises UsageError for what HTCondor cannot transfer."""
    model, nodes = values["model"], parse_nodes(values["nodes"])
    values = values | {"state": values["state"] or model.parent / f".{model.name}.state"}
    texts = {"job.sh": files("eopipe.clusters").joinpath("job.sh").read_text()}
    if nodes.maximum == 1:
        texts |= {"train.sub": _single_node(options, values), "train.dag": SINGLE_NODE_DAG}
    else:
        texts |= {
            "first.sub": _many_nodes(options, values, "first", 1),
            "others.sub": _many_nodes(options, values, "others", nodes.maximum - 1),
            "train.dag": MANY_NODES_DAG,
        }
    return _publish(options.folder, texts, "job.sh", "train.dag")


def write_map(options: argparse.Namespace, values: dict[str, Any]) -> int:
    """Write the folder of a map in parts and print how to start it.

    Raises UsageError for what HTCondor cannot transfer.
    """
    if values["model"].suffix == ".json":
        raise UsageError(f"model is {values['model']}, a file beside the weights; give the folder of the model")
    threads = values["threads"] or 1
    part, names = options.folder / "parts" / OF_PART, names_of_parts(options.parts)
    kinds = {kind: f"{kind}.tif" for kind in ("classes", "probabilities")}
    of_part = {kind: part / name for kind, name in kinds.items()} | {"part": OF_PART, "threads": threads}
    every = tuple(Path(str(part / name).replace(OF_PART, number)) for number in names for name in kinds.values())
    # The join copies, which takes no GPU.
    of_join = {"finished_parts": every, "device": "cpu", "threads": 1}
    cpu_options = argparse.Namespace(**vars(options) | {"gpu": False})
    texts = {
        "eopipe.sh": MAP_SCRIPT,
        "parts.sub": _map_job(options, values, of_part, "parts", f"part in ({', '.join(names)})"),
        "join.sub": _map_job(cpu_options, values, of_join, "join", "1"),
        "predict.dag": MAP_DAG,
    }
    return _publish(options.folder, texts, "eopipe.sh", "predict.dag")


def _publish(folder: Path, texts: Mapping[str, str], script: str, dag: str) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with publish(folder / name) as draft:
            draft.write_text(text.replace("{folder}", str(folder)) if name.endswith(".dag") else text)
    make_executable(folder / script)
    print(f"wrote {', '.join(texts)} to {folder}; now: condor_submit_dag {folder / dag}")
    return 0


def _map_job(
    options: argparse.Namespace, values: dict[str, Any], changes: dict[str, Any], name: str, queue: str
) -> str:
    """The submit description of the jobs that predict with some values changed; those may have `$(part)`."""
    of_job = values | changes
    inputs = [path for port in stage("predict").of(Input) for path in _paths(of_job[port.name] or ())]
    outputs = [of_job["classes"], record_path(of_job["classes"]), of_job["probabilities"]]
    _refuse_outside([*inputs, *outputs], "use relative paths")
    text = OF_MAP.format(inputs=_literal(_joined(inputs)), outputs=_literal(_joined(outputs)))
    header = _header(options, of_job, {}, "predict", "eopipe.sh")
    return header + text + FOOTER.format(folder=options.folder, stage="predict", name=name, count=queue)


def _literal(text: str) -> str:
    """Text without variables of HTCondor, but for that of the parts."""
    if set(text) & set("\r\n"):
        raise UsageError(f"{text!r} has a line break, which a submit description of HTCondor cannot have; remove it")
    return OF_PART.join(words.replace("$", "$(DOLLAR)") for words in text.split(OF_PART))


def _single_node(options: argparse.Namespace, values: dict[str, Any]) -> str:
    inputs = [path for port in stage("train").of(Input) if values[port.name] for path in _paths(values[port.name])]
    outputs = [values["model"], record_path(values["model"])]
    remedy = "use relative paths, or --nodes of two and more on a shared file system"
    _refuse_outside([*inputs, *outputs, values["state"]], remedy)
    paths = {"inputs": _joined(inputs), "outputs": _joined(outputs), "state": values["state"]}
    text = TRANSFERRED.format(again=RESUME_EXIT_CODE, every=options.every, **paths)
    environment = {"EOPIPE_EVERY": str(options.every), "EOPIPE_STATE": str(values["state"])}
    footer = FOOTER.format(folder=options.folder, stage="train", name="train", count=1)
    return _header(options, values, environment) + text + footer


def _refuse_outside(paths: Iterable[Path], remedy: str) -> None:
    """Raise UsageError for paths that HTCondor does not transfer."""
    if outside := [str(path) for path in paths if not _is_transferable(path)]:
        raise UsageError(
            "HTCondor transfers only files below the submit directory whose names have no comma; not "
            f"{', '.join(outside)}; {remedy}"
        )


def _many_nodes(options: argparse.Namespace, values: dict[str, Any], name: str, count: int) -> str:
    environment = {"EOPIPE_STATE": str(values["state"]), RDZV_FILE: str(values["state"] / ENDPOINT_FILE)}
    provisioner = ""
    if name == "first":
        environment["EOPIPE_PROVISIONER"] = "1"
        provisioner = "+WantIOProxy            = true\n"
    text = _header(options, values, environment) + SHARED.format(again=RESUME_EXIT_CODE) + provisioner
    return text + FOOTER.format(folder=options.folder, stage="train", name=name, count=count)


def _header(
    options: argparse.Namespace,
    values: dict[str, Any],
    environment: Mapping[str, str],
    stage_name: str = "train",
    script: str = "job.sh",
) -> str:
    words = [stage_name, *(word for port in stage(stage_name).ports for word in to_args(port, values[port.name]))]
    processes = values.get("processes", 1)
    text = HEADER.format(
        universe="container" if options.image else "vanilla",
        folder=options.folder,
        script=script,
        stage=stage_name,
        arguments=quoted(map(_literal, words)),
        environment=quoted(f"{name}={value}" for name, value in environment.items()),
        cpus=processes * values["threads"],
        memory_mb=options.memory_mb,
        disk_mb=options.disk_mb,
    )
    more = {"container_image": options.image, "requirements": options.requirements}
    if options.gpu:
        more |= {"request_gpus": processes}
        more |= {command: _value(options, option) for command, option in GPU_COMMANDS.items()}
    lines = (f"{name:<23} = {_literal(str(value))}\n" for name, value in more.items() if value is not None)
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
