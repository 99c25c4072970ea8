"""Job files of CWL that are wrong, or odd, and what an engine's cache does."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from projects import DAYS, ROOT, cwltool, environment

from eopipe import __version__

JSON = "https://www.iana.org/assignments/media-types/application/json"
SCENE = f"S2_ROMANIA_{DAYS[0]}"
ODD = 'it\'s "odd"; $(touch owned) & more'
Job = dict[str, Any]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A search for one scene, in a folder that has an output of that name already."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/grid.json").write_text("precious")
    return {"catalog": {"class": "Directory", "path": str(ROOT / "sample")}, "ids": [SCENE], "assets": ["scl"]}


def run(tool: str, job: Job, folder: Path, *more: str) -> "subprocess.CompletedProcess[str]":
    (folder / "job.yml").write_text(yaml.safe_dump(job))
    known = ["--preserve-environment", "PYTHONPATH"] if "PYTHONPATH" in os.environ else []
    words = ["cwltool", *known, *more, "--outdir", "out", str(ROOT / f"cwl/{tool}.cwl"), "job.yml"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, env=environment())


@pytest.mark.parametrize(
    ("tool", "change", "said"),
    [
        ("search", lambda job: job | {"max_cloud": "few"}, "max_cloud"),
        ("search", lambda job: job | {"ids": SCENE}, "ids"),
        ("search", lambda job: job | {"catalog": {"class": "File", "path": "job.yml"}}, "catalog"),
        ("search", lambda job: job | {"catalog": {"class": "Directory", "path": "nowhere"}}, "nowhere"),
        ("fetch", lambda job: {"catalog": job["catalog"]}, "item"),
        ("fetch", lambda job: {"item": {"class": "File", "path": "job.yml"}}, "format"),
        ("fetch", lambda job: {"item": {"class": "File", "path": "job.yml", "format": JSON}}, "format"),
    ],
)
def test_a_wrong_job_file_is_refused_by_the_name_of_its_port_and_nothing_is_overwritten(
    tool: str, change: Callable[[Job], Job], said: str, job: Job, tmp_path: Path
) -> None:
    done = run(tool, change(job), tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert "eopipe" not in done.stdout
    assert [(p.name, p.read_text()) for p in (tmp_path / "out").iterdir()] == [("grid.json", "precious")]


def test_an_option_out_of_range_is_the_stage_s_own_sentence_and_nothing_is_overwritten(
    job: Job, tmp_path: Path
) -> None:
    done = run("search", job | {"max_cloud": 101.0}, tmp_path)
    assert done.returncode == 1
    assert "exited with status: 2" in done.stderr
    assert "--max-cloud" in done.stderr
    assert (tmp_path / "out/grid.json").read_text() == "precious"


def test_paths_and_names_with_blanks_quotes_and_semicolons_are_only_names(job: Job, tmp_path: Path) -> None:
    place = tmp_path / ODD.replace("/", "")
    place.mkdir()
    shutil.copytree(ROOT / "sample", place / "sample")
    job["catalog"]["path"] = str(place / "sample")
    # cwltool itself refuses some letters in names unless it is told to relax.
    done = run("search", job | {"grid_name": ODD}, place, "--relax-path-checks")
    assert done.returncode == 0, done.stderr
    assert (place / "out" / ODD).is_file()
    assert not list(tmp_path.rglob("owned"))


def test_a_cache_runs_only_what_changed_and_everything_for_a_new_version(job: Job, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "cwl", tmp_path / "cwl", symlinks=True)

    def ran(tool: Path, **changes: Any) -> bool:
        (tmp_path / "job.yml").write_text(yaml.safe_dump(job | changes))
        before = set((tmp_path / "cache").glob("*"))
        cwltool("--cachedir", "cache", "--outdir", tmp_path / "made", tool, "job.yml", cwd=tmp_path)
        return set((tmp_path / "cache").glob("*")) != before

    tool = tmp_path / "cwl/search.cwl"
    assert ran(tool)
    first = hashlib.sha256((tmp_path / "made/grid.json").read_bytes()).hexdigest()
    assert not ran(tool)
    assert ran(tool, max_cloud=99.0)
    tool.write_text(tool.read_text().replace(f"EOPIPE_VERSION: {__version__}", "EOPIPE_VERSION: 99.0.0"))
    assert ran(tool)
    assert hashlib.sha256((tmp_path / "made/grid.json").read_bytes()).hexdigest() == first
