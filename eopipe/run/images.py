"""The images and maps of a run: its scenes, their composites, and its cells, as far as the search has found them."""

from collections.abc import Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from eopipe.composites.periods import PARTS, day_of, part_of, period_of
from eopipe.errors import BadInputError
from eopipe.publish import read_json
from eopipe.stac.choose_grid import UTM
from eopipe.tiles.cells import read_frame

Config = dict[str, Any]
MOSAIC = "mosaic"
# The checkpoint of the search, by folder of results.
_searches: dict[str, Any] = {}


def search_checkpoint(results: str, checkpoints: Any) -> Any:
    """The checkpoint of the search, which input functions of all rules ask for the scenes.

    Snakemake reads a module once more for each rule that a workflow changes (`use rule train from eopipe with:`), and
    hides the other rules and checkpoints from that reading: the one of the first reading serves there.
    """
    if hasattr(checkpoints, "search"):
        _searches[results] = checkpoints.search
    return _searches.get(results, checkpoints)


def frozen_items(config: Config, search: Any) -> Path:
    """The folder of the frozen STAC Items; waits for the search, whose results must be those of a finished model.

    Its grid is compared, and each composite has the parts that the model needs.
    """
    outputs = search.get().output
    items = Path(outputs.root).parent
    if config["model"] and outputs.grid not in _checked_grids:
        from snakemake.exceptions import WorkflowError

        from eopipe.run.finished_model import check_grid, needed_parts

        try:
            check_grid(config, read_frame(Path(outputs.grid)))
            # Scenes without composites need no date.
            parts = needed_parts(config)
            if parts and (sentences := missing_parts(config, days_of_scenes(items).values(), parts)):
                raise BadInputError("; ".join(sentences))
        except BadInputError as error:
            raise WorkflowError(str(error)) from None
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


def mosaics(config: Config, search: Any) -> list[str]:
    """The names of the maps of all images, one for each cell; only where there may be several they wait for the search.

    So a dry run of a new project shows their jobs.
    """
    cells = cell_names(search.get().output.grid) if config["search"]["crs"] == UTM else [""]
    return [MOSAIC + (f".{cell}" if cell else "") for cell in cells]


def cell_names(grid: str | Path) -> list[str]:
    """The ids of the cells of a grid file; an empty one for the only cell of a run."""
    return [cell.id for cell in read_frame(Path(grid)).cells]


def is_mosaic(name: str) -> bool:
    """Whether a map is one of all images, by its name."""
    return name.partition(".")[0] == MOSAIC


def splits_images(config: Config) -> bool:
    """Whether whole images train or test, so that no mosaic of them can be tested."""
    split = config["split"]
    return bool(split["method"] == "temporal" or (split["method"] == "group" and split["by"] == "scene"))
