"""Write one scene as tiles: part by part on all cores, so that memory does not grow with the scene."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.errors import BadInputError
from eopipe.scenes.item import Item, SceneBand, scene_name
from eopipe.scenes.masks import Mask
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.layout import ArrayWriter, Layout, ShardRegion, check_file_budget, shard_regions
from eopipe.tiles.store import add_array, new_store
from eopipe.warp.open_raster import SETTINGS
from eopipe.warp.readers import BandOpener, BandReader
from eopipe.warp.separable import Resampling

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

T = TypeVar("T")
R = TypeVar("R")
# Rows that are read at a time, and how many times the margin of a mask, so that it is not read over and over.
ROWS, MARGINS = 256, 4


@dataclass(frozen=True)
class TileRecipe:
    """How a scene becomes tiles."""

    bands: list[SceneBand]
    mask: Mask | None
    resampling: Resampling
    layout: Layout
    decibel: bool = False
    saturated: float | None = None


@dataclass
class PixelCounts:
    """Pixels of a scene by what becomes of them: each is counted once."""

    usable: int = 0
    nodata: int = 0
    masked: int = 0
    saturated: int = 0

    def add(self, other: "PixelCounts") -> None:
        """Add the pixels of a part."""
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)

    def attributes(self, odd: int) -> dict[str, Any]:
        """What a store tells of its pixels: shares, and how many numbers of the assets are not finite."""
        count = self.usable + self.nodata + self.masked + self.saturated
        shares = {name: round(number / count, 6) for name, number in vars(self).items()}
        return {"valid_fraction": shares.pop("usable"), "quality": shares | {"not_finite": odd}}


@dataclass(frozen=True)
class OpenScene:
    """The opened bands of a scene on a grid."""

    item: Item
    shape: tuple[int, int]
    recipe: TileRecipe
    bands: list[BandReader]
    mask: BandReader | None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type that holds the pixels of every band."""
        return np.result_type(*(band.dtype for band in self.bands))

    @property
    def odd(self) -> int:
        """Numbers of the bands that are not finite though nothing declares them to be no data."""
        return sum(band.odd for band in self.bands)

    def plan(self, found: list[ShardRegion]) -> None:
        """Tell the readers what will be read, in order."""
        for band in self.bands:
            band.plan([part.window for part in found])
        if self.mask:
            self.mask.plan([self.wide(part.window) for part in found])

    def release(self, turn: int) -> None:
        """Forget what only the parts up to this one needed."""
        for reader in (*self.bands, *([self.mask] if self.mask else [])):
            reader.release(turn)

    def wide(self, window: PixelWindow) -> PixelWindow:
        """A window with the margin that its mask depends on."""
        margin = self.recipe.mask.margin if self.recipe.mask else 0
        rows, columns = (
            slice(max(cut.start - margin, 0), min(cut.stop + margin, edge))
            for cut, edge in zip(window, self.shape, strict=True)
        )
        return rows, columns

    def read(self, window: PixelWindow, image: AnyArray) -> tuple[BoolArray, PixelCounts]:
        """Fill `image` (band, y, x) with a window, zero for no data; where pixels are usable, and the count of all."""
        cuts: dict[Any, Any] = {}
        measured = np.ones(image.shape[1:], bool)
        for number, (reader, band) in enumerate(zip(self.bands, self.recipe.bands, strict=True)):
            out = image[number]
            there = reader.read(window, cuts, out)
            if self.recipe.decibel:
                there = _decibel(out, band, there)
            if there is not None:
                np.copyto(out, 0, where=~there)
                measured &= there
        return self._judge(image, measured, self._allowed(window))

    def _judge(self, image: AnyArray, measured: BoolArray, allowed: BoolArray | None) -> tuple[BoolArray, PixelCounts]:
        good = measured if allowed is None else measured & allowed
        usable = good
        if self.recipe.saturated is not None:
            usable = good & ~np.any(image >= self.recipe.saturated, axis=0)
        counts = [int(np.count_nonzero(mask)) for mask in (measured, good, usable)]
        return usable, PixelCounts(counts[2], usable.size - counts[0], counts[0] - counts[1], counts[1] - counts[2])

    def _allowed(self, window: PixelWindow) -> BoolArray | None:
        """What the mask asset allows on a window; the margin around it tells what reaches in from beyond."""
        if self.mask is None or self.recipe.mask is None:
            return None
        wide = self.wide(window)
        values = np.empty([cut.stop - cut.start for cut in wide], self.mask.dtype)
        there = self.mask.read(wide, {}, values)
        good = self.recipe.mask.usable(values, np.ones(values.shape, bool) if there is None else there)
        y, x = (slice(cut.start - far.start, cut.stop - far.start) for cut, far in zip(window, wide, strict=True))
        return good[y, x]


@dataclass(frozen=True)
class EncodedRegion:
    """A part of the store, coded."""

    image: list[list[bytes]]
    valid: list[list[bytes]]
    tally: PixelCounts = field(default_factory=PixelCounts)


def write_tiles(
    target: Path, item: Item, grid: "GeoBox", recipe: TileRecipe, *, threads: int = 0, max_files: int | None = None
) -> None:
    """Publish `image` (band, y, x) and `valid` (y, x) of a scene on the grid; the bytes do not depend on `threads`.

    0 threads are as many as there are cores. Raises NoSpaceError where the store would take more than `max_files`.
    """
    shape = (int(grid.shape[0]), int(grid.shape[1]))
    check_file_budget(shape, recipe.layout, 2, max_files)
    scale, offset = (1.0, 0.0) if recipe.decibel else _scaling(item, recipe.bands)
    names = tuple(band.name for band in recipe.bands)
    told = {"datetime": item["properties"].get("datetime"), "collection": item.get("collection")}
    with ExitStack() as stack:
        scene = open_scene(stack, item, grid, recipe)
        group = stack.enter_context(new_store(target, grid, names, scene_name(item["id"]), told))
        stored = {"scale_factor": scale, "add_offset": offset}
        image = add_array(group, "image", (len(names), *shape), scene.dtype, recipe.layout, **stored)
        valid = add_array(group, "valid", shape, "uint8", recipe.layout)
        tally = _write(scene, ArrayWriter(image, recipe.layout), ArrayWriter(valid, recipe.layout), threads)
        group.attrs.update(tally.attributes(scene.odd))


def open_scene(stack: ExitStack, item: Item, grid: "GeoBox", recipe: TileRecipe) -> OpenScene:
    """Open the bands and the mask of a scene on a grid, until the stack closes."""
    import rasterio

    stack.enter_context(rasterio.Env(**SETTINGS))
    placer = BandOpener(grid, stack)
    bands = [placer.reader(band, recipe.resampling, _where(item, band)) for band in recipe.bands]
    if recipe.decibel:
        _check_power(item, recipe.bands, bands)
    mask = placer.reader(recipe.mask.band, "nearest", _where(item, recipe.mask.band)) if recipe.mask else None
    return OpenScene(item, (int(grid.shape[0]), int(grid.shape[1])), recipe, bands, mask)


def _write(scene: OpenScene, image: ArrayWriter, valid: ArrayWriter, threads: int) -> PixelCounts:
    margin = scene.recipe.mask.margin if scene.recipe.mask else 0
    found = shard_regions(scene.shape, scene.recipe.layout, max(ROWS, MARGINS * margin))
    scene.plan(found)

    def make(part: ShardRegion) -> EncodedRegion:
        shape = [cut.stop - cut.start for cut in part.window]
        pixels = np.empty((len(scene.bands), *shape), scene.dtype)
        usable, tally = scene.read(part.window, pixels)
        return EncodedRegion(image.encode(pixels), valid.encode(usable.view(np.uint8)), tally)

    total = PixelCounts()
    for turn, (part, made) in enumerate(zip(found, map_in_order(make, found, threads), strict=True)):
        image.write(part, made.image)
        valid.write(part, made.valid)
        total.add(made.tally)
        scene.release(turn)
    return total


def map_in_order(make: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Results in the order of the items, made by threads (0: as many as cores) that run only little ahead."""
    count = threads or len(os.sched_getaffinity(0))
    pool, ahead = ThreadPoolExecutor(count), deque[Future[R]]()
    try:
        for item in items:
            ahead.append(pool.submit(make, item))
            if len(ahead) > count + 1:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _check_power(item: Item, bands: list[SceneBand], readers: list[BandReader]) -> None:
    wrong = [band.name for band, reader in zip(bands, readers, strict=True) if reader.dtype.kind != "f"]
    if wrong:
        raise BadInputError(
            f"scene {item['id']}, asset {', '.join(wrong)} holds whole numbers, which are no linear power: "
            "they cannot become dB"
        )


def _scaling(item: Item, bands: list[SceneBand]) -> tuple[float, float]:
    """One scale and offset for the whole image; the bands of a sensor share them."""
    found = sorted({(band.scale, band.offset) for band in bands})
    if len(found) > 1:
        raise BadInputError(
            f"bands of scene {item['id']} have different scales and offsets {found}; choose bands of one kind"
        )
    return found[0]


def _where(item: Item, band: SceneBand) -> str:
    return f"scene {item['id']}, asset {band.name}"


def _decibel(values: AnyArray, band: SceneBand, there: BoolArray | None) -> BoolArray:
    """Turn stored power into dB, in place; there is none of what is not above zero."""
    power = values * band.scale + band.offset
    seen: BoolArray = power > 0 if there is None else there & (power > 0)
    values[...] = 10 * np.log10(np.where(seen, power, 1))
    return seen
