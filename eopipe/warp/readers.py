"""Bands of a scene on a grid: read with no more work than their places ask for."""

from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.scenes.item import SceneBand
from eopipe.tiles.grid import PixelWindow
from eopipe.warp.aligned import AlignedResampling
from eopipe.warp.block_cache import BlockCache
from eopipe.warp.coordinates import PixelTransform
from eopipe.warp.open_raster import check_place, open_raster, read_window, warped
from eopipe.warp.reproject import Reprojection
from eopipe.warp.separable import EDGE, WIDE, AxisMapping, Resampling, axis_mapping

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

Resampler = AlignedResampling | Reprojection
Cuts = dict[Any, Any]


class BandReader(Protocol):
    """A band on a grid. `read` may be called from any thread; windows may reach beyond the grid."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its pixels."""

    @property
    def odd(self) -> int:
        """Numbers met so far that are not finite though nothing declares them to be no data."""

    def plan(self, windows: list[PixelWindow]) -> None:
        """Tell the windows that will be read, in this order."""

    def read(self, window: PixelWindow, cuts: Cuts, out: AnyArray) -> BoolArray | None:
        """Fill `out` with the pixels of a window; tell where they are measurements (None: everywhere).

        `cuts` holds what bands of one place share on this window. Raises IntegrityError for a broken block.
        """

    def release(self, turn: int) -> None:
        """Forget what only windows up to this one need."""


@dataclass
class BlockBandReader:
    """A band that is decoded block by block and placed by us."""

    blocks: BlockCache
    place: Resampler

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its pixels."""
        return self.blocks.dtype

    @property
    def odd(self) -> int:
        """Numbers met so far that are not finite though nothing declares them to be no data."""
        return self.blocks.odd

    def plan(self, windows: list[PixelWindow]) -> None:
        """Tell the windows that will be read, in this order."""
        self.blocks.plan([self.place.source(window) for window in windows])

    def read(self, window: PixelWindow, cuts: Cuts, out: AnyArray) -> BoolArray | None:
        """Fill `out` with the pixels of a window; tell where they are measurements (None: everywhere)."""
        cut = cuts.get(id(self.place))
        if cut is None:
            cut = cuts[id(self.place)] = self.place.cut(window, cuts)
        there: BoolArray | None = cut.apply(*self.blocks.read(cut.source), out)
        return there

    def release(self, turn: int) -> None:
        """Forget what only windows up to this one need."""
        self.blocks.release(turn)


@dataclass
class GdalBandReader:
    """A band that GDAL warps: kernels that widen with the ratio of pixels, and those that count pixels."""

    source: Any
    where: str
    lock: Lock = field(default_factory=Lock)
    odd: int = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its pixels."""
        kind: np.dtype[Any] = np.dtype(self.source.dtypes[0])
        return kind

    def plan(self, windows: list[PixelWindow]) -> None:
        """GDAL keeps what it decoded as it sees fit."""

    def read(self, window: PixelWindow, _: Cuts, out: AnyArray) -> BoolArray | None:
        """Fill `out` with the pixels of a window of the grid; tell where they are measurements."""
        with self.lock:
            out[...], there = read_window(self.source, window, self.where)
        return there

    def release(self, turn: int) -> None:
        """GDAL keeps what it decoded as it sees fit."""


@dataclass
class BandOpener:
    """Opens bands on a grid; those that lie alike share their place. Closed with the stack."""

    grid: "GeoBox"
    stack: ExitStack
    places: dict[tuple[Any, ...], Resampler | None] = field(default_factory=dict)
    projections: dict[str, PixelTransform] = field(default_factory=dict)

    def reader(self, band: SceneBand, resampling: Resampling, where: str) -> BandReader:
        """Open a band. Raises what `open_raster` and `check_place` raise."""
        with open_raster(band, where) as source:
            check_place(source, self.grid, band, where)
            nodata = band.nodata_value(source.nodata, np.dtype(source.dtypes[0]), where)
            key = (source.crs.to_wkt(), tuple(source.transform), source.shape, resampling)
            if key not in self.places:
                self.places[key] = place_of(source, self.grid, resampling, self.projections)
        place = self.places[key]
        if place is None:
            return GdalBandReader(self.stack.enter_context(warped(band, self.grid, resampling, where)), where)
        blocks = BlockCache(lambda: open_raster(band, where), nodata, where)
        self.stack.callback(blocks.close)
        return BlockBandReader(blocks, place)


def place_of(
    source: Any, grid: "GeoBox", resampling: Resampling, projections: dict[str, PixelTransform]
) -> Resampler | None:
    """How an opened raster lies on a grid; None where only GDAL resamples as wanted."""
    from rasterio.crs import CRS

    step = ~source.transform * grid.affine
    turned = abs(step.b) * grid.shape[1] + abs(step.d) * grid.shape[0] > EDGE
    if not turned and source.crs == CRS.from_user_input(str(grid.crs)):
        return _parallel(source, grid, step, resampling)
    bent = _bent(source, grid, resampling, projections)
    wide = resampling != "nearest" and _ratio(bent, grid) > WIDE
    return None if wide or resampling in ("average", "mode") else bent


def _bent(source: Any, grid: "GeoBox", resampling: Resampling, projections: dict[str, PixelTransform]) -> Reprojection:
    crs = source.crs.to_wkt()
    projection = projections.setdefault(crs, PixelTransform(grid, crs, source.transform))
    step = ~source.transform * projection.transform
    if step.b or step.d:
        # Turned against the first, so it needs places of its own.
        projection, step = PixelTransform(grid, crs, source.transform), ~source.transform * source.transform
    return Reprojection(projection, (step.e, step.a), (step.f, step.c), source.shape, resampling)


def _parallel(source: Any, grid: "GeoBox", step: Any, resampling: Resampling) -> AlignedResampling | None:
    height, width = grid.shape
    rows = axis_mapping(step.f, step.e, source.height, height)
    columns = axis_mapping(step.c, step.a, source.width, width)
    if _coincides(rows) and _coincides(columns):
        # Every kernel takes the one pixel as it is.
        return AlignedResampling(rows, columns, "nearest")
    if resampling in ("average", "mode"):
        if not (_divides(rows) and _divides(columns)):
            return None
        if max(rows.step, columns.step) <= 1:
            # Each target pixel lies within one pixel of the source.
            resampling = "nearest"
        elif resampling == "mode":
            return None
    return AlignedResampling(rows, columns, resampling)


def _coincides(line: AxisMapping) -> bool:
    """Whether pixels of the target are pixels of the source."""
    return abs(line.step) == 1 and line.start == round(line.start)


def _divides(line: AxisMapping) -> bool:
    """Whether edges of the coarser pixels are edges of the finer ones."""
    fine = min(abs(line.step), 1.0)
    ratio = max(abs(line.step), 1 / abs(line.step))
    return ratio == round(ratio) and line.start / fine == round(line.start / fine)


def _ratio(bent: Reprojection, grid: "GeoBox") -> float:
    """How many source pixels a target pixel spans in the middle of the grid, along the longer of its axes."""
    row, column = (edge / 2 for edge in grid.shape)
    places = bent.own(bent.projection.exact(np.array([row, row + 1.0]), np.array([column, column + 1.0])))
    spans = [np.hypot(*(places[:, 0, 1] - places[:, 0, 0])), np.hypot(*(places[:, 1, 0] - places[:, 0, 0]))]
    return float(max(spans))
