"""Number of files and bytes that a run writes, folder by folder, up to the split."""

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.chips.splits import SPLITS
from eopipe.contract import Output, stage
from eopipe.fetch.sizes import AssetSize
from eopipe.planning.chip_forecast import ChipForecast
from eopipe.planning.footprints import reached_windows
from eopipe.planning.frozen_scenes import SEARCH_OUTPUTS, Config, FrozenScenes
from eopipe.planning.trial_store import StoreSize, sample_size
from eopipe.publish import MANIFEST, files
from eopipe.run.rules import each_fold
from eopipe.scenes.item import Item, asset_key
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.layout import Layout, crop_to_chunks, frame_files

# Every job writes a run record, a log and a benchmark table; Snakemake keeps metadata of each output.
BYTES_PER_JOB = {"records": 2500, "logs": 300, "benchmarks": 800}
SNAKEMAKE_FOLDER, BYTES_PER_OUTPUT = ".snakemake", 3000
# Bytes of a label pixel where no scene is local: labels and masks are nearly constant.
LABEL_RATE, LABEL_METADATA, TILE_METADATA = 0.1, 9000.0, 12_000.0
# Coordinates x and y are stored as float64.
COORDINATE_BYTES = 8
# Compression ratio of reflectance: half of its bytes with lz4, a third with zstd; deflate, as in most assets, between.
COMPRESSION_RATIO = {"lz4": 2.0, "zstd": 2.7}
DEFLATE_RATIO = 2.3
# A cloud-optimised GeoTIFF above this edge holds overviews too: a third as much as the image itself.
IMAGE_SHARE, OVERVIEWS_FROM = 0.75, 512


# What the bands of each scene reach of the grid.
# The windows of each scene in a cell.
Windows = list[tuple[Cell, dict[str, list[PixelWindow]]]]


@dataclass(frozen=True)
class FolderForecast:
    """Files and bytes of one folder of the results; `existing` is how much of both is there already."""

    folder: str
    jobs: int
    files: int
    bytes: int
    existing: tuple[int, int] = (0, 0)
    basis: str = "counted"

    @property
    def json(self) -> dict[str, Any]:
        """The folder in the file of a plan."""
        numbers = {"jobs": self.jobs, "files": self.files, "bytes": self.bytes}
        return {"folder": self.folder} | numbers | {"made": self.existing, "basis": self.basis}


def forecast_folders(
    config: Config, scenes: FrozenScenes, sizes: list[AssetSize], chips: ChipForecast | None
) -> list[FolderForecast]:
    """Every folder that search, fetch, preprocess, composite, label and split fill; without chips no split does."""
    results, names = Path(config["results"]), list(scenes.items)
    search = FolderForecast(
        "items", 1, scenes.files, scenes.bytes, _existing(results / name for name in SEARCH_OUTPUTS.values())
    )
    label_names = names if config["label"]["asset"] else ["all"]
    bands = config["preprocess"]["bands"]
    reached = [(cell, reached_windows(scenes.items, cell, bands, scenes.masks)) for cell in scenes.frame.cells]
    tiles, store_size = _tiles(config, scenes, sizes, reached)
    folders = [search, _scenes(results, scenes, sizes), tiles]
    if scenes.periods:
        folders.append(_composites(config, scenes, store_size, reached))
    if chips:
        folders += [_labels(config, scenes, chips, label_names), *_splits(config, chips)]
    elif config["label"]["source"] or config["label"]["asset"]:
        folders.append(_labels(config, scenes, None, label_names))
    return [*folders, *_job_files(config, folders, ["search"])]


def forecast_split_folders(config: Config, chips: ChipForecast) -> list[FolderForecast]:
    """Every folder that the split of a chip set fills, whose tiles and labels are there."""
    folders = _splits(config, chips)
    return [*folders, *_job_files(config, folders, [])]


def _scenes(results: Path, scenes: FrozenScenes, sizes: list[AssetSize]) -> FolderForecast:
    # Each folder holds a copy of its item and a manifest.
    count = sum(len(item["assets"]) + 2 for item in scenes.items.values())
    basis = "partly unknown" if any(size.basis == "unknown" for size in sizes) else "stated"
    existing = _existing(results / "scenes" / name for name in scenes.items)
    total = sum(size.bytes for size in sizes) + scenes.bytes
    return FolderForecast("scenes", len(scenes.items), count, total, existing, basis)


def _tiles(
    config: Config, scenes: FrozenScenes, sizes: list[AssetSize], reached: Windows
) -> tuple[FolderForecast, StoreSize]:
    names = list(scenes.items)
    sampled = sample_size(config, scenes, "preprocess")
    store_size = sampled or typical_size(config, scenes, sizes)
    pixels = [scenes.masks[name].pixels for name in names]
    paths = [Path(config["results"], "tiles", f"{name}.zarr") for name in names]
    basis = "sampled" if sampled else "typical"
    layout = _layout(config["preprocess"])
    shapes = [_shapes([name], reached, layout) for name in names]
    return _stores("tiles", scenes.frame, layout, shapes, paths, store_size, pixels, basis), store_size


def _shapes(names: list[str], reached: Windows, layout: Layout) -> list[tuple[int, int]]:
    """Height and width of what a store of these scenes has of each cell that they reach."""
    shapes = []
    for cell, windows in reached:
        if of_scenes := [window for name in names for window in windows[name]]:
            height, width = crop_to_chunks(cell.grid, of_scenes, layout)[0].shape
            shapes.append((int(height), int(width)))
    return shapes


def _composites(config: Config, scenes: FrozenScenes, store_size: StoreSize, reached: Windows) -> FolderForecast:
    layout, members = _layout(config["preprocess"]), scenes.periods.values()
    shapes = [_shapes(names, reached, layout) for names in members]
    parts = max(1, len(config["composite"]["parts"]))
    pixels = [parts * sum(height * width for height, width in of_store) for of_store in shapes]
    paths = [Path(config["results"], "composites", f"{name}.zarr") for name in scenes.periods]
    return _stores("composites", scenes.frame, layout, shapes, paths, store_size, pixels, "typical", rasters=3)


def _labels(config: Config, scenes: FrozenScenes, chips: ChipForecast | None, names: list[str]) -> FolderForecast:
    paths, layout = [Path(config["results"], "labels", f"{name}.zarr") for name in names], _layout(config["label"])
    shapes = [cell.shape for cell in scenes.frame.cells]
    if chips and chips.has_labels:
        count = frame_files(scenes.frame, shapes, layout, 2, has_image=False) * len(names)
        return FolderForecast("labels", len(names), count, chips.label_bytes, _existing(paths), "written")
    sampled = sample_size(config, scenes, "label") if config["label"]["asset"] else None
    store_size, basis = sampled or StoreSize(LABEL_RATE, LABEL_METADATA), "sampled" if sampled else "typical"
    # Labels of a file are not limited to what a scene covers.
    whole = sum(height * width for height, width in shapes)
    pixels = [scenes.masks[name].pixels if name in scenes.masks else whole for name in names]
    return _stores("labels", scenes.frame, layout, [shapes] * len(paths), paths, store_size, pixels, basis)


def _layout(settings: dict[str, Any]) -> Layout:
    return Layout(settings["chunk"], settings["shard"])


def _stores(
    folder: str,
    frame: Frame,
    layout: Layout,
    shapes: list[list[tuple[int, int]]],
    paths: list[Path],
    store_size: StoreSize,
    pixels: list[int],
    basis: str,
    rasters: int = 2,
) -> FolderForecast:
    """A folder of Zarr stores with the shapes of their cells and numbers of covered pixels."""
    coordinates = COORDINATE_BYTES * sum(height + width for of_store in shapes for height, width in of_store)
    total = sum(store_size.rate * count + store_size.fixed for count in pixels) + coordinates
    count = sum(frame_files(frame, of_store, layout, rasters, has_image=folder != "labels") for of_store in shapes)
    return FolderForecast(folder, len(paths), count, round(total), _existing(paths), basis)


def _splits(config: Config, chips: ChipForecast) -> list[FolderForecast]:
    """The files of the split, and those of the split of each fold."""
    results = Path(config["results"])
    names = [port.mark.name for port in stage("split").of(Output) if isinstance(port.mark, Output)]
    in_folds = [path for name in names for path in each_fold(config, name)]
    # Each chip has a row of numbers in the split file, and a polygon.
    size, count = 340 * int((chips.role < len(SPLITS)).sum()) + 150_000, len(names)
    split = FolderForecast("split", 1, count, size, _existing(results / name for name in names), "typical")
    jobs = config["folds"]
    folds = FolderForecast("folds", jobs, count * jobs, size * jobs, _existing(map(Path, in_folds)), "typical")
    return [split, folds] if jobs else [split]


def _job_files(config: Config, folders: list[FolderForecast], first: list[str]) -> list[FolderForecast]:
    """Files that jobs write beside the results: records, logs, benchmarks, and Snakemake's metadata of outputs.

    `first` are the stages before those of scenes and of the split that have several outputs.
    """
    jobs, results = sum(folder.jobs for folder in folders), Path(config["results"])
    existing = {"records": [*results.glob("*.run.json"), *results.glob("*/*.run.json")]}
    existing |= {name: [*results.glob(f"{name}/**/*.*")] for name in ("logs", "benchmarks")}
    forecasts = []
    for name, size in BYTES_PER_JOB.items():
        # One for each job; among the logs is the name of the run's config.
        expected = jobs + (name == "logs")
        # Later stages write such files too, so at most this number is counted.
        count = min(expected, len(existing[name]))
        forecasts.append(FolderForecast(name, 0, expected, expected * size, (count, count * size), "typical"))
    # Besides one file for each output there is one log for each run, and a lock.
    several = [stage(name).of(Output) for name in (*first, *["split"] * (1 + config["folds"]))]
    outputs = jobs + sum(len(ports) - 1 for ports in several) + 2
    snakemake = Path(SNAKEMAKE_FOLDER)
    known = min(outputs, len(list(snakemake.glob("*/*"))) + 1) if snakemake.is_dir() else 0
    size, known_size = outputs * BYTES_PER_OUTPUT, known * BYTES_PER_OUTPUT
    return [*forecasts, FolderForecast(SNAKEMAKE_FOLDER, 0, outputs, size, (known, known_size), "typical")]


def typical_size(config: Config, scenes: FrozenScenes, sizes: list[AssetSize]) -> StoreSize:
    """The size of tile stores from the sizes of assets, or else from the typical compression of reflectance."""
    settings = config["preprocess"]
    ratio, bands = COMPRESSION_RATIO.get(settings["codec"], 2.0), len(settings["bands"])
    rates, items = [], {item["id"]: item for item in scenes.items.values()}
    for size in sizes:
        shape = _asset_shape(items[size.scene], size)
        if size.asset in map(asset_key, settings["bands"]) and size.bytes and shape:
            image = size.bytes * (IMAGE_SHARE if max(shape) > OVERVIEWS_FROM else 1)
            rates.append(image / np.prod(shape) * DEFLATE_RATIO / ratio)
    return StoreSize(bands * (float(np.mean(rates)) if rates else 2.0 / ratio), TILE_METADATA)


def _asset_shape(item: Item, size: AssetSize) -> list[int] | None:
    shape: Any = (item["properties"] | item["assets"][size.asset]).get("proj:shape")
    return shape if isinstance(shape, list) and len(shape) == 2 and all(shape) else None


def _existing(paths: Iterable[Path]) -> tuple[int, int]:
    """Number and bytes of the files of those outputs that exist."""
    outputs = [path for path in paths if path.is_file() or (path / MANIFEST).is_file()]
    output_files = [file for path in outputs for file in ([*files(path), path / MANIFEST] if path.is_dir() else [path])]
    return len(output_files), sum(file.stat().st_size for file in output_files)


def free_space(folder: Path) -> tuple[int, int]:
    """Free bytes and inodes where a folder is or will be."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free, os.statvfs(existing).f_favail
