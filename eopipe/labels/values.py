"""Continuous labels: a quantity with its unit on the grid, from rasters or vectors; NaN where unlabelled."""

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray
from eopipe.errors import BadInputError, some_of
from eopipe.labels.classes import Legend, Overlap, shape_classes
from eopipe.labels.shape_counts import NOT_COUNTED
from eopipe.labels.source_values import SourceValues
from eopipe.labels.vector_files import number_of, read_file
from eopipe.labels.vectors import ShapeParts, read_features, to_grid, warn_without_value, without_value
from eopipe.labels.write import (
    INTERPOLATING,
    ClassSource,
    LabelShards,
    ReadOptions,
    WindowReader,
    check_labelled,
    is_vector,
    label_band,
    new_label_store,
    raster_resampling,
    readers_of_cells,
)
from eopipe.scenes.item import SceneBand
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.geotiff import SETTINGS
from eopipe.tiles.grid import windows
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import NO_LABEL
from eopipe.warp.open_raster import compare_with_item, open_band, physical, read_window, warped

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

log = logging.getLogger("eopipe")
NO_VALUE, LARGEST = np.float32(np.nan), float(np.finfo(np.float32).max)
LEGEND_OPTIONS = ("classes", "bins", "codes", "ignore", "values")
# This many windows of this edge, over all of the grid, are read from a raster that is only checked.
CHECKED_WINDOWS, CHECKED_EDGE = 16, 256
# The most windows whose values are listed: 100 million pixels.
LISTED_WINDOWS = 1600


@dataclass(frozen=True)
class Quantity:
    """The quantity of continuous labels, its unit, and the stored numbers of the source that mean unlabelled."""

    name: str
    unit: str = ""
    ignore: tuple[int, ...] = ()


@dataclass(frozen=True)
class ValueRaster:
    """Values (y, x), NaN where unlabelled, and the number of pixels that shapes of different values cover."""

    values: FloatArray
    conflicts: int


class ValueShapes:
    """The shapes of a vector file with the numbers of an attribute, to be rasterised onto any part of a grid."""

    def __init__(self, source: Path, grid: "GeoBox", quantity: Quantity, options: ReadOptions) -> None:
        """Read and reproject the shapes; raises BadInputError that names values which are not numbers."""
        from shapely import STRtree, is_empty

        features = read_features(source, options.attribute, options.layer, dates=options.dates)
        values = _shape_numbers(source, features.values, quantity, options.attribute)
        warn_without_value(features, options.attribute)
        shapes = to_grid(features, grid)
        has_shape = np.array([shape is not None for shape in shapes], bool) & ~is_empty(shapes)
        is_labelled = has_shape & np.isfinite(values)
        self.shapes, self.values, self.options = shapes[is_labelled], values[is_labelled], options
        self.tree, self.parts = STRtree(self.shapes), ShapeParts(self.shapes)

    def rasterize(self, part: "GeoBox") -> ValueRaster:
        """The value of the shape that contains a pixel's centre, or with `all_touched` that touches the pixel.

        Where shapes of different values overlap, the pixel is unlabelled or the last or first in the file wins.
        """
        from shapely.geometry import box

        nearby = np.sort(self.tree.query(box(*part.extent.boundingbox)))
        if not len(nearby):
            return ValueRaster(np.full(part.shape, NO_VALUE), 0)
        ascending = nearby[np.argsort(self.values[nearby], kind="stable")]
        # A later shape overwrites an earlier one, so the two orders give the largest and the smallest value of a pixel.
        largest, smallest = self._rasterize(part, ascending), self._rasterize(part, ascending[::-1])
        differ = np.isfinite(largest) & (largest != smallest)
        overlap: Overlap = self.options.overlap
        if overlap == "invalid":
            values = np.where(differ, NO_VALUE, largest)
        else:
            values = self._rasterize(part, nearby[::-1] if overlap == "first" else nearby)
        return ValueRaster(values, int(differ.sum()))

    def _rasterize(self, part: "GeoBox", order: AnyArray) -> FloatArray:
        from rasterio.features import rasterize

        shapes = zip(self.shapes[order], self.values[order].tolist(), strict=True)
        options = {"transform": part.affine, "dtype": "float32", "all_touched": self.options.all_touched}
        return np.asarray(rasterize(shapes, part.shape, fill=np.nan, **options), np.float32)


def _shape_numbers(source: Path, values: Sequence[Any], quantity: Quantity, attribute: str) -> FloatArray:
    """The numbers of shapes, NaN where unlabelled. Raises BadInputError for values that are not numbers."""
    numbers = [math.nan if value is None else number_of(value) for value in values]
    others = {str(v) for v, number in zip(values, numbers, strict=True) if number is None or abs(number) > LARGEST}
    if others:
        raise BadInputError(f"{source} has values of {attribute} that are not numbers: {some_of(sorted(others), 8)}")
    return np.array([math.nan if number in quantity.ignore else number for number in numbers], np.float64)


def write_values(
    target: Path, frame: Frame, quantity: Quantity, band: SceneBand, *, scene: str, options: ReadOptions, layout: Layout
) -> None:
    """Publish `label` (float32) and `valid` (y, x).

    Attributes of the store: the quantity with its unit, the number of labelled pixels, and the range of the values.
    Warns of a scene without any value; raises BadInputError when labels of all scenes have none.
    """
    if not is_vector(band):
        compare_with_item(band, f"label {band.name}", [cell.grid for cell in frame.cells])
    count, conflicts, low, high = 0, 0, np.inf, -np.inf
    names, attributes = (quantity.name,), {"unit": quantity.unit}
    with new_label_store(target, frame, names, scene, attributes, layout) as (root, cells):
        for (cell, group), reader in readers_of_cells(cells, partial(_reader, band, quantity, options)):
            shards = LabelShards.of(reader, cell, layout)
            label = shards.array(group, "label", "float32", np.nan, units=quantity.unit)
            valid = shards.array(group, "valid", "uint8", 0)
            for part, (y, x) in shards.read(reader):
                labelled = np.isfinite(part.values)
                label[y, x], valid[y, x] = part.values, labelled
                low = float(np.min(part.values, where=labelled, initial=low))
                high = float(np.max(part.values, where=labelled, initial=high))
                count, conflicts = count + int(labelled.sum()), conflicts + part.conflicts
        check_labelled(count, band, scene, "value", frame.cells, options.layer)
        root.attrs["pixels"] = {quantity.name: count}
        root.attrs["range"] = [float(f"{v:.9g}") for v in (low, high)] if count else [0.0, 0.0]
        if is_vector(band):
            root.update_attributes({"conflicts": conflicts} | NOT_COUNTED)
    log.info("event=labels source=%s quantity=%r pixels=%d low=%g high=%g", band.name, quantity.name, count, low, high)
    if conflicts:
        log.warning("event=values_disagree source=%s pixels=%d overlap=%s", band.name, conflicts, options.overlap)


@contextmanager
def _reader(
    band: SceneBand, quantity: Quantity, options: ReadOptions, cell: Cell
) -> Iterator[WindowReader[ValueRaster]]:
    """The reader of a cell, with values only of pixels that belong to the cell; all of a raster is read."""

    def of_cell(values: FloatArray, y: slice, x: slice) -> FloatArray:
        return np.where(cell.belongs(y, x), values, NO_VALUE) if cell.id else values

    if is_vector(band):
        shapes = ValueShapes(band.path, cell.grid, quantity, options)

        def rasterize(y: slice, x: slice) -> ValueRaster:
            part = shapes.rasterize(cell.grid[y, x])
            return ValueRaster(of_cell(part.values, y, x), part.conflicts)

        yield WindowReader(rasterize, lambda y, x: shapes.parts.reach(cell.grid[y, x]))
        return
    resampling, band = raster_resampling(band, cell.grid, options.resampling, quantity.ignore, is_continuous=True)
    # Ignored numbers are nodata where pixels are interpolated.
    ignore = () if resampling in INTERPOLATING else quantity.ignore
    # In float32, since means of integers are not integers.
    with warped(band, cell.grid, resampling, f"label {band.name}", "float32") as source:

        def read(y: slice, x: slice) -> ValueRaster:
            stored, valid = read_window(source, (y, x), f"label {band.name}")
            labelled = valid & ~np.isin(stored, ignore)
            values = np.where(labelled, physical(stored, source, (band.scale, band.offset)), NO_VALUE).astype(
                np.float32
            )
            return ValueRaster(of_cell(values, y, x), 0)

        yield WindowReader(read)


def option_conflicts(measure: str | None, resampling: str, class_options: Mapping[str, Sequence[object]]) -> list[str]:
    """Conflicts of a measure (None: classes) with a resampling and with the options that define classes.

    `class_options` are bins, codes and values by name.
    """
    used = [name for name, value in class_options.items() if value]
    conflicts = []
    if measure is not None and not measure.strip():
        conflicts.append("label.measure is empty; give the name of the quantity")
    if measure and used:
        conflicts.append(f"label.measure keeps the numbers, but label.{used[0]} turns them into classes; give one")
    is_continuous = bool(measure or class_options.get("bins"))
    if is_continuous and resampling == "mode":
        conflicts.append(
            f"label.resampling mode is for classes; label.{'measure' if measure else 'bins'} needs nearest, bilinear, "
            "cubic or average"
        )
    if not is_continuous and resampling in INTERPOLATING:
        conflicts.append(
            f"label.resampling {resampling} would average class numbers; use nearest or mode, or give label.measure or "
            "label.bins"
        )
    return conflicts


def check_label_file(source: Path, label: Mapping[str, Any], cell: Cell | None) -> None:
    """Raise what the stage label would raise for a file with these options, in the same sentence.

    All values of a vector file are checked, of a raster those in some windows of a cell; without a cell a raster is
    only opened, and shapes may be anywhere.
    """
    import rasterio

    options = ReadOptions(**{item.name: label[item.name] for item in fields(ReadOptions)})
    band, kind = label_band(source, None, None, None), _kind_of(label)
    if is_vector(band):
        labelled = int(_check_shapes(source, kind, options, cell).sum())
    elif cell:
        labelled = _check_pixels(band, kind, options, cell)
    else:
        with rasterio.Env(**SETTINGS), open_band(band, f"label {band.name}"):
            return
    noun = "value" if label["measure"] else "label"
    check_labelled(labelled, band, "", noun, [cell] if cell else [], options.layer)


def _kind_of(label: Mapping[str, Any]) -> Legend | Quantity:
    if label["measure"]:
        return Quantity(label["measure"], label["unit"], tuple(label["ignore"]))
    return Legend(*(tuple(label[name]) for name in LEGEND_OPTIONS))


def label_warnings(label: Mapping[str, Any]) -> list[str]:
    """Sentences about shapes of the label files that have no value; files that are not there have none."""
    sources = [Path(label[name]) for name in ("before", "source") if label[name]]
    vectors = [path for path in sources if path.is_file() and is_vector(label_band(path, None, None, None))]
    attribute = label["attribute"]
    of_files = [read_file(path, attribute, label["layer"], "label.layer", label["dates"]) for path in vectors]
    return [text for features in of_files if (text := without_value(features, attribute))]


def _check_shapes(source: Path, kind: Legend | Quantity, options: ReadOptions, cell: Cell | None) -> BoolArray:
    """Which shapes label pixels of a cell, or of any without one."""
    from shapely import is_empty

    features = read_features(source, options.attribute, options.layer, dates=options.dates)
    if isinstance(kind, Quantity):
        is_labelled = np.isfinite(_shape_numbers(source, features.values, kind, options.attribute))
    else:
        is_labelled = shape_classes(source, features.values, kind) != NO_LABEL
    shapes = to_grid(features, cell.grid) if cell else features.shapes
    has_shape = np.array([shape is not None for shape in shapes], bool) & ~is_empty(shapes)
    return np.asarray(is_labelled & has_shape, bool)


def raster_values(source: Path, cell: Cell) -> tuple[list[float], dict[int, str]]:
    """The stored values of a class raster on a cell, in order, and the colours (#rrggbb) of its colour table.

    In a large cell some windows are read. Raises BadInputError for a continuous raster, and what reading raises.
    """
    import rasterio

    band, options = label_band(source, None, None, None), ReadOptions("", None, "invalid", False, "nearest")
    # Every value is counted, whatever the legend says of it.
    counted = SourceValues(Legend(("a", "b"), codes=(0, 1)), f"label {band.name}")
    parts = windows(cell.shape, CHECKED_EDGE)
    with ClassSource(band, counted.legend, options, counted).open(cell) as reader:
        for part in parts[:: -(-len(parts) // LISTED_WINDOWS)]:
            reader.read(*part)
    with rasterio.Env(**SETTINGS), open_band(band, f"label {band.name}") as (raster, number):
        has_table = raster.colorinterp[number - 1].name == "palette"
        table = raster.colormap(number) if has_table else {}
    colors = {value: "#{:02x}{:02x}{:02x}".format(*rgba[:3]) for value, rgba in table.items()}
    return sorted(counted.counts), colors


def _check_pixels(band: SceneBand, kind: Legend | Quantity, options: ReadOptions, cell: Cell) -> int:
    """The labelled pixels of windows of a cell; 1 or more where there may be others in the rest of it."""
    parts = windows(cell.shape, CHECKED_EDGE)
    step = -(-len(parts) // CHECKED_WINDOWS)
    if isinstance(kind, Quantity):
        with _reader(band, kind, options, cell) as reader:
            labelled = sum(int(np.isfinite(reader.read(*part).values).sum()) for part in parts[::step])
    else:
        source = ClassSource(band, kind, options, SourceValues(kind, f"label {band.name}"))
        with source.open(cell) as reader_of_classes:
            labelled = sum(int((reader_of_classes.read(*part).numbers != NO_LABEL).sum()) for part in parts[::step])
        source.check()
    return max(labelled, int(step > 1))
