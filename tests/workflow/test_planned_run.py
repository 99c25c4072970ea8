"""A plan predicts what a run of the sample then makes: every file, and the bytes within 30 percent."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from projects import Project, environment


def plan(project: Project, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "eopipe", "plan", "config.yaml", *arguments]
    return subprocess.run(
        command, cwd=project.folder, capture_output=True, text=True, timeout=200, check=False, env=environment()
    )


def needs(project: Project) -> dict[str, dict[str, Any]]:
    report = json.loads((project.folder / "plan/plan.json").read_text())
    return {need["folder"]: need for need in report["needs"]}


def kind(path: Path) -> str:
    """The row of a plan that a file of the results belongs to."""
    if path.name.endswith(".run.json"):
        return "records"
    return {"grid.json": "items", "selection.json": "items"}.get(
        path.parts[0], path.parts[0].partition(".")[0].replace("statistics", "split")
    )


def disk_usage(project: Project) -> dict[str, tuple[int, int]]:
    """Number of files and bytes in the results, by row of the plan, and in `.snakemake`."""
    usage: dict[str, tuple[int, int]] = {}
    results = project.results
    rows = [(kind(p.relative_to(results)), p) for p in results.rglob("*") if p.is_file()]
    rows += [(".snakemake", p) for p in (project.folder / ".snakemake").rglob("*") if p.is_file()]
    for name, path in rows:
        files, size = usage.get(name, (0, 0))
        usage[name] = files + 1, size + path.stat().st_size
    return usage


def check_plan(project: Project, *last: str) -> None:
    """Plan, run up to the split or these rules, and compare."""
    planned = plan(project)
    assert planned.returncode == 0, planned.stderr
    assert not project.results.exists(), "a plan leaves nothing in the results"
    predicted = needs(project)
    result = project.run("--until", *(last or ("split",)))
    assert result.returncode == 0, result.stdout
    actual = disk_usage(project)
    assert {name: need["files"] for name, need in predicted.items()} == {
        name: files for name, (files, _) in actual.items()
    }
    for name in ("items", "scenes", "tiles", "composites", "labels"):
        if name in predicted:
            assert predicted[name]["bytes"] == pytest.approx(actual[name][1], rel=0.3), name
    assert sum(need["bytes"] for need in predicted.values()) == pytest.approx(
        sum(s for _, s in actual.values()), rel=0.3
    )


@pytest.mark.exhaustive
def test_every_file_of_a_run_is_predicted_and_its_bytes_nearly(project: Project) -> None:
    project.write(composite={"method": "median", "period": "year"})
    with (project.folder / "config.yaml").open("a") as config:
        config.write("folds: 3\n")
    check_plan(project, "split", "split_fold")
    second = plan(project)
    assert second.returncode == 0, second.stderr
    assert "still to write: 0 files" in second.stdout
    assert "0 B to fetch" in second.stdout
    assert "frozen in results" in second.stdout
