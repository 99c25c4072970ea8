"""The pixels of a published map as the population of a sample: counted by stratum, and drawn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, IntArray
from eopipe.errors import BadInputError, UsageError
from eopipe.inference.finished_maps import WINDOW, FinishedMap, read_finished_maps
from eopipe.tiles.geotiff import open_map, read_window
from eopipe.tiles.globe import to_degrees
from eopipe.tiles.grid import PixelWindow, windows
from eopipe.tiles.ground import pixel_hectares
from eopipe.tiles.store import NO_LABEL

# Strata of a map of values: of equal numbers of pixels, by the values of about as many pixels as are read for it.
BINS, BINNED_PIXELS = 5, 100_000


@dataclass(frozen=True)
class DrawnPixel:
    """A sampled pixel: the number of its map, its place there, its stratum, class or value, and hectares."""

    map: int
    row: int
    column: int
    stratum: int
    mapped: float
    hectares: float
    longitude: float
    latitude: float


@dataclass(frozen=True)
class StratumCounts:
    """Pixels (window, stratum) of each window of the maps, and hectares (stratum,) of all."""

    pixels: IntArray
    hectares: Float64Array

    @property
    def total_pixels(self) -> IntArray:
        return np.asarray(self.pixels.sum(0))


@dataclass(frozen=True)
class Population:
    """The mapped pixels of one map, or of the maps of the cells of a run, of which no two show the same ground.

    Strata are the classes, of values intervals between `edges`.
    """

    maps: tuple[FinishedMap, ...]

    @classmethod
    def open(cls, paths: Sequence[Path]) -> "Population":
        """Open maps. Raises BadInputError for maps of the same ground, UsageError for several labels of each chip."""
        maps = tuple(read_finished_maps(paths))
        if maps[0].task.has_label_sets:
            raise UsageError(
                f"{maps[0].classes} has several labels for each chip; a stratified sample needs classes that exclude "
                "each other, or values"
            )
        cells: dict[str, FinishedMap] = {}
        for each in maps:
            if (other := cells.setdefault(each.cell, each)) is not each:
                raise BadInputError(
                    f"{other.classes} and {each.classes} are maps of the same ground; give the map of one date"
                )
        return cls(maps)

    @cached_property
    def edges(self) -> Float64Array:
        """Between intervals that have about the same numbers of pixels of a map of values; none of one of classes."""
        if not self.maps[0].quantity:
            return np.empty(0)
        total = sum(each.grid.shape[0] * each.grid.shape[1] for each in self.maps)
        step = max(int((total / BINNED_PIXELS) ** 0.5), 1)
        values = [read_window(file, *window)[0, ::step, ::step].ravel() for _, window, file in self.windows()]
        finite = np.concatenate(values).astype(np.float64)
        finite = finite[np.isfinite(finite)]
        if not len(finite):
            raise BadInputError(f"{self.maps[0].classes} has no mapped pixel")
        edges = np.unique(np.quantile(finite, np.arange(1, BINS) / BINS))
        # The lowest interval has pixels too.
        return np.asarray(edges[edges > finite.min()])

    @cached_property
    def stratum_names(self) -> tuple[str, ...]:
        """The classes, or the intervals of the values."""
        first = self.maps[0]
        if not first.quantity:
            return first.names
        texts = [f"{edge:.4g}" for edge in self.edges]
        inner = [f"{low} to {high}" for low, high in pairwise(texts)]
        return (f"below {texts[0]}", *inner, f"from {texts[-1]}") if texts else ("all",)

    def windows(self) -> Iterator[tuple[int, PixelWindow, Any]]:
        """The windows of all maps: the number of the map, rows and columns, and the opened map."""
        for number, each in enumerate(self.maps):
            with open_map(each.classes) as file:
                for window in windows(file.shape, WINDOW):
                    yield number, window, file

    def read(self, number: int, window: PixelWindow, file: Any) -> tuple[AnyArray, AnyArray]:
        """Mapped classes or values (y, x), and strata (y, x), 255 where nothing is mapped."""
        finished = self.maps[number]
        if not finished.quantity:
            classes = finished.read_classes(file, *window)
            return classes, classes
        values = read_window(file, *window)[0]
        strata = np.searchsorted(self.edges, values, "right").astype(np.uint8)
        return values, np.where(np.isfinite(values), strata, np.uint8(NO_LABEL))

    def count(self) -> StratumCounts:
        """Count the pixels of each stratum, window by window. Raises BadInputError for a map without any."""
        strata, rows, hectares = len(self.stratum_names), list[IntArray](), np.zeros(len(self.stratum_names))
        for number, window, file in self.windows():
            _, numbers = self.read(number, window, file)
            is_mapped = numbers != NO_LABEL
            rows.append(np.bincount(numbers[is_mapped], minlength=strata))
            if is_mapped.any():
                areas = pixel_hectares(self.maps[number].grid, *window)
                hectares += np.bincount(numbers[is_mapped], areas[is_mapped], strata)
        counts = StratumCounts(np.array(rows, np.int64), hectares)
        if not counts.total_pixels.any():
            raise BadInputError(f"{self.maps[0].classes} has no mapped pixel")
        return counts

    def mean(self) -> float:
        """The mean of the values by area."""
        total = np.zeros(2)
        for number, window, file in self.windows():
            values, _ = self.read(number, window, file)
            is_mapped = np.isfinite(values)
            if is_mapped.any():
                areas = pixel_hectares(self.maps[number].grid, *window)[is_mapped]
                total += (areas * values[is_mapped]).sum(), areas.sum()
        return float(total[0] / total[1])

    def draw(self, counts: StratumCounts, sizes: IntArray, seed: int) -> list[DrawnPixel]:
        """Draw that many pixels of each stratum without replacement, all as likely, and in random order."""
        generator = np.random.default_rng(seed)
        ranks = [
            np.sort(generator.choice(int(pixels), int(size), replace=False, shuffle=False))
            for pixels, size in zip(counts.total_pixels, sizes, strict=True)
        ]
        before = np.cumsum(counts.pixels, 0) - counts.pixels
        drawn = list[DrawnPixel]()
        for index, (number, window, file) in enumerate(self.windows()):
            places = [
                ranks[stratum][slice(*np.searchsorted(ranks[stratum], (start, start + count)))] - start
                for stratum, (start, count) in enumerate(zip(before[index], counts.pixels[index], strict=True))
            ]
            if sum(map(len, places)):
                drawn += self._pixels(number, window, file, places)
        return [drawn[n] for n in generator.permutation(len(drawn))]

    def _pixels(self, number: int, window: PixelWindow, file: Any, places: list[IntArray]) -> Iterator[DrawnPixel]:
        """Pixels of a window by their places among those of each stratum, row by row."""
        mapped, strata = self.read(number, window, file)
        grid = self.maps[number].grid
        hectares = pixel_hectares(grid, *window)
        for stratum, of_stratum in enumerate(places):
            rows, columns = np.divmod(np.flatnonzero(strata == stratum)[of_stratum], strata.shape[1])
            x, y = grid.affine * (columns + window[1].start + 0.5, rows + window[0].start + 0.5)
            degrees = np.column_stack(to_degrees(str(grid.crs)).transform(x, y)) if len(rows) else np.empty((0, 2))
            for row, column, (longitude, latitude) in zip(
                rows.tolist(), columns.tolist(), degrees.tolist(), strict=True
            ):
                yield DrawnPixel(
                    number,
                    row + window[0].start,
                    column + window[1].start,
                    stratum,
                    float(mapped[row, column]),
                    float(hectares[row, column]),
                    longitude,
                    latitude,
                )


def mapped_at(maps: Sequence[FinishedMap], longitude: Float64Array, latitude: Float64Array) -> Float64Array:
    """Class numbers or values (n,) of the pixels that contain places; NaN where nothing is mapped."""
    mapped = np.full(len(longitude), np.nan)
    for each in maps:
        x, y = to_degrees(str(each.grid.crs)).transform(longitude, latitude, direction="INVERSE")
        columns, rows = (np.floor(axis) for axis in ~each.grid.affine * (np.asarray(x), np.asarray(y)))
        with open_map(each.classes) as file, np.errstate(invalid="ignore"):
            inside = (rows >= 0) & (rows < file.height) & (columns >= 0) & (columns < file.width)
            for n in np.flatnonzero(inside).tolist():
                row, column = int(rows[n]), int(columns[n])
                value = read_window(file, slice(row, row + 1), slice(column, column + 1))[0, 0, 0]
                is_mapped = np.isfinite(value) and value != file.nodata
                # Where cells overlap, the ground has data in one of them.
                mapped[n] = float(value) if is_mapped else mapped[n]
    return mapped
