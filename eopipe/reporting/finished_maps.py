"""The finished maps of a run as their files describe them, and the area of their pixels and shapes on the ground."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, ObjectArray, UInt8Array
from eopipe.errors import BadInputError
from eopipe.reporting.rasters import grid_of
from eopipe.tasks import task_of_map
from eopipe.tasks.task import Task, without_spread
from eopipe.tiles.grid import PixelWindow, same_grid
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# Edge of a window in pixels.
WINDOW = 512
# Pixels between two whose area is measured; the scale of a projection changes by less than 1e-5 between them.
AREA_STEP = 32
# Metres after which the edge of a shape gets another vertex: a straight line of a projection is not a geodesic.
LONGEST_EDGE_M = 1000.0
METRES_PER_RADIAN = 6_371_000.0
SQUARE_METRES_PER_HECTARE = 10_000.0


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


@contextmanager
def open_map(path: Path) -> Iterator[Any]:
    """Open a map with rasterio; raises BadInputError for a file that is not a raster."""
    import rasterio
    from rasterio.errors import RasterioIOError

    try:
        file = rasterio.open(path)
    except RasterioIOError as error:
        raise BadInputError(f"{path} cannot be read as a map: {error}") from error
    with file:
        yield file


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


def pixel_hectares(grid: "GeoBox", y: slice, x: slice) -> Float64Array:
    """The area (y, x) in hectares of each pixel of a window on the ellipsoid of the CRS.

    It is measured at some pixels, in degrees in each row, and interpolated between them.
    """
    crs = grid.crs
    assert crs is not None
    rows = _samples(y, 1 if crs.geographic else AREA_STEP)
    # In degrees all pixels of a row have one area.
    columns = np.array([x.start]) if crs.geographic else _samples(x, AREA_STEP)
    corner_rows = rows[:, None, None] + np.array([0, 0, 1, 1])
    corner_columns = columns[None, :, None] + np.array([0, 1, 1, 0])
    shape = len(rows), len(columns), 4
    columns_of_corners, rows_of_corners = np.broadcast_to(corner_columns, shape), np.broadcast_to(corner_rows, shape)
    a, b, c, d, e, f = grid.affine[:6]
    easting = a * columns_of_corners + b * rows_of_corners + c
    northing = d * columns_of_corners + e * rows_of_corners + f
    longitude, latitude = _to_degrees(crs.proj, easting.reshape(-1, 4), northing.reshape(-1, 4))
    geod: Any = crs.proj.get_geod()
    measured = [geod.polygon_area_perimeter(*corners)[0] for corners in zip(longitude, latitude, strict=True)]
    hectares = np.abs(np.array(measured).reshape(len(rows), len(columns))) / SQUARE_METRES_PER_HECTARE
    interpolated: Float64Array = _weights(y, rows) @ hectares @ _weights(x, columns).T
    return interpolated


def _samples(part: slice, step: int) -> AnyArray:
    """Positions of a slice: every `step`-th, and the last."""
    return np.unique(np.append(np.arange(part.start, part.stop, step), part.stop - 1))


def _weights(part: slice, samples: AnyArray) -> Float64Array:
    """The weight (position, sample) of each sample at each position of a slice, for linear interpolation."""
    positions = np.arange(part.start, part.stop)
    return np.stack([np.interp(positions, samples, unit) for unit in np.eye(len(samples))], axis=1)


def _to_degrees(crs: Any, easting: AnyArray, northing: AnyArray) -> tuple[Float64Array, Float64Array]:
    """Longitude and latitude, in the datum of the CRS itself."""
    from pyproj import Transformer

    longitude, latitude = Transformer.from_crs(crs, crs.geodetic_crs, always_xy=True).transform(easting, northing)
    return longitude, latitude


def shape_hectares(shapes: ObjectArray, crs: Any) -> Float64Array:
    """The area in hectares of each polygon (shapely) on the ellipsoid of its CRS (pyproj); 0 for other shapes."""
    from shapely import get_coordinates, get_parts, get_rings, segmentize

    units = METRES_PER_RADIAN if crs.is_geographic else 1.0
    longest_edge = LONGEST_EDGE_M / (units * crs.axis_info[0].unit_conversion_factor)
    parts, shape_of_part = get_parts(shapes, return_index=True)
    rings, part_of_ring = get_rings(segmentize(parts, longest_edge), return_index=True)
    points, ring_of_point = get_coordinates(rings, return_index=True)
    longitude, latitude = _to_degrees(crs, points[:, 0], points[:, 1])
    geod, ends = crs.get_geod(), np.searchsorted(ring_of_point, np.arange(len(rings) + 1)).tolist()
    areas = np.array(
        [abs(geod.polygon_area_perimeter(longitude[a:b], latitude[a:b])[0]) for a, b in pairwise(ends)], np.float64
    )
    # The first ring of a polygon is the outer one.
    is_hole = np.append(False, part_of_ring[1:] == part_of_ring[:-1])[: len(rings)]
    signed = np.where(is_hole, -areas, areas) / SQUARE_METRES_PER_HECTARE
    # Of no shapes the sums are integers.
    return np.bincount(shape_of_part[part_of_ring], signed, minlength=len(shapes)).astype(np.float64)
