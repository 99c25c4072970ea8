"""Labels of change: from-to classes of each pixel from label files of two dates with the same classes.

With K classes the number of a from-to class is K * (class before) + (class after); a pixel that is unlabelled at either
date is unlabelled.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from eopipe.arrays import UInt8Array
from eopipe.labels.kinds import Legend
from eopipe.labels.shape_counts import NOT_COUNTED
from eopipe.labels.source_values import attributes_of
from eopipe.labels.sources import LabelRaster, LabelSource, ReadOptions, WindowReader, is_vector, label_band
from eopipe.labels.write import LabelCounts, check_labelled, new_label_store, readers_of_cells
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import NO_LABEL

# Attribute of a label store: the classes of both dates.
FROM_TO = "from_to"
MAX_CLASSES = 15


def from_to_names(classes: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the from-to classes, in the order of their numbers."""
    return tuple(f"{before} to {after}" for before in classes for after in classes)


def before_conflicts(
    before: Path | None, source: Path | None, measure: str | None, classes: tuple[str, ...]
) -> list[str]:
    """The reasons why labels of two dates cannot be combined, a sentence each; none without an earlier date."""
    if before is None:
        return []
    sentences = []
    if source is None:
        sentences.append("label.before needs label.source, the labels of the later date")
    if measure:
        sentences.append("label.before gives from-to classes, so it cannot be used with label.measure")
    if len(classes) > MAX_CLASSES:
        sentences.append(
            f"label.before with {len(classes)} classes has {len(classes) ** 2} from-to classes; "
            f"at most {MAX_CLASSES} classes are possible"
        )
    return sentences


def from_to(before: UInt8Array, after: UInt8Array, classes: int) -> UInt8Array:
    """From-to class numbers of two arrays of class numbers of one shape; 255 where either is 255."""
    labelled = (before != NO_LABEL) & (after != NO_LABEL)
    return np.where(labelled, before.astype(np.int64) * classes + after, NO_LABEL).astype(np.uint8)


def write_change_labels(
    target: Path, frame: Frame, legend: Legend, sources: tuple[Path, Path], *, options: ReadOptions, layout: Layout
) -> None:
    """Publish `label` and `valid` (y, x) of from-to classes from the files before and after.

    Raises BadInputError for values that belong to no class, and where no pixel is labelled at both dates.
    """
    names, bands = from_to_names(legend.classes), [label_band(source) for source in sources]
    before, after = (LabelSource(band, legend, options) for band in bands)

    @contextmanager
    def open_both(cell: Cell) -> Iterator[WindowReader]:
        with before.open(cell) as first, after.open(cell) as last:

            def read(y: slice, x: slice) -> LabelRaster:
                return LabelRaster(from_to(first.read(y, x).labels, last.read(y, x).labels, len(legend.classes)))

            def reaches(y: slice, x: slice) -> bool:
                # The values of a raster are counted and checked everywhere.
                return not all(map(is_vector, bands)) or (first.reaches(y, x) and last.reaches(y, x))

            yield WindowReader(read, reaches)

    counts = LabelCounts(legend, names)
    with new_label_store(target, frame, names, "", {}, layout) as (group, cells):
        for cell, reader in readers_of_cells(cells, open_both):
            counts.write_cell(cell, reader, layout)
        before.check()
        after.check()
        rows = attributes_of([*before.rows(), *after.rows()]) | (NOT_COUNTED if all(map(is_vector, bands)) else {})
        group.update_attributes({"pixels": counts.pixels, FROM_TO: list(legend.classes)} | rows)
        check_labelled(int(counts.counts.sum()), bands[1], "", "label of both dates", frame.cells, options.layer)
