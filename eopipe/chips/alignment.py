"""Alignment of two chips at full resolution: normalised cross-correlation over shifts and symmetries of the square.

The correlation of two chips (all bands, each in standard deviations of training, without mean and slope) is taken at
the best shift of up to three pixels in steps of half a pixel (Lewis 1995, Fast normalized cross-correlation, Vision
Interface). Both chips are smoothed first, so that a copy that was blurred or resampled still correlates.

A simple shape, such as a straight shore, has no more freedom than the alignment fits: two places with one correlate by
0.99, but only along the shape. What a place alone has is its texture, which a copy has everywhere. So at the best
shift the pixels, unsmoothed, are compared in windows of 3 x 3, each without its mean, so that a strong edge has no more
weight than the rest; unless three quarters of the windows correlate by `MIN_TEXTURE`, the chips do not correlate.
Copies of chips of the sample with noise of a tenth of their spread, or at 20 m, reach 0.46 or more; straight and bent
shores, field corners and round fields of two places in chips of 16 pixels at most 0.33. A line that is as wide as the
chip, and shores in smaller chips, may still be taken for copies; a copy that was compressed to flat areas is missed.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, IntArray
from eopipe.chips.chips import apply_symmetry
from eopipe.tiles.store import Tiles

SYMMETRIES = range(8)
# Maximum shift, edge of the centre of a larger chip that is compared, standard deviation of the smoothing; in pixels.
MARGIN, MAX_EDGE, SMOOTHING = 3, 64, 1.0
# Pixels at the edge of a chip that are not compared.
RIM = 2
# Half pixels are tried from this correlation at whole pixels on.
MIN_CORRELATION = 0.8
# Edge of the windows whose texture is compared, the share of them that may disagree, and the minimum of the others.
TEXTURE_EDGE, MAX_DISAGREEING, MIN_TEXTURE = 3, 0.25, 0.4
# Windows of chips that stay in memory, and whole scenes of at most this number of values.
MAX_WINDOWS, MAX_SCENES, SCENE_SIZE = 512, 32, 1 << 20


@dataclass(frozen=True)
class ChipWindow:
    """A chip with or without a margin: bands (band, y, x), the same smoothed, and the mask (y, x)."""

    values: Float64Array
    smoothed: Float64Array
    valid: BoolArray

    def turned(self, symmetry: int) -> "ChipWindow":
        """The window to which a symmetry of the square is applied."""
        arrays = (self.values, self.smoothed, self.valid)
        return ChipWindow(*(np.ascontiguousarray(apply_symmetry(array, symmetry)) for array in arrays))

    def between(self, half_y: int, half_x: int) -> "ChipWindow":
        """The window half a pixel further along the axes."""
        # Half of a pixel is interpolated, so it needs two valid ones.
        arrays = (self.values, self.smoothed, self.valid.astype(np.float64))
        values, smoothed, valid = (_between(_between(array, half_y, -2), half_x, -1) for array in arrays)
        return ChipWindow(values, smoothed, valid == 1)

    def part(self, y: slice, x: slice) -> "ChipWindow":
        return ChipWindow(self.values[:, y, x], self.smoothed[:, y, x], self.valid[y, x])


class ChipAligner:
    """Correlates chips of stores after alignment; `spread` is the standard deviation of each band in training."""

    def __init__(self, stores: list[Tiles], chip: int, spread: dict[str, float]) -> None:
        self.stores, self.chip, self.spread = stores, chip, spread
        self._window, self._scene = lru_cache(MAX_WINDOWS)(self._read), lru_cache(MAX_SCENES)(self._read_scene)

    def correlate(self, first: IntArray, second: IntArray, symmetry: int) -> float:
        """The correlation of two samples (scene, row, column), of which the second is turned, at its best shift."""
        reference, chip = self._window(*first.tolist(), MARGIN), self._window(*second.tolist(), 0)
        return best_correlation(reference, chip.turned(symmetry))

    def _read(self, scene: int, row: int, col: int, margin: int) -> ChipWindow:
        """The centre of a chip with a margin, invalid outside of the grid."""
        store, edge = self.stores[scene], min(self.chip, MAX_EDGE)
        around = (self.chip - edge) // 2 - margin
        starts, size = (row + around, col + around), edge + 2 * margin
        inside = [(max(start, 0), min(start + size, length)) for start, length in zip(starts, store.shape, strict=True)]
        padding = [(low - start, start + size - high) for start, (low, high) in zip(starts, inside, strict=True)]
        y, x = (slice(low, high) for low, high in inside)
        order = [store.names.index(band) for band in self.spread]
        unit = np.array([store.scaling[0] / std for std in self.spread.values()])
        image, is_valid = self._stored(scene, y, x)
        values = np.pad(image[order] * unit[:, None, None], [(0, 0), *padding])
        valid = np.pad(is_valid > 0, padding)
        return ChipWindow(values, smooth(values, valid), valid)

    def _stored(self, scene: int, y: slice, x: slice) -> tuple[AnyArray, AnyArray]:
        """Stored pixels (band, y, x) and mask (y, x) of a window; small scenes are read once."""
        store = self.stores[scene]
        if len(store.names) * store.shape[0] * store.shape[1] > SCENE_SIZE:
            return store.read("image", y, x), store.read("valid", y, x)
        image, valid = self._scene(scene)
        return image[:, y, x], valid[y, x]

    def _read_scene(self, scene: int) -> tuple[AnyArray, AnyArray]:
        return self.stores[scene].read("image"), self.stores[scene].read("valid")


def smooth(values: Float64Array, valid: BoolArray) -> Float64Array:
    """Bands (band, y, x) smoothed over their valid pixels; 0 where invalid."""
    from scipy.ndimage import gaussian_filter

    weight = gaussian_filter(valid.astype(np.float64), SMOOTHING)
    blurred = gaussian_filter(np.where(valid, values, 0.0), (0, SMOOTHING, SMOOTHING))
    return np.where(valid, blurred / np.maximum(weight, 1e-6), 0.0)


def best_correlation(reference: ChipWindow, chip: ChipWindow) -> float:
    """The highest correlation of a chip with any window of a larger reference, in half pixels; 0 without its texture.

    The rim of the chip is not compared, since smoothing depends on what is beyond it.
    """
    rim = RIM if len(chip.valid) >= 16 else 1
    chip = chip.part(slice(rim, -rim), slice(rim, -rim))
    height, width = chip.valid.shape
    best, aligned = 0.0, chip
    for half_y, half_x in ((0, 0), (0, 1), (1, 0), (1, 1)):
        moved = reference.between(half_y, half_x)
        correlation, (row, col) = _highest(moved, chip, rim)
        if correlation > best:
            best, aligned = correlation, moved.part(slice(row, row + height), slice(col, col + width))
        if best < MIN_CORRELATION:
            return best
    return best if _has_texture_of(aligned, chip) else 0.0


def _has_texture_of(first: ChipWindow, second: ChipWindow) -> bool:
    """Whether two aligned windows agree in their texture; windows of 3 x 3 that are flat in both say nothing."""
    edges = (TEXTURE_EDGE, TEXTURE_EDGE)
    valid = np.lib.stride_tricks.sliding_window_view(first.valid & second.valid, edges).all((-2, -1))
    textures = []
    for window in (first, second):
        part = np.lib.stride_tricks.sliding_window_view(window.values, edges, (-2, -1))[:, valid]
        textures.append(part - part.mean((-2, -1), keepdims=True))
    covariance = (textures[0] * textures[1]).sum((0, -2, -1))
    squares = [(texture**2).sum((0, -2, -1)) for texture in textures]
    says = np.maximum(*squares) > 1e-9
    norm = np.sqrt(squares[0] * squares[1])
    correlation = np.divide(covariance, norm, out=np.zeros_like(norm), where=norm > 1e-9)[says]
    return not len(correlation) or bool(np.quantile(correlation, MAX_DISAGREEING) >= MIN_TEXTURE)


def _between(array: Float64Array, half: int, axis: int) -> Float64Array:
    """The array at its pixels, or half a pixel further by linear interpolation: one shorter along the axis."""
    if not half:
        return array
    length = array.shape[axis]
    return (array.take(range(length - 1), axis) + array.take(range(1, length), axis)) / 2


def _highest(reference: ChipWindow, chip: ChipWindow, rim: int) -> tuple[float, tuple[int, int]]:
    """The highest correlation over whole pixels, and row and column in the reference.

    On the pixels that are valid in all windows: at least half of them.
    """
    valid = chip.valid
    # Without its mean, the sums of squares lose no digits.
    centred = reference.smoothed - reference.smoothed.mean((1, 2), keepdims=True)
    windows = np.lib.stride_tricks.sliding_window_view(centred, valid.shape, (-2, -1))
    windows, inner = windows[:, rim:-rim, rim:-rim], slice(rim, -rim)
    masks = np.lib.stride_tricks.sliding_window_view(reference.valid, valid.shape)[inner, inner]
    both = masks.all((0, 1)) & valid
    if 2 * both.sum() < both.size:
        return 0.0, (0, 0)
    # A copy of a whole view takes a tenth of the time that choosing all of its pixels does.
    first = windows if both.all() else windows[..., both]
    first, second = first.reshape(len(windows), -1, int(both.sum())), chip.smoothed[:, both]
    y, x = np.nonzero(both)
    # Mean and slope are removed: haze and sun glint cause the same slope in many chips. For the many windows they
    # are subtracted from the sums only.
    plane = np.linalg.qr(np.column_stack([np.ones(len(y)), y - y.mean(), x - x.mean()]))[0]
    second = second - (second @ plane) @ plane.T
    products = first @ np.stack([*np.broadcast_to(plane.T[:, None], (3, *second.shape)), second], -1)
    squares = np.einsum("bpn,bpn->p", first, first) - (products[..., :3] ** 2).sum((0, 2))
    norm = np.sqrt(np.maximum(squares, 0) * (second**2).sum())
    covariance = products[..., 3].sum(0)
    correlation = np.divide(covariance, norm, out=np.zeros_like(norm), where=norm > 1e-9)
    number = int(correlation.argmax())
    row, col = divmod(number, masks.shape[1])
    return float(correlation[number]), (rim + row, rim + col)
