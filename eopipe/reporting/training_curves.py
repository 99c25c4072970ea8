"""Curves of a training over its steps, and its best validation."""

import math
from typing import Any

from markupsafe import Markup

from eopipe.reporting.charts import Series, line_chart
from eopipe.reporting.figures import FAINT, ONE, TWO
from eopipe.reporting.wording import format_score, format_value
from eopipe.tasks import TASKS
from eopipe.tasks.task import NamedScore

MAX_POINTS = 200


def training_charts(history: dict[str, Any], task: str) -> list[Markup]:
    """Training loss and validation scores over the steps."""
    validations = history["validations"]
    scores = _validated_scores(validations, task)
    named = zip(scores, (ONE, TWO), strict=False)
    curves = [Series(score.title, color, _curve(validations, score.key)) for score, color in named]
    axis, ends = ("validation RMSE", (0.0,)) if scores[0].has_unit else ("validation score", ())
    return [*filter(None, [_loss_chart(history), _chart("Validation", axis, validations, curves, *ends)])]


def _chart(title: str, axis: str, validations: list[dict[str, Any]], curves: list[Series], *included: float) -> Markup:
    """Curves over the steps; from the first one where single steps are in the background."""
    numbers = [row["step"] for row in validations] or [1]
    first = 0 if any(curve.is_background for curve in curves) else min(numbers)
    alt = _curves_text(title, [curve for curve in curves if not curve.is_background])
    return line_chart(alt, ("step", axis), (first, max(numbers)), curves, *included)


def _validated_scores(validations: list[dict[str, Any]], task: str) -> list[NamedScore]:
    """The scores of validations that are shown; the last one selects the best weights."""
    known = {key for row in validations for key in row["val"] or ()}
    named: dict[str, NamedScore] = {score.key: score for score in TASKS[task].scores}
    pairs = (("rmse", ""),) if "rmse" in named else (("f1_micro", "accuracy"), ("f1_macro", "miou"))
    return [named[key if key in known or other not in named else other] for key, other in pairs]


def _loss_chart(history: dict[str, Any]) -> Markup:
    """Loss of the steps between validations, behind it the loss of single steps where it was recorded."""
    validations, steps = history["validations"], step_losses(history["steps"])
    loss = Series("mean since the last", ONE, _curve(validations, "loss"))
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


def _curve(validations: list[dict[str, Any]], key: str) -> list[tuple[float, float]]:
    """Points (step, value) where a score, or the loss, is known and finite."""
    values = [row["loss"] if key == "loss" else (row["val"] or {}).get(key) for row in validations]
    points = zip((float(row["step"]) for row in validations), values, strict=True)
    return [(step, float(value)) for step, value in points if value is not None and math.isfinite(value)]


def _curves_text(title: str, curves: list[Series]) -> str:
    """The curves of a chart as text: first and last value of each."""
    ends = [
        f"{curve.name} from {curve.points[0][1]:.3f} (step {curve.points[0][0]:g}) "
        f"to {curve.points[-1][1]:.3f} (step {curve.points[-1][0]:g})"
        for curve in curves
        if curve.points
    ]
    return f"{title}: {'; '.join(ends)}"


def best_validation(history: dict[str, Any], task: str, unit: str = "") -> str:
    """The step with the best score in the validation areas, by the score that selects the weights, as a sentence."""
    *_, score = _validated_scores(history["validations"], task)
    validated = [row for row in history["validations"] if row["val"] and row["val"].get(score.key) is not None]
    if not validated:
        return ""
    best = min(validated, key=lambda row: score.distance(row["val"][score.key]))
    value, place = best["val"][score.key], _place_in(history, best)
    text = format_value(value, unit) if score.has_unit else format_score(value)
    return f"{'Lowest' if score.has_unit else 'Highest'} {score.title} in the validation areas: {text} {place}."


def _place_in(history: dict[str, Any], row: dict[str, Any]) -> str:
    last = history["validations"][-1]["step"]
    return f"after step {row['step']} of {last}" if last > 1 else "after its fit"
