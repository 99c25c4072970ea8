"""The throwaway Slurm itself, and what eopipe reads of it."""

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


def eopipe(*words: str, home: Path, where: Path) -> "subprocess.CompletedProcess[str]":
    told = os.environ | {"XDG_CONFIG_HOME": str(home)}
    command = [sys.executable, "-m", "eopipe", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=told, cwd=where, timeout=60)


def test_each_node_has_a_name_and_an_address_of_its_own(cluster: Cluster) -> None:
    told = sh("srun", f"-N{cluster.nodes}", f"-n{cluster.nodes}", "sh", "-c", "hostname; hostname -I").split()
    assert set(cluster.place.names) <= set(told)
    assert set(cluster.place.addresses) <= set(told)


def test_eopipe_reads_what_the_cluster_has(cluster: Cluster) -> None:
    found = query_site()
    assert [one.name for one in found.partitions] == ["debug", "gpu", "low"]
    assert found.default_partition.name == "debug"
    gpu = found.partition("gpu")
    assert (gpu.cpus, gpu.memory_mb, gpu.gpus, gpu.max_minutes, len(gpu.nodes)) == (CPUS, MEMORY_MB, GPUS, 60, 4)
    assert found.partition("low").preempt_mode == "REQUEUE"
    assert (found.has_accounting, found.accounts, found.min_job_age_s) == (False, (), 600)


def test_a_profile_is_shown_written_once_and_never_overwritten(cluster: Cluster, tmp_path: Path) -> None:
    words = ("profile", "slurm", "--training", "gpu", "--gpu", "--nodes", "2", "--processes", "2")
    first = eopipe(*words, home=tmp_path, where=tmp_path)
    file = tmp_path / "snakemake" / "slurm" / "config.yaml"
    assert first.returncode == 0, first.stderr
    assert file.read_text() in first.stdout
    assert f"--profile slurm means {file}" in first.stdout
    assert yaml.safe_load(file.read_text())["set-resources"]["train"]["gres"] == "gpu:2"
    file.write_text("jobs: 7\n")
    again = eopipe(*words, home=tmp_path, where=tmp_path)
    assert again.returncode == 2
    assert "exists already and is not overwritten" in again.stderr
    assert file.read_text() == "jobs: 7\n"


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (("--training", "gpu", "--gpu", "--processes", "8"), "requests 8 GPUs per node, but partition gpu has 2"),
        (("--partition", "fat"), "the cluster eopipe has no partition fat; it has debug, gpu, low"),
        (("--nodes", "5"), "requests 5 nodes, but partition debug has 4 that fit"),
    ],
)
def test_what_the_cluster_cannot_give_is_refused(
    cluster: Cluster, tmp_path: Path, more: tuple[str, ...], sentence: str
) -> None:
    done = eopipe("profile", "slurm", *more, home=tmp_path, where=tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert not (tmp_path / "snakemake").exists()


def test_what_the_rules_of_a_config_ask_is_held_against_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    assert eopipe("profile", "slurm", home=tmp_path, where=tmp_path).returncode == 0
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    (tmp_path / "sample").symlink_to(ROOT / "sample")
    config["train"] |= {"processes": 6}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    done = eopipe("profile", "check", "--configfile", "config.yaml", home=tmp_path, where=tmp_path)
    assert done.returncode == 2
    assert "rule train: requests 9000 MB per node, but partition debug has 8000" in done.stderr
    config["train"] |= {"processes": 2}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    done = eopipe("profile", "check", "--configfile", "config.yaml", home=tmp_path, where=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
