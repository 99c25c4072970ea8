"""What all figures share: colours that colour-blind readers can distinguish, fonts for any script, and one style.

The style is the same whatever the machine says, and the same figure gives a file of the same bytes.
"""

import colorsys
import logging
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from markupsafe import Markup

from eopipe.arrays import AnyArray, UInt8Array
from eopipe.errors import UsageError
from eopipe.reporting.wording import round_length
from eopipe.tiles.store import NO_LABEL

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
# Okabe and Ito 2008, without black: outlines are black.
OKABE_ITO = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#595959")
COLOR_BY_MEANING = (
    (r"^(non|not|no|un)[-_ ]|^(other|background|rest)", "#e6dabf"),
    (r"shadow", "#3a4154"),
    (r"cloud", "#ffffff"),
    (r"^clear", "#8cb78a"),
    (r"snow|\bice\b", "#c4e6f5"),
    (r"water|lake|river|\bsea\b|ocean", "#0072b2"),
    (r"forest|tree|wood", "#1b7a43"),
    (r"crop|farm|agricult|arable|field", "#f0e442"),
    (r"vegetation|grass|meadow|shrub|pasture", "#74b65f"),
    (r"built|urban|settlement|impervious", "#d55e00"),
    (r"bare|soil|sand|rock", "#b08968"),
)
# What readers with normal sight, protanopia and deuteranopia see of linear red, green and blue (Machado, Oliveira and
# Fernandes 2009, doi:10.1109/TVCG.2009.113), and CIE XYZ of that, relative to white.
SIGHTS = np.array(
    [
        [(1, 0, 0), (0, 1, 0), (0, 0, 1)],
        [(0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)],
        [(0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)],
    ]
)
XYZ = np.array([(0.4339, 0.3762, 0.1899), (0.2126, 0.7152, 0.0722), (0.0177, 0.1095, 0.8729)])
# The least difference (CIELAB) of two classes of one map, and of colours that are clear of each other.
DISTINCT, CLEAR = 10.0, 20.0
# Train, val and test.
SPLIT_COLORS = ("#3b8fd0", "#b06fc4", "#f0a11a")
# Dark is uncertain, which is what a reader looks for. It differs in lightness, so colour blindness does not matter.
CONFIDENCE_COLORS = ("#34104f", "#5f2a80", "#8d5aa6", "#b98fc4", "#dcc3df", "#f5eef3")
RAMP_LEVELS, VALUE_LEVELS = 24, 64
NO_DATA = "#c6cbc8"
# Viridis (van der Walt and Smith 2015), whose order colour-blind readers see too.
VALUE_COLORS = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")


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


def class_colors(classes: tuple[str, ...], configured: tuple[str, ...]) -> tuple[str, ...]:
    """A #rrggbb for each class: the configured ones, else by the meaning of the name, else the next of the palette."""
    if configured and len(configured) != len(classes):
        raise UsageError(
            f"there are {len(configured)} colors for {len(classes)} classes: {', '.join(classes)}; give one each"
        )
    if configured:
        return tuple(color.lower() for color in configured)
    by_meaning = [
        next((color for pattern, color in COLOR_BY_MEANING if re.search(pattern, name.lower())), "") for name in classes
    ]
    chosen: list[str] = []
    for color in by_meaning:
        is_usable = bool(color) and all(difference(color, other) >= DISTINCT for other in chosen)
        chosen.append(color if is_usable else _next_color([*chosen, *filter(None, by_meaning)]))
    return tuple(chosen)


def difference(first: str, second: str) -> float:
    """The difference (CIELAB 1976) of two colours to the reader who sees least of it."""
    values = np.array([rgb(first), rgb(second)]) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    relative = XYZ @ np.clip(SIGHTS @ linear.T, 0, 1)
    x, y, z = np.where(relative > 216 / 24389, np.cbrt(relative), (24389 / 27 * relative + 16) / 116).transpose(1, 0, 2)
    lightness, red, blue = 116 * y, 500 * (x - y), 200 * (y - z)
    return float(np.sqrt(sum(np.diff(part)[:, 0] ** 2 for part in (lightness, red, blue))).min())


def _next_color(used: list[str]) -> str:
    """The first colour of the palette that is clear of those used, else the one that differs most, or another hue."""
    hues = [_hex(colorsys.hls_to_rgb(n * 0.618 % 1, 0.4 + 0.2 * (n % 2), 0.55)) for n in range(512)]
    unused = [color for color in OKABE_ITO if color not in used] or [color for color in hues if color not in used]
    least = {color: min((difference(color, other) for other in used), default=100.0) for color in unused}
    return next((color for color in unused if least[color] >= CLEAR), max(unused, key=least.__getitem__))


def _hex(color: tuple[float, ...]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in color)


def rgb(color: str) -> tuple[int, int, int]:
    """Red, green and blue of 0 to 255 of a #rrggbb."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def color_table(colors: Sequence[str], other: str = NO_DATA) -> UInt8Array:
    """Red, green and blue (256, 3) of each number: its colour, and another one of numbers beyond the colours."""
    return np.array([rgb(color) for color in (*colors, *[other] * (256 - len(colors)))], np.uint8)


def mix_colors(colors: tuple[str, ...], levels: int) -> tuple[str, ...]:
    """A ramp of colours, interpolated to a number of levels."""
    anchors = np.array([rgb(color) for color in colors]) / 255
    positions = np.linspace(0, len(anchors) - 1, levels)
    mixed = [np.interp(positions, np.arange(len(anchors)), anchors[:, channel]) for channel in range(3)]
    return tuple(_hex(tuple(color)) for color in np.stack(mixed, -1))


def color_levels(values: AnyArray, ends: tuple[float, float], levels: int) -> UInt8Array:
    """The level of each value on a ramp between two ends, the outer ones for values beyond them; 255 for NaN."""
    known, (low, high) = np.isfinite(values), ends
    level = np.clip((np.where(known, values, low) - low) / (high - low) * levels, 0, levels - 1)
    return np.where(known, level, NO_LABEL).astype(np.uint8)


@dataclass(frozen=True)
class ValueScale:
    """A continuous colour scale between round numbers that enclose the range of the training labels."""

    low: float
    high: float
    unit: str

    @property
    def ticks(self) -> tuple[float, ...]:
        """Round numbers, the first at or below the lowest label, the last at or above the highest."""
        step = round_length(max(self.high - self.low, 1e-3 * abs(self.high), 1e-9) / 3)
        first, last = int(np.floor(self.low / step + 1e-6)), int(np.ceil(self.high / step - 1e-6))
        return tuple(float(f"{number * step:.6g}") for number in range(first, max(last, first + 1) + 1))

    @property
    def colors(self) -> tuple[str, ...]:
        """The colours, from the lowest value up."""
        return mix_colors(VALUE_COLORS, VALUE_LEVELS)

    def text(self, value: float) -> str:
        """A value with its unit."""
        return f"{value:g} {self.unit}".strip()

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Colour and text of each tick."""
        levels = self.numbers(np.array(self.ticks)).tolist()
        return [(self.colors[level], self.text(tick)) for level, tick in zip(levels, self.ticks, strict=True)]

    def numbers(self, values: AnyArray) -> UInt8Array:
        """The level of each value in the colours, the outer ones for values beyond the scale; 255 for NaN."""
        return color_levels(values, (self.ticks[0], self.ticks[-1]), VALUE_LEVELS)
