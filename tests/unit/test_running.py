"""Why a job of a cluster failed for good, in a sentence."""

from pathlib import Path

import pytest

from eopipe.cli import main
from eopipe.clusters.running import conclude, failed_jobs, is_partial, locate, name_config, run

RESUME = "run the same command again to resume"


def log(message: str, job: int = 3, rule: str = "train", after: str = "") -> str:
    head = f"[Sat Nov 21 18:10:39 2026]\nError in rule {rule}:\n    message: {message}\n    jobid: {job}\n"
    return f"{head}    output: model\n{after}\n"


def ended(state: str) -> str:
    return f"SLURM-job '12' failed, SLURM status is: '{state}'. Detailed failure reason unavailable (…).For further …"


def refused(output: str) -> str:
    return f"SLURM sbatch failed. The error message was '{output}'.\n    sbatch call:\n        sbatch -A 'x'\n"


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (ended("TIMEOUT"), f"its job 12 ran over its time limit each time; {RESUME}, or give it more (runtime)"),
        (ended("NODE_FAIL"), f"its job 12 lost its node; {RESUME}"),
        (
            refused(
                "sbatch: error: invalid partition specified: fat\nsbatch: error: Batch job submission failed: Invalid x"
            ),
            "Slurm refused its job: Invalid x; set slurm_partition to one that `sinfo` shows",
        ),
        (
            refused("sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"),
            "Slurm refused its job: Unable to contact slurm controller (connect failure); "
            f"when it answers (`sinfo`), {RESUME}",
        ),
        (refused(""), "Slurm refused its job: no reason given; contact your cluster's support"),
    ],
)
def test_what_slurm_says_of_a_job_has_a_remedy(message: str, sentence: str) -> None:
    assert list(failed_jobs(log(message))) == [f"rule train: {sentence}"]


def test_a_job_that_failed_by_itself_says_its_own_first_error() -> None:
    after = "Logfile results/logs/train.log:\nerror: no space left\nsrun: error: node1\nerror: the step ended so\n"
    assert list(failed_jobs(log(ended("FAILED"), after=after))) == ["rule train: no space left"]


def test_only_the_last_failure_of_what_never_succeeded_is_reported() -> None:
    text = log(ended("FAILED"), after="error: first") + log(ended("TIMEOUT")) + log(ended("TIMEOUT"), 4, "label")
    assert [
        sentence.split(": its")[0] for sentence in failed_jobs(f"{text}[now]\nFinished jobid: 4 (Rule: label)\n")
    ] == ["rule train"]


def test_a_job_is_explained_by_its_last_attempt_that_ran_not_by_a_refusal_of_the_next() -> None:
    first = log(ended("FAILED"), after="error: choose would overwrite files that it did not write")
    second = log(refused("sbatch: error: Batch job submission failed: Requested time limit is invalid"))
    sentence = "rule train: choose would overwrite files that it did not write"
    assert list(failed_jobs(first + second)) == [sentence]
    assert list(failed_jobs(first + second + second)) == [sentence]
    assert list(failed_jobs(second)) == [
        "rule train: Slurm refused its job: Requested time limit is invalid; lower its runtime in set-resources of "
        "the profile"
    ]


@pytest.mark.parametrize("text", ["", "Building DAG of jobs...\nMissingRuleException:\nNo rule to produce x\n"])
def test_a_log_without_failed_jobs_has_no_sentences(text: str) -> None:
    assert list(failed_jobs(text)) == []


@pytest.mark.parametrize(
    ("arguments", "others"),
    [
        (["my/config.yaml"], []),
        (["my/config.yaml", "--dry-run"], ["--dry-run"]),
        (["-n", "my/config.yaml", "split"], ["-n", "split"]),
        (["--cores", "2", "my/config.yaml"], ["--cores", "2"]),
        (["--profile", "site.yaml", "my/config.yaml"], ["--profile", "site.yaml"]),
        (["my/config.yaml", "--", "results/other.yaml"], ["--", "results/other.yaml"]),
    ],
)
def test_a_yaml_file_among_the_words_is_the_config_of_the_run(
    arguments: list[str], others: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my").mkdir()
    (tmp_path / "my/config.yaml").touch()
    named = name_config(arguments)
    assert named == ["--configfile", "my/config.yaml", "--rerun-incomplete", *others]
    assert locate(named) == (tmp_path / "my", [])
    assert is_partial(named) == bool({"--dry-run", "-n", "--"} & set(others))


@pytest.mark.parametrize(
    "arguments",
    [
        ["split", "results/grid.json", "--profile", "site.yaml"],
        ["--", "results/other.yaml"],
        ["results/other.yaml", "--configfile", "config.yaml"],
        ["--configfile=config.yaml", "results/other.yaml"],
        ["--workflow-profile=site.yaml"],
    ],
)
def test_rules_outputs_and_values_of_options_are_no_configs(arguments: list[str]) -> None:
    assert name_config(arguments) == arguments


def test_a_config_that_does_not_exist_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "confg.yaml", "--dry-run"]) == 2
    assert capsys.readouterr().err == "error: there is no config file confg.yaml\n"


def test_the_help_names_the_common_options_and_starts_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == run(["all", "-h"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: eopipe run ")
    assert "`snakemake --help` lists them all" in text


@pytest.mark.parametrize(
    ("arguments", "is_named"),
    [
        (["--logger", "rich"], True),
        (["--configfile", "config.yaml", "--cores", "2", "--rerun-incomplete"], True),
        (["--profile=slurm"], True),
        (["--", "results/grid.json"], False),
        (["split"], False),
        (["--dry-run"], False),
        (["-np"], False),
    ],
)
def test_the_last_line_of_a_whole_run_names_its_report(
    arguments: list[str],
    is_named: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    conclude(arguments, Path("results"))
    assert capsys.readouterr().out == "", "there is none yet"
    (tmp_path / "results").mkdir()
    (tmp_path / "results/report.html").touch()
    conclude(arguments, Path("results"))
    line = "The run is complete; its report is results/report.html\n"
    assert capsys.readouterr().out == (line if is_named else "")
