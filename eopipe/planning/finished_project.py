"""`eopipe init --from`: a project that maps with the model of a finished run, or with a model that was given away."""

import logging
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from eopipe.config import validate
from eopipe.config_file import parse_yaml, read_config
from eopipe.contract import Knob, stage
from eopipe.errors import BadInputError, IntegrityError, RefusedError, UsageError
from eopipe.models.input_check import TileProperties
from eopipe.models.model_files import is_permitted, permission_message
from eopipe.models.model_folder import CARD, TEST_SCORES, model_id, read_model_card
from eopipe.own_files import write_files
from eopipe.planning.check_config import check_file
from eopipe.planning.project_settings import (
    MAX_CLOUD,
    SMALL_KM2,
    InitOptions,
    ProjectArea,
    from_project,
    source_of,
    title_of,
)
from eopipe.planning.project_text import project_text
from eopipe.publish import (
    MANIFEST,
    RECORD,
    damage_message,
    digest,
    find_damage,
    link_or_copy,
    publish,
    visible_files,
)
from eopipe.run.locate import NAMES, project_folder
from eopipe.run.project import SNAKEFILE
from eopipe.text_files import read_json, read_text

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
log = logging.getLogger("eopipe")
# A band of a stack, by the part that its name ends with.
STACKED = {"season": r"DJF|MAM|JJA|SON", "year": r"\d{4}", "month": r"\d\d"}
# Settings that a reader looks for, also where they are the defaults.
SHOWN = ("assets", "bands", "mask")
UTM_ZONE = re.compile(r"EPSG:32[67]\d\d")


@dataclass(frozen=True)
class FinishedRun:
    """A model, with calibration, scores and settings of the stages before it where its run is there.

    `project` is its folder as it is now, `config` what it says there (empty where only the results are there), and
    `digests` have the catalog and the area as they were, by the name of the setting.
    """

    model: Path
    card: dict[str, Any]
    calibration: Path | None = None
    scores: Path | None = None
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    project: Path = Path()
    config: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "FinishedRun":
        """Read a run by its results, project folder or config, or a model by its folder, else raise BadInputError."""
        if (path / CARD).is_file():
            return cls(path, read_model_card(path))
        for results, project, config in _places(path):
            model, calibration, scores = (results / name for name in ("model", "calibration.json", "metrics.json"))
            if config.get("model"):
                # It has mapped with a model of another run, in whose folder the scores are.
                model, calibration, scores = project / config["model"], project / (config["calibration"] or ""), project
            if not (model / CARD).is_file():
                continue
            paths = {name: [*results.glob(f"{pattern}{RECORD}")] for name, pattern in RECORDS.items()}
            records = {name: read_json(min(files)) for name, files in paths.items() if files}
            settings = {name: _settings(name, record) for name, record in records.items()}
            digests = {row["port"]: row["sha256"] for row in records.get("search", {}).get("inputs", ())}
            fit, tested = (file if file.is_file() else None for file in (calibration, scores))
            return cls(model, read_model_card(model), fit, tested, settings, digests, project, config)
        raise BadInputError(
            f"{path} has no finished model: give a run's results, project folder or config, or the folder of a model"
        )

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

    def place(self, name: str, cure: str) -> Path:
        """The catalog or area of the search by the config, since a record may have its last name alone.

        Where the config names another one since the run, the one of the record is taken and a warning says so.
        """
        recorded, configured = self.settings["search"][name], self.config.get("search", {}).get(name)
        ran, now = self._existing(recorded), self._existing(configured) if configured else None
        is_there = now is not None and now.exists()
        place = now if now and is_there and now.name == Path(recorded).name else ran
        if not place.exists():
            raise UsageError(
                f"there is no {name} {ran.name} of the run at {ran} (by its record), "
                f"nor {f'at {now} (by its config)' if now else 'in its config'}; give {cure}"
            )
        if self.config and ran.exists() and not (now and is_there and now.samefile(ran)):
            log.warning("search.%s is %s in the config, but %s in the run; %s is used", name, configured, ran, place)
        if place.is_file() and self.digests.get(name, "") not in ("", digest(place)):
            log.warning("%s was changed since the run, and is used as it is now", place)
        return place

    def _existing(self, path: str | Path) -> Path:
        """A path of the run from the working folder; of results without a config it may start in any folder above."""
        folders = [self.project, *self.project.parents[: 0 if self.config else MAX_DEPTH]]
        paths = [Path(os.path.normpath(os.path.relpath(folder) / Path(path))) for folder in folders]
        return next((place for place in paths if place.exists()), paths[0])


def _places(path: Path) -> Iterator[tuple[Path, Path, dict[str, Any]]]:
    """The results that a path may mean, each with the folder and the config of its project; last the path itself.

    A path names a config, the folder of a project, or the results of a project whose folder is above.
    """
    start = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow links
    named = [start, *(start / name for name in NAMES)]
    above = (folder / name for folder in start.parents[:MAX_DEPTH] for name in NAMES)
    for file in (file for file in (*named, *above) if file.is_file()):
        # Its mistakes do not matter: the model is there, and files that it names are not looked for in its folder.
        config, project = validate(read_config(file))[0], project_folder(file).resolve()
        results = project / config["results"]
        if file in named or results.resolve() == start.resolve():
            yield results, project, config
    yield path, start.parent, {}


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
    if outline is None and sections["search"].get("area"):
        outline = read_text(run.place("area", "--area or --bbox"))
    text = _config_text(run, sections, options)
    with tempfile.TemporaryDirectory(prefix="eopipe-init-") as name:
        draft = Path(name, options.folder.name)
        _write(run, draft, outline)
        _check(draft, options.folder, text)
        # A model is small beside what it maps.
        copied = {str(path.relative_to(draft)): path for path in (draft / "config.yaml", *visible_files(draft))}
        write_files(options.folder, copied)
    if run.calibration:
        return "with the model and its calibration"
    return "with the model; it has no calibration, so its probabilities stay as they are"


def _write(run: FinishedRun, folder: Path, outline: str | None) -> None:
    """Write all but the config."""
    folder.mkdir(parents=True)
    with publish(folder / "model", folder=True) as draft:
        for path in _files_of_model(run.model):
            link_or_copy(path, draft / path.relative_to(run.model), link=False)
        if run.scores:
            shutil.copyfile(run.scores, draft / TEST_SCORES)
    if run.calibration:
        shutil.copyfile(run.calibration, folder / "calibration.json")
    if outline is not None:
        (folder / "area.geojson").write_text(outline, encoding="utf-8")
    (folder / "Snakefile").write_text(SNAKEFILE, encoding="utf-8")


def _files_of_model(folder: Path) -> list[Path]:
    """The files of a model folder, which may be a stranger's: what its manifest lists, with the content that it lists.

    Raises IntegrityError for other content, RefusedError for a link out of a folder without a manifest.
    """
    files, others = visible_files(folder), set[Path | None]()
    if (folder / MANIFEST).is_file():
        damage = find_damage(folder, map)
        if changed := [entry for entry in damage if entry.extra is None]:
            raise IntegrityError(damage_message(folder, changed))
        others = {entry.extra for entry in damage}
    elif links := [path for path in files if not path.resolve().is_relative_to(folder.resolve())]:
        raise RefusedError(f"{links[0]} is a link out of the folder of the model; a copy would publish another file")
    return [path for path in files if path not in others]


def _check(draft: Path, target: Path, text: str) -> None:
    """Raise what `eopipe check` would say; the catalog is named from the folder that the project will be in."""
    import yaml

    values = parse_yaml(text)
    if catalog := values["search"].get("catalog"):
        values["search"]["catalog"] = str((target / catalog).resolve())
    # Stages that take part log what they read.
    log.setLevel(logging.ERROR)
    with chdir(draft):
        Path("config.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
        check_file(Path("config.yaml"))
        Path("config.yaml").write_text(text, encoding="utf-8")


def _sections(run: FinishedRun, options: InitOptions, area: ProjectArea | None) -> dict[str, dict[str, Any]]:
    """The sections of the config, with the settings that are not the defaults."""
    of_run = run.settings.get("search", {})
    is_other = options.collection and [options.collection] != of_run.get("collections")
    # A run of a chip set has searched for nothing.
    is_elsewhere = bool(not of_run or options.url or is_other)
    is_changed = is_elsewhere or options.catalog
    search = {} if is_elsewhere else of_run | {"area": of_run.get("area") and "area.geojson"}
    if is_changed:
        search |= {"url": None} | _search_of_source(run, options, area)
    elif search.get("catalog"):
        search["catalog"] = from_project(run.place("catalog", "--catalog or --url"), options.folder)
    if area:
        search |= {"bbox": [*area.bbox], "area": None} if area.bbox else {"bbox": [], "area": "area.geojson"}
    if options.datetime:
        search["datetime"] = options.datetime
    if area or options.datetime or is_elsewhere:
        # They name scenes of the training.
        search["ids"] = []
    if area or is_changed:
        search |= _grid_of(run, search, area)
    stack, names, parts = run.stack
    composite = dict(run.settings.get("composite", {}))
    if stack != "none":
        composite = {"method": "median", "stack": stack} | composite | {"parts": [*parts]}
    tiles = run.settings.get("preprocess") or {"bands": [*names]} | _masks(run, search)
    fetch = {} if is_changed else run.settings.get("fetch", {})
    if area and area.square_kilometres < SMALL_KM2 and search.get("url"):
        fetch = fetch | {"windows": True}
    if tuple(search.get("grid_assets") or ()) == tuple(tiles["bands"]):
        # So it is without the setting.
        search["grid_assets"] = []
    colors = run.settings.get("report", {}).get("colors", [])
    sections = {
        "search": search,
        "fetch": fetch,
        "preprocess": tiles,
        "composite": composite,
        "predict": run.settings.get("predict", {}),
        "report": {"title": title_of(options), "colors": colors},
        "crate": {"author": options.author, "license": options.license},
    }
    return {name: _changed(name, values) for name, values in sections.items()}


def _search_of_source(run: FinishedRun, options: InitOptions, area: ProjectArea | None) -> dict[str, Any]:
    """The search of another source, or for a model without its run, by the bands of the model."""
    tiles = run.settings.get("preprocess", {})
    bands = tuple(tiles.get("bands") or run.stack[1])
    if not (area or options.catalog):
        raise UsageError("init needs --area or --bbox for the scenes of a STAC API")
    source = source_of(options, area, bands, run.settings.get("search", {}).get("collections", ()))
    source = replace(source, mask=tiles.get("mask", source.mask))
    search = source.search(run.settings.get("search", {}).get("max_cloud", MAX_CLOUD))
    if source.catalog:
        return search | {"catalog": from_project(source.catalog, options.folder)}
    return {"on_missing": None} | search


def _masks(run: FinishedRun, search: dict[str, Any]) -> dict[str, Any]:
    """Mask and decibel of tiles for a model without its run: by the assets, and by the unit of its training."""
    masks = [asset for asset in search["assets"] if asset not in run.stack[1]]
    is_decibel = run.trained_on is not None and run.trained_on.units == ("dB",)
    return {"mask": masks[0] if masks else "none", "decibel": is_decibel}


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
    general = {"results": "results", "state": "state", "model": "model"}
    general |= {"calibration": "calibration.json"} if run.calibration else {}
    general |= {"allow_code": options.allow_code} if options.allow_code else {}
    notes = {"model": model_id(run.model), "calibration": "temperature of its probabilities"}
    text = project_text(general | sections, notes)
    _, mistakes, _ = validate(parse_yaml(text))
    if mistakes:
        raise UsageError("; ".join(mistakes))
    return text
