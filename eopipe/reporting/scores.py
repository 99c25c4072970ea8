"""The scores as rows: methods, confusion, classes, and the curves of the training."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from markupsafe import Markup

from eopipe.reporting.charts import Series, line_chart
from eopipe.reporting.figures import FAINT, ONE, TWO
from eopipe.reporting.palette import ValueScale
from eopipe.reporting.wording import DASH, THIN_SPACE, count, counted, listed, percent, plural, score, tested

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


BETTER, WORSE, SLIGHTLY = "better than", "worse than", "slightly"
# A difference below one point in both measures is called slight.
LITTLE = 0.01


@dataclass(frozen=True)
class Verdict:
    """What the scores come to: the tone picks a colour and a mark, head and text say it."""

    tone: Literal["good", "mixed", "bad"]
    head: str
    text: str


def verdict(metrics: dict[str, Any]) -> Verdict:
    """Compare the model with both baselines, on accuracy and mIoU as they are shown (three digits)."""
    model = metrics["model"]
    if model["accuracy"] is None:
        return Verdict(
            "mixed",
            "The model could not be scored.",
            f"No {counted(metrics)} of the test places has both label and map.",
        )
    rivals = {
        "the per-pixel baseline": metrics["pixel_baseline"],
        f"always answering “{metrics['majority']['class']}”": metrics["majority"],
    }
    found = {name: _compare(model, rival) for name, rival in rivals.items()}
    tone: Literal["good", "mixed", "bad"] = "mixed"
    if any(kind.endswith("worse than") and " but " not in kind for kind in found.values()):
        tone = "bad"
    elif all(kind in (BETTER, f"{SLIGHTLY} {BETTER}") for kind in found.values()):
        tone = "good"
    return Verdict(tone, _head(found), _text(metrics, rivals))


def _compare(model: dict[str, Any], rival: dict[str, Any]) -> str:
    """How the model stands against a rival, in words that lead up to the rival's name."""
    accuracy, miou = (_gain(model[measure], rival[measure]) for measure in ("accuracy", "miou"))
    much = "" if max(abs(accuracy), abs(miou)) >= LITTLE else f"{SLIGHTLY} "
    if accuracy == miou == 0:
        return "no better than"
    if min(accuracy, miou) >= 0:
        return much + BETTER
    if max(accuracy, miou) <= 0:
        return much + WORSE
    return (
        f"better in {'accuracy' if accuracy > 0 else 'mIoU'} but worse in {'mIoU' if accuracy > 0 else 'accuracy'} than"
    )


def _gain(mine: float | None, other: float | None) -> float:
    return 0.0 if mine is None or other is None else round(round(mine, 3) - round(other, 3), 3)


def _head(found: dict[str, str]) -> str:
    if set(found.values()) == {BETTER}:
        return "The model is better than both baselines."
    order = sorted(set(found.values()), key=lambda kind: ("worse" not in kind, kind == BETTER, kind))
    parts = [f"{kind} {' and '.join(name for name in found if found[name] == kind)}" for kind in order]
    opposed = any("worse" in kind for kind in order) and order[-1].endswith(BETTER)
    return f"The model is {(', but ' if opposed else ', and ').join(parts)}."


def _text(metrics: dict[str, Any], rivals: dict[str, dict[str, Any]]) -> str:
    model = metrics["model"]
    others = [f"{name} for {_right(rival)}" for name, rival in rivals.items()]
    said = f"On {tested(metrics)} in places it never saw, the model is right for {_right(model)}; {listed(others)}."
    return said + _saved(model["accuracy"], metrics["pixel_baseline"]["accuracy"])


def _right(scores: dict[str, Any]) -> str:
    return f"{percent(scores['accuracy'])} (mIoU {score(scores['miou'])})"


def _saved(mine: float, other: float | None) -> str:
    """How many errors of the per-pixel baseline the model saves or adds."""
    if other is None or round(other, 3) >= 1 or round(mine, 3) == round(other, 3):
        return ""
    ratio = (1 - mine) / (1 - other)
    if ratio > 2:
        return f" It makes {ratio:.1f} times as many errors as the per-pixel baseline."
    share = f"{100 * abs(ratio - 1):.0f}{THIN_SPACE}%"
    return f" It makes {share} {'more' if ratio > 1 else 'fewer'} errors than the per-pixel baseline."


VALUE_MEASURES = (("rmse", "RMSE"), ("mae", "MAE"), ("bias", "Bias"), ("r2", "R²"))


def scale_of(metrics: dict[str, Any]) -> ValueScale | None:
    """The scale of a run that maps values; None for one of classes."""
    if metrics.get("task") != "regression":
        return None
    low, high = metrics["range"]
    return ValueScale(low, high, metrics["unit"])


def amount(value: float | None, unit: str) -> str:
    """Write a value with four digits that count, and its unit."""
    return DASH if value is None else f"{value:.4g} {unit}".strip()


def value_method_lines(metrics: dict[str, Any]) -> list[Line]:
    """Model, per-pixel baseline and mean; the best of each measure stands out."""
    unit = metrics["unit"]
    methods = {
        "This model": ("", metrics["model"]),
        "Per-pixel baseline": (metrics["pixel_baseline"]["method"], metrics["pixel_baseline"]),
        "Mean of the labels": (f"always answers {amount(metrics['mean']['value'], unit)}", metrics["mean"]),
    }
    best = {key: min((_miss(key, s[key]) for _, s in methods.values()), default=0.0) for key, _ in VALUE_MEASURES}
    return [
        Line(name, note, [_value_cell(key, scores[key], best[key], unit) for key, _ in VALUE_MEASURES])
        for name, (note, scores) in methods.items()
    ]


def _miss(key: str, value: float | None) -> float:
    """How far a score is from perfect."""
    if value is None:
        return float("inf")
    return 1 - value if key == "r2" else abs(value)


def _value_cell(key: str, value: float | None, best: float, unit: str) -> Cell:
    share = max(value or 0.0, 0.0) if key == "r2" else 0.0
    told = amount(value, "" if key == "r2" else unit)
    return Cell(told, share, strong=value is not None and _miss(key, value) == best)


def value_verdict(metrics: dict[str, Any]) -> Verdict:
    """Compare the RMSE of the model with that of both baselines."""
    mine, unit = metrics["model"]["rmse"], metrics["unit"]
    if mine is None:
        return Verdict("mixed", "The model could not be scored.", "No pixel of the test places has both label and map.")
    rivals = {"the per-pixel baseline": "pixel_baseline", "the mean of the labels": "mean"}
    against = {name: metrics[key]["rmse"] for name, key in rivals.items()}
    found = {name: "better than" if mine < theirs else "worse than" for name, theirs in against.items()}
    better = [name for name, kind in found.items() if kind == "better than"]
    worse = [name for name in found if name not in better]
    parts = [f"worse than {' and '.join(worse)}"] * bool(worse) + [f"better than {' and '.join(better)}"] * bool(better)
    told = "better than both baselines" if not worse else ", but ".join(parts)
    others = listed([f"{name} by {amount(value, unit)}" for name, value in against.items()])
    text = (
        f"On {tested(metrics)} in places it never saw, the model is off by "
        f"{amount(mine, unit)} (root mean square); {others}."
    )
    return Verdict("good" if not worse else "bad", f"The model is {told}.", text)


def value_training_charts(history: dict[str, Any]) -> list[Markup]:
    """Loss, and the RMSE on the validation places, over the epochs."""
    epochs = history["epochs"]
    rmse = [Series("RMSE", ONE, points(epochs, partial(_of_val, "rmse")))]
    words = said("Validation", rmse)
    charts = [loss_chart(history), line_chart(words, ("epoch", "validation RMSE"), span(epochs), rmse, 0.0)]
    return [chart for chart in charts if chart]


def _of_val(name: str, row: dict[str, Any]) -> Any:
    return (row["val"] or {}).get(name)


def value_best_epoch(history: dict[str, Any], unit: str) -> str:
    """Say which epoch has the lowest RMSE on the validation places."""
    known = [row for row in history["epochs"] if _of_val("rmse", row) is not None]
    if not known:
        return ""
    best = min(known, key=lambda row: row["val"]["rmse"])
    reached = f"{amount(best['val']['rmse'], unit)} in epoch {best['epoch']} of {len(history['epochs'])}"
    return f"Lowest RMSE on the validation places: {reached}."


def value_headline(metrics: dict[str, Any]) -> str:
    """The scores on one line, for the map."""
    unit = metrics["unit"]
    mine, baseline, mean = (metrics[name]["rmse"] for name in ("model", "pixel_baseline", "mean"))
    others = f"per-pixel baseline {amount(baseline, unit)}, mean of the labels {amount(mean, unit)}"
    return f"RMSE {amount(mine, unit)} on the test pixels ({others})"
