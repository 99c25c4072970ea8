"""`eopipe init`: a project folder with a commented config that `eopipe check` accepts."""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from eopipe.chips.chip_places import read_index
from eopipe.composites.periods import period_of
from eopipe.config_conflicts import conflicts
from eopipe.errors import UsageError
from eopipe.models.model_files import module_of
from eopipe.own_files import write_files
from eopipe.planning.check_config import known_scenes, label_cell, run_frame
from eopipe.planning.chip_forecast import forecast_chip_set, forecast_splits
from eopipe.planning.finished_project import map_project
from eopipe.planning.frozen_scenes import FrozenScenes
from eopipe.planning.project_draft import ProjectDraft
from eopipe.planning.project_labels import choose_split, labels_of, splits_of_chips, splits_of_grid
from eopipe.planning.project_settings import CLASSES, SMALL_KM2, InitOptions, assets_of, source_of
from eopipe.publish import link_or_copy, visible_files
from eopipe.run.locate import shipped
from eopipe.run.project import SNAKEFILE
from eopipe.stac.query import parse_interval
from eopipe.tasks import TASKS
from eopipe.text_table import shell_word

# Where labels are put, and the grid of an area whose scenes only a server knows.
LABELS, UNKNOWN_SHAPE = "labels.gpkg", (8192, 8192)
SEASONS = {"method": "median", "stack": "season"}
# The configs of the embedded sample, by task.
SAMPLES = {
    "segmentation": "config/config.yaml",
    "classification": "config/examples/forest-chips.yaml",
    "multilabel": "config/examples/tree-cover-labels.yaml",
    "regression": "config/examples/tree-cover-values.yaml",
}


def init(options: InitOptions) -> None:
    """Write a commented config for an area into a new folder and print the next commands."""
    folder = options.folder
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; choose another folder")
    if (folder / "config.yaml").exists():
        raise UsageError(f"{folder / 'config.yaml'} exists already; choose another folder or edit it")
    plan, needless, reason = next((kind for name, kind in KINDS.items() if getattr(options, name)), OF_AREA)
    defaults = {item.name: item.default for item in fields(options)}
    if used := [f"--{name}" for name in needless if getattr(options, name) != defaults[name]]:
        raise UsageError(f"{reason}; omit {', '.join(used)}")
    with tempfile.TemporaryDirectory(prefix="eopipe-init-") as name:
        draft = Path(name)
        text, sentence = plan(ProjectDraft(options, draft))
        files = {str(path.relative_to(draft)): path for path in visible_files(draft)}
        # Nothing was written before all of it was right.
        write_files(folder, {"config.yaml": text, "Snakefile": SNAKEFILE, **files})
    if not (options.sample or (options.author and options.license)):
        print("who to cite and under which licence is not stated yet: --author and --license, or crate in the config")
    commands = f"  cd {shell_word(folder)}\n  eopipe check\n  eopipe plan\n  eopipe run"
    print(f"wrote {folder / 'config.yaml'}{sentence}, then:\n\n{commands}")


def _sample_project(draft: ProjectDraft) -> tuple[str, str]:
    """The demo as a project of its own, whose folder has a copy of the sample."""
    sample = shipped("sample")
    for path in (path for path in visible_files(sample) if path.suffix != ".py"):
        link_or_copy(path, draft.folder / path.relative_to(sample.parent), link=False)
    if (task := draft.options.task) not in SAMPLES:
        raise UsageError(f"the sample has configs of the tasks {', '.join(SAMPLES)}, and none of {task}")
    lines = shipped(SAMPLES[task]).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("# yaml-language-server")), ""


def _chip_set_project(draft: ProjectDraft) -> tuple[str, str]:
    """A project for chips that exist, with their bands, labels and places."""
    options = draft.options
    if options.is_measured:
        raise UsageError("--task regression is not for chip sets, whose masks are classes")
    rows: list[dict[str, Any]] = read_index(Path(options.chips or ""))["chips"]
    is_of_chips = TASKS[options.task].is_of_chips or any("mask" in row for row in rows)
    # Chips of folders or of labels of windows have one class for all of their pixels.
    train = _train(options) | ({} if is_of_chips else {"task": "classification"})
    values = {"chip_set": str(options.chips), "split": {}, "train": train}
    sections, config = splits_of_chips(rows), draft.config(values)
    forecasts = (forecast_chip_set(config | {"split": config["split"] | section}) for section in sections)
    values["split"] = choose_split(sections, forecasts)
    notes = {"chip_set": f"{len(rows)} chips, by `eopipe import`"}
    return draft.text(values, notes, ["trials", "members"]), ""


def _area_project(draft: ProjectDraft) -> tuple[str, str]:
    """Settings by collection, catalog, labels and grid of an area, or of all scenes of a catalog."""
    options = draft.options
    values = _area_values(draft)
    config = draft.config(values)
    scenes = known_scenes(config)
    frame = scenes.frame if scenes else run_frame(config)
    labels = labels_of(options, label_cell(config, frame)) if options.labels else None
    sentence = f"; put your labels at {options.folder / LABELS}"
    if labels:
        values |= {"label": labels.settings, "report": {"colors": labels.colors}}
        sentence = f", for {options.labels}: {labels.sentence()}"
    config = draft.config(values | {"split": {}})
    sections = splits_of_grid(frame.shape if frame else UNKNOWN_SHAPE, labels)
    of_task = [section for section in sections if not conflicts(config | {"split": config["split"] | section})]
    sections = of_task or sections
    values["split"], note = sections[0], "pixels; `eopipe plan` shows whether every split has chips"
    if frame:
        splits = (config["split"] | section for section in sections)
        forecasts = forecast_splits(config, scenes or FrozenScenes.unknown(frame), splits)
        values["split"] = choose_split(sections, forecasts, labels)
        note = f"pixels, on the grid of {frame.shape[0]} x {frame.shape[1]}"
    examples = ["search", "trials", "members", *(["with_products"] if TASKS[options.task].maps_classes else [])]
    return draft.text(values, {"split.chip": note}, examples), sentence


def _area_values(draft: ProjectDraft) -> dict[str, Any]:
    """The sections of a project without its split, for labels that are put into its folder."""
    options, area = draft.options, draft.area()
    search, fetch, tiles = source_of(options, area, options.bands).values()
    if area:
        search |= area.search | ({"crs": area.utm_crs} if "crs" in search else {})
    if "datetime" in search:
        search["datetime"] = options.datetime or search["datetime"]
    is_small = area is not None and area.square_kilometres < SMALL_KM2
    legend: dict[str, Any] = {"classes": options.classes or CLASSES, "attribute": "class"}
    if options.is_measured:
        legend = {"measure": options.measure or "value", "attribute": "value"}
    return {
        "search": search | {"assets": assets_of(tiles)},
        "fetch": fetch if is_small else {},
        "preprocess": tiles,
        "composite": SEASONS if _stacks_seasons(search.get("datetime"), options.model) else {},
        "label": {"source": str(draft.folder / LABELS), **legend},
        "split": {},
        "train": _train(options),
    }


def _train(options: InitOptions) -> dict[str, Any]:
    return {"task": options.task, "architecture": options.model, "processes": 1}


def _stacks_seasons(dates: str | None, model: str) -> bool:
    """Whether scenes become one image of seasonal medians: dates cover two seasons, and the model takes any bands."""
    if not dates or module_of(model):
        return False
    first, last = (moment.date() for moment in parse_interval(dates))
    return len({period_of(day, "season").name for day in (first, last)}) > 1


# A kind of project: what gives the text of its config and a sentence about it, with its files in the draft; the options
# that it has no use for, and why.
Kind = tuple[Callable[[ProjectDraft], tuple[str, str]], tuple[str, ...], str]
# Options of scenes, which chips and the sample have, of labels, and of what only a person knows.
OF_SCENES = ("area", "bbox", "catalog", "url", "collection", "datetime", "bands")
OF_LABELS, STATED = ("labels", "attribute", "layer", "classes", "measure"), ("title", "author", "license")
# The kinds by the option that asks for them.
KINDS: Mapping[str, Kind] = {
    "from_": (
        map_project,
        (*OF_LABELS, "bands", "task", "model", "chips", "sample"),
        "the model of --from has its own bands and classes, and needs no labels",
    ),
    "sample": (
        _sample_project,
        (*OF_SCENES, *OF_LABELS, *STATED, "model", "chips"),
        "--sample has a config of its own, to be edited",
    ),
    "chips": (_chip_set_project, (*OF_SCENES, *OF_LABELS), "the chips of --chips have their bands, labels and places"),
}
OF_AREA: Kind = (_area_project, (), "")
