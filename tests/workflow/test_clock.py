"""Clocks go wrong and are set back; a run ends all the same, once, and spoils nothing."""

import os
import shutil
import time
from pathlib import Path

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


def test_a_source_from_the_future_is_used_once_and_then_there_is_nothing_to_do(project: Project) -> None:
    (project.folder / "sample").unlink()
    shutil.copytree(ROOT / "sample", project.folder / "sample")
    catalog, source = (project.folder / "sample" / name for name in ("catalog.json", "tree_cover_density_2018.tif"))
    for path in (catalog, source):
        os.utime(path, (time.time() + HOUR,) * 2)
    targets = ("--", TILES, "results/labels/all.zarr/manifest.json")
    assert {"search", "label"} <= set(project.planned(*targets))
    assert catalog.stat().st_mtime > time.time(), "a dry run leaves the times alone"
    done = project.run(*targets)
    assert done.returncode == 0, done.stdout
    assert "2 files had times that have not come yet, as sample/catalog.json" in done.stdout
    assert catalog.stat().st_mtime <= time.time()
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
