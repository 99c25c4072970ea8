"""Chips that look alike: a digest of their pixels, and their structure as a small vector.

The structure of a chip is its bands averaged over 8 x 8 cells (4 x 4 where the edge is no multiple of 8), each
band without its mean and slope and in standard deviations of training, as one vector of length 1. Two chips look alike
when these correlate. So a copy is found that was resampled, compressed or slightly changed in brightness, and one
that was moved by a small part of a cell; a copy that was turned, or moved further, is not. A chip without
structure has no direction and is like no other.

On Sentinel-2 chips of two places correlate by up to 0.91 (28 million pairs of ten scenes), of one place on two days
by up to 0.999; two straight edges may reach 0.99. So a threshold of 0.995 finds copies, and where two splits share a
place, what looks the same there on another day counts only from 0.9995 on.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray, IntArray, UInt64Array
from eopipe.tiles.store import Tiles

BLOCK = 4096
# Structure below this share of the spread of the training pixels is noise of the sensor.
FAINT = 0.02
# What one place reaches on two days is no copy.
REPEATED = 0.9995


@dataclass(frozen=True)
class ChipFingerprints:
    """Corners (n, 2), digests (n,) and unit vectors (n, features) of the chips of each split.

    Chips of `chip` pixels are alike from a correlation of `threshold` on.
    """

    corners: dict[str, IntArray]
    digests: dict[str, UInt64Array]
    vectors: dict[str, FloatArray]
    chip: int
    threshold: float


def fingerprint_chips(
    stores: list[Tiles], samples: dict[str, IntArray], chip: int, spread: dict[str, float], threshold: float
) -> ChipFingerprints:
    """Look at all chips of all splits; `spread` is the standard deviation of each band."""
    digests, vectors = {}, {}
    for split, rows in samples.items():
        digests[split] = np.zeros(len(rows), np.uint64)
        vectors[split] = np.zeros((len(rows), len(spread) * _cells(chip) ** 2), np.float32)
        for number, stored, valid in _chips(stores, rows, chip):
            store = stores[rows[number, 0]]
            digests[split][number] = _digest(stored, valid, store.scaling)
            order = [store.names.index(band) for band in spread]
            unit = np.array([store.scaling[0] / std for std in spread.values()], np.float32)
            vectors[split][number] = _structure(stored[order] * unit[:, None, None], valid)
    return ChipFingerprints({split: rows[:, 1:] for split, rows in samples.items()}, digests, vectors, chip, threshold)


def _cells(chip: int) -> int:
    return 8 if chip % 8 == 0 else 4


def _chips(stores: list[Tiles], rows: IntArray, chip: int) -> Iterator[tuple[int, AnyArray, BoolArray]]:
    """Each chip with its number: stored pixels (band, y, x) and valid mask (y, x), read a row of chips at a time."""
    for scene, row in np.unique(rows[:, :2], axis=0):
        here = np.flatnonzero((rows[:, 0] == scene) & (rows[:, 1] == row))
        first, last = int(rows[here, 2].min()), int(rows[here, 2].max()) + chip
        window = slice(int(row), int(row) + chip), slice(first, last)
        image, valid = stores[scene].read("image", *window), stores[scene].read("valid", *window) > 0
        for number, col in zip(here.tolist(), (rows[here, 2] - first).tolist(), strict=True):
            yield number, image[..., col : col + chip], valid[:, col : col + chip]


def _digest(stored: AnyArray, valid: BoolArray, scaling: tuple[float, float]) -> int:
    """A number that stands for the valid pixels; 0 for a chip without structure."""
    values = stored[:, valid]
    if (values == values[:, :1]).all():
        return 0
    made = hashlib.blake2b(np.packbits(valid).tobytes(), digest_size=8)
    made.update(repr((values.dtype.str, values.shape, scaling)).encode())
    made.update(np.ascontiguousarray(values).tobytes())
    return int.from_bytes(made.digest())


def _structure(values: FloatArray, valid: BoolArray) -> FloatArray:
    """The vector of one chip, from its bands (band, y, x) in standard deviations."""
    cells = _cells(len(valid))
    size = len(valid) // cells
    count = valid.reshape(cells, size, cells, size).sum((1, 3))
    values = np.where(valid, values, np.float32(0))
    pooled = values.reshape(-1, cells, size, cells, size).sum((2, 4))
    middle = pooled.sum((1, 2), keepdims=True) / count.sum()
    level = (pooled - middle * count) / np.maximum(count, 1)
    # Haze and sun glint slope alike over many chips, so what is left counts.
    slope = np.arange(cells, dtype=np.float32) - (cells - 1) / 2
    across = (level @ slope).sum(1) / (cells * (slope**2).sum())
    down = (slope @ level).sum(1) / (cells * (slope**2).sum())
    plane = across[:, None, None] * slope + down[:, None, None] * slope[:, None]
    vector = (level - plane).ravel().astype(np.float32)
    strength = float(np.sqrt((vector**2).mean()))
    return vector / np.linalg.norm(vector) if strength > FAINT else np.zeros_like(vector)


def find_similar_chips(
    seen: ChipFingerprints, one: str, other: str
) -> Iterator[tuple[str, int, tuple[int, int], float]]:
    """Kind, number of chips of `other`, the pair that is most alike, and how it correlates (1 for the same pixels)."""
    ours, theirs = seen.digests[one], seen.digests[other]
    same = np.isin(theirs, ours) & (theirs != 0)
    if same.any():
        at = int(same.argmax())
        yield "duplicate", int(same.sum()), (int((ours == theirs[at]).argmax()), at), 1.0
    likeness, nearest = _most_alike(seen, one, other)
    near = (likeness >= seen.threshold) & ~same
    if near.any():
        at = int(np.where(near, likeness, 0).argmax())
        yield "near-duplicate", int(near.sum()), (int(nearest[at]), at), float(likeness[at])


def _most_alike(seen: ChipFingerprints, one: str, other: str) -> tuple[FloatArray, IntArray]:
    """For each chip of `other` the highest correlation with one of `one`, and which; memory is bounded."""
    ours, theirs = seen.vectors[one], seen.vectors[other]
    best, which = np.zeros(len(theirs), np.float32), np.zeros(len(theirs), np.int64)
    for start in range(0, len(theirs), BLOCK):
        for first in range(0, len(ours), BLOCK):
            found = theirs[start : start + BLOCK] @ ours[first : first + BLOCK].T
            places = seen.corners[other][start : start + BLOCK, None], seen.corners[one][None, first : first + BLOCK]
            repeated = (np.abs(places[0] - places[1]) < seen.chip).all(-1)
            found[repeated & (found < REPEATED)] = 0
            top = found.argmax(1)
            value = found[np.arange(len(top)), top]
            better = value > best[start : start + BLOCK]
            best[start : start + BLOCK][better] = value[better]
            which[start : start + BLOCK][better] = top[better] + first
    return best, which
