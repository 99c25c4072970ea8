"""A training for HTCondor: submit descriptions and a DAG from the arguments of `eopipe train`."""

import argparse
import os
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

# `job.sh` ends with this code instead of 75: the state is saved, start the job again.
RESUME_EXIT_CODE = 85
HEADER = """\
# Written by `eopipe condor`.
universe                = {universe}
executable              = {folder}/job.sh
arguments               = {arguments}
environment             = {environment}
batch_name              = eopipe-train
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
FOOTER = """\
log                     = {folder}/train.log
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


def condor(argv: list[str]) -> int:
    """Write HTCondor submit files for a training, with the arguments of `eopipe train`."""
    parser = Parser(
        prog="eopipe condor",
        description=condor.__doc__,
        epilog="and all arguments of eopipe train --help",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("condor"), help="output folder of the submit files [%(default)s]"
    )
    parser.add_argument("--memory-mb", type=int, default=4000, help="memory of a job [%(default)s]")
    parser.add_argument("--disk-mb", type=int, default=10_000, help="scratch space of a job [%(default)s]")
    parser.add_argument("--gpu", action="store_true", help="one GPU for each process")
    parser.add_argument("--image", help="container image with eopipe, for nodes without it")
    parser.add_argument(
        "--every", type=int, default=3600, help="seconds between transfers of the checkpoints [%(default)s]"
    )
    options, train_argv = parser.parse_known_args(argv)
    return write(options, parse(stage("train"), train_argv))


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
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with publish(options.folder / name) as draft:
            draft.write_text(text.replace("{folder}", str(options.folder)) if name.endswith(".dag") else text)
    make_executable(options.folder / "job.sh")
    print(f"wrote {', '.join(texts)} to {options.folder}; now: condor_submit_dag {options.folder / 'train.dag'}")
    return 0


def _single_node(options: argparse.Namespace, values: dict[str, Any]) -> str:
    inputs = [path for port in stage("train").of(Input) if values[port.name] for path in _paths(values[port.name])]
    outputs = [values["model"], record_path(values["model"])]
    outside = [str(path) for path in (*inputs, *outputs, values["state"]) if not _is_transferable(path)]
    if outside:
        raise UsageError(
            "HTCondor transfers only files below the submit directory whose names have no comma; not "
            f"{', '.join(outside)}; use relative paths, or --nodes of two and more on a shared file system"
        )
    paths = {"inputs": _joined(inputs), "outputs": _joined(outputs), "state": values["state"]}
    text = TRANSFERRED.format(again=RESUME_EXIT_CODE, every=options.every, **paths)
    environment = {"EOPIPE_EVERY": str(options.every), "EOPIPE_STATE": str(values["state"])}
    return _header(options, values, environment) + text + FOOTER.format(folder=options.folder, name="train", count=1)


def _many_nodes(options: argparse.Namespace, values: dict[str, Any], name: str, count: int) -> str:
    environment = {"EOPIPE_STATE": str(values["state"]), RDZV_FILE: str(values["state"] / ENDPOINT_FILE)}
    provisioner = ""
    if name == "first":
        environment["EOPIPE_PROVISIONER"] = "1"
        provisioner = "+WantIOProxy            = true\n"
    text = _header(options, values, environment) + SHARED.format(again=RESUME_EXIT_CODE) + provisioner
    return text + FOOTER.format(folder=options.folder, name=name, count=count)


def _header(options: argparse.Namespace, values: dict[str, Any], environment: Mapping[str, str]) -> str:
    arguments = ["train", *(word for port in stage("train").ports for word in to_args(port, values[port.name]))]
    text = HEADER.format(
        universe="container" if options.image else "vanilla",
        folder=options.folder,
        arguments=quoted(arguments),
        environment=quoted(f"{name}={value}" for name, value in environment.items()),
        cpus=values["processes"] * values["threads"],
        memory_mb=options.memory_mb,
        disk_mb=options.disk_mb,
    )
    image = f"container_image         = {options.image}\n" if options.image else ""
    return text + image + (f"request_gpus            = {values['processes']}\n" if options.gpu else "")


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
