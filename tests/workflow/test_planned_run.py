"""A plan predicts what a whole run then makes: inodes and bytes, without those of weights, within 10 percent."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import two_zones
from projects import DAYS, Project, environment

SCENES = [f"S2_ROMANIA_{day}" for day in DAYS[:3]]
WEIGHTS = (".safetensors", ".onnx")


def plan(project: Project, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "eopipe", "plan", "config.yaml", *arguments]
    return subprocess.run(
        command, cwd=project.folder, capture_output=True, text=True, timeout=200, check=False, env=environment()
    )


def planned(project: Project) -> dict[str, Any]:
    completed = plan(project)
    assert completed.returncode == 0, completed.stderr
    document: dict[str, Any] = json.loads((project.folder / "plan/plan.json").read_text())
    return document


def disk_usage(project: Project) -> tuple[int, int]:
    """Inodes of all that a run leaves, and bytes without weights; a hard link is no inode."""
    folders = [project.results, project.folder / "state", project.folder / ".snakemake"]
    paths = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    by_inode = {path.stat().st_ino: path for path in paths}
    payload = [path for path in by_inode.values() if path.is_file() and path.suffix not in WEIGHTS]
    return len(by_inode), sum(path.stat().st_size for path in payload)


def store_inodes(project: Project, kind: str) -> int:
    """Inodes of the stores of a kind with the folder of them, without the records of their jobs."""
    folder = project.results / kind
    return 1 + sum(1 + len(list(store.rglob("*"))) for store in folder.glob("*.zarr"))


def compare(project: Project, document: dict[str, Any]) -> None:
    """A plan beside what its run has made: also the inodes of stores, of which a quota must hold most."""
    of_kind = {row["name"]: row["inodes"] for row in document["needs"]}
    assert [*of_kind][:2] == ["scenes", "tiles"]
    others = [name for name in ("models", "maps", "everything else") if name in of_kind]
    assert [*of_kind][-len(others) :] == others
    for kind in of_kind.keys() & {"tiles", "composites", "labels"}:
        assert of_kind[kind] == pytest.approx(store_inodes(project, kind), rel=0.02), kind
    inodes, size = disk_usage(project)
    assert document["totals"]["inodes"] == pytest.approx(inodes, rel=0.1)
    assert document["totals"]["bytes"] == pytest.approx(size, rel=0.1)


def check_plan(project: Project) -> None:
    """Plan, run to the end, compare, and plan once more."""
    document = planned(project)
    result = project.run("--show-failed-logs")
    assert result.returncode == 0, result.stdout
    compare(project, document)
    inodes, size = disk_usage(project)
    assert planned(project)["totals"] == {"inodes": inodes, "bytes": size, "inodes_to_write": 0, "bytes_to_write": 0}


@pytest.mark.exhaustive
def test_inodes_and_bytes_of_the_demo_are_predicted(demo: Project, project: Project) -> None:
    (project.folder / "config.yaml").write_text((demo.folder / "config.yaml").read_text())
    document = planned(project)
    assert not project.results.exists(), "a plan leaves nothing in the results"
    compare(demo, document)
    again = plan(demo)
    assert again.returncode == 0, again.stderr
    assert "Inodes are files and folders" in again.stdout
    assert "still to write: 0 inodes" in again.stdout
    assert "0 B to fetch" in again.stdout
    assert "frozen in results" in again.stdout
    (demo.results / "model/manifest.json").unlink()
    assert planned(demo)["totals"]["inodes"] == document["totals"]["inodes"], "without its model a run is not finished"


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


@pytest.mark.exhaustive
def test_the_map_of_a_finished_model_is_predicted_too(finished: Project, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "eopipe", "init", tmp_path / "year", "--from", finished.folder]
    subprocess.run([*command, "--datetime", "2017"], check=True, capture_output=True, env=environment())
    check_plan(Project(tmp_path / "year"))


# No constant of the forecast is from the seasons, and of the zones only the bytes of a pixel of a map, in part.
@pytest.mark.exhaustive
def test_a_run_with_two_zones_is_predicted_too(tmp_path: Path) -> None:
    two_zones.write_project(tmp_path)
    check_plan(Project(tmp_path))


@pytest.mark.exhaustive
def test_composites_of_seasons_are_predicted_too(project: Project) -> None:
    project.write(composite={"method": "median", "period": "season"}, train={"epochs": 1, "processes": 1})
    check_plan(project)
