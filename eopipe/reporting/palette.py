"""Colours: a colour for each class that colour-blind readers can distinguish, and a ramp for confidence."""

import colorsys
import re
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from eopipe.arrays import AnyArray, UInt8Array
from eopipe.errors import UsageError
from eopipe.tiles.store import NO_LABEL

# Okabe and Ito 2008, without black: outlines are black.
OKABE_ITO = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#8c8c8c")
COLOR_BY_MEANING = (
    (r"^(non|not|no|un)[-_ ]|^(other|background|rest)", "#e6dabf"),
    (r"shadow", "#3a4154"),
    (r"cloud", "#ffffff"),
    (r"^clear", "#8cb78a"),
    (r"snow|\bice\b", "#c4e6f5"),
    (r"water|lake|river|\bsea\b|ocean", "#0072b2"),
    (r"forest|tree|wood", "#1b7a43"),
    (r"crop|farm|agricult|arable", "#f0e442"),
    (r"vegetation|grass|meadow|shrub|pasture", "#74b65f"),
    (r"built|urban|settlement|impervious", "#d55e00"),
    (r"bare|soil|sand|rock", "#c9a06b"),
)
# Train, val and test.
SPLIT_COLORS = ("#3b8fd0", "#b06fc4", "#f0a11a")
# Dark is uncertain, which is what a reader looks for. It differs in lightness, so colour blindness does not matter.
CONFIDENCE_COLORS = ("#34104f", "#5f2a80", "#8d5aa6", "#b98fc4", "#dcc3df", "#f5eef3")
RAMP_LEVELS = 24
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
        used = {*chosen, *filter(None, by_meaning)}
        chosen.append(color if color and color not in chosen else _next_color(used))
    return tuple(chosen)


def _color_by_meaning(name: str) -> str:
    return next((color for pattern, color in COLOR_BY_MEANING if re.search(pattern, name.lower())), "")


def _next_color(used: set[str]) -> str:
    """The first unused colour: of the palette, then of hues that are a golden angle apart."""
    unused = [color for color in OKABE_ITO if color not in used]
    if unused:
        return unused[0]
    hues = (_hex(colorsys.hls_to_rgb(n * 0.618 % 1, 0.4 + 0.2 * (n % 2), 0.55)) for n in range(512))
    return next(color for color in hues if color not in used)


def _hex(color: tuple[float, ...]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in color)


def rgb(color: str) -> tuple[int, int, int]:
    """Red, green and blue of 0 to 255 of a #rrggbb."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def confidence_ramp() -> tuple[str, ...]:
    """The colours of confidence, lowest first, mixed to as many levels as images use."""
    anchors = np.array([rgb(color) for color in CONFIDENCE_COLORS]) / 255
    positions = np.linspace(0, len(anchors) - 1, RAMP_LEVELS)
    mixed = [np.interp(positions, np.arange(len(anchors)), anchors[:, channel]) for channel in range(3)]
    return tuple(_hex(tuple(color)) for color in np.stack(mixed, -1))


@dataclass(frozen=True)
class ValueScale:
    """Eight intervals of equal width, from the lowest to the highest training label, in which values are drawn."""

    low: float
    high: float
    unit: str

    @property
    def names(self) -> tuple[str, ...]:
        """The intervals as text."""
        edges = np.linspace(self.low, self.high, len(VALUE_COLORS) + 1)
        tail = f" {self.unit}" if self.unit else ""
        return tuple(f"{low:.4g} to {high:.4g}{tail}" for low, high in pairwise(edges))

    def numbers(self, values: AnyArray) -> UInt8Array:
        """The interval of each value, the outer ones for values beyond the range; 255 for NaN."""
        known = np.isfinite(values)
        share = (np.where(known, values, self.low) - self.low) / max(self.high - self.low, 1e-12)
        level = np.clip(share * len(VALUE_COLORS), 0, len(VALUE_COLORS) - 1)
        return np.where(known, level, NO_LABEL).astype(np.uint8)
