"""How many files and bytes a run makes, folder by folder, up to the split."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import BoolArray
from eopipe.chips.splits import SPLITS
from eopipe.contract import Output, stage
from eopipe.fetch.sizes import AssetSize
from eopipe.planning.chip_forecast import Chips
from eopipe.planning.frozen_scenes import MADE, Config, Frozen
from eopipe.planning.trial_store import Weight, weigh
from eopipe.publish import MANIFEST, files
from eopipe.scenes.item import Item
from eopipe.tiles.layout import Layout, store_files

# A job leaves a run record, a log and a table of what it used; Snakemake remembers each of its outputs.
A_JOB = {"records": 2500, "logs": 300, "benchmarks": 800}
REMEMBERED, ENGINE = 3000, ".snakemake"
# Bytes a pixel where no scene is at hand to try: labels and masks are nearly constant.
LABELS_TYPICAL = 0.1
# Reflectance takes about half of its bytes with lz4, a third with zstd; deflate, as in most assets, lies between.
RATIO = {"lz4": 2.0, "zstd": 2.7}
DEFLATE = 2.3
# A cloud-optimised GeoTIFF above this edge holds overviews too: a third as much as the image itself.
OVERVIEWS, OVERVIEWS_FROM = 0.75, 512


@dataclass(frozen=True)
class Need:
    """What one folder of the results takes; `made` is how much of it is there already."""

    folder: str
    jobs: int
    files: int
    bytes: int
    made: tuple[int, int] = (0, 0)
    basis: str = "counted"


def needs(
    config: Config, seen: Frozen, sizes: list[AssetSize], chips: Chips, masks: dict[str, BoolArray]
) -> list[Need]:
    """Every folder that search, fetch, preprocess, composite, label and split fill."""
    results, names = Path(config["results"]), list(seen.items)
    made = _made(results / name for name in MADE.values())
    search = Need("items", 1, seen.files, seen.bytes, made)
    per_label = names if config["label"]["asset"] else ["all"]
    tiles, rate = _tiles(config, seen, sizes, masks)
    rows = [search, _scenes(results, seen, sizes), tiles]
    if seen.periods:
        rows.append(_composites(config, seen, rate))
    rows += [_labels(config, seen, chips, per_label, masks), _split(results, chips)]
    return [*rows, *_beside(config, rows)]


def _scenes(results: Path, seen: Frozen, sizes: list[AssetSize]) -> Need:
    items = seen.items.values()
    count = sum(len(item["assets"]) + 2 for item in items)
    basis = "unknown in part" if any(size.basis == "unknown" for size in sizes) else "told"
    made = _made(results / "scenes" / name for name in seen.items)
    # Each folder holds its item again, and a manifest.
    return Need("scenes", len(seen.items), count, sum(s.bytes for s in sizes) + seen.bytes, made, basis)


def _tiles(config: Config, seen: Frozen, sizes: list[AssetSize], masks: dict[str, BoolArray]) -> tuple[Need, Weight]:
    told, names = config["preprocess"], list(seen.items)
    shape = _shape(seen)
    tried = weigh(config, seen, masks, "preprocess")
    weight = tried or typical(config, seen, sizes)
    count = store_files(shape, Layout(told["chunk"], told["shard"]), 2)
    size = sum(weight.rate * int(masks[n].sum()) + weight.fixed + 8 * sum(shape) for n in names)
    made = _made(Path(config["results"], "tiles", f"{n}.zarr") for n in names)
    basis = "tried" if tried else "typical"
    return Need("tiles", len(names), count * len(names), round(size), made, basis), weight


def _composites(config: Config, seen: Frozen, weight: Weight) -> Need:
    told, shape = config["preprocess"], _shape(seen)
    count = store_files(shape, Layout(told["chunk"], told["shard"]), 3)
    names = list(seen.periods)
    parts = max(1, len(config["composite"]["parts"]))
    size = len(names) * (weight.rate * parts * shape[0] * shape[1] + weight.fixed + 8 * sum(shape))
    made = _made(Path(config["results"], "composites", f"{n}.zarr") for n in names)
    return Need("composites", len(names), count * len(names), round(size), made, "typical")


def _labels(config: Config, seen: Frozen, chips: Chips, names: list[str], masks: dict[str, BoolArray]) -> Need:
    told, shape = config["label"], _shape(seen)
    count = store_files(shape, Layout(told["chunk"], told["shard"]), 2)
    made = _made(Path(config["results"], "labels", f"{n}.zarr") for n in names)
    if chips.is_known:
        return Need("labels", len(names), count * len(names), chips.label_bytes, made, "made")
    tried = weigh(config, seen, masks, "label") if told["asset"] else None
    weight = tried or Weight(LABELS_TYPICAL, 9000.0)
    size = sum(weight.rate * int(masks[n].sum()) + weight.fixed + 8 * sum(shape) for n in names)
    return Need("labels", len(names), count * len(names), round(size), made, "tried" if tried else "typical")


def _split(results: Path, chips: Chips) -> Need:
    outputs = stage("split").of(Output)
    made = _made(results / port.mark.name for port in outputs if isinstance(port.mark, Output))
    # A row of numbers in the split file, and a polygon.
    return Need("split", 1, len(outputs), 340 * int((chips.role < len(SPLITS)).sum()) + 150_000, made, "typical")


def _beside(config: Config, rows: list[Need]) -> list[Need]:
    """What stands beside the results: records, logs, benchmarks, and Snakemake's memory of each output."""
    jobs = sum(row.jobs for row in rows)
    root = Path(config["results"])
    records = [*root.glob("*.run.json"), *root.glob("*/*.run.json")]
    there = {"records": records} | {name: [*root.glob(f"{name}/**/*.*")] for name in ("logs", "benchmarks")}
    found = [_of_jobs(name, jobs, there[name]) for name in A_JOB]
    outputs = jobs + sum(len(stage(name).of(Output)) - 1 for name in ("search", "split"))
    # Besides one file an output there is one log a run, and a lock.
    known = min(outputs + 2, len(list(Path(ENGINE).glob("*/*"))) + 1) if Path(ENGINE).is_dir() else 0
    made = known, known * REMEMBERED
    return [*found, Need(ENGINE, 0, outputs + 2, (outputs + 2) * REMEMBERED, made, "typical")]


def _of_jobs(name: str, jobs: int, there: list[Path]) -> Need:
    # Later stages leave such files too, so no more are counted than come from these jobs.
    made = min(jobs, len(there))
    return Need(name, 0, jobs, jobs * A_JOB[name], (made, made * A_JOB[name]), "typical")


def _shape(seen: Frozen) -> tuple[int, int]:
    return int(seen.grid.shape[0]), int(seen.grid.shape[1])


def typical(config: Config, seen: Frozen, sizes: list[AssetSize]) -> Weight:
    """The weight of tiles by the size of the assets, or else by what reflectance usually takes."""
    told = config["preprocess"]
    ratio, bands = RATIO.get(told["codec"], 2.0), len(told["bands"])
    rates = []
    for size in sizes:
        shape = _asset_shape(seen.items, size)
        if size.asset in told["bands"] and size.bytes and shape:
            image = size.bytes * (OVERVIEWS if max(shape) > OVERVIEWS_FROM else 1)
            rates.append(image / np.prod(shape) * DEFLATE / ratio)
    return Weight(bands * (float(np.mean(rates)) if rates else 2.0 / ratio), 12_000.0)


def _asset_shape(items: dict[str, Item], size: AssetSize) -> list[int] | None:
    item = next(item for item in items.values() if item["id"] == size.scene)
    told: Any = (item["properties"] | item["assets"][size.asset]).get("proj:shape")
    return told if isinstance(told, list) and len(told) == 2 and all(told) else None


def _made(paths: Iterable[Path]) -> tuple[int, int]:
    """Files and bytes of those outputs that a run made already."""
    there = [p for p in paths if p.is_file() or (p / MANIFEST).is_file()]
    found = [file for p in there for file in ([*files(p), p / MANIFEST] if p.is_dir() else [p])]
    return len(found), sum(file.stat().st_size for file in found)


def free(place: Path) -> tuple[int, int]:
    """Bytes and inodes that are free where a folder is or will be."""
    there = next(p for p in (place.absolute(), *place.absolute().parents) if p.exists())
    return shutil.disk_usage(there).free, os.statvfs(there).f_favail
