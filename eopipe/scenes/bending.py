"""Scenes on grids of another CRS: each pixel is mixed from the source pixels around its place.

The same places serve every band of one resolution.
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor
from typing import Any

import numpy as np
import numpy.typing as npt

from eopipe.scenes.blocks import There, Values, Window
from eopipe.scenes.coordinates import Floats, Projection
from eopipe.scenes.kernels import RADIUS, Resampling, float_of, rounded, weights
from eopipe.scenes.taps import EDGE

# Pixels that are mixed at a time, so that what is in between stays in the cache of a core.
PIECE = 1 << 15


@dataclass(frozen=True)
class Bent:
    """A source in another CRS than the target."""

    projection: Projection
    shape: tuple[int, int]
    resampling: Resampling

    def source(self, window: Window) -> Window:
        """The pixels of the source that a window of the target needs; none where the source does not reach."""
        nodes = self.projection.nodes(window)
        return self.around(self.projection.places(window) if nodes is None else nodes.places)

    def around(self, places: Floats) -> Window:
        """The pixels of the source that count at these places."""
        reach = RADIUS[self.resampling] + 0.5
        cuts = []
        for line, size in zip(places, self.shape, strict=True):
            known = line[np.isfinite(line)]
            first, last = (known.min(), known.max()) if known.size else (0.0, -9.0)
            begin, end = max(0, floor(max(first, -9.0) - reach)), min(size, ceil(min(last, size + 9.0) + reach))
            cuts.append(slice(begin, max(begin, end)))
        return cuts[0], cuts[1]

    def cut(self, window: Window) -> "Bend":
        """How this window comes from its source pixels."""
        places = self.projection.places(window)
        # Found from the nodes, so that it is the one that was planned.
        return Bend(places, self.source(window), self.shape, self.resampling)


@dataclass(frozen=True)
class Bend:
    """The places of the pixels of a window in the source, as (2, n, m)."""

    places: Floats
    source: Window
    shape: tuple[int, int]
    resampling: Resampling

    def apply(self, values: Values, there: There | None) -> tuple[Values, There | None]:
        """Pixels of the window and where they are measurements (None: everywhere), from those of `source`."""
        shape = self.places.shape[1:]
        if not values.size:
            return np.zeros(shape, values.dtype), np.zeros(shape, bool)
        seen = self._seen(there)
        if self.resampling == "nearest":
            return values.ravel().take(self._nearest).reshape(shape), seen
        floats = np.pad(values, [(0, edge == 1) for edge in values.shape], "edge").astype(float_of(values.dtype))
        share = None
        if there is not None:
            share = np.pad(there, [(0, edge == 1) for edge in there.shape], "edge").astype(floats.dtype)
            floats[share == 0] = 0
        out = np.empty(self._nearest.shape, values.dtype)
        for first in range(0, len(out), PIECE):
            piece = slice(first, first + PIECE)
            out[piece] = rounded(self._mixed(floats, share, piece), values.dtype)
        return out.reshape(shape), seen

    @cached_property
    def _width(self) -> int:
        """Pixels in a row of the source window, of which there are at least two."""
        return max(2, self.source[1].stop - self.source[1].start)

    @cached_property
    def _inside(self) -> There | None:
        with np.errstate(invalid="ignore"):
            rows, columns = ((line >= -EDGE) & (line < n - EDGE) for line, n in zip(self.places, self.shape, strict=True))
        inside: There = rows & columns
        return None if inside.all() else inside

    @cached_property
    def _nearest(self) -> npt.NDArray[np.intp]:
        rows, columns = (
            np.clip(np.floor(self._known(line) + EDGE) - cut.start, 0, cut.stop - cut.start - 1).astype(np.intp)
            for line, cut in zip(self.places, self.source, strict=True)
        )
        rows *= self.source[1].stop - self.source[1].start
        rows += columns
        return rows.ravel()

    def _known(self, line: Floats) -> Floats:
        return np.nan_to_num(line, nan=-1.0, posinf=-1.0, neginf=-1.0) if self._inside is not None else line

    @cached_property
    def _corners(self) -> tuple[npt.NDArray[np.intp], list[npt.NDArray[np.float32]]]:
        """The first of the four pixels around each place, and how far the place lies from it, down and right."""
        index, shares = np.zeros(0, np.intp), []
        for line, cut in zip(self.places, self.source, strict=True):
            edge = max(2, cut.stop - cut.start)
            # At the border the outermost pixel counts alone, as no other is there.
            at = np.clip(self._known(line).ravel() - (cut.start + 0.5), 0, cut.stop - cut.start - 1)
            low = np.minimum(at.astype(np.intp), edge - 2)
            shares.append((at - low).astype(np.float32))
            index = low if not index.size else index * edge + low
        return index, shares

    def _seen(self, there: There | None) -> There | None:
        if there is None:
            return self._inside
        seen: There = there.ravel().take(self._nearest).reshape(self.places.shape[1:])
        return seen if self._inside is None else seen & self._inside

    def _mixed(self, floats: Values, share: Values | None, piece: slice) -> Values:
        mixed = self._lerp(floats, piece)
        total = None if share is None else self._lerp(share, piece)
        if total is not None and share is not None:
            mixed = np.divide(mixed, total, out=np.zeros_like(mixed), where=total > 1e-5)
        return self._cubic(floats, share, piece, mixed) if self.resampling == "cubic" else mixed

    def _lerp(self, floats: Values, piece: slice) -> Values:
        index, (down, right) = self._corners[0][piece], (share[piece] for share in self._corners[1])
        flat, width = floats.ravel(), self._width
        parts = [flat[at:].take(index, mode="clip") for at in (0, 1, width, width + 1)]
        for pair in (parts[:2], parts[2:]):
            pair[1] -= pair[0]
            pair[1] *= right
            pair[0] += pair[1]
        parts[2] -= parts[0]
        parts[2] *= down
        parts[0] += parts[2]
        return parts[0]

    def _cubic(self, floats: Values, share: Values | None, piece: slice, mixed: Values) -> Values:
        """A cubic kernel that misses a pixel gives way to the bilinear one, as in GDAL."""
        index, (down, right) = self._corners[0][piece], [share[piece] for share in self._corners[1]]
        flat, width, height = floats.ravel(), self._width, floats.shape[0]
        row, column = np.divmod(index, width)
        full = (row > 0) & (row < height - 2) & (column > 0) & (column < width - 2)
        index = np.where(full, index - width - 1, 0)
        total = np.zeros(index.shape, floats.dtype)
        if floats.shape[0] < 4 or width < 4:
            return mixed
        for y in range(4):
            line = np.zeros(index.shape, floats.dtype)
            for x in range(4):
                at = flat[y * width + x :].take(index, mode="clip")
                line += at * weights("cubic", x - 1 - right)
                if share is not None:
                    full &= share.ravel()[y * width + x :].take(index, mode="clip") > 0
            total += line * weights("cubic", y - 1 - down)
        return np.where(full, total, mixed)
