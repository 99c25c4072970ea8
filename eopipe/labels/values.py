"""Labels that are numbers: a quantity with its unit on the grid, from rasters or vectors; NaN is no label."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, FloatArray
from eopipe.errors import BadInputError
from eopipe.labels.classes import Overlap
from eopipe.labels.vectors import read_features, to_grid
from eopipe.labels.write import ReadOptions, is_vector, physical
from eopipe.scenes.item import SceneBand
from eopipe.tiles.grid import windows
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import add_array, new_store
from eopipe.warp.open_raster import read_window, warped

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

log = logging.getLogger("eopipe")
NO_VALUE = np.float32(np.nan)


@dataclass(frozen=True)
class Quantity:
    """What labels measure, in which unit, and the stored numbers of the source that are no measurement."""

    name: str
    unit: str = ""
    ignore: tuple[int, ...] = ()


@dataclass(frozen=True)
class ValueRaster:
    """Values (y, x), NaN where there is none, and how many pixels shapes of different values cover."""

    values: FloatArray
    conflicts: int


class ValueShapes:
    """The shapes of a file with the numbers of an attribute, ready to be burned into any part of a grid."""

    def __init__(self, source: Path, grid: "GeoBox", quantity: Quantity, reading: ReadOptions) -> None:
        """Read and place the shapes; raises BadInputError that names values which are no numbers."""
        from shapely import STRtree, is_empty

        found = read_features(source, reading.attribute, reading.layer)
        foreign = sorted({str(v) for v in found.values if v is not None and not _is_number(v)})
        if foreign:
            told = ", ".join(foreign[:8])
            raise BadInputError(f"{source} has values of {reading.attribute} that are no numbers: {told}")
        numbers = [np.nan if v is None or v in quantity.ignore else float(v) for v in found.values]
        placed, chosen = to_grid(found, grid), np.array(numbers, np.float64)
        kept = np.array([shape is not None for shape in placed], bool) & ~is_empty(placed) & np.isfinite(chosen)
        self.shapes, self.values, self.reading = placed[kept], chosen[kept], reading
        self.tree = STRtree(self.shapes)

    def burn(self, part: "GeoBox") -> ValueRaster:
        """The value of the shapes that hold a pixel's centre; or of all that touch it.

        Where values disagree there is no label, or the feature that comes last or first in the file wins.
        """
        from shapely.geometry import box

        near = np.sort(self.tree.query(box(*part.extent.boundingbox)))
        if not len(near):
            return ValueRaster(np.full(part.shape, NO_VALUE), 0)
        rising = near[np.argsort(self.values[near], kind="stable")]
        # What is burned later lies on top: so the largest and the smallest value of each pixel are known.
        largest, smallest = self._burned(part, rising), self._burned(part, rising[::-1])
        differ = np.isfinite(largest) & (largest != smallest)
        return ValueRaster(self._chosen(part, near, np.where(differ, NO_VALUE, largest)), int(differ.sum()))

    def _chosen(self, part: "GeoBox", near: AnyArray, agreed: FloatArray) -> FloatArray:
        overlap: Overlap = self.reading.overlap
        if overlap == "invalid":
            return agreed
        return self._burned(part, near[::-1] if overlap == "first" else near)

    def _burned(self, part: "GeoBox", order: AnyArray) -> FloatArray:
        from rasterio.features import rasterize

        pairs = zip(self.shapes[order], self.values[order].tolist(), strict=True)
        how = {"transform": part.affine, "dtype": "float32", "all_touched": self.reading.all_touched}
        return np.asarray(rasterize(pairs, part.shape, fill=np.nan, **how), np.float32)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def write_values(
    target: Path,
    grid: "GeoBox",
    quantity: Quantity,
    band: SceneBand,
    *,
    scene: str,
    reading: ReadOptions,
    layout: Layout,
) -> None:
    """Publish `label` (float32) and `valid` (y, x); raises BadInputError when no pixel has a value.

    The store is named after the quantity and tells its unit, the pixels that have a value, and their range.
    """
    shape = (int(grid.shape[0]), int(grid.shape[1]))
    count, conflicts, low, high = 0, 0, np.inf, -np.inf
    with (
        _reader(band, grid, quantity, reading) as read,
        new_store(target, grid, (quantity.name,), scene, {"unit": quantity.unit}) as group,
    ):
        label = add_array(group, "label", shape, "float32", layout, units=quantity.unit)
        valid = add_array(group, "valid", shape, "uint8", layout)
        for y, x in windows(shape, layout.shard):
            part = read(y, x)
            there = np.isfinite(part.values)
            label[y, x], valid[y, x] = part.values, there
            low, high = (float(f(part.values, where=there, initial=v)) for f, v in ((np.min, low), (np.max, high)))
            count, conflicts = count + int(there.sum()), conflicts + part.conflicts
        if not count:
            raise BadInputError(f"{band.name} has no value on the grid; compare its place and nodata with the area")
        group.attrs["pixels"] = {quantity.name: count}
        group.attrs["range"] = [float(f"{v:.9g}") for v in (low, high)]
        if is_vector(band):
            group.attrs["conflicts"] = conflicts
    log.info("event=labels source=%s quantity=%r pixels=%d low=%g high=%g", band.name, quantity.name, count, low, high)
    if conflicts:
        log.warning("event=values_disagree source=%s pixels=%d overlap=%s", band.name, conflicts, reading.overlap)


@contextmanager
def _reader(
    band: SceneBand, grid: "GeoBox", quantity: Quantity, reading: ReadOptions
) -> Iterator[Callable[[slice, slice], ValueRaster]]:
    if is_vector(band):
        shapes = ValueShapes(band.path, grid, quantity, reading)
        yield lambda y, x: shapes.burn(grid[y, x])
        return
    # Means of whole numbers are no whole numbers.
    with warped(band, grid, reading.resampling, f"label {band.name}", "float32") as source:

        def read(y: slice, x: slice) -> ValueRaster:
            stored, there = read_window(source, (y, x), f"label {band.name}")
            there = there & ~np.isin(stored, quantity.ignore)
            return ValueRaster(np.where(there, physical(stored, source, band), NO_VALUE).astype(np.float32), 0)

        yield read


def option_conflicts(measure: str | None, resampling: str, makers: Mapping[str, Sequence[object]]) -> list[str]:
    """Sentences about a measure (None: classes), a resampling, and what makes classes (bins, codes, values)."""
    given = [name for name, value in makers.items() if value]
    wrong = []
    if measure is not None and not measure.strip():
        wrong.append("label.measure is empty; give the name of what is measured")
    if measure and given:
        wrong.append(f"label.measure keeps the numbers, and label.{given[0]} makes classes of them; give one")
    if measure and resampling == "mode":
        wrong.append("label.resampling mode is for classes; a measure needs nearest, bilinear or average")
    if not measure and resampling in ("bilinear", "average"):
        wrong.append(f"label.resampling {resampling} mixes class numbers; use nearest or mode, or give label.measure")
    return wrong
