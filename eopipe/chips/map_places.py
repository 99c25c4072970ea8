"""Places of maps: their images and cells, and the chips of one split where a map is made for its scores there alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, IntArray
from eopipe.chips.chips import blocks_of, covered_pixels, windows_with_chips
from eopipe.chips.polygons import splits_of_pixels
from eopipe.chips.splits import SPLITS, Split, read_split
from eopipe.errors import BadInputError, UsageError, some_of
from eopipe.scenes.item import tagged_scenes
from eopipe.tiles.cells import Frame
from eopipe.tiles.geotiff import open_map
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.store import NO_LABEL, Tiles


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


@dataclass(frozen=True)
class SplitArea:
    """The chips of the split `name` in a map, at some corners (n, 2), with its labels.

    A cell needs `min_pixels` labelled ones. `polygons` are their splits where polygons are split.
    """

    name: str
    labels: Tiles
    corners: IntArray
    edge: int
    min_pixels: float
    polygons: dict[str, list[int]] | None = None

    @classmethod
    def of(cls, name: str, split: Split, labels: Tiles, image: int | None) -> "SplitArea":
        """The places of a split in a mosaic, or in the map of one image by its number."""
        chip, corners = split.chip, chips_of_map(split, name, None if image is None else [image])
        return cls(name, labels, np.unique(corners, axis=0), chip, split.min_usable_pixels, split.polygons)

    def area(self, y: slice, x: slice) -> BoolArray:
        """The pixels (y, x) of a window that are in a chip of the split."""
        area = covered_pixels(self.corners, self.edge, (y, x))
        if self.polygons:
            area &= splits_of_pixels(self.labels, self.polygons, y, x) == SPLITS.index(self.name)
        return area

    def labelled(self, y: slice, x: slice) -> tuple[AnyArray, BoolArray]:
        """Class numbers or values of a window, and the pixels that are labelled and in a place of the split."""
        label, valid = (self.labels.read(name, y, x) for name in ("label", "valid"))
        return label, self.area(y, x) & (valid > 0) & (label != NO_LABEL)

    def boxes(self, windows: list[PixelWindow], multiple: int) -> Iterator[tuple[PixelWindow, int]]:
        """The part of each window that has labelled pixels, its edges at a multiple, and their number."""
        for y, x in windows_with_chips(windows, self.corners, self.edge):
            _, labelled = self.labelled(y, x)
            if labelled.any():
                rows, cols = (_extent(np.asarray(labelled.any(axis)), multiple) for axis in (1, 0))
                box = _within(rows, y), _within(cols, x)
                yield box, int(np.count_nonzero(labelled))


def _extent(is_used: BoolArray, multiple: int) -> slice:
    """First and last used position, widened to a multiple."""
    (used,) = np.nonzero(is_used)
    return slice(int(used[0]) // multiple * multiple, -(-int(used[-1] + 1) // multiple) * multiple)


def _within(part: slice, window: slice) -> slice:
    return slice(window.start + part.start, min(window.start + part.stop, window.stop))


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


def maps_by_image(paths: Sequence[Path], stores: Sequence[Tiles]) -> list[dict[str, Path]]:
    """The maps of stores, sorted by scene, by the ids of their cells: of all stores as one, or of each store its own.

    In a run with several cells the tags of a map say its scenes and its cell, and a store without a usable pixel in a
    cell needs no map there. Raises BadInputError for another number of maps, for maps of other scenes, two of one
    place, and places without a map.
    """
    frame, names = stores[0].frame, [store.scene for store in stores]
    if frame.only is not None:
        if len(paths) not in (1, len(stores)):
            expected = f"{len(stores)} scenes: give one mosaic, or one map for each scene"
            raise BadInputError(f"{len(paths)} maps for {expected}")
        return [{"": path} for path in paths]
    placed: dict[tuple[str, ...], dict[str, Path]] = {}
    for path in paths:
        tags = tags_of_map(path)
        scenes, cell = tuple(tagged_scenes(tags, names)), frame.cell(tags.get("cell", "")).id
        if other := placed.setdefault(scenes, {}).get(cell):
            raise BadInputError(f"{other} and {path} are maps of the same scenes in cell {cell}; give one of them")
        placed[scenes][cell] = path
    is_mosaic = set(placed) == {(*names,)}
    for scenes, of_cells in placed.items():
        if not is_mosaic and (len(scenes) != 1 or scenes[0] not in names):
            path, differing = next(iter(of_cells.values())), sorted(set(scenes) ^ set(names))
            raise BadInputError(
                f"map {path} was made from other scenes than it is compared with: {some_of(differing)}; give the maps "
                "of all scenes in each cell, or the maps of each single scene in each cell"
            )
    for store in stores:
        of_store = placed.get((*names,) if is_mosaic else (store.scene,), {})
        for part in store.parts:
            if part.cell not in of_store and _has_pixels(part, frame):
                raise BadInputError(
                    f"scene {store.scene} has pixels in cell {part.cell}, but there is no map of them; give the map "
                    f"that predict --cell {part.cell} makes"
                )
    groups = [placed[(*names,)]] if is_mosaic else [placed.get((name,), {}) for name in names]
    return [{cell.id: maps[cell.id] for cell in frame.cells if cell.id in maps} for maps in groups]


def _has_pixels(part: Tiles, frame: Frame) -> bool:
    """Whether the part of a store in a cell has a usable pixel of the zone of that cell."""
    blocks = blocks_of([part.stored_window])
    return any((part.valid(*block) & frame.belonging(*block)).any() for block in blocks)


def tags_of_map(path: Path) -> dict[str, str]:
    """The tags of a map. Raises BadInputError for a file that is not one."""
    with open_map(path) as file:
        tags: dict[str, str] = file.tags()
    return tags
