"""The verdict on a model: a comparison with each baseline by the confidence interval of the gain, never by the points.

A difference counts where its interval excludes 0. Without an interval the points are reported, and that they are only
points.
"""

from dataclasses import dataclass
from typing import Any, Literal

from eopipe.reporting.wording import (
    THIN_SPACE,
    format_gain,
    format_percent,
    format_score,
    format_value,
    join_words,
    scored_size,
    scored_unit,
)

# A significant difference below one point in both measures is called slight.
SLIGHT_DIFFERENCE = 0.01
CLASS_MEASURES = (("accuracy", "accuracy"), ("miou", "mIoU"))
LABEL_MEASURES = (("f1_micro", "micro F1"), ("f1_macro", "macro F1"))
VALUE_MEASURES = (("rmse", "RMSE"),)
SEEDS = (
    "The intervals are those of this map: they do not include the spread over seeds, so another training with the same "
    "settings may differ by more."
)
Tone = Literal["good", "mixed", "bad"]


@dataclass(frozen=True)
class Verdict:
    """What the scores amount to, as a headline and a sentence; the tone selects a colour."""

    tone: Tone
    headline: str
    text: str


@dataclass(frozen=True)
class Comparison:
    """The model against one baseline: `value` is 1 where it is better, -1 where worse, 0 where neither.

    `relation` ends before the name of the baseline, `note` follows it; only an interval makes a comparison certain.
    """

    baseline: str
    value: int
    relation: str
    note: str = ""
    is_certain: bool = True

    def __str__(self) -> str:
        """The comparison as a predicate."""
        return f"{self.relation} {self.baseline}{f' ({self.note})' if self.note else ''}"


def verdict(metrics: dict[str, Any]) -> Verdict:
    """Compare the model with both baselines by the intervals of its gains."""
    measures = _measures(metrics)
    if metrics["model"][measures[0][0]] is None:
        unit = scored_unit(metrics)
        text = f"Not one {unit} of the test areas has both a label and a prediction."
        return Verdict("mixed", "The model could not be scored.", text)
    comparisons = [_compare(metrics, key, name) for key, name in baseline_names(metrics).items()]
    values = [comparison.value * comparison.is_certain for comparison in comparisons]
    tone: Tone = "bad" if min(values) < 0 else "good" if min(values) > 0 else "mixed"
    return Verdict(tone, f"The model {_joined(comparisons)}.", _text(metrics, comparisons))


def baseline_names(metrics: dict[str, Any]) -> dict[str, str]:
    """The keys of the baselines, with their names in a sentence."""
    if metrics.get("task") == "regression":
        return {"pixel_baseline": "the per-pixel baseline", "mean": "the mean of the labels"}
    if metrics.get("task") == "multilabel":
        return {"pixel_baseline": "the per-pixel baseline", "majority": f"always predicting {majority_text(metrics)}"}
    always = f"always predicting “{metrics['majority']['class']}”"
    return {"pixel_baseline": "the per-pixel baseline", "majority": always}


def majority_text(metrics: dict[str, Any]) -> str:
    """The labels that most training chips have, as a list in quotes."""
    return join_words([f"“{name}”" for name in metrics["majority"]["labels"]]) or "no label"


def gain_interval(metrics: dict[str, Any], baseline: str, measure: str) -> list[float] | None:
    """The interval of model minus baseline; None where the test areas are too few, or the file has none."""
    intervals = metrics.get("intervals") or {}
    gains: dict[str, list[float] | None] = intervals.get("gain" if baseline == "pixel_baseline" else "simple_gain", {})
    return gains.get(measure)


def _measures(metrics: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    by_task = {"regression": VALUE_MEASURES, "multilabel": LABEL_MEASURES}
    return by_task.get(str(metrics.get("task")), CLASS_MEASURES)


def _compare(metrics: dict[str, Any], key: str, name: str) -> Comparison:
    """Compare with one baseline by the intervals of the gains, by the points where there is not a single interval."""
    measures = _measures(metrics)
    intervals = {title: gain_interval(metrics, key, measure) for measure, title in measures}
    # A lower error is the better one.
    sense = -1 if measures is VALUE_MEASURES else 1
    differences = {title: _difference(metrics, key, measure) for measure, title in measures}
    if not any(intervals.values()):
        return _compare_points(name, {title: sense * value for title, value in differences.items()})
    signs = {title: sense * _sign(interval) for title, interval in intervals.items()}
    better, worse = ([title for title, sign in signs.items() if sign == s] for s in (1, -1))
    if better and worse:
        return Comparison(name, 0, f"is better in {join_words(better)} but worse in {join_words(worse)} than")
    if not better and not worse:
        note = _gain_note(metrics, key, next(m for m, title in measures if intervals[title]))
        return Comparison(name, 0, "cannot be told apart from", note)
    decided = better or worse
    is_slight = sense == 1 and max(map(abs, differences.values())) < SLIGHT_DIFFERENCE
    degree = f"{'slightly ' if is_slight else ''}{'better' if better else 'worse'}"
    extent = "" if len(decided) == len(measures) else f" in {join_words(decided)}"
    return Comparison(name, 1 if better else -1, f"is {degree}{extent} than")


def _compare_points(name: str, gains: dict[str, float]) -> Comparison:
    """A comparison without an interval, which is never certain."""
    higher, lower = ([title for title, gain in gains.items() if gain * sign > 0] for sign in (1, -1))
    if higher and lower:
        relation = f"scores better in {join_words(higher)} but worse in {join_words(lower)} than"
        return Comparison(name, 0, relation, is_certain=False)
    if not higher and not lower:
        return Comparison(name, 0, "scores the same as", is_certain=False)
    return Comparison(name, 1 if higher else -1, f"scores {'better' if higher else 'worse'} than", is_certain=False)


def _sign(interval: list[float] | None) -> int:
    """1 for an interval above 0, -1 for one below, 0 for one that contains 0 or is not known."""
    return 0 if interval is None else int(interval[0] > 0) - int(interval[1] < 0)


def _difference(metrics: dict[str, Any], key: str, measure: str) -> float:
    model, baseline = metrics["model"][measure], metrics[key][measure]
    return 0.0 if model is None or baseline is None else float(model - baseline)


def _gain_note(metrics: dict[str, Any], key: str, measure: str) -> str:
    """The gain with its interval: `gain -0.004, 95 %: -0.022 to 0.010`."""
    low, high = gain_interval(metrics, key, measure) or (0.0, 0.0)
    gain, unit = _difference(metrics, key, measure), metrics.get("unit") or ""
    if measure == "rmse":
        return f"difference in RMSE {format_value(gain, unit)}, 95 %: {low:.4g} to {high:.4g}"
    title = "" if measure == "accuracy" else f" of {dict(_measures(metrics))[measure]}"
    return f"gain{title} {format_gain(gain)}, 95 %: {format_gain(low)} to {format_gain(high)}"


def _joined(comparisons: list[Comparison]) -> str:
    """Both comparisons as one predicate; `but` where only one of them is in favour of the model."""
    first, second = comparisons
    if first.relation != second.relation:
        return f"{first}, {'but' if (first.value > 0) != (second.value > 0) else 'and'} {second}"
    if not first.note:
        return f"{first.relation} both baselines"
    return f"{first}, or {str(second).removeprefix('cannot be told apart ')}"


def _text(metrics: dict[str, Any], comparisons: list[Comparison]) -> str:
    """Scores of model and baselines in one sentence, and what is certain of them."""
    names = {name: metrics[key] for key, name in baseline_names(metrics).items()}
    begin = f"On {scored_size(metrics)}, "
    if metrics.get("task") == "regression":
        others = join_words([f"of {name} {format_value(s['rmse'], metrics['unit'])}" for name, s in names.items()])
        error = format_value(metrics["model"]["rmse"], metrics["unit"])
        text = f"{begin}the root mean square error of the model is {error}; {others}."
    elif metrics.get("task") == "multilabel":
        others = join_words([f"that of {name} {_f1_text(scores)}" for name, scores in names.items()])
        text = f"{begin}the micro F1 of the model's labels is {_f1_text(metrics['model'])}; {others}."
    else:
        others = join_words([f"{name} for {_accuracy_text(scores)}" for name, scores in names.items()])
        text = f"{begin}the model is correct for {_accuracy_text(metrics['model'])}; {others}."
        if _sign(gain_interval(metrics, "pixel_baseline", "accuracy")):
            text += _error_ratio(metrics["model"]["accuracy"], metrics["pixel_baseline"]["accuracy"])
    if any(comparison.is_certain for comparison in comparisons):
        return text
    reason = (metrics.get("intervals") or {}).get("reason") or "the metrics contain none"
    return f"{text} Without a confidence interval the differences may be chance: {reason}."


def _accuracy_text(scores: dict[str, Any]) -> str:
    return f"{format_percent(scores['accuracy'])} (mIoU {format_score(scores['miou'])})"


def _f1_text(scores: dict[str, Any]) -> str:
    return f"{format_score(scores['f1_micro'])} (macro F1 {format_score(scores['f1_macro'])})"


def _error_ratio(accuracy: float, baseline: float | None) -> str:
    """How many more or fewer errors than the per-pixel baseline, as a sentence."""
    if baseline is None or round(baseline, 3) >= 1 or round(accuracy, 3) == round(baseline, 3):
        return ""
    ratio = (1 - accuracy) / (1 - baseline)
    if ratio > 2:
        return f" It makes {ratio:.1f} times as many errors as the per-pixel baseline."
    share = f"{100 * abs(ratio - 1):.0f}{THIN_SPACE}%"
    return f" It makes {share} {'more' if ratio > 1 else 'fewer'} errors than the per-pixel baseline."
