"""Write one scene as tiles: shard by shard, so that memory does not grow with the scene."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eopipe.errors import BadInputError
from eopipe.grid import windows
from eopipe.scenes.item import Band, Item, scene_name
from eopipe.scenes.warp import Resampling, read_window, warped
from eopipe.store import Layout, add_array, new_store

if TYPE_CHECKING:
    import zarr
    from odc.geo.geobox import GeoBox


@dataclass(frozen=True)
class Recipe:
    """How a scene becomes tiles."""

    bands: list[Band]
    mask: Band | None
    masked: tuple[int, ...]
    resampling: Resampling
    layout: Layout


def write_tiles(target: Path, item: Item, grid: "GeoBox", recipe: Recipe) -> None:
    """Publish `image` (band, y, x) and `valid` (y, x) of a scene on the grid."""
    scale, offset = _scaling(item, recipe.bands)
    names = tuple(band.name for band in recipe.bands)
    told = {"datetime": item["properties"].get("datetime"), "collection": item.get("collection")}
    with ExitStack() as stack:
        group = stack.enter_context(new_store(target, grid, names, scene_name(item["id"]), told))
        sources = [_opened(stack, band, item, grid, recipe.resampling) for band in recipe.bands]
        mask = _opened(stack, recipe.mask, item, grid, "nearest") if recipe.mask else None
        dtype = np.result_type(*(source.dtypes[0] for source in sources))
        shape = (int(grid.shape[0]), int(grid.shape[1]))
        image = add_array(
            group, "image", (len(names), *shape), dtype, recipe.layout, scale_factor=scale, add_offset=offset
        )
        valid = add_array(group, "valid", shape, "uint8", recipe.layout)
        seen = 0
        for y, x in windows(shape, recipe.layout.shard):
            pixels, good = _read(sources, mask, recipe, item, (y, x))
            image[:, y, x], valid[y, x] = pixels, good
            seen += int(good.sum())
        _finish(group, seen / (shape[0] * shape[1]))


def _finish(group: "zarr.Group", share: float) -> None:
    group.attrs["valid_fraction"] = round(share, 6)


def _scaling(item: Item, bands: list[Band]) -> tuple[float, float]:
    """One scale and offset for the whole image; the bands of a sensor share them."""
    found = sorted({(band.scale, band.offset) for band in bands})
    if len(found) > 1:
        raise BadInputError(
            f"bands of scene {item['id']} have different scales and offsets {found}; choose bands of one kind"
        )
    return found[0]


def _opened(stack: ExitStack, band: Band, item: Item, grid: "GeoBox", resampling: Resampling) -> Any:
    return stack.enter_context(warped(band, grid, resampling, _where(item, band)))


def _where(item: Item, band: Band) -> str:
    return f"scene {item['id']}, asset {band.name}"


def _read(
    sources: list[Any], mask: Any, recipe: Recipe, item: Item, window: tuple[slice, slice]
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """One window of all bands, and where it is usable; unusable nodata is stored as zero."""
    pixels, good = [], []
    for source, band in zip(sources, recipe.bands, strict=True):
        values, there = read_window(source, window, _where(item, band))
        pixels.append(np.where(there, values, 0).astype(values.dtype))
        good.append(there)
    usable = np.all(good, axis=0)
    if mask is not None and recipe.mask is not None:
        classes, there = read_window(mask, window, _where(item, recipe.mask))
        usable &= there & ~np.isin(classes, recipe.masked)
    return np.stack(pixels), usable
