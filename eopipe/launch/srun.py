"""A job of Slurm over many nodes: the launcher that Slurm starts once starts itself on each of them, through srun."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any

from eopipe.contract import stage, to_args
from eopipe.errors import BY_CODE, EopipeError, UpstreamError, UsageError
from eopipe.launch.environment import ENDPOINT, FILE, ID, Nodes, nodes_of, srun
from eopipe.launch.world import SIGNALS

# What a step of its own must know of the job; the rest would tie it to the step that this runs in.
KEPT = {"SLURM_JOB_ID", "SLURM_CONF", "SLURM_CLUSTER_NAME"}
PATIENCE_S = 60


def spread(values: Mapping[str, Any]) -> bool:
    """Run the stage train on all nodes of this job; False where it is to run right here.

    Raises UsageError where the job has not the nodes that are wanted, else what the first of them ended with.
    """
    nodes, job = nodes_of(values["nodes"]), os.environ.get("SLURM_JOB_ID")
    in_step = int(os.environ.get("SLURM_STEP_NUM_NODES", "1")) > 1
    if not job or in_step or any(os.environ.get(name) for name in (ID, ENDPOINT, FILE)):
        return False
    there, cpus = _given(job)
    if not nodes.least <= there <= nodes.most:
        raise UsageError(
            f"train.nodes is {nodes}, but Slurm gave job {job} {there}; make train.nodes and the nodes of the rule "
            "train in the profile alike (`eopipe profile check` tells)"
        )
    if there == 1:
        return False
    words = [word for port in stage("train").ports for word in to_args(port, values[port.name])]
    _run([*srun(Nodes(there, there) if not nodes.elastic else Nodes(1, there), cpus), *_self(words)])
    return True


def _self(words: list[str]) -> list[str]:
    return [sys.executable, "-m", "eopipe", "train", *words]


def _given(job: str) -> tuple[int, int]:
    """Nodes of a job and CPUs of each: asked, since Snakemake's executor hides what Slurm said."""
    words = ["squeue", "--noheader", f"--jobs={job}", "--format=%D %C"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
        nodes, cpus = map(int, done.stdout.split()[:2])
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise UpstreamError(f"Slurm does not tell how many nodes job {job} has: {error}; try again") from error
    return nodes, max(1, cpus // nodes)


def _run(line: list[str]) -> None:
    """Run a step to its end; a signal is for its tasks, which save their state."""
    environment = {k: v for k, v in os.environ.items() if k in KEPT or not k.startswith(("SLURM_", "SRUN_", "SBATCH_"))}
    step = subprocess.Popen(line, env=environment)

    def forward(_number: int, _frame: FrameType | None) -> None:
        # srun hands on SIGTERM to all of them; a second one would make it give up.
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        step.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, forward) for number in SIGNALS}
    try:
        code = step.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code:
        raise BY_CODE.get(code, EopipeError)("the step of Slurm that trains ended so; the first error above says why")
