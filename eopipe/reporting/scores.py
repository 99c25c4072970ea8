"""The scores as rows: methods, confusion, classes, and the curves of the training."""

import math
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from eopipe.reporting.charts import Series, line_chart
from eopipe.reporting.figures import FAINT, ONE, TWO
from eopipe.reporting.wording import count, counted, percent, plural, score

MOST_POINTS = 200
MEASURES = (("accuracy", "Accuracy"), ("miou", "mIoU"), ("f1_macro", "Macro F1"), ("kappa", "Kappa"))


@dataclass(frozen=True)
class Cell:
    """A number in words, its share of 1 for a bar or a shade, and whether it stands out."""

    text: str
    share: float = 0.0
    strong: bool = False
    small: str = ""


@dataclass(frozen=True)
class Line:
    """A row: name, a note under it, cells."""

    name: str
    note: str
    cells: list[Cell]


def method_lines(metrics: dict[str, Any]) -> list[Line]:
    """Model, per-pixel baseline and majority class; the best of each measure stands out."""
    methods = {
        "This model": ("", metrics["model"]),
        "Per-pixel baseline": (metrics["pixel_baseline"]["method"], metrics["pixel_baseline"]),
        "Majority class": (f"always answers “{metrics['majority']['class']}”", metrics["majority"]),
    }
    best = {key: max((s[key] for _, s in methods.values() if s[key] is not None), default=None) for key, _ in MEASURES}
    return [
        Line(name, note, [_score(scores[key], best[key]) for key, _ in MEASURES])
        for name, (note, scores) in methods.items()
    ]


def _score(value: float | None, best: float | None) -> Cell:
    strong = value is not None and best is not None and round(value, 3) == round(best, 3)
    return Cell(score(value), min(max(value or 0.0, 0.0), 1.0), strong)


def confusion_lines(metrics: dict[str, Any]) -> list[Line]:
    """One row a true class: share and count of each class on the map; the diagonal stands out."""
    return [
        Line(name, plural(sum(row), counted(metrics)), [_confused(row, n, n == number) for n in range(len(row))])
        for number, (name, row) in enumerate(zip(metrics["classes"], metrics["model"]["confusion"], strict=True))
    ]


def _confused(row: list[int], column: int, right: bool) -> Cell:
    total = sum(row)
    share = row[column] / total if total else None
    return Cell(percent(share), share or 0.0, right, count(row[column]))


def class_lines(metrics: dict[str, Any]) -> list[Line]:
    """One row a class: IoU of the model, IoU of the per-pixel baseline, precision, recall, F1 and pixels."""
    rows = []
    for name in metrics["classes"]:
        mine, other = metrics["model"]["per_class"][name], metrics["pixel_baseline"]["per_class"][name]
        best = max((v for v in (mine["iou"], other["iou"]) if v is not None), default=None)
        cells = [_score(mine["iou"], best), _score(other["iou"], best)]
        cells += [Cell(score(mine[key])) for key in ("precision", "recall", "f1")]
        rows.append(Line(name, "", [*cells, Cell(count(mine["pixels"]))]))
    return rows


def balance(split: dict[str, Any], colors: tuple[str, ...]) -> list[tuple[str, list[tuple[str, str, float]]]]:
    """One bar a split: class, its colour and its share of the labelled pixels."""
    bars = []
    for name, title in (("train", "Train"), ("val", "Validation"), ("test", "Test")):
        pixels = split["pixels"][name]
        total = max(sum(pixels.values()), 1)
        parts = [(c, color, pixels[c] / total) for c, color in zip(split["classes"], colors, strict=True)]
        bars.append((title, parts))
    return bars


def training_charts(history: dict[str, Any]) -> list[Markup]:
    """Loss, and the scores on the validation places, over the epochs; the loss of single steps where it is known."""
    epochs = history["epochs"]
    scores = [
        Series(title, color, points(epochs, lambda row, key=key: (row["val"] or {}).get(key)))
        for (key, title), color in zip([MEASURES[0], _goal(epochs)], (ONE, TWO), strict=True)
    ]
    words = said("Validation", scores)
    charts = [loss_chart(history), line_chart(words, ("epoch", "validation score"), span(epochs), scores)]
    return [chart for chart in charts if chart]


def _goal(epochs: list[dict[str, Any]]) -> tuple[str, str]:
    """The score that training goes by, and its name: mIoU of pixels, macro F1 of chips."""
    chips = any("f1_macro" in (row["val"] or {}) for row in epochs)
    return MEASURES[2] if chips else MEASURES[1]


def loss_chart(history: dict[str, Any]) -> Markup:
    """Loss over the epochs, behind it that of single steps where it is known; empty without epochs."""
    epochs = history["epochs"]
    single = step_losses(history["steps"])
    loss = [Series("mean of the epoch", ONE, points(epochs, lambda row: row["loss"]))]
    begin, end = span(epochs)
    steps, begin = ([Series("steps", FAINT, single, is_background=True)], 0) if single and epochs else ([], begin)
    return line_chart(said("Training loss", loss), ("epoch", "training loss"), (begin, end), [*steps, *loss], 0.0)


def span(epochs: list[dict[str, Any]]) -> tuple[int, int]:
    """The first and the last epoch."""
    return (min((row["epoch"] for row in epochs), default=1), max((row["epoch"] for row in epochs), default=1))


def step_losses(events: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Losses over the epochs as (steps taken, in epochs; mean of neighbouring steps), at most `MOST_POINTS`."""
    losses = [(e["step"], e["loss"]) for e in events if e["event"] == "step" and e["loss"] is not None]
    long = next((e["step"] / e["epoch"] for e in events if e["event"] == "epoch"), 0)
    if not long:
        return []
    group = math.ceil(len(losses) / MOST_POINTS)
    groups = [losses[start : start + group] for start in range(0, len(losses), group or 1)]
    return [(sum(s for s, _ in g) / len(g) / long, sum(v for _, v in g) / len(g)) for g in groups]


def points(epochs: list[dict[str, Any]], value: Any) -> list[tuple[float, float]]:
    """A curve over the epochs, of a function of their rows, where it is known."""
    found = [(float(row["epoch"]), value(row)) for row in epochs]
    return [(x, float(y)) for x, y in found if y is not None and math.isfinite(y)]


def said(title: str, series: list[Series]) -> str:
    """Say a curve in words: where it starts and where it ends."""
    ends = [
        f"{line.name} from {line.points[0][1]:.3f} (epoch {line.points[0][0]:g}) "
        f"to {line.points[-1][1]:.3f} (epoch {line.points[-1][0]:g})"
        for line in series
        if line.points
    ]
    return f"{title}: {'; '.join(ends)}"


def best_epoch(history: dict[str, Any]) -> str:
    """Say which epoch has the best mIoU, or macro F1 of chips, on the validation places."""
    key, title = _goal(history["epochs"])
    known = [row for row in history["epochs"] if row["val"] and row["val"][key] is not None]
    if not known:
        return ""
    best = max(known, key=lambda row: row["val"][key])
    reached = f"{score(best['val'][key])} in epoch {best['epoch']} of {len(history['epochs'])}"
    return f"Best {title[0].lower() + title[1:] if title[0] == 'M' else title} on the validation places: {reached}."
