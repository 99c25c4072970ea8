"""Submit descriptions and DAGs for HTCondor: a training, from the arguments of `eopipe train`, or parts of a map.

Several trainings of a run are submitted by condor_trainings.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from eopipe.arguments import parse
from eopipe.clusters.condor_trainings import condor_trainings
from eopipe.clusters.submit_files import (
    FOOTER,
    OF_PART,
    RESUME_EXIT_CODE,
    SHORT_SCRIPT,
    WITHOUT_GPU,
    JobRequests,
    TrainingRequests,
    header,
    publish_files,
    short_job,
    state_of,
    training_job,
    training_script,
)
from eopipe.contract import Argument, stage
from eopipe.errors import UsageError
from eopipe.launch.endpoint import ENDPOINT_FILE
from eopipe.launch.environment import RDZV_FILE, parse_nodes
from eopipe.run.rules import names_of_parts

# Nodes of one training share its checkpoints.
SHARED = """\
should_transfer_files   = NO
getenv                  = PATH, VIRTUAL_ENV, CONDA_PREFIX, LD_LIBRARY_PATH
# A job that was stopped with its state saved stays in the queue.
on_exit_remove          = ExitCode =!= {again}
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


def condor(
    requests: TrainingRequests,
    arguments: Annotated[tuple[str, ...], Argument("arguments of the training", stage="train")] = (),
) -> None:
    """Write HTCondor submit files for a training, with the arguments of `eopipe train`."""
    values = parse(stage("train"), arguments)
    nodes = parse_nodes(values["nodes"])
    texts = {"job.sh": training_script()}
    if nodes.maximum == 1:
        texts |= {"train.sub": training_job(requests, values, "train"), "train.dag": SINGLE_NODE_DAG}
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


CONDOR = {"": condor, "predict": condor_predict, "trainings": condor_trainings}


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
        "eopipe.sh": SHORT_SCRIPT,
        "parts.sub": _map_job(requests, values, of_part, "parts", f"part in ({', '.join(names)})"),
        "join.sub": _map_job(replace(requests, **WITHOUT_GPU), values, of_join, "join", "1"),
        "predict.dag": MAP_DAG,
    }
    publish_files(requests.folder, texts, "predict.dag")


def _map_job(requests: JobRequests, values: dict[str, Any], changes: dict[str, Any], name: str, queue: str) -> str:
    """The submit description of the jobs that predict with some values changed; those may have `$(part)`."""
    of_job = values | changes
    return short_job(
        requests, "predict", of_job, [of_job["classes"], of_job["probabilities"]], name, "eopipe.sh", queue
    )


def _many_nodes(requests: JobRequests, values: dict[str, Any], name: str, count: int) -> str:
    environment = {"EOPIPE_STATE": str(values["state"]), RDZV_FILE: str(values["state"] / ENDPOINT_FILE)}
    provisioner = ""
    if name == "first":
        environment["EOPIPE_PROVISIONER"] = "1"
        provisioner = "+WantIOProxy            = true\n"
    text = header(requests, values, environment) + SHARED.format(again=RESUME_EXIT_CODE) + provisioner
    return text + FOOTER.format(folder=requests.folder, stage="train", name=name, count=count)
