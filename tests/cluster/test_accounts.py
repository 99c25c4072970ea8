"""A cluster that keeps accounts: slurmdbd and MariaDB."""

import time
from pathlib import Path

import pytest
import yaml
from cluster_project import MODEL, ClusterProject, copy_project
from daemons import sh
from patience import PATIENCE
from projects import Project

from eopipe.clusters.slurm import query_site
from eopipe.clusters.usage import JobUsage, Requested, with_accounting
from slurm import Cluster

pytestmark = [pytest.mark.alone, pytest.mark.exhaustive]
JOB = """\
#!/bin/sh
srun --overlap --ntasks=$SLURM_NNODES --ntasks-per-node=1 python3 -c '
import time
held, start = bytearray(200 << 20), time.process_time()
while time.process_time() < start + 5: pass'
"""


@pytest.fixture
def clustered(accounted: Cluster, prepared: Project, tmp_path: Path) -> ClusterProject:
    """A fresh copy of the project, of one process."""
    project = copy_project(prepared, tmp_path / "project")
    project.configure(processes=1)
    return project


def states(account: str) -> list[str]:
    """The final states of the jobs of an account, from the accounting."""
    return [line.split()[0] for line in sh("sacct", "-X", "-n", "-A", account, "--format=State%20").splitlines()]


def test_jobs_are_charged_and_cancelled_and_completed_ones_are_seen_in_the_accounts(clustered: ClusterProject) -> None:
    assert query_site().accounts == ("eo",)
    clustered.profile()
    profile = yaml.safe_load((clustered.folder / "slurm/config.yaml").read_text())
    assert profile["default-resources"]["slurm_account"] == "eo"
    clustered.brake.touch()
    process = clustered.start(MODEL)
    clustered.wait_for(lambda: clustered.jobs and "RUNNING" in states("eo"), "the training runs")
    sh("scancel", clustered.jobs[-1])
    assert clustered.end(process) != 0
    assert clustered.end(clustered.start("--forcerun", "split", "--", "results/split.json")) == 0, (
        clustered.snakemake_log
    )
    assert states("eo")[0] == "CANCELLED"
    assert states("eo")[-1] == "COMPLETED"


def test_an_account_that_is_not_yours_is_refused(clustered: ClusterProject) -> None:
    clustered.profile(**{"default-resources": {"slurm_account": "others"}})
    assert clustered.end(clustered.run("--", MODEL)) == 2
    assert "error: you cannot charge account others; yours are eo (nothing was submitted)" in clustered.snakemake_log


def test_memory_time_and_cpus_of_jobs_come_from_the_accounts(accounted: Cluster, tmp_path: Path) -> None:
    site = query_site()
    assert (site.has_accounting, site.accounts) == (True, ("eo",))
    (tmp_path / "job.sh").write_text(JOB)
    common = ("sbatch", "--parsable", "--output=/dev/null", "--cpus-per-task=2")
    single = sh(*common, "--mem=600", "--time=7", str(tmp_path / "job.sh")).strip()
    two_nodes = ("--nodes=2", "--ntasks=2", "--partition=gpu", "--gres=gpu:2", "--mem=700", "--time=9")
    multi = sh(*common, *two_nodes, str(tmp_path / "job.sh")).strip()
    deadline = time.monotonic() + PATIENCE
    jobs = [
        JobUsage("split", 1.0, 10.0, 0.1, Requested(), single),
        JobUsage("train", 1.0, None, None, Requested(nodes=2), multi),
    ]
    while "COMPLETED" not in (state := sh("sacct", "-Xn", f"--jobs={multi}", "--format=State")) or sh("squeue", "-h"):
        assert time.monotonic() < deadline, state
        time.sleep(1)
    measured, sentence = with_accounting(jobs)
    # What a step used comes into the accounts after its end.
    while not all((job.memory_mb or 0) >= 200 and job.seconds >= 5 for job in measured):
        assert time.monotonic() < deadline, measured
        time.sleep(1)
        measured, sentence = with_accounting(jobs)
    assert sentence == "2 of 2 Slurm jobs are in its accounting"
    for job in measured:
        assert job.memory_mb is not None
        assert job.memory_mb < 600
