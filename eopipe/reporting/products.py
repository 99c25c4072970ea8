"""What people open of a finished map: polygons, a style and the entropy for a GIS, areas of zones for a spreadsheet."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, ObjectArray, UInt8Array, UInt16Array
from eopipe.errors import BadInputError, UsageError
from eopipe.inference.finished_maps import WINDOW, FinishedMap
from eopipe.inference.map_files import new_map
from eopipe.labels.vector_files import Features
from eopipe.labels.vectors import ShapeParts, read_features, to_grid, write_layer
from eopipe.publish import link_or_copy
from eopipe.tasks.task import NO_PROBABILITY, STEPS
from eopipe.text_table import write_csv
from eopipe.tiles.cells import Frame
from eopipe.tiles.geotiff import MapFormat, open_map, read_window
from eopipe.tiles.grid import windows
from eopipe.tiles.ground import pixel_hectares, shape_hectares
from eopipe.tiles.store import NO_LABEL

# Polygons in memory at a time, beside the map itself.
POLYGONS_PER_WRITE = 20_000


@dataclass(frozen=True)
class ZoneFile:
    """A vector file of zones, the attribute with their names, and the layer, None for the only one."""

    path: Path
    attribute: str
    layer: str | None


def write_products(folder: Path, maps: Sequence[FinishedMap], minimum_ha: float, zones: ZoneFile | None) -> None:
    """Write the products of maps of one task: of values, or of several labels for each pixel, the zones alone.

    Raises BadInputError for zones without a polygon on the maps, UsageError where nothing would be written.
    """
    if zones:
        write_zones(folder / "zones.csv", maps, zones)
    if not maps[0].task.maps_classes:
        if not zones:
            raise UsageError(
                f"maps of the task {maps[0].task.name} have no product but the statistics of zones; give --zones, a "
                "vector file of polygons"
            )
        return
    for finished in maps:
        link_or_copy(finished.classes, folder / finished.named("classes", ".tif"))
        (folder / finished.named("classes", ".qml")).write_text(style(finished), encoding="utf-8")
        write_entropy(folder / finished.named("entropy", ".tif"), finished)
        write_polygons(folder / "polygons.gpkg", finished, minimum_ha)


def style(finished: FinishedMap) -> str:
    """The QGIS style of a class map: a paletted renderer with the colours of its colour table and the class names.

    QGIS reads it by itself where it has the name of the map. Raises BadInputError for a map without colour table.
    """
    if not finished.colors:
        raise BadInputError(f"{finished.classes} has no colour table; predict it again with this version of eopipe")
    entries = [
        f'        <paletteEntry value="{number}" color="#{red:02x}{green:02x}{blue:02x}" alpha="255" '
        f"label={quoteattr(name)}/>"
        for number, (name, (red, green, blue)) in enumerate(zip(finished.names, finished.colors, strict=True))
    ]
    lines = [
        "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>",
        '<qgis version="3.22.0" styleCategories="Symbology">',
        "  <pipe>",
        '    <rasterrenderer type="paletted" band="1" opacity="1" alphaBand="-1" nodataColor="">',
        "      <colorPalette>",
        *entries,
        "      </colorPalette>",
        "    </rasterrenderer>",
        "  </pipe>",
        "</qgis>",
    ]
    return "\n".join(lines) + "\n"


def write_entropy(path: Path, finished: FinishedMap) -> None:
    """Write the COG of the normalised entropy of the probabilities (uint16, scale 1/10000, 65535 no data)."""
    from rasterio.windows import Window

    layers = MapFormat("uint16", NO_PROBABILITY, ("normalised entropy",), steps=STEPS)
    assert finished.probabilities
    with open_map(finished.probabilities) as source, new_map(path, finished.grid, layers) as target:
        for y, x in windows(source.shape, WINDOW):
            of_classes = read_window(source, y, x)[: len(finished.names)]
            target.write(entropy(of_classes), 1, window=Window.from_slices(y, x))


def entropy(stored: AnyArray) -> UInt16Array:
    """The entropy (y, x) of stored probabilities (class, y, x), 0 to 10000; 65535 where there are none.

    It is the one of Shannon, divided by its largest: 0 where one class is certain, 10000 where all are as probable.
    """
    has_data = stored[0] != NO_PROBABILITY
    shares = np.where(has_data, stored, 1).astype(np.float64)
    # Rounded probabilities may have another sum than 1.
    shares /= np.maximum(shares.sum(0), 1)
    terms = -shares * np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    share_of_largest = terms.sum(0) / math.log(max(len(stored), 2))
    return np.where(has_data, np.rint(share_of_largest * STEPS), NO_PROBABILITY).astype(np.uint16)


def write_polygons(path: Path, finished: FinishedMap, minimum_ha: float) -> None:
    """Add the layer of a class map to a GeoPackage: its polygons, in the CRS of the map, with their area in hectares.

    Polygons touch at edges, not at corners. The map is read whole: a sieve has no windows.
    """
    from rasterio.features import shapes
    from shapely import to_wkb

    crs = finished.grid.crs
    assert crs is not None
    numbers = sieved(finished, minimum_ha)
    polygons = shapes(numbers, mask=numbers != NO_LABEL, connectivity=4, transform=finished.grid.affine)
    # With a first part that is empty, a map without data has its layer too.
    part, is_first = list[Any](), True
    while part or is_first:
        outlines = _polygons([outline["coordinates"] for outline, _ in part])
        classes = [int(value) for _, value in part]
        fields = {
            "class": np.array(classes, np.int32),
            "name": np.array([finished.names[number] for number in classes], object),
            "area_ha": shape_hectares(outlines, crs.proj),
        }
        layer, kind = finished.name or "classes", "Polygon"
        write_layer(path, layer, to_wkb(outlines), fields, kind, crs.to_wkt(), append=not is_first)
        part, is_first = list(islice(polygons, POLYGONS_PER_WRITE)), False


def _polygons(outlines: list[Any]) -> ObjectArray:
    """Polygons of the points of their rings, the outer one first; much faster together than one by one."""
    from shapely import linearrings, polygons

    rings = [ring for outline in outlines for ring in outline]
    if not rings:
        return np.array([], object)
    sizes = [len(ring) for ring in rings]
    points = np.array([point for ring in rings for point in ring], np.float64)
    of_rings = linearrings(points, indices=np.repeat(np.arange(len(rings)), sizes))
    of_outlines = np.repeat(np.arange(len(outlines)), [len(outline) for outline in outlines])
    return np.asarray(polygons(of_rings, indices=of_outlines))


def sieved(finished: FinishedMap, minimum_ha: float) -> UInt8Array:
    """Class numbers (y, x) of a whole map, in which patches below an area have the class of their largest neighbour.

    The area is turned into pixels by the pixel in the centre of the map. A patch that touches pixels without data only
    remains; they take no part.
    """
    from rasterio.features import sieve

    height, width = finished.grid.shape
    with open_map(finished.classes) as file:
        numbers = finished.read_classes(file, slice(0, height), slice(0, width))
    row, column = height // 2, width // 2
    hectares = float(pixel_hectares(finished.grid, slice(row, row + 1), slice(column, column + 1))[0, 0])
    # Rounding may have turned a minimum of 50 pixels into 50.0000001.
    pixels = min(math.ceil(minimum_ha / hectares * (1 - 1e-3)), numbers.size - 1)
    if pixels <= 1:
        return numbers
    is_mapped = numbers != NO_LABEL
    without_patches = sieve(numbers, pixels, mask=is_mapped, connectivity=4)
    return np.where(is_mapped, without_patches, NO_LABEL).astype(np.uint8)


def read_zones(zones: ZoneFile, frame: Frame | None = None) -> Features:
    """The polygons of a file of zones, None for other shapes. BadInputError if there are none, or none on the frame."""
    features = read_features(zones.path, zones.attribute, zones.layer, "products.zone_layer")
    is_area = np.array([getattr(shape, "geom_type", "").endswith("Polygon") for shape in features.shapes], bool)
    if not is_area.any():
        raise BadInputError(f"{zones.path} has no polygons, so it has no zones; give a layer of polygons")
    features.shapes[~is_area] = None
    if frame and not any(ShapeParts(to_grid(features, cell.grid)).reach(cell.grid) for cell in frame.cells):
        raise BadInputError(f"no zone of {zones.path} is in the area of the scenes; give zones in it")
    return features


def write_zones(path: Path, maps: Sequence[FinishedMap], zones: ZoneFile) -> None:
    """Write a table of zones: hectares and share of each class, or mean and deviation of values, by centres of pixels.

    There is a row for each zone, and where images have maps of their own, for each of these; maps of cells are one.
    Raises BadInputError for a file without polygons, or wholly outside of the maps.
    """
    features = read_zones(zones)
    sums: dict[str, Float64Array] = {}
    for finished in maps:
        name = finished.image if finished.cell else finished.name
        sums[name] = sums.get(name, 0.0) + _zone_sums(finished, to_grid(features, finished.grid))
    if not any(of_map[:, 0].any() for of_map in sums.values()):
        places = ", ".join(str(finished.classes) for finished in maps)
        raise BadInputError(f"no zone of {zones.path} has a mapped pixel; give zones in the area of {places}")
    from pyproj import CRS

    zone_ha = shape_hectares(features.shapes, CRS.from_user_input(features.crs))
    rows: list[list[Any]] = [["zone", "map", "zone_ha", "mapped_ha", *_columns(maps[0])]]
    for name, of_map in sums.items():
        for number in (number for number, shape in enumerate(features.shapes) if shape is not None):
            areas = f"{zone_ha[number]:.4f}", f"{of_map[number, 0]:.4f}"
            rows.append([features.values[number], name, *areas, *_cells(maps[0], of_map[number])])
    write_csv(path, rows)


def _columns(finished: FinishedMap) -> list[str]:
    """The columns of a table of zones behind the areas."""
    if finished.quantity:
        return [f"mean {finished.names[0]}", f"std {finished.names[0]}"]
    return [f"{name} {unit}" for unit in ("ha", "share") for name in finished.names]


def _cells(finished: FinishedMap, sums: Float64Array) -> list[str]:
    """The cells of these columns, by the sums of a zone; empty where it has no mapped pixel."""
    mapped_ha = float(sums[0])
    if finished.quantity:
        if not mapped_ha:
            return ["", ""]
        mean = sums[1] / mapped_ha
        return [f"{mean:.6g}", f"{math.sqrt(max(sums[2] / mapped_ha - mean**2, 0.0)):.6g}"]
    shares = [f"{area / mapped_ha:.6f}" if mapped_ha else "" for area in sums[1:]]
    return [*(f"{area:.4f}" for area in sums[1:]), *shares]


def _zone_sums(finished: FinishedMap, shapes: ObjectArray) -> Float64Array:
    """Sums (zone, sum) over the pixels of a map whose centres are in each shape, each weighted by its hectares.

    The first is the sum of the hectares; then one for each class, or one of the values and one of their squares.
    """
    from rasterio.features import geometry_mask
    from shapely import STRtree, box, is_empty

    is_on_map = np.array([shape is not None for shape in shapes], bool) & ~is_empty(shapes)
    zones = np.flatnonzero(is_on_map)
    sums = np.zeros((len(shapes), 1 + len(finished.names) if not finished.quantity else 3), np.float64)
    tree, affine = STRtree(shapes[zones]), finished.grid.affine
    with open_map(finished.classes) as file:
        for y, x in windows(file.shape, WINDOW):
            (left, top), (right, bottom) = affine * (x.start, y.start), affine * (x.stop, y.stop)
            near = zones[np.sort(tree.query(box(left, bottom, right, top)))]
            if not near.size:
                continue
            numbers = finished.read_classes(file, y, x)[None] if finished.task.maps_classes else read_window(file, y, x)
            hectares = pixel_hectares(finished.grid, y, x)
            origin = affine * affine.translation(x.start, y.start)
            for zone in near.tolist():
                inside = geometry_mask([shapes[zone]], hectares.shape, origin, invert=True)
                sums[zone] += _sums_of(finished, numbers[:, inside], hectares[inside])
    return sums


def _sums_of(finished: FinishedMap, numbers: AnyArray, hectares: Float64Array) -> Float64Array:
    """The sums of some pixels: stored numbers (band, pixel) and hectares (pixel)."""
    if finished.quantity:
        is_mapped = np.isfinite(numbers[0])
        weights, values = hectares[is_mapped], numbers[0, is_mapped].astype(np.float64)
        return np.array([weights.sum(), weights @ values, weights @ values**2])
    is_mapped = numbers[0] != NO_LABEL
    weights, mapped = hectares[is_mapped], numbers[:, is_mapped]
    if finished.task.has_label_sets:
        return np.array([weights.sum(), *(mapped == 1) @ weights])
    return np.array([weights.sum(), *np.bincount(mapped[0], weights, minlength=len(finished.names))])
