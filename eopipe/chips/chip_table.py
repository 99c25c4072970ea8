"""The table of the chips of a run: one row a chip, with its place in a store and on the Earth, its scene and its index.

Chips of one grid, of the grids of several UTM zones, and of a chip set, each at a place of its own, fill one table;
what splits and audits them reads its columns. Chips of one grid are apart by rows or columns, whichever is more, in
whole pixels. Others are apart on the ellipsoid: below 50 km along the axes of a chip, so that chips that touch are 0
apart, else on a great circle.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Protocol, Self

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, IntArray, UInt8Array
from eopipe.chips.chip_places import OUTLINE, ChipPlaces
from eopipe.chips.splits import KEPT_APART, NO_SPLIT
from eopipe.errors import UsageError
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.grid import EARTH_RADIUS_M
from eopipe.tiles.ground import pixel_metres

# WGS 84: semi-major axis in metres, and squared eccentricity.
SEMI_MAJOR_M, SQUARED_ECCENTRICITY = 6378137.0, 6.69437999014e-3
# Pairs of chips that are measured at a time, which bounds the memory.
MAX_PAIRS = 250_000
# From this distance on chips are points, but for their size.
FAR_M = 50_000.0
# A distance that no two chips of one day have, in pixels or metres.
OTHER_DAY = 1 << 40
# The grid of a chip that is on none, but at a place of its own.
NO_GRID = -1


class SplitScene(Protocol):
    """What a split asks of a scene: a store of tiles, one that is planned, or the image file of a chip of a set."""

    @property
    def scene(self) -> str: ...

    @property
    def attributes(self) -> dict[str, Any]:
        """`datetime` and `grid:code`, where it has them."""


class SplitImage(SplitScene, Protocol):
    """A scene on the grids of a run."""

    @property
    def frame(self) -> Frame: ...

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the frame in pixels."""


@dataclass(frozen=True)
class SourceFile:
    """The image file of a chip of a set, as a scene that is split."""

    scene: str
    attributes: dict[str, Any]


@dataclass(frozen=True)
class ChipGround:
    """Where chips are on the Earth: longitude and latitude of their centres (n, 2) and along their outlines (n, 8, 2).

    `pixel_m` is the edge of a pixel in metres, the largest of all chips.
    """

    degrees: Float64Array
    outlines: Float64Array
    pixel_m: float

    @classmethod
    def of_set(cls, places: ChipPlaces) -> Self:
        sizes = np.array([(row["width"], row["height"]) for row in places.records], np.float64)
        ground = cls(places.degrees, places.outlines, 1.0)
        return replace(ground, pixel_m=float((2 * ground.half_edges / sizes).max()))

    @classmethod
    def of_grids(cls, cells: Sequence[Cell], grids: IntArray, corners: IntArray, chip: int) -> Self:
        """Chips with corners (row, column) in the frame of some cells; `grids` (n,) has the number of the cell."""
        degrees, outlines = np.empty((len(corners), 2)), np.empty((len(corners), len(OUTLINE), 2))
        for number, cell in enumerate(cells):
            chosen, affine = grids == number, cell.grid.affine
            positions = corners[chosen, None, ::-1] - (cell.column, 0) + chip * np.vstack([OUTLINE, [(0.5, 0.5)]])
            x, y = (affine.c + affine.a * positions[..., 0], affine.f + affine.e * positions[..., 1])
            around = np.stack(cell.degrees(x, y), -1)
            outlines[chosen], degrees[chosen] = around[:, :-1], around[:, -1]
        return cls(degrees, outlines, max(edge for cell in cells for edge in pixel_metres(cell.grid)))

    def select(self, rows: IntArray) -> Self:
        return replace(self, degrees=self.degrees[rows], outlines=self.outlines[rows])

    @cached_property
    def centres(self) -> Float64Array:
        """Geocentric coordinates (n, 3) of the centres in metres."""
        return geocentric(self.degrees)

    @cached_property
    def half_axes(self) -> Float64Array:
        """Vectors (n, 2, 3) in metres: from the centre of a chip to the middle of its right and lower edge."""
        points = geocentric(self.outlines)
        return np.stack([points[:, 3] - points[:, 7], points[:, 5] - points[:, 1]], 1) / 2

    @cached_property
    def half_edges(self) -> Float64Array:
        """Half the width and half the height (n, 2) of each chip in metres."""
        return np.asarray(np.linalg.norm(self.half_axes, axis=-1), np.float64)

    def gaps(self, first: IntArray, second: IntArray, days: IntArray | None = None) -> tuple[Float64Array, IntArray]:
        """For each chip (number) of `second`: metres to the nearest chip of `first`, and its position in `first`.

        The gap is negative where they overlap. With the day (n,) of each chip, chips of other days are far away.
        """
        from scipy.spatial import cKDTree

        points = self.centres if days is None else np.column_stack([self.centres, days * float(OTHER_DAY)])
        tree = cKDTree(points[first])
        distance, nearest = tree.query(points[second])
        gaps = self._gap(first[nearest], second)
        gaps[distance >= OTHER_DAY] = OTHER_DAY
        # Another chip may be nearer by its edges than the one with the nearest centre.
        close = np.flatnonzero(distance < FAR_M)
        # A chip with a smaller gap than that with the nearest centre is at most so far away, in any direction.
        reach = 1.42 * (np.maximum(gaps[close], 0) + 2.42 * float(self.half_edges.max()))
        reach = np.maximum(reach, 1.001 * distance[close])
        counts = tree.query_ball_point(points[second[close]], reach, return_length=True)
        for part in np.split(np.arange(len(close)), np.flatnonzero(np.diff(np.cumsum(counts) // MAX_PAIRS)) + 1):
            chips = close[part]
            lists = tree.query_ball_point(points[second[chips]], reach[part], return_sorted=True)
            others = np.array([*chain.from_iterable(lists)], np.int64)
            values = self._gap(first[others], np.repeat(second[chips], counts[part]))
            ends = np.cumsum(counts[part])
            for chip, end, count in zip(chips.tolist(), ends.tolist(), counts[part].tolist(), strict=True):
                best = end - count + int(values[end - count : end].argmin())
                if values[best] < gaps[chip]:
                    gaps[chip], nearest[chip] = values[best], others[best]
        return gaps, nearest

    def _gap(self, first: IntArray, second: IntArray) -> Float64Array:
        """Metres between chips (n,) of the same order; the first counts with the box around it along the second."""
        moved = self.centres[first] - self.centres[second]
        halves = self.half_edges
        axes = self.half_axes[second] / halves[second][..., None]
        around = np.abs(np.einsum("nbk,nak->nba", self.half_axes[first], axes)).sum(1)
        along = np.abs(np.einsum("nk,nak->na", moved, axes)) - (around + halves[second])
        chord = np.linalg.norm(moved, axis=1)
        arc = 2 * EARTH_RADIUS_M * np.arcsin(np.minimum(chord / (2 * EARTH_RADIUS_M), 1))
        size = np.linalg.norm(halves[first], axis=1) + np.linalg.norm(halves[second], axis=1)
        return np.asarray(np.where(chord < FAR_M, along.max(1), arc - size), np.float64)

    def overlapping(self, first: IntArray, second: IntArray) -> tuple[IntArray, IntArray]:
        """Position in `second` and in `first` of all pairs of chips (numbers) that overlap by half a pixel or more."""
        reach = 2.83 * float(self.half_edges[np.concatenate([first, second])].max(initial=0.0))
        index, partner = _neighbours(self.centres[first], self.centres[second], reach)
        is_overlap = self._gap(first[partner], second[index]) <= -self.pixel_m / 2
        return index[is_overlap], partner[is_overlap]


@dataclass(frozen=True)
class ChipTable:
    """The chips of a run, one row each: samples (n, 3) of store, row and column, edge `chip` in pixels.

    `grids` (n,) is the number of the cell of each chip, -1 of one at a place of its own; `scenes` (n,) the number of
    its image. `index` has the rows of a chip set, with a value in each of its columns; it is empty for chips on grids.
    """

    chip: int
    samples: IntArray
    cells: tuple[Cell, ...]
    grids: IntArray
    images: tuple[SplitScene, ...]
    scenes: IntArray
    index: tuple[Mapping[str, Any], ...]
    place: Callable[[], ChipGround]

    @classmethod
    def of_grids(cls, images: Sequence[SplitImage], samples: IntArray, chip: int) -> Self:
        """Chips at positions in the frame of a run."""
        cells = images[0].frame.cells
        starts = [cell.column for cell in cells]
        grids = np.searchsorted(starts, samples[:, 2], "right") - 1

        def place() -> ChipGround:
            return ChipGround.of_grids(cells, grids, samples[:, 1:], chip)

        return cls(chip, samples, cells, grids, tuple(images), samples[:, 0], (), place)

    @classmethod
    def of_set(cls, places: ChipPlaces) -> Self:
        """The chips of a set; the scene of a chip is the file that it is from."""
        files = [(str(row["source"]), str(row["date"] or "")) for row in places.records]
        distinct = sorted(set(files))
        numbers = {file: number for number, file in enumerate(distinct)}
        images = tuple(SourceFile(source, {"datetime": date}) for source, date in distinct)
        scenes = np.array([numbers[file] for file in files], np.int64)
        nowhere = np.full(len(files), NO_GRID)
        return cls(
            places.slot, places.samples, (), nowhere, images, scenes, places.records, lambda: ChipGround.of_set(places)
        )

    @cached_property
    def ground(self) -> ChipGround:
        """Where the chips are on the Earth; computed where it is needed, for one grid it is not."""
        return self.place()

    def select(self, rows: IntArray) -> Self:
        index = tuple(self.index[row] for row in rows) if self.index else ()
        return replace(
            self,
            samples=self.samples[rows],
            grids=self.grids[rows],
            scenes=self.scenes[rows],
            index=index,
            place=lambda: self.ground.select(rows),
        )

    def name(self, row: int) -> str:
        if self.index:
            return f"chip {self.index[row]['id']}"
        _, y, x = self.samples[row].tolist()
        return f"chip of scene {self.images[self.scenes[row]].scene}, row {y}, column {x}"

    def column(self, name: str) -> list[str | None]:
        """A column of the index as texts. Raises UsageError without an index, or for a column that it does not have."""
        if not self.index:
            raise UsageError("split.by column needs a chip set (eopipe import), which has an index")
        columns = sorted({key for row in self.index for key in row} - {"transform"})
        if name not in columns:
            raise UsageError(f"the index of the chips has no column {name}; it has {', '.join(columns)}")
        values = (row.get(name) for row in self.index)
        return [None if value is None else str(value) for value in values]

    def gaps(self, first: IntArray, second: IntArray, days: IntArray | None = None) -> tuple[Float64Array, IntArray]:
        """For each chip (row) of `second`: the gap in pixels to the nearest chip of `first`, and its position there.

        Negative where they overlap, rounded to whole pixels of the largest edge between chips of different grids.
        With the day (n,) of each chip, chips of other days are far away.
        """
        gaps, nearest = np.full(len(second), np.inf), np.zeros(len(second), np.int64)
        for numbers, chosen, is_on_grid in self._parts(first, second):
            if is_on_grid:
                values, index = self._on_grid(first[numbers], second[chosen], days)
            else:
                metres, index = self.ground.gaps(first[numbers], second[chosen], days)
                values = np.round(metres / self.ground.pixel_m)
            is_closer = values < gaps[chosen]
            gaps[chosen[is_closer]] = values[is_closer]
            nearest[chosen[is_closer]] = numbers[index[is_closer]]
        return gaps, nearest

    def _parts(self, first: IntArray, second: IntArray) -> Iterator[tuple[IntArray, IntArray, bool]]:
        """Positions in `first` and in `second` of chips on each grid, and of others beside those on it; and which."""
        for grid in np.unique(self.grids[second]).tolist():
            is_same = (self.grids[first] == grid) & (grid != NO_GRID)
            for is_on_grid in (True, False):
                if len(numbers := np.flatnonzero(is_same == is_on_grid)):
                    yield numbers, np.flatnonzero(self.grids[second] == grid), is_on_grid

    def _on_grid(self, first: IntArray, second: IntArray, days: IntArray | None) -> tuple[Float64Array, IntArray]:
        """Gaps between chips of one grid, in whole pixels."""
        from scipy.spatial import cKDTree

        points = np.column_stack([self.samples[:, 1:], 0 * self.scenes if days is None else days * OTHER_DAY])
        corners, number = np.unique(points[first], axis=0, return_index=True)
        distance, nearest = cKDTree(corners).query(points[second], p=np.inf)
        return distance - self.chip, number[nearest]

    def overlapping(self, first: IntArray, second: IntArray) -> tuple[IntArray, IntArray]:
        """Position in `second` and in `first` of all pairs of chips (rows) that show a place together."""
        pairs = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for numbers, chosen, is_on_grid in self._parts(first, second):
            if is_on_grid:
                corners = (self.samples[first[numbers], 1:], self.samples[second[chosen], 1:])
                # Corners are whole pixels.
                index, partner = _neighbours(*corners, self.chip - 0.5, np.inf)
            else:
                index, partner = self.ground.overlapping(first[numbers], second[chosen])
            pairs.append((chosen[index], numbers[partner]))
        index, partner = (np.concatenate(part) for part in zip(*pairs, strict=True))
        return index, partner

    def keep_apart(self, splits: UInt8Array, buffer: int) -> UInt8Array:
        """Remove chips that overlap chips of the splits from which theirs is kept apart, or are in the buffer (pixels).

        First val chips near to test chips, then train chips near to either.
        """
        for number in sorted(KEPT_APART, reverse=True):
            chosen, others = np.flatnonzero(splits == number), np.flatnonzero(np.isin(splits, KEPT_APART[number]))
            if len(chosen) and len(others):
                gaps, _ = self.gaps(others, chosen)
                splits[chosen[gaps < buffer]] = NO_SPLIT
        return splits


def _neighbours(first: AnyArray, second: AnyArray, reach: float, norm: float = 2.0) -> tuple[IntArray, IntArray]:
    """Index in `second` and in `first` of all pairs of points (n, axis) that are at most so far apart, in a norm."""
    from scipy.spatial import cKDTree

    lists = cKDTree(first).query_ball_point(second, reach, p=norm, return_sorted=True)
    index = np.repeat(np.arange(len(second)), [len(partners) for partners in lists])
    return index, np.array([*chain.from_iterable(lists)], np.int64)


def geocentric(degrees: Float64Array) -> Float64Array:
    """Geocentric coordinates (…, 3) in metres of longitude and latitude (…, 2) on the ellipsoid of WGS 84."""
    longitude, latitude = np.radians(degrees[..., 0]), np.radians(degrees[..., 1])
    normal = SEMI_MAJOR_M / np.sqrt(1 - SQUARED_ECCENTRICITY * np.sin(latitude) ** 2)
    across = normal * np.cos(latitude)
    z = normal * (1 - SQUARED_ECCENTRICITY) * np.sin(latitude)
    return np.stack([across * np.cos(longitude), across * np.sin(longitude), z], -1)


def equal_area_blocks(degrees: Float64Array, edge_km: float) -> IntArray:
    """The block (row, column) of each place (n, 2): rows of this height, each cut into equal parts of about this width.

    Blocks have the same area but for the rounding to whole numbers of a row, which matters near the poles only.
    """
    radius = EARTH_RADIUS_M / 1000
    rows = np.floor(radius * np.radians(degrees[:, 1] + 90) / edge_km).astype(np.int64)
    middle = np.minimum((rows + 0.5) * edge_km / radius, np.pi)
    counts = np.maximum(np.round(2 * np.pi * radius * np.sin(middle) / edge_km), 1)
    columns = np.floor((degrees[:, 0] + 180) % 360 / 360 * counts).astype(np.int64)
    return np.stack([rows, columns], -1)
