"""What jobs of a real Slurm requested, as a profile says, is in their benchmarks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from eopipe.clusters.usage import read_jobs, with_accounting
from slurm import Cluster

SNAKEFILE = """\
rule label:
    output: "made"
    benchmark: "results/benchmarks/label.tsv"
    shell: "touch {output}"
"""


@pytest.mark.exhaustive
def test_what_a_profile_requests_is_read_without_accounting(cluster: Cluster, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eopipe", "profile", "slurm", "--show"]
    profile_text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    profile = yaml.safe_load(profile_text.stdout) | {"slurm-init-seconds-before-status-checks": 1, "retries": 0}
    del profile["slurm-array-jobs"]
    profile["set-resources"] = {
        "label": {"slurm_extra": "--nodelist=node1", "mem_mb": "600 + 50 * attempt", "runtime": "7 * attempt"}
    }
    (tmp_path / "site").mkdir()
    (tmp_path / "site/config.yaml").write_text(yaml.safe_dump(profile))
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    command = [sys.executable, "-m", "snakemake", "--profile", "site"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, timeout=150)
    assert result.returncode == 0, result.stdout + result.stderr
    jobs, sentence = with_accounting(read_jobs(tmp_path / "results"))
    assert [(job.rule, job.requested.memory_mb, job.requested.minutes) for job in jobs] == [("label", 650, 7)]
    assert sentence == "no job ran in Slurm: measured by Snakemake and eopipe alone"
    record = {"stage": "label", "status": "completed", "usage": {}, "place": {"job": "slurm:1"}}
    (tmp_path / "results/label.run.json").write_text(json.dumps(record))
    _, sentence = with_accounting(read_jobs(tmp_path / "results"))
    assert sentence == "Slurm has no accounting here: measured by Snakemake and eopipe alone"
