"""The leakage audit: what of the test a training could have seen, measured on the chips themselves.

Kinds of finding, each with the two chips that it was found on:

overlap         a pixel lies in chips of two splits; where scenes are split (by date, or as groups), a pixel of one
                day does, since there a place is meant to be seen again on other days
distance        chips of two splits are nearer than the buffer; where scenes are split, on one day
scene, group    a scene, or a tile or day that was to be kept whole, is in two splits
random          chips were dealt out at random, so neighbours are in two splits
duplicate       two chips of two splits hold the same pixels
near-duplicate  two chips of two splits look alike (see `eopipe.chips.near_duplicates`)
statistics      bands were measured elsewhere than in the training chips (found when training starts)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from eopipe.arrays import Float64Array, IntArray
from eopipe.chips.near_duplicates import ChipFingerprints, find_similar_chips
from eopipe.chips.splits import SplitPlan, covered_pixels
from eopipe.chips.statistics import samples_digest
from eopipe.errors import IntegrityError, UsageError
from eopipe.tiles.store import Tiles

KINDS = ("overlap", "distance", "scene", "group", "random", "duplicate", "near-duplicate", "statistics")
PAIRS = (("train", "test"), ("train", "val"), ("val", "test"))
FAR = 1 << 40


@dataclass(frozen=True)
class Finding:
    """One kind of leak: how many chips it touches, and the pair where it is worst."""

    kind: str
    count: int
    example: str


@dataclass(frozen=True)
class ChipSplit:
    """A split to audit: samples (n, 3) of each split; the name, group and day of each scene; how it was made."""

    samples: dict[str, IntArray]
    scenes: list[str]
    groups: list[str]
    days: list[str]
    plan: SplitPlan

    def name(self, split: str, number: int) -> str:
        """How a chip is named in a finding."""
        scene, row, col = self.samples[split][number]
        return f"{split} chip of scene {self.scenes[scene]}, row {row}, column {col}"

    def pairs(self) -> Iterator[tuple[str, str]]:
        """The pairs of splits that both have chips."""
        return ((a, b) for a, b in PAIRS if len(self.samples[a]) and len(self.samples[b]))


def parse_allowed(entries: tuple[str, ...]) -> dict[str, str]:
    """The reasons that a config gives for findings, by kind; raises UsageError for one without a reason."""
    found = {}
    for entry in entries:
        kind, _, reason = (part.strip() for part in entry.partition(":"))
        if kind not in KINDS or not reason:
            raise UsageError(f"split.allow has {entry!r}; write 'kind: reason', with a kind of {', '.join(KINDS)}")
        found[kind] = reason
    return found


def audit(dealt: ChipSplit, looks: ChipFingerprints | None, reasons: dict[str, str]) -> dict[str, Any]:
    """What the split file says of its leaks: gaps in pixels between splits, and findings that are allowed.

    Raises IntegrityError that names every finding without a reason, with a pair of chips.
    """
    gaps, found = _gaps(dealt)
    found += [*_shared(dealt), *_random(dealt), *(_lookalikes(dealt, looks) if looks else ())]
    raise_findings([finding for finding in found if finding.kind not in reasons])
    return {
        "gap_pixels": gaps if dealt.plan.by_place else {},
        "buffer": dealt.plan.buffer,
        "allow": reasons,
        "allowed": [vars(finding) | {"reason": reasons[finding.kind]} for finding in found],
    }


def raise_findings(found: list[Finding]) -> None:
    """Raise IntegrityError when there is a finding."""
    if found:
        told = "; ".join(f"{f.kind} ({f.count} times): {f.example}" for f in found)
        raise IntegrityError(
            f"the split leaks. {told}. Split in another way, or say in split.allow why it may be, as "
            f"'{found[0].kind}: reason'"
        )


def _gaps(dealt: ChipSplit) -> tuple[dict[str, int], list[Finding]]:
    """The gap in pixels between the nearest chips of every two splits, below 0 where they overlap."""
    gaps: dict[str, int] = {}
    found: list[Finding] = []
    chip, buffer = dealt.plan.chip, dealt.plan.buffer
    for one, other in dealt.pairs():
        distance, nearest = _nearest(dealt, one, other)
        gaps[f"{one}-{other}"] = int(distance.min()) - chip
        at = int(distance.argmin())
        pair = f"{dealt.name(one, nearest[at])} and {dealt.name(other, at)}"
        if gaps[f"{one}-{other}"] < 0:
            found.append(Finding("overlap", int((distance < chip).sum()), pair))
        if (near := (distance >= chip) & (distance < chip + buffer)).any():
            at = int(np.where(near, distance, np.inf).argmin())
            pair = f"{dealt.name(one, nearest[at])} and {dealt.name(other, at)}"
            told = f"{pair} are {int(distance[at]) - chip} pixels apart, not {buffer}"
            found.append(Finding("distance", int(near.sum()), told))
    return gaps, found


def _nearest(dealt: ChipSplit, one: str, other: str) -> tuple[Float64Array, IntArray]:
    """For each chip of `other`: rows or columns to the nearest of `one`, whichever is more, and its number.

    Where scenes are split, other days are far away.
    """
    from scipy.spatial import cKDTree

    _, day = np.unique(dealt.days, return_inverse=True)
    away = day * (FAR if dealt.plan.by_scene else 0)
    ours, theirs = (np.column_stack([dealt.samples[s][:, 1:], away[dealt.samples[s][:, 0]]]) for s in (one, other))
    places, first = np.unique(ours, axis=0, return_index=True)
    distance, nearest = cKDTree(places).query(theirs, p=np.inf)
    return distance, first[nearest]


def _shared(dealt: ChipSplit) -> list[Finding]:
    """Scenes, and groups of scenes, that are in two splits although they were to be kept whole."""
    plan = dealt.plan
    found: list[Finding] = []
    if plan.by_scene:
        found += _in_two(dealt, "scene", np.arange(len(dealt.scenes)))
    if plan.method == "temporal" or (plan.method == "group" and plan.by == "tile"):
        _, numbers = np.unique(dealt.groups, return_inverse=True)
        found += _in_two(dealt, "group", numbers)
    return found


def _in_two(dealt: ChipSplit, kind: str, groups: IntArray) -> Iterator[Finding]:
    for one, other in dealt.pairs():
        ours, theirs = (groups[dealt.samples[split][:, 0]] for split in (one, other))
        both = np.isin(theirs, ours)
        if both.any():
            at = int(both.argmax())
            pair = f"{dealt.name(one, int((ours == theirs[at]).argmax()))} and {dealt.name(other, at)}"
            whole = "" if kind == "scene" else f" are both of {dealt.groups[dealt.samples[other][at, 0]]}"
            yield Finding(kind, int(both.sum()), pair + whole)


def _random(dealt: ChipSplit) -> Iterator[Finding]:
    """Test chips dealt out at random, which touch or cover training chips."""
    if dealt.plan.method == "random":
        distance, nearest = _nearest(dealt, "train", "test")
        at = int(distance.argmin())
        pair = f"{dealt.name('train', nearest[at])} and {dealt.name('test', at)}"
        told = f"neighbours look alike, and {pair} are {int(distance[at]) - dealt.plan.chip} pixels apart"
        yield Finding("random", int((distance <= dealt.plan.chip).sum()), told)


def _lookalikes(dealt: ChipSplit, looks: ChipFingerprints) -> Iterator[Finding]:
    """Chips of two splits that hold the same pixels, or look alike."""
    for one, other in dealt.pairs():
        for kind, count, (a, b), likeness in find_similar_chips(looks, one, other):
            pair = f"{dealt.name(one, a)} and {dealt.name(other, b)}"
            yield Finding(kind, count, pair + (f" correlate by {likeness:.4f}" if kind != "duplicate" else ""))


def check_statistics(told: dict[str, Any], split: dict[str, Any], stores: list[Tiles]) -> None:
    """Check that a statistics file was measured on the training chips of a split, all of them and nothing else.

    Raises IntegrityError when the samples or the counts of pixels differ, unless the split allows it.
    """
    train, chip = split["samples"]["train"], split["chip"]
    if "statistics" in split["audit"].get("allow", {}):
        return
    why = []
    if told["samples"] != samples_digest(split["scenes"], train, chip):
        why.append("the statistics were measured on other chips than those that train")
    for number, store in enumerate(stores):
        mask = covered_pixels(store.shape, train[train[:, 0] == number], chip)
        count, have = told["pixels"].get(store.scene, 0), int((mask & (store.read("valid") > 0)).sum())
        if count != have:
            why.append(f"the statistics count {count} pixels of scene {store.scene}, its training chips have {have}")
    odd = sorted(name for name, band in told["bands"].items() if band["count"] != sum(told["pixels"].values()))
    if odd:
        why.append(f"the statistics count other pixels in band {', '.join(odd)} than in all scenes")
    if why:
        raise IntegrityError(
            f"{'; '.join(why)}. Give the statistics that split made beside the split file, or say in split.allow why "
            "it may be, as 'statistics: reason'"
        )
