"""Chips: tiles with their labels, and how their numbers are normalised."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray, IntArray
from eopipe.chips.splits import chip_counts
from eopipe.errors import BadInputError
from eopipe.tiles.grid import same_grid
from eopipe.tiles.store import NO_LABEL, Tiles


def pair_stores(tiles: tuple[Path, ...], labels: tuple[Path, ...]) -> list[tuple[Tiles, Tiles]]:
    """Give every tile store its labels: those of its scene, or the ones that hold for all scenes.

    Sorted by scene; raises BadInputError for another grid, other classes, missing labels or a scene given twice.
    """
    stores = {store.scene: store for store in map(Tiles, tiles)}
    legend = {store.scene: store for store in map(Tiles, labels)}
    if len(stores) < len(tiles) or len(legend) < len(labels):
        raise BadInputError("the same scene is given twice among the tiles or labels")
    gone = sorted(scene for scene in stores if not legend.keys() & {scene, ""})
    if gone:
        raise BadInputError(f"no labels of scene {', '.join(gone)}; there are labels of {', '.join(sorted(legend))}")
    pairs = [(stores[scene], legend.get(scene) or legend[""]) for scene in sorted(stores)]
    _alike(pairs)
    return pairs


def is_continuous(labels: Tiles) -> bool:
    """Whether labels are values of a quantity (float, NaN where there is none), not class numbers."""
    return bool(labels.array("label").dtype.kind == "f")


def unit_of(labels: Tiles) -> str:
    """The unit of labels that are values; empty where they have none."""
    return str(labels.attributes.get("unit", ""))


def _alike(pairs: list[tuple[Tiles, Tiles]]) -> None:
    """One place of a chip and one number of a class hold for all scenes."""
    grid, classes = pairs[0][0].grid, pairs[0][1].names
    wrong = [store for pair in pairs for store in pair if not same_grid(store.grid, grid)]
    if wrong:
        raise BadInputError(
            f"tiles and labels lie on different grids: {', '.join(str(store.path) for store in wrong)} "
            f"and {pairs[0][0].path}; make all from one grid"
        )
    for image, label in pairs:
        image.array("image")
        label.array("label")
        if is_continuous(label) != is_continuous(pairs[0][1]) or unit_of(label) != unit_of(pairs[0][1]):
            raise BadInputError(f"{label.path} and {pairs[0][1].path} measure in different units, or only one measures")
        if label.names != classes:
            raise BadInputError(
                f"{label.path} has the classes {', '.join(label.names)}, "
                f"{pairs[0][1].path} has {', '.join(classes)}; make all labels with the same classes"
            )


@dataclass(frozen=True)
class Normaliser:
    """Mean and standard deviation of each band in physical units, from training chips only."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, stored: AnyArray, scaling: tuple[float, float], valid: BoolArray) -> FloatArray:
        """(band, y, x) stored numbers to about zero mean and unit variance; invalid pixels become 0."""
        out = np.empty(stored.shape, np.float32)
        self.fill(out, stored, scaling, valid)
        return out

    def fill(self, out: FloatArray, stored: AnyArray, scaling: tuple[float, float], valid: BoolArray) -> None:
        """The same into `out`: band by band, so that a chip is read from memory once and stays in the cache."""
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


def majority_class(counts: AnyArray) -> IntArray:
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
        found[here] = majority_class(np.stack(counts, -1))
    return found
