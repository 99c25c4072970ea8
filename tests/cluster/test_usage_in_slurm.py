"""What Slurm's own accounting, when it is on, tells of jobs."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from daemons import sh

from eopipe.clusters.slurm import site
from eopipe.clusters.tuning import tuned
from eopipe.usage.formulas import Formula, Proposal
from eopipe.usage.jobs import Asked, Job, read_jobs
from eopipe.usage.scheduler import with_accounts
from slurm import FOR_ACCOUNTING, Cluster, lacking

JOB = """\
#!/bin/sh
srun --overlap --ntasks=$SLURM_NNODES --ntasks-per-node=1 python3 -c '
import time
held, start = bytearray(200 << 20), time.time()
while time.time() < start + 5: pass'
"""
SNAKEFILE = """\
rule label:
    input: "store/manifest.json"
    output: "made"
    benchmark: "results/benchmarks/label.tsv"
    shell: "touch {output}"
"""


def test_formulas_and_what_was_asked_go_through_slurm_without_accounts(cluster: Cluster, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eopipe", "profile", "slurm", "--show"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    quick = yaml.safe_load(shown.stdout) | {"slurm-init-seconds-before-status-checks": 3, "retries": 0}
    del quick["slurm-array-jobs"]
    (tmp_path / "first.yaml").write_text(yaml.safe_dump(quick))
    formulas = {"mem_mb": Formula(600, 0.5), "runtime": Formula(7)}
    (tmp_path / "fitted").mkdir()
    made = tuned(tmp_path / "first.yaml", [Proposal("label", formulas, "why")], "no accounts")
    (tmp_path / "fitted/config.yaml").write_text(made)
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "store").mkdir()
    (tmp_path / "store/manifest.json").write_text('{"files": [{"size": 100000000}]}')
    command = [sys.executable, "-m", "snakemake", "--profile", "fitted"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=150)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs, said = with_accounts(read_jobs(tmp_path / "results"))
    assert [(job.rule, job.asked.memory_mb, job.asked.minutes) for job in jobs] == [("label", 650, 7)]
    assert said == "no job ran in Slurm: measured by Snakemake and eopipe alone"
    record = {"stage": "label", "status": "completed", "usage": {}, "place": {"job": "slurm:1"}}
    (tmp_path / "results/label.run.json").write_text(json.dumps(record))
    _, said = with_accounts(read_jobs(tmp_path / "results"))
    assert said == "Slurm keeps no accounts here: measured by Snakemake and eopipe alone"


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
