"""Sources of labels on the grid of a cell, window by window: rasters or vector files of classes or of a quantity."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Int32Array, IntArray
from eopipe.errors import UsageError
from eopipe.labels.kinds import INTERPOLATING, LabelKind, Legend, Quantity
from eopipe.labels.source_values import SourceValue, SourceValues, shape_values
from eopipe.labels.vector_files import VECTORS, read_file
from eopipe.labels.vectors import (
    NOT_COUNTED,
    ShapeParts,
    kind_of_shapes,
    read_features,
    shape_counts,
    to_grid,
    warn_without_value,
    without_value,
)
from eopipe.scenes.item import Item, SceneBand, bands
from eopipe.tiles.cells import Cell
from eopipe.tiles.geotiff import SETTINGS
from eopipe.tiles.grid import windows
from eopipe.warp.open_raster import open_band, physical, pixels_per_edge, read_window, stated_nodata, warped
from eopipe.warp.separable import Resampling

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

log = logging.getLogger("eopipe")
Overlap = Literal["invalid", "last", "first"]
LEGEND_OPTIONS = ("classes", "bins", "codes", "ignore", "values")
# From this ratio of pixel sizes on a continuous raster is averaged by default: nearest would use one pixel in two.
FINER = 1.5
# This many windows of this edge, over all of the grid, are read from a raster that is only checked.
CHECKED_WINDOWS, CHECKED_EDGE = 16, 256
# The most windows whose values are listed: 100 million pixels.
LISTED_WINDOWS = 1600


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
class LabelRaster:
    """Class numbers or values (y, x), and the number of pixels that shapes of different labels cover.

    `polygons` (y, x) is the number of the shape of each pixel, from 1 in the order of the file; 0 where there is none;
    None if no class has several shapes, since then it does not matter which of them a pixel belongs to.
    """

    labels: AnyArray
    conflicts: int = 0
    polygons: Int32Array | None = None


@dataclass(frozen=True)
class WindowReader:
    """Reads windows (y, x) of a cell; those that the source does not `reach` have no label.

    `has_polygons`: its windows have the numbers of polygons.
    """

    read: Callable[[slice, slice], LabelRaster]
    reaches: Callable[[slice, slice], bool] = lambda _y, _x: True
    has_polygons: bool = False


class LabelShapes:
    """The shapes of a vector file with their class numbers or values, to be rasterised onto any part of a grid."""

    def __init__(
        self,
        source: Path,
        grid: "GeoBox",
        kind: LabelKind,
        attribute: str,
        layer: str | None = None,
        *,
        numbers_of_file: bool = False,
        dates: str | None = None,
    ) -> None:
        """Read and reproject the shapes; raises BadInputError that names classes or values which cannot be used.

        Polygons are numbered in their order around this grid, or with `numbers_of_file` in the order of the whole
        file, so that a polygon has one number on several grids.
        """
        from shapely import STRtree

        self.kind, self.features = kind, read_features(source, attribute, layer, dates=dates)
        self.labels_of_file: AnyArray = kind.of_shapes(source, self.features.values, attribute)
        warn_without_value(self.features, attribute)
        shapes = to_grid(self.features, grid)
        self.is_on_grid = has_shape(shapes)
        is_labelled = self.is_on_grid & kind.is_labelled(self.labels_of_file)
        self.shapes, self.labels = shapes[is_labelled], self.labels_of_file[is_labelled]
        self.polygon_numbers = 1 + (np.flatnonzero(is_labelled) if numbers_of_file else np.arange(len(self.shapes)))
        self.tree, self.parts = STRtree(self.shapes), ShapeParts(self.shapes)

    @property
    def has_polygons(self) -> bool:
        """Whether a class has several shapes."""
        return isinstance(self.kind, Legend) and len(self.shapes) > len(np.unique(self.labels))

    def rasterize(self, part: "GeoBox", overlap: Overlap, *, all_touched: bool) -> LabelRaster:
        """The label of the shape that contains a pixel's centre, or with `all_touched` that touches the pixel.

        Where shapes of different labels overlap, the pixel is unlabelled or the last or first in the file wins.
        """
        from rasterio.features import rasterize
        from shapely.geometry import box

        def burn(order: IntArray, numbers: AnyArray, fill: float, dtype: str) -> AnyArray:
            options = {"transform": part.affine, "all_touched": all_touched, "fill": fill, "dtype": dtype}
            shapes = zip(self.shapes[order], numbers[order].tolist(), strict=True)
            return np.asarray(rasterize(shapes, part.shape, **options))

        unlabelled, dtype = self.kind.unlabelled, self.kind.dtype
        nearby = np.sort(self.tree.query(box(*part.extent.boundingbox)))
        if not len(nearby):
            polygons = np.zeros(part.shape, np.int32) if self.has_polygons else None
            return LabelRaster(np.full(part.shape, unlabelled, dtype), 0, polygons)
        ascending = nearby[np.argsort(self.labels[nearby], kind="stable")]
        # A later shape overwrites an earlier one, so the two orders give the largest and the smallest label of a pixel.
        labels, smallest = (burn(order, self.labels, unlabelled, dtype) for order in (ascending, ascending[::-1]))
        differ = self.kind.is_labelled(labels) & (labels != smallest)
        order = nearby[::-1] if overlap == "first" else nearby
        if overlap == "invalid":
            labels[differ] = unlabelled
        else:
            labels = burn(order, self.labels, unlabelled, dtype)
        conflicts = int(differ.sum())
        if not self.has_polygons:
            return LabelRaster(labels, conflicts)
        polygons = burn(order, self.polygon_numbers, 0, "int32")
        polygons[~self.kind.is_labelled(labels)] = 0
        return LabelRaster(labels, conflicts, polygons)


def has_shape(shapes: AnyArray) -> BoolArray:
    """Which of some shapes are there, and not empty."""
    from shapely import is_empty

    return np.asarray(np.array([shape is not None for shape in shapes], bool) & ~is_empty(shapes))


def label_band(
    source: Path | None, scene: Path | None = None, item: Item | None = None, asset: str | None = None
) -> SceneBand:
    """The raster or vector that holds the labels: a separate file or an asset of a scene."""
    if source is not None:
        return SceneBand(source.name, source, 1.0, 0.0, None)
    if scene is None or item is None or asset is None:
        raise ValueError("labels need a source or an asset of a scene")
    return bands(scene, item, (asset,))[0]


def is_vector(band: SceneBand) -> bool:
    """Whether a source of labels is a vector file, by its name."""
    return band.path.suffix.lower() in VECTORS


class LabelSource:
    """A source of labels; `values` counts the values of a raster of classes, as read in all cells."""

    def __init__(self, band: SceneBand, kind: LabelKind, options: ReadOptions) -> None:
        self.band, self.kind, self.options, self.name = band, kind, options, f"label {band.name}"
        self.values = SourceValues(kind, self.name) if isinstance(kind, Legend) else None
        self.shapes: LabelShapes | None = None

    @contextmanager
    def open(self, cell: Cell) -> Iterator[WindowReader]:
        """The reader of a cell, with labels only of pixels that belong to the cell; all of a raster is read."""
        if not is_vector(self.band):
            with self._open_raster(cell) as read:
                yield WindowReader(read)
            return
        options, in_file = self.options, (self.options.attribute, self.options.layer)
        shapes = LabelShapes(
            self.band.path, cell.grid, self.kind, *in_file, numbers_of_file=bool(cell.id), dates=options.dates
        )
        # A feature is on the grid where it is in any of the cells.
        shapes.is_on_grid |= self.shapes.is_on_grid if self.shapes else False
        self.shapes = shapes

        def rasterize(y: slice, x: slice) -> LabelRaster:
            part = shapes.rasterize(cell.grid[y, x], options.overlap, all_touched=options.all_touched)
            if cell.id:
                belongs = cell.belongs(y, x)
                part.labels[~belongs] = self.kind.unlabelled
                if part.polygons is not None:
                    part.polygons[~belongs] = 0
            return part

        yield WindowReader(rasterize, lambda y, x: shapes.parts.reach(cell.grid[y, x]), shapes.has_polygons)

    def check(self) -> None:
        """Raise BadInputError for values of a raster that belong to no class."""
        if self.values and not is_vector(self.band):
            self.values.check()

    def rows(self) -> list[SourceValue]:
        """The source values with their classes, and their pixels or shapes; none of a quantity."""
        if isinstance(self.kind, Legend) and self.shapes:
            return shape_values(self.kind, self.shapes.features.values)
        return self.values.rows() if self.values else []

    def shape_counts(self) -> dict[str, Any]:
        """The attribute of a store with the shapes of each class."""
        if not (isinstance(self.kind, Legend) and self.shapes):
            return NOT_COUNTED
        features, numbers = self.shapes.features, map(self.kind.number, self.shapes.features.other_values)
        others = [number for number in numbers if number is not None]
        classes_of_file: IntArray = self.shapes.labels_of_file
        kind, is_on_grid = kind_of_shapes(features.shapes), self.shapes.is_on_grid
        return shape_counts(kind, self.kind.classes, classes_of_file, is_on_grid, others)

    @contextmanager
    def _open_raster(self, cell: Cell) -> Iterator[Callable[[slice, slice], LabelRaster]]:
        kind, options = self.kind, self.options
        kind.check_raster()
        resampling, band = raster_resampling(self.band, cell.grid, options.resampling, kind)
        interpolates = resampling in INTERPOLATING
        # In float32, since means of integers are not integers.
        dtype = "float32" if interpolates or isinstance(kind, Quantity) else None
        with warped(band, cell.grid, resampling, self.name, dtype) as source:

            def read(y: slice, x: slice) -> LabelRaster:
                stored, valid = read_window(source, (y, x), self.name)
                if cell.id:
                    valid = valid & cell.belongs(y, x)
                # Ignored numbers are nodata where pixels are interpolated.
                ignored = np.zeros(valid.shape, bool) if interpolates else np.isin(stored, kind.ignore)
                # Edges of bins and values are physical, codes are stored ones.
                numbers = physical(stored, source, (band.scale, band.offset)) if kind.is_continuous else stored
                if self.values:
                    self.values.add(numbers, valid, ignored)
                return LabelRaster(kind.of_raster(numbers, valid & ~ignored))

            yield read


def raster_resampling(
    band: SceneBand, grid: "GeoBox", resampling: Resampling | Literal["auto"], kind: LabelKind
) -> tuple[Resampling, SceneBand]:
    """The resampling of a label raster, and its band, whose nodata is the ignored number where pixels are interpolated.

    `auto` averages a continuous raster that is finer than the grid, and else takes the nearest pixel. Raises UsageError
    where interpolation would mix ignored numbers with others.
    """
    is_automatic, ignore = resampling == "auto", kind.ignore
    if resampling == "auto":
        is_finer = kind.is_continuous and pixels_per_edge(band, grid, f"label {band.name}") >= FINER
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


def label_kind(label: Mapping[str, Any]) -> LabelKind:
    """The kind of the labels by the options of the stage."""
    if label["measure"]:
        return Quantity(label["measure"], label["unit"], tuple(label["ignore"]))
    return Legend(*(tuple(label[name]) for name in LEGEND_OPTIONS))


def labelled_in_file(source: LabelSource, cell: Cell | None) -> int:
    """The shapes that label pixels of a cell, or of any without one; of a raster the labelled pixels of some windows.

    1 or more where there may be others in the rest of the raster, and without a cell, where it is only opened.
    """
    import rasterio

    if is_vector(source.band):
        options, file = source.options, source.band.path
        features = read_features(file, options.attribute, options.layer, dates=options.dates)
        is_labelled = source.kind.is_labelled(source.kind.of_shapes(file, features.values, options.attribute))
        return int((is_labelled & has_shape(to_grid(features, cell.grid) if cell else features.shapes)).sum())
    if not cell:
        with rasterio.Env(**SETTINGS), open_band(source.band, source.name):
            return 1
    parts = windows(cell.shape, CHECKED_EDGE)
    step = -(-len(parts) // CHECKED_WINDOWS)
    with source.open(cell) as reader:
        labelled = sum(int(source.kind.is_labelled(reader.read(*part).labels).sum()) for part in parts[::step])
    source.check()
    return max(labelled, int(step > 1))


def label_warnings(label: Mapping[str, Any]) -> list[str]:
    """Sentences about shapes of the label files that have no value; files that are not there have none."""
    sources = [Path(label[name]) for name in ("before", "source") if label[name]]
    vectors = [path for path in sources if path.is_file() and is_vector(label_band(path))]
    attribute = label["attribute"]
    of_files = [read_file(path, attribute, label["layer"], "label.layer", label["dates"]) for path in vectors]
    return [text for features in of_files if (text := without_value(features, attribute))]


def raster_values(file: Path, cell: Cell) -> tuple[list[float], dict[int, str]]:
    """The stored values of a class raster on a cell, in order, and the colours (#rrggbb) of its colour table.

    In a large cell some windows are read. Raises BadInputError for a continuous raster, and what reading raises.
    """
    import rasterio

    # Every value is counted, whatever the legend says of it.
    legend = Legend(("a", "b"), codes=(0, 1))
    source = LabelSource(label_band(file), legend, ReadOptions("", None, "invalid", False, "nearest"))
    parts = windows(cell.shape, CHECKED_EDGE)
    with source.open(cell) as reader:
        for part in parts[:: -(-len(parts) // LISTED_WINDOWS)]:
            reader.read(*part)
    with rasterio.Env(**SETTINGS), open_band(source.band, source.name) as (raster, number):
        has_table = raster.colorinterp[number - 1].name == "palette"
        table = raster.colormap(number) if has_table else {}
    colors = {value: "#{:02x}{:02x}{:02x}".format(*rgba[:3]) for value, rgba in table.items()}
    return sorted(source.values.counts if source.values else ()), colors
