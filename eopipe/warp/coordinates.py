"""Where pixels of a grid lie in another CRS: exact at nodes, interpolated between, and checked."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyFloatArray
from eopipe.tiles.grid import PixelWindow

if TYPE_CHECKING:
    from affine import Affine
    from odc.geo.geobox import GeoBox

# Pixels between nodes, to begin with, and pixels of the source by which a place between nodes may be wrong.
SPACING, LEAST = 64, 4
TOLERANCE = 1e-5
# Far beyond any raster.
NOWHERE = -1e9


@dataclass(frozen=True)
class InterpolationNodes:
    """Source coordinates (row, column) where every `step`-th row and column of the target cross, as (2, n, m).

    Between them they follow parabolas: a map projection is so smooth that hardly anything is left.
    """

    step: int
    places: AnyFloatArray

    def at(self, rows: AnyFloatArray, columns: AnyFloatArray) -> AnyFloatArray:
        """Places where these lines cross, as (2, n, m)."""
        return _along(_parabolas(_along(self._down, rows / self.step, 1), 2), columns / self.step, 2)

    @cached_property
    def _down(self) -> tuple[AnyFloatArray, AnyFloatArray, AnyFloatArray]:
        return _parabolas(self.places, 1)

    def lines(self, cut: slice) -> AnyFloatArray:
        """The rows or columns of nodes within a window, and the outermost centres of pixels."""
        nodes = np.arange(-(-cut.start // self.step), (cut.stop - 1) // self.step + 1) * self.step
        return np.unique([cut.start + 0.5, *nodes[nodes > cut.start], cut.stop - 0.5])


def _parabolas(places: AnyFloatArray, dim: int) -> tuple[AnyFloatArray, AnyFloatArray, AnyFloatArray]:
    """Coefficients along an axis, through each node of even number and the two that follow."""
    first, middle, last = (places.take(range(k, places.shape[dim] - 2 + k, 2), dim) for k in range(3))
    return first, 4 * middle - 3 * first - last, 2 * (first + last) - 4 * middle


def _along(
    parabolas: tuple[AnyFloatArray, AnyFloatArray, AnyFloatArray], wanted: AnyFloatArray, dim: int
) -> AnyFloatArray:
    """What the parabolas along an axis say at these places, counted in nodes."""
    cell = np.clip(wanted // 2, 0, parabolas[0].shape[dim] - 1).astype(np.intp)
    share = wanted / 2 - cell
    if dim == 1:
        share = share[:, None]
    begin, slope, bend = parabolas
    found: AnyFloatArray = bend.take(cell, dim)
    found *= share
    found += slope.take(cell, dim)
    found *= share
    found += begin.take(cell, dim)
    return found


@dataclass(frozen=True)
class PixelTransform:
    """From pixels of a grid to those of a raster of this CRS and transform, be it turned or of another CRS."""

    grid: "GeoBox"
    crs: str
    transform: "Affine"

    @cached_property
    def _transformer(self) -> Callable[..., Any]:
        from pyproj import Transformer

        return Transformer.from_crs(str(self.grid.crs), self.crs, always_xy=True).transform

    def exact(self, rows: AnyFloatArray, columns: AnyFloatArray) -> AnyFloatArray:
        """Source coordinates (2, n, m) of the places where these lines cross; NOWHERE, where there are none."""
        column, row = np.meshgrid(columns, rows)
        place: Any = self.grid.affine
        x, y = self._transformer(*(place * (column, row)))
        known = np.isfinite(x) & np.isfinite(y)
        column, row = ~self.transform * (np.where(known, x, 0), np.where(known, y, 0))
        return np.where(known, np.stack([row, column]), NOWHERE)

    @cached_property
    def nodes(self) -> InterpolationNodes | None:
        """Nodes so dense that no place between them is wrong by more than the tolerance; None: none would be."""
        step = SPACING
        while step >= LEAST:
            lines = [np.arange(0, 2 * -(-edge // (2 * step)) + 1) * float(step) for edge in self.grid.shape]
            nodes = InterpolationNodes(step, self.exact(*lines))
            if nodes.places.min() > NOWHERE / 2 and self._error(nodes, lines) < TOLERANCE:
                return nodes
            step //= 2
        return None

    def _error(self, nodes: InterpolationNodes, lines: list[AnyFloatArray]) -> float:
        """The worst error halfway between nodes."""
        rows, columns = (line[:-1] + nodes.step / 2 for line in lines)
        return float(np.abs(nodes.at(rows, columns) - self.exact(rows, columns)).max())

    def places(self, window: PixelWindow) -> AnyFloatArray:
        """Source coordinates (2, n, m) of the centres of the pixels of a window of the grid."""
        rows, columns = (np.arange(cut.start, cut.stop) + 0.5 for cut in window)
        return self.exact(rows, columns) if self.nodes is None else self.nodes.at(rows, columns)

    def corners(self, window: PixelWindow) -> AnyFloatArray:
        """Places among which all of a window of the grid lie."""
        if self.nodes is None:
            return self.places(window)
        return self.nodes.at(*(self.nodes.lines(cut) for cut in window))
