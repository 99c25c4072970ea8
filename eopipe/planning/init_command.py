"""`eopipe init`: a project folder with a commented config that `eopipe check` accepts."""

import json
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from eopipe.chips.chip_places import read_index
from eopipe.composites.periods import period_of
from eopipe.config import validate
from eopipe.errors import BadInputError, UsageError
from eopipe.models.model_files import module_of
from eopipe.own_files import write_files
from eopipe.planning.check_config import known_scenes, label_cell, missing_files, model_mistakes, run_frame
from eopipe.planning.chip_forecast import forecast_chip_set, forecast_splits
from eopipe.planning.finished_project import map_project
from eopipe.planning.frozen_scenes import Config, FrozenScenes
from eopipe.planning.project_labels import choose_split, labels_of, splits_of_chips, splits_of_grid
from eopipe.planning.project_settings import (
    CLASSES,
    DATES,
    MAX_CLOUD,
    SMALL_KM2,
    InitOptions,
    ProjectArea,
    SceneSource,
    from_project,
    model_of_project,
    read_area,
    shipped,
    source_of,
    title_of,
)
from eopipe.planning.project_text import project_text
from eopipe.publish import visible_files
from eopipe.run.project import SNAKEFILE
from eopipe.stac.query import area_geometry, parse_interval
from eopipe.tasks import TASKS
from eopipe.text_files import read_text
from eopipe.text_table import shell_word

# Options of scenes, which chips and the sample have.
OF_SCENES = ("area", "bbox", "catalog", "url", "collection", "datetime", "bands")
OF_LABELS, STATED = ("labels", "attribute", "layer", "classes", "measure"), ("title", "author", "license")
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


@dataclass(frozen=True)
class ProjectFiles:
    """The files of a new project: texts by name, of which its config is the first, and whether it has the sample.

    `sentence` says what its settings follow from.
    """

    texts: dict[str, str]
    has_sample: bool = False
    sentence: str = ""

    def write(self, folder: Path) -> None:
        sample = shipped("sample")
        copied = [path for path in visible_files(sample) if path.suffix != ".py"] if self.has_sample else []
        write_files(folder, self.texts | {str(path.relative_to(sample.parent)): path for path in copied})


def init(options: InitOptions) -> None:
    """Write a commented config for an area into a new folder and print the next commands."""
    folder = options.folder
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; choose another folder")
    if (folder / "config.yaml").exists():
        raise UsageError(f"{folder / 'config.yaml'} exists already; choose another folder or edit it")
    if options.from_:
        text = _init_from(options.from_, options)
    else:
        project = (
            _sample_project(options)
            if options.sample
            else _chip_set_project(options.chips, options)
            if options.chips
            else _area_project(options)
        )
        # Nothing was written before all of it was right.
        project.write(folder)
        is_without = not (options.sample or options.chips or options.labels)
        text = f"; put your labels at {folder / LABELS}" if is_without else project.sentence
    if not (options.sample or (options.author and options.license)):
        print("who to cite and under which licence is not stated yet: --author and --license, or crate in the config")
    commands = f"  cd {shell_word(folder)}\n  eopipe check\n  eopipe plan\n  eopipe run"
    print(f"wrote {folder / 'config.yaml'}{text}, then:\n\n{commands}")


def _init_from(results: Path, options: InitOptions) -> str:
    """Write a project that maps with a finished model; what to say of it."""
    if used := _used(options, (*OF_LABELS, "bands", "task", "model", "chips", "sample")):
        raise UsageError(
            f"the model of --from has its own bands and classes, and needs no labels; omit {', '.join(used)}"
        )
    _refuse_contradictions(options)
    parse_interval(options.datetime or "")
    area = _area(options)
    return f" {map_project(results, options, area, _outline(options, area))}"


def _sample_project(options: InitOptions) -> ProjectFiles:
    """The demo as a project of its own, whose folder has a copy of the sample."""
    if used := _used(options, (*OF_SCENES, *OF_LABELS, *STATED, "model", "chips")):
        raise UsageError(f"--sample has a config of its own, to be edited; omit {', '.join(used)}")
    lines = shipped(SAMPLES[options.task]).read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("# yaml-language-server"))
    return ProjectFiles({"config.yaml": text, "Snakefile": SNAKEFILE}, has_sample=True)


def _chip_set_project(chips: Path, options: InitOptions) -> ProjectFiles:
    """A project for chips that exist, with their bands, labels and places."""
    if used := _used(options, (*OF_SCENES, *OF_LABELS)):
        raise UsageError(f"the chips of --chips have their bands, labels and places; omit {', '.join(used)}")
    if options.is_measured:
        raise UsageError("--task regression is not for chip sets, whose masks are classes")
    rows: list[dict[str, Any]] = read_index(chips)["chips"]
    is_of_chips = TASKS[options.task].is_of_chips or any("mask" in row for row in rows)
    settings: dict[str, Any] = {
        "results": "results",
        "state": "state",
        "chip_set": str(chips),
        "split": {},
        # Chips of folders or of labels of windows have one class for all of their pixels.
        "train": {
            "task": options.task if is_of_chips else "classification",
            "architecture": options.model,
            "processes": 1,
        },
        **_stated(options),
    }
    sections = splits_of_chips(rows)
    config = _checked(settings)
    forecasts = (forecast_chip_set(config | {"split": config["split"] | section}) for section in sections)
    settings["split"] = choose_split(sections, forecasts)
    _checked(settings)
    notes = {"chip_set": f"{len(rows)} chips, by `eopipe import`"}
    text = project_text(_in_project(settings, options), notes, ["trials", "members"])
    return ProjectFiles({"config.yaml": text, "Snakefile": SNAKEFILE})


def _used(options: InitOptions, names: tuple[str, ...]) -> list[str]:
    """The options of these names that are given."""
    defaults = {item.name: item.default for item in fields(options)}
    return [f"--{name}" for name in names if getattr(options, name) != defaults[name]]


def _area_project(options: InitOptions) -> ProjectFiles:
    """Validate the options, and choose settings by collection, catalog, labels and grid."""
    _refuse_contradictions(options)
    dates = options.datetime or (None if options.catalog else DATES)
    parse_interval(dates or "")
    area = _area(options)
    source = source_of(options, area, options.bands)
    outline = _outline(options, area)
    settings, notes, sentence = _settings(options, source, area, dates), dict[str, str](), ""
    with tempfile.TemporaryDirectory(prefix="eopipe-init-") as name:
        if outline is not None:
            Path(name, "area.geojson").write_text(outline, encoding="utf-8")
        config = _draft(settings, Path(name))
        scenes = known_scenes(config)
        frame = scenes.frame if scenes else run_frame(config)
        labels = labels_of(options, label_cell(config, frame)) if options.labels else None
        if labels:
            settings["label"] = labels.settings
            settings["report"] |= {"colors": labels.colors} if labels.colors else {}
            sentence = f", for {options.labels}: {labels.sentence()}"
        sections = splits_of_grid(frame.shape if frame else UNKNOWN_SHAPE, labels)
        notes["split.chip"] = "pixels; `eopipe plan` shows whether every split has chips"
        if frame:
            config = _draft(settings, Path(name))
            # Before they are there, labels may be anywhere.
            config["label"] |= {} if labels else {"source": Path(name, LABELS)}
            splits = (config["split"] | section for section in sections)
            forecasts = forecast_splits(config, scenes or FrozenScenes.unknown(frame), splits)
            settings["split"] = choose_split(sections, forecasts, labels)
            notes["split.chip"] = f"pixels, on the grid of {frame.shape[0]} x {frame.shape[1]}"
        else:
            settings["split"] = sections[0]
        _draft(settings, Path(name))
    examples = ["search", "trials", "members", *(["with_products"] if TASKS[options.task].maps_classes else [])]
    text = project_text(_in_project(settings, options), notes, examples)
    files = {"config.yaml": text, "Snakefile": SNAKEFILE}
    return ProjectFiles(files if outline is None else files | {"area.geojson": outline}, sentence=sentence)


def _refuse_contradictions(options: InitOptions) -> None:
    if options.area and options.bbox:
        raise UsageError("init takes --area or --bbox, not both")
    if not (options.area or options.bbox or options.catalog or options.from_):
        raise UsageError("init needs --area or --bbox, or --catalog for all scenes of a folder, --chips or --sample")
    if options.catalog and options.url:
        raise UsageError("init takes --catalog (a folder) or --url, not both")
    if options.area and not options.area.is_file():
        raise BadInputError(f"there is no file {options.area}; give the area as GeoJSON, GeoPackage or Shapefile")
    if options.measure and not options.is_measured:
        raise UsageError("--measure is for --task regression; name --classes for the other tasks")
    if options.classes and options.is_measured:
        raise UsageError(f"--task {options.task} has no classes; name the quantity of the labels with --measure")


def _area(options: InitOptions) -> ProjectArea | None:
    if options.bbox:
        return ProjectArea(area_geometry(None, options.bbox) or {}, options.bbox)
    return ProjectArea(read_area(options.area)) if options.area else None


def _outline(options: InitOptions, area: ProjectArea | None) -> str | None:
    """The area of a file as the project stores it: GeoJSON as it is, other formats as one feature."""
    if area is None or options.area is None:
        return None
    if options.area.suffix.lower() in (".geojson", ".json"):
        # It may be the file of the project itself.
        return read_text(options.area)
    feature = {"type": "Feature", "properties": {}, "geometry": area.geometry}
    return json.dumps({"type": "FeatureCollection", "features": [feature]}, indent=1, ensure_ascii=False)


def _draft(settings: Mapping[str, Any], folder: Path) -> Config:
    """The config with defaults, whose paths start in the working folder; `folder` has the file `area.geojson`."""
    search = settings["search"] | ({"area": str(folder / "area.geojson")} if "area" in settings["search"] else {})
    # Results of another project that is run in this folder do not belong to the new one.
    return _checked({**settings, "search": search}) | {"results": str(folder / "results")}


def _checked(settings: Mapping[str, Any]) -> Config:
    """The config with defaults.

    Raises UsageError with what `eopipe check` would say of settings, missing files and the model, without the labels.
    """
    # Stages that take part log what they read.
    logging.getLogger("eopipe").setLevel(logging.ERROR)
    config, mistakes, wrong_sections = validate(dict(settings))
    if not mistakes:
        mistakes = [line for line in missing_files(config, wrong_sections) if not line.startswith("label.source")]
        mistakes += [] if mistakes else model_mistakes(config)
    if mistakes:
        raise UsageError("; ".join(mistakes))
    return config


def _settings(options: InitOptions, source: SceneSource, area: ProjectArea | None, dates: str | None) -> dict[str, Any]:
    """The settings of a project without its split, whose paths start in the working folder."""
    is_small = area is not None and area.square_kilometres < SMALL_KM2
    legend: dict[str, Any] = {"classes": options.classes or CLASSES, "attribute": "class"}
    if options.is_measured:
        legend = {"measure": options.measure or "value", "attribute": "value"}
    search = source.search(MAX_CLOUD) | {
        "bbox": area.bbox if area else (),
        "area": "area.geojson" if area and not area.bbox else None,
        "datetime": dates if source.has_dates else None,
        "crs": area.utm_crs if area and source.utm else None,
        "resolution": source.resolution,
    }
    return {
        "results": "results",
        "state": "state",
        "search": {name: value for name, value in search.items() if value},
        "fetch": {"windows": True} if is_small and source.windows else {},
        "preprocess": {"bands": source.bands, "mask": source.mask} | ({"decibel": True} if source.decibel else {}),
        "composite": SEASONS if _stacks_seasons(source, dates, options.model) else {},
        "label": {"source": LABELS, **legend},
        "split": {},
        "train": {"task": options.task, "architecture": options.model, "processes": 1},
        **_stated(options),
    }


def _stated(options: InitOptions) -> dict[str, dict[str, Any]]:
    """The sections of what only a person knows."""
    crate = {"author": options.author, "license": options.license}
    return {"report": {"title": title_of(options)}, "crate": {name: value for name, value in crate.items() if value}}


def _in_project(settings: Mapping[str, Any], options: InitOptions) -> dict[str, Any]:
    """The settings with paths that start in the new folder, and without empty ones."""
    named = {name: dict(value) if isinstance(value, Mapping) else value for name, value in settings.items()}
    named["train"]["architecture"] = model_of_project(options.model, options.folder)
    paths = {"catalog": options.catalog, "source": options.labels, "chip_set": options.chips}
    for section in (named, *(value for value in named.values() if isinstance(value, dict))):
        section |= {key: from_project(path, options.folder) for key, path in paths.items() if path and key in section}
    return named


def _stacks_seasons(source: SceneSource, dates: str | None, model: str) -> bool:
    """Whether scenes become one image of seasonal medians: dates cover two seasons, and the model takes any bands."""
    if not (dates and source.has_dates) or module_of(model):
        return False
    first, last = (moment.date() for moment in parse_interval(dates))
    return len({period_of(day, "season").name for day in (first, last)}) > 1
