"""A plan predicts what a whole run of the sample then makes: inodes within 2 percent, bytes within 30."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from projects import DAYS, Project, environment

SCENES = [f"S2_ROMANIA_{day}" for day in DAYS[:3]]


def plan(project: Project, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "eopipe", "plan", "config.yaml", *arguments]
    return subprocess.run(
        command, cwd=project.folder, capture_output=True, text=True, timeout=200, check=False, env=environment()
    )


def needs(project: Project) -> dict[str, dict[str, Any]]:
    report = json.loads((project.folder / "plan/plan.json").read_text())
    return {need["folder"]: need for need in report["needs"]}


REPORT = ("calibration", "metrics", "report", "map", "model-card", "data-card")
ROWS = {"grid.json": "items", "selection.json": "items", "statistics.json": "split", "export.json": "model"}
ROWS |= {"model.onnx": "model"} | {
    f"{name}.{suffix}": "report" for name in REPORT for suffix in ("json", "md", "html", "png")
}


def kind(path: Path) -> str:
    """The row of a plan that a file or folder of the results belongs to."""
    if path.name.endswith(".run.json"):
        return "records"
    return ROWS.get(path.parts[0], path.parts[0].partition(".")[0])


def disk_usage(project: Project) -> dict[str, tuple[int, int]]:
    """Number of inodes and bytes by row of the plan: of hard links the one outside of products, catalog and crate."""
    usage: dict[str, tuple[int, int]] = {}
    results, inodes = project.results, set[int]()
    entries = [(kind(path.relative_to(results)), path) for path in results.rglob("*")]
    for name in ("state", ".snakemake"):
        entries += [(name, path) for path in (project.folder / name, *(project.folder / name).rglob("*"))]
    for name, path in sorted(entries, key=lambda entry: entry[0] in ("products", "catalog", "crate")):
        if path.stat().st_ino not in inodes:
            count, size = usage.get(name, (0, 0))
            usage[name] = count + 1, size + (path.stat().st_size if path.is_file() else 0)
        inodes.add(path.stat().st_ino)
    return usage


def compare(project: Project, predicted: dict[str, dict[str, Any]]) -> None:
    """A plan beside what its run has made: every row but those of links and of Snakemake exactly."""
    actual = disk_usage(project)
    inodes = {name: need["files"] + need["folders"] for name, need in predicted.items()}
    assert inodes.keys() == actual.keys()
    for name in inodes.keys() - {"catalog", "crate", ".snakemake"}:
        assert inodes[name] == actual[name][0], name
    assert sum(inodes.values()) == pytest.approx(sum(count for count, _ in actual.values()), rel=0.02)
    for name in inodes.keys() & {"items", "scenes", "tiles", "composites", "labels"}:
        assert predicted[name]["bytes"] == pytest.approx(actual[name][1], rel=0.3), name
    # The weights are known once there is a model.
    for name in inodes.keys() & {"model", "folds", "trials", "members"}:
        del predicted[name], actual[name]
    assert sum(need["bytes"] for need in predicted.values()) == pytest.approx(
        sum(size for _, size in actual.values()), rel=0.3
    )


def check_plan(project: Project) -> None:
    """Plan, run to the end, and compare."""
    planned = plan(project)
    assert planned.returncode == 0, planned.stderr
    predicted = needs(project)
    result = project.run("--show-failed-logs")
    assert result.returncode == 0, result.stdout
    compare(project, predicted)


@pytest.mark.exhaustive
def test_every_inode_of_the_demo_is_predicted_and_its_bytes_nearly(demo: Project, project: Project) -> None:
    (project.folder / "config.yaml").write_text((demo.folder / "config.yaml").read_text())
    planned = plan(project)
    assert planned.returncode == 0, planned.stderr
    assert "Files and folders are inodes" in planned.stdout
    assert not project.results.exists(), "a plan leaves nothing in the results"
    compare(demo, needs(project))
    again = plan(demo)
    assert again.returncode == 0, again.stderr
    assert "still to write: 0 inodes" in again.stdout
    assert "0 B to fetch" in again.stdout
    assert "frozen in results" in again.stdout


@pytest.mark.exhaustive
def test_the_folds_and_the_parts_of_a_map_are_predicted_too(project: Project) -> None:
    project.write(composite={"method": "median", "period": "year"}, search={"ids": SCENES}, train={"epochs": 1})
    with (project.folder / "config.yaml").open("a") as config:
        config.write("folds: 3\nmap_parts: 2\nwith_products: true\n")
    check_plan(project)


@pytest.mark.exhaustive
def test_the_trials_are_predicted_too(project: Project) -> None:
    space = {"width": [4, 8], "seed": [0, 1]}
    project.write(search={"ids": SCENES}, train={"epochs": 4, "processes": 1}, trials={"space": space, "rungs": [0.3]})
    check_plan(project)


@pytest.mark.exhaustive
def test_the_members_are_predicted_too(project: Project) -> None:
    project.write(search={"ids": SCENES}, train={"epochs": 1, "processes": 1})
    with (project.folder / "config.yaml").open("a") as config:
        config.write("members: 2\n")
    check_plan(project)
