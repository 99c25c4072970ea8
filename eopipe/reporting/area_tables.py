"""Estimated areas as tables: on a page of their own, in the report of a run, and in its model card."""

from collections.abc import Sequence
from typing import NamedTuple

from eopipe.areas.areas_document import AreasDocument, ClassArea, EstimatedValue
from eopipe.reporting.wording import DASH, format_count, format_percent, join_words, plural

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


class AreaTable(NamedTuple):
    """A table: its title with an id, both empty for one that follows another, its caption, heads and rows."""

    id: str
    title: str
    caption: str
    heads: list[str]
    rows: Sequence[tuple[str, ...]]


class EstimatedAreas(NamedTuple):
    """What a page says of estimated areas: sentences, tables, and notes below them."""

    sentences: list[str]
    tables: list[AreaTable]
    notes: list[str]


def estimated_areas(document: AreasDocument) -> EstimatedAreas:
    """The sentences and tables about estimated areas."""
    first = _class_tables(document) if document.classes else [_mean_table(document)]
    notes = [*document.notes, *([METHODS] if document.classes else [])]
    return EstimatedAreas(_sentences(document), [*first, *_sample_tables(document)], notes)


def headline(document: AreasDocument) -> str:
    """The areas in a sentence."""
    if document.mean:
        return f"{document.quantity}: mean {_with_error(document.mean)}, {document.mapped_mean:.4g} on the map"
    texts = [f"{name} {_hectares(row.hectares)}" for name, row in _in_order(document)]
    return f"{join_words(texts)}"


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


def _class_tables(document: AreasDocument) -> list[AreaTable]:
    heads = ["Class", "Mapped, ha", "Estimated, ha", "Standard error, ha", "95 % interval, ha", "Share of the area"]
    rows = [
        (
            name,
            format_hectares(row.mapped_hectares),
            format_hectares(row.hectares.estimate),
            DASH if row.hectares.standard_error is None else format_hectares(row.hectares.standard_error),
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
    right = ["Class", "User's accuracy", "Producer's accuracy"]
    return [
        AreaTable("", "", "Area of each class: mapped, and estimated from the sample", heads, rows),
        AreaTable("", "", "Accuracy of each class, with 95 % intervals", right, accuracy),
        AreaTable("", "", "Shares of the area, and sampled pixels, by map (rows) and label", ["Map", *names], matrix),
    ]


def _mean_table(document: AreasDocument) -> AreaTable:
    assert document.mean
    assert document.bias
    rows = [
        ("map", f"{document.mapped_mean:.4g}", DASH, DASH),
        *(
            (name, f"{value.estimate:.4g}", _error(value), _ends(value))
            for name, value in (("corrected by the sample", document.mean), ("map minus labels", document.bias))
        ),
    ]
    return AreaTable("", "", f"Mean of {document.quantity}", ["", "Mean", "Standard error", "95 % interval"], rows)


def _sample_tables(document: AreasDocument) -> list[AreaTable]:
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
    heads = ["Stratum", "Hectares", "Share", "Pixels drawn", "Labelled"]
    tables = [AreaTable("sample", "Sample", "Strata of the sample", heads, rows)]
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
        tables.append(AreaTable("", "", "Agreement of interpreters", ["Files", "Pixels of both", *measured], agreed))
    return tables


def _in_order(document: AreasDocument) -> list[tuple[str, ClassArea]]:
    """The areas in the order of the classes of the map."""
    return [(name, document.areas[name]) for name in document.classes]


def _plain(value: float | None) -> str:
    return DASH if value is None else f"{value:.3g}"


def format_hectares(value: float) -> str:
    """Hectares, with as many digits as say something."""
    return format_count(round(value)) if abs(value) >= 1000 else f"{value:.4g}"


def _error(value: EstimatedValue) -> str:
    return DASH if value.standard_error is None else f"{value.standard_error:.3g}"


def _hectares(value: EstimatedValue) -> str:
    error = "" if value.standard_error is None else f" (standard error {format_hectares(value.standard_error)})"
    return f"{format_hectares(value.estimate)} ha{error}"


def _with_error(value: EstimatedValue) -> str:
    return f"{value.estimate:.4g} (standard error {_error(value)})"


def _accuracy(value: EstimatedValue | None) -> str:
    if value is None:
        return DASH
    ends = f" ({100 * value.interval[0]:.1f} to {100 * value.interval[1]:.1f})" if value.interval else ""
    return f"{format_percent(value.estimate)}{ends}"


def _ends(value: EstimatedValue) -> str:
    """Both ends of an interval; a dash without one."""
    return " to ".join(map(format_hectares, value.interval)) if value.interval else DASH
