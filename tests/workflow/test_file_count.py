"""Clusters limit the number of files: a run of ten thousand chips needs few, Snakemake's own files included."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from projects import Project
from scenery import Catalog, write_raster

from eopipe.publish import read_json

EDGE, CHIP = 3200, 32


def large(folder: Path) -> Project:
    """Two scenes of 100 x 100 chips, and labels."""
    folder.mkdir()
    catalog = Catalog(folder / "catalog")
    random = np.random.default_rng(1)
    for name in ("A", "B"):
        pixels = random.integers(1, 3000, (EDGE, EDGE), dtype=np.uint16)
        catalog.add(name, {"red": pixels, "scl": np.full((EDGE, EDGE), 4, np.uint8)}, compress="none")
    catalog.write()
    truth = (np.indices((EDGE, EDGE)).sum(0) // 64 % 2).astype(np.uint8)
    write_raster(folder / "truth.tif", truth, nodata=255)
    config = {
        "search": {"catalog": "catalog", "assets": ["red", "scl"]},
        "preprocess": {"bands": ["red"], "chunk": 128, "shard": 1024},
        "label": {"source": "truth.tif", "classes": ["even", "odd"], "chunk": 128, "shard": 1024},
        "split": {"chip": CHIP, "method": "west-east"},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return Project(folder)


@pytest.mark.exhaustive
def test_ten_thousand_chips_need_less_than_500_files(tmp_path: Path) -> None:
    project = large(tmp_path / "run")
    result = project.run("results/split.json")
    assert result.returncode == 0, result.stdout
    chips = sum(len(rows) for rows in read_json(project.results / "split.json")["samples"].values())
    inputs = {project.folder / name for name in ("config.yaml", "truth.tif")}
    files = [
        path
        for path in project.folder.rglob("*")
        if path.is_file() and path not in inputs and "catalog" not in path.relative_to(project.folder).parts[0]
    ]
    assert chips >= 10_000
    assert len(files) <= 500
