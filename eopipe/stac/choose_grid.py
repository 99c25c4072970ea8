"""The grid of a run, or its cells: those that fit the area of interest and the pixels of the scenes.

Not every scene is in the UTM zone that arithmetic gives: Landsat is in UTM north also in the south, with negative
northings, and around Norway and Svalbard zones are wider.
"""

import logging
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from eopipe.errors import BadInputError, UsageError
from eopipe.scenes.item import Item, asset_projection
from eopipe.stac.query import footprint
from eopipe.tiles.cells import GAP, ZONE_DEGREES, Frame
from eopipe.tiles.globe import DEGREES, Geometry, shift_near, to_crs, transformer, unwrap
from eopipe.tiles.grid import Bounds, make_grid, utm_crs
from eopipe.tiles.ground import scale_warning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from odc.geo.geobox import GeoBox
    from shapely.geometry.base import BaseGeometry

log = logging.getLogger("eopipe")
T = TypeVar("T")
# The value of search.crs for one cell in each UTM zone.
UTM = "utm"
# Degrees that a cell extends beyond its zone: at 10 m, 100 pixels at the equator, and 50 at 60 degrees.
ZONE_MARGIN = 0.01
# Parts of a pixel that lattices may differ by.
TOLERANCE = 1e-3
NO_EXTENT = BadInputError("a scene has neither a projection nor a geometry; give search.area or search.bbox")


@dataclass(frozen=True, eq=False)
class SceneLattice:
    """The pixels of the finest asset of a scene: CRS, edge of a pixel, corner of one, and the footprint in degrees.

    A scene without a footprint may be anywhere.
    """

    scene: str
    crs: str
    step: float
    origin: tuple[float, float]
    footprint: "BaseGeometry | None"

    @property
    def phase(self) -> tuple[float, ...]:
        """Where the edges of pixels are, in parts of a pixel."""
        return tuple(round(edge / self.step % 1, 3) % 1 for edge in self.origin)

    def is_on(self, grid: "GeoBox") -> bool:
        """Whether the pixels coincide with a grid's, so that they are copied."""
        edges = (~grid.affine) @ self.origin
        is_same = grid.crs == self.crs and abs(abs(grid.affine.a) - self.step) < TOLERANCE * self.step
        return is_same and all(abs(edge - round(edge)) < 2 * TOLERANCE for edge in edges)


def choose_grid(
    items: list[Item], assets: tuple[str, ...], geometry: Geometry | None, crs: str, resolution: float | None
) -> "GeoBox":
    """The run's grid: the pixels of these assets where the scenes agree, else UTM; over the area or all scenes."""
    # The finest raster decides: its pixels are read without warping.
    stated = _stated_projections(items, assets)
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
    unit = "degrees" if grid.crs is not None and grid.crs.geographic else "m"
    pixel = f"{step:g} {unit} ({'search.resolution' if resolution else f'asset {finest}'})"
    log.info("event=grid crs=%s pixel=%r shape='%d x %d'", chosen, pixel, *grid.shape)
    if warning := scale_warning(grid):
        log.warning("event=scale_of_crs reason=%r", warning)
    return grid


def choose_cells(
    items: list[Item], assets: tuple[str, ...], geometry: Geometry | None, crs: str, resolution: float | None
) -> Frame:
    """The cells of a run: one grid as `choose_grid`, or with `crs` utm one for each UTM zone and site of the area.

    Parts of the area in one zone are sites of their own where they are at least `GAP` pixels apart.

    The area is the given geometry, or all scenes. A cell has the CRS and the lattice of most pixels of its scenes, so
    that they are copied; all cells have the pixel size of the finest asset. A cell extends a little beyond its zone, so
    that places at the border have their surroundings.
    """
    if crs != UTM:
        return Frame.of_grids([choose_grid(items, assets, geometry, crs, resolution)])
    for item in items:
        _check_place(item, assets)
    places = [geometry] if geometry else [item["geometry"] for item in items if item["geometry"]]
    if not places or (not geometry and len(places) < len(items)):
        raise NO_EXTENT
    zones = zones_of([unwrap(place) for place in places])
    sizes = [abs(transform[0]) for _, code, transform in _stated_projections(items, assets) if _zone_of(code)]
    step = resolution or min(sizes, default=None)
    if step is None:
        raise UsageError("search.resolution is needed: no scene states a pixel size in metres of a UTM zone")
    lattices, cells = _scene_lattices(items, assets), []
    for zone, area in zones.items():
        for site in _sites(area, zone, GAP * step):
            scenes = _pixels_in(lattices, site)
            chosen, origin = _prevailing_lattice(scenes, zone)
            grid = make_grid(to_crs(site, chosen).bounds, chosen, step, origin)
            if 0 not in grid.shape:
                cells.append((zone, grid, scenes))
    frame = Frame.of_grids([grid for _, grid, _ in cells], [zone for zone, _, _ in cells])
    for cell in frame.cells:
        log.info("event=cell id=%s crs=%s pixel='%g m' shape='%d x %d'", cell.id, cell.grid.crs, step, *cell.shape)
    _warn_of_interpolation([(grid, scenes) for _, grid, scenes in cells])
    return frame


def _warn_of_interpolation(cells: "Sequence[tuple[GeoBox, Iterable[SceneLattice]]]") -> None:
    """Say which scenes of the cells' pixel size keep their pixels in no cell, from the grid and scenes of each cell."""
    grids_of: dict[SceneLattice, list[GeoBox]] = defaultdict(list)
    for grid, in_cell in cells:
        for each in in_cell:
            if abs(abs(float(grid.affine.a)) - each.step) < TOLERANCE * each.step:
                grids_of[each].append(grid)
    interpolated = [each for each, grids in grids_of.items() if not any(map(each.is_on, grids))]
    if scenes := sorted(interpolated, key=lambda each: each.scene):
        in_cells = ", ".join(sorted({str(grid.crs) for grid, _ in cells}))
        crs = ", ".join(sorted({each.crs for each in scenes}))
        reason = f"their pixels in {crs} differ from the cells' in {in_cells}, which most pixels of scenes have"
        log.warning("event=scenes_interpolated scenes=%d first=%s reason=%r", len(scenes), scenes[0].scene, reason)


def _scene_lattices(items: list[Item], assets: tuple[str, ...]) -> list[SceneLattice]:
    """The lattices of the scenes whose pixels are squares parallel to the axes of a CRS that they state."""
    lattices = []
    for item in items:
        stated = [row for asset in assets if (row := _lattice(*asset_projection(item, asset)[:2]))]
        if stated:
            crs, step, origin = min(stated, key=lambda row: row[1])
            lattices.append(SceneLattice(str(item["id"]), crs, step, origin, footprint(item)))
    return lattices


def _lattice(code: str | None, transform: list[float] | None) -> tuple[str, float, tuple[float, float]] | None:
    """CRS, edge of a pixel and a corner; None where pixels are not squares parallel to the axes."""
    if not code or not transform:
        return None
    a, b, x, d, e, y = map(float, transform[:6])
    is_square = a != 0 and b == d == 0 and abs(abs(a) - abs(e)) < TOLERANCE * abs(a)
    return (code.upper(), abs(a), (x, y)) if is_square else None


@cache
def _zone_of(crs: str) -> str | None:
    """The zone of UTM that a CRS is on whatever datum, as 33S; None for another CRS."""
    from pyproj import CRS

    zone: str | None = CRS(crs).utm_zone
    return zone


def _pixels_in(lattices: list[SceneLattice], area: "BaseGeometry") -> dict[SceneLattice, float]:
    """The scenes that reach an area, with their pixels in it, on some scale that they share."""
    from shapely import box, prepare

    prepare(area)
    around = box(*area.bounds)
    places = {each: area if each.footprint is None else shift_near(each.footprint, around) for each in lattices}
    reaching = {each: place for each, place in places.items() if area.intersects(place)}
    if len({(each.crs, each.step, each.phase) for each in reaching}) == 1:
        # Nothing is to be decided, and the areas of many scenes take seconds.
        return dict.fromkeys(reaching, 1.0)
    pixels = {each: float(place.intersection(area).area) / each.step**2 for each, place in reaching.items()}
    return {each: count for each, count in pixels.items() if count > 0}


def _prevailing_lattice(scenes: dict[SceneLattice, float], zone: str) -> tuple[str, tuple[float, float]]:
    """CRS and a corner of a pixel for a cell in a UTM zone, from most pixels, given the pixels of each scene in it.

    Between two with equally many pixels it is the one in the zone, then the first scene's; where no scene states
    pixels in UTM it is the zone itself with its origin. The finest pixels in the CRS say where the lattice is.
    """
    pixels = {each: count for each, count in scenes.items() if _zone_of(each.crs)}
    if not pixels:
        return zone, (0.0, 0.0)
    # Sums of areas are not exact to the last digit, and their order may not decide.
    least = 1e-6 * sum(pixels.values())
    crs = _most(pixels, lambda each: each.crs, least, lambda crs: _zone_of(crs) == _zone_of(zone))
    finest = min(each.step for each in pixels if each.crs == crs)
    of_crs = {each: count for each, count in pixels.items() if each.crs == crs and each.step == finest}
    phase = _most(of_crs, lambda each: each.phase, least, lambda _: False)
    return crs, next(each.origin for each in of_crs if each.phase == phase)


def _most(
    pixels: dict[SceneLattice, float], key: "Callable[[SceneLattice], T]", least: float, prefer: "Callable[[T], bool]"
) -> T:
    """The value that most pixels have; of those within `least` of it a preferred one, else the first."""
    sums: dict[T, float] = defaultdict(float)
    for lattice, count in pixels.items():
        sums[key(lattice)] += count
    best = [value for value, count in sums.items() if count >= max(sums.values()) - least]
    return next(filter(prefer, best), best[0])


def _stated_projections(items: list[Item], assets: tuple[str, ...]) -> list[tuple[str, str, list[float]]]:
    """Asset, CRS and transform of the rasters that items describe; not where a row of pixels runs north."""
    projections = [(asset, *asset_projection(item, asset)) for item in items for asset in assets]
    return [
        (asset, code, transform) for asset, code, transform, _ in projections if code and transform and transform[0]
    ]


def zones_of(places: "Sequence[BaseGeometry]") -> "dict[str, BaseGeometry]":
    """The UTM zones that places (degrees, in one piece across 180) touch, with the part of the places around each.

    The part extends `ZONE_MARGIN` degrees beyond the zone.
    """
    import numpy as np
    from shapely import box, intersection, transform, union_all

    area = union_all(list(places))
    zones: dict[str, BaseGeometry] = {}
    west, _, east, _ = area.bounds
    for number in range(math.floor((west + 180) / ZONE_DEGREES), math.ceil((east + 180) / ZONE_DEGREES)):
        left, right = ZONE_DEGREES * number - 180.0, ZONE_DEGREES * (number + 1) - 180.0
        for bottom, top in ((0.0, 90.0), (-90.0, 0.0)):
            if intersection(area, box(left, bottom, right, top)).area > 0:
                around = box(left - ZONE_MARGIN, bottom - ZONE_MARGIN, right + ZONE_MARGIN, top + ZONE_MARGIN)
                # The same place, with longitudes of -180 to 180 at the zone's middle.
                shift = -360.0 * math.floor((left + 183.0) / 360.0)
                part = transform(
                    intersection(area, around), lambda points, shift=shift: points + np.array([shift, 0.0])
                )
                crs = utm_crs((left + right) / 2 + shift, (bottom + top) / 2)
                zones[crs] = union_all([zones[crs], part]) if crs in zones else part
    return zones


def _sites(area: "BaseGeometry", crs: str, distance: float) -> "list[BaseGeometry]":
    """The parts of an area (degrees); those whose bounds in a CRS are closer than a distance are one."""
    from shapely import box, get_parts, union_all

    parts = list(get_parts(area))
    boxes = sites = [box(*to_crs(part, crs).bounds) for part in parts]
    while True:
        around = union_all([each.buffer(distance / 2, join_style="mitre") for each in sites])
        # Common bounds may come close to other ones.
        common = [box(*part.bounds).buffer(-distance / 2, join_style="mitre") for part in get_parts(around)]
        if len(common) == len(sites):
            break
        sites = common
    members = [[part for part, bounds in zip(parts, boxes, strict=True) if site.intersects(bounds)] for site in sites]
    return [some[0] if len(some) == 1 else union_all(some) for some in members]


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
    if geometry is None:
        raise NO_EXTENT
    whole = unwrap(geometry)
    west, south, east, north = to_crs(whole, crs).bounds
    if not all(map(math.isfinite, (west, south, east, north))):
        raise UsageError(f"the area is outside the area of use of {crs}; choose another search.crs")
    if _crosses(whole) and _is_cut(crs, whole.centroid.y):
        raise UsageError(f"the area crosses 180 degrees, where {crs} is discontinuous; choose another search.crs")
    return west, south, east, north


def _crosses(area: "BaseGeometry") -> bool:
    """Whether an area in one piece continues beyond 180 degrees."""
    return bool(area.bounds[0] < -180 or area.bounds[2] > 180)


def _is_cut(crs: str, latitude: float) -> bool:
    """Whether the two sides of 180 degrees are far apart on the map, in metres or degrees."""
    (before, _), (after, _) = (transformer(DEGREES, crs).transform(x, latitude) for x in (179.999, 180.001))
    return bool(abs(after - before) > 300)
