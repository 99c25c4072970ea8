"""Resampling along rows and columns, for a source whose axes are parallel to the grid's.

Kernels as GDAL defines them: weights over source pixels by their distance from a position.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from math import ceil
from typing import Any, Literal, Protocol

import numpy as np

from eopipe.arrays import AnyArray, AnyFloatArray, BoolArray, Float64Array, IndexArray
from eopipe.tiles.grid import PixelWindow

Resampling = Literal["nearest", "bilinear", "cubic", "average", "mode"]
# Pixels of a strip, so few that intermediate arrays stay in the cache of a core.
STRIP_PIXELS = 1 << 16
# Source pixels with a weight on either side, where a target pixel is not larger than a source pixel.
RADIUS = {"nearest": 0.5, "bilinear": 1.0, "cubic": 2.0}
# Above this ratio of pixel sizes GDAL widens its kernels, so that every source pixel gets a weight.
WIDENING_RATIO = 1 / 0.95
# A position closer than this to the edge between two pixels counts as on the edge, in spite of rounding.
EDGE_TOLERANCE = 1e-6


def kernel(resampling: Resampling, distance: AnyArray) -> AnyArray:
    """Weight of a source pixel by the distance of its centre in pixels: bilinear or cubic."""
    x = np.abs(distance)
    if resampling == "bilinear":
        linear: AnyArray = np.maximum(0, 1 - x)
        return linear
    # Cubic convolution with a = -0.5 (Catmull and Rom).
    inner = (1.5 * x - 2.5) * x * x + 1
    outer = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, inner, np.where(x < 2, outer, 0))


def round_into(values: AnyArray, out: AnyArray, *, convex: bool) -> None:
    """Convert weighted sums to the data type of `out`: halves round up, as in GDAL, and values are clipped.

    `convex` says that no kernel weight was negative, so nothing has to be clipped. Overwrites `values`.
    """
    if out.dtype.kind in "iu":
        values += values.dtype.type(0.5)
        if out.dtype.kind == "i" or not convex:
            np.floor(values, out=values)
        if not convex:
            limits = np.iinfo(out.dtype)
            np.clip(values, limits.min, limits.max, out=values)
    np.copyto(out, values, casting="unsafe")


def row_strips(window: PixelWindow) -> list[slice]:
    """Cut a window into strips of rows whose intermediate arrays fit into the cache of a core."""
    height, width = (axis.stop - axis.start for axis in window)
    rows = max(8, STRIP_PIXELS // max(1, width))
    return [slice(top, min(top + rows, height)) for top in range(0, height, rows)]


def working_dtype(dtype: np.dtype[Any]) -> type[np.floating[Any]]:
    """The data type for weighted sums: single precision is exact for pixels of two bytes."""
    return np.float32 if dtype.itemsize <= 2 or dtype == np.float32 else np.float64


class ResampledStrip(Protocol):
    """Some rows of a window of the target."""

    def apply(self, values: AnyArray, valid: BoolArray | None, out: AnyArray) -> BoolArray | None:
        """Fill the strip from its source pixels; return its valid mask, None: all valid."""


@dataclass(frozen=True)
class ResampledWindow:
    """A window of the target with the source window that it needs, resampled strip by strip.

    Each strip comes with its rows in the window and the rows that it needs of the source window.
    """

    source: PixelWindow
    strips: Sequence[tuple[slice, slice, ResampledStrip]]

    def apply(self, values: AnyArray, valid: BoolArray | None, out: AnyArray) -> BoolArray | None:
        """Fill `out` from the pixels of `source` and their valid mask; return its valid mask, None: all valid."""
        masks = [
            strip.apply(values[source_rows], None if valid is None else valid[source_rows], out[rows])
            for rows, source_rows, strip in self.strips
        ]
        if all(mask is None for mask in masks):
            return None
        joined = np.ones(out.shape, bool)
        for (rows, _, _), mask in zip(self.strips, masks, strict=True):
            if mask is not None:
                joined[rows] = mask
        return joined


@dataclass(frozen=True)
class AxisMapping:
    """Rows or columns: the centre of target pixel t is at source position `start + step * (t + 0.5)`, in pixels."""

    start: float
    step: float
    size: int

    @property
    def ratio(self) -> float:
        """Source pixels per target pixel."""
        return abs(self.step)

    def source_range(self, target: slice, resampling: Resampling) -> slice:
        """The source pixels that these target pixels need; empty outside of the source."""
        ends = np.array([target.start + 0.5, target.stop - 0.5])
        index, _ = _indices_and_weights(self, self.start + self.step * ends, resampling)
        first, last = max(0, int(index.min())), min(self.size, int(index.max()) + 1)
        return slice(first, max(first, last))


def axis_mapping(start: float, step: float, size: int, length: int) -> AxisMapping:
    """An axis whose offset and ratio are cleaned of rounding errors below a millionth of a pixel."""
    ratio = 1 / round(1 / step) if abs(step) < 1 else float(round(step))
    if abs(ratio - step) * length < 1e-6:
        step = ratio
        # Edges of source pixels coincide with edges of target pixels.
        unit = min(abs(step), 1.0)
        if abs(start / unit - round(start / unit)) * unit < EDGE_TOLERANCE:
            start = round(start / unit) * unit
    return AxisMapping(start, step, size)


@dataclass(frozen=True)
class WeightRun:
    """Target pixels with the same weights over evenly spaced source pixels."""

    target: slice
    first: tuple[int, ...]
    stride: int
    weights: tuple[float, ...]

    @property
    def sources(self) -> list[slice]:
        """The source pixels of each weight."""
        count = len(range(self.target.start, self.target.stop, self.target.step))
        return [slice(first, first + self.stride * (count - 1) + 1, self.stride) for first in self.first]


@dataclass(frozen=True)
class KernelWeights:
    """For each of n target pixels of an axis: source pixels (n, k) counted from an origin, and weights (n, k).

    `inside` (n) is True where the centre is within the source, `complete` (n) where all weighted pixels are.
    """

    index: IndexArray
    weight: Float64Array
    inside: BoolArray
    complete: BoolArray
    period: int

    @cached_property
    def uniform(self) -> "KernelWeights":
        """The same source pixels, each with weight 1."""
        return replace(self, weight=np.ones_like(self.weight))

    @cached_property
    def runs(self) -> list[WeightRun] | None:
        """The axis as runs; None where there are too many for slices to be faster than indexing pixel by pixel."""
        runs = [run for phase in range(self.period) for run in self._runs(phase)]
        return runs if len(runs) <= max(8, 4 * self.period) else None

    def _runs(self, phase: int) -> list[WeightRun]:
        index, weight, period = self.index[phase :: self.period], self.weight[phase :: self.period], self.period
        if not len(index):
            return []
        step = np.diff(index, axis=0)
        stride = max(1, int(np.median(step))) if len(step) else 1
        continues = (step == stride).all(1) & (np.abs(np.diff(weight, axis=0)) < 1e-9).all(1)
        edges = [0, *(np.flatnonzero(~continues) + 1).tolist(), len(index)]
        return [
            WeightRun(
                slice(begin * period + phase, (end - 1) * period + phase + 1, period),
                tuple(index[begin].tolist()),
                stride,
                tuple(weight[begin].tolist()),
            )
            for begin, end in pairwise(edges)
        ]

    @property
    def _is_identity(self) -> bool:
        """Whether the target pixels are consecutive source pixels from the first one on."""
        runs = self.runs or []
        return len(runs) == 1 and len(runs[0].first) == 1 and runs[0].first[0] == 0 and runs[0].stride == 1

    def apply(self, values: AnyArray, axis: int, out: AnyArray | None = None) -> AnyArray:
        """Weighted sums of source pixels along an axis of (y, x); a single source pixel is copied unweighted."""
        if out is None and self._is_identity:
            return values[: len(self.index)] if axis == 0 else values[:, : len(self.index)]
        if out is None:
            height, width = values.shape
            out = np.empty((len(self.index), width) if axis == 0 else (height, len(self.index)), values.dtype)
        lines, target = (values, out) if axis == 0 else (values.T, out.T)
        if self.runs is None:
            self._apply_indices(lines, target)
        scaled: dict[float, AnyArray] = {}
        for run in self.runs or []:
            _apply_run(run, lines, target[run.target], scaled)
        return out

    def _apply_indices(self, lines: AnyArray, target: AnyArray) -> None:
        parts = [lines.take(index, 0) for index in self.index.T]
        if len(parts) > 1:
            parts = [part * w[:, None].astype(part.dtype) for part, w in zip(parts, self.weight.T, strict=True)]
        np.copyto(target, parts[0])
        for part in parts[1:]:
            target += part


def _apply_run(run: WeightRun, lines: AnyArray, target: AnyArray, scaled: dict[float, AnyArray]) -> None:
    """Add up weighted lines; `scaled` keeps the lines times each weight for other runs with the same weight."""
    if len(run.first) == 1:
        target[...] = lines[run.sources[0]]
        return
    parts = []
    for source, weight in zip(run.sources, run.weights, strict=True):
        key = round(weight, 9)
        if key and key not in scaled:
            scaled[key] = lines * lines.dtype.type(weight)
        if key:
            parts.append(scaled[key][source])
    if len(parts) < 2:
        target[...] = parts[0] if parts else 0
        return
    np.add(parts[0], parts[1], out=target)
    for part in parts[2:]:
        target += part


@lru_cache(maxsize=256)
def kernel_weights(axis: AxisMapping, target: tuple[int, int], origin: int, resampling: Resampling) -> KernelWeights:
    """Kernel weights of the target pixels from `target[0]` to `target[1]`; pixels outside of the source weigh 0."""
    centres = axis.start + axis.step * (np.arange(*target) + 0.5)
    index, weight = _indices_and_weights(axis, centres, resampling)
    nearest = np.floor(centres + EDGE_TOLERANCE)
    exists: BoolArray = (index >= 0) & (index < axis.size)
    weight = np.where(exists, weight, 0)
    total = weight.sum(1, keepdims=True)
    weight = np.divide(weight, total, out=np.zeros_like(weight), where=np.abs(total) > 1e-9)
    within: BoolArray = (nearest >= 0) & (nearest < axis.size)
    inside = np.any(exists, 1) if resampling == "average" else within
    period = max(1, round(1 / abs(axis.step)))
    return KernelWeights(np.clip(index, 0, axis.size - 1) - origin, weight, inside, np.all(exists, 1), period)


def _indices_and_weights(
    axis: AxisMapping, centres: AnyFloatArray, resampling: Resampling
) -> tuple[IndexArray, Float64Array]:
    """Source pixels (n, k) of the kernels at these source positions, and their weights (n, k), not normalised."""
    step = abs(axis.step)
    if resampling in ("nearest", "average"):
        count = max(1, round(step)) if resampling == "average" else 1
        first = np.floor(centres - (count - 1) / 2 + EDGE_TOLERANCE).astype(np.intp)
        index = first[:, None] + np.arange(count)
        return index, np.ones(index.shape)
    widening = step if step > WIDENING_RATIO else 1.0
    reach = ceil(RADIUS[resampling] * widening)
    index = np.floor(centres - 0.5 + EDGE_TOLERANCE).astype(np.intp)[:, None] + np.arange(1 - reach, reach + 1)
    return index, kernel(resampling, (index + 0.5 - centres[:, None]) / widening)
