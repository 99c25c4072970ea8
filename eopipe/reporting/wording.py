"""Numbers, lengths and lists as text for readers."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from eopipe.chips.splits import Split
from eopipe.evaluation.metrics_document import Method, MetricsDocument, RunMetrics
from eopipe.labels.vectors import shape_sentences
from eopipe.tasks import HAVE_UNIT
from eopipe.tiles.globe import bounds_of, outline_of

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

THIN_SPACE = "\u202f"
DASH, TIMES = "\u2013", " \u00d7 "
EQUAL = "equal on each piece"
# The baselines by their keys in a metrics file.
BASELINES: dict[Method, str] = {
    "extra_trees": "extra trees on bands",
    "texture_extra_trees": "extra trees with texture",
    "pixel_baseline": "boosted trees on bands",
    "texture_baseline": "boosted trees with texture",
    "linear": "linear model on bands",
    "texture_linear": "linear model with texture",
}


def format_score(value: float | None) -> str:
    """A score between 0 and 1 with three digits; a dash where it is not defined."""
    return DASH if value is None else f"{value:.3f}"


def format_gain(difference: float, unit: str = "") -> str:
    """A difference of two scores with three digits, four significant ones with a unit; never a negative zero."""
    return format_value(difference, unit) if unit else f"{round(difference, 3) + 0.0:.3f}"


def format_interval(ends: list[float] | None, unit: str = "") -> str:
    """The ends of an interval with three digits, four significant ones of a value with a unit; empty without one."""
    if not ends:
        return ""
    return f"{ends[0]:.4g} to {ends[1]:.4g} {unit}".strip() if unit else " to ".join(map(format_gain, ends))


def format_difference(ends: list[float] | None, unit: str = "") -> str:
    """The ends of the interval of a difference; what is equal has none."""
    return EQUAL if ends and not any(ends) else format_interval(ends, unit)


def format_percent(share: float | None) -> str:
    """A share as a percentage with one digit after the point; a dash where it is not defined."""
    return DASH if share is None else f"{100 * share:.1f}{THIN_SPACE}%"


def format_count(number: int) -> str:
    """A whole number with narrow spaces between its thousands."""
    return f"{number:,}".replace(",", THIN_SPACE)


def format_setting(value: Any) -> str:
    """Any setting: numbers with at most four significant digits, lists with commas."""
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: DASH}[value]
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(format_setting, value)) or DASH
    return str(value)


def format_value(value: float | None, unit: str) -> str:
    """A measured value with four significant digits and its unit; a dash where it is not defined."""
    return DASH if value is None else f"{value:.4g} {unit}".strip()


def score_text(value: float | None, key: str, unit: str) -> str:
    """A score by its key as text, with the unit of the values where it has one; a dash where it is not defined."""
    known = value if value is not None and math.isfinite(value) else None
    return format_value(known, unit) if key in HAVE_UNIT else format_score(known)


def format_measured(value: float | None, unit: str, scale: float) -> str:
    """A measured value with as many decimals as three significant digits of `scale` have, so that columns compare."""
    decimals = max(0, 2 - math.floor(math.log10(scale))) if scale > 0 and math.isfinite(scale) else 3
    return DASH if value is None else f"{value:.{decimals}f} {unit}".strip()


def format_length(metres: float) -> str:
    """A length with three significant digits: 850 m, 12.5 km."""
    if metres < 1000:
        return f"{metres:.3g} m"
    return f"{metres / 1000:.3g} km" if metres < 1e6 else f"{metres / 1000:.0f} km"


def plural(number: int, noun: str) -> str:
    """A number of things: `1 map`, `2 maps`, `2 processes`."""
    return f"{format_count(number)} {noun}{'' if number == 1 else 'es' if noun.endswith('s') else 's'}"


def join_words(words: list[str], last: str = "and") -> str:
    """Words as in a sentence: `a`, `a and b`, `a, b and c`."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def scored_size(metrics: MetricsDocument) -> str:
    """The number of test pixels or chips that the scores rest on."""
    return plural(metrics.count, f"test {metrics.sample}")


def baseline_text(metrics: RunMetrics) -> str:
    """Which baseline headline and gain are about, and which were left out; empty for an older run."""
    if not metrics.baseline:
        return ""
    text = f"The baseline is the {BASELINES[metrics.chosen]}, chosen by {metrics.baseline.by}."
    left_out = join_words([f"{BASELINES[key]} ({reason})" for key, reason in metrics.baseline.left_out.items()])
    return f"{text} Left out: {left_out}." if left_out else text


def calibration_text(metrics: MetricsDocument) -> str:
    """How well the probabilities of the map are calibrated in the test areas; empty where it was not measured."""
    calibration = metrics.calibration
    if not calibration:
        return ""
    intervals = calibration.intervals
    values = [
        f"{title} {format_score(value)}" + (f" ({ends[0]:.3f} to {ends[1]:.3f})" if ends else "")
        for title, value, ends in (
            ("expected calibration error (ECE)", calibration.ece, intervals.ece),
            ("Brier score", calibration.brier, intervals.brier),
            ("log loss", calibration.nll, intervals.nll),
        )
    ]
    return (
        f"Probabilities of the map in the test areas: {', '.join(values)}; mean confidence "
        f"{format_percent(calibration.confidence)} at an accuracy of {format_percent(calibration.accuracy)}. "
        f"Calibration: {calibration.description}."
    )


def describe_test(split: Split) -> str:
    """What the test chips have in common with training, by the method of the split and by its audit."""
    findings = {finding.kind: finding for finding in reversed(split.audit.allowed)}
    if "place" in findings and findings["place"].splits == "train-test":
        share = format_percent(findings["place"].share)
        return (
            f"The test scenes were not used in training, but their places were: {share} of the test pixels were in the "
            "training with the same label on other dates, so the scores do not apply to new places."
        )
    if split.plan.method == "random":
        return "Test chips were chosen at random among the training chips, so they touch or overlap them."
    if split.polygons:
        return "All scores are from polygons of the labels that were not used in training; what is around them may be."
    if "overlap" in findings:
        return "Some test chips overlap training chips, so the scores may be too high."
    if split.by_scene or split.plan.method == "temporal" or (split.plan.method, split.plan.by) == ("group", "scene"):
        return "All scores are from test scenes, which were not used in training."
    return "All scores are from test areas without training chips."


def split_warnings(split: Split) -> list[str]:
    """What makes a split weak although it was made: of its plan, then of its audit, in sentences."""
    findings = [f"Warning of the audit of the splits: {f.example}." for f in split.audit.warnings]
    return [*(f"Warning of the splits: {sentence}." for sentence in split.warnings), *findings]


def unused_data(split: Split) -> list[str]:
    """Which scenes have no chip, how many shapes of the labels are not used, and why, in sentences."""
    scenes = [f"Scene {row.scene} is not used: {row.reason}." for row in split.left_out]
    return [*scenes, *shape_sentences(split.shapes)]


def format_bounds(grid: "GeoBox") -> str:
    """The bounding box of a grid in degrees: 15.0000 E to 15.0051 E, 45.1406 N to 45.1450 N."""
    return format_degrees(bounds_of(outline_of(grid)))


def format_degrees(bounds: Sequence[float]) -> str:
    """West, south, east and north in degrees as text."""
    west, south, east, north = bounds
    sides = [(west, "EW"), (east, "EW"), (south, "NS"), (north, "NS")]
    return "{} to {}, {} to {}".format(*(f"{abs(value):.4f} {letters[value < 0]}" for value, letters in sides))


def round_length(maximum: float) -> float:
    """The longest of 1, 2 or 5 times a power of ten up to a maximum."""
    power: float = 10.0 ** math.floor(math.log10(maximum))
    return max(step * power for step in (1, 2, 5) if step * power <= maximum)
