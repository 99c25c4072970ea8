"""Composites over time: one image of a period from many scenes, window by window in bounded memory.

A pixel of a composite is the median of each band, or the observation that ranks first.

The median is calculated as by `numpy.nanmedian`; integers are rounded to the nearest, halves to even. The other methods
choose one observation for all bands of a pixel, so that its spectrum is a measured one; of equal observations the
earliest is chosen. Highest NDVI: Holben 1986, doi:10.1080/01431168608948945; reflectances below zero count as zero,
and dark pixels rank lower, since the ratio of two small numbers says nothing. Lowest blue, since cloud and haze are
bright there: minimum-blue composites, as Vermote and Vermeulen 1999, MODIS ATBD 08.

Scenes of different scale and offset, as before and after baseline 04.00 of Sentinel-2, are converted to one of theirs
as they are read: exactly where the difference is a whole number, else rounded to the nearest stored number.
"""

from functools import cache
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.composites.periods import (
    RANKING_BANDS,
    CompositeMethod,
    CompositeRecipe,
    Observations,
    PeriodPart,
    Scaling,
    rescale,
)
from eopipe.tiles.grid import PixelWindow, windows, within
from eopipe.tiles.layout import ArrayWriter, Layout, crop_cell, shard_regions
from eopipe.tiles.shard_reader import StoredWindow
from eopipe.tiles.store import LEFT_OUT, CellPart, Tiles, add_array, declare_nodata, new_cell_stores

if TYPE_CHECKING:
    import zarr
    from odc.geo.geobox import GeoBox

# Sum of the reflectances of red and near infrared below which a pixel is dark; vegetation is above it.
DARK = np.float32(0.2)


def write_composite(target: Path, observations: Observations, recipe: CompositeRecipe, budget: int) -> None:
    """Publish `image` (band, y, x), `valid` and `count` (y, x).

    `count` is the number of valid observations, for stacked parts in the observed part with the fewest. Each of
    several cells has a group. Memory is limited to a row of chunks of one shard and `budget` bytes, however many dates
    there are.
    """
    first, name = observations.first, observations.period.name
    names = tuple(f"{band}_{part.name}" if part.name else band for part in observations.parts for band in first.names)
    attributes, edge = _attributes(observations, recipe), block_edge(observations, layout_of(first), budget)
    windows_of_cells = _windows_of_observations(observations)
    with new_cell_stores(target, first.frame, names, name, attributes, windows_of_cells) as (root, groups):
        valid, pixels = 0, 0
        for group, (_, grid, window) in zip(groups, windows_of_cells, strict=True):
            valid += _write_cell(group, grid, window, observations, recipe, edge)
            pixels += int(grid.shape[0]) * int(grid.shape[1])
        root.attrs["valid_fraction"] = round(valid / pixels, 6)


def _windows_of_observations(observations: Observations) -> list[CellPart]:
    """The cells that any observation reaches, of each the part that they reach, and its window in the frame."""
    frame, layout = observations.first.frame, layout_of(observations.first)
    stores = [store for part in observations.parts for store in part.stores]
    windows_of_cells = []
    for cell in frame.cells:
        reached = [part.stored_window for store in stores for part in store.parts if part.cell == cell.id]
        if reached:
            in_cell = [within(window, cell.window) for window in reached]
            windows_of_cells.append((cell, *crop_cell(frame, cell, in_cell, layout)))
    return windows_of_cells


def _write_cell(
    group: "zarr.Group",
    grid: "GeoBox",
    window: StoredWindow | None,
    observations: Observations,
    recipe: CompositeRecipe,
    edge: int,
) -> int:
    """Write the composite of a part of the frame; returns the number of its valid pixels."""
    layout, dtype = layout_of(observations.first), observations.first.array("image").dtype
    shape, (top, left) = (int(grid.shape[0]), int(grid.shape[1])), window.offset if window else (0, 0)
    (scale, offset), bands = observations.scaling, len(group.attrs["names"])  # type: ignore[arg-type]
    scaling = {"scale_factor": scale, "add_offset": offset}
    pixels = add_array(group, "image", (bands, *shape), dtype, layout, **scaling)
    valid = add_array(group, "valid", shape, "uint8", layout)
    count = add_array(group, "count", shape, "uint16", layout)
    writers, valid_pixels, zeros = [ArrayWriter(array, layout) for array in (pixels, valid, count)], 0, 0
    for region in shard_regions(shape, layout):
        y, x = region.window
        place = slice(top + y.start, top + y.stop), slice(left + x.start, left + x.stop)
        composite, usable, counts = _compose(observations, recipe, place, edge)
        for writer, values in zip(writers, (composite, usable.view(np.uint8), counts), strict=True):
            writer.write(region, writer.encode(values))
        valid_pixels += int(usable.sum())
        zeros += int(np.count_nonzero((composite == 0) & usable))
    if not zeros:
        declare_nodata(pixels)
    return valid_pixels


def layout_of(store: Tiles) -> Layout:
    """Chunks, shards and codec of a store, for the stores that are made from it."""
    store = store.parts[0]
    image = store.array("image")
    (chunk, _), shards = image.chunks[-2:], image.shards or image.chunks
    codec = next((c.cname.value for c in image.compressors if hasattr(c, "cname")), "lz4")
    return Layout(chunk, store.window.shard if store.window else max(shards[-2:]), codec)  # type: ignore[arg-type]


def block_edge(observations: Observations, layout: Layout, budget: int) -> int:
    """Edge in pixels of the blocks that are read for all dates at a time: whole chunks where the budget allows."""
    image = observations.first.array("image")
    dates, bands = max(len(part.stores) for part in observations.parts), image.shape[0]
    # All dates with their masks and ranks, one date as it is read, and the temporary arrays of the median.
    pixel_bytes = (dates + 6) * bands * image.dtype.itemsize + 8 * dates + 32
    edge = isqrt(budget // pixel_bytes)
    return min(edge // layout.chunk * layout.chunk or max(edge, 8), layout.shard)


def _attributes(observations: Observations, recipe: CompositeRecipe) -> dict[str, Any]:
    """Attributes of the composite; `datetime`, which later stages need, is the middle of its period."""
    days = [day for part in observations.parts for day in part.days]
    stated = {
        name: {entry for store in observations.stores for entry in store.attributes.get(name) or ()}
        for name in ("sensors", "baselines")
    }
    return {
        "datetime": f"{observations.period.middle(days).isoformat()}T00:00:00Z",
        "start_datetime": f"{min(days).isoformat()}T00:00:00Z",
        "end_datetime": f"{max(days).isoformat()}T00:00:00Z",
        "collection": observations.first.attributes.get("collection"),
        "composite": {"method": recipe.method, "period": recipe.period, "stack": recipe.stack},
        "scenes": [store.scene for store in observations.stores],
        **{name: value for name, value in observations.first.attributes.items() if name in ("unit", "level")},
        **{name: sorted(values) for name, values in stated.items() if values},
    } | ({LEFT_OUT: observations.left_out} if observations.left_out else {})


def _compose(
    observations: Observations, recipe: CompositeRecipe, window: PixelWindow, edge: int
) -> tuple[AnyArray, BoolArray, AnyArray]:
    """A window of the composite (band, y, x), its valid mask and counts (y, x), block by block."""
    (top, left), shape = (axis.start for axis in window), tuple(axis.stop - axis.start for axis in window)
    image = observations.first.array("image")
    composite = np.zeros((len(observations.parts) * image.shape[0], *shape), image.dtype)
    usable, counts = np.empty(shape, bool), np.empty(shape, np.uint16)
    for y, x in windows(shape, edge):
        block = slice(top + y.start, top + y.stop), slice(left + x.start, left + x.stop)
        parts = [_merge(part, recipe.method, observations.scaling, block) for part in observations.parts]
        pixels, count = np.stack([image for image, _ in parts]), np.stack([count for _, count in parts])
        is_observed = count > 0
        if recipe.fills_gaps and not is_observed.all():
            # Parts that are not observed get the median of those that are.
            np.copyto(pixels, median(pixels.copy(), is_observed), where=~is_observed[:, None])
        # A model needs all bands of a pixel.
        usable[y, x] = is_observed.mean(0) >= (0.5 if recipe.fills_gaps else 1)
        fewest = np.where(is_observed, count, np.iinfo(count.dtype).max).min(0)
        counts[y, x] = np.where(usable[y, x], fewest, 0)
        composite[:, y, x] = np.where(usable[y, x], pixels.reshape(-1, *pixels.shape[2:]), 0)
    return composite, usable, counts


def _merge(
    part: PeriodPart, method: CompositeMethod, scaling: Scaling, block: PixelWindow
) -> tuple[AnyArray, AnyArray]:
    """One block of one part: pixels (band, y, x) and number of valid observations (y, x)."""
    valid = np.stack([store.valid(*block) for store in part.stores])
    image = part.stores[0].array("image")
    stack = np.empty((len(part.stores), image.shape[0], *valid.shape[1:]), image.dtype)
    for number, store in enumerate(part.stores):
        stack[number] = rescale(store.read("image", *block), store.scaling, scaling)
    count = valid.sum(0, dtype=np.uint16)
    if method == "median":
        return median(stack, valid), count
    # The observation whose rank is lowest, where it is valid.
    first = np.where(valid, _rank(part, method, scaling, stack), np.inf).argmin(0)
    return np.asarray(np.take_along_axis(stack, first[None, None], 0)[0]), count


def _rank(part: PeriodPart, method: CompositeMethod, scaling: Scaling, stack: AnyArray) -> AnyArray:
    """Ranks of observations that broadcast to (date, y, x); the lowest is best."""
    store = part.stores[0]
    scale, offset = map(np.float32, scaling)
    bands = [stack[:, store.names.index(band)] * scale + offset for band in RANKING_BANDS.get(method, ())]
    if method == "greenest":
        return greenness_rank(*bands)
    if method == "clearest":
        return bands[0]
    return np.array([abs((day - part.middle).days) for day in part.days], np.float32)[:, None, None]


def median(stack: AnyArray, valid: BoolArray) -> AnyArray:
    """Median over the first axis of a stack (date, band, y, x) where (date, y, x) is valid; undefined if nowhere.

    The stack is sorted in place.
    """
    is_integer = np.issubdtype(stack.dtype, np.integer)
    np.copyto(stack, np.iinfo(stack.dtype).max if is_integer else np.inf, where=~valid[:, None])
    _sort(stack)
    count = valid.sum(0, dtype=np.intp)
    low, high = (
        np.take_along_axis(stack, np.maximum(middle, 0)[None, None], 0)[0] for middle in ((count - 1) // 2, count // 2)
    )
    if not is_integer:
        return np.asarray((low + high) * stack.dtype.type(0.5))
    total = low.astype(np.int64) + high
    # Half of the sum, rounded half to even.
    return np.asarray((total >> 1) + (total & (total >> 1) & 1), stack.dtype)


def _sort(stack: AnyArray) -> None:
    """Sort along the first axis: six times as fast as numpy's sort, since whole planes are compared."""
    lower = np.empty_like(stack[0])
    for first, second in _network(len(stack)):
        np.minimum(stack[first], stack[second], out=lower)
        np.maximum(stack[first], stack[second], out=stack[second])
        stack[first] = lower


@cache
def _network(count: int) -> tuple[tuple[int, int], ...]:
    """Comparators of Batcher's odd-even merge sort (1968, doi:10.1145/1468075.1468121) of `count` values."""
    comparators, size = [], 1
    while size < count:
        step = size
        while step:
            for first in range(step % size, count - step, 2 * step):
                rows = range(first, first + min(step, count - first - step))
                comparators += [(i, i + step) for i in rows if i // (2 * size) == (i + step) // (2 * size)]
            step //= 2
        size *= 2
    return tuple(comparators)


def greenness_rank(red: AnyArray, nir: AnyArray) -> AnyArray:
    """Minus the NDVI of reflectances (date, y, x), where the lowest is greenest.

    Values below zero count as zero. A positive NDVI is reduced in proportion where the sum of both bands is below
    `DARK`, so that a shadow with a red of zero, whose NDVI is 1, does not rank above vegetation. Pixels whose sum is
    zero are last.
    """
    red, nir = np.maximum(red, 0), np.maximum(nir, 0)
    total = red + nir
    ndvi = (nir - red) / np.where(total > 0, total, 1)
    index = np.where(ndvi > 0, ndvi * np.minimum(total / DARK, 1), ndvi)
    return np.where(total > 0, -index, np.finfo(np.float32).max)
