"""Continuous labels: a quantity with its unit on the grid, from rasters or vectors; NaN where unlabelled."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, FloatArray
from eopipe.errors import BadInputError
from eopipe.labels.classes import Overlap
from eopipe.labels.vectors import ShapeParts, read_features, to_grid, warn_of_points
from eopipe.labels.write import (
    INTERPOLATING,
    LabelShards,
    ReadOptions,
    WindowReader,
    check_labelled,
    is_vector,
    new_label_store,
    physical,
    raster_resampling,
    readers_of_cells,
)
from eopipe.scenes.item import SceneBand
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.layout import Layout
from eopipe.warp.open_raster import compare_with_item, read_window, warped

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

log = logging.getLogger("eopipe")
NO_VALUE = np.float32(np.nan)


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

        features = read_features(source, options.attribute, options.layer)
        not_numbers = sorted({str(v) for v in features.values if v is not None and not _is_number(v)})
        if not_numbers:
            examples = ", ".join(not_numbers[:8])
            raise BadInputError(f"{source} has values of {options.attribute} that are not numbers: {examples}")
        numbers = [np.nan if v is None or v in quantity.ignore else float(v) for v in features.values]
        shapes, values = to_grid(features, grid), np.array(numbers, np.float64)
        has_shape = np.array([shape is not None for shape in shapes], bool) & ~is_empty(shapes)
        is_labelled = has_shape & np.isfinite(values)
        self.shapes, self.values, self.options = shapes[is_labelled], values[is_labelled], options
        warn_of_points(source, self.shapes)
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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def write_values(
    target: Path,
    frame: Frame,
    quantity: Quantity,
    band: SceneBand,
    *,
    scene: str,
    options: ReadOptions,
    layout: Layout,
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
        check_labelled(count, band, scene, "value")
        root.attrs["pixels"] = {quantity.name: count}
        root.attrs["range"] = [float(f"{v:.9g}") for v in (low, high)] if count else [0.0, 0.0]
        if is_vector(band):
            root.attrs["conflicts"] = conflicts
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
            values = np.where(labelled, physical(stored, source, band), NO_VALUE).astype(np.float32)
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
