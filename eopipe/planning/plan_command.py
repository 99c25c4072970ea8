"""`eopipe plan`: forecast of a run as a table, files and a figure; refused over a quota."""

import logging
import math
import os
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from eopipe.chips.splits import SPLITS
from eopipe.clusters.profile import describe_training
from eopipe.clusters.profile_command import config_conflicts, find_profile, read_profile
from eopipe.config import load
from eopipe.config_conflicts import refusal
from eopipe.contract import Argument
from eopipe.errors import BadInputError, NoSpaceError, UsageError
from eopipe.fetch.assets import asset_sizes
from eopipe.fetch.retry import FetchSession
from eopipe.models.model_files import module_of
from eopipe.models.pixel_models import METHOD_NAMES
from eopipe.needs import Known, unmet
from eopipe.planning.check_config import missing_files, model_mistakes, unpacked
from eopipe.planning.chip_forecast import ChipForecast, chips_json, forecast_chip_set, forecast_splits
from eopipe.planning.disk_forecast import (
    DiskForecast,
    DiskRow,
    Quota,
    forecast_disk,
    forecast_disk_of_chip_set,
    free_space,
)
from eopipe.planning.frozen_scenes import (
    Config,
    FrozenScenes,
    SceneRow,
    clip_sizes,
    find_scenes,
    plan_geojson,
    scene_rows,
)
from eopipe.planning.plan_figure import write_plan_figure
from eopipe.ports import ConfigFile
from eopipe.publish import publish, refuse_foreign
from eopipe.run.finished_model import check_grid
from eopipe.run.locate import in_project
from eopipe.tasks import TASKS
from eopipe.text_files import write_json
from eopipe.text_table import TextRow, format_bytes, format_table
from eopipe.tiles.cells import Cell
from eopipe.tiles.ground import scale_warning
from eopipe.train_options import PIXEL_MODELS
from eopipe.training.schedule import MOST_STEPS, default_batch, default_crop, training_length
from eopipe.training_job import FEWEST_STEPS, TrainingLength
from eopipe.trial_settings import describe_trainings
from eopipe.warp.footprints import bounds_of, footprint, grid_extent

# Seconds to wait for a server's answer about the size of a file.
TIMEOUT_S = 30.0
MAX_ROWS = 40
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
        settings = read_profile(find_profile(profile).file) if profile else {}
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


def forecast_length(config: Config, chips: ChipForecast) -> TrainingLength | None:
    """The length of the training; None where it depends on labels that are not there yet, or there are no chips."""
    train, count, chip = config["train"], chips.count("train"), chips.plan.chip
    if train["architecture"] in PIXEL_MODELS:
        return None
    train = train | {"batch": train["batch"] or default_batch(train["task"], chip)}
    if not count or not (chips.has_labels or TASKS[train["task"]].is_of_chips):
        return None
    labelled, drawn = chips.ground_pixels, sum(pixels for *_, pixels in chips.class_counts("train")) / count
    crop = train["crop"]
    if crop is None and not module_of(train["architecture"]):
        crop = default_crop(chip)
    part = (crop / chip) ** 2 if crop else 1.0
    of_labels = (count, 1.0) if TASKS[train["task"]].is_of_chips else (labelled, drawn, part)
    return training_length(train, count, *of_labels)


def length_line(config: Config, chips: ChipForecast) -> str:
    """The length of the training in words."""
    length, train = forecast_length(config, chips), config["train"]
    if train["architecture"] in PIXEL_MODELS:
        fitted = METHOD_NAMES[train["architecture"]]
        return f"training length: one fit of {fitted} to at most {train['max_pixels']:,} labelled pixels"
    if length:
        return f"training length: {length}"
    if train["epochs"] or train["steps"]:
        return f"training length: {train['epochs'] or train['steps']} {'epochs' if train['epochs'] else 'steps'}"
    return f"training length: {FEWEST_STEPS} to {MOST_STEPS} steps, by the number of labelled pixels"


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
    sizes = clip_sizes(sizes, scenes) if fetch["windows"] else sizes
    chips = None if config["model"] else next(forecast_splits(config, scenes, [config["split"]]))
    disk = forecast_disk(config, scenes, sizes, chips)
    return RunForecast(scenes, scene_rows(config, scenes, sizes), chips, disk)


def refuse_huge_grid(scenes: FrozenScenes) -> None:
    """Raise BadInputError for scenes whose valid masks would fill the memory of this machine."""
    (height, width), memory = scenes.shape, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = sum(math.prod(place.shape) for footprints in scenes.footprints.values() for place in footprints)
    for members, cell in product(scenes.periods.values(), scenes.frame.cells):
        windows = [place.window for name in members for place in scenes.footprints[name] if place.cell is cell]
        needed += math.prod(axis.stop - axis.start for axis in bounds_of(windows)) if windows else 0
    if needed < memory / 2:
        return
    grid = max((cell.grid for cell in scenes.frame.cells), key=lambda grid: grid.shape[0] * grid.shape[1])
    outlines = [outline for item in scenes.items.values() if (outline := footprint(item, grid))]
    share = 100 * sum(outline.area for outline in outlines) / grid_extent(grid).area
    crs = " and ".join(str(cell.grid.crs) for cell in scenes.frame.cells)
    raise BadInputError(
        f"the grid of {height:,} x {width:,} pixels in {crs} is too large: masks of "
        f"{len(scenes.items)} scenes need {format_bytes(needed)} of memory, and this machine has "
        f"{format_bytes(memory)}; the scenes cover {share:.2g} % of it. Choose a smaller search.area, a coarser "
        "search.resolution, or a run for each place where scenes are far apart"
    )


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


def scenes_table(rows: list[SceneRow]) -> list[str]:
    """The scenes, one line each; the middle of a long list is omitted, `plan.json` has it."""
    cells = [_scene_row(row) for row in rows]
    if len(cells) > MAX_ROWS:
        half = MAX_ROWS // 2
        omitted = len(cells) - 2 * half
        cells = [*cells[:half], (f"... {omitted} more in plan.json", "", "", "", "", ""), *cells[-half:]]
    head = ("scene", "date", "cloud", "of the grid", "to fetch", "")
    return format_table([head, *cells], left=(0, 1, 5))


def _scene_row(row: SceneRow) -> TextRow:
    known = "unknown" if row.assets_of_unknown_size and not row.bytes else format_bytes(row.bytes)
    note = f"+ {row.assets_of_unknown_size} assets of unknown size" if row.assets_of_unknown_size and row.bytes else ""
    size, note = ("0 B", "already fetched") if row.fetched else (known, note)
    cloud = "?" if row.cloud is None else f"{row.cloud:.0f} %"
    return row.scene, row.date or "?", cloud, f"{100 * row.share_of_grid:.0f} %", size, note


def disk_table(disk: DiskForecast) -> list[str]:
    """What the run writes, kind by kind, with the total."""
    inodes, size, *_ = disk.totals
    rows = [*disk.rows, DiskRow("= total", sum(row.jobs for row in disk.rows), inodes, size)]
    cells = [(row.name, f"{row.jobs:,}", f"{row.inodes:,}", format_bytes(row.bytes)) for row in rows]
    return [
        *format_table([("the run writes", "jobs", "inodes", "bytes"), *cells], left=(0,)),
        "Within 10 %. Inodes are files and folders; hard links, checkpoints and the weights of models do not count.",
    ]


def chips_table(forecast: ChipForecast) -> list[str]:
    """Chips by split: positions on the grid, chips over all scenes, and chips of each class where labels are known."""
    names = forecast.classes if forecast.has_labels else ()
    head = ("split", "positions", "chips", *(f"with {name}" for name in names))
    rows = [head]
    for split in SPLITS:
        counts = forecast.class_counts(split)[: len(names)]
        total = max(1, sum(pixels for _, _, pixels in counts))
        shares = (f"{count:,} ({100 * pixels / total:.1f} %)" for _, count, pixels in counts)
        rows.append((split, f"{len(forecast.corners[split]):,}", f"{forecast.count(split):,}", *shares))
    return format_table(rows, left=(0,))
