"""`eopipe plan`: forecast of a run as a table, files and a figure; refused over a quota."""

import logging
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from eopipe.arrays import Float64Array, IntArray
from eopipe.chips.splits import SPLITS
from eopipe.clusters.profile import describe_training
from eopipe.clusters.profile_command import config_conflicts, find_profile, read_profile
from eopipe.config import load
from eopipe.config_conflicts import refusal
from eopipe.contract import Argument
from eopipe.errors import BadInputError, NoSpaceError, UsageError
from eopipe.fetch.assets import asset_sizes
from eopipe.fetch.retry import FetchSession
from eopipe.needs import Known, unmet
from eopipe.planning.check_config import missing_files, model_mistakes, unpacked
from eopipe.planning.chip_forecast import (
    ChipForecast,
    chips_json,
    chips_table,
    forecast_chip_set,
    forecast_length,
    forecast_splits,
    length_line,
)
from eopipe.planning.disk_forecast import (
    DiskForecast,
    Quota,
    disk_table,
    forecast_disk,
    forecast_disk_of_chip_set,
    free_space,
)
from eopipe.planning.frozen_scenes import (
    Config,
    FrozenScenes,
    SceneRow,
    fetched_sizes,
    find_scenes,
    plan_geojson,
    refuse_huge_grid,
    scene_rows,
    scenes_table,
)
from eopipe.ports import ConfigFile
from eopipe.publish import publish, refuse_foreign
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
from eopipe.run.finished_model import check_grid
from eopipe.run.locate import in_project
from eopipe.text_files import write_json
from eopipe.text_table import format_bytes
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.globe import to_crs, transformer
from eopipe.tiles.grid import Bounds
from eopipe.tiles.ground import pixel_metres, scale_warning
from eopipe.trial_settings import describe_trainings
from eopipe.warp.footprints import exterior_rings, footprint, grid_extent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Seconds to wait for a server's answer about the size of a file.
TIMEOUT_S = 30.0
TOTALS = ("inodes", "bytes", "inodes_to_write", "bytes_to_write")


@dataclass(frozen=True)
class RunForecast:
    """Scenes, chips, files and bytes of a run.

    A chip set has no scenes, and its tiles and labels are there; a run with a finished model has no chips.
    """

    scenes: FrozenScenes | None
    rows: list[SceneRow]
    chips: ChipForecast | None
    disk: DiskForecast

    @property
    def known(self) -> Known:
        """What the needs of stages ask; of chips nothing where none could be placed."""
        chips, scenes = self.chips, self.scenes
        places = {name: len(rows) for name, rows in chips.corners.items()} if chips and chips.count("train") else {}
        return Known(places, *((scenes.days, scenes.frame) if scenes else ((), None)))

    @property
    def unknown(self) -> int:
        return sum(row.assets_of_unknown_size for row in self.rows)

    @property
    def download(self) -> int:
        """Bytes to fetch."""
        return sum(row.bytes for row in self.rows if not row.fetched)


def plan(
    quota: Quota,
    config: ConfigFile = None,
    out: Annotated[
        Path | None, Argument("output folder of plan.json, plan.png and plan.geojson [plan, in the project folder]")
    ] = None,
    profile: Annotated[
        str | None, Argument("Snakemake profile whose resources for the training are checked", value="PROFILE")
    ] = None,
) -> None:
    """Forecast what a run will download, write and need, without downloading; refuse a run over a quota."""
    if profile and Path(profile).exists():
        profile = str(Path(profile).absolute())
    target = out.absolute() if out else Path("plan")
    with in_project(config) as path:
        plan_project(load(path), target, profile, quota)


def plan_project(config: Config, target: Path, profile: str | None, quota: Quota) -> None:
    """Print and write the forecast of the config of this folder. Raises what `eopipe plan` refuses."""
    refuse_foreign(target, folder=True)
    # Stages write samples; their log lines do not belong to a run.
    logging.getLogger("eopipe").setLevel(logging.ERROR)
    training, stops = [], [*missing_files(config, set()), *model_mistakes(config)]
    if not config["model"]:
        settings = read_profile(find_profile(profile)[0]) if profile else {}
        training = [describe_training(config["train"], settings), *describe_trainings(config)]
        stops += config_conflicts(settings, config["train"]) if profile else ()
    try:
        forecast = forecast_run(config)
    except BadInputError as error:
        raise BadInputError(stop_message([*stops, str(error)])) from error
    if config["model"] and forecast.scenes:
        stops += refusal(partial(check_grid, config, forecast.scenes.frame))
    warnings = [*filter(None, [scale_warning(forecast.scenes.frame.cells[0].grid)])] if forecast.scenes else []
    if forecast.chips:
        stops += forecast.chips.stops
        training.append(length_line(config, forecast.chips))
        length = getattr(forecast_length(config, forecast.chips), "warning", "")
        warnings += filter(None, [*forecast.chips.warnings, length])
    stopping, weak = unmet(config, forecast.known)
    stops, warnings = [*stops, *stopping], [*warnings, *weak]
    refused = refusals(config, forecast, quota)
    last = [*training, *(f"warning: {line}" for line in warnings)]
    print("\n".join([*forecast_lines(config, forecast), *(["", *last] if last else [])]))
    with publish(target, folder=True) as draft:
        document = forecast_json(forecast, refused) | {"training": training, "stops": stops, "warnings": warnings}
        write_json(draft / "plan.json", document)
        if forecast.scenes:
            write_json(draft / "plan.geojson", plan_geojson(forecast.scenes, forecast.rows))
            title = config["report"]["title"]
            write_plan_figure(draft / "plan.png", forecast.scenes, forecast.rows, forecast.chips, title)
    names = ("plan.png", "plan.geojson", "plan.json") if forecast.scenes else ("plan.json",)
    print(f"\nwrote {', '.join(str(target / name) for name in names)}")
    if stops:
        raise BadInputError(stop_message([*stops, *refused]))
    if refused:
        raise NoSpaceError(f"this run does not fit: {'; '.join(refused)}")


def stop_message(sentences: list[str]) -> str:
    """What will stop the run, a line for each reason where there are several."""
    several = "".join(f"\n  {sentence}" for sentence in dict.fromkeys(sentences))
    return f"this will stop the run:{several if len(sentences) > 1 else f' {sentences[0]}'}"


def forecast_run(config: Config) -> RunForecast:
    """Search and forecast; nothing is downloaded or written to the results."""
    if config["chip_set"]:
        if sentence := unpacked(config):
            raise UsageError(sentence)
        of_set = forecast_chip_set(config)
        return RunForecast(None, [], of_set, forecast_disk_of_chip_set(config, of_set))
    scenes = find_scenes(config)
    refuse_huge_grid(scenes)
    catalog = Path(config["search"]["catalog"]) if config["search"]["catalog"] else None
    fetch = config["fetch"]
    session = FetchSession(TIMEOUT_S, fetch["sign"], tuple(fetch["private_hosts"]))
    sizes = asset_sizes(list(scenes.items.values()), catalog, session)
    chips = None if config["model"] else next(forecast_splits(config, scenes, [config["split"]]))
    rows = scene_rows(config, scenes, fetched_sizes(config, scenes, sizes))
    disk = forecast_disk(config, scenes, sizes, sum(row.bytes for row in rows), chips)
    return RunForecast(scenes, rows, chips, disk)


def refusals(config: Config, forecast: RunForecast, quota: Quota) -> list[str]:
    """A sentence for each quota that the run exceeds, with what it needs and what is available."""
    needed, size, new, new_bytes = forecast.disk.totals
    free, inodes = free_space(Path(config["results"]))
    free_state, _ = free_space(Path(config["state"]))
    # While a scene is fetched, its parts are in the state folder.
    largest = max((row.bytes for row in forecast.rows if not row.fetched), default=0)
    results, state = config["results"], config["state"]
    size_text, bytes_text, free_text = format_bytes(size), format_bytes(new_bytes), format_bytes(free)
    scene_text, state_text = format_bytes(largest), format_bytes(free_state)
    checks = (
        (needed, quota.max_files, f"it needs {needed} files and folders, --max-files allows {quota.max_files}"),
        (size, quota.bytes, f"it needs {size_text}, --max-bytes allows {format_bytes(quota.bytes or 0)}"),
        (new_bytes, free, f"it needs {bytes_text} more, {free_text} are free for {results}"),
        # Some file systems do not count inodes.
        (new, inodes or None, f"it needs {new} more files and folders, {inodes} inodes are free for {results}"),
        (largest, free_state, f"the largest scene is {scene_text}, {state_text} are free for {state}"),
    )
    return [sentence for amount, limit, sentence in checks if limit is not None and amount > limit]


def forecast_lines(config: Config, forecast: RunForecast) -> list[str]:
    """The forecast for the terminal."""
    _, _, new, new_bytes = forecast.disk.totals
    chips = forecast.chips
    unknown = f" and {forecast.unknown} assets of unknown size" if forecast.unknown else ""
    free = "; ".join(dict.fromkeys(_free_text(config[name]) for name in ("results", "state")))
    images, assumption = list[str](), ""
    if config["chip_set"] and chips:
        images = [f"{len(chips.scenes)} stores of {config['chip_set']}, nothing to fetch", ""]
    if scenes := forecast.scenes:
        frozen = f", frozen in {config['results']}" if scenes.is_frozen else ""
        images = [
            *scenes_table(forecast.rows),
            "",
            f"{len(forecast.rows)} scenes{frozen}, {format_bytes(forecast.download)}{unknown} to fetch; "
            f"{' and '.join(map(_grid_text, scenes.frame.cells))}",
            "",
        ]
    of_chips = list[str]()
    if chips:
        if scenes:
            assumption = f", if all pixels are {'valid' if chips.has_labels else 'valid and labelled'}"
        of_chips = [*((*chips.label_lines, "") if chips.label_lines else ()), *chips_table(chips)]
        of_chips += [f"chips of {chips.plan.chip} pixels{assumption}", ""]
    return [
        *images,
        *disk_table(forecast.disk),
        "",
        *of_chips,
        f"still to write: {new:,} inodes (files and folders), {format_bytes(new_bytes)}; free: {free}",
    ]


def _grid_text(cell: Cell) -> str:
    name = f"cell {cell.id}" if cell.id else "grid"
    return f"{name} of {cell.shape[0]} x {cell.shape[1]} pixels in {cell.grid.crs}"


def _free_text(folder: str) -> str:
    size, inodes = free_space(Path(folder))
    return f"{format_bytes(size)}" + (f" and {inodes:,} inodes" if inodes else "")


def forecast_json(forecast: RunForecast, refused: list[str]) -> dict[str, Any]:
    """The content of `plan.json`."""
    of_scenes: dict[str, Any] = {}
    if forecast.scenes:
        of_scenes = {
            "scenes": [asdict(row) for row in forecast.rows],
            "grid": forecast.scenes.frame.json(),
            "fetch": {"bytes": forecast.download, "assets_of_unknown_size": forecast.unknown},
        }
    return of_scenes | {
        "needs": [asdict(row) for row in forecast.disk.rows],
        "totals": dict(zip(TOTALS, forecast.disk.totals, strict=True)),
        **({"chips": chips_json(forecast.chips)} if forecast.chips else {}),
        "refused": refused,
    }


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
