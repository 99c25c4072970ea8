"""Where pixels of a grid lie in another CRS: exact at nodes, interpolated between, and checked."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from affine import Affine
    from odc.geo.geobox import GeoBox

Floats = npt.NDArray[np.float64]
Window = tuple[slice, slice]
# Pixels between nodes, to begin with, and pixels of the source by which a place between nodes may be wrong.
SPACING = 64
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Nodes:
    """Source coordinates (row, column) at rows and columns of the target, as (2, n, m)."""

    rows: Floats
    columns: Floats
    places: Floats

    def at(self, rows: Floats, columns: Floats) -> Floats:
        """Places of the pixels where these rows and columns cross, as (2, n, m)."""
        across = _between(self.places, self.columns, columns, 2)
        return _between(across, self.rows, rows, 1)


def _between(places: Floats, nodes: Floats, wanted: Floats, dim: int) -> Floats:
    """Linear interpolation along an axis."""
    low = np.clip(np.searchsorted(nodes, wanted, "right") - 1, 0, len(nodes) - 2)
    share = (wanted - nodes[low]) / (nodes[low + 1] - nodes[low])
    share = share[:, None] if dim == 1 else share
    begin = places.take(low, dim)
    end = places.take(low + 1, dim)
    end -= begin
    end *= share
    end += begin
    return end


@dataclass(frozen=True)
class Projection:
    """From pixels of a grid to those of a source in another CRS, or one that is turned."""

    grid: "GeoBox"
    crs: str
    inverse: "Affine"

    @cached_property
    def _transformer(self) -> Callable[..., Any]:
        from pyproj import Transformer

        return Transformer.from_crs(str(self.grid.crs), self.crs, always_xy=True).transform

    def exact(self, rows: Floats, columns: Floats) -> Floats:
        """Source coordinates (2, n, m) of the places where these lines cross; infinite where there is none."""
        column, row = np.meshgrid(columns, rows)
        x, y = self._transformer(*(self.grid.affine * (column, row)))
        with np.errstate(invalid="ignore"):
            column, row = self.inverse * (x, y)
        return np.stack([row, column])

    def nodes(self, window: Window) -> Nodes | None:
        """Nodes dense enough that no place between them is wrong by more than the tolerance; None: none are."""
        spacing = SPACING
        while spacing > 1:
            rows, columns = (_lines(cut, spacing) for cut in window)
            found = Nodes(rows, columns, self.exact(rows, columns))
            if np.isfinite(found.places).all() and self._error(found) < TOLERANCE:
                return found
            spacing //= 2
        return None

    def _error(self, nodes: Nodes) -> float:
        """The worst error, found in the middle of cells, where a curve is farthest from its chord."""
        rows, columns = ((line[1:] + line[:-1]) / 2 for line in (nodes.rows, nodes.columns))
        worst = 0.0
        for y, x in ((rows, columns), (rows, nodes.columns), (nodes.rows, columns)):
            worst = max(worst, float(np.abs(nodes.at(y, x) - self.exact(y, x)).max()))
        return worst

    def places(self, window: Window) -> Floats:
        """Source coordinates (2, n, m) of the centres of the pixels of a window."""
        rows, columns = (np.arange(cut.start, cut.stop) + 0.5 for cut in window)
        nodes = self.nodes(window)
        return self.exact(rows, columns) if nodes is None else nodes.at(rows, columns)


def _lines(cut: slice, spacing: int) -> Floats:
    """Evenly spaced lines from edge to edge of a window, no farther apart than told."""
    return np.linspace(cut.start, cut.stop, max(2, -(-(cut.stop - cut.start) // spacing) + 1))
