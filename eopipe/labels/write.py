"""Write labels as a store, window by window, from rasters or vectors."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar

import numpy as np

from eopipe.arrays import IntArray
from eopipe.errors import BadInputError, OutsideGridError, UsageError
from eopipe.labels.classes import ClassRaster, ClassShapes, Legend, Overlap, raster_conflicts
from eopipe.labels.shape_counts import kind_of_shapes, shape_counts
from eopipe.labels.source_values import SourceValue, SourceValues, attributes_of, shape_values
from eopipe.labels.vector_files import VECTORS
from eopipe.labels.vectors import are_swapped
from eopipe.scenes.item import Item, SceneBand, bands
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.grid import PixelWindow, windows
from eopipe.tiles.layout import Layout
from eopipe.tiles.shard_reader import WRITTEN_SHARDS, StoredWindow
from eopipe.tiles.store import NO_LABEL, add_array, declare_nodata, new_cell_stores
from eopipe.warp.open_raster import compare_with_item, physical, pixels_per_edge, read_window, stated_nodata, warped
from eopipe.warp.separable import Resampling

if TYPE_CHECKING:
    import zarr
    from odc.geo.geobox import GeoBox

log = logging.getLogger("eopipe")
Raster = TypeVar("Raster")
INTERPOLATING: tuple[Resampling, ...] = ("bilinear", "cubic", "average")
# From this ratio of pixel sizes on a continuous raster is averaged by default: nearest would use one pixel in two.
FINER = 1.5


@dataclass(frozen=True)
class ReadOptions:
    """How a source is read: attribute, layer, dates and rasterisation of vectors, resampling of rasters."""

    attribute: str
    layer: str | None
    overlap: Overlap
    all_touched: bool
    resampling: Resampling | Literal["auto"]
    dates: str | None = None


@dataclass(frozen=True)
class WindowReader(Generic[Raster]):
    """Reads windows (y, x) of a cell; those that the source does not `reach` have no label.

    `has_polygons`: its windows have the numbers of polygons.
    """

    read: Callable[[slice, slice], Raster]
    reaches: Callable[[slice, slice], bool] = lambda _y, _x: True
    has_polygons: bool = False


@dataclass(frozen=True)
class LabelShards:
    """The windows of a cell that a source reaches, each a shard; the other shards are not written, if `is_partial`."""

    windows: list[PixelWindow]
    shape: tuple[int, int]
    layout: Layout
    is_partial: bool

    @classmethod
    def of(cls, reader: WindowReader[Any] | None, cell: Cell, layout: Layout) -> Self:
        """The shards that a source reaches; none without a reader."""
        every = windows(cell.shape, layout.shard)
        reached = [window for window in every if reader and reader.reaches(*window)]
        return cls(reached, cell.shape, layout, len(reached) < len(every))

    def read(self, reader: WindowReader[Raster] | None) -> Iterator[tuple[Raster, PixelWindow]]:
        """What the source has in each window."""
        return ((reader.read(*window), window) for window in self.windows) if reader else iter(())

    def array(
        self, group: "zarr.Group", name: str, dtype: str, unlabelled: float, **attributes: Any
    ) -> "zarr.Array[Any]":
        """Add an array, of which shards that are not written read as `unlabelled`."""
        if self.is_partial:
            places = [[axis.start // self.layout.shard for axis in window] for window in self.windows]
            attributes |= {WRITTEN_SHARDS: places, "fill_value": unlabelled}
        return add_array(group, name, self.shape, dtype, self.layout, **attributes)


def label_band(source: Path | None, scene: Path | None, item: Item | None, asset: str | None) -> SceneBand:
    """The raster or vector that holds the labels: a separate file or an asset of a scene."""
    if source is not None:
        return SceneBand(source.name, source, 1.0, 0.0, None)
    if scene is None or item is None or asset is None:
        raise ValueError("labels need a source or an asset of a scene")
    return bands(scene, item, (asset,))[0]


@contextmanager
def new_label_store(
    target: Path, frame: Frame, names: tuple[str, ...], scene: str, attributes: dict[str, Any], layout: Layout
) -> Iterator[tuple["zarr.Group", list[tuple[Cell, "zarr.Group"]]]]:
    """Publish a label store; the body of the `with` statement fills the group of each cell, here of the only one."""
    windows_of_cells = [StoredWindow(frame.shape, (0, cell.column), layout.shard) for cell in frame.cells]
    whole = [(c, c.grid, w if frame.only is None else None) for c, w in zip(frame.cells, windows_of_cells, strict=True)]
    with new_cell_stores(target, frame, names, scene, attributes, whole) as (root, groups):
        yield root, [*zip(frame.cells, groups, strict=True)]


def write_labels(
    target: Path, frame: Frame, legend: Legend, band: SceneBand, *, scene: str, options: ReadOptions, layout: Layout
) -> None:
    """Publish `label` and `valid` (y, x) of every cell; a pixel of another UTM zone than its cell has no label there.

    `polygon` (y, x) has the number of the shape of each pixel, where a vector file has several shapes of a class.
    Attributes of the store: the pixels of each class, the source values with their classes, and the pixels of
    overlapping shapes of different classes. Warns of a class without any pixel, and of a scene without any label, which
    `split` leaves out. Raises BadInputError for values that belong to no class, for a source outside of all cells, and
    when labels of all scenes have no pixel.
    """
    if not is_vector(band):
        compare_with_item(band, f"label {band.name}", [cell.grid for cell in frame.cells])
    source = ClassSource(band, legend, options, SourceValues(legend, f"label {band.name}"))
    counts, conflicts = np.zeros(len(legend.classes), np.int64), 0
    with new_label_store(target, frame, legend.classes, scene, {}, layout) as (group, cells):
        for cell, reader in readers_of_cells(cells, source.open):
            pixels_of_cell, conflicts_of_cell = write_cell(cell, reader, legend.classes, layout)
            counts, conflicts = counts + pixels_of_cell, conflicts + conflicts_of_cell
        source.check()
        pixels, rows = dict(zip(legend.classes, counts.tolist(), strict=True)), source.rows()
        group.update_attributes({"pixels": pixels} | attributes_of(rows))
        if is_vector(band):
            group.update_attributes({"conflicts": conflicts} | source.shape_counts())
        check_labelled(int(counts.sum()), band, scene, "label", frame.cells, options.layer)
    _log_pixels(band, pixels, rows, conflicts, options)


def readers_of_cells(
    cells: list[tuple[Cell, "zarr.Group"]], open_reader: Callable[[Cell], Any]
) -> Iterator[tuple[tuple[Cell, "zarr.Group"], Any]]:
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


def write_cell(
    target: tuple[Cell, "zarr.Group"],
    reader: WindowReader[ClassRaster] | None,
    classes: tuple[str, ...],
    layout: Layout,
) -> tuple[IntArray, int]:
    """Write the labels of a cell; the pixels of each class, and of overlapping shapes of different classes.

    Without a reader nothing in it is labelled.
    """
    (cell, group), counts, conflicts = target, np.zeros(len(classes), np.int64), 0
    meanings = " ".join("_".join(name.split()) for name in classes)
    flags = {"flag_values": list(range(len(classes))), "flag_meanings": meanings}
    shards = LabelShards.of(reader, cell, layout)
    label = shards.array(group, "label", "uint8", NO_LABEL, **flags)
    declare_nodata(label, NO_LABEL)
    valid = shards.array(group, "valid", "uint8", 0)
    polygon = shards.array(group, "polygon", "int32", 0) if reader and reader.has_polygons else None
    for part, (y, x) in shards.read(reader):
        label[y, x], valid[y, x] = part.numbers, part.numbers != NO_LABEL
        if polygon is not None and part.polygons is not None:
            polygon[y, x] = part.polygons
        counts += np.bincount(part.numbers[part.numbers != NO_LABEL], minlength=len(counts))
        conflicts += part.conflicts
    return counts, conflicts


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


def _log_pixels(
    band: SceneBand, pixels: dict[str, int], rows: Sequence[SourceValue], conflicts: int, options: ReadOptions
) -> None:
    for row in rows:
        log.info(
            "event=label_value source=%s value=%r %s=%d class=%r", band.name, row.value, row.unit, row.count, row.label
        )
    log.info("event=labels source=%s pixels=%r", band.name, ", ".join(f"{n} {k}" for n, k in pixels.items()))
    empty = [name for name, count in pixels.items() if not count]
    if empty:
        log.warning("event=classes_without_pixels source=%s classes=%r", band.name, ", ".join(empty))
    if conflicts:
        log.warning("event=classes_disagree source=%s pixels=%d overlap=%s", band.name, conflicts, options.overlap)


def is_vector(band: SceneBand) -> bool:
    """Whether a source of labels is a vector file, by its name."""
    return band.path.suffix.lower() in VECTORS


@dataclass
class ClassSource:
    """A source of class labels; `values` are a raster's values, as read in all cells."""

    band: SceneBand
    legend: Legend
    options: ReadOptions
    values: SourceValues
    shapes: ClassShapes | None = None

    @contextmanager
    def open(self, cell: Cell) -> Iterator[WindowReader[ClassRaster]]:
        """The reader of a cell, with labels only of pixels that belong to the cell; all of a raster is read."""
        if not is_vector(self.band):
            with self._open_raster(cell) as read:
                yield WindowReader(read)
            return
        names = self.options.attribute, self.options.layer
        shapes = ClassShapes(
            self.band.path, cell.grid, self.legend, *names, numbers_of_file=bool(cell.id), dates=self.options.dates
        )
        # A feature is on the grid where it is in any of the cells.
        shapes.is_on_grid |= self.shapes.is_on_grid if self.shapes else False
        self.shapes = shapes

        def rasterize(y: slice, x: slice) -> ClassRaster:
            options = self.options
            part = shapes.rasterize(cell.grid[y, x], options.overlap, all_touched=options.all_touched)
            if cell.id:
                belongs = cell.belongs(y, x)
                part.numbers[~belongs] = NO_LABEL
                if part.polygons is not None:
                    part.polygons[~belongs] = 0
            return part

        yield WindowReader(rasterize, lambda y, x: shapes.parts.reach(cell.grid[y, x]), shapes.has_polygons)

    def check(self) -> None:
        """Raise BadInputError for values of a raster that belong to no class."""
        if not is_vector(self.band):
            self.values.check()

    def rows(self) -> list[SourceValue]:
        """The source values with their classes, and their pixels or shapes."""
        return shape_values(self.legend, self.shapes.attribute_values) if self.shapes else self.values.rows()

    def shape_counts(self) -> dict[str, Any]:
        """The attribute of a store with the shapes of each class."""
        assert self.shapes is not None
        features, classes = self.shapes.features, self.legend.classes
        others = [number for value in features.other_values if (number := self.legend.number(value)) is not None]
        numbers, is_on_grid = self.shapes.class_numbers, self.shapes.is_on_grid
        return shape_counts(kind_of_shapes(features.shapes), classes, numbers, is_on_grid, others)

    @contextmanager
    def _open_raster(self, cell: Cell) -> Iterator[Callable[[slice, slice], ClassRaster]]:
        legend, options, name = self.legend, self.options, f"label {self.band.name}"
        is_explicit = bool(legend.bins or legend.codes or legend.values)
        if conflicts := raster_conflicts(legend.classes, legend.ignore, is_explicit=is_explicit):
            raise UsageError("; ".join(conflicts))
        is_continuous = bool(legend.bins)
        resampling, band = raster_resampling(
            self.band, cell.grid, options.resampling, legend.ignore, is_continuous=is_continuous
        )
        interpolates = resampling in INTERPOLATING
        with warped(band, cell.grid, resampling, name, "float32" if interpolates else None) as source:

            def read(y: slice, x: slice) -> ClassRaster:
                stored, valid = read_window(source, (y, x), name)
                if cell.id:
                    valid = valid & cell.belongs(y, x)
                # Ignored numbers are nodata where pixels are interpolated.
                ignored = np.zeros(valid.shape, bool) if interpolates else np.isin(stored, legend.ignore)
                # Edges of bins are physical values, codes are stored ones.
                numbers = physical(stored, source, (band.scale, band.offset)) if legend.bins else stored
                self.values.add(numbers, valid, ignored)
                return ClassRaster(legend.classify(numbers, valid & ~ignored), 0)

            yield read


def raster_resampling(
    band: SceneBand,
    grid: "GeoBox",
    resampling: Resampling | Literal["auto"],
    ignore: Sequence[int],
    *,
    is_continuous: bool,
) -> tuple[Resampling, SceneBand]:
    """The resampling of a label raster, and its band, whose nodata is the ignored number where pixels are interpolated.

    `auto` averages a continuous raster that is finer than the grid, and else takes the nearest pixel. Raises UsageError
    where interpolation would mix ignored numbers with others.
    """
    is_automatic = resampling == "auto"
    if resampling == "auto":
        is_finer = is_continuous and pixels_per_edge(band, grid, f"label {band.name}") >= FINER
        resampling = "average" if is_finer else "nearest"
    if resampling not in INTERPOLATING or not ignore:
        return resampling, band
    nodata, numbers = stated_nodata(band, f"label {band.name}"), ", ".join(map(str, ignore))
    if len(set(ignore)) == 1 and nodata in (None, float(ignore[0])):
        return resampling, replace(band, nodata=float(ignore[0]))
    if is_automatic:
        log.warning("event=labels_not_averaged source=%s ignored=%r nodata=%r", band.name, numbers, nodata)
        return "nearest", band
    raise UsageError(
        f"label.resampling {resampling} of {band.name} would mix the ignored numbers {numbers} with others; write them "
        "as one nodata value into the file and remove label.ignore, or set label.resampling nearest"
    )
