"""The finished maps of a run as their files describe them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, UInt8Array
from eopipe.chips.map_places import tags_of_map
from eopipe.errors import BadInputError
from eopipe.tasks import task_of_map
from eopipe.tasks.task import Task, without_spread
from eopipe.tiles.cells import Frame
from eopipe.tiles.geotiff import grid_of, open_map, read_window
from eopipe.tiles.grid import same_grid
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# The edge of the windows in which a map is read, in pixels.
WINDOW = 512


@dataclass(frozen=True)
class FinishedMap:
    """A map of classes with its probabilities, or of values with their deviation; without where they are not needed.

    `name` is the name of the cell, the scene or both, empty for the only map; `image` is the scene of a map that other
    scenes do not have, where they have maps of their own; `names` are the classes, or the `quantity` with its unit;
    `colors` are the red, green and blue of each class in the colour table, empty for a map that has none.
    """

    name: str
    image: str
    cell: str
    classes: Path
    grid: "GeoBox"
    task: Task
    names: tuple[str, ...]
    colors: tuple[tuple[int, int, int], ...] = ()
    probabilities: Path | None = None
    quantity: str = ""

    def named(self, stem: str, suffix: str) -> str:
        """The name of a file about this map: `classes.tif`, or with the name of the map where there are several."""
        return ".".join(filter(None, [stem, self.name])) + suffix

    def read_classes(self, file: Any, y: slice, x: slice) -> UInt8Array:
        """Class numbers (y, x) of a window of the opened map, 255 no data; raises BadInputError for other numbers."""
        numbers: UInt8Array = read_window(file, y, x)[0]
        beyond = numbers[(numbers != NO_LABEL) & (numbers >= len(self.names))]
        if beyond.size:
            raise BadInputError(
                f"{self.classes} has the class number {beyond[0]}, but the classes are {', '.join(self.names)}"
            )
        return numbers


@dataclass(frozen=True)
class FrameRaster:
    """The maps of the cells of a run, read by positions in its frame."""

    frame: Frame
    files: dict[str, Any]

    @property
    def first(self) -> Any:
        """One of the opened maps, for what all have in common."""
        return next(iter(self.files.values()))

    @property
    def task(self) -> Task:
        """The task of the maps."""
        return task_of_map(self.first.tags(), self.first.name)

    def read(self, y: slice, x: slice) -> AnyArray:
        """Stored numbers (band, y, x) of a window, nodata where no map is. Raises BadInputError for a damaged one."""
        shape = self.first.count, y.stop - y.start, x.stop - x.start
        nodata = NO_LABEL if self.first.nodata is None else self.first.nodata
        numbers = np.full(shape, nodata, self.first.dtypes[0])
        for cell, in_cell, in_window in self.frame.parts_in_cells((y, x)):
            if cell.id in self.files:
                numbers[:, *in_window] = read_window(self.files[cell.id], *in_cell)
        return numbers


@contextmanager
def open_maps(paths: Iterable[Path], frame: Frame) -> Iterator[FrameRaster]:
    """Open the maps of cells with rasterio; raises BadInputError for a file that is not a map of its cell."""
    with ExitStack() as stack:
        maps: dict[str, Any] = {}
        for path in paths:
            source = stack.enter_context(open_map(path))
            task_of_map(source.tags(), path)
            cell = frame.cell(source.tags().get("cell", ""))
            if cell.id in maps or not same_grid(grid_of(source), cell.grid):
                raise BadInputError(f"the map {path} is on another grid than the tiles; predict on the run's grid")
            maps[cell.id] = source
        yield FrameRaster(frame, maps)


def read_finished_maps(classes: Sequence[Path], probabilities: Sequence[Path] | None = None) -> list[FinishedMap]:
    """What maps say about themselves, with those of probabilities or without.

    Raises BadInputError for files that are not maps, have no place on the Earth, or do not belong together.
    """
    if probabilities is not None and len(classes) != len(probabilities):
        raise BadInputError(
            f"there are {len(classes)} maps of classes and {len(probabilities)} of probabilities; give one for each"
        )
    pairs = [_read_map(*paths) for paths in zip_longest(classes, probabilities or ())]
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


def _read_map(classes: Path, probabilities: Path | None) -> FinishedMap:
    with open_map(classes) as numbers:
        grid, tags = grid_of(numbers), numbers.tags()
        if grid.crs is None or grid.crs.proj.geodetic_crs is None:
            raise BadInputError(
                f"{classes} has no place on the Earth, as a map of a chip set has none; give maps of scenes"
            )
        task = task_of_map(tags, classes)
        names: Sequence[Any] = numbers.descriptions
        if task.maps_classes:
            names = _bands_of(probabilities) if probabilities else _names_in_legend(tags, classes)
        quantity = "" if task.has_classes else f"{names[0]} ({unit})" if (unit := numbers.units[0]) else str(names[0])
        colors = ()
        if numbers.count == 1 and numbers.colorinterp[0].name == "palette":
            table = numbers.colormap(1)
            colors = tuple(table[number][:3] for number in range(len(names)))
    if probabilities:
        with open_map(probabilities) as shares:
            if not same_grid(grid, grid_of(shares)):
                raise BadInputError(
                    f"{probabilities} is on another grid than {classes}; give the maps in the same order"
                )
    cell, scenes = tags.get("cell", ""), tags.get("scenes", "").split()
    image = scenes[0] if len(scenes) == 1 else ""
    # It becomes the name of files and layers.
    name = re.sub(r"[^\w.-]", "_", ".".join(filter(None, [image, cell])) or classes.stem)
    names = (quantity,) if quantity else tuple(map(str, names))
    return FinishedMap(name, image, cell, classes, grid, task, names, colors, probabilities, quantity)


def _bands_of(probabilities: Path) -> tuple[str | None, ...]:
    """The classes that a map of probabilities has a band of."""
    with open_map(probabilities) as shares:
        return without_spread(shares.descriptions)


def _names_in_legend(tags: dict[str, str], path: Path) -> list[str]:
    """The names of the classes in the tag of a map: 0=crop, 1=forest."""
    rows = re.findall(r"(\d+)=(.+?)(?=, \d+=|$)", tags.get("classes", ""))
    if not rows or [int(number) for number, _ in rows] != [*range(len(rows))]:
        raise BadInputError(f"{path} does not name its classes; give a map that eopipe predict has made")
    return [name for _, name in rows]


def check_whole(maps: tuple[Path, ...]) -> None:
    """Raise BadInputError for a map of the places of one split, which `predict --places` makes.

    Without the rest there are no scores to compare with baselines, and no areas.
    """
    for path in maps:
        if places := places_of(path):
            raise BadInputError(
                f"map {path} shows the {places} places alone, and a map of everything is needed; give the map that "
                "predict makes without --places"
            )


def places_of(path: Path) -> str:
    """The split whose places alone a map shows; empty for a map of everything."""
    return tags_of_map(path).get("places", "")
