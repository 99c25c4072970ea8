"""What rules request of a cluster, and which folders its nodes see."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from eopipe.clusters.profile import describe_sharing, mount_of, mounts
from eopipe.clusters.profile_command import read_plan, requested_by_rules, retry_notes, site_conflicts
from eopipe.clusters.slurm import Node, Partition, Site
from eopipe.errors import UsageError

ROOT = Path(__file__).parents[2]
PLAN = """\
[Sat Nov 21 18:11:03 2026]
rule preprocess:
    input: results/scenes/a/manifest.json, results/grid.json
    output: results/tiles/a.zarr/manifest.json
    jobid: 3
    wildcards: scene=a
    threads: 4
    resources: tmpdir=<TBD>, knobs=--threads 4, mem_mb=1500, mem=1.5 GB, runtime=12, slurm_partition=batch, disk=<TBD>

rule preprocess:
    threads: 4
    resources: tmpdir=<TBD>, knobs=--threads 4, mem_mb=<TBD>, runtime=30, slurm_partition=batch

localrule fetch:
    resources: tmpdir=/tmp, mem_mb=90000

rule train:
    resources: mem_mb=2000, nodes=2, tasks=2, mpi=srun, gres=gpu:a100:4, tasks_per_gpu=0, cpus_per_task=8, runtime=60

rule all:
    resources: tmpdir=<TBD>
"""
BATCH = Partition("batch", True, 20, None, "OFF", True, (Node("n1", 2, 32_000, ()),))


def test_the_maximum_of_each_rule_is_read_from_a_plan_without_what_is_not_known_or_local() -> None:
    rules = read_plan(PLAN)
    assert set(rules) == {"preprocess", "train"}
    assert rules["preprocess"] == {"cpus_per_task": 4, "mem_mb": 1500, "runtime": 30, "slurm_partition": "batch"}
    assert (rules["train"]["gres"], rules["train"]["nodes"], rules["train"]["cpus_per_task"]) == ("gpu:a100:4", 2, 8)


def test_what_rules_request_is_compared_with_the_site() -> None:
    profile = {"slurm-status-command": "squeue", "set-resources": {"preprocess": read_plan(PLAN)["preprocess"]}}
    assert list(site_conflicts(profile, Site("hpc", "23.11.4", False, 300, (BATCH,), ()))) == [
        "rule preprocess: requests 4 CPUs per node, but partition batch has 2",
        "rule preprocess: requests 30 minutes, but a job in partition batch may run at most 20",
    ]


def test_a_retry_that_no_partition_allows_is_noted_before_the_run() -> None:
    runtimes = {"label": 8, "train": 20, "split": 5, "report": 10}
    profile = {
        "retries": 3,
        "set-resources": {name: {"runtime": minutes} for name, minutes in runtimes.items()},
    }
    strict = Site("hpc", "23.11.4", False, 300, (BATCH,), ())
    [sentence] = retry_notes(profile, strict)
    assert sentence == (
        "note: a retry of label, report may request more than the 20 minutes of partition batch, and is refused; "
        "write config: {max_minutes: 20} in the profile"
    )
    [sentence] = retry_notes(profile, replace(strict, enforces_limits=False))
    assert "waits forever, since this cluster does not enforce limits" in sentence
    assert list(retry_notes(profile | {"retries": 1}, strict)) == []
    assert list(retry_notes(profile | {"config": {"max_minutes": 20}}, strict)) == []
    assert len(list(retry_notes(profile | {"config": {"max_minutes": 21}}, strict))) == 1


@pytest.mark.exhaustive
def test_a_dry_run_gives_what_the_rules_of_a_config_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text())
    config["train"] |= {"processes": 3, "threads": 2}
    (tmp_path / "own.yaml").write_text(yaml.safe_dump(config))
    shutil.copytree(ROOT / "sample", tmp_path / "sample")
    (tmp_path / "home").mkdir()
    (tmp_path / "home/config.yaml").write_text(
        "cores: 8\nset-resources: {label: {mem_mb: 7777}}\nconfig:\n  max_minutes: 15\n"
    )
    monkeypatch.chdir(tmp_path)
    rules = requested_by_rules("home", Path("own.yaml"))
    assert rules["train"]["cpus_per_task"] == 6
    assert rules["train"]["mem_mb"] == 4500
    assert rules["label"]["mem_mb"] == 7777
    assert (rules["label"]["runtime"], rules["train"]["runtime"] > 15) == (15, True)
    assert not (tmp_path / "results").exists()
    (tmp_path / "own.yaml").write_text("train: {epocs: 3}\n")
    with pytest.raises(UsageError, match=r"Snakemake cannot plan a run with profile home and own.yaml: .*epocs"):
        requested_by_rules("home", Path("own.yaml"))


MOUNTS = r"""/dev/sda1 / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
tank@o2ib:/l /my\040scratch lustre rw 0 0
overlay /home/me/local overlay rw 0 0
"""


def test_a_folder_is_shared_where_its_file_system_is_one_of_the_network() -> None:
    known = mounts(MOUNTS)
    assert [str(mount.folder) for mount in known] == ["/", "/home", "/my scratch", "/home/me/local"]
    assert describe_sharing(Path("/home/me"), known) == "/home/me is on nfs4, which nodes share"
    assert describe_sharing(Path("/tmp"), known) == (
        "/tmp is on ext4, which nodes may not see; use a folder of /home (nfs4), /my scratch (lustre)"
    )
    assert mount_of(Path("/home/me/local/x"), known) == known[3]
    assert "this machine has no shared file system" in describe_sharing(Path("/tmp"), known[:1])


def test_a_machine_that_lists_no_mounts_is_not_an_error() -> None:
    assert describe_sharing(Path("/tmp"), []).startswith("/tmp is on an unknown file system, which nodes may not see")
