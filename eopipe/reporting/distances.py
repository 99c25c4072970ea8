"""How long things are on the ground."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

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
