"""Footprints of scenes and of the grid, in any CRS."""

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import BoolArray, Float64Array
from eopipe.scenes.item import Item
from eopipe.tiles.cells import Cell
from eopipe.tiles.grid import PixelWindow
from eopipe.warp.covered import MARGIN, covered_window

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox
    from pyproj import Transformer

DEGREES, STEP_DEGREES = "EPSG:4326", 0.1


def reproject(geometry: Any, source: str, target: str, step: float) -> Any:
    """A shapely geometry in another CRS; its edges get a vertex every `step`, since straight lines become curves."""
    from shapely import make_valid, segmentize, transform

    transformer = _transformer(source, target)
    fine = segmentize(geometry, step)
    return make_valid(transform(fine, lambda p: np.column_stack(transformer.transform(p[:, 0], p[:, 1]))))


@cache
def _transformer(source: str, target: str) -> "Transformer":
    """Costs 50 ms, and all scenes need the same."""
    from pyproj import Transformer

    return Transformer.from_crs(source, target, always_xy=True)


def footprint(item: Item, crs: str) -> Any:
    """The footprint of a scene (shapely) in a CRS; None if the item has no geometry."""
    from shapely.geometry import shape

    return reproject(shape(item["geometry"]), DEGREES, crs, STEP_DEGREES) if item["geometry"] else None


def coverage_mask(item: Item, grid: "GeoBox") -> BoolArray:
    """The pixels (y, x) of the grid whose centre is in the scene's footprint; all if the item has no geometry."""
    from rasterio.features import rasterize

    outline = footprint(item, str(grid.crs))
    if outline is None:
        return np.ones(grid.shape, bool)
    if outline.is_empty:
        return np.zeros(grid.shape, bool)
    return np.asarray(rasterize([outline], out_shape=grid.shape, transform=grid.affine, dtype="uint8"), bool)


def reached_windows(
    items: dict[str, Item], cell: Cell, bands: list[str], masks: dict[str, BoolArray]
) -> dict[str, list[PixelWindow]]:
    """The windows of a cell that the bands of each scene reach, from their projection metadata; none outside of it.

    Those of a scene that states none are around its footprint.
    """
    reached = {}
    for name, item in items.items():
        around = bounding_window(masks[name][cell.window], 2 * MARGIN)
        windows = [_stated_window(item, band, cell.grid) or around for band in bands]
        is_outside = cell.id and all(y.start == y.stop or x.start == x.stop for y, x in windows)
        reached[name] = [] if is_outside else windows
    return reached


def _stated_window(item: Item, band: str, grid: "GeoBox") -> PixelWindow | None:
    from affine import Affine, TransformNotInvertibleError
    from pyproj.exceptions import CRSError

    stated: dict[str, Any] = item["properties"] | item["assets"].get(band, {})
    code = stated.get("proj:code") or (f"EPSG:{stated['proj:epsg']}" if stated.get("proj:epsg") else None)
    transform, shape = stated.get("proj:transform"), stated.get("proj:shape")
    if not (code and transform and shape):
        return None
    try:
        return _covered(str(code), Affine(*transform[:6]), (int(shape[0]), int(shape[1])), grid)
    except (CRSError, TransformNotInvertibleError):
        # preprocess reads both from the file.
        return None


@lru_cache(maxsize=4096)
def _covered(crs: str, transform: Any, shape: tuple[int, int], grid: "GeoBox") -> PixelWindow:
    """Scenes of one place share their transform."""
    return covered_window(crs, transform, shape, grid)


def bounding_window(mask: BoolArray, margin: int = 0) -> PixelWindow:
    """The rows and columns of a mask that have a pixel, with a margin; empty where none has."""
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    if not rows.size:
        return slice(0, 0), slice(0, 0)
    top, left = (max(int(places[0]) - margin, 0) for places in (rows, columns))
    bottom, right = (
        min(int(places[-1]) + 1 + margin, edge) for places, edge in zip((rows, columns), mask.shape, strict=True)
    )
    return slice(top, bottom), slice(left, right)


def grid_extent(grid: "GeoBox", margin: int = 0) -> Any:
    """The rectangle of the grid (shapely) in its CRS, with a margin in pixels."""
    from shapely.geometry import box

    return box(*(grid.pad(margin) if margin else grid).extent.boundingbox)


def grid_outline(grid: "GeoBox") -> dict[str, Any]:
    """The grid's border as a GeoJSON polygon in degrees, where its edges are curves."""
    from shapely.geometry import mapping

    step = abs(grid.resolution.x) * max(grid.shape) / 20
    return dict(mapping(reproject(grid_extent(grid), str(grid.crs), DEGREES, step)))


def exterior_rings(geometry: Any) -> list[Float64Array]:
    """The outer rings (n, 2) of a shapely geometry."""
    from shapely import get_exterior_ring, get_parts

    return [np.asarray(ring.coords)[:, :2] for ring in get_exterior_ring(get_parts(geometry)) if ring is not None]
