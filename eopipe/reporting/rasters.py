"""Read rasters thinned out to what a picture can show, window by window: memory does not grow with the map."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray, IntArray, UInt8Array
from eopipe.chips.splits import NO_SPLIT, SPLITS
from eopipe.errors import BadInputError
from eopipe.reporting.palette import ValueScale
from eopipe.tiles.grid import same_grid
from eopipe.tiles.store import NO_LABEL, Tiles

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox


Window = Callable[[slice, slice], AnyArray]
EDGE = 1024


@dataclass(frozen=True)
class Thin:
    """A raster of `shape` (height, width) drawn as cells of `step` x `step` pixels; the last ones are smaller."""

    shape: tuple[int, int]
    step: int

    @property
    def cells(self) -> tuple[int, int]:
        """Height and width in cells."""
        return -(-self.shape[0] // self.step), -(-self.shape[1] // self.step)

    def middles(self, axis: int) -> IntArray:
        """Give the row (axis 0) or column (axis 1) of the pixel that stands for each cell."""
        return np.minimum(np.arange(0, self.shape[axis], self.step) + self.step // 2, self.shape[axis] - 1)


def thin(shape: tuple[int, int], longest: int) -> Thin:
    """Cells for a picture of at most `longest` pixels a side."""
    return Thin((int(shape[0]), int(shape[1])), -(-max(shape) // longest))


def pick(read: Window, cells: Thin) -> AnyArray:
    """Take the middle pixel of each cell (…, y, x), so that two rasters can be compared pixel by pixel."""
    rows, cols = cells.middles(0), cells.middles(1)

    def part(y: slice, x: slice) -> AnyArray:
        return read(y, x)[..., _inside(rows, y), :][..., _inside(cols, x)]

    return _assemble(part, cells)


def mean(read: Window, cells: Thin) -> AnyArray:
    """Take the mean of each cell (…, y, x) over what is finite; NaN where nothing is."""

    def part(y: slice, x: slice) -> AnyArray:
        values = read(y, x)
        there = np.isfinite(values)
        count = _summed(there.astype(np.float32), cells.step)
        total = _summed(np.where(there, values, 0).astype(np.float32), cells.step)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan).astype(np.float32)

    return _assemble(part, cells)


def _inside(places: IntArray, window: slice) -> IntArray:
    here: IntArray = places[(places >= window.start) & (places < window.stop)] - int(window.start)
    return here


def _summed(values: AnyArray, step: int) -> AnyArray:
    for axis in (-2, -1):
        values = np.add.reduceat(values, np.arange(0, values.shape[axis], step), axis)
    return values


def _assemble(part: Window, cells: Thin) -> AnyArray:
    rows, cols = (_cuts(edge, cells.step) for edge in cells.shape)
    return np.concatenate([np.concatenate([part(y, x) for x in cols], -1) for y in rows], -2)


def _cuts(length: int, step: int) -> list[slice]:
    """Windows along one axis that hold whole cells."""
    edge = max(step, EDGE // step * step)
    return [slice(start, min(start + edge, length)) for start in range(0, length, edge)]


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Open a map with rasterio."""
    import rasterio
    from rasterio.errors import RasterioIOError

    try:
        source = rasterio.open(path)
    except RasterioIOError as error:
        raise BadInputError(f"{path} cannot be read as a map: {error}") from error
    with source:
        yield source


def grid_of(source: Any) -> "GeoBox":
    """Where an opened map lies."""
    from odc.geo.geobox import GeoBox

    return GeoBox(source.shape, source.transform, source.crs)


def pick_classes(path: Path, cells: Thin) -> UInt8Array:
    """Class numbers (y, x) of a map, 255 where there is none."""
    with opened(path) as source:
        return pick(lambda y, x: _read(source, y, x)[0], cells).astype(np.uint8)


def pick_values(path: Path, cells: Thin) -> FloatArray:
    """Values (y, x) of the first band of a map, NaN where there is none."""
    with opened(path) as source:
        return pick(lambda y, x: _read(source, y, x)[0], cells).astype(np.float32)


def pick_confidence(path: Path, cells: Thin) -> FloatArray:
    """Read the highest probability (y, x) of a map of probabilities; NaN where there is none."""
    with opened(path) as source:

        def best(y: slice, x: slice) -> AnyArray:
            stored = _read(source, y, x)
            there = (stored != source.nodata).all(0)
            return np.where(there, stored.max(0) * source.scales[0], np.nan).astype(np.float32)

        return pick(best, cells)


def _read(source: Any, y: slice, x: slice) -> AnyArray:
    from rasterio.errors import RasterioIOError

    try:
        return np.asarray(source.read(window=((y.start, y.stop), (x.start, x.stop))))
    except RasterioIOError as error:
        raise BadInputError(f"{source.name} is damaged: {error}; make the map again") from error


Pairs = list[tuple[Tiles, Tiles]]
MOST_MAPS = 6
MOST_SCENES = 5
LONGEST = {False: 800, True: 640}


@dataclass(frozen=True)
class Colour:
    """A quicklook: bands (1 or 3, y, x) and where there is data; `true` where they are red, green and blue."""

    bands: FloatArray
    seen: BoolArray
    true: bool


@dataclass(frozen=True)
class View:
    """One map and what belongs to it, all (y, x); `role` is 0 train, 1 val, 2 test, 255 elsewhere.

    Of values `label` and `classes` are the intervals that they are drawn in, `confidence` is the standard deviation
    among the scenes, and `error` how far the map is off.
    """

    scene: str
    colour: Colour
    label: UInt8Array
    classes: UInt8Array
    confidence: FloatArray
    role: UInt8Array
    tested: BoolArray
    window: tuple[slice, slice]
    error: FloatArray | None = None


@dataclass(frozen=True)
class MapFile:
    """A map of classes with its probabilities; `scene` is empty for a mosaic."""

    scene: str
    classes: Path
    probabilities: Path


def map_files(
    classes: tuple[Path, ...], probabilities: tuple[Path, ...], pairs: Pairs, names: tuple[str, ...]
) -> list[MapFile]:
    """One mosaic, or the map of each scene in the order of their names.

    Raises BadInputError for maps that do not belong to the tiles, to each other or to the classes.
    """
    if len(classes) != len(probabilities) or len(classes) not in (1, len(pairs)):
        raise BadInputError(
            f"{len(classes)} maps of classes and {len(probabilities)} of probabilities for {len(pairs)} scenes: "
            "give one mosaic of both, or both for each scene"
        )
    scenes = [tiles.scene for tiles, _ in pairs] if len(classes) > 1 else [""]
    files = [MapFile(*parts) for parts in zip(scenes, classes, probabilities, strict=True)]
    for file in files:
        _check(file, pairs[0][0], names)
    return files


def _check(file: MapFile, tiles: Tiles, names: tuple[str, ...]) -> None:
    with opened(file.classes) as classes, opened(file.probabilities) as chances:
        for path, source in ((file.classes, classes), (file.probabilities, chances)):
            if not same_grid(grid_of(source), tiles.grid):
                raise BadInputError(f"the map {path} lies on another grid than the tiles; predict on the run's grid")
        told = tuple(chances.descriptions)
        if told != names:
            listed = ", ".join(str(name) for name in told)
            raise BadInputError(f"{file.probabilities} holds the classes {listed}; the run has {', '.join(names)}")


def chosen(files: list[MapFile], split: dict[str, Any]) -> list[MapFile]:
    """At most six maps, spread evenly over those that hold test places."""
    with_test = {split["scenes"][number] for number in split["samples"]["test"][:, 0]}
    pool = [file for file in files if not file.scene or file.scene in with_test]
    if len(files) <= MOST_MAPS or not pool:
        return files[:MOST_MAPS]
    return [pool[at] for at in sorted({round(at) for at in np.linspace(0, len(pool) - 1, MOST_MAPS)})]


def cells_for(files: list[MapFile], pairs: Pairs) -> Thin:
    """Choose the cells that every picture of the page has."""
    return thin(pairs[0][0].shape, LONGEST[len(files) > 1])


def view(file: MapFile, pairs: Pairs, role: UInt8Array, cells: Thin, scale: ValueScale | None = None) -> View:
    """Read one map and its surroundings; values are drawn on their scale."""
    mine = [(tiles, label) for tiles, label in pairs if file.scene in {"", tiles.scene}]
    label, error = pick(partial(mine[0][1].read, "label"), cells), None
    if scale:
        values, confidence = pick_values(file.classes, cells), pick_values(file.probabilities, cells)
        error = np.abs(values - label)
        label, classes = scale.numbers(label), scale.numbers(values)
    else:
        classes, confidence = pick_classes(file.classes, cells), pick_confidence(file.probabilities, cells)
    # The pixels that evaluate counts, as far as they are drawn.
    tested = (role == SPLITS.index("test")) & (label != NO_LABEL) & (classes != NO_LABEL)
    colour = quicklook([tiles for tiles, _ in mine], cells)
    window = _window((classes != NO_LABEL) | colour.seen)
    return View(file.scene, colour, label, classes, confidence, role, tested, window, error)


def roles(split: dict[str, Any], cells: Thin) -> UInt8Array:
    """Which split each cell belongs to: 0 train, 1 val, 2 test, 255 none."""
    role = np.full(cells.cells, NO_SPLIT, np.uint8)
    rows, cols = cells.middles(0), cells.middles(1)
    for number, name in enumerate(SPLITS):
        for row, col in np.unique(split["samples"][name][:, 1:], axis=0):
            y, x = (np.searchsorted(axis, (start, start + split["chip"])) for axis, start in ((rows, row), (cols, col)))
            role[y[0] : y[1], x[0] : x[1]] = number
    return role


def quicklook(stores: list[Tiles], cells: Thin) -> Colour:
    """Take the median over the clearest scenes, of pixels that are valid where there are any."""
    clear = sorted(stores, key=lambda store: (-clear_share(store), store.scene))[:MOST_SCENES]
    true = all({"red", "green", "blue"} <= set(store.names) for store in clear)
    read = [_bands(store, ("red", "green", "blue") if true else (stores[0].names[0],), cells) for store in clear]
    if len(clear) == 1:
        bands, seen = read[0][0], np.asarray(np.isfinite(read[0][0]).all(0))
        return Colour(np.nan_to_num(bands), seen, true)
    usable = np.stack([np.where(valid, bands, np.nan) for bands, valid in read])
    anything = np.stack([bands for bands, _ in read])
    bands = _median(usable, _median(anything, np.float32(np.nan)))
    return Colour(np.nan_to_num(bands), np.asarray(np.isfinite(bands).all(0)), true)


def clear_share(store: Tiles) -> float:
    """Give the share of the grid where a scene is valid, as preprocess measured it; 0 if it did not."""
    return float(store.attributes.get("valid_fraction") or 0.0)


def _bands(store: Tiles, names: tuple[str, ...], cells: Thin) -> tuple[FloatArray, BoolArray]:
    """Read stored numbers (band, y, x), NaN where nothing is stored, and where they are valid."""
    order = [store.names.index(name) for name in names]

    def read(y: slice, x: slice) -> FloatArray:
        stored = store.read("image", y, x)
        there = (store.read("valid", y, x) > 0) | (stored != 0).any(0)
        return np.where(there, stored[order].astype(np.float32), np.float32(np.nan))

    return mean(read, cells), pick(partial(store.read, "valid"), cells) > 0


def _median(stack: FloatArray, otherwise: Any) -> FloatArray:
    """Take the median over the first axis of what is finite; `otherwise` where nothing is."""
    nothing = ~np.isfinite(stack).any(0)
    filled = np.where(nothing, np.float32(0), stack)
    return np.where(nothing, otherwise, np.nanmedian(filled, axis=0)).astype(np.float32)


def _window(there: BoolArray) -> tuple[slice, slice]:
    """Find the smallest box that holds every set cell; the whole for an empty mask."""
    rows, cols = np.flatnonzero(there.any(1)), np.flatnonzero(there.any(0))
    if not len(rows):
        return slice(0, there.shape[0]), slice(0, there.shape[1])
    return slice(int(rows[0]), int(rows[-1]) + 1), slice(int(cols[0]), int(cols[-1]) + 1)
