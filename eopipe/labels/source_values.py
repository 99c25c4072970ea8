"""The source values of labels: pixels of each on the grid and the class it becomes; unexplained values are refused."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.errors import BadInputError
from eopipe.labels.kinds import Legend
from eopipe.labels.vector_files import number_of
from eopipe.text_table import format_table
from eopipe.tiles.store import NO_LABEL, Tiles

UNLABELLED, NO_CLASS = "unlabelled", "no class"
# Attribute of a label store.
ATTRIBUTE = "source_values"
# A raster of classes has fewer values, a continuous one has more.
MAX_VALUES = 1000
MAX_LINES = 40


@dataclass(frozen=True)
class SourceValue:
    """A source value as text, or a range of them, the class it becomes, and how many pixels or shapes have it."""

    value: str
    label: str
    count: int
    unit: str = "pixels"


class SourceValues:
    """Pixels of each source value of a label raster on the grid, added up window by window."""

    def __init__(self, legend: Legend, name: str) -> None:
        """Count for a legend; `name` names the raster in errors."""
        self.legend, self.name = legend, name
        self.counts: Counter[float] = Counter()

    def add(self, values: AnyArray, valid: BoolArray, ignored: BoolArray) -> None:
        """Add the pixels of a window (y, x), with bins in physical units; valid ones may be ignored.

        Raises BadInputError for a raster of more values than classes can have.
        """
        if self.legend.bins:
            numbers = np.digitize(values[valid & ~ignored], self.legend.bins)
            self.counts.update(dict(enumerate(np.bincount(numbers).tolist())))
            self.counts[-1] += int((valid & ignored).sum())
            return
        numbers, pixels = np.unique(values[valid], return_counts=True)
        self.counts.update(dict(zip(numbers.tolist(), pixels.tolist(), strict=True)))
        if len(self.counts) > MAX_VALUES:
            raise BadInputError(
                f"{self.name} has more than {MAX_VALUES} different values on the grid, so it is a continuous raster: "
                "divide it into classes with label.bins, or set label.measure"
            )

    def rows(self) -> list[SourceValue]:
        """The source values in order, with values of classes that have no pixel."""
        if self.legend.bins:
            return self._rows_of_bins()
        labels = self._labels()
        counts = {value: self.counts[value] for value in sorted(self.counts)}
        with_pixels = {labels[value] for value in counts if value in labels}
        absent = {value: 0 for value, label in labels.items() if label not in with_pixels | {UNLABELLED}}
        return [
            SourceValue(f"{value:.10g}", labels.get(value, NO_CLASS), int(count))
            for value, count in sorted((counts | absent).items())
        ]

    def check(self) -> None:
        """Raise BadInputError with the table and a cure where a value belongs to no class and is not ignored."""
        rows = self.rows()
        if any(row.label == NO_CLASS for row in rows):
            table = "\n".join(f"  {line}" for line in format_values(rows))
            raise BadInputError(f"{self.name} has values that belong to no class:\n{table}\n  {self._cure()}")

    def explains(self, values: AnyArray) -> bool:
        """Whether each of these values belongs to a class or means unlabelled."""
        return bool(self.legend.bins) or {*np.unique(values).tolist()} <= self._labels().keys()

    def _labels(self) -> dict[float, str]:
        """The class of each value of the legend."""
        ignored = {float(value): UNLABELLED for value in self.legend.ignore}
        classes = {value: self.legend.classes[number] for value, number in self.legend.raster_values()}
        if self.legend.values:
            texts = (value for value, number in self.legend.table.items() if number == NO_LABEL)
            ignored |= {float(text): UNLABELLED for text in texts}
        return {float(value): label for value, label in classes.items()} | ignored

    def _rows_of_bins(self) -> list[SourceValue]:
        edges = [f"{edge:g}" for edge in self.legend.bins]
        between = (f"{low} to < {high}" for low, high in pairwise(edges))
        ranges = [f"< {edges[0]}", *between, f">= {edges[-1]}"]
        rows = [SourceValue(text, self.legend.classes[n], int(self.counts[n])) for n, text in enumerate(ranges)]
        ignored = f"ignore {', '.join(map(str, self.legend.ignore))}"
        return [*rows, *([SourceValue(ignored, UNLABELLED, int(self.counts[-1]))] if self.legend.ignore else [])]

    def _cure(self) -> str:
        """The lines of a config that would explain every value."""
        labels, classes = self._labels(), self.legend.classes
        values = [value for value in sorted(self.counts) if labels.get(value) != UNLABELLED]
        unexplained = [value for value in values if value not in labels]
        as_ignored = f"label.ignore: {_listed([*map(float, self.legend.ignore), *unexplained])}"
        if self.legend.codes or self.legend.values:
            return f"if they mean unlabelled, set {as_ignored}; if not, name their class in label.values (class=value)"
        in_order = ", ".join(classes)
        without_zero = [value for value in values if value]
        if len(values) == len(classes):
            return f"if the values in this order mean {in_order}, set label.codes: {_listed(values)}"
        if without_zero == list(range(1, len(classes) + 1)) or (
            len(without_zero) == len(classes) and not set(range(len(classes))) <= set(values)
        ):
            return (
                f"if 0 means unlabelled and the others in this order mean {in_order}, set label.codes: "
                f"{_listed(without_zero)} and label.ignore: {_listed([*map(float, self.legend.ignore), 0.0])}"
            )
        return (
            f"without label.codes the values 0 to {len(classes) - 1} mean {in_order}; if that is so and the others "
            f"mean unlabelled, set {as_ignored}; if not, set label.codes or label.values"
        )


def _listed(values: Iterable[float]) -> str:
    return f"[{', '.join(f'{value:.10g}' for value in dict.fromkeys(values))}]"


def shape_values(legend: Legend, values: Sequence[Any]) -> list[SourceValue]:
    """How many shapes of a vector file have each value of the attribute, and the class of each."""
    counts = Counter(str(value) for value in values if value is not None)
    rows = []
    for value, count in sorted(counts.items()):
        number = legend.number(value)
        label = NO_CLASS if number is None else UNLABELLED if number == NO_LABEL else legend.classes[number]
        rows.append(SourceValue(value, label, count, "shapes"))
    return rows


def attributes_of(rows: list[SourceValue]) -> dict[str, Any]:
    """The attribute of a label store that `label_table` reads."""
    return {ATTRIBUTE: [asdict(row) for row in rows]}


def label_table(labels: Iterable[Path]) -> list[str]:
    """Lines of a table of source values, their pixels or shapes and their classes, summed over label stores.

    After it one line for each class without any pixel; nothing for continuous labels.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    pixels: Counter[str] = Counter()
    for store in map(Tiles, labels):
        attributes = store.attributes
        for row in attributes.get(ATTRIBUTE, []):
            counts[row["value"], row["label"], row["unit"]] += row["count"]
        pixels.update(attributes.get("pixels", {}))
    rows = [SourceValue(value, label, count, unit) for (value, label, unit), count in counts.items()]
    if not rows:
        return []
    if all(number_of(row.value) is not None for row in rows):
        rows.sort(key=lambda row: (number_of(row.value) or 0.0, row.value))
    labels_with_pixels = {name for name, count in pixels.items() if count}
    absent = [name for name in pixels if name not in labels_with_pixels]
    return [*format_values(rows), *(f"class {name} has no pixel on the grid" for name in absent)]


def format_values(rows: list[SourceValue]) -> list[str]:
    """The table as text; the middle of a long one is omitted."""
    cells = [(row.value, f"{row.count:,}", row.label) for row in rows]
    if len(cells) > MAX_LINES:
        half = MAX_LINES // 2
        cells = [*cells[:half], (f"... {len(cells) - 2 * half} more", "", ""), *cells[-half:]]
    return format_table([("label value", rows[0].unit, "class"), *cells], left=(2,))
