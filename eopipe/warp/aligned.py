"""Scenes on grids that are parallel to their own: pixels are placed, or resampled along rows and columns."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.tiles.grid import PixelWindow
from eopipe.warp.separable import (
    WIDE,
    AxisMapping,
    KernelWeights,
    Resampling,
    float_of,
    joined,
    kernel_weights,
    put,
    strips,
)

Pair = tuple[KernelWeights, KernelWeights]


@dataclass(frozen=True)
class AlignedResampling:
    """A source whose rows and columns are parallel to those of the target."""

    rows: AxisMapping
    columns: AxisMapping
    resampling: Resampling

    def source(self, window: PixelWindow) -> PixelWindow:
        """The pixels of the source that a window of the target needs."""
        return self.rows.source(window[0], self.resampling), self.columns.source(window[1], self.resampling)

    def cut(self, window: PixelWindow, _: dict[Any, Any]) -> "AlignedWindow":
        """How this window comes from its source pixels."""
        return AlignedWindow(self, window)


@dataclass(frozen=True)
class AlignedWindow:
    """A window of the target, made strip by strip, so that what is in between stays in the cache of a core."""

    place: AlignedResampling
    window: PixelWindow

    @cached_property
    def source(self) -> PixelWindow:
        """The pixels of the source that the window needs."""
        return self.place.source(self.window)

    @cached_property
    def _strips(self) -> "list[tuple[slice, slice, AlignedStrip]]":
        top, first = self.window[0].start, self.source[0].start
        found = []
        # What is only placed is not touched twice.
        whole = [slice(0, self.window[0].stop - top)]
        for rows in whole if self.place.resampling == "nearest" else strips(self.window):
            strip = AlignedStrip(self.place, (slice(top + rows.start, top + rows.stop), self.window[1]))
            cut = strip.source[0]
            found.append((rows, slice(cut.start - first, cut.stop - first), strip))
        return found

    def apply(self, values: AnyArray, there: BoolArray | None, out: AnyArray) -> BoolArray | None:
        """Fill a window from the pixels of `source`; tell where they are measurements, None: everywhere."""
        seen = [
            strip.apply(values[cut], None if there is None else there[cut], out[rows])
            for rows, cut, strip in self._strips
        ]
        return joined(seen, [rows for rows, _, _ in self._strips], out.shape)


@dataclass(frozen=True)
class AlignedStrip:
    """Some rows of the target, and what each of their rows and columns takes."""

    place: AlignedResampling
    window: PixelWindow

    @cached_property
    def source(self) -> PixelWindow:
        """The pixels of the source that the strip needs."""
        return self.place.source(self.window)

    def apply(self, values: AnyArray, there: BoolArray | None, out: AnyArray) -> BoolArray | None:
        """Fill the strip, as `Cut.apply`."""
        if not values.size:
            out[...] = 0
            return np.zeros(out.shape, bool)
        if self.place.resampling == "nearest":
            _along(self._nearest, values, out)
            return self._seen(there)
        floats = values.astype(float_of(values.dtype))
        if there is not None:
            floats[~there] = 0
        mixed, share = self._mix(self._taps, floats, there)
        if self.place.resampling == "cubic" and max(self.place.rows.ratio, self.place.columns.ratio) <= WIDE:
            mixed = self._whole(mixed, floats, there)
        put(mixed, out, convex=self.place.resampling != "cubic")
        if self.place.resampling == "average":
            return _and(_inside(self._taps), None if share is None else share > 0)
        return self._seen(there)

    def _pair(self, resampling: Resampling) -> Pair:
        axes = (self.place.rows, self.place.columns)
        rows, columns = (
            kernel_weights(line, (cut.start, cut.stop), source.start, resampling)
            for line, cut, source in zip(axes, self.window, self.source, strict=True)
        )
        return rows, columns

    @cached_property
    def _taps(self) -> Pair:
        return self._pair(self.place.resampling)

    @cached_property
    def _nearest(self) -> Pair:
        return self._pair("nearest")

    @cached_property
    def _bilinear(self) -> Pair:
        return self._pair("bilinear")

    def _seen(self, there: BoolArray | None) -> BoolArray | None:
        """A pixel is a measurement where the one that its centre lies in is."""
        return _and(_inside(self._nearest), None if there is None else _along(self._nearest, there))

    def _whole(self, mixed: AnyArray, floats: AnyArray, there: BoolArray | None) -> AnyArray:
        """A cubic kernel that misses a pixel gives way to the bilinear one, as in GDAL."""
        rows, columns = self._taps
        if there is None and rows.whole.all() and columns.whole.all():
            return mixed
        full = rows.whole[:, None] & columns.whole
        if there is not None:
            full &= _along((rows.flat, columns.flat), (~there).astype(np.float32)) == 0
        return np.where(full, mixed, self._mix(self._bilinear, floats, there)[0])

    @staticmethod
    def _mix(pair: Pair, floats: AnyArray, there: BoolArray | None) -> tuple[AnyArray, AnyArray | None]:
        """Weighted sum over those pixels that are measurements, and their share of the weight."""
        mixed = _along(pair, floats)
        if there is None:
            return mixed, None
        share = _along(pair, there.astype(floats.dtype))
        return np.divide(mixed, share, out=np.zeros_like(mixed), where=np.abs(share) > 1e-5), share


def _along(pair: Pair, values: AnyArray, out: AnyArray | None = None) -> AnyArray:
    """Both axes: the columns first, as there are fewer rows before the second where a source is coarser."""
    rows, columns = pair
    return rows.along(columns.along(values, 1), 0, out)


def _inside(pair: Pair) -> BoolArray | None:
    rows, columns = pair
    return None if rows.inside.all() and columns.inside.all() else rows.inside[:, None] & columns.inside


def _and(one: BoolArray | None, other: BoolArray | None) -> BoolArray | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
