"""The images and maps of a run: its scenes, their composites, and its cells, as far as the search has found them."""

from collections.abc import Iterable, Sequence
from datetime import date
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from eopipe.composites.periods import PARTS, day_of, part_of, period_of
from eopipe.errors import BadInputError, as_workflow_errors
from eopipe.run.locate import chip_stores, imports_chips
from eopipe.scenes.item import read_item
from eopipe.stac.choose_grid import UTM
from eopipe.text_files import read_json
from eopipe.tiles.cells import CELL_ID, Cell, read_frame
from eopipe.warp.footprints import reached_cells

Config = dict[str, Any]
MOSAIC = "mosaic"
# Checkpoints, by folder of results and name.
_checkpoints: dict[tuple[str, str], Any] = {}


def checkpoint_of(name: str, results: str, checkpoints: Any) -> Any:
    """The checkpoint of the search, or of the import, which input functions of all rules ask for scenes or stores.

    Snakemake reads a module once more for each rule that a workflow changes (`use rule train from eopipe with:`), and
    hides the other rules and checkpoints from that reading: the one of the first reading serves there.
    """
    if hasattr(checkpoints, name):
        _checkpoints[results, name] = getattr(checkpoints, name)
    return _checkpoints.get((results, name), checkpoints)


def chips(config: Config, checkpoints: Any) -> list[str]:
    """The names of the stores of a chip set, once the run has packed them where it does so; none of a run on scenes."""
    if imports_chips(config):
        checkpoint_of("import", config["results"], checkpoints).get()
        _hold(config["chip_set"])
    return chip_stores(config)


@cache
def _hold(chip_set: str) -> None:
    """Share the lock of a chip set that the run has packed."""
    from eopipe.chips.import_set import hold_chip_set

    with as_workflow_errors():
        hold_chip_set(Path(chip_set))


def scenes(config: Config, search: Any) -> list[str]:
    """The names of the frozen scenes, sorted; waits for the search."""
    return sorted(path.stem for path in frozen_items(config, search).glob("*.geojson"))


def frozen_items(config: Config, search: Any) -> Path:
    """The folder of the frozen STAC Items; waits for the search, whose results must fit a finished model.

    Its grid is compared, and each composite has the parts that the model needs.
    """
    outputs = search.get().output
    items = Path(outputs.root).parent
    if config["model"] and outputs.grid not in _checked_grids:
        from eopipe.run.finished_model import check_grid, needed_parts

        with as_workflow_errors():
            check_grid(config, read_frame(Path(outputs.grid)))
            # Scenes without composites need no date.
            parts = needed_parts(config)
            if parts and (sentences := missing_parts(config, days_of_scenes(items).values(), parts)):
                raise BadInputError("; ".join(sentences))
        _checked_grids.add(outputs.grid)
    return items


# Grids of searches that fit the finished model of this run.
_checked_grids: set[str] = set()


def days_of_scenes(items: Path) -> dict[str, date]:
    """The day of each frozen item by the name of its scene."""
    paths = sorted(items.glob("*.geojson"))
    return {path.stem: day_of(read_json(path)["properties"], f"scene {path.stem}") for path in paths}


def missing_parts(config: Config, days: Iterable[date], needed: Sequence[str]) -> list[str]:
    """A sentence for each composite of the scenes of these days that lacks a needed part."""
    composite, observed = config["composite"], dict[str, set[str]]()
    parts, stack = composite["parts"], composite["stack"]
    parts_of_days = [(day, part_of(day, stack)) for day in days]
    for day, part in parts_of_days:
        if not parts or part in parts:
            observed.setdefault(period_of(day, composite["period"], stack).name, set()).add(part)
    if not observed:
        present = ", ".join(sorted({part for _, part in parts_of_days}))
        return [f"composite.parts has {', '.join(parts)}, but all scenes are in {present}"]
    subject = "composite.parts has" if parts else "the model has bands of"
    remedy = f"widen search.datetime, {'since the model needs it' if config['model'] else 'or remove the part'}"
    return [
        f"{subject} {', '.join(missing)}, in which period {period} has no scene; it has scenes in "
        f"{', '.join(part for part in PARTS.get(stack, sorted(present_parts)) if part in present_parts)}; {remedy}"
        for period, present_parts in sorted(observed.items())
        if (missing := [part for part in needed if part not in present_parts])
    ]


def periods(config: Config, items: Path) -> dict[str, list[str]]:
    """The scenes of each composite, by the dates of the frozen items."""
    composite = config["composite"]
    scenes: dict[str, list[str]] = {}
    for scene, day in days_of_scenes(items).items():
        if not composite["parts"] or part_of(day, composite["stack"]) in composite["parts"]:
            scenes.setdefault(period_of(day, composite["period"], composite["stack"]).name, []).append(scene)
    return dict(sorted(scenes.items()))


def map_names(config: Config, search: Any, images: Sequence[str] | dict[str, list[str]] | None = None) -> list[str]:
    """The names of the maps: of each image, or of all as one, with each cell that it reaches where a run has several.

    Composites are given with their scenes. Only where there may be several cells the names wait for the search, so
    that a dry run of a new project shows their jobs.
    """
    if config["search"]["crs"] != UTM:
        return [MOSAIC] if images is None else [*images]
    output = search.get().output
    frame = read_frame(Path(output.grid))
    if images is None:
        cells_of = {MOSAIC: [*frame.cells]}
    else:
        scenes_of = images if isinstance(images, dict) else {name: [name] for name in images}
        written = Path(output.root).stat().st_mtime_ns
        bands = config["preprocess"]["bands"]
        cells_of = cells_of_images(_cells_of_scenes(output.root, written, output.grid, (*bands,)), scenes_of)
    return [".".join(filter(None, [name, cell.id])) for name, cells in cells_of.items() for cell in cells]


# Input functions of many jobs ask for the maps.
@lru_cache(maxsize=4)
def _cells_of_scenes(items: str, written: int, grid: str, bands: tuple[str, ...]) -> dict[str, list[Cell]]:  # noqa: ARG001
    """The cells that each scene reaches, from the frozen items whose manifest is given with its time."""
    frame = read_frame(Path(grid))
    paths = sorted(Path(items).parent.glob("*.geojson"))
    return {path.stem: reached_cells(read_item(path), frame, bands) for path in paths}


def cells_of_images(of_scenes: dict[str, list[Cell]], scenes_of: dict[str, list[str]]) -> dict[str, list[Cell]]:
    """The cells that each image reaches with any of its scenes, from west to east."""
    cells = {
        image: {cell.column: cell for name in names for cell in of_scenes[name]} for image, names in scenes_of.items()
    }
    return {image: [by_column[column] for column in sorted(by_column)] for image, by_column in cells.items()}


def image_and_cell(config: Config, name: str) -> tuple[str, str]:
    """The image and the cell of a map by its name; the cell is empty in a run with one."""
    image, _, cell = name.rpartition(".")
    has_cell = config["search"]["crs"] == UTM and image and CELL_ID.fullmatch(cell)
    return (image, cell) if has_cell else (name, "")


def is_mosaic(name: str) -> bool:
    """Whether a map is one of all images, by its name."""
    return name.partition(".")[0] == MOSAIC


def has_mosaic(config: Config) -> bool:
    """Whether all images have one map: the same grid and labels, and none of them trains or tests as a whole."""
    split = config["split"]
    splits_images = split["method"] == "temporal" or (split["method"] == "group" and split["by"] == "scene")
    return not (splits_images or config["label"]["asset"] or config["chip_set"])


def parts_of_map(config: Config, wildcards: Any) -> list[str]:
    """Both files of each part of a map that is made in parts."""
    folder, names = f"{config['results']}/maps/{wildcards.map}/parts", names_of_parts(config["map_parts"])
    return [f"{folder}/{part}/{file}.tif" for part in names for file in ("classes", "probabilities")]


def names_of_parts(count: int) -> list[str]:
    """The parts of a map that is made in `count`; a map of one part has none."""
    return [f"{number}-of-{count}" for number in range(1, count + 1)] if count > 1 else []
