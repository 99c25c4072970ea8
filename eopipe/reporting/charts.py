"""Charts of the page as inline SVG: a training over its steps, reliability, histograms over the dates, errors."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from eopipe.arrays import FloatArray, IntArray
from eopipe.evaluation.metrics_document import ProbabilityScores
from eopipe.reporting.data_tables import BandHistograms, SceneSummary
from eopipe.reporting.figures import FAINT, INK, ONE, PAPER, TWO, figure_style, new_figure, save_svg
from eopipe.reporting.wording import score_text
from eopipe.tasks import TASKS
from eopipe.tasks.task import NamedScore

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# In inches; the page scales charts to its columns.
CHART, RIDGES_WIDTH = (4.6, 2.8), 3.6
RIDGE, OVERLAP, MAX_LABELS = 0.15, 2.4, 30
# Cells and bars of the charts of errors; a level of fewer pixels has no quantiles.
CELLS, BARS, ERROR_LEVELS, MIN_LEVEL_PIXELS = 48, 41, 10, 20
# The edges at the corners of a cell, the first one twice, as a closed path needs.
ACROSS, UP = np.array([(0, 1, 1, 0, 0), (0, 0, 1, 1, 0)])
# The standard error of an accuracy of fewer may be above 0.07.
MIN_BIN_SAMPLES = 50
# The curve of the losses of single steps has no more points.
MAX_POINTS = 200


@dataclass(frozen=True)
class Series:
    """One curve: its name, its colour, its points (x, y), and whether only the others are labelled with a value."""

    name: str
    color: str
    points: list[tuple[float, float]]
    is_background: bool = False


def draw_chart(alt: str, size: tuple[float, float], draw: Callable[["Axes"], None], *texts: str) -> Markup:
    """What a function draws on axes without a frame on top and at the right; `texts` are those from outside."""
    with figure_style(*texts, salt=alt):
        figure = new_figure(*size)
        figure.set_layout_engine("constrained")
        axes = figure.subplots()
        draw(axes)
        axes.spines[["top", "right"]].set_visible(False)
        return save_svg(figure, alt)


def training_charts(history: dict[str, Any], task: str) -> list[Markup]:
    """Training loss, behind it the loss of single steps where it was recorded, and validation scores over the steps."""
    validations, steps = history["validations"], step_losses(history["steps"])
    background = [Series("steps", FAINT, steps, is_background=True)] if steps and validations else []
    loss = Series("mean since the last", ONE, _curve(validations, "loss"))
    scores = _validated_scores(validations, task)
    curves = [
        Series(score.title, color, _curve(validations, score.key))
        for score, color in zip(scores, (ONE, TWO), strict=False)
    ]
    axis, ends = ("validation RMSE", (0.0,)) if scores[0].has_unit else ("validation score", ())
    numbers = [row["step"] for row in validations] or [1]
    # From the first validation where single steps are not in the background.
    first, last = 0 if background else min(numbers), max(numbers)
    charts = [
        line_chart("Training loss", "training loss", (first, last), [*background, loss], 0.0),
        line_chart("Validation", axis, (min(numbers), last), curves, *ends),
    ]
    return [*filter(None, charts)]


def line_chart(title: str, axis: str, steps: tuple[float, float], series: list[Series], *included: float) -> Markup:
    """Curves over the steps, with a legend of their last values; the y axis also reaches the values in `included`."""
    from matplotlib.ticker import MaxNLocator

    curves = [curve for curve in series if curve.points]
    if not curves:
        return Markup("")

    def draw(axes: "Axes") -> None:
        for curve in curves:
            x, y = zip(*curve.points, strict=True)
            label = curve.name if curve.is_background else f"{curve.name} {y[-1]:.3f}"
            width, alpha = (0.7, 0.5) if curve.is_background else (1.6, 1)
            (line,) = axes.plot(x, y, color=curve.color, linewidth=width, alpha=alpha, label=label, clip_on=False)
            line.set_gid(f"curve-{curve.name.split()[0].lower()}")
        first, last = steps
        axes.set_xlim(first, max(last, first + 1))
        values = [*included, *(y for curve in curves for _, y in curve.points)]
        spread = (max(values) - min(values)) or 1.0
        margin = 0.03 * spread
        axes.set_ylim(min(values) - margin * (min(values) not in included), max(values) + margin)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set(xlabel="step", ylabel=axis)
        axes.grid(axis="y", clip_on=False)
        axes.legend(loc="best")

    ends = [
        f"{curve.name} from {curve.points[0][1]:.3f} (step {curve.points[0][0]:g}) "
        f"to {curve.points[-1][1]:.3f} (step {curve.points[-1][0]:g})"
        for curve in curves
        if not curve.is_background
    ]
    return draw_chart(f"{title}: {'; '.join(ends)}", CHART, draw)


def _validated_scores(validations: list[dict[str, Any]], task: str) -> list[NamedScore]:
    """The scores of validations that are shown; the last one selects the best weights."""
    known = {key for row in validations for key in row["val"] or ()}
    named: dict[str, NamedScore] = {score.key: score for score in TASKS[task].scores}
    pairs = (("rmse", ""),) if "rmse" in named else (("f1_micro", "accuracy"), ("f1_macro", "miou"))
    return [named[key if key in known or other not in named else other] for key, other in pairs]


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


def best_validation(history: dict[str, Any], task: str, unit: str = "") -> str:
    """The step with the best score in the validation areas, by the score that selects the weights, as a sentence."""
    *_, score = _validated_scores(history["validations"], task)
    validated = [row for row in history["validations"] if row["val"] and row["val"].get(score.key) is not None]
    if not validated:
        return ""
    best = min(validated, key=lambda row: score.distance(row["val"][score.key]))
    value, last = best["val"][score.key], history["validations"][-1]["step"]
    place = f"after step {best['step']} of {last}" if last > 1 else "after its fit"
    text = f"{score.title} in the validation areas: {score_text(value, score.key, unit)} {place}."
    return f"{'Lowest' if score.has_unit else 'Highest'} {text}"


def reliability_chart(calibration: ProbabilityScores) -> Markup:
    """Accuracy over confidence in the test areas, beside the diagonal of perfect calibration; empty without a bin.

    A dot for each bin that is not too small; its area is the bin's share of the samples.
    """
    bins = [row for row in calibration.bins if row.samples >= MIN_BIN_SAMPLES]
    if not bins:
        return Markup("")
    confidence, accuracy = [row.confidence for row in bins], [row.accuracy for row in bins]
    total = sum(row.samples for row in calibration.bins)
    points = ", ".join(f"{x:.2f}: {y:.2f}" for x, y in zip(confidence, accuracy, strict=True))

    def draw(axes: "Axes") -> None:
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=0.8, label="perfect calibration")
        axes.plot(confidence, accuracy, color=ONE, linewidth=1.6, label="this map")
        axes.scatter(confidence, accuracy, s=[8 + 120 * row.samples / total for row in bins], color=ONE, clip_on=False)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy", aspect="equal")
        axes.grid(clip_on=False)
        axes.legend(loc="upper left")

    return draw_chart(f"Reliability curve, accuracy by confidence: {points}.", (CHART[1], CHART[1]), draw)


def ridge_chart(band: BandHistograms, scenes: list[SceneSummary], outliers: set[str]) -> Markup:
    """Histograms of a band by date, early ones on top, outliers in another colour.

    With many scenes only some are labelled, and all outliers.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.ticker import MaxNLocator

    alt = f"Histograms of {band.name} for {len(scenes)} scenes by date, from {band.low:.4g} to {band.high:.4g}."
    count, bins = band.shares.shape
    heights = band.shares / max(float(band.shares.max()), 1e-9) * OVERLAP
    edges = np.linspace(band.low, band.high, bins + 1)
    centres = (edges[:-1] + edges[1:]) / 2
    x = np.concatenate([edges[:1], centres, edges[-1:]])
    base = np.arange(count, 0, -1)
    outlines = [np.column_stack([x, [b, *(b + height), b]]) for b, height in zip(base, heights, strict=True)]
    colors = [TWO if scene.scene in outliers else ONE for scene in scenes]
    step = -(-count // MAX_LABELS)
    labelled = [n for n, scene in enumerate(scenes) if n % step == 0 or scene.scene in outliers]

    def draw(axes: "Axes") -> None:
        histograms = PolyCollection(
            outlines, facecolors=colors, edgecolors=PAPER, linewidths=0.6, alpha=0.8, clip_on=False
        )
        axes.add_collection(histograms)
        axes.set(xlim=(band.low, band.high), ylim=(0.8, count + OVERLAP), xlabel=f"{band.name} (physical value)")
        axes.set_yticks(base[labelled], labels=[scenes[n].date or scenes[n].scene[:10] for n in labelled])
        for n, label in zip(labelled, axes.get_yticklabels(), strict=True):
            label.set_color(TWO if scenes[n].scene in outliers else FAINT)
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.grid(axis="x", clip_on=False)
        axes.set_axisbelow(True)
        axes.spines["left"].set_visible(False)

    return draw_chart(alt, (RIDGES_WIDTH, 0.75 + RIDGE * (count + OVERLAP)), draw)


def error_charts(label: FloatArray, mapped: FloatArray, name: str, unit: str) -> list[Markup]:
    """Map against label, histogram of the errors, and errors by the level of the label; each value is a pixel (n,)."""
    if not label.size:
        return []
    tail = f" ({unit})" if unit else ""
    axes = f"{name}, label{tail}", f"{name}, map{tail}", f"map minus label{tail}"
    error = mapped - label
    charts = _agreement_chart(label, mapped, axes[:2]), _error_histogram(error, axes[2])
    return [*charts, *filter(None, [_level_chart(label, error, axes[0], axes[2])])]


def _agreement_chart(label: FloatArray, mapped: FloatArray, titles: tuple[str, str]) -> Markup:
    """Number of pixels by label and map, in decades, with the line of equal values."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    low, high = float(min(label.min(), mapped.min())), float(max(label.max(), mapped.max()))
    high = high if high > low else low + 1
    edges = np.linspace(low, high, CELLS + 1)
    counts = np.histogram2d(label, mapped, [edges, edges])[0].astype(np.int64)
    correlation = float(np.corrcoef(label, mapped)[0, 1]) if label.std() and mapped.std() else 0.0
    alt = f"Map against label of {label.size} test pixels; correlation {correlation:.3f}."
    decades = [10**n for n in range(len(str(int(counts.max()))))]

    def draw(axes: "Axes") -> None:
        for number, least in enumerate(decades):
            columns, rows = np.nonzero((counts >= least) & (counts < 10 * least))
            if len(columns):
                cells = np.stack([edges[columns[:, None] + ACROSS], edges[rows[:, None] + UP]], -1)
                shade = 0.25 + 0.75 * number / max(len(decades) - 1, 1)
                text = f"{least} to {10 * least - 1} pixels"
                shape = Path.make_compound_path(*(Path(cell, closed=True) for cell in cells))
                axes.add_patch(PathPatch(shape, facecolor=ONE, alpha=shade, linewidth=0, label=text))
        axes.plot([low, high], [low, high], color=INK, linewidth=0.8, dashes=(4, 3), label="map equals label")
        axes.set(xlim=(low, high), ylim=(low, high), xlabel=titles[0], ylabel=titles[1], aspect="equal")
        axes.grid()
        axes.set_axisbelow(True)
        axes.figure.legend(loc="outside lower center", ncols=2)

    return draw_chart(alt, (CHART[0], CHART[0]), draw, *titles)


def _error_histogram(error: FloatArray, title: str) -> Markup:
    limit, bias = float(np.percentile(np.abs(error), 99.5)) or 1.0, float(error.mean())
    # Errors beyond the limit are in the outer bars.
    counts, edges = np.histogram(np.clip(error, -limit, limit), BARS, (-limit, limit))
    alt = f"Histogram of map minus label: mean {bias:.3g}, standard deviation {float(error.std()):.3g}."

    def draw(axes: "Axes") -> None:
        axes.stairs(counts / error.size, edges, fill=True, color=ONE, alpha=0.8)
        axes.axvline(0, color=INK, linewidth=0.8, dashes=(4, 3))
        axes.axvline(bias, color=TWO, linewidth=1.4, label=f"bias {bias:.3g}")
        axes.set(xlabel=title, ylabel="share of the pixels", xlim=(-limit, limit))
        axes.legend(loc="upper right")

    return draw_chart(alt, CHART, draw, title)


def _level_chart(label: FloatArray, error: FloatArray, level_title: str, title: str) -> Markup:
    """Median, quartiles and 90 % of the errors in each of ten intervals of the label; empty where all are alike."""
    edges = np.linspace(float(label.min()), float(label.max()), ERROR_LEVELS + 1)
    level: IntArray = np.clip(np.searchsorted(edges, label, "right") - 1, 0, ERROR_LEVELS - 1)
    used = [n for n in range(ERROR_LEVELS) if (level == n).sum() >= MIN_LEVEL_PIXELS]
    if edges[0] == edges[-1] or not used:
        return Markup("")
    centres = (edges[:-1] + edges[1:])[used] / 2
    quantiles = np.stack([np.percentile(error[level == n], (5, 25, 50, 75, 95)) for n in used], 1)
    alt = "Median of map minus label by label: " + ", ".join(
        f"{median:.3g} at {centre:.3g}" for median, centre in zip(quantiles[2], centres, strict=True)
    )

    def draw(axes: "Axes") -> None:
        axes.vlines(centres, quantiles[0], quantiles[4], color=ONE, linewidth=1, label="90 % of the pixels")
        axes.vlines(centres, quantiles[1], quantiles[3], color=ONE, linewidth=6, alpha=0.6, label="quartiles")
        axes.plot(centres, quantiles[2], "o", color=TWO, markersize=4, label="median")
        axes.axhline(0, color=INK, linewidth=0.8, dashes=(4, 3))
        axes.set(xlabel=level_title, ylabel=title)
        axes.grid(axis="y")
        axes.figure.legend(loc="outside lower center", ncols=3)

    return draw_chart(alt, CHART, draw, level_title, title)
