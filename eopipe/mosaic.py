"""Maps: predict a scene or a mosaic of scenes window by window, without seams and in bounded memory."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eopipe.grid import windows
from eopipe.publish import publish
from eopipe.samples.chips import Normaliser
from eopipe.store import NO_LABEL, Tiles

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

Floats = npt.NDArray[np.float32]
Predict = Callable[[Floats], Floats]
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
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Normalised image (band, y, x) and valid mask of a window; zeros and False beyond the raster."""
    height, width = tiles.shape
    inner_y, inner_x = slice(max(y.start, 0), min(y.stop, height)), slice(max(x.start, 0), min(x.stop, width))
    order = [tiles.names.index(band) for band in bands]
    valid = tiles.read("valid", inner_y, inner_x) > 0
    image = normalise(tiles.read("image", inner_y, inner_x)[order], tiles.scaling, valid)
    pad = ((inner_y.start - y.start, y.stop - inner_y.stop), (inner_x.start - x.start, x.stop - inner_x.stop))
    return np.pad(image, ((0, 0), *pad)), np.pad(valid, pad)


def probabilities(
    stores: list[Tiles],
    bands: tuple[str, ...],
    normalise: Normaliser,
    predict: Predict,
    classes: int,
    *,
    edge: int,
    halo: int,
    factor: int,
) -> Iterator[tuple[slice, slice, Floats, npt.NDArray[np.int64]]]:
    """For each window: its place, mean class probabilities over valid scenes (class, y, x), and their number."""
    shape = stores[0].shape
    for y, x in windows(shape, edge):
        wide_y, wide_x = cut(shape[0], y, halo, factor), cut(shape[1], x, halo, factor)
        core = (
            slice(y.start - wide_y.start, y.stop - wide_y.start),
            slice(x.start - wide_x.start, x.stop - wide_x.start),
        )
        total = np.zeros((classes, y.stop - y.start, x.stop - x.start), np.float64)
        seen = np.zeros(total.shape[1:], np.int64)
        for store in stores:
            image, valid = read_padded(store, bands, normalise, wide_y, wide_x)
            if valid[core].any():
                total += predict(image[None])[0][(slice(None), *core)] * valid[core]
                seen += valid[core]
        yield y, x, (total / np.maximum(seen, 1)).astype(np.float32), seen


@contextmanager
def new_map(
    target: Path, grid: "GeoBox", dtype: str, nodata: int, names: tuple[str, ...], **tags: Any
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
    parts: Iterator[tuple[slice, slice, Floats, npt.NDArray[np.int64]]],
    grid: "GeoBox",
    names: tuple[str, ...],
    classes: Path,
    chances: Path,
    scenes: list[str],
) -> None:
    """Write the COG of classes (uint8, 255 no scene) and the one of probabilities (uint16, scale 1/10000).

    Both name the scenes that they were made from.
    """
    from rasterio.windows import Window

    with ExitStack() as stack:
        told = " ".join(scenes)
        legend = ", ".join(f"{n}={name}" for n, name in enumerate(names))
        tags = {"classes": legend, "scenes": told}
        class_map = stack.enter_context(new_map(classes, grid, "uint8", NO_LABEL, ("class",), **tags))
        chance_map = stack.enter_context(new_map(chances, grid, "uint16", NO_PROBABILITY, names, **tags))
        chance_map.scales = [1 / SCALE] * len(names)
        for y, x, chance, seen in parts:
            there, box = seen > 0, Window.from_slices(y, x)
            class_map.write(np.where(there, chance.argmax(0), NO_LABEL).astype(np.uint8), 1, window=box)
            stored = np.where(there, np.rint(chance * SCALE), NO_PROBABILITY).astype(np.uint16)
            chance_map.write(stored, window=box)
