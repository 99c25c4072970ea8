"""After damage, only the damaged files are rebuilt, and nothing that is derived from them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from projects import DAYS, Project, environment

SPLIT = ("--", "results/split.json")


@pytest.fixture
def copied(finished: Project, tmp_path: Path) -> Project:
    """A copy of a finished run, which a test may damage."""
    shutil.copytree(finished.folder, tmp_path / "run", symlinks=True)
    return Project(tmp_path / "run")


def verify(project: Project, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "eopipe", "verify", "results", *arguments]
    return subprocess.run(
        command, cwd=project.folder, capture_output=True, text=True, check=False, env=environment(), timeout=200
    )


def record_times(project: Project) -> dict[str, int]:
    """The time of each run record: a job that runs again rewrites its record."""
    return {path.name: path.stat().st_mtime_ns for path in project.results.rglob("*.run.json")}


@pytest.mark.exhaustive
def test_a_flipped_byte_and_a_truncated_shard_rerun_two_jobs_and_nothing_after_them(copied: Project) -> None:
    assert verify(copied).returncode == 0
    before, records = copied.digests(), record_times(copied)
    flipped, truncated = (copied.results / f"tiles/S2_ROMANIA_{day}.zarr/image/c/0/0/0" for day in DAYS[1:3])
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    os.truncate(truncated, 100)

    report = verify(copied)
    assert report.returncode == 4
    assert f"S2_ROMANIA_{DAYS[1]}.zarr is damaged: image/c/0/0/0 has other content" in report.stderr
    assert f"S2_ROMANIA_{DAYS[2]}.zarr is damaged: image/c/0/0/0 has 100 bytes instead of" in report.stderr
    assert report.stderr.count("is damaged") == 2

    repaired = verify(copied, "--repair")
    assert repaired.returncode == 0, repaired.stderr
    assert repaired.stdout.count("was rebuilt with the same content") == 2
    assert copied.digests() == before
    rebuilt = {name for name, then in record_times(copied).items() if records[name] != then}
    assert rebuilt == {f"S2_ROMANIA_{day}.zarr.run.json" for day in DAYS[1:3]}
    assert copied.planned(*SPLIT) == [], "the stores are newer than the split, but the same"


@pytest.mark.exhaustive
def test_a_removed_store_can_be_rebuilt_by_name_and_nothing_follows(copied: Project) -> None:
    before = copied.digests()
    store = f"results/tiles/S2_ROMANIA_{DAYS[0]}.zarr"
    shutil.rmtree(copied.folder / store)
    assert copied.planned("--", f"{store}/manifest.json") == ["preprocess"]
    assert copied.run("--", f"{store}/manifest.json").returncode == 0
    assert copied.digests() == before
    assert copied.planned(*SPLIT) == []
