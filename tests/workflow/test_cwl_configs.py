"""Configs other than the demo's: Snakemake and cwltool make the same bytes, whatever steps they need."""

import hashlib
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from projects import DAYS, ROOT, Project, by_cwltool, environment

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
    "preprocess": {"mask": "none"},
}
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "composites": ("config/config.yaml", {"composite": {"method": "median", "period": "year"}}),
    "scene-labels-and-folds": ("config/config.yaml", SCENE_LABELS | {"folds": 3}),
    "forest-chips": ("config/examples/forest-chips.yaml", {}),
    "tree-cover-values": ("config/examples/tree-cover-values.yaml", {}),
}


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def maps_of(results: Path) -> dict[str, str]:
    """The digests of the maps by image; a mosaic has no name under CWL."""
    return {path.parent.name: sha256(path) for path in results.glob("maps/*/classes.tif")}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_makes_the_same_bytes_in_both_engines(name: str, tmp_path: Path) -> None:
    source, changes = CONFIGS[name]
    (tmp_path / "sample").symlink_to(ROOT / "sample")
    config = yaml.safe_load((ROOT / source).read_text()) | {"results": "results", "state": "state"}
    for part in (SMALL, changes):
        for section, values in part.items():
            config[section] = {**config.get(section, {}), **values} if isinstance(values, dict) else values
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    project = Project(tmp_path)
    result = project.run()
    assert result.returncode == 0, result.stdout
    outputs = by_cwltool(project, tmp_path)
    folds = range(config.get("folds", 0))
    for fold in folds:
        for file in (f"metrics-fold-{fold}.json", f"model-fold-{fold}/manifest.json"):
            assert sha256(outputs / file) == sha256(project.results / "folds" / file), file
    assert len({sha256(outputs / f"metrics-fold-{fold}.json") for fold in folds}) == len(folds)
    names = ("model/manifest.json", "metrics.json", "split.json", "model.onnx", "report.html", "catalog/manifest.json")
    for file in names:
        assert sha256(outputs / file) == sha256(project.results / file), file
    stores = [*project.results.glob("tiles/*.zarr"), *project.results.glob("composites/*.zarr")]
    assert stores
    for store in stores:
        assert sha256(outputs / store.name / "manifest.json") == sha256(store / "manifest.json"), store.name
    names_in_cwl = {
        path: re.fullmatch(r"classes-?(.*?)(\.zarr)?\.tif", path.name) for path in outputs.glob("classes*.tif")
    }
    by_image = {(match[1] or "mosaic" if match else ""): sha256(path) for path, match in names_in_cwl.items()}
    assert by_image == maps_of(project.results)


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
    job |= {"epochs": 100_000, "processes": 1, "batch": 8, "width": 4, "checkpoint_every": 5, "timelimit_s": 60}
    (tmp_path / "job.yml").write_text(yaml.safe_dump(job))
    command = ["cwltool", "--outdir", "out", str(ROOT / "cwl/train.cwl"), "job.yml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment())
    assert ended.returncode != 0
    assert "temporaryFail" in ended.stderr
    assert not (tmp_path / "out/model").exists()
    (checkpoints,) = (tmp_path / "out/state").iterdir()
    (step, *_) = sorted(path.name for path in checkpoints.glob("step-*"))
    job["state"] = {"class": "Directory", "path": str(tmp_path / "out/state")}
    (tmp_path / "job.yml").write_text(yaml.safe_dump(job))
    command[2] = "again"
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment())
    assert "event=resume " in ended.stderr, step


def test_the_crate_of_a_cwl_run_holds_a_workflow_that_is_valid_there(by_cwl: Path, tmp_path: Path) -> None:
    workflow = by_cwl / "crate/pipeline.cwl"
    assert workflow.read_bytes() == (ROOT / "cwl/packed/pipeline.cwl").read_bytes()
    (tmp_path / "pipeline.cwl").write_bytes(workflow.read_bytes())
    # From a folder with nothing else: references to other files would not be valid.
    cwltool_validate = ["cwltool", "--validate", "--quiet", "pipeline.cwl"]
    done = subprocess.run(cwltool_validate, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
