"""The map to hand around: title, map, legend, scale bar and credit on one PNG."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eopipe.arrays import UInt8Array
from eopipe.reporting.distances import length, pixel_metres, round_length
from eopipe.reporting.ink import FAINT, INK, LINE, PAPER, font, plain, text
from eopipe.reporting.palette import rgb
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

WIDTH, MARGIN, LEGEND, GAP = 1400, 56, 300, 44
TALLEST, ROW = 1000, 40
NO_DATA = "#c6cbc8"


@dataclass(frozen=True)
class Sheet:
    """What stands on the map: panels are names with class numbers (y, x), `step` the pixels of a cell."""

    title: str
    subtitle: str
    credit: str
    classes: tuple[str, ...]
    colors: tuple[str, ...]
    grid: "GeoBox"
    step: int
    panels: list[tuple[str, UInt8Array]]


def draw(sheet: Sheet) -> "Image":
    """Draw the map; the same content gives the same pixels."""
    from PIL import Image, ImageDraw

    head = [(line, 38, INK) for line in _wrapped(sheet.title, 38, WIDTH - 2 * MARGIN)]
    head += [(line, 21, FAINT) for line in _wrapped(sheet.subtitle, 21, WIDTH - 2 * MARGIN)]
    foot = [(line, 17, FAINT) for line in _wrapped(sheet.credit, 17, WIDTH - 2 * MARGIN)]
    top = MARGIN + _height(head) + 24
    scale, places, bottom = _layout(sheet, top)
    body = max(bottom, top + ROW * (len(sheet.classes) + 1) + 150)
    image = Image.new("RGB", (WIDTH, body + 28 + _height(foot) + MARGIN // 2), PAPER)
    pen = ImageDraw.Draw(image)
    _lines(pen, MARGIN, MARGIN, head)
    for (name, numbers), place in zip(sheet.panels, places, strict=True):
        _panel(image, pen, name, _colored(numbers, sheet.colors, scale), place)
    _legend(pen, sheet, top, scale)
    _lines(pen, MARGIN, body + 28, foot)
    return image


def _layout(sheet: Sheet, top: int) -> tuple[float, list[tuple[int, int]], int]:
    """One scale for all panels, where each starts, and where the last row ends."""
    columns = min(len(sheet.panels), 2)
    caption = 34 if any(name for name, _ in sheet.panels) else 0
    room = (WIDTH - 2 * MARGIN - LEGEND - columns * GAP) // columns
    tall = max(numbers.shape[0] for _, numbers in sheet.panels)
    wide = max(numbers.shape[1] for _, numbers in sheet.panels)
    scale: float = min(room / wide, TALLEST / tall)
    # Below three the pixels of a cell may differ by one; above, that would show.
    scale = int(scale) if scale >= 3 else scale
    across, down = int(wide * scale) + GAP, int(tall * scale) + caption + 20
    places = [(MARGIN + n % columns * across, top + n // columns * down) for n in range(len(sheet.panels))]
    return scale, places, places[-1][1] + down - 20


def _colored(numbers: UInt8Array, colors: tuple[str, ...], scale: float) -> "Image":
    from PIL import Image

    table = np.empty((256, 3), np.uint8)
    table[:] = rgb(NO_DATA)
    table[: len(colors)] = [rgb(color) for color in colors]
    size = max(1, int(numbers.shape[1] * scale)), max(1, int(numbers.shape[0] * scale))
    return Image.fromarray(table[numbers]).resize(size, Image.Resampling.NEAREST)


def _panel(image: "Image", pen: "ImageDraw", name: str, picture: "Image", place: tuple[int, int]) -> None:
    x, y = place
    if name:
        text(pen, (x, y), _short(name, 19, picture.width), 19, INK)
        y += 34
    image.paste(picture, (x, y))
    pen.rectangle((x - 1, y - 1, x + picture.width, y + picture.height), outline=LINE)


def _legend(pen: "ImageDraw", sheet: Sheet, top: int, scale: float) -> None:
    """Classes, scale bar, and the place in words, in the right column."""
    left = WIDTH - MARGIN - LEGEND
    rows = list(zip(sheet.classes, sheet.colors, strict=True))
    if any((numbers == NO_LABEL).any() for _, numbers in sheet.panels):
        rows.append(("no data", NO_DATA))
    for number, (name, color) in enumerate(rows):
        y = top + ROW * number
        pen.rectangle((left, y, left + 34, y + 26), fill=color, outline=LINE)
        text(pen, (left + 48, y + 2), _short(name, 21, LEGEND - 48), 21, INK)
    _place(pen, sheet, left, top + ROW * len(rows) + 28, scale)


def _place(pen: "ImageDraw", sheet: Sheet, left: int, top: int, scale: float) -> None:
    wide, high = pixel_metres(sheet.grid)
    drawn = wide * sheet.step / scale
    bar = round_length(drawn * LEGEND * 0.8)
    end = left + round(bar / drawn)
    pen.line((left, top + 10, end, top + 10), fill=INK, width=4)
    for x in (left, end):
        pen.line((x, top, x, top + 20), fill=INK, width=2)
    rows, cols = sheet.grid.shape
    told = (length(bar), f"{length(cols * wide)} x {length(rows * high)}", f"pixel {length(wide)}", str(sheet.grid.crs))
    _lines(pen, left, top + 30, [(told[0], 19, INK), *((line, 17, FAINT) for line in told[1:])])


def _lines(pen: "ImageDraw", x: int, y: int, lines: list[tuple[str, int, str]]) -> None:
    for line, size, color in lines:
        text(pen, (x, y), line, size, color)
        y += round(size * 1.4)


def _height(lines: list[tuple[str, int, str]]) -> int:
    return sum(round(size * 1.4) for _, size, _ in lines)


def _wrapped(told: str, size: int, room: int) -> list[str]:
    """Break a text into lines that fit a width in pixels."""
    lines: list[str] = []
    for word in plain(told).split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font(size).getlength(longer) <= room:
            lines[-1] = longer
        else:
            lines.append(_short(word, size, room))
    return lines


def _short(told: str, size: int, room: int) -> str:
    """Cut a text to a width in pixels."""
    words = plain(told)
    if font(size).getlength(words) <= room:
        return words
    while words and font(size).getlength(words + "...") > room:
        words = words[:-1]
    return words + "..."
