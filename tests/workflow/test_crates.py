"""The crates of whole runs, from Snakemake and CWL, pass the validator of the RO-Crate community."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from offline_rocrate import issues, seed
from projects import ROOT, Project, environment

from eopipe.text_files import read_json, write_json

Entities = dict[str, dict[str, Any]]
METADATA = "ro-crate-metadata.json"
# What a crate must have: an entity, a property, and the message of the profile if it is missing.
REQUIRED = {
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
    metadata = read_json(to / METADATA)
    change({entity["@id"]: entity for entity in metadata["@graph"]})
    write_json(to / METADATA, metadata)
    return to


def test_the_crate_of_a_run_names_the_version_of_snakemake(finished: Project) -> None:
    engine = entities(finished.results / "crate")["https://snakemake.github.io/"]
    assert (engine["softwareVersion"], engine["description"]) == (version("snakemake"), "Workflow engine: snakemake")


@pytest.mark.exhaustive
def test_the_crate_of_a_run_has_what_the_profiles_require_and_recommend(crate: Path, cache: Path) -> None:
    # The most specific profile includes the checks of the others, and the recommended ones the required, as the next
    # test shows.
    assert issues(crate, cache, "RECOMMENDED") == []


@pytest.mark.exhaustive
def test_the_validator_reports_what_is_missing_from_a_crate_by_any_profile(
    finished: Project, cache: Path, tmp_path: Path
) -> None:
    complete = finished.results / "crate"
    invalid = changed(
        complete, tmp_path / "invalid", lambda graph: [graph[entity].pop(key) for entity, key, _ in REQUIRED.values()]
    )
    reported = issues(invalid, cache, "RECOMMENDED")
    assert [profile for profile, (_, _, message) in REQUIRED.items() if not any(message in i for i in reported)] == []
    valid = changed(complete, tmp_path / "valid", lambda graph: graph["metrics.json"].pop("encodingFormat"))
    assert issues(valid, cache, "REQUIRED") == [], "it is only recommended"
    assert any("encodingFormat" in issue for issue in issues(valid, cache, "RECOMMENDED"))


# snakemake --reporter eopipe


def run_reporter(project: Project, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the reporter as a user does; a checkout on the Python path is found like an installed package."""
    command = ["snakemake", "--snakefile", str(ROOT / "Snakefile"), "--configfile", "config.yaml", "--cores", "1"]
    return subprocess.run(
        [*command, "--reporter", "eopipe", *arguments],
        cwd=project.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
        env=environment() | {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))},
    )


def actions(crate: Path) -> dict[str, str]:
    """The jobs in a crate with their status."""
    statuses = {
        name: e["actionStatus"].rpartition("/")[2] for name, e in entities(crate).items() if "actionStatus" in e
    }
    return {
        name: status for name, status in statuses.items() if name.startswith("#job/") and "#job/catalog" not in name
    }


@pytest.mark.exhaustive
def test_the_reporter_makes_the_crate_that_the_rule_makes(finished: Project, cache: Path, tmp_path: Path) -> None:
    result = run_reporter(finished, "--report-eopipe-path", str(tmp_path / "crate"))
    assert result.returncode == 0, result.stdout
    assert actions(tmp_path / "crate") == actions(finished.results / "crate")
    assert issues(tmp_path / "crate", cache, "RECOMMENDED") == []
    command = [sys.executable, "-m", "eopipe", "verify", str(tmp_path / "crate")]
    assert subprocess.run(command, check=False, env=environment(), capture_output=True).returncode == 0


@pytest.mark.exhaustive
def test_the_reporter_makes_the_crate_of_a_failed_run(project: Project, cache: Path) -> None:
    before = run_reporter(project)
    assert before.returncode == 1
    assert "no job of this workflow has left a run record yet" in before.stdout
    (project.folder / "labels.tif").write_text("this is not a raster")
    project.write(label={"source": "labels.tif"})
    assert project.run("--", "results/labels/all.zarr/manifest.json").returncode == 1
    result = run_reporter(project)
    assert result.returncode == 0, result.stdout
    crate = project.folder / "crate"
    statuses = actions(crate)
    assert (statuses["#job/search"], statuses["#job/label"]) == ("CompletedActionStatus", "FailedActionStatus")
    graph = entities(crate)
    assert re.search(r"labels\.tif", graph["#job/label"]["error"])
    assert graph["#run"]["error"] == "failed: label"
    messages = issues(crate, cache, "RECOMMENDED")
    assert [message.split(maxsplit=1)[1] for message in messages] == ["./#job/label The Action SHOULD have a result"], (
        "it has no result"
    )
    (project.folder / "thesis").mkdir()
    (project.folder / "thesis/thesis.txt").write_text("years")
    second = run_reporter(project, "--report-eopipe-path", "thesis")
    assert second.returncode == 1
    assert (
        "thesis contains thesis.txt, which eopipe did not write and would replace; choose another path" in second.stdout
    )
    assert (project.folder / "thesis/thesis.txt").read_text() == "years"
