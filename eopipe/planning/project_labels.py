"""What follows for a new project from its label file: classes and column, colours, and a split that has each class."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from eopipe.chips.block_choice import count_blocks
from eopipe.chips.chip_table import equal_area_blocks
from eopipe.chips.splits import SPLITS
from eopipe.errors import BadInputError, UsageError, some_of
from eopipe.labels.kinds import nfc
from eopipe.labels.sources import raster_values
from eopipe.labels.vector_files import VECTORS, number_of, read_columns, read_file, source_conflicts
from eopipe.labels.vectors import kind_of_shapes
from eopipe.planning.chip_forecast import ChipForecast
from eopipe.planning.project_settings import CLASSES, InitOptions
from eopipe.tiles.cells import Cell

Section = dict[str, Any]
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
