"""Number of files, folders and bytes that a run writes, row by row: each is an inode, hard links are not."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.chips.splits import SPLITS
from eopipe.clusters.executor_patches import WORKFLOW_FILES
from eopipe.composites.periods import day_of, part_of
from eopipe.contract import Output, stage
from eopipe.fetch.sizes import AssetSize
from eopipe.planning.chip_forecast import ChipForecast
from eopipe.planning.folder_forecast import FolderForecast, existing_inodes
from eopipe.planning.frozen_scenes import SEARCH_OUTPUTS, Config, FrozenScenes
from eopipe.planning.trial_store import StoreSize, sample_size
from eopipe.run.images import cells_of_images, splits_images
from eopipe.run.job_records import DATABASE, SNAKEMAKE_FOLDER
from eopipe.run.locate import chip_stores
from eopipe.run.repeated import each_fold, each_training
from eopipe.run.rules import names_of_parts
from eopipe.scenes.item import Item, asset_key
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.layout import Layout, crop_to_chunks, frame_files, frame_folders
from eopipe.trial_settings import (
    configs_of_trainings,
    counts_of_rungs,
    kind_of_trainings,
    member_settings,
    training_settings,
)
from eopipe.warp.footprints import Coverage, reached_cells, reached_windows

# Every job writes a run record, a log and a benchmark table; Snakemake has a record of each output in its database.
BYTES_PER_JOB = {"records": 2500, "logs": 300, "benchmarks": 800}
# Beside the database a log of each run and a lock.
BYTES_PER_OUTPUT, SNAKEMAKE_FILES, SNAKEMAKE_FOLDERS = 3000, 3, 8
# Bytes of a pixel of both files of a map; of a page with scores, cards and a map sheet; of JSON, and of a crate.
MAP_RATE, REPORT_BYTES, DOCUMENT_BYTES, CRATE_BYTES = 2.4, 350_000, 3000, 400_000
# A model is weights, item, journal, history and manifest; its ONNX file and the comparison are beside it.
MODEL_FILES, ONNX_FILES = 5, 2
# Folders of the results with a folder for each of several jobs.
OF_SEVERAL = ("maps", "folds", "trials", "members")
# In the model of a trial that pauses at a rung.
CHECKPOINT_FILES, CHECKPOINT_FOLDERS = 7, 2
# README, config, metadata, preview, and manifests of the crate, of its scenes and of the workflow.
CRATE_FILES, CRATE_FOLDERS = 7 + len(WORKFLOW_FILES), 7
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


def forecast_folders(
    config: Config, scenes: FrozenScenes, sizes: list[AssetSize], chips: ChipForecast | None
) -> list[FolderForecast]:
    """Every folder that a run fills; without chips, of a finished model, there is no split and no training."""
    results, names = Path(config["results"]), list(scenes.items)
    frozen = existing_inodes(results / name for name in SEARCH_OUTPUTS.values())
    search = FolderForecast("items", 1, scenes.files, scenes.bytes, frozen, folders=1)
    label_names = names if config["label"]["asset"] else ["all"]
    bands = config["preprocess"]["bands"]
    reached = [(cell, reached_windows(scenes.items, cell, bands, scenes.masks)) for cell in scenes.frame.cells]
    tiles, store_size = _tiles(config, scenes, sizes, reached)
    folders = [search, _scenes(results, scenes, sizes), tiles]
    images = tiles
    if scenes.periods:
        images = _composites(config, scenes, store_size, reached)
        folders.append(images)
    has_labels = bool(config["label"]["source"] or config["label"]["asset"])
    if chips or has_labels:
        folders.append(_labels(config, scenes, chips, label_names))
    mapped = MappedImages.of(config, images.jobs, images.folders - 1, _pixels_of_maps(config, scenes))
    copied = not all(map(_has_address, scenes.items.values()))
    folders += _later_folders(config, mapped, chips, has_labels=has_labels, copied_scenes=copied)
    return [*folders, *_job_files(config, folders, mapped, len(names))]


def forecast_split_folders(config: Config, chips: ChipForecast) -> list[FolderForecast]:
    """Every folder that a run of a chip set fills, whose tiles and labels are there."""
    stores = [Path(config["chip_set"], "tiles", f"{name}.zarr") for name in chip_stores(config)]
    below = sum(1 + sum(path.is_dir() for path in store.rglob("*")) for store in stores)
    mapped = MappedImages.of(config, len(stores), below, [0] * len(stores))
    folders = _later_folders(config, mapped, chips, has_labels=True, copied_scenes=False)
    return [*folders, *_job_files(config, folders, mapped, 0)]


def _pixels_of_maps(config: Config, scenes: FrozenScenes) -> list[int]:
    """The pixels of each map: all of its cell, or what an image covers of it where a run has several."""
    frame, scenes_of = scenes.frame, scenes.periods or {name: [name] for name in scenes.items}
    areas = [cell.shape[0] * cell.shape[1] for cell in frame.cells]
    if not (config["label"]["asset"] or splits_images(config)):
        return areas
    if frame.only is not None:
        return areas * len(scenes_of)
    bands = config["preprocess"]["bands"]
    of_scenes = {name: reached_cells(item, frame, bands) for name, item in scenes.items.items()}
    pixels = []
    for image, cells in cells_of_images(of_scenes, scenes_of).items():
        covered = Coverage.union(frame, [scenes.masks[name] for name in scenes_of[image]])
        pixels += [covered.pixels_in(cell) for cell in cells]
    return pixels


def _has_address(item: Item) -> bool:
    links = [link for link in item.get("links", []) if link.get("rel") == "self"]
    return any(str(link.get("href")).startswith(("http://", "https://")) for link in links)


@dataclass(frozen=True)
class MappedImages:
    """What the model sees and what is made of it: stores with all of their folders, maps, parts and pixels of each."""

    stores: int
    store_folders: int
    maps: int
    parts: int
    pixels: int

    @staticmethod
    def of(config: Config, stores: int, store_folders: int, pixels: list[int]) -> "MappedImages":
        """The maps of these stores, with the pixels of each."""
        parts = len(names_of_parts(config["map_parts"]))
        return MappedImages(stores, store_folders, len(pixels), parts, round(sum(pixels) / len(pixels)))

    @property
    def map_jobs(self) -> int:
        """Jobs that predict, without the jobs of folds."""
        return self.maps * (1 + self.parts)


def _later_folders(
    config: Config, mapped: MappedImages, chips: ChipForecast | None, *, has_labels: bool, copied_scenes: bool
) -> list[FolderForecast]:
    """What split, training and all stages after them write."""
    results, folders = Path(config["results"]), list[FolderForecast]()
    scores, pages = ["metrics.json"] if has_labels else [], ["report.html", "map.png"]
    if chips:
        folders += _splits(config, chips, mapped) + _trainings(config, mapped)
        paths = [results / name for name in ("model", "model.onnx", "export.json")]
        existing, count = existing_inodes(paths), MODEL_FILES + ONNX_FILES + len(config["train"]["model_files"])
        # The document of the trials is beside the chosen one, and an ensemble has the histories of its members.
        members = len(member_settings(config["members"], 0))
        count += bool(config["trials"]["space"]) + 2 * members
        folders.append(
            FolderForecast("model", 2, count, existing[1], existing, "unknown", folders=1 + bool(members) + members)
        )
        scores, pages = ["metrics.json", "calibration.json"], [*pages, "model-card.md", "data-card.md"]
    paths, parts = [*results.glob("maps/**/*.tif")], mapped.parts
    existing = existing_inodes(paths, *{folder for path in paths for folder in (path.parent, path.parents[1])})
    size = round(MAP_RATE * mapped.pixels * mapped.maps * (2 if parts else 1))
    count = 1 + mapped.maps * (parts + 2 if parts else 1)
    folders.append(FolderForecast("maps", mapped.map_jobs, 2 * mapped.map_jobs, size, existing, "typical", count))
    existing, count = existing_inodes(results / name for name in (*scores, *pages)), len(scores) + len(pages)
    folders.append(FolderForecast("report", 1 + len(scores), count, REPORT_BYTES, existing, "typical"))
    if config["with_products"]:
        existing, count = existing_inodes([results / "products"], linked=False), 2 + 2 * mapped.maps
        folders.append(FolderForecast("products", 1, count, size, existing, "typical", folders=1))
    existing = existing_inodes([results / "catalog"], linked=False)
    count, below = 6 + 2 * mapped.maps + mapped.stores, 4 + copied_scenes + mapped.maps + mapped.stores
    below += mapped.store_folders
    folders.append(FolderForecast("catalog", 1, count, count * DOCUMENT_BYTES, existing, "without links", below))
    existing, count = existing_inodes([results / "crate"], linked=False), CRATE_FILES - bool(config["chip_set"])
    below = CRATE_FOLDERS - bool(config["chip_set"]) + config["folds"] + config["with_products"]
    below += len(training_settings(config))
    return [*folders, FolderForecast("crate", 1, count, CRATE_BYTES, existing, "without links", below)]


def _scenes(results: Path, scenes: FrozenScenes, sizes: list[AssetSize]) -> FolderForecast:
    # Each folder holds a copy of its item and a manifest.
    count = sum(len(item["assets"]) + 2 for item in scenes.items.values())
    basis = "partly unknown" if any(size.basis == "unknown" for size in sizes) else "stated"
    existing = existing_inodes((results / "scenes" / name for name in scenes.items), results / "scenes")
    total = sum(size.bytes for size in sizes) + scenes.bytes
    return FolderForecast("scenes", len(scenes.items), count, total, existing, basis, 1 + len(scenes.items))


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
    parts = [_stacked_parts(config["composite"], scenes, names) for names in members]
    areas = [sum(height * width for height, width in of_store) for of_store in shapes]
    pixels = [count * area for count, area in zip(parts, areas, strict=True)]
    paths = [Path(config["results"], "composites", f"{name}.zarr") for name in scenes.periods]
    return _stores("composites", scenes.frame, layout, shapes, paths, store_size, pixels, "typical", rasters=3)


def _stacked_parts(composite: dict[str, Any], scenes: FrozenScenes, names: list[str]) -> int:
    """How many parts the composite of these scenes stacks: the parts in the config, or else of their days."""
    days = [day_of(scenes.items[name]["properties"], f"scene {name}") for name in names]
    return len(composite["parts"] or {part_of(day, composite["stack"]) for day in days})


def _labels(config: Config, scenes: FrozenScenes, chips: ChipForecast | None, names: list[str]) -> FolderForecast:
    paths, layout = [Path(config["results"], "labels", f"{name}.zarr") for name in names], _layout(config["label"])
    shapes = [cell.shape for cell in scenes.frame.cells]
    if chips and chips.has_labels:
        count, below = (
            number(scenes.frame, shapes, layout, 2, has_image=False) * len(names)
            for number in (frame_files, frame_folders)
        )
        existing = existing_inodes(paths, paths[0].parent)
        return FolderForecast("labels", len(names), count, chips.label_bytes, existing, "written", 1 + below)
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
    count, below = (
        sum(number(frame, of_store, layout, rasters, has_image=folder != "labels") for of_store in shapes)
        for number in (frame_files, frame_folders)
    )
    existing = existing_inodes(paths, paths[0].parent)
    return FolderForecast(folder, len(paths), count, round(total), existing, basis, 1 + below)


def _splits(config: Config, chips: ChipForecast, mapped: MappedImages) -> list[FolderForecast]:
    """The files of the split, and everything of each fold: split, model, maps, calibration and scores."""
    results = Path(config["results"])
    names = [port.mark.name for port in stage("split").of(Output) if isinstance(port.mark, Output)]
    # Each chip has a row of numbers in the split file, and a polygon.
    size, count = 340 * int((chips.role < len(SPLITS)).sum()) + 150_000, len(names)
    split = FolderForecast("split", 1, count, size, existing_inodes(results / name for name in names), "typical")
    folds = config["folds"]
    if not folds:
        return [split]
    in_folds = [
        path for name in (*names, "model", "calibration.json", "metrics.json") for path in each_fold(config, name)
    ]
    maps, of_maps = _maps_in(results / "folds")
    existing = existing_inodes([*map(Path, in_folds), *maps], results / "folds", *of_maps)
    count += MODEL_FILES + len(config["train"]["model_files"]) + 2 + 2 * mapped.maps
    size += round(MAP_RATE * mapped.pixels * mapped.maps)
    of_folds = (
        (4 + mapped.maps) * folds,
        count * folds,
        size * folds,
        existing,
        "typical",
        1 + folds * (2 + mapped.maps),
    )
    return [split, FolderForecast("folds", *of_folds)]


def _maps_in(folder: Path) -> tuple[list[Path], set[Path]]:
    """The maps of folds, trials or members that are there, and their folders."""
    maps = [*folder.glob("maps-*/*/*.tif")]
    return maps, {parent for path in maps for parent in (path.parent, path.parents[1])}


def _trainings(config: Config, mapped: MappedImages) -> list[FolderForecast]:
    """The model and the maps of each of several trainings, and the leaderboard of trials; none for a single one."""
    results, kind = Path(config["results"]), kind_of_trainings(config)
    if not kind:
        return []
    folder, trainings = f"{kind}s", configs_of_trainings(config)
    models = [Path(path).parent for path in each_training(config, [f"{config['results']}/model/manifest.json"])]
    maps, of_maps = _maps_in(results / folder)
    pages = [results / name for name in ("trials.json", "trials.html")] if kind == "trial" else []
    rungs = [results / "trials" / f"rung-{number}" for number, _ in enumerate(config["trials"]["rungs"])]
    pages += [rung.with_suffix(".json") for rung in rungs]
    models += [rung / model.name for rung in rungs for model in models]
    existing = existing_inodes([*models, *pages, *maps], results / folder, *of_maps, *rungs)
    code = sum(len(training["train"]["model_files"]) for training in trainings.values())
    count = len(pages) + len(trainings) * (MODEL_FILES + 2 * mapped.maps) + code
    size = round(MAP_RATE * mapped.pixels * mapped.maps * len(trainings))
    below, jobs = 1 + len(trainings) * (2 + mapped.maps), len(trainings) * (1 + mapped.maps)
    # Each rung has a model of each trial, and the checkpoint of those that were not stopped before.
    for most in [len(trainings), *counts_of_rungs(config)][: len(rungs)]:
        count += len(trainings) * MODEL_FILES + code + most * CHECKPOINT_FILES
        below, jobs = below + 1 + len(trainings) + most * CHECKPOINT_FOLDERS, jobs + len(trainings) + 1
    return [FolderForecast(folder, jobs, count, size, existing, "unknown", below)]


def _job_files(
    config: Config, folders: list[FolderForecast], mapped: MappedImages, scenes: int
) -> list[FolderForecast]:
    """Files that jobs write beside their outputs: records, logs, benchmarks, state, and Snakemake's own files."""
    jobs, results = sum(folder.jobs for folder in folders), Path(config["results"])
    patterns = ["*.run.json", "*/*.run.json", *(f"{name}/*/**/*.run.json" for name in OF_SEVERAL)]
    paths = {"records": [path for pattern in patterns for path in results.glob(pattern)]}
    paths |= {name: list(results.glob(f"{name}/**/*")) for name in ("logs", "benchmarks")}
    names, of_fold = [folder.folder for folder in folders], 4 if config["folds"] else 0
    # Stages with several jobs have a folder: fetch and preprocess, composite, label, predict; and the stages of folds.
    stages = 1 + of_fold + bool(kind_of_trainings(config)) + bool(config["trials"]["rungs"])
    stages += sum(name in names for name in ("scenes", "tiles", "composites", "labels"))
    forecasts = []
    for name, size in BYTES_PER_JOB.items():
        # One for each job; among the logs is the name of the run's config.
        expected, below = jobs + (name == "logs"), 0 if name == "records" else 1 + stages
        count = min(expected + below, len(paths[name]) + (results / name).is_dir())
        existing = (count, min(count, expected) * size)
        forecasts.append(FolderForecast(name, 0, expected, expected * size, existing, "typical", below))
    # Lists of paths for the crate, and the folders of downloads.
    lists, below = 3 if scenes else 2, 2 + (1 + scenes if scenes else 0) + bool(kind_of_trainings(config))
    state = Path(config["state"])
    count = min(lists + below, sum(len(files) + 1 for _, _, files in os.walk(state)))
    existing = (count, min(count, lists) * DOCUMENT_BYTES)
    forecasts.append(FolderForecast("state", 0, lists, lists * DOCUMENT_BYTES, existing, "typical", below))
    return [*forecasts, _snakemake(config, jobs, mapped, has_search=scenes > 0)]


def _snakemake(config: Config, jobs: int, mapped: MappedImages, *, has_search: bool) -> FolderForecast:
    """Snakemake's own: its records of all outputs, a log and a lock, and its folders."""
    folds = config["folds"]
    trainings = len(training_settings(config))
    several = {"search": int(has_search), "choose": int(bool(config["trials"]["space"]))}
    several |= {"predict": mapped.map_jobs + (folds + trainings) * mapped.maps}
    several |= {"describe": 1} if config["model"] else {"split": 1 + folds, "export": 1, "report": 1}
    outputs = jobs + sum(count * (len(stage(name).of(Output)) - 1) for name, count in several.items()) + 2
    size = outputs * BYTES_PER_OUTPUT
    folder = SNAKEMAKE_FOLDER
    known = min(SNAKEMAKE_FILES + SNAKEMAKE_FOLDERS, len([*folder.glob("*"), *folder.glob("log/*")]) + folder.is_dir())
    existing = (known, min(size, DATABASE.stat().st_size if DATABASE.is_file() else 0))
    return FolderForecast(str(folder), 0, SNAKEMAKE_FILES, size, existing, "typical", SNAKEMAKE_FOLDERS)


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
