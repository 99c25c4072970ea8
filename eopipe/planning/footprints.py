"""Footprints of scenes and of the grid, in any CRS."""

from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import BoolArray, Float64Array
from eopipe.scenes.item import Item

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

DEGREES, STEP_DEGREES = "EPSG:4326", 0.1


def reproject(geometry: Any, source: str, target: str, step: float) -> Any:
    """A shapely geometry in another CRS; its edges get a vertex every `step`, since straight lines become curves."""
    from pyproj import Transformer
    from shapely import make_valid, segmentize, transform

    transformer = Transformer.from_crs(source, target, always_xy=True)
    fine = segmentize(geometry, step)
    return make_valid(transform(fine, lambda p: np.column_stack(transformer.transform(p[:, 0], p[:, 1]))))


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
