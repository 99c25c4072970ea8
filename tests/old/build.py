"""Runs of one commit, kept for good as `tests/old/COMMIT.tar.xz`: how later commits are held to its models and runs.

In a worktree of the commit, with its environment: `PYTHONPATH=tests python BUILD FOLDER`, where BUILD is this file. The
archive has two projects with their inputs: `zones`, a landscape across the border of two UTM zones, and `chips`, a chip
set in four zones; and `stages.json`: the REVISION of each stage, and the processor, whose bytes are compared. So that
the archive is small, figures have fewer dots than the commit's own: their constant is changed in the worktree.
"""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from importlib import import_module
from pathlib import Path

import numpy as np
import two_zones
import yaml
from chip_files import write_regions, write_world
from scenery import Catalog

import eopipe
from eopipe.contract import STAGES

ZONES = two_zones.CONFIG | {
    "search": {
        "catalog": "catalog",
        "bbox": [11.993, 45.002, 12.007, 45.012],
        "assets": ["red", "nir", "scl"],
        "crs": "utm",
    },
    "split": {"block": 32, "chip": 16, "fractions": [0.6, 0.2, 0.2], "buffer": 0},
    "train": {"steps": 40, "batch": 8, "width": 8, "depth": 1, "processes": 1},
}
CHIPS = {
    "chip_set": "world",
    "import": {"root": "files", "images": "images/*.tif", "masks": "masks/*.tif", "classes": ["land", "water"]},
    "split": {
        "method": "group",
        "by": "region",
        "regions": "regions.geojson",
        "attribute": "name",
        "val_groups": ["zone02"],
        "test_groups": ["zone03"],
        "allow": ["near-duplicate: made-up patterns"],
    },
    "train": {"steps": 40, "batch": 8, "width": 8, "depth": 1, "processes": 1},
}


def write_zones(folder: Path) -> None:
    """Three scenes of a square kilometre whose values have few digits, so that the archive is small."""
    from pyproj import Transformer
    from scenery import write_raster

    catalog = Catalog(folder / "catalog")
    boxes = {"T33-north": (11.996, 45.006, 12.008, 45.013), "T33-south": (11.996, 45.001, 12.008, 45.0075)}
    for name, bounds in (boxes | {"T32": (11.992, 45.001, 12.0015, 45.013)}).items():
        crs, _, day = two_zones.SCENES[name]
        change = Transformer.from_crs("EPSG:4326", crs, always_xy=True)
        west, south, east, north = change.transform_bounds(*bounds)
        left, top = np.floor(west / 10) * 10, np.ceil(north / 10) * 10
        shape = int((top - south) // 10), int((east - left) // 10)
        x, y = np.meshgrid(left + 10 * (np.arange(shape[1]) + 0.5), top - 10 * (np.arange(shape[0]) + 0.5))
        numbers = two_zones.classes_at(*change.transform(x, y, direction="INVERSE"))
        dice = np.random.default_rng(len(catalog.items))
        noise = 400 * dice.integers(0, 4, (2, *shape))
        bands = {"red": 1000 + 1500 * numbers + noise[0], "nir": 4000 - 1500 * numbers + noise[1]}
        bands = {key: values.astype(np.uint16) for key, values in bands.items()} | {"scl": np.full(shape, 4, np.uint8)}
        catalog.add(name, bands, shape=shape, left=left, top=top, crs=crs, properties={"datetime": day})
    catalog.write()
    step, left, top = 0.00005, 11.985, 45.016
    longitude, latitude = np.meshgrid(left + step * (np.arange(520) + 0.5), top - step * (np.arange(380) + 0.5))
    numbers = two_zones.classes_at(longitude, latitude).astype(np.uint8)
    write_raster(folder / "labels.tif", numbers, left=left, top=top, step=step, crs="EPSG:4326", nodata=255)
    (folder / "config.yaml").write_text(yaml.safe_dump(ZONES))


def write_chips(folder: Path) -> None:
    write_world(folder / "files", 4, 3)
    write_regions(folder / "regions.geojson", 4)
    (folder / "config.yaml").write_text(yaml.safe_dump(CHIPS))


def build(target: Path) -> None:
    """Write both projects, run them to their ends, and pack them."""
    figures = Path(eopipe.__file__).parent / "reporting/figures.py"
    text, count = re.subn(r"^(DPI\b.*?) = \d+", r"\1 = 30", figures.read_text(), flags=re.MULTILINE)
    assert count == 1
    figures.write_text(text)
    commit = subprocess.run(
        ["git", "rev-parse", "--short=8", "HEAD"], check=True, capture_output=True, text=True
    ).stdout
    work = target / "old"
    for name, write in (("zones", write_zones), ("chips", write_chips)):
        (work / name).mkdir(parents=True)
        write(work / name)
        subprocess.run([sys.executable, "-m", "eopipe", "run", "--cores", "2"], cwd=work / name, check=True)
        # Records of Snakemake, and checkpoints.
        for folder in (".snakemake", "state"):
            shutil.rmtree(work / name / folder)
    revisions = {
        name: getattr(import_module(f"eopipe.stages.{name}"), "REVISION", 1) for name in STAGES if name != "import"
    }
    record = json.loads((work / "zones/results/maps/mosaic.utm32n/classes.tif.run.json").read_text())
    stages = {"commit": commit.strip(), "revisions": revisions, "processor": record["place"]["processor"]}
    (work / "stages.json").write_text(json.dumps(stages, indent=1, sort_keys=True))
    with tarfile.open(target / f"{commit.strip()}.tar.xz", "w:xz", preset=9) as archive:
        archive.add(work, ".")


if __name__ == "__main__":
    build(Path(sys.argv[1]).absolute())
