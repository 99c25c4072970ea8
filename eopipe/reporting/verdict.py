"""The verdict on a model: a comparison with the best trees and the simple baseline by the interval of the gain.

A difference counts where its interval excludes 0, never by the points: without an interval model and baseline cannot
be told apart. The best trees are those with the best score, for each measure of its own.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, cast

from pydantic import BaseModel, Field

from eopipe.documents import OPEN, Count, Number, checked, read_document
from eopipe.models.tasks import Task
from eopipe.reporting.wording import (
    THIN_SPACE,
    TREES,
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
# The intervals of the gains over the tree baselines in a metrics file.
GAINS = {"pixel_baseline": "gain", "texture_baseline": "texture_gain"}
NO_INTERVAL = "without a confidence interval"
Tone = Literal["good", "mixed", "bad"]


class _ClassScores(BaseModel):
    model_config = OPEN

    accuracy: Number | None
    miou: Number | None


class _LabelScores(BaseModel):
    model_config = OPEN

    f1_micro: Number | None
    f1_macro: Number | None


class _ValueScores(BaseModel):
    model_config = OPEN

    rmse: Number | None
    mae: Number | None
    bias: Number | None


class _FrequentClass(_ClassScores):
    name: str = Field(alias="class")


class _FrequentLabels(_LabelScores):
    labels: list[str]


Interval = Annotated[list[Number], Field(min_length=2, max_length=2)] | None


class _Intervals(BaseModel):
    model_config = OPEN

    model: dict[str, Interval] = {}
    gain: dict[str, Interval] = {}
    texture_gain: dict[str, Interval] = {}
    simple_gain: dict[str, Interval] = {}


class _ProbabilityIntervals(BaseModel):
    model_config = OPEN

    ece: Interval
    brier: Interval
    nll: Interval


class _Probabilities(BaseModel):
    model_config = OPEN

    ece: Number | None
    brier: Number | None
    nll: Number | None
    confidence: Number | None
    accuracy: Number | None
    description: str
    intervals: _ProbabilityIntervals


class _Metrics(BaseModel):
    """What the stage evaluate writes, of what the verdict and the summary of a run read."""

    model_config = OPEN

    task: Task = "segmentation"
    intervals: _Intervals | None = None
    calibration: _Probabilities | None = None
    not_mapped: list[str] = []


S = TypeVar("S")


class _OfTask(_Metrics, Generic[S]):
    model: S
    pixel_baseline: S
    texture_baseline: Annotated[S, Field()] = cast(S, None)


class _PixelMetrics(_OfTask[_ClassScores]):
    majority: _FrequentClass
    test_pixels: Count


class _ChipMetrics(_OfTask[_ClassScores]):
    majority: _FrequentClass
    test_chips: Count


class _LabelMetrics(_OfTask[_LabelScores]):
    majority: _FrequentLabels
    test_chips: Count


class _ValueMetrics(_OfTask[_ValueScores]):
    mean: _ValueScores
    test_pixels: Count
    unit: str


class _FinishedMetrics(_Metrics):
    """Scores of the maps of a finished model, which have no baselines."""

    task: Literal["segmentation"] = "segmentation"
    model: _ClassScores
    test_pixels: Count
    baselines: str


KINDS: dict[str, type[_Metrics]] = {
    "segmentation": _PixelMetrics,
    "classification": _ChipMetrics,
    "multilabel": _LabelMetrics,
    "regression": _ValueMetrics,
}


def read_metrics(path: Path) -> dict[str, Any]:
    """What evaluate wrote. Raises BadInputError for another file, with the fields that are wrong."""
    metrics: dict[str, Any] = read_document(path, _Metrics, "a file of scores, as evaluate writes one")
    checked(KINDS[metrics.get("task", "segmentation")], metrics, str(path), "a file of scores")
    return metrics


def read_finished_metrics(path: Path) -> dict[str, Any]:
    """What evaluate wrote of the maps of a finished model. Raises BadInputError for another file."""
    metrics: dict[str, Any] = read_document(
        path, _FinishedMetrics, "a file of scores of a finished model, as evaluate writes one with --tested-model"
    )
    return metrics


@dataclass(frozen=True)
class Verdict:
    """What the scores amount to, as a headline and a sentence; the tone selects a colour."""

    tone: Tone
    headline: str
    text: str


@dataclass(frozen=True)
class Comparison:
    """The model against one baseline: `value` is 1 where it is better, -1 where worse, 0 where neither.

    `relation` ends before the name of the baseline, `note` follows it.
    """

    baseline: str
    value: int
    relation: str
    note: str = ""

    def __str__(self) -> str:
        """The comparison as a predicate."""
        return f"{self.relation} {self.baseline}{f' ({self.note})' if self.note else ''}"


def verdict(metrics: dict[str, Any]) -> Verdict:
    """Compare the model with the best trees and with the simple baseline by the intervals of its gains."""
    measures = _measures(metrics)
    if metrics["model"][measures[0][0]] is None:
        unit = scored_unit(metrics)
        text = f"Not one {unit} of the test areas has both a label and a prediction."
        return Verdict("mixed", "The model could not be scored.", text)
    trees = {measure: best_trees(metrics, measure) for measure, _ in measures}
    names = [f"the {name}" for key, name in TREES.items() if key in trees.values()]
    trees_name = f"the better of {join_words(names)}" if len(names) > 1 else names[0]
    simple, simple_name = simple_baseline(metrics)
    comparisons = [
        _compare(metrics, trees, trees_name),
        _compare(metrics, dict.fromkeys(trees, simple), simple_name),
    ]
    values = [comparison.value for comparison in comparisons]
    tone: Tone = "bad" if min(values) < 0 else "good" if min(values) > 0 else "mixed"
    return Verdict(tone, f"The model {_joined(comparisons)}.{_not_mapped(metrics)}", _text(metrics))


def _not_mapped(metrics: dict[str, Any]) -> str:
    """A sentence about the classes that the map lacks; empty where it has all."""
    names = [f"“{name}”" for name in metrics.get("not_mapped", ())]
    return f" The map has no pixel of {join_words(names)}." if names else ""


def best_trees(metrics: dict[str, Any], measure: str) -> str:
    """The key of the tree baseline with the best score; of equals the first."""
    scores = {key: metrics[key][measure] for key in TREES if key in metrics}
    sense = -1 if measure == "rmse" else 1
    return max(scores, key=lambda key: -math.inf if scores[key] is None else sense * scores[key])


def simple_baseline(metrics: dict[str, Any]) -> tuple[str, str]:
    """The key of the baseline that predicts the same everywhere, and its name in a sentence."""
    if metrics.get("task") == "regression":
        return "mean", "the mean of the labels"
    if metrics.get("task") == "multilabel":
        return "majority", f"always predicting {majority_text(metrics)}"
    return "majority", f"always predicting “{metrics['majority']['class']}”"


def majority_text(metrics: dict[str, Any]) -> str:
    """The labels that most training chips have, as a list in quotes."""
    return join_words([f"“{name}”" for name in metrics["majority"]["labels"]]) or "no label"


def gain_interval(metrics: dict[str, Any], baseline: str, measure: str) -> list[float] | None:
    """The interval of model minus baseline; None where the test areas are too few, or the file has none."""
    intervals = metrics.get("intervals") or {}
    gains: dict[str, list[float] | None] = intervals.get(GAINS.get(baseline, "simple_gain"), {})
    return gains.get(measure)


def _measures(metrics: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    by_task = {"regression": VALUE_MEASURES, "multilabel": LABEL_MEASURES}
    return by_task.get(str(metrics.get("task")), CLASS_MEASURES)


def _compare(metrics: dict[str, Any], keys: dict[str, str], name: str) -> Comparison:
    """Compare with a baseline by the intervals of the gains; `keys` has the baseline of each measure."""
    measures = _measures(metrics)
    intervals = {title: gain_interval(metrics, keys[measure], measure) for measure, title in measures}
    # A lower error is the better one.
    sense = -1 if measures is VALUE_MEASURES else 1
    signs = {title: sense * _sign(interval) for title, interval in intervals.items()}
    better, worse = ([title for title, sign in signs.items() if sign == s] for s in (1, -1))
    if better and worse:
        return Comparison(name, 0, f"is better in {join_words(better)} but worse in {join_words(worse)} than")
    if not better and not worse:
        measure = next((m for m, title in measures if intervals[title]), measures[0][0])
        return Comparison(name, 0, "cannot be told apart from", _gain_note(metrics, keys[measure], measure))
    decided = better or worse
    is_slight = sense == 1 and max(abs(_difference(metrics, keys[m], m)) for m, _ in measures) < SLIGHT_DIFFERENCE
    degree = f"{'slightly ' if is_slight else ''}{'better' if better else 'worse'}"
    extent = "" if len(decided) == len(measures) else f" in {join_words(decided)}"
    return Comparison(name, 1 if better else -1, f"is {degree}{extent} than")


def _sign(interval: list[float] | None) -> int:
    """1 for an interval above 0, -1 for one below, 0 for one that contains 0 or is not known."""
    return 0 if interval is None else int(interval[0] > 0) - int(interval[1] < 0)


def _difference(metrics: dict[str, Any], key: str, measure: str) -> float:
    model, baseline = metrics["model"][measure], metrics[key][measure]
    return 0.0 if model is None or baseline is None else float(model - baseline)


def _gain_note(metrics: dict[str, Any], key: str, measure: str) -> str:
    """The gain with its interval: `gain -0.004, 95 %: -0.022 to 0.010`."""
    interval, gain = gain_interval(metrics, key, measure), _difference(metrics, key, measure)
    title = "" if measure == "accuracy" else f" of {dict(_measures(metrics))[measure]}"
    text, form = f"gain{title} {format_gain(gain)}", format_gain
    if measure == "rmse":
        text, form = f"difference in RMSE {format_value(gain, metrics.get('unit') or '')}", "{:.4g}".format
    return f"{text}, 95 %: {form(interval[0])} to {form(interval[1])}" if interval else f"{text}, {NO_INTERVAL}"


def _joined(comparisons: list[Comparison]) -> str:
    """Both comparisons as one predicate; `but` where only one of them is in favour of the model."""
    first, second = comparisons
    if first.relation != second.relation:
        return f"{first}, {'but' if (first.value > 0) != (second.value > 0) else 'and'} {second}"
    if not first.note:
        return f"{first}, and than {second.baseline}"
    without_note = replace(first, note="") if first.note == second.note else first
    return f"{without_note}, or {str(second).removeprefix('cannot be told apart ')}"


def _text(metrics: dict[str, Any]) -> str:
    """Scores of model and baselines in one sentence, and what is certain of them."""
    named = {f"the {name}": metrics[key] for key, name in TREES.items() if key in metrics}
    simple, simple_name = simple_baseline(metrics)
    named[simple_name] = metrics[simple]
    begin = f"On {scored_size(metrics)}, "
    if metrics.get("task") == "regression":
        others = join_words([f"of {name} {format_value(s['rmse'], metrics['unit'])}" for name, s in named.items()])
        error = format_value(metrics["model"]["rmse"], metrics["unit"])
        text = f"{begin}the root mean square error of the model is {error}; {others}."
    elif metrics.get("task") == "multilabel":
        others = join_words([f"that of {name} {_f1_text(scores)}" for name, scores in named.items()])
        text = f"{begin}the micro F1 of the model's labels is {_f1_text(metrics['model'])}; {others}."
    else:
        others = join_words([f"{name} for {_accuracy_text(scores)}" for name, scores in named.items()])
        text = f"{begin}the model is correct for {_accuracy_text(metrics['model'])}; {others}."
        best = best_trees(metrics, "accuracy")
        if _sign(gain_interval(metrics, best, "accuracy")):
            text += _error_ratio(metrics["model"]["accuracy"], metrics[best]["accuracy"], TREES[best])
    keys = (*GAINS, simple)
    if any(gain_interval(metrics, key, measure) for key in keys for measure, _ in _measures(metrics)):
        return text
    reason = (metrics.get("intervals") or {}).get("reason") or "the metrics contain none"
    return f"{text} Without a confidence interval the differences may be chance: {reason}."


def _accuracy_text(scores: dict[str, Any]) -> str:
    return f"{format_percent(scores['accuracy'])} (mIoU {format_score(scores['miou'])})"


def _f1_text(scores: dict[str, Any]) -> str:
    return f"{format_score(scores['f1_micro'])} (macro F1 {format_score(scores['f1_macro'])})"


def _error_ratio(accuracy: float, baseline: float | None, name: str) -> str:
    """How many more or fewer errors than the best trees, as a sentence."""
    if baseline is None or round(baseline, 3) >= 1 or round(accuracy, 3) == round(baseline, 3):
        return ""
    ratio = (1 - accuracy) / (1 - baseline)
    if ratio > 2:
        return f" It makes {ratio:.1f} times as many errors as the {name}."
    share = f"{100 * abs(ratio - 1):.0f}{THIN_SPACE}%"
    return f" It makes {share} {'more' if ratio > 1 else 'fewer'} errors than the {name}."
