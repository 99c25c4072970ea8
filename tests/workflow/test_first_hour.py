"""What a newcomer types first: bare commands, a config in another folder, what a run says, and the line of a job."""

import os
import pty
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from projects import DAYS, OPTIONAL, ROOT, Project, environment

from eopipe.contract import STAGES

GRID = "results/grid.json"


def typed(command: str, folder: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a command line in a folder, outside a terminal; `stdout` has both streams."""
    return subprocess.run(
        shlex.split(command),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
        env=environment() | variables,
    )


@pytest.fixture
def elsewhere(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder beside which, under the name my-area, is a project."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "my-area").symlink_to(project.folder)
    return folder


def test_a_bare_run_uses_the_config_of_the_folder(project: Project) -> None:
    result = typed("eopipe run --dry-run", project.folder)
    assert result.returncode == 0, result.stdout
    assert "checkpoint search:" in result.stdout


def test_a_bare_run_in_a_checkout_is_the_demo(tmp_path: Path) -> None:
    for name in ("Snakefile", "workflow", "config", "sample"):
        (tmp_path / name).symlink_to(ROOT / name)
    result = typed("eopipe run --dry-run", tmp_path)
    assert result.returncode == 0, result.stdout
    assert "--title 'Forest map from Sentinel-2, Romania'" in typed("eopipe run -np", tmp_path).stdout


@pytest.mark.parametrize("command", ["run", "plan", "check", "command fetch"])
def test_a_command_without_a_config_says_what_to_do(command: str, tmp_path: Path) -> None:
    result = typed(f"eopipe {command}", tmp_path)
    assert result.returncode == 2
    assert len(result.stdout.splitlines()) == 1
    assert re.match(r"error: there is no config\.yaml .*eopipe init", result.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        f"eopipe run --configfile my-area/config.yaml -- {GRID}",
        f"eopipe run --configfile=my-area/config.yaml --cores 1 {GRID}",
        f"snakemake --snakefile {shlex.quote(str(ROOT))}/Snakefile -c 1 --configfile my-area/config.yaml -- {GRID}",
    ],
)
@pytest.mark.exhaustive
def test_a_run_of_a_config_elsewhere_is_one_in_its_folder(elsewhere: Path, project: Project, command: str) -> None:
    result = typed(command, elsewhere)
    assert result.returncode == 0, result.stdout
    assert (project.folder / GRID).is_file()
    assert not (elsewhere / "results").exists()
    # The same jobs as those of a run in the folder.
    again = typed(f"eopipe run -- {GRID}", project.folder)
    assert "Nothing to be done" in again.stdout


@pytest.mark.exhaustive
def test_a_config_elsewhere_is_planned_and_checked_in_its_folder(elsewhere: Path, project: Project) -> None:
    planned = typed("eopipe plan my-area/config.yaml", elsewhere)
    assert planned.returncode == 0, planned.stdout
    assert (project.folder / "plan/plan.json").is_file()
    assert "in the project folder my-area:" in planned.stdout
    assert sorted(path.name for path in elsewhere.iterdir()) == ["my-area"]
    checked = typed("eopipe check my-area", elsewhere)
    assert checked.returncode == 0, checked.stdout


def test_a_run_says_each_finished_job_and_the_errors_of_the_stages_last(project: Project) -> None:
    (project.folder / "labels.gpkg").write_text("these are no labels")
    project.write(label={"source": "labels.gpkg"})
    result = typed("eopipe run -- results/labels/all.zarr/manifest.json", project.folder)
    assert result.returncode == 1
    assert "1 of 2 jobs: search finished" in result.stdout
    lines = result.stdout.strip().splitlines()
    (error,) = [line for line in (project.results / "logs/label/all.log").read_text().splitlines() if "error: " in line]
    assert lines[-1].strip() == error.replace("error: ", "error: label all failed: ")
    assert f"label all failed: {error.removeprefix('error: ')}" in lines[:-1], "before the log of the job"


def test_on_a_terminal_a_run_has_a_live_bar(project: Project) -> None:
    reader, writer = pty.openpty()
    process = subprocess.Popen(
        ["eopipe", "run", "--", GRID], cwd=project.folder, stdout=writer, stderr=writer, env=environment()
    )
    os.close(writer)
    output = b""
    try:
        while part := os.read(reader, 4096):
            output += part
    except OSError:
        # The last writer has closed it.
        pass
    assert process.wait(60) == 0
    assert b"Workflow Progress" in output
    assert b"jobs: search finished" not in output


def test_a_run_says_how_to_follow_the_training_and_a_dry_run_does_not(finished: Project) -> None:
    log = next(iter(sorted((finished.folder / ".snakemake/log").glob("*.log")))).read_text()
    assert "training starts; follow it with: tail -f results/logs/train.log" in log
    assert "tail -f" not in finished.run("--dry-run", "--forcerun", "train").stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--configfile nofile.yaml", "there is no config file nofile.yaml"),
        ("--configfile config.yaml results/grid.json", "there is no config file results/grid.json; put targets before"),
        ("--config train.epochs=1", "--config train.epochs=1: write --config train='{epochs: 1}'"),
        ("--config epochs", "--config epochs: write SECTION='{NAME: VALUE}'"),
    ],
)
def test_a_mistake_in_the_arguments_is_one_sentence(project: Project, arguments: str, sentence: str) -> None:
    result = typed(f"eopipe run {arguments}", project.folder)
    assert result.returncode == 2
    assert result.stdout.startswith(f"error: {sentence}")
    assert len(result.stdout.splitlines()) == 1


def test_a_missing_file_is_named_with_its_setting(project: Project) -> None:
    project.write(label={"source": "nolabels.gpkg"})
    result = typed("eopipe run -- results/labels/all.zarr/manifest.json", project.folder)
    assert result.returncode == 1
    assert "error: there is no label.source nolabels.gpkg" in result.stdout
    assert "MissingInputException" not in result.stdout


def test_a_file_in_place_of_the_results_is_one_sentence(project: Project) -> None:
    project.results.write_text("")
    result = typed("eopipe run --dry-run", project.folder)
    assert result.returncode == 1
    assert result.stdout.strip() == (
        "error: results: results must be a folder, but is a file: move it, or name another folder"
    )


def copied(finished: Project, folder: Path) -> Project:
    shutil.copytree(finished.folder, folder / "copy", symlinks=True)
    return Project(folder / "copy")


def rerun(project: Project, name: str, *job: str) -> None:
    """Remove nothing, run the line of a stage's first job as a user pastes it into a shell."""
    output = typed(f"eopipe command {name} {' '.join(job)}", project.folder)
    assert output.returncode == 0, output.stdout
    line = output.stdout.splitlines()[0]
    assert line.startswith(f"eopipe {name} ")
    assert ">" not in line
    done = subprocess.run(
        ["bash", "-c", line], cwd=project.folder, capture_output=True, text=True, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(rf"event=finished stage={name} seconds=\S+ mb=\S+ files=\d+ wrote='", done.stderr), done.stderr


@pytest.mark.exhaustive
def test_the_line_of_a_job_runs_it_again_and_gives_the_same_bytes(finished: Project, tmp_path: Path) -> None:
    project = copied(finished, tmp_path)
    before = project.digests()
    for name, *job in (("search",), ("fetch", f"S2_ROMANIA_{DAYS[2]}"), ("label", "all"), ("evaluate",)):
        rerun(project, name, *job)
    assert project.digests() == before


@pytest.mark.exhaustive
def test_the_line_of_each_stage_runs_it_again_and_gives_the_same_bytes(finished: Project, tmp_path: Path) -> None:
    project = copied(finished, tmp_path)
    before = project.digests()
    # The line of crate has the path from the first project to the checkout.
    for name in STAGES:
        if name not in OPTIONAL | {"crate"}:
            rerun(project, name)
    assert project.digests() == before


def test_the_line_of_a_job_is_the_first_of_its_log(finished: Project) -> None:
    logs = sorted((finished.results / "logs").rglob("*.log"))
    assert {log.relative_to(finished.results / "logs").parts[0].partition(".")[0] for log in logs} == set(
        STAGES
    ) - OPTIONAL
    for log in logs:
        first, *others = log.read_text().splitlines()
        assert first.startswith("eopipe ")
        events = [line for line in others if "event=" in line]
        assert events
        for line in events:
            assert re.match(r"time=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ level=\w+ event=\w", line), line
        assert "event=finished stage=" in others[-1]


def test_a_job_that_has_not_run_or_does_not_exist_has_no_line(finished: Project, project: Project) -> None:
    for folder, command, sentence in (
        (project.folder, "eopipe command train", "no job of train has run here"),
        (finished.folder, "eopipe command fetch nowhere", "fetch has no job nowhere; its jobs are S2_ROMANIA_"),
    ):
        result = typed(command, folder)
        assert result.returncode == 2
        assert result.stdout.startswith(f"error: {sentence}")
