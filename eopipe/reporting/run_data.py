"""What a report needs of a finished run, read and checked: the parts must belong to the same run."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from eopipe import __version__
from eopipe.areas.areas_document import AreasDocument
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.chips import pair_stores
from eopipe.chips.make_split import check_scenes
from eopipe.chips.splits import NO_SPLIT, SPLITS, Split, read_split
from eopipe.errors import BadInputError, UsageError
from eopipe.evaluation.metrics_document import AnyMetrics, RunMetrics, read_metrics
from eopipe.evaluation.trials import LEADERBOARD
from eopipe.models.model_folder import HISTORY, model_item, read_model_card, weights_file
from eopipe.reporting.chip_sheet import ChipSheet, draw_chip_sheet, read_chip_sheet, sheet_uri
from eopipe.reporting.data_tables import DataQuality, Item, TextRow, digest_rows, item_dates, read_items, read_quality
from eopipe.reporting.decimation import Decimation
from eopipe.reporting.figures import ValueScale, class_colors
from eopipe.reporting.leaderboard import Leaderboard
from eopipe.reporting.maps import MapContent, cell_panels, cell_windows, write_map
from eopipe.reporting.panels import PanelGroup, map_panels, split_panel
from eopipe.reporting.rasters import (
    MapFile,
    MapView,
    Pairs,
    map_files,
    page_decimation,
    read_map,
    read_quicklook,
    select_maps,
    spread_evenly,
)
from eopipe.reporting.scores import scale_of
from eopipe.reporting.split_maps import split_roles
from eopipe.reporting.task_parts import with_change_panel
from eopipe.reporting.verdict import headline, weak_classes
from eopipe.reporting.wording import TIMES, format_bounds, format_degrees, format_length, join_words, plural
from eopipe.tasks import TASKS
from eopipe.telemetry.journal import METRICS, read_journal
from eopipe.text_files import read_json
from eopipe.tiles.cells import Cell, Frame
from eopipe.tiles.globe import common_bounds
from eopipe.tiles.ground import pixel_metres
from eopipe.tiles.store import Tiles
from eopipe.training_job import TrainingLength

CRS_LISTED = 3
DEFAULT_TITLE = "eopipe run"


@dataclass(frozen=True)
class AuthorStatements:
    """What only the authors of a map know; limits are what its model must not be used for."""

    title: str = ""
    attribution: str = ""
    colors: tuple[str, ...] = ()
    use: str = ""
    limits: tuple[str, ...] = ()
    author: str = ""
    license: str = ""


@dataclass(frozen=True)
class ReportInputs:
    """The inputs of the report stage; split and labels are of a training."""

    model: Path
    classes: tuple[Path, ...]
    probabilities: tuple[Path, ...]
    tiles: tuple[Path, ...]
    metrics: Path | None = None
    chips: Path | None = None
    labels: tuple[Path, ...] = ()
    scenes: tuple[Path, ...] = ()
    fold_metrics: tuple[Path, ...] = ()
    areas: Path | None = None

    def __post_init__(self) -> None:
        """Raise UsageError for a split or labels without what belongs to them."""
        if (self.chips or self.labels) and not self.metrics:
            raise UsageError("--metrics is missing, the scores of the maps with these labels")
        if (self.chips or self.fold_metrics) and not (self.labels and self.chips):
            raise UsageError("--labels and --chips are missing: a report of a training has its labels and its split")


@dataclass(frozen=True, kw_only=True)
class MappedRun(ABC):
    """What the pages of a training and of a finished model have in common: maps, model and images.

    A pixel of the images shows `step` x `step` pixels of the grid. `scale` is the colour scale of continuous values,
    None where the map is of classes. `files` are all maps, `maps` those that the page shows, `metrics` the scores of
    the map and `estimated` its areas from a labelled sample, where it has some. A chip set has a sheet of chips, and no
    panels of maps and splits.
    """

    title: str
    model: dict[str, Any]
    classes: tuple[str, ...]
    colors: tuple[str, ...]
    scale: ValueScale | None = None
    statements: AuthorStatements = AuthorStatements()
    items: list[Item]
    stores: list[Tiles]
    quality: DataQuality
    files: list[MapFile]
    maps: list[MapView]
    map_panels: list[PanelGroup]
    step: int
    digests: list[TextRow]
    metrics: AnyMetrics | None
    split_panel: PanelGroup | None = None
    sheet: ChipSheet | None = None
    estimated: AreasDocument | None = None

    @property
    def frame(self) -> Frame:
        return self.stores[0].frame

    @property
    def omitted_maps(self) -> int:
        """How many maps the page does not show."""
        return len(self.files) - len(self.maps)

    @property
    def pixel(self) -> tuple[float, float]:
        """Width and height of a pixel in metres."""
        return pixel_metres(self.frame.cells[0].grid)

    @property
    def citation(self) -> str:
        """How to cite the map and its model."""
        author = self.statements.author or "Author not stated (set crate.author in the config)"
        rights = f" {self.statements.license}." if self.statements.license else ""
        made_by = f"Produced with eopipe {__version__}; weights sha256 {self.digests[0][1]}."
        return f"{author}: {self.title}.{rights} {made_by}"

    @property
    @abstractmethod
    def subtitle(self) -> str:
        """What the map is, or how good it is, in a sentence."""

    @property
    def extent(self) -> str:
        """Size of the grid and of a pixel, CRS and bounds, as text."""
        return "; ".join(map(_extent_of, self.frame.cells)) + self.decimation

    @property
    def decimation(self) -> str:
        """How many pixels the images show, as the end of a text; empty where they show all."""
        return f"; images show one of {self.step}{TIMES}{self.step} pixels" if self.step > 1 else ""

    def write_picture(self, target: Path | BinaryIO) -> None:
        """Write the map sheet, or the sheet of a chip set, as PNG."""
        if self.sheet:
            draw_chip_sheet(target, self.sheet, *self._sheet_texts)
            return
        dates = item_dates(self.items)
        panels = [
            cell_panels(map_heading(view.scene, dates), view.classes, view.window, self.frame, self.step)
            for view in self.maps
        ]
        content = MapContent(
            title=self.title,
            subtitle=self.subtitle,
            credit=self.statements.attribution,
            classes=self.classes,
            colors=self.colors,
            scale=self.scale,
            frame=self.frame,
            step=self.step,
            panels=[*chain.from_iterable(panels)],
        )
        write_map(target, content)

    @property
    def sheet_uri(self) -> str:
        """The sheet of a chip set as a data URI; empty for maps of scenes."""
        return sheet_uri(self.sheet, *self._sheet_texts) if self.sheet else ""

    @property
    def _sheet_texts(self) -> tuple[tuple[str, str, str], dict[str, str]]:
        texts = self.title, self.subtitle, self.statements.attribution
        return texts, dict(zip(self.classes, self.colors, strict=True))


@dataclass(frozen=True, kw_only=True)
class RunData(MappedRun):
    """The content of the page, the map and the cards of a run with a training.

    `folds` are the scores of a cross-validation by the names of its folds.
    """

    metrics: RunMetrics
    history: dict[str, Any]
    split: Split
    pairs: Pairs
    folds: dict[str, RunMetrics]
    leaderboard: Leaderboard | None = None

    @property
    def subtitle(self) -> str:
        """The scores in a sentence, and the classes that are never right or hardly mapped."""
        return ". ".join([headline(self.metrics), *filter(None, [" ".join(weak_classes(self.metrics))])])

    @cached_property
    def places(self) -> ChipPlaces | None:
        """The places of the chips of a chip set."""
        return ChipPlaces.of(self.stores)

    @property
    def training_length(self) -> TrainingLength | None:
        """Steps and passes of the training; None for a model whose settings do not have them."""
        return TrainingLength.of_model(self.model["settings"], self.metrics.task)

    @property
    def training_limits(self) -> list[str]:
        """Sentences about a short training, and about classes that the model never predicts in the validation areas."""
        length, last = self.training_length, (self.history["validations"] or [{}])[-1].get("val") or {}
        names = [f"“{name}”" for name in last.get("never_predicted", ())]
        short = [f"{length.warning[0].upper()}{length.warning[1:]}."] if length and length.warning else []
        return short + [f"In the validation areas the model never predicts {join_words(names)}."] * bool(names)

    @property
    def images(self) -> str:
        """Number of the scenes, or of the chips of a chip set, as text."""
        return plural(len(self.places.records), "chip") if self.places else plural(len(self.items), "scene")

    @property
    def collections(self) -> str:
        """The collections of the scenes or chips, as text."""
        owners: Sequence[Any] = [tiles.attributes for tiles, _ in self.pairs] if self.places else self.items
        return join_words(sorted({str(owner.get("collection") or "an unnamed collection") for owner in owners}))

    @property
    def period(self) -> str:
        """First and last day of the scenes or chips, as text."""
        chips = self.places.records if self.places else ()
        return describe_days([*filter(None, (row["date"] for row in chips))] or [*item_dates(self.items).values()])

    @property
    def extent(self) -> str:
        """Size of the grid and of a pixel, CRS and bounds, as text."""
        return describe_places(self.places, self.pixel[0]) + self.decimation if self.places else super().extent


def describe_days(days: list[str]) -> str:
    """The first and the last of some days, or the only one."""
    return " to ".join(sorted({min(days), max(days)})) if days else "unknown dates"


def _extent_of(cell: Cell) -> str:
    (width, height), (rows, cols) = pixel_metres(cell.grid), cell.shape
    size = f"{format_length(cols * width)}{TIMES}{format_length(rows * height)}"
    name = f"cell {cell.id}: " if cell.id else ""
    place = f"{cell.grid.crs}, {format_bounds(cell.grid)}"
    return f"{name}{cols}{TIMES}{rows} pixels of {format_length(width)}: {size}, {place}"


def read_run(inputs: ReportInputs, statements: AuthorStatements) -> RunData:
    """Read everything of a training; raises BadInputError where parts do not belong together."""
    metrics, split = read_metrics(Path(inputs.metrics or "")), read_split(Path(inputs.chips or ""))
    model, folder = read_model_card(inputs.model), model_item(inputs.model).parent
    # `metrics-fold-0.json` has the scores of `fold 0`.
    folds = {path.stem.removeprefix("metrics-").replace("-", " "): read_metrics(path) for path in inputs.fold_metrics}
    of_run = {"split": split.classes, "scores": metrics.classes, "model": model["classes"]}
    _check_classes(of_run | {name: fold.classes for name, fold in folds.items()})
    pairs, trials, scale = pair_stores(inputs.tiles, inputs.labels), folder / LEADERBOARD, scale_of(metrics)
    check_scenes(split, pairs)
    fields = mapped_fields(inputs, statements, model, metrics, scale, split)
    board = Leaderboard(read_json(trials), metrics.task, scale.unit if scale else "") if trials.is_file() else None
    history = read_json(folder / HISTORY) | {"steps": read_journal(folder / METRICS)}
    return RunData(**fields, history=history, split=split, pairs=pairs, folds=folds, leaderboard=board)


def mapped_fields(
    inputs: ReportInputs,
    statements: AuthorStatements,
    model: dict[str, Any],
    metrics: AnyMetrics | None,
    scale: ValueScale | None,
    split: Split | None = None,
) -> dict[str, Any]:
    """The values of the fields of every `MappedRun`; without a split any labels test the map."""
    pairs: Pairs = pair_stores(inputs.tiles, inputs.labels) if inputs.labels else []
    stores = [tiles for tiles, _ in pairs] or sorted(map(Tiles, inputs.tiles), key=lambda store: store.scene)
    labels = {tiles.scene: label for tiles, label in pairs}
    items, classes = read_items(inputs.scenes), tuple(model["classes"])
    dates, change = item_dates(items), metrics.change if metrics else None
    palette, unit = (scale.colors, scale.unit) if scale else (class_colors(classes, statements.colors), "")
    files = map_files(inputs.classes, inputs.probabilities, stores, TASKS[model["task"]].second_bands(classes))
    files.sort(key=lambda file: (dates.get(file.scene, ""), file.scene))
    decimation, maps = page_decimation(files, stores), list[MapView]()
    everywhere = np.full(decimation.shape, SPLITS.index("test") if labels else NO_SPLIT, np.uint8)
    for file in select_maps(files, split) if split else spread_evenly(files):
        of_map = [store for store in stores if file.scene in {"", store.scene}]
        roles = split_roles(split, pairs, decimation, file.scene) if split else everywhere
        chip = split.chip if split else model["chip"]
        maps.append(read_map(file, of_map, labels.get(of_map[0].scene), roles, decimation, chip, scale))
    sheet = read_chip_sheet({"": files}, pairs, split, getattr(metrics, "min_share", None)) if split else None
    frame, step = stores[0].frame, decimation.step
    views = [
        (title, replace(view, window=window))
        for view in ([] if sheet else maps)
        for title, _, window in cell_windows(map_heading(view.scene, dates), view.window, frame, step)
    ]
    named = {"weights of the model": weights_file(inputs.model), "model": inputs.model}
    named |= {name: path for name, path in (("split", inputs.chips), ("scores", inputs.metrics)) if path}
    of_set = stores[0].attributes.get("collection") if sheet and statements.title == DEFAULT_TITLE else None
    return {
        "title": of_set or statements.title,
        "statements": statements,
        "model": model,
        "metrics": metrics,
        "classes": classes,
        "colors": palette,
        "scale": scale,
        "items": items,
        "stores": stores,
        "quality": read_quality(stores, dates),
        "files": files,
        "maps": maps,
        "map_panels": [
            with_change_panel(map_panels(part, title, classes, palette, unit), part, change) for title, part in views
        ],
        "split_panel": _split_panel(maps, pairs, split, decimation) if split and not sheet else None,
        "sheet": sheet,
        "estimated": AreasDocument.of_maps(inputs.areas, inputs.classes) if inputs.areas else None,
        "step": step,
        "digests": digest_rows(named, files, stores, [label for _, label in pairs]),
    }


def _check_classes(classes: dict[str, list[str]]) -> None:
    """Raise BadInputError where split, scores and model have different classes."""
    if len({tuple(names) for names in classes.values()}) > 1:
        listed = "; ".join(f"{name}: {', '.join(names)}" for name, names in classes.items())
        names = join_words([*classes])
        raise BadInputError(f"{names} have different classes ({listed}); use files of one run")


def _split_panel(maps: list[MapView], pairs: Pairs, split: Split, decimation: Decimation) -> PanelGroup:
    """The splits over a quicklook; several cells are side by side."""
    role = split_roles(split, pairs, decimation)
    mosaics = [view.quicklook for view in maps if not view.scene]
    quicklook = mosaics[0] if mosaics else read_quicklook([tiles for tiles, _ in pairs], decimation)
    columns = np.concatenate([np.r_[cell.columns(decimation.step)] for cell in pairs[0][0].frame.cells])
    cells = replace(quicklook, bands=quicklook.bands[..., columns], has_data=quicklook.has_data[:, columns])
    return split_panel(cells, role[:, columns])


def map_heading(scene: str, dates: dict[str, str]) -> str:
    """The heading of a map: date and name of its scene; empty for a mosaic."""
    return f"{dates.get(scene, '')} {scene}".strip()


def describe_places(places: ChipPlaces, pixel_m: float) -> str:
    """Slots, pixel size, CRSs and bounds of the chips of a set, as text."""
    crs = sorted({row["crs"] for row in places.records})
    names = join_words(crs) if len(crs) <= CRS_LISTED else f"{len(crs)} CRSs"
    edges = places.outlines
    boxes = [(*chip[7], *chip[3]) for chip in edges]
    west, _, east, _ = common_bounds(boxes)
    south, north = float(edges[..., 1].min()), float(edges[..., 1].max())
    bounds = format_degrees((west, south, east, north))
    size = f"{places.slot}{TIMES}{places.slot} pixels of {format_length(pixel_m)}"
    return f"chips in slots of {size}, side by side, not as on the ground; {names}, {bounds}"
