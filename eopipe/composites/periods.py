"""Periods of composites: all time, a year, a season or a month, the parts of a period, and the observations in them.

Seasons are the meteorological ones, named by the first letters of their months, which are valid on both
hemispheres: DJF, MAM, JJA, SON. December belongs to the season, and so to the year of seasons, that follows.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Literal

import numpy as np

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError, UsageError
from eopipe.scenes.item import datetime_text
from eopipe.tiles.store import LEFT_OUT, Tiles

PeriodKind = Literal["all", "year", "season", "month"]
KINDS = ("all", "year", "season", "month")
SEASONS = ("DJF", "MAM", "JJA", "SON")
MONTHS = tuple(f"{month:02}" for month in range(1, 13))
# Bands that a composite method ranks observations by.
RANKING_BANDS = {"greenest": ("red", "nir"), "clearest": ("blue",)}
PARTS: dict[str, tuple[str, ...]] = {"season": SEASONS, "month": MONTHS}
YEAR = re.compile(r"\d{4}")
log = logging.getLogger("eopipe")
Scaling = tuple[float, float]
# Scale and offset of stores whose items state neither.
UNSCALED = (1.0, 0.0)
# Offsets and scales are decimal fractions, whose quotients are not exact.
EXACT = 1e-6
CompositeMethod = Literal["none", "median", "middle", "greenest", "clearest"]


@dataclass(frozen=True)
class Period:
    """One period: `name` also names its composite; first and last day are None for all time."""

    name: str
    first: date | None = None
    last: date | None = None

    def middle(self, days: list[date]) -> date:
        """The day in the middle of the period; for all time, between the first and the last of these days."""
        first, last = self.first or min(days), self.last or max(days)
        return first + (last - first) // 2


def day_of(properties: Mapping[str, Any], name: str) -> date:
    """The day in properties of a STAC Item or attributes of a store; of a time range the middle one.

    Raises BadInputError, which names `name`, without a day.
    """
    text = ""
    try:
        text = datetime_text(properties) or ""
        return date.fromisoformat(text[:10])
    except ValueError as error:
        raise BadInputError(
            f"{name} has no date ({text or 'nothing'}), so it cannot be assigned to a period"
        ) from error


def period_of(day: date, kind: PeriodKind, stack: str = "none") -> Period:
    """The period of a kind that a day belongs to; years begin in December where seasons are stacked."""
    if kind == "all":
        return Period("all")
    if kind == "month":
        first = day.replace(day=1)
        return Period(f"{day:%Y-%m}", first, _after(first, 1))
    year = day.year + (day.month == 12 and (kind == "season" or stack == "season"))
    if kind == "season":
        number = day.month % 12 // 3
        first = date(year - 1, 12, 1) if number == 0 else date(year, 3 * number, 1)
        return Period(f"{year}-{SEASONS[number]}", first, _after(first, 3))
    first = date(year - 1, 12, 1) if stack == "season" else date(year, 1, 1)
    return Period(str(year), first, _after(first, 12))


def part_of(day: date, stack: str) -> str:
    """The part of a period that a day belongs to, as 2019, JJA or 07; an empty name if nothing is stacked."""
    return {"year": f"{day.year:04}", "season": SEASONS[day.month % 12 // 3], "month": f"{day.month:02}"}.get(stack, "")


def _after(first: date, months: int) -> date:
    """The last day of a span of months."""
    count = first.year * 12 + first.month - 1 + months
    return date(count // 12, count % 12 + 1, 1) - timedelta(days=1)


def stack_conflict(kind: PeriodKind, stack: str, parts: tuple[str, ...] = ()) -> str:
    """The reason why a period cannot be stacked in these parts; empty if it can."""
    if stack == "none":
        reason = "composite.parts are given, but composite.stack is none; set composite.stack to year, season or month"
        return reason if parts else ""
    if KINDS.index(kind) >= KINDS.index(stack):
        return f"composite.stack {stack} is not shorter than composite.period {kind}; choose a longer period"
    if stack == "year":
        unknown = [part for part in parts if not YEAR.fullmatch(part)]
        return f"composite.parts has {', '.join(unknown)}, but the years are such as 2019" if unknown else ""
    unknown = [part for part in parts if part not in PARTS[stack]]
    if not unknown:
        return ""
    return f"composite.parts has {', '.join(unknown)}, but the {stack}s are {', '.join(PARTS[stack])}"


def channels_by_date(names: tuple[str, ...]) -> list[list[int]]:
    """The channels of each date in calendar order, with the same bands; empty if the names contain no dates."""
    split = [name.rpartition("_") for name in names]
    years = tuple(sorted({part for _, _, part in split if YEAR.fullmatch(part)}))
    for parts in (*PARTS.values(), years):
        if names and all(part in parts for _, _, part in split):
            channel = {(part, band): number for number, (band, _, part) in enumerate(split)}
            dates = [part for part in parts if any(part == suffix for _, _, suffix in split)]
            bands = list(dict.fromkeys(band for band, _, _ in split))
            missing = [f"{band}_{part}" for part in dates for band in bands if (part, band) not in channel]
            if missing:
                raise UsageError(f"model temporal needs the same bands for every date; missing: {', '.join(missing)}")
            return [[channel[part, band] for band in bands] for part in dates]
    return []


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
