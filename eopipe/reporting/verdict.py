"""The verdict on a model: a comparison with the chosen baseline and the simple one by the interval of the gain.

A difference counts where its interval excludes 0, never by the points: without an interval it is given, but decides
nothing. Nothing is claimed about the other baselines, whose scores are in the table.
"""

from dataclasses import dataclass, replace
from typing import Literal

from eopipe.evaluation.metrics_document import MIN_PIECES, AnyMetrics, Method, MethodScores, MetricsDocument, RunMetrics
from eopipe.reporting.wording import (
    BASELINES,
    EQUAL,
    THIN_SPACE,
    format_difference,
    format_gain,
    format_percent,
    format_value,
    join_words,
    plural,
    score_text,
    scored_size,
)
from eopipe.tasks import LOWER_IS_BETTER, TASKS
from eopipe.tasks.task import Measure

# A significant difference below one point in both measures is called slight.
SLIGHT_DIFFERENCE = 0.01
NamedMeasures = tuple[tuple[Measure, str], ...]
SEEDS = "The intervals are for this map: they do not include the spread over seeds"
# A class with less than this share of its share of the test labels is hardly on the map.
HARDLY_MAPPED = 0.1
# Changes from one class to another are many.
MOST_NAMED = 4
UNDECIDED = "cannot be told apart from"
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

    `relation` ends before the name of the baseline, `note` follows it. Without an interval `gain` is above 0
    where the model is ahead, and `independent` the number of independent pieces, if known.
    """

    baseline: str
    value: int
    relation: str
    note: str = ""
    gain: float | None = None
    independent: float | None = None

    def __str__(self) -> str:
        """The comparison as a predicate."""
        return f"{self.relation} {self.baseline}{f' ({self.note})' if self.note else ''}"


def verdict(metrics: RunMetrics) -> Verdict:
    """Compare the model with the best trees and with the simple baseline by the intervals of its gains."""
    measures = verdict_measures(metrics.task)
    if metrics.model.score(measures[0][0]) is None:
        text = f"Not one {metrics.sample} of the test areas has both a label and a prediction."
        return Verdict("mixed", "The model could not be scored.", text)
    chosen = f"the {BASELINES[metrics.chosen]}"
    comparisons = [_compare(metrics, metrics.chosen, chosen), _compare(metrics, "simple", _simple_name(metrics))]
    values = [comparison.value for comparison in comparisons]
    tone: Tone = "bad" if min(values) < 0 else "good" if min(values) > 0 else "mixed"
    sentences = [f"The model {_joined(comparisons)}.", _chance_text(metrics, comparisons), *weak_classes(metrics)]
    tone = "mixed" if tone == "good" and weak_classes(metrics) else tone
    return Verdict(tone, " ".join(filter(None, sentences)), _text(metrics))


def seeds_text(metrics: MetricsDocument) -> str:
    """What the intervals leave out, and where the scores of an ensemble's members describe it."""
    if not metrics.members:
        return f"{SEEDS}, so another training with the same settings may differ by more."
    return (
        f"{SEEDS}. The standard deviation of the scores of the {len(metrics.members)} members describes it for single "
        "trainings, not for their mean."
    )


def headline(metrics: RunMetrics) -> str:
    """The scores on one line, for the map."""
    task, chosen = TASKS[metrics.task], metrics.chosen
    words = [_words(metrics, scores) for scores in (metrics.model, metrics.baselines[chosen], metrics.simple)]
    _, baseline, simple = (of_method[verdict_measures(metrics.task)[0][0]] for of_method in words)
    of_map = task.texts.line.format(sample=metrics.sample, **words[0])
    return f"{of_map} ({BASELINES[chosen]} {baseline}, {task.simple_baseline[1]} {simple})"


def _words(metrics: RunMetrics, scores: MethodScores) -> dict[str, str]:
    """The scores of a method as text, by their keys; accuracy as a percentage."""
    values = {named.key: scores.score(named.key) for named in TASKS[metrics.task].scores}
    return {
        key: format_percent(value) if key == "accuracy" else score_text(value, key, metrics.unit)
        for key, value in values.items()
    }


def weak_classes(metrics: AnyMetrics, subject: str = "The map") -> list[str]:
    """Sentences about classes that the map lacks, or hardly has, or never has where the test labels do."""
    per_class, mapped = metrics.model.per_class, metrics.map_pixels
    labels, pixels = sum(scores.support for scores in per_class.values()), sum(mapped.values())
    never_right, hardly = list[str](), list[str]()
    for name in [name for name in per_class if name not in metrics.not_mapped]:
        support, quoted, count = per_class[name].support, f"“{name}”", mapped.get(name)
        if support and not per_class[name].recall:
            never_right.append(quoted)
        elif count is not None and count * labels < HARDLY_MAPPED * support * pixels:
            share = f"{format_percent(support / labels)} of the test labels"
            hardly.append(f"{format_percent(count / pixels)} {quoted} ({share})")
    predicates = {
        f"has no pixel of {_first([f'“{name}”' for name in metrics.not_mapped])}": metrics.not_mapped,
        f"is right at no test {metrics.sample} of {_first(never_right, 'or')}": never_right,
        f"is {_first(hardly)}": hardly,
    }
    return [f"{subject} {predicate}." for predicate, names in predicates.items() if names]


def _first(classes: list[str], last: str = "and") -> str:
    """Classes in a sentence; of many the first, and the number of the others."""
    others = classes[MOST_NAMED:]
    return join_words([*classes[:MOST_NAMED], *([plural(len(others), "other class")] if others else [])], last)


def _simple_name(metrics: RunMetrics) -> str:
    """The baseline that predicts the same everywhere, as a name in a sentence."""
    return TASKS[metrics.task].texts.simple.format(constant_text(metrics))


def constant_text(metrics: RunMetrics) -> str:
    """What the baseline predicts that predicts the same everywhere: a class, labels or a value."""
    constant: str | list[str] | float = getattr(metrics.simple, TASKS[metrics.task].texts.constant)
    if isinstance(constant, float):
        return format_value(constant, metrics.unit)
    return join_words([f"“{name}”" for name in ([constant] if isinstance(constant, str) else constant)]) or "no label"


def verdict_measures(task: str) -> NamedMeasures:
    """The keys of the scores that a verdict compares, and their names in a sentence."""
    return tuple((score.key, score.name) for score in TASKS[task].scores if score.in_verdict)


def _compare(metrics: RunMetrics, key: Method, name: str) -> Comparison:
    """Compare with a baseline by the intervals of the gains."""
    measures = verdict_measures(metrics.task)
    intervals = {title: metrics.gains(key).get(measure) for measure, title in measures}
    # A lower error is the better one.
    sense = -1 if measures[0][0] in LOWER_IS_BETTER else 1
    signs = {title: sense * _sign(interval) for title, interval in intervals.items()}
    better, worse = ([title for title, sign in signs.items() if sign == s] for s in (1, -1))
    if better and worse:
        return Comparison(name, 0, f"is better in {join_words(better)} but worse in {join_words(worse)} than")
    if not better and not worse:
        measure = next((m for m, title in measures if intervals[title]), measures[0][0])
        note = _gain_note(metrics, key, measure)
        if any(intervals.values()):
            return Comparison(name, 0, UNDECIDED, note)
        pieces = metrics.intervals.independent.get(metrics.comparison(key))
        if pieces is not None:
            note += f" from about {pieces:g} independent piece{'' if pieces == 1 else 's'}"
        gain = round(sense * _difference(metrics, key, measure), 3 if sense > 0 else 9)
        relation = "is ahead of" if gain > 0 else "is behind" if gain else "is level with"
        return Comparison(name, 0, relation, note, gain, pieces)
    decided = better or worse
    is_slight = sense == 1 and max(abs(_difference(metrics, key, m)) for m, _ in measures) < SLIGHT_DIFFERENCE
    degree = f"{'slightly ' if is_slight else ''}{'better' if better else 'worse'}"
    extent = "" if len(decided) == len(measures) else f" in {join_words(decided)}"
    return Comparison(name, 1 if better else -1, f"is {degree}{extent} than")


def _sign(interval: list[float] | None) -> int:
    """1 for an interval above 0, -1 for one below, 0 for one that contains 0 or is not known."""
    return 0 if interval is None else int(interval[0] > 0) - int(interval[1] < 0)


def _difference(metrics: RunMetrics, key: Method, measure: Measure) -> float:
    model, baseline = (scores.score(measure) for scores in (metrics.model, metrics.methods[key]))
    return 0.0 if model is None or baseline is None else float(model - baseline)


def _gain_note(metrics: RunMetrics, key: Method, measure: Measure) -> str:
    """The gain with its interval: `gain -0.004, 95 %: -0.022 to 0.010`."""
    interval, gain = metrics.gains(key).get(measure), _difference(metrics, key, measure)
    title = "" if measure == "accuracy" else f" of {dict(verdict_measures(metrics.task))[measure]}"
    name, unit = ("difference in RMSE", metrics.unit) if measure == "rmse" else (f"gain{title}", "")
    text = f"{name} {format_gain(gain, unit)}"
    ends = format_difference(interval, unit)
    return f"{text}, {'' if ends == EQUAL else '95 %: '}{ends}" if ends else text


def _joined(comparisons: list[Comparison]) -> str:
    """Both comparisons as one predicate; `but` where only one of them is in favour of the model."""
    first, second = comparisons
    if first.relation != second.relation:
        favours = {(comparison.gain or comparison.value) > 0 for comparison in comparisons}
        return f"{first}, {'but' if len(favours) > 1 else 'and'} {second}"
    without_note = replace(first, note="") if first.note == second.note else first
    word, preposition = "or" if first.relation == UNDECIDED else "and", first.relation.rpartition(" ")[2]
    return f"{without_note}, {word} {replace(second, relation=preposition)}"


def _chance_text(metrics: RunMetrics, comparisons: list[Comparison]) -> str:
    """Why gains without an interval may be chance, as a sentence; empty where all have one."""
    unsure = [comparison for comparison in comparisons if comparison.gain is not None]
    if unsure and all(comparison.independent and comparison.independent < MIN_PIECES for comparison in unsure):
        return f"Too few pieces of the test areas are independent to rule out chance: at least {MIN_PIECES} are needed."
    return f"This may be chance: {metrics.intervals.reason or 'the metrics have no interval'}." if unsure else ""


def _text(metrics: RunMetrics) -> str:
    """Scores of model and baselines in one sentence, and what is certain of them."""
    chosen, texts = metrics.chosen, TASKS[metrics.task].texts
    of_methods = {key: texts.scores.format(**_words(metrics, scores)) for key, scores in metrics.methods.items()}
    names: dict[Method, str] = {chosen: f"the {BASELINES[chosen]}", "simple": _simple_name(metrics)}
    others = join_words([texts.other.format(of_methods[key], name=name) for key, name in names.items()])
    text = f"On {scored_size(metrics)}, {texts.model.format(of_methods['model'])}; {others}."
    if _sign(metrics.gains(chosen).get("accuracy")):
        accuracy, of_baseline = (scores.score("accuracy") for scores in (metrics.model, metrics.baselines[chosen]))
        text += _error_ratio(accuracy, of_baseline, BASELINES[chosen])
    return text


def _error_ratio(accuracy: float | None, baseline: float | None, name: str) -> str:
    """How many more or fewer errors than the baseline, as a sentence."""
    if accuracy is None or baseline is None or round(baseline, 3) >= 1 or round(accuracy, 3) == round(baseline, 3):
        return ""
    ratio = (1 - accuracy) / (1 - baseline)
    if ratio > 2:
        return f" It makes {ratio:.1f} times as many errors as the {name}."
    share = f"{100 * abs(ratio - 1):.0f}{THIN_SPACE}%"
    return f" It makes {share} {'more' if ratio > 1 else 'fewer'} errors than the {name}."
