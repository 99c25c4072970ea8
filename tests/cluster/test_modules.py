"""What a site needs before each command reaches the jobs of a real Slurm."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from projects import ROOT, Project, cold_environment

from eopipe.run.project import SNAKEFILE
from slurm import Cluster

MODULES = 'module() {{ echo "$* on $(hostname)" >> {folder}/loaded; PATH={folder}/module:$PATH; }}\n'
EOPIPE = '#!/bin/sh\necho "$1 on $(hostname)" >> {folder}/ran\nexec {python} -m eopipe "$@"\n'


@pytest.mark.exhaustive
def test_modules_are_loaded_before_each_command_of_a_job(cluster: Cluster, tmp_path: Path) -> None:
    project = Project(tmp_path)
    (tmp_path / "Snakefile").write_text(SNAKEFILE)
    (tmp_path / "sample").symlink_to(ROOT / "sample")
    project.write()
    config = yaml.safe_load((tmp_path / "config.yaml").read_text())
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config | {"online_nodes": True}))
    (tmp_path / "modules.sh").write_text(MODULES.format(folder=tmp_path))
    (tmp_path / "module").mkdir()
    (tmp_path / "module/eopipe").write_text(EOPIPE.format(folder=tmp_path, python=sys.executable))
    (tmp_path / "module/eopipe").chmod(0o755)
    profile = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    profile |= {"slurm-init-seconds-before-status-checks": 1, "latency-wait": 20}
    profile["set-resources"] = {"search": {"slurm_extra": "--nodelist=node1", "mem_mb": 600}}
    profile["config"] = {"setup": f"source {tmp_path}/modules.sh; module load eopipe/1.0"}
    (tmp_path / "site").mkdir()
    (tmp_path / "site/config.yaml").write_text(yaml.safe_dump(profile))
    command = [sys.executable, "-m", "snakemake", "--profile", "site", "--until", "search"]
    result = subprocess.run(
        command, cwd=tmp_path, env=cold_environment(), capture_output=True, text=True, timeout=180, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    [loaded] = (tmp_path / "loaded").read_text().splitlines()
    node = loaded.rpartition(" ")[2]
    assert loaded == f"load eopipe/1.0 on {node}"
    assert node in cluster.layout.names
    assert (tmp_path / "ran").read_text() == f"search on {node}\n"
