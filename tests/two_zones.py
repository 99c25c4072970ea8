"""A made-up landscape across the border of UTM zones 32 and 33, in three scenes, with the classes of every place."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from scenery import Catalog, write_raster

from eopipe.arrays import AnyArray, IntArray

# Zone 33 begins at 12 degrees east.
BORDER, SOUTH, NORTH = 12.0, 44.992, 45.028
BBOX = [11.975, SOUTH, 12.018, NORTH]
SCENES = {
    "T33-north": ("EPSG:32633", (11.985, 45.010, 12.02, 45.03), "2023-08-01T10:00:00Z"),
    "T33-south": ("EPSG:32633", (11.985, 44.990, 12.02, 45.012), "2023-08-01T10:00:00Z"),
    "T32": ("EPSG:32632", (11.97, 44.990, 12.003, 45.03), "2023-08-06T10:00:00Z"),
}
# Reaches no pixel of the cell of zone 32.
EAST = {"T33-east": ("EPSG:32633", (12.015, 44.990, 12.02, 45.03), "2023-08-11T10:00:00Z")}
CONFIG: dict[str, Any] = {
    "results": "results",
    "state": "state",
    "search": {"catalog": "catalog", "bbox": BBOX, "assets": ["red", "nir", "scl"], "crs": "utm"},
    "preprocess": {"bands": ["red", "nir"], "chunk": 64, "shard": 256},
    "label": {"source": "labels.tif", "classes": ["a", "b"], "chunk": 64, "shard": 256},
    "split": {"block": 64, "chip": 32, "fractions": [0.6, 0.2, 0.2], "buffer": 8},
    "train": {"epochs": 6, "width": 8, "depth": 2, "processes": 1},
}


def classes_at(longitude: AnyArray, latitude: AnyArray) -> IntArray:
    """The class of places: patches of some hundred metres that do not repeat."""
    dice = np.random.default_rng(7)
    waves, phases = dice.normal(0, 900, (40, 2)), dice.uniform(0, 2 * np.pi, 40)
    x, y = longitude - BORDER, latitude - 45
    field = sum(np.sin(a * x + b * y + phase) for (a, b), phase in zip(waves, phases, strict=True))
    return np.asarray(field > 0, np.int64)


def add_scene(catalog: Catalog, name: str) -> None:
    """Add a scene to a catalog: two bands that tell the class with noise."""
    from pyproj import Transformer

    crs, bounds, day = (SCENES | EAST)[name]
    change = Transformer.from_crs("EPSG:4326", crs, always_xy=True)
    west, south, east, north = change.transform_bounds(*bounds)
    left, top = np.floor(west / 10) * 10, np.ceil(north / 10) * 10
    shape = int((top - south) // 10), int((east - left) // 10)
    x, y = np.meshgrid(left + 10 * (np.arange(shape[1]) + 0.5), top - 10 * (np.arange(shape[0]) + 0.5))
    numbers = classes_at(*change.transform(x, y, direction="INVERSE"))
    dice = np.random.default_rng(len(catalog.items))
    red, nir = (level + step * numbers + dice.integers(0, 1500, shape) for level, step in ((1000, 2000), (3000, -1500)))
    bands = {"red": red.astype(np.uint16), "nir": nir.astype(np.uint16), "scl": np.full(shape, 4, np.uint8)}
    catalog.add(name, bands, shape=shape, left=left, top=top, crs=crs, properties={"datetime": day})


def write_project(folder: Path, names: Iterable[str] = SCENES) -> None:
    """Write catalog, labels (a raster in degrees) and config."""
    catalog = Catalog(folder / "catalog")
    for name in names:
        add_scene(catalog, name)
    catalog.write()
    step, left, top = 0.00005, 11.965, 45.035
    longitude, latitude = np.meshgrid(left + step * (np.arange(1200) + 0.5), top - step * (np.arange(1000) + 0.5))
    numbers = classes_at(longitude, latitude).astype(np.uint8)
    write_raster(folder / "labels.tif", numbers, left=left, top=top, step=step, crs="EPSG:4326", nodata=255)
    (folder / "config.yaml").write_text(yaml.safe_dump(CONFIG))
