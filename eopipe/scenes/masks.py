"""Which pixels of a scene are usable, as one of its assets tells: by classes, by bits, or by a probability."""

import math
import re
from dataclasses import dataclass, replace
from functools import cache
from math import isqrt
from typing import Literal

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, UInt16Array
from eopipe.errors import BadInputError, UsageError
from eopipe.scenes.item import SceneBand

Kind = Literal["classes", "bits", "probability"]
Told = Literal["auto", "classes", "bits", "probability"]
# What eopipe masks unless told otherwise: clouds, their shadows, snow, and what is no measurement.
# SCL: Sentinel-2 L2A Algorithm Theoretical Basis Document 2.10, table 3: 0 no data, 1 saturated or defective,
#   3 cloud shadow, 8 and 9 cloud, 10 cirrus, 11 snow or ice.
# Fmask: HLS User Guide 2.0, table 9: bit 1 cloud, 2 adjacent to cloud or shadow, 3 cloud shadow, 4 snow or ice.
# QA_PIXEL: LSDS-1619 (Landsat 8-9 Collection 2 Level 2 product guide), table 6-2: bit 0 fill, 1 dilated cloud,
#   2 cirrus, 3 cloud, 4 cloud shadow, 5 snow.
STANDARD: dict[str, tuple[Kind, tuple[int, ...]]] = {
    "scl": ("classes", (0, 1, 3, 8, 9, 10, 11)),
    "fmask": ("bits", (1, 2, 3, 4)),
    "qa_pixel": ("bits", (0, 1, 2, 3, 4, 5)),
    "cld": ("probability", ()),
    "cloud": ("probability", ()),
    "cloud_probability": ("probability", ()),
}


@dataclass(frozen=True)
class Mask:
    """An asset that tells what is usable; `margin` pixels of the grid around what it excludes fall too."""

    band: SceneBand
    kind: Kind
    masked: tuple[int, ...]
    most: float = 40.0
    margin: int = 0

    def usable(self, values: AnyArray, there: BoolArray) -> BoolArray:
        """Tell where pixels may be used; `values` and `there` (y, x) are the mask asset on a window.

        The caller reads `margin` pixels more on every side and crops, so the result does not depend on
        windows. Where the asset has no data nothing is usable, but that says nothing of the neighbours.
        Raises BadInputError for bits of numbers that are not whole.
        """
        out = there & self._excluded(values)
        return there & ~(_grown(out, self.margin) if self.margin else out)

    def _excluded(self, values: AnyArray) -> BoolArray:
        if values.dtype.kind not in "ui" and self.kind == "bits":
            raise BadInputError(f"mask asset {self.band.name} has {values.dtype} pixels: bits need whole numbers")
        if values.dtype in (np.uint8, np.uint16):
            # A table of all numbers that there can be is several times faster than to judge pixel by pixel.
            return np.asarray(_table(self, values.dtype.str)[values])
        return self._judged(values)

    def _judged(self, values: AnyArray) -> BoolArray:
        if self.kind == "classes":
            return np.asarray(np.isin(values, self.masked))
        if self.kind == "bits":
            return np.asarray((values & np.asarray(sum(1 << bit for bit in self.masked), values.dtype)) != 0)
        # Less than nothing is a number for no data.
        return np.asarray((values > self.most) | (values < 0))


@cache
def _table(mask: Mask, dtype: str) -> BoolArray:
    return mask._judged(np.arange(np.iinfo(dtype).max + 1, dtype=dtype))


def _grown(out: BoolArray, margin: int) -> BoolArray:
    """Grow by a disk: so many rows away, it reaches as many columns as the circle is wide there."""
    if not out.any():
        return out
    height, grown, near = out.shape[0], out.copy(), _near(out, margin)
    for rows in range(min(margin, height - 1) + 1):
        reached = near <= isqrt(margin**2 - rows**2)
        grown[rows:] |= reached[: height - rows]
        grown[: height - rows] |= reached[rows:]
    return grown


def _near(out: BoolArray, margin: int) -> UInt16Array:
    """Columns from each pixel to the nearest one of its row that is out; at most one more than the margin."""
    column, far = np.arange(out.shape[1], dtype=np.int32), out.shape[1] + margin
    left = np.maximum.accumulate(np.where(out, column, -far), axis=1)
    right = np.minimum.accumulate(np.where(out, column, 2 * far)[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(np.minimum(column - left, right - column), margin + 1).astype(np.uint16)


def mask_of(
    band: SceneBand, told: Told = "auto", masked: tuple[int, ...] = (), most: float = 40.0, margin: int = 0
) -> Mask:
    """Make the mask of an asset: what is known of its name fills in what is not told.

    Raises UsageError where neither tells how the asset is to be read.
    """
    known = STANDARD.get(re.sub(r"_\d+m$", "", band.name.lower()))
    kind = _kind(band.name, known, told, masked)
    if kind == "probability":
        if masked:
            raise UsageError(f"mask {band.name} is a probability: give max_probability instead of masked {masked}")
        # Many items and files say that 0 is no data, but here it is the clearest sky; 255 is above every limit.
        return Mask(replace(band, nodata=math.nan, product_nodata=None), kind, (), most, margin)
    return Mask(band, kind, _whole(band.name, kind, masked or _standard(band.name, known, kind)), most, margin)


def _kind(name: str, known: tuple[Kind, tuple[int, ...]] | None, told: Told, masked: tuple[int, ...]) -> Kind:
    if told != "auto":
        return told
    if known:
        return known[0]
    if masked:
        return "classes"
    raise UsageError(
        f"mask {name} is none that eopipe knows ({', '.join(STANDARD)}): tell by mask_as and masked how to read it"
    )


def _standard(name: str, known: tuple[Kind, tuple[int, ...]] | None, kind: Kind) -> tuple[int, ...]:
    if known is None or known[0] != kind:
        raise UsageError(f"mask {name} is read as {kind}, but no standard ones are known: name them by masked")
    return known[1]


def _whole(name: str, kind: Kind, masked: tuple[int, ...]) -> tuple[int, ...]:
    if kind == "bits" and not all(0 <= bit < 32 for bit in masked):
        raise UsageError(f"mask {name} is read by bits, so masked holds bit numbers from 0 to 31, not {masked}")
    return tuple(sorted(set(masked)))
