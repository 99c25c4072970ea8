"""The class of a whole chip: that of most of its labelled pixels, the least number of equals."""

import numpy as np

from eopipe.arrays import AnyArray, IntArray
from eopipe.chips.splits import chip_counts
from eopipe.tiles.store import NO_LABEL, Tiles


def majority_of(counts: AnyArray) -> IntArray:
    """The class of each row of pixel counts (n, class); 255 where there is no pixel."""
    return np.where(counts.any(1), counts.argmax(1), NO_LABEL).astype(np.int64)


def chip_classes(pairs: list[tuple[Tiles, Tiles]], samples: IntArray, chip: int) -> IntArray:
    """The class of each sample (scene, row, column), by its pixels that are labelled and valid."""
    found = np.full(len(samples), NO_LABEL, np.int64)
    for number in np.unique(samples[:, 0]):
        image, label = pairs[number]
        usable = (image.read("valid") > 0) & (label.read("valid") > 0)
        numbers = np.where(usable, label.read("label"), NO_LABEL)
        here = samples[:, 0] == number
        corners = samples[here, 1:]
        counts = [chip_counts(numbers == n, corners, chip) for n in range(len(label.names))]
        found[here] = majority_of(np.stack(counts, -1))
    return found
