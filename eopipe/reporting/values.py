"""A run that maps values: their colours, and their scores in words, rows and curves."""

from functools import partial
from typing import Any

from markupsafe import Markup

from eopipe.reporting.charts import Series, line_chart
from eopipe.reporting.figures import ONE
from eopipe.reporting.palette import ValueScale
from eopipe.reporting.scores import Cell, Line, loss_chart, points, said, span
from eopipe.reporting.wording import DASH, Verdict, listed, tested

MEASURES = (("rmse", "RMSE"), ("mae", "MAE"), ("bias", "Bias"), ("r2", "R²"))


def scale_of(metrics: dict[str, Any]) -> ValueScale | None:
    """The scale of a run that maps values; None for one of classes."""
    if metrics.get("task") != "regression":
        return None
    low, high = metrics["range"]
    return ValueScale(low, high, metrics["unit"])


def amount(value: float | None, unit: str) -> str:
    """Write a value with four digits that count, and its unit."""
    return DASH if value is None else f"{value:.4g} {unit}".strip()


def method_lines(metrics: dict[str, Any]) -> list[Line]:
    """Model, per-pixel baseline and mean; the best of each measure stands out."""
    unit = metrics["unit"]
    methods = {
        "This model": ("", metrics["model"]),
        "Per-pixel baseline": (metrics["pixel_baseline"]["method"], metrics["pixel_baseline"]),
        "Mean of the labels": (f"always answers {amount(metrics['mean']['value'], unit)}", metrics["mean"]),
    }
    best = {key: min((_miss(key, s[key]) for _, s in methods.values()), default=0.0) for key, _ in MEASURES}
    return [
        Line(name, note, [_cell(key, scores[key], best[key], unit) for key, _ in MEASURES])
        for name, (note, scores) in methods.items()
    ]


def _miss(key: str, value: float | None) -> float:
    """How far a score is from perfect."""
    if value is None:
        return float("inf")
    return 1 - value if key == "r2" else abs(value)


def _cell(key: str, value: float | None, best: float, unit: str) -> Cell:
    share = max(value or 0.0, 0.0) if key == "r2" else 0.0
    told = amount(value, "" if key == "r2" else unit)
    return Cell(told, share, strong=value is not None and _miss(key, value) == best)


def verdict(metrics: dict[str, Any]) -> Verdict:
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


def training_charts(history: dict[str, Any]) -> list[Markup]:
    """Loss, and the RMSE on the validation places, over the epochs."""
    epochs = history["epochs"]
    rmse = [Series("RMSE", ONE, points(epochs, partial(_of_val, "rmse")))]
    words = said("Validation", rmse)
    charts = [loss_chart(history), line_chart(words, ("epoch", "validation RMSE"), span(epochs), rmse, 0.0)]
    return [chart for chart in charts if chart]


def _of_val(name: str, row: dict[str, Any]) -> Any:
    return (row["val"] or {}).get(name)


def best_epoch(history: dict[str, Any], unit: str) -> str:
    """Say which epoch has the lowest RMSE on the validation places."""
    known = [row for row in history["epochs"] if _of_val("rmse", row) is not None]
    if not known:
        return ""
    best = min(known, key=lambda row: row["val"]["rmse"])
    reached = f"{amount(best['val']['rmse'], unit)} in epoch {best['epoch']} of {len(history['epochs'])}"
    return f"Lowest RMSE on the validation places: {reached}."


def headline(metrics: dict[str, Any]) -> str:
    """The scores on one line, for the map."""
    unit = metrics["unit"]
    mine, baseline, mean = (metrics[name]["rmse"] for name in ("model", "pixel_baseline", "mean"))
    others = f"per-pixel baseline {amount(baseline, unit)}, mean of the labels {amount(mean, unit)}"
    return f"RMSE {amount(mine, unit)} on the test pixels ({others})"
