"""Scores of several runs on the test or validation places that all have, with paired intervals of differences.

The difference of two maps is measured on the same pixels, or chips, so that what is hard for both cancels. Its interval
is found as for a gain over a baseline: by pieces of these places, with the measured correlation of the differences.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, IntArray
from eopipe.chips.chips import has_value
from eopipe.errors import BadInputError
from eopipe.evaluation.correlation import SamplingUnits, choose_units
from eopipe.evaluation.intervals import Intervals, intervals, measure_pieces, rounded
from eopipe.evaluation.maps import EvaluatedMap, EvaluationData
from eopipe.tasks.tables import Compared, Tables

# The name of the first run among the tables of a difference.
FIRST = "first"


@dataclass(frozen=True)
class RunScores:
    """Scores of a run by their keys (`iou:name` for a class) with their intervals.

    `differences` are its scores minus the first run's, with paired intervals; None for the first run.
    """

    scores: dict[str, float]
    intervals: Intervals
    differences: dict[str, float] | None
    paired: Intervals

    def json_document(self) -> dict[str, Any]:
        """All scores with six digits; None where one is not defined."""
        document = {"scores": _rounded(self.scores), "intervals": self.intervals}
        if self.differences is None:
            return document
        return document | {"differences": _rounded(self.differences), "intervals_of_differences": self.paired}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> "RunScores":
        """The same from such a document."""
        of_run, differences = _numbers(document["scores"]), document.get("differences")
        paired = document.get("intervals_of_differences") or {}
        return cls(of_run, document["intervals"], differences and _numbers(differences), paired)

    def is_significant(self, key: str) -> bool | None:
        """Whether the paired interval of the difference of a score does not contain 0; None without an interval."""
        ends = self.paired.get(key)
        return ends[0] > 0 or ends[1] < 0 if ends else None


def _numbers(scores: Mapping[str, float | None]) -> dict[str, float]:
    return {key: math.nan if value is None else value for key, value in scores.items()}


def _rounded(scores: dict[str, float]) -> dict[str, float | None]:
    return {key: rounded(value) for key, value in scores.items()}


@dataclass(frozen=True)
class SharedSamples:
    """Samples (n) that all runs map and have in a split: places in the frame, truth and mapped, (n,) or (n, class)."""

    number: int
    rows: IntArray
    cols: IntArray
    truth: AnyArray
    mapped: list[AnyArray]


@dataclass(frozen=True)
class RunComparison:
    """Scores of runs on `count` pixels or chips that all have in a split; some of the `pieces` are independent."""

    runs: list[RunScores]
    count: int
    pieces: int


@dataclass(frozen=True)
class PairedTables:
    """Tables (piece, …) of runs on the `count` samples that all have in a split, one for each run in their order.

    From them follow the scores of every run, and their differences to any of them, without another look at the maps.
    """

    tables: list[AnyArray]
    units: SamplingUnits
    chip: int
    measures: Tables
    count: int

    @classmethod
    def read(cls, runs: Sequence[EvaluationData], names: Sequence[str], split: str = "test") -> "PairedTables":
        """Read the maps of runs block by block, on the places of a split (test, val) that all have.

        Messages name the runs by `names`. Raises BadInputError for runs of other tasks, classes, grids, labels or
        chips, and without a common place.
        """
        for run, name in zip(runs[1:], names[1:], strict=True):
            _check_comparable(runs[0], run, f"{names[0]} and {name}", split)
        first, measures = runs[0], runs[0].task.tables(runs[0].names)
        units = choose_units(first, split)
        tables, offset, count = list[AnyArray](), 0.0, 0
        for samples in _shared_samples(runs, names, split):
            if not len(samples.truth):
                continue
            # Sums of values are about a number near their mean, for their precision.
            offset = offset if count else float(samples.truth.mean())
            index, count = units.index_of(samples.number, samples.rows, samples.cols), count + len(samples.truth)
            parts = [
                measures.by_unit(units, index, Compared(samples.truth, mapped, offset)) for mapped in samples.mapped
            ]
            tables = [table + part for table, part in zip(tables, parts, strict=True)] if tables else parts
        if not tables:
            raise BadInputError(
                f"{' and '.join(names)} have no labelled, mapped place that is a {split} place of all of them"
            )
        is_used = measures.sizes(tables[0]) > 0
        used = [table[is_used] for table in tables]
        return cls(used, units.within(is_used), first.split.chip, measures, count)

    def scores(self) -> list[dict[str, float]]:
        """The scores of each run by their keys; NaN where one is not defined."""
        return [_scores(table, self.measures) for table in self.tables]

    def compared(self, order: Sequence[int] | None = None) -> RunComparison:
        """The runs of these numbers in this order, with differences to the first of them; by default all runs."""
        of_pieces = partial(_run_scores, self.units, self.chip, self.measures)
        tables = [self.tables[number] for number in (range(len(self.tables)) if order is None else order)]
        scored = [of_pieces(tables[0], None), *(of_pieces(table, tables[0]) for table in tables[1:])]
        return RunComparison(scored, self.count, len(self.tables[0]))


def compare_runs(runs: Sequence[EvaluationData], names: Sequence[str], split: str = "test") -> RunComparison:
    """Score runs on the places of a split (test, val) that all have, with differences to the first run.

    Messages name the runs by `names`. Raises BadInputError for runs of other tasks, classes, grids, labels or chips,
    and without a common place.
    """
    return PairedTables.read(runs, names, split).compared()


def _check_comparable(first: EvaluationData, other: EvaluationData, names: str, split: str) -> None:
    """Raise BadInputError where two runs cannot be scored on the same samples."""
    same = {
        "task": first.task == other.task and first.from_to == other.from_to,
        "classes": first.names == other.names,
        "grid": first.frame.is_same(other.frame),
        "kind of maps (one mosaic, or one for each image)": (
            [_images(group, first) for group in first.groups] == [_images(group, other) for group in other.groups]
        ),
    }
    if first.task.is_of_chips:
        same[f"{split} chips"] = np.array_equal(first.split.samples[split], other.split.samples[split])
        same["size of chips"] = first.split.chip == other.split.chip
        same["min_share"] = first.min_share == other.min_share
    if differing := [quality for quality, is_same in same.items() if not is_same]:
        raise BadInputError(f"{names} cannot be compared by places: they do not have the same {', '.join(differing)}")


def _images(group: EvaluatedMap, run: EvaluationData) -> list[str]:
    """The images of a map; none for a mosaic, since these may differ."""
    return [] if len(run.groups) == 1 else [store.scene for store in group.stores]


def _shared_samples(runs: Sequence[EvaluationData], names: Sequence[str], split: str) -> Iterator[SharedSamples]:
    """The samples of a split of the first run that the others have in theirs too, block by block."""
    for samples in runs[0].samples(split):
        rows, cols = places = samples.rows, samples.cols
        # A chip has the labels of all of its pixels.
        labelled = samples.pixels[:2] if samples.pixels else places
        labels, mapped = _at(samples.group, *labelled)[1], [samples.mapped]
        is_shared = np.ones(len(rows), bool)
        for run, name in zip(runs[1:], names[1:], strict=True):
            group = run.groups[samples.group.number]
            numbers, truth = _at(group, rows, cols)[0].T, _at(group, *labelled)[1]
            is_shared &= has_value(numbers.reshape(len(rows), -1)[:, 0])
            if not samples.pixels:
                is_shared &= has_value(truth) & _in_split(run, group, split, places)
            is_compared = np.ones(len(labels), bool) if samples.pixels else is_shared
            _check_labels(labels[is_compared], truth[is_compared], (names[0], name))
            mapped.append(numbers)
        rows, cols, truth, *mapped = (values[is_shared] for values in (rows, cols, samples.truth, *mapped))
        yield SharedSamples(samples.group.number, rows, cols, truth, mapped)


def _check_labels(first: AnyArray, other: AnyArray, names: tuple[str, str]) -> None:
    """Raise BadInputError where two runs have other labels (n,) at the same pixels."""
    if (first != other).any():
        raise BadInputError(f"{' and '.join(names)} have other labels at the same pixels; compare runs of one source")


def _window(rows: IntArray, cols: IntArray) -> tuple[slice, slice]:
    top, left = int(rows.min()), int(cols.min())
    return slice(top, int(rows.max()) + 1), slice(left, int(cols.max()) + 1)


def _at(group: EvaluatedMap, rows: IntArray, cols: IntArray) -> tuple[AnyArray, AnyArray]:
    """What a map and its labels have at some pixels (n,) of one block: (n,) or (class, n), and (n,)."""
    y, x = _window(rows, cols)
    inside = rows - y.start, cols - x.start
    return group.mapped(y, x)[..., *inside], group.truth(y, x)[inside]


def _in_split(run: EvaluationData, group: EvaluatedMap, split: str, places: tuple[IntArray, IntArray]) -> BoolArray:
    """Whether pixels (n,) of one block are in the areas of a split of a run."""
    (rows, cols), (y, x) = places, _window(*places)
    inside: BoolArray = run.area(split, group, (y, x))[rows - y.start, cols - x.start]
    return inside


def _run_scores(
    units: SamplingUnits, chip: int, measures: Tables, table: AnyArray, first: AnyArray | None
) -> RunScores:
    """Scores of a run by its table (unit, ...), and their differences to the first run's."""
    tables = {"model": table} | ({} if first is None else {FIRST: first})
    ends = intervals(measure_pieces(units, chip, tables, measures), tables, measures)
    scores = _scores(table, measures)
    if first is None:
        return RunScores(scores, ends["model"], None, {})
    of_first = _scores(first, measures)
    differences = {key: value - of_first[key] for key, value in scores.items()}
    return RunScores(scores, ends["model"], differences, ends[FIRST])


def _scores(table: AnyArray, measures: Tables) -> dict[str, float]:
    return {key: float(value[0]) for key, value in measures.scores(table.sum(0)[None]).items()}
