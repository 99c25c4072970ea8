"""The labels of a sample, of one interpreter or of several, and how far these agree."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.areas.design import SampleDesign
from eopipe.areas.sample_files import DESIGN, LABEL, LAYER, read_design
from eopipe.arrays import Float64Array
from eopipe.errors import BadInputError, did_you_mean, some_of
from eopipe.labels.vector_files import POINTS, number_of, read_columns, table_rows

# Columns with the id of a pixel, in any case; Collect Earth Online returns that of an uploaded table as pl_plotid.
IDS = ("pl_plotid", "plotid", "id")
DRAW_ONE = (
    "labels that trained or tested a model, as test pixels of a split, are no probability sample of the map: draw one "
    "with eopipe sample"
)


@dataclass(frozen=True)
class LabelledSample:
    """The design of a sample with the label of each of its pixels (n,): class numbers or values, NaN without one.

    `disagreed` are the ids of pixels without a label that most interpreters gave; `agreement` compares pairs of these.
    """

    design: SampleDesign
    labels: Float64Array
    disagreed: list[int]
    agreement: list[dict[str, Any]]

    @classmethod
    def read(cls, paths: Sequence[Path], design: Path | None = None, column: str = LABEL) -> "LabelledSample":
        """Read labelled files of one sample, one for each interpreter.

        Raises BadInputError for files that are not of one sample, and for labels that are no classes or values.
        """
        sample = _read_design(paths, design)
        by_file = [_labels_of(path, sample, column) for path in paths]
        labels, disagreed = np.full(len(sample.pixels), np.nan), list[int]()
        for number, pixel in enumerate(sample.pixels):
            labels_of_pixel = [of_file[pixel.id] for of_file in by_file if pixel.id in of_file]
            if sample.quantity:
                labels[number] = float(np.mean(labels_of_pixel)) if labels_of_pixel else np.nan
                continue
            ranked = Counter(labels_of_pixel).most_common(2)
            if len(ranked) > 1 and ranked[0][1] == ranked[1][1]:
                disagreed.append(pixel.id)
            elif ranked:
                labels[number] = ranked[0][0]
        if np.isnan(labels).all():
            raise BadInputError(f"{paths[0]} has no label in the column {column}; label its pixels first")
        pairs = [
            _agreement(sample, (paths[a].name, by_file[a]), (paths[b].name, by_file[b]))
            for a, b in combinations(range(len(paths)), 2)
        ]
        return cls(sample, labels, disagreed, pairs)


def design_of(values: Mapping[str, Any]) -> Path | None:
    """The design of a labelled sample by the values of `estimate`: the given one, or for a table the one beside it.

    A GeoPackage contains its design, unless it was copied by a program that leaves that out.
    """
    if values["sample_design"] or not values["sample"]:
        design: Path | None = values["sample_design"]
        return design
    first = Path(values["sample"][0])
    beside = first.with_name(DESIGN)
    return beside if beside.is_file() and not _design_in(first) else None


def _design_in(path: Path) -> SampleDesign | None:
    return read_design(path) if path.suffix.lower() == ".gpkg" and path.is_file() else None


def _read_design(paths: Sequence[Path], design: Path | None) -> SampleDesign:
    """The design of labelled files: the given one, or that in a GeoPackage."""
    if design:
        return SampleDesign.read(design)
    designs = {path: each for path in paths if (each := _design_in(path))}
    if not designs:
        raise BadInputError(f"{paths[0]} has no design of a sample, nor is {DESIGN} beside it; {DRAW_ONE}")
    (first, expected), *others = designs.items()
    for path, other in others:
        if other != expected:
            raise BadInputError(f"{path} and {first} are of different samples; give labels of one sample")
    return expected


def _labels_of(path: Path, design: SampleDesign, column: str) -> dict[int, float]:
    """The labels of a file by the id of the pixel. Raises BadInputError for ids and labels that there cannot be."""
    if path.suffix.lower() in POINTS:
        (_, heads), *rows = [*table_rows(path)] or [(0, [""])]
        columns = {name.strip(): [row[n] if n < len(row) else "" for _, row in rows] for n, name in enumerate(heads)}
    else:
        columns = read_columns(path, LAYER, "the name of its layer")
    lower = {name.lower(): name for name in columns}
    key = next((lower[name] for name in IDS if name in lower), None)
    if key is None:
        raise BadInputError(f"{path} has no column id of a sample; it has {', '.join(columns)}; {DRAW_ONE}")
    if column not in columns:
        raise BadInputError(f"{path} has no column {column}; it has {', '.join(columns)}; name it with --label-column")
    known, labels = {pixel.id for pixel in design.pixels}, dict[int, float]()
    for text, label in zip(columns[key], columns[column], strict=True):
        identity = number_of(text)
        if identity not in known:
            raise BadInputError(f"{path} has the {key} {text}, which is not in the design of the sample")
        if label is None or not str(label).strip():
            continue
        if int(identity) in labels:
            raise BadInputError(f"{path} has two labels of the {key} {text}; give a file for each interpreter")
        labels[int(identity)] = _number(label, design, f"{path}: {key} {text}")
    return labels


def _number(label: Any, design: SampleDesign, place: str) -> float:
    """The number of a class, or a value."""
    text = str(label).strip()
    if not design.quantity:
        lower = [name.lower() for name in design.classes]
        if text.lower() not in lower:
            hint = did_you_mean(text, design.classes, f"the classes are {some_of(design.classes)}")
            raise BadInputError(f"{place} has the label {text[:60]}, which is no class; {hint}")
        return design.classes.index(text) if text in design.classes else lower.index(text.lower())
    value = number_of(label)
    if value is None or not math.isfinite(value):
        raise BadInputError(f"{place} has the label {text[:60]}, which is no value of {design.classes[0]}")
    return value


def _agreement(design: SampleDesign, *files: tuple[str, dict[int, float]]) -> dict[str, Any]:
    """How far two interpreters agree: share and kappa (Cohen 1960, doi:10.1177/001316446002000104), or the RMSD."""
    (first, labels), (second, others) = files
    both = sorted(labels.keys() & others.keys())
    a, b = (np.array([of_file[identity] for identity in both]) for of_file in (labels, others))
    row: dict[str, Any] = {"interpreters": [first, second], "pixels": len(both)}
    if not both:
        return row
    if design.quantity:
        return row | {"rmsd": float(f"{math.sqrt(float(((a - b) ** 2).mean())):.7g}")}
    share = float((a == b).mean())
    by_chance = sum(float((a == k).mean() * (b == k).mean()) for k in range(len(design.classes)))
    kappa = None if by_chance == 1 else round((share - by_chance) / (1 - by_chance), 6)
    return row | {"agreement": round(share, 6), "kappa": kappa}
