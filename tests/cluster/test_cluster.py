"""The temporary Slurm itself, and what eopipe reads from it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from daemons import sh
from slurm_conf import CPUS, GPUS, MEMORY_MB

from eopipe.clusters.slurm import query_site
from slurm import Cluster

pytestmark = pytest.mark.alone
ROOT = Path(__file__).parents[2]


def eopipe(*arguments: str, home: Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    env = os.environ | {"XDG_CONFIG_HOME": str(home)}
    command = [sys.executable, "-m", "eopipe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=cwd, timeout=60)


def test_each_node_has_a_name_and_an_address_of_its_own(cluster: Cluster) -> None:
    output = sh("srun", f"-N{cluster.nodes}", f"-n{cluster.nodes}", "sh", "-c", "hostname; hostname -I").split()
    assert set(cluster.layout.names) <= set(output)
    assert set(cluster.layout.addresses) <= set(output)


def test_eopipe_reads_what_the_cluster_has(cluster: Cluster) -> None:
    site = query_site()
    assert [partition.name for partition in site.partitions] == ["debug", "gpu", "low"]
    assert site.default_partition.name == "debug"
    gpu = site.partition("gpu")
    assert (gpu.cpus, gpu.memory_mb, gpu.gpus, gpu.max_minutes, len(gpu.nodes)) == (CPUS, MEMORY_MB, GPUS, 60, 4)
    assert site.partition("low").preempt_mode == "REQUEUE"
    assert (site.has_accounting, site.accounts, site.min_job_age_s) == (False, (), 600)


def test_a_profile_is_shown_written_once_and_never_overwritten(cluster: Cluster, tmp_path: Path) -> None:
    arguments = ("profile", "slurm", "--training", "gpu", "--gpu", "--nodes", "2", "--processes", "2")
    first = eopipe(*arguments, home=tmp_path, cwd=tmp_path)
    file = tmp_path / "snakemake" / "slurm" / "config.yaml"
    assert first.returncode == 0, first.stderr
    assert file.read_text() in first.stdout
    assert f"--profile slurm means {file}" in first.stdout
    assert yaml.safe_load(file.read_text())["set-resources"]["train"]["gres"] == "gpu:2"
    file.write_text("jobs: 7\n")
    second = eopipe(*arguments, home=tmp_path, cwd=tmp_path)
    assert second.returncode == 2
    assert "exists already and is not overwritten" in second.stderr
    assert file.read_text() == "jobs: 7\n"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--training", "gpu", "--gpu", "--processes", "8"), "requests 8 GPUs per node, but partition gpu has 2"),
        (("--partition", "fat"), "the cluster eopipe has no partition fat; it has debug, gpu, low"),
        (("--nodes", "5"), "requests 5 nodes, but partition debug has 4 that fit"),
    ],
)
def test_what_the_cluster_cannot_give_is_refused(
    cluster: Cluster, tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    result = eopipe("profile", "slurm", *options, home=tmp_path, cwd=tmp_path)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert not (tmp_path / "snakemake").exists()


@pytest.mark.exhaustive
def test_what_the_rules_of_a_config_ask_is_held_against_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    assert eopipe("profile", "slurm", home=tmp_path, cwd=tmp_path).returncode == 0
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    (tmp_path / "sample").symlink_to(ROOT / "sample")
    config["train"] |= {"processes": 6}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    result = eopipe("profile", "check", "--configfile", "config.yaml", home=tmp_path, cwd=tmp_path)
    assert result.returncode == 2
    assert "rule train: requests 9000 MB per node, but partition debug has 8000" in result.stderr
    config["train"] |= {"processes": 2}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    result = eopipe("profile", "check", "--configfile", "config.yaml", home=tmp_path, cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "note:" not in result.stdout, "the profile has the limit of the partition"
