"""Many scenes through the real Slurm: few submissions, few questions, few files, and no network on the nodes."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from daemons import ClusterError, sh, wait
from load import QUEUE, SUBMISSIONS, calls, files, reset_counters
from many_scenes import project, tiles
from projects import ROOT, cold_environment

from slurm import Cluster

pytestmark = [pytest.mark.alone, pytest.mark.exhaustive]
COUNT = 6


def snakemake(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "snakemake", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=cold_environment(), timeout=300
    )


@pytest.fixture(scope="module")
def fetched(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose scenes were fetched, with the repository's own profile; arrays of three and quick looks."""
    folder = project(tmp_path_factory.mktemp("many"), COUNT)
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    (folder / "slurm").mkdir()
    quick = {"slurm-array-limit": 3, "slurm-init-seconds-before-status-checks": 6}
    (folder / "slurm/config.yaml").write_text(yaml.safe_dump(profile | quick))
    result = snakemake(folder, "--profile", "slurm", "fetched")
    assert result.returncode == 0, result.stderr
    return folder


def test_many_scenes_take_few_submissions_questions_and_files(cluster: Cluster, fetched: Path) -> None:
    reset_counters()
    start = time.monotonic()
    result = snakemake(fetched, "--profile", "slurm", "--", *tiles(fetched), "results/labels/all.zarr/manifest.json")
    minutes = (time.monotonic() - start) / 60
    assert result.returncode == 0, result.stderr
    counts = calls()
    # Six scenes in two arrays, and the labels.
    assert counts[SUBMISSIONS] == 3
    # Queries of the queue for all jobs together: a job that is not repeated asks nothing.
    assert counts[QUEUE] <= 10 * minutes + 2
    file_counts = files(fetched)
    results = sum(count for folder, count in file_counts.items() if folder.startswith("results/"))
    assert results / COUNT < 35, file_counts
    assert sum(count for folder, count in file_counts.items() if folder.startswith(".snakemake")) <= COUNT + 10, (
        file_counts
    )


def test_a_run_that_would_leave_jobs_behind_is_refused(cluster: Cluster, fetched: Path) -> None:
    result = snakemake(fetched, "--profile", "slurm", "--jobs", "4", "--forcerun", "preprocess", "--", *tiles(fetched))
    assert result.returncode != 0
    assert "jobs: 4 with slurm-array-jobs leaves scenes waiting forever" in result.stderr
    assert not re.search(r"^JobId", sh("squeue", "--states=running,pending", "--format=JobId%i", "--noheader"), re.M)


def test_the_nodes_have_no_network_and_need_none(cluster: Cluster, fetched: Path) -> None:
    if not cluster.layout.separate:
        pytest.skip("nodes without a network of their own")
    reach = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    with pytest.raises(ClusterError, match="Network is unreachable"):
        sh("srun", sys.executable, "-c", reach)


def test_a_task_that_is_cancelled_takes_none_of_its_array_with_it(cluster: Cluster, tmp_path: Path) -> None:
    asks = f"{sys.executable} -c 'from eopipe.clusters.executor_patches import refuse_cancelled as ask; ask()'"
    alike = ("sbatch", "--parsable", "--job-name=run", "--comment=rule_of_the_first_scene", "--time=2")
    script = f"[ $SLURM_ARRAY_TASK_ID != 1 ] || sleep 60; {asks}; echo ended $?"
    array = sh(*alike, "--array=1-3%1", f"--output={tmp_path}/%a", f"--wrap={script}").strip()
    wait(30, lambda: "RUNNING" in sh("squeue", "-h", "-j", f"{array}_1", "-o", "%T"), "first task")
    sh("scancel", f"{array}_1")
    last, again = tmp_path / "3", tmp_path / "again"
    wait(60, lambda: last.exists() and "ended" in last.read_text(), "the other tasks")
    assert [(tmp_path / name).read_text() for name in "23"] == ["ended 0\n"] * 2
    sh(*alike, f"--output={again}", f"--wrap={asks}; echo ended $?")
    wait(60, lambda: again.exists() and "ended" in again.read_text(), "the same job again")
    assert re.search(r"job \d+ was cancelled, so this run does not start it again", again.read_text())
    assert again.read_text().endswith("ended 1\n")
