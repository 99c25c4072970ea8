"""Scores as tables and curves: of maps of classes, and of maps of continuous values (`value_...`)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from markupsafe import Markup

from eopipe.evaluation.metrics_document import (
    ClassMetrics,
    ComparedMetrics,
    M,
    MetricsDocument,
    RunMetrics,
    ScoreIntervals,
    ValueMetrics,
)
from eopipe.reporting.charts import Series, line_chart
from eopipe.reporting.figures import FAINT, ONE, TWO
from eopipe.reporting.palette import ValueScale
from eopipe.reporting.verdict import NamedMeasures, seeds_text
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
    format_value,
    plural,
)
from eopipe.tasks import HAVE_UNIT, LOWER_IS_BETTER, TASKS
from eopipe.tasks.task import ClassMeasure, Measure

MAX_POINTS = 200


def measures_of(task: str) -> NamedMeasures:
    """The keys of the scores and their names."""
    return tuple((score.key, score.title) for score in TASKS[task].scores)


MEASURES, LABEL_MEASURES, VALUE_MEASURES = map(measures_of, ("segmentation", "multilabel", "regression"))
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
class TableRow:
    """A row: its name, a note below the name, its cells."""

    name: str
    note: str
    cells: list[TableCell]


def named_methods(metrics: ComparedMetrics[M], simple: str, note: str) -> list[tuple[str, str, M]]:
    """Name, note and scores of the model, of the baselines, and of the simple baseline."""
    others = [(BASELINES[key].capitalize(), scores.method, scores) for key, scores in metrics.baselines.items()]
    return [("This model", "", metrics.model), *others, (simple, note, metrics.simple)]


def method_rows(metrics: ClassMetrics) -> list[TableRow]:
    """Model, baselines and majority class, and the gains; the best of each measure is highlighted."""
    methods = named_methods(metrics, "Majority class", f"always predicts “{metrics.simple.name}”")
    return compared_rows(metrics, methods, MEASURES)


def compared_rows(metrics: RunMetrics, methods: list[tuple[str, str, M]], measures: NamedMeasures) -> list[TableRow]:
    """Rows of scores from 0 to 1 of some methods, and the gains; the best of each measure is highlighted."""
    best = dict[Measure, float | None]()
    for key, _ in measures:
        known = [value for scores in metrics.methods.values() if (value := scores.score(key)) is not None]
        best[key] = (min if key in LOWER_IS_BETTER else max)(known, default=None)
    rows = [
        TableRow(name, note, [_score_cell(scores.score(key), best[key]) for key, _ in measures])
        for name, note, scores in methods
    ]
    return with_intervals(metrics, rows, measures)


def _score_cell(value: float | None, best: float | None) -> TableCell:
    is_best = value is not None and best is not None and round(value, 3) == round(best, 3)
    return TableCell(format_score(value), min(max(value or 0.0, 0.0), 1.0), is_best)


def with_intervals(metrics: RunMetrics, rows: list[TableRow], measures: NamedMeasures) -> list[TableRow]:
    """The model's row with an interval below each score, its members, and last its gains over baselines."""
    intervals = metrics.intervals
    unit = {key: metrics.unit if key in HAVE_UNIT else "" for key, _ in measures}
    cells = [
        replace(cell, note=format_interval(intervals.model.get(key), unit[key]))
        for cell, (key, _) in zip(rows[0].cells, measures, strict=True)
    ]
    gains = {
        BASELINES[baseline]: [
            TableCell(
                _gain_text(metrics.model.score(key), metrics.methods[baseline].score(key), unit[key]),
                share=None,
                note=format_difference(metrics.gains(baseline).get(key), unit[key]),
            )
            for key, _ in measures
        ]
        for baseline in metrics.compared
    }
    last = [TableRow(f"Model minus {name}", "", row) for name, row in gains.items()]
    return [replace(rows[0], cells=cells), *_member_summary(metrics, measures), *rows[1:], *last]


def member_spread(metrics: MetricsDocument, key: Measure) -> tuple[float | None, float | None]:
    """Mean and standard deviation (n - 1) of a score of an ensemble's members; None where they are undefined."""
    values = _defined([member.score for member in metrics.members], key)
    return _mean(values), _deviation(values)


def _member_summary(metrics: RunMetrics, measures: NamedMeasures) -> list[TableRow]:
    """The row of an ensemble's members; without members none."""
    if not metrics.members:
        return []
    spreads = [[_score_text(value, key, metrics) for value in member_spread(metrics, key)] for key, _ in measures]
    cells = [TableCell(mean, None, note=f"standard deviation {spread}" * (spread != DASH)) for mean, spread in spreads]
    note = f"mean of {plural(len(metrics.members), 'member')}; below it the standard deviation (n - 1)"
    return [TableRow("Members", note, cells)]


def _gain_text(score: float | None, baseline: float | None, unit: str) -> str:
    return DASH if score is None or baseline is None else format_gain(score - baseline, unit)


def no_interval_text(intervals: ScoreIntervals) -> str:
    """Why the scores of the model have no interval; the gains over the baselines may have one."""
    reason = intervals.reason or "the metrics contain none"
    return f"The scores of the model have no confidence interval: {reason}."


def interval_note(metrics: RunMetrics) -> str:
    """What the intervals of the table are, or why it has none, as sentences."""
    if not any(metrics.intervals.model.values()):
        return no_interval_text(metrics.intervals)
    level = f"Below a score is its confidence interval of {100 * metrics.intervals.level:.0f} %."
    return f"{level} {_width_text(metrics.intervals)}{seeds_text(metrics)}"


def _width_text(intervals: ScoreIntervals) -> str:
    """Why the intervals are as wide as they are, as a sentence; empty where it was not measured."""
    if (pieces := intervals.independent.get("model")) is None:
        return ""
    alike = f", since errors are alike over up to {intervals.range:.0f} pixels" if intervals.range else ""
    cure = "more test areas, far from each other, make the intervals narrower"
    return f"The test areas amount to about {pieces:.0f} independent pieces{alike}: {cure}. "


def scene_score_rows(metrics: RunMetrics) -> ScoreRows:
    """Heads and rows of the scores of each test scene, by date; no rows where places are split and not scenes."""
    measures = measures_of(metrics.task)
    rows = []
    for scene in metrics.scenes:
        texts = [_score_text(scene.scores.get(key), key, metrics) for key, _ in measures]
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
        rows.append(_summary_row(f"mean of the {BASELINES[key]}", _mean, of_folds, metrics))
    return heads, rows


def member_score_rows(metrics: MetricsDocument) -> ScoreRows:
    """The same of each member of an ensemble: the standard deviation is over trainings with other seeds."""
    scored = {f"member {number}": (member.score, member.count) for number, member in enumerate(metrics.members)}
    return _spread_rows("Member", scored, metrics)


def _spread_rows(head: str, scored: Mapping[str, tuple[ScoreOf, int]], metrics: MetricsDocument) -> ScoreRows:
    """Heads and rows by name of scores and their number of pixels or chips, with mean and standard deviation."""
    measures = measures_of(metrics.task)
    rows = [
        (name, *(_score_text(score(key), key, metrics) for key, _ in measures), format_count(count))
        for name, (score, count) in scored.items()
    ]
    for name, of in (("mean", _mean), ("standard deviation", _deviation)) if scored else ():
        rows.append(_summary_row(name, of, [score for score, _ in scored.values()], metrics))
    return (head, *(name for _, name in measures), f"Test {metrics.sample}s"), rows


def _summary_row(
    name: str, of: Callable[[list[float]], float | None], scored: Sequence[ScoreOf], metrics: MetricsDocument
) -> tuple[str, ...]:
    keys = [key for key, _ in measures_of(metrics.task)]
    return (name, *(_score_text(of(_defined(scored, key)), key, metrics) for key in keys), "")


def _defined(scored: Sequence[ScoreOf], key: Measure) -> list[float]:
    return [value for score in scored if (value := score(key)) is not None]


def _mean(values: list[float]) -> float | None:
    return fmean(values) if values else None


def _deviation(values: list[float]) -> float | None:
    return stdev(values) if len(values) > 1 else None


def _score_text(value: float | None, key: Measure, metrics: MetricsDocument) -> str:
    return format_value(value, metrics.unit) if key in HAVE_UNIT else format_score(value)


def confusion_rows(metrics: ClassMetrics) -> list[TableRow]:
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


def class_rows(metrics: ClassMetrics) -> list[TableRow]:
    """One row for each class: IoU of model and chosen baseline, precision, recall, F1 and pixels."""
    rows, chosen = [], metrics.baselines[metrics.chosen]
    for name in metrics.classes:
        model, baseline = metrics.model.per_class[name], chosen.per_class[name]
        best = max((iou for iou in (model.iou, baseline.iou) if iou is not None), default=None)
        cells = [_score_cell(model.iou, best), _score_cell(baseline.iou, best)]
        cells += [TableCell(format_score(value)) for value in (model.precision, model.recall, model.f1)]
        rows.append(TableRow(name, "", [*cells, TableCell(format_count(model.support))]))
    return rows


def training_charts(history: dict[str, Any]) -> list[Markup]:
    """Training loss and validation scores over the steps."""
    validations = history["validations"]
    # The second score selects the best weights: mIoU of pixels, macro F1 of chips.
    scores = _known_score(validations, "f1_micro", "accuracy"), _known_score(validations, "f1_macro", "miou")
    curves = [
        Series(title, color, _validation_curve(validations, key))
        for (key, title), color in zip(scores, (ONE, TWO), strict=True)
    ]
    return [*filter(None, [_loss_chart(history), _chart("Validation", "validation score", validations, curves)])]


def value_training_charts(history: dict[str, Any]) -> list[Markup]:
    """Training loss and validation RMSE over the steps."""
    validations = history["validations"]
    curves = [Series("RMSE", ONE, _validation_curve(validations, "rmse"))]
    return [*filter(None, [_loss_chart(history), _chart("Validation", "validation RMSE", validations, curves, 0.0)])]


def _chart(title: str, axis: str, validations: list[dict[str, Any]], curves: list[Series], *included: float) -> Markup:
    """Curves over the steps; from the first one where single steps are in the background."""
    numbers = [row["step"] for row in validations] or [1]
    first = 0 if any(curve.is_background for curve in curves) else min(numbers)
    alt = _curves_text(title, [curve for curve in curves if not curve.is_background])
    return line_chart(alt, ("step", axis), (first, max(numbers)), curves, *included)


def _known_score(validations: list[dict[str, Any]], key: Measure, otherwise: Measure) -> tuple[str, str]:
    """Key and name of a score, or of another one where no validation has the first."""
    chosen = key if any(key in (row["val"] or {}) for row in validations) else otherwise
    return chosen, dict(MEASURES + LABEL_MEASURES)[chosen]


def _loss_chart(history: dict[str, Any]) -> Markup:
    """Loss of the steps between validations, behind it the loss of single steps where it was recorded."""
    validations, steps = history["validations"], step_losses(history["steps"])
    loss = Series("mean since the last", ONE, _validated_curve(validations, lambda row: row["loss"]))
    background = [Series("steps", FAINT, steps, is_background=True)] if steps and validations else []
    return _chart("Training loss", "training loss", validations, [*background, loss], 0.0)


def step_losses(events: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Losses over the steps as (step, mean of neighbouring steps), at most `MAX_POINTS`."""
    losses = [(e["step"], e["loss"]) for e in events if e["event"] == "step" and e["loss"] is not None]
    size = math.ceil(len(losses) / MAX_POINTS)
    groups = [losses[start : start + size] for start in range(0, len(losses), size or 1)]
    return [
        (sum(step for step, _ in group) / len(group), sum(loss for _, loss in group) / len(group)) for group in groups
    ]


def _validation_curve(validations: list[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    return _validated_curve(validations, lambda row: (row["val"] or {}).get(key))


def _validated_curve(
    validations: list[dict[str, Any]], value: Callable[[dict[str, Any]], float | None]
) -> list[tuple[float, float]]:
    """Points (step, value) where the value is known and finite."""
    points = [(float(row["step"]), value(row)) for row in validations]
    return [(step, float(y)) for step, y in points if y is not None and math.isfinite(y)]


def _curves_text(title: str, curves: list[Series]) -> str:
    """The curves of a chart as text: first and last value of each."""
    ends = [
        f"{curve.name} from {curve.points[0][1]:.3f} (step {curve.points[0][0]:g}) "
        f"to {curve.points[-1][1]:.3f} (step {curve.points[-1][0]:g})"
        for curve in curves
        if curve.points
    ]
    return f"{title}: {'; '.join(ends)}"


def best_validation(history: dict[str, Any]) -> str:
    """The step with the highest mIoU, or macro F1 of chips, in the validation areas, as a sentence."""
    key, title = _known_score(history["validations"], "f1_macro", "miou")
    validated = [row for row in history["validations"] if row["val"] and row["val"][key] is not None]
    if not validated:
        return ""
    best = max(validated, key=lambda row: row["val"][key])
    return f"Highest {title} in the validation areas: {format_score(best['val'][key])} {_place_in(history, best)}."


def best_value_validation(history: dict[str, Any], unit: str) -> str:
    """The step with the lowest RMSE in the validation areas, as a sentence."""
    validated = [row for row in history["validations"] if row["val"] and row["val"].get("rmse") is not None]
    if not validated:
        return ""
    best = min(validated, key=lambda row: row["val"]["rmse"])
    score = format_value(best["val"]["rmse"], unit)
    return f"Lowest RMSE in the validation areas: {score} {_place_in(history, best)}."


def _place_in(history: dict[str, Any], row: dict[str, Any]) -> str:
    last = history["validations"][-1]["step"]
    return f"after step {row['step']} of {last}" if last > 1 else "after its fit"


def scale_of(metrics: RunMetrics) -> ValueScale | None:
    """The colour scale of a map of values; None for a map of classes."""
    if not isinstance(metrics, ValueMetrics):
        return None
    low, high = metrics.range
    return ValueScale(low, high, metrics.unit)


def value_method_rows(metrics: ValueMetrics) -> list[TableRow]:
    """Model, baselines and mean of the labels, and the gains; the best of each measure is highlighted."""
    unit, scale = metrics.unit, metrics.model.rmse or 0.0
    methods = named_methods(
        metrics, "Mean of the labels", f"always predicts {format_value(metrics.simple.value, unit)}"
    )
    best = {
        key: min(_distance_to_perfect(key, scores.score(key)) for _, _, scores in methods) for key, _ in VALUE_MEASURES
    }
    rows = [
        TableRow(name, note, [_value_cell(key, scores.score(key), best[key], unit, scale) for key, _ in VALUE_MEASURES])
        for name, note, scores in methods
    ]
    return with_intervals(metrics, rows, VALUE_MEASURES)


def _distance_to_perfect(key: Measure, value: float | None) -> float:
    if value is None:
        return math.inf
    return 1 - value if key == "r2" else abs(value)


def _value_cell(key: Measure, value: float | None, best: float, unit: str, scale: float) -> TableCell:
    is_best = value is not None and _distance_to_perfect(key, value) == best
    if key == "r2":
        return TableCell(format_score(value), max(value or 0.0, 0.0), is_best)
    return TableCell(format_measured(value, unit, scale), None, is_best)
