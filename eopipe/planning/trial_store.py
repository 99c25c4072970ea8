"""The size of a run's tile stores from samples: `preprocess` writes a few windows into a temporary folder."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eopipe.contract import stage
from eopipe.fetch.sizes import local_file
from eopipe.planning.frozen_scenes import Config, FrozenScenes
from eopipe.publish import MANIFEST, files
from eopipe.scenes.item import ITEM_FILE, Item, scene_name
from eopipe.text_files import write_json
from eopipe.tiles.cells import Cell
from eopipe.tiles.grid import PixelWindow, grid_json, parts_of, within

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
                pixels = int(scenes.masks[scene].read(*window).sum())
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
        if scenes.masks[scene].read(*window).any()
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
