"""`eopipe init`: a project folder with a commented config that `eopipe check` accepts."""

import json
import tempfile
from dataclasses import dataclass, fields
from pathlib import Path

from eopipe.composites.periods import period_of
from eopipe.config import validate
from eopipe.errors import BadInputError, UsageError
from eopipe.labels.vector_files import POINTS, VECTORS
from eopipe.models.model_files import module_of
from eopipe.own_files import write_files
from eopipe.planning.check_config import chip_mistakes, missing_files, model_mistakes, run_frame
from eopipe.planning.chip_set_project import chip_set_project
from eopipe.planning.finished_project import map_project
from eopipe.planning.project_settings import (
    CLASSES,
    DATES,
    FRACTIONS,
    SMALL_KM2,
    InitOptions,
    ProjectArea,
    SceneSource,
    SplitChoice,
    choose_split,
    from_project,
    model_of_project,
    read_area,
    shipped,
    source_of,
)
from eopipe.publish import visible_files
from eopipe.run.project import SNAKEFILE
from eopipe.stac.query import area_geometry, parse_interval
from eopipe.tasks import TASKS

# Options of scenes, which chips and the sample have.
OF_SCENES = ("area", "bbox", "catalog", "url", "collection", "datetime", "bands")
# The configs of the embedded sample, by task.
SAMPLES = {
    "segmentation": "config/config.yaml",
    "classification": "config/examples/forest-chips.yaml",
    "multilabel": "config/examples/tree-cover-labels.yaml",
    "regression": "config/examples/tree-cover-values.yaml",
}
TEMPLATE = """\
# Config of an eopipe run. `eopipe check` reports mistakes; `eopipe train --help` and
# https://github.com/eopipe/eopipe/blob/main/docs/stages.md list all settings.

results: results                   # all outputs
state: state                       # checkpoints and unfinished downloads; kept after failures
{products}
search:
{search}
{fetch}
preprocess:
  bands: {bands}   # channel order of the model
  mask: {mask}
{decibel}{composite}
label:
  source: {labels}                 # raster or vector file; for vectors, `attribute` is the field of the class name
{legend}
split:
  method: blocks                   # spatial blocks go to train, val or test as a whole, never single chips
  fractions: {fractions}
  block: {block}                       # {comment}
  chip: {chip}
{sparse}\

train:
  task: {task}
  architecture: {model}
  processes: 1                     # torchrun workers

report:
  title: {title}
"""
COMPOSITE = """
composite:
  method: median                   # of the clear observations of each season
  stack: season                    # as bands red_MAM, red_JJA, … of one image
"""
# Some polygons cross the edge of a block.
ANY_PIXEL = "  min_valid: 0                     # any labelled pixel makes a chip usable (of rasters: half of a chip)\n"
SPARSE = {
    "polygons": ANY_PIXEL
    + """\
  # by: polygon                    # with `method: group`: each polygon is in one split, where some cross blocks
""",
    "points": ANY_PIXEL,
}
PRODUCTS = "# with_products: true              # of the map: polygons, a QGIS style, the entropy, a table of zones\n"
BEST = """\
  # best: 3                        # only the three clearest days of each month, with all their scenes
  # per: month
  # group: solar-day\
"""


@dataclass(frozen=True)
class ProjectFiles:
    """The files of a new project: texts by name, of which its config is the first, and whether it has the sample."""

    texts: dict[str, str]
    has_sample: bool = False

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
        text = "" if options.sample or options.chips else f"; put your labels at {folder / options.labels}"
    print(f"wrote {folder / 'config.yaml'}{text}, then:\n\n  cd {folder}\n  eopipe check\n  eopipe plan\n  eopipe run")


def _init_from(results: Path, options: InitOptions) -> str:
    """Write a project that maps with a finished model; what to say of it."""
    if used := _used(options, ("bands", "task", "classes", "measure", "model", "labels", "chips", "sample")):
        raise UsageError(
            f"the model of --from has its own bands and classes, and needs no labels; omit {', '.join(used)}"
        )
    _refuse_contradictions(options)
    parse_interval(options.datetime or "")
    area = _area(options)
    return f" {map_project(results, options, area, _outline(options, area))}"


def _sample_project(options: InitOptions) -> ProjectFiles:
    """The demo as a project of its own, whose folder has a copy of the sample."""
    if used := _used(options, (*OF_SCENES, "classes", "measure", "model", "labels", "chips")):
        raise UsageError(f"--sample has a config of its own, to be edited; omit {', '.join(used)}")
    lines = shipped(SAMPLES[options.task]).read_text(encoding="utf-8").splitlines(keepends=True)
    text = "".join(line for line in lines if not line.startswith("# yaml-language-server"))
    return ProjectFiles({"config.yaml": text, "Snakefile": SNAKEFILE}, has_sample=True)


def _chip_set_project(chips: Path, options: InitOptions) -> ProjectFiles:
    """A project for chips that exist, with their bands, labels and places."""
    if used := _used(options, (*OF_SCENES, "classes", "measure", "labels")):
        raise UsageError(f"the chips of --chips have their bands, labels and places; omit {', '.join(used)}")
    if not TASKS[options.task].has_classes:
        raise UsageError("--task regression is not for chip sets, whose masks are classes")
    text = chip_set_project(chips, options.folder, options.task, options.model)
    return ProjectFiles({"config.yaml": text, "Snakefile": SNAKEFILE})


def _used(options: InitOptions, names: tuple[str, ...]) -> list[str]:
    """The options of these names that are given."""
    defaults = {item.name: item.default for item in fields(options)}
    return [f"--{name}" for name in names if getattr(options, name) != defaults[name]]


def _area_project(options: InitOptions) -> ProjectFiles:
    """Validate the options, choose settings from collection, catalog and grid, and check the resulting config."""
    _refuse_contradictions(options)
    dates = options.datetime or (None if options.catalog else DATES)
    parse_interval(dates or "")
    area = _area(options)
    source = source_of(options, area, options.bands)
    outline = _outline(options, area)
    with tempfile.TemporaryDirectory(prefix="eopipe-init-") as name:
        if outline is not None:
            Path(name, "area.geojson").write_text(outline, encoding="utf-8")
        shape = _checked_shape(_config_text(options, source, area, dates, choose_split(None)), Path(name), options)
        split = choose_split(shape)
        text = _config_text(options, source, area, dates, split)
        _checked_shape(text, Path(name), options, check_chips=True)
    files = {"config.yaml": text, "Snakefile": SNAKEFILE}
    return ProjectFiles(files if outline is None else files | {"area.geojson": outline})


def _refuse_contradictions(options: InitOptions) -> None:
    if options.area and options.bbox:
        raise UsageError("init takes --area or --bbox, not both")
    if not (options.area or options.bbox or options.catalog or options.from_):
        raise UsageError("init needs --area or --bbox, or --catalog for all scenes of a folder, --chips or --sample")
    if options.catalog and options.url:
        raise UsageError("init takes --catalog (a folder) or --url, not both")
    if options.area and not options.area.is_file():
        raise BadInputError(f"there is no file {options.area}; give the area as GeoJSON, GeoPackage or Shapefile")
    has_classes = TASKS[options.task].has_classes
    if options.measure and has_classes:
        raise UsageError("--measure is for --task regression; name --classes for the other tasks")
    if options.classes and not has_classes:
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
        return options.area.read_bytes().decode()
    feature = {"type": "Feature", "properties": {}, "geometry": area.geometry}
    return json.dumps({"type": "FeatureCollection", "features": [feature]}, indent=1, ensure_ascii=False)


def _checked_shape(
    text: str, folder: Path, options: InitOptions, *, check_chips: bool = False
) -> tuple[int, int] | None:
    """The shape of the grid where it is known; raises what `eopipe check` would say, apart from missing labels."""
    import yaml

    # Files of the user are looked for from here.
    train = {"task": options.task, "architecture": options.model}
    config, mistakes, wrong_sections = validate(yaml.safe_load(text) | {"train": train})
    config["search"] |= {"area": config["search"]["area"] and folder / "area.geojson", "catalog": options.catalog}
    # Results of another project that is run in this folder do not belong to the new one.
    config["results"] = str(folder / "results")
    if not check_chips:
        mistakes = [line for line in mistakes if not line.startswith("split.")]
    if not mistakes:
        mistakes = [line for line in missing_files(config, wrong_sections) if not line.startswith("label.source")]
        mistakes += [] if mistakes else model_mistakes(config)
    if mistakes:
        raise UsageError("; ".join(mistakes))
    shape = frame.shape if (frame := run_frame(config)) else None
    if check_chips and shape and (errors := chip_mistakes(shape, config["split"])):
        raise UsageError("; ".join(errors))
    return shape


def _config_text(
    options: InitOptions, source: SceneSource, area: ProjectArea | None, dates: str | None, split: SplitChoice
) -> str:
    """The template with values; JSON strings and lists are YAML, so nothing needs quotes by hand."""
    is_small = area is not None and area.square_kilometres < SMALL_KM2
    fetch = ["", "fetch:", "  windows: true                    # only the blocks of the files that the area needs", ""]
    suffix = Path(options.labels).suffix.lower()
    kind = "points" if suffix in POINTS else "polygons" if suffix in VECTORS else "raster"
    if not TASKS[options.task].has_classes:
        legend = [f"  measure: {json.dumps(options.measure or 'value')}", "  attribute: value"]
    else:
        legend = [f"  classes: {json.dumps(list(options.classes or CLASSES))}", "  attribute: class"]
    return TEMPLATE.format(
        products=PRODUCTS if TASKS[options.task].maps_classes else "",
        search="\n".join(_search_lines(source, area, dates, options)),
        fetch="\n".join(fetch if is_small and source.windows else [""]),
        bands=json.dumps(source.bands),
        mask=json.dumps(source.mask),
        decibel="  decibel: true                    # 10 log10 of the power\n" if source.decibel else "",
        composite=COMPOSITE if _stacks_seasons(source, dates, options.model) else "",
        labels=json.dumps(options.labels),
        legend="\n".join([*legend, ""]),
        fractions=json.dumps(FRACTIONS),
        block=split.block,
        comment=split.comment,
        chip=split.chip,
        sparse=SPARSE.get(kind, ""),
        task=options.task,
        model=json.dumps(model_of_project(options.model, options.folder)),
        title=json.dumps(f"Map of {options.folder.resolve().name}"),
    )


def _stacks_seasons(source: SceneSource, dates: str | None, model: str) -> bool:
    """Whether scenes become one image of seasonal medians: dates cover two seasons, and the model takes any bands."""
    if not (dates and source.has_dates) or module_of(model):
        return False
    first, last = (moment.date() for moment in parse_interval(dates))
    return len({period_of(day, "season").name for day in (first, last)}) > 1


def _search_lines(source: SceneSource, area: ProjectArea | None, dates: str | None, options: InitOptions) -> list[str]:
    place = f"  bbox: {json.dumps(area.bbox)}" if area and area.bbox else "  area: area.geojson" if area else ""
    lines = [
        f"  catalog: {json.dumps(from_project(source.catalog, options.folder))}" if source.catalog else "",
        f"  url: {json.dumps(source.url)}" if source.url else "",
        f"  collections: {json.dumps(source.collections)}" if source.collections else "",
        place,
        f"  datetime: {json.dumps(dates)}" if dates and source.has_dates else "",
        "  max_cloud: 30                    # percent" if source.has_clouds and not source.catalog else "",
        f"  assets: {json.dumps(source.assets)}",
        "  on_missing: skip                 # scenes without these assets" if source.skip_missing else "",
        f"  crs: {area.utm_crs}" if area and source.utm else "",
        f"  resolution: {source.resolution:g}                   # pixel size of the grid" if source.resolution else "",
    ]
    return [*filter(None, lines), BEST]
