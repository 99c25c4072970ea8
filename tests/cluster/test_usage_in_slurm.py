"""What jobs asked for, as a profile with fitted formulas says and their benchmarks tell."""

import json
import subprocess
import sys
from pathlib import Path

import yaml

from eopipe.clusters.tuning import tuned
from eopipe.clusters.usage import read_jobs, with_accounts
from eopipe.clusters.usage_formulas import Formula, Proposal
from slurm import Cluster

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
    quick = yaml.safe_load(shown.stdout) | {"slurm-init-seconds-before-status-checks": 1, "retries": 0}
    del quick["slurm-array-jobs"]
    quick["set-resources"] = {"label": {"slurm_extra": "--nodelist=node1"}}
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
