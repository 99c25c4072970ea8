"""What stores of this run weigh: a few windows are made for real, aside, by the stages themselves."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eopipe.arrays import BoolArray
from eopipe.contract import stage
from eopipe.errors import BadInputError
from eopipe.fetch.sizes import local_file
from eopipe.planning.frozen_scenes import Config, Frozen
from eopipe.publish import MANIFEST, files, write_json
from eopipe.scenes.item import ITEM_FILE, Item, scene_name
from eopipe.tiles.grid import grid_json, windows

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

TRIALS = 12
EDGE = 1024


@dataclass(frozen=True)
class Weight:
    """Bytes of a store: `rate` for a pixel that a scene covers, `fixed` for what every store has beside."""

    rate: float
    fixed: float


def as_fetched(config: Config, name: str, item: Item, room: Path) -> Path | None:
    """The folder of a scene as fetch leaves it: the fetched one, or links to local files; None for neither."""
    kept, folder = Path(config["results"], "scenes", name), room / "scenes" / name
    if (kept / MANIFEST).is_file():
        return kept
    catalog = config["search"]["catalog"]
    found = {n: local_file(a, f"scene {name}, asset {n}", catalog) for n, a in item["assets"].items()}
    if None in found.values():
        return None
    folder.mkdir(parents=True, exist_ok=True)
    assets = {}
    for asset, file in found.items():
        if file is not None:
            link = folder / f"{scene_name(asset)}{file.suffix}"
            link.unlink(missing_ok=True)
            link.symlink_to(file)
            assets[asset] = item["assets"][asset] | {"href": link.name}
    write_json(folder / ITEM_FILE, item | {"assets": assets})
    return folder


def weigh(config: Config, seen: Frozen, masks: dict[str, BoolArray], name: str) -> Weight | None:
    """Weigh the stores of a stage by trial; None where no scene is at hand.

    Windows spread over the grid and the scenes; a ratio of sums, so that empty corners count as little as
    they weigh.
    """
    made: list[tuple[float, float, int]] = []
    with tempfile.TemporaryDirectory(prefix="eopipe-plan-") as folder:
        room = Path(folder)
        for scene, window in _trials(seen, masks):
            source = as_fetched(config, scene, seen.items[scene], room)
            if source is not None:
                weight = _made(config, name, source, seen.grid[window], room)
                made.append((*weight, int(masks[scene][window].sum())))
    if not made:
        return None
    data, fixed, pixels = np.array(made, float).T
    return Weight(float(data.sum() / max(1.0, pixels.sum())), float(fixed.mean()))


def _trials(seen: Frozen, masks: dict[str, BoolArray]) -> list[tuple[str, tuple[slice, slice]]]:
    """Which window of which scene is tried: scenes and places take turns."""
    places = windows((int(seen.grid.shape[0]), int(seen.grid.shape[1])), EDGE)
    pairs = [(n, places[(k * 7 + j) % len(places)]) for j in range(len(places)) for k, n in enumerate(seen.items)]
    held = [pair for pair in pairs if masks[pair[0]][pair[1]].any()]
    chosen = np.unique(np.linspace(0, len(held) - 1, min(TRIALS, len(held))).round().astype(int))
    return [held[n] for n in chosen]


def _made(config: Config, name: str, scene: Path, grid: "GeoBox", room: Path) -> tuple[int, int]:
    """Bytes of the data and of the rest of a store that a stage makes of a window."""
    place, target = room / "grid.json", room / f"{name}.zarr"
    write_json(place, grid_json(grid))
    output = {"preprocess": "tiles", "label": "labels"}[name]
    try:
        stage(name).function(**{"scene": scene, "grid": place, output: target}, **config[name])
    except BadInputError:
        if name != "label":
            raise
        return 0, 0
    return weight_of(target)


def weight_of(store: Path) -> tuple[int, int]:
    """Bytes of the rasters of a store, and of everything else but the coordinates, which grow with the grid."""
    sizes = {p.relative_to(store).parts: p.stat().st_size for p in files(store)}
    data = sum(size for parts, size in sizes.items() if "c" in parts and parts[0] not in ("x", "y"))
    rest = sum(size for parts, size in sizes.items() if "c" not in parts)
    return data, rest + (store / MANIFEST).stat().st_size
