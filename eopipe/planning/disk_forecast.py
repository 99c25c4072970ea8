"""Number of inodes (files and folders) and bytes that a run writes, within 10 %: of scenes, stores, models and maps.

Everything else is a few files for each job and a few for the run, with constants that runs of the demo's config gave.
"""

import math
import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import numpy as np

from eopipe.chips.chips import windows_with_chips
from eopipe.chips.splits import SPLITS
from eopipe.composites.periods import day_of, part_of
from eopipe.contract import Argument, stage
from eopipe.fetch.assets import AssetSize
from eopipe.labels.vector_files import VECTORS
from eopipe.planning.chip_forecast import ChipForecast, pixels_of_training
from eopipe.planning.frozen_scenes import IMAGE_SHARE, Config, FrozenScenes, scene_folder
from eopipe.publish import MANIFEST, files
from eopipe.run.images import has_mosaic
from eopipe.run.job_records import SNAKEMAKE_FOLDER
from eopipe.run.locate import chip_stores
from eopipe.run.repeated import each_fold, each_training
from eopipe.scenes.item import asset_key, asset_projection
from eopipe.text_files import write_json
from eopipe.text_table import format_bytes, format_table, parse_size
from eopipe.tiles.cells import Cell
from eopipe.tiles.grid import PixelWindow, grid_json, parts_of, within
from eopipe.tiles.layout import Layout, crop_cell
from eopipe.trial_settings import PLACES, counts_of_rungs, kind_of_trainings, training_settings
from eopipe.warp.footprints import Coverage

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# Windows that `preprocess` writes for a sample of the size of stores, and their edge in pixels.
MAX_TRIALS, WINDOW_EDGE = 12, 1024
# A search has a folder of items with its manifest, a grid and a selection; each scene has its item twice.
SEARCH_INODES, ITEM_BYTES = 5, 8000
# A record, a log and a benchmark table of each job, and what Snakemake's database has of its outputs.
JOB_INODES, JOB_BYTES = 3, 13_000
# Jobs, inodes and bytes of a run, once: split, scores, pages, cards, catalog, crate, and the state of the run and of
# Snakemake. A finished model has less, of which more follows from its images.
OF_TRAINING, OF_FINISHED_MODEL, THUMBNAIL_BYTES = (8, 109, 815_000), (4, 86, 344_000), 45_000
# An image in the catalog is an item and the folders of its store, whose files are hard links.
IMAGE_INODES = 18
# The split, calibration and scores of a fold.
FOLD_JOBS, FOLD_INODES, FOLD_BYTES = 3, 6, 190_000
# Each chip has a row of numbers in the split file, and a polygon.
CHIP_BYTES = 340
# A model is weights, item, journal, history and manifest in a folder, and part of crate and report.
MODEL_INODES, MODEL_BYTES, WEIGHTS = 6, 30_000, (".safetensors", ".onnx")
# One that pauses at a rung has a checkpoint too.
CHECKPOINT_INODES, CHECKPOINT_BYTES = 9, 10_000
# A map is two files in a folder, and a part of one has no blocks without data. Each probability of a pixel, and their
# spread, takes 0.77 bytes where the model is sure, as in the test of two zones, and 1.6 in demo and granule.
MAP_INODES, MAP_BYTES, PART_BYTES, PROBABILITY_BYTES = 3, 8_000, 4_000, 1.13
# Raster arrays of a store, and its files and folders beside them; labels of shapes have their numbers too.
STORE_ARRAYS = {"tiles": (2, 20), "composites": (3, 20), "labels": (2, 13), "shapes": (3, 13)}
# Coordinates x and y are stored as float64.
COORDINATE_BYTES = 8
# Compression ratio of reflectance: half of its bytes with lz4, a third with zstd; deflate, as in most assets, between.
COMPRESSION_RATIO = {"lz4": 2.0, "zstd": 2.7}
DEFLATE_RATIO = 2.3
# A cloud-optimised GeoTIFF above this edge has overviews.
OVERVIEWS_FROM = 512

# Height and width of what a store has of each cell.
Shapes = list[tuple[int, int]]


@dataclass(frozen=True)
class StoreSize:
    """Bytes of a store: `rate` for each pixel that a scene covers, `fixed` for its metadata."""

    rate: float
    fixed: float


# Labels and masks are nearly constant.
LABEL_SIZE, TILE_METADATA = StoreSize(0.1, 25_000.0), 12_000.0


@dataclass(frozen=True)
class PlannedMaps:
    """The maps of a run by one model: their number, their pixels with data, and those that each training maps."""

    number: int
    pixels: int
    pixels_of_trainings: int


# CPU seconds of a job, and of each million pixels that it reads or predicts in all dates, with the default network on a
# core as in benchmarks/RESULTS.md (One granule). With a model come its export and calibration; the baselines predict
# each labelled pixel that tests, with trees for each class.
CPU_SECONDS = {
    "scenes": (0.4, 0.03),
    "tiles": (0.9, 0.07),
    "composites": (1.0, 0.045),
    "labels": (0.9, 0.03),
    "models": (35.0, 1.1),
    "maps": (6.0, 7.5),
    "everything else": (1.6, 1.0),
    "scores": (0.0, 40.0),
}


@dataclass(frozen=True)
class DiskRow:
    """The jobs, inodes, bytes and CPU hours of one kind of outputs."""

    name: str
    jobs: int
    inodes: int
    bytes: int
    cpu_hours: float = 0.0

    @classmethod
    def of(cls, name: str, jobs: int, inodes: int, size: float, pixels: float) -> "DiskRow":
        """The row of jobs that read, predict or write some pixels in all."""
        of_job, of_pixels = CPU_SECONDS["labels" if name == "shapes" else name]
        return cls(name, jobs, inodes, round(size), round((of_job * jobs + of_pixels * pixels / 1e6) / 3600, 4))


@dataclass(frozen=True)
class DiskForecast:
    """The inodes and bytes of a run without the bytes of weights, and how many of them exist.

    A run whose `outputs` all exist is finished: it needs what exists.
    """

    rows: list[DiskRow]
    existing: tuple[int, int]
    outputs: list[Path]

    @property
    def totals(self) -> tuple[int, int, int, int]:
        """Inodes and bytes of the run, and how many of them do not exist yet."""
        if all(path.is_file() for path in self.outputs):
            return *self.existing, 0, 0
        inodes, size = sum(row.inodes for row in self.rows), sum(row.bytes for row in self.rows)
        return inodes, size, max(0, inodes - self.existing[0]), max(0, size - self.existing[1])


def forecast_disk(
    config: Config, scenes: FrozenScenes, sizes: list[AssetSize], fetched: int, chips: ChipForecast | None
) -> DiskForecast:
    """What a run on scenes writes, of whose assets it fetches some bytes; without chips a finished model maps them."""
    store_size = sample_size(config, scenes) or typical_size(config, scenes, sizes)
    layout, of_labels = (Layout(config[name]["chunk"], config[name]["shard"]) for name in ("preprocess", "label"))
    cells, tiles, images = scenes.frame.cells, scenes.masks, scenes.images
    pixels = sum(mask.pixels for mask in tiles.values())
    shapes = [_shapes(mask, layout) for mask in tiles.values()]
    paths = {"tiles": [*tiles]}
    rows = [
        _scenes(scenes, fetched, pixels),
        _stores("tiles", shapes, layout, store_size, pixels, len(cells), pixels),
    ]
    if scenes.periods:
        paths["composites"], shapes = [*images], [_shapes(mask, layout) for mask in images.values()]
        stacked = sum(_stacked_parts(config, scenes, name) * mask.pixels for name, mask in images.items())
        rows.append(_stores("composites", shapes, layout, store_size, stacked, len(cells), pixels))
    if config["label"]["source"] or config["label"]["asset"]:
        paths["labels"] = [*tiles] if config["label"]["asset"] else ["all"]
        whole = [[cell.shape for cell in cells]] * len(paths["labels"])
        pixels = sum(math.prod(shape) for shapes in whole for shape in shapes)
        kind = "shapes" if str(config["label"]["source"]).lower().endswith(VECTORS) else "labels"
        rows.append(replace(_stores(kind, whole, of_labels, LABEL_SIZE, pixels, len(cells), pixels), name="labels"))
    stores = [Path(config["results"], kind, f"{name}.zarr") for kind, of_kind in paths.items() for name in of_kind]
    maps = _planned_maps(config, scenes, chips)
    return _with_models(config, rows, chips, maps, sum(len(image.windows) for image in images.values()), stores)


def forecast_disk_of_chip_set(config: Config, chips: ChipForecast) -> DiskForecast:
    """What a run on a chip set writes, whose tiles and labels are there."""
    stores = [Path(config["chip_set"], "tiles", f"{name}.zarr") for name in chip_stores(config)]
    area, kind = chips.plan.chip**2, kind_of_trainings(config)
    maps = PlannedMaps(len(stores), area * len(chips.samples), area * chips.count(PLACES[kind]) if kind else 0)
    return _with_models(config, [], chips, maps, len(stores), stores)


def _planned_maps(config: Config, scenes: FrozenScenes, chips: ChipForecast | None) -> PlannedMaps:
    """The maps of all images as one in each cell, or of each image in each cell that it reaches."""
    frame, images, number, pixels, in_places = scenes.frame, [*scenes.images.values()], 0, 0, 0
    if is_mosaic := has_mosaic(config):
        images = [Coverage(frame, tuple(part for image in images for part in image.parts))]
    kind = kind_of_trainings(config)
    samples = chips.samples[chips.role == SPLITS.index(PLACES[kind])] if chips and kind else np.empty((0, 3), np.int64)
    for n, image in enumerate(images):
        mapped = [cell.window for cell in frame.cells] if is_mosaic else [*image.windows]
        number, pixels = number + len(mapped), pixels + image.count(mapped)
        corners = samples[is_mosaic | (samples[:, 0] == n), 1:]
        if chips and len(corners):
            windows = [window for cell in frame.cells for window in cell.windows(config["predict"]["window"])]
            in_places += image.count(windows_with_chips(windows, corners, chips.plan.chip))
    return PlannedMaps(number, pixels, in_places)


def _with_models(
    config: Config, rows: list[DiskRow], chips: ChipForecast | None, maps: PlannedMaps, images: int, stores: list[Path]
) -> DiskForecast:
    """The forecast with models, maps and everything else; the catalog has all `images` once more."""
    trainings, folds, rungs = len(training_settings(config)), config["folds"], len(config["trials"]["rungs"])
    if chips:
        count = 1 + folds + trainings * (1 + rungs)
        checkpoints = sum([trainings, *counts_of_rungs(config)][:rungs])
        inodes = MODEL_INODES * count + CHECKPOINT_INODES * checkpoints
        size = MODEL_BYTES * count + CHECKPOINT_BYTES * checkpoints
        predicted = pixels_of_training(config, chips) * (folds + max(trainings, 1))
        rows.append(DiskRow.of("models", count + rungs, inodes, size, predicted))
    parts = config["map_parts"] if config["map_parts"] > 1 else 0
    copies, wholes = 1 + folds + trainings, 1 + folds + bool(parts) + config["with_products"]
    count = maps.number * (copies + parts)
    size = maps.number * (MAP_BYTES * copies + PART_BYTES * parts)
    numbers = 1 + max(2, len(config["label"]["classes"]), len(chips.classes) if chips else 0)
    rate = PROBABILITY_BYTES * numbers / (IMAGE_SHARE if maps.pixels > maps.number * OVERVIEWS_FROM**2 else 1)
    size += rate * (wholes * maps.pixels + trainings * maps.pixels_of_trainings)
    predicted = maps.pixels * (1 + folds) + maps.pixels_of_trainings * trainings
    rows.append(DiskRow.of("maps", count, MAP_INODES * count, size, predicted))
    own_jobs, own_inodes, own_size = OF_FINISHED_MODEL if config["model"] else OF_TRAINING
    own_jobs, own_size = own_jobs + FOLD_JOBS * folds, own_size + bool(config["model"]) * THUMBNAIL_BYTES * images
    jobs = own_jobs + sum(row.jobs for row in rows)
    inodes = own_inodes + FOLD_INODES * folds + IMAGE_INODES * images + JOB_INODES * jobs
    used = int((chips.role < len(SPLITS)).sum()) if chips else 0
    size = own_size + JOB_BYTES * jobs + FOLD_BYTES * folds + CHIP_BYTES * used * (1 + folds)
    # Without split and scores the map is read for the report alone.
    rest = DiskRow.of("everything else", own_jobs, inodes, size, maps.pixels * (1.0 if chips else 0.2))
    tested = len(chips.classes) * chips.tested_pixels * (1 + folds) if chips else 0
    rows.append(replace(rest, cpu_hours=rest.cpu_hours + DiskRow.of("scores", 0, 0, 0, tested).cpu_hours))
    results, manifest = config["results"], f"model/{MANIFEST}"
    models = [f"{results}/{manifest}", *each_fold(config, manifest), *each_training(config, [f"{results}/{manifest}"])]
    last = [*(models if chips else ()), f"{results}/crate/{MANIFEST}"]
    return DiskForecast(rows, existing_files(config), [*(store / MANIFEST for store in stores), *map(Path, last)])


def existing_files(config: Config) -> tuple[int, int]:
    """Inodes of results, state and Snakemake's folder, each hard link once, and their bytes without weights."""
    inodes, size = set[tuple[int, int]](), 0
    for folder in (Path(config["results"]), Path(config["state"]), SNAKEMAKE_FOLDER):
        for path in (folder, *folder.rglob("*")) if folder.is_dir() else ():
            status = path.lstat()
            if (inode := (status.st_dev, status.st_ino)) not in inodes and path.is_file():
                size += 0 if path.suffix in WEIGHTS else status.st_size
            inodes.add(inode)
    return len(inodes), size


def _scenes(scenes: FrozenScenes, fetched: int, pixels: int) -> DiskRow:
    # Each folder holds a copy of its item and a manifest; the search has an item of each too.
    inodes = SEARCH_INODES + sum(len(item["assets"]) + 4 for item in scenes.items.values())
    size = ITEM_BYTES * len(scenes.items) + fetched
    return DiskRow.of("scenes", len(scenes.items), inodes, size, pixels)


def _shapes(image: Coverage, layout: Layout) -> Shapes:
    """Height and width of what a store of an image has of each cell that it reaches."""
    places = [place for window in image.windows for place in image.frame.parts_in_cells(window)]
    grids = (crop_cell(image.frame, cell, [window], layout)[0] for cell, window, _ in places)
    return [grid.shape.yx for grid in grids]


def _stacked_parts(config: Config, scenes: FrozenScenes, name: str) -> int:
    """How many parts a composite stacks: the parts in the config, or else of the days of its scenes."""
    composite = config["composite"]
    days = [day_of(scenes.items[scene]["properties"], f"scene {scene}") for scene in scenes.periods[name]]
    return len(composite["parts"] or {part_of(day, composite["stack"]) for day in days})


def _stores(
    name: str, stores: list[Shapes], layout: Layout, store_size: StoreSize, pixels: int, cells: int, pixels_read: int
) -> DiskRow:
    """A folder of Zarr stores with the shapes of their cells and the number of pixels in all, in a run of cells."""
    edges = sum(height + width for shapes in stores for height, width in shapes)
    size = store_size.rate * pixels + store_size.fixed * len(stores) + COORDINATE_BYTES * edges
    inodes = 1 + sum(store_inodes(name, shapes, layout) for shapes in stores)
    # In a run of several cells each store has a folder above theirs, with metadata and the manifest, which they lack.
    inodes += sum(3 - len(shapes) for shapes in stores) if cells > 1 else 0
    return DiskRow.of(name, len(stores), inodes, size, pixels_read)


def store_inodes(kind: str, shapes: Shapes, layout: Layout) -> int:
    """Files and folders of a store of tiles, composites or labels with parts of these shapes."""
    rasters, others = STORE_ARRAYS[kind]
    # A raster array has metadata, two folders, its shards and a folder for each row of them.
    rows = sum(-(-shape[0] // layout.shards(shape)[0]) for shape in shapes)
    return others * len(shapes) + rasters * (3 * len(shapes) + rows + sum(map(layout.files, shapes)))


def typical_size(config: Config, scenes: FrozenScenes, sizes: list[AssetSize]) -> StoreSize:
    """The size of tile stores from the sizes of assets, or else from the typical compression of reflectance."""
    settings, items = config["preprocess"], {item["id"]: item for item in scenes.items.values()}
    rates, keys, ratio = list[float](), set(map(asset_key, settings["bands"])), COMPRESSION_RATIO[settings["codec"]]
    for size in sizes:
        shape = asset_projection(items[size.scene], size.asset)[2]
        if size.asset in keys and size.bytes and shape:
            image = size.bytes * (IMAGE_SHARE if max(shape) > OVERVIEWS_FROM else 1)
            rates.append(image / math.prod(shape) * DEFLATE_RATIO / ratio)
    return StoreSize(len(settings["bands"]) * (fmean(rates) if rates else 2.0 / ratio), TILE_METADATA)


def sample_size(config: Config, scenes: FrozenScenes) -> StoreSize | None:
    """The size of tile stores, from windows spread over scenes; None if no scene is local.

    A ratio of sums, so that windows with little coverage count little.
    """
    trials: list[tuple[int, int, int]] = []
    with tempfile.TemporaryDirectory(prefix="eopipe-plan-") as name:
        folder = Path(name)
        for scene, cell, window in _trial_windows(scenes):
            source = scene_folder(config, scene, scenes.items[scene], folder)
            if source is not None:
                grid = cell.grid[within(window, cell.window)]
                pixels = int(scenes.masks[scene].valid(*window).sum())
                trials.append((*_write_trial(config, source, grid, folder), pixels))
    if not trials:
        return None
    data, metadata, pixels = np.array(trials, float).T
    return StoreSize(float(data.sum() / max(1.0, pixels.sum())), float(metadata.mean()))


def _trial_windows(scenes: FrozenScenes) -> list[tuple[str, Cell, PixelWindow]]:
    """A sample of windows of the frame that scenes cover, evenly spaced in the list of all."""
    covered = [
        (scene, place.cell, window)
        for scene, footprints in scenes.footprints.items()
        for place in footprints
        for window in parts_of(place.in_frame, WINDOW_EDGE)
        if scenes.masks[scene].valid(*window).any()
    ]
    chosen = np.unique(np.linspace(0, len(covered) - 1, min(MAX_TRIALS, len(covered))).round().astype(int))
    return [covered[n] for n in chosen]


def _write_trial(config: Config, scene: Path, grid: "GeoBox", folder: Path) -> tuple[int, int]:
    """Bytes of the rasters and of the metadata of the store that preprocess writes for a window."""
    grid_file, target = folder / "grid.json", folder / "tiles.zarr"
    write_json(grid_file, grid_json(grid))
    stage("preprocess").run(scene=scene, grid=grid_file, tiles=target, **config["preprocess"])
    # Without coordinates, which grow with the grid.
    sizes = {path.relative_to(target).parts: path.stat().st_size for path in files(target)}
    data = sum(size for parts, size in sizes.items() if "c" in parts and parts[0] not in ("x", "y"))
    metadata = sum(size for parts, size in sizes.items() if "c" not in parts)
    return data, metadata + (target / MANIFEST).stat().st_size


def disk_table(disk: DiskForecast) -> list[str]:
    """What the run writes, kind by kind, with the total."""
    inodes, size, *_ = disk.totals
    jobs, hours = sum(row.jobs for row in disk.rows), sum(row.cpu_hours for row in disk.rows)
    rows = [*disk.rows, DiskRow("= total", jobs, inodes, size, hours)]
    cells = [
        (row.name, f"{row.jobs:,}", f"{row.inodes:,}", format_bytes(row.bytes), f"{row.cpu_hours:.2g}") for row in rows
    ]
    return [
        *format_table([("the run writes", "jobs", "inodes", "bytes", "CPU hours"), *cells], left=(0,)),
        "Within 10 %. Inodes are files and folders; hard links, checkpoints and the weights of models do not count.",
        "CPU hours, within a factor of 1.5, are of the default network without a GPU; other networks take others.",
    ]


def free_space(folder: Path) -> tuple[int, int]:
    """Free bytes and inodes where a folder is or will be."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(existing).free, os.statvfs(existing).f_favail


@dataclass(frozen=True)
class Quota:
    """What a run may take."""

    max_files: Annotated[
        int | None, Argument("inode quota: refuse a run that makes more files and folders (exit code 6)")
    ] = None
    max_bytes: Annotated[
        str | None,
        Argument(
            "disk quota, such as 200GB: refuse a run that writes more, without the weights (exit code 6)", value="SIZE"
        ),
    ] = None

    def __post_init__(self) -> None:
        # Raises UsageError for what is not a size.
        _ = self.bytes

    @property
    def bytes(self) -> int | None:
        return None if self.max_bytes is None else parse_size(self.max_bytes)
