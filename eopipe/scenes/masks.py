"""Cloud masks: which pixels of a scene are usable according to an asset of classes, of bits, or of probabilities."""

import math
import re
from dataclasses import dataclass, replace
from functools import cache
from math import isqrt
from typing import Literal

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, UInt16Array
from eopipe.errors import BadInputError, UsageError
from eopipe.scenes.item import SceneBand, asset_key
from eopipe.scenes.products import STANDARD, MaskKind, Standard

MaskAs = Literal["auto", "classes", "bits", "probability"]


@dataclass(frozen=True)
class Mask:
    """An asset that says what is usable; `margin` pixels of the grid around what it masks are masked too."""

    band: SceneBand
    kind: MaskKind
    masked: tuple[int, ...]
    max_probability: float = 40.0
    margin: int = 0

    def usable(self, values: AnyArray, valid: BoolArray) -> BoolArray:
        """Which pixels are usable; `values` and `valid` (y, x) are the mask asset on a window.

        The caller reads `margin` pixels more on every side and crops, so the result does not depend on
        windows. Where the asset has no data nothing is usable, but neighbours are not masked for it.
        Raises BadInputError for bits of numbers that are not integers.
        """
        masked = valid & self._is_masked(values)
        return valid & ~(_dilated(masked, self.margin) if self.margin else masked)

    def _is_masked(self, values: AnyArray) -> BoolArray:
        if values.dtype.kind not in "ui" and self.kind == "bits":
            raise BadInputError(f"mask asset {self.band.name} has {values.dtype} pixels: bits need integers")
        if values.dtype in (np.uint8, np.uint16):
            # A table of all possible numbers is several times faster than a comparison pixel by pixel.
            return np.asarray(_table(self, values.dtype.str)[values])
        return self._compare(values)

    def _compare(self, values: AnyArray) -> BoolArray:
        if self.kind == "classes":
            return np.asarray(np.isin(values, self.masked))
        if self.kind == "bits":
            return np.asarray((values & np.asarray(sum(1 << bit for bit in self.masked), values.dtype)) != 0)
        # A negative probability is nodata.
        return np.asarray((values > self.max_probability) | (values < 0))


@cache
def _table(mask: Mask, dtype: str) -> BoolArray:
    return mask._compare(np.arange(np.iinfo(dtype).max + 1, dtype=dtype))


def _dilated(masked: BoolArray, margin: int) -> BoolArray:
    """Dilate by a disk: at each row offset, by as many columns as the disk is wide there."""
    if not masked.any():
        return masked
    height, dilated, distance = masked.shape[0], masked.copy(), _row_distance(masked, margin)
    for rows in range(min(margin, height - 1) + 1):
        reached = distance <= isqrt(margin**2 - rows**2)
        dilated[rows:] |= reached[: height - rows]
        dilated[: height - rows] |= reached[rows:]
    return dilated


def _row_distance(masked: BoolArray, margin: int) -> UInt16Array:
    """Columns from each pixel to the nearest masked one of its row; at most one more than the margin."""
    column, far = np.arange(masked.shape[1], dtype=np.int32), masked.shape[1] + margin
    left = np.maximum.accumulate(np.where(masked, column, -far), axis=1)
    right = np.minimum.accumulate(np.where(masked, column, 2 * far)[:, ::-1], axis=1)[:, ::-1]
    return np.minimum(np.minimum(column - left, right - column), margin + 1).astype(np.uint16)


def mask_of(
    band: SceneBand,
    mask_as: MaskAs = "auto",
    masked: tuple[int, ...] = (),
    max_probability: float = 40.0,
    margin: int = 0,
) -> Mask:
    """The mask of an asset; what is not given is what is known of an asset of this name.

    Raises UsageError where neither says how the asset is to be read.
    """
    standard = STANDARD.get(re.sub(r"_\d+m$", "", asset_key(band.name).lower()))
    kind = _kind(band.name, standard, mask_as, masked)
    if kind == "probability":
        if masked:
            raise UsageError(f"mask {band.name} is a probability: give max_probability instead of masked {masked}")
        # Many items and files state 0 as nodata, but here it is the clearest sky; 255 is above every limit.
        return Mask(replace(band, nodata=math.nan, product_nodata=None), kind, (), max_probability, margin)
    numbers = masked or (standard[1] if standard and standard[0] == kind else ())
    if not numbers:
        raise UsageError(f"mask {band.name} is read as {kind}, for which no standard numbers are known: set masked")
    if kind == "bits" and not all(0 <= bit < 32 for bit in numbers):
        raise UsageError(f"mask {band.name} is read by bits, so masked holds bit numbers from 0 to 31, not {numbers}")
    return Mask(band, kind, tuple(sorted(set(numbers))), max_probability, margin)


def _kind(name: str, standard: Standard | None, mask_as: MaskAs, masked: tuple[int, ...]) -> MaskKind:
    if mask_as != "auto":
        return mask_as
    if standard:
        return standard[0]
    if masked:
        return "classes"
    raise UsageError(
        f"mask {name} is not known to eopipe ({', '.join(STANDARD)} are); set preprocess.mask_as and preprocess.masked"
    )
