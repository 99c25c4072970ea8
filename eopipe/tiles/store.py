"""Tile and label stores: one sharded Zarr v3 store per scene, georeferenced when it is opened in xarray.

A tile store holds `image` (band, y, x), the scene's stored numbers with their scale and offset, and the mask `valid`
(y, x); a label store holds `label` and `valid`. `valid` marks usable pixels. The CF attribute `_FillValue`, there only
where no data have that number, means nodata; the fill value of Zarr does in labels of which shards are left out.
"""

import base64
import math
import struct
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray
from eopipe.errors import BadInputError, RefusedError
from eopipe.publish import publish
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.grid import PixelWindow, crs_fields, crs_of_fields, grid_of_document, overlaps
from eopipe.tiles.layout import LEVELS, Layout, check_attributes
from eopipe.tiles.shard_reader import StoredWindow, WindowedArrayReader, open_array

if TYPE_CHECKING:
    import zarr
    from odc.geo.geobox import GeoBox

# A cell of a run, the part of it that a store holds, and the window of the part; None where it is the only cell, whole.
CellPart = tuple[Cell, "GeoBox", StoredWindow | None]
NO_LABEL = 255
# Attributes of a store: of packed chips, whose rows and columns are not places, edge of a slot and bounds in degrees;
# why each scene whose data could not be used was left out.
CHIP_SET, LEFT_OUT = "chip_set", "left_out"
# What xarray reads as NaT.
NO_TIME = -(2**63)
# CF attributes of arrays by their names.
CF_ATTRIBUTES: dict[str, dict[str, Any]] = {
    "image": {"ancillary_variables": "valid"},
    "valid": {"flag_values": [0, 1], "flag_meanings": "not_usable usable"},
    "time": {"units": "milliseconds since 1970-01-01", "calendar": "proleptic_gregorian", "standard_name": "time"},
}
MAX_PIXELS, MAX_VALUES = 2**40, 2**52
# The GeoZarr conventions of the georeferencing attributes; readers look for their identifiers.
CONVENTIONS = [
    {
        "name": name,
        "uuid": uuid,
        "schema_url": f"https://raw.githubusercontent.com/zarr-conventions/{name}/refs/tags/v0.1/schema.json",
        "spec_url": f"https://github.com/zarr-conventions/{name}/blob/v0.1/README.md",
    }
    for name, uuid in (
        ("proj", "f17cb550-5864-4468-aeb7-f3180cfb622f"),
        ("spatial", "689b58e2-cf7b-45e0-9fff-9cfc0883d6b4"),
    )
]
IDENTITY = {"scene", "names", "proj:code", "spatial:shape", "spatial:transform"}
# A store with a group for each cell of a run that its scene reaches has these.
CELLS_IDENTITY = {"scene", "names", "frame"}


class Tiles:
    """A published tile or label store, opened for reading by positions in the frame of its run.

    A tile store holds the part of the frame that its scene reaches: `parts` has one store for each cell, of a run with
    one cell the store itself. With `is_alone` a store of one cell is read by positions in its own arrays, as any other
    reader of Zarr does.
    """

    def __init__(self, path: Path, *, is_alone: bool = False) -> None:
        import zarr

        self.path = Path(path)
        try:
            self.group = zarr.open_group(self.path, mode="r")
        except (FileNotFoundError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise BadInputError(f"{path} is not a readable Zarr store: {error}") from error
        self.window: StoredWindow | None = None
        self.parts: tuple[Tiles, ...] = (self,)
        keys = self.group.attrs.keys()
        if keys >= CELLS_IDENTITY:
            self._open_cells()
            return
        if not keys >= IDENTITY:
            raise BadInputError(f"{path} is a Zarr store that eopipe did not write: it has no scene, names and grid")
        if not self._has_valid_names():
            raise BadInputError(f"{path} is not a store of tiles: its scene, names or shape are of another type")
        check_attributes(self.attributes, str(path))
        self.window = None if is_alone else StoredWindow.of(self.attributes, self.stored_shape, str(path))
        if math.prod(self.shape) > MAX_PIXELS:
            raise RefusedError(f"{path} declares {self.shape[0]} x {self.shape[1]} pixels, more than any grid has")

    def _open_cells(self) -> None:
        """Open the groups of the cells."""
        cells = {cell.id for cell in self.frame.cells}
        groups = sorted(name for name in self.group.group_keys() if name in cells)
        if not groups or not self._is_named():
            raise BadInputError(f"{self.path} is not a store of tiles: it has no group of any of its cells")
        self.parts = tuple(Tiles(self.path / name) for name in groups)
        if any(part.shape != self.shape or part.names != self.names for part in self.parts):
            raise BadInputError(f"{self.path} is not a store of tiles: its cells have other names or positions")

    def _is_named(self) -> bool:
        names = self.group.attrs["names"]
        return isinstance(names, list) and all(isinstance(name, str) for name in names)

    def _has_valid_names(self) -> bool:
        is_named, shape = self._is_named(), self.group.attrs["spatial:shape"]
        is_sized = isinstance(shape, list) and len(shape) == 2
        return is_named and is_sized and all(type(edge) is int and edge > 0 for edge in shape)  # type: ignore[union-attr]

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the store: scene, datetime, band or class names, grid."""
        return dict(self.group.attrs)

    @property
    def scene(self) -> str:
        """The scene that the store was made from; empty for labels that apply to every scene."""
        return str(self.attributes["scene"])

    @property
    def names(self) -> tuple[str, ...]:
        """Band names of an image, class names of a label, in order."""
        return tuple(self.attributes["names"])

    @cached_property
    def frame(self) -> Frame:
        """The cells of the run, in which all stores have the same positions."""
        frame = self.attributes.get("frame")
        return Frame((Cell("", self.grid),)) if frame is None else Frame.of_document(frame, str(self.path))

    @property
    def cell(self) -> str:
        """The cell of a part; empty for a store of a run with one cell."""
        return str(self.attributes.get("cell") or "")

    @property
    def grid(self) -> "GeoBox":
        """The grid of a run with one cell, of which the store holds a window: CRS, affine transform and shape.

        Raises BadInputError where the run has several cells.
        """
        if "frame" in self.group.attrs:
            names = ", ".join(cell.id for cell in self.frame.cells)
            raise BadInputError(f"{self.path} has several cells ({names}), but one grid is needed")
        if self.window is None:
            return self.stored_grid
        rows, columns = (-begin for begin in self.window.offset)
        return self.stored_grid.translate_pix(columns, rows).crop(self.window.grid_shape)

    @property
    def stored_grid(self) -> "GeoBox":
        """The part of the grid that the store holds, as its coordinates say."""
        grid = {key: self.attributes[f"spatial:{key}"] for key in ("shape", "transform")}
        grid["crs"] = crs_of_fields(self.attributes)
        return grid_of_document(grid, f"the metadata of {self.path}")

    @property
    def shape(self) -> tuple[int, int]:
        """Height and width of the frame in pixels; of a run with one cell the shape of its grid."""
        if len(self.parts) != 1 or self.parts[0] is not self:
            return self.frame.shape
        return self.window.grid_shape if self.window else self.stored_shape

    @property
    def stored_shape(self) -> tuple[int, int]:
        """Height and width of what the store holds of the grid."""
        return tuple(self.attributes["spatial:shape"])

    @property
    def stored_window(self) -> PixelWindow:
        """Rows and columns of the grid that the store holds; no pixel elsewhere is valid."""
        (row, column), (height, width) = self.window.offset if self.window else (0, 0), self.stored_shape
        return slice(row, row + height), slice(column, column + width)

    @property
    def windows(self) -> tuple[PixelWindow, ...]:
        """Rows and columns of the frame that the store holds, one window for each of its cells."""
        return tuple(part.stored_window for part in self.parts)

    def alone(self) -> "Tiles":
        """The same store, read by positions in its own arrays; with several cells by those in the frame."""
        return self if "frame" in self.group.attrs else Tiles(self.path, is_alone=True)

    def reaches(self, window: PixelWindow) -> bool:
        """Whether the store holds any pixel of a window of the frame."""
        return any(overlaps(stored, window) for stored in self.windows)

    def has_array(self, name: str) -> bool:
        """Whether the store has an array of this name."""
        return all(name in part.group for part in self.parts)

    @cached_property
    def scaling(self) -> tuple[float, float]:
        """Scale and offset that turn stored numbers into physical ones."""
        attributes = self.array("image").attrs
        try:
            scale, offset = (float(str(attributes[key])) for key in ("scale_factor", "add_offset"))
        except (KeyError, TypeError, ValueError) as error:
            raise BadInputError(f"image of {self.path} has no scale_factor and add_offset that are numbers") from error
        return scale, offset

    def array(self, name: str) -> "zarr.Array[Any]":
        """One array of the store, with the pixels of `stored_window`; of several cells the first cell's."""
        if self.parts[0] is not self:
            return self.parts[0].array(name)
        try:
            array: zarr.Array[Any] = self.group[name]  # type: ignore[assignment]
            # zarr takes attributes of any type, and raises where one is looked up.
            if not isinstance(array.metadata.attributes, dict):
                raise TypeError("its attributes are not an object")
        except KeyError as error:
            available = ", ".join(sorted(key for key, array in self.group.arrays() if array.ndim > 1))
            raise BadInputError(f"{self.path} has no array {name}; it has {available}") from error
        except (AttributeError, OverflowError, TypeError, ValueError) as error:
            raise BadInputError(f"{name} of {self.path} cannot be read: {error}") from error
        if tuple(array.shape[-2:]) != self.stored_shape:
            raise BadInputError(f"{name} of {self.path} has shape {array.shape}, but its grid has {self.stored_shape}")
        return array

    def read(self, name: str, y: slice = slice(None), x: slice = slice(None)) -> AnyArray:
        """Read a window of an array, in its last two axes; slices have no step.

        Raises BadInputError for an array that the store does not have, IntegrityError for damaged chunks.
        """
        if not (self.parts[0].path / name / "zarr.json").is_file():
            self.array(name)
        reader = open_array(self.path / name)
        if self.window is None and self.parts[0] is self and isinstance(reader, WindowedArrayReader):
            reader = reader.parts[0][0]
        if reader.shape[-2:] != self.shape:
            raise BadInputError(f"{name} of {self.path} has shape {reader.shape}, but its grid has {self.shape}")
        if math.prod(reader.shape) > MAX_VALUES:
            raise RefusedError(f"{name} of {self.path} declares the shape {reader.shape}, more than any image has")
        (top, bottom, _), (left, right, _) = y.indices(self.shape[0]), x.indices(self.shape[1])
        window = np.zeros((*reader.shape[:-2], max(bottom - top, 0), max(right - left, 0)), reader.dtype)
        if self.reaches((slice(top, bottom), slice(left, right))):
            reader.read(window, top, left, tuple(range(math.prod(reader.shape[:-2]))))
        return window

    def valid(self, y: slice = slice(None), x: slice = slice(None)) -> BoolArray:
        """Mask (y, x) of a window: of an image the pixels with data, of labels those with a label."""
        return np.asarray(self.read("valid", y, x) > 0)

    def physical(self, bands: tuple[str, ...], y: slice = slice(None), x: slice = slice(None)) -> FloatArray:
        """Bands by name as float32 (band, y, x), scale and offset applied."""
        missing = [band for band in bands if band not in self.names]
        if missing:
            raise BadInputError(f"{self.path} has no band {', '.join(missing)}; it has {', '.join(self.names)}")
        stored, (scale, offset) = self.read("image", y, x)[[self.names.index(band) for band in bands]], self.scaling
        return stored.astype(np.float32) * np.float32(scale) + np.float32(offset)


@contextmanager
def new_store(
    target: Path,
    grid: "GeoBox",
    names: tuple[str, ...],
    scene: str,
    attributes: dict[str, Any],
    window: StoredWindow | None = None,
) -> Iterator["zarr.Group"]:
    """Publish a store with its grid and names; the body of the `with` statement adds the arrays.

    With a window `grid` is that part of the run's grid.
    """
    cell = Cell("", grid)
    with new_cell_stores(target, Frame((cell,)), names, scene, attributes, [(cell, grid, window)]) as (group, _):
        yield group


@contextmanager
def new_cell_stores(
    target: Path,
    frame: Frame,
    names: tuple[str, ...],
    scene: str,
    attributes: dict[str, Any],
    parts: Sequence[CellPart],
) -> Iterator[tuple["zarr.Group", list["zarr.Group"]]]:
    """Publish a store with parts of the cells of a run; the body of the `with` statement adds the arrays.

    Gives the group of the store, and a group for each part: in a run with one cell this is the group of the store.
    """
    import zarr

    with publish(target, folder=True) as draft, zarr.config.set({"array.write_empty_chunks": True}):
        groups, identity = list["zarr.Group"](), {"scene": scene, "names": list(names), "frame": frame.json()}
        roots = [zarr.create_group(draft, attributes=identity | attributes)] if len(frame.cells) > 1 else []
        for cell, grid, window in parts:
            place = ({"cell": cell.id} if cell.id else {}) | (window.attributes() if window else {})
            all_attributes = _identity(grid, names, scene) | attributes | place
            # The only cell of a run has no id: its group is the store.
            group = zarr.create_group(draft, path=cell.id, attributes=all_attributes)
            _write_coordinates(group, grid)
            groups.append(group)
        yield [*roots, *groups][0], groups
        with warnings.catch_warnings():
            # Not in the Zarr v3 specification yet; with it xarray opens a store in one read and lists no folder.
            warnings.filterwarnings("ignore", message="Consolidated metadata")
            zarr.consolidate_metadata(draft)


def _identity(grid: "GeoBox", names: tuple[str, ...], scene: str) -> dict[str, Any]:
    return {
        "Conventions": "CF-1.10",
        "zarr_conventions": CONVENTIONS,
        "scene": scene,
        "names": list(names),
        **crs_fields(grid),
        "spatial:dimensions": ["y", "x"],
        "spatial:shape": list(grid.shape),
        "spatial:transform": list(grid.affine)[:6],
        "spatial:bbox": list(grid.boundingbox.bbox),
    }


def _write_coordinates(group: "zarr.Group", grid: "GeoBox") -> None:
    """Write CF coordinates of pixel centres and the grid mapping that rioxarray and GDAL read."""
    crs: Any = grid.crs
    axis_attributes = {attributes["axis"]: attributes for attributes in crs.proj.cs_to_cf()}
    for name, axis in (("y", 0), ("x", 1)):
        values = grid.coordinates[grid.dimensions[axis]].values
        _write_axis(group, name, values, "float64", axis_attributes.get(name.upper(), {"axis": name.upper()}))
    group.create_array("spatial_ref", shape=(), dtype="int32", dimension_names=(), attributes=grid_mapping(grid))


def _write_axis(group: "zarr.Group", name: str, values: AnyArray, dtype: str, attributes: dict[str, Any]) -> None:
    """Write the coordinates (n,) of a dimension."""
    count = values.shape
    array = group.create_array(
        name, shape=count, chunks=count, dtype=dtype, dimension_names=(name,), compressors=None, attributes=attributes
    )
    array[:] = values


def grid_mapping(grid: "GeoBox") -> dict[str, Any]:
    """The attributes of a CF grid mapping, as rioxarray and GDAL read them."""
    crs: Any = grid.crs
    a, b, c, d, e, f = list(grid.affine)[:6]
    # In the order of GDAL.
    transform, wkt = " ".join(map(repr, (c, a, b, f, d, e))), crs.to_wkt()
    return dict(crs.proj.to_cf()) | {"crs_wkt": wkt, "spatial_ref": wkt, "GeoTransform": transform}


def add_array(
    group: "zarr.Group", name: str, shape: tuple[int, ...], dtype: Any, layout: Layout, **attributes: Any
) -> "zarr.Array[Any]":
    """Add a sharded array over (y, x) or (band, y, x); a chunk holds all bands, as training reads them."""
    from zarr.codecs import BloscCodec, Crc32cCodec

    bands, raster = shape[:-2], (shape[-2], shape[-1])
    if bands and "time" not in group:
        _write_image_coordinates(group)
    georeference = {"grid_mapping": "spatial_ref", "coordinates": "spatial_ref" + " time" * ("time" in group)}
    window = {key: value for key, value in group.attrs.items() if key == StoredWindow.ATTRIBUTE}
    return group.create_array(
        name,
        shape=shape,
        dtype=dtype,
        chunks=(*bands, layout.chunk, layout.chunk),
        shards=(*bands, *layout.shards(raster)),
        compressors=[BloscCodec(cname=layout.codec, clevel=LEVELS[layout.codec], shuffle="bitshuffle"), Crc32cCodec()],
        fill_value=attributes.pop("fill_value", 0),
        dimension_names=("band", "y", "x") if bands else ("y", "x"),
        attributes=georeference | CF_ATTRIBUTES.get(name, {}) | attributes | window,
    )


def _write_image_coordinates(group: "zarr.Group") -> None:
    """Write the band names and the time of an image as CF coordinates; without a date the time is NaT in xarray."""
    names, text = [str(name) for name in group.attrs["names"]], group.attrs.get("datetime")  # type: ignore[union-attr]
    _write_axis(group, "band", np.array(names, object), "string", {"long_name": "band"})
    value = _milliseconds(str(text), str(group.attrs["scene"])) if text else NO_TIME
    # A scalar that equals its fill value needs no file for its chunk.
    attributes = CF_ATTRIBUTES["time"] | ({} if text else {"_FillValue": NO_TIME})
    group.create_array("time", shape=(), dtype="int64", dimension_names=(), fill_value=value, attributes=attributes)


def _milliseconds(text: str, scene: str) -> int:
    """Milliseconds since 1970 of an ISO 8601 time, UTC if it names no zone."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise BadInputError(f"scene {scene} has datetime {text!r}, which is not a time as in ISO 8601") from error
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def declare_nodata(array: "zarr.Array[Any]", value: int = 0) -> None:
    """Declare the number that means nodata, which no data of the array may have; xarray reads it as NaN."""
    # xarray encodes numbers of floating-point arrays in this way, since JSON has no NaN.
    encoded = base64.b64encode(struct.pack("<d", value)).decode()
    array.attrs["_FillValue"] = encoded if array.dtype.kind == "f" else value
