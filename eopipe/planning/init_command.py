"""`eopipe init`: a project folder with a commented config that `eopipe check` accepts, by its labels and its area."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.chips.block_choice import count_blocks
from eopipe.chips.chip_places import read_index
from eopipe.chips.chip_table import equal_area_blocks
from eopipe.chips.splits import SPLITS
from eopipe.composites.periods import period_of
from eopipe.config_conflicts import conflicts
from eopipe.errors import BadInputError, UsageError, some_of
from eopipe.labels.kinds import nfc
from eopipe.labels.sources import raster_values
from eopipe.labels.vector_files import VECTORS, number_of, read_columns, read_file, source_conflicts
from eopipe.labels.vectors import kind_of_shapes
from eopipe.models.model_files import module_of
from eopipe.own_files import write_files
from eopipe.planning.check_config import known_scenes, label_cell, run_frame
from eopipe.planning.chip_forecast import ChipForecast, forecast_chip_set, forecast_splits
from eopipe.planning.finished_project import map_project
from eopipe.planning.frozen_scenes import FrozenScenes
from eopipe.planning.project_draft import CLASSES, SMALL_KM2, InitOptions, ProjectDraft, Section, assets_of, source_of
from eopipe.publish import link_or_copy, visible_files
from eopipe.run.locate import shipped
from eopipe.run.project import SNAKEFILE
from eopipe.stac.query import parse_interval
from eopipe.tasks import TASKS
from eopipe.text_table import shell_word
from eopipe.tiles.cells import Cell

# Edges of chips to choose from; edges of blocks in chips, with how many of them a grid needs to have. The first that
# fills every split is taken.
CHIPS, BLOCKS = (128, 64, 32, 16), ((9, (4, 2)), (3, (4, 2, 1)))
# Places of chips on a grid that is split by polygon: as many as nine blocks of four have.
ENOUGH_CHIPS = 36
# Pixels between polygons of two splits, the first with which enough of them are used.
BUFFERS = (5, 0)
# Edges of blocks of the Earth in km, and the fewest groups or blocks for a split.
BLOCKS_KM, FEWEST = (50, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1), 3
FRACTIONS = (0.7, 0.15, 0.15)
# The most values of a column of classes, and each of them is there twice or more on average.
MAX_CLASSES = 50
RASTER = "raster"


@dataclass(frozen=True)
class Labels:
    """The section `label` of a config for a file, what its labels are called, and what is known of its classes.

    `counts` are the shapes of each class of a vector file, `colors` the colour table of a raster.
    """

    settings: Section
    kind: str = RASTER
    counts: Mapping[str, int] = field(default_factory=dict)
    colors: tuple[str, ...] = ()

    def sentence(self) -> str:
        """What was found, for the terminal."""
        classes = "" if "measure" in self.settings else f" of {len(self.settings['classes'])} classes"
        if self.kind == RASTER:
            return f"a raster{classes}"
        return f"{sum(self.counts.values()):,} {self.kind}{classes} by the column {self.settings['attribute']}"


def labels_of(options: InitOptions, cell: Cell | None) -> Labels:
    """Read the label file of `init`, of a raster the values on a cell.

    Named classes keep their names and order; others are the values of the file. Raises UsageError where a column has
    to be chosen, BadInputError for a file that cannot be read, or whose values are not as many as the named classes.
    """
    source = Path(options.labels or "")
    if not source.is_file():
        problem = f"{source} is a folder" if source.is_dir() else f"there is no file {source}"
        raise BadInputError(f"{problem}; give the labels as a vector file, a CSV table or a raster")
    if conflicts := source_conflicts(source, None, None):
        raise UsageError(conflicts[0].replace("label.source", "--labels"))
    if source.suffix.lower() in VECTORS:
        return _labels_of_shapes(source, options)
    return _labels_of_raster(source, options, cell)


def _labels_of_raster(source: Path, options: InitOptions, cell: Cell | None) -> Labels:
    if unused := [name for name, value in (("--attribute", options.attribute), ("--layer", options.layer)) if value]:
        raise UsageError(f"{source} is a raster, which has no columns and layers; omit {' and '.join(unused)}")
    if options.is_measured:
        return Labels({"source": source, "measure": options.measure or "value"})
    classes = options.classes
    if cell is None:
        return Labels({"source": source, "classes": classes or CLASSES})
    values, table = raster_values(source, cell)
    if len(values) < 2:
        known = f"only the value {values[0]:g}" if values else "no value"
        raise BadInputError(f"{source} has {known} in the area, and a model needs two classes")
    if len(values) > MAX_CLASSES and not classes:
        raise BadInputError(
            f"{source} has {len(values)} values in the area, so it seems to hold a measure: map it with --task "
            "regression, or let label.bins of a config without --labels divide it into classes"
        )
    if classes and len(classes) != len(values):
        raise BadInputError(
            f"{source} has the {len(values)} values {some_of([f'{value:g}' for value in values], 8)} in the area, and "
            f"--classes names {len(classes)}; name one for each value in this order, or omit --classes"
        )
    section: Section = {"source": source, "classes": classes or tuple(f"{value:g}" for value in values)}
    if values != [*range(len(values))]:
        section["codes"] = tuple(int(value) for value in values)
    colors = tuple(table.get(int(value), "") for value in values)
    # Tables of rasters that have no colours are black or grey.
    has_colors = all(colors) and len({*colors}) == len(values)
    return Labels(section, colors=colors if has_colors else ())


def _labels_of_shapes(source: Path, options: InitOptions) -> Labels:
    columns, is_measured = read_columns(source, options.layer, "--layer"), options.is_measured
    if options.attribute is not None and options.attribute not in columns:
        raise UsageError(f"{source} has no column {options.attribute}; it has {', '.join(columns)}")
    usual = (options.measure or "value") if is_measured else "class"
    name = options.attribute or _column(source, columns, usual, _is_measure if is_measured else _is_class)
    features = read_file(source, name, options.layer, "--layer")
    section: Section = {"source": source, "attribute": name} | ({"layer": options.layer} if options.layer else {})
    kind = kind_of_shapes(features.shapes)
    values = [value for value in features.values if value is not None]
    if is_measured:
        return Labels(section | {"measure": options.measure or name}, kind, {"": len(values)})
    counts = Counter(nfc(str(value)) for value in values)
    if len(counts) < 2:
        only = f"only the value {next(iter(counts))}" if counts else "no value"
        raise BadInputError(f"{source} has {only} in the column {name}, and a model needs two classes")
    ordered = sorted(counts, key=lambda text: (number_of(text) is None, number_of(text) or 0.0, text))
    section["classes"] = options.classes or tuple(ordered)
    return Labels(section, kind, {text: counts[text] for text in ordered})


def _column(source: Path, columns: Mapping[str, Sequence[Any]], usual: str, is_fitting: Any) -> str:
    """The column of this usual name in any case, or else the only one that fits. Raises UsageError for a choice."""
    named = [name for name in columns if name.lower() == usual.lower()]
    fitting = [name for name, values in columns.items() if is_fitting(values)]
    # Classes are rather in a column of text than of numbers.
    texts = [name for name in fitting if any(number_of(value) is None for value in columns[name] if value is not None)]
    for names in (named, texts, fitting):
        if len(names) == 1:
            return names[0]
    cure = "name the one of the labels with --attribute"
    if is_fitting is _is_measure and not fitting:
        cure = "none of them has only numbers, which --task regression needs"
    raise UsageError(f"{source} has the columns {', '.join(columns)}; {cure}")


def _is_class(values: Sequence[Any]) -> bool:
    counts = Counter(str(value) for value in values if value is not None)
    return 2 <= len(counts) <= min(MAX_CLASSES, sum(counts.values()) / 2)


def _is_measure(values: Sequence[Any]) -> bool:
    return any(value is not None for value in values) and all(
        value is None or number_of(value) is not None for value in values
    )


def splits_of_grid(shape: tuple[int, int], labels: Labels | None) -> list[Section]:
    """Sections `split` to try for labels on a grid (height, width), better ones first: polygons whole, else blocks.

    Raises UsageError for a grid that is too small for any of them.
    """
    tried = list[Section]()
    has_polygons = labels is not None and labels.kind == "polygons" and "classes" in labels.settings
    for chip in CHIPS if has_polygons else ():
        if (shape[0] // chip) * (shape[1] // chip) >= ENOUGH_CHIPS or chip == CHIPS[-1] <= min(shape):
            tried += [{"method": "group", "by": "polygon", "chip": chip, "buffer": buffer} for buffer in BUFFERS]
    tried += [
        {"method": "blocks", "block": factor * chip, "chip": chip}
        for least, factors in BLOCKS
        for chip, factor in product(CHIPS, factors)
        if count_blocks(shape, chip, factor * chip) >= least
    ]
    if not tried:
        raise UsageError(
            f"the area is {shape[0]} x {shape[1]} pixels, too small for three blocks of chips; choose a larger one"
        )
    return [section | {"fractions": FRACTIONS} for n, section in enumerate(tried) if section not in tried[:n]]


def splits_of_chips(chips: list[dict[str, Any]]) -> list[Section]:
    """Sections `split` to try for a chip set by the rows of its index: groups of the import, else blocks of the Earth.

    Raises UsageError for chips that are too near to each other for splits.
    """
    groups = {chip["group"] for chip in chips if chip.get("group") is not None}
    sections = list[Section]()
    if len(groups) >= FEWEST:
        sections.append({"method": "group", "by": "column", "attribute": "group"})
    degrees = np.array([(chip["longitude"], chip["latitude"]) for chip in chips])
    counts = {edge: len(np.unique(equal_area_blocks(degrees, edge), axis=0)) for edge in BLOCKS_KM}
    # A seventh of 40 blocks are six, which an interval needs.
    edges = sorted((edge for edge in BLOCKS_KM if counts[edge] >= FEWEST), key=lambda edge: counts[edge] < 40)
    sections += [{"method": "blocks", "block_km": edge} for edge in edges]
    if not sections:
        edge = BLOCKS_KM[-1]
        raise UsageError(
            f"the chips are in {counts[edge]} blocks of {edge:g} km, and at least {FEWEST} are needed; import "
            "them with --group, and split by these groups"
        )
    return [section | {"fractions": FRACTIONS} for section in sections]


def choose_split(
    sections: Sequence[Section], forecasts: Iterable[ChipForecast], labels: Labels | None = None
) -> Section:
    """The first section whose forecast has chips and each class in each split, and few labels that are not used.

    Raises BadInputError where train or test would have no chip or lack a class with every one of them.
    """
    best: tuple[tuple[bool, int], Section, ChipForecast] | None = None
    for section, forecast in zip(sections, forecasts, strict=False):
        rank = bool(forecast.stops), len(forecast.warnings)
        if best is None or rank < best[0]:
            best = rank, section, forecast
        if not any(rank) or any(stop.startswith("label: ") for stop in forecast.stops):
            break
    assert best is not None
    _, section, forecast = best
    if not forecast.stops:
        return section
    reason = forecast.stops[0].removeprefix("label: ").removeprefix("split: ")
    if forecast.stops[0].startswith("label: ") or labels is None:
        raise BadInputError(reason)
    source = labels.settings["source"]
    few = [f"{name} has {n}" for name, n in labels.counts.items() if n < len(SPLITS)]
    needed = f"; each class needs {len(SPLITS)} {labels.kind} or more, and {', '.join(few)}" if few else ""
    raise BadInputError(f"{source}: no split has each class in train and test: {reason}{needed}")


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
        forecasts = forecast_splits(config, scenes or FrozenScenes({}, frame), splits)
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
