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
from eopipe.scenes.masks import Mask
from eopipe.scenes.warp import Resampling, read_window, warped
from eopipe.store import Layout, add_array, new_store

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

Verdict = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Recipe:
    """How a scene becomes tiles."""

    bands: list[Band]
    mask: Mask | None
    resampling: Resampling
    layout: Layout
    decibel: bool = False
    saturated: float | None = None


@dataclass
class Tally:
    """Pixels of a scene by what becomes of them: each is counted once."""

    usable: int = 0
    nodata: int = 0
    masked: int = 0
    saturated: int = 0

    def add(self, measured: Verdict, allowed: Verdict, bright: Verdict) -> Verdict:
        """Count a window; return where it is usable."""
        usable = measured & allowed & ~bright
        self.usable += int(usable.sum())
        self.nodata += int((~measured).sum())
        self.masked += int((measured & ~allowed).sum())
        self.saturated += int((measured & allowed & bright).sum())
        return usable

    def attributes(self) -> dict[str, Any]:
        """The shares that a store tells of itself."""
        count = self.usable + self.nodata + self.masked + self.saturated
        shares = {name: round(number / count, 6) for name, number in vars(self).items()}
        return {"valid_fraction": shares.pop("usable"), "quality": shares}


def write_tiles(target: Path, item: Item, grid: "GeoBox", recipe: Recipe) -> None:
    """Publish `image` (band, y, x) and `valid` (y, x) of a scene on the grid."""
    scale, offset = (1.0, 0.0) if recipe.decibel else _scaling(item, recipe.bands)
    names = tuple(band.name for band in recipe.bands)
    told = {"datetime": item["properties"].get("datetime"), "collection": item.get("collection")}
    with ExitStack() as stack:
        group = stack.enter_context(new_store(target, grid, names, scene_name(item["id"]), told))
        sources = [_opened(stack, band, item, grid, recipe.resampling) for band in recipe.bands]
        mask = _opened(stack, recipe.mask.band, item, grid, "nearest") if recipe.mask else None
        dtype = np.result_type(*(source.dtypes[0] for source in sources))
        if recipe.decibel:
            _check_power(item, recipe.bands, sources)
        shape = (int(grid.shape[0]), int(grid.shape[1]))
        image = add_array(
            group, "image", (len(names), *shape), dtype, recipe.layout, scale_factor=scale, add_offset=offset
        )
        valid = add_array(group, "valid", shape, "uint8", recipe.layout)
        tally = Tally()
        for y, x in windows(shape, recipe.layout.shard):
            image[:, y, x], valid[y, x] = _read(sources, mask, recipe, item, (y, x), tally)
        group.attrs.update(tally.attributes())


def _check_power(item: Item, bands: list[Band], sources: list[Any]) -> None:
    wrong = [b.name for b, s in zip(bands, sources, strict=True) if np.dtype(s.dtypes[0]).kind != "f"]
    if wrong:
        raise BadInputError(
            f"scene {item['id']}, asset {', '.join(wrong)} holds whole numbers, which are no linear power: "
            "they cannot become dB"
        )


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
    sources: list[Any], mask: Any, recipe: Recipe, item: Item, window: tuple[slice, slice], tally: Tally
) -> tuple[npt.NDArray[Any], Verdict]:
    """One window of all bands, and where it is usable; unusable nodata is stored as zero."""
    pixels, good = [], []
    for source, band in zip(sources, recipe.bands, strict=True):
        values, there = read_window(source, window, _where(item, band))
        if recipe.decibel:
            values, there = _decibel(values * band.scale + band.offset, there)
        pixels.append(np.where(there, values, 0).astype(values.dtype))
        good.append(there)
    image, measured = np.stack(pixels), np.all(good, axis=0)
    bright = np.zeros_like(measured)
    if recipe.saturated is not None:
        bright = np.any(image >= recipe.saturated, axis=0)
    allowed = np.ones_like(measured)
    if mask is not None and recipe.mask is not None:
        allowed = _mask(mask, recipe.mask, item, window)
    return image, tally.add(measured, allowed, bright)


def _decibel(power: npt.NDArray[Any], there: Verdict) -> tuple[npt.NDArray[Any], Verdict]:
    """Linear power in dB; there is none of what is not above zero."""
    there = there & (power > 0)
    return (10 * np.log10(np.where(there, power, 1))).astype(power.dtype), there


def _mask(source: Any, mask: Mask, item: Item, window: tuple[slice, slice]) -> Verdict:
    """What the mask asset allows on a window; the margin around it tells what reaches in from beyond."""
    edges = (source.height, source.width)
    wide = [
        slice(max(cut.start - mask.margin, 0), min(cut.stop + mask.margin, edge))
        for cut, edge in zip(window, edges, strict=True)
    ]
    good = mask.usable(*read_window(source, (wide[0], wide[1]), _where(item, mask.band)))
    y, x = (slice(cut.start - far.start, cut.stop - far.start) for cut, far in zip(window, wide, strict=True))
    return good[y, x]
