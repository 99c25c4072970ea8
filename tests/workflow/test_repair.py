"""After damage, only the damaged files are rebuilt, and nothing that is derived from them."""

import os
import shutil
import subprocess
import sys

import pytest
from projects import DAYS, Project, environment

SPLIT = ("--", "results/split.json")


def verify(project: Project, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "eopipe", "verify", "results", *arguments]
    return subprocess.run(
        command, cwd=project.folder, capture_output=True, text=True, check=False, env=environment(), timeout=200
    )


def record_times(project: Project) -> dict[str, int]:
    """The time of each run record: a job that runs again rewrites its record."""
    return {path.name: path.stat().st_mtime_ns for path in project.results.rglob("*.run.json")}


@pytest.mark.exhaustive
def test_a_flipped_byte_and_a_truncated_shard_rerun_two_jobs_and_nothing_after_them(project: Project) -> None:
    assert project.run(*SPLIT).returncode == 0
    assert verify(project).returncode == 0
    before, records = project.digests(), record_times(project)
    flipped, truncated = (project.results / f"tiles/S2_ROMANIA_{day}.zarr/image/c/0/0/0" for day in DAYS[1:3])
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    os.truncate(truncated, 100)

    report = verify(project)
    assert report.returncode == 4
    assert f"S2_ROMANIA_{DAYS[1]}.zarr is damaged: image/c/0/0/0 has other content" in report.stderr
    assert f"S2_ROMANIA_{DAYS[2]}.zarr is damaged: image/c/0/0/0 has 100 bytes instead of" in report.stderr
    assert report.stderr.count("is damaged") == 2

    repaired = verify(project, "--repair")
    assert repaired.returncode == 0, repaired.stderr
    assert repaired.stdout.count("was rebuilt with the same content") == 2
    assert project.digests() == before
    rebuilt = {name for name, then in record_times(project).items() if records[name] != then}
    assert rebuilt == {f"S2_ROMANIA_{day}.zarr.run.json" for day in DAYS[1:3]}
    assert project.planned(*SPLIT) == [], "the stores are newer than the split, but the same"


@pytest.mark.exhaustive
def test_a_removed_store_can_be_rebuilt_by_name_and_nothing_follows(project: Project) -> None:
    assert project.run(*SPLIT).returncode == 0
    before = project.digests()
    store = f"results/tiles/S2_ROMANIA_{DAYS[0]}.zarr"
    shutil.rmtree(project.folder / store)
    assert project.planned("--", f"{store}/manifest.json") == ["preprocess"]
    assert project.run("--", f"{store}/manifest.json").returncode == 0
    assert project.digests() == before
    assert project.planned(*SPLIT) == []
