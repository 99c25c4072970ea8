"""Resampling along the axes: for grids that are parallel, whatever their pixel sizes and offsets."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import ceil

import numpy as np
import numpy.typing as npt

from eopipe.scenes.blocks import There, Values
from eopipe.scenes.kernels import RADIUS, WIDE, Resampling, weights

# Places closer to the edge of two pixels than this lie on it, whatever the last bit says.
EDGE = 1e-6


@dataclass(frozen=True)
class Axis:
    """Rows or columns: the centre of target pixel t lies at source pixel `start + step * (t + 0.5)`."""

    start: float
    step: float
    size: int

    def centres(self, cut: slice) -> npt.NDArray[np.float64]:
        """Where the centres of target pixels lie, in source pixels."""
        return self.start + self.step * (np.arange(cut.start, cut.stop) + 0.5)

    def source(self, cut: slice, resampling: Resampling) -> slice:
        """The source pixels that these target pixels need; none where the source does not reach."""
        ends = np.array([cut.start + 0.5, cut.stop - 0.5])
        index, _ = _kernel(self, self.start + self.step * ends, resampling)
        first, last = max(0, int(index.min())), min(self.size, int(index.max()) + 1)
        return slice(first, max(first, last))


def axis(start: float, step: float, size: int, length: int) -> Axis:
    """An axis whose offset and ratio are freed of what arithmetic added: a millionth of a pixel."""
    ratio = 1 / round(1 / step) if abs(step) < 1 else float(round(step))
    if abs(ratio - step) * length < 1e-6:
        step = ratio
        # Edges of source pixels fall on edges of target pixels.
        unit = min(abs(step), 1.0)
        if abs(start / unit - round(start / unit)) * unit < EDGE:
            start = round(start / unit) * unit
    return Axis(start, step, size)


@dataclass(frozen=True)
class Run:
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
class Taps:
    """What each of n target pixels of a line takes: source pixels (n, k) counted from an origin, weights (n, k).

    `inside` (n) tells where the source reaches, `whole` (n) where nothing that counts lies beyond it.
    """

    index: npt.NDArray[np.intp]
    weight: npt.NDArray[np.float64]
    inside: There
    whole: There
    period: int

    @cached_property
    def flat(self) -> "Taps":
        """The same source pixels, all of one weight."""
        return replace(self, weight=np.ones_like(self.weight))

    @cached_property
    def runs(self) -> list[Run] | None:
        """The line as runs; None where there are too many for slices to be faster than to pick pixel by pixel."""
        found = [run for phase in range(self.period) for run in self._runs(phase)]
        return found if len(found) <= max(8, 4 * self.period) else None

    def _runs(self, phase: int) -> list[Run]:
        index, weight, period = self.index[phase :: self.period], self.weight[phase :: self.period], self.period
        if not len(index):
            return []
        step = np.diff(index, axis=0)
        stride = max(1, int(np.median(step))) if len(step) else 1
        same = (step == stride).all(1) & (np.abs(np.diff(weight, axis=0)) < 1e-9).all(1)
        edges = [0, *(np.flatnonzero(~same) + 1).tolist(), len(index)]
        return [
            Run(
                slice(begin * period + phase, (end - 1) * period + phase + 1, period),
                tuple(index[begin].tolist()),
                stride,
                tuple(weight[begin].tolist()),
            )
            for begin, end in pairwise(edges)
        ]

    def along(self, values: Values, dim: int) -> Values:
        """Sum of the weighted source pixels along an axis of (y, x); of one source pixel each, those as they are."""
        lines = np.moveaxis(values, dim, 0)
        shape = [*values.shape]
        shape[dim] = len(self.index)
        out = np.empty(shape, values.dtype)
        into = np.moveaxis(out, dim, 0)
        if self.runs is None:
            self._pick(lines, into)
            return out
        for run in self.runs:
            into[run.target] = _sum([lines[cut] for cut in run.sources], run.weight)
        return out

    def _pick(self, lines: Values, into: Values) -> None:
        count = self.index.shape[1]
        parts = [lines[self.index[:, k]] for k in range(count)]
        if count == 1:
            into[...] = parts[0]
            return
        into[...] = sum(part * self.weight[:, k, None].astype(part.dtype) for k, part in enumerate(parts))


def _sum(parts: list[Values], weight: tuple[float, ...]) -> Values:
    if len(parts) == 1:
        return parts[0]
    total = parts[0] * parts[0].dtype.type(weight[0])
    for part, factor in zip(parts[1:], weight[1:], strict=True):
        if factor:
            total += part * part.dtype.type(factor)
    return total


def taps(line: Axis, cut: slice, origin: int, resampling: Resampling) -> Taps:
    """What the target pixels of a line take. Source pixels beyond the source weigh nothing."""
    centres = line.centres(cut)
    index, weight = _kernel(line, centres, resampling)
    at = np.floor(centres + EDGE)
    there = (index >= 0) & (index < line.size)
    weight = np.where(there, weight, 0)
    total = weight.sum(1, keepdims=True)
    weight = np.divide(weight, total, out=np.zeros_like(weight), where=np.abs(total) > 1e-9)
    inside = there.any(1) if resampling == "average" else (at >= 0) & (at < line.size)
    period = max(1, round(1 / abs(line.step)))
    return Taps(np.clip(index, 0, line.size - 1) - origin, weight, inside, there.all(1), period)


def _kernel(
    line: Axis, centres: npt.NDArray[np.float64], resampling: Resampling
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
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
