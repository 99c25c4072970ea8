"""Periods of composites: all time, a year, a season or a month, and the parts of a period.

Seasons are the meteorological ones, named by the first letters of their months, which are valid on both
hemispheres: DJF, MAM, JJA, SON. December belongs to the season, and so to the year of seasons, that follows.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal

from eopipe.errors import BadInputError, UsageError
from eopipe.scenes.item import datetime_text

PeriodKind = Literal["all", "year", "season", "month"]
KINDS = ("all", "year", "season", "month")
SEASONS = ("DJF", "MAM", "JJA", "SON")
MONTHS = tuple(f"{month:02}" for month in range(1, 13))
# Bands that a composite method ranks observations by.
RANKING_BANDS = {"greenest": ("red", "nir"), "clearest": ("blue",)}
PARTS: dict[str, tuple[str, ...]] = {"season": SEASONS, "month": MONTHS}
YEAR = re.compile(r"\d{4}")


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
