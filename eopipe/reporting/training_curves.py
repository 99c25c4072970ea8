"""Curves of a training over its steps, and its best validation."""

import math
from collections.abc import Callable
from typing import Any

from markupsafe import Markup

from eopipe.reporting.charts import Series, line_chart
from eopipe.reporting.figures import FAINT, ONE, TWO
from eopipe.reporting.scores import measures_of
from eopipe.reporting.wording import format_score, format_value
from eopipe.tasks.task import Measure

MAX_POINTS = 200


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
    return chosen, dict(measures_of("segmentation") + measures_of("multilabel"))[chosen]


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
