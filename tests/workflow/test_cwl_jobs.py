"""Invalid and unusual job files of CWL, and the cache of an engine."""

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
SPECIAL_NAME = 'it\'s "odd"; $(touch owned) & more'
Job = dict[str, Any]


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A search for one scene, in a folder that has an output of that name already."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out/grid.json").write_text("precious")
    return {"catalog": {"class": "Directory", "path": str(ROOT / "sample")}, "ids": [SCENE], "assets": ["scl"]}


def run(tool: str, job: Job, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    (folder / "job.yml").write_text(yaml.safe_dump(job))
    variables = ["--preserve-environment", "PYTHONPATH"] if "PYTHONPATH" in os.environ else []
    command = ["cwltool", *variables, *options, "--outdir", "out", str(ROOT / f"cwl/{tool}.cwl"), "job.yml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment())


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("tool", "change", "message"),
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
def test_an_invalid_job_file_is_refused_by_the_name_of_its_port_and_nothing_is_overwritten(
    tool: str, change: Callable[[Job], Job], message: str, job: Job, tmp_path: Path
) -> None:
    result = run(tool, change(job), tmp_path)
    assert result.returncode == 1
    assert message in result.stderr
    assert "eopipe" not in result.stdout
    assert [(p.name, p.read_text()) for p in (tmp_path / "out").iterdir()] == [("grid.json", "precious")]


def test_an_option_out_of_range_is_refused_by_the_stage_and_nothing_is_overwritten(job: Job, tmp_path: Path) -> None:
    result = run("search", job | {"max_cloud": 101.0}, tmp_path)
    assert result.returncode == 1
    assert "exited with status: 2" in result.stderr
    assert "--max-cloud" in result.stderr
    assert (tmp_path / "out/grid.json").read_text() == "precious"


def test_paths_and_names_with_blanks_quotes_and_semicolons_are_only_names(job: Job, tmp_path: Path) -> None:
    folder = tmp_path / SPECIAL_NAME.replace("/", "")
    folder.mkdir()
    shutil.copytree(ROOT / "sample", folder / "sample")
    job["catalog"]["path"] = str(folder / "sample")
    # cwltool itself refuses some characters in names without this option.
    result = run("search", job | {"grid_name": SPECIAL_NAME}, folder, "--relax-path-checks")
    assert result.returncode == 0, result.stderr
    assert (folder / "out" / SPECIAL_NAME).is_file()
    assert not list(tmp_path.rglob("owned"))


@pytest.mark.exhaustive
def test_a_cache_runs_only_what_changed_and_everything_for_a_new_version(job: Job, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "cwl", tmp_path / "cwl", symlinks=True)

    def has_run(tool: Path, **changes: Any) -> bool:
        (tmp_path / "job.yml").write_text(yaml.safe_dump(job | changes))
        before = set((tmp_path / "cache").glob("*"))
        cwltool("--cachedir", "cache", "--outdir", tmp_path / "outputs", tool, "job.yml", cwd=tmp_path)
        return set((tmp_path / "cache").glob("*")) != before

    tool = tmp_path / "cwl/search.cwl"
    assert has_run(tool)
    first = hashlib.sha256((tmp_path / "outputs/grid.json").read_bytes()).hexdigest()
    assert not has_run(tool)
    assert has_run(tool, max_cloud=99.0)
    tool.write_text(tool.read_text().replace(f"EOPIPE_VERSION: {__version__}", "EOPIPE_VERSION: 99.0.0"))
    assert has_run(tool)
    assert hashlib.sha256((tmp_path / "outputs/grid.json").read_bytes()).hexdigest() == first
