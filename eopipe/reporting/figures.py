"""What all figures share: fonts for any script, one style whatever the machine says, and files of the same bytes."""

import logging
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

log = logging.getLogger("eopipe")
# Left, top, width and height in inches from the upper left corner of a figure.
Box = tuple[float, float, float, float]
DPI, LINE_HEIGHT = 200, 1.4 / 72
INK, FAINT, LINE, PAPER = "#1e2528", "#566167", "#e0e3de", "#fbfbf9"
ONE, TWO = "#17694f", "#b4530a"
# The page has a light and a dark scheme: what a chart draws in these colours follows the scheme.
CSS_COLORS = {INK: "var(--ink)", FAINT: "var(--soft)", LINE: "var(--line)", PAPER: "var(--paper)"}
CSS_COLORS |= {ONE: "var(--one)", TWO: "var(--two)"}
# matplotlib ships this face, so Latin, Greek and Cyrillic text looks the same on every machine.
BASE_FAMILY = "DejaVu Sans"
# Among faces with equally many of the missing characters, the first of these is taken, then the first by name.
PREFERRED_FAMILIES = ("Noto Sans", "Source Han Sans", "WenQuanYi", "Noto", "Droid Sans", "Lohit", "Free")
# Faces whose character map is not Unicode, or that draw a box for every character.
UNUSABLE_FAMILIES = re.compile(r"cm(r|b|ex|mi|ss|sy|ti|tt)10$|Last Resort|STIX(Size|NonUnicode)")
STYLE = {
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.titlesize": 9,
    "axes.titlepad": 4,
    "axes.unicode_minus": False,
    "path.simplify": False,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "legend.borderaxespad": 0,
    "xtick.color": FAINT,
    "xtick.labelsize": 7.5,
    "ytick.color": FAINT,
    "ytick.labelsize": 7.5,
    "date.converter": "concise",
    "svg.fonttype": "none",
}


@contextmanager
def figure_style(*texts: str, salt: str = "eopipe") -> Iterator[None]:
    """Draw within this: matplotlib's defaults and the style of eopipe, and fonts for all characters of the texts.

    A matplotlibrc of the user or of the working folder changes nothing. Characters without a font are named once in
    the log and drawn as a box.
    """
    library = logging.getLogger("matplotlib")
    level = library.level
    # It would report that it builds a list of fonts, or that a read-only home cannot hold that list.
    library.setLevel(logging.ERROR)
    try:
        import matplotlib.style

        families = font_families("".join(texts))
        options: dict[str, Any] = STYLE | {"font.family": families, "svg.hashsalt": salt}
        with warnings.catch_warnings(), matplotlib.style.context(["default", options]):
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            yield
    finally:
        library.setLevel(level)


@dataclass(frozen=True)
class FontFace:
    """An installed font face and the characters that it can draw."""

    family: str
    path: str
    characters: frozenset[int]


def font_families(text: str) -> list[str]:
    """DejaVu Sans, followed by installed families for the characters that it lacks; logs those that no face has."""
    base = next(_read_faces(lambda family: family == BASE_FAMILY))
    # Neither blanks nor control characters are drawn.
    drawn = {ord(c) for c in text if unicodedata.category(c) not in ("Cc", "Cf", "Zl", "Zp", "Zs")}
    missing, families = drawn - base.characters, [BASE_FAMILY]
    faces = installed_faces() if missing else []
    while missing and faces:
        best = min(faces, key=lambda face: _preference(face, missing))
        if not best.characters & missing:
            break
        families.append(best.family)
        missing -= best.characters
    if missing:
        names = ", ".join(f"{chr(c)} ({unicodedata.name(chr(c), f'U+{c:04X}')})" for c in sorted(missing))
        log.warning(
            "event=no_font characters=%r remedy='install a font that has them, such as one of the Noto family'", names
        )
    return families


def _preference(face: FontFace, missing: set[int]) -> tuple[int, int, str, str]:
    """Sorts faces: most of the missing characters first, then the preferred families, then by name."""
    rank = next((n for n, name in enumerate(PREFERRED_FAMILIES) if face.family.startswith(name)), 99)
    return -len(face.characters & missing), rank, face.family, face.path


def installed_faces() -> list[FontFace]:
    """All upright faces of regular weight; those installed after matplotlib listed the fonts are added to its list."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    listed = {entry.fname for entry in fontManager.ttflist}
    for path in sorted(set(findSystemFonts()) - listed):
        try:
            fontManager.addfont(path)
        except (OSError, RuntimeError, ValueError):
            continue
    return list(_read_faces(lambda family: not UNUSABLE_FAMILIES.match(family)))


def _read_faces(is_usable: Callable[[str], bool]) -> Iterator[FontFace]:
    from matplotlib.font_manager import fontManager
    from matplotlib.ft2font import FT2Font

    for entry in fontManager.ttflist:
        if entry.style == "normal" and entry.weight in (400, "normal", "regular") and is_usable(entry.name):
            try:
                characters = FT2Font(entry.fname, face_index=entry.index).get_charmap()
            except (OSError, RuntimeError):
                continue
            yield FontFace(entry.name, entry.fname, frozenset(characters))


def new_figure(width: float, height: float) -> "Figure":
    """A figure of its own, in inches; pyplot, which keeps figures for the whole process, is not used."""
    from matplotlib.figure import Figure

    return Figure((width, height), dpi=DPI)


def save_png(figure: "Figure", path: Path | BinaryIO) -> None:
    """Write a figure as PNG without the name of a program: the same figure gives the same bytes."""
    figure.savefig(path, format="png", metadata={"Software": None}, pil_kwargs={"optimize": True})


def save_svg(figure: "Figure", alt: str) -> Markup:
    """A figure as an SVG element for the page; its colours follow the page's scheme, `alt` says what it shows."""
    buffer = StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    text = buffer.getvalue()
    box = re.search(r'viewBox="([^"]*)"', text)
    text = text[text.index(">", text.index("<svg")) + 1 :]
    # A style element would hold for the whole page, and automatic ids would be there once for each chart.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>|<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r' id="[\w.]+_\d+"', "", text).replace("xlink:href", "href")
    text = re.sub(r"<[^>]*>", _short_coordinates, text)
    for color, variable in CSS_COLORS.items():
        text = text.replace(color, variable)
    head = Markup('<svg class="chart" viewBox="{}" role="img" aria-label="{}">').format(box[1] if box else "", alt)
    return head + Markup(re.sub(r"\s*\n\s*", " ", text).strip())  # noqa: S704 - matplotlib escapes texts


def _short_coordinates(tag: re.Match[str]) -> str:
    """A tag whose coordinates have one digit after the point."""
    text = re.sub(r' transform="rotate\(-0 [^"]*"', "", tag[0])
    return re.sub(r"\d+\.\d{2,}", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), text)


def from_corner(figure: "Figure") -> Any:
    """Coordinates in inches from the upper left corner of a figure, whatever height it gets: (right, -down)."""
    from matplotlib.transforms import ScaledTranslation

    return figure.dpi_scale_trans + ScaledTranslation(0, 1, figure.transFigure)  # type: ignore[arg-type] # any transform will do


def add_text(
    figure: "Figure", text: str, corner: tuple[float, float], width: float, size: float, color: str = INK
) -> float:
    """Write a text, wrapped to a width, at (left, top) in inches; returns the top of what follows."""
    left, top = corner
    for line in wrapped(text, size, width):
        figure.text(left, -top, line, size=size, color=color, va="top", transform=from_corner(figure))
        top += size * LINE_HEIGHT
    return top


def axes_at(figure: "Figure", box: Box) -> "Axes":
    """Axes whose frame is a box (left, top, width, height) in inches from the upper left corner."""
    (left, top, width, height), (across, down) = box, figure.get_size_inches()
    return figure.add_axes((left / across, 1 - (top + height) / down, width / across, height / down))


def text_width(text: str, size: float) -> float:
    """Width of a line of text in inches at a font size in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    return float(TextToPath().get_text_width_height_descent(text, FontProperties(size=size), ismath=False)[0]) / 72


def wrapped(text: str, size: float, width: float) -> list[str]:
    """Lines of a text that fit a width in inches; a word that is too long is cut in its middle."""
    lines: list[str] = []
    # Not at the narrow spaces within numbers.
    for word in re.findall(r"[^ \n\t]+", text):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size) <= width:
            lines[-1] = longer
        else:
            lines.append(shorten_to_width(word, size, width))
    return lines


def shorten_to_width(text: str, size: float, width: float) -> str:
    """A text, shortened in its middle to fit a width in inches; names differ at their ends."""
    length, shortened = len(text), text
    while length > 4 and text_width(shortened, size) > width:
        length -= 1
        shortened = f"{text[: length // 2]}…{text[len(text) - (length - length // 2) :]}"
    return shortened
