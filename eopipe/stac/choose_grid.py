"""The grid of a run: the one that fits the area of interest and the scenes."""

import logging
import math
from functools import cache
from typing import TYPE_CHECKING

from eopipe.errors import BadInputError, UsageError
from eopipe.scenes.item import Item, asset_projection
from eopipe.stac.antimeridian import Geometry, unwrap
from eopipe.stac.query import footprint
from eopipe.tiles.grid import Bounds, make_grid, utm_crs

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox
    from pyproj import Transformer
    from shapely.geometry.base import BaseGeometry

log = logging.getLogger("eopipe")
NO_EXTENT = BadInputError("a scene has neither a projection nor a geometry; give search.area or search.bbox")


def choose_grid(
    items: list[Item], assets: tuple[str, ...], geometry: Geometry | None, crs: str, resolution: float | None
) -> "GeoBox":
    """The run's grid: the pixels of these assets where the scenes agree, else UTM; over the area or all scenes."""
    # The finest raster decides: its pixels are read without warping.
    projections = [(asset, *asset_projection(item, asset)) for item in items for asset in assets]
    # Where a row of pixels runs north, the first number is zero.
    stated = [
        (asset, code, transform) for asset, code, transform, _ in projections if code and transform and transform[0]
    ]
    for item in items:
        _check_place(item, assets)
    if crs != "auto":
        check_crs(crs)
    chosen = crs if crs != "auto" else _choose_crs(sorted({code for _, code, _ in stated}), items, geometry)
    transforms = [(asset, transform) for asset, code, transform in stated if code == chosen]
    finest, native = min(transforms, key=lambda row: abs(row[1][0]), default=("", None))
    step = resolution or (abs(native[0]) if native else None)
    if step is None:
        raise UsageError(f"search.resolution is needed: the scenes do not state a pixel size in {chosen}")
    origin = (native[2], native[5]) if native else (0.0, 0.0)
    bounds = _bounds(items, assets, geometry, chosen)
    grid = make_grid(bounds, chosen, step, origin)
    if 0 in grid.shape:
        raise BadInputError(f"the area is smaller than one pixel of {step:g} units of {chosen}")
    pixel = f"{_pixel_size(step, chosen)} ({'search.resolution' if resolution else f'asset {finest}'})"
    log.info("event=grid crs=%s pixel=%r shape='%d x %d'", chosen, pixel, *grid.shape)
    return grid


def _check_place(item: Item, assets: tuple[str, ...]) -> None:
    """Raise BadInputError for a geometry that is not GeoJSON, and for a CRS that does not exist."""
    footprint(item)
    for code in {code for asset in assets if (code := asset_projection(item, asset)[0])}:
        if not _exists(code):
            raise BadInputError(f"scene {item['id']} is in {code}, but there is no CRS {code}; correct the item")


@cache
def _exists(crs: str) -> bool:
    from pyproj import CRS
    from pyproj.exceptions import CRSError

    try:
        CRS(crs)
    except CRSError:
        return False
    return True


def check_crs(crs: str) -> None:
    """Raise UsageError for a CRS that does not exist."""
    if not _exists(crs):
        raise UsageError(f"search.crs: there is no CRS {crs}; write the EPSG code of a projection, such as EPSG:32633")


def _pixel_size(step: float, crs: str) -> str:
    from pyproj import CRS

    return f"{step:g} {'degrees' if CRS(crs).is_geographic else 'm'}"


def _choose_crs(codes: list[str], items: list[Item], geometry: Geometry | None) -> str:
    """The one CRS of all scenes, or the UTM zone of the area's centre."""
    from pyproj import CRS

    # Pixels of degrees end at 180, so they cannot be the grid of an area across it.
    area = geometry or next((item["geometry"] for item in items if item["geometry"]), None)
    if len(codes) == 1 and not (geometry and _crosses(unwrap(geometry)) and CRS(codes[0]).is_geographic):
        return codes[0]
    if area is None:
        raise NO_EXTENT
    centre = unwrap(area).centroid
    return utm_crs((centre.x + 180) % 360 - 180, centre.y)


def _bounds(items: list[Item], assets: tuple[str, ...], geometry: Geometry | None, crs: str) -> Bounds:
    if geometry:
        return _project(geometry, crs)
    boxes = [_item_bounds(item, assets[0], crs) for item in items]
    west, south, east, north = zip(*boxes, strict=True)
    return min(west), min(south), max(east), max(north)


def _item_bounds(item: Item, asset: str, crs: str) -> Bounds:
    """Bounds of a scene in the CRS: exact where the item states its pixels in it."""
    code, transform, shape = asset_projection(item, asset)
    if code != crs or not transform or not shape:
        return _project(item["geometry"], crs)
    (height, width), (a, b, x0, d, e, y0) = shape, transform[:6]
    x1, y1 = x0 + a * width + b * height, y0 + d * width + e * height
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def _project(geometry: Geometry | None, crs: str) -> Bounds:
    import numpy as np
    from pyproj import Transformer
    from shapely import segmentize, transform

    if geometry is None:
        raise NO_EXTENT
    change = Transformer.from_crs("EPSG:4326", crs, always_xy=True)
    # A straight edge in degrees bends in the CRS.
    whole = unwrap(geometry)
    fine = segmentize(whole, 0.1)
    west, south, east, north = transform(fine, lambda p: np.column_stack(change.transform(p[:, 0], p[:, 1]))).bounds
    if not all(map(math.isfinite, (west, south, east, north))):
        raise UsageError(f"the area is outside the area of use of {crs}; choose another search.crs")
    if _crosses(whole) and _is_cut(change, whole.centroid.y):
        raise UsageError(f"the area crosses 180 degrees, where {crs} is discontinuous; choose another search.crs")
    return west, south, east, north


def _crosses(area: "BaseGeometry") -> bool:
    """Whether an area in one piece continues beyond 180 degrees."""
    return bool(area.bounds[0] < -180 or area.bounds[2] > 180)


def _is_cut(change: "Transformer", latitude: float) -> bool:
    """Whether the two sides of 180 degrees are far apart on the map, in metres or degrees."""
    (before, _), (after, _) = (change.transform(x, latitude) for x in (179.999, 180.001))
    return bool(abs(after - before) > 300)
