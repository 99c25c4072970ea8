"""The finished maps of a run as their files describe them."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.arrays import AnyArray, UInt8Array
from eopipe.errors import BadInputError
from eopipe.reporting.rasters import grid_of
from eopipe.tasks import task_of_map
from eopipe.tasks.task import Task, without_spread
from eopipe.tiles.geotiff import open_map
from eopipe.tiles.grid import PixelWindow, same_grid
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# Edge of a window in pixels.
WINDOW = 512


@dataclass(frozen=True)
class FinishedMap:
    """A map of classes with its probabilities, or of values with their deviation.

    `name` is the name of the cell, the scene or both, empty for the only map; `image` is the scene of a map that other
    scenes do not have, where they have maps of their own; `names` are the classes, or the quantity; `colors` are
    the red, green and blue of each class in the colour table, empty for a map that has none.
    """

    name: str
    image: str
    cell: str
    classes: Path
    probabilities: Path
    grid: "GeoBox"
    task: Task
    names: tuple[str, ...]
    colors: tuple[tuple[int, int, int], ...] = ()

    def named(self, stem: str, suffix: str) -> str:
        """The name of a file about this map: `classes.tif`, or with the name of the map where there are several."""
        return ".".join(filter(None, [stem, self.name])) + suffix

    def read_classes(self, file: Any, y: slice, x: slice) -> UInt8Array:
        """Class numbers (y, x) of a window of the opened map, 255 no data; raises BadInputError for other numbers."""
        numbers: UInt8Array = read_part(file, y, x)[0]
        beyond = numbers[(numbers != NO_LABEL) & (numbers >= len(self.names))]
        if beyond.size:
            raise BadInputError(
                f"{self.classes} has the class number {beyond[0]}, but the classes are {', '.join(self.names)}"
            )
        return numbers


def read_finished_maps(classes: Sequence[Path], probabilities: Sequence[Path]) -> list[FinishedMap]:
    """What pairs of maps say about themselves.

    Raises BadInputError for files that are not maps, have no place on the Earth, or do not belong together.
    """
    if len(classes) != len(probabilities):
        raise BadInputError(
            f"there are {len(classes)} maps of classes and {len(probabilities)} of probabilities; give one for each"
        )
    pairs = [_read_pair(*paths) for paths in zip(classes, probabilities, strict=True)]
    if len({pair.image for pair in pairs}) == 1:
        # The cells of one mosaic.
        pairs = [replace(pair, image="", name=pair.cell or pair.name) for pair in pairs]
    if len(pairs) == 1:
        pairs = [replace(pairs[0], name="")]
    for pair in pairs[1:]:
        if (pair.task, pair.names) != (pairs[0].task, pairs[0].names):
            raise BadInputError(
                f"{pair.classes} has the classes {', '.join(pair.names)}, but {pairs[0].classes} has "
                f"{', '.join(pairs[0].names)}; give maps of one model"
            )
    if len({pair.name for pair in pairs}) == len(pairs):
        return pairs
    names = ", ".join(sorted(pair.name for pair in pairs))
    raise BadInputError(f"several maps have one name: {names}; give each map once, or make their products one by one")


def _read_pair(classes: Path, probabilities: Path) -> FinishedMap:
    with open_map(classes) as numbers, open_map(probabilities) as shares:
        grid, tags = grid_of(numbers), numbers.tags()
        if not same_grid(grid, grid_of(shares)):
            raise BadInputError(f"{probabilities} is on another grid than {classes}; give the maps in the same order")
        if grid.crs is None or grid.crs.proj.geodetic_crs is None:
            raise BadInputError(
                f"{classes} has no place on the Earth: products are of maps of scenes, not of chip sets"
            )
        task = task_of_map(tags, classes)
        names = without_spread(shares.descriptions) if task.maps_classes else numbers.descriptions
        if not task.has_classes:
            names = [f"{names[0]} ({unit})" if (unit := numbers.units[0]) else names[0]]
        colors = ()
        if numbers.count == 1 and numbers.colorinterp[0].name == "palette":
            table = numbers.colormap(1)
            colors = tuple(table[number][:3] for number in range(len(names)))
    cell, scenes = tags.get("cell", ""), tags.get("scenes", "").split()
    image = scenes[0] if len(scenes) == 1 else ""
    # It becomes the name of files and layers.
    name = re.sub(r"[^\w.-]", "_", ".".join(filter(None, [image, cell])) or classes.stem)
    return FinishedMap(name, image, cell, classes, probabilities, grid, task, tuple(map(str, names)), colors)


def read_part(file: Any, y: slice, x: slice) -> AnyArray:
    """Stored numbers (band, y, x) of a window; raises BadInputError for a damaged map."""
    from rasterio.errors import RasterioIOError
    from rasterio.windows import Window

    try:
        numbers: AnyArray = file.read(window=Window.from_slices(y, x))
    except RasterioIOError as error:
        raise BadInputError(f"{file.name} is damaged: {error}") from error
    return numbers


def windows(shape: tuple[int, int], edge: int = WINDOW) -> Iterator[PixelWindow]:
    """The windows of a raster (height, width), row by row, at most `edge` pixels high and wide."""
    for top in range(0, shape[0], edge):
        for left in range(0, shape[1], edge):
            yield slice(top, min(top + edge, shape[0])), slice(left, min(left + edge, shape[1]))
