"""The leakage audit: which test chips a training could already know, measured on the chips themselves.

Kinds of finding, each reported with the pair of chips that it was found on:

overlap         a pixel is in chips of two splits; in a split by scene (temporal, or by group), a pixel of one day is,
                since there the same position on another day is intended
distance        chips of two splits are closer than the buffer; in a split by scene, on one day
scene, group    a scene, or a tile or day that is a unit of the split, is in two splits, or composites of one scene are
random          chips were assigned at random, so neighbours are in two splits
duplicate       two chips of two splits have the same pixels
near-duplicate  two chips of two splits look alike (see `eopipe.chips.near_duplicates`)
place           in a split by scene, pixels of one place have one label in two splits (see `eopipe.chips.label_leaks`)
polygon         a polygon of the labels has pixels in two splits
band            a warning: a band gives the label of nearly every pixel by itself
autocorrelation a warning: labels are correlated over more than block and buffer (see `eopipe.chips.label_leaks`)
statistics      band statistics of other pixels than the training chips (found when training starts)
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from eopipe.arrays import Float64Array, IntArray
from eopipe.chips.assign import groups_of, split_day
from eopipe.chips.chip_table import ChipTable
from eopipe.chips.near_duplicates import ChipFingerprints, find_similar_chips
from eopipe.chips.splits import Split, SplitPlan
from eopipe.chips.statistics import Statistics, count_valid, samples_digest
from eopipe.errors import IntegrityError, UsageError
from eopipe.tiles.store import Tiles

KINDS = (
    *("overlap", "distance", "scene", "group", "random", "duplicate", "near-duplicate", "place", "polygon", "band"),
    *("autocorrelation", "statistics"),
)
# Kinds that are listed, but do not stop the run.
WARNINGS = ("band", "autocorrelation")
PAIRS = (("train", "test"), ("train", "val"), ("val", "test"))


@dataclass(frozen=True)
class Finding:
    """One kind of leak: the number of chips (or polygons, or bands) with it, and the worst pair.

    `share` is the fraction of the pixels of the second of two `splits` with it, such as train-test, where it is known.
    """

    kind: str
    count: int
    example: str
    splits: str = ""
    share: float | None = None

    @property
    def json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value not in ("", None)}


@dataclass(frozen=True)
class ChipSplit:
    """A split to audit: the chips, the rows (n,) of each split in their table, and the plan."""

    table: ChipTable
    rows: dict[str, IntArray]
    plan: SplitPlan

    @cached_property
    def samples(self) -> dict[str, IntArray]:
        """Store, row and column (n, 3) of the chips of each split."""
        return {name: self.table.samples[rows] for name, rows in self.rows.items()}

    @cached_property
    def days(self) -> IntArray:
        """The day (n,) of each chip of the table, by number; its scene counts as its day where it has no date."""
        days = [split_day(image) or image.scene for image in self.table.images]
        return np.asarray(np.unique(days, return_inverse=True)[1][self.table.scenes], np.int64)

    def scenes(self, split: str) -> IntArray:
        """The number (n,) of the scene of each chip of a split."""
        return self.table.scenes[self.rows[split]]

    def name(self, split: str, number: int) -> str:
        return f"{split} {self.table.name(self.rows[split][number])}"

    def pairs(self) -> Iterator[tuple[str, str]]:
        """The pairs of splits that both have chips."""
        return ((a, b) for a, b in PAIRS if len(self.samples[a]) and len(self.samples[b]))


def parse_allowed(entries: tuple[str, ...]) -> dict[str, str]:
    """The reasons in split.allow by kind of finding; raises UsageError for an entry without a reason."""
    reasons = {}
    for entry in entries:
        kind, _, reason = (part.strip() for part in entry.partition(":"))
        if kind not in KINDS or not reason:
            raise UsageError(f"split.allow has {entry!r}; write 'kind: reason', with a kind of {', '.join(KINDS)}")
        reasons[kind] = reason
    return reasons


def audit(
    split: ChipSplit,
    fingerprints: ChipFingerprints | None,
    reasons: dict[str, str],
    label_findings: Iterable[Finding] = (),
    polygon_gaps: dict[str, int] | None = None,
) -> dict[str, Any]:
    """The audit in the split file: gaps in pixels between splits, the findings that are allowed, and warnings.

    Where polygons are split, the gaps are those between polygons, since a chip may be in several splits.
    Raises IntegrityError that names every finding without a reason, with a pair of chips.
    """
    gaps, findings = (polygon_gaps or {}, []) if split.plan.by_polygon else _gaps(split)
    findings += [*_shared_units(split), *_shared_sources(split), *_random_neighbours(split)]
    findings += _similar_chips(split, fingerprints) if fingerprints else ()
    findings += label_findings
    unexplained = [finding for finding in findings if finding.kind not in reasons]
    raise_findings([finding for finding in unexplained if finding.kind not in WARNINGS])
    return {
        "gap_pixels": gaps if split.plan.by_place or split.plan.by_polygon else {},
        "buffer": split.plan.buffer,
        "allow": reasons,
        "allowed": [f.json | {"reason": reasons[f.kind]} for f in findings if f.kind in reasons],
        "warnings": [finding.json for finding in unexplained],
    }


def raise_findings(findings: list[Finding]) -> None:
    """Raise IntegrityError if there are findings."""
    if findings:
        listed = "; ".join(f"{f.kind} ({f.count} times): {f.example}" for f in findings)
        raise IntegrityError(
            f"the split leaks. {listed}. Split in another way, or accept the finding in split.allow as "
            f"'{findings[0].kind}: reason'"
        )


def _gaps(split: ChipSplit) -> tuple[dict[str, int], list[Finding]]:
    """The gap in pixels between the nearest chips of every two splits, negative if they overlap."""
    narrowest: dict[str, int] = {}
    findings: list[Finding] = []
    buffer = split.plan.buffer
    for first, second in split.pairs():
        gaps, nearest = _nearest(split, first, second)
        narrowest[f"{first}-{second}"] = int(gaps.min())
        worst = int(gaps.argmin())
        pair = f"{split.name(first, nearest[worst])} and {split.name(second, worst)}"
        if gaps[worst] < 0:
            findings.append(Finding("overlap", int((gaps < 0).sum()), pair))
        if (within_buffer := (gaps >= 0) & (gaps < buffer)).any():
            worst = int(np.where(within_buffer, gaps, np.inf).argmin())
            pair = f"{split.name(first, nearest[worst])} and {split.name(second, worst)}"
            example = f"{pair} are {int(gaps[worst])} pixels apart, not {buffer}"
            findings.append(Finding("distance", int(within_buffer.sum()), example))
    return narrowest, findings


def _nearest(split: ChipSplit, first: str, second: str) -> tuple[Float64Array, IntArray]:
    """For each chip of `second`: the gap in pixels to the nearest chip of `first`, and its number.

    In a split by scene, chips of another day are far away.
    """
    return split.table.gaps(split.rows[first], split.rows[second], split.days if split.plan.by_scene else None)


def _shared_units(split: ChipSplit) -> list[Finding]:
    """Scenes, and groups of scenes, that are in two splits although they are units of the split."""
    plan = split.plan
    findings: list[Finding] = []
    if plan.by_scene:
        findings += _in_two_splits(split, "scene", [image.scene for image in split.table.images])
    if plan.method == "temporal" or (plan.method == "group" and plan.by == "tile"):
        findings += _in_two_splits(split, "group", groups_of(split.table.images, plan))
    return findings


def _in_two_splits(split: ChipSplit, kind: str, names: list[str]) -> Iterator[Finding]:
    """Units, by name of each scene, that have chips in two splits."""
    _, units = np.unique(names, return_inverse=True)
    for first, second in split.pairs():
        first_units, second_units = (units[split.scenes(name)] for name in (first, second))
        shared = np.isin(second_units, first_units)
        if shared.any():
            number = int(shared.argmax())
            partner = int((first_units == second_units[number]).argmax())
            pair = f"{split.name(first, partner)} and {split.name(second, number)}"
            unit = "" if kind == "scene" else f" are both of {names[split.scenes(second)[number]]}"
            yield Finding(kind, int(shared.sum()), pair + unit)


def _shared_sources(split: ChipSplit) -> Iterator[Finding]:
    """Composites in two splits that were made from one scene, where scenes are units of the split."""
    sources = [image.attributes.get("scenes") or [image.scene] for image in split.table.images]
    if not split.plan.by_scene or not any("scenes" in image.attributes for image in split.table.images):
        return
    for first, second in split.pairs():
        firsts, seconds = (np.unique(split.scenes(name)) for name in (first, second))
        shared = {
            (a, b): scenes
            for b in seconds.tolist()
            for a in firsts.tolist()
            if a != b and (scenes := sorted({*sources[a]} & {*sources[b]}))
        }
        if shared:
            (a, b), scenes = next(iter(shared.items()))
            partner, number = (int((split.scenes(name) == scene).argmax()) for name, scene in ((first, a), (second, b)))
            pair = f"{split.name(first, partner)} and {split.name(second, number)}"
            count = int(np.isin(split.scenes(second), [b for _, b in shared]).sum())
            yield Finding("scene", count, f"{pair} are composites that share scene {', '.join(scenes[:3])}")


def _random_neighbours(split: ChipSplit) -> Iterator[Finding]:
    """Test chips that touch or overlap training chips, where chips were assigned at random."""
    if split.plan.method == "random":
        gaps, nearest = _nearest(split, "train", "test")
        worst = int(gaps.argmin())
        pair = f"{split.name('train', nearest[worst])} and {split.name('test', worst)}"
        example = f"neighbours look alike, and {pair} are {int(gaps[worst])} pixels apart"
        yield Finding("random", int((gaps <= 0).sum()), example)


def _similar_chips(split: ChipSplit, fingerprints: ChipFingerprints) -> Iterator[Finding]:
    """Chips of two splits that have the same pixels, or look alike."""
    for first, second in split.pairs():
        for kind, count, (a, b), correlation in find_similar_chips(fingerprints, first, second):
            pair = f"{split.name(first, a)} and {split.name(second, b)}"
            yield Finding(kind, count, pair + (f" correlate by {correlation:.4f}" if kind != "duplicate" else ""))


def check_statistics(statistics: Statistics, split: Split, stores: list[Tiles]) -> None:
    """Check that a statistics file was measured on exactly the training chips of a split.

    Raises IntegrityError if the samples or the pixel counts differ, unless the split allows it.
    """
    train, chip = split.samples["train"], split.chip
    if "statistics" in split.audit.allow:
        return
    errors = []
    if statistics.samples != samples_digest(split.scenes, train, chip):
        errors.append("the statistics were measured on other chips than the training chips")
    for number, store in enumerate(stores):
        count = statistics.pixels.get(store.scene, 0)
        expected = count_valid(store, train[train[:, 0] == number], chip)
        if count != expected:
            errors.append(
                f"the statistics count {count} pixels of scene {store.scene}, but its training chips have {expected}"
            )
    total = sum(statistics.pixels.values())
    different = sorted(name for name, band in statistics.bands.items() if band.count != total)
    if different:
        errors.append(f"the pixel counts of band {', '.join(different)} differ from the scenes'")
    if errors:
        raise IntegrityError(
            f"{'; '.join(errors)}. Give the statistics that split wrote beside the split file, or accept the finding "
            "in split.allow as 'statistics: reason'"
        )
