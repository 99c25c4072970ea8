"""The size of a run's stores from samples: the stages write a few windows into a temporary folder."""

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eopipe.arrays import IntArray
from eopipe.contract import stage
from eopipe.errors import BadInputError
from eopipe.fetch.sizes import local_file
from eopipe.planning.frozen_scenes import Config, FrozenScenes
from eopipe.publish import MANIFEST, files
from eopipe.scenes.item import ITEM_FILE, Item, scene_name
from eopipe.text_files import write_json
from eopipe.tiles.grid import PixelWindow, grid_json

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

MAX_TRIALS = 12
WINDOW_EDGE = 1024


@dataclass(frozen=True)
class StoreSize:
    """Bytes of a store: `rate` for each pixel that a scene covers, `fixed` for its metadata."""

    rate: float
    fixed: float


def scene_folder(config: Config, name: str, item: Item, folder: Path) -> Path | None:
    """The folder of a scene as fetch writes it: the fetched one, or links to local files; None for neither."""
    fetched, links = Path(config["results"], "scenes", name), folder / "scenes" / name
    if (fetched / MANIFEST).is_file():
        return fetched
    catalog = config["search"]["catalog"]
    local_files = {n: local_file(a, f"scene {name}, asset {n}", catalog) for n, a in item["assets"].items()}
    if None in local_files.values():
        return None
    links.mkdir(parents=True, exist_ok=True)
    assets = {}
    for asset, file in local_files.items():
        if file is not None:
            link = links / f"{scene_name(asset)}{file.suffix}"
            link.unlink(missing_ok=True)
            link.symlink_to(file)
            assets[asset] = item["assets"][asset] | {"href": link.name}
    write_json(links / ITEM_FILE, item | {"assets": assets})
    return links


def sample_size(config: Config, scenes: FrozenScenes, stage_name: str) -> StoreSize | None:
    """The size of a stage's stores, from windows spread over grid and scenes; None if no scene is local.

    A ratio of sums, so that windows with little coverage count little.
    """
    trials: list[tuple[float, float, int]] = []
    with tempfile.TemporaryDirectory(prefix="eopipe-plan-") as name:
        folder = Path(name)
        for scene, window in _trial_windows(scenes):
            source = scene_folder(config, scene, scenes.items[scene], folder)
            if source is not None:
                ((cell, in_cell, _),) = scenes.frame.parts_in_cells(window)
                with _without_warnings():
                    sizes = _write_trial(config, stage_name, source, cell.grid[in_cell], folder)
                trials.append((*sizes, int(scenes.masks[scene].read(*window).sum())))
    if not trials:
        return None
    data, metadata, pixels = np.array(trials, float).T
    return StoreSize(float(data.sum() / max(1.0, pixels.sum())), float(metadata.mean()))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """A window without valid pixels says nothing about its scene."""
    log = logging.getLogger("eopipe")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _trial_windows(scenes: FrozenScenes) -> list[tuple[str, PixelWindow]]:
    """A sample of (scene, window) with coverage, spread over both."""
    numbers, first = list[IntArray](), 0
    for cell in scenes.frame.cells:
        rows, columns = (-(-edge // WINDOW_EDGE) for edge in cell.shape)
        numbers.append(np.arange(first, first + rows * columns).reshape(rows, columns))
        first += rows * columns
    windows = [window for cell in scenes.frame.cells for window in cell.windows(WINDOW_EDGE)]
    covered: list[tuple[int, int, str, PixelWindow]] = []
    for k, (scene, footprints) in enumerate(scenes.footprints.items()):
        for place in footprints:
            of_cell = numbers[scenes.frame.cells.index(place.cell)]
            y, x = (slice(part.start // WINDOW_EDGE, -(-part.stop // WINDOW_EDGE)) for part in place.window)
            for number in of_cell[y, x].ravel().tolist():
                if scenes.masks[scene].read(*windows[number]).any():
                    # Each scene starts at another window.
                    covered.append(((number - 7 * k) % len(windows), k, scene, windows[number]))
    covered.sort(key=lambda row: row[:2])
    chosen = np.unique(np.linspace(0, len(covered) - 1, min(MAX_TRIALS, len(covered))).round().astype(int))
    return [covered[n][2:] for n in chosen]


def _write_trial(config: Config, stage_name: str, scene: Path, grid: "GeoBox", folder: Path) -> tuple[int, int]:
    """Bytes of the rasters and of the metadata of the store that a stage writes for a window."""
    grid_file, target = folder / "grid.json", folder / f"{stage_name}.zarr"
    write_json(grid_file, grid_json(grid))
    output = {"preprocess": "tiles", "label": "labels"}[stage_name]
    try:
        stage(stage_name).run(**{"scene": scene, "grid": grid_file, output: target}, **config[stage_name])
    except BadInputError:
        if stage_name != "label":
            raise
        return 0, 0
    # Without coordinates, which grow with the grid.
    sizes = {path.relative_to(target).parts: path.stat().st_size for path in files(target)}
    data = sum(size for parts, size in sizes.items() if "c" in parts and parts[0] not in ("x", "y"))
    metadata = sum(size for parts, size in sizes.items() if "c" not in parts)
    return data, metadata + (target / MANIFEST).stat().st_size
