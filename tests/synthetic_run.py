"""Run records and items of a run with many scenes that never ran, to measure size and time of its crate."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from eopipe.contract import is_path, stage, to_args
from eopipe.text_files import read_json, write_json

ROOT = Path(__file__).parents[1]
# An item of the sample has a typical length: five assets with checksum, bands and projection.
SAMPLE = next(iter(sorted(ROOT.glob("sample/*/S2_*/S2_*.json"))))
# The stages that read all stores.
READ_ALL = ("split", "train", "calibrate", "predict", "evaluate", "report", "catalog")


@dataclass(frozen=True)
class SyntheticRun:
    """The files that a crate is made from."""

    records: Sequence[Path]
    scenes: Sequence[Path]
    workflow: Path

    def crate(self, folder: Path) -> Path:
        """The crate of the run, by the stage itself."""
        from eopipe.stages.crate import crate

        crate(tuple(self.records), (), self.workflow, folder, scenes=tuple(self.scenes), author="Ada Lovelace")
        return folder


def synthetic_run(folder: Path, scenes: int) -> SyntheticRun:
    """Write the records of search, of fetch and preprocess for each scene, and of the jobs after them."""
    names = [f"S2B_MSIL2A_{number:06}_N0500_R065_T34TGS" for number in range(scenes)]
    (folder / "items").mkdir(parents=True)
    (folder / "records").mkdir()
    (folder / "Snakefile").write_text("rule all:\n    input: []\n")
    items = [_item(folder / f"items/{name}.geojson", name) for name in names]
    items_data = {path.stem: _data("item", path.name, path.read_bytes()) for path in items}
    frozen = _data("items", "items", b"items", scenes)
    grid = _data("grid", "grid.json", b"grid")
    _record(folder, "search", "search", [], [frozen, grid])
    for name in names:
        scene = _data("scene", name, f"scene {name}".encode(), 9)
        store = _data("tiles", f"{name}.zarr", f"store {name}".encode(), 30)
        _record(folder, "fetch", name, [items_data[name]], [scene])
        _record(folder, "preprocess", name, [scene, grid], [store])
    stores = [_data("tiles", f"{name}.zarr", f"store {name}".encode(), 30) for name in names]
    for name in READ_ALL:
        _record(folder, name, name, stores, [_data("output", f"{name}.out", name.encode())])
    return SyntheticRun(sorted((folder / "records").iterdir()), items, folder / "Snakefile")


def _data(port: str, name: str, content: bytes, files: int = 1) -> dict[str, Any]:
    code = hashlib.sha256(content).hexdigest()
    return {"port": port, "name": name, "folder": files > 1, "bytes": 10**8, "files": files, "sha256": code}


def _settings(stage_name: str) -> dict[str, Any]:
    """The default settings of a stage."""
    ports = [port for port in stage(stage_name).ports if not is_path(port) and port.default not in (None, (), "")]
    return {port.name: list(port.default) if port.is_list else port.default for port in ports}


def _record(folder: Path, name: str, label: str, inputs: list[Any], outputs: list[Any]) -> None:
    settings = _settings(name)
    arguments = []
    for port, rows in groupby((*inputs, *outputs), key=lambda data: data["port"]):
        arguments += [f"--{port}", *(f"results/tiles/{row['name']}" for row in rows)]
    for port in stage(name).ports:
        arguments += to_args(port, settings[port.name]) if port.name in settings else []
    code = int(hashlib.sha256(f"{name} {label}".encode()).hexdigest()[:4], 16)
    record = {
        "stage": name,
        "version": "0.1.0",
        "status": "completed",
        "error": "",
        "start": "2026-01-01T00:00:00+00:00",
        "end": "2026-01-01T00:01:00+00:00",
        "arguments": ["eopipe", name, *arguments],
        "settings": settings,
        "inputs": inputs,
        "outputs": outputs,
        # Jobs of one stage use similar resources.
        "usage": {"cpu_s": 20 + code % 100 / 10, "max_rss_mb": float(500 + code % 100)},
        "place": {"system": "Linux", "machine": "x86_64", "cores": 64, "job": f"slurm:{code}"},
        "software": {"python": "3.11.9", "git": "0" * 40, "numpy": "2.4.0", "zarr": "3.1.0"},
    }
    (folder / "records" / f"{name}-{label}.run.json").write_text(json.dumps(record))


def _item(path: Path, name: str) -> Path:
    item = read_json(SAMPLE) | {"id": name}
    home = f"https://example.org/collections/sentinel-2-l2a/items/{name}"
    item["links"] = [{"rel": "self", "href": home}, {"rel": "license", "href": "https://example.org/legal"}]
    write_json(path, item, indent=None)
    return path
