"""Scores of a map of a finished model, as tables: labels that test it, and no baseline beside it."""

from typing import Any

from eopipe.evaluation.metrics_document import FinishedMetrics
from eopipe.reporting.data_tables import TextRow
from eopipe.reporting.scores import MEASURES, OF_CLASS, no_interval_text
from eopipe.reporting.verdict import not_mapped_text, verdict_measures
from eopipe.reporting.wording import (
    calibration_text,
    format_count,
    format_interval,
    format_score,
    scored_size,
)

TESTED = "All labels of this run are test labels: this model used none of them in this run."
ELSEWHERE = "Where they are its training labels, or are next to these, the scores are too high for new places."


def headline_of(metrics: FinishedMetrics) -> str:
    """Accuracy and mIoU of the map with their intervals, and what they are measured on, as sentences."""
    scores = metrics.model
    if scores.accuracy is None:
        return f"Not one pixel has both a label and a prediction. {TESTED}"
    texts = [
        f"{title} {format_score(scores.score(key))}{f' ({interval})' if interval else ''}"
        for key, title in verdict_measures("segmentation")
        for interval in [format_interval(metrics.intervals.model.get(key))]
    ]
    return f"Scores on {scored_size(metrics)}: {', '.join(texts)}.{not_mapped_text(metrics)} {TESTED}"


def score_sections(metrics: FinishedMetrics) -> dict[str, Any]:
    """Captions, heads and rows of the tables of scores, and notes below them."""
    classes, matrix = metrics.classes, metrics.model.confusion
    level = f"{100 * (metrics.intervals.level or 0.95):.0f} %"
    confusion = [(name, *map(format_count, row)) for name, row in zip(classes, matrix, strict=True)]
    heads_of_class = [head for title in OF_CLASS.values() for head in (title, level)]
    return {
        "tables": [
            (f"Scores on {scored_size(metrics)}", ["Score", "Value", f"{level} interval"], _score_rows(metrics)),
            ("Scores of each class, with their intervals", ["Class", *heads_of_class, "Pixels"], _class_rows(metrics)),
            ("Test pixels by label (rows) and map (columns)", ["Label ↓ Map →", *classes], confusion),
        ],
        "notes": [f"{TESTED} {ELSEWHERE}", _interval_note(metrics), calibration_text(metrics)],
    }


def _score_rows(metrics: FinishedMetrics) -> list[TextRow]:
    scores, ends = metrics.model, metrics.intervals.model
    return [(title, format_score(scores.score(key)), format_interval(ends.get(key))) for key, title in MEASURES]


def _class_rows(metrics: FinishedMetrics) -> list[TextRow]:
    ends, rows = metrics.intervals.model, []
    for name in metrics.classes:
        scores = metrics.model.per_class[name]
        cells = [
            text
            for key in OF_CLASS
            for text in (format_score(scores.score(key)), format_interval(ends.get(f"{key}:{name}")))
        ]
        rows.append((name, *cells, format_count(scores.support)))
    return rows


def _interval_note(metrics: FinishedMetrics) -> str:
    """Why scores have no interval; empty where the scores of all pixels have one."""
    if not any(metrics.intervals.model.values()):
        return no_interval_text(metrics.intervals)
    reasons = sorted(set(metrics.intervals.missing.values()))
    return f"Some scores have no interval: {'; '.join(reasons)}." if reasons else ""
