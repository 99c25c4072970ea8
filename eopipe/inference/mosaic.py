"""Maps: predict a scene or a mosaic of scenes window by window, without seams and in bounded memory."""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray, IntArray
from eopipe.chips.chips import Normaliser
from eopipe.publish import publish
from eopipe.tiles.grid import windows
from eopipe.tiles.store import NO_LABEL, Tiles

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

    from eopipe.models.model_folder import TrainedModel

Part = tuple[slice, slice, FloatArray, IntArray]
Predict = Callable[[FloatArray], FloatArray]
SCALE = 10_000
NO_PROBABILITY = 65_535


def cut(edge: int, window: slice, halo: int, factor: int) -> slice:
    """A window with its halo, widened so that it starts on a multiple of the model's factor.

    Pooling then falls on the same pixels in every window. It may reach beyond the raster.
    """
    start = (window.start - halo) // factor * factor
    stop = -(-(min(window.stop, edge) + halo) // factor) * factor
    return slice(start, stop)


def read_padded(
    tiles: Tiles, bands: tuple[str, ...], normalise: Normaliser, y: slice, x: slice
) -> tuple[FloatArray, BoolArray]:
    """Normalised image (band, y, x) and valid mask of a window; zeros and False beyond the raster."""
    height, width = tiles.shape
    inner_y, inner_x = slice(max(y.start, 0), min(y.stop, height)), slice(max(x.start, 0), min(x.stop, width))
    order = [tiles.names.index(band) for band in bands]
    valid = tiles.read("valid", inner_y, inner_x) > 0
    image = normalise(tiles.read("image", inner_y, inner_x)[order], tiles.scaling, valid)
    pad = ((inner_y.start - y.start, y.stop - inner_y.stop), (inner_x.start - x.start, x.stop - inner_x.stop))
    return np.pad(image, ((0, 0), *pad)), np.pad(valid, pad)


@dataclass(frozen=True)
class Look:
    """A model before scenes of one grid: it sees windows of an edge with a halo, in pixels, cut by its factor."""

    stores: list[Tiles]
    bands: tuple[str, ...]
    normalise: Normaliser
    predict: Predict
    edge: int
    halo: int
    factor: int

    def windows(self) -> list[tuple[slice, slice]]:
        """Windows (rows, columns) that cover the grid."""
        return windows(self.stores[0].shape, self.edge)

    def answers(self, y: slice, x: slice) -> Iterator[tuple[FloatArray, BoolArray]]:
        """What the model says of a window (channel, y, x), and where it is valid, for each scene that is somewhere."""
        shape = self.stores[0].shape
        wide_y, wide_x = cut(shape[0], y, self.halo, self.factor), cut(shape[1], x, self.halo, self.factor)
        core = (
            slice(y.start - wide_y.start, y.stop - wide_y.start),
            slice(x.start - wide_x.start, x.stop - wide_x.start),
        )
        for store in self.stores:
            image, valid = read_padded(store, self.bands, self.normalise, wide_y, wide_x)
            if valid[core].any():
                yield self.predict(image[None])[0][(slice(None), *core)], valid[core]


def probabilities(look: Look, classes: int) -> Iterator[Part]:
    """For each window: its place, mean class probabilities over valid scenes (class, y, x), and their number."""
    for y, x in look.windows():
        total = np.zeros((classes, y.stop - y.start, x.stop - x.start), np.float64)
        seen = np.zeros(total.shape[1:], np.int64)
        for chances, valid in look.answers(y, x):
            total += chances * valid
            seen += valid
        yield y, x, (total / np.maximum(seen, 1)).astype(np.float32), seen


def values(look: Look) -> Iterator[Part]:
    """For each window: its place, mean value over valid scenes and standard deviation among them, and their number.

    Mean and squares are updated scene by scene (Welford 1962, doi:10.1080/00401706.1962.10490022).
    """
    for y, x in look.windows():
        mean = np.zeros((y.stop - y.start, x.stop - x.start), np.float64)
        squares, seen = np.zeros_like(mean), np.zeros(mean.shape, np.int64)
        for (found, *_), valid in look.answers(y, x):
            seen += valid
            apart = np.where(valid, found - mean, 0)
            mean += apart / np.maximum(seen, 1)
            squares += apart * np.where(valid, found - mean, 0)
        spread = np.sqrt(squares / np.maximum(seen, 1))
        yield y, x, np.stack([mean, spread]).astype(np.float32), seen


def cells(look: Look, classes: int, chip: int) -> Iterator[Part]:
    """For each window: its place, class probabilities (class, y, x), constant in each cell of `chip` pixels.

    Each cell is a chip that the model looks at alone, so there is no seam but that between cells. A scene counts by its
    valid pixels in the cell; at the rim a cell may reach beyond the grid. `look.edge` holds whole cells.
    """
    for y, x in look.windows():
        high, wide = (-(-(part.stop - part.start) // chip) for part in (y, x))
        total, seen = np.zeros((high * wide, classes), np.float64), np.zeros(high * wide, np.int64)
        for store in look.stores:
            reach = slice(y.start, y.start + high * chip), slice(x.start, x.start + wide * chip)
            image, valid = read_padded(store, look.bands, look.normalise, *reach)
            weight = _chips(valid[None], chip).sum((1, 2, 3))
            if there := np.flatnonzero(weight).tolist():
                total[there] += look.predict(_chips(image, chip)[there])[:, :, 0, 0] * weight[there, None]
                seen += weight
        chance = (total / np.maximum(seen, 1)[:, None]).astype(np.float32).T.reshape(classes, high, wide)
        crop = np.s_[..., : y.stop - y.start, : x.stop - x.start]
        yield y, x, _spread(chance, chip)[crop], _spread(seen.reshape(high, wide), chip)[crop]


def _chips(image: AnyArray, chip: int) -> AnyArray:
    """(band, y, x) of whole cells to (cell, band, chip, chip), row by row."""
    bands, height, width = image.shape
    parts = image.reshape(bands, height // chip, chip, width // chip, chip).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(parts.reshape(-1, bands, chip, chip))


def _spread(numbers: AnyArray, chip: int) -> AnyArray:
    return numbers.repeat(chip, -2).repeat(chip, -1)


@contextmanager
def new_map(
    target: Path, grid: "GeoBox", dtype: str, nodata: float, names: tuple[str, ...], **tags: Any
) -> Iterator[Any]:
    """Publish a COG: the block writes windows into a tiled GeoTIFF, which is then copied with overviews."""
    import rasterio
    from rasterio.shutil import copy

    height, width = grid.shape
    profile = {
        "driver": "GTiff",
        "dtype": dtype,
        "nodata": nodata,
        "count": len(names),
        "width": width,
        "height": height,
    }
    profile |= {"crs": str(grid.crs), "transform": grid.affine, "tiled": True, "blockxsize": 256, "blockysize": 256}
    with publish(target) as draft:
        plain = draft.with_name("windows.tif")
        with rasterio.open(plain, "w", **profile, BIGTIFF="IF_SAFER") as file:
            file.descriptions = names
            file.update_tags(**tags)
            yield file
        copy(plain, draft, driver="COG", COMPRESS="DEFLATE", NUM_THREADS="1", OVERVIEW_RESAMPLING="NEAREST")
        plain.unlink()


def write_maps(
    parts: Iterator[Part],
    grid: "GeoBox",
    names: tuple[str, ...],
    classes: Path,
    chances: Path,
    scenes: list[str],
    **about: Any,
) -> None:
    """Write the COG of classes (uint8, 255 no scene) and the one of probabilities (uint16, scale 1/10000).

    Both name the scenes that they were made from, and tell what else is said about them.
    """
    from rasterio.windows import Window

    with ExitStack() as stack:
        told = " ".join(scenes)
        legend = ", ".join(f"{n}={name}" for n, name in enumerate(names))
        tags = {"classes": legend, "scenes": told} | about
        class_map = stack.enter_context(new_map(classes, grid, "uint8", NO_LABEL, ("class",), **tags))
        chance_map = stack.enter_context(new_map(chances, grid, "uint16", NO_PROBABILITY, names, **tags))
        chance_map.scales = [1 / SCALE] * len(names)
        for y, x, chance, seen in parts:
            there, box = seen > 0, Window.from_slices(y, x)
            class_map.write(np.where(there, chance.argmax(0), NO_LABEL).astype(np.uint8), 1, window=box)
            stored = np.where(there, np.rint(chance * SCALE), NO_PROBABILITY).astype(np.uint16)
            chance_map.write(stored, window=box)


def write_values(
    parts: Iterator[Part],
    grid: "GeoBox",
    quantity: tuple[str, str],
    found: Path,
    spread: Path,
    scenes: list[str],
) -> None:
    """Write the COG of values (float32, NaN no scene) of a quantity with its unit, and one of how far they agree.

    That has the standard deviation among the scenes of each pixel, 0 for a single one, and their number.
    """
    from rasterio.windows import Window

    (name, unit), told = quantity, " ".join(scenes)
    tags = {"quantity": name, "unit": unit, "scenes": told, "task": "regression"}
    bands = (f"standard deviation of {name}", "scenes")
    with (
        new_map(found, grid, "float32", math.nan, (name,), **tags) as values_map,
        new_map(spread, grid, "float32", math.nan, bands, **tags) as spread_map,
    ):
        values_map.units, spread_map.units = (unit,), (unit, "1")
        for y, x, both, seen in parts:
            there, box = seen > 0, Window.from_slices(y, x)
            values_map.write(np.where(there, both[0], np.float32(math.nan)), 1, window=box)
            told_of = np.stack([both[1], seen]).astype(np.float32)
            spread_map.write(np.where(there, told_of, np.float32(math.nan)), window=box)


def write_answers(look: Look, trained: "TrainedModel", found: Path, sure: Path) -> None:
    """Write both maps of a model's task: classes and probabilities, or values and how far the scenes agree."""
    grid, scenes, names = look.stores[0].grid, [store.scene for store in look.stores], trained.classes
    if trained.task == "regression":
        write_values(values(look), grid, (names[0], trained.unit), found, sure, scenes)
    elif trained.task == "classification":
        look = replace(look, edge=max(look.edge // trained.chip, 1) * trained.chip)
        about = {"task": trained.task, "chip": trained.chip}
        write_maps(cells(look, len(names), trained.chip), grid, names, found, sure, scenes, **about)
    else:
        write_maps(probabilities(look, len(names)), grid, names, found, sure, scenes)
