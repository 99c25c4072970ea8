"""The split of each pixel of a map, the figure of a split, and its chips as polygons, of a set at their true places."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from eopipe.arrays import Float64Array, IntArray, ObjectArray, UInt8Array
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.make_split import SplitResult
from eopipe.chips.polygons import splits_of_pixels
from eopipe.chips.splits import NO_SPLIT, SPLITS, Split
from eopipe.labels.vectors import write_layer
from eopipe.reporting.decimation import Decimation, read_centres, windows_of_stores
from eopipe.reporting.figures import SPLIT_COLORS
from eopipe.reporting.maps import MapContent, cell_panels, write_map
from eopipe.reporting.rasters import Pairs
from eopipe.reporting.wording import format_count, format_percent, join_words, plural
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.store import Tiles

TITLES = {"train": "Training", "val": "Validation", "test": "Test"}
SPLIT_MAP_EDGE = 1100
UNUSED_COLOR, EDGE_COLOR = "#e9e9e6", "#b4b4ad"
# The number of the edges of chips in a map of split polygons.
CHIP_EDGE = 254
# Dots along the longer edge of the map of a chip set.
DOTS = 160
CIRCLE = 360.0


def split_roles(split: Split, pairs: Pairs, decimation: Decimation, scene: str = "") -> UInt8Array:
    """The split of each pixel of the image: 0 train, 1 val, 2 test, 255 none; of one scene if it has its own chips.

    Where polygons are split, the split of the polygon, since the other pixels of a chip have no label in its split.
    """
    number = split.scenes.index(scene) if scene and (split.by_scene or split.chip_set) else None
    labels = [label for tiles, label in pairs if scene in ("", tiles.scene)]
    of_polygons = read_polygon_splits(labels, split.polygons, decimation) if split.polygons else None
    role = np.full(decimation.shape, NO_SPLIT, np.uint8)
    rows, cols = decimation.centres(0), decimation.centres(1)
    for value, samples in enumerate(split.samples[name] for name in SPLITS):
        of_map = samples if number is None else samples[samples[:, 0] == number]
        is_of_split = True if of_polygons is None else of_polygons == value
        is_covered = np.zeros(decimation.shape, bool)
        for row, col in np.unique(of_map[:, 1:], axis=0):
            y, x = (np.searchsorted(axis, (start, start + split.chip)) for axis, start in ((rows, row), (cols, col)))
            is_covered[y[0] : y[1], x[0] : x[1]] = True
        role[is_covered & is_of_split] = value
    return role


def read_polygon_splits(labels: Sequence[Tiles], polygons: dict[str, list[int]], decimation: Decimation) -> UInt8Array:
    """The split of the polygon at the centre of each pixel of the image; 255 for none."""
    stores = [*{label.scene: label for label in labels}.values()]

    def read(y: slice, x: slice) -> UInt8Array:
        splits = np.full((y.stop - y.start, x.stop - x.start), NO_SPLIT, np.uint8)
        for label in stores:
            if label.reaches((y, x)):
                splits = np.where(splits == NO_SPLIT, splits_of_pixels(label, polygons, y, x), splits)
        return splits

    return read_centres(read, decimation, windows_of_stores(decimation, stores), NO_SPLIT)


def draw_split(path: Path, result: SplitResult) -> None:
    """Write a map of the training, validation and test areas as PNG; a map for each where scenes are split."""
    result = on_map(result) if result.places else result
    step = -(-max(result.frame.shape) // SPLIT_MAP_EDGE)
    names = [name for name in SPLITS if len(result.samples[name])]
    groups = [[name] for name in names] if result.document.by_scene else [names]
    # Numbers of splits without chips have no colour.
    order = np.full(256, len(names), np.uint8)
    order[[SPLITS.index(name) for name in names]] = np.arange(len(names))
    order[CHIP_EDGE] = len(names) + 1
    polygons = result.document.polygons
    panels = []
    for group in groups:
        numbers = order[_split_numbers(result, group, step)]
        scenes = plural(len(np.unique(result.samples[group[0]][:, 0])), "scene")
        title = f"{TITLES[group[0]]}: {scenes}" if result.document.by_scene else ""
        everything = slice(0, numbers.shape[0]), slice(0, numbers.shape[1])
        panels += cell_panels(title, numbers, everything, result.frame, step)
    content = MapContent(
        title="Training, validation and test areas",
        subtitle=_split_text(result.document),
        credit="   ".join(_class_shares(result.document, name) for name in names),
        classes=(*(_legend_text(result, name) for name in names), "in no split", *["edges of chips"] * bool(polygons)),
        colors=(*(SPLIT_COLORS[SPLITS.index(name)] for name in names), UNUSED_COLOR, *[EDGE_COLOR] * bool(polygons)),
        frame=result.frame,
        step=step,
        panels=panels,
    )
    write_map(path, content)


def _split_text(split: Split) -> str:
    """Method of the split, measured gap, allowed leaks and size of a chip."""
    plan, gap = split.plan, split.audit.gap_pixels.get("train-test")
    parts = [f"Method {plan.method}" + (f" by {plan.by}" if plan.method == "group" else "")]
    parts += [f"test fold {plan.fold} of {plan.folds}"] if plan.folds else []
    parts += [f"{format_count(gap)} pixels between training and test"] if gap is not None else []
    leaks = sorted({finding.kind for finding in split.audit.allowed})
    parts += [f"leaks allowed by the config: {join_words(leaks)}"] if leaks else []
    return "; ".join([*parts, f"chips of {split.chip} pixels"]) + "."


def _class_shares(split: Split, name: str) -> str:
    pixels = split.pixels[name]
    total = max(sum(pixels.values()), 1)
    return f"{TITLES[name]}: {join_words([f'{c} {format_percent(n / total)}' for c, n in pixels.items()])}."


def _legend_text(result: SplitResult, name: str) -> str:
    if (shapes := result.document.shapes) and result.document.polygons:
        return f"{TITLES[name]}, {plural(shapes.in_split(name), shapes.kind.removesuffix('s'))}"
    return f"{TITLES[name]}, {plural(len(result.samples[name]), 'chip')}"


def _split_numbers(result: SplitResult, names: list[str], step: int) -> UInt8Array:
    """The split of each block of `step` pixels (y, x); 255 outside of the chips.

    Where polygons are split, the split of the polygon, between the edges of the chips.
    """
    polygons, chip = result.document.polygons, result.document.chip
    decimation = Decimation(result.frame.shape, step)
    numbers = np.full(decimation.shape, NO_SPLIT, np.uint8)
    of_polygons = read_polygon_splits(result.labels, polygons, decimation) if polygons else None
    is_used = np.zeros(decimation.shape, bool)
    for name in names:
        for row, col in np.unique(result.samples[name][:, 1:], axis=0).tolist():
            y, x = (slice(start // step, -(-(start + chip) // step)) for start in (row, col))
            if of_polygons is None:
                numbers[y, x] = SPLITS.index(name)
            else:
                # A polygon outside of the chips of its split is not used.
                numbers[[y.start, y.stop - 1], x] = numbers[y, [x.start, x.stop - 1]] = CHIP_EDGE
                is_used[y, x] |= of_polygons[y, x] == SPLITS.index(name)
    return numbers if of_polygons is None else np.where(is_used, of_polygons, numbers)


def write_chip_polygons(path: Path, result: SplitResult) -> None:
    """Write the layer `chips`: a square for each, with split, scene, row, column and the pixels of each class."""
    from pyproj import CRS

    samples = np.concatenate([result.samples[name] for name in SPLITS])
    pixels = np.concatenate([result.pixels[name] for name in SPLITS])
    frame = plot_grid(result.places) if result.places else result.frame
    fields = {
        "split": np.repeat(np.array(SPLITS, object), [len(result.samples[name]) for name in SPLITS]),
        "scene": np.array(result.document.scenes, object)[samples[:, 0]],
        "row": samples[:, 1],
        "column": samples[:, 2],
    } | {f"pixels {name}": pixels[:, number] for number, name in enumerate(result.document.classes)}
    write_layer(
        path,
        "chips",
        outlines_of(result.places, samples) if result.places else _squares(samples, result.document.chip, frame),
        fields,
        "MultiPolygon" if result.places else "Polygon",
        # Degrees where there are several CRSs.
        str((frame.only.crs if frame.only is not None and frame.only.crs else CRS("EPSG:4326")).to_wkt()),
    )


def _squares(samples: IntArray, chip: int, frame: Frame) -> ObjectArray:
    """Well-known binary of the chips (n,), in the CRS of the layer."""
    from shapely import box, get_coordinates, set_coordinates, to_wkb

    squares = np.empty(len(samples), object)
    for cell in frame.cells:
        columns, affine = cell.window[1], cell.grid.affine
        chosen = (samples[:, 2] >= columns.start) & (samples[:, 2] < columns.stop)
        top, left = samples[chosen, 1], samples[chosen, 2] - cell.column
        x = [affine.c + affine.a * (left + part) for part in (0, chip)]
        y = [affine.f + affine.e * (top + part) for part in (chip, 0)]
        parts = box(x[0], y[0], x[1], y[1])
        if frame.only is None:
            parts = set_coordinates(parts, np.column_stack(cell.degrees(*get_coordinates(parts).T)))
        squares[chosen] = to_wkb(parts)
    return squares


def unrolled(longitude: Float64Array) -> Float64Array:
    """Longitudes that continue beyond 180 degrees where the chips then are in a narrower box."""
    beyond = np.where(longitude < 0, longitude + CIRCLE, longitude)
    return beyond if np.ptp(beyond) < np.ptp(longitude) else longitude


def plot_grid(places: ChipPlaces) -> Frame:
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
    frame, longitude = plot_grid(places), unrolled(places.degrees[:, 0])
    affine = frame.cells[0].grid.affine
    columns = ((longitude - affine.c) / affine.a - places.slot / 2).round().astype(np.int64)
    rows = ((places.degrees[:, 1] - affine.f) / affine.e - places.slot / 2).round().astype(np.int64)
    positions = np.column_stack([places.samples[:, 0], rows, columns])
    samples = {name: positions[places.indices(chosen)] for name, chosen in result.samples.items()}
    return replace(result, samples=samples, frame=frame)


def outlines_of(places: ChipPlaces, samples: IntArray) -> ObjectArray:
    """Well-known binary of the outlines (n,) of chips in degrees, cut at 180 degrees."""
    from shapely import MultiPolygon, box, get_parts, intersection, multipolygons, polygons, to_wkb, union_all

    from eopipe.tiles.globe import split

    outlines = places.outlines[places.indices(samples)]
    outlines[..., 0] = np.unwrap(outlines[..., 0], period=CIRCLE)
    shapes = np.array(polygons(outlines))
    # Nothing is cut from most; they are drawn as the others, but all at once.
    is_inside = (np.abs(outlines) < (CIRCLE / 2, CIRCLE / 4)).all((1, 2))
    whole = union_all(intersection(shapes[is_inside], box(-180, -90, 180, 90))[:, None], axis=1)
    for number in np.flatnonzero(~is_inside):
        # A cut can leave lines beside the areas.
        shapes[number] = MultiPolygon([part for part in get_parts(split(shapes[number])) if part.area])
    shapes[is_inside] = multipolygons(np.asarray(whole, object), indices=np.arange(len(whole)))
    return np.asarray(to_wkb(shapes), object)
