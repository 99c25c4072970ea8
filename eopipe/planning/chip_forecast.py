"""Where chips will lie, and which classes they will hold, as far as labels are at hand."""

import tempfile
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import BoolArray, IntArray, UInt8Array
from eopipe.chips.chips import pair_stores
from eopipe.chips.make_split import SplitRequest, assign_splits, find_candidates
from eopipe.chips.splits import SPLITS, SplitPlan
from eopipe.contract import stage
from eopipe.errors import BadInputError
from eopipe.planning.frozen_scenes import Config, Frozen
from eopipe.planning.trial_store import as_fetched
from eopipe.publish import MANIFEST, size, write_json
from eopipe.tiles.grid import grid_json
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import add_array, new_store

# Labels of every scene are made for the plan up to so many pixels: a minute of work.
MOST_PIXELS = 4e8
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Chips:
    """Samples (n, 3) as split deals them out if no pixel were cloudy: their split and pixels of each class.

    Without labels at hand there is one class, `unknown`.
    """

    plan: SplitPlan
    scenes: list[str]
    samples: IntArray
    role: UInt8Array
    pixels: IntArray
    classes: tuple[str, ...]
    label_bytes: int

    @property
    def is_known(self) -> bool:
        """Whether labels were at hand."""
        return self.classes != (UNKNOWN,)

    def count(self, split: str) -> int:
        """Chips of a split, over all scenes."""
        return int((self.role == SPLITS.index(split)).sum())

    def of_class(self, split: str) -> list[tuple[str, int, int]]:
        """Each class with the chips of a split that hold it, and its pixels there."""
        own = self.pixels[self.role == SPLITS.index(split)]
        return list(zip(self.classes, (own > 0).sum(0).tolist(), own.sum(0).tolist(), strict=True))

    @cached_property
    def places(self) -> dict[str, IntArray]:
        """Corners (row, column) of the chips of each split, whatever the scene."""
        own = {name: self.samples[self.role == n, 1:] for n, name in enumerate(SPLITS)}
        return {name: np.unique(corners, axis=0) for name, corners in own.items()}

    def role_of(self, scene: str) -> str:
        """The split that most chips of a scene belong to; train for one that has none."""
        found = self.role[self.samples[:, 0] == (self.scenes.index(scene) if scene in self.scenes else -1)]
        return SPLITS[int(np.bincount(found[found < len(SPLITS)], minlength=1).argmax())]


def chips_of(config: Config, seen: Frozen, masks: dict[str, BoolArray]) -> Chips:
    """Deal the chips out as split does, from stores of what would be valid without clouds.

    Raises BadInputError where a chip does not fit the grid, or the labels cannot be used.
    """
    with tempfile.TemporaryDirectory(prefix="eopipe-plan-") as folder:
        room = Path(folder)
        labels = _labels(config, seen, room)
        tiles = [_stand_in(room, seen, name, mask) for name, mask in _images(seen, masks).items()]
        plan, request = _asked(config["split"], tiles, labels or [_no_labels(room, seen)])
        pairs = pair_stores(request.tiles, request.labels)
        found = find_candidates(pairs, plan, request)
        stores = [image for image, _ in pairs]
        role = assign_splits(found.samples, stores, plan, request)
        used = sum(size(store)[0] + (store / MANIFEST).stat().st_size for store in labels)
        scenes = [store.scene for store in stores]
        return Chips(plan, scenes, found.samples, role, found.pixels, pairs[0][1].names, used)


def _asked(told: dict[str, Any], tiles: list[Path], labels: list[Path]) -> tuple[SplitPlan, SplitRequest]:
    given = told | {"stride": told["stride"] or told["chip"], "tiles": tuple(tiles), "labels": tuple(labels)}
    plan, request = ({f.name: given[f.name] for f in fields(kind)} for kind in (SplitPlan, SplitRequest))
    return SplitPlan(**plan), SplitRequest(**request)


def _images(seen: Frozen, masks: dict[str, BoolArray]) -> dict[str, BoolArray]:
    """What the model sees: the scenes, or composites of them."""
    made = {name: np.logical_or.reduce([masks[scene] for scene in own]) for name, own in seen.periods.items()}
    return made or masks


def _stand_in(room: Path, seen: Frozen, name: str, mask: BoolArray) -> Path:
    """A tile store with its place, its date and what is valid, but without pixels."""
    target, layout = room / f"tiles-{name}.zarr", Layout(256, 4096)
    item = seen.items.get(name, {"properties": {}})
    told = {key: item["properties"].get(key) for key in ("datetime", "grid:code")}
    with new_store(target, seen.grid, ("none",), name, told) as group:
        add_array(group, "image", (1, *mask.shape), "uint8", layout)
        add_array(group, "valid", mask.shape, "uint8", layout)[...] = mask
    return target


def _no_labels(room: Path, seen: Frozen) -> Path:
    """Labels that hold everywhere and tell nothing."""
    target, layout, shape = room / "unknown.zarr", Layout(256, 4096), tuple(map(int, seen.grid.shape))
    with new_store(target, seen.grid, (UNKNOWN,), "", {}) as group:
        add_array(group, "label", shape, "uint8", layout)
        add_array(group, "valid", shape, "uint8", layout)[...] = 1
    return target


def _labels(config: Config, seen: Frozen, room: Path) -> list[Path]:
    """Label stores, made by the stage itself, where the labels are local; nothing where one is not."""
    source, grid = config["label"]["source"], room / "grid.json"
    write_json(grid, grid_json(seen.grid))
    make, target = stage("label").function, room / "labels"
    if source is not None:
        if not Path(source).is_file():
            raise BadInputError(f"label.source {source} is missing; put the labels there, or name another file")
        make(grid=grid, labels=target / "all.zarr", **config["label"])
        return [target / "all.zarr"]
    if int(seen.grid.shape[0]) * int(seen.grid.shape[1]) * len(seen.items) > MOST_PIXELS:
        return []
    for name, item in seen.items.items():
        scene = as_fetched(config, name, item, room)
        if scene is None:
            return []
        make(grid=grid, labels=target / f"{name}.zarr", scene=scene, **config["label"])
    return [target / f"{name}.zarr" for name in seen.items]


def told(found: Chips) -> dict[str, Any]:
    """What a plan file says of the chips."""
    return {
        split: {
            "places": len(found.places[split]),
            "chips": found.count(split),
            "classes": {name: {"chips": n, "pixels": pixels} for name, n, pixels in found.of_class(split)}
            if found.is_known
            else {},
        }
        for split in SPLITS
    }
