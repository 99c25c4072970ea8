"""Write labels as a store, window by window, from rasters or vectors."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from eopipe.arrays import AnyArray
from eopipe.errors import BadInputError, UsageError
from eopipe.labels.classes import ClassRaster, ClassShapes, Legend, Overlap, raster_conflicts
from eopipe.labels.source_values import SourceValue, SourceValues, attributes_of, shape_values
from eopipe.labels.vectors import VECTORS
from eopipe.scenes.item import Item, SceneBand, bands
from eopipe.tiles.grid import windows
from eopipe.tiles.layout import Layout
from eopipe.tiles.store import NO_LABEL, add_array, declare_nodata, new_store
from eopipe.warp.open_raster import pixels_per_edge, read_window, stated_nodata, warped
from eopipe.warp.separable import Resampling

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

log = logging.getLogger("eopipe")
INTERPOLATING: tuple[Resampling, ...] = ("bilinear", "cubic", "average")
# From this ratio of pixel sizes on a continuous raster is averaged by default: nearest would use one pixel in two.
FINER = 1.5


@dataclass(frozen=True)
class ReadOptions:
    """How a source is read: attribute, layer and rasterisation of vectors, resampling of rasters."""

    attribute: str
    layer: str | None
    overlap: Overlap
    all_touched: bool
    resampling: Resampling | Literal["auto"]


@dataclass(frozen=True)
class ClassReader:
    """A source of class labels: `read` gives a window (y, x); afterwards `values` gives what the source holds."""

    read: Callable[[slice, slice], ClassRaster]
    values: Callable[[], list[SourceValue]]
    check: Callable[[], None]


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
    """Publish `label` and `valid` (y, x).

    `polygon` (y, x) has the number of the shape of each pixel, where a vector file has several shapes of a class.
    Attributes of the store: the pixels of each class, the source values with their classes, and the pixels of
    overlapping shapes of different classes. Warns of a class without any pixel, and of a scene without any label, which
    `split` leaves out. Raises BadInputError for values that belong to no class, and when labels of all scenes have no
    pixel.
    """
    shape = (int(grid.shape[0]), int(grid.shape[1]))
    counts, conflicts = np.zeros(len(legend.classes), np.int64), 0
    with (
        class_reader(band, grid, legend, options) as source,
        new_store(target, grid, legend.classes, scene, {}) as group,
    ):
        meanings = " ".join("_".join(name.split()) for name in legend.classes)
        flags = {"flag_values": list(range(len(legend.classes))), "flag_meanings": meanings}
        label = add_array(group, "label", shape, "uint8", layout, **flags)
        declare_nodata(label, NO_LABEL)
        valid, polygon = add_array(group, "valid", shape, "uint8", layout), None
        for y, x in windows(shape, layout.shard):
            part = source.read(y, x)
            label[y, x], valid[y, x] = part.numbers, part.numbers != NO_LABEL
            if part.polygons is not None:
                polygon = add_array(group, "polygon", shape, "int32", layout) if polygon is None else polygon
                polygon[y, x] = part.polygons
            counts += np.bincount(part.numbers[part.numbers != NO_LABEL], minlength=len(counts))
            conflicts += part.conflicts
        source.check()
        pixels, rows = dict(zip(legend.classes, counts.tolist(), strict=True)), source.values()
        group.attrs.update({"pixels": pixels} | attributes_of(rows))
        if is_vector(band):
            group.attrs["conflicts"] = conflicts
        check_labelled(int(counts.sum()), band, scene, "label")
    _log_pixels(band, pixels, rows, conflicts, options)


def check_labelled(pixels: int, band: SceneBand, scene: str, noun: str) -> None:
    """Warn of a scene without labels; raise BadInputError where labels of all scenes have no pixel on the grid."""
    if pixels:
        return
    if not scene:
        raise BadInputError(f"{band.name} has no {noun} on the grid; compare its location and values with the area")
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


@contextmanager
def class_reader(band: SceneBand, grid: "GeoBox", legend: Legend, options: ReadOptions) -> Iterator[ClassReader]:
    """Open a source of class labels on a grid. Raises UsageError where legend and source contradict each other."""
    if is_vector(band):
        shapes = ClassShapes(band.path, grid, legend, options.attribute, options.layer)
        yield ClassReader(
            lambda y, x: shapes.rasterize(grid[y, x], options.overlap, all_touched=options.all_touched),
            lambda: shape_values(legend, shapes.attribute_values),
            lambda: None,
        )
        return
    is_explicit = bool(legend.bins or legend.codes or legend.values)
    if conflicts := raster_conflicts(legend.classes, legend.ignore, is_explicit=is_explicit):
        raise UsageError("; ".join(conflicts))
    resampling, band = raster_resampling(band, grid, options.resampling, legend.ignore, is_continuous=bool(legend.bins))
    interpolates, name, values = resampling in INTERPOLATING, f"label {band.name}", SourceValues(legend, band.name)
    with warped(band, grid, resampling, name, "float32" if interpolates else None) as source:

        def read(y: slice, x: slice) -> ClassRaster:
            stored, valid = read_window(source, (y, x), name)
            # Ignored numbers are nodata where pixels are interpolated.
            ignored = np.zeros(valid.shape, bool) if interpolates else np.isin(stored, legend.ignore)
            # Edges of bins are physical values, codes are stored ones.
            numbers = physical(stored, source, band) if legend.bins else stored
            values.add(numbers, valid, ignored)
            return ClassRaster(legend.classify(numbers, valid & ~ignored), 0)

        yield ClassReader(read, values.rows, values.check)


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


def physical(stored: AnyArray, source: Any, band: SceneBand) -> AnyArray:
    """Physical values of stored numbers, by scale and offset of the item, else of the file."""
    scale, offset = band.scale, band.offset
    if (scale, offset) == (1.0, 0.0):
        scale, offset = source.scales[0], source.offsets[0]
    return stored if (scale, offset) == (1.0, 0.0) else stored * scale + offset
