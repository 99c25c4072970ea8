"""Readers of a scene's bands on a grid: copied, resampled or reprojected by eopipe, or warped by GDAL."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.scenes.item import SceneBand
from eopipe.tiles.grid import PixelWindow
from eopipe.warp.block_cache import BlockCache
from eopipe.warp.open_raster import check_location, open_band, open_raster, read_window, warped
from eopipe.warp.reproject import PixelTransform, Reprojection
from eopipe.warp.separable import (
    EDGE_TOLERANCE,
    WIDENING_RATIO,
    AxisMapping,
    KernelWeights,
    ResampledWindow,
    Resampling,
    axis_mapping,
    kernel_weights,
    round_into,
    row_strips,
    working_dtype,
)

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

# Kernel weights of rows and of columns.
SeparableWeights = tuple[KernelWeights, KernelWeights]
# What bands with the same resampler share on one window.
SharedByBands = dict[Any, Any]


@dataclass(frozen=True)
class AlignedResampling:
    """Resampling along rows and columns of a source."""

    rows: AxisMapping
    columns: AxisMapping
    resampling: Resampling

    def source_window(self, window: PixelWindow) -> PixelWindow:
        """The source pixels that a window of the target needs."""
        rows, columns = window
        return self.rows.source_range(rows, self.resampling), self.columns.source_range(columns, self.resampling)

    def resample(self, window: PixelWindow, _: dict[Any, Any]) -> ResampledWindow:
        """How this window is made from its source pixels."""
        source, top = self.source_window(window), window[0].start
        first = source[0].start
        # Nearest neighbours are only copied, so strips would gain nothing.
        one_strip = [slice(0, window[0].stop - top)]
        strips = []
        for rows in one_strip if self.resampling == "nearest" else row_strips(window):
            strip = AlignedStrip(self, (slice(top + rows.start, top + rows.stop), window[1]))
            needed = strip.source[0]
            strips.append((rows, slice(needed.start - first, needed.stop - first), strip))
        return ResampledWindow(source, strips)


@dataclass(frozen=True)
class AlignedStrip:
    """Some rows of the target, with the kernel weights of their rows and columns."""

    mapping: AlignedResampling
    window: PixelWindow

    @cached_property
    def source(self) -> PixelWindow:
        """The source pixels that the strip needs."""
        return self.mapping.source_window(self.window)

    def apply(self, values: AnyArray, valid: BoolArray | None, out: AnyArray) -> BoolArray | None:
        """Fill the strip, as `ResampledWindow.apply`."""
        if not values.size:
            out[...] = 0
            return np.zeros(out.shape, bool)
        if self.mapping.resampling == "nearest":
            _apply(self._nearest, values, out)
            return self._valid(valid)
        floats = values.astype(working_dtype(values.dtype))
        if valid is not None:
            floats[~valid] = 0
        mean, valid_weight = self._weighted_mean(self._weights, floats, valid)
        if self.mapping.resampling == "cubic" and max(self.mapping.rows.ratio, self.mapping.columns.ratio) <= (
            WIDENING_RATIO
        ):
            mean = self._bilinear_where_incomplete(mean, floats, valid)
        round_into(mean, out, convex=self.mapping.resampling != "cubic")
        if self.mapping.resampling == "average":
            return _and(_inside(self._weights), None if valid_weight is None else valid_weight > 0)
        return self._valid(valid)

    def _kernel_weights(self, resampling: Resampling) -> SeparableWeights:
        axes = (self.mapping.rows, self.mapping.columns)
        rows, columns = (
            kernel_weights(axis, (target.start, target.stop), source.start, resampling)
            for axis, target, source in zip(axes, self.window, self.source, strict=True)
        )
        return rows, columns

    @cached_property
    def _weights(self) -> SeparableWeights:
        return self._kernel_weights(self.mapping.resampling)

    @cached_property
    def _nearest(self) -> SeparableWeights:
        return self._kernel_weights("nearest")

    @cached_property
    def _bilinear(self) -> SeparableWeights:
        return self._kernel_weights("bilinear")

    def _valid(self, valid: BoolArray | None) -> BoolArray | None:
        """A target pixel is valid where the source pixel that contains its centre is."""
        return _and(_inside(self._nearest), None if valid is None else _apply(self._nearest, valid))

    def _bilinear_where_incomplete(self, mean: AnyArray, floats: AnyArray, valid: BoolArray | None) -> AnyArray:
        """Replace the cubic mean by the bilinear one where the cubic kernel lacks a pixel, as GDAL does."""
        rows, columns = self._weights
        if valid is None and rows.complete.all() and columns.complete.all():
            return mean
        complete = rows.complete[:, None] & columns.complete
        if valid is not None:
            complete &= _apply((rows.uniform, columns.uniform), (~valid).astype(np.float32)) == 0
        return np.where(complete, mean, self._weighted_mean(self._bilinear, floats, valid)[0])

    @staticmethod
    def _weighted_mean(
        weights: SeparableWeights, floats: AnyArray, valid: BoolArray | None
    ) -> tuple[AnyArray, AnyArray | None]:
        """Weighted mean over the valid pixels, and their part of the total weight (None: all)."""
        total = _apply(weights, floats)
        if valid is None:
            return total, None
        valid_weight = _apply(weights, valid.astype(floats.dtype))
        return np.divide(total, valid_weight, out=np.zeros_like(total), where=np.abs(valid_weight) > 1e-5), valid_weight


def _apply(weights: SeparableWeights, values: AnyArray, out: AnyArray | None = None) -> AnyArray:
    """Weighted sums along both axes, columns first: a coarser source then has fewer rows for the second pass."""
    rows, columns = weights
    return rows.apply(columns.apply(values, 1), 0, out)


def _inside(weights: SeparableWeights) -> BoolArray | None:
    rows, columns = weights
    return None if rows.inside.all() and columns.inside.all() else rows.inside[:, None] & columns.inside


def _and(first: BoolArray | None, second: BoolArray | None) -> BoolArray | None:
    if first is None or second is None:
        return second if first is None else first
    return first & second


Resampler = AlignedResampling | Reprojection


@dataclass
class BlockBandReader:
    """A band that is decoded block by block and resampled by eopipe. `read` may be called from any thread."""

    blocks: BlockCache
    resampler: Resampler

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.blocks.dtype

    @property
    def non_finite(self) -> int:
        """Number of NaN and infinite pixels so far that are not declared as nodata."""
        return self.blocks.non_finite

    def plan(self, windows: list[PixelWindow]) -> None:
        """Announce the windows that will be read, in this order."""
        self.blocks.plan([self.resampler.source_window(window) for window in windows])

    def read(self, window: PixelWindow, shared: SharedByBands, out: AnyArray) -> BoolArray | None:
        """Fill `out` with the pixels of a window, which may reach beyond the grid; return its valid mask (None: all).

        Raises IntegrityError for a damaged block.
        """
        resampled = shared.get(id(self.resampler))
        if resampled is None:
            resampled = shared[id(self.resampler)] = self.resampler.resample(window, shared)
        valid: BoolArray | None = resampled.apply(*self.blocks.read(resampled.source), out)
        return valid

    def release(self, number: int) -> None:
        """Drop what only windows up to this one need."""
        self.blocks.release(number)


@dataclass
class GdalBandReader:
    """A band that GDAL warps: kernels that widen with the ratio of pixel sizes, `average` and `mode`."""

    source: Any
    name: str
    lock: Lock = field(default_factory=Lock)
    non_finite: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = np.dtype(self.source.dtypes[0])
        return dtype

    def plan(self, windows: list[PixelWindow]) -> None:
        """Nothing to plan: GDAL has its own cache."""

    def read(self, window: PixelWindow, _: SharedByBands, out: AnyArray) -> BoolArray | None:
        """Fill `out` with the pixels of a window of the grid; return its valid mask."""
        with self.lock:
            out[...], valid = read_window(self.source, window, self.name)
        return valid

    def release(self, number: int) -> None:
        """Nothing to drop: GDAL has its own cache."""


BandReader = BlockBandReader | GdalBandReader


@dataclass
class BandOpener:
    """Opens bands on a grid; bands with the same georeference share their resampler. Closed with the stack."""

    grid: "GeoBox"
    stack: ExitStack
    resamplers: dict[tuple[Any, ...], Resampler | None] = field(default_factory=dict)
    transforms: dict[str, PixelTransform] = field(default_factory=dict)

    def open(self, band: SceneBand, resampling: Resampling, name: str) -> BandReader:
        """Open a band, called `name` in errors. Raises the errors of `open_raster` and `check_location`."""
        with open_band(band, name) as (source, number):
            check_location(source, self.grid, name)
            nodata = band.nodata_value(source.nodata, np.dtype(source.dtypes[number - 1]), name)
            key = (source.crs.to_wkt(), tuple(source.transform), source.shape, resampling)
            if key not in self.resamplers:
                self.resamplers[key] = resampler_for(source, self.grid, resampling, self.transforms)
        resampler = self.resamplers[key]
        if resampler is None:
            return GdalBandReader(self.stack.enter_context(warped(band, self.grid, resampling, name)), name)
        blocks = BlockCache(lambda: open_raster(band, name), number, nodata, name)
        self.stack.callback(blocks.close)
        return BlockBandReader(blocks, resampler)


def resampler_for(
    source: Any, grid: "GeoBox", resampling: Resampling, transforms: dict[str, PixelTransform]
) -> Resampler | None:
    """The resampler from an opened raster to a grid; None where only GDAL implements this resampling."""
    from rasterio.crs import CRS

    step = ~source.transform * grid.affine
    is_rotated = abs(step.b) * grid.shape[1] + abs(step.d) * grid.shape[0] > EDGE_TOLERANCE
    if not is_rotated and source.crs == CRS.from_user_input(str(grid.crs)):
        return _aligned(source, grid, step, resampling)
    reprojection = _reprojection(source, grid, resampling, transforms)
    is_widened = resampling != "nearest" and _pixel_ratio(reprojection, grid) > WIDENING_RATIO
    return None if is_widened or resampling in ("average", "mode") else reprojection


def _reprojection(
    source: Any, grid: "GeoBox", resampling: Resampling, transforms: dict[str, PixelTransform]
) -> Reprojection:
    crs = source.crs.to_wkt()
    transform = transforms.setdefault(crs, PixelTransform(grid, crs, source.transform))
    step = ~source.transform * transform.transform
    if step.b or step.d:
        # Rotated against the first raster, so it needs positions of its own.
        transform, step = PixelTransform(grid, crs, source.transform), ~source.transform * source.transform
    return Reprojection(transform, (step.e, step.a), (step.f, step.c), source.shape, resampling)


def _aligned(source: Any, grid: "GeoBox", step: Any, resampling: Resampling) -> AlignedResampling | None:
    height, width = grid.shape
    rows = axis_mapping(step.f, step.e, source.height, height)
    columns = axis_mapping(step.c, step.a, source.width, width)
    if _coincides(rows) and _coincides(columns):
        # Every kernel copies the one pixel.
        return AlignedResampling(rows, columns, "nearest")
    if resampling in ("average", "mode"):
        if not (_divides(rows) and _divides(columns)):
            return None
        if max(rows.step, columns.step) <= 1:
            # Each target pixel is within one source pixel.
            resampling = "nearest"
        elif resampling == "mode":
            return None
    return AlignedResampling(rows, columns, resampling)


def _coincides(axis: AxisMapping) -> bool:
    """Whether pixels of the target are pixels of the source."""
    return abs(axis.step) == 1 and axis.start == round(axis.start)


def _divides(axis: AxisMapping) -> bool:
    """Whether edges of the coarser pixels are edges of the finer ones."""
    finer = min(abs(axis.step), 1.0)
    ratio = max(abs(axis.step), 1 / abs(axis.step))
    return ratio == round(ratio) and axis.start / finer == round(axis.start / finer)


def _pixel_ratio(reprojection: Reprojection, grid: "GeoBox") -> float:
    """Source pixels per target pixel in the middle of the grid, along the longer of its axes."""
    row, column = (edge / 2 for edge in grid.shape)
    exact = reprojection.transform.exact(np.array([row, row + 1.0]), np.array([column, column + 1.0]))
    positions = reprojection.in_source(exact)
    right, down = positions[:, 0, 1] - positions[:, 0, 0], positions[:, 1, 0] - positions[:, 0, 0]
    return float(max(np.hypot(*right), np.hypot(*down)))
