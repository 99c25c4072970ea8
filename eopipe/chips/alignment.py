"""Alignment of two chips at full resolution: normalised cross-correlation over shifts and symmetries of the square.

The correlation of two chips (all bands, each in standard deviations of training, without mean and slope) is that of the
best shift of up to three pixels in steps of half a pixel (Lewis 1995, Fast normalized cross-correlation, Vision
Interface). Both chips are smoothed first, so that a copy that was blurred or resampled still correlates.
"""

from dataclasses import dataclass, field

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
# Windows of chips that stay in memory, and whole scenes of at most this number of values.
MAX_WINDOWS, MAX_SCENES, SCENE_SIZE = 512, 32, 1 << 20


@dataclass
class ChipAligner:
    """Correlates chips of stores after alignment; `spread` is the standard deviation of each band in training."""

    stores: list[Tiles]
    chip: int
    spread: dict[str, float]
    _windows: dict[tuple[int, ...], tuple[Float64Array, BoolArray]] = field(default_factory=dict)
    _scenes: dict[int, tuple[AnyArray, AnyArray]] = field(default_factory=dict)

    def correlate(self, first: IntArray, second: IntArray, symmetry: int) -> float:
        """The correlation of two samples (scene, row, column), of which the second is turned, at its best shift."""
        reference, reference_valid = self._window(first, MARGIN)
        values, valid = (np.ascontiguousarray(apply_symmetry(a, symmetry)) for a in self._window(second, 0))
        return best_correlation(reference, reference_valid, values, valid)

    def _window(self, sample: IntArray, margin: int) -> tuple[Float64Array, BoolArray]:
        """The centre of a chip with a margin: smoothed bands (band, y, x) and mask, invalid outside of the grid."""
        scene, row, col = (int(number) for number in sample)
        key = scene, row, col, margin
        if key not in self._windows:
            while len(self._windows) >= MAX_WINDOWS:
                self._windows.pop(next(iter(self._windows)))
            self._windows[key] = self._read(scene, row, col, margin)
        return self._windows[key]

    def _read(self, scene: int, row: int, col: int, margin: int) -> tuple[Float64Array, BoolArray]:
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
        return smooth(values, valid), valid

    def _stored(self, scene: int, y: slice, x: slice) -> tuple[AnyArray, AnyArray]:
        """Stored pixels (band, y, x) and mask (y, x) of a window; small scenes are read once."""
        store = self.stores[scene]
        if len(store.names) * store.shape[0] * store.shape[1] > SCENE_SIZE:
            return store.read("image", y, x), store.read("valid", y, x)
        if scene not in self._scenes:
            while len(self._scenes) >= MAX_SCENES:
                self._scenes.pop(next(iter(self._scenes)))
            self._scenes[scene] = store.read("image"), store.read("valid")
        image, valid = self._scenes[scene]
        return image[:, y, x], valid[y, x]


def smooth(values: Float64Array, valid: BoolArray) -> Float64Array:
    """Bands (band, y, x) smoothed over their valid pixels; 0 where invalid."""
    from scipy.ndimage import gaussian_filter

    weight = gaussian_filter(valid.astype(np.float64), SMOOTHING)
    blurred = gaussian_filter(np.where(valid, values, 0.0), (0, SMOOTHING, SMOOTHING))
    return np.where(valid, blurred / np.maximum(weight, 1e-6), 0.0)


def best_correlation(
    reference: Float64Array, reference_valid: BoolArray, values: Float64Array, valid: BoolArray
) -> float:
    """The highest correlation of a chip (band, y, x) with any window of a larger reference, in half pixels.

    The rim of the chip is not compared, since smoothing depends on what is beyond it.
    """
    rim = RIM if valid.shape[0] >= 16 else 1
    inner = slice(rim, -rim)
    values, valid = values[:, inner, inner], valid[inner, inner]
    best = 0.0
    for half_y, half_x in ((0, 0), (0, 1), (1, 0), (1, 1)):
        moved = _between(_between(reference, half_y, -2), half_x, -1)
        # Half of a pixel is interpolated, so it needs two valid ones.
        moved_valid = _between(_between(reference_valid.astype(np.float64), half_y, -2), half_x, -1) == 1
        best = max(best, _highest(moved, moved_valid, values, valid, rim))
        if best < MIN_CORRELATION:
            break
    return best


def _between(array: Float64Array, half: int, axis: int) -> Float64Array:
    """The array at its pixels, or half a pixel further by linear interpolation: one shorter along the axis."""
    if not half:
        return array
    length = array.shape[axis]
    return (array.take(range(length - 1), axis) + array.take(range(1, length), axis)) / 2


def _highest(
    reference: Float64Array, reference_valid: BoolArray, values: Float64Array, valid: BoolArray, rim: int
) -> float:
    """The highest correlation over whole pixels, on the pixels that are valid in all windows: at least half of them."""
    windows = np.lib.stride_tricks.sliding_window_view(reference, valid.shape, (-2, -1))[:, rim:-rim, rim:-rim]
    masks = np.lib.stride_tricks.sliding_window_view(reference_valid, valid.shape)[rim:-rim, rim:-rim]
    both = masks.all((0, 1)) & valid
    if 2 * both.sum() < both.size:
        return 0.0
    first, second = windows[..., both].reshape(len(values), -1, int(both.sum())), values[:, both]
    y, x = np.nonzero(both)
    # Mean and slope are removed: haze and sun glint cause the same slope in many chips.
    plane = np.linalg.qr(np.column_stack([np.ones(len(y)), y - y.mean(), x - x.mean()]))[0]
    first = first - (first @ plane) @ plane.T
    second = second - (second @ plane) @ plane.T
    norm = np.sqrt((first**2).sum((0, 2)) * (second**2).sum())
    covariance = np.einsum("bpn,bn->p", first, second)
    return float(np.divide(covariance, norm, out=np.zeros_like(norm), where=norm > 1e-9).max())
