"""Resampling along the axes: for grids that are parallel, whatever their pixel sizes and offsets.

Kernels as GDAL defines them: weights over source pixels by their distance from a place.
"""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from math import ceil
from typing import Any, Literal

import numpy as np

from eopipe.arrays import AnyArray, AnyFloatArray, BoolArray, Float64Array, IndexArray
from eopipe.tiles.grid import PixelWindow

Resampling = Literal["nearest", "bilinear", "cubic", "average", "mode"]
PIECE = 1 << 16
# Source pixels on either side that count, where a target pixel is no larger than one of the source.
RADIUS = {"nearest": 0.5, "bilinear": 1.0, "cubic": 2.0}
# Beyond this ratio of pixel sizes GDAL widens its kernels, so that no source pixel is passed over.
WIDE = 1 / 0.95
# Places closer to the edge of two pixels than this lie on it, whatever the last bit says.
EDGE = 1e-6


def weights(resampling: Resampling, distance: AnyArray) -> AnyArray:
    """Weight of a source pixel whose centre is so many pixels away."""
    x = np.abs(distance)
    if resampling == "bilinear":
        linear: AnyArray = np.maximum(0, 1 - x)
        return linear
    # Convolution with a = -0.5 (Catmull and Rom).
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def put(values: AnyArray, out: AnyArray, *, convex: bool) -> None:
    """Write mixed pixels as a type holds them: halves go up, as in GDAL; what is too large is the largest.

    `convex` mixes lie between the pixels that they are made of. The values are spoilt.
    """
    if out.dtype.kind in "iu":
        values += values.dtype.type(0.5)
        if out.dtype.kind == "i" or not convex:
            np.floor(values, out=values)
        if not convex:
            most = np.iinfo(out.dtype)
            np.clip(values, most.min, most.max, out=values)
    np.copyto(out, values, casting="unsafe")


def strips(window: PixelWindow) -> list[slice]:
    """Cut a window into rows of so few pixels that work on them stays in the cache of a core."""
    height, width = (cut.stop - cut.start for cut in window)
    rows = max(8, PIECE // max(1, width))
    return [slice(top, min(top + rows, height)) for top in range(0, height, rows)]


def joined(seen: list[BoolArray | None], rows: list[slice], shape: tuple[int, ...]) -> BoolArray | None:
    """Put together what strips tell of where measurements are; None: everywhere."""
    if all(part is None for part in seen):
        return None
    whole = np.ones(shape, bool)
    for cut, part in zip(rows, seen, strict=True):
        if part is not None:
            whole[cut] = part
    return whole


def float_of(dtype: np.dtype[Any]) -> type[np.floating[Any]]:
    """The type to mix pixels in: single precision is exact for two bytes."""
    return np.float32 if dtype.itemsize <= 2 or dtype == np.float32 else np.float64


@dataclass(frozen=True)
class AxisMapping:
    """Rows or columns: the centre of target pixel t lies at source pixel `start + step * (t + 0.5)`."""

    start: float
    step: float
    size: int

    @property
    def ratio(self) -> float:
        """Source pixels in a target pixel."""
        return abs(self.step)

    def source(self, cut: slice, resampling: Resampling) -> slice:
        """The source pixels that these target pixels need; none where the source does not reach."""
        ends = np.array([cut.start + 0.5, cut.stop - 0.5])
        index, _ = _kernel(self, self.start + self.step * ends, resampling)
        first, last = max(0, int(index.min())), min(self.size, int(index.max()) + 1)
        return slice(first, max(first, last))


def axis_mapping(start: float, step: float, size: int, length: int) -> AxisMapping:
    """An axis whose offset and ratio are freed of what arithmetic added: a millionth of a pixel."""
    ratio = 1 / round(1 / step) if abs(step) < 1 else float(round(step))
    if abs(ratio - step) * length < 1e-6:
        step = ratio
        # Edges of source pixels fall on edges of target pixels.
        unit = min(abs(step), 1.0)
        if abs(start / unit - round(start / unit)) * unit < EDGE:
            start = round(start / unit) * unit
    return AxisMapping(start, step, size)


@dataclass(frozen=True)
class WeightRun:
    """Target pixels that take the same weights from source pixels that follow each other."""

    target: slice
    first: tuple[int, ...]
    stride: int
    weight: tuple[float, ...]

    @property
    def sources(self) -> list[slice]:
        """The source pixels of each weight."""
        count = len(range(self.target.start, self.target.stop, self.target.step))
        return [slice(first, first + self.stride * (count - 1) + 1, self.stride) for first in self.first]


@dataclass(frozen=True)
class KernelWeights:
    """What each of n target pixels of a line takes: source pixels (n, k) counted from an origin, weights (n, k).

    `inside` (n) tells where the source reaches, `whole` (n) where nothing that counts lies beyond it.
    """

    index: IndexArray
    weight: Float64Array
    inside: BoolArray
    whole: BoolArray
    period: int

    @cached_property
    def flat(self) -> "KernelWeights":
        """The same source pixels, all of one weight."""
        return replace(self, weight=np.ones_like(self.weight))

    @cached_property
    def runs(self) -> list[WeightRun] | None:
        """The line as runs; None where there are too many for slices to be faster than to pick pixel by pixel."""
        found = [run for phase in range(self.period) for run in self._runs(phase)]
        return found if len(found) <= max(8, 4 * self.period) else None

    def _runs(self, phase: int) -> list[WeightRun]:
        index, weight, period = self.index[phase :: self.period], self.weight[phase :: self.period], self.period
        if not len(index):
            return []
        step = np.diff(index, axis=0)
        stride = max(1, int(np.median(step))) if len(step) else 1
        same = (step == stride).all(1) & (np.abs(np.diff(weight, axis=0)) < 1e-9).all(1)
        edges = [0, *(np.flatnonzero(~same) + 1).tolist(), len(index)]
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
    def _same(self) -> bool:
        """Whether these are source pixels as they follow each other, from the first on."""
        runs = self.runs or []
        return len(runs) == 1 and len(runs[0].first) == 1 and runs[0].first[0] == 0 and runs[0].stride == 1

    def along(self, values: AnyArray, dim: int, out: AnyArray | None = None) -> AnyArray:
        """Weighted sums of source pixels along an axis of (y, x); of one source pixel each, those as they are."""
        if out is None and self._same:
            return values[: len(self.index)] if dim == 0 else values[:, : len(self.index)]
        if out is None:
            height, width = values.shape
            out = np.empty((len(self.index), width) if dim == 0 else (height, len(self.index)), values.dtype)
        lines, into = (values, out) if dim == 0 else (values.T, out.T)
        if self.runs is None:
            self._pick(lines, into)
        scaled: dict[float, AnyArray] = {}
        for run in self.runs or []:
            _sum(run, lines, into[run.target], scaled)
        return out

    def _pick(self, lines: AnyArray, into: AnyArray) -> None:
        parts = [lines.take(index, 0) for index in self.index.T]
        if len(parts) > 1:
            parts = [part * w[:, None].astype(part.dtype) for part, w in zip(parts, self.weight.T, strict=True)]
        np.copyto(into, parts[0])
        for part in parts[1:]:
            into += part


def _sum(run: WeightRun, lines: AnyArray, into: AnyArray, scaled: dict[float, AnyArray]) -> None:
    """Add up weighted lines; each weight is multiplied with all of them but once, for the runs that share it."""
    if len(run.first) == 1:
        into[...] = lines[run.sources[0]]
        return
    parts = []
    for cut, weight in zip(run.sources, run.weight, strict=True):
        key = round(weight, 9)
        if key and key not in scaled:
            scaled[key] = lines * lines.dtype.type(weight)
        if key:
            parts.append(scaled[key][cut])
    if len(parts) < 2:
        into[...] = parts[0] if parts else 0
        return
    np.add(parts[0], parts[1], out=into)
    for part in parts[2:]:
        into += part


@lru_cache(maxsize=256)
def kernel_weights(line: AxisMapping, cut: tuple[int, int], origin: int, resampling: Resampling) -> KernelWeights:
    """What the target pixels of a line take. Source pixels beyond the source weigh nothing."""
    centres = line.start + line.step * (np.arange(*cut) + 0.5)
    index, weight = _kernel(line, centres, resampling)
    at = np.floor(centres + EDGE)
    there: BoolArray = (index >= 0) & (index < line.size)
    weight = np.where(there, weight, 0)
    total = weight.sum(1, keepdims=True)
    weight = np.divide(weight, total, out=np.zeros_like(weight), where=np.abs(total) > 1e-9)
    inside: BoolArray = np.any(there, 1) if resampling == "average" else (at >= 0) & (at < line.size)
    period = max(1, round(1 / abs(line.step)))
    return KernelWeights(np.clip(index, 0, line.size - 1) - origin, weight, inside, np.all(there, 1), period)


def _kernel(line: AxisMapping, centres: AnyFloatArray, resampling: Resampling) -> tuple[IndexArray, Float64Array]:
    step = abs(line.step)
    if resampling in ("nearest", "average"):
        count = max(1, round(step)) if resampling == "average" else 1
        first = np.floor(centres - (count - 1) / 2 + EDGE).astype(np.intp)
        index = first[:, None] + np.arange(count)
        return index, np.ones(index.shape)
    wide = step if step > WIDE else 1.0
    reach = ceil(RADIUS[resampling] * wide)
    index = np.floor(centres - 0.5 + EDGE).astype(np.intp)[:, None] + np.arange(1 - reach, reach + 1)
    return index, weights(resampling, (index + 0.5 - centres[:, None]) / wide)
