"""What a STAC Item says of a raster against what its file says: reported once per asset, or refused.

| field                | where they differ                                                                        |
|----------------------|------------------------------------------------------------------------------------------|
| CRS                  | refused where both have an EPSG code; else a warning, the file is used                     |
| proj:transform,      | a warning, the file is used; refused where the grid has the pixel size or an edge of the   |
| proj:shape           | item and cuts the file off                                                               |
| nodata               | a warning, the item is used: it often corrects the file                                    |
| scale, offset        | a warning, the item is used; the file where the item says 1 and 0, or nothing              |
| number of bands      | a warning, the file is used                                                              |
"""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from eopipe.errors import BadInputError
from eopipe.scenes.item import SceneBand, StatedRaster, file_scaling
from eopipe.tiles.grid import Bounds

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

log = logging.getLogger("eopipe")
# In pixels: below the first item and file are the same, from the second on a wrong pixel size adds up over the raster.
SAME, SCALED = 0.01, 0.5


class Disagreement(NamedTuple):
    """A field with its values in item and file, and which of them is used."""

    field: str
    item: str
    file: str
    used: str = "file"


def compare_place(stated: StatedRaster, source: Any, label: str, grids: "Sequence[GeoBox]") -> None:
    """Compare CRS, transform and shape of an opened raster with its item; warn of what differs.

    Raises BadInputError for another CRS, and where the grids show that they are made from a wrong item.
    """
    rows = [*_crs(stated, source, label), *_pixels(stated, source)]
    if any(row.field.startswith("proj:") for row in rows):
        for grid in grids:
            _check_grid(stated, source, label, grid)
    _report(rows, label)


def compare_bands(band: SceneBand, source: Any, number: int, label: str) -> SceneBand:
    """Compare nodata, scale, offset and the number of bands of an opened raster with its item.

    Returns the band with scale and offset of the file where neither the item nor the product scales its values.
    """
    stated = band.stated
    if stated is None:
        return band
    nodata, scaling = source.nodatavals[number - 1], (source.scales[number - 1], source.offsets[number - 1])
    rows = _differing("nodata", stated.scaling.nodata, nodata, "item")
    # A file without scale and offset says nothing of them.
    if scaling != (1.0, 0.0):
        is_unscaled = (band.scale, band.offset) == (1.0, 0.0) and not band.doubt
        if not is_unscaled or (stated.scaling.scale, stated.scaling.offset) != (None, None):
            used = "file" if is_unscaled else "item"
            rows += _differing("scale", band.scale, scaling[0], used)
            rows += _differing("offset", band.offset, scaling[1], used)
        if is_unscaled:
            scale, offset = file_scaling(source, number)
            band = replace(band, scale=scale, offset=offset)
    # Some items count an alpha band and others do not.
    if stated.band_count > source.count:
        rows.append(Disagreement("number of bands", str(stated.band_count), str(source.count)))
    _report(rows, label)
    return band


def _differing(field: str, in_item: float | None, in_file: float | None, used: str) -> list[Disagreement]:
    """The disagreement of two numbers; none where they are the same, or one of them is not stated."""
    if in_item is None or in_file is None or _is_same(in_item, in_file):
        return []
    return [Disagreement(field, f"{in_item:.10g}", f"{in_file:.10g}", used)]


def _report(rows: Sequence[Disagreement], label: str) -> None:
    for row in rows:
        log.warning(
            "event=item_differs_from_file raster=%r field=%r item=%r file=%r used=%s",
            *(label, row.field, row.item, row.file, row.used),
        )


def _is_same(in_item: float, in_file: float) -> bool:
    return math.isclose(in_item, in_file, rel_tol=1e-6, abs_tol=1e-9) or (math.isnan(in_item) and math.isnan(in_file))


def _crs(stated: StatedRaster, source: Any, label: str) -> Iterator[Disagreement]:
    from rasterio.crs import CRS
    from rasterio.errors import CRSError

    code, epsg = (stated.crs or "").upper(), source.crs.to_epsg()
    if not code or code == f"EPSG:{epsg}":
        return
    if epsg and code.startswith("EPSG:"):
        raise BadInputError(
            f"{label} is in EPSG:{epsg} according to its file, but in {stated.crs} according to its item; "
            "correct the wrong one"
        )
    try:
        is_same = CRS.from_user_input(stated.crs) == source.crs
    except CRSError:
        is_same = False
    if not is_same:
        yield Disagreement("CRS", str(stated.crs), f"EPSG:{epsg}" if epsg else source.crs.to_wkt()[:60])


def _pixels(stated: StatedRaster, source: Any) -> Iterator[Disagreement]:
    height, width = source.shape
    if stated.shape is not None and stated.shape != (height, width):
        yield Disagreement("proj:shape", f"{stated.shape[0]} x {stated.shape[1]}", f"{height} x {width}")
    if stated.transform is not None and _shift(stated, source) > SAME:
        yield Disagreement("proj:transform", _numbers(stated.transform), _numbers(tuple(source.transform)[:6]))


def _shift(stated: StatedRaster, source: Any) -> float:
    """How far a corner of the file is from where the item has it, in pixels of the file."""
    from affine import Affine

    height, width = source.shape
    transform = Affine(*stated.transform or source.transform[:6])
    to_file, corners = ~source.transform * transform, [(0, 0), (width, 0), (0, height), (width, height)]
    shift = max(math.dist(to_file * corner, corner) for corner in corners)
    if any((transform.b, transform.d, source.transform.b, source.transform.d)):
        return shift
    # Rows that run north and the same rows from north to south are at one place.
    edges = zip(_bounds(transform, source.shape), _bounds(source.transform, source.shape), strict=True)
    return min(shift, max(abs(a - b) for a, b in edges) / _size(source.transform))


def _check_grid(stated: StatedRaster, source: Any, label: str, grid: "GeoBox") -> None:
    """Refuse a wrong item where the grid has its pixel size, or ends at its edge though the file is larger."""
    from affine import Affine
    from rasterio.crs import CRS

    if stated.transform is None or CRS.from_user_input(str(grid.crs)) != source.crs:
        return
    transform = Affine(*stated.transform)
    sizes = [_size(affine) for affine in (transform, source.transform)]
    is_scaled = abs(sizes[0] / sizes[1] - 1) * max(source.shape) > SCALED
    has_size = is_scaled and math.isclose(abs(grid.affine.a), sizes[0], rel_tol=1e-6)
    shape = stated.shape or source.shape
    in_item, in_file = _bounds(transform, shape), _bounds(source.transform, source.shape)
    step = max(sizes[1], abs(grid.affine.a))
    box = grid.extent.boundingbox
    edges = zip((box.left, box.bottom, box.right, box.top), in_item, in_file, (-1, -1, 1, 1), strict=True)
    is_cut = any(abs(edge - item) <= step and (file - edge) * side > step for edge, item, file, side in edges)
    if has_size or is_cut:
        raise BadInputError(
            f"{label} has {source.height} x {source.width} pixels and the transform "
            f"{_numbers(tuple(source.transform)[:6])} according to its file, but {shape[0]} x {shape[1]} and "
            f"{_numbers(stated.transform)} according to its item, from which search made the grid; correct the item, "
            "or set search.resolution and search.bbox"
        )


def _size(affine: Any) -> float:
    return math.hypot(affine.a, affine.d)


def _bounds(affine: Any, shape: tuple[int, int]) -> Bounds:
    """West, south, east, north of a raster."""
    height, width = shape
    x, y = zip(*(affine * corner for corner in ((0, 0), (width, 0), (0, height), (width, height))), strict=True)
    return min(x), min(y), max(x), max(y)


def _numbers(values: Sequence[float]) -> str:
    return f"[{', '.join(f'{value:.12g}' for value in values)}]"
