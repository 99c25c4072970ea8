"""Maps of a run with their labels, read block by block in the areas of the splits."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, IntArray
from eopipe.chips.chips import (
    BLOCK,
    chip_votes_in_area,
    chips_in,
    chips_reaching,
    covered_blocks,
    covered_pixels,
    has_value,
    pair_stores,
    quantity_of,
    read_truth,
    unit_of,
)
from eopipe.chips.make_split import check_scenes
from eopipe.chips.map_places import chips_of_map, maps_by_image, tags_of_map
from eopipe.chips.polygons import splits_of_pixels
from eopipe.chips.splits import SPLITS, Split, read_split
from eopipe.errors import BadInputError, UsageError, some_of
from eopipe.evaluation.features import PixelFeatures
from eopipe.inference.finished_maps import FrameRaster
from eopipe.labels.write import FROM_TO
from eopipe.scenes.item import read_item, tagged_scenes
from eopipe.stac.mlm import to_card
from eopipe.tasks import SEGMENTATION, task_of_map
from eopipe.tasks.task import Task
from eopipe.tiles.cells import Frame
from eopipe.tiles.geotiff import keep_open, open_map
from eopipe.tiles.grid import PixelWindow, blocks_around
from eopipe.tiles.store import Tiles

# In the folder of a model; its own module would load PyTorch.
MODEL_CARD = "model.json"
# The method of a split that no stage writes: no label trains, all of them test.
ONLY_TESTS = "only tests"


@dataclass(frozen=True)
class EvaluatedMap:
    """One map: its file for each cell of the run that its images reach, the tile stores of these, and the labels.

    `number` is its place among the maps of the run.
    """

    number: int
    paths: dict[str, Path]
    stores: list[Tiles]
    label: Tiles

    @property
    def frame(self) -> Frame:
        return self.label.frame

    @cached_property
    def features(self) -> PixelFeatures:
        """What the baselines see of its pixels."""
        return PixelFeatures(self.stores)

    def mapped(self, y: slice, x: slice) -> AnyArray:
        """The map in a window: classes or values (y, x), 255 or NaN where nothing is mapped.

        With several labels per chip the result is (class, y, x).
        """
        maps = FrameRaster(self.frame, {cell: _opened(path) for cell, path in self.paths.items()})
        return maps.task.as_mapped(maps.read(y, x))

    def truth(self, y: slice, x: slice) -> AnyArray:
        """Class numbers or values (y, x) of the labels in a window; 255 or NaN where there is none."""
        return read_truth(self.label, y, x)

    def reached_blocks(self) -> list[PixelWindow]:
        """Windows that do not overlap around what its stores reach, one for each block: no other pixel is mapped."""
        # Cells are further apart than a block is wide, so that no block has pixels of two.
        return blocks_around((window for store in self.stores for window in store.windows), BLOCK)


# Trials are read block by block from the maps of all of them, and each opening reads the table of a file's blocks.
_opened = lru_cache(maxsize=64)(keep_open)


def _is_mapped(mapped: AnyArray) -> BoolArray:
    """Mask (y, x) of the mapped pixels; of several labels for each chip all bands have the same."""
    return has_value(mapped if mapped.ndim == 2 else mapped[0])


def first_mapped(is_mapped: BoolArray, cells: IntArray, edge: int) -> tuple[IntArray, IntArray]:
    """Row and column (n,) of the first mapped pixel of cells of `edge` pixels, by their numbers in the mask (y, x).

    At the border of a zone it need not be the corner: the pixels beyond are without data.
    """
    top, left = (edge * index for index in np.divmod(cells, is_mapped.shape[1] // edge))
    inside = np.arange(edge)
    of_cells = is_mapped[top[:, None, None] + inside[:, None], left[:, None, None] + inside]
    rows, cols = np.divmod(of_cells.reshape(len(cells), edge**2).argmax(1), edge)
    return top + rows, left + cols


@dataclass(frozen=True)
class AreaSamples:
    """Samples (n,) in the area of a split, in one block of a map: places in the frame, truth and what is mapped.

    Samples are mapped, labelled pixels, or cells of a map of chips that are completely inside the area, at their first
    mapped pixel. With several labels per chip, truth and `mapped` are (n, class): 1 present, 0 absent. Chips have the
    row, column and cell (pixel,) of their labelled `pixels`.
    """

    group: EvaluatedMap
    rows: IntArray
    cols: IntArray
    truth: AnyArray
    mapped: AnyArray
    pixels: tuple[IntArray, IntArray, IntArray] | None = None

    def __getitem__(self, chosen: Any) -> "AreaSamples":
        """Some of them, without the pixels of chips."""
        places = self.rows[chosen], self.cols[chosen]
        return AreaSamples(self.group, *places, self.truth[chosen], self.mapped[chosen])

    @property
    def hectares(self) -> Float64Array:
        """The area (n,) of each pixel on the ground."""
        y, x = (slice(int(places.min()), int(places.max()) + 1) for places in (self.rows, self.cols))
        return self.group.frame.hectares(y, x)[self.rows - y.start, self.cols - x.start]


@dataclass(frozen=True)
class EvaluationData:
    """All maps of a run with their ground truth, task and split."""

    groups: list[EvaluatedMap]
    names: tuple[str, ...]
    split: Split
    task: Task = SEGMENTATION
    unit: str = ""
    min_share: float = 0.0
    # The classes of both dates where the labels are from-to classes.
    from_to: tuple[str, ...] = ()

    @property
    def frame(self) -> Frame:
        return self.groups[0].frame

    @property
    def only_tests(self) -> bool:
        """Whether no label trains, so that all of them test."""
        return self.split.plan.method == ONLY_TESTS

    @classmethod
    def read(
        cls,
        maps: tuple[Path, ...],
        tiles: tuple[Path, ...],
        labels: tuple[Path, ...],
        chips: Path | None,
        model: Path | None = None,
    ) -> "EvaluationData":
        """Open maps and stores; with a finished model in the place of a split all labels test.

        Raises BadInputError when they are inconsistent, UsageError without one of split and model, or with both.
        """
        # What another evaluation in this process has opened.
        _opened.cache_clear()
        pairs = pair_stores(tiles, labels)
        split = _split_of(pairs, chips, model)
        check_scenes(split, pairs)
        names = pairs[0][1].names
        groups = list[EvaluatedMap]()
        of_images = maps_by_image(maps, [image for image, _ in pairs])
        is_mosaic = len(of_images) == 1
        if is_mosaic and len({label.scene for _, label in pairs}) > 1:
            raise BadInputError("one mosaic cannot be compared with labels that differ from scene to scene")
        if is_mosaic and len(pairs) > 1 and split.by_scene:
            raise BadInputError("one mosaic mixes the scenes that train and test; give a map for each scene")
        for paths, group in zip(of_images, [pairs] if is_mosaic else [[pair] for pair in pairs], strict=True):
            stores = [image for image, _ in group]
            for path in paths.values():
                _check_map(path, stores, names)
            groups.append(EvaluatedMap(len(groups), paths, stores, group[0][1]))
        min_share = float(tags_of_map(maps[0]).get("min_share", 0.0))
        task = _task(maps, pairs[0][1], split)
        from_to = tuple(pairs[0][1].attributes.get(FROM_TO, ()))
        return cls(groups, names, split, task, unit_of(pairs[0][1]), min_share, from_to)

    def areas(self, name: str) -> Iterator[tuple[EvaluatedMap, PixelWindow, BoolArray]]:
        """For each block of each map its window and the mask (y, x) of the areas of a split.

        Where scenes are split, and in chip sets, those are the areas of the map's own chips. No block cuts a cell of a
        map of chips.
        """
        chip = self.split.chip
        multiple = self.task.cell(chip)
        for group in self.groups:
            if self.only_tests:
                for y, x in group.reached_blocks() if name == "test" else ():
                    yield group, (y, x), has_value(group.truth(y, x))
                continue
            corners = chips_of_map(self.split, name, [group.number])
            if len(group.stores) == 1:
                corners = chips_reaching(group.stores[0].windows, corners, chip)
            for cell in self.frame.cells:
                # Cells of a map of chips are counted from the edges of their own grid.
                of_cell = corners[chips_in(corners, 1, cell.window)] - np.array([0, cell.column])
                for (y, x), covered in covered_blocks(of_cell, chip, multiple):
                    window = y, slice(x.start + cell.column, x.stop + cell.column)
                    yield group, window, covered & self._has_polygon_of(name, group, window)

    def area(self, name: str, group: EvaluatedMap, window: PixelWindow) -> BoolArray:
        """The mask (y, x) of the areas of a split in any window of a map."""
        if self.only_tests:
            return has_value(group.truth(*window)) & (name == "test")
        covered = covered_pixels(chips_of_map(self.split, name, [group.number]), self.split.chip, window)
        return covered & self._has_polygon_of(name, group, window)

    def _has_polygon_of(self, name: str, group: EvaluatedMap, window: PixelWindow) -> BoolArray:
        """The pixels (y, x) of the polygons of a split; all where no polygons are split."""
        polygons, number = self.split.polygons, SPLITS.index(name)
        return np.asarray((splits_of_pixels(group.label, polygons, *window) if polygons else number) == number)

    def samples(self, name: str) -> Iterator[AreaSamples]:
        """What scores count in the areas of a split, block by block: pixels, or cells of maps of chips."""
        return self.chips(name) if self.task.is_of_chips else self.pixels(name)

    def pixels(self, name: str) -> Iterator[AreaSamples]:
        """The mapped, labelled pixels in the areas of a split, block by block; none of blocks without any."""
        for group, (y, x), area in self.areas(name):
            mapped, truth = group.mapped(y, x), group.truth(y, x)
            rows, cols = np.nonzero(area & _is_mapped(mapped) & has_value(truth))
            if len(rows):
                yield AreaSamples(group, rows + y.start, cols + x.start, truth[rows, cols], mapped[..., rows, cols])

    def chips(self, name: str) -> Iterator[AreaSamples]:
        """The cells of maps of chips that are completely inside the areas of a split, block by block.

        A cell counts where the share of its labelled pixels is at least `min_valid` of the split.
        """
        edge, count = self.split.chip, len(self.names)
        for group, (y, x), area in self.areas(name):
            mapped, truth = group.mapped(y, x), group.truth(y, x)
            usable = area & _is_mapped(mapped) & has_value(truth)
            chosen, votes = chip_votes_in_area(truth, usable, area, edge, count, self.split.min_usable_pixels)
            columns = area.shape[1] // edge
            rows, cols = first_mapped(_is_mapped(mapped), chosen, edge)
            pixel_rows, pixel_cols = np.nonzero(usable)
            cells = pixel_rows // edge * columns + pixel_cols // edge
            index = np.searchsorted(chosen, cells)
            is_chosen = np.isin(cells, chosen)
            pixels = pixel_rows[is_chosen] + y.start, pixel_cols[is_chosen] + x.start, index[is_chosen]
            of_cells = mapped[..., rows, cols].T.astype(np.int64)
            if len(chosen):
                truth_of_cells = self.task.of_votes(votes, self.min_share)
                yield AreaSamples(group, rows + y.start, cols + x.start, truth_of_cells, of_cells, pixels)


def _split_of(pairs: list[tuple[Tiles, Tiles]], chips: Path | None, model: Path | None) -> Split:
    """The split in a file; or the split of a finished model, whose classes the labels must have, in its order."""
    if chips and not model:
        return read_split(chips)
    if chips or not model:
        raise UsageError("give one of --chips, a split file, and --tested-model, a finished model that all labels test")
    item, names = model / MODEL_CARD, pairs[0][1].names
    if not item.is_file():
        raise BadInputError(f"{model} has no {MODEL_CARD}; give the folder of a finished model")
    card = to_card(read_item(item), item)
    if list(names) != card["classes"]:
        raise BadInputError(
            f"the labels have the classes {', '.join(names)}, the model {model} has {', '.join(card['classes'])}"
        )
    return split_for_tests([image.scene for image, _ in pairs], names, card["chip"])


def split_for_tests(scenes: list[str], classes: tuple[str, ...], chip: int) -> Split:
    """A split without chips, of labels that only test: every labelled pixel is one of the test areas."""
    document: dict[str, Any] = {"scenes": scenes, "classes": list(classes), "chip": chip}
    document |= {"samples": {name: [] for name in SPLITS}, "pixels": {name: {} for name in SPLITS}}
    plan = {"method": ONLY_TESTS, "min_valid": 0}
    return Split.model_validate(document | {"plan": plan, "audit": {"gap_pixels": {}}})


def _task(maps: tuple[Path, ...], labels: Tiles, split: Split) -> Task:
    """The task in the tags of the maps; raises BadInputError where labels or split belong to another task."""
    tags = tags_of_map(maps[0])
    task, chip = task_of_map(tags, maps[0]), int(tags.get("chip", split.chip))
    quantity = quantity_of(labels)
    if task.label_conflict("", quantity):
        kind = f"measure {quantity}" if quantity else "are classes"
        raise BadInputError(
            f"map {maps[0]} is of task {task.name}, but the labels {kind}; give the labels of the model's training"
        )
    if split.plan.method == ONLY_TESTS and (task is not SEGMENTATION or labels.attributes.get(FROM_TO)):
        kind = "of change" if task is SEGMENTATION else f"of task {task.name}"
        raise BadInputError(
            f"map {maps[0]} is {kind}; labels without a training test only maps of the task {SEGMENTATION.name}"
        )
    if chip != split.chip:
        raise BadInputError(f"map {maps[0]} has cells of {chip} pixels, the split chips of {split.chip}")
    return task


def _check_map(path: Path, stores: list[Tiles], names: tuple[str, ...]) -> None:
    """Raise BadInputError for a map of another place, of other scenes, or of other labels."""
    with open_map(path) as file:
        tags = file.tags()
        cell = stores[0].frame.cell(tags.get("cell", ""))
        if file.shape != cell.shape or not file.transform.almost_equals(cell.grid.affine):
            raise BadInputError(f"map {path.name} is not on the grid of scene {stores[0].scene}")
        if task_of_map(tags, path).has_label_sets and file.descriptions != names:
            bands = ", ".join(str(name) for name in file.descriptions)
            raise BadInputError(f"map {path} has the labels {bands}; the label stores have {', '.join(names)}")
    scene_names = [store.scene for store in stores]
    made_from = tagged_scenes(tags, scene_names)
    if made_from != scene_names:
        differing = sorted(set(made_from) ^ set(scene_names))
        raise BadInputError(f"map {path} was made from other scenes than it is compared with: {some_of(differing)}")
