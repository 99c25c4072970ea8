"""What Slurm's own accounting, when it is on, tells of jobs."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from daemons import sh

from eopipe.clusters.slurm import site
from eopipe.usage.jobs import Asked, Job
from eopipe.usage.scheduler import with_accounts
from slurm import FOR_ACCOUNTING, Cluster, lacking

JOB = """\
#!/bin/sh
srun --overlap --ntasks=$SLURM_NNODES --ntasks-per-node=1 python3 -c '
import time
held, start = bytearray(200 << 20), time.time()
while time.time() < start + 5: pass'
"""


@pytest.fixture
def accounting(cluster: Cluster) -> Iterator[Cluster]:
    """Two nodes with accounting, in the place of the four without."""
    if reason := lacking(*FOR_ACCOUNTING):
        if os.environ.get("EOPIPE_NO_SKIP"):
            pytest.fail(reason)
        pytest.skip(reason)
    cluster.stop()
    made = Cluster(nodes=2, accounting=True)
    made.start(os.getpid())
    try:
        yield made
    finally:
        made.stop()
        cluster.start(os.getpid())


def test_memory_time_and_cpus_of_jobs_come_from_the_accounts(accounting: Cluster, tmp_path: Path) -> None:
    found = site()
    assert (found.accounting, found.accounts) == (True, ("eo",))
    (tmp_path / "job.sh").write_text(JOB)
    common = ("sbatch", "--parsable", "--output=/dev/null", "--cpus-per-task=2")
    one = sh(*common, "--mem=600", "--time=7", str(tmp_path / "job.sh")).strip()
    two = ("--nodes=2", "--ntasks=2", "--partition=gpu", "--gres=gpu:2", "--mem=700", "--time=9")
    many = sh(*common, *two, str(tmp_path / "job.sh")).strip()
    until = time.monotonic() + 90
    jobs = [Job("split", "", 1.0, 10.0, 0.1, Asked(), (), one), Job("train", "", 1.0, None, None, Asked(), (), many)]
    while "COMPLETED" not in (told := sh("sacct", "-Xn", f"--jobs={many}", "--format=State")) or sh("squeue", "-h"):
        assert time.monotonic() < until, told
        time.sleep(1)
    (first, second), said = with_accounts(jobs)
    assert said == "2 of 2 jobs of Slurm are in its accounts"
    assert first.asked == Asked(600, 7, 2, 0, 1)
    assert second.asked == Asked(700, 9, 2, 2, 2)
    for job in (first, second):
        assert job.memory_mb is not None
        assert 200 <= job.memory_mb < 600
        assert job.seconds >= 5
