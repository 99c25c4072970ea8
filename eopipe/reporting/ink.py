"""Paper, colours and letters of every picture that is drawn: maps, plans, contact sheets."""

import unicodedata
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

PAPER, INK, FAINT, LINE, FAR = "#ffffff", "#1f2629", "#5c676d", "#b9c0bd", "#eef1ef"
# The font that Pillow brings has these and ASCII only; another font would differ from machine to machine.
BEYOND_ASCII = "©·“”\u2019"
SPELLED = str.maketrans(
    {"\u2010": "-", "\u2013": "-", "\u2014": "-", "ß": "ss", "ł": "l", "Ł": "L", "đ": "d", "ø": "o", "Ø": "O"}
)


@cache
def font(size: int) -> Any:
    """Pillow's own font, so that a picture looks the same everywhere."""
    from PIL import ImageFont

    return ImageFont.load_default(size)


def plain(text: str) -> str:
    """Text in the letters that the font has: accents go, other scripts become question marks."""
    spread = unicodedata.normalize("NFKD", text.translate(SPELLED))
    letters = (c for c in spread if not unicodedata.combining(c))
    return "".join(c if c.isascii() or c in BEYOND_ASCII else "?" for c in letters)


def text(
    pen: "ImageDraw", at: tuple[float, float], words: str, size: int, color: str = INK, anchor: str = "la"
) -> None:
    """Write words at a place; `anchor` is Pillow's."""
    pen.text(at, plain(words), font=font(size), fill=color, anchor=anchor)


def rows(pen: "ImageDraw", at: tuple[float, float], lines: list[tuple[str, int, str]]) -> float:
    """Write lines (words, size, colour) below each other; return where the next would stand."""
    x, y = at
    for words, size, color in lines:
        text(pen, (x, y), words, size, color)
        y += round(size * 1.45)
    return y
