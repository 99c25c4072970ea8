"""The crates of whole runs, from either engine, before the validator of the RO-Crate community."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from offline_rocrate import issues, seed
from projects import ROOT, Project, environment

from eopipe.publish import read_json, write_json

Entities = dict[str, dict[str, Any]]
METADATA = "ro-crate-metadata.json"
# What must not be taken from a crate: an entity, a property, and what the profile says then.
NEEDED = {
    "provenance-run-crate": ("#control/split", "object", "ControlAction must reference"),
    "workflow-run-crate": ("#run", "instrument", "MUST have an instrument"),
    "workflow-ro-crate": ("./", "mainEntity", "Main Workflow must be specified"),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return seed(tmp_path_factory.mktemp("cache") / "http")


@pytest.fixture(params=["snakemake", "cwl"])
def crate(request: pytest.FixtureRequest) -> Path:
    if request.param == "cwl":
        by_cwl: Path = request.getfixturevalue("by_cwl")
        return by_cwl / "crate"
    finished: Project = request.getfixturevalue("finished")
    return finished.results / "crate"


def entities(crate: Path) -> Entities:
    return {entity["@id"]: entity for entity in read_json(crate / METADATA)["@graph"]}


def changed(crate: Path, to: Path, change: Callable[[Entities], object]) -> Path:
    """A copy of a crate with other metadata."""
    shutil.copytree(crate, to)
    told = read_json(to / METADATA)
    change({entity["@id"]: entity for entity in told["@graph"]})
    write_json(to / METADATA, told)
    return to


@pytest.mark.parametrize("profile", NEEDED)
def test_the_crate_of_a_run_has_what_a_profile_requires_and_recommends(crate: Path, cache: Path, profile: str) -> None:
    # Who asks for the recommended is told of the required too, as the next test shows.
    assert issues(crate, cache, "RECOMMENDED", profile) == []


@pytest.mark.parametrize("profile", NEEDED)
def test_the_validator_misses_what_is_taken_from_a_crate(
    finished: Project, cache: Path, tmp_path: Path, profile: str
) -> None:
    entity, word, why = NEEDED[profile]
    whole = finished.results / "crate"
    lame = changed(whole, tmp_path / "lame", lambda found: found[entity].pop(word))
    # It lacks something required, which who asks for the recommended is told too.
    assert any(why in issue for issue in issues(lame, cache, "RECOMMENDED", profile))
    vague = changed(whole, tmp_path / "vague", lambda found: found["metrics.json"].pop("encodingFormat"))
    assert issues(vague, cache, "REQUIRED", profile) == [], "it is only recommended"
    assert any("encodingFormat" in issue for issue in issues(vague, cache, "RECOMMENDED", profile))


# snakemake --reporter eopipe


def reported(project: Project, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run the reporter as a person does; it is found as an installed package, which a checkout on the path is too."""
    command = ["snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile", "config.yaml", "--cores", "1"]
    return subprocess.run(
        [*command, "--reporter", "eopipe", *words],
        cwd=project.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
        env=environment() | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
    )


def actions(crate: Path) -> dict[str, str]:
    """The jobs that a crate tells of, with how they ended."""
    told = {name: e["actionStatus"].rpartition("/")[2] for name, e in entities(crate).items() if "actionStatus" in e}
    return {name: status for name, status in told.items() if name.startswith("#job/") and "#job/catalog" not in name}


def test_the_reporter_makes_the_crate_that_the_rule_makes(finished: Project, cache: Path, tmp_path: Path) -> None:
    done = reported(finished, "--report-eopipe-path", str(tmp_path / "crate"))
    assert done.returncode == 0, done.stdout
    assert actions(tmp_path / "crate") == actions(finished.results / "crate")
    assert issues(tmp_path / "crate", cache, "RECOMMENDED") == []
    command = [sys.executable, "-m", "eopipe", "verify", str(tmp_path / "crate")]
    assert subprocess.run(command, check=False, env=environment(), capture_output=True).returncode == 0


def test_the_reporter_tells_of_a_run_that_failed(project: Project, cache: Path) -> None:
    before = reported(project)
    assert before.returncode == 1
    assert "no job of this workflow has left a run record yet" in before.stdout
    (project.folder / "labels.tif").write_text("this is no raster")
    project.write(label={"source": "labels.tif"})
    assert project.run("--", "results/labels/all.zarr/manifest.json").returncode == 1
    done = reported(project)
    assert done.returncode == 0, done.stdout
    crate = project.folder / "crate"
    told = actions(crate)
    assert (told["#job/search"], told["#job/label"]) == ("CompletedActionStatus", "FailedActionStatus")
    found = entities(crate)
    assert re.search(r"labels\.tif", found["#job/label"]["error"])
    assert found["#run"]["error"] == "failed: label"
    wrong = issues(crate, cache, "RECOMMENDED")
    assert [one.split(maxsplit=1)[1] for one in wrong] == ["./#job/label The Action SHOULD have a result"], (
        "it has none"
    )
    (project.folder / "mine").mkdir()
    (project.folder / "mine/thesis.txt").write_text("years")
    again = reported(project, "--report-eopipe-path", "mine")
    assert again.returncode == 1
    assert "mine exists and is no crate; choose a folder that is not there yet" in again.stdout
    assert (project.folder / "mine/thesis.txt").read_text() == "years"
