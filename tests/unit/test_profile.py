"""A Snakemake profile for a cluster: what Slurm has, what a training requests, which file a name means."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from eopipe.clusters.profile import JobShape, ProfileOptions, describe_training, write_profile
from eopipe.clusters.profile_command import config_conflicts, find_profile, site_conflicts
from eopipe.clusters.slurm import Node, Partition, Site, parse_gpus, parse_minutes, parse_records
from eopipe.config import check
from eopipe.errors import UsageError


def nodes(count: int, gpu: tuple[tuple[str, int], ...] = ()) -> tuple[Node, ...]:
    return tuple(Node(f"n{number}", 8, 32_000, gpu) for number in range(count))


BATCH = Partition("batch", True, 120, None, "OFF", True, nodes(4))
FAST = Partition("fast", False, 1440, 3, "OFF", True, nodes(2, (("a100", 4),)))
SPARE = Partition("spare", False, None, None, "REQUEUE", True, nodes(8))
LOST = Partition("lost", False, None, None, "CANCEL", True, nodes(8))
SITE = Site("hpc", "23.11.4", True, 300, (BATCH, FAST, SPARE, LOST), ("geo",))


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:2", (("", 2),)),
        ("gpu:a100:4(S:0-1),gpu:2", (("a100", 4), ("", 2))),
        ("tmpdisk:5,gpu:h200:8", (("h200", 8),)),
        ("gpu:v100", (("v100", 1),)),
        ("(null)", ()),
        ("craynetwork:1", ()),
    ],
)
def test_gpus_are_read_from_what_slurm_calls_gres(gres: str, gpus: tuple[tuple[str, int], ...]) -> None:
    assert parse_gpus(gres) == gpus


def test_limits_are_minutes_that_are_never_too_short() -> None:
    assert [parse_minutes(text) for text in ("1:00:00", "2-01:00:30", "UNLIMITED", "00:00:01")] == [60, 2941, None, 1]


def test_values_of_slurm_may_hold_blanks() -> None:
    records = parse_records(
        "NodeName=n1 OS=Linux 6.1 #1 SMP State=IDLE CfgTRES=cpu=4,mem=8G\nNodeName=n2 OS= State=DOWN*\n"
    )
    assert records[0]["OS"] == "Linux 6.1 #1 SMP"
    assert [node["State"] for node in records] == ["IDLE", "DOWN*"]


def test_one_node_requests_no_tasks_and_many_nodes_one_each() -> None:
    assert JobShape(1, 4, 8, gpu_type="a100").resources() == {
        "cpus_per_task": 8,
        "gres": "gpu:a100:4",
        "tasks_per_gpu": 0,
    }
    resources = JobShape(3, 2, 4, memory_mb=9000).resources()
    assert resources == {"cpus_per_task": 4, "mem_mb": 9000, "nodes": 3, "tasks": 3, "mpi": "srun"}


def test_a_gpu_type_with_dashes_is_left_out_where_a_partition_has_no_other() -> None:
    partition = replace(FAST, nodes=(*nodes(2, (("a100-sxm4-80gb", 4),)), *nodes(1)))
    site = replace(SITE, partitions=(BATCH, partition))
    options = ProfileOptions(training="fast", processes=2, cpus=4, gpu="a100-sxm4-80gb")
    profile = yaml.safe_load(write_profile(site, options))
    assert profile["set-resources"]["train"]["gres"] == "gpu:2"
    assert list(site_conflicts(profile, site)) == []


def test_a_gpu_type_with_dashes_is_refused_where_a_partition_has_others() -> None:
    shape = JobShape(1, 2, 4, gpu_type="a100-sxm4-80gb")
    for other in ("v100", ""):
        partition = replace(FAST, nodes=(*nodes(2, (("a100-sxm4-80gb", 4),)), *nodes(1, ((other, 4),))))
        (sentence,) = shape.conflicts(partition)
        assert f"partition fast also has {other or 'GPUs without type'}; write --gpu without a type" in sentence
    assert shape.conflicts(FAST) == ["requests 2 a100-sxm4-80gb GPUs per node, but partition fast has 0"]


def test_a_gres_of_the_profile_is_one_that_the_executor_accepts() -> None:
    plugin = pytest.importorskip("snakemake_executor_plugin_slurm", reason="the extra slurm is not installed")
    executor = Path(str(plugin.__file__)).with_name("utils.py")
    pattern = re.search(r'gres_re = re.compile\(r"(.*?)"\)', executor.read_text())
    assert pattern is not None
    for gpu_type in ("", "a100", "nvidia_h100_nvl_1g.12gb", "a100-sxm4-80gb", "a+b", "tesla v100"):
        assert re.match(pattern[1], str(JobShape(1, 2, gpu_type=gpu_type).resources()["gres"]))
    assert JobShape(1, 2, gpu_type="nvidia_h100_nvl_1g.12gb").resources()["gres"] == "gpu:nvidia_h100_nvl_1g.12gb:2"


def test_a_profile_with_a_gres_that_the_executor_refuses_is_reported() -> None:
    partition = replace(FAST, nodes=nodes(2, (("a100-sxm4-80gb", 4),)))
    train = {"gres": "gpu:a100-sxm4-80gb:2", "tasks_per_gpu": 0, "slurm_partition": "fast"}
    profile = {"executor": "slurm", "set-resources": {"train": train}}
    conflicts = list(site_conflicts(profile, replace(SITE, partitions=(BATCH, partition))))
    assert any("does not accept the gres gpu:a100-sxm4-80gb:2; write gpu:NUMBER" in text for text in conflicts)


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        (JobShape(1, 8, 8, gpu_type=""), "requests 8 GPUs per node, but partition fast has 4"),
        (JobShape(1, 2, 2, gpu_type="h200"), "requests 2 h200 GPUs per node, but partition fast has 0"),
        (JobShape(1, 1, 9), "requests 9 CPUs per node, but partition fast has 8"),
        (JobShape(1, 1, 1, 64_000), "requests 64000 MB per node, but partition fast has 32000"),
        (JobShape(4, 1, 1), "requests 4 nodes, but a job in partition fast may use at most 3"),
        (JobShape(3, 1, 1), "requests 3 nodes, but partition fast has 2 that fit"),
    ],
)
def test_what_can_never_start_is_said_in_the_words_of_the_profile(shape: JobShape, sentence: str) -> None:
    assert shape.conflicts(FAST) == [sentence]


def test_a_profile_is_yaml_that_names_partitions_account_and_limits() -> None:
    profile = yaml.safe_load(
        write_profile(SITE, ProfileOptions(training="fast", nodes=2, processes=4, cpus=8, gpu="a100"))
    )
    assert profile["default-resources"] == {"slurm_partition": "batch", "slurm_account": "geo"}
    assert profile["config"] == {"max_minutes": 120}
    train = profile["set-resources"]["train"]
    assert (train["slurm_partition"], train["runtime"], train["nodes"], train["mpi"]) == ("fast", 1440, 2, "srun")
    assert train["slurm_extra"] == "--signal=TERM@300"
    assert profile["retries"] == 3
    assert profile["slurm-no-requeue"] is True


FORGETFUL = Site("hpc", "23.11.4", True, 30, (BATCH,), ())


@pytest.mark.parametrize(
    ("site", "options", "message"),
    [
        (SITE, {"partition": "spare"}, "jobs in partition spare may be pre-empted; add --preemptible"),
        (SITE, {"partition": "lost", "preemptible": True}, "partition lost cancels pre-empted jobs"),
        (SITE, {"partition": "gpu"}, "has no partition gpu; it has batch, fast, spare, lost"),
        (SITE, {"account": "sea"}, "cannot charge account sea; yours are geo"),
        (replace(FORGETFUL, has_accounting=False), {}, "forgets a job 30 s after its end and has no accounting"),
        *((SITE, {name: "a' b"}, f"--{name} is .* has no blanks") for name in ("qos", "constraint", "reservation")),
    ],
)
def test_what_a_cluster_does_not_give_is_refused(site: Site, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        write_profile(site, ProfileOptions(**options))


def test_jobs_that_may_be_preempted_are_requeued_and_a_forgetful_controller_is_queried_by_accounting() -> None:
    profile = yaml.safe_load(write_profile(SITE, ProfileOptions(partition="spare", preemptible=True)))
    assert profile["slurm-requeue"] is True
    assert "slurm-no-requeue" not in profile
    assert yaml.safe_load(write_profile(FORGETFUL, ProfileOptions()))["slurm-status-command"] == "sacct"


def test_quality_of_service_constraint_and_reservation_hold_for_all_jobs() -> None:
    options = ProfileOptions(qos="long", constraint="gpu&(a100|h100)", reservation="course_1")
    profile = yaml.safe_load(write_profile(SITE, options))
    # Snakemake evaluates resources as expressions, such as `max`.
    requested = {name: eval(profile["default-resources"][name]) for name in ("qos", "constraint")}
    assert requested == {"qos": "long", "constraint": "gpu&(a100|h100)"}
    assert profile["slurm-reservation"] == "course_1"
    assert list(site_conflicts(profile, SITE)) == []


def test_a_name_means_the_nearest_file_and_what_it_hides_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="there is no profile slurm in "):
        find_profile("slurm")
    users = tmp_path / "home" / "snakemake" / "slurm" / "config.v8+.yaml"
    users.parent.mkdir(parents=True)
    users.write_text("jobs: 1\n")
    assert find_profile("slurm") == [users]
    local = tmp_path / "slurm" / "config.yaml"
    local.parent.mkdir()
    local.write_text("jobs: 2\n")
    assert [path.resolve() for path in find_profile("slurm")] == [local, users]


def test_a_profile_that_eopipe_writes_passes_its_own_check() -> None:
    for options in (
        ProfileOptions(),
        ProfileOptions(training="fast", nodes=2, processes=4, cpus=8, memory_mb=9000, gpu="a100"),
        ProfileOptions(partition="spare", preemptible=True, nodes=3, processes=2, cpus=4),
    ):
        assert list(site_conflicts(yaml.safe_load(write_profile(SITE, options)), SITE)) == []


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"nodes": 2}, "rule train: 2 nodes need mpi: srun and tasks: 2"),
        ({"mpi": "srun"}, "rule train: mpi is for many nodes; omit it"),
        ({"slurm_partition": "gone"}, "rule train: the cluster hpc has no partition gone; it has batch, fast"),
        ({"slurm_partition": "spare"}, "rule train: jobs in partition spare may be pre-empted"),
        ({"runtime": 600}, "rule train: requests 600 minutes, but a job in partition batch may run at most 120"),
        ({"mem_mb": 100}, "rule train: requests 100 MB, but Snakemake alone needs 500"),
        ({"slurm_partition": "fast", "gres": "gpu:a100:8", "tasks_per_gpu": 0}, "rule train: requests 8 a100 GPUs"),
        ({"slurm_partition": "fast", "gres": "gpu:2"}, "rule train: a gres needs tasks_per_gpu: 0"),
    ],
)
def test_what_a_profile_cannot_have_is_listed_rule_by_rule(change: dict[str, object], sentence: str) -> None:
    profile = yaml.safe_load(write_profile(SITE, ProfileOptions()))
    profile["set-resources"]["train"] |= change
    sentences = list(site_conflicts(profile, SITE))
    assert [line for line in sentences if line.startswith(sentence)], sentences


def test_the_nodes_of_profile_and_config_must_be_alike() -> None:
    profile = yaml.safe_load(
        write_profile(SITE, ProfileOptions(training="fast", nodes=2, processes=2, cpus=8, gpu="a100"))
    )
    assert list(config_conflicts(profile, {"nodes": "2", "processes": 2})) == []
    assert list(config_conflicts(profile, {"nodes": "1:4", "processes": 2})) == []
    [first, second] = config_conflicts(profile, {"nodes": "1", "processes": 4})
    assert first == (
        'the profile gives the training 2 nodes, but train.nodes is 1; set train.nodes: "2" in the config, or '
        "other nodes in the profile"
    )
    assert second.startswith("the profile gives a node 2 GPUs, but train.processes is 4; set train.processes: 2 in ")


ALONE = "one torchrun agent, without srun; rendezvous on the node itself"
AS_NEEDED = "as much memory as its input needs per node"


@pytest.mark.parametrize(
    ("train", "geometry", "sentence"),
    [
        (
            {"nodes": "1", "processes": 4},
            JobShape(1, 4, 16, 64_000, "a100"),
            f"1 node x 4 processes (1 GPU each), 16 CPUs and 64 GB per node; {ALONE}",
        ),
        (
            {"nodes": "1:4", "processes": 2},
            JobShape(3, 4, 8, gpu_type=""),
            f"3 nodes x 2 processes (4 GPUs per node), 8 CPUs and {AS_NEEDED}; "
            "one torchrun agent per node, through srun; rendezvous on the first node",
        ),
        ({"nodes": "1", "processes": 1}, JobShape(), f"1 node x 1 process (no GPU), 1 CPU and {AS_NEEDED}; {ALONE}"),
        (
            {"nodes": "1:4", "processes": 2, "threads": 3, "device": "cuda"},
            None,
            f"1 to 4 nodes x 2 processes (1 GPU each), 6 CPUs and {AS_NEEDED}; one torchrun agent per node, "
            "each started by the same command (docs/clusters.md); rendezvous on the first node",
        ),
    ],
)
def test_the_shape_of_a_training_is_described_as_it_will_run(
    train: dict[str, object], geometry: JobShape | None, sentence: str
) -> None:
    section = check({"search": {"catalog": "sample"}, "label": {"source": "labels.gpkg"}, "train": train})["train"]
    profile = {"executor": "slurm", "set-resources": {"train": geometry.resources()}} if geometry else None
    assert describe_training(section, profile) == f"training: {sentence}"


def test_job_arrays_are_never_split() -> None:
    profile = yaml.safe_load(write_profile(SITE, ProfileOptions()))
    assert "preprocess" in profile["slurm-array-jobs"]
    for key, value in (("jobs", 50), ("max-jobs-per-timespan", "60/1m")):
        [sentence] = site_conflicts(profile | {key: value}, SITE)
        assert sentence.startswith(f"{key}: {value} with slurm-array-jobs leaves scenes waiting forever")
    limited = yaml.safe_load(write_profile(SITE, ProfileOptions(jobs=50)))
    assert limited["jobs"] == 50
    assert "slurm-array-jobs" not in limited
    assert list(site_conflicts(limited, SITE)) == []
