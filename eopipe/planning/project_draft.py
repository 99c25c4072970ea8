"""A new project before it is written: its files, its checked settings, and its config as text with comments."""

import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eopipe.config import model, section, validate
from eopipe.contract import STAGES, stage
from eopipe.errors import BadInputError, UsageError
from eopipe.planning.check_config import file_mistakes, raise_mistakes
from eopipe.planning.frozen_scenes import Config
from eopipe.planning.project_settings import InitOptions, ProjectArea, Section, read_area
from eopipe.stac.query import area_geometry, parse_interval
from eopipe.text_files import read_text

HEAD = """\
# Config of an eopipe run. `eopipe check` reports mistakes; `eopipe train --help` and
# https://github.com/eopipe/eopipe/blob/main/docs/stages.md list all settings.
"""
# What a newcomer should know of a setting, or of one of its values, before what its help says.
NOTES = {
    "fetch.windows": "only the blocks of the files that the grid needs",
    "preprocess.mask": "asset that says which pixels are usable",
    "composite.method: median": "of the clear observations of each season",
    "split.method: blocks": "blocks go to train, val or test as a whole, never single chips",
    "split.method: group": "each group is in one split as a whole",
    "split.by: polygon": "of the labels; or `method: blocks`, for scores that hold on new land",
}
# Settings that many runs have later, without the `# ` of a comment: in the section of search, and at the end.
EXAMPLES = {
    "search": """\
best: 3                        # only the three clearest days of each month, with all their scenes
per: month
group: solar-day""",
    "trials": "trials: {space: {learning_rate: [0.001, 0.003]}}   # the best of several trainings, by validation",
    "members": "members: 3                       # the mean of three trainings, and where they disagree",
    "with_products": "with_products: true              # of the map: polygons, a QGIS style, entropy, areas of zones",
}
# Sections and settings that a reader looks for, also where they are the defaults.
SHOWN = {"search.assets", "preprocess.bands", "preprocess.mask", "label", "split", "train"}
# Settings that name files; a custom model is named with its file.
PATHS = {"catalog", "area", "source", "chip_set", "model", "calibration", "architecture"}
# Column of the comments, and the most columns of a line.
COMMENT, WIDTH = 35, 120


@dataclass(frozen=True)
class ProjectDraft:
    """A new project, its files in a temporary folder; its settings name files by paths from the working folder."""

    options: InitOptions
    folder: Path

    def area(self) -> ProjectArea | None:
        """The area of interest, which the draft has as GeoJSON if it is of a file: as it is, or as one feature."""
        options = self.options
        _refuse_contradictions(options)
        parse_interval(options.datetime or "")
        if options.bbox:
            geometry = area_geometry(None, options.bbox) or {}
            return ProjectArea(geometry, {"bbox": options.bbox, "area": None})
        if not options.area:
            return None
        geometry = read_area(options.area)
        if options.area.suffix.lower() in (".geojson", ".json"):
            return ProjectArea(geometry, self.outline(read_text(options.area)))
        feature = {"type": "Feature", "properties": {}, "geometry": geometry}
        text = json.dumps({"type": "FeatureCollection", "features": [feature]}, indent=1, ensure_ascii=False)
        return ProjectArea(geometry, self.outline(text))

    def outline(self, text: str) -> Section:
        """Write the GeoJSON of an area; its settings of search."""
        path = self.folder / "area.geojson"
        path.write_text(text, encoding="utf-8")
        return {"bbox": (), "area": str(path)}

    def _settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a config with these, without defaults that say nothing, in the order of the stages."""
        options, settings = self.options, dict[str, Any]({"results": "results", "state": "state"})
        report = {"title": options.title or f"Map of {options.folder.resolve().name}"}
        crate = {"author": options.author, "license": options.license}
        for name, value in {**values, "report": report | values.get("report", {}), "crate": crate}.items():
            settings[name] = _worth_stating(name, value) if name in STAGES else value
        return settings

    def config(self, values: Mapping[str, Any]) -> Config:
        """The config with defaults, of settings that fit together. Raises UsageError for others."""
        # Stages that take part log what they read.
        logging.getLogger("eopipe").setLevel(logging.ERROR)
        config, mistakes, _ = validate(self._settings(values))
        raise_mistakes(mistakes, [])
        # Results of another project that is run in this folder do not belong to the new one.
        return config | {"results": str(self.folder / "results")}

    def text(self, values: Mapping[str, Any], notes: Mapping[str, str], examples: Sequence[str] = ()) -> str:
        """The text of a config, of which empty sections are left out.

        `notes` are comments of this project by setting, as in `split.block`, and `examples` names of EXAMPLES. Raises
        UsageError or BadInputError with what `eopipe check` would say, but for labels that are not there yet.
        """
        settings, inputs = file_mistakes(self.config(values), set())
        raise_mistakes(settings, [line for line in inputs if f"label.source {self.folder}" not in line])
        named = {name: self._named(name, value) for name, value in self._settings(values).items()}
        return project_text(named, notes, examples)

    def _named(self, name: str, value: Any) -> Any:
        """A value as the config in the new folder has it: paths start there, but for absolute ones of the user."""
        if isinstance(value, dict):
            return {key: self._named(key, entry) for key, entry in value.items()}
        if name not in PATHS or (name == "architecture" and ".py:" not in value):
            return value
        if Path(value).is_relative_to(self.folder):
            return str(Path(value).relative_to(self.folder))
        return str(value) if Path(value).is_absolute() else os.path.relpath(value, self.options.folder.resolve())


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


def _worth_stating(name: str, values: Mapping[str, Any]) -> Section:
    """Settings of a section that differ from the defaults, in the order of the stage; those of SHOWN in any case."""
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    defaults = {port.name: port.default for port in stage(name).settings if values.get(port.name) is not None}
    stated = [key for key, default in defaults.items() if values[key] != default or {name, f"{name}.{key}"} & SHOWN]
    return {key: values[key] for key in stated}


def project_text(settings: Mapping[str, Any], notes: Mapping[str, str], examples: Sequence[str]) -> str:
    """The text of general settings, and of sections as mappings, with comments and examples."""
    general = {name: value for name, value in settings.items() if name not in STAGES}
    lines = [HEAD, *(_line("", name, value, notes) for name, value in general.items())]
    for name, values in settings.items():
        if name in STAGES and values:
            lines += ["", f"{name}:", *(_line(name, key, value, notes) for key, value in values.items())]
            lines += [f"  # {line}" for line in EXAMPLES[name].splitlines()] if name in examples else []
    of_runs = [f"# {EXAMPLES[name]}" for name in examples if name not in STAGES]
    return "\n".join([*lines, *(["", *of_runs] if of_runs else []), ""])


def _line(owner: str, name: str, value: Any, notes: Mapping[str, str]) -> str:
    key = f"{owner}.{name}" if owner else name
    text = f"{'  ' if owner else ''}{name}: {_yaml(value)}"
    known = {**NOTES, **notes}
    fields = (section(owner) if owner else model()).model_fields
    help_text = re.split(r"[:;(]|, e\.g\.", fields[name].description or "")[0].strip()
    line = f"{text:<{COMMENT - 1}} # {known.get(f'{key}: {_yaml(value)}') or known.get(key) or help_text}"
    return line if len(line) <= WIDTH else text


def _yaml(value: Any) -> str:
    import yaml

    plain = [*value] if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value
    text = yaml.safe_dump(plain, default_flow_style=True, allow_unicode=True, width=10**6)
    return text.removesuffix("...\n").strip()
