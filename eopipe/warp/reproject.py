"""Resampling of a source in another CRS: each pixel from the source pixels around its position.

Positions are exact at nodes and interpolated between them, with a checked error. They are calculated once for all
bands, and kernels once for the bands of one resolution.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, AnyFloatArray, BoolArray, IndexArray
from eopipe.tiles.globe import transformer
from eopipe.tiles.grid import PixelWindow
from eopipe.warp.separable import (
    EDGE_TOLERANCE,
    RADIUS,
    ResampledWindow,
    Resampling,
    kernel,
    round_into,
    row_strips,
    working_dtype,
)

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


@dataclass(frozen=True)
class Reprojection:
    """Resampling of a source in another CRS than the target.

    Row and column of the source are `scale` times row and column of the raster that `transform` leads to, plus `shift`.
    """

    transform: PixelTransform
    scale: tuple[float, float]
    shift: tuple[float, float]
    shape: tuple[int, int]
    resampling: Resampling

    def in_source(self, positions: AnyFloatArray) -> AnyFloatArray:
        """Positions (2, n, m) of the transform's raster, in pixels of this source."""
        if self.scale == (1, 1) and self.shift == (0, 0):
            return positions
        scaled: AnyFloatArray = positions * np.reshape(self.scale, (2, 1, 1)) + np.reshape(self.shift, (2, 1, 1))
        return scaled

    def source_window(self, window: PixelWindow) -> PixelWindow:
        """The source pixels that a window of the target needs; empty outside of the source."""
        reach, ranges = RADIUS[self.resampling] + 0.5, []
        for line, size in zip(self.in_source(self.transform.bounding_positions(window)), self.shape, strict=True):
            first, last = max(line.min(), -9.0), min(line.max(), size + 9.0)
            begin, end = max(0, floor(first - reach)), min(size, ceil(last + reach))
            ranges.append(slice(begin, max(begin, end)))
        return ranges[0], ranges[1]

    def resample(self, window: PixelWindow, shared: dict[Any, Any]) -> "ReprojectedWindow":
        """How this window is made from its source pixels; `shared` keeps the positions for other sources."""
        strips = row_strips(window)
        positions = shared.get(id(self.transform))
        if positions is None:
            top = window[0].start
            strip_windows = [(slice(top + rows.start, top + rows.stop), window[1]) for rows in strips]
            positions = shared[id(self.transform)] = [self.transform.positions(strip) for strip in strip_windows]
        key = (id(self.transform), self.scale, self.shift)
        in_source = shared.get(key)
        if in_source is None:
            in_source = shared[key] = [self.in_source(part) for part in positions]
        source, every_row = self.source_window(window), slice(None)
        return ReprojectedWindow(
            source,
            [
                (rows, every_row, ReprojectedStrip(self, source, part))
                for rows, part in zip(strips, in_source, strict=True)
            ],
        )


class ReprojectedWindow(ResampledWindow):
    """A window of the target whose strips may need any row of the source window."""

    def apply(self, values: AnyArray, valid: BoolArray | None, out: AnyArray) -> BoolArray | None:
        """Fill a window, as `ResampledWindow.apply`; pixels that are not valid are zero for the strips."""
        if not values.size:
            out[...] = 0
            return np.zeros(out.shape, bool)
        # Four pixels are around each position, also in a raster of one row or column.
        padding = [(0, edge == 1) for edge in values.shape]
        is_padded = any(after for _, after in padding)
        values = np.pad(values, padding, "edge") if is_padded else np.ascontiguousarray(values)
        if valid is not None:
            valid = np.pad(valid, padding, "edge")
            values = np.where(valid, values, values.dtype.type(0))
        return super().apply(values, valid, out)


@dataclass(frozen=True)
class ReprojectedStrip:
    """Some rows of the target: the positions (2, n, m) of their pixels in the source."""

    mapping: Reprojection
    source: PixelWindow
    positions: AnyFloatArray

    def apply(self, values: AnyArray, valid: BoolArray | None, out: AnyArray) -> BoolArray | None:
        """Fill the strip, as `ResampledWindow.apply`; the pixels that are not valid are zero."""
        if self.mapping.resampling == "nearest":
            out[...] = values.ravel().take(self._nearest)
            return self._valid(valid)
        dtype = working_dtype(values.dtype)
        mean = self._bilinear(values.ravel(), dtype)
        if valid is not None:
            valid_weight = self._bilinear(valid.ravel(), dtype)
            mean = np.divide(mean, valid_weight, out=np.zeros_like(mean), where=valid_weight > 1e-5)
        if self.mapping.resampling == "cubic":
            mean = self._cubic(values, valid, mean)
        round_into(mean, out, convex=self.mapping.resampling == "bilinear")
        return self._valid(valid)

    def _valid(self, valid: BoolArray | None) -> BoolArray | None:
        """A target pixel is valid where the source pixel that contains its centre is."""
        if valid is None:
            return self._inside
        nearest: BoolArray = valid.ravel().take(self._nearest)
        return nearest if self._inside is None else nearest & self._inside

    @cached_property
    def _is_interior(self) -> bool:
        """Whether all kernels are within the source, with a pixel to spare."""
        pairs = zip(self.source, self.mapping.shape, strict=True)
        return all(axis.start > 0 and axis.stop < edge for axis, edge in pairs)

    @cached_property
    def _inside(self) -> BoolArray | None:
        if self._is_interior:
            return None
        pairs = zip(self.positions, self.mapping.shape, strict=True)
        rows, columns = ((line >= -EDGE_TOLERANCE) & (line < edge - EDGE_TOLERANCE) for line, edge in pairs)
        inside: BoolArray = rows & columns
        return None if inside.all() else inside

    @property
    def _width(self) -> int:
        columns = self.source[1]
        return max(2, int(columns.stop) - int(columns.start))

    @cached_property
    def _nearest(self) -> IndexArray:
        """Flat index of the source pixel that contains each position."""
        rows, columns = (
            np.clip((line + (EDGE_TOLERANCE - axis.start)).astype(np.intp), 0, axis.stop - axis.start - 1)
            for line, axis in zip(self.positions, self.source, strict=True)
        )
        index: IndexArray = rows
        index *= self._width
        index += columns
        return index

    @cached_property
    def _corner(self) -> tuple[IndexArray, AnyFloatArray, AnyFloatArray]:
        """Flat index of the upper left of the four pixels around each position, and the offsets from its centre.

        Offsets are in pixels, down and right.
        """
        corners, offsets = [], []
        for line, axis in zip(self.positions, self.source, strict=True):
            size = axis.stop - axis.start
            # At the border the outermost pixel counts alone.
            offset = line - (axis.start + 0.5)
            if not self._is_interior:
                np.clip(offset, 0, size - 1, out=offset)
            first = offset.astype(np.intp)
            if not self._is_interior:
                np.minimum(first, max(0, size - 2), out=first)
            offset -= first
            corners.append(first)
            offsets.append(offset.astype(np.float32))
        rows, columns = corners
        rows *= self._width
        rows += columns
        return rows, offsets[0], offsets[1]

    def _bilinear(self, flat: AnyArray, dtype: Any) -> AnyArray:
        index, down, right = self._corner
        width = self._width
        a, b, c, d = (
            flat[shift:].take(index, mode="clip").astype(dtype, copy=False) for shift in (0, 1, width, width + 1)
        )
        for begin, end, offset in ((a, b, right), (c, d, right), (a, c, down)):
            np.subtract(end, begin, out=end)
            np.multiply(end, offset, out=end)
            np.add(begin, end, out=begin)
        return a

    def _cubic(self, values: AnyArray, valid: BoolArray | None, bilinear: AnyArray) -> AnyArray:
        """The cubic mean, or the bilinear one where the cubic kernel lacks a pixel, as in GDAL."""
        (index, down, right), width = self._corner, self._width
        row, column = np.divmod(index, width)
        complete = (row > 0) & (row < values.shape[0] - 2) & (column > 0) & (column < width - 2)
        if not complete.any():
            return bilinear
        index, flat, dtype = np.where(complete, index - width - 1, 0), values.ravel(), bilinear.dtype
        total = np.zeros(index.shape, dtype)
        for y in range(4):
            line = np.zeros(index.shape, dtype)
            for x in range(4):
                shift = y * width + x
                line += flat[shift:].take(index, mode="clip") * kernel("cubic", x - 1 - right).astype(dtype)
                if valid is not None:
                    complete &= valid.ravel()[shift:].take(index, mode="clip")
            total += line * kernel("cubic", y - 1 - down).astype(dtype)
        return np.where(complete, total, bilinear)
