"""A new project before it is written: what `eopipe init` is asked for, its source and area, its config as text."""

import json
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from eopipe.config import model, section, validate
from eopipe.contract import STAGES, Argument, stage
from eopipe.errors import BadInputError, UsageError
from eopipe.labels.vector_files import GEOJSON, read_shapes
from eopipe.planning.check_config import file_mistakes, raise_mistakes
from eopipe.planning.frozen_scenes import Config
from eopipe.run.locate import shipped
from eopipe.scenes.item import Item
from eopipe.scenes.products import STANDARD
from eopipe.stac.query import Query, area_geometry, explain_no_match, parse_interval, warn_of_repair
from eopipe.stac.read import from_disk
from eopipe.tasks import TASKS
from eopipe.text_files import read_config, read_text
from eopipe.tiles.globe import Geometry, from_crs, unwrap, valid
from eopipe.tiles.grid import utm_crs
from eopipe.train_options import TaskName

EARTH_SEARCH = "https://earth-search.aws.element84.com/v1"
SENTINEL_2, SENTINEL_2_METRES = "sentinel-2-l2a", 10.0
# A scene of Sentinel-2 or Landsat covers more than twice this area in square kilometres.
SMALL_KM2 = 5000.0
KM_PER_DEGREE = 111.0
DATES, CLASSES = "2024-05-01/2024-09-30", ("other", "forest")
# Scenes with more clouds, in percent, are left out.
MAX_CLOUD = 30.0
SCENES = {"datetime": DATES, "max_cloud": MAX_CLOUD}
Section = dict[str, Any]
Sections = dict[str, Section]
# The settings of an example config that any project with its collections has.
OF_SOURCE = {
    "search": ("url", "collections", "datetime", "max_cloud", "on_missing", "crs", "resolution"),
    "fetch": ("windows",),
    "preprocess": ("bands", "mask", "decibel"),
}


@dataclass(frozen=True)
class InitOptions:
    """What a user says of a new project; an area, a catalog, chips, the sample or a finished run."""

    folder: Annotated[Path, Argument("new folder of the project", positional=True)]
    area: Annotated[Path | None, Argument("polygons of the area: GeoJSON in degrees, GeoPackage or Shapefile")] = None
    bbox: Annotated[
        tuple[float, float, float, float] | None,
        Argument("bounding box of the area, in degrees", value="WEST SOUTH EAST NORTH"),
    ] = None
    catalog: Annotated[
        Path | None, Argument("folder of a static STAC catalog, instead of a STAC API; its area if none is given")
    ] = None
    url: Annotated[str | None, Argument("URL of a STAC API [Earth Search]", value="URL")] = None
    collection: Annotated[
        str | None, Argument("STAC collection: one of the examples, or of --url or --catalog [sentinel-2-l2a]")
    ] = None
    datetime: Annotated[str | None, Argument(f"date or interval of acquisition [{DATES}, or all of a catalog]")] = None
    bands: Annotated[tuple[str, ...], Argument("asset names, in channel order [the collection's]")] = ()
    task: Annotated[TaskName, Argument("learning task")] = "segmentation"
    classes: Annotated[
        tuple[str, ...],
        Argument(f"class names, in the order of the class numbers [the values of --labels, else {', '.join(CLASSES)}]"),
    ] = ()
    measure: Annotated[str | None, Argument("quantity of the labels, for --task regression [their column]")] = None
    model: Annotated[str, Argument("unet, convnext, temporal, linear, or file.py:Class of your own")] = "unet"
    labels: Annotated[
        Path | None,
        Argument("labels: polygons or points of any vector format, a CSV table, or a raster [labels.gpkg in FOLDER]"),
    ] = None
    attribute: Annotated[
        str | None, Argument("column of --labels with the class or the value [the only one that can be]", value="NAME")
    ] = None
    layer: Annotated[str | None, Argument("layer of --labels, where it has several", value="NAME")] = None
    title: Annotated[str | None, Argument("title of map, model and crate [Map of FOLDER]", value="TEXT")] = None
    author: Annotated[str, Argument("your name, to be cited with the map", value="NAME")] = ""
    license: Annotated[
        str, Argument("licence of map and model: SPDX identifier such as CC-BY-4.0, or URL", value="ID")
    ] = ""
    from_: Annotated[
        Path | None,
        Argument(
            "map with a finished model: results of a run, its project folder or config, or the folder of a model",
            value="RESULTS",
        ),
    ] = None
    allow_code: Annotated[
        str | None,
        Argument("permission to run the code of a custom model that --from names, as file.py:Class", value="CODE"),
    ] = None
    chips: Annotated[Path | None, Argument("folder of a chip set, which `eopipe import` wrote, instead of an area")] = (
        None
    )
    sample: Annotated[bool, Argument("the embedded sample with its labels, ready to run, instead of an area")] = False

    @property
    def is_measured(self) -> bool:
        """Whether labels of the task are values of a quantity, instead of classes."""
        return not TASKS[self.task].has_classes


def example_sources() -> Iterator[Sections]:
    """The sections of the example configs that hold what is read of the collections of known providers."""
    for path in sorted(shipped("config/examples").glob("*.yaml")):
        values = read_config(path)
        source = {
            name: {key: value for key, value in values.get(name, {}).items() if key in keys}
            for name, keys in OF_SOURCE.items()
        }
        if "url" in source["search"]:
            # An example has other dates and clouds, for its area.
            source["search"] |= {name: value for name, value in SCENES.items() if name in source["search"]}
            yield source


def assets_of(tiles: Mapping[str, Any]) -> list[str]:
    """The assets that a section `preprocess` reads: the bands and the mask."""
    return [*dict.fromkeys([*tiles["bands"], *([] if tiles["mask"] == "none" else [tiles["mask"]])])]


def source_of_api(url: str | None, collection: str | None, bands: tuple[str, ...]) -> Sections:
    """The sections for a collection of a STAC API; what a provider's example has is used.

    Raises UsageError for an unknown collection without a URL, or without bands.
    """
    search: Section = dict(SCENES)
    if (url or EARTH_SEARCH) == EARTH_SEARCH and (collection or SENTINEL_2) == SENTINEL_2:
        search |= {"url": EARTH_SEARCH, "collections": [SENTINEL_2], "resolution": SENTINEL_2_METRES}
        tiles = {"bands": bands or ("blue", "green", "red", "nir"), "mask": "scl"}
        return {"search": search, "fetch": {"windows": True}, "preprocess": tiles}
    examples = [source for source in example_sources() if url in (None, source["search"]["url"])]
    for source in examples:
        if collection is None or collection in source["search"]["collections"]:
            source["preprocess"] |= {"bands": bands} if bands else {}
            return source
    if url is None:
        known = ", ".join(sorted({name for source in examples for name in source["search"]["collections"]}))
        raise UsageError(f"--collection {collection} is not in the examples ({known}); give its STAC API with --url")
    if not bands:
        raise UsageError(f"the assets of {collection or 'the collections'} at {url} are not known; name --bands")
    search |= {"url": url, "collections": [collection] if collection else []}
    return {"search": search, "fetch": {"windows": True}, "preprocess": {"bands": bands, "mask": "none"}}


def source_of(
    options: InitOptions, area: "ProjectArea | None", bands: tuple[str, ...], preferred: Sequence[str] = ()
) -> Sections:
    """The sections for a STAC API, or for a catalog on disk by the assets that all its matching scenes have.

    Without --collection a catalog has the preferred ones that are there, or else its only one. Raises BadInputError
    where no scene matches, UsageError where collection or bands have to be named.
    """
    catalog, collection = options.catalog, options.collection
    if not catalog:
        return source_of_api(options.url, collection, bands)
    query = Query(geometry=area.geometry if area else None, datetime=options.datetime)
    items = from_disk(catalog, query)
    names = sorted({str(item.get("collection") or "") for item in items} - {""})
    known = [name for name in names if name in preferred]
    if collection is None and not known and len(names) > 1:
        raise UsageError(f"{catalog} has the collections {', '.join(names)}; choose one with --collection")
    query = replace(query, collections=(collection,) if collection else tuple(known or names))
    matching = [item for item in items if query.matches(item)]
    if not matching:
        raise BadInputError(f"no scene matches in {catalog}: {query}; {explain_no_match(items, query)}")
    chosen, mask = known_assets(matching, bands)
    # A path through a folder that is not there is read as it is written.
    named = str(catalog) if catalog.exists() else os.path.normpath(catalog)
    search = {"catalog": named, "collections": query.collections, "datetime": options.datetime}
    return {"search": search, "fetch": {}, "preprocess": {"bands": chosen, "mask": mask}}


def known_assets(items: list[Item], bands: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Bands and mask that all scenes have: the named bands, blue to near infrared, or an example's bands.

    Raises UsageError that lists the assets where none of these are there.
    """
    common = set.intersection(*(set(item["assets"]) for item in items))
    choices = (
        [bands] if bands else [("blue", "green", "red", "nir"), *(s["preprocess"]["bands"] for s in example_sources())]
    )
    chosen = next((choice for choice in choices if common.issuperset(choice)), None)
    if chosen is None:
        lacking = f"have no {', '.join(sorted({*bands} - common))}" if bands else "have other assets than usual"
        raise UsageError(f"the scenes {lacking}; name --bands of {', '.join(sorted(common))}")
    masks = sorted(name for name in common if name.lower() in STANDARD and name not in chosen)
    return tuple(chosen), masks[0] if masks else "none"


@dataclass(frozen=True)
class ProjectArea:
    """The area of interest as GeoJSON in degrees, from a file or a bounding box, with its settings of search."""

    geometry: Geometry
    search: Section = field(default_factory=dict)

    @cached_property
    def square_kilometres(self) -> float:
        """The area of the bounding box."""
        west, south, east, north = unwrap(self.geometry).bounds
        across = (east - west) * math.cos(math.radians((south + north) / 2))
        return float(across * (north - south) * KM_PER_DEGREE**2)

    @property
    def utm_crs(self) -> str:
        """The UTM zone of the centre."""
        centre = unwrap(self.geometry).centroid
        return utm_crs((centre.x + 180) % 360 - 180, centre.y)


def read_area(path: Path) -> Geometry:
    """The polygons of a vector file as one GeoJSON geometry in degrees.

    GeoJSON is in degrees by definition; other formats are reprojected. Raises BadInputError for what has no polygons
    or no CRS.
    """
    from shapely import union_all
    from shapely.geometry import mapping

    if path.suffix.lower() in GEOJSON:
        return area_geometry(path, ()) or {}
    shapes, crs = read_shapes(path)
    if not crs:
        raise BadInputError(f"{path} has no CRS, so the area cannot be located")
    polygons = [shape for shape in shapes if shape is not None]
    warn_of_repair(path, polygons)
    whole = union_all([valid(shape) for shape in polygons])
    if whole.is_empty or not whole.area:
        raise BadInputError(f"{path} has no polygons; give the outline of the area")
    return dict(mapping(from_crs(whole, crs)))


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
