"""Area of interest, and the grid that fits it and the scenes."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eopipe.errors import BadInputError, UsageError
from eopipe.grid import Bounds, make_grid, utm
from eopipe.publish import read_json
from eopipe.scenes.item import Item, place

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

Geometry = dict[str, Any]
NO_PLACE = BadInputError("a scene tells neither its pixels nor its geometry; give search.area or search.bbox")


def area_geometry(area: Path | None, bbox: tuple[float, ...]) -> Geometry | None:
    """The area as one GeoJSON geometry in degrees, from a file or a box."""
    from shapely.errors import ShapelyError
    from shapely.geometry import box, mapping, shape
    from shapely.ops import unary_union

    if area is None and not bbox:
        return None
    if bbox:
        if len(bbox) != 4 or not (-180 <= bbox[0] < bbox[2] <= 180 and -90 <= bbox[1] < bbox[3] <= 90):
            raise UsageError(f"bbox {' '.join(map(str, bbox))} is not west south east north in degrees")
        return dict(mapping(box(*bbox)))
    value = read_json(area) if area else {}
    try:
        features = value.get("features", [value])
        union = unary_union([shape(f.get("geometry", f)) for f in features])
    except (AttributeError, KeyError, TypeError, ValueError, ShapelyError) as error:
        raise BadInputError(f"{area} is not GeoJSON with polygons") from error
    if union.is_empty or not union.within(box(-180, -90, 180, 90)):
        raise BadInputError(f"{area} holds no area in degrees; GeoJSON is longitude, latitude")
    return dict(mapping(union))


def choose_grid(
    items: list[Item], assets: tuple[str, ...], geometry: Geometry | None, crs: str, resolution: float | None
) -> "GeoBox":
    """The run's grid: the scenes' own pixels where they agree, else UTM; over the area or all scenes."""
    # The finest raster decides: its pixels are read without warping.
    places = [place(item, asset) for item in items for asset in assets]
    told = [(code, transform, shape) for code, transform, shape in places if code and transform]
    codes = sorted({code for code, _, _ in told if code})
    chosen = crs if crs != "auto" else codes[0] if len(codes) == 1 else _utm(items, geometry)
    native = min((t for c, t, _ in told if c == chosen and t), key=lambda t: abs(t[0]), default=None)
    step = resolution or (abs(native[0]) if native else None)
    if step is None:
        raise UsageError(f"search.resolution is needed: the scenes do not tell their pixels in {chosen}")
    origin = (native[2], native[5]) if native else (0.0, 0.0)
    bounds = _bounds(items, assets, geometry, chosen)
    grid = make_grid(bounds, chosen, step, origin)
    if 0 in grid.shape:
        raise BadInputError(f"the area is smaller than one pixel of {step:g} units of {chosen}")
    return grid


def _utm(items: list[Item], geometry: Geometry | None) -> str:
    from shapely.geometry import shape

    known = geometry or next((item["geometry"] for item in items if item["geometry"]), None)
    if known is None:
        raise NO_PLACE
    centre = shape(known).centroid
    return utm(centre.x, centre.y)


def _bounds(items: list[Item], assets: tuple[str, ...], geometry: Geometry | None, crs: str) -> Bounds:
    if geometry:
        return _project(geometry, crs)
    boxes = [_item_bounds(item, assets[0], crs) for item in items]
    west, south, east, north = zip(*boxes, strict=True)
    return min(west), min(south), max(east), max(north)


def _item_bounds(item: Item, asset: str, crs: str) -> Bounds:
    """Bounds of a scene in the CRS: exact where the item tells its pixels in it."""
    code, transform, shape = place(item, asset)
    if code != crs or not transform or not shape:
        return _project(item["geometry"], crs)
    (height, width), (a, b, x0, d, e, y0) = shape, transform[:6]
    x1, y1 = x0 + a * width + b * height, y0 + d * width + e * height
    return min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)


def _project(geometry: Geometry | None, crs: str) -> Bounds:
    import numpy as np
    from pyproj import Transformer
    from pyproj.exceptions import CRSError
    from shapely import segmentize, transform
    from shapely.geometry import shape

    if geometry is None:
        raise NO_PLACE
    try:
        change = Transformer.from_crs("EPSG:4326", crs, always_xy=True)
    except CRSError as error:
        raise UsageError(f"there is no CRS {crs}") from error
    # A straight edge in degrees bends in the CRS.
    fine = segmentize(shape(geometry), 0.1)
    west, south, east, north = transform(fine, lambda p: np.column_stack(change.transform(p[:, 0], p[:, 1]))).bounds
    if not all(map(math.isfinite, (west, south, east, north))):
        raise UsageError(f"the area lies outside what {crs} can show; choose another search.crs")
    return west, south, east, north
