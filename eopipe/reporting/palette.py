"""Colours: one a class that colour-blind readers can tell apart, and a ramp for confidence."""

import colorsys
import re

import numpy as np

from eopipe.arrays import UInt8Array
from eopipe.errors import UsageError

# Okabe and Ito 2008, without black: the boundary lines are black.
OKABE_ITO = ("#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7", "#8c8c8c")
MEANINGS = (
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
# Dark is unsure: doubt is what a reader looks for. Lightness alone tells it, so colour blindness does not matter.
RAMP = ("#34104f", "#5f2a80", "#8d5aa6", "#b98fc4", "#dcc3df", "#f5eef3")
LEVELS = 24


def class_colors(classes: tuple[str, ...], given: tuple[str, ...]) -> tuple[str, ...]:
    """Choose a #rrggbb for each class: those given, else by what the name means, else the next of the palette."""
    if given and len(given) != len(classes):
        raise UsageError(
            f"there are {len(given)} colors for {len(classes)} classes: {', '.join(classes)}; give one each"
        )
    if given:
        return tuple(color.lower() for color in given)
    meant = [_meant(name) for name in classes]
    chosen: list[str] = []
    for color in meant:
        taken = {*chosen, *filter(None, meant)}
        chosen.append(color if color and color not in chosen else _next(taken))
    return tuple(chosen)


def _meant(name: str) -> str:
    return next((color for pattern, color in MEANINGS if re.search(pattern, name.lower())), "")


def _next(taken: set[str]) -> str:
    """Find the first colour that is free: the palette's, then hues a golden angle apart."""
    free = [color for color in OKABE_ITO if color not in taken]
    if free:
        return free[0]
    hues = (_hex(colorsys.hls_to_rgb(n * 0.618 % 1, 0.4 + 0.2 * (n % 2), 0.55)) for n in range(512))
    return next(color for color in hues if color not in taken)


def _hex(color: tuple[float, float, float]) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in color)


def rgb(color: str) -> tuple[int, int, int]:
    """Three numbers of 0 to 255 of a #rrggbb."""
    return int(color[1:3], 16), int(color[3:5], 16), int(color[5:7], 16)


def ramp() -> UInt8Array:
    """Mix the colours of confidence, lowest first (level, 3)."""
    anchors = np.array([rgb(color) for color in RAMP], float)
    at = np.linspace(0, len(anchors) - 1, LEVELS)
    mixed = [np.interp(at, np.arange(len(anchors)), anchors[:, part]) for part in range(3)]
    return np.stack(mixed, -1).round().astype(np.uint8)
