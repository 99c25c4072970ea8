"""The controller away in the middle, and a home that is read-only: nothing lost."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_project import MODEL, ClusterProject, copy_project
from patience import PATIENCE
from projects import Project

from slurm import Cluster

pytestmark = [pytest.mark.alone, pytest.mark.exhaustive]
# More than until Snakemake's next look at the queue.
OUTAGE_S = 14


@pytest.fixture
def clustered(cluster: Cluster, prepared: Project, tmp_path: Path) -> Iterator[ClusterProject]:
    """A fresh copy of the project, of one process; no job outlives its test."""
    project = copy_project(prepared, tmp_path / "project")
    project.configure(processes=1)
    yield project
    subprocess.run(["scancel", "-u", "root"], check=False)


def test_a_controller_that_hangs_crashes_and_comes_back_costs_nothing_and_a_read_only_home_neither(
    cluster: Cluster, clustered: ClusterProject, undisturbed: bytes
) -> None:
    clustered.profile()
    clustered.brake.touch()
    process = clustered.run("--", MODEL, HOME=str(cluster.sealed))
    clustered.wait_for_checkpoint()
    before = clustered.checkpoint
    cluster.freeze_controller()
    time.sleep(OUTAGE_S / 2)
    cluster.kill_controller()
    time.sleep(OUTAGE_S / 2)
    # Slowly on a busy machine, but while there is no controller.
    clustered.wait_for(lambda: clustered.checkpoint > before, "the training does not wait", PATIENCE)
    cluster.start_controller()
    clustered.brake.unlink()
    assert clustered.end(process) == 0, clustered.snakemake_log
    assert len(clustered.jobs) == 1
    assert "event=resume" not in clustered.log()
    assert clustered.weights() == undisturbed


def test_a_controller_that_hangs_is_not_waited_for_long(cluster: Cluster, clustered: ClusterProject) -> None:
    clustered.profile()
    cluster.freeze_controller()
    start = time.monotonic()
    try:
        message = clustered.refusal(5)
    finally:
        cluster.kill_controller()
        cluster.start_controller()
    assert "error: Slurm does not answer: scontrol " in message
    # Without a limit the query would wait until somebody wakes the controller.
    assert time.monotonic() - start < PATIENCE
