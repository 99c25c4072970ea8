"""A contact sheet: a picture of each store, what is not valid tinted, with its date and share of valid pixels."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from eopipe.inspection.pictures import MASKED, legend_of, picture_of, whole
from eopipe.reporting.distances import length, pixel_metres
from eopipe.reporting.ink import FAINT, INK, LINE, PAPER, font, rows, text
from eopipe.tiles.store import Tiles

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

WIDTH, MARGIN, GAP, CAPTION, MOST = 1400, 48, 20, 52, 60


@dataclass(frozen=True)
class Plan:
    """How the sheet is laid out: columns, and the box in pixels that every picture fits into."""

    columns: int
    wide: int
    high: int


def draw(stores: list[Tiles], name: str) -> "Image":
    """Draw a sheet of the stores, of more than sixty those spread evenly; the same stores give the same pixels."""
    from PIL import Image, ImageDraw

    at = sorted({round(n) for n in np.linspace(0, len(stores) - 1, min(len(stores), MOST))})
    shown = [stores[n] for n in at]
    # One store has room to show its pixels beside what its mask leaves of them.
    alone = len(shown) == 1 and "image" in shown[0].group
    panels = [(shown[0], False)] * alone + [(store, True) for store in shown]
    plan, top = _plan(shown, len(panels)), MARGIN + 100
    down = -(-len(panels) // plan.columns) * (plan.high + CAPTION + GAP)
    legend = legend_of(shown)
    image = Image.new("RGB", (WIDTH, top + down + 40 * bool(legend) + MARGIN // 2), PAPER)
    pen = ImageDraw.Draw(image)
    rows(pen, (MARGIN, MARGIN - 10), [(name, 36, INK), (_head(stores, len(shown)), 19, FAINT)])
    for number, (store, masked) in enumerate(panels):
        across, below = number % plan.columns, number // plan.columns
        place = MARGIN + across * (plan.wide + GAP), top + below * (plan.high + CAPTION + GAP)
        _panel(image, pen, store, place, plan, masked)
    _explain(pen, legend, top + down)
    return image


def _plan(stores: list[Tiles], panels: int) -> Plan:
    """As few columns as fill the sheet, pictures at most as wide as they are useful."""
    columns = min(6, math.ceil(math.sqrt(panels * 1.5))) if panels > 1 else 1
    wide = (WIDTH - 2 * MARGIN - (columns - 1) * GAP) // columns
    high = max(round(whole(wide / store.shape[1]) * store.shape[0]) for store in stores)
    return Plan(columns, wide, min(high, 1000))


def _head(stores: list[Tiles], shown: int) -> str:
    first = stores[0]
    (height, width), (wide, _) = first.shape, pixel_metres(first.grid)
    many = "one store" if len(stores) == 1 else f"{len(stores)} stores" + f", {shown} shown" * (shown < len(stores))
    names = " ".join(first.names) if len(first.names) <= 8 else f"{len(first.names)} bands"
    return f"{many}  ·  {names}  ·  {height} x {width} pixels of {length(wide)}  ·  {first.grid.crs}"


def _panel(image: "Image", pen: "ImageDraw", store: Tiles, place: tuple[int, int], plan: Plan, masked: bool) -> None:
    picture, share = picture_of(store, (plan.wide, plan.high), masked)
    left, top = place[0], place[1] + CAPTION
    told = store.attributes
    date = str(told.get("datetime") or told.get("start_datetime") or "")[:10]
    text(pen, (place[0], place[1]), _fitted(date or store.scene or "labels", 19, plan.wide), 19)
    valid = f"{100 * share:.0f} % valid" if masked else "as stored"
    text(pen, (left + picture.width, place[1] + 2), valid, 16, MASKED if share < 0.5 else FAINT, "ra")
    text(pen, (place[0], place[1] + 25), _fitted(store.path.stem, 15, picture.width), 15, FAINT)
    image.paste(picture, (left, top))
    pen.rectangle((left - 1, top - 1, left + picture.width, top + picture.height), outline=LINE)


def _fitted(words: str, size: int, room: float) -> str:
    """Cut words in the middle to a width in pixels, since names differ at their ends."""
    kept = len(words)
    cut = words
    while kept > 4 and font(size).getlength(cut) > room:
        kept -= 1
        cut = f"{words[: kept // 3]}...{words[len(words) - (kept - kept // 3) :]}"
    return cut


def _explain(pen: "ImageDraw", legend: list[tuple[str, str]], top: int) -> None:
    left = MARGIN
    for color, meaning in legend:
        pen.rectangle((left, top, left + 26, top + 20), fill=color, outline=LINE)
        text(pen, (left + 36, top), meaning, 17, FAINT)
        left += 36 + round(font(17).getlength(meaning)) + 34
