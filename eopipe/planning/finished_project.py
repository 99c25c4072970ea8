"""`eopipe init --from`: a project that maps with the model of a finished run, or with a model that was given away."""

import json
import logging
import os
import re
import shutil
import tempfile
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eopipe.config import load, validate
from eopipe.contract import Knob, stage
from eopipe.errors import BadInputError, UsageError
from eopipe.models.input_check import TileProperties
from eopipe.models.model_files import is_permitted, permission_message
from eopipe.models.model_folder import CARD, TEST_SCORES, model_id, read_model_card
from eopipe.own_files import write_files
from eopipe.planning.check_config import check_file
from eopipe.planning.project_settings import (
    SMALL_KM2,
    InitOptions,
    ProjectArea,
    SceneSource,
    source_of_api,
    source_of_catalog,
)
from eopipe.publish import RECORD, link_or_copy, publish, read_json, visible_files
from eopipe.run.locate import NAMES
from eopipe.run.project import SNAKEFILE
from eopipe.stac.query import Query

# The records of a run, one for each stage whose settings made the images and the map.
RECORDS = {
    "search": "items",
    "fetch": "scenes/*",
    "preprocess": "tiles/*.zarr",
    "composite": "composites/*.zarr",
    "predict": "maps/*/classes.tif",
    "report": "report.html",
}
# Folders from the results up to the folder of the config, in which relative paths of the run start.
MAX_DEPTH = 4
# A band of a stack, by the part that its name ends with.
STACKED = {"season": r"DJF|MAM|JJA|SON", "year": r"\d{4}", "month": r"\d\d"}
# Settings that a reader looks for, also where they are the defaults.
SHOWN = ("assets", "bands", "mask")
UTM_ZONE = re.compile(r"EPSG:32[67]\d\d")
HEAD = """\
# Config of an eopipe run that maps with a finished model: there are no labels, no split and no training.
# `eopipe check` reports mistakes; `eopipe predict --help` and
# https://github.com/eopipe/eopipe/blob/main/docs/stages.md list all settings.

results: results                   # all outputs
state: state                       # unfinished downloads; kept after failures
"""


@dataclass(frozen=True)
class FinishedRun:
    """A model, with calibration, scores and settings of the stages before it where its run is there.

    `start` is the folder in which the relative paths of the run start.
    """

    model: Path
    card: dict[str, Any]
    calibration: Path | None = None
    scores: Path | None = None
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    start: Path = Path()

    @classmethod
    def read(cls, path: Path) -> "FinishedRun":
        """Read the results of a run, its project folder, or the folder of a model. Raises BadInputError for others."""
        if (path / CARD).is_file():
            return cls(path, read_model_card(path))
        results = path
        for name in (path / name for name in NAMES):
            if name.is_file() and not (path / "model" / CARD).is_file():
                results = path / load(name)["results"]
        if not (results / "model" / CARD).is_file():
            raise BadInputError(
                f"{path} has no finished model: give the results of a run, its project folder, or the folder of a model"
            )
        calibration, scores = (
            file if file.is_file() else None for file in (results / "calibration.json", results / "metrics.json")
        )
        records = {name: sorted(results.glob(f"{pattern}{RECORD}")) for name, pattern in RECORDS.items()}
        settings = {name: _settings(name, read_json(files[0])) for name, files in records.items() if files}
        model = results / "model"
        return cls(model, read_model_card(model), calibration, scores, settings, results.parent)

    @property
    def trained_on(self) -> TileProperties | None:
        """The tiles of the training; None for a model of an older version."""
        return TileProperties.read(self.card["trained_on"], self.model) if "trained_on" in self.card else None

    @property
    def stack(self) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
        """What the bands of the model are stacked by, their names without the part, and the parts; `none` of others."""
        for kind, pattern in STACKED.items():
            matches = [re.fullmatch(rf"(.+)_({pattern})", band) for band in self.card["bands"]]
            if all(matches):
                names, parts = (tuple(dict.fromkeys(match[n] for match in matches if match)) for n in (1, 2))
                return kind, names, parts
        return "none", tuple(self.card["bands"]), ()

    def existing(self, path: str) -> Path | None:
        """A path of the run, which is relative to its project or absolute; None where it is nowhere."""
        folders = [self.start, *self.start.absolute().parents[:MAX_DEPTH]]
        return next((folder / path for folder in folders if (folder / path).exists()), None)


def _settings(name: str, record: dict[str, Any]) -> dict[str, Any]:
    """The settings of a job by its record, without those that change only speed; with the user's files of a search."""
    ports = {port.name for port in stage(name).settings if not isinstance(port.mark, Knob)}
    values = {key: value for key, value in record["settings"].items() if key in ports}
    words = record["arguments"]
    for key in ("catalog", "area") if name == "search" else ():
        if f"--{key}" in words:
            values[key] = words[words.index(f"--{key}") + 1]
    return values


def map_project(results: Path, options: InitOptions, area: ProjectArea | None, outline: str | None) -> str:
    """Write a project that maps with a finished model, found at `results`; what to say of it.

    `outline` is the GeoJSON of an area from a file. Nothing is written where the model does not fit the scenes, or its
    code is not permitted: UsageError or BadInputError.
    """
    run = FinishedRun.read(results)
    architecture = run.card["architecture"]
    if not is_permitted(architecture, [options.allow_code]):
        raise UsageError(permission_message(f"{run.model}", architecture))
    sections = _sections(run, options, area)
    text = _config_text(run, sections, options)
    with tempfile.TemporaryDirectory(prefix="eopipe-init-") as name:
        draft = Path(name, options.folder.name)
        _write(run, draft, outline, sections)
        _check(draft, options.folder, text)
        # A model is small beside what it maps.
        copied = {str(path.relative_to(draft)): path for path in (draft / "config.yaml", *visible_files(draft))}
        write_files(options.folder, copied)
    if run.calibration:
        return "with the model and its calibration"
    return "with the model; it has no calibration, so its probabilities stay as they are"


def _write(run: FinishedRun, folder: Path, outline: str | None, sections: dict[str, Any]) -> None:
    """Write all but the config."""
    folder.mkdir(parents=True)
    with publish(folder / "model", folder=True) as draft:
        for path in visible_files(run.model):
            link_or_copy(path, draft / path.relative_to(run.model), link=False)
        if run.scores:
            shutil.copyfile(run.scores, draft / TEST_SCORES)
    if run.calibration:
        shutil.copyfile(run.calibration, folder / "calibration.json")
    if outline is not None:
        (folder / "area.geojson").write_text(outline, encoding="utf-8")
    elif sections["search"].get("area"):
        copied = run.existing(run.settings["search"]["area"])
        assert copied is not None
        shutil.copyfile(copied, folder / "area.geojson")
    (folder / "Snakefile").write_text(SNAKEFILE, encoding="utf-8")


def _check(draft: Path, target: Path, text: str) -> None:
    """Raise what `eopipe check` would say; the catalog is named from the folder that the project will be in."""
    import yaml

    values = yaml.safe_load(text)
    if catalog := values["search"].get("catalog"):
        values["search"]["catalog"] = str((target / catalog).resolve())
    # Stages that take part log what they read.
    logging.getLogger("eopipe").setLevel(logging.ERROR)
    with chdir(draft):
        Path("config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
        check_file(Path("config.yaml"))
        Path("config.yaml").write_text(text, encoding="utf-8")


def _sections(run: FinishedRun, options: InitOptions, area: ProjectArea | None) -> dict[str, dict[str, Any]]:
    """The sections of the config, with the settings that are not the defaults."""
    is_elsewhere = bool(options.catalog or options.url or options.collection)
    # A run of a chip set has searched for nothing.
    if run.settings.get("search") and not is_elsewhere:
        search = _search_of_run(run, options)
    else:
        search = _search_of_source(run, options, area)
    if area:
        search |= {"bbox": [*area.bbox], "area": None} if area.bbox else {"bbox": [], "area": "area.geojson"}
    if options.datetime:
        search["datetime"] = options.datetime
    if area or options.datetime or is_elsewhere:
        # They name scenes of the training.
        search["ids"] = []
    if area or is_elsewhere:
        search |= _grid_of(run, search, area)
    stack, names, parts = run.stack
    composite = dict(run.settings.get("composite", {}))
    if stack != "none":
        composite = {"method": "median", "stack": stack} | composite | {"parts": [*parts]}
    tiles = run.settings.get("preprocess") or {"bands": [*names]} | _masks(run, search)
    fetch = run.settings.get("fetch", {}) if not is_elsewhere else {}
    if area and area.square_kilometres < SMALL_KM2 and search.get("url"):
        fetch = fetch | {"windows": True}
    if tuple(search.get("grid_assets") or ()) == tuple(tiles["bands"]):
        # So it is without the setting.
        search["grid_assets"] = []
    sections = {
        "search": search,
        "fetch": fetch,
        "preprocess": tiles,
        "composite": composite,
        "predict": run.settings.get("predict", {}),
        "report": {
            "title": f"Map of {options.folder.resolve().name}",
            "colors": run.settings.get("report", {}).get("colors", []),
        },
    }
    return {name: _changed(name, values) for name, values in sections.items()}


def _search_of_run(run: FinishedRun, options: InitOptions) -> dict[str, Any]:
    """The search of the run, whose catalog and area are found from the new project."""
    search = dict(run.settings["search"])
    if catalog := search.get("catalog"):
        folder = run.existing(catalog)
        if folder is None:
            raise UsageError(f"the catalog {catalog} of the run does not exist any more; give --catalog or --url")
        search["catalog"] = os.path.relpath(folder, options.folder)
    if search.get("area"):
        if not (options.area or options.bbox) and run.existing(search["area"]) is None:
            raise UsageError(f"the area {search['area']} of the run does not exist any more; give --area or --bbox")
        search["area"] = "area.geojson"
    return search


def _search_of_source(run: FinishedRun, options: InitOptions, area: ProjectArea | None) -> dict[str, Any]:
    """The search of another source, or for a model without its run, by the bands of the model."""
    _, names, _ = run.stack
    bands = tuple(run.settings.get("preprocess", {}).get("bands") or names)
    if options.catalog:
        query = Query(geometry=area.geometry if area else None, datetime=options.datetime)
        source = source_of_catalog(options.catalog, options.collection, bands, query)
    else:
        if not area:
            raise UsageError("init needs --area or --bbox for the scenes of a STAC API")
        source = source_of_api(options.url, options.collection, bands)
    mask = run.settings.get("preprocess", {}).get("mask", source.mask)
    assets = (*bands, *([] if mask == "none" else [mask]))
    search: dict[str, Any] = {"collections": [*source.collections], "assets": [*dict.fromkeys(assets)]}
    search |= _place_of(source, options)
    if source.has_clouds and not source.catalog:
        search["max_cloud"] = run.settings.get("search", {}).get("max_cloud", 30.0)
    return search


def _place_of(source: SceneSource, options: InitOptions) -> dict[str, Any]:
    if source.catalog:
        return {"catalog": os.path.relpath(source.catalog, options.folder)}
    return {"url": source.url, "on_missing": "skip" if source.skip_missing else "fail"}


def _masks(run: FinishedRun, search: dict[str, Any]) -> dict[str, Any]:
    """Mask and decibel of tiles for a model without its run: by the assets, and by the unit of its training."""
    _, names, _ = run.stack
    masks = [asset for asset in search["assets"] if asset not in names]
    units = run.trained_on.units if run.trained_on else ()
    return {"mask": masks[0] if masks else "none", "decibel": units == ("dB",)}


def _grid_of(run: FinishedRun, search: dict[str, Any], area: ProjectArea | None) -> dict[str, Any]:
    """CRS and pixel size of the grid of another area: the zone of the area, and the pixels of the training."""
    grid: dict[str, Any] = {}
    crs = search.get("crs") or "auto"
    if (area and UTM_ZONE.fullmatch(crs)) or (area and search.get("url") and crs == "auto"):
        grid["crs"] = area.utm_crs
    elif area is None and UTM_ZONE.fullmatch(crs):
        grid["crs"] = "auto"
    is_in_metres = (search.get("resolution") or 1.0) > 0.1
    if run.trained_on and is_in_metres:
        grid["resolution"] = run.trained_on.pixel_size
    return grid


def _changed(name: str, values: dict[str, Any]) -> dict[str, Any]:
    """Settings of a section that differ from the defaults, in the order of the stage; settings of SHOWN in any case."""
    changed = {}
    for port in stage(name).settings:
        value = values.get(port.name)
        value = port.default if value is None else tuple(value) if isinstance(value, list) else value
        if value != port.default or port.name in SHOWN:
            changed[port.name] = [*value] if isinstance(value, tuple) else value
    return changed


def _config_text(run: FinishedRun, sections: dict[str, dict[str, Any]], options: InitOptions) -> str:
    import yaml

    lines = ["model: model                       # " + model_id(run.model)]
    if run.calibration:
        lines.append("calibration: calibration.json      # temperature of its probabilities")
    if options.allow_code:
        lines.append(f"allow_code: {json.dumps(options.allow_code)}")
    for name, values in sections.items():
        if values:
            lines += ["", f"{name}:", *(f"  {key}: {_yaml(value)}" for key, value in values.items())]
    text = "\n".join([HEAD, *lines, ""])
    _, mistakes, _ = validate(yaml.safe_load(text))
    if mistakes:
        raise UsageError("; ".join(mistakes))
    return text


def _yaml(value: Any) -> str:
    import yaml

    return yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=10**6).removesuffix("...\n").strip()
