"""Near duplicates: chips with the same pixels by a digest, or with a similar structure by a small vector.

The structure of a chip is its bands averaged over 8 x 8 cells (4 x 4 where the edge is not a multiple of 8), each
band without its mean and slope and in standard deviations of training, as one vector of length 1. Two chips look alike
when these vectors correlate. So a copy is detected that was resampled, compressed or slightly changed in brightness,
or moved by a small part of a cell; a copy that was rotated, or moved further, is not. A chip without structure has a
zero vector and is similar to no other.

On Sentinel-2 chips of two places correlate by up to 0.91 (28 million pairs of ten scenes), of one place on two days
by up to 0.999; two straight edges may reach 0.99. So a threshold of 0.995 finds copies, and where two splits share a
place, chips of two days count only from 0.9995 on.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray, IntArray, UInt64Array
from eopipe.tiles.store import Tiles

# Chips whose correlations are computed at a time.
BLOCK = 4096
# Structure below this fraction of the spread of the training pixels is sensor noise.
MIN_STRUCTURE = 0.02
# The correlation that chips of one place reach on two days without being copies.
SAME_PLACE_CORRELATION = 0.9995


@dataclass(frozen=True)
class ChipFingerprints:
    """Corners (n, 2), digests (n,) and unit vectors (n, features) of the chips of each split.

    Chips of `chip` pixels look alike from a correlation of `threshold` on.
    """

    corners: dict[str, IntArray]
    digests: dict[str, UInt64Array]
    vectors: dict[str, FloatArray]
    chip: int
    threshold: float


def fingerprint_chips(
    stores: list[Tiles], samples: dict[str, IntArray], chip: int, spread: dict[str, float], threshold: float
) -> ChipFingerprints:
    """Digests and vectors of all chips of all splits; `spread` is the standard deviation of each band."""
    digests, vectors = {}, {}
    for split, rows in samples.items():
        digests[split] = np.zeros(len(rows), np.uint64)
        vectors[split] = np.zeros((len(rows), len(spread) * _cells(chip) ** 2), np.float32)
        for number, stored, valid in _read_chips(stores, rows, chip):
            store = stores[rows[number, 0]]
            digests[split][number] = _digest(stored, valid, store.scaling)
            order = [store.names.index(band) for band in spread]
            unit = np.array([store.scaling[0] / std for std in spread.values()], np.float32)
            vectors[split][number] = _structure(stored[order] * unit[:, None, None], valid)
    corners = {split: rows[:, 1:] for split, rows in samples.items()}
    return ChipFingerprints(corners, digests, vectors, chip, threshold)


def _cells(chip: int) -> int:
    return 8 if chip % 8 == 0 else 4


def _read_chips(stores: list[Tiles], rows: IntArray, chip: int) -> Iterator[tuple[int, AnyArray, BoolArray]]:
    """Each chip with its number: stored pixels (band, y, x) and valid mask (y, x), read a row of chips at a time."""
    for scene, row in np.unique(rows[:, :2], axis=0):
        numbers = np.flatnonzero((rows[:, 0] == scene) & (rows[:, 1] == row))
        first, last = int(rows[numbers, 2].min()), int(rows[numbers, 2].max()) + chip
        window = slice(int(row), int(row) + chip), slice(first, last)
        image, valid = stores[scene].read("image", *window), stores[scene].read("valid", *window) > 0
        for number, col in zip(numbers.tolist(), (rows[numbers, 2] - first).tolist(), strict=True):
            yield number, image[..., col : col + chip], valid[:, col : col + chip]


def _digest(stored: AnyArray, valid: BoolArray, scaling: tuple[float, float]) -> int:
    """A digest of the valid pixels as a number; 0 for a chip without structure."""
    values = stored[:, valid]
    if (values == values[:, :1]).all():
        return 0
    digest = hashlib.blake2b(np.packbits(valid).tobytes(), digest_size=8)
    digest.update(repr((values.dtype.str, values.shape, scaling)).encode())
    digest.update(np.ascontiguousarray(values).tobytes())
    return int.from_bytes(digest.digest())


def _structure(values: FloatArray, valid: BoolArray) -> FloatArray:
    """The vector of one chip, from its bands (band, y, x) in standard deviations."""
    cells = _cells(len(valid))
    size = len(valid) // cells
    count = valid.reshape(cells, size, cells, size).sum((1, 3))
    values = np.where(valid, values, np.float32(0))
    pooled = values.reshape(-1, cells, size, cells, size).sum((2, 4))
    mean = pooled.sum((1, 2), keepdims=True) / count.sum()
    level = (pooled - mean * count) / np.maximum(count, 1)
    # Haze and sun glint cause the same slope in many chips, so it is removed.
    slope = np.arange(cells, dtype=np.float32) - (cells - 1) / 2
    across = (level @ slope).sum(1) / (cells * (slope**2).sum())
    down = (slope @ level).sum(1) / (cells * (slope**2).sum())
    plane = across[:, None, None] * slope + down[:, None, None] * slope[:, None]
    vector = (level - plane).ravel().astype(np.float32)
    strength = float(np.sqrt((vector**2).mean()))
    return vector / np.linalg.norm(vector) if strength > MIN_STRUCTURE else np.zeros_like(vector)


def find_similar_chips(
    fingerprints: ChipFingerprints, first: str, second: str
) -> Iterator[tuple[str, int, tuple[int, int], float]]:
    """Duplicates and near duplicates in two splits: kind, number of chips of `second`, best pair, its correlation."""
    first_digests, second_digests = fingerprints.digests[first], fingerprints.digests[second]
    is_duplicate = np.isin(second_digests, first_digests) & (second_digests != 0)
    if is_duplicate.any():
        number = int(is_duplicate.argmax())
        partner = int((first_digests == second_digests[number]).argmax())
        yield "duplicate", int(is_duplicate.sum()), (partner, number), 1.0
    correlation, partners = _most_similar(fingerprints, first, second)
    is_near = (correlation >= fingerprints.threshold) & ~is_duplicate
    if is_near.any():
        number = int(np.where(is_near, correlation, 0).argmax())
        yield "near-duplicate", int(is_near.sum()), (int(partners[number]), number), float(correlation[number])


def _most_similar(fingerprints: ChipFingerprints, first: str, second: str) -> tuple[FloatArray, IntArray]:
    """For each chip of `second` the highest correlation with a chip of `first`, and its number; in bounded memory."""
    first_vectors, second_vectors = fingerprints.vectors[first], fingerprints.vectors[second]
    first_corners, second_corners = fingerprints.corners[first], fingerprints.corners[second]
    highest, partners = np.zeros(len(second_vectors), np.float32), np.zeros(len(second_vectors), np.int64)
    for start in range(0, len(second_vectors), BLOCK):
        rows = slice(start, start + BLOCK)
        for begin in range(0, len(first_vectors), BLOCK):
            columns = slice(begin, begin + BLOCK)
            correlation = second_vectors[rows] @ first_vectors[columns].T
            distance = np.abs(second_corners[rows, None] - first_corners[None, columns])
            is_same_place = (distance < fingerprints.chip).all(-1)
            correlation[is_same_place & (correlation < SAME_PLACE_CORRELATION)] = 0
            top = correlation.argmax(1)
            value = correlation[np.arange(len(top)), top]
            is_higher = value > highest[rows]
            highest[rows][is_higher] = value[is_higher]
            partners[rows][is_higher] = top[is_higher] + begin
    return highest, partners
