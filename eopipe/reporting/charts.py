"""Drawings as inline SVG: lines over epochs, and the outline of an area over a picture."""

import math
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from eopipe.arrays import BoolArray

WIDTH, HEIGHT = 460, 280
LEFT, RIGHT, TOP, BOTTOM = 58, 126, 16, 50
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One line: its name, the CSS class that colours it, and its points (x, y)."""

    name: str
    style: str
    points: list[Point]


@dataclass(frozen=True)
class Axis:
    """One axis: its title, its ticks, the values at its ends and the pixels of these."""

    title: str
    ticks: list[float]
    ends: tuple[float, float]
    span: tuple[float, float]

    def at(self, value: float) -> float:
        """Give the pixel of a value."""
        low, high = self.ends
        return round(self.span[0] + (value - low) / (high - low) * (self.span[1] - self.span[0]), 1)


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers, evenly spaced, that enclose low to high."""
    if high <= low:
        low, high = low - abs(low) / 2 - 0.5, high + abs(high) / 2 + 0.5
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(unit * power for unit in (1, 2, 2.5, 5, 10) if unit * power >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(n * step, 10) for n in range(first, last + 1)]


def line_chart(
    alt: str, titles: tuple[str, str], span: tuple[float, float], series: list[Series], *more: float
) -> Markup:
    """Lines with labelled axes, x over the whole numbers of a span; y also reaches the values in `more`."""
    points = [point for line in series for point in line.points]
    if not points:
        return Markup("")
    x = _x_axis(titles[0], *span)
    y = _y_axis(titles[1], [*more, *(py for _, py in points)])
    ends = _apart([y.at(line.points[-1][1]) for line in series if line.points], 17)
    lines = [_line(line, x, y, end) for line, end in zip([s for s in series if s.points], ends, strict=True)]
    return Markup('<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}{}</svg>').format(
        WIDTH, HEIGHT, alt, _frame(x, y), Markup("").join(lines)
    )


def _x_axis(title: str, low: float, high: float) -> Axis:
    high = max(high, low + 1)
    step = max(1, math.ceil(nice_ticks(low, high)[1] - nice_ticks(low, high)[0]))
    round_ones = [float(n) for n in range(step, math.floor(high) + 1, step) if n >= low]
    ticks = [low, *round_ones] if not round_ones or round_ones[0] - low > step / 2 else round_ones
    return Axis(title, ticks, (low, high), (LEFT, WIDTH - RIGHT))


def _y_axis(title: str, values: list[float]) -> Axis:
    ticks = nice_ticks(min(values), max(values))
    return Axis(title, ticks, (ticks[0], ticks[-1]), (HEIGHT - BOTTOM, TOP))


def _frame(x: Axis, y: Axis) -> Markup:
    rows = [
        Markup(
            '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text x="{}" y="{}" text-anchor="end">{}</text>'
        ).format(x.span[0], x.span[1], y.at(tick), y.at(tick), LEFT - 8, y.at(tick) + 4.5, f"{tick:g}")
        for tick in y.ticks
    ]
    columns = [
        Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(
            x.at(tick), HEIGHT - BOTTOM + 20, f"{tick:g}"
        )
        for tick in x.ticks
    ]
    titles = Markup(
        '<text class="axis" x="{0}" y="{1}" text-anchor="middle">{2}</text>'
        '<text class="axis" transform="translate(14 {3}) rotate(-90)" text-anchor="middle">{4}</text>'
    ).format(sum(x.span) / 2, HEIGHT - 8, x.title, sum(y.span) / 2, y.title)
    return Markup("").join([*rows, *columns, titles])


def _line(line: Series, x: Axis, y: Axis, label: float) -> Markup:
    places = [(x.at(px), y.at(py)) for px, py in line.points]
    path = "M" + "L".join(f"{px:g} {py:g}" for px, py in places)
    dots = Markup("").join(Markup('<circle cx="{}" cy="{}" r="3"/>').format(*place) for place in places[-1:])
    last = line.points[-1][1]
    return Markup('<g class="{}"><path d="{}"/>{}<text x="{}" y="{}">{} {}</text></g>').format(
        line.style, path, dots, WIDTH - RIGHT + 9, label + 4.5, line.name, f"{last:.3f}"
    )


def _apart(places: list[float], least: float) -> list[float]:
    """Move labels down until none covers another."""
    moved, lowest = list(places), -math.inf
    for index in sorted(range(len(places)), key=places.__getitem__):
        moved[index] = lowest = max(places[index], lowest + least)
    return moved


def outline(mask: BoolArray) -> str:
    """Draw the boundary of a mask (y, x) as an SVG path in cells; empty for an empty mask."""
    return _edges(mask, "M{1} {0}H{2}") + _edges(mask.T, "M{0} {1}V{2}")


def _edges(mask: BoolArray, form: str) -> str:
    """Edges between rows as runs: (row, first column, column behind the last)."""
    changes = np.diff(np.pad(mask, ((1, 1), (1, 1))).astype(np.int8), axis=0) != 0
    starts = np.diff(changes.astype(np.int8), axis=1)
    rows, first = np.nonzero(starts == 1)
    _, behind = np.nonzero(starts == -1)
    return "".join(form.format(*run) for run in zip(rows.tolist(), first.tolist(), behind.tolist(), strict=True))
