"""From a finished map to areas with errors, as a user types it: a sample, labels, a run, and a reviewer."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from projects import ROOT, Project, by_cwltool, cwltool, environment

TIFF = "https://www.iana.org/assignments/media-types/image/tiff"


def typed(folder: Path, *words: str, code: int = 0) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "eopipe", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout + result.stderr


def evaluate(project: Project, **values: Any) -> None:
    config = yaml.safe_load((project.folder / "config.yaml").read_text())
    (project.folder / "config.yaml").write_text(yaml.safe_dump(config | {"evaluate": values}))


@pytest.fixture(scope="module")
def counted(demo: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A finished run whose map was sampled, labelled from the truth of its landscape, and counted."""
    folder = tmp_path_factory.mktemp("counted") / "project"
    shutil.copytree(demo.folder, folder, symlinks=True)
    project = Project(folder)
    assert "map-sample/sample.gpkg" in typed(folder, "sample", "results", "--number", "300")
    labelled = ("map-sample/sample.csv", "map-sample/labelled.csv")
    subprocess.run([sys.executable, ROOT / "docs/examples/label_sample.py", *labelled], cwd=folder, check=True)
    evaluate(project, sample="map-sample/labelled.csv")
    assert {*project.planned()} == {"estimate", "report", "catalog", "crate", "all"}
    result = project.run()
    assert result.returncode == 0, result.stdout
    return project


def test_a_labelled_sample_makes_areas_part_of_the_run(counted: Project) -> None:
    areas = json.loads((counted.results / "areas.json").read_text())
    assert areas["labelled"] == 300
    low, high = areas["areas"]["forest"]["hectares"]["interval"]
    assert low < areas["areas"]["forest"]["hectares"]["estimate"] < high < areas["hectares"]
    report, card = ((counted.results / name).read_text() for name in ("report.html", "model-card.md"))
    assert "Area of each class: mapped, and estimated from the sample" in report
    assert "## Areas" in card
    collection = json.loads((counted.results / "catalog/maps/collection.json").read_text())
    assert collection["assets"]["areas"]["href"] == "./areas.json"
    crate = {path.name for path in (counted.results / "crate").rglob("*")}
    assert {"areas.json", "areas.html", "labelled.csv", "sample.json"} <= crate
    metadata = json.loads((counted.results / "crate/ro-crate-metadata.json").read_text())
    assert any("estimate" in str(entity.get("name")) for entity in metadata["@graph"])
    assert counted.planned() == []


def test_an_engine_of_cwl_gives_the_same_bytes(counted: Project, tmp_path: Path) -> None:
    folder = counted.folder.resolve()
    job = {
        "classes": [{"class": "File", "path": str(folder / "results/maps/mosaic/classes.tif"), "format": TIFF}],
        "sample": [{"class": "File", "path": str(folder / "map-sample/labelled.csv")}],
        # The engine moves the labels apart from what lies beside them.
        "sample_design": {"class": "File", "path": str(folder / "map-sample/sample.json")},
    }
    (tmp_path / "job.yml").write_text(yaml.safe_dump(job))
    cwltool("--outdir", tmp_path / "out", ROOT / "cwl/estimate.cwl", "job.yml", cwd=tmp_path)
    for name in ("areas.json", "areas.html"):
        assert (tmp_path / "out" / name).read_bytes() == (counted.results / name).read_bytes()


def test_a_reviewer_counts_again_from_the_crate_and_each_figure_is_compared(counted: Project, tmp_path: Path) -> None:
    shutil.copytree(counted.results / "crate", tmp_path / "crate")
    text = typed(tmp_path, "rerun", "crate", "--only", "estimate", "--other-code")
    assert "estimate: areas identical, " in text
    assert " figures as in the crate" in text
    assert text.endswith("identical: 2 outputs of 1 job with the digests of the crate\n")


def test_a_map_that_does_not_reach_what_is_required_is_not_published(counted: Project, tmp_path: Path) -> None:
    shutil.copytree(counted.folder, tmp_path / "project", symlinks=True)
    project = Project(tmp_path / "project")
    required = {"iou": {"forest": 1}, "gain": 1, "area_error": {"forest": 0.5}}
    evaluate(project, sample="map-sample/labelled.csv", require=required)
    result = project.run()
    assert result.returncode == 1
    # The lower end of the interval of the gain.
    low, _ = json.loads((project.results / "metrics.json").read_text())["intervals"]["gain"]["miou"]
    figures = f"gain is {low:.4g}, and must be at least 1; iou of forest is 0."
    assert f"catalog failed: the map is not what evaluate.require asks for: {figures}" in result.stdout
    assert "area_error" not in result.stdout.rpartition("asks for:")[2]
    command = typed(project.folder, "command", "catalog").splitlines()[0].removeprefix("eopipe ")
    subprocess.run(["bash", "-c", f"{sys.executable} -m eopipe {command}; test $? = 9"], cwd=project.folder, check=True)


@pytest.mark.exhaustive
def test_the_whole_pipeline_of_cwl_counts_the_same(counted: Project, tmp_path: Path) -> None:
    outputs = by_cwltool(counted, tmp_path)
    for name in ("areas.json", "areas.html", "model-card.md"):
        assert (outputs / name).read_bytes() == (counted.results / name).read_bytes()
