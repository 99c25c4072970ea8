"""Leaks through the labels: places with the same label in two splits, polygons in two splits, a band that is the label.

A split by scene (temporal, or by group) has the same places in two splits on purpose. Where their labels never change,
such as land cover, a model that remembers places is right without any skill on new ones (Roberts et al. 2017,
Ecography 40, doi:10.1111/ecog.02881); where labels change with the scene, such as clouds, it is not. Labels are the
same if they agree beyond chance (Cohen 1960, doi:10.1177/001316446002000104).

The range of the labels is the distance over which labels of two pixels are correlated: the shortest at which their
correlogram is below 0.05, the practical range of geostatistics (Chiles and Delfiner 2012, Geostatistics,
doi:10.1002/9781118136188). It is the autocovariance of the labels (of each class as 0 and 1, or of the values), summed
over the classes and divided by their variance. Unlabelled pixels are left out of both by the masked Fourier transform
(Padfield 2012, doi:10.1109/TIP.2011.2181402).
"""

from collections.abc import Collection, Iterable, Iterator

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, IntArray
from eopipe.chips.audit import ChipSplit, Finding
from eopipe.chips.chips import (
    BLOCK,
    blocks_of,
    blocks_of_chips,
    chip_counts,
    chip_votes,
    chips_in,
    count_votes,
    covered_blocks,
    covered_pixels,
    is_continuous,
)
from eopipe.chips.splits import SPLITS, split_zones
from eopipe.tiles.grid import PixelWindow, parts_of
from eopipe.tiles.store import NO_LABEL, Tiles

# Kappa of classes, or correlation of values, from which on labels of two scenes are the same.
SAME_LABELS = 0.95
# Kappa of classes, or coefficient of determination of values, from which on a band is the label.
LABEL_BAND = 0.999
# Chips of each split whose pixels are compared with the bands, and the minimum number of pixels of two classes.
BAND_CHIPS, MIN_PIXELS = 64, 50
MAX_BINS = 4096
# Below this correlation labels are independent.
INDEPENDENT = 0.05
# Rasters are thinned to at most this edge, which bounds the time: below a second for each class.
MAX_EDGE = 1024
MAX_CLASSES = 16
# A distance needs this number of pairs of pixels.
MIN_COUNT = 100
Pairs = list[tuple[Tiles, Tiles]]


def find_repeated_places(split: ChipSplit, pairs: Pairs) -> Iterator[Finding]:
    """Places that are in two splits with the same label, where scenes are split and labels never change."""
    if not split.plan.by_scene:
        return
    for first, second in split.pairs():
        agreement = _Agreement(len(pairs[0][1].names), is_continuous(pairs[0][1]))
        compare = _compare_pixels if split.table.cells else _compare_chips
        pixels, repeated = compare(split, pairs, (first, second), agreement)
        if agreement.same and agreement.value >= SAME_LABELS:
            share, number = agreement.same / pixels, int(repeated.argmax())
            _, nearest = split.table.gaps(split.rows[first], split.rows[second][[number]])
            pair = f"{split.name(first, int(nearest[0]))} and {split.name(second, number)}"
            example = (
                f"labels of a place are the same in both splits: {100 * share:.1f} % of the {second} pixels were in "
                f"{first} with this label, such as pixels of {pair}"
            )
            yield Finding("place", int(repeated.sum()), example, f"{first}-{second}", round(share, 6))


def _compare_pixels(
    split: ChipSplit, pairs: Pairs, names: tuple[str, str], agreement: "_Agreement"
) -> tuple[int, BoolArray]:
    """Compare the labels of two splits pixel by pixel of the grid.

    Returns the usable pixels of the second one, and which of its chips (n,) have a label of the first.
    """
    first, second = names
    samples, chip = split.samples[second], split.plan.chip
    pixels, repeated = 0, np.zeros(len(samples), bool)
    for (y, x), _ in covered_blocks(samples[:, 1:], chip):
        labels, is_known = _first_labels(split, first, pairs, (y, x))
        inside = chips_in(samples[:, 1:], chip, (y, x))
        for scene in np.unique(samples[inside, 0]):
            usable, label = _usable(split, second, pairs, scene, (y, x)), pairs[scene][1].read("label", y, x)
            both = usable & is_known
            agreement.add(labels[both], label[both])
            same = both & (label == labels)
            pixels += int(usable.sum())
            for number in inside[samples[inside, 0] == scene].tolist():
                row, column = samples[number, 1] - y.start, samples[number, 2] - x.start
                repeated[number] |= same[max(row, 0) : row + chip, max(column, 0) : column + chip].any()
    return pixels, repeated


def _compare_chips(
    split: ChipSplit, pairs: Pairs, names: tuple[str, str], agreement: "_Agreement"
) -> tuple[int, BoolArray]:
    """As `_compare_pixels`, of chips of a set: each of the second split with the first one of the same outline."""
    table, (first, second) = split.table, (split.rows[name] for name in names)
    index, partner = table.overlapping(first, second)
    moved = np.linalg.norm(table.ground.centres[first[partner]] - table.ground.centres[second[index]], axis=1)
    edges = np.array([(row["height"], row["width"]) for row in table.index], np.int64)
    is_same = (moved < table.ground.pixel_m / 2) & (edges[first[partner]] == edges[second[index]]).all(1)
    compared, position = np.unique(index[is_same], return_index=True)
    repeated = np.zeros(len(second), bool)
    for number, other in zip(compared.tolist(), partner[is_same][position].tolist(), strict=True):
        places = [(*table.samples[row].tolist(), *edges[row].tolist()) for row in (first[other], second[number])]
        (labels, is_known), (label, usable) = (
            _labelled(pairs[store], np.s_[y : y + height, x : x + width]) for store, y, x, height, width in places
        )
        both = usable & is_known
        agreement.add(labels[both], label[both])
        repeated[number] = (both & (label == labels)).any()
    return int(chip_votes(pairs, table.samples[second], table.chip).sum()), repeated


def _labelled(pair: tuple[Tiles, Tiles], window: PixelWindow) -> tuple[AnyArray, BoolArray]:
    """Labels (y, x) of a window, and the mask of its valid, labelled pixels."""
    image, label = pair
    return label.read("label", *window), image.valid(*window) & label.valid(*window)


class _Agreement:
    """How much labels of the same places agree beyond chance: Cohen's kappa of classes, correlation of values."""

    def __init__(self, classes: int, continuous: bool) -> None:
        self.same, self.classes = 0, 0 if continuous else classes
        self.table = np.zeros((classes, classes), np.int64)
        self.sums = np.zeros(6)

    def add(self, first: AnyArray, second: AnyArray) -> None:
        """Count labels (n,) of the same places."""
        self.same += int((first == second).sum())
        if self.classes:
            self.table += count_votes(first, second, (self.classes, self.classes))
        else:
            x, y = first.astype(np.float64), second.astype(np.float64)
            self.sums += [len(x), x.sum(), y.sum(), (x * x).sum(), (y * y).sum(), (x * y).sum()]

    @property
    def value(self) -> float:
        """Between 0 and 1; 1 where all labels are one and the same."""
        if self.classes:
            return cohen_kappa(self.table)
        n, x, y, xx, yy, xy = self.sums.tolist()
        spread = max(n * xx - x * x, 0.0) * max(n * yy - y * y, 0.0)
        return float((n * xy - x * y) / spread**0.5) if spread > 0 else float(self.same == n)


def cohen_kappa(table: IntArray) -> float:
    """Agreement beyond chance of a table of counts (class, class); 1 where there is only one class, 0 without."""
    total = int(table.sum())
    if not total:
        return 0.0
    observed = float(np.trace(table)) / total
    by_chance = float((table.sum(0) / total * (table.sum(1) / total)).sum())
    return 1.0 if by_chance >= 1 else (observed - by_chance) / (1 - by_chance)


def _usable(split: ChipSplit, name: str, pairs: Pairs, scene: int, window: PixelWindow) -> BoolArray:
    """The valid, labelled pixels (y, x) of a scene in its chips of a split, in a window of the frame."""
    (image, label), samples, chip = pairs[scene], split.samples[name], split.plan.chip
    corners = samples[samples[:, 0] == scene, 1:]
    return image.valid(*window) & label.valid(*window) & covered_pixels(corners, chip, window)


def _first_labels(split: ChipSplit, name: str, pairs: Pairs, window: PixelWindow) -> tuple[AnyArray, BoolArray]:
    """Labels (y, x) of a split in a window, of the first scene that has one, and the mask of pixels that have one."""
    shape, samples = tuple(axis.stop - axis.start for axis in window), split.samples[name]
    labels, is_known = np.zeros(shape, pairs[0][1].array("label").dtype), np.zeros(shape, bool)
    for scene in np.unique(samples[chips_in(samples[:, 1:], split.plan.chip, window), 0]):
        new = _usable(split, name, pairs, scene, window) & ~is_known
        labels[new] = pairs[scene][1].read("label", *window)[new]
        is_known |= new
    return labels, is_known


def find_split_polygons(split: ChipSplit, pairs: Pairs) -> Iterator[Finding]:
    """Polygons of the labels that have pixels in two splits, where positions are split."""
    if not split.plan.by_place or not pairs[0][1].has_array("polygon"):
        return
    stores = {str(label.path): label for _, label in pairs}
    shared, total = dict[tuple[str, str], list[tuple[str, int]]](), 0
    for path, label in stores.items():
        total += len(_polygons_in(label, ((window, True) for window in blocks_of(label.windows))))
        scenes = [number for number, (_, other) in enumerate(pairs) if str(other.path) == path]
        corners = {name: rows[np.isin(rows[:, 0], scenes), 1:] for name, rows in split.samples.items()}
        blocks = {name: covered_blocks(of_split, split.plan.chip) for name, of_split in corners.items()}
        numbers = {name: _polygons_in(label, of_split) for name, of_split in blocks.items()}
        for first, second in split.pairs():
            both = np.intersect1d(numbers[first], numbers[second])
            shared.setdefault((first, second), []).extend((path, number) for number in both.tolist())
    for (first, second), entries in shared.items():
        if entries:
            path, number = entries[0]
            a, b = (_first_chip_with(stores[path], number, split, name) for name in (first, second))
            example = (
                f"{len(entries)} of {total} polygons of the labels have pixels in {first} and {second}, such as one of "
                f"{split.name(first, a)} and {split.name(second, b)}; split.by: polygon keeps each whole"
            )
            yield Finding("polygon", len(entries), example, f"{first}-{second}", round(len(entries) / total, 6))


def _polygons_in(label: Tiles, blocks: Iterable[tuple[PixelWindow, BoolArray | bool]]) -> AnyArray:
    """The numbers of the polygons with labelled pixels in windows of the frame, where a mask is set."""
    numbers = np.empty(0, np.int64)
    for window, mask in blocks:
        numbers = np.union1d(numbers, label.read("polygon", *window)[label.valid(*window) & mask])
    return numbers[numbers > 0]


def _first_chip_with(label: Tiles, polygon: int, split: ChipSplit, name: str) -> int:
    """The number of the first chip of a split that has pixels of a polygon."""
    corners, chip, first_of_blocks = split.samples[name][:, 1:], split.plan.chip, list[int]()
    for numbers, (y, x) in blocks_of_chips(corners, chip):
        counts = chip_counts(label.read("polygon", y, x) == polygon, corners[numbers] - (y.start, x.start), chip)
        first_of_blocks += numbers[counts > 0][:1].tolist()
    return min(first_of_blocks)


def find_label_bands(split: ChipSplit, pairs: Pairs) -> Iterator[Finding]:
    """Bands that give the label of nearly every test pixel by themselves, while most bands do not.

    For each band the most frequent class (or the mean value) of the training pixels in each of up to 4096 bins is
    compared with the test pixels, on at most 64 chips of each split, spread evenly.
    """
    if not (len(split.samples["train"]) and len(split.samples["test"])):
        return
    train, test = (_sample_pixels(split.samples[name], pairs, split.plan.chip) for name in ("train", "test"))
    names = pairs[0][0].names
    relate = _value_relation if is_continuous(pairs[0][1]) else _class_relation
    relations = {n: relate(train[0][i], train[1], test[0][i], test[1]) for i, n in enumerate(names)}
    known = {name: value for name, value in relations.items() if value is not None}
    suspects = sorted((name for name, value in known.items() if value >= LABEL_BAND), key=lambda n: -known[n])
    others = {name: value for name, value in known.items() if name not in suspects}
    # Where most bands give the label, the classes are easy rather than an input.
    if suspects and (len(names) == 1 or len(suspects) <= len(names) / 2):
        measure = "coefficient of determination" if is_continuous(pairs[0][1]) else "kappa"
        best = max(others, key=lambda name: others[name], default="")
        rest = f", the next one is {best} with {others[best]:.3f}" if best else ""
        example = (
            f"band {', '.join(suspects)} gives the label of nearly every test pixel by itself ({measure} "
            f"{known[suspects[0]]:.4f}{rest}), so it may be the source of the labels; remove it from preprocess.bands"
        )
        yield Finding("band", len(suspects), example)


def _sample_pixels(samples: IntArray, pairs: Pairs, chip: int) -> tuple[Float64Array, AnyArray]:
    """Stored values (band, n) and labels (n,) of the usable pixels of chips that are spread evenly."""
    names, values, labels = pairs[0][0].names, [], []
    for number in np.unique(np.linspace(0, len(samples) - 1, BAND_CHIPS).astype(int)):
        scene, row, col = samples[number].tolist()
        image, window = pairs[scene][0], (slice(row, row + chip), slice(col, col + chip))
        label, usable = _labelled(pairs[scene], window)
        stored = image.read("image", *window)[[image.names.index(name) for name in names]]
        values.append(stored[:, usable].astype(np.float64) * image.scaling[0] + image.scaling[1])
        labels.append(label[usable])
    return np.concatenate(values, 1), np.concatenate(labels)


def _bins(train: Float64Array, test: Float64Array) -> tuple[IntArray, IntArray, int]:
    """The bin of each value, in bins with about the same number of training pixels, and the number of bins."""
    count = int(np.clip(len(train) // 4, 2, MAX_BINS))
    edges = np.unique(np.quantile(train, np.linspace(0, 1, count + 1)[1:-1]))
    numbers = (np.searchsorted(edges, values, side="right") for values in (train, test))
    return *numbers, len(edges) + 1  # type: ignore[return-value]


def _class_relation(train: Float64Array, truth: AnyArray, test: Float64Array, test_truth: AnyArray) -> float | None:
    """Kappa of the test pixels' classes by one band; None where they are of one class, or nearly so."""
    counts = np.bincount(test_truth.astype(np.int64), minlength=1)
    if np.sort(counts)[:-1].sum() < MIN_PIXELS or len(train) < MIN_PIXELS:
        return None
    classes = int(max(truth.max(), test_truth.max())) + 1
    train_bins, test_bins, count = _bins(train, test)
    votes = count_votes(train_bins, truth, (count, classes))
    predicted = np.where(votes.any(1), votes.argmax(1), votes.sum(0).argmax())[test_bins]
    return cohen_kappa(count_votes(test_truth, predicted, (classes, classes)))


def _value_relation(train: Float64Array, truth: AnyArray, test: Float64Array, test_truth: AnyArray) -> float | None:
    """Coefficient of determination of the test pixels' values by one band, in bins or linear; None without spread."""
    values = test_truth.astype(np.float64)
    if len(values) < MIN_PIXELS or len(train) < MIN_PIXELS or not values.std() > 0:
        return None
    train_bins, test_bins, count = _bins(train, test)
    weights = np.bincount(train_bins, minlength=count)
    means = np.bincount(train_bins, truth, count) / np.maximum(weights, 1)
    predicted = np.where(weights > 0, means, truth.mean())[test_bins]
    by_line = float(np.corrcoef(values, test)[0, 1] ** 2) if test.std() > 0 else 0.0
    return max(by_line, 1.0 - float(((values - predicted) ** 2).mean() / values.var()))


def label_range(labels: Tiles, windows: Collection[PixelWindow]) -> int | None:
    """The range of labels in windows of the frame, in pixels; None where labels do not vary.

    It is half of the shorter edge of a cell at most, and of several cells the largest.
    """
    ranges = (_range_in(labels, stored, windows) for stored in labels.windows)
    return max((distance for distance in ranges if distance is not None), default=None)


def _range_in(labels: Tiles, stored: PixelWindow, windows: Collection[PixelWindow]) -> int | None:
    """The range of the labels that are stored in one window, of its pixels in some others."""
    starts, shape = [axis.start for axis in stored], [axis.stop - axis.start for axis in stored]
    step = -(-max(shape) // MAX_EDGE)
    thinned = tuple(-(-edge // step) for edge in shape)
    values, valid = np.full(thinned, NO_LABEL, labels.array("label").dtype), np.zeros(thinned, bool)
    for window in sorted({(y.start, y.stop, x.start, x.stop) for y, x in windows}):
        # The first and the last row and column of the thinned raster in the window.
        low = [max(0, -(-(start - first) // step)) for start, first in zip(window[::2], starts, strict=True)]
        ends = zip(window[1::2], starts, thinned, strict=True)
        high = [min(-(-(stop - first) // step), edge) for stop, first, edge in ends]
        for block in parts_of((slice(low[0], high[0]), slice(low[1], high[1])), max(1, BLOCK // step)):
            y, x = (
                slice(first + axis.start * step, first + (axis.stop - 1) * step + 1)
                for axis, first in zip(block, starts, strict=True)
            )
            values[block] = labels.read("label", y, x)[::step, ::step]
            valid[block] = labels.valid(y, x)[::step, ::step]
    distance = correlation_range(list(_indicators(values, labels)), valid)
    return None if distance is None else distance * step


def _indicators(values: AnyArray, labels: Tiles) -> Iterator[Float64Array]:
    if is_continuous(labels):
        yield np.nan_to_num(values).astype(np.float64)
        return
    present, counts = np.unique(values[values != NO_LABEL], return_counts=True)
    for number in present[np.argsort(-counts, kind="stable")][:MAX_CLASSES]:
        yield (values == number).astype(np.float64)


def correlation_range(fields: list[Float64Array], valid: AnyArray) -> int | None:
    """The range in pixels of fields (y, x) that vary together, over the valid pixels; None if they do not vary."""
    if not (fields and valid.any()):
        return None
    anomalies = [np.where(valid, field - field[valid].mean(), 0.0) for field in fields]
    variance = sum(float((anomaly[valid] ** 2).mean()) for anomaly in anomalies)
    if not variance > 0:
        return None
    covariance = np.sum([_autocorrelate(anomaly) for anomaly in anomalies], axis=0)
    count = _autocorrelate(valid.astype(np.float64)).round()
    limit = max(1, min(valid.shape) // 2)
    rows, cols = (np.minimum(np.arange(n), n - np.arange(n)) for n in count.shape)
    distance = np.round(np.hypot(rows[:, None], cols[None])).astype(np.int64)
    near = distance <= limit
    pairs = np.bincount(distance[near], count[near], limit + 1)
    sums = np.bincount(distance[near], covariance[near], limit + 1)
    correlation = np.where(pairs >= MIN_COUNT, sums / np.maximum(pairs, 1) / variance, np.nan)
    below = np.flatnonzero(correlation < INDEPENDENT)
    return int(below[0]) if len(below) else limit


def _autocorrelate(field: Float64Array) -> Float64Array:
    """Sums of products over all pairs of pixels at each lag (y, x), zero-padded so that lags do not wrap around."""
    from scipy.fft import irfft2, next_fast_len, rfft2

    shape = tuple(next_fast_len(2 * n, real=True) for n in field.shape)
    spectrum = rfft2(field, shape)
    return np.asarray(irfft2(spectrum * spectrum.conj(), shape), np.float64)


def find_autocorrelation(split: ChipSplit, distance: int | None, shape: tuple[int, int]) -> Iterator[Finding]:
    """Whether labels are alike over more than block and buffer, so that test chips repeat their training neighbours."""
    plan = split.plan
    if distance is None or not plan.by_place or plan.method == "group":
        return
    extent, unit = int(plan.block), "block"
    if plan.method not in ("blocks", "checkerboard"):
        # The width of the test strip.
        extent, unit = int((split_zones(shape, plan).split == SPLITS.index("test")).sum()), "test strip"
    if extent + plan.buffer < distance:
        example = (
            f"labels are correlated over {distance} pixels, more than {unit} and buffer ({extent} + {plan.buffer}), so "
            "test areas resemble their training neighbours and scores may be too high"
        )
        yield Finding("autocorrelation", len(split.samples["test"]), example)
