"""Maps of periods by one model as a series: areas by date, changes between dates, and drift of the inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from markupsafe import Markup

from eopipe.areas.areas_document import AreasDocument, EstimatedValue
from eopipe.arrays import Float64Array
from eopipe.errors import BadInputError
from eopipe.inference.finished_maps import WINDOW, FinishedMap, read_finished_maps
from eopipe.reporting.charts import draw_chart
from eopipe.reporting.decimation import decimate, read_centres
from eopipe.reporting.figures import class_colors
from eopipe.reporting.panels import ImagePanel, PanelGroup, encode_classes
from eopipe.reporting.rasters import LONGEST_EDGE_OF_MANY, spread_evenly
from eopipe.reporting.run_data import describe_days
from eopipe.reporting.scores import TextTable
from eopipe.reporting.status import STATUS, MapStatus
from eopipe.reporting.task_parts import format_hectares
from eopipe.reporting.wording import DASH, format_percent, join_words, plural
from eopipe.tiles.geotiff import open_map, read_window
from eopipe.tiles.grid import same_grid, windows
from eopipe.tiles.ground import pixel_hectares, pixel_metres
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AREAS = "areas.json"
CHART = (5.6, 2.8)
LINES = ("-", "--", "-.", ":")
# The bands of a period in the table of inputs; the document has all.
MOST_BANDS = 3
OF_MAPS = (
    "Areas of maps are counted pixels, and wrong where the map is wrong; those with a standard error are estimated "
    "from a labelled sample (eopipe sample). Where more pixels are without data the mapped area is smaller: compare "
    "shares, and changes, which are counted where both dates are mapped."
)
OF_CHANGES = (
    "A change is counted where two maps differ, so it has the errors of both: small changes are mostly errors. "
    "A sample of a map of changes gives their area with an error."
)
OF_SAMPLES = "Net changes from labelled samples"
NOT_COUNTED = "not counted: the maps have different grids, or several labels for each chip"
OF_NET = (
    "Net changes are differences of two estimated areas; the intervals combine the limits of both (MOVER, Zou et al. "
    "2009, doi:10.1016/j.csda.2008.09.033) for samples that were drawn independently."
)


class PageSection(NamedTuple):
    """A section of a page of tables: sentences above them and notes below."""

    id: str
    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[TextTable] = ()
    notes: Sequence[str] = ()
    chart: Markup = Markup("")


@dataclass(frozen=True)
class MappedPeriod:
    """The map of a period: its status, its files by cell, and areas from a labelled sample where there are some."""

    name: str
    status: MapStatus
    maps: dict[str, FinishedMap]
    estimated: AreasDocument | None

    @classmethod
    def read(cls, folder: Path, name: str) -> "MappedPeriod":
        """Read results. Raises BadInputError for damaged ones, and for those with a map of each scene."""
        paths = sorted(folder.glob("maps/*/classes.tif"))
        if not paths:
            raise BadInputError(f"{folder} has no map; run its period again")
        maps = {each.cell: each for each in read_finished_maps(paths)}
        if len(maps) < len(paths):
            raise BadInputError(f"{folder} has a map of each scene, and a series has one map of each period")
        areas = AreasDocument.of_maps(folder / AREAS, paths) if (folder / AREAS).is_file() else None
        return cls(name, MapStatus.read(folder / STATUS), maps, areas)

    @property
    def hectares(self) -> dict[str, float]:
        """The mapped hectares of each class."""
        return {name: self.status.areas[name].hectares for name in self.status.classes if name in self.status.areas}

    @property
    def middle(self) -> date:
        """The day in the middle between the first and the last scene."""
        days = [date.fromisoformat(day).toordinal() for day in self.status.days]
        return date.fromordinal((days[0] + days[-1]) // 2)

    def estimate(self, name: str) -> EstimatedValue | None:
        """The area of a class from a labelled sample."""
        return self.estimated.areas[name].hectares if self.estimated else None

    def json(self) -> dict[str, Any]:
        """The period in the document of a series."""
        areas = {name: value.model_dump() for name in self.status.classes if (value := self.estimate(name))}
        return {"name": self.name, "estimated_hectares": areas} | self.status.model_dump()


@dataclass(frozen=True)
class Change:
    """Hectares (class before, class after) of the ground that two maps have; None where they are not counted."""

    before: MappedPeriod
    after: MappedPeriod
    hectares: Float64Array | None

    @property
    def title(self) -> str:
        """Both periods."""
        return f"{self.before.name} to {self.after.name}"

    def json(self) -> dict[str, Any]:
        """The change in the document of a series."""
        names = self.before.status.classes
        rows = None if self.hectares is None else self.hectares.round(4).tolist()
        matrix = rows and {name: dict(zip(names, row, strict=True)) for name, row in zip(names, rows, strict=True)}
        return {"from": self.before.name, "to": self.after.name, "hectares": matrix}


@dataclass(frozen=True)
class PeriodSeries:
    """The periods by date."""

    periods: list[MappedPeriod]

    @classmethod
    def of(cls, folders: Sequence[Path], names: Sequence[str]) -> "PeriodSeries":
        """Read the periods in folders of results. Raises BadInputError for maps that have no classes in common."""
        periods = [MappedPeriod.read(folder, name) for folder, name in zip(folders, names, strict=True)]
        first = periods[0].status
        if not first.areas:
            raise BadInputError(f"{folders[0]} is a map of {first.task} values; a series is of the areas of classes")
        if undated := next((period.name for period in periods if not period.status.days), None):
            raise BadInputError(f"{undated} has no scene with a date, and a series is by date")
        if other := next((period for period in periods if period.status.classes != first.classes), None):
            raise BadInputError(
                f"{other.name} has the classes {join_words(other.status.classes)}, {names[0]} has "
                f"{join_words(first.classes)}; compare maps of one model"
            )
        return cls(sorted(periods, key=lambda period: (period.status.days, period.name)))

    @property
    def classes(self) -> list[str]:
        return self.periods[0].status.classes

    @cached_property
    def changes(self) -> list[Change]:
        """What changed from each date to the next."""
        return [_change(*pair) for pair in pairwise(self.periods)]

    @property
    def sentences(self) -> list[str]:
        """Which maps these are, and where they are not of one model."""
        models = [*dict.fromkeys(period.status.model for period in self.periods)]
        days = describe_days([day for period in self.periods for day in period.status.days])
        sentences = [f"{plural(len(self.periods), 'map')}, {days}, by the model {' and '.join(models)}."]
        if len(models) > 1:
            others = join_words([period.name for period in self.periods if period.status.model != models[0]])
            sentences.append(
                f"{self.periods[0].name} is by {models[0]} and {others} not: differences are also those of the models."
            )
        if unusual := [period.name for period in self.periods if period.status.findings]:
            sentences.append(f"Something is unusual in {join_words(unusual)}: see the inputs below.")
        return sentences

    @property
    def area_rows(self) -> list[tuple[str, ...]]:
        """Period, mapped hectares, and of each class its hectares and share, with the estimate below it."""
        rows = list[tuple[str, ...]]()
        for period in self.periods:
            total = sum(period.hectares.values())
            texts = [
                f"{format_hectares(area)} ({format_percent(area / (total or 1))})" for area in period.hectares.values()
            ]
            rows.append((period.name, format_hectares(total), *texts))
            if period.estimated:
                values = [period.estimate(name) for name in self.classes]
                rows.append(
                    (f"{period.name}, estimated", format_hectares(period.estimated.hectares), *map(_estimate, values))
                )
        return rows

    @property
    def change_rows(self) -> list[tuple[str, ...]]:
        """Periods, from and to which class, and hectares; the largest changes first."""
        rows: list[tuple[str, ...]] = []
        for change in self.changes:
            if change.hectares is None:
                rows.append((change.title, NOT_COUNTED, DASH, DASH))
                continue
            common = float(change.hectares.sum()) or 1.0
            pairs = [(*np.unravel_index(n, change.hectares.shape), n) for n in np.argsort(-change.hectares, axis=None)]
            moved = [
                (change.title, f"{self.classes[before]} to {self.classes[after]}", float(change.hectares.flat[n]))
                for before, after, n in pairs
                if before != after and change.hectares.flat[n]
            ]
            rows += [(title, text, format_hectares(area), format_percent(area / common)) for title, text, area in moved]
            if not moved:
                rows.append((change.title, "no pixel differs", format_hectares(0), format_percent(0)))
        return rows

    @property
    def net_rows(self) -> list[tuple[str, ...]]:
        """Periods, class, and the difference of its estimated areas with an interval, where both have an estimate."""
        rows: list[tuple[str, ...]] = []
        for change in self.changes:
            for name in self.classes:
                before, after = change.before.estimate(name), change.after.estimate(name)
                if before and after:
                    low, high = difference_interval(before, after)
                    ends = DASH if low is None or high is None else f"{format_hectares(low)} to {format_hectares(high)}"
                    rows.append((change.title, name, format_hectares(after.estimate - before.estimate), ends))
        return rows

    @property
    def findings(self) -> list[str]:
        """What is unusual about each period."""
        return [f"{period.name}: {sentence}" for period in self.periods for sentence in period.status.findings]

    @property
    def drift_rows(self) -> list[tuple[str, ...]]:
        """Period, scenes, days, the bands with the most pixels beyond the range of the training, and findings."""
        rows = list[tuple[str, ...]]()
        for period in self.periods:
            status = period.status
            beyond = sorted(((row.beyond, band) for band, row in status.bands.items()), reverse=True)[:MOST_BANDS]
            bands = ", ".join(f"{band} {format_percent(share)}" for share, band in beyond) or DASH
            text = plural(len(status.findings), "finding") if status.compared else "not compared: an old model"
            rows.append((period.name, str(status.scenes), describe_days(status.days), bands, text))
        return rows

    @property
    def tables(self) -> dict[str, TextTable]:
        """The tables by their section; each also printed on the terminal."""
        net, heads = self.net_rows, ["Period", "Scenes", "Days", "Pixels beyond the training's range", "Unusual"]
        tables = {
            "areas": TextTable("Areas by date, ha", ["Period", "Mapped", *self.classes], self.area_rows),
            "changes": TextTable("Changes between dates", ["Periods", "Change", "Hectares", "Share"], self.change_rows),
            "inputs": TextTable("Inputs by date", heads, self.drift_rows),
        }
        if net:
            tables["net"] = TextTable(OF_SAMPLES, ["Periods", "Class", "Net change, ha", "95 % interval, ha"], net)
        return tables

    def sections(self) -> list[PageSection]:
        """The sections of the page."""
        tables = self.tables
        changes = [tables[name] for name in ("changes", "net") if name in tables]
        notes = [OF_CHANGES, *([OF_NET] if "net" in tables else [])]
        return [
            PageSection("areas", "Areas", self.sentences, [tables["areas"]], [OF_MAPS], self.chart()),
            PageSection("changes", "Changes", (), changes, notes),
            PageSection("inputs", "Inputs", (), [tables["inputs"]], self.findings),
        ]

    def colors(self) -> tuple[str, ...]:
        """The colours of the classes on the maps."""
        table = next(iter(self.periods[0].maps.values())).colors
        return tuple("#{:02x}{:02x}{:02x}".format(*color) for color in table) or class_colors(tuple(self.classes), ())

    def chart(self) -> Markup:
        """The share of each class over the dates: on the maps as lines, estimates with intervals as dots."""

        def draw(axes: "Axes") -> None:
            from matplotlib.dates import date2num

            number_of: Any = date2num
            days = [float(number_of(period.middle)) for period in self.periods]
            for number, (name, color) in enumerate(zip(self.classes, self.colors(), strict=True)):
                shares = [100 * period.hectares[name] / (sum(period.hectares.values()) or 1) for period in self.periods]
                axes.plot(
                    days,
                    shares,
                    color=color,
                    marker="o",
                    markersize=3,
                    linestyle=LINES[number % len(LINES)],
                    label=name,
                )
                for day, period in zip(days, self.periods, strict=True):
                    value, total = period.estimate(name), period.estimated.hectares if period.estimated else 1.0
                    if value and value.interval:
                        low, high = (abs(end - value.estimate) * 100 / total for end in value.interval)
                        middle = 100 * value.estimate / total
                        axes.errorbar([day], [middle], [[low], [high]], color=color, fmt="s", capsize=3, markersize=4)
            axes.set(ylabel="share of the mapped area, %", ylim=(0, None))
            axes.xaxis_date()
            axes.grid(axis="y")
            axes.legend(loc="best")

        return draw_chart("Share of each class by date", CHART, draw, *self.classes)

    def panels(self) -> list[PanelGroup]:
        """The maps side by side, for each cell; of many periods some, with the first and the last."""
        chosen = [self.periods[number] for number in spread_evenly(range(len(self.periods)))]
        cells = dict.fromkeys(cell for period in chosen for cell in period.maps)
        return [_panels_of_cell(cell, chosen, self.colors()) for cell in cells]

    @property
    def pixel_m(self) -> float:
        """Metres of a pixel of the images."""
        first = next(iter(self.periods[0].maps.values()))
        shape = int(first.grid.shape[0]), int(first.grid.shape[1])
        return float(pixel_metres(first.grid)[0] * decimate(shape, LONGEST_EDGE_OF_MANY).step)

    def json(self) -> dict[str, Any]:
        """The series as a document."""
        return {"changes": [change.json() for change in self.changes], "periods": [row.json() for row in self.periods]}


def difference_interval(before: EstimatedValue, after: EstimatedValue) -> tuple[float | None, float | None]:
    """Limits of the difference of two independent estimates from the limits of each (MOVER); None without them."""
    if not before.interval or not after.interval:
        return None, None
    difference = after.estimate - before.estimate
    low = difference - np.hypot(after.estimate - after.interval[0], before.interval[1] - before.estimate)
    high = difference + np.hypot(after.interval[1] - after.estimate, before.estimate - before.interval[0])
    return float(low), float(high)


def _estimate(value: EstimatedValue | None) -> str:
    """An estimate with its standard error."""
    if value is None:
        return DASH
    error = "" if value.standard_error is None else f" ± {format_hectares(value.standard_error)}"
    return f"{format_hectares(value.estimate)}{error}"


def _change(before: MappedPeriod, after: MappedPeriod) -> Change:
    """Count what two maps have on the same ground, window by window."""
    count = len(before.status.classes)
    cells = [(before.maps[cell], after.maps[cell]) for cell in before.maps if cell in after.maps]
    if not cells or any(not same_grid(first.grid, other.grid) for first, other in cells):
        return Change(before, after, None)
    total = np.zeros(count**2)
    for first, other in cells:
        with open_map(first.classes) as old, open_map(other.classes) as new:
            if old.count > 1:
                return Change(before, after, None)
            for window in windows(old.shape, WINDOW):
                numbers, now = first.read_classes(old, *window), other.read_classes(new, *window)
                is_mapped = (numbers != NO_LABEL) & (now != NO_LABEL)
                if is_mapped.any():
                    pairs = numbers[is_mapped].astype(np.int64) * count + now[is_mapped]
                    total += np.bincount(pairs, pixel_hectares(first.grid, *window)[is_mapped], count**2)
    return Change(before, after, total.reshape(count, count))


def _panels_of_cell(cell: str, periods: Sequence[MappedPeriod], colors: tuple[str, ...]) -> PanelGroup:
    """The maps of the periods in a cell, decimated."""
    panels, shape = list[ImagePanel](), (1, 1)
    for period in (period for period in periods if cell in period.maps):
        with open_map(period.maps[cell].classes) as file:
            decimation = decimate(file.shape, LONGEST_EDGE_OF_MANY)
            numbers = read_centres(partial(read_window, file), decimation)[0].astype(np.uint8)
        text = f"Map of {period.name}: {', '.join(f'{n} {format_hectares(a)} ha' for n, a in period.hectares.items())}."
        panels.append(ImagePanel(period.name, text, encode_classes(numbers, colors)))
        shape = decimation.shape
    return PanelGroup(cell, panels, "", shape[1], shape[0])
