"""A plan tells what a run of the sample then makes: every file, and the bytes within 30 percent."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from projects import Project, environment


def plan(project: Project, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "eopipe", "plan", "config.yaml", *words]
    return subprocess.run(
        command, cwd=project.folder, capture_output=True, text=True, timeout=200, check=False, env=environment()
    )


def needs(project: Project) -> dict[str, dict[str, Any]]:
    told = json.loads((project.folder / "plan/plan.json").read_text())
    return {need["folder"]: need for need in told["needs"]}


def kind(path: Path) -> str:
    """The row of a plan that a file of the results belongs to."""
    if path.name.endswith(".run.json"):
        return "records"
    return {"grid.json": "items", "selection.json": "items"}.get(
        path.parts[0], path.parts[0].partition(".")[0].replace("statistics", "split")
    )


def made(project: Project) -> dict[str, tuple[int, int]]:
    """Files and bytes that lie in the results, by row, and in the memory of Snakemake."""
    found: dict[str, tuple[int, int]] = {}
    results = project.results
    rows = [(kind(p.relative_to(results)), p) for p in results.rglob("*") if p.is_file()]
    rows += [(".snakemake", p) for p in (project.folder / ".snakemake").rglob("*") if p.is_file()]
    for name, path in rows:
        files, size = found.get(name, (0, 0))
        found[name] = files + 1, size + path.stat().st_size
    return found


def foretold(project: Project) -> None:
    """Plan, run up to the split, and compare."""
    planned = plan(project)
    assert planned.returncode == 0, planned.stderr
    assert not project.results.exists(), "a plan leaves nothing in the results"
    told = needs(project)
    done = project.run("--until", "split")
    assert done.returncode == 0, done.stdout
    there = made(project)
    assert {name: need["files"] for name, need in told.items()} == {name: files for name, (files, _) in there.items()}
    for name in ("items", "scenes", "tiles", "composites", "labels"):
        if name in told:
            assert told[name]["bytes"] == pytest.approx(there[name][1], rel=0.3), name
    assert sum(need["bytes"] for need in told.values()) == pytest.approx(sum(s for _, s in there.values()), rel=0.3)


def test_every_file_of_a_run_is_foretold_and_its_bytes_nearly(project: Project) -> None:
    foretold(project)
    again = plan(project)
    assert again.returncode == 0, again.stderr
    assert "still to write: 0 files" in again.stdout
    assert "0 B to fetch" in again.stdout
    assert "frozen in results" in again.stdout


def test_composites_are_foretold_too(project: Project) -> None:
    project.write(composite={"method": "median", "period": "year"})
    foretold(project)
