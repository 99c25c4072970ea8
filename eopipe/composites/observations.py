"""What a composite is made of: the stores of one period, by the parts that are stacked."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal

from eopipe.composites.periods import RANKING_BANDS, Period, PeriodKind, day_of, part_of, period_of, stack_conflict
from eopipe.errors import BadInputError, UsageError
from eopipe.tiles.grid import same_grid
from eopipe.tiles.store import Tiles

CompositeMethod = Literal["none", "median", "middle", "greenest", "clearest"]


@dataclass(frozen=True)
class CompositeRecipe:
    """How scenes become a composite."""

    method: CompositeMethod
    period: PeriodKind = "all"
    stack: Literal["none", "season", "month"] = "none"
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that there is something to do and that a period has such parts."""
        if self.method == "none":
            raise UsageError("composite needs a --method: median, middle, greenest or clearest")
        if wrong := stack_conflict(self.period, self.stack, self.parts):
            raise UsageError(wrong)


@dataclass(frozen=True)
class PeriodPart:
    """The scenes of one part of a period, by date and name, and the day in its middle."""

    name: str
    stores: list[Tiles]
    days: list[date]
    middle: date


@dataclass(frozen=True)
class Observations:
    """What a composite is made of; all stores have the same grid, bands, type, scale and offset."""

    period: Period
    parts: list[PeriodPart]

    @property
    def first(self) -> Tiles:
        """The store that stands for all in what they have in common."""
        return self.parts[0].stores[0]


def read_observations(tiles: tuple[Path, ...], recipe: CompositeRecipe) -> Observations:
    """Open the stores of one period and sort them into its parts.

    Raises BadInputError that lists every store which does not fit the first, and for scenes of more than one
    period, a scene given twice and a part without a scene.
    """
    stores = sorted(map(Tiles, tiles), key=lambda s: (_day(s), s.scene))
    _alike(stores, recipe)
    periods = {period_of(_day(store), recipe.period, recipe.stack) for store in stores}
    if len(periods) > 1:
        names = ", ".join(sorted(period.name for period in periods))
        raise BadInputError(f"scenes of {len(periods)} periods were given ({names}); a composite is of one")
    period = periods.pop()
    found: dict[str, list[Tiles]] = {}
    for store in stores:
        found.setdefault(part_of(_day(store), recipe.stack), []).append(store)
    wanted = recipe.parts or tuple(found)
    gone = [part for part in wanted if part not in found]
    if gone:
        raise BadInputError(
            f"period {period.name} has no scene in {', '.join(gone)}; it has scenes in {', '.join(found)}"
        )
    return Observations(period, [_part(name, found[name], recipe) for name in dict.fromkeys(wanted)])


def _day(store: Tiles) -> date:
    return day_of(store.attributes, str(store.path))


def _part(name: str, stores: list[Tiles], recipe: CompositeRecipe) -> PeriodPart:
    days = [_day(store) for store in stores]
    kind: PeriodKind = recipe.period if recipe.stack == "none" else recipe.stack
    # Seasons of many years have no common middle in the calendar.
    span = Period("all") if recipe.period == "all" else period_of(days[0], kind)
    return PeriodPart(name, stores, days, span.middle(days))


def _alike(stores: list[Tiles], recipe: CompositeRecipe) -> None:
    """What downstream stages take from one store must hold for all."""
    first, wrong = stores[0], []
    lacking = [band for band in RANKING_BANDS.get(recipe.method, ()) if band not in first.names]
    if lacking:
        wrong.append(f"method {recipe.method} needs band {', '.join(lacking)}; there are {', '.join(first.names)}")
    for store in stores[1:]:
        wrong += [f"{store.path} has {what}" for what in _differences(store, first)]
    twice = sorted({s.scene for s in stores if sum(other.scene == s.scene for other in stores) > 1})
    if twice:
        wrong.append(f"scene {', '.join(twice)} is given twice")
    if wrong:
        raise BadInputError(f"these stores make no composite with {first.path}: {'; '.join(wrong)}")


def _differences(store: Tiles, first: Tiles) -> Iterator[str]:
    if not same_grid(store.grid, first.grid):
        yield "another grid"
    for what, mine, theirs in (
        ("bands", store.names, first.names),
        ("scale and offset", store.scaling, first.scaling),
        ("type", store.array("image").dtype, first.array("image").dtype),
    ):
        if mine != theirs:
            yield f"{what} {mine} instead of {theirs}"
