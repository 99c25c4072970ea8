"""Chips: tile stores with their label stores, the class of a chip, and normalisation of its pixels."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray, IntArray
from eopipe.chips.chip_blocks import blocks_of_chips, class_counts
from eopipe.errors import BadInputError
from eopipe.tiles.store import Tiles


def pair_stores(tiles: tuple[Path, ...], labels: tuple[Path, ...]) -> list[tuple[Tiles, Tiles]]:
    """Pair every tile store with the label store of its scene, or with the one of all scenes.

    Sorted by scene; raises BadInputError for different grids or classes, missing labels or a scene given twice.
    """
    stores = {store.scene: store for store in map(Tiles, tiles)}
    label_stores = {store.scene: store for store in map(Tiles, labels)}
    if len(stores) < len(tiles) or len(label_stores) < len(labels):
        raise BadInputError("the same scene is given twice among the tiles or labels")
    missing = sorted(scene for scene in stores if not label_stores.keys() & {scene, ""})
    if missing:
        available = ", ".join(sorted(label_stores))
        raise BadInputError(f"no labels of scene {', '.join(missing)}; there are labels of {available}")
    pairs = [(stores[scene], label_stores.get(scene) or label_stores[""]) for scene in sorted(stores)]
    _check_pairs(pairs)
    return pairs


def is_continuous(labels: Tiles) -> bool:
    """Whether labels are values of a quantity (float, NaN where unlabelled), not class numbers."""
    return bool(labels.array("label").dtype.kind == "f")


def unit_of(labels: Tiles) -> str:
    """The unit of continuous labels; empty if they have none."""
    return str(labels.attributes.get("unit", ""))


def _check_pairs(pairs: list[tuple[Tiles, Tiles]]) -> None:
    """Check that chip positions and class numbers mean the same in all stores."""
    frame, first = pairs[0][0].frame, pairs[0][1]
    elsewhere = [store for pair in pairs for store in pair if not store.frame.is_same(frame)]
    if elsewhere:
        raise BadInputError(
            f"tiles and labels are on different grids: {', '.join(str(store.path) for store in elsewhere)} "
            f"and {pairs[0][0].path}; create all of them with one grid"
        )
    for image, label in pairs:
        image.array("image")
        label.array("label")
        if is_continuous(label) != is_continuous(first) or unit_of(label) != unit_of(first):
            raise BadInputError(f"{label.path} and {first.path} have different units, or only one is continuous")
        if label.names != first.names:
            raise BadInputError(
                f"{label.path} has the classes {', '.join(label.names)}, "
                f"{first.path} has {', '.join(first.names)}; create all labels with the same classes"
            )


@dataclass(frozen=True)
class Normaliser:
    """Mean and standard deviation of each band in physical units, from training chips only."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, stored: AnyArray, scaling: tuple[float, float], valid: BoolArray) -> FloatArray:
        """Normalise stored numbers (band, y, x) to about zero mean and unit variance; invalid pixels become 0."""
        out = np.empty(stored.shape, np.float32)
        self.fill(out, stored, scaling, valid)
        return out

    def fill(self, out: FloatArray, stored: AnyArray, scaling: tuple[float, float], valid: BoolArray) -> None:
        """Normalise into `out`, band by band, so that a band is read from memory once and stays in the cache."""
        scale, offset = map(np.float32, scaling)
        invalid = None if valid.all() else ~valid
        for band, numbers, mean, std in zip(out, stored, self.mean, self.std, strict=True):
            np.copyto(band, numbers, casting="unsafe")
            np.multiply(band, scale, out=band)
            np.add(band, offset, out=band)
            np.subtract(band, np.float32(mean), out=band)
            np.divide(band, np.float32(std), out=band)
            if invalid is not None:
                band[invalid] = 0


# The symmetry that undoes each of the eight.
INVERSE_SYMMETRIES = (0, 1, 2, 3, 4, 6, 5, 7)


def apply_symmetry(array: AnyArray, symmetry: int) -> AnyArray:
    """Apply one of the eight symmetries of the square to the last two axes, as a view."""
    if symmetry & 4:
        array = array.swapaxes(-1, -2)
    return array[..., :: -1 if symmetry & 2 else 1, :: -1 if symmetry & 1 else 1]


def chip_votes_in_area(
    label: AnyArray, usable: BoolArray, area: BoolArray, edge: int, classes: int, min_pixels: float
) -> tuple[IntArray, IntArray]:
    """Chips of `edge` pixels that are completely inside an area (y, x), and their pixels of each class (n, class).

    They are numbered row by row. `usable` marks the pixels of the label that count; a chip needs `min_pixels` of them.
    """
    rows, columns = (length // edge for length in label.shape)
    crop = np.s_[: rows * edge, : columns * edge]
    y, x = np.nonzero(usable[crop])
    votes = count_votes(y // edge * columns + x // edge, label[y, x], (rows * columns, classes))
    is_whole = area[crop].reshape(rows, edge, columns, edge).all((1, 3)).ravel()
    chosen = np.flatnonzero(is_whole & (votes.sum(1) >= min_pixels))
    return chosen, votes[chosen]


def count_votes(chips: AnyArray, classes: AnyArray, shape: tuple[int, int]) -> IntArray:
    """Counts (chip, class) of pixels (n,), or of any two numbers of each."""
    flat = chips.astype(np.int64) * shape[1] + classes.astype(np.int64)
    return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)


def class_numbers(label: Tiles, y: slice, x: slice) -> AnyArray | None:
    """Class numbers (y, x) of a window; None of continuous labels, all of which count as one class."""
    return None if is_continuous(label) else label.read("label", y, x)


def chip_votes(pairs: list[tuple[Tiles, Tiles]], samples: IntArray, chip: int) -> IntArray:
    """The number of labelled and valid pixels of each class (n, class) in each sample (scene, row, column)."""
    classes = len(pairs[0][1].names)
    votes = np.zeros((len(samples), classes), np.int64)
    for scene in np.unique(samples[:, 0]):
        image, label = pairs[scene]
        of_scene = np.flatnonzero(samples[:, 0] == scene)
        for numbers, (y, x) in blocks_of_chips(samples[of_scene, 1:], chip):
            chosen = of_scene[numbers]
            usable, inside = image.valid(y, x) & label.valid(y, x), samples[chosen, 1:] - (y.start, x.start)
            votes[chosen] = class_counts(usable, class_numbers(label, y, x), inside, chip, classes)
    return votes
