"""The unit of each chip and the split of each unit: zones of a grid, scenes, days, tiles, regions, blocks of the Earth.

On a grid, blocks and strips are zones that chips are within. Chips of a set, and strips over several grids, are
assigned by their true places: blocks are equal-area parts of the Earth, strips have a share of the places.
"""

from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import Float64Array, IntArray, UInt8Array
from eopipe.chips.chip_table import ChipTable, SplitScene, equal_area_blocks
from eopipe.chips.chips import blocks_of_chips
from eopipe.chips.splits import (
    COLUMN_STRIPS,
    KEPT_APART,
    NO_SPLIT,
    SPLITS,
    STRIPS,
    SplitMethod,
    SplitPlan,
    SplitRequest,
    SplitZones,
    assign_at_random,
    strips_of,
    zones_of_grids,
)
from eopipe.errors import BadInputError, UsageError, some_of
from eopipe.scenes.item import moment_of
from eopipe.scenes.products import tile_in
from eopipe.tiles.cells import Frame
from eopipe.tiles.globe import DEGREES, common_bounds, transformer
from eopipe.tiles.store import NO_LABEL

# Degrees, a tenth of a millimetre: more than the last bits of a longitude.
ROUNDING = 1e-9


def assign_splits(table: ChipTable, plan: SplitPlan, request: SplitRequest) -> tuple[UInt8Array, list[Any]]:
    """The split of each chip, 255 for one that is in none; and the unit of each, where units are assigned, or None."""
    units: list[Any] = []
    in_zones = plan.method in ("blocks", "checkerboard", *STRIPS)
    # A strip crosses one grid.
    in_zones &= len(table.cells) == 1 or (len(table.cells) > 1 and plan.method not in STRIPS)
    if plan.method == "random":
        splits = assign_at_random(len(table.samples), plan)
    elif in_zones:
        splits = _splits_of_zones(table, plan)
    elif table.cells and plan.method == "group" and plan.by == "region":
        splits, units = splits_by_region(table, request.regions, request.attribute, plan)
    elif plan.method in STRIPS:
        splits = strips_of(order_along(table.ground.degrees, plan.method), plan)
    else:
        units = units_of_chips(table, plan, request)
        splits = _splits_of_units(units, plan, request.block_km)
    # Zones of one grid keep their chips apart; tiles overlap at their edges, and so do grids.
    needs_gaps = len(table.cells) != 1 or (plan.method == "group" and plan.by == "tile")
    return (table.keep_apart(splits, plan.buffer) if plan.by_place and needs_gaps else splits), units


def _splits_of_zones(table: ChipTable, plan: SplitPlan) -> UInt8Array:
    splits = np.full(len(table.samples), NO_SPLIT, np.uint8)
    zones = zones_of_grids([cell.shape for cell in table.cells], plan)
    for number, (cell, of_cell) in enumerate(zip(table.cells, zones, strict=True)):
        chosen = np.flatnonzero(table.grids == number)
        splits[chosen] = splits_of_chips(table.samples[chosen, 1:] - (0, cell.column), of_cell, plan)
    return splits


def splits_of_chips(corners: IntArray, zones: SplitZones, plan: SplitPlan) -> UInt8Array:
    """The split of the chips at these corners; 255 for one that is in none.

    A chip is entirely within its split. Test chips may touch its border; train chips keep the buffer to val and
    test, val chips keep it to test.
    """
    boxes = np.hstack([corners, corners + plan.chip])
    buffered = np.hstack([corners - plan.buffer, corners + plan.chip + plan.buffer])
    splits = np.full(len(corners), NO_SPLIT, np.uint8)
    for number in range(len(SPLITS)):
        is_inside = zones.within(boxes, [number])
        if KEPT_APART[number]:
            is_inside &= zones.within(buffered, [n for n in KEPT_APART if n not in KEPT_APART[number]])
        splits[is_inside] = number
    return splits


def units_of_chips(table: ChipTable, plan: SplitPlan, request: SplitRequest) -> list[Any]:
    """The unit of each chip that is assigned as a whole; None of a chip in none."""
    if plan.method == "blocks":
        return [tuple(block) for block in equal_area_blocks(table.ground.degrees, request.block_km).tolist()]
    if plan.method == "group" and plan.by == "column":
        return list(table.column(request.attribute))
    if plan.method == "group" and plan.by == "region":
        return list(regions_of(table, request.regions, request.attribute))
    groups = groups_of(table.images, plan)
    return [groups[scene] for scene in table.scenes.tolist()]


def _splits_of_units(units: Sequence[Any], plan: SplitPlan, block_km: float) -> UInt8Array:
    """The split of each chip, given its unit."""
    if plan.method == "temporal":
        of_day = {day: _split_of_day(day, plan.dates) for day in set(units)}
        return np.array([of_day[day] for day in units], np.uint8)
    names = sorted({unit for unit in units if unit is not None})
    if plan.method != "blocks":
        assigned = assign_groups(names, plan)
    elif len(names) < (needed := _splits_to_fill(plan)):
        raise BadInputError(
            f"the chips are in {len(names)} blocks of {block_km:g} km, and at least {needed} are needed; "
            "choose a smaller split.block_km"
        )
    else:
        assigned = _assign_at_random(names, plan)
    return np.array([assigned.get(unit, NO_SPLIT) for unit in units], np.uint8)


def tile_of(store: SplitScene) -> str:
    """The tile of MGRS or WRS-2 of a scene: `grid:code` of its item, else from its id."""
    grid_code = str(store.attributes.get("grid:code") or "")
    tile = grid_code or tile_in(store.scene)
    if not tile:
        raise BadInputError(
            f"scene {store.scene} has no tile in grid:code or its id; split by scene or by region instead"
        )
    return tile.removeprefix("MGRS-").removeprefix("WRS2-")


def split_day(store: SplitScene) -> str | None:
    """The day (UTC) of a scene as ISO date; None without a datetime."""
    try:
        return moment_of(str(store.attributes.get("datetime") or "")).astimezone(UTC).date().isoformat()
    except ValueError:
        return None


def groups_of(stores: Sequence[SplitScene], plan: SplitPlan) -> list[str]:
    """The group of each scene that the plan assigns: its day, tile or name."""
    if plan.method == "temporal":
        days = [split_day(store) for store in stores]
        if undated := sorted({store.scene for store, day in zip(stores, days, strict=True) if day is None}):
            raise BadInputError(f"scene {some_of(undated)} has no datetime; split by position instead")
        return [day for day in days if day]
    return [tile_of(store) if plan.by == "tile" else store.scene for store in stores]


def _split_of_day(day: str, dates: tuple[str, ...]) -> int:
    passed = sum(day >= first for first in dates)
    return SPLITS.index("test") if passed == len(dates) else passed


def assign_groups(groups: Sequence[str], plan: SplitPlan) -> dict[str, int]:
    """The split of each group: by name if test groups are named, else at random."""
    names = sorted(set(groups))
    unknown = sorted({*plan.val_groups, *plan.test_groups} - set(names))
    if unknown:
        raise BadInputError(
            f"split.val_groups or split.test_groups name {plan.by} {', '.join(unknown)}; there are {', '.join(names)}"
        )
    if plan.test_groups:
        named = dict.fromkeys(plan.val_groups, 1) | dict.fromkeys(plan.test_groups, 2)
        return {name: named.get(name, 0) for name in names}
    needed = _splits_to_fill(plan)
    if len(names) < needed:
        raise BadInputError(
            f"{len(names)} groups ({', '.join(names)}) cannot fill {needed} splits; "
            "set a fraction to 0, choose fewer folds, or split by a smaller unit"
        )
    return _assign_at_random(names, plan)


def _splits_to_fill(plan: SplitPlan) -> int:
    return plan.folds or sum(fraction > 0 for fraction in plan.fractions)


def _assign_at_random(units: Sequence[Any], plan: SplitPlan) -> dict[Any, int]:
    """The split of each unit, at random and none of them empty."""
    splits = without_empty_splits(assign_at_random(len(units), plan), plan)
    return dict(zip(units, splits.tolist(), strict=True))


def without_empty_splits(splits: UInt8Array, plan: SplitPlan) -> UInt8Array:
    """Move a group of the largest split to each split that has none because of rounding."""
    needed = [n for n, fraction in enumerate(plan.fractions) if fraction > 0 or plan.folds]
    for number in needed:
        if not (splits == number).any():
            largest = max(needed, key=lambda n: int((splits == n).sum()))
            splits[np.flatnonzero(splits == largest)[-1]] = number
    return splits


def splits_by_region(
    table: ChipTable, source: Path | None, attribute: str, plan: SplitPlan
) -> tuple[UInt8Array, list[str | None]]:
    """The split of chips on grids by the regions that they are in, 255 for one that is in none, and their regions.

    A chip may be in several regions of one split; its own is the one of its middle pixel. Regions are rasterised
    around blocks of chips only.
    """
    from eopipe.labels.kinds import Legend
    from eopipe.labels.sources import LabelShapes
    from eopipe.labels.vector_files import read_file

    if source is None:
        raise UsageError("split.by region needs split.regions: a file of polygons, each with its name")
    names = tuple(sorted({str(value) for value in read_file(source, attribute, None, "split.regions").values}))
    split_of_region = np.full(NO_LABEL + 1, NO_SPLIT, np.uint8)
    if names:
        splits = assign_groups(names, plan)
        split_of_region[: len(names)] = [splits[name] for name in names]
    frame, corners = Frame(table.cells), table.samples[:, 1:]
    shapes = {cell.id: LabelShapes(source, cell.grid, Legend(names), attribute) for cell in frame.cells}
    split_of_chip = np.full(len(corners), NO_SPLIT, np.uint8)
    region_of_chip = np.full(len(corners), NO_LABEL, np.uint8)
    for numbers, window in blocks_of_chips(corners, plan.chip):
        # The surroundings of the chips too, as far as the buffer reaches.
        bounds = zip(window, frame.shape, strict=True)
        y, x = (slice(max(a.start - plan.buffer, 0), min(a.stop + plan.buffer, edge)) for a, edge in bounds)
        regions = np.full((y.stop - y.start, x.stop - x.start), NO_LABEL, np.uint8)
        for cell, in_cell, in_window in frame.parts_in_cells((y, x)):
            part = shapes[cell.id].rasterize(cell.grid[in_cell], "invalid", all_touched=False)
            regions[in_window] = part.labels
        zones = SplitZones(split_of_region[regions], 1, 1)
        in_window = corners[numbers] - (y.start, x.start)
        split_of_chip[numbers] = splits_of_chips(in_window, zones, plan)
        region_of_chip[numbers] = regions[tuple(in_window.T + plan.chip // 2)]
    return split_of_chip, [names[region] if region != NO_LABEL else None for region in region_of_chip.tolist()]


def order_along(degrees: Float64Array, method: SplitMethod) -> IntArray:
    """Ranks of places (n, 2) from the side at which the strips of a method begin; across 180 degrees east continues."""
    longitude, latitude = degrees.T
    west, *_ = common_bounds([(x, y, x, y) for x, y in degrees.tolist()])
    east = (longitude - west) % 360
    # The first place itself may be west of it in the last bits.
    east[east > 360 - ROUNDING] = 0.0
    along = east if method in COLUMN_STRIPS else -latitude
    along = -along if method in ("east-west", "south-north") else along
    return np.unique(along, return_inverse=True)[1].ravel()


def regions_of(table: ChipTable, source: Path | None, attribute: str) -> list[str | None]:
    """The region of each chip, from the polygon with its centre; None outside of all, or in several.

    Raises UsageError without a file, BadInputError for what is not a vector file with this attribute.
    """
    from pyproj import CRS
    from shapely import STRtree, points

    from eopipe.labels.vectors import read_features

    if source is None:
        raise UsageError("split.by region needs split.regions: a file of polygons, each with its name")
    features = read_features(source, attribute)
    x, y = transformer(DEGREES, features.crs).transform(table.ground.degrees[:, 0], table.ground.degrees[:, 1])
    # Longitudes of a file may continue beyond 180 degrees.
    turns = (-360.0, 0.0, 360.0) if CRS.from_user_input(features.crs).is_geographic else (0.0,)
    places = points(np.add.outer(turns, x), y).ravel()
    numbers, shapes = STRtree(features.shapes).query(places, predicate="intersects")
    regions: list[str | None] = [None] * len(table.samples)
    names: dict[int, set[str]] = {}
    for chip, shape in zip((numbers % len(x)).tolist(), shapes.tolist(), strict=True):
        names.setdefault(chip, set()).add(str(features.values[shape]))
    for chip, options in names.items():
        regions[chip] = options.pop() if len(options) == 1 else None
    if all(region is None for region in regions):
        raise BadInputError(f"no chip is in a region of {source}")
    return regions
