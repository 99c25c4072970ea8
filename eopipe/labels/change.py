"""Labels of change: from-to classes of each pixel from label files of two dates with the same classes.

With K classes the number of a from-to class is K * (class before) + (class after); a pixel that is unlabelled at either
date is unlabelled.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eopipe.arrays import UInt8Array
from eopipe.labels.classes import Legend
from eopipe.labels.source_values import attributes_of
from eopipe.labels.write import ReadOptions, check_labelled, class_reader, label_band
from eopipe.tiles.grid import windows
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import NO_LABEL, add_array, declare_nodata, new_store

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

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
    target: Path, grid: "GeoBox", legend: Legend, sources: tuple[Path, Path], *, options: ReadOptions, layout: Layout
) -> None:
    """Publish `label` and `valid` (y, x) of from-to classes from the files before and after.

    Raises BadInputError for values that belong to no class, and where no pixel is labelled at both dates.
    """
    shape, names = (int(grid.shape[0]), int(grid.shape[1])), from_to_names(legend.classes)
    bands = [label_band(source, None, None, None) for source in sources]
    counts, count = np.zeros(len(names), np.int64), len(legend.classes)
    with (
        class_reader(bands[0], grid, legend, options) as before,
        class_reader(bands[1], grid, legend, options) as after,
        new_store(target, grid, names, "", {}) as group,
    ):
        meanings = " ".join("_".join(name.split()) for name in names)
        label = add_array(
            group, "label", shape, "uint8", layout, flag_values=list(range(len(names))), flag_meanings=meanings
        )
        declare_nodata(label, NO_LABEL)
        valid = add_array(group, "valid", shape, "uint8", layout)
        for y, x in windows(shape, layout.shard):
            numbers = from_to(before.read(y, x).numbers, after.read(y, x).numbers, count)
            label[y, x], valid[y, x] = numbers, numbers != NO_LABEL
            counts += np.bincount(numbers[numbers != NO_LABEL], minlength=len(counts))
        before.check()
        after.check()
        pixels = dict(zip(names, counts.tolist(), strict=True))
        rows = attributes_of([*before.values(), *after.values()])
        group.attrs.update({"pixels": pixels, FROM_TO: list(legend.classes)} | rows)
        check_labelled(int(counts.sum()), bands[1], "", "label of both dates")
