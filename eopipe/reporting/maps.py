"""Maps as figures: title, axes in degrees, legend, scale bar and credit, as one PNG to hand around."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from eopipe.arrays import Float64Array, UInt8Array
from eopipe.reporting.figures import (
    DPI,
    FAINT,
    INK,
    LINE_HEIGHT,
    NO_DATA,
    Box,
    ValueScale,
    add_text,
    axes_at,
    color_table,
    figure_style,
    from_corner,
    new_figure,
    save_png,
    shorten_to_width,
    text_width,
    wrapped,
)
from eopipe.reporting.wording import TIMES, format_length, round_length
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.globe import to_degrees
from eopipe.tiles.grid import PixelWindow, common_part, within
from eopipe.tiles.ground import pixel_metres
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from odc.geo.geobox import GeoBox


# In inches.
WIDTH, MARGIN, LEGEND_WIDTH, GAP = 7.0, 0.28, 1.6, 0.2
TALLEST, TICKS, PANEL_TITLE = 5.0, 0.24, 0.2
LEGEND_ROW, SCALE_HEIGHT = 0.21, 0.85
BAR_WIDTH, BAR_HEIGHT = 0.16, 1.5


@dataclass(frozen=True)
class MapPanel:
    """One map: a name, class numbers (y, x), the window that it shows in steps of the content, and its grid."""

    name: str
    numbers: UInt8Array
    window: PixelWindow
    grid: "GeoBox"


def cell_windows(name: str, window: PixelWindow, frame: Frame, step: int) -> Iterator[tuple[str, Cell, PixelWindow]]:
    """The cells that a window of an image shows, with their names and parts of it; a pixel has `step` of the frame."""
    for cell in frame.cells:
        if part := common_part(window, (window[0], cell.columns(step))):
            yield f"{name} {cell.id}".strip(), cell, part


def cell_panels(name: str, numbers: UInt8Array, window: PixelWindow, frame: Frame, step: int) -> list[MapPanel]:
    """The window of an image (y, x) of the frame as a panel for each cell that it shows."""
    return [
        MapPanel(title, numbers[part], within(part, (slice(0, None), cell.columns(step))), cell.grid)
        for title, cell, part in cell_windows(name, window, frame, step)
    ]


@dataclass(frozen=True)
class MapContent:
    """What a map figure shows; a cell is `step` pixels of the grid wide and high, `scale` is for continuous values."""

    title: str
    subtitle: str
    credit: str
    classes: tuple[str, ...]
    colors: tuple[str, ...]
    frame: Frame
    step: int
    panels: list[MapPanel]
    scale: ValueScale | None = None

    @property
    def legend(self) -> list[tuple[str, str]]:
        """Names and colours of classes; also of cells without data where there are any."""
        known = [] if self.scale else list(zip(self.classes, self.colors, strict=True))
        return [*known, *[("no data", NO_DATA)] * any((p.numbers == NO_LABEL).any() for p in self.panels)]


def write_map(path: Path | BinaryIO, content: MapContent) -> None:
    """Draw maps with one legend and write them as PNG; the same content gives the same bytes."""
    texts = (content.title, content.subtitle, content.credit, *content.classes, *(p.name for p in content.panels))
    with figure_style(*texts):
        figure, width = new_figure(WIDTH, WIDTH), WIDTH - 2 * MARGIN
        boxes = _panel_boxes(content, add_heads(figure, content.title, content.subtitle))
        left = max(box[0] + box[2] for box in boxes) + GAP + 0.1
        title = wrapped(content.classes[0], 9, LEGEND_WIDTH) if content.scale else []
        end = boxes[0][1] + (BAR_HEIGHT + 0.3 + 9 * LINE_HEIGHT * len(title) if content.scale else 0)
        end = add_legend(figure, (left, end), content.legend, WIDTH - MARGIN - left) if content.legend else end
        bottom = max(boxes[-1][1] + boxes[-1][3], end + SCALE_HEIGHT)
        end = add_text(figure, content.credit, (MARGIN, bottom + TICKS + 0.08), width, 7.5, FAINT)
        figure.set_figheight(end + MARGIN / 2)
        # Axes are placed once the height is known.
        for panel, box in zip(content.panels, boxes, strict=True):
            _draw_panel(figure, content, panel, box)
        if content.scale:
            add_color_bar(figure, (left, boxes[0][1]), content.classes[0], content.scale)
        metres = (
            pixel_metres(content.panels[0].grid)[0] * content.step * content.panels[0].numbers.shape[1] / boxes[0][2]
        )
        add_scale_bar(figure, (left, bottom), metres, [cell.grid for cell in content.frame.cells])
        save_png(figure, path)


def add_heads(figure: "Figure", title: str, subtitle: str) -> float:
    """Write a title and a line below it at the top of a figure; returns the top of what follows, in inches."""
    width = figure.get_figwidth() - 2 * MARGIN
    top = add_text(figure, title, (MARGIN, MARGIN), width, 15)
    return add_text(figure, subtitle, (MARGIN, top), width, 9, FAINT) + 0.12


def _panel_boxes(content: MapContent, top: float) -> list[Box]:
    """The frame of each map, two in a row; all have the same scale."""
    columns, panels = min(len(content.panels), 2), content.panels
    title_height = PANEL_TITLE if any(panel.name for panel in panels) else 0
    available_width = (WIDTH - 2 * MARGIN - LEGEND_WIDTH - columns * (GAP + TICKS)) / columns
    pixel_width, pixel_height = pixel_metres(content.panels[0].grid)
    aspect = pixel_height / pixel_width
    rows, cols = (max(panel.numbers.shape[axis] for panel in panels) for axis in (0, 1))
    scale = min(available_width / cols, TALLEST / (rows * aspect))
    # Cells of whole dots are all of one size; below three dots, rounding would shrink the map too much.
    scale = int(scale * DPI) / DPI if scale * DPI >= 3 and math.isclose(aspect, 1) else scale
    across, down = cols * scale + GAP + TICKS, rows * scale * aspect + TICKS + title_height + 0.06
    return [
        (
            MARGIN + TICKS + n % columns * across,
            top + title_height + n // columns * down,
            panel.numbers.shape[1] * scale,
            panel.numbers.shape[0] * scale * aspect,
        )
        for n, panel in enumerate(panels)
    ]


def _draw_panel(figure: "Figure", content: MapContent, panel: MapPanel, box: Box) -> None:
    rows, cols = ([part.start * content.step, part.stop * content.step] for part in panel.window)
    affine = panel.grid.affine
    left, right = (affine.c + affine.a * col for col in cols)
    upper, lower = (affine.f + affine.e * row for row in rows)
    axes = axes_at(figure, box)
    pixels = color_table(content.colors)[panel.numbers]
    axes.imshow(pixels, extent=(left, right, lower, upper), interpolation="nearest", aspect="auto")
    axes.set_title(shorten_to_width(panel.name, 7.5, box[2]), loc="left", size=7.5)
    label_degrees(axes, str(panel.grid.crs))


def label_degrees(axes: "Axes", crs: str) -> None:
    """Ticks where round longitudes cross the lower edge of a map and round latitudes the left one.

    Where an edge does not cross each of them once, as at a pole, ticks are at round coordinates of the CRS.
    """
    change = to_degrees(crs)
    (left, right), (lower, upper) = axes.get_xlim(), axes.get_ylim()
    x, y = np.linspace(left, right, 1001), np.linspace(lower, upper, 1001)
    longitudes = np.unwrap(change.transform(x, np.full_like(y, lower))[0], period=360)
    latitudes = change.transform(np.full_like(x, left), y)[1]
    if all(np.isfinite(edge).all() and (np.diff(edge) > 0).all() for edge in (longitudes, latitudes)):
        _set_ticks(axes, "x", x, longitudes, lambda value, step: degrees((value + 180) % 360 - 180, step, "WE"))
        _set_ticks(axes, "y", y, latitudes, lambda value, step: degrees(value, step, "SN"))
    else:
        _set_ticks(axes, "x", x, x, _coordinate)
        _set_ticks(axes, "y", y, y, _coordinate)


def _set_ticks(
    axes: "Axes", name: str, along: Float64Array, values: Float64Array, label: Callable[[float, float], str]
) -> None:
    """Ticks at round values of an edge whose points `along` have increasing `values`; as many as fit."""
    from matplotlib.ticker import MaxNLocator

    box = axes.get_window_extent()
    inches = (box.width if name == "x" else box.height) / axes.figure.dpi
    locator = MaxNLocator(max(1, int(inches / 0.8)), steps=[1, 2, 5, 10])
    ticks = np.asarray(locator.tick_values(values[0], values[-1]))
    step = float(np.diff(ticks).min())
    shares = np.interp(ticks, values, (along - along[0]) / (along[-1] - along[0]), left=np.nan, right=np.nan)
    labels = [label(float(tick), step) for tick in ticks]
    # Labels of latitudes stay beside their edge, so that they do not reach the labels of longitudes.
    margins = [text_width(text, 7.5) / 2 / inches if name == "y" else 0.0 for text in labels]
    fits = [n for n, share in enumerate(shares) if margins[n] <= share <= 1 - margins[n]]
    axis = axes.xaxis if name == "x" else axes.yaxis
    axis.set_ticks(np.interp(ticks[fits], values, along), labels=[labels[n] for n in fits])
    if name == "y":
        axes.tick_params(axis="y", labelrotation=90)
        for text in axes.get_yticklabels():
            text.set_verticalalignment("center")


def _coordinate(value: float, step: float) -> str:
    return f"{value:,.0f}" if step >= 1 else f"{value:g}"


def degrees(value: float, step: float, sides: str) -> str:
    """A longitude or latitude as text, with as many digits as the step needs: 22.15° E."""
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{abs(value):.{digits}f}° {sides[int(value > 0)] if round(value, digits) else ''}".strip()


def add_legend(figure: "Figure", corner: tuple[float, float], entries: list[tuple[str, str]], width: float) -> float:
    """A legend of names and colours below (left, top), of a width in inches; returns about where it ends."""
    from matplotlib.patches import Patch

    labels = [wrapped(name, 9, width - 0.35) for name, _ in entries]
    figure.legend(
        handles=[Patch(facecolor=color, edgecolor=FAINT, linewidth=0.4) for _, color in entries],
        labels=["\n".join(lines) for lines in labels],
        loc="upper left",
        bbox_to_anchor=(corner[0], -corner[1]),
        bbox_transform=from_corner(figure),
        borderpad=0,
        handlelength=1.6,
        handleheight=1.1,
        labelspacing=0.6,
    )
    return corner[1] + sum(LEGEND_ROW + 9 * LINE_HEIGHT * (len(lines) - 1) for lines in labels)


def add_color_bar(figure: "Figure", corner: tuple[float, float], title: str, scale: ValueScale) -> None:
    """A colour bar with its title below (left, top) in inches, the highest value on top."""
    left, top = corner
    top = add_text(figure, title, corner, LEGEND_WIDTH, 9) + 0.08
    ramp, ticks = color_table(scale.colors)[: len(scale.colors), None], scale.ticks
    axes = axes_at(figure, (left, top, BAR_WIDTH, BAR_HEIGHT))
    axes.imshow(ramp, extent=(0, 1, ticks[0], ticks[-1]), origin="lower", aspect="auto", interpolation="nearest")
    axes.set_xticks([])
    axes.yaxis.tick_right()
    axes.set_yticks(ticks, labels=[scale.text(tick) for tick in ticks])


def add_scale_bar(
    figure: "Figure", corner: tuple[float, float], metres_per_inch: float, grids: "Sequence[GeoBox]"
) -> None:
    """A scale bar with the sizes and CRSs of the grids below it; (left, bottom) is the corner of both in inches."""
    from matplotlib.lines import Line2D

    left, bottom = corner
    bar = round_length(metres_per_inch * LEGEND_WIDTH * 0.8)
    right, middle = left + bar / metres_per_inch, bottom - SCALE_HEIGHT + 0.25
    x, y = [left, left, left, right, right, right], [middle + end for end in (-0.04, 0.04, 0, 0, -0.04, 0.04)]
    line = Line2D(x, [-down for down in y], color=INK, linewidth=1.2, solid_joinstyle="miter")
    line.set_transform(from_corner(figure))
    figure.add_artist(line)
    top, width = add_text(figure, format_length(bar), (left, middle + 0.07), LEGEND_WIDTH, 8), 0.0
    texts = []
    for grid in grids:
        (width, height), (rows, cols) = pixel_metres(grid), grid.shape
        texts.append(f"{format_length(cols * width)}{TIMES}{format_length(rows * height)}")
    for text in (*texts, f"pixels of {format_length(width)}", *(str(grid.crs) for grid in grids)):
        top = add_text(figure, text, (left, top), LEGEND_WIDTH, 7.5, FAINT)
