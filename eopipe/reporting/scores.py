"""Scores as tables and curves: of maps of classes, and of maps of continuous values (`value_...`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from eopipe.evaluation.metrics_document import (
    AnyMetrics,
    ClassMetrics,
    FinishedMetrics,
    MetricsDocument,
    RunMetrics,
    ScoreIntervals,
    ValueMetrics,
)
from eopipe.reporting.figures import ValueScale
from eopipe.reporting.verdict import NamedMeasures, constant_text, seeds_text
from eopipe.reporting.wording import (
    BASELINES,
    DASH,
    format_count,
    format_difference,
    format_gain,
    format_interval,
    format_measured,
    format_percent,
    format_score,
    plural,
    score_text,
)
from eopipe.tasks import HAVE_UNIT, TASKS
from eopipe.tasks.task import ClassMeasure, Measure, NamedScore
from eopipe.text_table import format_table


def measures_of(task: str) -> NamedMeasures:
    """The keys of the scores and their names."""
    return tuple((score.key, score.title) for score in TASKS[task].scores)


OF_CLASS: dict[ClassMeasure, str] = {"iou": "IoU", "precision": "Precision", "recall": "Recall", "f1": "F1"}
ScoreOf = Callable[[Measure], float | None]
ScoreRows = tuple[tuple[str, ...], list[tuple[str, ...]]]


@dataclass(frozen=True)
class TableCell:
    """A number as text, its share of 1 for a bar or a shade (None: no bar), whether it is highlighted, and a note."""

    text: str
    share: float | None = 0.0
    is_highlighted: bool = False
    note: str = ""


@dataclass(frozen=True)
class TextTable:
    """Rows of text under heads; the first cell of a row names it."""

    caption: str
    heads: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    style: str = "numeric"

    def lines(self, *left: int) -> list[str]:
        """The table for a terminal, with columns at the left by their numbers."""
        return format_table([tuple(self.heads), *self.rows], left=left)


@dataclass(frozen=True)
class ShareTable:
    """A table of shares by class: its caption, the text of its corner, its rows."""

    caption: str
    corner: str
    rows: list["TableRow"]


@dataclass(frozen=True)
class TableRow:
    """A row: its name, a note below the name, its cells."""

    name: str
    note: str
    cells: list[TableCell]


def class_parts(metrics: ClassMetrics | FinishedMetrics) -> dict[str, Any]:
    """The parts of a page that scores of classes give."""
    caption = (
        f"Confusion matrix of the test {metrics.sample}s: rows are labels, columns are predictions; shares of each "
        "row add up to 100 %"
    )
    return {
        "methods": method_rows(metrics),
        "class_heads": class_heads(metrics),
        "class_rows": class_rows(metrics),
        "share_tables": [ShareTable(caption, "Label ↓ \u00a0 Map →", confusion_rows(metrics))],
    }


def method_rows(metrics: AnyMetrics) -> list[TableRow]:
    """Model, baselines and the one that predicts the same everywhere, and gains; the best of a score is highlighted.

    The row of the model has an interval below each score; the members of an ensemble and its gains have rows of their
    own.
    """
    others = [(BASELINES[key].capitalize(), scores.method, scores) for key, scores in metrics.baselines.items()]
    if not isinstance(metrics, FinishedMetrics):
        name = TASKS[metrics.task].simple_baseline[1].capitalize()
        others.append((name, f"always predicts {constant_text(metrics)}", metrics.simple))
    methods = [("This model", "", metrics.model), *others]
    rows, named = [TableRow(name, note, []) for name, note, _ in methods], TASKS[metrics.task].scores
    scale = metrics.model.score(named[0].key) or 0.0
    for score in named:
        values = [scores.score(score.key) for _, _, scores in methods]
        cells = [_score_cell(score, value, metrics.unit, scale) for value in values]
        # Without a baseline nothing is the best.
        known = [value for value in values if value is not None and others]
        best = _score_cell(score, min(known, key=score.distance), metrics.unit, scale).text if known else ""
        for row, cell in zip(rows, cells, strict=True):
            row.cells.append(replace(cell, is_highlighted=cell.text == best))
    return _with_intervals(metrics, rows)


def _score_cell(named: NamedScore, value: float | None, unit: str, scale: float) -> TableCell:
    """A score; one in the unit of the labels has as many decimals as `scale`, and no bar."""
    if named.has_unit:
        return TableCell(format_measured(value, unit, scale), None)
    return TableCell(format_score(value), min(max(value or 0.0, 0.0), 1.0))


def text_rows(rows: list[TableRow]) -> list[tuple[str, ...]]:
    """Rows as text, with notes in parentheses."""
    return [
        (row.name, *(f"{cell.text} ({cell.note})" if cell.note else cell.text for cell in row.cells)) for row in rows
    ]


def _with_intervals(metrics: AnyMetrics, rows: list[TableRow]) -> list[TableRow]:
    """The model's row with an interval below each score, its members, and last its gains over baselines."""
    intervals, measures = metrics.intervals, measures_of(metrics.task)
    unit = {key: metrics.unit if key in HAVE_UNIT else "" for key, _ in measures}
    cells = [
        replace(cell, note=format_interval(intervals.model.get(key), unit[key]))
        for cell, (key, _) in zip(rows[0].cells, measures, strict=True)
    ]
    last = []
    for baseline in metrics.compared:
        ends, of_baseline = metrics.gains(baseline), metrics.baselines[baseline].score
        gains = [
            TableCell(
                _gain_text(metrics.model.score(key), of_baseline(key), unit[key]),
                share=None,
                note=format_difference(ends.get(key), unit[key]),
            )
            for key, _ in measures
        ]
        last.append(TableRow(f"Model minus {BASELINES[baseline]}", "", gains))
    return [replace(rows[0], cells=cells), *_member_summary(metrics), *rows[1:], *last]


def _member_summary(metrics: MetricsDocument) -> list[TableRow]:
    """The row of an ensemble's members; without members none."""
    if not metrics.members:
        return []
    spreads = _spread_texts([member.score for member in metrics.members], metrics)
    cells = [TableCell(mean, None, note=f"standard deviation {spread}" * (spread != DASH)) for mean, spread in spreads]
    note = f"mean of {plural(len(metrics.members), 'member')}; below it the standard deviation (n - 1)"
    return [TableRow("Members", note, cells)]


def _gain_text(score: float | None, baseline: float | None, unit: str) -> str:
    return DASH if score is None or baseline is None else format_gain(score - baseline, unit)


def no_interval_text(intervals: ScoreIntervals) -> str:
    """Why the scores of the model have no interval; the gains over the baselines may have one."""
    reason = intervals.reason or "the metrics contain none"
    return f"The scores of the model have no confidence interval: {reason}."


def interval_note(metrics: AnyMetrics) -> str:
    """What the intervals of the table are, or why it or some of its scores have none, as sentences."""
    if not any(metrics.intervals.model.values()):
        return no_interval_text(metrics.intervals)
    level = f"Below a score is its confidence interval of {100 * metrics.intervals.level:.0f} %."
    reasons = "; ".join(sorted(set(metrics.intervals.missing.values())))
    missing = f" Some scores have no interval: {reasons}." if reasons else ""
    return f"{level} {_width_text(metrics.intervals)}{seeds_text(metrics)}{missing}"


def _width_text(intervals: ScoreIntervals) -> str:
    """Why the intervals are as wide as they are, as a sentence; empty where it was not measured."""
    if (pieces := intervals.independent.get("model")) is None:
        return ""
    alike = f", since errors are alike over up to {intervals.range:.0f} pixels" if intervals.range else ""
    cure = "more test areas, far from each other, make the intervals narrower"
    return f"The test areas amount to about {pieces:.0f} independent pieces{alike}: {cure}. "


def scene_score_rows(metrics: AnyMetrics) -> ScoreRows:
    """Heads and rows of the scores of each test scene, by date; no rows where places are split and not scenes."""
    measures = measures_of(metrics.task)
    rows = []
    for scene in metrics.scenes:
        texts = [score_text(scene.scores.get(key), key, metrics.unit) for key, _ in measures]
        rows.append((scene.scene, scene.date, *texts, format_count(scene.count)))
    return ("Scene", "Date", *(name for _, name in measures), f"Test {metrics.sample}s"), rows


def fold_score_rows(folds: dict[str, RunMetrics], metrics: RunMetrics) -> ScoreRows:
    """Heads and rows of the scores of each fold, their mean and their standard deviation (n - 1).

    Folds share training data, so the standard deviation is not the standard error of their mean
    (Bengio and Grandvalet 2004, JMLR 5:1089). A score that a fold lacks is left out of both. Without folds there are
    no rows.
    """
    scored = {name: (fold.model.score, fold.count) for name, fold in folds.items()}
    heads, rows = _spread_rows("Fold", scored, metrics)
    for key in metrics.baselines if folds else ():
        of_folds = [fold.methods[key].score for fold in folds.values() if key in fold.methods]
        rows.append(_summary_rows((f"mean of the {BASELINES[key]}",), of_folds, metrics)[0])
    return heads, rows


def member_score_rows(metrics: MetricsDocument) -> ScoreRows:
    """The same of each member of an ensemble: the standard deviation is over trainings with other seeds."""
    scored = {f"member {number}": (member.score, member.count) for number, member in enumerate(metrics.members)}
    return _spread_rows("Member", scored, metrics)


def _spread_rows(head: str, scored: Mapping[str, tuple[ScoreOf, int]], metrics: MetricsDocument) -> ScoreRows:
    """Heads and rows by name of scores and their number of pixels or chips, with mean and standard deviation."""
    measures = measures_of(metrics.task)
    rows = [
        (name, *(score_text(score(key), key, metrics.unit) for key, _ in measures), format_count(count))
        for name, (score, count) in scored.items()
    ]
    if scored:
        rows += _summary_rows(("mean", "standard deviation"), [score for score, _ in scored.values()], metrics)
    return (head, *(name for _, name in measures), f"Test {metrics.sample}s"), rows


def _summary_rows(names: Sequence[str], scored: Sequence[ScoreOf], metrics: MetricsDocument) -> list[tuple[str, ...]]:
    """The rows of the mean, and of the standard deviation where it has a name."""
    columns = zip(*_spread_texts(scored, metrics), strict=True)
    return [(name, *texts, "") for name, texts in zip(names, columns, strict=False)]


def _spread_texts(scored: Sequence[ScoreOf], metrics: MetricsDocument) -> list[tuple[str, str]]:
    """Mean and standard deviation (n - 1) of each score where it is defined, as text."""
    texts = []
    for key, _ in measures_of(metrics.task):
        values = [value for score in scored if (value := score(key)) is not None]
        mean, deviation = fmean(values) if values else None, stdev(values) if len(values) > 1 else None
        texts.append((score_text(mean, key, metrics.unit), score_text(deviation, key, metrics.unit)))
    return texts


def confusion_rows(metrics: ClassMetrics | FinishedMetrics) -> list[TableRow]:
    """One row for each class of the labels: share and count of each predicted class; the diagonal is highlighted."""
    rows = []
    for number, (name, row) in enumerate(zip(metrics.classes, metrics.model.confusion, strict=True)):
        cells = [share_cell(count, sum(row), n == number) for n, count in enumerate(row)]
        rows.append(TableRow(name, plural(sum(row), metrics.sample), cells))
    return rows


def share_cell(count: int, total: int, is_highlighted: bool = False) -> TableCell:
    """A count as a share of a total; the count itself is the note."""
    share = count / total if total else None
    return TableCell(format_percent(share), share or 0.0, is_highlighted, format_count(count))


def class_heads(metrics: AnyMetrics) -> tuple[str, ...]:
    """The heads of the table with the scores of each class."""
    first, *others = (OF_CLASS[key] for key in _measures_of_class(metrics))
    compared = [f"{first}, {BASELINES[metrics.chosen]}"] if metrics.chosen else []
    return ("Class", first, *compared, *others, f"Test {metrics.sample}s")


def class_rows(metrics: AnyMetrics) -> list[TableRow]:
    """One row for each class: scores of the model with their intervals, of the chosen baseline the first, and size."""
    rows, ends = [], metrics.intervals.model
    first, *others = _measures_of_class(metrics)
    for name in metrics.model.per_class and metrics.classes:
        model = metrics.model.per_class[name]
        values = [model.score(first)]
        if metrics.chosen:
            values.append(metrics.baselines[metrics.chosen].per_class[name].score(first))
        best = format_score(max((value for value in values if value is not None), default=None)) if values[1:] else ""
        texts = [format_score(value) for value in values]
        cells = [TableCell(text, value or 0.0, text == best != DASH) for text, value in zip(texts, values, strict=True)]
        cells[0] = replace(cells[0], note=format_interval(ends.get(f"{first}:{name}")))
        notes = {key: format_interval(ends.get(f"{key}:{name}")) for key in others}
        cells += [TableCell(format_score(model.score(key)), None, note=note) for key, note in notes.items()]
        rows.append(TableRow(name, "", [*cells, TableCell(format_count(model.support), None)]))
    return rows


def _measures_of_class(metrics: AnyMetrics) -> list[ClassMeasure]:
    """The scores of a class, the main one of the task first."""
    main = TASKS[metrics.task].class_score
    return [main, *(key for key in OF_CLASS if key not in (main, "iou"))]


def scale_of(metrics: RunMetrics) -> ValueScale | None:
    """The colour scale of a map of values; None for a map of classes."""
    if not isinstance(metrics, ValueMetrics):
        return None
    low, high = metrics.range
    return ValueScale(low, high, metrics.unit)
