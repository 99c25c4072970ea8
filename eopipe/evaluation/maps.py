"""Maps of a run with their labels, and the areas of the splits."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, IntArray, UInt8Array
from eopipe.chips.chip_blocks import covered_pixels
from eopipe.chips.chips import cell_votes, is_continuous, majority_class, pair_stores, unit_of
from eopipe.chips.make_split import check_scenes
from eopipe.chips.polygons import splits_of_pixels
from eopipe.chips.splits import SPLITS, read_split
from eopipe.errors import BadInputError
from eopipe.labels.change import FROM_TO
from eopipe.models.tasks import CHIPWISE
from eopipe.scenes.item import tagged_scenes
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.store import NO_LABEL, Tiles


@dataclass(frozen=True)
class EvaluatedMap:
    """One map, the tile stores it was predicted from, and its ground truth (255 or NaN where there is none).

    `splits` (y, x) is the split of each pixel's polygon, where polygons are split. Of several labels for each chip,
    `presence` (class, y, x) has 1 present, 0 absent, 255 no scene, and `prediction` is its first class.
    """

    prediction: AnyArray
    stores: list[Tiles]
    truth: AnyArray
    splits: UInt8Array | None = None
    presence: UInt8Array = field(default_factory=lambda: np.empty((0, 0, 0), np.uint8))

    @property
    def is_comparable(self) -> BoolArray:
        """Mask (y, x) of pixels with prediction and ground truth."""
        return has_value(self.prediction) & has_value(self.truth)


def has_value(numbers: AnyArray) -> BoolArray:
    """Mask of pixels with a class number or a value."""
    return np.asarray(np.isfinite(numbers) if numbers.dtype.kind == "f" else numbers != NO_LABEL)


@dataclass(frozen=True)
class EvaluationData:
    """All maps of a run with their ground truth, task and split."""

    groups: list[EvaluatedMap]
    names: tuple[str, ...]
    split: dict[str, Any]
    task: str = "segmentation"
    unit: str = ""
    min_share: float = 0.0
    # The classes of both dates where the labels are from-to classes.
    from_to: tuple[str, ...] = ()

    @property
    def frame(self) -> Frame:
        """The cells of the run."""
        return self.groups[0].stores[0].frame

    @classmethod
    def read(
        cls, maps: tuple[Path, ...], tiles: tuple[Path, ...], labels: tuple[Path, ...], chips: Path
    ) -> "EvaluationData":
        """Read maps and stores; raises BadInputError when they are inconsistent."""
        pairs, split = pair_stores(tiles, labels), read_split(chips)
        check_scenes(split, pairs)
        cells = len(pairs[0][0].frame.cells)
        is_mosaic = len(maps) == cells if cells > 1 else len(maps) == 1
        if not is_mosaic and (cells > 1 or len(maps) != len(pairs)):
            raise BadInputError(f"{len(maps)} maps for {_expected(cells, len(pairs))}")
        if is_mosaic and len({label.scene for _, label in pairs}) > 1:
            raise BadInputError("one mosaic cannot be compared with labels that differ from scene to scene")
        if is_mosaic and len(pairs) > 1 and split.get("by_scene"):
            raise BadInputError("one mosaic mixes the scenes that train and test; give a map for each scene")
        members = [pairs] if is_mosaic else [[pair] for pair in pairs]
        paths_of_members = [maps] if is_mosaic else [(path,) for path in maps]
        groups = [
            EvaluatedMap(
                _read_maps(paths, [image for image, _ in group]),
                [image for image, _ in group],
                group[0][1].read("label"),
                splits_of_pixels(group[0][1], split["polygons"]) if "polygons" in split else None,
                _read_presence(paths[0], group[0][1].names),
            )
            for paths, group in zip(paths_of_members, members, strict=True)
        ]
        min_share = float(_tags(maps[0]).get("min_share", 0.0))
        task = _task(maps, pairs[0][1], split)
        from_to = tuple(pairs[0][1].attributes.get(FROM_TO, ()))
        return cls(groups, pairs[0][1].names, split, task, unit_of(pairs[0][1]), min_share, from_to)

    def pixels(self, name: str) -> Iterator[tuple[EvaluatedMap, AnyArray, AnyArray]]:
        """For each map: rows and columns of the mapped, labelled pixels in the areas of a split.

        Where scenes are split, and of chip sets, those are the areas of the map's own chips.
        """
        for group, area in self.areas(name):
            rows, cols = np.nonzero(area & group.is_comparable)
            yield group, rows, cols

    def areas(self, name: str) -> Iterator[tuple[EvaluatedMap, BoolArray]]:
        """For each map the mask (y, x) of the areas of a split."""
        samples, chip = self.split["samples"][name], self.split["chip"]
        area = covered_pixels(self.groups[0].truth.shape, samples, chip)
        for number, group in enumerate(self.groups):
            if self.split.get("by_scene") or "chip_set" in self.split:
                area = covered_pixels(group.truth.shape, samples[samples[:, 0] == number], chip)
            yield group, area if group.splits is None else area & (group.splits == SPLITS.index(name))

    def chips(self, name: str) -> Iterator[tuple[EvaluatedMap, IntArray, IntArray, IntArray]]:
        """For each map of chips: the cells completely inside the areas of a split, their true and mapped class.

        Cells are numbered row by row. The true class is the majority over the labelled pixels; a cell has one where
        their share is at least `min_valid` of the split.
        """
        edge = self.split["chip"]
        for group, chosen, votes in self.votes(name):
            rows, cols = np.divmod(chosen, group.truth.shape[1] // edge)
            yield group, chosen, majority_class(votes), group.prediction[rows * edge, cols * edge].astype(np.int64)

    def votes(self, name: str) -> Iterator[tuple[EvaluatedMap, IntArray, IntArray]]:
        """For each map of chips: the same cells, and their labelled pixels of each class (cell, class)."""
        edge, count = self.split["chip"], len(self.names)
        # Chips of a set may be smaller than their slots; those in a split have enough labelled pixels.
        min_pixels = 1.0 if "chip_set" in self.split else max(1.0, self.split["plan"]["min_valid"] * edge**2)
        for group, area in self.areas(name):
            usable = area & group.is_comparable
            yield group, *cell_votes(group.truth, usable, area, edge, count, min_pixels)


def _task(maps: tuple[Path, ...], labels: Tiles, split: dict[str, Any]) -> str:
    """The task in the tags of the maps; raises BadInputError where labels or split belong to another task."""
    tags = _tags(maps[0])
    task, chip = str(tags.get("task", "segmentation")), int(tags.get("chip", split["chip"]))
    if task in CHIPWISE and "cell" in tags:
        raise BadInputError(f"map {maps[0]} is of task {task}, which is evaluated on one grid only so far")
    if is_continuous(labels) != (task == "regression"):
        kind = f"measure {labels.names[0]}" if is_continuous(labels) else "are classes"
        raise BadInputError(
            f"map {maps[0]} is of task {task}, but the labels {kind}; give the labels that the model was trained on"
        )
    if chip != split["chip"]:
        raise BadInputError(f"map {maps[0]} has cells of {chip} pixels, the split chips of {split['chip']}")
    return task


def _expected(cells: int, scenes: int) -> str:
    if cells > 1:
        return f"{cells} cells: give the map of the mosaic of each cell"
    return f"{scenes} scenes: give one mosaic, or one map for each scene"


def _read_maps(paths: tuple[Path, ...], stores: list[Tiles]) -> AnyArray:
    """A mosaic in the frame of the run, from the map of each cell."""
    maps, frame = [_read_map(path, stores) for path in paths], stores[0].frame
    if frame.only is not None:
        return maps[0][1]
    if sorted(cell.id for cell, _ in maps) != sorted(cell.id for cell in frame.cells):
        raise BadInputError(f"the maps are of the cells {', '.join(cell.id for cell, _ in maps)}; give one of each")
    numbers = maps[0][1]
    mosaic = np.full(frame.shape, np.nan if numbers.dtype.kind == "f" else NO_LABEL, numbers.dtype)
    for cell, part in maps:
        mosaic[cell.window] = part
    return mosaic


def _tags(path: Path) -> dict[str, str]:
    import rasterio

    with rasterio.open(path) as file:
        tags: dict[str, str] = file.tags()
    return tags


def _read_presence(path: Path, names: tuple[str, ...]) -> UInt8Array:
    """The bands of a map of several labels for each chip, empty for any other map.

    Raises BadInputError for labels of other classes.
    """
    import rasterio

    with rasterio.open(path) as file:
        if file.tags().get("task") != "multilabel":
            return np.empty((0, 0, 0), np.uint8)
        if file.descriptions != names:
            bands = ", ".join(str(name) for name in file.descriptions)
            raise BadInputError(f"map {path} has the labels {bands}; the label stores have {', '.join(names)}")
        return np.asarray(file.read(), np.uint8)


def _read_map(path: Path, stores: list[Tiles]) -> tuple[Cell, AnyArray]:
    """A map with the cell that it shows."""
    import rasterio

    with rasterio.open(path) as file:
        cell = stores[0].frame.cell(file.tags().get("cell", ""))
        if file.shape != cell.shape or not file.transform.almost_equals(cell.grid.affine):
            raise BadInputError(f"map {path.name} is not on the grid of scene {stores[0].scene}")
        scene_names = [store.scene for store in stores]
        made_from = tagged_scenes(file.tags(), scene_names)
        if made_from != scene_names:
            differing = sorted(set(made_from) ^ set(scene_names))
            names = " ".join([*differing[:10], *([f"and {len(differing) - 10} more"] if len(differing) > 10 else [])])
            raise BadInputError(f"map {path} was made from other scenes than it is compared with: {names}")
        return cell, np.asarray(file.read(1))
