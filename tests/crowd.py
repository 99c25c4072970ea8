"""The records and items of a run of many scenes that never ran, for the size and time of its crate."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# The bands of a usual scene; each is an asset with a checksum.
BANDS = ("blue", "green", "red", "nir", "swir16", "swir22", "scl")


@dataclass(frozen=True)
class Crowd:
    """Files that a crate is made from."""

    records: Sequence[Path]
    scenes: Sequence[Path]
    workflow: Path

    def crate(self, to: Path) -> Path:
        """The crate of the run, by the stage itself."""
        from eopipe.stages.crate import crate

        crate(tuple(self.records), (), tuple(self.scenes), self.workflow, to, author="Ada Lovelace")
        return to


def crowd(room: Path, scenes: int) -> Crowd:
    """Write what fetch and preprocess leave of so many scenes, and the search before and the split after them."""
    names = [f"S2B_MSIL2A_{number:06}_N0500_R065_T34TGS" for number in range(scenes)]
    (room / "items").mkdir(parents=True)
    (room / "records").mkdir()
    (room / "Snakefile").write_text("rule all:\n    input: []\n")
    items = [_item(room / f"items/{name}.geojson", name) for name in names]
    data = {path.stem: _data("item", path.name, path.read_bytes()) for path in items}
    frozen = _data("items", "items", b"items", scenes)
    grid, split = _data("grid", "grid.json", b"grid"), _data("chips", "split.json", b"split")
    _record(room, "search", "search", [], [frozen, grid])
    for name in names:
        folder = _data("scene", name, f"scene {name}".encode(), 9)
        store = _data("tiles", f"{name}.zarr", f"store {name}".encode(), 30)
        _record(room, "fetch", name, [data[name]], [folder])
        _record(room, "preprocess", name, [folder, grid], [store], bands=list(BANDS), chunk=256)
    stores = [_data("tiles", f"{name}.zarr", f"store {name}".encode(), 30) for name in names]
    _record(room, "split", "split", stores, [split], chip=256)
    return Crowd(sorted((room / "records").iterdir()), items, room / "Snakefile")


def _data(port: str, name: str, content: bytes, files: int = 1) -> dict[str, Any]:
    code = hashlib.sha256(content).hexdigest()
    return {"port": port, "name": name, "folder": files > 1, "bytes": 10**8, "files": files, "sha256": code}


def _record(room: Path, stage: str, name: str, inputs: list[Any], outputs: list[Any], **settings: Any) -> None:
    words = [word for data in (*inputs, *outputs) for word in (f"--{data['port']}", f"results/{data['name']}")]
    record = {
        "stage": stage,
        "version": "0.1.0",
        "status": "completed",
        "error": "",
        "start": "2026-01-01T00:00:00+00:00",
        "end": "2026-01-01T00:01:00+00:00",
        "arguments": ["eopipe", stage, *words],
        "settings": settings,
        "inputs": inputs,
        "outputs": outputs,
        "usage": {"cpu_s": 60.0, "max_rss_mb": 512.5},
        "place": {"system": "Linux", "machine": "x86_64", "cores": 64, "job": f"slurm:{len(name)}"},
        "software": {"python": "3.11.9", "git": "0" * 40, "numpy": "2.4.0", "zarr": "3.1.0"},
    }
    (room / "records" / f"{stage}-{name}.run.json").write_text(json.dumps(record))


def _item(path: Path, name: str) -> Path:
    home = f"https://example.org/collections/sentinel-2-l2a/items/{name}"
    ring = [[24.0, 46.0], [25.0, 46.0], [25.0, 47.0], [24.0, 47.0], [24.0, 46.0]]
    item = {
        "type": "Feature",
        "stac_version": "1.1.0",
        "stac_extensions": [],
        "id": name,
        "collection": "sentinel-2-l2a",
        "geometry": {"type": "Polygon", "coordinates": [ring]},
        "bbox": [24.0, 46.0, 25.0, 47.0],
        "properties": {"datetime": "2023-08-01T10:00:00Z", "attribution": "Contains modified Copernicus data"},
        "links": [{"rel": "self", "href": home}, {"rel": "license", "href": "https://example.org/legal"}],
        "assets": {band: {"href": f"https://example.org/{name}/{band}.tif"} for band in BANDS},
    }
    path.write_text(json.dumps(item))
    return path
