"""What is shown of each map: thinned arrays on the same cells, cut to where there is something."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eopipe.errors import BadInputError
from eopipe.grid import same_grid
from eopipe.reporting.rasters import (
    Thin,
    grid_of,
    mean,
    opened,
    pick,
    pick_classes,
    pick_confidence,
    scene_of,
    thin,
)
from eopipe.splits import NOWHERE, SPLITS
from eopipe.store import NO_LABEL, Tiles

Pairs = list[tuple[Tiles, Tiles]]
Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
MOST_MAPS = 6
MOST_SCENES = 5
LONGEST = {False: 800, True: 480}


@dataclass(frozen=True)
class Colour:
    """A quicklook: bands (1 or 3, y, x) and where there is data; `true` where they are red, green and blue."""

    bands: Floats
    seen: Mask
    true: bool


@dataclass(frozen=True)
class View:
    """One map and what belongs to it, all (y, x); `role` is 0 train, 1 val, 2 test, 255 elsewhere."""

    scene: str
    colour: Colour
    label: Numbers
    classes: Numbers
    confidence: Floats
    role: Numbers
    tested: Mask
    window: tuple[slice, slice]


@dataclass(frozen=True)
class MapFile:
    """A map of classes with its probabilities; `scene` is empty for a mosaic."""

    scene: str
    classes: Path
    probabilities: Path


def map_files(
    classes: tuple[Path, ...], probabilities: tuple[Path, ...], pairs: Pairs, names: tuple[str, ...]
) -> list[MapFile]:
    """Pair the maps, sorted by scene; raises BadInputError for maps that do not belong to the tiles or to each other."""
    if len(classes) != len(probabilities):
        raise BadInputError(
            f"there are {len(classes)} maps of classes but {len(probabilities)} of probabilities; give both, in one order"
        )
    found = [_map_file(one, other, pairs, names) for one, other in zip(classes, probabilities, strict=True)]
    return sorted(found, key=lambda file: file.scene)


def _map_file(classes: Path, probabilities: Path, pairs: Pairs, names: tuple[str, ...]) -> MapFile:
    scenes = tuple(tiles.scene for tiles, _ in pairs)
    with opened(classes) as source, opened(probabilities) as shares:
        for path, one in ((classes, source), (probabilities, shares)):
            if not same_grid(grid_of(one), pairs[0][0].grid):
                raise BadInputError(f"the map {path} lies on another grid than the tiles; predict on the run's grid")
        told = tuple(shares.descriptions)
        if shares.count != len(names) or (all(told) and told != names):
            listed = ", ".join(str(name) for name in told)
            raise BadInputError(f"{probabilities} holds the classes {listed}; the run has {', '.join(names)}")
        scene = scene_of(classes, source, scenes)
    if scene and scene not in scenes:
        raise BadInputError(f"the map {classes} is of scene {scene}, which is not among the tiles: {', '.join(scenes)}")
    return MapFile(scene, classes, probabilities)


def chosen(files: list[MapFile]) -> list[MapFile]:
    """At most six maps, spread evenly over all."""
    if len(files) <= MOST_MAPS:
        return files
    return [files[round(at)] for at in np.linspace(0, len(files) - 1, MOST_MAPS)]


def cells_for(files: list[MapFile], pairs: Pairs) -> Thin:
    """The cells that every picture of the page has."""
    return thin(pairs[0][0].shape, LONGEST[len(files) > 1])


def view(file: MapFile, pairs: Pairs, split: dict[str, Any], cells: Thin) -> View:
    """Read one map and its surroundings."""
    mine = [(tiles, label) for tiles, label in pairs if file.scene in ("", tiles.scene)]
    label, classes = _label(mine, cells), pick_classes(file.classes, cells)
    role = roles(split, cells, file.scene)
    tested = (role == SPLITS.index("test")) & (label != NO_LABEL) & (classes != NO_LABEL)
    if file.scene:
        tested &= pick(lambda y, x: mine[0][0].read("valid", y, x), cells) > 0
    colour = quicklook([tiles for tiles, _ in mine], cells)
    window = _window((classes != NO_LABEL) | colour.seen)
    return View(file.scene, colour, label, classes, pick_confidence(file.probabilities, cells), role, tested, window)


def _label(pairs: Pairs, cells: Thin) -> Numbers:
    """Class numbers of the labels; where scenes differ, the first one that holds."""
    found = np.full(cells.cells, NO_LABEL, np.uint8)
    for store in {label.path: label for _, label in pairs}.values():
        one = pick(lambda y, x, store=store: store.read("label", y, x), cells)  # type: ignore[misc]
        found = np.where(found == NO_LABEL, one, found)
    return found


def roles(split: dict[str, Any], cells: Thin, scene: str = "") -> Numbers:
    """Which split each cell belongs to, over the samples of one scene or of all."""
    role = np.full(cells.cells, NOWHERE, np.uint8)
    rows, cols = cells.middles(0), cells.middles(1)
    for number, name in enumerate(SPLITS):
        samples = split["samples"][name]
        if scene:
            samples = samples[samples[:, 0] == split["scenes"].index(scene)]
        for row, col in np.unique(samples[:, 1:], axis=0):
            y, x = (np.searchsorted(axis, (start, start + split["chip"])) for axis, start in ((rows, row), (cols, col)))
            role[y[0] : y[1], x[0] : x[1]] = number
    return role


def quicklook(stores: list[Tiles], cells: Thin) -> Colour:
    """The median over the clearest scenes, of pixels that are valid where there are any."""
    clear = sorted(stores, key=lambda store: (-clear_share(store), store.scene))[:MOST_SCENES]
    true = all({"red", "green", "blue"} <= set(store.names) for store in clear)
    read = [_bands(store, ("red", "green", "blue") if true else (stores[0].names[0],), cells) for store in clear]
    if len(clear) == 1:
        bands, seen = read[0][0], np.isfinite(read[0][0]).all(0)
        return Colour(np.nan_to_num(bands), seen, true)
    usable = np.stack([np.where(valid, bands, np.nan) for bands, valid in read])
    anything = np.stack([bands for bands, _ in read])
    bands = _median(usable, _median(anything, np.float32(np.nan)))
    return Colour(np.nan_to_num(bands), np.isfinite(bands).all(0), true)


def clear_share(store: Tiles) -> float:
    """The share of the grid where a scene is valid, as preprocess measured it; 0 if it did not."""
    return float(store.attributes.get("valid_fraction") or 0.0)


def _bands(store: Tiles, names: tuple[str, ...], cells: Thin) -> tuple[Floats, Mask]:
    """Stored numbers (band, y, x), NaN where nothing is stored, and where they are valid."""
    order = [store.names.index(name) for name in names]

    def read(y: slice, x: slice) -> Floats:
        stored = store.read("image", y, x)
        there = (store.read("valid", y, x) > 0) | (stored != 0).any(0)
        return np.where(there, stored[order].astype(np.float32), np.float32(np.nan))

    return mean(read, cells), pick(lambda y, x: store.read("valid", y, x), cells) > 0


def _median(stack: Floats, otherwise: Any) -> Floats:
    """The median over the first axis of what is finite; `otherwise` where nothing is."""
    nothing = ~np.isfinite(stack).any(0)
    filled = np.where(nothing, np.float32(0), stack)
    return np.where(nothing, otherwise, np.nanmedian(filled, axis=0)).astype(np.float32)


def _window(there: Mask) -> tuple[slice, slice]:
    """The smallest box that holds every set cell; the whole for an empty mask."""
    rows, cols = np.flatnonzero(there.any(1)), np.flatnonzero(there.any(0))
    if not len(rows):
        return slice(0, there.shape[0]), slice(0, there.shape[1])
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(cols[0]), int(cols[-1]) + 1)
