"""The picture of one store: natural colours with what is not valid tinted, or the classes of labels."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from eopipe.arrays import BoolArray, UInt8Array
from eopipe.chips.chips import is_continuous, unit_of
from eopipe.reporting.palette import class_colors, rgb
from eopipe.reporting.pictures import stretched
from eopipe.reporting.rasters import Thin, pick, thin
from eopipe.reporting.values import COLORS, Scale
from eopipe.tiles.store import NO_LABEL, Tiles

if TYPE_CHECKING:
    from PIL.Image import Image

MASKED, TINT, NOTHING = "#d1490c", 0.55, "#c6cbc8"
TRUE = ("red", "green", "blue")


def whole(scale: float) -> float:
    """Whole pixels stay crisp where they are large enough for a difference to show."""
    return int(scale) if scale >= 3 else scale


def picture_of(store: Tiles, box: tuple[int, int], masked: bool) -> tuple["Image", float]:
    """The picture of a store within a box (width, height), its mask shown or not, and the share that is valid."""
    from PIL import Image

    cells = thin(store.shape, max(box))
    valid = pick(partial(store.read, "valid"), cells) > 0
    pixels = _labels(store, cells) if "label" in store.group else _photo(store, valid, cells, masked)
    scale = whole(min(box[0] / valid.shape[1], box[1] / valid.shape[0]))
    size = max(1, int(valid.shape[1] * scale)), max(1, int(valid.shape[0] * scale))
    way = Image.Resampling.NEAREST if scale >= 1 else Image.Resampling.BOX
    share = store.attributes.get("valid_fraction")
    return Image.fromarray(pixels).resize(size, way), float(valid.mean() if share is None else share)


def _photo(store: Tiles, valid: BoolArray, cells: Thin, masked: bool) -> UInt8Array:
    """Natural colours or the first band, what is not valid tinted; grey where there is nothing at all."""
    stored = pick(partial(store.read, "image"), cells)[channels(store.names)]
    bands = np.nan_to_num(stored.astype(np.float32), posinf=0, neginf=0)
    there = valid | (bands != 0).any(0)
    pixels = stretched(bands, there).astype(np.float32)
    if masked:
        # Clouds would leave no contrast to the land beside them.
        land = stretched(bands, valid)
        pixels = np.where(valid[..., None], land, pixels * (1 - TINT) + np.array(rgb(MASKED)) * TINT)
    return np.where(there[..., None], pixels, rgb(NOTHING)).round().astype(np.uint8)


def channels(names: tuple[str, ...]) -> list[int]:
    """Which bands make red, green and blue: those of one season where seasons are stacked; else the first."""
    for suffix in dict.fromkeys(name.removeprefix("red") for name in names if name.startswith("red")):
        wanted = [colour + suffix for colour in TRUE]
        if all(band in names for band in wanted):
            return [names.index(band) for band in wanted]
    return [0]


def _labels(store: Tiles, cells: Thin) -> UInt8Array:
    numbers, scale = pick(partial(store.read, "label"), cells), _scale(store)
    numbers = scale.numbers(numbers) if scale else numbers
    table = np.full((256, 3), rgb(NOTHING), np.uint8)
    colors = COLORS if scale else class_colors(store.names, ())
    table[: len(colors)] = [rgb(color) for color in colors]
    table[NO_LABEL] = rgb(NOTHING)
    return np.asarray(table[numbers])


def _scale(store: Tiles) -> Scale | None:
    """The colours of labels that are values; None for classes."""
    if not is_continuous(store):
        return None
    low, high = store.attributes["range"]
    return Scale(low, high, unit_of(store))


def legend_of(stores: list[Tiles]) -> list[tuple[str, str]]:
    """Colours and what they mean."""
    labels = next((store for store in stores if "label" in store.group), None)
    scale = _scale(labels) if labels else None
    classes = scale.names if scale else labels.names if labels else ()
    named = [*zip(COLORS if scale else class_colors(classes, ()), classes, strict=True)] if classes else []
    images = any("image" in store.group for store in stores)
    masked = [(MASKED, "not valid: masked, or a band without data")] * images
    return [*masked, *named, (NOTHING, "no data" if images else "no label")]
