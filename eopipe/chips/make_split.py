"""Make a split: candidate chips of all scenes, their assignment, statistics and leakage audit."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from eopipe.arrays import IntArray, UInt8Array
from eopipe.chips.assign import assign_splits
from eopipe.chips.audit import ChipSplit, audit, parse_allowed
from eopipe.chips.block_choice import describe_empty_split, plan_warnings
from eopipe.chips.candidates import CandidateChips, MappedImage, find_candidates, usable_share, used_shapes
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.chip_table import ChipTable
from eopipe.chips.chips import is_continuous, pair_stores
from eopipe.chips.label_leaks import (
    find_autocorrelation,
    find_label_bands,
    find_repeated_places,
    find_split_polygons,
    label_range,
)
from eopipe.chips.near_duplicates import fingerprint_chips
from eopipe.chips.polygons import polygon_gaps, split_polygons
from eopipe.chips.splits import NO_SPLIT, SPLITS, Split, SplitPlan, SplitRequest
from eopipe.chips.statistics import Statistics, measure_bands, measure_labels
from eopipe.errors import BadInputError
from eopipe.labels.vectors import has_lost_many, shape_sentences
from eopipe.labels.write import FROM_TO
from eopipe.tiles.cells import Frame
from eopipe.tiles.store import LEFT_OUT, Tiles

log = logging.getLogger("eopipe")


@dataclass(frozen=True)
class SplitResult:
    """A split: the split file, statistics; samples of each split and their pixels by class.

    `places` belong to a chip set, whose positions in the frame are slots; `labels` are the stores of the labels.
    """

    document: Split
    statistics: Statistics
    samples: dict[str, IntArray]
    pixels: dict[str, IntArray]
    frame: Frame
    labels: Sequence[Tiles]
    places: ChipPlaces | None = None


def make_split(request: SplitRequest, plan: SplitPlan) -> SplitResult:
    """Find candidate chips, assign them to splits, measure the training chips and audit the splits."""
    parse_allowed(request.allow)
    pairs = pair_stores(request.tiles, request.labels)
    stores, classes = [image for image, _ in pairs], pairs[0][1].names
    places = ChipPlaces.of(stores)
    plan = places.plan(plan) if places else plan
    placed = place_chips(stores, [label for _, label in pairs], plan, request, places)
    candidates, table, splits, polygons = placed.candidates, placed.table, placed.splits, placed.polygons
    _report_left_out([store.scene for store in stores], candidates.reasons)
    rows = {name: np.flatnonzero(splits == number) for number, name in enumerate(SPLITS)}
    samples = {name: candidates.samples[of_split] for name, of_split in rows.items()}
    pixels = {name: candidates.pixels[of_split] for name, of_split in rows.items()}
    is_change = FROM_TO in pairs[0][1].attributes
    check_complete(splits, candidates.pixels, classes, stores[0].shape, plan, is_change=is_change)
    warnings = list(plan_warnings(plan, candidates.samples, splits, None if places else stores[0].shape))
    statistics = measure_bands(stores, samples["train"], plan.chip)
    if is_continuous(pairs[0][1]):
        labels_summary = measure_labels(pairs, samples["train"], plan.chip)
        statistics = statistics.model_copy(update={"labels": labels_summary})
    scenes = [store.scene for store in stores]
    document: dict[str, Any] = {
        "grid": stores[0].frame.json(),
        "scenes": scenes,
        "classes": list(classes),
        "chip": plan.chip,
        "plan": asdict(plan) | {"min_valid": usable_share(request.min_valid, [label for _, label in pairs])},
        # Stores of a chip set have chips of many scenes.
        "by_scene": plan.by_scene and places is None,
        "left_out": _left_out(stores, candidates),
        "fates": _chip_outcomes(scenes, candidates, splits),
        "audit": audit_split(pairs, ChipSplit(table, rows, plan), request, statistics, polygons),
        "warnings": warnings,
        "pixels": {k: dict(zip(classes, v.sum(0).tolist(), strict=True)) for k, v in pixels.items()},
        "chips": {k: dict(zip(classes, (v > 0).sum(0).tolist(), strict=True)) for k, v in pixels.items()},
        "samples": samples,
    } | ({"polygons": polygons} if polygons else {})
    if used := used_shapes(stores, [label for _, label in pairs], candidates.samples, splits, plan.chip, polygons):
        document["shapes"] = used
    if plan.method == "group" and not (plan.by_polygon or document["by_scene"]):
        document["groups"] = {
            split: [str(placed.units[n]) for n in of_split.tolist()] for split, of_split in rows.items()
        }
    if places:
        document["chip_set"] = {"block_km": request.block_km, "pixel_m": round(table.ground.pixel_m, 6)}
    split = Split.model_validate(document)
    _log_split(split)
    labels = [*{label.scene: label for _, label in pairs}.values()]
    return SplitResult(split, statistics, samples, pixels, stores[0].frame, labels, places)


def audit_split(
    pairs: list[tuple[Tiles, Tiles]],
    split: ChipSplit,
    request: SplitRequest,
    statistics: Statistics,
    polygons: dict[str, list[int]] | None = None,
) -> dict[str, Any]:
    """The leakage audit of samples in the split file, with the range of the labels in pixels."""
    stores, plan = [image for image, _ in pairs], split.plan
    spread = {name: max(band.std, 1e-9) for name, band in statistics.bands.items()}
    fingerprints = fingerprint_chips(stores, split.table, split.rows, spread)
    fingerprints = replace(fingerprints, shares_places=plan.by_polygon)
    windows = [window for store in stores for window in store.windows]
    distance = label_range(pairs[0][1], windows) if plan.by_place and split.table.cells else None
    findings = [
        *find_repeated_places(split, pairs),
        *find_split_polygons(split, pairs),
        *find_label_bands(split, pairs),
        *find_autocorrelation(split, distance, stores[0].shape),
    ]
    gaps = polygon_gaps(pairs, polygons, split.samples, plan.chip) if polygons else None
    return audit(split, fingerprints, parse_allowed(request.allow), findings, gaps) | {"label_range": distance}


def _log_split(split: Split) -> None:
    chips = " ".join(f"{name}={len(rows)}" for name, rows in split.samples.items())
    log.info("event=split %s label_range=%s", chips, split.audit.label_range)
    level = logging.WARNING if has_lost_many(split.shapes) else logging.INFO
    for sentence in shape_sentences(split.shapes):
        log.log(level, "event=used_labels message=%r", sentence)
    for sentence in split.warnings:
        log.warning("event=split_plan message=%r", sentence)
    for warning in split.audit.warnings:
        log.warning("event=leakage_audit kind=%s message=%r", warning.kind, warning.example)


def _left_out(stores: list[Tiles], candidates: CandidateChips) -> list[dict[str, Any]]:
    """What has no chip, with the valid fraction and the reason: scenes, composites, and scenes of composites."""
    scenes = [store.scene for store in stores]
    rows = [row for row in zip(scenes, candidates.valid, candidates.reasons, strict=True) if row[2]]
    skipped = [(store.attributes.get(LEFT_OUT) or {}).items() for store in stores]
    rows += [(scene, 0.0, reason) for reasons in skipped for scene, reason in reasons if scene not in scenes]
    return [{"scene": scene, "valid": round(valid, 6), "reason": reason} for scene, valid, reason in rows]


def _report_left_out(scenes: list[str], reasons: list[str]) -> None:
    """Warn of each scene that is left out; raise BadInputError with the reasons where none remains."""
    left_out = {scene: reason for scene, reason in zip(scenes, reasons, strict=True) if reason}
    if len(left_out) == len(scenes):
        details = "; ".join(f"{scene}: {reason}" for scene, reason in left_out.items())
        raise BadInputError(f"no scene can be used ({details}); check nodata, mask and labels of these scenes")
    for scene, reason in left_out.items():
        log.warning("event=scene_left_out scene=%s reason=%r", scene, reason)


def _chip_outcomes(scenes: list[str], candidates: CandidateChips, splits: UInt8Array) -> list[dict[str, Any]]:
    """Positions of each scene by outcome: unlabelled, too few usable pixels, in no split (spare), or in one or more.

    Where polygons are split, one position may be a sample of several splits.
    """
    rows = []
    for number, (scene, unlabelled, positions) in enumerate(
        zip(scenes, candidates.unlabelled, candidates.positions, strict=True)
    ):
        is_of_scene = candidates.samples[:, 0] == number
        is_used = is_of_scene & (splits != NO_SPLIT)
        count, used = (len(np.unique(candidates.samples[chosen], axis=0)) for chosen in (is_of_scene, is_used))
        unusable = positions - unlabelled - count
        rows.append(
            {"scene": scene, "unlabelled": unlabelled, "unusable": unusable, "spare": count - used, "samples": used}
        )
    return rows


@dataclass(frozen=True)
class PlacedChips:
    """Candidate chips, their table, the split of each (255 for none), and of polygons where these are split.

    `units` are the units that chips were assigned by: groups, days or blocks; empty where they were not.
    """

    candidates: CandidateChips
    table: ChipTable
    splits: UInt8Array
    polygons: dict[str, list[int]]
    units: list[Any]


def place_chips(
    images: Sequence[MappedImage],
    labels: Sequence[Tiles | None],
    plan: SplitPlan,
    request: SplitRequest,
    places: ChipPlaces | None = None,
) -> PlacedChips:
    """Find the candidate chips and assign them to splits."""
    polygons = split_polygons([label for label in labels if label], plan) if plan.by_polygon else {}
    candidates = find_candidates(images, labels, plan, request, polygons, places)
    if places:
        table = ChipTable.of_set(places).select(places.indices(candidates.samples))
    else:
        table = ChipTable.of_grids(images, candidates.samples, plan.chip)
    splits, units = (candidates.split_of_polygons, []) if polygons else assign_splits(table, plan, request)
    return PlacedChips(candidates, table, splits, polygons, units)


def check_complete(
    splits: UInt8Array,
    pixels: IntArray,
    classes: tuple[str, ...],
    shape: tuple[int, int],
    plan: SplitPlan,
    *,
    is_change: bool = False,
) -> None:
    """Check that train and test have samples of every class; warn where a from-to class (`is_change`) has none.

    `splits` has the split of each sample, `pixels` its pixels of each class.
    """
    for name in ("train", "test"):
        of_split = pixels[splits == SPLITS.index(name)]
        if not len(of_split):
            raise BadInputError(describe_empty_split(name, shape, plan))
        missing = [c for c, n in zip(classes, of_split.sum(0), strict=True) if not n]
        if missing and is_change and len(missing) < len(classes):
            log.warning("event=transitions_without_pixels split=%s classes=%r", name, ", ".join(missing))
        elif missing:
            raise BadInputError(
                f"the labels of the {name} split have no pixel of class {', '.join(missing)}; "
                "split another way, omit the class from label.classes, or check what preprocess masks"
            )


def check_scenes(split: Split, pairs: list[tuple[Tiles, Tiles]]) -> None:
    """Check that a split was made from these tiles, in this order."""
    scenes = [image.scene for image, _ in pairs]
    if split.scenes != scenes:
        different = sorted(set(split.scenes) ^ set(scenes))
        raise BadInputError(f"the split was made from other scenes; these differ: {', '.join(different)}")
