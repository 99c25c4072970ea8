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
    """How a source is read: attribute, layer and rasterisation of vectors, resampling of rasters."""

    attribute: str
    layer: str | None
    overlap: Overlap
    all_touched: bool
    resampling: Resampling


def label_band(source: Path | None, scene: Path | None, item: Item | None, asset: str | None) -> SceneBand:
    """The raster or vector that holds the labels: a separate file or an asset of a scene."""
    if source is not None:
        return SceneBand(source.name, source, 1.0, 0.0, None)
    if scene is None or item is None or asset is None:
        raise ValueError("labels need a source or an asset of a scene")
    return bands(scene, item, (asset,))[0]


def write_labels(
    target: Path, grid: "GeoBox", legend: Legend, band: SceneBand, *, scene: str, options: ReadOptions, layout: Layout
) -> None:
    """Publish `label` and `valid` (y, x); raises BadInputError when no pixel has a label.

    Attributes of the store: the pixels of each class, and of overlapping shapes of different classes. Warns of a
    class without any pixel.
    """
    shape = (int(grid.shape[0]), int(grid.shape[1]))
    counts, conflicts = np.zeros(len(legend.classes), np.int64), 0
    with (
        _reader(band, grid, legend, options) as read,
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
            raise BadInputError(f"{band.name} has no label on the grid; compare its location and values with the area")
    _log_pixels(band, pixels, conflicts, options)


def _log_pixels(band: SceneBand, pixels: dict[str, int], conflicts: int, options: ReadOptions) -> None:
    log.info("event=labels source=%s pixels=%r", band.name, ", ".join(f"{n} {k}" for n, k in pixels.items()))
    empty = [name for name, count in pixels.items() if not count]
    if empty:
        log.warning("event=classes_without_pixels source=%s classes=%r", band.name, ", ".join(empty))
    if conflicts:
        log.warning("event=classes_disagree source=%s pixels=%d overlap=%s", band.name, conflicts, options.overlap)


def is_vector(band: SceneBand) -> bool:
    """Whether a source of labels is a vector file, by its name."""
    return band.path.suffix.lower() in VECTORS


@contextmanager
def _reader(band: SceneBand, grid: "GeoBox", legend: Legend, options: ReadOptions) -> Iterator[RasterReader]:
    if is_vector(band):
        shapes = ClassShapes(band.path, grid, legend, options.attribute, options.layer)
        yield lambda y, x: shapes.rasterize(grid[y, x], options.overlap, all_touched=options.all_touched)
        return
    with warped(band, grid, options.resampling, f"label {band.name}") as source:

        def read(y: slice, x: slice) -> ClassRaster:
            stored, valid = read_window(source, (y, x), f"label {band.name}")
            # Edges of bins are physical values, codes are stored ones.
            values = physical(stored, source, band) if legend.bins else stored
            return ClassRaster(legend.classify(values, valid), 0)

        yield read


def physical(stored: AnyArray, source: Any, band: SceneBand) -> AnyArray:
    """Physical values of stored numbers, by scale and offset of the item, else of the file."""
    scale, offset = band.scale, band.offset
    if (scale, offset) == (1.0, 0.0):
        scale, offset = source.scales[0], source.offsets[0]
    return stored if (scale, offset) == (1.0, 0.0) else stored * scale + offset
