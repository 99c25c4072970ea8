"""Models, runs and crates of earlier commits stay usable: each archive in tests/old was written by its commit."""

import json
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import warm
from projects import ROOT, environment
from scenery import Run

import eopipe
from eopipe.provenance.record import record_path
from eopipe.publish import sha256
from eopipe.text_files import read_json

ARCHIVES = sorted((ROOT / "tests/old").glob("*.tar.xz"))
# The archive has them with fewer dots than other runs (tests/old/build.py).
FIGURES = {("split", "map"), ("report", "page"), ("report", "picture")}


@dataclass(frozen=True)
class OldProject:
    """A project that an earlier commit ran to its end, with what that commit says of itself."""

    folder: Path
    stages: dict[str, Any]

    @property
    def results(self) -> Path:
        return self.folder / "results"

    @property
    def is_of_this_processor(self) -> bool:
        """Whether floating-point sums are those of the processor that ran it."""
        return bool(re.search(rf"^model name\s*: {re.escape(self.stages['processor'])}$", CPUINFO, re.MULTILINE))

    def is_revised(self, stage: str) -> bool:
        """Whether a stage has another revision since; then the changelog says why."""
        revision = int(getattr(import_module(f"eopipe.stages.{stage}"), "REVISION", 1))
        if revision == self.stages["revisions"][stage]:
            return False
        assert re.search(rf"`{stage}` \(revision {revision}\)", (ROOT / "CHANGELOG.md").read_text()), stage
        return True


CPUINFO = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""


@pytest.fixture(scope="module", params=ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def unpacked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(request.param) as archive:
        # Python 3.11.2 of Debian 12 has no filters.
        archive.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder


@pytest.fixture(scope="module", params=["zones", "chips"])
def old(request: pytest.FixtureRequest, unpacked: Path) -> OldProject:
    return OldProject(unpacked / request.param, read_json(unpacked / "stages.json"))


def test_a_model_gives_the_map_that_it_gave(
    old: OldProject, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(old.folder)
    maps = sorted(old.results.glob("maps/*/classes.tif"))
    assert maps
    for classes in maps:
        arguments = read_json(record_path(classes))["arguments"][1:]
        for name in ("classes", "probabilities"):
            arguments[arguments.index(f"--{name}") + 1] = str(tmp_path / classes.parent.name / f"{name}.tif")
        assert run(*arguments).code == 0
        again = tmp_path / classes.parent.name / "classes.tif"
        # Whatever is revised since: the item names no fill, so that the model sees zeros where data end, as it did.
        if old.is_of_this_processor:
            assert sha256(again) == sha256(classes)
            assert sha256(again.with_name("probabilities.tif")) == sha256(classes.with_name("probabilities.tif"))
        with rasterio.open(again) as new, rasterio.open(classes) as before:
            assert np.mean(new.read(1) == before.read(1)) >= 0.999


def test_results_and_crate_are_verified(old: OldProject, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(old.folder)
    assert run("verify", "results").code == 0
    assert run("verify", "results/crate").code == 0


def test_python_reads_scores_model_and_images(old: OldProject) -> None:
    scores = json.loads((old.results / "metrics.json").read_text())
    assert eopipe.read_metrics(old.results).document == scores
    assert len(eopipe.load_model(old.results).classes) == 2
    if old.folder.name == "chips":
        assert len(eopipe.open_chips(old.results, "train", stores=old.folder / "world")) == 6
    else:
        assert set(eopipe.open_cube(old.results, cell="utm32n").band.values) == {"red", "nir"}


@pytest.mark.parametrize(
    "command",
    ["compare earlier results", "lineage results/report.html", "usage", "command predict", "check"],
)
def test_each_command_reads_the_run(
    command: str, old: OldProject, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(old.folder, folder, symlinks=True)
    monkeypatch.chdir(folder)
    if "earlier" in command:
        shutil.copytree("results", "earlier", symlinks=True)
    completed = run(*command.split())
    assert completed.code == 0, completed.stderr


def test_a_new_project_begins_with_the_model(
    old: OldProject, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "next"
    monkeypatch.chdir(old.folder)
    completed = run("init", folder, "--from", ".")
    if old.folder.name == "chips":
        assert completed.stderr == "error: init needs --area or --bbox for the scenes of a STAC API\n"
        completed = run(
            "init", folder, "--from", ".", "--bbox", "10", "45", "10.1", "45.1", "--datetime", "2024-05-01/2024-06-01"
        )
    assert completed.code == 0, completed.stderr
    assert sha256(folder / "model/model.safetensors") == sha256(old.results / "model/model.safetensors")


def test_the_crate_is_rerun_with_the_same_digests(old: OldProject, tmp_path: Path) -> None:
    command = [warm.python(), "-m", "eopipe", "rerun", "results/crate", "--data", ".", "--other-code"]
    done = subprocess.run(
        [*command, "--to", str(tmp_path / "again")],
        cwd=old.folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    different = set(
        re.findall(r"^(\w+).*: (\w+) differs, although its inputs are identical$", done.stdout, re.MULTILINE)
    )
    assert done.returncode == 4, done.stderr
    assert "Traceback" not in done.stderr
    # What differs says so itself: a revision that has risen, or another processor.
    revised = {(stage, port) for stage, port in different - FIGURES if old.is_revised(stage)}
    assert different - FIGURES == revised or not old.is_of_this_processor
