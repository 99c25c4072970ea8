"""Configs other than the demo's: Snakemake and cwltool make the same bytes, whatever steps they need."""

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rasterio
import yaml
from patience import PATIENCE
from projects import DAYS, ROOT, Project, by_cwltool, environment

from eopipe.tiles.store import Tiles

IDS = [f"S2_ROMANIA_{day}" for day in (DAYS[0], DAYS[3], DAYS[5])]
SMALL = {"search": {"ids": IDS}, "train": {"epochs": 2, "batch": 8, "width": 4, "processes": 1}}
SCENE_LABELS = {
    "label": {
        "source": None,
        "asset": "scl",
        "classes": ["other", "plants"],
        "bins": [],
        "values": ["plants=4", *(f"other={number}" for number in (1, 2, 3, 5, 6, 7, 8, 9, 10, 11))],
        "ignore": [0],
    },
    # A grid of which the scenes reach a few chunks.
    "search": {"bbox": [22.09, 45.16, 22.19, 45.27]},
    "preprocess": {"mask": "none", "chunk": 64},
    "split": {"method": "blocks", "block": 32, "allow": ["near-duplicate: the forest of the sample is smooth"]},
}
# Beside them, the example configs of test_tasks_run.
CONFIGS: dict[str, dict[str, Any]] = {
    "composites-and-folds": {
        "composite": {"method": "median", "period": "year"},
        "folds": 3,
        "split": {"allow": ["near-duplicate: the forest of the sample is smooth"]},
    },
    "scene-labels": SCENE_LABELS,
    "change": {
        "composite": {"method": "median", "period": "all", "stack": "year", "parts": ["2017", "2018"]},
        "label": {"before": "before.tif"},
        "split": {"allow": ["near-duplicate: the forest of the sample is smooth"]},
    },
}
# What the results are described in.
DESCRIPTIONS = ["model.onnx", "report.html", "catalog/manifest.json"]
# Outputs that a job of CWL can leave out.
WITHOUT = {"with_onnx": False, "with_report": False, "with_crate": False}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def maps_of(results: Path) -> dict[str, str]:
    """The digests of the maps by image; a mosaic has no name under CWL."""
    return {path.parent.name: sha256(path) for path in results.glob("maps/*/classes.tif")}


def assert_same_bytes(project: Project, outputs: Path, names: list[str]) -> None:
    """Of stores, models, scores, maps and named files of a run in both engines."""
    folds = range(yaml.safe_load((project.folder / "config.yaml").read_text()).get("folds", 0))
    for fold in folds:
        for file in (f"metrics-fold-{fold}.json", f"model-fold-{fold}/manifest.json"):
            assert sha256(outputs / file) == sha256(project.results / "folds" / file), file
    scores = [sha256(outputs / f"metrics{end}.json") for end in ("", *(f"-fold-{fold}" for fold in folds))]
    assert len(set(scores)) == len(scores)
    for file in ("model/manifest.json", "metrics.json", "split.json", *names):
        assert sha256(outputs / file) == sha256(project.results / file), file
    if "bbox" in yaml.safe_load((project.folder / "config.yaml").read_text())["search"]:
        assert Tiles(next(project.results.glob("tiles/*.zarr"))).window
    stores = [*project.results.glob("tiles/*.zarr"), *project.results.glob("composites/*.zarr")]
    assert stores
    for store in stores:
        assert sha256(outputs / store.name / "manifest.json") == sha256(store / "manifest.json"), store.name
    names_in_cwl = {
        path: re.fullmatch(r"classes-?(.*?)(\.zarr)?\.tif", path.name) for path in outputs.glob("classes*.tif")
    }
    by_image = {(match[1] or "mosaic" if match else ""): sha256(path) for path, match in names_in_cwl.items()}
    assert by_image == maps_of(project.results)


def write_earlier_labels(path: Path) -> None:
    """The labels of the sample with a made-up change: a part of them was open."""
    with rasterio.open(ROOT / "sample/tree_cover_density_2018.tif") as file:
        cover, profile = file.read(), file.profile
    cover[:, cover.shape[1] // 3 : cover.shape[1] // 2] = 0
    with rasterio.open(path, "w", **profile) as file:
        file.write(cover)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_makes_the_same_bytes_in_both_engines(name: str, tmp_path: Path) -> None:
    (tmp_path / "sample").symlink_to(ROOT / "sample")
    write_earlier_labels(tmp_path / "before.tif")
    config = yaml.safe_load((ROOT / "config/config.yaml").read_text()) | {"results": "results", "state": "state"}
    # Each of these configs says whether and how it composites.
    del config["composite"]
    for part in (SMALL, CONFIGS[name]):
        for section, values in part.items():
            config[section] = {**config.get(section, {}), **values} if isinstance(values, dict) else values
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    project = Project(tmp_path)
    result = project.run()
    assert result.returncode == 0, result.stdout
    with_all = name != "scene-labels"
    outputs = by_cwltool(project, tmp_path, **({} if with_all else WITHOUT))
    assert_same_bytes(project, outputs, DESCRIPTIONS if with_all else [])
    if name == "change":
        change = json.loads((project.results / "metrics.json").read_text())["change"]
        assert change["model"]["pixels"] == sum(change["model"]["confusion"][1]) > 0
        assert change["post_classification"]["f1"] is not None
        assert "Post-classification comparison" in (project.results / "report.html").read_text()


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["forest-chips", "tree-cover-labels", "tree-cover-values"])
def test_an_example_makes_the_same_bytes_in_both_engines(
    name: str, example: Callable[[str], Project], tmp_path: Path
) -> None:
    with_all = name == "forest-chips"
    outputs = by_cwltool(example(name), tmp_path, **({} if with_all else WITHOUT))
    left_out = ["model.onnx", "report.html", "crate/manifest.json"]
    assert [(outputs / file).exists() for file in left_out] == [with_all] * 3
    assert_same_bytes(
        example(name), outputs, ["model.onnx", "report.html", "catalog/manifest.json"] if with_all else []
    )


@pytest.mark.exhaustive
def test_a_training_that_a_time_limit_ends_goes_on_from_its_checkpoints(finished: Project, tmp_path: Path) -> None:
    (tmp_path / "results").symlink_to(finished.results)
    job = yaml.safe_load((ROOT / "cwl/inputs.yml").read_text())
    for name in ("tiles", "labels"):
        job[name] = [
            {"class": "Directory", "path": str(path)} for path in sorted(finished.results.glob(f"{name}/*.zarr"))
        ]
    for name in ("chips", "statistics"):
        job[name]["path"] = str(finished.results / Path(job[name]["path"]).name)
    job |= {"epochs": 100_000, "processes": 1, "batch": 8, "width": 4, "checkpoint_every": 5}
    command = ["cwltool", "--outdir", "out", str(ROOT / "cwl/train.cwl"), "job.yml"]
    # A busy machine may take the first limits for the start alone.
    for job["timelimit_s"] in (30, 120, PATIENCE):
        (tmp_path / "job.yml").write_text(yaml.safe_dump(job))
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment())
        assert ended.returncode != 0
        assert "temporaryFail" in ended.stderr
        assert not (tmp_path / "out/model").exists()
        checkpoints = sorted((tmp_path / "out/state").glob("*/step-*"))
        if checkpoints:
            break
        shutil.rmtree(tmp_path / "out")
    assert checkpoints
    job["state"] = {"class": "Directory", "path": str(tmp_path / "out/state")}
    (tmp_path / "job.yml").write_text(yaml.safe_dump(job))
    command[2] = "again"
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment())
    assert "event=resume " in ended.stderr, checkpoints


@pytest.mark.exhaustive
def test_the_crate_of_a_cwl_run_holds_a_workflow_that_is_valid_there(by_cwl: Path, tmp_path: Path) -> None:
    workflow = by_cwl / "crate/pipeline.cwl"
    assert workflow.read_bytes() == (ROOT / "cwl/packed/pipeline.cwl").read_bytes()
    (tmp_path / "pipeline.cwl").write_bytes(workflow.read_bytes())
    # From a folder with nothing else: references to other files would not be valid.
    cwltool_validate = ["cwltool", "--validate", "--quiet", "pipeline.cwl"]
    done = subprocess.run(cwltool_validate, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
