"""Small tile and label stores whose pixels encode scene, band and position."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from builders import grid_of, write_labels, write_store

from eopipe.arrays import AnyArray, BoolArray, IntArray, UInt8Array, UInt16Array
from eopipe.chips.assign import splits_of_chips
from eopipe.chips.chip_table import ChipTable
from eopipe.chips.splits import SPLITS, SplitPlan, chip_corners, split_zones
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.grid import make_grid
from eopipe.tiles.layout import Layout

SHAPE = (64, 48)
GRID = grid_of(SHAPE, left=0.0, top=640.0)
SCALE, OFFSET = 0.5, -3.0
SMALL = Layout(16, 32)
CLASSES = ("x", "y", "z")
WIDE = Frame((Cell("", make_grid((0.0, 0.0, 1e5, 1e5), "EPSG:32633", 10.0, (0, 0))),))


def number(scene: str, band: str) -> UInt16Array:
    """Pixels that encode scene, band and position."""
    first = {"a": 0, "b": 20_000}[scene] + {"red": 0, "nir": 10_000}[band]
    return (first + np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE)).astype(np.uint16)


def classes(scene: str) -> UInt8Array:
    return (number(scene, "red") % 3).astype(np.uint8)


def usable() -> UInt8Array:
    """All but one column."""
    valid = np.ones(SHAPE, np.uint8)
    valid[:, 20] = 0
    return valid


def make_scene(
    folder: Path, scene: str, bands: tuple[str, ...], layout: Layout = SMALL, dtype: Any = "uint16"
) -> tuple[Path, Path]:
    """Write the tiles and the labels of a scene."""
    image = np.stack([number(scene, band) for band in bands]).astype(dtype)
    place: dict[str, Any] = {"grid": GRID, "layout": layout, "scene": scene}
    arrays = {"image": image, "valid": usable()}
    tiles = write_store(folder / f"{scene}.zarr", bands, arrays, scaling=(SCALE, OFFSET), **place)
    return tiles, write_labels(folder / f"{scene}-label.zarr", classes(scene), CLASSES, **place)


def chips_by_split(shape: tuple[int, int], plan: SplitPlan) -> dict[str, IntArray]:
    """Top-left corners (row, column) of the chips of each split, in a spatial split."""
    corners = chip_corners(shape, plan)
    numbers = splits_of_chips(corners, split_zones(shape, plan), plan)
    return {name: corners[numbers == number] for number, name in enumerate(SPLITS)}


@dataclass(frozen=True)
class ImageOfSplit:
    """An image as a split asks of it, without pixels."""

    scene: str
    attributes: dict[str, Any] = field(default_factory=dict)
    frame: Frame = WIDE

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the frame."""
        return self.frame.shape


def table_of(
    samples: dict[str, IntArray], chip: int, images: Sequence[ImageOfSplit] = ()
) -> tuple[ChipTable, dict[str, IntArray]]:
    """The table of the chips of all splits (n, 3), of scenes a, b, … where no images are given; the rows of each."""
    every = np.concatenate([*samples.values()])
    images = images or [ImageOfSplit(name) for name in "abcdefgh"]
    rows = np.split(np.arange(len(every)), np.cumsum([len(part) for part in samples.values()])[:-1])
    return ChipTable.of_grids(images, every, chip), dict(zip(samples, rows, strict=True))


def nearest_by_hand(image: AnyArray, valid: BoolArray, reach: int | None = None) -> AnyArray:
    """The nearest valid pixel of each invalid one: the smallest distance, then row, then column."""
    filled, sources = image.copy(), np.argwhere(valid).tolist()
    for row, column in np.argwhere(~valid).tolist():
        options = [(max(abs(y - row), abs(x - column)), y, x) for y, x in sources]
        distance, y, x = min(options, default=(0, row, column))
        if reach is None or distance <= reach:
            filled[:, row, column] = image[:, y, x]
    return filled
