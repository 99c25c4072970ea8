"""Positions of a grid's pixels in another CRS: exact at nodes, interpolated between them, with a checked error."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyFloatArray
from eopipe.tiles.globe import transformer
from eopipe.tiles.grid import PixelWindow

if TYPE_CHECKING:
    from affine import Affine
    from odc.geo.geobox import GeoBox

# Pixels between nodes, at first and at least.
FIRST_SPACING, MIN_SPACING = 64, 4
# Source pixels by which an interpolated position may be wrong.
TOLERANCE = 1e-5
# The position of what cannot be projected: far outside of any raster.
UNDEFINED = -1e9


@dataclass(frozen=True)
class InterpolationNodes:
    """Source positions (row, column) at every `step`-th row and column of the target, as (2, n, m).

    Between nodes positions are interpolated by parabolas: a map projection is so smooth that the error is tiny.
    """

    step: int
    positions: AnyFloatArray

    def interpolate(self, rows: AnyFloatArray, columns: AnyFloatArray) -> AnyFloatArray:
        """Positions at the intersections of these rows and columns, as (2, n, m)."""
        along_rows = _evaluate(self._row_parabolas, rows / self.step, 1)
        return _evaluate(_parabolas(along_rows, 2), columns / self.step, 2)

    @cached_property
    def _row_parabolas(self) -> tuple[AnyFloatArray, AnyFloatArray, AnyFloatArray]:
        return _parabolas(self.positions, 1)

    def lines(self, pixels: slice) -> AnyFloatArray:
        """The rows or columns of nodes within a window, and its first and last pixel centre."""
        nodes = np.arange(-(-pixels.start // self.step), (pixels.stop - 1) // self.step + 1) * self.step
        return np.unique([pixels.start + 0.5, *nodes[nodes > pixels.start], pixels.stop - 0.5])


def _parabolas(positions: AnyFloatArray, axis: int) -> tuple[AnyFloatArray, AnyFloatArray, AnyFloatArray]:
    """Coefficients along an axis, through each node of even number and the two that follow."""
    first, middle, last = (positions.take(range(k, positions.shape[axis] - 2 + k, 2), axis) for k in range(3))
    return first, 4 * middle - 3 * first - last, 2 * (first + last) - 4 * middle


def _evaluate(
    parabolas: tuple[AnyFloatArray, AnyFloatArray, AnyFloatArray], at: AnyFloatArray, axis: int
) -> AnyFloatArray:
    """Values of the parabolas along an axis at these coordinates, which count nodes."""
    cell = np.clip(at // 2, 0, parabolas[0].shape[axis] - 1).astype(np.intp)
    fraction = at / 2 - cell
    if axis == 1:
        fraction = fraction[:, None]
    constant, slope, curvature = parabolas
    values: AnyFloatArray = curvature.take(cell, axis)
    values *= fraction
    values += slope.take(cell, axis)
    values *= fraction
    values += constant.take(cell, axis)
    return values


@dataclass(frozen=True)
class PixelTransform:
    """From pixels of a grid to pixels of a raster with this CRS and affine transform, which may be rotated."""

    grid: "GeoBox"
    crs: str
    transform: "Affine"

    @cached_property
    def _project(self) -> Callable[..., Any]:
        return transformer(str(self.grid.crs), self.crs).transform

    def exact(self, rows: AnyFloatArray, columns: AnyFloatArray) -> AnyFloatArray:
        """Source positions (2, n, m) at the intersections of rows and columns; UNDEFINED where they do not project."""
        column, row = np.meshgrid(columns, rows)
        affine: Any = self.grid.affine
        x, y = self._project(*(affine * (column, row)))
        finite = np.isfinite(x) & np.isfinite(y)
        column, row = ~self.transform * (np.where(finite, x, 0), np.where(finite, y, 0))
        return np.where(finite, np.stack([row, column]), UNDEFINED)

    @cached_property
    def nodes(self) -> InterpolationNodes | None:
        """Nodes dense enough to keep the interpolation error below the tolerance; None where none are."""
        step = FIRST_SPACING
        while step >= MIN_SPACING:
            lines = [np.arange(0, 2 * -(-edge // (2 * step)) + 1) * float(step) for edge in self.grid.shape]
            nodes = InterpolationNodes(step, self.exact(*lines))
            if nodes.positions.min() > UNDEFINED / 2 and self._error(nodes, lines) < TOLERANCE:
                return nodes
            step //= 2
        return None

    def _error(self, nodes: InterpolationNodes, lines: list[AnyFloatArray]) -> float:
        """The largest error halfway between nodes."""
        rows, columns = (line[:-1] + nodes.step / 2 for line in lines)
        return float(np.abs(nodes.interpolate(rows, columns) - self.exact(rows, columns)).max())

    def positions(self, window: PixelWindow) -> AnyFloatArray:
        """Source positions (2, n, m) of the centres of the pixels of a window of the grid."""
        rows, columns = (np.arange(axis.start, axis.stop) + 0.5 for axis in window)
        return self.exact(rows, columns) if self.nodes is None else self.nodes.interpolate(rows, columns)

    def bounding_positions(self, window: PixelWindow) -> AnyFloatArray:
        """Source positions (2, n, m) whose range covers all pixels of a window of the grid."""
        if self.nodes is None:
            return self.positions(window)
        return self.nodes.interpolate(*(self.nodes.lines(axis) for axis in window))
