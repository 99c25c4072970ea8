"""Colours: a colour for each class that colour-blind readers can distinguish, and a ramp for confidence."""

import colorsys
import re
from dataclasses import dataclass

import numpy as np

from eopipe.arrays import AnyArray, UInt8Array
from eopipe.errors import UsageError
from eopipe.reporting.wording import round_length
from eopipe.tiles.store import NO_LABEL

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
# Viridis (van der Walt and Smith 2015), whose order colour-blind readers see too.
VALUE_COLORS = ("#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725")


def class_colors(classes: tuple[str, ...], configured: tuple[str, ...]) -> tuple[str, ...]:
    """A #rrggbb for each class: the configured ones, else by the meaning of the name, else the next of the palette."""
    if configured and len(configured) != len(classes):
        raise UsageError(
            f"there are {len(configured)} colors for {len(classes)} classes: {', '.join(classes)}; give one each"
        )
    if configured:
        return tuple(color.lower() for color in configured)
    by_meaning = [_color_by_meaning(name) for name in classes]
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


def _color_by_meaning(name: str) -> str:
    return next((color for pattern, color in COLOR_BY_MEANING if re.search(pattern, name.lower())), "")


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
