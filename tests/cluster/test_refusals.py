"""What a cluster cannot give, or cannot tell: one sentence, no job submitted, and the same command works later."""

import subprocess
import sys
from pathlib import Path

import pytest
from cluster_project import MODEL, ClusterProject, copy_project
from projects import Project

from slurm import Cluster


@pytest.fixture
def clustered(cluster: Cluster, prepared: Project, tmp_path: Path) -> ClusterProject:
    """A fresh copy of the project."""
    return copy_project(prepared, tmp_path / "project")


@pytest.mark.exhaustive
@pytest.mark.alone
@pytest.mark.parametrize(
    ("train", "sentence"),
    [
        ({"slurm_partition": "fat"}, "the cluster eopipe has no partition fat; it has debug, gpu, low"),
        ({"mem_mb": 64000}, "requests 64000 MB per node, but partition debug has 8000"),
        ({"gres": "tpu:1", "tasks_per_gpu": 0}, "requests the gres tpu, but the cluster has gpu"),
        ({"gres": "gpu:h200:2", "tasks_per_gpu": 0}, "requests 2 h200 GPUs per node, but partition debug has 0"),
        ({"nodes": 9, "tasks": 9, "mpi": "srun"}, "requests 9 nodes, but partition debug has 4 that fit"),
        ({"runtime": 600}, "requests 600 minutes, but a job in partition debug may run at most 60"),
    ],
)
def test_what_the_cluster_does_not_have_is_refused_before_a_job_is_submitted(
    clustered: ClusterProject, train: dict[str, object], sentence: str
) -> None:
    clustered.profile(train=train)
    assert clustered.refusal(2) == f"error: rule train: {sentence} (nothing was submitted)"


@pytest.mark.exhaustive
def test_an_account_where_none_are_kept_is_refused(clustered: ClusterProject) -> None:
    clustered.profile(**{"default-resources": {"slurm_account": "eo"}})
    assert "the cluster eopipe has no accounting; omit slurm_account" in clustered.refusal(2)


@pytest.mark.exhaustive
def test_what_only_sbatch_refuses_is_told_with_its_words(clustered: ClusterProject) -> None:
    clustered.profile(retries=0, train={"slurm_extra": "--licenses=matlab:1"})
    message = "error: rule train: Slurm refused its job: Invalid license specification; contact your cluster's support"
    assert clustered.refusal(1) == message


@pytest.mark.exhaustive
def test_the_literal_command_ends_too_where_a_job_can_never_start(clustered: ClusterProject) -> None:
    clustered.profile(retries=0, train={"mem_mb": 64000})
    assert clustered.end(clustered.start(MODEL), 120) == 1
    assert "Memory specification can not be satisfied" in clustered.snakemake_log


@pytest.mark.exhaustive
def test_where_there_is_no_slurm_the_commands_are_said_to_be_missing(clustered: ClusterProject, tmp_path: Path) -> None:
    clustered.profile()
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name not in ("scontrol", "squeue", "sbatch", "sinfo", "sacct"):
            (folder / program.name).symlink_to(program)
    message = clustered.refusal(2, PATH=f"{Path(sys.executable).parent}:{folder}")
    assert message == "error: scontrol is not installed here; run this on a login node of a Slurm cluster"


@pytest.mark.exhaustive
def test_a_home_that_cannot_be_written_is_told_with_a_way_round(cluster: Cluster, clustered: ClusterProject) -> None:
    command = [sys.executable, "-m", "eopipe", "profile", "slurm"]
    home = {k: v for k, v in clustered.environment.items() if k != "XDG_CONFIG_HOME"} | {"HOME": str(cluster.sealed)}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=home, timeout=60)
    assert result.returncode == 2
    message = "cannot be written; set XDG_CONFIG_HOME to a writable folder, or use --show > FILE"
    assert result.stderr.strip().splitlines()[-1].endswith(message)
