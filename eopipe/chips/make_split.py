"""Which chips of which scenes are samples, and how many pixels of each class they hold."""

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
    """What a split is made from, besides its plan: shares of valid pixels, regions, and what the audit may find."""

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
    """A split: what its file and the statistics tell, and of each split the samples and their pixels of each class."""

    told: dict[str, Any]
    statistics: dict[str, Any]
    samples: dict[str, IntArray]
    pixels: dict[str, IntArray]
    grid: "GeoBox"


@dataclass(frozen=True)
class CandidateChips:
    """All chips that could be samples (n, 3), their pixels of each class (n, classes), the valid share of scenes.

    `unlabelled` says how many chips of each scene hold no labelled pixel, `places` how many chips the grid has.
    """

    samples: IntArray
    pixels: IntArray
    valid: list[float]
    unlabelled: list[int]
    places: int


def make_split(request: SplitRequest, plan: SplitPlan) -> SplitResult:
    """Cut, deal out, measure and audit."""
    reasons = parse_allowed(request.allow)
    pairs = pair_stores(request.tiles, request.labels)
    stores, classes = [image for image, _ in pairs], pairs[0][1].names
    found = find_candidates(pairs, plan, request)
    role = assign_splits(found.samples, stores, plan, request)
    samples = {name: found.samples[role == number] for number, name in enumerate(SPLITS)}
    pixels = {name: found.pixels[role == number] for number, name in enumerate(SPLITS)}
    _complete(samples, {name: rows.sum(0) for name, rows in pixels.items()}, classes)
    statistics = measure_bands(stores, samples["train"], plan.chip)
    if is_continuous(pairs[0][1]):
        statistics["labels"] = measure_labels(pairs, samples["train"], plan.chip)
    spread = {name: max(band["std"], 1e-9) for name, band in statistics["bands"].items()}
    seen = fingerprint_chips(stores, samples, plan.chip, spread, request.similarity)
    scenes, days = [store.scene for store in stores], [day_of(store) or store.scene for store in stores]
    dealt = ChipSplit(samples, scenes, groups_or_names(stores, plan), days, plan)
    settings = {"min_valid": request.min_valid, "min_scene_valid": request.min_scene_valid}
    told = {
        "grid": grid_json(stores[0].grid),
        "scenes": scenes,
        "classes": list(classes),
        "chip": plan.chip,
        "plan": asdict(plan) | settings,
        "by_scene": plan.by_scene,
        "left_out": _left_out(scenes, found.valid, request.min_scene_valid),
        "fates": _fates(scenes, found, role),
        "audit": audit(dealt, seen, reasons),
        "pixels": {k: dict(zip(classes, v.sum(0).tolist(), strict=True)) for k, v in pixels.items()},
        "chips": {k: dict(zip(classes, (v > 0).sum(0).tolist(), strict=True)) for k, v in pixels.items()},
        "samples": {name: rows.tolist() for name, rows in samples.items()},
    }
    return SplitResult(told, statistics, samples, pixels, stores[0].grid)


def groups_or_names(stores: list[Tiles], plan: SplitPlan) -> list[str]:
    """The group of each scene where scenes have one, else its name."""
    grouped = plan.by_scene or (plan.method == "group" and plan.by == "tile")
    return groups_of(stores, plan) if grouped else [store.scene for store in stores]


def _left_out(scenes: list[str], valid: list[float], least: float) -> list[dict[str, Any]]:
    return [{"scene": s, "valid": round(v, 6)} for s, v in zip(scenes, valid, strict=True) if v < least]


def _fates(scenes: list[str], found: CandidateChips, role: UInt8Array) -> list[dict[str, Any]]:
    """What became of the chips of each scene: no labels, too few usable pixels, in no split, or a sample."""
    rows = []
    for number, (scene, unlabelled) in enumerate(zip(scenes, found.unlabelled, strict=True)):
        here = role[found.samples[:, 0] == number]
        used = int(np.count_nonzero(here != NO_SPLIT))
        unusable = found.places - unlabelled - len(here)
        rows.append(
            {"scene": scene, "unlabelled": unlabelled, "unusable": unusable, "spare": len(here) - used}
            | {"samples": used}
        )
    return rows


def find_candidates(pairs: list[tuple[Tiles, Tiles]], plan: SplitPlan, request: SplitRequest) -> CandidateChips:
    """The chips that hold enough usable pixels, scene by scene, row by row; none of scenes that are left out."""
    corners, count = chip_corners(pairs[0][0].shape, plan), len(pairs[0][1].names)
    samples, pixels, shares, bare = [np.empty((0, 3), np.int64)], [np.empty((0, count), np.int64)], [], []
    for number, (image, label) in enumerate(pairs):
        valid, labelled = image.read("valid") > 0, label.read("valid") > 0
        shares.append(float(valid.mean()))
        bare.append(int(np.count_nonzero(chip_counts(labelled, corners, plan.chip) == 0)))
        if shares[-1] < request.min_scene_valid:
            continue
        usable = valid & labelled
        enough = corners[chip_counts(usable, corners, plan.chip) >= max(1.0, request.min_valid * plan.chip**2)]
        # A quantity is one kind of label, so its pixels are counted together.
        numbers = np.where(usable, 0 if is_continuous(label) else label.read("label"), len(label.names))
        samples.append(np.insert(enough, 0, number, axis=1))
        pixels.append(np.stack([chip_counts(numbers == n, enough, plan.chip) for n in range(count)], -1))
    return CandidateChips(np.concatenate(samples), np.concatenate(pixels), shares, bare, len(corners))


def assign_splits(samples: IntArray, stores: list[Tiles], plan: SplitPlan, request: SplitRequest) -> UInt8Array:
    """The split of each candidate; 255 for one that is in none."""
    if plan.method == "random":
        return assign_at_random(len(samples), plan)
    if plan.method == "group" and plan.by == "region":
        return splits_of_chips(samples[:, 1:], region_zones(request.regions, request.attribute, stores, plan), plan)
    if plan.method in ("group", "temporal"):
        role = splits_of_groups(groups_of(stores, plan), plan)[samples[:, 0]]
        return role if plan.by_scene else _apart(samples, role, stores[0].shape, plan)
    return splits_of_chips(samples[:, 1:], split_zones(stores[0].shape, plan), plan)


def _apart(samples: IntArray, role: UInt8Array, shape: tuple[int, int], plan: SplitPlan) -> UInt8Array:
    """Drop val chips nearer than the buffer to test, and train chips near either: tiles overlap at their rims."""
    edge = plan.chip + 2 * plan.buffer
    for name, foes in (("val", ("test",)), ("train", ("val", "test"))):
        mine = np.flatnonzero(role == SPLITS.index(name))
        theirs = np.isin(role, [SPLITS.index(foe) for foe in foes])
        taken = np.pad(covered_pixels(shape, samples[theirs], plan.chip), plan.buffer)
        role[mine[chip_counts(taken, samples[mine, 1:], edge) > 0]] = NO_SPLIT
    return role


def _complete(samples: dict[str, IntArray], counts: dict[str, Any], classes: tuple[str, ...]) -> None:
    """Training and test need samples of every class."""
    for name in ("train", "test"):
        if not len(samples[name]):
            raise BadInputError(
                f"the {name} split has no chip; choose smaller chips, a smaller buffer or min_valid, or more scenes"
            )
        gone = [c for c, n in zip(classes, counts[name], strict=True) if not n]
        if gone:
            raise BadInputError(
                f"the labels of the {name} split have no pixel of class {', '.join(gone)}; "
                "split another way, leave the class out of label.classes, or look at what preprocess masks"
            )


def check_scenes(split: dict[str, Any], pairs: list[tuple[Tiles, Tiles]]) -> None:
    """Check that a split was made from these tiles, in this order."""
    have = [image.scene for image, _ in pairs]
    if split["scenes"] != have:
        gone = sorted(set(split["scenes"]) ^ set(have))
        raise BadInputError(f"the split was made from other scenes; these differ: {', '.join(gone)}")
