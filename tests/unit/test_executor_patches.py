"""Internals of Snakemake and its Slurm executor: a Slurm that does not answer, and versions without an internal."""

import asyncio
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.api import Workflow
from snakemake.exceptions import WorkflowError

from eopipe.clusters import executor_patches
from eopipe.clusters.executor_patches import (
    Status,
    config_files,
    has_job_arrays,
    internal,
    keep_last_answer,
    prepare_executor,
    repeat_until_answered,
    workflow_folder,
)
from eopipe.errors import UsageError


@pytest.fixture
def plugin() -> Any:
    """The executor of Slurm; the tests that need none run without it too."""
    return pytest.importorskip("snakemake_executor_plugin_slurm", reason="the extra slurm is not installed")


def test_a_query_is_repeated_until_it_is_answered_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executor_patches, "RETRY_INTERVAL_S", 0.0)
    answers: list[Status] = [(None, None), (None, None), ({"7": "RUNNING"}, 0.1)]

    async def query(_command: str, _logger: logging.Logger) -> Status:
        return answers.pop(0)

    answer = asyncio.run(repeat_until_answered(query)("squeue", logging.getLogger()))
    assert answer == ({"7": "RUNNING"}, 0.1)
    assert [record.message for record in caplog.records] == [
        "Slurm does not answer; jobs continue, and the query is repeated until it does."
    ]


def test_an_empty_answer_is_an_answer_too() -> None:
    async def query(_command: str, _logger: logging.Logger) -> Status:
        return {}, 0.1

    assert asyncio.run(repeat_until_answered(query)("squeue", logging.getLogger())) == ({}, 0.1)


def test_the_last_known_answer_holds_while_there_is_none() -> None:
    answers = [None, 600, None, 300]
    query = keep_last_answer(lambda: answers.pop(0))
    assert [query() for _ in range(4)] == [None, 600, 600, 300]


@pytest.fixture
def restored(plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin is as it was after the test."""
    for name in ("query_job_status", "get_min_job_age"):
        monkeypatch.setattr(plugin, name, getattr(plugin, name))


def run_on(executor_settings: object, jobs: int = 10000, **attributes: object) -> SimpleNamespace:
    """What Snakemake knows of a run."""
    rate = SimpleNamespace(max_jobs=10000)
    return SimpleNamespace(
        executor_settings=executor_settings,
        resource_settings=SimpleNamespace(nodes=jobs),
        scheduling_settings=SimpleNamespace(max_jobs_per_timespan=rate),
        **attributes,
    )


@pytest.mark.usefixtures("restored")
def test_the_queries_of_the_executor_are_replaced_once(plugin: Any) -> None:
    workflow = run_on(plugin.ExecutorSettings())
    prepare_executor(workflow)
    first = plugin.query_job_status
    prepare_executor(workflow)
    assert plugin.query_job_status is first
    assert first.__module__ == executor_patches.__name__ == plugin.get_min_job_age.__module__


@pytest.mark.usefixtures("restored")
def test_a_run_on_this_machine_leaves_the_executor_as_it_is(plugin: Any) -> None:
    query = plugin.query_job_status
    prepare_executor(run_on(None))
    assert plugin.query_job_status is query


@pytest.mark.usefixtures("restored")
def test_a_run_that_would_split_its_job_arrays_is_refused(plugin: Any) -> None:
    settings = plugin.ExecutorSettings(array_jobs="fetch")
    prepare_executor(run_on(settings))
    with pytest.raises(WorkflowError, match="jobs: 50 with slurm-array-jobs leaves scenes waiting forever"):
        prepare_executor(run_on(settings, jobs=50))


@pytest.mark.parametrize("name", ["query_job_status", "get_min_job_age", "ExecutorSettings"])
def test_a_plugin_without_an_internal_is_used_as_it_is_with_a_warning(
    plugin: Any, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = {"query_job_status", "get_min_job_age", "ExecutorSettings"} - {name}
    other_version = SimpleNamespace(**{internal_name: getattr(plugin, internal_name) for internal_name in names})
    before = dict(vars(other_version))
    monkeypatch.setitem(sys.modules, executor_patches.PLUGIN, other_version)  # type: ignore[arg-type]
    prepare_executor(run_on(plugin.ExecutorSettings()))
    assert vars(other_version) == before
    [warning] = [record.getMessage() for record in caplog.records]
    sentence = rf"snakemake-executor-plugin-slurm [\d.]+ has no {name}; eopipe was tested with .* 2\.8\. The executor "
    assert re.match(sentence, warning)


@pytest.mark.usefixtures("restored")
def test_a_plugin_without_a_query_still_refuses_job_arrays_that_would_be_split(
    plugin: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(plugin, "get_min_job_age")
    with pytest.raises(WorkflowError, match="jobs: 50 with slurm-array-jobs leaves scenes waiting forever"):
        prepare_executor(run_on(plugin.ExecutorSettings(array_jobs="fetch"), jobs=50))


@pytest.mark.usefixtures("restored")
def test_a_setting_that_the_plugin_renamed_is_named(plugin: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Renamed(plugin.ExecutorSettings):  # type: ignore[misc]
        def __getattribute__(self, name: str) -> Any:
            if name == "array_jobs":
                raise AttributeError(name)
            return super().__getattribute__(name)

    prepare_executor(run_on(Renamed(), jobs=50))
    assert "has no array_jobs; eopipe was tested with" in caplog.text


def test_job_arrays_are_those_of_the_executor_of_a_run(plugin: Any) -> None:
    assert has_job_arrays(run_on(plugin.ExecutorSettings(array_jobs="fetch")))
    assert not has_job_arrays(run_on(plugin.ExecutorSettings()))
    assert not has_job_arrays(run_on(None))


@pytest.mark.parametrize("read", [config_files, workflow_folder, prepare_executor, has_job_arrays])
def test_a_version_of_snakemake_without_an_internal_is_refused_in_one_sentence(read: Any) -> None:
    sentence = r"^snakemake [\d.]+ has no \w+; eopipe was tested with snakemake 9\.18 to 9\.27$"
    with pytest.raises(WorkflowError, match=sentence):
        read(SimpleNamespace())


def test_the_installed_versions_have_every_internal_of_the_table(plugin: Any) -> None:
    import snakemake.cli
    import snakemake.common

    for name in ("query_job_status", "get_min_job_age", "ExecutorSettings.array_jobs"):
        internal(plugin, name, "snakemake-executor-plugin-slurm")
    internal(snakemake.cli, "get_profile_dir", "snakemake")
    internal(snakemake.common, "get_appdirs", "snakemake")
    with pytest.raises(UsageError, match=r"snakemake [\d.]+ has no get_profiles; eopipe was tested"):
        internal(snakemake.cli, "get_profiles", "snakemake")
    for name in ("current_basedir", "executor_settings", "scheduling_settings", "resource_settings"):
        assert hasattr(Workflow, name) or name in Workflow.__annotations__, name


def test_the_table_names_every_internal_that_the_module_uses() -> None:
    text = Path(executor_patches.__file__).read_text()
    table, _, code = text.partition("\nAn internal that is missing")
    used = set(re.findall(r'(?:internal\(\w+, |_of_workflow\(workflow, )"([\w.]+)"', code))
    used |= set(re.findall(r'"(query_job_status|get_min_job_age)"', code))
    assert len(used) >= 9
    assert [name for name in used if name not in table] == []


def test_a_job_does_not_load_snakemake_or_asyncio_to_learn_whether_it_was_cancelled() -> None:

    code = (
        "import sys, eopipe.clusters.executor_patches; print(sorted({'snakemake', 'asyncio', PLUGIN} & {*sys.modules}))"
    )
    code = code.replace("PLUGIN", repr(executor_patches.PLUGIN))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


SQUEUE = """#!/bin/sh
echo "$@" >> {folder}/asked
case "$*" in
*--jobs=9*) printf '9|9|RUNNING|run|rule_x\\n' ;;
*--name=run*--states=CANCELLED*) printf '7|7|CANCELLED|run|rule_x\\n6|6|CANCELLED|run|rule_y\\n' ;;
*) printf '%s|8|RUNNING|run|rule_z\\n' 1 2 3 4 5 ;;
esac
"""
ASKS = "from eopipe.clusters.executor_patches import refuse_cancelled as ask; ask()"


@pytest.mark.parametrize(("attempt", "questions"), [("1", 0), ("2", 2), (None, 2)])
def test_only_a_repeated_job_asks_slurm_and_only_for_itself_and_cancelled_jobs_of_its_run(
    attempt: str | None, questions: int, tmp_path: Path
) -> None:
    (tmp_path / "squeue").write_text(SQUEUE.format(folder=tmp_path))
    (tmp_path / "squeue").chmod(0o755)
    (tmp_path / "asked").touch()
    # The command line of Snakemake in a job.
    snakemake = ["sh", "-c", '"$0" -c "$1" || exit', sys.executable, ASKS, "--attempt", attempt or "unknown"]
    variables = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "9"}
    done = subprocess.run(snakemake, capture_output=True, text=True, check=False, env=variables)
    lines = (tmp_path / "asked").read_text().splitlines()
    assert len(lines) == questions, done.stderr
    assert ("job 7 was cancelled, so this run does not start it again" in done.stderr) == bool(questions)
    assert all("--jobs=9 " in line or "--name=run --states=CANCELLED " in line for line in lines)
