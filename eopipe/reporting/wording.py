"""Numbers, lengths and lists as text for readers."""

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

THIN_SPACE = "\u202f"
DASH, TIMES = "\u2013", " \u00d7 "
EARTH_RADIUS_M = 6371008.8


def format_score(value: float | None) -> str:
    """A score between 0 and 1 with three digits; a dash where it is not defined."""
    return DASH if value is None else f"{value:.3f}"


def format_percent(share: float | None) -> str:
    """A share as a percentage with one digit after the point; a dash where it is not defined."""
    return DASH if share is None else f"{100 * share:.1f}{THIN_SPACE}%"


def format_count(number: int) -> str:
    """A whole number with narrow spaces between its thousands."""
    return f"{number:,}".replace(",", THIN_SPACE)


def format_setting(value: Any) -> str:
    """Any setting: numbers with at most four significant digits, lists with commas."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: DASH}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(format_setting, value)) or DASH
    return str(value)


def format_value(value: float | None, unit: str) -> str:
    """A measured value with four significant digits and its unit; a dash where it is not defined."""
    return DASH if value is None else f"{value:.4g} {unit}".strip()


def format_length(metres: float) -> str:
    """A length with three significant digits: 850 m, 12.5 km."""
    if metres < 1000:
        return f"{metres:.3g} m"
    return f"{metres / 1000:.3g} km" if metres < 1e6 else f"{metres / 1000:.0f} km"


def plural(number: int, noun: str) -> str:
    """A number of things: `1 map`, `2 maps`."""
    return f"{format_count(number)} {noun}{'' if number == 1 else 's'}"


def join_words(words: list[str]) -> str:
    """Words as in a sentence: `a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def scored_unit(metrics: dict[str, Any]) -> str:
    """What the scores count: pixel or chip."""
    return "chip" if metrics.get("task") == "classification" else "pixel"


def scored_size(metrics: dict[str, Any]) -> str:
    """The number of test pixels or chips that the scores rest on."""
    unit = scored_unit(metrics)
    return plural(metrics[f"test_{unit}s"], f"test {unit}")


def pixel_metres(grid: "GeoBox") -> tuple[float, float]:
    """Width and height of a pixel in metres; at the centre of the grid where the CRS is in degrees."""
    affine, crs = grid.affine, grid.crs
    width, height = math.hypot(affine.a, affine.d), math.hypot(affine.b, affine.e)
    if crs is None:
        return width, height
    factor = crs.proj.axis_info[0].unit_conversion_factor
    if not crs.geographic:
        return width * factor, height * factor
    latitude = (grid.boundingbox.bottom + grid.boundingbox.top) / 2
    return width * factor * EARTH_RADIUS_M * math.cos(latitude * factor), height * factor * EARTH_RADIUS_M


def format_bounds(grid: "GeoBox") -> str:
    """The bounding box of a grid in degrees: 15.0000 E to 15.0051 E, 45.1406 N to 45.1450 N."""
    from pyproj import Transformer

    to_degrees = Transformer.from_crs(str(grid.crs), "EPSG:4326", always_xy=True)
    west, south, east, north = to_degrees.transform_bounds(*grid.boundingbox.bbox)
    sides = [(west, "EW"), (east, "EW"), (south, "NS"), (north, "NS")]
    return "{} to {}, {} to {}".format(*(f"{abs(value):.4f} {letters[value < 0]}" for value, letters in sides))


def round_length(maximum: float) -> float:
    """The longest of 1, 2 or 5 times a power of ten up to a maximum."""
    power: float = 10.0 ** math.floor(math.log10(maximum))
    return max(step * power for step in (1, 2, 5) if step * power <= maximum)
