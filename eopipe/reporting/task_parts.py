"""Parts of the page that few runs have: of several labels for each chip, of change, and of areas from a sample."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from eopipe.areas.areas_document import AreasDocument, ClassArea, EstimatedValue
from eopipe.arrays import UInt8Array
from eopipe.evaluation.metrics_document import ChangeScores, LabelMetrics, ScoresOfChange
from eopipe.reporting.panels import (
    INCORRECT,
    UNTESTED,
    EncodedImage,
    ImagePanel,
    PanelGroup,
    encode_classes,
    encode_photo,
    stretch_contrast,
)
from eopipe.reporting.rasters import MapView
from eopipe.reporting.scores import (
    ShareTable,
    TableCell,
    TableRow,
    TextTable,
    class_heads,
    class_rows,
    method_rows,
    share_cell,
)
from eopipe.reporting.wording import BASELINES, DASH, format_count, format_percent, format_score, plural
from eopipe.tasks import TASKS
from eopipe.tiles.store import NO_LABEL


@dataclass(frozen=True)
class LabelExample:
    """A test chip with its surroundings, its true and predicted labels as text, and whether they are the same."""

    image: EncodedImage
    alt: str
    truth: str
    predicted: str
    is_correct: bool


def label_sections(metrics: LabelMetrics, maps: list[MapView], chip: int, step: int) -> dict[str, Any]:
    """What the page shows only for several labels for each chip."""
    caption = "Co-occurrence of true labels: test chips with both classes, share of those with the class of the row"
    pairs = {caption: metrics.cooccurrence.truth, "Co-occurrence of predicted labels": metrics.cooccurrence.predicted}
    rule = (
        f"A chip has the label of each class with at least {format_percent(metrics.min_share)} of its labelled pixels; "
        f"the model predicts the classes with a probability of at least {metrics.threshold}."
    )
    return {
        "methods": method_rows(metrics),
        "score_note": f"{rule} {TASKS[metrics.task].explanation}",
        "class_heads": (*class_heads(metrics), "AP", "Predicted"),
        "class_rows": label_rows(metrics),
        "share_tables": [
            ShareTable(text, "Class", cooccurrence_rows(metrics.classes, counts)) for text, counts in pairs.items()
        ],
        "label_examples": [*_examples(metrics, maps, chip, step)],
        "error_legend": {"class is absent": UNTESTED},
        # What the calibration counts.
        "unit": "label",
    }


def label_rows(metrics: LabelMetrics) -> list[TableRow]:
    """The row of each class, with average precision and the number of chips where it is predicted."""
    rows = []
    for row in class_rows(metrics):
        scores = metrics.model.per_class[row.name]
        texts = format_score(scores.average_precision), format_count(scores.predicted_chips)
        rows.append(replace(row, cells=[*row.cells, *(TableCell(text, None) for text in texts)]))
    return rows


def cooccurrence_rows(classes: list[str], counts: list[list[int]]) -> list[TableRow]:
    """One row for each class: the chips that also have each class, as share of those with the class of the row."""
    rows = []
    for number, (name, row) in enumerate(zip(classes, counts, strict=True)):
        cells = [share_cell(count, row[number], is_highlighted=True) for count in row]
        rows.append(TableRow(name, plural(row[number], "chip"), cells))
    return rows


def _examples(metrics: LabelMetrics, maps: list[MapView], chip: int, step: int) -> Iterator[LabelExample]:
    """The examples of the metrics whose map is on the page; an image has half a chip around the chip."""
    pixels = {view.scene: (view, stretch_contrast(view.quicklook.bands, view.quicklook.has_data)) for view in maps}
    for example in metrics.examples:
        if example.scene not in pixels:
            continue
        view, image = pixels[example.scene]
        truth, predicted = (", ".join(names) or "none" for names in (example.truth, example.predicted))
        yield LabelExample(
            _chip_image(view, image, (example.row // step, example.column // step), max(chip // step, 1)),
            f"Test chip at row {example.row}, column {example.column}.",
            truth,
            predicted,
            example.truth == example.predicted,
        )


def _chip_image(view: MapView, image: UInt8Array, corner: tuple[int, int], edge: int) -> EncodedImage:
    """A chip of `edge` pixels of the image and its surroundings, which are mixed with white."""
    margin = max(edge // 2, 1)
    paler = (image // 2 + 127).astype(np.uint8)
    chip = tuple(slice(start, start + edge) for start in corner)
    paler[chip] = image[chip]
    crop = tuple(slice(max(start - margin, 0), start + edge + margin) for start in corner)
    return encode_photo(paler[crop], view.quicklook.has_data[crop])


HEADS = ("Method", "F1 of change", "Precision", "Recall", "Kappa", "Correct transitions", "Changed test pixels")


def change_sections(change: ChangeScores | None) -> dict[str, Any]:
    """What the page shows of change; nothing where the labels are not from-to classes."""
    if not change:
        return {"change": None}
    compared, note = change.post_classification, ""
    if not isinstance(compared, ScoresOfChange):
        note = f"No post-classification comparison: {compared.reason}."
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
            "note": note,
            "classes": change.classes,
            "tables": [(text, transition_rows(change.classes, hectares)) for text, hectares in areas.items()],
        }
    }


def _method_row(name: str, scores: ScoresOfChange) -> tuple[str, ...]:
    values = (scores.f1, scores.precision, scores.recall, scores.kappa)
    return (name, *map(format_score, values), format_percent(scores.correct_transitions), format_count(scores.pixels))


def transition_rows(classes: list[str], hectares: list[list[float]]) -> list[TableRow]:
    """One row for each class before: the area of each class after, and its share of all; no change is highlighted."""
    total, rows = sum(map(sum, hectares)) or 1.0, list[TableRow]()
    for number, (name, row) in enumerate(zip(classes, hectares, strict=True)):
        shares = [(area, area / total) for area in row]
        cells = [
            TableCell(f"{area:.4g}", share, column == number, format_percent(share))
            for column, (area, share) in enumerate(shares)
        ]
        rows.append(TableRow(name, f"{sum(row):.4g} ha", cells))
    return rows


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


METHODS = (
    "Intervals of shares and areas combine the Jeffreys intervals of the strata (Zou et al. 2009, "
    "doi:10.1016/j.csda.2008.09.033), since 1.96 standard errors are too narrow for a rare class; those of user's and "
    "producer's accuracy are Jeffreys intervals of a simple sample with the same variance. "
    "Areas and standard errors: Olofsson et al. 2014, doi:10.1016/j.rse.2014.02.015; Stehman 2014, "
    "doi:10.1080/01431161.2014.930207."
)
RULES = {
    "proportional": "in proportion to the area of each stratum",
    "equal": "equally among the strata",
    "neyman": "by the area of each stratum and its expected errors (Neyman)",
}


class EstimatedAreas(NamedTuple):
    """What a page says of estimated areas: sentences, tables, those of the sample, and notes below them."""

    sentences: list[str]
    tables: list[TextTable]
    sample: list[TextTable]
    notes: list[str]


def estimated_areas(document: AreasDocument) -> EstimatedAreas:
    """The sentences and tables about estimated areas."""
    first = _class_tables(document) if document.classes else [_mean_table(document)]
    notes = [*document.notes, *([METHODS] if document.classes else [])]
    return EstimatedAreas(_sentences(document), first, _sample_tables(document), notes)


def _sentences(document: AreasDocument) -> list[str]:
    drawn = sum(row.sampled for row in document.strata)
    source = "another map" if document.is_of_other_maps else "this map"
    people = f" by {plural(len(document.interpreters), 'interpreter')}" if len(document.interpreters) > 1 else ""
    sentences = [
        f"{format_count(document.labelled)} of {plural(drawn, 'pixel')}, drawn at random from the strata of {source} "
        f"{RULES[document.allocation]}, were labelled{people}; they stand for {format_hectares(document.hectares)} ha."
    ]
    if document.overall_accuracy:
        sentences.append(f"The map is right on {_accuracy(document.overall_accuracy)} of the area.")
    return sentences


def _class_tables(document: AreasDocument) -> list[TextTable]:
    heads = ("Class", "Mapped, ha", "Estimated, ha", "Standard error, ha", "95 % interval, ha", "Share of the area")
    rows = [
        (
            name,
            format_hectares(row.mapped_hectares),
            format_hectares(row.hectares.estimate),
            format_hectares(row.hectares.standard_error),
            _ends(row.hectares),
            format_percent(row.share.estimate),
        )
        for name, row in _in_order(document)
    ]
    accuracy = [
        (name, *(_accuracy(value) for value in (row.users_accuracy, row.producers_accuracy)))
        for name, row in _in_order(document)
    ]
    names = document.classes
    matrix = [
        (name, *(f"{format_percent(share)} ({count})" for share, count in zip(shares, counts, strict=True)))
        for name, shares, counts in zip(names, document.error_matrix, document.counts, strict=True)
    ]
    right = ("Class", "User's accuracy", "Producer's accuracy")
    return [
        TextTable("Area of each class: mapped, and estimated from the sample", heads, rows),
        TextTable("Accuracy of each class, with 95 % intervals", right, accuracy),
        TextTable("Shares of the area, and sampled pixels, by map (rows) and label", ("Map", *names), matrix),
    ]


def _mean_table(document: AreasDocument) -> TextTable:
    assert document.mean
    assert document.bias
    rows = [
        ("map", f"{document.mapped_mean:.4g}", DASH, DASH),
        *(
            (name, f"{value.estimate:.4g}", _plain(value.standard_error), _ends(value))
            for name, value in (("corrected by the sample", document.mean), ("map minus labels", document.bias))
        ),
    ]
    return TextTable(f"Mean of {document.quantity}", ("", "Mean", "Standard error", "95 % interval"), rows)


def _sample_tables(document: AreasDocument) -> list[TextTable]:
    rows = [
        (
            row.name,
            format_hectares(row.hectares),
            format_percent(row.hectares / document.hectares),
            format_count(row.sampled),
            format_count(row.labelled),
        )
        for row in document.strata
    ]
    heads = ("Stratum", "Hectares", "Share", "Pixels drawn", "Labelled")
    tables = [TextTable("Strata of the sample", heads, rows)]
    if document.agreement:
        is_class = bool(document.classes)
        agreed = [
            (
                " and ".join(row["interpreters"]),
                format_count(row["pixels"]),
                *(
                    [format_percent(row.get("agreement")), _plain(row.get("kappa"))]
                    if is_class
                    else [_plain(row.get("rmsd"))]
                ),
            )
            for row in document.agreement
        ]
        measured = ["Same label", "Cohen's kappa"] if is_class else ["Root mean square difference"]
        tables.append(TextTable("Agreement of interpreters", ("Files", "Pixels of both", *measured), agreed))
    return tables


def _in_order(document: AreasDocument) -> list[tuple[str, ClassArea]]:
    """The areas in the order of the classes of the map."""
    return [(name, document.areas[name]) for name in document.classes]


def _plain(value: float | None) -> str:
    return DASH if value is None else f"{value:.3g}"


def format_hectares(value: float | None) -> str:
    """Hectares, with as many digits as say something; a dash where they are not known."""
    if value is None:
        return DASH
    return format_count(round(value)) if abs(value) >= 1000 else f"{value:.4g}"


def _accuracy(value: EstimatedValue | None) -> str:
    if value is None:
        return DASH
    ends = f" ({100 * value.interval[0]:.1f} to {100 * value.interval[1]:.1f})" if value.interval else ""
    return f"{format_percent(value.estimate)}{ends}"


def _ends(value: EstimatedValue) -> str:
    """Both ends of an interval; a dash without one."""
    return " to ".join(map(format_hectares, value.interval)) if value.interval else DASH
