"""Scores as tables, curves and a verdict: of maps of classes, and of maps of continuous values (`value_...`)."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from markupsafe import Markup

from eopipe.reporting.charts import Series, line_chart
from eopipe.reporting.figures import FAINT, ONE, TWO
from eopipe.reporting.palette import ValueScale
from eopipe.reporting.wording import (
    THIN_SPACE,
    format_count,
    format_percent,
    format_score,
    format_value,
    join_words,
    plural,
    scored_size,
    scored_unit,
)

MAX_POINTS = 200
MEASURES = (("accuracy", "Accuracy"), ("miou", "mIoU"), ("f1_macro", "Macro F1"), ("kappa", "Kappa"))
VALUE_MEASURES = (("rmse", "RMSE"), ("mae", "MAE"), ("bias", "Bias"), ("r2", "R²"))
BETTER, WORSE, SLIGHTLY = "better than", "worse than", "slightly"
# A difference below one point in both measures is called slight.
SLIGHT_DIFFERENCE = 0.01


@dataclass(frozen=True)
class TableCell:
    """A number as text, its share of 1 for a bar or a shade, whether it is highlighted, and a note below it."""

    text: str
    share: float = 0.0
    is_highlighted: bool = False
    note: str = ""


@dataclass(frozen=True)
class TableRow:
    """A row: its name, a note below the name, its cells."""

    name: str
    note: str
    cells: list[TableCell]


@dataclass(frozen=True)
class Verdict:
    """What the scores amount to, as a headline and a sentence; the tone selects a colour."""

    tone: Literal["good", "mixed", "bad"]
    headline: str
    text: str


def measures_of(metrics: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The keys of the scores and their names."""
    return VALUE_MEASURES if metrics.get("task") == "regression" else MEASURES


def method_rows(metrics: dict[str, Any]) -> list[TableRow]:
    """Model, per-pixel baseline and majority class; the best of each measure is highlighted."""
    methods = {
        "This model": ("", metrics["model"]),
        "Per-pixel baseline": (metrics["pixel_baseline"]["method"], metrics["pixel_baseline"]),
        "Majority class": (f"always predicts “{metrics['majority']['class']}”", metrics["majority"]),
    }
    best = {key: max((s[key] for _, s in methods.values() if s[key] is not None), default=None) for key, _ in MEASURES}
    return [
        TableRow(name, note, [_score_cell(scores[key], best[key]) for key, _ in MEASURES])
        for name, (note, scores) in methods.items()
    ]


def _score_cell(value: float | None, best: float | None) -> TableCell:
    is_best = value is not None and best is not None and round(value, 3) == round(best, 3)
    return TableCell(format_score(value), min(max(value or 0.0, 0.0), 1.0), is_best)


def confusion_rows(metrics: dict[str, Any]) -> list[TableRow]:
    """One row for each class of the labels: share and count of each predicted class; the diagonal is highlighted."""
    unit, matrix = scored_unit(metrics), metrics["model"]["confusion"]
    return [
        TableRow(name, plural(sum(row), unit), [_confusion_cell(row, n, n == number) for n in range(len(row))])
        for number, (name, row) in enumerate(zip(metrics["classes"], matrix, strict=True))
    ]


def _confusion_cell(row: list[int], column: int, is_correct: bool) -> TableCell:
    total = sum(row)
    share = row[column] / total if total else None
    return TableCell(format_percent(share), share or 0.0, is_correct, format_count(row[column]))


def class_rows(metrics: dict[str, Any]) -> list[TableRow]:
    """One row for each class: IoU of model and per-pixel baseline, precision, recall, F1 and pixels."""
    rows = []
    for name in metrics["classes"]:
        model, baseline = metrics["model"]["per_class"][name], metrics["pixel_baseline"]["per_class"][name]
        best = max((iou for iou in (model["iou"], baseline["iou"]) if iou is not None), default=None)
        cells = [_score_cell(model["iou"], best), _score_cell(baseline["iou"], best)]
        cells += [TableCell(format_score(model[key])) for key in ("precision", "recall", "f1")]
        rows.append(TableRow(name, "", [*cells, TableCell(format_count(model["pixels"]))]))
    return rows


def class_balance(split: dict[str, Any], colors: tuple[str, ...]) -> list[tuple[str, list[tuple[str, str, float]]]]:
    """One bar for each split: class, its colour and its share of the labelled pixels."""
    bars = []
    for name, title in (("train", "Train"), ("val", "Validation"), ("test", "Test")):
        pixels = split["pixels"][name]
        total = max(sum(pixels.values()), 1)
        parts = [(c, color, pixels[c] / total) for c, color in zip(split["classes"], colors, strict=True)]
        bars.append((title, parts))
    return bars


def training_charts(history: dict[str, Any]) -> list[Markup]:
    """Training loss and validation scores over the epochs."""
    epochs = history["epochs"]
    curves = [
        Series(title, color, _validation_curve(epochs, key))
        for (key, title), color in zip([MEASURES[0], _selection_score(epochs)], (ONE, TWO), strict=True)
    ]
    return [*filter(None, [_loss_chart(history), _chart("Validation", "validation score", epochs, curves)])]


def value_training_charts(history: dict[str, Any]) -> list[Markup]:
    """Training loss and validation RMSE over the epochs."""
    epochs = history["epochs"]
    curves = [Series("RMSE", ONE, _validation_curve(epochs, "rmse"))]
    return [*filter(None, [_loss_chart(history), _chart("Validation", "validation RMSE", epochs, curves, 0.0)])]


def _chart(title: str, axis: str, epochs: list[dict[str, Any]], curves: list[Series], *included: float) -> Markup:
    """Curves over the epochs; from the first step where single steps are in the background."""
    numbers = [row["epoch"] for row in epochs] or [1]
    first = 0 if any(curve.is_background for curve in curves) else min(numbers)
    alt = _curves_text(title, [curve for curve in curves if not curve.is_background])
    return line_chart(alt, ("epoch", axis), (first, max(numbers)), curves, *included)


def _selection_score(epochs: list[dict[str, Any]]) -> tuple[str, str]:
    """Key and name of the score that selects the best epoch: mIoU of pixels, macro F1 of chips."""
    is_chipwise = any("f1_macro" in (row["val"] or {}) for row in epochs)
    return MEASURES[2] if is_chipwise else MEASURES[1]


def _loss_chart(history: dict[str, Any]) -> Markup:
    """Loss over the epochs, behind it that of single steps where it was recorded; empty without epochs."""
    epochs, steps = history["epochs"], step_losses(history["steps"])
    loss = Series("mean of the epoch", ONE, _epoch_curve(epochs, lambda row: row["loss"]))
    background = [Series("steps", FAINT, steps, is_background=True)] if steps and epochs else []
    return _chart("Training loss", "training loss", epochs, [*background, loss], 0.0)


def step_losses(events: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Losses over the epochs as (epochs so far, mean of neighbouring steps), at most `MAX_POINTS`."""
    losses = [(e["step"], e["loss"]) for e in events if e["event"] == "step" and e["loss"] is not None]
    steps_per_epoch = next((e["step"] / e["epoch"] for e in events if e["event"] == "epoch"), 0)
    if not steps_per_epoch:
        return []
    size = math.ceil(len(losses) / MAX_POINTS)
    groups = [losses[start : start + size] for start in range(0, len(losses), size or 1)]
    return [
        (sum(step for step, _ in group) / len(group) / steps_per_epoch, sum(loss for _, loss in group) / len(group))
        for group in groups
    ]


def _validation_curve(epochs: list[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    return _epoch_curve(epochs, lambda row: (row["val"] or {}).get(key))


def _epoch_curve(
    epochs: list[dict[str, Any]], value: Callable[[dict[str, Any]], float | None]
) -> list[tuple[float, float]]:
    """Points (epoch, value) where the value is known and finite."""
    points = [(float(row["epoch"]), value(row)) for row in epochs]
    return [(epoch, float(y)) for epoch, y in points if y is not None and math.isfinite(y)]


def _curves_text(title: str, curves: list[Series]) -> str:
    """The curves of a chart as text: first and last value of each."""
    ends = [
        f"{curve.name} from {curve.points[0][1]:.3f} (epoch {curve.points[0][0]:g}) "
        f"to {curve.points[-1][1]:.3f} (epoch {curve.points[-1][0]:g})"
        for curve in curves
        if curve.points
    ]
    return f"{title}: {'; '.join(ends)}"


def best_epoch(history: dict[str, Any]) -> str:
    """The epoch with the highest mIoU, or macro F1 of chips, in the validation areas, as a sentence."""
    key, title = _selection_score(history["epochs"])
    validated = [row for row in history["epochs"] if row["val"] and row["val"][key] is not None]
    if not validated:
        return ""
    best = max(validated, key=lambda row: row["val"][key])
    score = format_score(best["val"][key])
    return f"Highest {title} in the validation areas: {score} in epoch {best['epoch']} of {len(history['epochs'])}."


def value_best_epoch(history: dict[str, Any], unit: str) -> str:
    """The epoch with the lowest RMSE in the validation areas, as a sentence."""
    validated = [row for row in history["epochs"] if row["val"] and row["val"].get("rmse") is not None]
    if not validated:
        return ""
    best = min(validated, key=lambda row: row["val"]["rmse"])
    score = format_value(best["val"]["rmse"], unit)
    return f"Lowest RMSE in the validation areas: {score} in epoch {best['epoch']} of {len(history['epochs'])}."


def verdict(metrics: dict[str, Any]) -> Verdict:
    """Compare the model with both baselines, on accuracy and mIoU as they are printed (three digits)."""
    model = metrics["model"]
    if model["accuracy"] is None:
        return _unscored(scored_unit(metrics))
    baselines = {
        "the per-pixel baseline": metrics["pixel_baseline"],
        f"always predicting “{metrics['majority']['class']}”": metrics["majority"],
    }
    comparisons = {name: _compare(model, scores) for name, scores in baselines.items()}
    tone: Literal["good", "mixed", "bad"] = "mixed"
    if any(text.endswith("worse than") and " but " not in text for text in comparisons.values()):
        tone = "bad"
    elif all(text in (BETTER, f"{SLIGHTLY} {BETTER}") for text in comparisons.values()):
        tone = "good"
    return Verdict(tone, _verdict_headline(comparisons), _verdict_text(metrics, baselines))


def _unscored(unit: str) -> Verdict:
    return Verdict(
        "mixed",
        "The model could not be scored.",
        f"Not one {unit} of the test areas has both a label and a prediction.",
    )


def _compare(model: dict[str, Any], baseline: dict[str, Any]) -> str:
    """How the model compares with a baseline, as text that ends before the name of the baseline."""
    accuracy, miou = (_gain(model[measure], baseline[measure]) for measure in ("accuracy", "miou"))
    degree = "" if max(abs(accuracy), abs(miou)) >= SLIGHT_DIFFERENCE else f"{SLIGHTLY} "
    if accuracy == miou == 0:
        return "no better than"
    if min(accuracy, miou) >= 0:
        return degree + BETTER
    if max(accuracy, miou) <= 0:
        return degree + WORSE
    better, worse = ("accuracy", "mIoU") if accuracy > 0 else ("mIoU", "accuracy")
    return f"better in {better} but worse in {worse} than"


def _gain(score: float | None, baseline: float | None) -> float:
    return 0.0 if score is None or baseline is None else round(round(score, 3) - round(baseline, 3), 3)


def _verdict_headline(comparisons: dict[str, str]) -> str:
    if set(comparisons.values()) == {BETTER}:
        return "The model is better than both baselines."
    order = sorted(set(comparisons.values()), key=lambda text: ("worse" not in text, text == BETTER, text))
    parts = [f"{text} {' and '.join(name for name in comparisons if comparisons[name] == text)}" for text in order]
    is_contrast = any("worse" in text for text in order) and order[-1].endswith(BETTER)
    return f"The model is {(', but ' if is_contrast else ', and ').join(parts)}."


def _verdict_text(metrics: dict[str, Any], baselines: dict[str, dict[str, Any]]) -> str:
    model = metrics["model"]
    others = join_words([f"{name} for {_accuracy_text(scores)}" for name, scores in baselines.items()])
    return (
        f"On {scored_size(metrics)} outside of the training areas, the model is correct for {_accuracy_text(model)}; "
        f"{others}.{_error_ratio(model['accuracy'], metrics['pixel_baseline']['accuracy'])}"
    )


def _accuracy_text(scores: dict[str, Any]) -> str:
    return f"{format_percent(scores['accuracy'])} (mIoU {format_score(scores['miou'])})"


def _error_ratio(accuracy: float, baseline: float | None) -> str:
    """How many more or fewer errors than the per-pixel baseline, as a sentence."""
    if baseline is None or round(baseline, 3) >= 1 or round(accuracy, 3) == round(baseline, 3):
        return ""
    ratio = (1 - accuracy) / (1 - baseline)
    if ratio > 2:
        return f" It makes {ratio:.1f} times as many errors as the per-pixel baseline."
    share = f"{100 * abs(ratio - 1):.0f}{THIN_SPACE}%"
    return f" It makes {share} {'more' if ratio > 1 else 'fewer'} errors than the per-pixel baseline."


def headline(metrics: dict[str, Any]) -> str:
    """The scores on one line, for the map."""
    model, baseline, majority = (metrics[name] for name in ("model", "pixel_baseline", "majority"))
    accuracy = f"{format_percent(model['accuracy'])} of the test {scored_unit(metrics)}s correct"
    others = (format_percent(scores["accuracy"]) for scores in (baseline, majority))
    return f"{accuracy}, mIoU {format_score(model['miou'])} (per-pixel baseline {', majority class '.join(others)})"


def value_headline(metrics: dict[str, Any]) -> str:
    """The scores on one line, for the map of values."""
    model, baseline, mean = (
        format_value(metrics[name]["rmse"], metrics["unit"]) for name in ("model", "pixel_baseline", "mean")
    )
    return f"RMSE {model} on the test pixels (per-pixel baseline {baseline}, mean of the labels {mean})"


def scale_of(metrics: dict[str, Any]) -> ValueScale | None:
    """The colour scale of a map of values; None for a map of classes."""
    if metrics.get("task") != "regression":
        return None
    low, high = metrics["range"]
    return ValueScale(low, high, metrics["unit"])


def value_method_rows(metrics: dict[str, Any]) -> list[TableRow]:
    """Model, per-pixel baseline and mean of the labels; the best of each measure is highlighted."""
    unit = metrics["unit"]
    methods = {
        "This model": ("", metrics["model"]),
        "Per-pixel baseline": (metrics["pixel_baseline"]["method"], metrics["pixel_baseline"]),
        "Mean of the labels": (f"always predicts {format_value(metrics['mean']['value'], unit)}", metrics["mean"]),
    }
    best = {key: min(_distance_to_perfect(key, s[key]) for _, s in methods.values()) for key, _ in VALUE_MEASURES}
    return [
        TableRow(name, note, [_value_cell(key, scores[key], best[key], unit) for key, _ in VALUE_MEASURES])
        for name, (note, scores) in methods.items()
    ]


def _distance_to_perfect(key: str, value: float | None) -> float:
    if value is None:
        return math.inf
    return 1 - value if key == "r2" else abs(value)


def _value_cell(key: str, value: float | None, best: float, unit: str) -> TableCell:
    share = max(value or 0.0, 0.0) if key == "r2" else 0.0
    is_best = value is not None and _distance_to_perfect(key, value) == best
    return TableCell(format_value(value, "" if key == "r2" else unit), share, is_best)


def value_verdict(metrics: dict[str, Any]) -> Verdict:
    """Compare the RMSE of the model with that of both baselines."""
    model, unit = metrics["model"]["rmse"], metrics["unit"]
    if model is None:
        return _unscored("pixel")
    keys = {"the per-pixel baseline": "pixel_baseline", "the mean of the labels": "mean"}
    baselines = {name: metrics[key]["rmse"] for name, key in keys.items()}
    better = [name for name, rmse in baselines.items() if model < rmse]
    worse = [name for name in baselines if name not in better]
    parts = [f"{WORSE} {' and '.join(worse)}"] * bool(worse) + [f"{BETTER} {' and '.join(better)}"] * bool(better)
    comparison = f"{BETTER} both baselines" if not worse else ", but ".join(parts)
    others = join_words([f"of {name} {format_value(rmse, unit)}" for name, rmse in baselines.items()])
    text = (
        f"On {scored_size(metrics)} outside of the training areas, the root mean square error of the model is "
        f"{format_value(model, unit)}; {others}."
    )
    return Verdict("good" if not worse else "bad", f"The model is {comparison}.", text)
