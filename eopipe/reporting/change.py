"""The panel of a map of from-to classes: scores of change, areas of the transitions, and where the map has change."""

from dataclasses import replace
from typing import Any

import numpy as np

from eopipe.evaluation.metrics_document import ChangeScores, ScoresOfChange
from eopipe.reporting.panels import INCORRECT, UNTESTED, ImagePanel, PanelGroup, encode_classes
from eopipe.reporting.rasters import MapView
from eopipe.reporting.scores import TableCell, TableRow
from eopipe.reporting.wording import BASELINES, format_count, format_percent, format_score
from eopipe.tiles.store import NO_LABEL

HEADS = ("Method", "F1 of change", "Precision", "Recall", "Kappa", "Correct transitions", "Changed test pixels")


def change_sections(change: ChangeScores | None) -> dict[str, Any]:
    """What the page shows of change; nothing where the labels are not from-to classes."""
    if not change:
        return {"change": None}
    compared = change.post_classification
    methods = {
        "This model": change.model,
        **{BASELINES[key].capitalize(): scores for key, scores in change.baselines.items()},
        "Post-classification comparison": compared,
        "Most frequent transition": change.majority,
    }
    areas = {
        "Labels in the test areas: hectares of each transition, from the row to the column": change.areas.labels,
        "Map in the test areas, hectares": change.areas.map_in_test,
        "All of the map, hectares": change.areas.map,
    }
    return {
        "change": {
            "heads": HEADS,
            "rows": [_method_row(name, s) for name, s in methods.items() if isinstance(s, ScoresOfChange)],
            "note": ""
            if isinstance(compared, ScoresOfChange)
            else f"No post-classification comparison: {compared.reason}.",
            "classes": change.classes,
            "tables": [(text, transition_rows(change.classes, hectares)) for text, hectares in areas.items()],
        }
    }


def _method_row(name: str, scores: ScoresOfChange) -> tuple[str, ...]:
    values = (scores.f1, scores.precision, scores.recall, scores.kappa)
    return (name, *map(format_score, values), format_percent(scores.correct_transitions), format_count(scores.pixels))


def transition_rows(classes: list[str], hectares: list[list[float]]) -> list[TableRow]:
    """One row for each class before: the area of each class after, and its share of all; no change is highlighted."""
    total = sum(map(sum, hectares)) or 1.0
    return [
        TableRow(
            name,
            f"{sum(row):.4g} ha",
            [
                TableCell(f"{area:.4g}", area / total, column == number, format_percent(area / total))
                for column, area in enumerate(row)
            ],
        )
        for number, (name, row) in enumerate(zip(classes, hectares, strict=True))
    ]


def with_change_panel(group: PanelGroup, view: MapView, change: ChangeScores | None) -> PanelGroup:
    """The panels of a map of from-to classes with one more: where the class before and after differ."""
    if not change:
        return group
    mapped = view.classes[view.window]
    before, after = np.divmod(mapped, len(change.classes))
    changed = np.where(mapped == NO_LABEL, NO_LABEL, before != after).astype(np.uint8)
    known = changed[changed != NO_LABEL]
    share = format_percent(float(known.mean()) if known.size else None)
    alt = f"Predicted change: {share} of the pixels in this image."
    panel = ImagePanel("Predicted change", alt, encode_classes(changed, (UNTESTED, INCORRECT)))
    return replace(group, panels=[*group.panels, panel])
