"""Trainings over two nodes of a real Slurm: undisturbed, stopped, killed and pre-empted, always the same weights."""

import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from clustered import MODEL, TRAIN, Clustered, alone, link
from daemons import sh, wait
from projects import ROOT, Project, environment

from slurm import Cluster


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that is made up to its split, by this machine."""
    project = Project(tmp_path_factory.mktemp("prepared"))
    link(project, ROOT)
    project.write(train=TRAIN)
    done = project.run("--", "results/split.json")
    assert done.returncode == 0, done.stdout
    return project


@pytest.fixture(scope="session")
def undisturbed(prepared: Project, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The weights that all must end with: of one machine with four processes."""
    return alone(copied(prepared, tmp_path_factory.mktemp("alone") / "project"))


@pytest.fixture
def clustered(cluster: Cluster, prepared: Project, tmp_path: Path) -> Iterator[Clustered]:
    """A fresh copy of the project; no job outlives its test."""
    wait(60, lambda: len(cluster.idle()) == cluster.nodes, "idle nodes")
    made = Clustered(copied(prepared, tmp_path / "project"))
    yield made
    subprocess.run(["scancel", "-u", "root"], check=False)


def copied(project: Project, folder: Path) -> Project:
    shutil.copytree(project.folder, folder, symlinks=True)
    return Project(folder)


def test_two_nodes_of_two_processes_give_the_weights_of_four_on_one_machine(
    clustered: Clustered, undisturbed: bytes
) -> None:
    clustered.profile()
    assert clustered.end(clustered.start(MODEL)) == 0, clustered.told
    assert "event=world size=4" in clustered.log()
    assert clustered.weights() == undisturbed


def test_a_signal_before_the_limit_saves_and_the_retry_goes_on(clustered: Clustered, undisturbed: bytes) -> None:
    clustered.profile()
    process = clustered.start(MODEL)
    clustered.wait_for_step(20)
    sh("scancel", "--signal=USR1", clustered.job)
    assert clustered.end(process) == 0, clustered.told
    assert clustered.submissions() == 2
    assert "event=resume step=" in clustered.log()
    assert clustered.weights() == undisturbed


def test_a_node_that_dies_costs_one_retry(clustered: Clustered, cluster: Cluster, undisturbed: bytes) -> None:
    clustered.profile()
    process = clustered.start(MODEL)
    clustered.wait_for_step(20)
    lost = sh("squeue", "-h", "-j", clustered.job, "-o", "%N")
    node = int(sh("scontrol", "show", "hostnames", lost.strip()).split()[-1].removeprefix("node"))
    cluster.kill_node(node)
    try:
        assert clustered.end(process) == 0, clustered.told
    finally:
        cluster.start_node(node)
    assert clustered.submissions() == 2
    assert clustered.weights() == undisturbed


def test_a_job_that_is_preempted_waits_and_goes_on(clustered: Clustered, undisturbed: bytes) -> None:
    changes = {"slurm-requeue": True, "slurm-no-requeue": None}
    clustered.profile(train={"slurm_partition": "low"}, **changes)
    process = clustered.start(MODEL)
    clustered.wait_for_step(20)
    job = clustered.job
    urgent = sh(
        "sbatch", "--parsable", "-N4", "-n4", "-c4", "-t2", "-p", "debug", "-o", "/dev/null", "--wrap", "sleep 5"
    )
    clustered.wait_for(lambda: "PENDING" in sh("squeue", "-h", "-j", job, "-o", "%T"), "pre-empted")
    clustered.wait_for(lambda: not sh("squeue", "-h", "-t", "R,PD", "-j", urgent.strip()), "the urgent job is done")
    # Slurm would wait two minutes.
    sh("scontrol", "update", f"jobid={job}", "StartTime=now")
    assert clustered.end(process) == 0, clustered.told
    assert clustered.submissions() == 1
    assert clustered.weights() == undisturbed


def test_what_can_never_start_is_refused_and_not_waited_for(clustered: Clustered) -> None:
    clustered.profile(train={"nodes": 9, "tasks": 9}, retries=0)
    assert clustered.end(clustered.start(MODEL), 60) != 0
    told = subprocess.run(
        ["eopipe", "profile", "check"],
        cwd=clustered.folder,
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert told.returncode == 2
    assert "rule train: you asked 9 nodes; partition gpu has 4 that fit" in told.stderr


def test_an_agent_that_is_killed_costs_one_retry(clustered: Clustered, undisturbed: bytes) -> None:
    clustered.profile()
    process = clustered.start(MODEL)
    clustered.wait_for_step(20)
    pids = sh("pgrep", "-f", f"eopipe.launching.agent {clustered.folder}").split()
    subprocess.run(["kill", f"-{signal.SIGKILL.value}", pids[-1]], check=True)
    assert clustered.end(process) == 0, clustered.told
    assert clustered.weights() == undisturbed


def test_a_job_that_its_user_cancels_is_not_begun_again_and_a_new_run_goes_on(
    clustered: Clustered, undisturbed: bytes
) -> None:
    clustered.profile()
    process = clustered.start(MODEL)
    clustered.wait_for_step(20)
    cancelled = clustered.job
    sh("scancel", cancelled)
    assert clustered.end(process) != 0
    assert f"job {cancelled} was cancelled, so this run does not begin it again" in clustered.log()
    assert clustered.end(clustered.start(MODEL)) == 0, clustered.told
    assert "event=resume step=" in clustered.log()
    assert clustered.weights() == undisturbed
