"""Write one scene as tiles: region by region on all cores, so that memory does not grow with the scene."""

import logging
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray
from eopipe.errors import BadInputError, OutsideGridError
from eopipe.processes import map_in_order
from eopipe.scenes.item import Item, SceneBand, scene_name, time_attributes
from eopipe.scenes.masks import Mask
from eopipe.scenes.products import origin_attributes
from eopipe.tiles.cells import Frame
from eopipe.tiles.geotiff import SETTINGS
from eopipe.tiles.grid import PixelWindow, within
from eopipe.tiles.layout import ArrayWriter, Layout, ShardRegion, crop_cell, shard_regions
from eopipe.tiles.store import LEFT_OUT, CellPart, add_array, declare_nodata, new_cell_stores
from eopipe.warp.footprints import covered_window
from eopipe.warp.open_raster import check_location, compare_with_item, open_band
from eopipe.warp.readers import BandOpener, BandReader
from eopipe.warp.separable import Resampling

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

log = logging.getLogger("eopipe")
# Minimum rows of a region: an absolute number, and a multiple of a mask's margin, which is read again for each region.
MIN_ROWS, MIN_MARGINS = 256, 4


@dataclass(frozen=True)
class TileRecipe:
    """How a scene becomes tiles; `saturated` is the stored number from which on a pixel is saturated."""

    bands: list[SceneBand]
    mask: Mask | None
    resampling: Resampling
    layout: Layout
    decibel: bool = False
    saturated: float | None = None


@dataclass
class PixelCounts:
    """Pixels of a scene, each counted once: as usable, or by the reason why not."""

    usable: int = 0
    nodata: int = 0
    masked: int = 0
    saturated: int = 0
    # Numbers in the bands that are data and 0, the number that the store has for nodata.
    zeros: int = 0

    def add(self, other: "PixelCounts") -> None:
        """Add the pixels of another region."""
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)

    def attributes(self, non_finite: int) -> dict[str, Any]:
        """Attributes of the store: fractions of all pixels, and the number of NaN and infinite pixels in the assets."""
        count = self.usable + self.nodata + self.masked + self.saturated
        fractions = {name: round(number / count, 6) for name, number in vars(self).items() if name != "zeros"}
        return {"valid_fraction": fractions.pop("usable"), "quality": fractions | {"not_finite": non_finite}}


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
        """The data type that holds the pixels of every band."""
        return np.result_type(*(band.dtype for band in self.bands))

    @property
    def non_finite(self) -> int:
        """Number of NaN and infinite pixels of the bands that are not declared as nodata."""
        return sum(band.non_finite for band in self.bands)

    def plan(self, regions: list[ShardRegion]) -> None:
        """Announce to the readers what will be read, in order."""
        for band in self.bands:
            band.plan([region.window for region in regions])
        if self.mask:
            self.mask.plan([self.with_margin(region.window) for region in regions])

    def release(self, number: int) -> None:
        """Drop what only the regions up to this one needed."""
        for reader in (*self.bands, *([self.mask] if self.mask else [])):
            reader.release(number)

    def with_margin(self, window: PixelWindow) -> PixelWindow:
        """A window with the margin of pixels that dilation of the mask depends on."""
        margin = self.recipe.mask.margin if self.recipe.mask else 0
        rows, columns = (
            slice(max(axis.start - margin, 0), min(axis.stop + margin, edge))
            for axis, edge in zip(window, self.shape, strict=True)
        )
        return rows, columns

    def read(self, window: PixelWindow, image: AnyArray) -> tuple[BoolArray, PixelCounts]:
        """Fill `image` (band, y, x) with a window, zero for nodata; return the valid mask (y, x) and the counts."""
        shared: dict[Any, Any] = {}
        has_data, zeros = np.ones(image.shape[1:], bool), 0
        for number, (reader, band) in enumerate(zip(self.bands, self.recipe.bands, strict=True)):
            out = image[number]
            valid = reader.read(window, shared, out)
            if self.recipe.decibel:
                valid = _to_decibel(out, band, valid)
            if valid is not None:
                np.copyto(out, 0, where=~valid)
                has_data &= valid
            zeros += int((out.size if valid is None else np.count_nonzero(valid)) - np.count_nonzero(out))
        usable, counts = self._classify(image, has_data, self._unmasked(window))
        return usable, replace(counts, zeros=zeros)

    def _classify(
        self, image: AnyArray, has_data: BoolArray, unmasked: BoolArray | None
    ) -> tuple[BoolArray, PixelCounts]:
        clear = has_data if unmasked is None else has_data & unmasked
        usable = clear
        if self.recipe.saturated is not None:
            usable = clear & ~np.any(image >= self.recipe.saturated, axis=0)
        data, clear_data, used = (int(np.count_nonzero(mask)) for mask in (has_data, clear, usable))
        return usable, PixelCounts(used, usable.size - data, data - clear_data, clear_data - used)

    def _unmasked(self, window: PixelWindow) -> BoolArray | None:
        """The pixels of a window that the mask asset does not exclude, with dilation from outside of the window."""
        if self.mask is None or self.recipe.mask is None:
            return None
        padded = self.with_margin(window)
        values = np.empty([axis.stop - axis.start for axis in padded], self.mask.dtype)
        valid = self.mask.read(padded, {}, values)
        usable = self.recipe.mask.usable(values, np.ones(values.shape, bool) if valid is None else valid)
        return usable[within(window, padded)]


@dataclass(frozen=True)
class EncodedRegion:
    """A region of the store as rows of encoded chunks."""

    image: list[list[bytes]]
    valid: list[list[bytes]]
    counts: PixelCounts = field(default_factory=PixelCounts)


def write_tiles(target: Path, item: Item, frame: Frame, recipe: TileRecipe, *, threads: int = 0) -> None:
    """Publish `image` (band, y, x) and `valid` (y, x) of a scene; the bytes do not depend on `threads`.

    The store holds the whole chunks that the scene reaches, of several cells in a group each. 0 threads means one per
    core.
    """
    windows, scene = _windows_of_scene(item, frame, recipe), scene_name(item["id"])
    recipe = _compared(item, frame, recipe)
    names = tuple(band.name for band in recipe.bands)
    attributes = _times(item) | {"collection": item.get("collection")}
    attributes |= _declared(item, recipe) | origin_attributes(item)
    total = PixelCounts()
    with new_cell_stores(target, frame, names, scene, attributes, windows) as (root, groups):
        for group, (_, grid, _) in zip(groups, windows, strict=True):
            total.add(_write_cell(group, item, grid, recipe, threads))
        qualities: list[Any] = [group.attrs["quality"] for group in groups]
        root.update_attributes(total.attributes(sum(quality["not_finite"] for quality in qualities)))
    if not total.usable:
        log.warning(
            "event=scene_without_pixels scene=%s nodata=%d masked=%d saturated=%d left_out_by=split",
            scene,
            total.nodata,
            total.masked,
            total.saturated,
        )


def write_left_out(target: Path, item: Item, frame: Frame, names: tuple[str, ...], layout: Layout, reason: str) -> None:
    """Publish the store of a scene whose data cannot be used: one chunk of a cell without a valid pixel, and why."""
    scene, cell = scene_name(item["id"]), frame.cells[0]
    grid, window = crop_cell(frame, cell, [(slice(0, 1), slice(0, 1))], layout)
    shape, counts = (int(grid.shape[0]), int(grid.shape[1])), PixelCounts(nodata=1)
    attributes = {"collection": item.get("collection"), LEFT_OUT: {scene: reason}} | counts.attributes(0)
    with suppress(BadInputError):
        attributes |= _times(item)
    with new_cell_stores(target, frame, names, scene, attributes, [(cell, grid, window)]) as (_, (group,)):
        # The narrowest type, since training reads chips in the type that holds the numbers of all stores.
        image = add_array(group, "image", (len(names), *shape), "uint8", layout, scale_factor=1.0, add_offset=0.0)
        declare_nodata(image)
        image[:], add_array(group, "valid", shape, "uint8", layout)[:] = 0, 0
    log.warning("event=scene_left_out scene=%s reason=%r", scene, reason)


def _compared(item: Item, frame: Frame, recipe: TileRecipe) -> TileRecipe:
    """Compare bands and mask with the item, once for all cells; with the scaling of the files where it states none."""
    grids = [cell.grid for cell in frame.cells]
    bands = [compare_with_item(band, _asset_name(item, band), grids) for band in recipe.bands]
    if recipe.mask:
        compare_with_item(recipe.mask.band, _asset_name(item, recipe.mask.band), grids)
    return replace(recipe, bands=bands)


def _write_cell(group: Any, item: Item, grid: "GeoBox", recipe: TileRecipe, threads: int) -> PixelCounts:
    """Write the arrays of a scene on a grid into a group of its store."""
    shape = (int(grid.shape[0]), int(grid.shape[1]))
    scale, offset = (1.0, 0.0) if recipe.decibel else _scaling(item, recipe.bands)
    with ExitStack() as stack:
        scene = open_scene(stack, item, grid, recipe)
        _check_offsets(item, recipe.bands, scene.bands)
        scaling = {"scale_factor": scale, "add_offset": offset}
        image = add_array(group, "image", (len(recipe.bands), *shape), scene.dtype, recipe.layout, **scaling)
        valid = add_array(group, "valid", shape, "uint8", recipe.layout)
        counts = _write(scene, ArrayWriter(image, recipe.layout), ArrayWriter(valid, recipe.layout), threads)
        group.update_attributes(counts.attributes(scene.non_finite))
        if not counts.zeros:
            declare_nodata(image)
    return counts


def _windows_of_scene(item: Item, frame: Frame, recipe: TileRecipe) -> list[CellPart]:
    """The cells that the bands of a scene reach, of each that part in whole chunks, and its window in the frame.

    The window is None where the only cell is reached as a whole. Raises BadInputError for a scene outside of all cells.
    """
    import rasterio

    windows: dict[str, list[PixelWindow]] = {cell.id: [] for cell in frame.cells}
    with rasterio.Env(**SETTINGS):
        for band in recipe.bands:
            with open_band(band, name := _asset_name(item, band)) as (source, _):
                errors = []
                for cell in frame.cells:
                    try:
                        check_location(source, cell.grid, name)
                    except OutsideGridError as error:
                        errors.append(error)
                        continue
                    crs, size = source.crs.to_wkt(), source.shape
                    windows[cell.id].append(covered_window(crs, source.transform, size, cell.grid))
                if len(errors) == len(frame.cells):
                    raise errors[0]
    return [
        (cell, *crop_cell(frame, cell, windows[cell.id], recipe.layout)) for cell in frame.cells if windows[cell.id]
    ]


def open_scene(stack: ExitStack, item: Item, grid: "GeoBox", recipe: TileRecipe) -> OpenScene:
    """Open the bands and the mask of a scene on a grid, until the stack closes."""
    import rasterio

    stack.enter_context(rasterio.Env(**SETTINGS))
    opener = BandOpener(grid, stack)
    bands = [opener.open(band, recipe.resampling, _asset_name(item, band)) for band in recipe.bands]
    if recipe.decibel:
        _check_power(item, recipe.bands, bands)
    mask = opener.open(recipe.mask.band, "nearest", _asset_name(item, recipe.mask.band)) if recipe.mask else None
    return OpenScene(item, (int(grid.shape[0]), int(grid.shape[1])), recipe, bands, mask)


def _write(scene: OpenScene, image: ArrayWriter, valid: ArrayWriter, threads: int) -> PixelCounts:
    margin = scene.recipe.mask.margin if scene.recipe.mask else 0
    regions = shard_regions(scene.shape, scene.recipe.layout, max(MIN_ROWS, MIN_MARGINS * margin))
    scene.plan(regions)

    def encode(region: ShardRegion) -> EncodedRegion:
        shape = [axis.stop - axis.start for axis in region.window]
        pixels = np.empty((len(scene.bands), *shape), scene.dtype)
        usable, counts = scene.read(region.window, pixels)
        return EncodedRegion(image.encode(pixels), valid.encode(usable.view(np.uint8)), counts)

    total = PixelCounts()
    encoded_regions = map_in_order(encode, regions, threads)
    for number, (region, encoded) in enumerate(zip(regions, encoded_regions, strict=True)):
        image.write(region, encoded.image)
        valid.write(region, encoded.valid)
        total.add(encoded.counts)
        scene.release(number)
    return total


def _check_power(item: Item, bands: list[SceneBand], readers: list[BandReader]) -> None:
    integers = [band.name for band, reader in zip(bands, readers, strict=True) if reader.dtype.kind != "f"]
    if integers:
        raise BadInputError(
            f"scene {item['id']}, asset {', '.join(integers)} holds integers, not linear power: "
            "preprocess.decibel converts floating-point power only"
        )


def _check_offsets(item: Item, bands: list[SceneBand], readers: list[BandReader]) -> None:
    """Refuse stored integers whose offset is not known; floating-point pixels have none."""
    doubts: dict[str, list[str]] = {}
    for band, reader in zip(bands, readers, strict=True):
        if band.doubt and reader.dtype.kind != "f":
            doubts.setdefault(band.doubt, []).append(band.name)
    if doubts:
        sentences = (f"asset {', '.join(names)} {doubt}" for doubt, names in doubts.items())
        raise BadInputError(f"scene {item['id']}: {'; '.join(sentences)}")


def _scaling(item: Item, bands: list[SceneBand]) -> tuple[float, float]:
    """The scale and offset of the whole image, which all bands share."""
    scalings = sorted({(band.scale, band.offset) for band in bands})
    if len(scalings) > 1:
        raise BadInputError(
            f"bands of scene {item['id']} have different scales and offsets {scalings}; "
            "choose bands with the same scale and offset"
        )
    return scalings[0]


def _declared(item: Item, recipe: TileRecipe) -> dict[str, str]:
    """Unit and processing level of the image, where the item declares them for all bands; dB after a conversion."""
    units = {"dB"} if recipe.decibel else {band.unit for band in recipe.bands}
    values = {"unit": units.pop() if len(units) == 1 else "", "level": item["properties"].get("processing:level")}
    return {name: str(value) for name, value in values.items() if value}


def _times(item: Item) -> dict[str, Any]:
    try:
        return time_attributes(item["properties"])
    except ValueError as error:
        raise BadInputError(f"scene {item['id']} has no valid time: {error}") from error


def _asset_name(item: Item, band: SceneBand) -> str:
    return f"scene {item['id']}, asset {band.name}"


def _to_decibel(values: AnyArray, band: SceneBand, valid: BoolArray | None) -> BoolArray:
    """Convert stored power to dB, in place; pixels that are not above zero are not valid."""
    power = values * band.scale + band.offset
    positive: BoolArray = power > 0 if valid is None else valid & (power > 0)
    values[...] = 10 * np.log10(np.where(positive, power, 1))
    return positive
