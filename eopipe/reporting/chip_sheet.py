"""The picture of runs on a chip set: worst, median and best chips of a split, and where on Earth they are.

Chips are beside each other in their stores, but not on the ground, so that a map of a store would be a false one.
"""

from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from eopipe.arrays import BoolArray, IntArray, UInt8Array
from eopipe.chips.chip_places import ChipPlaces
from eopipe.chips.chips import read_truth
from eopipe.chips.splits import NO_SPLIT, SPLITS, Split
from eopipe.inference.finished_maps import open_maps
from eopipe.reporting.figures import (
    FAINT,
    INK,
    LINE_HEIGHT,
    NO_DATA,
    SPLIT_COLORS,
    Box,
    add_text,
    axes_at,
    color_table,
    figure_style,
    new_figure,
    save_png,
    shorten_to_width,
)
from eopipe.reporting.maps import GAP, MARGIN, TICKS, add_heads, add_legend, label_degrees
from eopipe.reporting.panels import CORRECT, INCORRECT, stretch_contrast
from eopipe.reporting.rasters import MapFile, MapImage, Pairs
from eopipe.reporting.split_maps import TITLES, UNUSED_COLOR, unrolled
from eopipe.reporting.wording import format_percent, plural
from eopipe.scenes.products import true_colour_bands
from eopipe.tasks.multilabel import label_sets
from eopipe.tiles.grid import PixelWindow
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OF_A_GROUP = 3
GROUPS = ("Worst", "Median", "Best")
# In inches.
WIDTH, NAMES_WIDTH, CELL_GAP, GROUP_GAP, HEADER = 9.0, 0.75, 0.05, 0.18, 0.5
LOCATOR = (4.3, 3.0)
# Degrees around the chips of a locator map.
MARGIN_DEGREES = 0.02
DOT = 9


@dataclass(frozen=True)
class SheetChip:
    """A chip: red, green and blue (y, x, 3), numbers of its label and of each map by its name (y, x).

    `number` is that in `ChipPlaces`, `error` of the first map; `has_data` (y, x) is where the image is valid.
    """

    number: int
    error: float
    pixels: UInt8Array
    has_data: BoolArray
    label: UInt8Array
    mapped: dict[str, UInt8Array]


@dataclass(frozen=True)
class ChipSheet:
    """The chips of a sheet by the names of their groups, the places of all, and the split (n,) of each."""

    places: ChipPlaces
    splits: UInt8Array
    groups: dict[str, list[SheetChip]]
    has_label_sets: bool
    image_name: str

    @property
    def chips(self) -> list[SheetChip]:
        """The chips of all groups in their order."""
        return [chip for group in self.groups.values() for chip in group]

    @property
    def alt(self) -> str:
        """The picture in a sentence, for readers who cannot see it."""
        count = plural(len(self.chips), "chip")
        return f"{count} with image, label, map and errors, from the worst to the best, and a map of all places"


def read_chip_sheet(
    maps: dict[str, list[MapFile]], pairs: Pairs, split: Split, min_share: float | None, places: str = "test"
) -> ChipSheet | None:
    """The chips of a split in which the first of some maps has the most, median and fewest errors.

    None where scenes are mapped. A chip without a labelled and mapped pixel has no errors to be counted, so it is not
    among them. `min_share` is the setting for several labels for each chip, None for classes of pixels.
    """
    chips = ChipPlaces.of([tiles for tiles, _ in pairs])
    if chips is None:
        return None
    splits = np.full(len(chips.records), NO_SPLIT, np.uint8)
    for number, name in enumerate(SPLITS):
        splits[chips.indices(split.samples[name])] = number
    reader = _ChipReader(maps, pairs, chips, min_share)
    errors = dict(reader.errors(np.flatnonzero(splits == SPLITS.index(places))))
    worst_first = sorted(errors, key=lambda number: (-errors[number], number))
    groups = {
        name: [reader.read(number, errors[number]) for number in numbers]
        for name, numbers in choose_groups(worst_first, TITLES[places].lower()).items()
    }
    names = reader.bands
    image_name = "True colour" if len(names) == 3 else f"Band {names[0]}"
    return ChipSheet(chips, splits, groups, reader.min_share is not None, image_name)


def choose_groups(worst_first: list[int], places: str = "test") -> dict[str, list[int]]:
    """Three chips at the start, in the middle and at the end; all in one group where there are no more than these."""
    if len(worst_first) <= len(GROUPS) * OF_A_GROUP:
        return {f"All {places} chips, the worst first": worst_first}
    middle = (len(worst_first) - OF_A_GROUP) // 2
    starts = (0, middle, len(worst_first) - OF_A_GROUP)
    return {name: worst_first[start : start + OF_A_GROUP] for name, start in zip(GROUPS, starts, strict=True)}


@dataclass(frozen=True)
class _ChipReader:
    """Reads chips and maps, by names; `min_share` is for several labels for each chip, None for classes of pixels."""

    maps: dict[str, list[MapFile]]
    pairs: Pairs
    places: ChipPlaces
    min_share: float | None

    @property
    def bands(self) -> tuple[str, ...]:
        """Red, green and blue, or the first band."""
        names = self.pairs[0][0].names
        return true_colour_bands(names) or names[:1]

    def errors(self, numbers: IntArray) -> Iterator[tuple[int, float]]:
        """Chips with their shares of wrong pixels, or of wrong labels."""
        for number in numbers.tolist():
            store, window = self._window(number)
            label, mapped = self._label(store, window), self._image(store, window, next(iter(self.maps))).stored
            tested = (label != NO_LABEL) & (mapped[0] != NO_LABEL)
            if not tested.any():
                continue
            if self.min_share is None:
                yield number, float((label != mapped[0])[tested].mean())
            else:
                counts = np.bincount(label[label != NO_LABEL], minlength=len(mapped))
                (truth,) = label_sets(counts[None], self.min_share)
                yield number, float((truth != (mapped[:, tested] == 1).any(1)).mean())

    def read(self, number: int, error: float) -> SheetChip:
        """A chip with its image, label and map."""
        store, window = self._window(number)
        tiles = self.pairs[store][0]
        image = tiles.read("image", *window)[[tiles.names.index(name) for name in self.bands]]
        has_data = tiles.valid(*window)
        pixels = stretch_contrast(np.asarray(image, np.float32), has_data)
        of_sets = self.min_share is not None
        images = {name: self._image(store, window, name, of_probabilities=of_sets) for name in self.maps}
        mapped = {name: image.most_probable if of_sets else image.classes for name, image in images.items()}
        return SheetChip(number, error, pixels, has_data, self._label(store, window), mapped)

    def _image(self, store: int, window: PixelWindow, name: str, of_probabilities: bool = False) -> MapImage:
        """The part of a map in a window of a store."""
        files, tiles = {file.scene: file for file in self.maps[name]}, self.pairs[store][0]
        file = files.get(tiles.scene) or files[""]
        with open_maps((file.probabilities if of_probabilities else file.classes).values(), tiles.frame) as source:
            return MapImage.of(source, source.read(*window))

    def _window(self, number: int) -> tuple[int, PixelWindow]:
        """The store of a chip, and its rows and columns there without the padding of its slot."""
        (store, row, column), chip = self.places.samples[number].tolist(), self.places.records[number]
        return store, (slice(row, row + chip["height"]), slice(column, column + chip["width"]))

    def _label(self, store: int, window: PixelWindow) -> UInt8Array:
        return np.asarray(read_truth(self.pairs[store][1], *window), np.uint8)


def draw_chip_sheet(
    target: Path | BinaryIO, sheet: ChipSheet, texts: tuple[str, str, str], legend: dict[str, str]
) -> None:
    """Write a sheet as PNG; `texts` are title, subtitle and credit, `legend` has the colours of the classes."""
    chips, (title, subtitle, credit) = sheet.chips, texts
    ids = [str(sheet.places.records[chip.number]["id"]) for chip in chips]
    with figure_style(*texts, *legend, *ids):
        figure, width = new_figure(WIDTH, WIDTH), WIDTH - 2 * MARGIN
        top, (edge, lefts) = add_heads(figure, title, subtitle), _columns(sheet)
        rows = _rows(sheet, legend)
        first = top + HEADER
        bottom = first + len(rows) * (edge + CELL_GAP) + GAP
        box, window = locator_box(sheet.places, bottom)
        low, right = bottom, box[0] + box[2] + 2 * GAP
        for entries in _legends(sheet, legend):
            low = add_legend(figure, (right, low), entries, WIDTH - MARGIN - right) + 0.1 if entries else low
        low = max(low, bottom + box[3] + TICKS)
        end = add_text(figure, credit, (MARGIN, low + 0.08), width, 7.5, FAINT)
        figure.set_figheight(end + MARGIN / 2)
        # Axes are placed once the height is known.
        _add_headers(figure, sheet, lefts, top, edge)
        for row, (name, images) in enumerate(rows.items()):
            down = first + row * (edge + CELL_GAP)
            add_text(figure, name, (MARGIN, down + edge / 2 - 0.08), NAMES_WIDTH, 8, FAINT)
            for left, image in zip(lefts, images, strict=True):
                axes = axes_at(figure, (left, down, edge, edge))
                axes.imshow(image, interpolation="nearest" if max(image.shape) < 200 else "antialiased")
                axes.set(xticks=[], yticks=[])
        _draw_locator(figure, sheet, box, window)
        save_png(figure, target)


def sheet_uri(sheet: ChipSheet, texts: tuple[str, str, str], legend: dict[str, str]) -> str:
    """A sheet as a data URI."""
    draw_chip_sheet(buffer := BytesIO(), sheet, texts, legend)
    return f"data:image/png;base64,{b64encode(buffer.getvalue()).decode()}"


def _columns(sheet: ChipSheet) -> tuple[float, list[float]]:
    """The edge of a picture and the left of each column, in inches."""
    count, groups = len(GROUPS) * OF_A_GROUP, [len(chips) for chips in sheet.groups.values()]
    space = WIDTH - 2 * MARGIN - NAMES_WIDTH - count * CELL_GAP - (len(GROUPS) - 1) * GROUP_GAP
    edge, lefts, left = space / count, list[float](), MARGIN + NAMES_WIDTH
    for size in groups:
        lefts += [left + n * (edge + CELL_GAP) for n in range(size)]
        left = lefts[-1] + edge + CELL_GAP + GROUP_GAP if lefts else left
    return edge, lefts


def _rows(sheet: ChipSheet, legend: dict[str, str]) -> dict[str, list[UInt8Array]]:
    """The pictures (y, x, 3) of all chips by the names of the rows."""
    colors, outcomes = color_table([*legend.values()]), color_table([CORRECT, INCORRECT])
    rows: dict[str, list[UInt8Array]] = {
        sheet.image_name: [np.where(c.has_data[..., None], c.pixels, colors[NO_LABEL]) for c in sheet.chips],
        "Label": [colors[chip.label] for chip in sheet.chips],
    }
    for name in sheet.chips[0].mapped if sheet.chips else ():
        of_run, pairs = f" of {name}" if name else "", [(chip.label, chip.mapped[name]) for chip in sheet.chips]
        rows["Most probable class" if sheet.has_label_sets else f"Map{of_run}"] = [
            colors[mapped] for _, mapped in pairs
        ]
        if not sheet.has_label_sets:
            rows[f"Errors{of_run}"] = [
                outcomes[np.where(np.maximum(*pair) == NO_LABEL, 2, np.not_equal(*pair))] for pair in pairs
            ]
    return rows


def _add_headers(figure: "Figure", sheet: ChipSheet, lefts: list[float], top: float, edge: float) -> None:
    """The name of each group, and number, id and share of errors of each chip."""
    column = iter(enumerate(lefts, 1))
    for name, chips in sheet.groups.items():
        for place, chip in enumerate(chips):
            number, left = next(column)
            below = top + 9 * LINE_HEIGHT
            if not place:
                add_text(figure, name, (left, top), WIDTH, 9)
            text = f"{number}  {sheet.places.records[chip.number]['id']}"
            below = add_text(figure, shorten_to_width(text, 7, edge), (left, below), WIDTH, 7)
            unit = "of labels wrong" if sheet.has_label_sets else "wrong"
            add_text(figure, f"{format_percent(chip.error)} {unit}", (left, below), WIDTH, 7, FAINT)


def _legends(sheet: ChipSheet, legend: dict[str, str]) -> list[list[tuple[str, str]]]:
    """Names and colours of classes, of errors, and of the dots of the locator map."""
    splits = [
        (f"{TITLES[name]}, {plural(int((sheet.splits == number).sum()), 'chip')}", SPLIT_COLORS[number])
        for number, name in enumerate(SPLITS)
    ]
    unused = int((sheet.splits == NO_SPLIT).sum())
    splits += [(f"in no split, {plural(unused, 'chip')}", UNUSED_COLOR)] if unused else []
    errors = [] if sheet.has_label_sets else [("correct", CORRECT), ("incorrect", INCORRECT)]
    return [[*legend.items(), ("no data or no label", NO_DATA)], errors, splits]


def locator_box(places: ChipPlaces, top: float) -> tuple[Box, tuple[float, float, float, float]]:
    """The box of a locator map below `top`, and its west, east, south and north: alike in metres at its middle."""
    longitude, latitude = unrolled(places.degrees[:, 0]), places.degrees[:, 1]
    shrink = max(float(np.cos(np.radians(latitude.mean()))), 0.1)
    half_width, half_height = (0.55 * float(np.ptp(axis)) + MARGIN_DEGREES for axis in (longitude, latitude))
    # A narrow map gets the width of half its height, and a flat one the height of half its width.
    half_width = max(half_width, half_height / 2 / shrink)
    half_height = max(half_height, half_width * shrink / 2)
    x, y = (float(axis.min() + axis.max()) / 2 for axis in (longitude, latitude))
    south, north = max(y - half_height, -90.0), min(y + half_height, 90.0)
    scale = min(LOCATOR[0] / (2 * half_width * shrink), LOCATOR[1] / (north - south))
    box = (MARGIN + TICKS, top, 2 * half_width * shrink * scale, (north - south) * scale)
    return box, (x - half_width, x + half_width, south, north)


def _draw_locator(figure: "Figure", sheet: ChipSheet, box: Box, window: tuple[float, float, float, float]) -> None:
    """All chips as dots at their true places, in the colours of their splits; chips of the sheet have their numbers."""
    axes = axes_at(figure, box)
    axes.set(xlim=window[:2], ylim=window[2:])
    longitude, latitude = unrolled(sheet.places.degrees[:, 0]), sheet.places.degrees[:, 1]
    # Test chips are drawn over the others.
    for number in (NO_SPLIT, *range(len(SPLITS))):
        chosen = sheet.splits == number
        color = UNUSED_COLOR if number == NO_SPLIT else SPLIT_COLORS[number]
        axes.scatter(longitude[chosen], latitude[chosen], DOT, color, linewidths=0)
    for number, chip in enumerate(sheet.chips, 1):
        place = (longitude[chip.number], latitude[chip.number])
        axes.scatter(*place, DOT, SPLIT_COLORS[sheet.splits[chip.number]], edgecolors=INK, linewidths=0.6)
        # Around the dot, so that the numbers of neighbours are not above each other.
        angle = 2.4 * number
        offset = (7 * np.cos(angle), 7 * np.sin(angle))
        axes.annotate(str(number), place, offset, textcoords="offset points", size=7, ha="center", va="center")
    label_degrees(axes, "EPSG:4326")
