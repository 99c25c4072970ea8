"""Write labels as a store, window by window, from rasters or vectors."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError
from eopipe.labels.classes import ClassRaster, ClassShapes, Legend, Overlap
from eopipe.labels.vectors import VECTORS
from eopipe.scenes.item import Item, SceneBand, bands
from eopipe.tiles.grid import windows
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import NO_LABEL, add_array, new_store
from eopipe.warp.open_raster import read_window, warped
from eopipe.warp.separable import Resampling

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

log = logging.getLogger("eopipe")
RasterReader = Callable[[slice, slice], ClassRaster]


@dataclass(frozen=True)
class ReadOptions:
    """How a source is read: of vectors the attribute, layer and what a pixel takes, of rasters the resampling."""

    attribute: str
    layer: str | None
    overlap: Overlap
    all_touched: bool
    resampling: Resampling


def label_band(source: Path | None, scene: Path | None, item: Item | None, asset: str | None) -> SceneBand:
    """The raster or vector that holds the labels: a file of its own or an asset of a scene."""
    if source is not None:
        return SceneBand(source.name, source, 1.0, 0.0, None)
    if scene is None or item is None or asset is None:
        raise ValueError("labels come from a source or from an asset of a scene")
    return bands(scene, item, (asset,))[0]


def write_labels(
    target: Path, grid: "GeoBox", legend: Legend, band: SceneBand, *, scene: str, reading: ReadOptions, layout: Layout
) -> None:
    """Publish `label` and `valid` (y, x); raises BadInputError when no pixel has a label.

    The store tells the pixels of each class, and of shapes that disagree. A class without any pixel is warned of.
    """
    shape = (int(grid.shape[0]), int(grid.shape[1]))
    counts, conflicts = np.zeros(len(legend.classes), np.int64), 0
    with (
        _reader(band, grid, legend, reading) as read,
        new_store(target, grid, legend.classes, scene, {}) as group,
    ):
        label = add_array(group, "label", shape, "uint8", layout)
        valid = add_array(group, "valid", shape, "uint8", layout)
        for y, x in windows(shape, layout.shard):
            part = read(y, x)
            label[y, x], valid[y, x] = part.numbers, part.numbers != NO_LABEL
            counts += np.bincount(part.numbers[part.numbers != NO_LABEL], minlength=len(counts))
            conflicts += part.conflicts
        pixels = dict(zip(legend.classes, counts.tolist(), strict=True))
        group.attrs["pixels"] = pixels
        if is_vector(band):
            group.attrs["conflicts"] = conflicts
        if not counts.any():
            raise BadInputError(f"{band.name} has no label on the grid; compare its place and values with the area")
    _tell(band, pixels, conflicts, reading)


def _tell(band: SceneBand, pixels: dict[str, int], conflicts: int, reading: ReadOptions) -> None:
    log.info("event=labels source=%s pixels=%r", band.name, ", ".join(f"{n} {k}" for n, k in pixels.items()))
    empty = [name for name, count in pixels.items() if not count]
    if empty:
        log.warning("event=classes_without_pixels source=%s classes=%r", band.name, ", ".join(empty))
    if conflicts:
        log.warning("event=classes_disagree source=%s pixels=%d overlap=%s", band.name, conflicts, reading.overlap)


def is_vector(band: SceneBand) -> bool:
    """Whether a source of labels is a vector file, by its name."""
    return band.path.suffix.lower() in VECTORS


@contextmanager
def _reader(band: SceneBand, grid: "GeoBox", legend: Legend, reading: ReadOptions) -> Iterator[RasterReader]:
    if is_vector(band):
        shapes = ClassShapes(band.path, grid, legend, reading.attribute, reading.layer)
        yield lambda y, x: shapes.burn(grid[y, x], reading.overlap, all_touched=reading.all_touched)
        return
    with warped(band, grid, reading.resampling, f"label {band.name}") as source:

        def read(y: slice, x: slice) -> ClassRaster:
            values, there = read_window(source, (y, x), f"label {band.name}")
            return ClassRaster(legend.read(physical(values, source, band) if legend.bins else values, there), 0)

        yield read


def physical(values: AnyArray, source: Any, band: SceneBand) -> AnyArray:
    """Measured values, since edges are given in their unit: with scale and offset of the item, else of the file."""
    scale, offset = band.scale, band.offset
    if (scale, offset) == (1.0, 0.0):
        scale, offset = source.scales[0], source.offsets[0]
    return values if (scale, offset) == (1.0, 0.0) else values * scale + offset
