"""Write labels as a store, window by window: class numbers, values of a quantity, or change between two dates."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from eopipe.arrays import AnyArray, UInt8Array
from eopipe.errors import BadInputError, OutsideGridError
from eopipe.labels.kinds import LabelKind, Legend, Quantity, class_flags
from eopipe.labels.source_values import attributes_of
from eopipe.labels.sources import (
    LabelRaster,
    LabelSource,
    ReadOptions,
    WindowReader,
    is_vector,
    label_band,
    label_kind,
    labelled_in_file,
)
from eopipe.labels.vectors import NOT_COUNTED, are_swapped
from eopipe.scenes.item import SceneBand
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.grid import PixelWindow, windows
from eopipe.tiles.layout import Layout, crop_cell
from eopipe.tiles.shard_reader import WRITTEN_SHARDS
from eopipe.tiles.store import NO_LABEL, add_array, declare_nodata, new_cell_stores
from eopipe.warp.open_raster import compare_with_item

if TYPE_CHECKING:
    import zarr

log = logging.getLogger("eopipe")
# Attribute of a label store: the classes of both dates.
FROM_TO = "from_to"
MAX_CLASSES = 15


@dataclass(frozen=True)
class LabelShards:
    """The windows of a cell that a source reaches, each a shard; the other shards are not written, if `is_partial`."""

    windows: list[PixelWindow]
    shape: tuple[int, int]
    layout: Layout
    is_partial: bool

    @classmethod
    def of(cls, reader: WindowReader | None, cell: Cell, layout: Layout) -> Self:
        """The shards that a source reaches; none without a reader."""
        every = windows(cell.shape, layout.shard)
        reached = [window for window in every if reader and reader.reaches(*window)]
        return cls(reached, cell.shape, layout, len(reached) < len(every))

    def read(self, reader: WindowReader | None) -> Iterator[tuple[LabelRaster, PixelWindow]]:
        return ((reader.read(*window), window) for window in self.windows) if reader else iter(())

    def array(
        self, group: "zarr.Group", name: str, dtype: str, unlabelled: float, **attributes: Any
    ) -> "zarr.Array[Any]":
        """Add an array, of which shards that are not written read as `unlabelled`."""
        if self.is_partial:
            places = [[axis.start // self.layout.shard for axis in window] for window in self.windows]
            attributes |= {WRITTEN_SHARDS: places, "fill_value": unlabelled}
        return add_array(group, name, self.shape, dtype, self.layout, **attributes)


@contextmanager
def new_label_store(
    target: Path, frame: Frame, names: tuple[str, ...], scene: str, attributes: dict[str, Any], layout: Layout
) -> Iterator[tuple["zarr.Group", list[tuple[Cell, "zarr.Group"]]]]:
    """Publish a label store; the body of the `with` statement fills the group of each cell, here of the only one."""
    whole = [(cell, *crop_cell(frame, cell, windows(cell.shape, max(cell.shape)), layout)) for cell in frame.cells]
    with new_cell_stores(target, frame, names, scene, attributes, whole) as (root, groups):
        yield root, [*zip(frame.cells, groups, strict=True)]


class LabelCounts:
    """The labelled pixels of each class, or of the only quantity with the range of its values, and the conflicts.

    These are pixels of overlapping shapes of different labels.
    """

    def __init__(self, kind: LabelKind, names: tuple[str, ...]) -> None:
        self.kind, self.names, self.conflicts = kind, names, 0
        self.counts, self.low, self.high = np.zeros(len(names), np.int64), np.inf, -np.inf

    def write_cell(self, target: tuple[Cell, "zarr.Group"], reader: WindowReader | None, layout: Layout) -> None:
        """Write the labels of a cell, and add them; without a reader nothing in it is labelled."""
        (cell, group), kind, names = target, self.kind, self.names
        shards = LabelShards.of(reader, cell, layout)
        attributes = {"units": kind.unit} if isinstance(kind, Quantity) else class_flags(names)
        label = shards.array(group, "label", kind.dtype, kind.unlabelled, **attributes)
        if isinstance(kind, Legend):
            declare_nodata(label, NO_LABEL)
        valid = shards.array(group, "valid", "uint8", 0)
        polygon = shards.array(group, "polygon", "int32", 0) if reader and reader.has_polygons else None
        for part, (y, x) in shards.read(reader):
            labelled = kind.is_labelled(part.labels)
            label[y, x], valid[y, x] = part.labels, labelled
            if polygon is not None and part.polygons is not None:
                polygon[y, x] = part.polygons
            self._add(part.labels[labelled])
            self.conflicts += part.conflicts

    def _add(self, labels: AnyArray) -> None:
        if isinstance(self.kind, Legend):
            self.counts += np.bincount(labels, minlength=len(self.counts))
            return
        self.counts += len(labels)
        self.low = float(np.min(labels, initial=self.low))
        self.high = float(np.max(labels, initial=self.high))

    @property
    def pixels(self) -> dict[str, int]:
        return dict(zip(self.names, self.counts.tolist(), strict=True))

    @property
    def range(self) -> list[float]:
        return [float(f"{value:.9g}") for value in (self.low, self.high)] if self.counts.any() else [0.0, 0.0]


def write_labels(
    target: Path, frame: Frame, kind: LabelKind, band: SceneBand, *, scene: str, options: ReadOptions, layout: Layout
) -> None:
    """Publish `label` and `valid` (y, x) of every cell; a pixel of another UTM zone than its cell has no label there.

    `polygon` (y, x) has the number of the shape of each pixel, where a vector file has several shapes of a class.
    Attributes of the store: the pixels of each class and the source values with their classes, or the quantity with
    its unit and range; and the pixels of overlapping shapes of different labels. Warns of a class without any pixel,
    and of a scene without any label, which `split` leaves out. Raises BadInputError for values that belong to no class,
    for a source outside of all cells, and when labels of all scenes have no pixel.
    """
    if not is_vector(band):
        compare_with_item(band, f"label {band.name}", [cell.grid for cell in frame.cells])
    source, counts = LabelSource(band, kind, options), LabelCounts(kind, kind.names)
    with new_label_store(target, frame, kind.names, scene, kind.attributes, layout) as (group, cells):
        for cell, reader in readers_of_cells(cells, source.open):
            counts.write_cell(cell, reader, layout)
        source.check()
        details = {"range": counts.range} if isinstance(kind, Quantity) else attributes_of(source.rows())
        group.update_attributes({"pixels": counts.pixels} | details)
        if is_vector(band):
            group.update_attributes({"conflicts": counts.conflicts} | source.shape_counts())
        check_labelled(int(counts.counts.sum()), band, scene, kind.noun, frame.cells, options.layer)
    _log_labels(source, counts)


def _log_labels(source: LabelSource, counts: LabelCounts) -> None:
    kind, name, pixels = source.kind, source.band.name, counts.pixels
    if isinstance(kind, Quantity):
        low_high = counts.low, counts.high
        log.info(
            "event=labels source=%s quantity=%r pixels=%d low=%g high=%g", name, kind.name, pixels[kind.name], *low_high
        )
    else:
        for row in source.rows():
            log.info(
                "event=label_value source=%s value=%r %s=%d class=%r", name, row.value, row.unit, row.count, row.label
            )
        log.info("event=labels source=%s pixels=%r", name, ", ".join(f"{n} {k}" for n, k in pixels.items()))
        if empty := [of_class for of_class, count in pixels.items() if not count]:
            log.warning("event=classes_without_pixels source=%s classes=%r", name, ", ".join(empty))
    if counts.conflicts:
        event = "values_disagree" if isinstance(kind, Quantity) else "classes_disagree"
        log.warning("event=%s source=%s pixels=%d overlap=%s", event, name, counts.conflicts, source.options.overlap)


def readers_of_cells(
    cells: list[tuple[Cell, "zarr.Group"]], open_reader: Callable[[Cell], Any]
) -> Iterator[tuple[tuple[Cell, "zarr.Group"], WindowReader | None]]:
    """Each cell with its opened source; None where the source is outside of it, but not of all cells."""
    errors: list[OutsideGridError] = []
    for cell, group in cells:
        with ExitStack() as stack:
            try:
                reader = stack.enter_context(open_reader(cell))
            except OutsideGridError as error:
                errors.append(error)
                reader = None
                if len(errors) == len(cells):
                    raise
            yield (cell, group), reader


def check_labelled(
    pixels: int, band: SceneBand, scene: str, noun: str, cells: Iterable[Cell], layer: str | None
) -> None:
    """Warn of a scene without labels; raise BadInputError where labels of all scenes have no pixel on the grid."""
    if pixels:
        return
    if not scene:
        cure = "compare its location and values with the area"
        if is_vector(band) and are_swapped(band.path, layer, [cell.grid for cell in cells]):
            cure = "longitude and latitude (x and y) seem swapped: the other way round its shapes are there"
        raise BadInputError(f"{band.name} has no {noun} on the grid; {cure}")
    log.warning("event=scene_without_labels scene=%s asset=%s left_out_by=split", scene, band.name)


def check_label_file(file: Path, label: Mapping[str, Any], cell: Cell | None) -> None:
    """Raise what the stage label would raise for a file with these options, in the same sentence.

    All values of a vector file are checked, of a raster those in some windows of a cell; without a cell a raster is
    only opened, and shapes may be anywhere.
    """
    options = ReadOptions(**{item.name: label[item.name] for item in fields(ReadOptions)})
    source = LabelSource(label_band(file), label_kind(label), options)
    labelled = labelled_in_file(source, cell)
    check_labelled(labelled, source.band, "", source.kind.noun, [cell] if cell else [], options.layer)


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
    """From-to class numbers (classes * before + after) of two arrays of class numbers; 255 where either is 255."""
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
