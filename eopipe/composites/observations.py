"""The observations of a composite: the tile stores of one period, sorted into the parts that are stacked."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

import numpy as np

from eopipe.arrays import AnyArray
from eopipe.composites.periods import RANKING_BANDS, Period, PeriodKind, day_of, part_of, period_of, stack_conflict
from eopipe.errors import BadInputError, UsageError
from eopipe.tiles.store import LEFT_OUT, Tiles

log = logging.getLogger("eopipe")
Scaling = tuple[float, float]
# Scale and offset of stores whose items state neither.
UNSCALED = (1.0, 0.0)
# Offsets and scales are decimal fractions, whose quotients are not exact.
EXACT = 1e-6
CompositeMethod = Literal["none", "median", "middle", "greenest", "clearest"]


@dataclass(frozen=True)
class CompositeRecipe:
    """How the scenes of a period become a composite."""

    method: CompositeMethod
    period: PeriodKind = "all"
    stack: Literal["none", "year", "season", "month"] = "none"
    parts: tuple[str, ...] = ()
    gaps: Literal["fill", "invalid"] = "fill"

    @property
    def fills_gaps(self) -> bool:
        """Whether a part without an observation is filled from the others: never a year, which would hide changes."""
        return self.gaps == "fill" and self.stack in ("season", "month")

    def __post_init__(self) -> None:
        """Check that there is a method and that the period has such parts."""
        if self.method == "none":
            raise UsageError("composite needs a --method: median, middle, greenest or clearest")
        if conflict := stack_conflict(self.period, self.stack, self.parts):
            raise UsageError(conflict)


@dataclass(frozen=True)
class PeriodPart:
    """The scenes of one part of a period, by date and name, and the day in the middle of the part."""

    name: str
    stores: list[Tiles]
    days: list[date]
    middle: date


@dataclass(frozen=True)
class Observations:
    """The observations of a period; all stores have the same grid, bands and data type.

    `scaling` is the scale and offset of the composite; `left_out` is the reason for each scene that it skips.
    """

    period: Period
    parts: list[PeriodPart]
    scaling: Scaling
    left_out: dict[str, str]

    @property
    def stores(self) -> list[Tiles]:
        """The stores that have data, in the order of the parts; all of them where none has."""
        return used_stores([store for part in self.parts for store in part.stores])

    @property
    def first(self) -> Tiles:
        """The first store with data, for the properties that all such stores have in common."""
        return self.stores[0]


def read_observations(tiles: tuple[Path, ...], recipe: CompositeRecipe) -> Observations:
    """Open the stores of one period and sort them into its parts; scenes that `preprocess` left out are skipped.

    A part that has no other scene has no valid pixel.
    Raises BadInputError that lists every store which does not match the first, and for scenes of more than one
    period, a scene given twice and a part without a scene.
    """
    stores = sorted(map(Tiles, tiles), key=lambda s: (_day(s), s.scene))
    _check_stores(stores, recipe)
    periods = {period_of(_day(store), recipe.period, recipe.stack) for store in stores}
    if len(periods) > 1:
        names = ", ".join(sorted(period.name for period in periods))
        raise BadInputError(f"the scenes are of {len(periods)} periods ({names}), but a composite has one period")
    period = periods.pop()
    stores_by_part: dict[str, list[Tiles]] = {}
    for store in stores:
        stores_by_part.setdefault(part_of(_day(store), recipe.stack), []).append(store)
    names_of_parts = recipe.parts or tuple(stores_by_part)
    missing = [part for part in names_of_parts if part not in stores_by_part]
    if missing:
        raise BadInputError(
            f"period {period.name} has no scene in {', '.join(missing)}; it has scenes in {', '.join(stores_by_part)}"
        )
    parts = [_part(name, used_stores(stores_by_part[name]), recipe) for name in dict.fromkeys(names_of_parts)]
    left_out = {
        scene: str(reason) for store in stores for scene, reason in (store.attributes.get(LEFT_OUT) or {}).items()
    }
    scaling = common_scaling(used_stores([store for part in parts for store in part.stores]))
    return Observations(period, parts, scaling, left_out)


def used_stores(stores: list[Tiles]) -> list[Tiles]:
    """The stores of scenes that were not left out; all of them where each was."""
    return [store for store in stores if not store.attributes.get(LEFT_OUT)] or stores


def common_scaling(stores: list[Tiles]) -> Scaling:
    """The scale and offset of a composite: from the stores with the lowest offset, of these with the finest scale.

    Unsigned numbers of the other stores can then be expressed without going below zero.
    """
    scalings = sorted({(store.scaling[1], store.scaling[0]) for store in stores})
    offset, scale = scalings[0]
    if len(scalings) > 1:
        other = ", ".join(f"{a:g} and {b:g}" for b, a in scalings[1:])
        log.info("event=one_scale scale=%g offset=%g converted_from=%r", scale, offset, other)
    return scale, offset


def rescale(stored: AnyArray, scaling: Scaling, target: Scaling) -> AnyArray:
    """Stored numbers of one scale and offset in another scale and offset, in their data type.

    Integers are shifted exactly where the scales are equal and the offsets differ by whole stored numbers, else rounded
    to the nearest, halves to even; numbers beyond the range of the data type become its limits.
    """
    if scaling == target:
        return stored
    factor, shift = scaling[0] / target[0], (scaling[1] - target[1]) / target[0]
    if stored.dtype.kind == "f":
        return np.asarray(stored * factor + shift, stored.dtype)
    limits = np.iinfo(stored.dtype)
    if factor == 1 and abs(shift - round(shift)) < EXACT:
        numbers = stored.astype(np.int64) + round(shift)
    else:
        numbers = np.rint(stored * factor + shift)
    return np.clip(numbers, limits.min, limits.max).astype(stored.dtype)


def _day(store: Tiles) -> date:
    return day_of(store.attributes, str(store.path))


def _part(name: str, stores: list[Tiles], recipe: CompositeRecipe) -> PeriodPart:
    days = [_day(store) for store in stores]
    kind: PeriodKind = recipe.period if recipe.stack == "none" else recipe.stack
    # Seasons of several years have no common middle in the calendar.
    span = Period("all") if recipe.period == "all" else period_of(days[0], kind)
    return PeriodPart(name, stores, days, span.middle(days))


def _check_stores(stores: list[Tiles], recipe: CompositeRecipe) -> None:
    """Check what later stages read from one store but assume of all."""
    used, errors = used_stores(stores), list[str]()
    first = used[0]
    missing_bands = [band for band in RANKING_BANDS.get(recipe.method, ()) if band not in first.names]
    if missing_bands:
        errors.append(
            f"method {recipe.method} needs band {', '.join(missing_bands)}; there are {', '.join(first.names)}"
        )
    for store in used[1:]:
        errors += [f"{store.path} has {difference}" for difference in _differences(store, first)]
    duplicates = sorted({s.scene for s in stores if sum(other.scene == s.scene for other in stores) > 1})
    if duplicates:
        errors.append(f"scene {', '.join(duplicates)} is given twice")
    if errors:
        raise BadInputError(f"these stores cannot be composited with {first.path}: {'; '.join(errors)}")


def _differences(store: Tiles, first: Tiles) -> Iterator[str]:
    if not store.frame.is_same(first.frame):
        yield "another grid"
    for name, value, first_value in (
        ("bands", store.names, first.names),
        ("data type", store.array("image").dtype, first.array("image").dtype),
    ):
        if value != first_value:
            yield f"{name} {value} instead of {first_value}"
    if store.scaling != first.scaling and UNSCALED in (store.scaling, first.scaling):
        yield (
            f"scale and offset {store.scaling} instead of {first.scaling}: one of the items states none, so its "
            "numbers are in an unknown unit"
        )
