"""Places of a map: the chips of one split in it, where a map is made for its scores there alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eopipe.arrays import IntArray
from eopipe.chips.chip_blocks import windows_with_chips
from eopipe.chips.splits import Split, read_split
from eopipe.errors import BadInputError, UsageError, some_of
from eopipe.tiles.cells import Frame
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.store import Tiles


@dataclass(frozen=True)
class MapPlaces:
    """The chips of the split `name` in a map: their corners (n, 2) in the frame, and their edge in pixels."""

    name: str
    corners: IntArray
    chip: int

    def windows(self, windows: Sequence[PixelWindow]) -> list[PixelWindow]:
        """The windows of the frame that a chip reaches, in their order."""
        return windows_with_chips(windows, self.corners, self.chip)


def chips_of_map(split: Split, name: str, images: Sequence[int] | None) -> IntArray:
    """First row and column (n, 2) of the chips of the split `name` in a map of some images by their numbers.

    Chips of all images count where the images share their positions, and for None; a chip may be there several times.
    """
    samples = split.samples[name]
    if images is not None and not split.is_mosaic:
        samples = samples[np.isin(samples[:, 0], images)]
    return samples[:, 1:]


def read_places(
    path: Path | None, name: str | None, stores: Sequence[Tiles], *, in_parts: bool = False
) -> MapPlaces | None:
    """The places of a map of some stores: the chips of a split in a split file; None without both.

    Raises UsageError for one of file and split without the other, and for a map in parts, BadInputError for the split
    of other scenes or of another grid.
    """
    if path is None and name is None:
        return None
    if path is None or name is None:
        raise UsageError("--chips and --places belong together: give a split file, and the split whose places to map")
    if in_parts:
        raise UsageError("a map of --places is made by one job; remove --part and --finished-parts, or map everything")
    split, scenes = read_split(path), [store.scene for store in stores]
    if others := sorted(set(scenes) - set(split.scenes)):
        raise BadInputError(f"the split {path} was made from other scenes than those to map: {some_of(others)}")
    if split.grid is not None and not Frame.of_document(split.grid, f"the grid of {path}").is_same(stores[0].frame):
        raise BadInputError(f"the split {path} is on another grid than the tiles; give the split of these tiles")
    corners = chips_of_map(split, name, [split.scenes.index(scene) for scene in scenes])
    return MapPlaces(name, np.unique(corners, axis=0), split.chip)
