"""The report page and the map, made through the command line from real stores and maps."""

import base64
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import rasterio
from affine import Affine
from odc.geo.geobox import GeoBox
from PIL import Image

from eopipe.cli import main
from eopipe.publish import write_json
from eopipe.store import Layout, add_array, new_store

Array = npt.NDArray[Any]
LAYOUT = Layout(chunk=64, shard=512)
LICENCE = "https://example.org/licence"


@dataclass
class Run:
    """A finished run on disk: what the report stage reads, by port."""

    folder: Path
    ports: dict[str, list[Path]]
    truth: Array

    def report(self, *extra: str, name: str = "out") -> tuple[int, str, Path]:
        """Run the stage; give the exit code, the page and the path of the map."""
        page, picture = self.folder / name / "report.html", self.folder / name / "map.png"
        words = [word for port, paths in self.ports.items() for word in (f"--{port}", *map(str, paths))]
        code = main(["report", *words, "--page", str(page), "--picture", str(picture), *extra])
        return code, page.read_text() if page.exists() else "", picture


def fields(size: int, classes: int, seed: int = 0) -> Array:
    """Smooth random places of each class, (size, size) uint8."""
    y, x = np.mgrid[0:size, 0:size] / size
    random = np.random.default_rng(seed)
    waves = sum(np.sin(2 * np.pi * (a * x + b * y) + c) for a, b, c in random.uniform(-3, 3, (6, 3)))
    return np.digitize(waves, np.quantile(waves, np.linspace(0, 1, classes + 1)[1:-1])).astype(np.uint8)


def grid(size: int) -> GeoBox:
    return GeoBox((size, size), Affine(10, 0, 500000, 0, -10, 5000000), "EPSG:32633")


def write_tiles(path: Path, scene: str, truth: Array, bands: tuple[str, ...]) -> Path:
    random, size = np.random.default_rng(len(scene)), truth.shape[0]
    steps = np.arange(1, len(bands) + 1)[:, None, None] * 130
    image = 500 + steps * truth.astype(np.int64) + random.integers(0, 150, (len(bands), size, size))
    with new_store(path, grid(size), bands, scene, {"valid_fraction": 0.9}) as group:
        array = add_array(group, "image", image.shape, "uint16", LAYOUT, scale_factor=1e-4, add_offset=0.0)
        array[:] = image.astype(np.uint16)
        valid = add_array(group, "valid", truth.shape, "uint8", LAYOUT)
        valid[:] = np.broadcast_to(np.arange(size) >= size // 10, truth.shape)
    return path


def write_label(path: Path, truth: Array, classes: tuple[str, ...]) -> Path:
    with new_store(path, grid(truth.shape[0]), classes, "", {}) as group:
        for name, values in (("label", truth), ("valid", np.ones_like(truth))):
            add_array(group, name, truth.shape, "uint8", LAYOUT)[:] = values
    return path


def write_map(path: Path, bands: Array, nodata: int, names: tuple[str, ...], scene: str) -> Path:
    place = grid(bands.shape[1])
    with rasterio.open(
        path, "w", driver="COG", width=bands.shape[2], height=bands.shape[1], count=len(bands), dtype=bands.dtype,
        crs="EPSG:32633", transform=place.affine, nodata=nodata, compress="deflate",
    ) as target:
        target.write(bands)
        target.descriptions = names
        target.scales = [1.0 if bands.dtype == np.uint8 else 1e-4] * len(bands)
        target.update_tags(scene=scene)
    return path


def guess(truth: Array, classes: int, right: float, seed: int) -> Array:
    random = np.random.default_rng(seed)
    return np.where(random.random(truth.shape) < right, truth, random.integers(0, classes, truth.shape)).astype(np.uint8)


def scores(truth: Array, found: Array, classes: tuple[str, ...]) -> dict[str, Any]:
    confusion = np.bincount(truth.ravel() * len(classes) + found.ravel(), minlength=len(classes) ** 2)
    confusion = confusion.reshape(len(classes), -1)
    hit, rows, cols = np.diag(confusion), confusion.sum(1), confusion.sum(0)
    iou, recall = hit / (rows + cols - hit), hit / rows
    precision = [float(h / c) if c else None for h, c in zip(hit, cols, strict=True)]
    each = {
        name: {"iou": float(iou[n]), "precision": precision[n], "recall": float(recall[n]),
               "f1": float(2 * hit[n] / (rows[n] + cols[n])), "pixels": int(rows[n])}
        for n, name in enumerate(classes)
    }
    return {"accuracy": float(hit.sum() / rows.sum()), "miou": float(iou.mean()), "kappa": None,
            "f1_macro": float(np.mean([e["f1"] for e in each.values()])), "confusion": confusion.tolist(), "per_class": each}


def write_scores(path: Path, truth: Array, found: Array, classes: tuple[str, ...], baseline: float) -> Path:
    other = guess(truth, len(classes), baseline, 9)
    most = int(np.bincount(truth.ravel()).argmax())
    write_json(path, {
        "classes": list(classes), "test_pixels": truth.size, "maps": 1,
        "model": scores(truth, found, classes),
        "majority": scores(truth, np.full_like(truth, most), classes) | {"class": classes[most]},
        "pixel_baseline": scores(truth, other, classes) | {"method": "boosted trees on single pixels"},
    })
    return path


def write_model(path: Path, classes: tuple[str, ...], bands: tuple[str, ...]) -> Path:
    path.mkdir()
    (path / "model.safetensors").write_bytes(b"weights")
    write_json(path / "model.json", {
        "architecture": "unet", "width": 16, "depth": 3, "bands": list(bands), "classes": list(classes),
        "mean": [0.1] * len(bands), "std": [0.1] * len(bands), "chip": 16, "parameters": 117_000,
        "settings": {"learning_rate": 0.002, "epochs": 12, "seed": 0},
    })
    rows = [
        {"epoch": n, "loss": 0.9 / n**0.7, "learning_rate": 0.002,
         "val": {"accuracy": 0.95 - 0.4 / n, "miou": 0.86 - 0.5 / n} if n % 2 else None}
        for n in range(1, 13)
    ]
    write_json(path / "history.json", {"epochs": rows})
    return path


def write_item(path: Path, scene: str, day: int) -> Path:
    write_json(path, {
        "type": "Feature", "id": scene, "links": [{"rel": "license", "href": LICENCE}], "assets": {},
        "properties": {"datetime": f"2020-06-{day:02}T10:00:00Z", "eo:cloud_cover": 3.25 * day},
    })
    return path


def make_run(
    folder: Path, size: int = 100, classes: tuple[str, ...] = ("non-forest", "forest"), right: float = 0.95,
    baseline: float = 0.6, scenes: int = 2, maps: int = 1, bands: tuple[str, ...] = ("blue", "green", "red", "nir"),
) -> Run:
    """A run whose one map is a mosaic, or which has a map for each of the first scenes."""
    folder.mkdir(exist_ok=True)
    truth, names = fields(size, len(classes)), [f"S{n + 1}" for n in range(scenes)]
    found = guess(truth, len(classes), right, 5)
    found[: size // 20, : size // 20] = 255
    shares = np.full((len(classes), size, size), 10000 // (4 * len(classes)), np.uint16)
    np.put_along_axis(shares, np.minimum(found, len(classes) - 1)[None].astype(int), np.uint16(7000), axis=0)
    shares[:, found == 255] = 65535
    told = names[:maps] if maps > 1 else [""]
    ports = {
        "tiles": [write_tiles(folder / f"{name}.zarr", name, truth, bands) for name in names],
        "labels": [write_label(folder / "labels.zarr", truth, classes)],
        "scenes": [write_item(folder / f"{name}.geojson", name, n + 1) for n, name in enumerate(names)],
    }
    words = ["--tiles", *map(str, ports["tiles"]), "--labels", str(ports["labels"][0])]
    chip = size // 10 // 4 * 4
    assert main(["split", *words, "--chips", str(folder / "split.json"), "--chip", str(chip), "--method", "west-east",
                 "--fractions", "0.5", "0.2", "0.3", "--min-valid", "0.1"]) == 0
    test = np.s_[:, int(size * 0.7) :]
    usable = found[test] != 255
    return Run(folder, ports | {
        "metrics": [write_scores(folder / "metrics.json", truth[test][usable], found[test][usable], classes, baseline)],
        "model": [write_model(folder / "model", classes, bands)],
        "chips": [folder / "split.json"],
        "classes": [write_map(folder / f"classes{n}.tif", found[None], 255, ("class",), s) for n, s in enumerate(told)],
        "probabilities": [write_map(folder / f"shares{n}.tif", shares, 65535, classes, s) for n, s in enumerate(told)],
    }, truth)
