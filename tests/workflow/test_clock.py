"""Clocks go wrong and are set back; a run ends all the same, once, and spoils nothing."""

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
    """Let all files below a folder look younger; return their new times."""
    times = {path: path.stat().st_mtime + seconds for path in folder.rglob("*") if path.is_file()}
    for path, when in times.items():
        os.utime(path, (when, when))
    return times


def test_a_source_from_the_future_is_named_and_left_as_it_is(project: Project) -> None:
    (project.folder / "sample").unlink()
    shutil.copytree(ROOT / "sample", project.folder / "sample")
    catalog, source = (project.folder / "sample" / name for name in ("catalog.json", "tree_cover_density_2018.tif"))
    times = {path: time.time() + HOUR for path in (catalog, source)}
    for path, seconds in times.items():
        os.utime(path, (seconds, seconds))
    targets = ("--", TILES, "results/labels/all.zarr/manifest.json")
    done = project.run(*targets)
    assert done.returncode == 1
    for path in times:
        name = path.relative_to(project.folder)
        assert f"warning: {name} has a modification time in the future; Snakemake refuses what jobs make" in done.stdout
    assert "has older modification time" in done.stdout
    assert "results had modification times" not in done.stdout
    assert {path: path.stat().st_mtime for path in times} == pytest.approx(times)
    for path in times:
        path.touch()
    done = project.run(*targets)
    assert done.returncode == 0, done.stdout
    assert "in the future" not in done.stdout
    assert project.planned(*targets) == []


def test_a_clock_that_is_set_back_between_stages_ends_the_run_all_the_same(project: Project) -> None:
    done = project.run("--", FETCHED)
    assert done.returncode == 0, done.stdout
    digests = project.digests()
    before = shift(project.results, HOUR)
    done = project.run("--", TILES)
    assert done.returncode == 0, done.stdout
    now = {path: path.stat().st_mtime_ns for path in before}
    assert max(now.values()) <= time.time_ns()
    kept = [path for path in before if {"items", "scenes"} & set(path.parts)]
    in_order = sorted(now[path] for path in kept)
    assert [now[path] for path in sorted(kept, key=lambda path: (before[path], path))] == in_order
    assert digests.items() <= project.digests().items(), "what was made before is what it was"
    assert project.planned("--", TILES) == []
