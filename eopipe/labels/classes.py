"""Labels on a grid: class numbers from rasters or vectors, and where they are valid."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Int32Array, IntArray, UInt8Array
from eopipe.errors import BadInputError, UsageError
from eopipe.labels.vectors import ShapeParts, read_features, to_grid, warn_without_value
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

Overlap = Literal["invalid", "last", "first"]


def nfc(text: str) -> str:
    """Text in Unicode normal form C: files of macOS have accents as characters of their own, which look the same."""
    return unicodedata.normalize("NFC", text)


@dataclass(frozen=True)
class Legend:
    """How source values become class numbers 0, 1, …; `SourceValues` refuses a raster with any other value.

    `values` are entries class=value, several of which may name one class; an empty class means unlabelled, as do the
    stored numbers of `ignore`.
    """

    classes: tuple[str, ...]
    bins: tuple[float, ...] = ()
    codes: tuple[int, ...] = ()
    ignore: tuple[int, ...] = ()
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise UsageError where classes, bins, codes, ignore and values contradict each other."""
        if conflicts := legend_conflicts(self.classes, self.bins, self.codes, self.ignore, self.values):
            raise UsageError("; ".join(conflicts))

    @cached_property
    def table(self) -> dict[str, int]:
        """Class number of each value as text (NFC); 255 for values that mean unlabelled."""
        return {nfc(value): number for value, number in self._numbers().items()}

    def _numbers(self) -> dict[str, int]:
        ignored = {str(value): NO_LABEL for value in self.ignore}
        if self.values:
            pairs = [entry.partition("=") for entry in self.values]
            return ignored | {v: self.classes.index(n) if n else NO_LABEL for n, _, v in pairs}
        codes = {str(code): number for number, code in enumerate(self.codes)}
        return {name: number for number, name in enumerate(self.classes)} | codes | ignored

    def number(self, value: Any) -> int | None:
        """Class number of a feature's value; 255 for a missing or ignored one, None for an unknown one."""
        return NO_LABEL if value is None else self.table.get(nfc(str(value)))

    def classify(self, values: AnyArray, valid: BoolArray) -> UInt8Array:
        """Class numbers of raster values where they are valid (uint8, 255 where unlabelled).

        With bins, class i holds bins[i-1] <= value < bins[i]; the caller removes ignored numbers from `valid`, since
        values are physical. With codes, class i holds value codes[i]; with values, each that names it; else value i.
        """
        if self.bins:
            return np.where(valid, np.digitize(values, self.bins), NO_LABEL).astype(np.uint8)
        valid = valid & ~np.isin(values, self.ignore)
        numbers = np.full(values.shape, NO_LABEL, np.uint8)
        for code, number in self.raster_values():
            numbers[valid & (values == code)] = number
        return numbers

    def raster_values(self) -> list[tuple[float, int]]:
        """Raster values with the class number of each."""
        if not self.values:
            return [(code, number) for number, code in enumerate(self.codes or range(len(self.classes)))]
        try:
            return [(float(value), number) for value, number in self.table.items() if number != NO_LABEL]
        except ValueError as error:
            raise UsageError(f"label.values has a text value, but a raster holds numbers: {error}") from error


def legend_conflicts(
    classes: Sequence[str],
    bins: Sequence[float] = (),
    codes: Sequence[int] = (),
    ignore: Sequence[int] = (),
    values: Sequence[str] = (),
) -> list[str]:
    """A sentence for each contradiction between the options that define classes; `eopipe check` reports them too."""
    count = len(classes)
    repeated = ", ".join(sorted(_repeated([nfc(name) for name in classes])))
    errors = [f"label.classes has {repeated} twice; each class has a name of its own"] if repeated else []
    if count > NO_LABEL:
        errors.append(f"label.classes has {count} names; {NO_LABEL} are possible")
    options = {"bins": bins, "codes": codes, "values": values}
    if len(used := [f"`{name}`" for name, option in options.items() if option]) > 1:
        errors.append(f"label has {' and '.join(used)}; keep one of them")
    if bins and len(bins) != count - 1:
        errors.append(f"label.bins has {len(bins)} edges; {count} classes need {count - 1}")
    elif list(bins) != sorted(set(bins)):
        errors.append(f"label.bins {', '.join(f'{edge:g}' for edge in bins)} do not increase")
    if codes and len(codes) != count:
        errors.append(f"label.codes has {len(codes)} values for {count} classes")
    elif _repeated(codes):
        errors.append(f"{count} classes need {count} different numbers in label.codes")
    if values:
        errors += _value_conflicts(classes, values)
    return errors + _ignore_conflicts(classes, codes, ignore, values)


def _repeated(entries: Sequence[Any]) -> list[Any]:
    return [entry for entry, count in Counter(entries).items() if count > 1]


def _value_conflicts(classes: Sequence[str], values: Sequence[str]) -> list[str]:
    pairs = [entry.partition("=") for entry in values]
    unknown = sorted({name for name, _, _ in pairs if name} - set(classes))
    without = [name for name in classes if name not in {name for name, _, _ in pairs}]
    repeated = sorted(_repeated([nfc(value) for _, _, value in pairs]))
    errors = [f"{entry} is not class=value" for entry, (_, equals, _) in zip(values, pairs, strict=True) if not equals]
    errors += [f"there is no class {', '.join(unknown)}"] if unknown else []
    errors += [f"value {', '.join(repeated)} is given twice"] if repeated else []
    errors += [f"class {', '.join(without)} has no value"] if without else []
    return [f"label.values: {'; '.join(errors)}; the classes are {', '.join(classes)}"] if errors else []


def _ignore_conflicts(
    classes: Sequence[str], codes: Sequence[int], ignore: Sequence[int], values: Sequence[str]
) -> list[str]:
    """A value cannot mean a class and be unlabelled."""
    pairs = {value: name for name, _, value in (entry.partition("=") for entry in values) if name}
    pairs |= {str(code): name for code, name in zip(codes, classes, strict=False)}
    return [
        f"label.ignore has {value}, which label.{'codes' if codes else 'values'} assigns to class {pairs[str(value)]}; "
        "remove it from one of them"
        for value in dict.fromkeys(ignore)
        if str(value) in pairs
    ]


def raster_conflicts(classes: Sequence[str], ignore: Sequence[int], *, is_explicit: bool) -> list[str]:
    """Ignored values that a raster's class numbers would be; `is_explicit` with bins, codes or values."""
    numbers = [value for value in dict.fromkeys(ignore) if 0 <= value < len(classes)]
    if is_explicit or not numbers:
        return []
    meanings = ", ".join(f"{value} is class {classes[value]}" for value in numbers)
    return [
        f"label.ignore has {', '.join(map(str, numbers))}, but without label.codes {meanings}; "
        "set label.codes to the value of each class"
    ]


@dataclass(frozen=True)
class ClassRaster:
    """Class numbers (y, x), and the number of pixels that shapes of different classes cover.

    `polygons` (y, x) is the number of the shape of each pixel, from 1 in the order of the file; 0 where there is none;
    None if no class has several shapes, since then it does not matter which of them a pixel belongs to.
    """

    numbers: UInt8Array
    conflicts: int
    polygons: Int32Array | None = None


def shape_classes(source: Path, values: Sequence[Any], legend: Legend) -> IntArray:
    """The class numbers of shapes. Raises BadInputError that names every class which the legend lacks."""
    numbers = [legend.number(value) for value in values]
    unknown = sorted({str(value) or "''" for value, number in zip(values, numbers, strict=True) if number is None})
    if unknown:
        classes = ", ".join(legend.table if legend.values else legend.classes)
        raise BadInputError(f"{source} has features of class {', '.join(unknown)}; the classes are {classes}")
    return np.array(numbers, np.int64)


class ClassShapes:
    """The shapes of a vector file with their class numbers, to be rasterised onto any part of a grid."""

    def __init__(
        self,
        source: Path,
        grid: "GeoBox",
        legend: Legend,
        attribute: str,
        layer: str | None = None,
        *,
        numbers_of_file: bool = False,
        dates: str | None = None,
    ) -> None:
        """Read and reproject the shapes; raises BadInputError that names every class which the legend lacks.

        Polygons are numbered in their order around this grid, or with `numbers_of_file` in the order of the whole
        file, so that a polygon has one number on several grids.
        """
        from shapely import STRtree, is_empty

        features = read_features(source, attribute, layer, dates=dates)
        class_numbers = shape_classes(source, features.values, legend)
        warn_without_value(features, attribute)
        self.attribute_values, shapes = features.values, to_grid(features, grid)
        self.features, self.class_numbers = features, class_numbers
        self.is_on_grid = np.array([shape is not None for shape in shapes], bool) & ~is_empty(shapes)
        is_labelled = self.is_on_grid & (class_numbers != NO_LABEL)
        self.shapes, self.numbers = shapes[is_labelled], class_numbers[is_labelled]
        self.polygon_numbers = 1 + (np.flatnonzero(is_labelled) if numbers_of_file else np.arange(len(self.shapes)))
        self.tree, self.parts = STRtree(self.shapes), ShapeParts(self.shapes)

    @property
    def has_polygons(self) -> bool:
        """Whether a class has several shapes."""
        return len(self.shapes) > len(np.unique(self.numbers))

    def rasterize(self, part: "GeoBox", overlap: Overlap, *, all_touched: bool) -> ClassRaster:
        """The class of the shape that contains a pixel's centre, or with `all_touched` that touches the pixel.

        Where shapes of different classes overlap, the pixel is unlabelled or the last or first in the file wins.
        """
        from rasterio.features import rasterize
        from shapely.geometry import box

        nearby = np.sort(self.tree.query(box(*part.extent.boundingbox)))
        options = {"out_shape": part.shape, "transform": part.affine, "dtype": "uint8", "all_touched": all_touched}
        numbers = np.full(part.shape, NO_LABEL, np.uint8)
        if not len(nearby):
            return ClassRaster(numbers, 0, np.zeros(part.shape, np.int32) if self.has_polygons else None)
        order = nearby[::-1] if overlap == "first" else nearby
        shapes = zip(self.shapes[order], self.numbers[order].tolist(), strict=True)
        numbers = rasterize(shapes, fill=NO_LABEL, **options)
        classes_per_pixel = np.zeros(part.shape, np.uint8)
        for number in np.unique(self.numbers[nearby]):
            classes_per_pixel += rasterize(self.shapes[nearby[self.numbers[nearby] == number]], **options)
        if overlap == "invalid":
            numbers[classes_per_pixel > 1] = NO_LABEL
        conflicts = int((classes_per_pixel > 1).sum())
        if not self.has_polygons:
            return ClassRaster(numbers, conflicts)
        numbered = zip(self.shapes[order], self.polygon_numbers[order].tolist(), strict=True)
        polygons = rasterize(numbered, **options | {"dtype": "int32"})
        polygons[numbers == NO_LABEL] = 0
        return ClassRaster(numbers, conflicts, polygons)
