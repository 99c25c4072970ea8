"""A plan as one figure: the grid, the scenes that cover it, the chips of each split, and the scenes by date."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eopipe.arrays import Float64Array, IntArray
from eopipe.chips.splits import SPLITS
from eopipe.planning.chip_forecast import ChipForecast
from eopipe.planning.frozen_scenes import FrozenScenes, SceneRow
from eopipe.reporting.figures import INK, SPLIT_COLORS, Box, axes_at, figure_style, new_figure, save_png
from eopipe.reporting.maps import (
    GAP,
    LEGEND_WIDTH,
    MARGIN,
    SCALE_HEIGHT,
    TALLEST,
    TICKS,
    WIDTH,
    add_heads,
    add_legend,
    add_scale_bar,
    label_degrees,
)
from eopipe.tiles.cells import Frame
from eopipe.tiles.globe import to_crs, transformer
from eopipe.tiles.grid import Bounds
from eopipe.tiles.ground import pixel_metres
from eopipe.warp.footprints import exterior_rings, footprint, grid_extent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COVERAGE, TIMELINE = "#7c97a6", "#4d7386"
TIMELINE_HEIGHT, TIMELINE_LABEL = 0.9, 0.42
# The surroundings of the grid in the map, as a share of its size; footprints may extend much further.
MAX_AROUND, MIN_AROUND = 0.6, 0.06


def write_plan_figure(
    path: Path, scenes: FrozenScenes, rows: list[SceneRow], chips: ChipForecast | None, title: str
) -> None:
    """Draw the plan as PNG; the same plan gives the same bytes."""
    # Several cells are drawn in the CRS of the first.
    first = scenes.frame.cells[0].grid
    shapes = (footprint(item, first) for item in scenes.items.values())
    outlines = [ring for shape in shapes if shape is not None for ring in exterior_rings(shape)]
    left, lower, right, upper = figure_bounds(_extents(scenes.frame), outlines)
    days = sorted(row.date for row in rows if row.date)
    period = f", {days[0]} to {days[-1]}" if days else ""
    of_splits = zip(SPLITS, SPLIT_COLORS, strict=True) if chips else ()
    legend = [(f"{name}, {chips.count(name) if chips else 0:,} chips", color) for name, color in of_splits]
    with figure_style(title):
        figure = new_figure(WIDTH, WIDTH)
        top = add_heads(figure, f"Plan: {title}", f"{len(rows)} scenes{period}")
        across, down = np.array(pixel_metres(first)) / np.abs([first.affine.a, first.affine.e])
        aspect = (upper - lower) * down / ((right - left) * across)
        width = min(WIDTH - 2 * MARGIN - LEGEND_WIDTH - GAP - TICKS, TALLEST / aspect)
        box: Box = (MARGIN + TICKS, top, width, width * aspect)
        corner = (box[0] + width + GAP + 0.1, top)
        end = add_legend(
            figure, corner, [*legend, ("scene coverage", COVERAGE), ("grid", "none")], WIDTH - MARGIN - corner[0]
        )
        bottom = max(box[1] + box[3], end + SCALE_HEIGHT)
        figure.set_figheight(bottom + 0.75 + TIMELINE_HEIGHT + TIMELINE_LABEL)
        axes = axes_at(figure, box)
        axes.set(xlim=(left, right), ylim=(lower, upper))
        _draw_map(axes, scenes, chips, outlines)
        label_degrees(axes, str(first.crs))
        add_scale_bar(
            figure, (corner[0], bottom), (right - left) * across / width, [cell.grid for cell in scenes.frame.cells]
        )
        timeline = axes_at(figure, (MARGIN + 0.4, bottom + 0.75, WIDTH - 2 * MARGIN - 0.4, TIMELINE_HEIGHT))
        _draw_timeline(timeline, rows, chips)
        save_png(figure, path)


def _extents(frame: Frame) -> Any:
    """The outlines of all cells (shapely), in the CRS of the first."""
    from shapely import union_all

    first, *others = (cell.grid for cell in frame.cells)
    step = abs(first.resolution.x) * 64
    turned = (to_crs(grid_extent(grid), str(first.crs), step, str(grid.crs)) for grid in others)
    return union_all([grid_extent(first), *turned])


def figure_bounds(extents: Any, outlines: list[Float64Array]) -> Bounds:
    """The grid with its surroundings (left, lower, right, upper): the footprints, as far as they are near."""
    left, lower, right, upper = extents.bounds
    size = max(right - left, upper - lower)
    low, high = np.array([left, lower]), np.array([right, upper])
    for points in outlines:
        if len(points):
            low, high = np.minimum(low, points.min(0)), np.maximum(high, points.max(0))
    low = np.maximum(low, np.array([left, lower]) - MAX_AROUND * size) - MIN_AROUND * size
    high = np.minimum(high, np.array([right, upper]) + MAX_AROUND * size) + MIN_AROUND * size
    return float(low[0]), float(low[1]), float(high[0]), float(high[1])


def _draw_map(axes: "Axes", scenes: FrozenScenes, chips: ChipForecast | None, outlines: list[Float64Array]) -> None:
    """Coverage, darker where more scenes overlap; the chips in the colour of their split; the outline of the grid."""
    from matplotlib.collections import PolyCollection

    axes.set_facecolor("#eef1ef")
    alpha = max(0.04, 0.75 / max(1, len(outlines)))
    axes.add_collection(PolyCollection(outlines, facecolors=COVERAGE, edgecolors="none", alpha=alpha))
    axes.add_collection(PolyCollection(outlines, facecolors="none", edgecolors="white", linewidths=0.4))
    if chips:
        for color, split in zip(SPLIT_COLORS, SPLITS, strict=True):
            # Chips that overlap show as one area, and polygons of few pixels by their edges.
            edge = "white" if chips.plan.by_place and chips.plan.stride >= chips.plan.chip else color
            shapes = [_on_map(scenes.frame, outline) for outline in chips.outlines(split)]
            areas = PolyCollection(shapes, facecolors=color, edgecolors=edge)
            areas.set(linewidths=1.2 if chips.plan.by_polygon else 0.2, antialiaseds=False)
            axes.add_collection(areas)
    grid = PolyCollection(exterior_rings(_extents(scenes.frame)), facecolors="none", edgecolors=INK, linewidths=1)
    axes.add_collection(grid)


def _on_map(frame: Frame, outline: IntArray) -> Float64Array:
    """An outline (n, row and column) within one cell in the CRS of the first."""
    cell = next(cell for cell in frame.cells if outline[:, 1].min() < cell.window[1].stop)
    affine, (rows, cols) = cell.grid.affine, (outline - (0, cell.column)).T
    x, y = affine.c + affine.a * cols, affine.f + affine.e * rows
    if cell is not frame.cells[0]:
        x, y = transformer(str(cell.grid.crs), str(frame.cells[0].grid.crs)).transform(x, y)
    return np.stack([x, y], -1)


def _draw_timeline(axes: "Axes", rows: list[SceneRow], chips: ChipForecast | None) -> None:
    """Cloud cover of each scene by date; a hollow mark where it is unknown. Scenes without a date are missing."""
    dated = [row for row in rows if row.date]
    if dated:
        days = np.array([row.date for row in dated], "datetime64[D]")
        cloud = np.array([row.cloud or 0 for row in dated])
        colors = [TIMELINE] * len(dated)
        if chips and chips.plan.by_scene:
            colors = [SPLIT_COLORS[SPLITS.index(chips.main_splits.get(row.scene, SPLITS[0]))] for row in dated]
        faces = [color if row.cloud is not None else "white" for row, color in zip(dated, colors, strict=True)]
        axes.vlines(days, 0, cloud, colors=colors, linewidths=1.2)
        axes.scatter(days, cloud, s=12, c=faces, edgecolors=colors, linewidths=0.8, clip_on=False, zorder=3)
    axes.set(ylim=(0, 100), yticks=(0, 50, 100), ylabel="cloud (%)")
    axes.set_title("Cloud cover of the scenes by date", loc="left")
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
