"""How far errors are correlated in the test areas, and how many independent pieces the areas amount to.

The errors of neighbouring pixels are alike, so a test area is worth fewer observations than it has pixels. The error
rates of units (small squares, or what the split keeps whole) are modelled as a field with an exponential correlation
and a nugget. A grid of ranges and nuggets is weighted by the restricted likelihood, which needs no mean (REML,
Patterson and Thompson 1971, Biometrika 58, 545-554). Each gives a design effect: the variance of the sum over all
units, relative to independent units (Kish 1965; effective sample size, Griffith 2005,
doi:10.1111/j.1467-8306.2005.00484.x); the weighted median counts.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, IntArray
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.chip_table import ChipTable, equal_area_blocks
from eopipe.chips.chips import chips_in
from eopipe.errors import BadInputError
from eopipe.evaluation.maps import EvaluatedMap, EvaluationData
from eopipe.evaluation.metrics_document import MIN_PIECES
from eopipe.tiles.grid import PixelWindow

# Bounds the eigenvectors; a range shorter than a unit is of no consequence for pieces.
MAX_UNITS = 400
NUGGETS = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
# The range is the distance at which the correlation of units has fallen to this.
RANGE_LEVEL = 0.1

# The units (n,) of pixels of a map, by its number and their rows and columns.
UnitOf = Callable[[int, IntArray, IntArray], IntArray]


@dataclass(frozen=True)
class SamplingUnits:
    """The squares of the grid in which the test areas are counted, over all maps; or units of another kind (edge 0).

    `used` are the numbers of the squares with test pixels, row by row, or of the units, ascending. Units are whole
    maps, blocks of the Earth of a chip set, or polygons or groups, whose `centres` (n, axis) are in pixels.
    """

    columns: int
    edge: int
    used: IntArray
    unit_of: UnitOf | None = None
    kind: str = "maps"
    centres: Float64Array | None = None

    @property
    def are_independent(self) -> bool:
        """Whether units have no places, so that no correlation of their errors can be measured."""
        return not self.edge and self.centres is None

    def within(self, chosen: AnyArray) -> "SamplingUnits":
        """Some of the units, with their centres."""
        return replace(self, used=self.used[chosen], centres=None if self.centres is None else self.centres[chosen])

    def index_of(self, number: int, rows: IntArray, cols: IntArray) -> IntArray:
        """Index into `used` of each pixel of a map."""
        if self.unit_of is not None and len(rows):
            return np.searchsorted(self.used, self.unit_of(number, rows, cols))
        if not self.edge:
            return np.full(len(rows), np.searchsorted(self.used, number))
        return np.searchsorted(self.used, rows // self.edge * self.columns + cols // self.edge)

    def count_pairs(self, index: IntArray, pair: IntArray, pairs: int) -> IntArray:
        """Counts (unit, pair) of pixels by unit and by pair of true and mapped class."""
        count = len(self.used) * pairs
        return np.bincount(index * pairs + pair, minlength=count).reshape(-1, pairs)

    def sum_parts(self, index: IntArray, parts: Float64Array) -> Float64Array:
        """Sums (unit, part) of parts (part, n)."""
        return np.stack([np.bincount(index, part, len(self.used)) for part in parts], 1)

    @cached_property
    def corners(self) -> IntArray:
        """Row and column of the first pixel of each square (n, 2)."""
        return np.stack(np.divmod(self.used, self.columns), 1) * self.edge

    def squares(self, edge: int) -> IntArray:
        """Number of the square of `edge` pixels, or of the unit if that is larger, that contains each unit."""
        if edge <= self.edge or not self.edge:
            return np.arange(len(self.used))
        rows, cols = (self.corners // edge).T
        return np.asarray(np.unique(rows * (cols.max() + 1) + cols, return_inverse=True)[1], np.int64)


def square_units(areas: Iterable[tuple[PixelWindow, BoolArray]], width: int, base: int, finest: int) -> SamplingUnits:
    """The finest squares of the areas in windows of a raster of this width, at most `MAX_UNITS`.

    Their edge is `base` halved or doubled, and a multiple of `finest`.
    """
    edge = base
    while edge % 2 == 0 and edge // 2 % finest == 0:
        edge //= 2
    used = np.empty((0, 2), np.int64)
    for window, area in areas:
        squares = (np.argwhere(area) + [axis.start for axis in window]) // edge
        used = np.unique(np.concatenate([used, squares]), axis=0)
        # Too many squares of a part are too many of all.
        while len(used) > MAX_UNITS:
            edge, used = 2 * edge, np.unique(used // 2, axis=0)
    columns = -(-width // edge)
    return SamplingUnits(columns, edge, used[:, 0] * columns + used[:, 1])


def placed_units(sizes: IntArray, sums: AnyArray, unit_of: UnitOf, kind: str = "polygons") -> SamplingUnits:
    """Units of whole polygons or groups: each one, or those with a centre in one square where over `MAX_UNITS` are.

    `sizes` (polygon,) are test pixels of each polygon, or chips of each group, `sums` (polygon, axis) the sums of their
    places; `unit_of` gives the polygons of pixels.
    """
    polygons = np.flatnonzero(sizes)
    centres, edge = sums[polygons] / sizes[polygons, None], 1.0
    units = np.arange(len(polygons))
    while units.max(initial=0) >= MAX_UNITS:
        units, edge = np.unique(centres // edge, axis=0, return_inverse=True)[1].ravel(), 2 * edge
    of_polygon = np.zeros(len(sizes), np.int64)
    of_polygon[polygons] = units
    weights = np.bincount(units, sizes[polygons])
    places = np.stack([np.bincount(units, axis) / weights for axis in sums[polygons].T], 1)

    def unit(number: int, rows: IntArray, cols: IntArray) -> IntArray:
        return of_polygon[unit_of(number, rows, cols)]

    return SamplingUnits(0, 0, np.arange(len(weights)), unit, kind, places)


def _nearest(distance: Float64Array) -> float:
    """The median distance of a place to the nearest other one, at least a pixel."""
    others = distance + np.where(np.eye(len(distance)), np.inf, 0)
    nearest = others.min(1, initial=np.inf)
    return max(float(np.median(nearest)), 1.0) if np.isfinite(nearest).any() else 1.0


class Correlation:
    """Correlations that a field of units may have, on a grid of ranges and nuggets, and how likely each is."""

    def __init__(self, units: SamplingUnits) -> None:
        """Prepare the likelihood for some units."""
        self.units = units
        places = units.corners.astype(np.float64) if units.centres is None else units.centres
        difference = places[:, None] - places[None]
        self.distance = np.hypot.reduce(difference, -1)
        step = units.edge or _nearest(self.distance)
        count = 2 * np.log2(max(self.distance.max(initial=0), step) / step) + 3
        self.ranges = step * 2.0 ** (np.arange(int(count)) / 2 - 1)

    @cached_property
    def _bases(self) -> list[tuple[Float64Array, Float64Array]]:
        """Eigenvalues and eigenvectors of the correlation matrix without a nugget, for each range."""
        return [np.linalg.eigh(np.exp(-self.distance / length)) for length in self.ranges]

    def likelihood(self, fields: Float64Array) -> Float64Array:
        """Weights (field, range, nugget) of fields (field, unit), which add up to 1 for each field.

        A constant field says nothing about its correlation, and is treated as uncorrelated.
        """
        degrees, centred = fields.shape[1] - 1, fields - fields.mean(1, keepdims=True)
        log = np.empty((len(fields), len(self.ranges), len(NUGGETS)))
        for number, (values, vectors) in enumerate(self._bases):
            turned, constant = centred @ vectors, vectors.sum(0)
            for column, nugget in enumerate(NUGGETS):
                inverse = 1 / np.maximum((1 - nugget) * values + nugget, 1e-9)
                mean = (inverse * constant**2).sum()
                residual = turned**2 @ inverse - (turned @ (inverse * constant)) ** 2 / mean
                logarithm = np.log(np.maximum(residual, 1e-300))
                log[:, number, column] = (np.log(inverse).sum() - np.log(mean) - degrees * logarithm) / 2
        likelihood = np.exp(log - log.max((1, 2), keepdims=True))
        likelihood[np.ptp(fields, 1) == 0] = np.array(NUGGETS) == 1
        return np.asarray(likelihood / likelihood.sum((1, 2), keepdims=True))

    def design_effects(self, weights: Float64Array, likelihood: Float64Array) -> Float64Array:
        """The design effect of fields, at least 1, for units with these weights; likelihoods (field, range, nugget)."""
        pairs = np.array([values @ (vectors.T @ weights) ** 2 for values, vectors in self._bases])
        nugget = np.array(NUGGETS)
        effects = (1 - nugget) * (pairs / (weights**2).sum())[:, None] + nugget
        return np.maximum(_medians(effects, likelihood), 1.0)

    def distances(self, likelihood: Float64Array) -> Float64Array:
        """The range of fields in pixels: where the correlation falls to `RANGE_LEVEL`, 0 where it is never higher."""
        begin = 1 - np.array(NUGGETS)
        decay = np.log(np.maximum(begin, RANGE_LEVEL) / RANGE_LEVEL)
        return _medians(self.ranges[:, None] * decay, likelihood)


def _medians(values: Float64Array, likelihood: Float64Array) -> Float64Array:
    """Weighted medians of values (range, nugget) by likelihoods (field, range, nugget)."""
    order = np.argsort(values, axis=None, kind="stable")
    share = likelihood.reshape(len(likelihood), -1)[:, order].cumsum(1)
    return np.asarray(values.ravel()[order][(share < 0.5).sum(1).clip(0, len(order) - 1)])


def choose_units(data: EvaluationData, places: str = "test") -> SamplingUnits:
    """Choose the units of the places of a split: polygons, points, groups or scenes where these are split.

    Else, and of fewer than `MIN_PIECES` dates, blocks of the Earth of a chip set, whose slots are not places, or
    squares over all maps, whose measured correlation says how many are independent; so also where a split file has no
    groups, as before revision 9. No interval rests on fewer groups: squares would count what is alike in a group as
    often as there are squares in it.
    """
    split = data.split
    if split.polygons:
        return _polygons(data, places)
    of_set = ChipPlaces.of([group.stores[0] for group in data.groups]) if split.chip_set else None
    if split.chip_set and of_set is None:
        raise BadInputError("the split is of a chip set, but the tiles are not; give the tiles that were split")
    if split.groups and len(samples := split.samples[places]):
        return _groups(data, split.groups[places], samples, of_set)
    if split.chip_set and of_set:
        return _blocks(data, split.samples[places], of_set, split.chip_set.block_km)
    if split.by_scene:
        tested = sorted({group.number for group, _, area in data.areas(places) if area.any()})
        if len(tested) >= MIN_PIECES or split.plan.method == "group":
            return SamplingUnits(0, 0, np.array(tested))
    windows = ((window, area) for _, window, area in data.areas(places))
    # A chip of a classifier is one sample.
    return square_units(windows, data.frame.shape[1], split.chip, data.task.cell(split.chip))


def _blocks(data: EvaluationData, samples: IntArray, of_set: ChipPlaces, edge_km: float) -> SamplingUnits:
    """The blocks with chips of a split."""
    corners = equal_area_blocks(of_set.degrees[of_set.indices(samples)], edge_km)
    blocks = np.unique(corners, axis=0, return_inverse=True)[1].ravel()
    return SamplingUnits(0, 0, np.unique(blocks), _by_chip(data, samples, blocks), f"blocks of {edge_km:g} km")


def _groups(data: EvaluationData, names: list[str], samples: IntArray, of_set: ChipPlaces | None) -> SamplingUnits:
    """The groups of samples (n, 3) by their names, with their centres on the Earth."""
    if of_set:
        table = ChipTable.of_set(of_set).select(of_set.indices(samples))
    else:
        stores = {store.scene: store for group in data.groups for store in group.stores}
        table = ChipTable.of_grids([stores[scene] for scene in data.split.scenes], samples, data.split.chip)
    numbers = np.unique(names, return_inverse=True)[1]
    centres = table.ground.centres.T / table.ground.pixel_m
    sums = np.stack([np.bincount(numbers, axis) for axis in centres], 1)
    return placed_units(np.bincount(numbers), sums, _by_chip(data, samples, numbers), "groups")


def _by_chip(data: EvaluationData, samples: IntArray, numbers: IntArray) -> UnitOf:
    """The units (n,) of pixels of a map, from the units (n,) of the chips of a split."""
    chip, is_set = data.split.chip, data.split.chip_set is not None
    # On a grid the maps of all images have the same chips.
    placed = np.unique(np.column_stack([samples * [is_set, 1, 1], numbers]), axis=0)

    def unit_of(number: int, rows: IntArray, cols: IntArray) -> IntArray:
        y, x = (slice(int(axis.min()), int(axis.max()) + 1) for axis in (rows, cols))
        chips = placed[placed[:, 0] == number * is_set, 1:]
        units = np.zeros((y.stop - y.start, x.stop - x.start), np.int64)
        for row, col, unit in (chips[chips_in(chips[:, :2], chip, (y, x))] - [y.start, x.start, 0]).tolist():
            units[max(row, 0) : row + chip, max(col, 0) : col + chip] = unit
        return np.asarray(units[rows - y.start, cols - x.start])

    return unit_of


def _polygons(data: EvaluationData, places: str) -> SamplingUnits:
    """The polygons or points of a split, each once for all maps; another label store has other ones."""
    counts = {label: len(splits) + 1 for label, splits in sorted(data.split.polygons.items())}
    first = dict(zip(counts, np.cumsum([0, *counts.values()]).tolist(), strict=False))
    sizes, sums = np.zeros(sum(counts.values()), np.int64), np.zeros((sum(counts.values()), 2))

    def numbers_of(group: EvaluatedMap, window: PixelWindow) -> IntArray:
        return np.asarray(group.label.read("polygon", *window).astype(np.int64) + first[group.label.scene])

    def unit_of(number: int, rows: IntArray, cols: IntArray) -> IntArray:
        y, x = (slice(int(axis.min()), int(axis.max()) + 1) for axis in (rows, cols))
        return np.asarray(numbers_of(data.groups[number], (y, x))[rows - y.start, cols - x.start])

    for group, window, area in data.areas(places):
        rows, cols = np.nonzero(area)
        numbers = numbers_of(group, window)[rows, cols]
        sizes += np.bincount(numbers, minlength=len(sizes))
        for axis, position in enumerate((rows + window[0].start, cols + window[1].start)):
            sums[:, axis] += np.bincount(numbers, position, len(sizes))
    return placed_units(sizes, sums, unit_of, data.split.shapes.kind if data.split.shapes else "polygons")
