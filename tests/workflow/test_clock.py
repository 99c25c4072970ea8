"""A run completes, once, although clocks are wrong or set back, and loses nothing."""

import os
import shutil
import time
from pathlib import Path

import pytest
from projects import DAYS, ROOT, Project

SCENE = f"S2_ROMANIA_{DAYS[0]}"
FETCHED, TILES = f"results/scenes/{SCENE}/manifest.json", f"results/tiles/{SCENE}.zarr/manifest.json"
HOUR = 3600


def shift(folder: Path, seconds: int) -> dict[Path, float]:
    """Shift the modification times of all files below a folder; return the new times."""
    times = {path: path.stat().st_mtime + seconds for path in folder.rglob("*") if path.is_file()}
    for path, time_s in times.items():
        os.utime(path, (time_s, time_s))
    return times


@pytest.mark.exhaustive
def test_a_source_from_the_future_is_named_and_left_as_it_is(project: Project) -> None:
    (project.folder / "sample").unlink()
    shutil.copytree(ROOT / "sample", project.folder / "sample")
    catalog, source = (project.folder / "sample" / name for name in ("catalog.json", "tree_cover_density_2018.tif"))
    times = {path: time.time() + HOUR for path in (catalog, source)}
    for path, seconds in times.items():
        os.utime(path, (seconds, seconds))
    targets = ("--", TILES, "results/labels/all.zarr/manifest.json")
    result = project.run(*targets)
    assert result.returncode == 1
    for path in times:
        name = path.relative_to(project.folder)
        assert f"warning: {name} has a modification time in the future; Snakemake fails jobs" in result.stdout
    assert "has older modification time" in result.stdout
    assert "results had modification times" not in result.stdout
    assert {path: path.stat().st_mtime for path in times} == pytest.approx(times)
    for path in times:
        path.touch()
    result = project.run(*targets)
    assert result.returncode == 0, result.stdout
    assert "in the future" not in result.stdout
    assert project.planned(*targets) == []


@pytest.mark.exhaustive
def test_a_run_completes_after_the_clock_was_set_back_between_stages(project: Project) -> None:
    result = project.run("--", FETCHED)
    assert result.returncode == 0, result.stdout
    digests = project.digests()
    before = shift(project.results, HOUR)
    result = project.run("--", TILES)
    assert result.returncode == 0, result.stdout
    now = {path: path.stat().st_mtime_ns for path in before}
    assert max(now.values()) <= time.time_ns()
    outputs = [path for path in before if {"items", "scenes"} & set(path.parts)]
    in_order = sorted(now[path] for path in outputs)
    assert [now[path] for path in sorted(outputs, key=lambda path: (before[path], path))] == in_order
    assert digests.items() <= project.digests().items(), "earlier outputs are unchanged"
    assert project.planned("--", TILES) == []
