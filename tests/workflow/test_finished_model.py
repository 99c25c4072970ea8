"""A model that is finished maps scenes without a training: `eopipe init --from`, under Snakemake and CWL."""

import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import rasterio
import yaml
from projects import DAYS, Project, by_cwltool, environment, kill_tree

from eopipe.errors import UsageError
from eopipe.planning.check_config import check_file
from eopipe.publish import sha256
from eopipe.tiles.store import NO_LABEL, Tiles

MAPS = ("classes.tif", "probabilities.tif")
PARTS = ("1-of-3", "2-of-3", "3-of-3")


def init(*arguments: object, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "eopipe", "init", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def mapped(demo: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that has mapped the scenes of the training with its model, in parts."""
    folder = tmp_path_factory.mktemp("mapped")
    done = init("again", "--from", demo.folder, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "with the model and its calibration" in done.stdout
    project = Project(folder / "again")
    config = yaml.safe_load((project.folder / "config.yaml").read_text())
    config |= {"map_parts": len(PARTS), "predict": {**config.get("predict", {}), "window": 64}}
    (project.folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    result = project.run()
    assert result.returncode == 0, result.stdout
    return project


def test_the_scenes_of_a_training_get_the_map_of_the_training_run(demo: Project, mapped: Project) -> None:
    assert sha256(mapped.results / "maps/mosaic/classes.tif") == sha256(demo.results / "maps/mosaic/classes.tif")
    probabilities = "maps/mosaic/probabilities.tif"
    with rasterio.open(mapped.results / probabilities) as small, rasterio.open(demo.results / probabilities) as large:
        # In windows of another shape a processor without AVX-512 adds in another order: one step of rounding.
        assert np.abs(small.read().astype(int) - large.read()).max() <= 1
        assert small.profile == large.profile
    parts = mapped.results / "maps/mosaic/parts"
    assert sorted(path.name for path in parts.iterdir()) == [*PARTS]
    assert mapped.planned() == []


@pytest.mark.exhaustive
def test_a_run_that_is_killed_while_it_maps_makes_only_the_parts_that_are_missing(mapped: Project) -> None:
    maps, logs, before = mapped.results / "maps", mapped.results / "logs/predict", mapped.digests()
    for folder in (maps, mapped.results / "catalog", mapped.results / "crate"):
        shutil.rmtree(folder)
    (mapped.results / "report.html").unlink()
    times: dict[Path, int] = {}
    for _ in PARTS[1:]:
        for log in logs.glob("*-of-3.log"):
            log.unlink()
        with subprocess.Popen(mapped.command("--cores", "1"), cwd=mapped.folder, env=environment()) as run:
            # The second job begins when the first has ended.
            while len([*logs.glob("*-of-3.log")]) < 2:
                assert run.poll() is None
                time.sleep(0.02)
            times |= {path: path.stat().st_mtime_ns for path in maps.glob("mosaic/parts/*/probabilities.tif")}
            kill_tree(run.pid)
    assert len(times) == len(PARTS) - 1
    result = mapped.run()
    assert result.returncode == 0, result.stdout
    assert mapped.digests() == before
    assert {path: path.stat().st_mtime_ns for path in times} == times


@pytest.mark.exhaustive(by="finished model")
def test_a_run_of_a_finished_model_has_no_labels_and_no_scores_and_ends_with_report_catalog_and_crate(
    mapped: Project,
) -> None:
    stages = {
        json.loads(path.read_text())["stage"]
        for path in mapped.results.rglob("*.run.json")
        if "crate" not in path.parts
    }
    assert stages == {"search", "fetch", "preprocess", "composite", "predict", "report", "catalog", "crate"}
    assert not {"labels", "split.json", "model", "metrics.json"} & {path.name for path in mapped.results.iterdir()}
    page = (mapped.results / "report.html").read_text()
    assert "The inputs are like the training inputs" in page
    assert "nothing is scored here. The test of the training, on " in page
    assert "The probabilities are the model&#39;s, not calibrated: 1600 validation pixels" in page
    names = {path.name for path in (mapped.results / "crate").iterdir()}
    assert {"model", "calibration.json", "report.html", "classes.tif", "config"} <= names
    catalog = json.loads((mapped.results / "catalog/catalog.json").read_text())
    assert {link["rel"] for link in catalog["links"]} >= {"child"}


def test_dates_without_a_season_of_the_model_are_refused_before_anything_is_written(
    demo: Project, tmp_path: Path
) -> None:
    lacking = init("year", "--from", demo.folder, "--datetime", "2020-01-01/2020-12-31", cwd=tmp_path)
    assert lacking.returncode == 3
    assert re.search(r"composite\.parts has MAM, JJA, SON, but all scenes are in|has MAM, JJA, SON", lacking.stderr)
    assert not (tmp_path / "year").exists()


@pytest.mark.exhaustive
def test_a_run_that_was_not_checked_is_refused_for_a_season_without_a_scene_before_anything_is_fetched(
    demo: Project, tmp_path: Path
) -> None:
    assert init("again", "--from", demo.folder, cwd=tmp_path).returncode == 0
    project = Project(tmp_path / "again")
    config = yaml.safe_load((project.folder / "config.yaml").read_text())
    config["search"]["ids"] = [name for name in config["search"]["ids"] if not name.endswith("0919")]
    (project.folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    result = project.run()
    assert result.returncode != 0
    sentence = "composite.parts has SON, in which period all has no scene; it has scenes in MAM, JJA; widen search."
    assert sentence in " ".join(result.stdout.split())
    assert (project.results / "grid.json").is_file()
    assert not (project.results / "scenes").exists()


@pytest.mark.exhaustive(by="finished model")
def test_another_year_is_mapped_without_the_scenes_of_the_training(finished: Project, tmp_path: Path) -> None:
    done = init("year", "--from", finished.folder, "--datetime", "2020-01-01/2020-12-31", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    config = yaml.safe_load((tmp_path / "year/config.yaml").read_text())
    assert "ids" not in config["search"]
    project = Project(tmp_path / "year")
    result = project.run()
    assert result.returncode == 0, result.stdout
    names = {path.stem for path in (project.results / "items").glob("*.geojson")}
    assert names
    assert all("_2020" in name for name in names)
    page = (project.results / "report.html").read_text()
    assert "Scenes are of another season: Feb; the training has Apr, Jun, Jul, Sep." in page


LABELS = {"source": "sample/tree_cover_density_2018.tif", "classes": ["non-forest", "forest"], "bins": [50]}


@pytest.fixture(scope="module")
def tested(finished: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project that has mapped another year with a finished model, and tested the map with labels."""
    folder = tmp_path_factory.mktemp("tested")
    done = init("year", "--from", finished.folder, "--datetime", "2020-01-01/2020-12-31", cwd=folder)
    assert done.returncode == 0, done.stderr
    project = Project(folder / "year")
    (project.folder / "sample").symlink_to(finished.folder / "sample")
    with (project.folder / "config.yaml").open("a") as config:
        config.write(f"\n{yaml.safe_dump({'label': LABELS | {'chunk': 32, 'shard': 128}})}")
    result = project.run()
    assert result.returncode == 0, result.stdout
    assert "All labels of this run are test labels" in result.stdout
    return project


@pytest.mark.exhaustive
def test_labels_of_a_run_of_a_finished_model_test_each_mapped_pixel_that_has_one(tested: Project) -> None:
    metrics = json.loads((tested.results / "metrics.json").read_text())
    with rasterio.open(tested.results / "maps/mosaic/classes.tif") as file:
        mapped = file.read(1)
    labels, whole = Tiles(tested.results / "labels/all.zarr"), tuple(slice(0, edge) for edge in mapped.shape)
    truth = labels.read("label", *whole)
    is_tested = labels.valid(*whole) & (truth != NO_LABEL) & (mapped != NO_LABEL)
    counts = np.zeros((2, 2), int)
    np.add.at(counts, (truth[is_tested], mapped[is_tested]), 1)
    assert metrics["model"]["confusion"] == counts.tolist()
    assert metrics["test_pixels"] == is_tested.sum() > 0
    assert metrics["baselines"].startswith("none: ")
    assert not {"pixel_baseline", "texture_baseline", "majority"} & metrics.keys()


@pytest.mark.exhaustive
def test_a_tested_map_has_its_scores_in_report_catalog_and_crate(tested: Project) -> None:
    stages = {json.loads(path.read_text())["stage"] for path in tested.results.glob("**/*.run.json")}
    assert {"label", "evaluate", "report"} <= stages
    assert not {"split", "train", "calibrate", "export"} & stages
    page = (tested.results / "report.html").read_text()
    accuracy = json.loads((tested.results / "metrics.json").read_text())["model"]["accuracy"]
    assert f"{accuracy:.3f}" in page
    assert "All labels of this run are test labels: this model used none of them in this run." in page
    assert "nothing is scored here" not in page
    collection = json.loads((tested.results / "catalog/maps/collection.json").read_text())
    assert "metrics" in collection["assets"]
    crate = json.loads((tested.results / "crate/ro-crate-metadata.json").read_text())
    assert {"metrics.json", "#job/label", "#job/evaluate"} <= {entity["@id"] for entity in crate["@graph"]}
    assert tested.planned() == []


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("settings", "task", "sentence"),
    [
        ({"classes": ["forest", "non-forest"]}, "", r"label\.classes has forest, non-forest, but the model maps non-"),
        ({"bins": [], "measure": "cover"}, "", r"label\.measure gives values of cover, but the model"),
        ({"before": "sample/tree_cover_density_2018.tif"}, "", r"without label\.before, and label\.before is set"),
        ({}, "classification", r"only maps of the task segmentation.*the model is of task classification; remove"),
        ({"source": None}, "", r"label needs exactly one of `source` \(a file\) and `asset`"),
    ],
)
def test_labels_that_cannot_test_the_map_are_refused_before_anything_is_fetched(
    finished: Project, settings: dict[str, Any], task: str, sentence: str, tmp_path: Path
) -> None:
    done = init("year", "--from", finished.folder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "year"
    (folder / "sample").symlink_to(finished.folder / "sample")
    card = folder / "model/model.json"
    if task:
        card.write_text(card.read_text().replace('"task": "segmentation"', '"task": "classification"'))
    with (folder / "config.yaml").open("a") as config:
        config.write(f"\n{yaml.safe_dump({'label': LABELS | settings})}")
    with chdir(folder), pytest.raises(UsageError, match=sentence):
        check_file(Path("config.yaml"))
    assert not (folder / "results").exists()


def test_a_model_that_was_given_away_maps_without_a_calibration(demo: Project, tmp_path: Path) -> None:
    shutil.copytree(demo.results / "model", tmp_path / "given")
    dates = "2017-01-01/2019-12-31"
    done = init("map", "--from", "given", "--catalog", demo.folder / "sample", "--datetime", dates, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "it has no calibration, so its probabilities stay as they are" in done.stdout
    config = yaml.safe_load((tmp_path / "map/config.yaml").read_text())
    assert "calibration" not in config
    assert config["composite"] == {"method": "median", "stack": "season", "parts": ["MAM", "JJA", "SON"]}
    assert config["preprocess"]["mask"] == "scl"


def test_a_finished_model_maps_under_cwltool_with_the_same_bytes(mapped: Project, tmp_path: Path) -> None:
    outputs = by_cwltool(mapped, tmp_path)
    for name in MAPS:
        assert sha256(outputs / name) == sha256(mapped.results / f"maps/mosaic/{name}"), name
    assert sha256(outputs / "report.html") == sha256(mapped.results / "report.html")
    crate = json.loads((outputs / "crate/ro-crate-metadata.json").read_text())
    assert {"model/", "calibration.json"} <= {entity["@id"] for entity in crate["@graph"]}
    assert len(DAYS) == len([*outputs.glob("S2_ROMANIA_*.zarr")])
    assert not [*outputs.glob("metrics*"), *outputs.glob("labels*")]
    assert not {"#job/label", "#job/evaluate"} & {entity["@id"] for entity in crate["@graph"]}


@pytest.mark.exhaustive
def test_labels_test_a_map_under_cwltool_with_the_same_bytes(tested: Project, tmp_path: Path) -> None:
    outputs = by_cwltool(tested, tmp_path)
    for name in MAPS:
        assert sha256(outputs / name) == sha256(tested.results / f"maps/mosaic/{name}"), name
    assert sha256(outputs / "labels-all.zarr/manifest.json") == sha256(tested.results / "labels/all.zarr/manifest.json")
    for name in ("metrics.json", "report.html", "map.png", "catalog/manifest.json"):
        assert sha256(outputs / name) == sha256(tested.results / name), name
    crate = json.loads((outputs / "crate/ro-crate-metadata.json").read_text())
    assert {"metrics.json", "#job/label", "#job/evaluate"} <= {entity["@id"] for entity in crate["@graph"]}


@pytest.mark.exhaustive
def test_labels_of_each_scene_test_its_map_in_both_engines_with_the_same_bytes(
    finished: Project, tmp_path: Path
) -> None:
    assert init("scenes", "--from", finished.folder, cwd=tmp_path).returncode == 0
    project = Project(tmp_path / "scenes")
    config = yaml.safe_load((project.folder / "config.yaml").read_text())
    config["search"]["ids"] = config["search"]["ids"][2:4]
    config["preprocess"]["mask"] = "none"
    values = ["forest=4", *(f"non-forest={number}" for number in (1, 2, 3, 5, 6, 7, 8, 9, 10, 11))]
    config["label"] = {"asset": "scl", "classes": LABELS["classes"], "values": values, "ignore": [0]}
    (project.folder / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    result = project.run("--until", "evaluate")
    assert result.returncode == 0, result.stdout
    outputs = by_cwltool(project, tmp_path, with_report=False, with_crate=False)
    for scene in config["search"]["ids"]:
        for name in ("classes", "probabilities"):
            of_scene = project.results / f"maps/{scene}/{name}.tif"
            assert sha256(outputs / f"{name}-{scene}.zarr.tif") == sha256(of_scene), of_scene
    assert sha256(outputs / "metrics.json") == sha256(project.results / "metrics.json")
