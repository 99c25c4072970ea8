"""Labels on a grid: class numbers from rasters or vectors, and where they are valid."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eopipe.errors import BadInputError, RefusedError, UsageError
from eopipe.store import NO_LABEL

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

VECTORS = (".geojson", ".json", ".gpkg", ".shp", ".fgb")


@dataclass(frozen=True)
class Legend:
    """How source values become class numbers 0, 1, …; values that name no class are no label."""

    classes: tuple[str, ...]
    bins: tuple[float, ...] = ()
    codes: tuple[int, ...] = ()
    ignore: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check that bins and codes fit the classes, whose numbers stay below the mark for no label."""
        count = len(self.classes)
        if len(set(self.classes)) < count or count > NO_LABEL:
            raise UsageError(f"label.classes needs up to {NO_LABEL} different names")
        if self.bins and (self.codes or len(self.bins) != count - 1 or list(self.bins) != sorted(set(self.bins))):
            raise UsageError(f"{count} classes need {count - 1} rising edges in label.bins, and then no label.codes")
        if self.codes and not len(set(self.codes)) == len(self.codes) == count:
            raise UsageError(f"{count} classes need {count} different numbers in label.codes")

    def read(self, values: npt.NDArray[Any], there: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
        """Class numbers of raster values (uint8, 255 where there is no label).

        With bins, class i holds bins[i-1] <= value < bins[i]; with codes, value codes[i]; else value i.
        """
        there = there & ~np.isin(values, self.ignore)
        if self.bins:
            return np.where(there, np.digitize(values, self.bins), NO_LABEL).astype(np.uint8)
        found = np.full(values.shape, NO_LABEL, np.uint8)
        for number, code in enumerate(self.codes or range(len(self.classes))):
            found[there & (values == code)] = number
        return found


def rasterize(source: Path, grid: "GeoBox", legend: Legend, attribute: str) -> npt.NDArray[np.uint8]:
    """Burn polygons whose attribute names a class; later features win, the rest is no label."""
    import pyogrio.raw
    from rasterio.features import rasterize as burn

    _refuse_text(source)
    try:
        meta, _, shapes, fields = pyogrio.raw.read(source, columns=[attribute])
    except pyogrio.errors.DataSourceError as error:
        raise BadInputError(f"{source} cannot be read as vectors: {error}") from error
    if not fields:
        raise BadInputError(f"{source} has no attribute {attribute}; it has {', '.join(_fields(source))}")
    if not meta["crs"]:
        raise BadInputError(f"{source} has no CRS, so its shapes have no place")
    numbers = [_number(value, legend, source) for value in fields[0]]
    geometries = _to_grid(shapes, str(meta["crs"]), grid)
    pairs = [(g, n) for g, n in zip(geometries, numbers, strict=True) if g and n != NO_LABEL]
    if not pairs:
        return np.full(grid.shape, NO_LABEL, np.uint8)
    burned = burn(pairs, out_shape=grid.shape, transform=grid.affine, fill=NO_LABEL, dtype="uint8")
    return np.asarray(burned, np.uint8)


def _refuse_text(source: Path) -> None:
    """Refuse what GDAL could take for a virtual dataset, which reads other files."""
    with source.open("rb") as file:
        if file.read(64).lstrip()[:1] == b"<":
            raise RefusedError(f"{source} is XML, which can read other files; give GeoJSON, GeoPackage or a Shapefile")


def _fields(source: Path) -> list[str]:
    import pyogrio

    return [str(name) for name in pyogrio.read_info(source)["fields"]]


def _number(value: Any, legend: Legend, source: Path) -> int:
    if str(value) in legend.classes:
        return legend.classes.index(str(value))
    if legend.codes and value in legend.codes:
        return legend.codes.index(value)
    if value in legend.ignore:
        return NO_LABEL
    raise BadInputError(f"{source} has a feature of class {value}; the classes are {', '.join(legend.classes)}")


def _to_grid(shapes: Any, crs: str, grid: "GeoBox") -> list[Any]:
    """Bring shapes to the grid's CRS, cut to its surroundings: what is far away has no place in it."""
    from pyproj import Transformer
    from shapely import clip_by_rect, from_wkb, segmentize, transform

    change = Transformer.from_crs(crs, str(grid.crs), always_xy=True)
    around = grid.pad(max(grid.shape) // 10 + 1).extent.boundingbox
    west, south, east, north = Transformer.from_crs(str(grid.crs), crs, always_xy=True).transform_bounds(*around)
    if west > east:
        west, east = -180.0, 180.0
    # A straight edge in one CRS bends in another.
    near = segmentize(clip_by_rect(from_wkb(shapes), west, south, east, north), (north - south) / 1000)
    return list(transform(near, lambda p: np.column_stack(change.transform(p[:, 0], p[:, 1]))))
