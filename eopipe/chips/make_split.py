"""Make a split: candidate chips of all scenes, their assignment, statistics and leakage audit."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import IntArray, UInt8Array
from eopipe.chips.audit import ChipSplit, audit, parse_allowed
from eopipe.chips.chips import is_continuous, pair_stores
from eopipe.chips.groups import day_of, groups_of, region_zones, splits_of_groups
from eopipe.chips.near_duplicates import fingerprint_chips
from eopipe.chips.splits import (
    NO_SPLIT,
    SPLITS,
    SplitPlan,
    assign_at_random,
    chip_corners,
    chip_counts,
    covered_pixels,
    split_zones,
    splits_of_chips,
)
from eopipe.chips.statistics import measure_bands, measure_labels
from eopipe.errors import BadInputError
from eopipe.tiles.grid import grid_json
from eopipe.tiles.store import Tiles

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox


@dataclass(frozen=True)
class SplitRequest:
    """Inputs of a split besides its plan: stores, minimum valid fractions, regions, and accepted findings."""

    tiles: tuple[Path, ...]
    labels: tuple[Path, ...]
    min_valid: float
    min_scene_valid: float = 0.0
    regions: Path | None = None
    attribute: str = "region"
    similarity: float = 0.995
    allow: tuple[str, ...] = ()


@dataclass(frozen=True)
class SplitResult:
    """A split: content of the split file and the statistics file; samples of each split and their pixels by class."""

    document: dict[str, Any]
    statistics: dict[str, Any]
    samples: dict[str, IntArray]
    pixels: dict[str, IntArray]
    grid: "GeoBox"


@dataclass(frozen=True)
class CandidateChips:
    """Chips that may become samples (n, 3), their pixels of each class (n, classes), the valid fraction of scenes.

    `unlabelled` is the number of chips of each scene without a labelled pixel, `positions` that of chips of the grid.
    """

    samples: IntArray
    pixels: IntArray
    valid: list[float]
    unlabelled: list[int]
    positions: int


def make_split(request: SplitRequest, plan: SplitPlan) -> SplitResult:
    """Find candidate chips, assign them to splits, measure the training chips and audit the splits."""
    reasons = parse_allowed(request.allow)
    pairs = pair_stores(request.tiles, request.labels)
    stores, classes = [image for image, _ in pairs], pairs[0][1].names
    candidates = find_candidates(pairs, plan, request)
    splits = assign_splits(candidates.samples, stores, plan, request)
    samples = {name: candidates.samples[splits == number] for number, name in enumerate(SPLITS)}
    pixels = {name: candidates.pixels[splits == number] for number, name in enumerate(SPLITS)}
    _check_complete(samples, {name: rows.sum(0) for name, rows in pixels.items()}, classes)
    statistics = measure_bands(stores, samples["train"], plan.chip)
    if is_continuous(pairs[0][1]):
        statistics["labels"] = measure_labels(pairs, samples["train"], plan.chip)
    spread = {name: max(band["std"], 1e-9) for name, band in statistics["bands"].items()}
    fingerprints = fingerprint_chips(stores, samples, plan.chip, spread, request.similarity)
    scenes, days = [store.scene for store in stores], [day_of(store) or store.scene for store in stores]
    split = ChipSplit(samples, scenes, groups_or_names(stores, plan), days, plan)
    settings = {"min_valid": request.min_valid, "min_scene_valid": request.min_scene_valid}
    document = {
        "grid": grid_json(stores[0].grid),
        "scenes": scenes,
        "classes": list(classes),
        "chip": plan.chip,
        "plan": asdict(plan) | settings,
        "by_scene": plan.by_scene,
        "left_out": _excluded(scenes, candidates.valid, request.min_scene_valid),
        "fates": _chip_outcomes(scenes, candidates, splits),
        "audit": audit(split, fingerprints, reasons),
        "pixels": {k: dict(zip(classes, v.sum(0).tolist(), strict=True)) for k, v in pixels.items()},
        "chips": {k: dict(zip(classes, (v > 0).sum(0).tolist(), strict=True)) for k, v in pixels.items()},
        "samples": {name: rows.tolist() for name, rows in samples.items()},
    }
    return SplitResult(document, statistics, samples, pixels, stores[0].grid)


def groups_or_names(stores: list[Tiles], plan: SplitPlan) -> list[str]:
    """The group of each scene if the plan assigns groups, else its name."""
    grouped = plan.by_scene or (plan.method == "group" and plan.by == "tile")
    return groups_of(stores, plan) if grouped else [store.scene for store in stores]


def _excluded(scenes: list[str], valid: list[float], minimum: float) -> list[dict[str, Any]]:
    return [{"scene": s, "valid": round(v, 6)} for s, v in zip(scenes, valid, strict=True) if v < minimum]


def _chip_outcomes(scenes: list[str], candidates: CandidateChips, splits: UInt8Array) -> list[dict[str, Any]]:
    """Chips of each scene by outcome: unlabelled, too few usable pixels, in no split (spare), or a sample."""
    rows = []
    for number, (scene, unlabelled) in enumerate(zip(scenes, candidates.unlabelled, strict=True)):
        splits_of_scene = splits[candidates.samples[:, 0] == number]
        count, used = len(splits_of_scene), int(np.count_nonzero(splits_of_scene != NO_SPLIT))
        unusable = candidates.positions - unlabelled - count
        rows.append(
            {"scene": scene, "unlabelled": unlabelled, "unusable": unusable, "spare": count - used, "samples": used}
        )
    return rows


def find_candidates(pairs: list[tuple[Tiles, Tiles]], plan: SplitPlan, request: SplitRequest) -> CandidateChips:
    """The chips with enough usable pixels, scene by scene, row by row; none of excluded scenes."""
    corners, count = chip_corners(pairs[0][0].shape, plan), len(pairs[0][1].names)
    samples, pixels = [np.empty((0, 3), np.int64)], [np.empty((0, count), np.int64)]
    fractions: list[float] = []
    unlabelled: list[int] = []
    for number, (image, label) in enumerate(pairs):
        valid, labelled = image.read("valid") > 0, label.read("valid") > 0
        fractions.append(float(valid.mean()))
        unlabelled.append(int(np.count_nonzero(chip_counts(labelled, corners, plan.chip) == 0)))
        if fractions[-1] < request.min_scene_valid:
            continue
        usable = valid & labelled
        enough = corners[chip_counts(usable, corners, plan.chip) >= max(1.0, request.min_valid * plan.chip**2)]
        # All pixels of continuous labels count as one class.
        numbers = np.where(usable, 0 if is_continuous(label) else label.read("label"), len(label.names))
        samples.append(np.insert(enough, 0, number, axis=1))
        pixels.append(np.stack([chip_counts(numbers == n, enough, plan.chip) for n in range(count)], -1))
    return CandidateChips(np.concatenate(samples), np.concatenate(pixels), fractions, unlabelled, len(corners))


def assign_splits(samples: IntArray, stores: list[Tiles], plan: SplitPlan, request: SplitRequest) -> UInt8Array:
    """The split of each candidate; 255 for one that is in none."""
    if plan.method == "random":
        return assign_at_random(len(samples), plan)
    if plan.method == "group" and plan.by == "region":
        return splits_of_chips(samples[:, 1:], region_zones(request.regions, request.attribute, stores, plan), plan)
    if plan.method in ("group", "temporal"):
        splits = splits_of_groups(groups_of(stores, plan), plan)[samples[:, 0]]
        return splits if plan.by_scene else _without_overlaps(samples, splits, stores[0].shape, plan)
    return splits_of_chips(samples[:, 1:], split_zones(stores[0].shape, plan), plan)


def _without_overlaps(samples: IntArray, splits: UInt8Array, shape: tuple[int, int], plan: SplitPlan) -> UInt8Array:
    """Remove val chips within the buffer of test, and train chips within that of both: tiles overlap at their edges."""
    edge = plan.chip + 2 * plan.buffer
    for name, others in (("val", ("test",)), ("train", ("val", "test"))):
        numbers = np.flatnonzero(splits == SPLITS.index(name))
        is_other = np.isin(splits, [SPLITS.index(other) for other in others])
        occupied = np.pad(covered_pixels(shape, samples[is_other], plan.chip), plan.buffer)
        splits[numbers[chip_counts(occupied, samples[numbers, 1:], edge) > 0]] = NO_SPLIT
    return splits


def _check_complete(samples: dict[str, IntArray], counts: dict[str, Any], classes: tuple[str, ...]) -> None:
    """Check that train and test have samples of every class."""
    for name in ("train", "test"):
        if not len(samples[name]):
            raise BadInputError(
                f"the {name} split has no chip; choose smaller chips, a smaller buffer or min_valid, or more scenes"
            )
        missing = [c for c, n in zip(classes, counts[name], strict=True) if not n]
        if missing:
            raise BadInputError(
                f"the labels of the {name} split have no pixel of class {', '.join(missing)}; "
                "split another way, omit the class from label.classes, or check what preprocess masks"
            )


def check_scenes(split: dict[str, Any], pairs: list[tuple[Tiles, Tiles]]) -> None:
    """Check that a split was made from these tiles, in this order."""
    scenes = [image.scene for image, _ in pairs]
    if split["scenes"] != scenes:
        different = sorted(set(split["scenes"]) ^ set(scenes))
        raise BadInputError(f"the split was made from other scenes; these differ: {', '.join(different)}")
