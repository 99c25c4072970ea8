"""Cells of a run: the rectangles of pixels that its area needs, one for each UTM zone and site, in one frame.

The frame gives rows and columns to all cells; of a run with one cell it is the grid. Several cells are side by side in
it, from west to east and `GAP` pixels apart, so that a position (row, column) is in one cell at most, and chips of two
cells are never neighbours. On the ground cells of two zones overlap, since chips and windows near the border need their
surroundings; each place on Earth belongs to the cell of its own zone, and labels and maps have it there only.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import BoolArray, Float64Array
from eopipe.errors import BadInputError
from eopipe.text_files import read_json
from eopipe.tiles.globe import to_degrees
from eopipe.tiles.grid import PixelWindow, common_part, grid_json, grid_of_document, parts_of, same_grid, within
from eopipe.tiles.ground import pixel_hectares

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# Pixels between two cells of the frame: more than a chip with its buffer, and than the halo of a model.
GAP = 2048
# UTM zone of the places of a cell, and the number of the site where it has several.
CELL_ID = re.compile(r"utm(0[1-9]|[1-5]\d|60)([ns])(?:-[1-9]\d*)?")
# Width of a UTM zone.
ZONE_DEGREES = 6


@dataclass(frozen=True)
class Cell:
    """A rectangle of pixels in one CRS, and its first column in the frame; both have the same first row.

    The id says in which UTM zone its places are. Its CRS is the CRS of most scenes there, which may be
    another one: Landsat is in UTM north also in the south. The only cell of a run has no id.
    """

    id: str
    grid: "GeoBox"
    column: int = 0

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width in pixels."""
        return int(self.grid.shape[0]), int(self.grid.shape[1])

    @property
    def window(self) -> PixelWindow:
        """Rows and columns in the frame."""
        height, width = self.shape
        return slice(0, height), slice(self.column, self.column + width)

    def columns(self, step: int) -> slice:
        """Columns of the cell in an image of the frame, each pixel of which shows `step` x `step` pixels."""
        return slice(-(-self.column // step), (self.column + self.shape[1] - 1) // step + 1)

    def windows(self, edge: int) -> list[PixelWindow]:
        """Windows of this edge in the frame that cover the cell, row by row."""
        return parts_of(self.window, edge)

    def belongs(self, y: slice, x: slice) -> BoolArray:
        """Mask (y, x) of the pixels of a window of the cell whose centres are in its own UTM zone.

        All pixels of a run's only cell belong to it. A window whose outline belongs to the cell does so as a whole,
        since a zone is bounded by two meridians and the equator.
        """
        shape = y.stop - y.start, x.stop - x.start
        if not self.id:
            return np.ones(shape, bool)
        rows, columns = np.arange(y.start, y.stop), np.arange(x.start, x.stop)
        edges = [(rows[[0, -1]], columns), (rows, columns[[0, -1]])]
        if all(self._in_zone(*edge).all() for edge in edges):
            return np.ones(shape, bool)
        return self._in_zone(rows, columns)

    def degrees(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Longitude and latitude of coordinates in the CRS of the cell."""
        longitude, latitude = to_degrees(str(self.grid.crs)).transform(x, y)
        return longitude, latitude

    @property
    def is_of_zone(self) -> bool:
        """Whether the CRS is the zone of the id, or any place between the corners is in it."""
        from pyproj.exceptions import ProjError

        if utm_zone(str(self.grid.crs)) == _zone_of_id(self.id):
            return True
        (height, width), (a, _, c, _, e, f) = self.shape, list(self.grid.affine)[:6]
        x, y = np.meshgrid([c, c + a * width / 2, c + a * width], [f, f + e * height])
        try:
            longitude, latitude = self.degrees(x, y)
        except (BadInputError, ProjError):
            return False
        zone, is_north = _zone_of_id(self.id)
        from_middle = (longitude - ZONE_DEGREES * (zone - 0.5)) % 360 - 180
        has_longitude = from_middle.min() <= ZONE_DEGREES / 2 and from_middle.max() >= -ZONE_DEGREES / 2
        return bool(has_longitude and (latitude.max() >= 0 if is_north else latitude.min() < 0))

    def _in_zone(self, rows: Any, columns: Any) -> BoolArray:
        """Whether the centres of pixels (every row with every column) have the longitude and hemisphere of the zone."""
        a, _, c, _, e, f = list(self.grid.affine)[:6]
        longitude, latitude = self.degrees(*np.meshgrid(c + a * (columns + 0.5), f + e * (rows + 0.5)))
        zone, is_north = _zone_of_id(self.id)
        zones = np.floor((longitude + 180) / ZONE_DEGREES).astype(int) % 60 + 1
        return np.asarray((zones == zone) & ((latitude >= 0) == is_north))

    def json(self) -> dict[str, Any]:
        """The entry of a grid file or a store."""
        return {"id": self.id, "column": self.column} | grid_json(self.grid)


@dataclass(frozen=True)
class Frame:
    """The cells of a run, from west to east, in one frame of rows and columns."""

    cells: tuple[Cell, ...]

    @classmethod
    def of_grids(cls, grids: Sequence["GeoBox"], zones: Sequence[str] = ()) -> "Frame":
        """The frame of grids in UTM zones, in the order of the zones, then from west to east.

        `zones` (EPSG:code) say where the places are; by default the CRS of each grid does.
        """
        if len(grids) == 1:
            return cls((Cell("", grids[0]),))
        ids = [cell_id(zone) for zone in zones or [str(grid.crs) for grid in grids]]
        placed = sorted(zip(ids, grids, strict=True), key=_place_order)
        zones = [zone for zone, _ in placed]
        cells, column = [], 0
        for number, (zone, grid) in enumerate(placed):
            site = f"-{number - zones.index(zone) + 1}" if zones.count(zone) > 1 else ""
            cells.append(Cell(f"{zone}{site}", grid, column))
            column += int(grid.shape[1]) + GAP
        return cls(tuple(cells))

    @classmethod
    def of_document(cls, document: Any, name: str) -> "Frame":
        """The frame of a grid file or a store; raises BadInputError for what is neither."""
        if not isinstance(document, dict) or "cells" not in document:
            return cls((Cell("", grid_of_document(document, name)),))
        try:
            rows = [(row["id"], row["column"], row) for row in document["cells"]]
        except (KeyError, TypeError) as error:
            raise BadInputError(f"{name} is not a grid: each of its cells needs an id and a column") from error
        is_valid = all(isinstance(key, str) and type(column) is int for key, column, _ in rows)
        if not is_valid or not all(CELL_ID.fullmatch(key) for key, _, _ in rows):
            raise BadInputError(f"{name} is not a grid: the id of a cell is its UTM zone, such as utm33n or utm33n-2")
        frame = cls(tuple(Cell(key, grid_of_document(row, name), column) for key, column, row in rows))
        if stray := next((cell for cell in frame.cells if not cell.is_of_zone), None):
            raise BadInputError(f"{name} is not a grid: the id of a cell is its UTM zone, but {stray.id} is elsewhere")
        if len(rows) < 2 or not frame.is_apart:
            raise BadInputError(f"{name} is not a grid: its cells need different ids, and columns that do not overlap")
        return frame

    @property
    def is_apart(self) -> bool:
        """Whether ids differ and cells are in order and apart in the frame."""
        ends = [(cell.column, cell.column + cell.shape[1]) for cell in self.cells]
        in_order = all(before[1] + GAP <= after[0] for before, after in pairwise(ends))
        return in_order and ends[0][0] >= 0 and len({cell.id for cell in self.cells}) == len(self.cells)

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Height and width of the frame in pixels."""
        return max(cell.shape[0] for cell in self.cells), self.cells[-1].column + self.cells[-1].shape[1]

    @property
    def only(self) -> "GeoBox | None":
        """The grid of a run with one cell; None where there are several."""
        return self.cells[0].grid if len(self.cells) == 1 else None

    def parts_in_cells(self, window: PixelWindow) -> Iterator[tuple[Cell, PixelWindow, PixelWindow]]:
        """The cells that a window of the frame reaches, with their part by positions in the cell and in the window.

        A window that is less than `GAP` wide reaches one at most. Cells differ in height, and chips may reach beyond
        them.
        """
        for cell in self.cells:
            if part := common_part(window, cell.window):
                yield cell, within(part, cell.window), within(part, window)

    def hectares(self, y: slice, x: slice) -> Float64Array:
        """The area (y, x) on the ground of each pixel of a window of the frame; 0 beyond its cells."""
        areas = np.zeros((y.stop - y.start, x.stop - x.start))
        for cell, in_cell, in_window in self.parts_in_cells((y, x)):
            areas[in_window] = pixel_hectares(cell.grid, *in_cell)
        return areas

    def belonging(self, y: slice, x: slice) -> BoolArray:
        """Mask (y, x) of the pixels of a window of the frame that belong to a cell."""
        out = np.zeros((y.stop - y.start, x.stop - x.start), bool)
        for cell, in_cell, in_window in self.parts_in_cells((y, x)):
            out[in_window] = cell.belongs(*in_cell)
        return out

    def cell(self, name: str) -> Cell:
        """A cell by its id; raises BadInputError if there is none."""
        for cell in self.cells:
            if cell.id == name:
                return cell
        available = ", ".join(cell.id or "one without a name" for cell in self.cells)
        raise BadInputError(f"the run has no cell {name!r}; it has {available}")

    def json(self) -> dict[str, Any]:
        """The content of a grid file: of a single cell its grid alone."""
        return grid_json(self.only) if self.only is not None else {"cells": [cell.json() for cell in self.cells]}

    def is_same(self, other: "Frame") -> bool:
        """Whether positions mean the same in both."""
        return len(self.cells) == len(other.cells) and all(
            (a.id, a.column) == (b.id, b.column) and same_grid(a.grid, b.grid)
            for a, b in zip(self.cells, other.cells, strict=True)
        )


def read_frame(path: Path) -> Frame:
    """Read the grid file of a run, with its cells. Raises BadInputError for a file that is not one."""
    return Frame.of_document(read_json(path), str(path))


def utm_zone(crs: str) -> tuple[int, bool] | None:
    """Number of the UTM zone of a CRS and whether it is the northern one; None for another CRS.

    >>> utm_zone("EPSG:32733"), utm_zone("EPSG:3035")
    ((33, False), None)
    """
    authority, _, code = crs.rpartition(":")
    number = int(code) if code.isdigit() else 0
    is_utm = authority.upper() == "EPSG" and number // 100 in (326, 327) and 1 <= number % 100 <= 60
    return (number % 100, number // 100 == 326) if is_utm else None


def cell_id(crs: str) -> str:
    """The id of the cell of a UTM zone.

    >>> cell_id("EPSG:32733")
    'utm33s'
    """
    zone = utm_zone(crs)
    if zone is None:
        raise BadInputError(f"{crs} is not a UTM zone, and cells are in UTM zones")
    return f"utm{zone[0]:02}{'n' if zone[1] else 's'}"


def _zone_of_id(name: str) -> tuple[int, bool]:
    """Number of the UTM zone of a cell's places, and whether it is the northern one."""
    match = CELL_ID.fullmatch(name)
    return (int(match[1]), match[2] == "n") if match else (0, True)


def _place_order(placed: tuple[str, "GeoBox"]) -> tuple[str, float, float]:
    """By zone, of one zone the northern hemisphere first; then from west to east, and from north to south."""
    zone, grid = placed
    return zone, float(grid.affine.c), -float(grid.affine.f)
