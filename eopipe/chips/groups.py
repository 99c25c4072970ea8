"""Units that are assigned to splits as a whole: scenes, tiles of MGRS or WRS-2, regions, days; of a chip set blocks.

The blocks of a chip set are equal-area cells of the Earth.
"""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from eopipe.arrays import Float64Array, IntArray, UInt8Array
from eopipe.chips.chip_blocks import blocks_of_chips
from eopipe.chips.chip_gaps import ChipGaps
from eopipe.chips.chip_places import ChipPlaces, equal_area_cells
from eopipe.chips.splits import (
    COLUMN_STRIPS,
    NO_SPLIT,
    SPLITS,
    STRIPS,
    SplitMethod,
    SplitPlan,
    SplitZones,
    assign_at_random,
    splits_of_chips,
    strips_of,
)
from eopipe.errors import BadInputError, UsageError
from eopipe.stac.antimeridian import common_bounds
from eopipe.tiles.cells import Frame
from eopipe.tiles.store import NO_LABEL

# Scene ids of Sentinel-2 and HLS contain a tile of MGRS (33TWL), those of Landsat path and row of WRS-2 (190028).
TILE_CODES = (
    re.compile(r"(?<![0-9A-Z])T?(\d{1,2}[C-HJ-NP-X][A-HJ-NP-Z][A-HJ-NP-V])(?![0-9A-Z])"),
    re.compile(r"(?<![0-9A-Z])L[COTEM]0\d(?:_[A-Z0-9]{4})?_(\d{6})(?!\d)"),
)


class SplitImage(Protocol):
    """What a split asks of an image: a store of tiles, or one that is planned."""

    @property
    def scene(self) -> str:
        """Its name."""

    @property
    def attributes(self) -> dict[str, Any]:
        """`datetime` and `grid:code`, where it has them."""

    @property
    def frame(self) -> Frame:
        """The cells of the run."""

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the frame in pixels."""


def tile_of(store: SplitImage) -> str:
    """The tile of MGRS or WRS-2 of a scene: `grid:code` of its item, else from its id."""
    grid_code = str(store.attributes.get("grid:code") or "")
    tile = grid_code or next((m[1] for code in TILE_CODES if (m := code.search(store.scene))), "")
    if not tile:
        raise BadInputError(
            f"scene {store.scene} has no tile in grid:code or its id; split by scene or by region instead"
        )
    return tile.removeprefix("MGRS-").removeprefix("WRS2-")


def day_of(store: SplitImage) -> str | None:
    """The day (UTC) of a scene as ISO date; None without a datetime."""
    try:
        moment = datetime.fromisoformat(str(store.attributes.get("datetime") or ""))
    except ValueError:
        return None
    return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date().isoformat()


def groups_of(stores: Sequence[SplitImage], plan: SplitPlan) -> list[str]:
    """The group of each scene that the plan assigns: its day, tile or name."""
    if plan.method == "temporal":
        days = {store.scene: day_of(store) for store in stores}
        undated = [scene for scene, day in days.items() if day is None]
        if undated:
            raise BadInputError(f"scene {', '.join(undated)} has no datetime; split by position instead")
        return [day for day in days.values() if day]
    return [tile_of(store) if plan.by == "tile" else store.scene for store in stores]


def splits_of_groups(groups: list[str], plan: SplitPlan) -> UInt8Array:
    """The split of each scene, given its group."""
    if plan.method == "temporal":
        return np.array([_split_of_day(day, plan.dates) for day in groups], np.uint8)
    split = assign_groups(groups, plan)
    return np.array([split[group] for group in groups], np.uint8)


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
    needed = plan.folds or sum(fraction > 0 for fraction in plan.fractions)
    if len(names) < needed:
        raise BadInputError(
            f"{len(names)} groups ({', '.join(names)}) cannot fill {needed} splits; "
            "set a fraction to 0, choose fewer folds, or split by a smaller unit"
        )
    splits = without_empty_splits(assign_at_random(len(names), plan), plan)
    return dict(zip(names, splits.tolist(), strict=True))


def without_empty_splits(splits: UInt8Array, plan: SplitPlan) -> UInt8Array:
    """Move a group of the largest split to each split that has none because of rounding."""
    needed = [n for n, fraction in enumerate(plan.fractions) if fraction > 0 or plan.folds]
    for number in needed:
        if not (splits == number).any():
            largest = max(needed, key=lambda n: int((splits == n).sum()))
            splits[np.flatnonzero(splits == largest)[-1]] = number
    return splits


def splits_by_region(
    corners: IntArray, source: Path | None, attribute: str, frame: Frame, plan: SplitPlan
) -> UInt8Array:
    """The split of the chips at these corners (n, 2) by the regions that they are in; 255 for one that is in none.

    Regions are rasterised around blocks of chips only.
    """
    import pyogrio.raw

    from eopipe.labels.classes import ClassShapes, Legend

    if source is None:
        raise UsageError("split.by region needs split.regions: a file of polygons, each with its name")
    try:
        _, _, _, fields = pyogrio.raw.read(source, columns=[attribute], read_geometry=False)
    except (pyogrio.errors.DataSourceError, OSError) as error:
        raise BadInputError(f"{source} cannot be read as a vector file: {error}") from error
    names = tuple(sorted({str(value) for value in fields[0]})) if fields else ()
    split_of_region = np.full(NO_LABEL + 1, NO_SPLIT, np.uint8)
    if names:
        splits = assign_groups(names, plan)
        split_of_region[: len(names)] = [splits[name] for name in names]
    shapes = {cell.id: ClassShapes(source, cell.grid, Legend(names), attribute) for cell in frame.cells}
    split_of_chip = np.full(len(corners), NO_SPLIT, np.uint8)
    for numbers, window in blocks_of_chips(corners, plan.chip):
        # The surroundings of the chips too, as far as the buffer reaches.
        bounds = zip(window, frame.shape, strict=True)
        y, x = (slice(max(a.start - plan.buffer, 0), min(a.stop + plan.buffer, edge)) for a, edge in bounds)
        regions = np.full((y.stop - y.start, x.stop - x.start), NO_LABEL, np.uint8)
        if reached := frame.part_in_cell((y, x)):
            cell, (rows, columns) = reached
            part = shapes[cell.id].rasterize(frame.grid_of((rows, columns)), "invalid", all_touched=False)
            inside = slice(rows.start - y.start, rows.stop - y.start)
            regions[inside, columns.start - x.start : columns.stop - x.start] = part.numbers
        zones = SplitZones(split_of_region[regions], 1, 1)
        split_of_chip[numbers] = splits_of_chips(corners[numbers] - (y.start, x.start), zones, plan)
    return split_of_chip


def split_chip_set(
    places: ChipPlaces, samples: IntArray, plan: SplitPlan, block_km: float, regions: Path | None, attribute: str
) -> UInt8Array:
    """The split of each candidate (n, 3) by its true place, or by its row of the index; 255 for one in none.

    A strip has a share of the longitudes or latitudes that chips have.
    """
    if plan.method == "random":
        return assign_at_random(len(samples), plan)
    numbers = places.numbers(samples)
    if plan.method in STRIPS:
        splits = strips_of(order_along(places.degrees[numbers], plan.method), plan)
        return ChipGaps(plan.chip, places=places).keep_apart(samples, splits, plan.buffer)
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


def order_along(degrees: Float64Array, method: SplitMethod) -> IntArray:
    """Ranks of places (n, 2) from the side at which the strips of a method begin; across 180 degrees east continues."""
    longitude, latitude = degrees.T
    west, *_ = common_bounds([(x, y, x, y) for x, y in degrees.tolist()])
    along = (longitude - west) % 360 if method in COLUMN_STRIPS else -latitude
    along = -along if method in ("east-west", "south-north") else along
    return np.unique(along, return_inverse=True)[1].ravel()


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
