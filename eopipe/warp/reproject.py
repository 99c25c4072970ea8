"""Scenes on grids of another CRS: each pixel is mixed from the source pixels around its place.

Places are found once for all bands, and which pixels count once for those of one resolution.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, AnyFloatArray, BoolArray, IndexArray
from eopipe.tiles.grid import PixelWindow
from eopipe.warp.coordinates import PixelTransform
from eopipe.warp.separable import EDGE, RADIUS, Resampling, float_of, joined, put, strips, weights


@dataclass(frozen=True)
class Reprojection:
    """A source in another CRS than the target.

    Its row and column are `scale` times those of the raster that the projection is of, plus `shift`.
    """

    projection: PixelTransform
    scale: tuple[float, float]
    shift: tuple[float, float]
    shape: tuple[int, int]
    resampling: Resampling

    def own(self, places: AnyFloatArray) -> AnyFloatArray:
        """Places (2, n, m) in pixels of this source."""
        if self.scale == (1, 1) and self.shift == (0, 0):
            return places
        own: AnyFloatArray = places * np.reshape(self.scale, (2, 1, 1)) + np.reshape(self.shift, (2, 1, 1))
        return own

    def source(self, window: PixelWindow) -> PixelWindow:
        """The pixels of the source that a window of the target needs; none where the source does not reach."""
        reach, cuts = RADIUS[self.resampling] + 0.5, []
        for line, size in zip(self.own(self.projection.corners(window)), self.shape, strict=True):
            first, last = max(line.min(), -9.0), min(line.max(), size + 9.0)
            begin, end = max(0, floor(first - reach)), min(size, ceil(last + reach))
            cuts.append(slice(begin, max(begin, end)))
        return cuts[0], cuts[1]

    def cut(self, window: PixelWindow, shared: dict[Any, Any]) -> "ReprojectedWindow":
        """How this window comes from its source pixels; `shared` keeps the places for other sources."""
        rows = strips(window)
        places = shared.get(id(self.projection))
        if places is None:
            top = window[0].start
            cuts = [(slice(top + cut.start, top + cut.stop), window[1]) for cut in rows]
            places = shared[id(self.projection)] = [self.projection.places(cut) for cut in cuts]
        key = (id(self.projection), self.scale, self.shift)
        own = shared.get(key)
        if own is None:
            own = shared[key] = [self.own(part) for part in places]
        source = self.source(window)
        return ReprojectedWindow(
            source, [(cut, ReprojectedStrip(self, source, part)) for cut, part in zip(rows, own, strict=True)]
        )


@dataclass(frozen=True)
class ReprojectedWindow:
    """A window of the target, made strip by strip, so that what is in between stays in the cache of a core."""

    source: PixelWindow
    strips: "list[tuple[slice, ReprojectedStrip]]"

    def apply(self, values: AnyArray, there: BoolArray | None, out: AnyArray) -> BoolArray | None:
        """Fill a window from the pixels of `source`; tell where they are measurements, None: everywhere."""
        if not values.size:
            out[...] = 0
            return np.zeros(out.shape, bool)
        # Four pixels are around each place, also in a raster of one row or column.
        more = [(0, edge == 1) for edge in values.shape]
        values = np.pad(values, more, "edge") if any(one for _, one in more) else np.ascontiguousarray(values)
        if there is not None:
            there = np.pad(there, more, "edge")
            values = np.where(there, values, values.dtype.type(0))
        seen = [mix.apply(values, there, out[rows]) for rows, mix in self.strips]
        return joined(seen, [rows for rows, _ in self.strips], out.shape)


@dataclass(frozen=True)
class ReprojectedStrip:
    """Some rows of the target: the places of their pixels in the source, as (2, n, m)."""

    place: Reprojection
    source: PixelWindow
    places: AnyFloatArray

    def apply(self, values: AnyArray, there: BoolArray | None, out: AnyArray) -> BoolArray | None:
        """Fill the strip, as `Bend.apply`; the pixels without data are zero."""
        if self.place.resampling == "nearest":
            out[...] = values.ravel().take(self._nearest)
            return self._seen(there)
        kind = float_of(values.dtype)
        mixed, share = self._lerp(values.ravel(), kind), None
        if there is not None:
            share = self._lerp(there.ravel(), kind)
            mixed = np.divide(mixed, share, out=np.zeros_like(mixed), where=share > 1e-5)
        if self.place.resampling == "cubic":
            mixed = self._cubic(values, there, mixed)
        put(mixed, out, convex=self.place.resampling == "bilinear")
        return self._seen(there)

    def _seen(self, there: BoolArray | None) -> BoolArray | None:
        """A pixel is a measurement where the one that its centre lies in is."""
        if there is None:
            return self._inside
        seen: BoolArray = there.ravel().take(self._nearest)
        return seen if self._inside is None else seen & self._inside

    @cached_property
    def _inner(self) -> bool:
        """Whether all that counts lies within the source, with a pixel to spare."""
        return all(cut.start > 0 and cut.stop < edge for cut, edge in zip(self.source, self.place.shape, strict=True))

    @cached_property
    def _inside(self) -> BoolArray | None:
        if self._inner:
            return None
        pairs = zip(self.places, self.place.shape, strict=True)
        rows, columns = ((line >= -EDGE) & (line < edge - EDGE) for line, edge in pairs)
        inside: BoolArray = rows & columns
        return None if inside.all() else inside

    @property
    def _width(self) -> int:
        columns = self.source[1]
        return max(2, int(columns.stop) - int(columns.start))

    @cached_property
    def _nearest(self) -> IndexArray:
        rows, columns = (
            np.clip((line + (EDGE - cut.start)).astype(np.intp), 0, cut.stop - cut.start - 1)
            for line, cut in zip(self.places, self.source, strict=True)
        )
        index: IndexArray = rows
        index *= self._width
        index += columns
        return index

    @cached_property
    def _corner(self) -> tuple[IndexArray, AnyFloatArray, AnyFloatArray]:
        """The first of the four pixels around each place, and how far the place lies from it, down and right."""
        low, share = [], []
        for line, cut in zip(self.places, self.source, strict=True):
            size = cut.stop - cut.start
            # At the border the outermost pixel counts alone, as no other is there.
            at = line - (cut.start + 0.5)
            if not self._inner:
                np.clip(at, 0, size - 1, out=at)
            first = at.astype(np.intp)
            if not self._inner:
                np.minimum(first, max(0, size - 2), out=first)
            at -= first
            low.append(first)
            share.append(at.astype(np.float32))
        low[0] *= self._width
        low[0] += low[1]
        return low[0], share[0], share[1]

    def _lerp(self, flat: AnyArray, kind: Any) -> AnyArray:
        index, down, right = self._corner
        width = self._width
        a, b, c, d = (flat[at:].take(index, mode="clip").astype(kind, copy=False) for at in (0, 1, width, width + 1))
        for begin, end, share in ((a, b, right), (c, d, right), (a, c, down)):
            np.subtract(end, begin, out=end)
            np.multiply(end, share, out=end)
            np.add(begin, end, out=begin)
        return a

    def _cubic(self, values: AnyArray, there: BoolArray | None, mixed: AnyArray) -> AnyArray:
        """A cubic kernel that misses a pixel gives way to the bilinear one, as in GDAL."""
        (index, down, right), width = self._corner, self._width
        row, column = np.divmod(index, width)
        full = (row > 0) & (row < values.shape[0] - 2) & (column > 0) & (column < width - 2)
        if not full.any():
            return mixed
        index, flat, kind = np.where(full, index - width - 1, 0), values.ravel(), mixed.dtype
        total = np.zeros(index.shape, kind)
        for y in range(4):
            line = np.zeros(index.shape, kind)
            for x in range(4):
                at = y * width + x
                line += flat[at:].take(index, mode="clip") * weights("cubic", x - 1 - right).astype(kind)
                if there is not None:
                    full &= there.ravel()[at:].take(index, mode="clip")
            total += line * weights("cubic", y - 1 - down).astype(kind)
        return np.where(full, total, mixed)
