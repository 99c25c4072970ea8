"""The chips of each split, and their classes where labels are available before the run."""

import math
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import IntArray, UInt8Array
from eopipe.chips.audit import ChipSplit, parse_allowed, raise_findings
from eopipe.chips.block_choice import describe_unvalidated, plan_warnings
from eopipe.chips.candidates import MappedImage, used_shapes
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.chips import blocks_of, covered_pixels, pair_stores
from eopipe.chips.label_leaks import find_split_polygons
from eopipe.chips.make_split import check_complete, place_chips
from eopipe.chips.polygons import labelled_ground_pixels, split_polygons, splits_of_pixels
from eopipe.chips.splits import SPLITS, SplitPlan, SplitRequest
from eopipe.config_conflicts import plan_of
from eopipe.contract import stage
from eopipe.errors import EopipeError
from eopipe.labels.source_values import label_table
from eopipe.labels.sources import label_warnings
from eopipe.labels.vectors import has_lost_many, shape_sentences
from eopipe.labels.write import FROM_TO
from eopipe.models.model_files import module_of
from eopipe.models.pixel_models import METHOD_NAMES
from eopipe.planning.frozen_scenes import Config, FrozenScenes, scene_folder
from eopipe.run.locate import chip_stores
from eopipe.scenes.item import time_attributes
from eopipe.tasks import TASKS
from eopipe.text_files import write_json
from eopipe.text_table import format_table
from eopipe.tiles.store import Tiles
from eopipe.train_options import PIXEL_MODELS
from eopipe.training.schedule import MOST_STEPS, default_batch, default_crop, training_length
from eopipe.training_job import FEWEST_STEPS, TrainingLength
from eopipe.warp.footprints import Coverage

# Labels are written for the plan up to this number of pixels, of all scenes: a minute of work.
MAX_LABEL_PIXELS = 4e8
UNKNOWN = "unknown"


@dataclass(frozen=True)
class ChipForecast:
    """Samples (n, 3) that split would select without clouds: their split, and their pixels of each class.

    Without labels there is one class, `unknown`; `ground_pixels` are the labelled pixels of the training chips, each
    once for all chips and dates, `tested_pixels` those of the test chips, once in each map. `stops` says why labels or
    chips will end the run, `warnings` what is wasted; `label_lines` is a table of the source values of the labels with
    their classes. `has_slots`: the chips belong to a chip set, each at a place of its own. `polygons` are outlines
    (row, column) of split polygons.
    """

    plan: SplitPlan
    scenes: list[str]
    samples: IntArray
    role: UInt8Array
    pixels: IntArray
    classes: tuple[str, ...]
    ground_pixels: int = 0
    tested_pixels: int = 0
    stops: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    label_lines: tuple[str, ...] = ()
    has_slots: bool = False
    polygons: Mapping[str, Sequence[IntArray]] = field(default_factory=dict)

    @property
    def has_labels(self) -> bool:
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
        """Corners (row, column) of the chips of each split, each once for all scenes; of a chip set all chips."""
        by_split = {name: self.samples[self.role == n] for n, name in enumerate(SPLITS)}
        places = {name: rows if self.has_slots else rows[:, 1:] for name, rows in by_split.items()}
        return {name: np.unique(rows, axis=0) for name, rows in places.items()}

    def outlines(self, split: str) -> Sequence[IntArray]:
        """Outlines (n, row and column) of the polygons of a split, or of its chips where each place is in one split."""
        if not self.plan.by_place:
            return self.polygons.get(split, ())
        return list(self.corners[split][:, None] + np.array([(0, 0), (0, 1), (1, 1), (1, 0)]) * self.plan.chip)

    @cached_property
    def main_splits(self) -> dict[str, str]:
        """The split of most chips of each scene; train for a scene without chips."""
        counts = np.zeros((len(self.scenes), len(SPLITS)), np.int64)
        is_used = self.role < len(SPLITS)
        np.add.at(counts, (self.samples[is_used, 0], self.role[is_used]), 1)
        return {scene: SPLITS[int(row.argmax())] for scene, row in zip(self.scenes, counts, strict=True)}


def forecast_splits(config: Config, scenes: FrozenScenes, splits: Iterable[Config]) -> Iterator[ChipForecast]:
    """The chips with each of several sections `split`, as the stage makes them of images without clouds.

    The labels are put onto the grid once. Labels that the stage refuses count as unknown; the forecast says why.
    """
    stops, warnings = list[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="eopipe-plan-") as name:
        paths = list[Path]()
        try:
            paths = _write_labels(config, scenes, Path(name))
            warnings = label_warnings(config["label"])
        except EopipeError as error:
            stops.append(f"label: {error}")
        stores = {label.scene: label for label in map(Tiles, paths)}
        images = _images(scenes)
        labels = [stores.get(image.scene) or stores.get("") for image in images]
        for split in splits:
            forecast = _forecast_split(config | {"split": split}, images, labels, stops, paths)
            yield replace(forecast, warnings=(*warnings, *forecast.warnings))


def forecast_chip_set(config: Config) -> ChipForecast:
    """Split the chips of a chip set, all of which are there, as the stage does."""
    folder = Path(config["chip_set"])
    paths = {
        kind: tuple(folder / f"{kind}/{name}.zarr" for name in chip_stores(config)) for kind in ("tiles", "labels")
    }
    images, labels = zip(*pair_stores(paths["tiles"], paths["labels"]), strict=True)
    return _forecast_split(config, images, labels, [], [], ChipPlaces.of(images))


def _forecast_split(
    config: Config,
    images: Sequence[MappedImage],
    labels: Sequence[Tiles | None],
    stops: list[str],
    label_paths: list[Path],
    places: ChipPlaces | None = None,
) -> ChipForecast:
    """Split the chips of images with their labels; `label_paths` are the stores of labels that were written for it."""
    plan, request = split_arguments(config["split"])
    stores, shape = [*{label.scene: label for label in labels if label}.values()], None if places else images[0].shape
    classes = stores[0].names if stores else (UNKNOWN,)
    samples, role, pixels = np.empty((0, 3), np.int64), np.empty(0, np.uint8), np.empty((0, len(classes)), np.int64)
    warnings, lines = list[str](), list[str]()
    if plan.by_polygon and not stores:
        warnings.append("the chips are not forecast: split.by polygon needs the polygons of the labels")
    else:
        try:
            plan = places.plan(plan) if places else plan
            placed = place_chips(images, labels, plan, request, places)
            role, samples, pixels = placed.splits, placed.candidates.samples, placed.candidates.pixels
            if known := [label for label in labels if label]:
                used = used_shapes(images, known, samples, role, plan.chip, placed.polygons)
                (warnings if has_lost_many(used) else lines).extend(shape_sentences(used))
            is_change = bool(stores) and FROM_TO in stores[0].attributes
            check_complete(role, pixels, classes, images[0].shape, plan, is_change=is_change)
            if all(labels):
                rows = {split: np.flatnonzero(role == number) for number, split in enumerate(SPLITS)}
                # As the audit of the stage does.
                reasons, pairs = parse_allowed(request.allow), list[Any](zip(images, labels, strict=True))
                findings = find_split_polygons(ChipSplit(placed.table, rows, plan), pairs)
                raise_findings([finding for finding in findings if finding.kind not in reasons])
        except EopipeError as error:
            stops = [*stops, f"split: {error}"]
        of_val = pixels[role == SPLITS.index("val")].sum(0).tolist()
        unvalidated = describe_unvalidated(dict(zip(classes, of_val, strict=True)))
        warnings += filter(None, [*plan_warnings(plan, samples, role, shape), unvalidated])
    names, label_lines = [image.scene for image in images], (*label_table(label_paths), *lines)
    polygons = split_polygons(stores, plan) if plan.by_polygon else None
    known = [label for label in labels if label]
    train, _, test = (samples[role == number] for number in range(len(SPLITS)))
    ground = labelled_ground_pixels(known, train, plan.chip, polygons)
    # Where scenes are split, or have labels each, a pixel is scored on the map of each scene.
    each = plan.by_scene or (len(stores) > 1 and not places)
    maps = [([label], test[test[:, 0] == n]) for n, label in enumerate(known)] if each else [(known, test)]
    tested = sum(labelled_ground_pixels(*of_map, plan.chip, polygons, SPLITS.index("test")) for of_map in maps)
    outlines = _polygon_outlines(stores, polygons, samples, role, plan.chip) if polygons else {}
    counts = samples, role, pixels, classes, ground, tested
    return ChipForecast(plan, names, *counts, tuple(stops), tuple(warnings), label_lines, places is not None, outlines)


def _polygon_outlines(
    labels: list[Tiles], polygons: dict[str, list[int]], samples: IntArray, role: UInt8Array, chip: int
) -> dict[str, list[IntArray]]:
    """Outlines (n, row and column) of the polygons of each split, as far as they are in its chips."""
    from rasterio.features import shapes

    outlines: dict[str, list[IntArray]] = {name: [] for name in SPLITS}
    for label in labels:
        for y, x in blocks_of(label.windows):
            splits = splits_of_pixels(label, polygons, y, x)
            for number, name in enumerate(SPLITS):
                area = covered_pixels(samples[role == number, 1:], chip, (y, x)) & (splits == number)
                for shape, _ in shapes(area.astype(np.uint8), area):
                    ring = np.array(shape["coordinates"][0], np.int64)
                    outlines[name].append(ring[:, ::-1] + (y.start, x.start))
    return outlines


def split_arguments(settings: dict[str, Any]) -> tuple[SplitPlan, SplitRequest]:
    """Plan and request of the settings of a split, without its stores."""
    values = settings | {"tiles": (), "labels": ()}
    return plan_of(settings), SplitRequest(**{entry.name: values[entry.name] for entry in fields(SplitRequest)})


@dataclass(frozen=True)
class PlannedImage(Coverage):
    """An input of the model before it is there: what the split asks of a store of tiles."""

    scene: str
    attributes: dict[str, Any]


def _images(scenes: FrozenScenes) -> list[PlannedImage]:
    """The model's inputs by name; one that is everywhere before they are known."""
    properties = {name: item["properties"] for name, item in scenes.items.items() if not scenes.periods}
    attributes = {name: time_attributes(of) | {"grid:code": of.get("grid:code")} for name, of in properties.items()}
    images = scenes.images or {"": Coverage.whole(scenes.frame)}
    return [PlannedImage(scenes.frame, image.parts, n, attributes.get(n, {})) for n, image in images.items()]


def _write_labels(config: Config, scenes: FrozenScenes, folder: Path) -> list[Path]:
    """Label stores, written by the stage itself; none where their file is missing, or a scene is not local."""
    source, grid = config["label"]["source"], folder / "grid.json"
    count = len(scenes.items) if source is None else 1
    if math.prod(scenes.frame.shape) * count > MAX_LABEL_PIXELS or (source is not None and not Path(source).exists()):
        return []
    of_stores: dict[str, Path | None] = {"all": None}
    if source is None:
        of_stores = {name: scene_folder(config, name, item, folder) for name, item in scenes.items.items()}
        if None in of_stores.values():
            return []
    write_json(grid, scenes.frame.json())
    paths = {folder / f"labels/{name}.zarr": {"scene": scene} if scene else {} for name, scene in of_stores.items()}
    for path, of_scene in paths.items():
        stage("label").run(grid=grid, labels=path, **of_scene, **config["label"])
    return [*paths]


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


def chips_table(forecast: ChipForecast) -> list[str]:
    """Chips by split: positions on the grid, chips over all scenes, and chips of each class where labels are known."""
    names = forecast.classes if forecast.has_labels else ()
    head = ("split", "positions", "chips", *(f"with {name}" for name in names))
    rows = [head]
    for split in SPLITS:
        counts = forecast.class_counts(split)[: len(names)]
        total = max(1, sum(pixels for _, _, pixels in counts))
        shares = (f"{count:,} ({100 * pixels / total:.1f} %)" for _, count, pixels in counts)
        rows.append((split, f"{len(forecast.corners[split]):,}", f"{forecast.count(split):,}", *shares))
    return format_table(rows, left=(0,))


def forecast_length(config: Config, chips: ChipForecast) -> TrainingLength | None:
    """The length of the training; None where it depends on labels that are not there yet, or there are no chips."""
    train, count, chip = _with_defaults(config["train"], chips), chips.count("train"), chips.plan.chip
    if train["architecture"] in PIXEL_MODELS:
        return None
    if not count or not (chips.has_labels or TASKS[train["task"]].is_of_chips):
        return None
    labelled, drawn = chips.ground_pixels, sum(pixels for *_, pixels in chips.class_counts("train")) / count
    part = (train["crop"] / chip) ** 2 if train["crop"] else 1.0
    of_labels = (count, 1.0) if TASKS[train["task"]].is_of_chips else (labelled, drawn, part)
    return training_length(train, count, *of_labels)


def _with_defaults(train: dict[str, Any], chips: ChipForecast) -> dict[str, Any]:
    """The settings of a training with the batch and the crop that it has by default."""
    chip, crop = chips.plan.chip, train["crop"]
    if crop is None and not module_of(train["architecture"]):
        crop = default_crop(chip)
    return train | {"batch": train["batch"] or default_batch(train["task"], chip), "crop": crop}


def pixels_of_training(config: Config, chips: ChipForecast) -> float:
    """Pixels of which a training predicts, each in a step three times, since its gradient takes twice as long.

    Without a known length it is the shortest one.
    """
    train, chip, length = _with_defaults(config["train"], chips), chips.plan.chip, forecast_length(config, chips)
    steps, every = (length.steps, length.validate_every) if length else (train["steps"] or FEWEST_STEPS, FEWEST_STEPS)
    validations = math.ceil(steps / every) * chips.count("val") * chip**2
    return float(3 * steps * train["batch"] * (train["crop"] or chip) ** 2 + validations)


def length_line(config: Config, chips: ChipForecast) -> str:
    """The length of the training in words."""
    length, train = forecast_length(config, chips), config["train"]
    if train["architecture"] in PIXEL_MODELS:
        fitted = METHOD_NAMES[train["architecture"]]
        return f"training length: one fit of {fitted} to at most {train['max_pixels']:,} labelled pixels"
    if length:
        return f"training length: {length}"
    if train["epochs"] or train["steps"]:
        return f"training length: {train['epochs'] or train['steps']} {'epochs' if train['epochs'] else 'steps'}"
    return f"training length: {FEWEST_STEPS} to {MOST_STEPS} steps, by the number of labelled pixels"
