"""A contact sheet: an image of each store with its date, its share of valid pixels, and invalid pixels tinted."""

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from eopipe.arrays import BoolArray, UInt8Array
from eopipe.chips.chips import is_continuous, unit_of
from eopipe.reporting.decimation import Decimation, decimate, read_centres
from eopipe.reporting.figures import (
    DPI,
    FAINT,
    INK,
    LINE,
    Box,
    add_text,
    axes_at,
    figure_style,
    from_corner,
    new_figure,
    save_png,
    shorten_to_width,
)
from eopipe.reporting.palette import ValueScale, class_colors, rgb
from eopipe.reporting.panels import stretch_contrast
from eopipe.reporting.wording import TIMES, format_length
from eopipe.tiles.ground import pixel_metres
from eopipe.tiles.store import NO_LABEL, Tiles

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# In inches.
WIDTH, MARGIN, GAP, CAPTION, TALLEST = 7.0, 0.24, 0.1, 0.27, 5.0
LEGEND_ROW, LEGEND_COLUMNS, MAX_COLUMNS = 0.18, 4, 5
MAX_STORES = 60
INVALID, TINT, NO_DATA = "#d1490c", 0.55, "#c6cbc8"
TRUE_COLOUR = ("red", "green", "blue")


def write_contact_sheet(path: Path, stores: list[Tiles], name: str) -> tuple[int, int]:
    """Draw the stores, of more than sixty those spread evenly, as PNG; returns its width and height in pixels.

    The same stores give the same bytes.
    """
    chosen = sorted({round(n) for n in np.linspace(0, len(stores) - 1, min(len(stores), MAX_STORES))})
    sample = [stores[n] for n in chosen]
    # A single store has space for its pixels as stored beside those that its mask leaves.
    is_single = len(sample) == 1 and "image" in sample[0].group
    panels = [(sample[0], False)] * is_single + [(store, True) for store in sample]
    legend = legend_of(sample)
    texts = (name, *(text for store in sample for text in (store.path.stem, store.scene, *store.names)))
    with figure_style(*texts, *(meaning for _, meaning in legend)):
        figure = new_figure(WIDTH, WIDTH)
        top = add_text(figure, name, (MARGIN, MARGIN), WIDTH - 2 * MARGIN, 14)
        top = add_text(figure, _subtitle(stores, len(sample)), (MARGIN, top), WIDTH - 2 * MARGIN, 8, FAINT) + 0.1
        boxes = _panel_boxes(sample, len(panels), top)
        bottom = boxes[-1][1] + boxes[-1][3] + 0.12
        figure.set_figheight(bottom + LEGEND_ROW * -(-len(legend) // LEGEND_COLUMNS) + MARGIN / 2)
        for (store, masked), box in zip(panels, boxes, strict=True):
            _draw_store(figure, store, box, masked)
        _add_legend(figure, legend, bottom)
        save_png(figure, path)
        return figure.canvas.get_width_height()


def _subtitle(stores: list[Tiles], count: int) -> str:
    first = stores[0]
    (height, width), (pixel, _) = first.shape, pixel_metres(first.grid)
    number = "one store" if len(stores) == 1 else f"{len(stores)} stores" + f", {count} shown" * (count < len(stores))
    names = " ".join(first.names) if len(first.names) <= 8 else f"{len(first.names)} bands"
    return f"{number}  ·  {names}  ·  {height}{TIMES}{width} pixels of {format_length(pixel)}  ·  {first.grid.crs}"


def _panel_boxes(stores: list[Tiles], count: int, top: float) -> list[Box]:
    """As few columns as fill the sheet; every box has the shape of the first store."""
    columns = min(MAX_COLUMNS, math.ceil(math.sqrt(count * 1.5))) if count > 1 else 1
    width = (WIDTH - 2 * MARGIN - (columns - 1) * GAP) / columns
    shape = max((store.shape for store in stores), key=lambda shape: shape[0] / shape[1])
    height = min(width * shape[0] / shape[1], TALLEST)
    down = CAPTION + height + GAP
    return [
        (MARGIN + n % columns * (width + GAP), top + CAPTION + n // columns * down, width, height) for n in range(count)
    ]


def _draw_store(figure: "Figure", store: Tiles, box: Box, masked: bool) -> None:
    left, top, width, height = box
    rows, cols = store.shape
    scale = min(width / cols, height / rows)
    if scale * DPI >= 3:
        # Pixels of whole dots are all of one size.
        scale = int(scale * DPI) / DPI
    pixels, valid = store_image(store, max(1, round(max(width, height) * DPI)), masked)
    axes = axes_at(figure, (left, top, cols * scale, rows * scale))
    axes.imshow(pixels, aspect="auto", interpolation="nearest" if scale * DPI >= 1 else "antialiased")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color(LINE)
    properties = store.attributes
    date = str(properties.get("datetime") or properties.get("start_datetime") or "")[:10]
    corner = partial(figure.text, va="bottom", transform=from_corner(figure))
    corner(left, 0.145 - top, shorten_to_width(date or store.scene or "labels", 7, width * 0.6), size=7, color=INK)
    share = f"{100 * valid:.0f} % valid" if masked else "as stored"
    corner(left + cols * scale, 0.15 - top, share, size=6, ha="right", color=INVALID if valid < 0.5 else FAINT)
    corner(left, 0.03 - top, shorten_to_width(store.path.stem, 6, width), size=6, color=FAINT)


def _add_legend(figure: "Figure", entries: list[tuple[str, str]], top: float) -> None:
    from matplotlib.patches import Patch

    figure.legend(
        handles=[Patch(facecolor=color, edgecolor=FAINT, linewidth=0.4, label=name) for color, name in entries],
        loc="upper left",
        bbox_to_anchor=(MARGIN, -top),
        bbox_transform=from_corner(figure),
        ncols=LEGEND_COLUMNS,
        fontsize=7.5,
        borderpad=0,
        handlelength=1.6,
        handleheight=1.1,
    )


def store_image(store: Tiles, longest: int, masked: bool) -> tuple[UInt8Array, float]:
    """The pixels (y, x, 3) of a store, decimated to a longest edge, its mask shown or not; and its valid share."""
    decimation = decimate(store.shape, longest)
    valid = read_centres(partial(store.read, "valid"), decimation) > 0
    pixels = (
        _label_image(store, decimation) if "label" in store.group else _band_image(store, valid, decimation, masked)
    )
    share = store.attributes.get("valid_fraction")
    return pixels, float(valid.mean() if share is None else share)


def _band_image(store: Tiles, valid: BoolArray, decimation: Decimation, masked: bool) -> UInt8Array:
    """True colour or the first band, invalid pixels tinted; grey where nothing is stored."""
    stored = read_centres(partial(store.read, "image"), decimation)[rgb_bands(store.names)]
    bands = np.nan_to_num(stored.astype(np.float32), posinf=0, neginf=0)
    has_data = valid | (bands != 0).any(0)
    pixels = stretch_contrast(bands, has_data).astype(np.float32)
    if masked:
        # Clouds would leave no contrast to the land beside them.
        land = stretch_contrast(bands, valid)
        pixels = np.where(valid[..., None], land, pixels * (1 - TINT) + np.array(rgb(INVALID)) * TINT)
    return np.where(has_data[..., None], pixels, rgb(NO_DATA)).round().astype(np.uint8)


def rgb_bands(names: tuple[str, ...]) -> list[int]:
    """Indices of red, green and blue, of one season where seasons are stacked; else of the first band."""
    for suffix in dict.fromkeys(name.removeprefix("red") for name in names if name.startswith("red")):
        bands = [colour + suffix for colour in TRUE_COLOUR]
        if all(band in names for band in bands):
            return [names.index(band) for band in bands]
    return [0]


def _label_image(store: Tiles, decimation: Decimation) -> UInt8Array:
    numbers, scale = read_centres(partial(store.read, "label"), decimation), _scale_of(store)
    numbers = scale.numbers(numbers) if scale else numbers
    table = np.full((256, 3), rgb(NO_DATA), np.uint8)
    colors = scale.colors if scale else class_colors(store.names, ())
    table[: len(colors)] = [rgb(color) for color in colors]
    table[NO_LABEL] = rgb(NO_DATA)
    return np.asarray(table[numbers])


def _scale_of(store: Tiles) -> ValueScale | None:
    """The colours of labels that are values; None for classes."""
    if not is_continuous(store):
        return None
    low, high = store.attributes["range"]
    return ValueScale(low, high, unit_of(store))


def legend_of(stores: list[Tiles]) -> list[tuple[str, str]]:
    """Colours and their meaning."""
    labels = next((store for store in stores if "label" in store.group), None)
    scale = _scale_of(labels) if labels else None
    classes = labels.names if labels else ()
    named = scale.legend if scale else [*zip(class_colors(classes, ()), classes, strict=True)]
    has_images = any("image" in store.group for store in stores)
    invalid = [(INVALID, "not valid: masked, or a band without data")] * has_images
    return [*invalid, *named, (NO_DATA, "no data" if has_images else "no label")]
