"""Near duplicates: chips with the same pixels by a digest, or with the same structure after alignment.

Candidates come from a small vector: the bands of a chip averaged over 4 x 4 cells, which a small shift changes little,
each band without its mean and slope and in standard deviations of training, as one vector of length 1.
Pairs of chips whose vectors correlate, in one of the eight symmetries of the square, are then aligned at full
resolution (see `eopipe.chips.alignment`), so a copy is detected that was resampled, compressed, blurred, turned,
flipped, moved by up to three pixels or changed in brightness. A chip without structure has a zero vector and is similar
to no other.

Where two splits share a place, chips of two days are copies only if their vectors correlate by 0.9995: one place on two
days reaches 0.999. The cost is eight products of the vectors of two splits, along few directions, and at most 300
alignments of 64 x 64 pixels for two splits: the highest correlations, each chip with its best partner first,
then with the next three. Chips that show one simple shape, such as a straight shore, are copies only if their texture
agrees too. In chips below 16 pixels there is too little structure to search for it: there only copies whose vectors
correlate by 0.9 are aligned, and the threshold is 0.995.

On chips of 16 to 48 pixels of the scenes of the sample all copies that were turned, flipped, moved by half a pixel,
noisy or at 20 m correlate by 0.97 or more after alignment, blurred ones (1 pixel) mostly; chips of two places by at
most 0.944.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, FloatArray, IntArray, UInt64Array
from eopipe.chips.alignment import SYMMETRIES, ChipAligner
from eopipe.chips.chip_table import ChipTable
from eopipe.chips.chips import apply_symmetry, blocks_of_chips
from eopipe.tiles.store import Tiles

# Chips that are compared with this number of partners at a time, which stay in the cache of a processor, and pixels of
# a band of the chips whose vectors are computed at a time.
BLOCK, PARTNERS_AT_A_TIME, PIXELS_AT_A_TIME = 2048, 256, 1 << 18
# Directions of the vectors by which most pairs are left out, and what rounding may add to a correlation.
DIRECTIONS, ROUNDING = 11, 1e-5
# From this fraction of the pairs on all correlations are computed.
DENSE = 1 / 64
# Cells along an edge.
CELLS = 4
# Correlation of the vectors from which on a pair is aligned, and the maximum number of pairs of two splits.
CANDIDATE_CORRELATION, MAX_ALIGNED = 0.7, 300
# Partners of a chip in each symmetry: of many chips with one simple shape the first may not be the copied one.
PARTNERS = 4
# Chips are near duplicates from this correlation on, after alignment.
THRESHOLD = 0.97
# Both correlations for chips below this edge.
SMALL, SMALL_CORRELATION, SMALL_THRESHOLD = 16, 0.9, 0.995
# Structure below this fraction of the spread of the training pixels is sensor noise.
MIN_STRUCTURE = 0.02
# The correlation that chips of one place reach on two days without being copies.
SAME_PLACE_CORRELATION = 0.9995


@dataclass(frozen=True)
class ChipFingerprints:
    """Rows (n,) in a table, digests (n,) and unit vectors (n, features) of the chips of each split.

    `shares_places`: a chip may be in two splits on purpose, with other labels.
    """

    table: ChipTable
    rows: dict[str, IntArray]
    digests: dict[str, UInt64Array]
    vectors: dict[str, FloatArray]
    aligner: ChipAligner
    shares_places: bool = False

    def sample(self, split: str, number: int) -> IntArray:
        """Store, row and column of a chip of a split."""
        sample: IntArray = self.table.samples[self.rows[split][number]]
        return sample


def fingerprint_chips(
    stores: list[Tiles], table: ChipTable, rows: dict[str, IntArray], spread: dict[str, float]
) -> ChipFingerprints:
    """Digests and vectors of the chips in these rows of a table; `spread` is the standard deviation of each band."""
    # The chips of all splits together, since the chips of one are spread over the blocks that are read.
    samples, chip = table.samples[np.concatenate([*rows.values()])], table.chip
    digests, vectors = np.zeros(len(samples), np.uint64), np.zeros((len(samples), len(spread) * CELLS**2), np.float32)
    for numbers, stored, valid in _read_chips(stores, samples, chip):
        store = stores[samples[numbers[0], 0]]
        digests[numbers] = [_digest(*pixels, store.scaling) for pixels in zip(stored, valid, strict=True)]
        order = [store.names.index(band) for band in spread]
        unit = np.array([store.scaling[0] / std for std in spread.values()], np.float32)
        vectors[numbers] = _structure(stored[:, order] * unit[:, None, None], valid)
    ends = np.cumsum([len(part) for part in rows.values()])[:-1]
    digests_of = dict(zip(rows, np.split(digests, ends), strict=True))
    vectors_of = dict(zip(rows, np.split(vectors, ends), strict=True))
    return ChipFingerprints(table, rows, digests_of, vectors_of, ChipAligner(stores, chip, spread))


def _read_chips(stores: list[Tiles], samples: IntArray, chip: int) -> Iterator[tuple[IntArray, AnyArray, BoolArray]]:
    """Some chips of one store with their numbers: stored pixels (n, band, y, x) and valid masks (n, y, x)."""
    order = np.argsort(samples[:, 0], kind="stable")
    for of_scene in np.split(order, np.flatnonzero(np.diff(samples[order, 0])) + 1):
        for index, (y, x) in blocks_of_chips(samples[of_scene, 1:], chip):
            numbers, store = of_scene[index], stores[samples[of_scene[0], 0]]
            image, valid = store.read("image", y, x), store.valid(y, x)
            corners = samples[numbers, 1:] - (y.start, x.start)
            step = max(1, PIXELS_AT_A_TIME // chip**2)
            for begin in range(0, len(numbers), step):
                windows = [np.s_[row : row + chip, col : col + chip] for row, col in corners[begin : begin + step]]
                pixels = np.stack([image[:, chip_y, chip_x] for chip_y, chip_x in windows])
                yield numbers[begin : begin + step], pixels, np.stack([valid[window] for window in windows])


def _digest(stored: AnyArray, valid: BoolArray, scaling: tuple[float, float]) -> int:
    """A digest of the valid pixels as a number; 0 for a chip without structure."""
    # Choosing pixels takes ten times as long as a view.
    values = stored.reshape(len(stored), -1) if valid.all() else stored[:, valid]
    if (values == values[:, :1]).all():
        return 0
    digest = hashlib.blake2b(np.packbits(valid).tobytes(), digest_size=8)
    digest.update(repr((values.dtype.str, values.shape, scaling)).encode())
    digest.update(np.ascontiguousarray(values).tobytes())
    return int.from_bytes(digest.digest())


def _structure(values: FloatArray, valid: BoolArray) -> FloatArray:
    """The vectors (n, features) of chips, from their bands (n, band, y, x) in standard deviations and masks (n, y, x).

    Every chip has a valid pixel.
    """
    chips, cells, size = len(valid), CELLS, valid.shape[-1] // CELLS
    parts = (cells, size, cells, size)
    count = valid.reshape(chips, 1, *parts).sum(3, dtype=np.int64).sum(-1)
    pooled = np.where(valid[:, None], values, np.float32(0)).reshape(chips, -1, *parts).sum(3).sum(-1)
    mean = pooled.sum((2, 3), keepdims=True) / count.sum((2, 3), keepdims=True)
    level = (pooled - mean * count) / np.maximum(count, 1)
    # Haze and sun glint cause the same slope in many chips, so it is removed.
    slope = np.arange(cells, dtype=np.float32) - (cells - 1) / 2
    across = (level @ slope).sum(-1) / (cells * (slope**2).sum())
    down = (slope @ level).sum(-1) / (cells * (slope**2).sum())
    plane = across[..., None, None] * slope + down[..., None, None] * slope[:, None]
    vectors: FloatArray = (level - plane).reshape(chips, -1).astype(np.float32)
    has_structure = np.sqrt((vectors**2).mean(1)) > MIN_STRUCTURE
    vectors[has_structure] /= np.linalg.norm(vectors[has_structure], axis=1, keepdims=True)
    vectors[~has_structure] = 0
    return vectors


@dataclass(frozen=True)
class ChipPair:
    """A chip of one split that resembles one of another, by number, in a symmetry of the square.

    `rank` is 0 for the most similar partner of a chip in this symmetry, 1 for the next.
    """

    correlation: float
    first: int
    second: int
    symmetry: int
    same_place: bool
    rank: int = 0


def find_similar_chips(
    fingerprints: ChipFingerprints, first: str, second: str
) -> Iterator[tuple[str, int, tuple[int, int], float]]:
    """Duplicates and near duplicates in two splits: kind, number of chips of `second`, best pair, its correlation."""
    first_digests, second_digests = fingerprints.digests[first], fingerprints.digests[second]
    is_duplicate = np.isin(second_digests, first_digests) & (second_digests != 0)
    if fingerprints.shares_places:
        samples = {name: fingerprints.table.samples[fingerprints.rows[name]].tolist() for name in (first, second)}
        of_first = {tuple(sample) for sample in samples[first]}
        is_duplicate &= [tuple(sample) not in of_first for sample in samples[second]]
    if is_duplicate.any():
        number = int(is_duplicate.argmax())
        partner = int((first_digests == second_digests[number]).argmax())
        yield "duplicate", int(is_duplicate.sum()), (partner, number), 1.0
    threshold, near = SMALL_THRESHOLD if fingerprints.table.chip < SMALL else THRESHOLD, dict[int, tuple[float, int]]()
    for pair in find_pairs(fingerprints, first, second, ~is_duplicate):
        if pair.second not in near:
            correlation = _aligned(fingerprints, first, second, pair)
            if correlation >= threshold:
                near[pair.second] = correlation, pair.first
    if near:
        number = max(near, key=lambda n: (near[n][0], -n))
        correlation, partner = near[number]
        yield "near-duplicate", len(near), (partner, number), correlation


def _aligned(fingerprints: ChipFingerprints, first: str, second: str, pair: ChipPair) -> float:
    """The correlation of a pair at full resolution; of one place on two days the correlation of the vectors."""
    if pair.same_place:
        return pair.correlation
    samples = fingerprints.sample(first, pair.first), fingerprints.sample(second, pair.second)
    return fingerprints.aligner.correlate(*samples, pair.symmetry)


@dataclass(frozen=True)
class PartnerSearch:
    """Finds the vectors (n, features) that correlate with others, most of which are left out by an upper bound.

    The product of two vectors is at most the product of their parts along some directions (features, m) plus the
    product of the lengths of the rest (Cauchy-Schwarz); `reduced` has these m + 1 numbers of each vector.
    """

    vectors: FloatArray
    directions: Float64Array
    reduced: FloatArray

    @classmethod
    def of(cls, vectors: FloatArray) -> Self:
        """With the directions in which the vectors, a sample of at most some thousands, vary most."""
        sample = vectors[:: -(-len(vectors) // BLOCK)].astype(np.float64)
        directions = np.linalg.eigh(sample.T @ sample)[1][:, -DIRECTIONS:]
        return cls(vectors, directions, _reduced(vectors, directions))

    def partners(self, others: FloatArray, least: float) -> tuple[IntArray, IntArray, FloatArray]:
        """Index in others (n, features), partner and correlation of all pairs that correlate by at least `least`."""
        parts = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))]
        reduced, lowest = _reduced(others, self.directions), np.float32(least - ROUNDING)
        for begin in range(0, len(self.vectors), PARTNERS_AT_A_TIME):
            block = slice(begin, begin + PARTNERS_AT_A_TIME)
            bound = reduced @ self.reduced[block].T
            # Most rows have none, and maxima are read several times as fast as where they are.
            rows = np.flatnonzero(bound.max(1) >= lowest)
            if not len(rows):
                continue
            index, partner = np.nonzero(bound[rows] >= lowest)
            index = rows[index]
            if len(index) > DENSE * bound.size:
                index, partner = np.nonzero(others @ self.vectors[block].T >= lowest)
            partner += begin
            correlation = np.einsum("nf,nf->n", others[index], self.vectors[partner])
            chosen = correlation >= least
            parts.append((index[chosen], partner[chosen], correlation[chosen]))
        index, partner, correlation = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return index, partner, correlation


def _reduced(vectors: FloatArray, directions: Float64Array) -> FloatArray:
    """Vectors (n, m + 1): along m directions, and the length of the rest."""
    reduced = np.empty((len(vectors), directions.shape[1] + 1), np.float32)
    for begin in range(0, len(vectors), BLOCK):
        # float32 has no digits for a small remainder.
        part = vectors[begin : begin + BLOCK].astype(np.float64)
        along = part @ directions
        reduced[begin : begin + BLOCK, :-1] = along
        reduced[begin : begin + BLOCK, -1] = np.sqrt(np.maximum((part**2).sum(1) - (along**2).sum(1), 0))
    return reduced


def find_pairs(fingerprints: ChipFingerprints, first: str, second: str, is_searched: BoolArray) -> list[ChipPair]:
    """At most 300 pairs of two splits that may be near duplicates: best partners first, highest correlations first.

    For each chip of `second` that `is_searched` the most similar ones of `first` in each symmetry; in bounded memory.
    """
    pairs: list[ChipPair] = []
    rows, searched = fingerprints.rows, np.flatnonzero(is_searched)
    search = PartnerSearch.of(fingerprints.vectors[first])
    least = SMALL_CORRELATION if fingerprints.table.chip < SMALL else CANDIDATE_CORRELATION
    for chosen in (searched[begin : begin + BLOCK] for begin in range(0, len(searched), BLOCK)):
        overlaps = fingerprints.table.overlapping(rows[first], rows[second][chosen])
        originals = fingerprints.vectors[second][chosen]
        for symmetry in SYMMETRIES:
            turned = apply_symmetry(originals.reshape(len(originals), -1, CELLS, CELLS), symmetry)
            vectors = np.ascontiguousarray(turned).reshape(originals.shape)
            # Chips that share a place are alike in any case.
            is_possible = symmetry == 0 and not fingerprints.shares_places
            minimum = SAME_PLACE_CORRELATION if is_possible else np.inf
            partners = _best_partners(search.partners(vectors, least), overlaps, minimum)
            for index, partner, correlation, rank, is_same in partners:
                pairs.append(ChipPair(correlation, partner, int(chosen[index]), symmetry, is_same, rank))
            pairs = sorted(pairs, key=lambda p: (p.rank, -p.correlation, p.second, p.symmetry))[:MAX_ALIGNED]
            if len(pairs) == MAX_ALIGNED and pairs[-1].rank == 0:
                # All are best partners, so that nothing with a lower correlation can be among them any more.
                least = pairs[-1].correlation
    return pairs


def _best_partners(
    pairs: tuple[IntArray, IntArray, FloatArray], overlaps: tuple[IntArray, IntArray], minimum: float
) -> list[tuple[int, int, float, int, bool]]:
    """Index, best partners, correlations, ranks, and whether they share a place: at most `MAX_ALIGNED`, best first.

    `overlaps` are index and partner of chips that share a place, which need a correlation of `minimum`.
    """
    index, partner, correlation = pairs
    # Numbers of chips have at most 31 bits.
    is_overlap = np.isin(index << 32 | partner, overlaps[0] << 32 | overlaps[1])
    chosen = ~is_overlap | (correlation >= minimum)
    order = np.flatnonzero(chosen)
    order = order[np.lexsort((partner[order], -correlation[order], index[order]))]
    index, partner, correlation, is_overlap = index[order], partner[order], correlation[order], is_overlap[order]
    rank = np.arange(len(index)) - np.searchsorted(index, index)
    best = np.flatnonzero(rank < PARTNERS)
    best = best[np.lexsort((index[best], -correlation[best], rank[best]))][:MAX_ALIGNED]
    arrays = (index, partner, correlation, rank, is_overlap)
    return list(zip(*(array[best].tolist() for array in arrays), strict=True))
