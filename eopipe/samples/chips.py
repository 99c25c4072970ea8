"""Chips: windows of tiles with their labels, normalised by band name, in reused memory."""

from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eopipe.errors import BadInputError
from eopipe.grid import same_grid
from eopipe.store import NO_LABEL, Tiles

Floats = npt.NDArray[np.float32]


def pair(tiles: tuple[Path, ...], labels: tuple[Path, ...]) -> list[tuple[Tiles, Tiles]]:
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
        if label.names != classes:
            raise BadInputError(
                f"{label.path} has the classes {', '.join(label.names)}, "
                f"{pairs[0][1].path} has {', '.join(classes)}; make all labels with the same classes"
            )


@dataclass
class Reader:
    """Reads chips; keeps whole arrays in memory up to a budget in bytes, least recently used first out."""

    pairs: list[tuple[Tiles, Tiles]]
    bands: tuple[str, ...]
    chip: int
    budget: int = 1 << 30
    _kept: "OrderedDict[tuple[int, str], npt.NDArray[Any]]" = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        """Every scene has the bands."""
        for tiles, _ in self.pairs:
            missing = [band for band in self.bands if band not in tiles.names]
            if missing:
                raise BadInputError(f"{tiles.path} has no band {', '.join(missing)}; it has {', '.join(tiles.names)}")

    def image(self, scene: int, row: int, col: int) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Stored numbers (band, chip, chip) of the bands by name, and the valid mask (chip, chip)."""
        y, x = slice(row, row + self.chip), slice(col, col + self.chip)
        tiles = self.pairs[scene][0]
        order = [tiles.names.index(band) for band in self.bands]
        return self._read(scene, "image", y, x)[order], self._read(scene, "valid", y, x) > 0

    def label(self, scene: int, row: int, col: int) -> npt.NDArray[np.uint8]:
        """Class numbers (chip, chip), 255 where there is no label."""
        y, x = slice(row, row + self.chip), slice(col, col + self.chip)
        return self._read(scene, "label", y, x)

    def _read(self, scene: int, name: str, y: slice, x: slice) -> npt.NDArray[Any]:
        store = self.pairs[scene][1 if name == "label" else 0]
        array = store.array(name)
        if array.nbytes > self.budget // 4:
            return store.read(name, y, x)
        key = (id(store), name)
        if key not in self._kept:
            self._kept[key] = store.read(name)
            while sum(a.nbytes for a in self._kept.values()) > self.budget:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key][..., y, x]


@dataclass(frozen=True)
class Normaliser:
    """Mean and standard deviation of each band in physical units, from training chips only."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, stored: npt.NDArray[Any], scaling: tuple[float, float], valid: npt.NDArray[np.bool_]) -> Floats:
        """(band, y, x) stored numbers to about zero mean and unit variance; invalid pixels become 0."""
        scale, offset = scaling
        std = np.asarray(self.std, np.float32)[:, None, None]
        mean = np.asarray(self.mean, np.float32)[:, None, None]
        physical = stored.astype(np.float32) * np.float32(scale) + np.float32(offset)
        return np.where(valid, (physical - mean) / std, np.float32(0))


def turn(array: npt.NDArray[Any], way: int) -> npt.NDArray[Any]:
    """One of the eight symmetries of the square, on the last two axes."""
    if way & 4:
        array = np.swapaxes(array, -1, -2)
    if way & 2:
        array = array[..., ::-1, :]
    return array[..., ::-1] if way & 1 else array


def sample(
    reader: Reader, normalise: Normaliser, where: npt.NDArray[np.int64], way: int = 0
) -> tuple[Floats, npt.NDArray[np.uint8]]:
    """One training sample: image (band, chip, chip) and label (chip, chip); 255 where the pixel is not usable."""
    scene, row, col = (int(v) for v in where)
    stored, valid = reader.image(scene, row, col)
    image = normalise(stored, reader.pairs[scene][0].scaling, valid)
    label = np.where(valid, reader.label(scene, row, col), NO_LABEL).astype(np.uint8)
    return turn(image, way), turn(label, way)
