"""Scenes on grids that are parallel to their own: pixels are placed, or resampled along rows and columns."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eopipe.scenes.blocks import There, Values, Window
from eopipe.scenes.kernels import Resampling, float_of, rounded
from eopipe.scenes.taps import Axis, Taps, taps

Pair = tuple[Taps, Taps]


@dataclass(frozen=True)
class Parallel:
    """A source whose rows and columns are parallel to those of the target."""

    rows: Axis
    columns: Axis
    resampling: Resampling

    def source(self, window: Window) -> Window:
        """The pixels of the source that a window of the target needs."""
        return self.rows.source(window[0], self.resampling), self.columns.source(window[1], self.resampling)

    def cut(self, window: Window) -> "Cut":
        """How this window comes from its source pixels."""
        return Cut(self, window)


@dataclass(frozen=True)
class Cut:
    """A window of the target and what each of its rows and columns takes."""

    place: Parallel
    window: Window

    @cached_property
    def source(self) -> Window:
        """The pixels of the source that the window needs."""
        return self.place.source(self.window)

    def apply(self, values: Values, there: There | None) -> tuple[Values, There | None]:
        """Pixels of the window and where they are measurements (None: everywhere), from those of `source`."""
        shape = tuple(cut.stop - cut.start for cut in self.window)
        if not values.size:
            return np.zeros(shape, values.dtype), np.zeros(shape, bool)
        if self.place.resampling == "nearest":
            return self._picked(values), self._seen(there)
        floats = values.astype(float_of(values.dtype))
        if there is not None:
            floats[~there] = 0
        mixed, share = _mix(self._taps, floats, there)
        if self.place.resampling == "cubic":
            mixed = self._whole(mixed, floats, there)
        seen = share > 0 if share is not None and self.place.resampling == "average" else there
        if self.place.resampling == "average":
            return rounded(mixed, values.dtype), _and(_inside(self._taps), seen)
        return rounded(mixed, values.dtype), self._seen(there)

    def _pair(self, resampling: Resampling) -> Pair:
        axes = (self.place.rows, self.place.columns)
        rows, columns = (
            taps(line, cut, source.start, resampling)
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

    def _picked(self, values: Any) -> Any:
        rows, columns = self._nearest
        return rows.along(columns.along(values, 1), 0)

    def _seen(self, there: There | None) -> There | None:
        """A pixel is a measurement where the one that its centre lies in is."""
        return _and(_inside(self._nearest), None if there is None else self._picked(there))

    def _whole(self, mixed: Values, floats: Values, there: There | None) -> Values:
        """A cubic kernel that misses a pixel gives way to the bilinear one, as in GDAL."""
        rows, columns = self._taps
        if there is None and rows.whole.all() and columns.whole.all():
            return mixed
        full = rows.whole[:, None] & columns.whole
        if there is not None:
            lost = (~there).astype(np.float32)
            full &= rows.flat.along(columns.flat.along(lost, 1), 0) == 0
        return np.where(full, mixed, _mix(self._bilinear, floats, there)[0])


def _mix(pair: Pair, floats: Values, there: There | None) -> tuple[Values, Values | None]:
    """Weighted sum over those pixels that are measurements, and their share of the weight."""
    rows, columns = pair
    mixed = rows.along(columns.along(floats, 1), 0)
    if there is None:
        return mixed, None
    share = rows.along(columns.along(there.astype(floats.dtype), 1), 0)
    return np.divide(mixed, share, out=np.zeros_like(mixed), where=np.abs(share) > 1e-5), share


def _inside(pair: Pair) -> There | None:
    rows, columns = pair
    return None if rows.inside.all() and columns.inside.all() else rows.inside[:, None] & columns.inside


def _and(one: There | None, other: There | None) -> There | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other
