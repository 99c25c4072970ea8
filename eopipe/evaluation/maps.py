"""Maps of a run with their truth, and the places in which they train and test."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray, IntArray
from eopipe.chips.chips import is_continuous, majority_class, pair_stores, unit_of
from eopipe.chips.make_split import check_scenes
from eopipe.chips.splits import covered_pixels, read_split
from eopipe.errors import BadInputError
from eopipe.evaluation.pixel_features import features
from eopipe.tiles.store import NO_LABEL, Tiles


@dataclass(frozen=True)
class Group:
    """One map, the scenes that it was made from, and the truth (255 or NaN where there is none)."""

    found: AnyArray
    stores: list[Tiles]
    truth: AnyArray

    @property
    def both(self) -> BoolArray:
        """Where there are map and truth (y, x)."""
        return known(self.found) & known(self.truth)

    def features(self, rows: AnyArray, cols: AnyArray) -> FloatArray:
        """What a baseline knows of each pixel (pixel, feature)."""
        return features(self.stores, rows, cols)


def known(numbers: AnyArray) -> BoolArray:
    """Where there is a class number, or a value."""
    return np.asarray(np.isfinite(numbers) if numbers.dtype.kind == "f" else numbers != NO_LABEL)


@dataclass(frozen=True)
class Data:
    """All maps of a run with their truth, their task, and the split that tells which pixels train and test."""

    groups: list[Group]
    names: tuple[str, ...]
    split: dict[str, Any]
    task: str = "segmentation"
    unit: str = ""

    @classmethod
    def read(cls, maps: tuple[Path, ...], tiles: tuple[Path, ...], labels: tuple[Path, ...], chips: Path) -> "Data":
        """Read maps and stores; raises BadInputError when they do not belong together."""
        pairs, split = pair_stores(tiles, labels), read_split(chips)
        check_scenes(split, pairs)
        if len(maps) not in (1, len(pairs)):
            raise BadInputError(f"{len(maps)} maps for {len(pairs)} scenes: give one mosaic, or one map for each scene")
        if len(maps) == 1 and len({label.scene for _, label in pairs}) > 1:
            raise BadInputError("one mosaic cannot be compared with labels that differ from scene to scene")
        if len(maps) < len(pairs) and split.get("by_scene"):
            raise BadInputError("one mosaic mixes the scenes that train and test; give a map for each scene")
        members = [pairs] if len(maps) == 1 else [[one] for one in pairs]
        groups = [
            Group(_read_map(path, [image for image, _ in some]), [image for image, _ in some], some[0][1].read("label"))
            for path, some in zip(maps, members, strict=True)
        ]
        return cls(groups, pairs[0][1].names, split, _task(maps, pairs[0][1], split), unit_of(pairs[0][1]))

    def pixels(self, name: str) -> Iterator[tuple[Group, AnyArray, AnyArray]]:
        """For each map: rows and columns of the mapped, labelled pixels in the places of a split.

        Where scenes are split, those are the places of the map's own chips.
        """
        for group, area in self.areas(name):
            rows, cols = np.nonzero(area & group.both)
            yield group, rows, cols

    def areas(self, name: str) -> Iterator[tuple[Group, BoolArray]]:
        """For each map the places (y, x) of a split."""
        samples, chip = self.split["samples"][name], self.split["chip"]
        area = covered_pixels(self.groups[0].truth.shape, samples, chip)
        for number, group in enumerate(self.groups):
            if self.split.get("by_scene"):
                area = covered_pixels(group.truth.shape, samples[samples[:, 0] == number], chip)
            yield group, area

    def chips(self, name: str) -> Iterator[tuple[Group, IntArray, IntArray, IntArray]]:
        """For each map of chips: the cells that lie whole in the places of a split, their true and mapped class.

        A cell's number counts cells row by row. Its truth is the class of most of its pixels; it has one where the
        share of labelled pixels is at least that of a sample.
        """
        edge, count = self.split["chip"], len(self.names)
        least = max(1.0, self.split["plan"]["min_valid"] * edge**2)
        for group, area in self.areas(name):
            high, wide = (length // edge for length in group.truth.shape)
            crop = np.s_[: high * edge, : wide * edge]
            rows, cols = np.nonzero((area & group.both)[crop])
            votes = votes_of(rows // edge * wide + cols // edge, group.truth[rows, cols], (high * wide, count))
            whole = area[crop].reshape(high, edge, wide, edge).all((1, 3)).ravel()
            chosen = np.flatnonzero(whole & (votes.sum(1) >= least))
            mapped = group.found[crop][::edge, ::edge].ravel()[chosen]
            yield group, chosen, majority_class(votes[chosen]), mapped.astype(np.int64)


def votes_of(where: AnyArray, classes: AnyArray, shape: tuple[int, int]) -> IntArray:
    """Count pixels (n,) of each place and class (place, class)."""
    flat = where.astype(np.int64) * shape[1] + classes.astype(np.int64)
    return np.bincount(flat, minlength=shape[0] * shape[1]).reshape(shape)


def _task(maps: tuple[Path, ...], labels: Tiles, split: dict[str, Any]) -> str:
    """The task that the maps tell of; raises BadInputError where labels or split are of another one."""
    import rasterio

    with rasterio.open(maps[0]) as file:
        tags = file.tags()
    task, chip = str(tags.get("task", "segmentation")), int(tags.get("chip", split["chip"]))
    if is_continuous(labels) != (task == "regression"):
        kind = f"measure {labels.names[0]}" if is_continuous(labels) else "are classes"
        raise BadInputError(f"map {maps[0]} is of task {task}, but the labels {kind}; give the labels of its training")
    if chip != split["chip"]:
        raise BadInputError(f"map {maps[0]} has cells of {chip} pixels, the split chips of {split['chip']}")
    return task


def _read_map(path: Path, stores: list[Tiles]) -> AnyArray:
    import rasterio

    with rasterio.open(path) as file:
        if file.shape != stores[0].shape or not file.transform.almost_equals(stores[0].grid.affine):
            raise BadInputError(f"map {path.name} does not lie on the grid of scene {stores[0].scene}")
        made_from, given = str(file.tags().get("scenes", "")).split(), [store.scene for store in stores]
        if made_from != given:
            gone = " ".join(sorted(set(made_from) ^ set(given)))
            raise BadInputError(f"map {path} was made from other scenes than it is compared with: {gone}")
        return np.asarray(file.read(1))
