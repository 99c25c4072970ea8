"""The images and maps of a run: its scenes, their composites, and its cells, as far as the search has found them."""

from pathlib import Path
from typing import Any

from eopipe.composites.periods import day_of, part_of, period_of
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
    """The folder of the frozen STAC Items; waits for the search, whose grid must be one of a finished model."""
    outputs = search.get().output
    if config["model"] and outputs.grid not in _checked_grids:
        from snakemake.exceptions import WorkflowError

        from eopipe.run.finished_model import check_grid

        try:
            check_grid(config, read_frame(Path(outputs.grid)))
        except BadInputError as error:
            raise WorkflowError(str(error)) from None
        _checked_grids.add(outputs.grid)
    return Path(outputs.root).parent


# Grids that fit the finished model of this run.
_checked_grids: set[str] = set()


def periods(config: Config, items: Path) -> dict[str, list[str]]:
    """The scenes of each composite, by the dates of the frozen items."""
    composite = config["composite"]
    scenes: dict[str, list[str]] = {}
    for path in sorted(items.glob("*.geojson")):
        day = day_of(read_json(path)["properties"], f"scene {path.stem}")
        if not composite["parts"] or part_of(day, composite["stack"]) in composite["parts"]:
            scenes.setdefault(period_of(day, composite["period"], composite["stack"]).name, []).append(path.stem)
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
