"""A plan on one picture: the grid, the scenes that cover it, where chips will lie, and when scenes were taken."""

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from eopipe.arrays import Float64Array
from eopipe.chips.splits import SPLITS
from eopipe.planning.chip_forecast import Chips
from eopipe.planning.footprints import footprint, grid_extent, rings
from eopipe.planning.frozen_scenes import Frozen
from eopipe.planning.outline import Row
from eopipe.planning.timeline import timeline
from eopipe.planning.view import View, view_of
from eopipe.reporting.distances import length, pixel_metres, round_length
from eopipe.reporting.ink import FAINT, FAR, INK, LINE, PAPER, font, rows, text
from eopipe.reporting.palette import rgb
from eopipe.reporting.pictures import ROLES

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

WIDTH, MARGIN, SIDE, TALLEST, STRIP = 1400, 56, 320, 860, 170
COVER = "#7c97a6"


def draw(seen: Frozen, scenes: list[Row], chips: Chips, title: str) -> "Image":
    """Draw the plan; the same plan gives the same pixels."""
    from PIL import Image, ImageDraw

    shapes = (footprint(item, str(seen.grid.crs)) for item in seen.items.values())
    outlines = [rings(shape) for shape in shapes if shape is not None]
    wide = WIDTH - 2 * MARGIN - SIDE - 48
    view = view_of(seen.grid, [ring for own in outlines for ring in own], (wide, TALLEST))
    top = MARGIN + 104
    body = top + max(view.size[1], 430)
    sheet = Image.new("RGB", (WIDTH, body + 110 + STRIP + 70), PAPER)
    pen = ImageDraw.Draw(sheet)
    days = sorted(row.day for row in scenes if row.day)
    span = f", {days[0]} to {days[-1]}" if days else ""
    rows(pen, (MARGIN, MARGIN), [(f"Plan: {title}", 38, INK), (f"{len(scenes)} scenes{span}", 21, FAINT)])
    sheet.paste(_map(seen, chips, view, outlines), (MARGIN, top))
    _frame(pen, view, (MARGIN, top))
    _side(pen, seen, chips, view, (MARGIN + view.size[0] + 48, top))
    timeline(pen, scenes, chips, (MARGIN, body + 110, WIDTH - MARGIN, body + 110 + STRIP))
    return sheet


def _map(seen: Frozen, chips: Chips, view: View, outlines: list[list[Float64Array]]) -> "Image":
    from PIL import Image, ImageDraw

    cover = np.zeros(view.size[::-1], np.float32)
    for own in outlines:
        layer = Image.new("L", view.size)
        for ring in own:
            ImageDraw.Draw(layer).polygon(view.pixels(ring), fill=1)
        cover += np.asarray(layer)
    # Deeper where more scenes lie; a single one already shows.
    share = np.where(cover > 0, 0.25 + 0.5 * cover / max(1.0, float(cover.max())), 0)[..., None]
    pixels = np.array(rgb(FAR)) * (1 - share) + np.array(rgb(COVER)) * share
    image = Image.fromarray(pixels.round().astype(np.uint8))
    pen = ImageDraw.Draw(image, "RGBA")
    for ring in (ring for own in outlines for ring in own):
        pen.line(view.pixels(ring), fill=(255, 255, 255, 120), width=1)
    _chips(pen, seen, chips, view)
    for ring in rings(grid_extent(seen.grid)):
        pen.line(view.pixels(ring), fill=INK, width=3)
    for _, _, line in view.graticule():
        pen.line(line, fill=(31, 38, 41, 70), width=1)
    return image


def _chips(pen: "ImageDraw", seen: Frozen, chips: Chips, view: View) -> None:
    """Every place of a chip in the colour of its split, where places are split."""
    affine = seen.grid.affine
    for color, split in zip(ROLES, SPLITS, strict=True):
        if not chips.plan.by_place:
            return
        corners = chips.places[split].astype(float)
        both = np.stack([corners, corners + chips.plan.chip], 1).reshape(-1, 2)
        flat = np.column_stack([affine.c + affine.a * both[:, 1], affine.f + affine.e * both[:, 0]])
        drawn = view.pixels(flat)
        # Neighbours show as such where there is room; chips that overlap do not.
        gap = 2 if chips.plan.stride >= chips.plan.chip and drawn and drawn[1][0] - drawn[0][0] > 12 else 1
        for one, other in zip(drawn[::2], drawn[1::2], strict=True):
            pen.rectangle((*one, other[0] - gap, other[1] - gap), fill=color)


def _frame(pen: "ImageDraw", view: View, at: tuple[int, int]) -> None:
    """The map's border with the labels of the graticule: longitudes below, latitudes within on the left."""
    (x, y), (width, height) = at, view.size
    pen.rectangle((x - 1, y - 1, x + width, y + height), outline=LINE)
    for axis, name, line in view.graticule():
        for (x0, y0), (x1, y1) in pairwise(line):
            if axis == "x" and (y0 - height) * (y1 - height) <= 0 and 20 < x0 < width - 20:
                text(pen, (x + x0, y + height + 8), name, 17, FAINT, "ma")
                break
            if axis == "y" and x0 * x1 <= 0 and 12 < y0 < height - 12:
                _tag(pen, (x + 6, y + y0), name)
                break


def _tag(pen: "ImageDraw", at: tuple[float, float], name: str) -> None:
    left, top, right, bottom = font(17).getbbox(name, anchor="lm")
    pen.rectangle((at[0] + left - 4, at[1] + top - 4, at[0] + right + 4, at[1] + bottom + 4), fill=PAPER)
    text(pen, at, name, 17, FAINT, "lm")


def _side(pen: "ImageDraw", seen: Frozen, chips: Chips, view: View, at: tuple[int, int]) -> None:
    """Legend, scale bar, and the grid in words."""
    x, y = at
    for color, split in zip(ROLES, SPLITS, strict=True):
        pen.rectangle((x, y, x + 34, y + 26), fill=color)
        count = chips.count(split)
        text(pen, (x + 48, y + 1), split, 21)
        text(pen, (x + SIDE, y + 1), f"{count:,} chips", 21, FAINT, "ra")
        y += 40
    pen.rectangle((x, y, x + 34, y + 26), fill=COVER)
    text(pen, (x + 48, y + 1), "covered by scenes", 21)
    pen.rectangle((x + 1, y + 41, x + 33, y + 65), outline=INK, width=3)
    text(pen, (x + 48, y + 41), "grid", 21)
    wide, high = pixel_metres(seen.grid)
    metres = wide / seen.grid.resolution.x * (view.bounds[2] - view.bounds[0]) / view.size[0]
    bar = round_length(metres * SIDE * 0.8)
    end, y = x + bar / metres, y + 110
    pen.line((x, y, end, y), fill=INK, width=4)
    for edge in (x, end):
        pen.line((edge, y - 10, edge, y + 10), fill=INK, width=2)
    height, width = seen.grid.shape
    facts = [f"{length(width * wide)} x {length(height * high)}", f"{width} x {height} pixels of {length(wide)}"]
    facts += [str(seen.grid.crs), f"chips of {chips.plan.chip} pixels"]
    rows(pen, (x, y + 20), [(length(bar), 19, INK), *((line, 17, FAINT) for line in facts)])
