"""A cluster that keeps accounts: slurmdbd and MariaDB."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from clustered import MODEL, Clustered, copied
from daemons import sh
from projects import Project

from eopipe.clusters.slurm import site
from slurm import FOR_ACCOUNTING, Cluster, lacking


@pytest.fixture(scope="module")
def accounted(cluster: Cluster) -> Iterator[Cluster]:
    """Another cluster in the place of the one without accounts."""
    if reason := lacking(*FOR_ACCOUNTING):
        pytest.skip(reason)
    cluster.stop()
    made = Cluster(nodes=2, accounting=True)
    try:
        made.start(os.getpid())
        yield made
    finally:
        made.stop()
        cluster.start(os.getpid())


@pytest.fixture
def clustered(accounted: Cluster, prepared: Project, tmp_path: Path) -> Clustered:
    """A fresh copy of the project, of one process."""
    made = copied(prepared, tmp_path / "project")
    made.configure(processes=1)
    return made


def states(account: str) -> list[str]:
    """How the jobs of an account ended, as the accounts tell."""
    return sh("sacct", "-X", "-n", "-A", account, "--format=State%20").splitlines()


def test_jobs_are_charged_and_cancelled_and_failed_ones_are_seen_in_the_accounts(
    clustered: Clustered, undisturbed: bytes
) -> None:
    assert site().accounts == ("eo",)
    clustered.profile()
    told = yaml.safe_load((clustered.folder / "slurm/config.yaml").read_text())
    assert told["default-resources"]["slurm_account"] == "eo"
    clustered.brake.touch()
    process = clustered.start(MODEL)
    clustered.under_way()
    sh("scancel", clustered.jobs[-1])
    assert clustered.end(process) != 0
    clustered.brake.unlink()
    assert clustered.end(clustered.run("--configfile", "config.yaml", "--", MODEL)) == 0, clustered.told
    assert clustered.weights() == undisturbed
    assert [one.split()[0] for one in states("eo")] == [
        "CANCELLED",
        *["FAILED"] * (len(clustered.jobs) - 2),
        "COMPLETED",
    ]


def test_an_account_that_is_not_yours_is_refused(clustered: Clustered) -> None:
    clustered.profile(**{"default-resources": {"slurm_account": "others"}})
    assert clustered.end(clustered.run("--", MODEL)) == 2
    assert "error: you cannot charge account others; yours are eo (nothing was submitted)" in clustered.told
