"""The units of the places of a split, which are the pieces of intervals: what the split keeps whole, or squares."""

import numpy as np

from eopipe.arrays import IntArray
from eopipe.chips.chip_blocks import chips_in
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.chip_table import ChipTable, equal_area_blocks
from eopipe.errors import BadInputError
from eopipe.evaluation.correlation import SamplingUnits, UnitOf, placed_units, square_units
from eopipe.evaluation.maps import EvaluatedMap, EvaluationData
from eopipe.evaluation.metrics_document import MIN_PIECES
from eopipe.tiles.grid import PixelWindow


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
    return square_units(windows, data.frame.shape[1], split.chip, split.chip if data.task.is_of_chips else 1)


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
