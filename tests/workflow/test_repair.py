"""After damage, only what is damaged is rebuilt, and nothing that is derived from it."""

import os
import shutil
import subprocess
import sys

from projects import DAYS, Project, environment

SPLIT = ("--", "results/split.json")


def verify(project: Project, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "eopipe", "verify", "results", *words]
    return subprocess.run(
        command, cwd=project.folder, capture_output=True, text=True, check=False, env=environment(), timeout=200
    )


def stores(project: Project) -> dict[str, int]:
    """When each record was written: a job that ran again wrote its own anew."""
    return {path.name: path.stat().st_mtime_ns for path in project.results.rglob("*.run.json")}


def test_a_flipped_byte_and_a_truncated_shard_cost_two_jobs_and_nothing_after_them(project: Project) -> None:
    assert project.run(*SPLIT).returncode == 0
    assert verify(project).returncode == 0
    before, records = project.digests(), stores(project)
    flipped, cut = (project.results / f"tiles/S2_ROMANIA_{day}.zarr/image/c/0/0/0" for day in DAYS[1:3])
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    os.truncate(cut, 100)

    found = verify(project)
    assert found.returncode == 4
    assert f"S2_ROMANIA_{DAYS[1]}.zarr is damaged: image/c/0/0/0 has other content" in found.stderr
    assert f"S2_ROMANIA_{DAYS[2]}.zarr is damaged: image/c/0/0/0 has 100 bytes instead of" in found.stderr
    assert found.stderr.count("is damaged") == 2

    mended = verify(project, "--repair")
    assert mended.returncode == 0, mended.stderr
    assert mended.stdout.count("was rebuilt with the same content") == 2
    assert project.digests() == before
    again = {name for name, then in stores(project).items() if records[name] != then}
    assert again == {f"S2_ROMANIA_{day}.zarr.run.json" for day in DAYS[1:3]}
    assert project.planned(*SPLIT) == [], "the stores are newer than the split, but the same"


def test_a_store_that_was_removed_can_be_made_again_by_name_and_nothing_follows(project: Project) -> None:
    assert project.run(*SPLIT).returncode == 0
    before = project.digests()
    store = f"results/tiles/S2_ROMANIA_{DAYS[0]}.zarr"
    shutil.rmtree(project.folder / store)
    assert project.planned("--", f"{store}/manifest.json") == ["preprocess"]
    assert project.run("--", f"{store}/manifest.json").returncode == 0
    assert project.digests() == before
    assert project.planned(*SPLIT) == []
