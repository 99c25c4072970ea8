"""`eopipe init --from`: a project that maps with the model of a finished run, or with a model that was given away."""

import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eopipe.config import validate
from eopipe.contract import Knob, stage
from eopipe.errors import BadInputError, IntegrityError, RefusedError, UsageError
from eopipe.models.input_check import TileProperties
from eopipe.models.model_files import is_permitted, permission_message
from eopipe.models.model_folder import CARD, TEST_SCORES, model_id, read_model_card
from eopipe.planning.project_draft import (
    MAX_CLOUD,
    SMALL_KM2,
    InitOptions,
    ProjectArea,
    ProjectDraft,
    Section,
    assets_of,
    source_of,
)
from eopipe.publish import (
    MANIFEST,
    RECORD,
    damage_message,
    digest,
    find_damage,
    link_or_copy,
    visible_files,
    write_manifest,
)
from eopipe.run.finished_model import SMALLEST_METRES
from eopipe.run.locate import NAMES, project_folder
from eopipe.text_files import read_config, read_json, read_text

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
# The settings of a search that another source decides.
SOUGHT = ("catalog", "url", "collections", "on_missing", "max_cloud")
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


def map_project(draft: ProjectDraft) -> tuple[str, str]:
    """A project that maps with a finished model: the text of its config and a sentence; the draft has its files.

    Raises UsageError or BadInputError where the model does not fit the scenes, or its code is not permitted.
    """
    options, area = draft.options, draft.area()
    run = FinishedRun.read(Path(options.from_ or ""))
    architecture, folder = run.card["architecture"], draft.folder / "model"
    if not is_permitted(architecture, [options.allow_code]):
        raise UsageError(permission_message(f"{run.model}", architecture))
    values: dict[str, Any] = {"model": str(folder), **_sections(run, draft, area)}
    notes, sentence = {"model": model_id(run.model)}, "it has no calibration, so its probabilities stay as they are"
    for path in _files_of_model(run.model):
        # A model is small beside what it maps.
        link_or_copy(path, folder / path.relative_to(run.model), link=False)
    if run.scores:
        link_or_copy(run.scores, folder / TEST_SCORES, link=False)
    write_manifest(folder)
    if run.calibration:
        link_or_copy(run.calibration, draft.folder / "calibration.json", link=False)
        values["calibration"] = str(draft.folder / "calibration.json")
        notes["calibration"], sentence = "temperature of its probabilities", ""
    if options.allow_code:
        values["allow_code"] = options.allow_code
    text = draft.text(values, notes)
    return text, f" with the model; {sentence}" if sentence else " with the model and its calibration"


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


def _sections(run: FinishedRun, draft: ProjectDraft, area: ProjectArea | None) -> dict[str, dict[str, Any]]:
    """The sections of the config: those of the run, with the scenes of the options."""
    options, of_run = draft.options, run.settings.get("search", {})
    tiles, fetch = run.settings.get("preprocess", {}), run.settings.get("fetch", {})
    is_other = options.collection and [options.collection] != of_run.get("collections")
    # A run of a chip set has searched for nothing.
    is_elsewhere = bool(not of_run or options.url or is_other)
    is_changed = is_elsewhere or options.catalog
    search = {} if is_elsewhere else dict(of_run)
    if is_changed:
        of_source, tiles = _source(run, options, area)
        search, fetch = search | dict.fromkeys(("url", "on_missing")) | of_source, {}
    elif search.get("catalog"):
        search["catalog"] = str(run.place("catalog", "--catalog or --url"))
    if area:
        search |= area.search
    elif search.get("area"):
        search |= draft.outline(read_text(run.place("area", "--area or --bbox")))
    if options.datetime:
        search["datetime"] = options.datetime
    if area or options.datetime or is_elsewhere:
        # They name scenes of the training.
        search["ids"] = []
    if area or is_changed:
        search |= _grid_of(run, search, area)
    (stack, _, parts), composite = run.stack, run.settings.get("composite", {})
    stacked = {"method": "median", "stack": stack, **composite, "parts": parts}
    if area and area.square_kilometres < SMALL_KM2 and search.get("url"):
        fetch = fetch | {"windows": True}
    if tuple(search.get("grid_assets") or ()) == tuple(tiles["bands"]):
        # So it is without the setting.
        search["grid_assets"] = []
    return {
        "search": search,
        "fetch": fetch,
        "preprocess": tiles,
        "composite": composite if stack == "none" else stacked,
        "predict": run.settings.get("predict", {}),
        "report": {"colors": run.settings.get("report", {}).get("colors")},
    }


def _source(run: FinishedRun, options: InitOptions, area: ProjectArea | None) -> tuple[Section, Section]:
    """Search and tiles of another source, or for a model without its run, by the bands of the model."""
    of_run, tiles = run.settings.get("search", {}), run.settings.get("preprocess", {})
    if not (area or options.catalog):
        raise UsageError("init needs --area or --bbox for the scenes of a STAC API")
    source = source_of(options, area, tuple(tiles.get("bands") or run.stack[1]), of_run.get("collections", ()))
    search = {name: value for name, value in source["search"].items() if name in SOUGHT}
    if "max_cloud" in search:
        search["max_cloud"] = of_run.get("max_cloud", MAX_CLOUD)
    is_decibel = run.trained_on is not None and run.trained_on.units == ("dB",)
    tiles = tiles or source["preprocess"] | {"decibel": is_decibel}
    return search | {"assets": assets_of(tiles)}, tiles


def _grid_of(run: FinishedRun, search: dict[str, Any], area: ProjectArea | None) -> dict[str, Any]:
    """CRS and pixel size of the grid of another area: the zone of the area, and the pixels of the training."""
    grid: dict[str, Any] = {}
    crs = search.get("crs") or "auto"
    if UTM_ZONE.fullmatch(crs) or (area and search.get("url") and crs == "auto"):
        grid["crs"] = area.utm_crs if area else "auto"
    if run.trained_on and (search.get("resolution") or 1.0) > SMALLEST_METRES:
        grid["resolution"] = run.trained_on.pixel_size
    return grid
