"""Scores of a map of a finished model, as tables: labels that test it, and no baseline beside it."""

from typing import Any

from eopipe.evaluation.measures import PER_CLASS
from eopipe.reporting.data_tables import TextRow
from eopipe.reporting.scores import MEASURES, no_interval_text
from eopipe.reporting.wording import (
    calibration_text,
    format_count,
    format_interval,
    format_score,
    join_words,
    scored_size,
)

TESTED = "All labels of this run are test labels: this model used none of them in this run."
ELSEWHERE = "Where they are those of its training, or are next to those, the scores are too high for new places."
OF_CLASS = dict(zip(PER_CLASS, ("IoU", "Precision", "Recall", "F1"), strict=True))


def headline_of(metrics: dict[str, Any]) -> str:
    """Accuracy and mIoU of the map with their intervals, and what they are measured on, as sentences."""
    scores = metrics["model"]
    if scores["accuracy"] is None:
        return f"Not one pixel has both a label and a prediction. {TESTED}"
    texts = [
        f"{title} {format_score(scores[key])}{f' ({interval})' if interval else ''}"
        for key, title in (("accuracy", "accuracy"), ("miou", "mIoU"))
        for interval in [format_interval(_intervals_of(metrics).get(key))]
    ]
    names = [f"“{name}”" for name in metrics.get("not_mapped", ())]
    absent = f" The map has no pixel of {join_words(names)}." if names else ""
    return f"Scores on {scored_size(metrics)}: {', '.join(texts)}.{absent} {TESTED}"


def score_sections(metrics: dict[str, Any]) -> dict[str, Any]:
    """Captions, heads and rows of the tables of scores, and notes below them."""
    classes, matrix = metrics["classes"], metrics["model"]["confusion"]
    level = f"{100 * (metrics.get('intervals') or {}).get('level', 0.95):.0f} %"
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


def _intervals_of(metrics: dict[str, Any]) -> dict[str, Any]:
    return (metrics.get("intervals") or {}).get("model") or {}


def _score_rows(metrics: dict[str, Any]) -> list[TextRow]:
    ends = _intervals_of(metrics)
    return [(title, format_score(metrics["model"][key]), format_interval(ends.get(key))) for key, title in MEASURES]


def _class_rows(metrics: dict[str, Any]) -> list[TextRow]:
    ends, rows = _intervals_of(metrics), []
    for name in metrics["classes"]:
        scores = metrics["model"]["per_class"][name]
        cells = [
            text for key in OF_CLASS for text in (format_score(scores[key]), format_interval(ends.get(f"{key}:{name}")))
        ]
        rows.append((name, *cells, format_count(scores["pixels"])))
    return rows


def _interval_note(metrics: dict[str, Any]) -> str:
    """Why scores have no interval; empty where those of all pixels have one."""
    intervals = metrics.get("intervals") or {}
    if not any(_intervals_of(metrics).values()):
        return no_interval_text(intervals)
    reasons = sorted(set((intervals.get("missing") or {}).values()))
    return f"Some scores have no interval: {'; '.join(reasons)}." if reasons else ""
