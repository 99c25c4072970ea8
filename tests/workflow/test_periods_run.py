"""Months in a row in one project of a finished model: `eopipe run --datetime`, killed, moved, and beside each other."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from projects import Project, digests_of, environment, kill_tree

from eopipe.publish import RECORD

MONTHS = ("2018-04", "2018-07", "2018-09")


def eopipe(*words: object) -> list[str]:
    return [sys.executable, "-m", "eopipe", *map(str, words)]


def month(folder: Path, name: str, *words: str) -> "subprocess.Popen[str]":
    command = eopipe("run", "--datetime", name, "--cores", 1, *words)
    return subprocess.Popen(
        command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def ended(run: "subprocess.Popen[str]") -> tuple[int, str]:
    text, _ = run.communicate(timeout=400)
    return run.returncode, text


def init(folder: Path, finished: Project, name: str) -> Path:
    command = eopipe("init", folder, "--from", finished.folder, "--datetime", name)
    subprocess.run(command, env=environment(), check=True, capture_output=True)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    config |= {"with_products": True, "report": {"title": "Forest"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return folder


def records(results: Path) -> dict[str, Any]:
    """Stage and digests of the records, which are without paths and times."""
    rows = {}
    for path in sorted(results.rglob(f"*{RECORD}")):
        if "crate" not in path.parts and "parts" not in path.parts:
            record = json.loads(path.read_text())
            # The crate reads the config, with the paths of the period, and the records, with their times.
            inputs = sorted(
                (row["port"], row["sha256"]) for row in record["inputs"] if row["port"] not in ("config", "records")
            )
            outputs = sorted((row["port"], row["sha256"]) for row in record["outputs"] if row["port"] != "crate")
            rows[str(path.relative_to(results))] = (record["stage"], inputs, outputs)
    return rows


@pytest.mark.exhaustive
def test_months_that_were_killed_moved_and_run_at_once_are_those_of_projects_of_their_own(
    finished: Project, tmp_path: Path
) -> None:
    project = init(tmp_path / "monthly", finished, MONTHS[0])
    first = month(project, MONTHS[0])
    while not (project / f"results/{MONTHS[0]}/logs/predict").is_dir():
        assert first.poll() is None
        time.sleep(0.02)
    kill_tree(first.pid)
    first.communicate()
    assert ended(month(project, MONTHS[0]))[0] == 0
    project = project.rename(tmp_path / "moved")
    before = digests_of(project / f"results/{MONTHS[0]}")
    both = [month(project, name) for name in MONTHS[1:]]
    for run in both:
        code, text = ended(run)
        assert code == 0, text
    code, text = ended(month(project, MONTHS[0]))
    assert code == 0, text
    assert "Nothing to be done" in text
    assert digests_of(project / f"results/{MONTHS[0]}") == before
    assert not (project / "results/model").exists()
    for name in MONTHS:
        of_month, alone = project / f"results/{name}", init(tmp_path / f"only-{name}", finished, name)
        subprocess.run(eopipe("run"), cwd=alone, env=environment(), check=True, capture_output=True)
        assert digests_of(of_month) == digests_of(alone / "results")
        assert records(of_month) == records(alone / "results")
        assert (of_month / "crate/ro-crate-metadata.json").is_file()
    runs = [f"results/{name}" for name in MONTHS]
    command = eopipe("compare", *runs, "--page", "series.html", "--json", "series.json")
    done = subprocess.run(command, cwd=project, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads((project / "series.json").read_text())
    assert [row["name"] for row in document["periods"]] == [*MONTHS]
    assert [row["hectares"] is not None for row in document["changes"]] == [True, True]
    assert "Areas by date, ha" in (project / "series.html").read_text()


@pytest.mark.exhaustive
def test_a_month_that_is_unlike_the_training_ends_with_a_code_of_its_own_and_leaves_its_map(
    finished: Project, tmp_path: Path
) -> None:
    project = init(tmp_path / "monthly", finished, "2020-02")
    code, text = ended(month(project, "2020-02", "--fail-on", "drift"))
    assert code == 10, text
    assert "warning: Scenes are of another season: Feb" in text
    assert "error: the map has drifted, see results/2020-02/status.json" in text
    status = json.loads((project / "results/2020-02/status.json").read_text())
    assert status["unlike_training"]
    assert (project / "results/2020-02/crate/ro-crate-metadata.json").is_file()
    # It is done; without the option it is no failure.
    assert ended(month(project, "2020-02"))[0] == 0
    shutil.rmtree(project)
