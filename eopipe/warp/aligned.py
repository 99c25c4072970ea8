"""Resampling of a source whose rows and columns are parallel to the grid's: copied, or axis by axis."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.tiles.grid import PixelWindow
from eopipe.warp.separable import (
    WIDENING_RATIO,
    AxisMapping,
    KernelWeights,
    ResampledWindow,
    Resampling,
    kernel_weights,
    round_into,
    row_strips,
    working_dtype,
)

# Kernel weights of rows and of columns.
SeparableWeights = tuple[KernelWeights, KernelWeights]


@dataclass(frozen=True)
class AlignedResampling:
    """Resampling along rows and columns of a source."""

    rows: AxisMapping
    columns: AxisMapping
    resampling: Resampling

    def source_window(self, window: PixelWindow) -> PixelWindow:
        """The source pixels that a window of the target needs."""
        rows, columns = window
        return self.rows.source_range(rows, self.resampling), self.columns.source_range(columns, self.resampling)

    def resample(self, window: PixelWindow, _: dict[Any, Any]) -> ResampledWindow:
        """How this window is made from its source pixels."""
        source, top = self.source_window(window), window[0].start
        first = source[0].start
        # Nearest neighbours are only copied, so strips would gain nothing.
        one_strip = [slice(0, window[0].stop - top)]
        strips = []
        for rows in one_strip if self.resampling == "nearest" else row_strips(window):
            strip = AlignedStrip(self, (slice(top + rows.start, top + rows.stop), window[1]))
            needed = strip.source[0]
            strips.append((rows, slice(needed.start - first, needed.stop - first), strip))
        return ResampledWindow(source, strips)


@dataclass(frozen=True)
class AlignedStrip:
    """Some rows of the target, with the kernel weights of their rows and columns."""

    mapping: AlignedResampling
    window: PixelWindow

    @cached_property
    def source(self) -> PixelWindow:
        """The source pixels that the strip needs."""
        return self.mapping.source_window(self.window)

    def apply(self, values: AnyArray, valid: BoolArray | None, out: AnyArray) -> BoolArray | None:
        """Fill the strip, as `ResampledWindow.apply`."""
        if not values.size:
            out[...] = 0
            return np.zeros(out.shape, bool)
        if self.mapping.resampling == "nearest":
            _apply(self._nearest, values, out)
            return self._valid(valid)
        floats = values.astype(working_dtype(values.dtype))
        if valid is not None:
            floats[~valid] = 0
        mean, valid_weight = self._weighted_mean(self._weights, floats, valid)
        if self.mapping.resampling == "cubic" and max(self.mapping.rows.ratio, self.mapping.columns.ratio) <= (
            WIDENING_RATIO
        ):
            mean = self._bilinear_where_incomplete(mean, floats, valid)
        round_into(mean, out, convex=self.mapping.resampling != "cubic")
        if self.mapping.resampling == "average":
            return _and(_inside(self._weights), None if valid_weight is None else valid_weight > 0)
        return self._valid(valid)

    def _kernel_weights(self, resampling: Resampling) -> SeparableWeights:
        axes = (self.mapping.rows, self.mapping.columns)
        rows, columns = (
            kernel_weights(axis, (target.start, target.stop), source.start, resampling)
            for axis, target, source in zip(axes, self.window, self.source, strict=True)
        )
        return rows, columns

    @cached_property
    def _weights(self) -> SeparableWeights:
        return self._kernel_weights(self.mapping.resampling)

    @cached_property
    def _nearest(self) -> SeparableWeights:
        return self._kernel_weights("nearest")

    @cached_property
    def _bilinear(self) -> SeparableWeights:
        return self._kernel_weights("bilinear")

    def _valid(self, valid: BoolArray | None) -> BoolArray | None:
        """A target pixel is valid where the source pixel that contains its centre is."""
        return _and(_inside(self._nearest), None if valid is None else _apply(self._nearest, valid))

    def _bilinear_where_incomplete(self, mean: AnyArray, floats: AnyArray, valid: BoolArray | None) -> AnyArray:
        """Replace the cubic mean by the bilinear one where the cubic kernel lacks a pixel, as GDAL does."""
        rows, columns = self._weights
        if valid is None and rows.complete.all() and columns.complete.all():
            return mean
        complete = rows.complete[:, None] & columns.complete
        if valid is not None:
            complete &= _apply((rows.uniform, columns.uniform), (~valid).astype(np.float32)) == 0
        return np.where(complete, mean, self._weighted_mean(self._bilinear, floats, valid)[0])

    @staticmethod
    def _weighted_mean(
        weights: SeparableWeights, floats: AnyArray, valid: BoolArray | None
    ) -> tuple[AnyArray, AnyArray | None]:
        """Weighted mean over the valid pixels, and their part of the total weight (None: all)."""
        total = _apply(weights, floats)
        if valid is None:
            return total, None
        valid_weight = _apply(weights, valid.astype(floats.dtype))
        return np.divide(total, valid_weight, out=np.zeros_like(total), where=np.abs(valid_weight) > 1e-5), valid_weight


def _apply(weights: SeparableWeights, values: AnyArray, out: AnyArray | None = None) -> AnyArray:
    """Weighted sums along both axes, columns first: a coarser source then has fewer rows for the second pass."""
    rows, columns = weights
    return rows.apply(columns.apply(values, 1), 0, out)


def _inside(weights: SeparableWeights) -> BoolArray | None:
    rows, columns = weights
    return None if rows.inside.all() and columns.inside.all() else rows.inside[:, None] & columns.inside


def _and(first: BoolArray | None, second: BoolArray | None) -> BoolArray | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second
