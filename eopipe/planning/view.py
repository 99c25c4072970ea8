"""From places on the Earth to pixels of a plan's map, and the graticule."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import Float64Array
from eopipe.planning.footprints import DEGREES
from eopipe.tiles.grid import Bounds

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# Footprints may reach far beyond the grid: so much of its size is shown around it.
AROUND = 0.6
LEAST_AROUND = 0.06
LINES = 4


@dataclass(frozen=True)
class View:
    """A window (left, bottom, right, top in units of the CRS) on so many pixels (width, height)."""

    crs: str
    bounds: Bounds
    size: tuple[int, int]

    def pixels(self, points: Float64Array) -> list[tuple[float, float]]:
        """Places (n, 2) in the CRS to pixels."""
        left, bottom, right, top = self.bounds
        width, height = self.size
        x = (points[:, 0] - left) / (right - left) * width
        y = (top - points[:, 1]) / (top - bottom) * height
        return list(zip(x.tolist(), y.tolist(), strict=True))

    def from_degrees(self, points: Any) -> list[tuple[float, float]]:
        """Longitudes and latitudes (n, 2) to pixels; places that the CRS cannot show are left out."""
        found = np.column_stack(self._change.transform(*np.asarray(points, float)[:, :2].T))
        return self.pixels(found[np.isfinite(found).all(1)])

    def graticule(self) -> list[tuple[str, str, list[tuple[float, float]]]]:
        """Meridians and parallels at round degrees: axis, label, line in pixels."""
        west, south, east, north = self._change.transform_bounds(*self.bounds, direction="INVERSE")
        if east < west:
            east += 360
        step = round_degrees(max(east - west, north - south) / LINES)
        lines = []
        for at in _marks(west, east, step):
            side = (at + 180) % 360 - 180
            lines.append(("x", degrees(side, step, "WE"), self.from_degrees(_line(side, south, north)[:, ::-1])))
        for at in _marks(south, north, step):
            lines.append(("y", degrees(at, step, "SN"), self.from_degrees(_line(at, west, east))))
        return lines

    @cached_property
    def _change(self) -> Any:
        from pyproj import Transformer

        return Transformer.from_crs(DEGREES, self.crs, always_xy=True)


def view_of(grid: "GeoBox", outlines: Sequence[Float64Array], room: tuple[int, int]) -> View:
    """The grid with what lies around it, as large as the room (width, height) allows."""
    left, bottom, right, top = grid.extent.boundingbox
    across, down = right - left, top - bottom
    low, high = np.array([left, bottom]), np.array([right, top])
    for points in outlines:
        if len(points):
            low, high = np.minimum(low, points.min(0)), np.maximum(high, points.max(0))
    far, near = AROUND * max(across, down), LEAST_AROUND * max(across, down)
    low = np.clip(low, (left - far, bottom - far), (left, bottom)) - near
    high = np.clip(high, (right, top), (right + far, top + far)) + near
    scale = min(room[0] / (high[0] - low[0]), room[1] / (high[1] - low[1]))
    size = max(1, int((high[0] - low[0]) * scale)), max(1, int((high[1] - low[1]) * scale))
    return View(str(grid.crs), (float(low[0]), float(low[1]), float(high[0]), float(high[1])), size)


def round_degrees(least: float) -> float:
    """The smallest round step of degrees that is at least this wide."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least * 0.999)


def degrees(value: float, step: float, letters: str) -> str:
    """A longitude or latitude in words, with as many digits as the step needs: 22.15 E."""
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{abs(value):.{digits}f} {letters[value > 0] if round(value, digits) else ''}".strip()


def _marks(low: float, high: float, step: float) -> list[float]:
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _line(value: float, start: float, end: float) -> Float64Array:
    """Points (n, 2) that go from start to end beside a fixed value, which comes second."""
    along = np.linspace(start, end, 60)
    return np.column_stack([along, np.full_like(along, value)])
