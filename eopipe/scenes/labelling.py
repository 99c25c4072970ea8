"""Write labels as a store: window by window from rasters, at once from vectors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from eopipe.errors import BadInputError
from eopipe.grid import windows
from eopipe.labels import VECTORS, Legend, rasterize
from eopipe.scenes.item import Band, Item, bands
from eopipe.scenes.warp import read_window, warped
from eopipe.store import NO_LABEL, Layout, add_array, new_store

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

Window = Callable[[slice, slice], npt.NDArray[np.uint8]]


def label_band(source: Path | None, scene: Path | None, item: Item | None, asset: str | None) -> Band:
    """The raster or vector that holds the labels: a file of its own or an asset of a scene."""
    if source is not None:
        return Band(source.name, source, 1.0, 0.0, None)
    if scene is None or item is None or asset is None:
        raise ValueError("labels come from a source or from an asset of a scene")
    return bands(scene, item, (asset,))[0]


def write_labels(
    target: Path,
    grid: "GeoBox",
    legend: Legend,
    band: Band,
    *,
    scene: str,
    attribute: str,
    resampling: Literal["nearest", "mode"],
    layout: Layout,
) -> None:
    """Publish `label` and `valid` (y, x); raises BadInputError when no pixel has a label."""
    shape = (int(grid.shape[0]), int(grid.shape[1]))
    counts = np.zeros(len(legend.classes), np.int64)
    with (
        _reader(band, grid, legend, attribute, resampling) as read,
        new_store(target, grid, legend.classes, scene, {}) as group,
    ):
        label = add_array(group, "label", shape, "uint8", layout)
        valid = add_array(group, "valid", shape, "uint8", layout)
        for y, x in windows(shape, layout.shard):
            numbers = read(y, x)
            label[y, x], valid[y, x] = numbers, numbers != NO_LABEL
            counts += np.bincount(numbers[numbers != NO_LABEL], minlength=len(counts))
        group.attrs["pixels"] = dict(zip(legend.classes, counts.tolist(), strict=True))
        if not counts.any():
            raise BadInputError(f"{band.name} has no label on the grid; compare its place and values with the area")


@contextmanager
def _reader(
    band: Band, grid: "GeoBox", legend: Legend, attribute: str, resampling: Literal["nearest", "mode"]
) -> Iterator[Window]:
    if band.path.suffix.lower() in VECTORS:
        burned = rasterize(band.path, grid, legend, attribute)
        yield lambda y, x: burned[y, x]
        return
    with warped(band, grid, resampling, f"label {band.name}") as source:
        yield lambda y, x: legend.read(*read_window(source, (y, x), f"label {band.name}"))
