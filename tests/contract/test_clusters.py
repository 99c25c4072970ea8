"""Rules know nothing of a cluster; the profiles know nothing of a site."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from eopipe.clusters.profile import ProfileOptions, write_profile
from eopipe.clusters.profile_command import find_profile
from eopipe.clusters.slurm import Node, Partition, Site
from eopipe.contract import STAGES
from eopipe.run.rules import resources_for, threads_of_scene, training_mb, training_minutes

ROOT = Path(__file__).parents[2]
RULES = [ROOT / "Snakefile", ROOT / "workflow/Snakefile", *sorted((ROOT / "workflow/rules").glob("*.smk"))]
# Words of Slurm and of the executors of Snakemake that speak to a scheduler.
FOREIGN = re.compile(
    r"\b(slurm\w*|sbatch|srun|squeue|scontrol|partition|qos|gres|gpus?|mpi|nodes|ntasks|tasks(_per_\w+)?|cpus_per_\w+"
    r"|constraint|nodelist|condor\w*|qsub|bsub|kubernetes|retries)\s*[:=(]|\bsbatch\b|\bsrun\b|slurm_",
    re.IGNORECASE,
)


def code(text: str) -> str:
    """The rules without what people read."""
    return re.sub(r'#.*|^\s+"[A-Z][^"]*\."$|"""(?:.|\n)*?"""', "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.name)
def test_no_rule_holds_a_word_of_a_scheduler(path: Path) -> None:
    assert [match[0] for match in FOREIGN.finditer(code(path.read_text()))] == []


@pytest.mark.parametrize(
    "line",
    [
        "    resources:\n        slurm_partition='gpu',",
        "    resources: nodes=2",
        "        gres='gpu:1',",
        "        tasks_per_gpu=0,",
        "    retries: 3",
        '    shell: "srun eopipe train"',
        "        gpu=1,",
        "        cpus_per_task=4,",
        "        qos='long',",
    ],
)
def test_a_word_of_a_scheduler_in_a_rule_would_be_found(line: str) -> None:
    assert FOREIGN.search(code(f'rule train:\n    "Train."\n{line}\n'))


# Rules of another name than their stage.
STAGE_OF = {"promote": "choose", "combine": "choose"}


def rule_resources() -> dict[str, dict[str, str]]:
    """The resources of every rule as they are written; those that grow with each attempt are in `machine(…)`."""
    resources: dict[str, dict[str, str]] = {}
    for path in RULES:
        for name, body in re.findall(r"^(?:rule|checkpoint) (\w+):\n((?:[ \n].*\n?)*)", path.read_text(), re.MULTILINE):
            if block := re.search(r"^    resources:\n((?:        .*\n)+)", body, re.MULTILINE):
                [call] = ast.parse(f"dict({block[1]})").body
                assert isinstance(call, ast.Expr)
                assert isinstance(call.value, ast.Call)
                keywords = {word.arg or "machine": word.value for word in call.value.keywords}
                machine = keywords.pop("machine")
                assert isinstance(machine, ast.Call)
                assert ast.unparse(machine).startswith(f"machine('{STAGE_OF.get(name, name)}', ")
                inside = {f"machine {word.arg}": word.value for word in machine.keywords}
                resources[name] = {key: ast.unparse(value) for key, value in (keywords | inside).items()}
    return resources


@pytest.mark.parametrize("rule", sorted(rule_resources()))
def test_a_retry_requests_more_memory_and_time(rule: str) -> None:
    resources = rule_resources()[rule]
    assert "machine mem_mb" in resources
    # A training resumes from its checkpoint.
    assert ("machine runtime" in resources) != (rule == "train")


def test_what_a_rule_requests_is_doubled_by_the_second_attempt_and_knobs_know_wildcards_and_threads() -> None:
    config = {"preprocess": {"threads": 8}, "max_minutes": 8}
    resources = resources_for(
        config, "preprocess", "--parts", "state/{scene}", mem_mb=700, runtime=lambda _, size: size, disk_mb=5
    )
    assert [resources["mem_mb"]({}, 3, attempt) for attempt in (1, 2)] == [700, 1400]
    assert [resources["runtime"]({}, 3, attempt) for attempt in (1, 2, 3)] == [3, 6, 8], "max_minutes is the limit"
    assert resources["disk_mb"] == 5
    assert resources["knobs"]({"scene": "a b"}, 2) == "--parts 'state/a b' --threads 2"


def test_what_grows_with_the_input_is_computed_from_it() -> None:
    resources = rule_resources()
    assert set(resources) == {*STAGES, *STAGE_OF}
    for rule, key in (
        *(("preprocess", key) for key in ("machine runtime", "disk_mb")),
        *(("composite", key) for key in ("machine runtime", "disk_mb")),
        *((rule, "machine runtime") for rule in ("evaluate", "crate")),
    ):
        assert "eo.volume(" in resources[rule][key], (rule, key)
    assert (resources["predict"]["machine runtime"], resources["predict"]["machine disk_mb"]) == (
        "eo.minutes_of_map(config)",
        "eo.disk_of_map",
    )
    assert (resources["train"]["machine mem_mb"], resources["train"]["runtime"]) == (
        "eo.training_mb(config)",
        "eo.training_minutes(config)",
    )


@pytest.mark.parametrize(
    ("configured", "megabytes", "has_job_arrays", "threads"),
    [(0, 49, False, 1), (0, 50, False, 4), (0, 49, True, 4), (0, None, False, 4), (8, 49, False, 8), (2, 50, True, 2)],
)
def test_a_small_scene_has_one_thread_unless_it_shares_a_job_array_with_others_or_the_config_says_more(
    configured: int, megabytes: int | None, has_job_arrays: bool, threads: int, tmp_path: Path
) -> None:
    scene = tmp_path / "manifest.json"
    if megabytes is not None:
        scene.write_text(json.dumps({"files": [{"size": 1_000_000}, {"size": (megabytes - 1) * 1_000_000}]}))
    of_scene = threads_of_scene({"preprocess": {"threads": configured}}, lambda: has_job_arrays)
    assert of_scene({}, SimpleNamespace(scene=str(scene))) == threads


def test_a_training_requests_more_the_more_it_reads_up_to_a_bound(tmp_path: Path) -> None:
    config = {"train": {"cache_mb": 1000, "processes": 2, "epochs": 30, "steps": None}}
    sizes = []
    for number, size in enumerate((0, 100_000_000, 9_000_000_000)):
        store = tmp_path / f"{number}/manifest.json"
        store.parent.mkdir()
        store.write_text(json.dumps({"files": [{"size": size}]}))
        files = SimpleNamespace(tiles=[str(store)])
        sizes.append((training_mb(config)({}, files), training_minutes(config)({}, files)))
    assert sizes == [(3000, 60), (3800, 90), (5000, 720)]
    config["train"] |= {"epochs": None, "steps": 3000}
    assert training_minutes(config)({}, files) == 360


def template() -> dict[str, object]:
    profile: dict[str, object] = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    return profile


def test_the_template_says_what_the_command_writes_and_names_no_site() -> None:
    batch = Partition("batch", True, 60, None, "OFF", True, (Node("n", 8, 32_000, ()),))
    profile = yaml.safe_load(write_profile(Site("hpc", "23.11.4", False, 300, (batch,), ()), ProfileOptions()))
    del profile["default-resources"], profile["config"]
    for of_site in ("slurm_partition", "cpus_per_task", "runtime"):
        del profile["set-resources"]["train"][of_site]
    assert profile == template()


def test_retries_and_extended_benchmarks_are_set_by_the_profile() -> None:
    profile = template()
    assert profile["retries"] == 3
    assert profile["benchmark-extended"] is True


def test_in_a_checkout_the_name_slurm_means_the_template(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (ROOT / "slurm").is_symlink()
    assert (ROOT / "slurm").readlink() == Path("profiles/slurm")
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert find_profile("slurm")[0].resolve() == ROOT / "profiles/slurm/config.yaml"


def test_in_a_checkout_the_literal_command_plans_the_demo(tmp_path: Path) -> None:
    pytest.importorskip("snakemake_executor_plugin_slurm", reason="the extra slurm is not installed")
    environment = os.environ | {"XDG_CONFIG_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "snakemake", "--profile", "slurm", "--dry-run", "--forceall", "--nolock"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    output = done.stdout + done.stderr
    train = re.search(r"^rule train:\n(?:    .*\n)*?    resources: .*runtime=(\d+).*mem_mb=(\d+)", output, re.MULTILINE)
    assert train, output
    # A small partition can run the demo.
    assert int(train[1]) <= 60
    assert int(train[2]) <= 4000
