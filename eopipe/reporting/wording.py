"""Numbers as people read them, and the verdict in plain words."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox


THIN_SPACE = "\u202f"
DASH, TIMES = "\u2013", " \u00d7 "


def score(value: float | None) -> str:
    """Write a score between 0 and 1 with three digits; a dash where it is not defined."""
    return DASH if value is None else f"{value:.3f}"


def percent(share: float | None) -> str:
    """Write a share as a percentage with one digit behind the point; a dash where it is not defined."""
    return DASH if share is None else f"{100 * share:.1f}{THIN_SPACE}%"


def count(number: int) -> str:
    """Write a whole number, its thousands set apart."""
    return f"{number:,}".replace(",", THIN_SPACE)


def number(value: Any) -> str:
    """Write any setting: numbers with at most four digits that count, lists with commas."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: DASH}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(number, value)) or DASH
    return str(value)


def plural(amount: int, noun: str) -> str:
    """Count things: `1 map`, `2 maps`."""
    return f"{count(amount)} {noun}{'' if amount == 1 else 's'}"


def listed(words: list[str]) -> str:
    """Join words: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def counted(metrics: dict[str, Any]) -> str:
    """What the scores count: pixels or chips."""
    return "chip" if metrics.get("task") == "classification" else "pixel"


def tested(metrics: dict[str, Any]) -> str:
    """How many test pixels or chips the scores are of."""
    noun = counted(metrics)
    return plural(metrics[f"test_{noun}s"], f"test {noun}")


EARTH_RADIUS = 6371008.8


def pixel_metres(grid: "GeoBox") -> tuple[float, float]:
    """Width and height of a pixel in metres; of the middle of the grid where the CRS counts degrees."""
    affine, crs = grid.affine, grid.crs
    wide, high = math.hypot(affine.a, affine.d), math.hypot(affine.b, affine.e)
    if crs is None:
        return wide, high
    factor = crs.proj.axis_info[0].unit_conversion_factor
    if not crs.geographic:
        return wide * factor, high * factor
    latitude = (grid.boundingbox.bottom + grid.boundingbox.top) / 2
    return wide * factor * EARTH_RADIUS * math.cos(latitude * factor), high * factor * EARTH_RADIUS


def length(metres: float) -> str:
    """Say a length in words, with three digits: 850 m, 12.5 km."""
    if metres < 1000:
        return f"{metres:.3g} m"
    return f"{metres / 1000:.3g} km" if metres < 1e6 else f"{metres / 1000:.0f} km"


def round_length(most: float) -> float:
    """Find the longest of 1, 2 or 5 times a power of ten that is at most this long."""
    power: float = 10.0 ** math.floor(math.log10(most))
    return max(step * power for step in (1, 2, 5) if step * power <= most)
