"""The panel of a map of from-to classes: scores of change, areas of the transitions, and where the map has change."""

from dataclasses import replace
from typing import Any

import numpy as np

from eopipe.reporting.panels import INCORRECT, UNTESTED, ImagePanel, PanelGroup, encode_classes
from eopipe.reporting.rasters import MapView
from eopipe.reporting.scores import TableCell, TableRow
from eopipe.reporting.wording import TREES, format_count, format_percent, format_score
from eopipe.tiles.store import NO_LABEL

HEADS = ("Method", "F1 of change", "Precision", "Recall", "Kappa", "Correct transitions", "Changed test pixels")
METHODS = {
    "model": "This model",
    **{key: name.capitalize() for key, name in TREES.items()},
    "post_classification": "Post-classification comparison",
    "majority": "Most frequent transition",
}


def change_sections(metrics: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of change; nothing where the labels are not from-to classes."""
    change = metrics.get("change")
    if not change:
        return {"change": None}
    reason = change["post_classification"].get("reason")
    areas = {
        "labels": "Labels in the test areas: hectares of each transition, from the row to the column",
        "map_in_test": "Map in the test areas, hectares",
        "map": "All of the map, hectares",
    }
    return {
        "change": {
            "heads": HEADS,
            "rows": [_method_row(name, change[key]) for key, name in METHODS.items() if "f1" in change.get(key, {})],
            "note": f"No post-classification comparison: {reason}." if reason else "",
            "classes": change["classes"],
            "tables": [(text, transition_rows(change["classes"], change["areas"][key])) for key, text in areas.items()],
        }
    }


def _method_row(name: str, scores: dict[str, Any]) -> tuple[str, ...]:
    values = (scores[key] for key in ("f1", "precision", "recall", "kappa"))
    return (
        name,
        *map(format_score, values),
        format_percent(scores["correct_transitions"]),
        format_count(scores["pixels"]),
    )


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


def with_change_panel(group: PanelGroup, view: MapView, metrics: dict[str, Any]) -> PanelGroup:
    """The panels of a map of from-to classes with one more: where the class before and after differ."""
    change = metrics.get("change")
    if not change:
        return group
    mapped = view.classes[view.window]
    before, after = np.divmod(mapped, len(change["classes"]))
    changed = np.where(mapped == NO_LABEL, NO_LABEL, before != after).astype(np.uint8)
    known = changed[changed != NO_LABEL]
    share = format_percent(float(known.mean()) if known.size else None)
    alt = f"Predicted change: {share} of the pixels in this image."
    panel = ImagePanel("Predicted change", alt, encode_classes(changed, (UNTESTED, INCORRECT)))
    return replace(group, panels=[*group.panels, panel])
