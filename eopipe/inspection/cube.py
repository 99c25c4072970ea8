"""The stores of a run as one lazy cube in xarray: read where it is indexed, never copied."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from xarray.backends import BackendArray
from xarray.core import indexing

from eopipe.arrays import AnyArray, FloatArray
from eopipe.errors import BadInputError, UsageError
from eopipe.publish import MANIFEST
from eopipe.scenes.item import acquisition_time
from eopipe.tiles.cells import Cell
from eopipe.tiles.grid import common_part, within
from eopipe.tiles.store import Tiles, grid_mapping

if TYPE_CHECKING:
    import xarray


def open_cube(
    results: str | Path,
    source: Literal["tiles", "composites"] = "tiles",
    cell: str | None = None,
    chunks: dict[str, int] | int | Literal["auto"] | None = None,
) -> "xarray.Dataset":
    """Open the stores of a run as one dataset: `image` (time, band, y, x) and `valid` (time, y, x).

    `results` is the folder of a run, `source` the folder of stores in it. Stores are in the order of their time, then
    of their `scene`: in UTC, of a scene of an interval its middle. `image` is float32 in physical units (scale and
    offset applied), NaN where a scene has no pixels or no data. Clouds have data: `valid` marks the usable pixels, so
    `cube.image.where(cube.valid)` is what to compute with. Nothing is read before it is needed.
    In a run over several UTM zones, `cell` (such as utm33n) is the one to open: y and x have one CRS.
    With `chunks`, as for `xarray.Dataset.chunk`, the arrays are of dask, which has to be installed.

    Raises BadInputError for a folder without stores, for stores of different bands or grids, and for several cells
    where none is named; UsageError for chunks without dask.
    """
    import xarray

    if chunks is not None and importlib.util.find_spec("dask") is None:
        raise UsageError("open_cube with chunks needs dask: pip install dask")

    paths = sorted(path.parent for path in Path(results, source).glob(f"*.zarr/{MANIFEST}"))
    stores = sorted(map(Tiles, paths), key=lambda store: (_time(store), store.scene))
    if not stores:
        raise BadInputError(f"{Path(results, source)} has no stores; a run writes them with preprocess or composite")
    _check_same(stores)
    frame = stores[0].frame
    if cell is None and len(frame.cells) > 1:
        raise BadInputError(f"{results} has several cells; name one with cell=: {', '.join(c.id for c in frame.cells)}")
    chosen = frame.cell(cell or "")
    stores = [store for store in stores if any(part.cell == chosen.id for part in store.parts)]
    place = {"grid_mapping": "spatial_ref"}
    image = xarray.Variable(("time", "band", "y", "x"), indexing.LazilyIndexedArray(ImageStack(stores, chosen)), place)
    valid = xarray.Variable(("time", "y", "x"), indexing.LazilyIndexedArray(MaskStack(stores, chosen)), place)
    cube = xarray.Dataset({"image": image, "valid": valid}, _coordinates(stores, chosen))
    return cube if chunks is None else cube.chunk(chunks)


def _time(store: Tiles) -> np.datetime64:
    """The time of a store in UTC; NaT sorts last."""
    time = acquisition_time(store.attributes)
    return np.datetime64("NaT" if time is None else time.replace(tzinfo=None), "ns")


def _check_same(stores: list[Tiles]) -> None:
    first = stores[0]
    for store in stores[1:]:
        if store.names != first.names:
            bands = " and ".join(", ".join(each.names) for each in (store, first))
            raise BadInputError(f"{store.path} and {first.path} have different bands: {bands}")
        if not store.frame.is_same(first.frame):
            raise BadInputError(f"{store.path} and {first.path} are on different grids")


def _coordinates(stores: list[Tiles], cell: Cell) -> dict[str, Any]:
    """Time and scene of each store, names of bands, centres of pixels, and the grid mapping."""
    place = {name: axis.values for name, axis in zip(("y", "x"), cell.grid.coordinates.values(), strict=True)}
    times, scenes = np.array([_time(store) for store in stores]), [store.scene for store in stores]
    of_stores = {"time": times, "scene": ("time", scenes), "band": list(stores[0].names)}
    return place | {"spatial_ref": ((), 0, grid_mapping(cell.grid))} | of_stores


class ImageStack(BackendArray):
    """Images of stores in a cell as one array (time, band, y, x) in physical units; NaN where there are no data."""

    def __init__(self, stores: list[Tiles], cell: Cell) -> None:
        self.stores, self.cell = stores, cell
        self.dtype: np.dtype[Any] = np.dtype(np.float32)
        self.shape: tuple[int, ...] = (len(stores), len(stores[0].names), *cell.shape)

    def __getitem__(self, key: Any) -> AnyArray:
        """Read what an indexer of xarray asks for."""
        array: AnyArray = indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.BASIC, self._read
        )
        return array

    def _read(self, key: tuple[int | slice, ...]) -> AnyArray:
        """Read by integers and slices with positive steps."""
        axes = [
            range(edge)[part] if isinstance(part, slice) else range(part, part + 1)
            for part, edge in zip(key, self.shape, strict=True)
        ]
        times, *bands, rows, columns = axes
        y, x = (slice(axis[0], axis[-1] + 1) if axis else slice(0, 0) for axis in (rows, columns))
        left = self.cell.column
        in_frame = slice(left + x.start, left + x.stop)
        planes = [self._plane(self.stores[time], y, in_frame) for time in times]
        shape = (len(times), *self.shape[1:-2], y.stop - y.start, x.stop - x.start)
        cube = np.stack(planes) if planes else np.empty(shape, self.dtype)
        cube = cube[..., :: rows.step, :: columns.step]
        if bands:
            cube = cube[:, list(bands[0])]
        return cube[tuple(slice(None) if isinstance(part, slice) else 0 for part in key)]

    def _plane(self, store: Tiles, y: slice, x: slice) -> AnyArray:
        """A window of one store (band, y, x)."""
        window: FloatArray = np.full((len(store.names), y.stop - y.start, x.stop - x.start), np.nan, np.float32)
        of_cell = next(part for part in store.parts if part.cell == self.cell.id)
        if part := common_part((y, x), of_cell.stored_window):
            window[:, *within(part, (y, x))] = _measured(store, *part)
        return window


def _measured(store: Tiles, y: slice, x: slice) -> FloatArray:
    """A window of a store (band, y, x) in physical units; NaN where a band has no data.

    These are stored as 0 and not valid. Where `_FillValue` is 0, no data are 0, and it is what xarray reads as NaN.
    """
    stored, (scale, offset) = store.read("image", y, x), store.scaling
    physical: FloatArray = stored.astype(np.float32) * np.float32(scale) + np.float32(offset)
    physical[(stored == 0) & (store.read("valid", y, x) == 0)] = np.nan
    return physical


class MaskStack(ImageStack):
    """Valid masks of stores as one array (time, y, x)."""

    def __init__(self, stores: list[Tiles], cell: Cell) -> None:
        super().__init__(stores, cell)
        self.dtype = np.dtype(bool)
        self.shape = (len(stores), *cell.shape)

    def _plane(self, store: Tiles, y: slice, x: slice) -> AnyArray:
        return store.valid(y, x)
