"""Shapes of vector files with one attribute: reprojected to the CRS of a grid, written, and counted.

How many there are of each class is in the attributes of the label store of a file; how many of them a split uses is in
the file of the split.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

from eopipe.arrays import BoolArray, IntArray, ObjectArray
from eopipe.documents import OPEN, Count, Text
from eopipe.errors import BadInputError
from eopipe.labels.vector_files import Features, read_file, read_shapes
from eopipe.tiles.globe import short_way, split, transformer, valid
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

log = logging.getLogger("eopipe")
# Vertices of all shapes around a grid: 160 MB, and some seconds.
MAX_VERTICES = 10_000_000
# Shapes without a value that are listed by their number.
MAX_ROWS = 8
# An edge over more degrees of longitude crosses the 180 degree meridian, as in ogr2ogr -wrapdateline.
CROSSING_DEGREES = 340.0
LAYER_DATE = "2000-01-01T00:00:00.000Z"
# The attribute of a label store whose labels are of shapes.
SHAPES = "shapes"
# The counts of shapes without classes: values, and labels of two dates.
NOT_COUNTED: dict[str, Any] = {SHAPES: {"kind": SHAPES, "classes": {}}}
# Why a shape is not used, in the order in which it is looked at.
REASONS = {
    "dates": "of other dates than label.dates",
    "outside": "outside of the grid",
    "hidden": "without a pixel of their own (small, or under others)",
    "masked": "where no image has data",
    "sparse": "in chips with too few labelled pixels (split.min_valid)",
    "apart": "in no split (at the edge of one, or within split.buffer of another)",
}
# The share of the shapes that are not used from which a warning says so.
MANY = 0.1


def read_features(
    source: Path, attribute: str, layer: str | None = None, setting: str = "label.layer", dates: str | None = None
) -> Features:
    """Read a vector file of one layer, or the named layer; `setting` is the one that names it, for errors.

    With `dates` only the features of these. Raises what `read_file` raises, and BadInputError for a missing CRS. Warns
    of shapes that are repaired or split at the 180 degree meridian.
    """
    from pyproj import CRS
    from pyproj.exceptions import CRSError

    features = read_file(source, attribute, layer, setting, dates)
    if not features.crs:
        raise BadInputError(f"{source} has no CRS, so its shapes cannot be located")
    try:
        is_geographic = CRS.from_user_input(features.crs).is_geographic
    except (CRSError, OverflowError) as error:
        raise BadInputError(f"{source} has a CRS that cannot be read: {str(error)[:200]}") from error
    shapes = _split_at_180(features.shapes, source) if is_geographic else features.shapes
    return replace(features, shapes=_valid(shapes, source))


def without_value(features: Features, attribute: str) -> str:
    """A sentence about the shapes whose attribute is empty (NULL), which label nothing; none where all have a value."""
    values, source = features.values, features.source
    rows = [row for row, value in zip(features.rows.tolist(), values, strict=True) if value is None]
    if not rows:
        return ""
    places = ", ".join(map(str, rows[:MAX_ROWS])) + (", …" if len(rows) > MAX_ROWS else "")
    return (
        f"{len(rows)} of {len(values)} shapes of {source.name} have no value of {attribute} (NULL), so they label no "
        f"pixel: in the order of the file, from 1, {places}; give them a value, or remove them"
    )


def warn_without_value(features: Features, attribute: str) -> None:
    """Warn of shapes whose attribute is empty (NULL)."""
    if sentence := without_value(features, attribute):
        log.warning("event=shapes_without_value source=%s reason=%r", features.source.name, sentence)


def to_grid(features: Features, grid: "GeoBox") -> ObjectArray:
    """Shapes in the grid's CRS, clipped to its surroundings, since distant coordinates may not be projectable.

    Raises BadInputError where they have more than 10 million vertices there.
    """
    from shapely import clip_by_rect, is_empty, segmentize, transform

    to_grid_crs = transformer(features.crs, str(grid.crs))
    reprojected = np.full(len(features.shapes), None, object)
    area = np.zeros(len(features.shapes))
    for rectangle, turn in _surroundings(features, grid):
        nearby = _areas_only(clip_by_rect(features.shapes, *rectangle), features.shapes)
        area += _area(nearby)
        # A straight edge in one CRS is a curve in another.
        step = (rectangle[3] - rectangle[1]) / 1000
        _check_vertices(features.source, nearby, step)
        parts = transform(
            segmentize(nearby, step),
            lambda p, turn=turn: np.column_stack(to_grid_crs.transform(p[:, 0] - turn, p[:, 1])),
        )
        for number in np.flatnonzero(~is_empty(parts)).tolist():
            is_first = reprojected[number] is None or reprojected[number].is_empty
            reprojected[number] = parts[number] if is_first else _one_shape([reprojected[number], parts[number]])
    _log_clipped(features, area)
    return reprojected


def are_swapped(source: Path, layer: str | None, grids: Iterable["GeoBox"]) -> bool:
    """Whether no shape of a file is on any of the grids, but would be with x and y swapped."""
    from shapely import box, intersects, transform

    shapes, crs = read_shapes(source, layer)
    areas = [box(*transformer(str(grid.crs), crs).transform_bounds(*grid.extent.boundingbox)) for grid in grids]
    swapped = transform(shapes, lambda points: points[:, ::-1])
    is_there, would_be = (any(intersects(part, area).any() for area in areas) for part in (shapes, swapped))
    return would_be and not is_there


class ShapeParts:
    """The parts of shapes on a grid, by which windows of it that no shape reaches are known."""

    def __init__(self, shapes: ObjectArray) -> None:
        """Index the parts: parts of one shape may be far apart."""
        from shapely import STRtree, get_parts

        self.tree = STRtree(get_parts(shapes))

    def reach(self, window: "GeoBox") -> bool:
        """Whether a part may have a pixel of a window, or touch one: by its bounds, with a pixel for rounding."""
        from shapely.geometry import box

        return len(self.tree.query(box(*window.pad(1).extent.boundingbox))) > 0


def _surroundings(features: Features, grid: "GeoBox") -> list[tuple[tuple[float, float, float, float], float]]:
    """Rectangles around a grid in the CRS of the shapes (west, south, east, north), and how far each is turned.

    In degrees there are several where the shapes are on both sides of the 180 degree meridian; they are turned by 360
    where the shapes are at 0 to 360 degrees and the grid is not.
    """
    from pyproj import CRS
    from shapely import total_bounds

    padded = grid.pad(max(grid.shape) // 10 + 1).extent.boundingbox
    west, south, east, north = transformer(str(grid.crs), features.crs).transform_bounds(*padded)
    if not CRS.from_user_input(features.crs).is_geographic:
        return [((west, south, east, north), 0.0)]
    east += 360.0 if west > east else 0.0
    first, _, last, _ = total_bounds(features.shapes)
    turns = [turn for turn in (0.0, -360.0, 360.0) if west + turn < last and east + turn > first]
    return [((west + turn, south, east + turn, north), turn) for turn in turns]


def _check_vertices(source: Path, shapes: ObjectArray, step: float) -> None:
    """Raise BadInputError where edges of at most `step` would give too many vertices."""
    from shapely import get_num_coordinates, length

    vertices = int(get_num_coordinates(shapes).sum() + np.nansum(length(shapes)) / step)
    if vertices > MAX_VERTICES:
        raise BadInputError(
            f"{source} has {vertices:,} vertices around the grid, with the edges divided to follow its CRS; at most "
            f"{MAX_VERTICES:,} are possible: simplify the shapes, cut them to the area, or reproject them to its CRS"
        )


def _areas_only(shapes: ObjectArray, originals: ObjectArray) -> ObjectArray:
    """Shapes without the lines and points that are left of polygons, since these would be burned like roads."""
    from shapely import GeometryType, MultiPolygon, get_parts, get_type_id

    was_area = np.isin(get_type_id(originals), (GeometryType.POLYGON, GeometryType.MULTIPOLYGON))
    is_area = np.isin(get_type_id(shapes), (GeometryType.POLYGON, GeometryType.MULTIPOLYGON))
    for number in np.flatnonzero(was_area & ~is_area).tolist():
        parts = get_parts(get_parts(shapes[number]))
        shapes[number] = MultiPolygon([part for part in parts if part.geom_type == "Polygon"])
    return shapes


def _area(shapes: ObjectArray) -> Any:
    from shapely import area

    return np.nan_to_num(area(shapes))


def _log_clipped(features: Features, area_inside: Any) -> None:
    area = _area(features.shapes)
    # Beyond the rounding of the clip.
    is_clipped = (area_inside > 0) & (area_inside < area * (1 - 1e-9))
    if is_clipped.any():
        share = 1 - area_inside[is_clipped].sum() / area[is_clipped].sum()
        log.info(
            "event=shapes_clipped source=%s shapes=%d area_outside_percent=%.3g",
            features.source.name,
            int(is_clipped.sum()),
            100 * share,
        )


def _valid(shapes: ObjectArray, source: Path) -> ObjectArray:
    """Shapes of which invalid ones, such as self-crossing rings, are repaired, since they could not be clipped.

    What a ring, or parts of a shape, cover twice is inside. Lines and points that a polygon collapses to are dropped.
    """
    from shapely import is_valid

    invalid = np.array([shape is not None for shape in shapes], bool) & ~is_valid(shapes)
    if not invalid.any():
        return shapes
    originals, repaired = shapes[invalid], np.array(shapes)
    repaired[invalid] = _areas_only(valid(originals), originals)
    before, after = _area(originals), _area(repaired[invalid])
    log.warning(
        "event=shapes_repaired source=%s shapes=%d area_before=%g area_after=%g area_changed=%g units_of_area=%r",
        source.name,
        len(originals),
        before.sum(),
        after.sum(),
        np.abs(after - before).sum(),
        "square units of the file's CRS",
    )
    return repaired


def _split_at_180(shapes: ObjectArray, source: Path) -> ObjectArray:
    """Shapes in degrees, split where an edge leads from one side of the 180 degree meridian to the other."""
    from shapely import bounds, get_parts

    extent, count = bounds(shapes), 0
    shapes = np.array(shapes)
    for number in np.flatnonzero(extent[:, 2] - extent[:, 0] > CROSSING_DEGREES).tolist():
        parts = get_parts(shapes[number])
        drawn = [short_way(part, CROSSING_DEGREES) for part in parts]
        if any(new is not old for new, old in zip(drawn, parts, strict=True)):
            shapes[number] = _one_shape([split(part) for part in drawn])
            count += 1
    if count:
        log.warning("event=shapes_split_at_180_degrees source=%s shapes=%d", source.name, count)
    return shapes


def _one_shape(pieces: list[Any]) -> Any:
    """Pieces as one shape: of polygons a MultiPolygon."""
    from shapely import GeometryCollection, MultiPolygon, get_parts

    parts = get_parts(pieces).tolist()
    return (MultiPolygon if all(part.geom_type == "Polygon" for part in parts) else GeometryCollection)(parts)


def write_layer(
    path: Path, layer: str, wkb: Any, fields: dict[str, Any], geometry_type: str, crs: str, *, append: bool = False
) -> None:
    """Write shapes (WKB) with the values of their fields as a layer of a GeoPackage, beside others that it has.

    The same shapes give the same bytes; with `append` they are added to the layer.
    """
    import pyogrio
    import pyogrio.raw

    # The threads of the driver read global settings only; the setting is restored.
    before = pyogrio.get_gdal_config_option("OGR_CURRENT_DATE")
    pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": LAYER_DATE})
    try:
        pyogrio.raw.write(
            path,
            wkb,
            list(fields.values()),
            list(fields),
            layer=layer,
            driver="GPKG",
            geometry_type=geometry_type,
            crs=crs,
            append=append,
        )
    finally:
        pyogrio.set_gdal_config_options({"OGR_CURRENT_DATE": before})


class _ShapesOfClass(BaseModel, **OPEN):
    """Shapes of a class: in the label files, used, used in each split, and not used by reason."""

    file: Count
    used: Count
    splits: dict[str, Count]
    dropped: dict[str, Count]


class UsedShapes(BaseModel, **OPEN):
    """The polygons, points, lines or shapes (`kind`) of the label files by class."""

    kind: Text
    classes: dict[str, _ShapesOfClass]

    @property
    def file(self) -> int:
        return sum(row.file for row in self.classes.values())

    @property
    def used(self) -> int:
        """The shapes that are used, in one split or several."""
        return sum(row.used for row in self.classes.values())

    def in_split(self, name: str) -> int:
        return sum(row.splits[name] for row in self.classes.values())


def kind_of_shapes(shapes: ObjectArray) -> str:
    """What the shapes of a file are called: polygons, points or lines; shapes where they are of several kinds."""
    kinds = {shape.geom_type.removeprefix("Multi") for shape in shapes if shape is not None and not shape.is_empty}
    names = {"Polygon": "polygons", "Point": "points", "LineString": "lines"}
    return names.get(kinds.pop(), SHAPES) if len(kinds) == 1 else SHAPES


def shape_counts(
    kind: str, classes: Sequence[str], numbers: IntArray, is_on_grid: BoolArray, of_other_dates: Sequence[int]
) -> dict[str, Any]:
    """The attribute: shapes of each class in the file, of these of other dates than `label.dates`, and off the grid.

    `numbers` (shape,) are classes of the shapes of the dates, `of_other_dates` of the others; 255 means none.
    """
    chosen = np.bincount(numbers[numbers != NO_LABEL], minlength=len(classes))
    outside = np.bincount(numbers[(numbers != NO_LABEL) & ~is_on_grid], minlength=len(classes))
    others = np.bincount(np.array([n for n in of_other_dates if n != NO_LABEL], np.int64), minlength=len(classes))
    rows = zip(classes, chosen.tolist(), outside.tolist(), others.tolist(), strict=True)
    counts = {name: {"file": n + other, "dates": other, "outside": out} for name, n, out, other in rows}
    return {SHAPES: {"kind": kind, "classes": counts}}


def shape_sentences(used: UsedShapes | None) -> list[str]:
    """How many shapes of each class are used, and why others are not, in sentences."""
    if used is None or used.used == used.file:
        return []
    parts = [f"{name} {row.used} of {row.file}" for name, row in used.classes.items()]
    reasons = {key: sum(row.dropped.get(key, 0) for row in used.classes.values()) for key in REASONS}
    why = [f"{count} {REASONS[key]}" for key, count in reasons.items() if count]
    counts = f"{used.used} of {used.file} {used.kind} of the labels are used"
    return [f"{counts} ({', '.join(parts)}).", f"Not used are {', '.join(why)}."]


def has_lost_many(used: UsedShapes | None) -> bool:
    """Whether more than a tenth of the shapes of all classes, or of one class, are not used."""
    rows = [] if used is None else [(used.used, used.file), *((row.used, row.file) for row in used.classes.values())]
    return any(count < (1 - MANY) * total for count, total in rows)
