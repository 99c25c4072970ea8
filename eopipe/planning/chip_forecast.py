"""The chips of each split, and their classes where labels are available before the run."""

import os
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, fields
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import BoolArray, IntArray, UInt8Array
from eopipe.chips.block_choice import plan_warnings
from eopipe.chips.chips import pair_stores
from eopipe.chips.make_split import SplitRequest, check_complete, place_chips
from eopipe.chips.splits import SPLITS, SplitPlan
from eopipe.contract import stage
from eopipe.errors import EopipeError
from eopipe.labels.change import FROM_TO
from eopipe.labels.source_values import label_table
from eopipe.labels.write import new_label_store
from eopipe.planning.footprints import bounding_window
from eopipe.planning.frozen_scenes import Config, FrozenScenes
from eopipe.planning.trial_store import scene_folder
from eopipe.publish import MANIFEST, read_json, size, write_json
from eopipe.tiles.layout import Layout, crop_cell
from eopipe.tiles.store import add_array, add_cell, new_cell_stores, new_store

# Labels of every scene are written for the plan up to this number of pixels: a minute of work.
MAX_LABEL_PIXELS = 4e8
UNKNOWN = "unknown"


@dataclass(frozen=True)
class ChipForecast:
    """Samples (n, 3) that split would select without clouds: their split, and their pixels of each class.

    Without labels there is one class, `unknown`. `stops` says why labels or chips will end the run, `warnings` what
    is wasted; `label_lines` is a table of the source values of the labels with their classes.
    """

    plan: SplitPlan
    scenes: list[str]
    samples: IntArray
    role: UInt8Array
    pixels: IntArray
    classes: tuple[str, ...]
    label_bytes: int
    stops: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    label_lines: tuple[str, ...] = ()

    @property
    def has_labels(self) -> bool:
        """Whether labels were available."""
        return self.classes != (UNKNOWN,)

    def count(self, split: str) -> int:
        """Chips of a split, over all scenes."""
        return int((self.role == SPLITS.index(split)).sum())

    def class_counts(self, split: str) -> list[tuple[str, int, int]]:
        """Each class with the number of chips of a split that contain it, and its pixels in them."""
        pixels = self.pixels[self.role == SPLITS.index(split)]
        return list(zip(self.classes, (pixels > 0).sum(0).tolist(), pixels.sum(0).tolist(), strict=True))

    @cached_property
    def corners(self) -> dict[str, IntArray]:
        """Corners (row, column) of the chips of each split, each once for all scenes."""
        by_split = {name: self.samples[self.role == n, 1:] for n, name in enumerate(SPLITS)}
        return {name: np.unique(corners, axis=0) for name, corners in by_split.items()}

    def main_split(self, scene: str) -> str:
        """The split of most chips of a scene; train for a scene without chips."""
        role = self.role[self.samples[:, 0] == (self.scenes.index(scene) if scene in self.scenes else -1)]
        return SPLITS[int(np.bincount(role[role < len(SPLITS)], minlength=1).argmax())]


def forecast_chips(config: Config, scenes: FrozenScenes, masks: dict[str, BoolArray]) -> ChipForecast:
    """Split the chips as the stage does, on temporary stores that are valid where a scene covers the grid.

    Labels that the stage refuses count as unknown; the forecast says why.
    """
    stops: list[str] = []
    with tempfile.TemporaryDirectory(prefix="eopipe-plan-") as name:
        folder, labels = Path(name), list[Path]()
        try:
            labels = _write_labels(config, scenes, folder)
        except EopipeError as error:
            stops.append(f"label: {error}")
        tiles = _write_empty_tiles(folder, scenes, masks)
        plan, request = _split_arguments(config["split"], tiles, labels or [_write_unknown_labels(folder, scenes)])
        pairs = pair_stores(request.tiles, request.labels)
        stores, classes = [image for image, _ in pairs], pairs[0][1].names
        samples, role, pixels = np.empty((0, 3), np.int64), np.empty(0, np.uint8), np.empty((0, len(classes)), np.int64)
        try:
            candidates, role, _ = place_chips(pairs, plan, request)
            samples, pixels = candidates.samples, candidates.pixels
            rows = {split: role == number for number, split in enumerate(SPLITS)}
            counts = {split: pixels[of_split].sum(0) for split, of_split in rows.items()}
            by_split = {split: samples[of_split] for split, of_split in rows.items()}
            is_change = FROM_TO in pairs[0][1].attributes
            check_complete(by_split, counts, classes, scenes.shape, plan, is_change=is_change)
        except EopipeError as error:
            stops.append(f"split: {error}")
        label_bytes = sum(size(store)[0] + (store / MANIFEST).stat().st_size for store in labels)
        names, warnings = [store.scene for store in stores], tuple(plan_warnings(plan, samples, role))
        table = tuple(label_table(labels))
        return ChipForecast(plan, names, samples, role, pixels, classes, label_bytes, tuple(stops), warnings, table)


def _split_arguments(settings: dict[str, Any], tiles: list[Path], labels: list[Path]) -> tuple[SplitPlan, SplitRequest]:
    stride = settings["stride"] or settings["chip"]
    values = settings | {"stride": stride, "tiles": tuple(tiles), "labels": tuple(labels)}
    plan, request = ({f.name: values[f.name] for f in fields(kind)} for kind in (SplitPlan, SplitRequest))
    return SplitPlan(**plan), SplitRequest(**request)


def _images(scenes: FrozenScenes, masks: dict[str, BoolArray]) -> dict[str, BoolArray]:
    """Coverage of the model's inputs: the scenes, or composites of them."""
    periods = scenes.periods.items()
    composites = {name: np.logical_or.reduce([masks[scene] for scene in members]) for name, members in periods}
    return composites or masks


def _write_empty_tiles(folder: Path, scenes: FrozenScenes, masks: dict[str, BoolArray]) -> list[Path]:
    """Tile stores with grid, date and valid mask, but without pixels; images that cover the same pixels share files."""
    earlier: dict[bytes, Path] = {}
    targets = []
    for name, mask in _images(scenes, masks).items():
        target, coverage = folder / f"tiles-{name}.zarr", sha256(np.packbits(mask).tobytes()).digest()
        item = scenes.items.get(name, {"properties": {}})
        attributes = {"scene": name} | {key: item["properties"].get(key) for key in ("datetime", "grid:code")}
        if coverage in earlier:
            _copy_store(earlier[coverage], target, attributes)
        else:
            _write_store(target, scenes, mask, attributes)
        earlier.setdefault(coverage, target)
        targets.append(target)
    return targets


def _write_store(target: Path, scenes: FrozenScenes, mask: BoolArray, attributes: dict[str, Any]) -> None:
    layout, frame, scene = Layout(256, 4096), scenes.frame, attributes["scene"]
    with ExitStack() as stack:
        root = None
        if frame.only is None:
            root = stack.enter_context(new_cell_stores(target, frame, ("none",), scene, attributes))
        for cell in frame.cells:
            covered = mask[cell.window]
            grid, window = crop_cell(frame, cell, [bounding_window(covered)], layout)
            if root is None:
                group = stack.enter_context(new_store(target, grid, ("none",), scene, attributes, window))
            elif window is not None:
                group = add_cell(root, cell, grid, window)
            top, left = window.offset if window else (0, 0)
            height, width = int(grid.shape[0]), int(grid.shape[1])
            add_array(group, "image", (1, height, width), "uint8", layout)
            part = mask[top : top + height, left : left + width]
            add_array(group, "valid", (height, width), "uint8", layout)[...] = part


def _copy_store(source: Path, target: Path, attributes: dict[str, Any]) -> None:
    """A store with other attributes and the same arrays: publishing each of a thousand scenes takes minutes."""
    shutil.copytree(source, target, copy_function=os.link, ignore=shutil.ignore_patterns(MANIFEST))
    root = read_json(target / "zarr.json")
    (target / "zarr.json").unlink()
    write_json(target / "zarr.json", root | {"attributes": root["attributes"] | attributes})


def _write_unknown_labels(folder: Path, scenes: FrozenScenes) -> Path:
    """A label store of one class, valid where a pixel belongs to a cell."""
    target, layout = folder / "unknown.zarr", Layout(256, 4096)
    with new_label_store(target, scenes.frame, (UNKNOWN,), "", {}, layout) as (_, cells):
        for cell, group in cells:
            add_array(group, "label", cell.shape, "uint8", layout)[...] = 0
            belongs = cell.belongs(slice(0, cell.shape[0]), slice(0, cell.shape[1]))
            add_array(group, "valid", cell.shape, "uint8", layout)[...] = belongs
    return target


def _write_labels(config: Config, scenes: FrozenScenes, folder: Path) -> list[Path]:
    """Label stores, written by the stage itself; none where their file is missing, or a scene is not local."""
    source, grid = config["label"]["source"], folder / "grid.json"
    write_json(grid, scenes.frame.json())
    label, target = stage("label").function, folder / "labels"
    if source is not None:
        if not Path(source).exists():
            return []
        label(grid=grid, labels=target / "all.zarr", **config["label"])
        return [target / "all.zarr"]
    if scenes.shape[0] * scenes.shape[1] * len(scenes.items) > MAX_LABEL_PIXELS:
        return []
    for name, item in scenes.items.items():
        scene = scene_folder(config, name, item, folder)
        if scene is None:
            return []
        label(grid=grid, labels=target / f"{name}.zarr", scene=scene, **config["label"])
    return [target / f"{name}.zarr" for name in scenes.items]


def chips_json(forecast: ChipForecast) -> dict[str, Any]:
    """The chips in the file of a plan."""
    return {
        split: {
            "places": len(forecast.corners[split]),
            "chips": forecast.count(split),
            "classes": {name: {"chips": n, "pixels": pixels} for name, n, pixels in forecast.class_counts(split)}
            if forecast.has_labels
            else {},
        }
        for split in SPLITS
    }
