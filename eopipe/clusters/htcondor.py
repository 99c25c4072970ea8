"""A training for HTCondor: submit descriptions and a DAG from the line of `eopipe train`."""

import argparse
import os
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from eopipe.arguments import Parser, parse
from eopipe.contract import Input, stage, to_args
from eopipe.errors import UsageError
from eopipe.launch.endpoint import MEETING
from eopipe.launch.environment import FILE, nodes_of
from eopipe.provenance.record import record_path
from eopipe.publish import publish

# What `job.sh` turns the exit code 75 into: saved, start me again.
AGAIN = 85
COMMON = """\
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
# One job needs no file system in common: HTCondor carries what it reads, what it saves on the way, and what it makes.
CARRIED = """\
should_transfer_files   = YES
preserve_relative_paths = true
transfer_input_files    = {inputs}
transfer_output_files   = {outputs}
# A training that failed has no model, and a list with what is missing would put the job on hold.
when_to_transfer_output = ON_SUCCESS
# Every {every} seconds job.sh ends with {again}; HTCondor fetches the state and starts it again at once.
checkpoint_exit_code    = {again}
transfer_checkpoint_files = {state}
"""
# Nodes of one training read and write the same checkpoints.
IN_COMMON = """\
should_transfer_files   = NO
getenv                  = PATH, VIRTUAL_ENV, CONDA_PREFIX, LD_LIBRARY_PATH
# Stopped with its state saved: it stays in the queue.
on_exit_remove          = ExitCode =!= {again}
"""
END = """\
log                     = {folder}/train.log
output                  = {folder}/{name}.$(Process).out
error                   = {folder}/{name}.$(Process).err
queue {count}
"""
ALONE = """\
# condor_submit_dag {folder}/train.dag
JOB train {folder}/train.sub
RETRY train 3 UNLESS-EXIT 2
"""
TOGETHER = """\
# condor_submit_dag {folder}/train.dag
# The first node says in its ad that the others can come; only then are they submitted.
PROVISIONER first {folder}/first.sub
JOB others {folder}/others.sub
RETRY others 3 UNLESS-EXIT 2
"""


def condor(argv: list[str]) -> int:
    """Write HTCondor submit files for a training, with the arguments of `eopipe train`."""
    parser = Parser(
        prog="eopipe condor", description=condor.__doc__, epilog="and all of eopipe train --help", allow_abbrev=False
    )
    parser.add_argument("--folder", type=Path, default=Path("condor"), help="folder to write to [%(default)s]")
    parser.add_argument("--memory-mb", type=int, default=4000, help="memory of a job [%(default)s]")
    parser.add_argument("--disk-mb", type=int, default=10_000, help="scratch space of a job [%(default)s]")
    parser.add_argument("--gpu", action="store_true", help="one GPU for each process")
    parser.add_argument("--image", help="container image of eopipe, for nodes that do not have it")
    parser.add_argument("--every", type=int, default=3600, help="seconds between transfers of the state [%(default)s]")
    arguments, train_argv = parser.parse_known_args(argv)
    return write(arguments, parse(stage("train"), train_argv))


def write(given: argparse.Namespace, values: dict[str, Any]) -> int:
    """Write the folder and tell how to start it. Raises UsageError for what HTCondor cannot carry."""
    model, nodes = values["model"], nodes_of(values["nodes"])
    values = values | {"state": values["state"] or model.parent / f".{model.name}.state"}
    made = {"job.sh": files("eopipe.clusters").joinpath("job.sh").read_text()}
    if nodes.most == 1:
        made |= {"train.sub": _alone(given, values), "train.dag": ALONE}
    else:
        made |= {
            "first.sub": _together(given, values, "first", 1),
            "others.sub": _together(given, values, "others", nodes.most - 1),
            "train.dag": TOGETHER,
        }
    given.folder.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        with publish(given.folder / name) as draft:
            draft.write_text(text.replace("{folder}", str(given.folder)) if name.endswith(".dag") else text)
    (given.folder / "job.sh").chmod(0o755)
    print(f"wrote {', '.join(made)} to {given.folder}; now: condor_submit_dag {given.folder / 'train.dag'}")
    return 0


def _alone(given: argparse.Namespace, values: dict[str, Any]) -> str:
    inputs = [path for port in stage("train").of(Input) if values[port.name] for path in _paths(values[port.name])]
    made = [values["model"], record_path(values["model"])]
    outside = [str(path) for path in (*inputs, *made, values["state"]) if not _carried(path)]
    if outside:
        raise UsageError(
            f"HTCondor carries what lies below the folder that you submit from, without commas: not "
            f"{', '.join(outside)}; give relative paths, or --nodes of two and more on a file system in common"
        )
    told = {"inputs": _list(inputs), "outputs": _list(made), "state": values["state"]}
    text = CARRIED.format(again=AGAIN, every=given.every, **told)
    environment = {"EOPIPE_EVERY": str(given.every), "EOPIPE_STATE": str(values["state"])}
    return _head(given, values, environment) + text + END.format(folder=given.folder, name="train", count=1)


def _together(given: argparse.Namespace, values: dict[str, Any], name: str, count: int) -> str:
    environment = {"EOPIPE_STATE": str(values["state"]), FILE: str(values["state"] / MEETING)}
    provisioner = ""
    if name == "first":
        environment["EOPIPE_PROVISIONER"] = "1"
        provisioner = "+WantIOProxy            = true\n"
    text = _head(given, values, environment) + IN_COMMON.format(again=AGAIN) + provisioner
    return text + END.format(folder=given.folder, name=name, count=count)


def _head(given: argparse.Namespace, values: dict[str, Any], environment: Mapping[str, str]) -> str:
    words = ["train", *(word for port in stage("train").ports for word in to_args(port, values[port.name]))]
    text = COMMON.format(
        universe="container" if given.image else "vanilla",
        folder=given.folder,
        arguments=quoted(words),
        environment=quoted(f"{name}={value}" for name, value in environment.items()),
        cpus=values["processes"] * values["threads"],
        memory_mb=given.memory_mb,
        disk_mb=given.disk_mb,
    )
    image = f"container_image         = {given.image}\n" if given.image else ""
    return text + image + (f"request_gpus            = {values['processes']}\n" if given.gpu else "")


def quoted(words: Iterable[str]) -> str:
    """Words as HTCondor reads them: all in double quotes, each in single ones, and both kinds doubled inside."""
    return '"' + " ".join(map(_one, words)).replace('"', '""') + '"'


def _one(word: str) -> str:
    doubled = word.replace("'", "''")
    return f"'{doubled}'" if not word or set(word) & set(" \t'") else word


def _paths(value: Path | tuple[Path, ...]) -> tuple[Path, ...]:
    return value if isinstance(value, tuple) else (value,)


def _carried(path: Path) -> bool:
    """Whether a path stands for the same place here and in a job's own folder."""
    return not path.is_absolute() and not os.path.normpath(path).startswith("..") and "," not in str(path)


def _list(paths: Iterable[Path]) -> str:
    return ", ".join(dict.fromkeys(map(str, paths)))
