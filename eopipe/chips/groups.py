"""Which scenes, tiles of the world's tiling systems, regions or dates go to which split."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from eopipe.arrays import UInt8Array
from eopipe.chips.splits import NO_SPLIT, SPLITS, SplitPlan, SplitZones, assign_at_random
from eopipe.errors import BadInputError, UsageError
from eopipe.tiles.store import NO_LABEL, Tiles

# Sentinel-2 and HLS name a cell of MGRS (33TWL), Landsat a path and row of WRS-2 (190028).
CODES = (
    re.compile(r"(?<![0-9A-Z])T?(\d{1,2}[C-HJ-NP-X][A-HJ-NP-Z][A-HJ-NP-V])(?![0-9A-Z])"),
    re.compile(r"(?<![0-9A-Z])L[COTEM]0\d(?:_[A-Z0-9]{4})?_(\d{6})(?!\d)"),
)


def tile_of(store: Tiles) -> str:
    """The cell of MGRS or WRS-2 that a scene covers: what its item told, else what stands in its id."""
    told = str(store.attributes.get("grid:code") or "")
    found = told or next((m[1] for code in CODES if (m := code.search(store.scene))), "")
    if not found:
        raise BadInputError(f"scene {store.scene} does not tell its tile; split by scene or by region instead")
    return found.removeprefix("MGRS-").removeprefix("WRS2-")


def day_of(store: Tiles) -> str | None:
    """The day (UTC) of a scene, as ISO date, if it tells one."""
    try:
        moment = datetime.fromisoformat(str(store.attributes.get("datetime") or ""))
    except ValueError:
        return None
    return (moment if moment.tzinfo is None else moment.astimezone(UTC)).date().isoformat()


def groups_of(stores: Sequence[Tiles], plan: SplitPlan) -> list[str]:
    """The day, tile or name of each scene: what the plan deals out."""
    if plan.method == "temporal":
        days = {store.scene: day_of(store) for store in stores}
        gone = [scene for scene, day in days.items() if day is None]
        if gone:
            raise BadInputError(f"scene {', '.join(gone)} does not tell its date; split by place instead")
        return [day for day in days.values() if day]
    return [tile_of(store) if plan.by == "tile" else store.scene for store in stores]


def splits_of_groups(groups: list[str], plan: SplitPlan) -> UInt8Array:
    """The split of each scene, given its group."""
    if plan.method == "temporal":
        return np.array([_at(day, plan.dates) for day in groups], np.uint8)
    role = assign_groups(groups, plan)
    return np.array([role[group] for group in groups], np.uint8)


def _at(day: str, dates: tuple[str, ...]) -> int:
    passed = sum(day >= first for first in dates)
    return SPLITS.index("test") if passed == len(dates) else passed


def assign_groups(groups: Sequence[str], plan: SplitPlan) -> dict[str, int]:
    """The split of each group: the named ones as they are named, the others at random."""
    names = sorted(set(groups))
    unknown = sorted({*plan.val_groups, *plan.test_groups} - set(names))
    if unknown:
        raise BadInputError(f"there is no {plan.by} {', '.join(unknown)} to split by; there are {', '.join(names)}")
    if plan.test_groups:
        named = dict.fromkeys(plan.val_groups, 1) | dict.fromkeys(plan.test_groups, 2)
        return {name: named.get(name, 0) for name in names}
    needed = plan.folds or sum(share > 0 for share in plan.fractions)
    if len(names) < needed:
        raise BadInputError(
            f"{len(names)} groups ({', '.join(names)}) cannot fill {needed} splits; "
            "set a fraction to 0, choose fewer folds, or split by something smaller"
        )
    return dict(zip(names, _filled(assign_at_random(len(names), plan), plan).tolist(), strict=True))


def _filled(role: UInt8Array, plan: SplitPlan) -> UInt8Array:
    """Give a split that rounding left without a group one of the largest split's."""
    wanted = [n for n, share in enumerate(plan.fractions) if share > 0 or plan.folds]
    for number in wanted:
        if not (role == number).any():
            largest = max(wanted, key=lambda n: int((role == n).sum()))
            role[np.flatnonzero(role == largest)[-1]] = number
    return role


def region_zones(source: Path | None, attribute: str, stores: Sequence[Tiles], plan: SplitPlan) -> SplitZones:
    """Which split each pixel belongs to: that of the region that it lies in; 255 outside all regions."""
    import pyogrio.raw

    from eopipe.labels.classes import Legend, rasterize_classes

    if source is None:
        raise UsageError("split.by region needs split.regions: a file of polygons, each with its name")
    try:
        _, _, _, fields = pyogrio.raw.read(source, columns=[attribute], read_geometry=False)
    except (pyogrio.errors.DataSourceError, OSError) as error:
        raise BadInputError(f"{source} cannot be read as vectors: {error}") from error
    names = tuple(sorted({str(value) for value in fields[0]})) if fields else ()
    role = np.full(NO_LABEL + 1, NO_SPLIT, np.uint8)
    if names:
        dealt = assign_groups(names, plan)
        role[: len(names)] = [dealt[name] for name in names]
    return SplitZones(role[rasterize_classes(source, stores[0].grid, Legend(names), attribute)], 1, 1)
