"""Chips of a set at their true places in degrees, as dots in the figure of a split, as outlines in its layer."""

from dataclasses import replace

import numpy as np

from eopipe.arrays import IntArray, ObjectArray
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.make_split import SplitResult
from eopipe.reporting.wording import TIMES, format_degrees, format_length, join_words
from eopipe.stac.antimeridian import common_bounds
from eopipe.tiles.cells import Cell, Frame

# Dots along the longer edge of the map.
DOTS = 160
CIRCLE = 360.0
CRS_LISTED = 3


def unrolled(longitude: "np.typing.NDArray[np.float64]") -> "np.typing.NDArray[np.float64]":
    """Longitudes that continue beyond 180 degrees where the chips then are in a narrower box."""
    beyond = np.where(longitude < 0, longitude + CIRCLE, longitude)
    return beyond if np.ptp(beyond) < np.ptp(longitude) else longitude


def degrees_frame(places: ChipPlaces) -> Frame:
    """A grid in degrees with all chips, in which an edge of a slot in pixels is the edge of a dot."""
    from affine import Affine
    from odc.geo.geobox import GeoBox

    longitude, latitude = unrolled(places.degrees[:, 0]), places.degrees[:, 1]
    dot = max(float(np.ptp(longitude)), float(np.ptp(latitude)), 0.01) / (DOTS - 2)
    columns, rows = (int(np.ptp(axis) / dot) + 3 for axis in (longitude, latitude))
    step, slot = dot / places.slot, places.slot
    affine = Affine(step, 0, float(longitude.min()) - dot, 0, -step, float(latitude.max()) + dot)
    return Frame((Cell("", GeoBox((rows * slot, columns * slot), affine, "EPSG:4326")),))


def on_map(result: SplitResult) -> SplitResult:
    """The split with its chips as dots at their true places in a grid in degrees."""
    places = result.places
    assert places is not None
    frame, longitude = degrees_frame(places), unrolled(places.degrees[:, 0])
    affine = frame.cells[0].grid.affine
    columns = ((longitude - affine.c) / affine.a - places.slot / 2).round().astype(np.int64)
    rows = ((places.degrees[:, 1] - affine.f) / affine.e - places.slot / 2).round().astype(np.int64)
    positions = np.column_stack([places.samples[:, 0], rows, columns])
    samples = {name: positions[places.numbers(chosen)] for name, chosen in result.samples.items()}
    return replace(result, samples=samples, frame=frame)


def outlines_of(places: ChipPlaces, samples: IntArray) -> ObjectArray:
    """Well-known binary of the outlines (n,) of chips in degrees, cut at 180 degrees."""
    from shapely import MultiPolygon, Polygon, get_parts, to_wkb

    from eopipe.stac.antimeridian import split

    shapes = np.empty(len(samples), object)
    for number, chip in enumerate(places.numbers(samples).tolist()):
        outline = places.outlines[chip].copy()
        outline[:, 0] = np.unwrap(outline[:, 0], period=CIRCLE)
        shapes[number] = MultiPolygon([*get_parts(split(Polygon(outline)))])
    return np.asarray(to_wkb(shapes), object)


def describe_places(places: ChipPlaces, pixel_m: float) -> str:
    """Slots, pixel size, CRSs and bounds of the chips of a set, as text."""
    crs = sorted({row["crs"] for row in places.rows})
    names = join_words(crs) if len(crs) <= CRS_LISTED else f"{len(crs)} CRSs"
    edges = places.outlines
    boxes = [(*chip[7], *chip[3]) for chip in edges]
    west, _, east, _ = common_bounds(boxes)
    south, north = float(edges[..., 1].min()), float(edges[..., 1].max())
    bounds = format_degrees((west, south, east, north))
    size = f"{places.slot}{TIMES}{places.slot} pixels of {format_length(pixel_m)}"
    return f"chips in slots of {size}, side by side, not as on the ground; {names}, {bounds}"
