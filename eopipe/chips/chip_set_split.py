"""Splits of chip sets: blocks are equal-area cells of the Earth, groups are regions or a column of the index."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import IntArray, UInt8Array
from eopipe.chips.chip_gaps import ChipGaps
from eopipe.chips.chip_places import ChipPlaces, equal_area_cells
from eopipe.chips.groups import assign_groups, without_empty_splits
from eopipe.chips.splits import NO_SPLIT, SplitPlan, assign_at_random
from eopipe.errors import BadInputError, UsageError


def split_chip_set(
    places: ChipPlaces, samples: IntArray, plan: SplitPlan, block_km: float, regions: Path | None, attribute: str
) -> UInt8Array:
    """The split of each candidate (n, 3) by its true place, or by its row of the index; 255 for one in none."""
    if plan.method == "random":
        return assign_at_random(len(samples), plan)
    numbers = places.numbers(samples)
    units = np.empty(len(samples), object)
    if plan.method == "blocks":
        cells = equal_area_cells(places.degrees[numbers], block_km)
        units[:] = [tuple(cell) for cell in cells.tolist()]
        assigned: dict[Any, int] = _assign_cells(sorted(set(units)), plan, block_km)
    else:
        column = places.column(attribute) if plan.by == "column" else regions_of(places, regions, attribute)
        units[:] = [column[number] for number in numbers]
        names = sorted({unit for unit in units if unit is not None})
        assigned = dict(assign_groups(names, plan))
    splits = np.array([assigned.get(unit, NO_SPLIT) for unit in units], np.uint8)
    return ChipGaps(plan.chip, places=places).keep_apart(samples, splits, plan.buffer)


def _assign_cells(cells: list[Any], plan: SplitPlan, block_km: float) -> dict[Any, int]:
    needed = plan.folds or sum(fraction > 0 for fraction in plan.fractions)
    if len(cells) < needed:
        raise BadInputError(
            f"the chips are in {len(cells)} blocks of {block_km:g} km, and at least {needed} are needed; "
            "choose a smaller split.block_km"
        )
    splits = without_empty_splits(assign_at_random(len(cells), plan), plan)
    return dict(zip(cells, splits.tolist(), strict=True))


def regions_of(places: ChipPlaces, source: Path | None, attribute: str) -> list[str | None]:
    """The region of each chip: that of the polygon with its centre; None outside of all, or in several.

    Raises UsageError without a file, BadInputError for what is not a vector file with this attribute.
    """
    from pyproj import Transformer
    from shapely import STRtree, points

    from eopipe.labels.vectors import read_features

    if source is None:
        raise UsageError("split.by region needs split.regions: a file of polygons, each with its name")
    features = read_features(source, attribute)
    change = Transformer.from_crs("EPSG:4326", features.crs, always_xy=True)
    x, y = change.transform(places.degrees[:, 0], places.degrees[:, 1])
    chips, shapes = STRtree(features.shapes).query(points(x, y), predicate="intersects")
    regions: list[str | None] = [None] * len(places.rows)
    names: dict[int, set[str]] = {}
    for chip, shape in zip(chips.tolist(), shapes.tolist(), strict=True):
        names.setdefault(chip, set()).add(str(features.values[shape]))
    for chip, options in names.items():
        regions[chip] = options.pop() if len(options) == 1 else None
    if not Counter(region for region in regions if region is not None):
        raise BadInputError(f"no chip is in a region of {source}")
    return regions
