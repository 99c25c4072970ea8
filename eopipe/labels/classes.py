"""Labels on a grid: class numbers from rasters or vectors, and where they are valid."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, UInt8Array
from eopipe.errors import BadInputError, UsageError
from eopipe.labels.vectors import read_features, to_grid
from eopipe.tiles.store import NO_LABEL

if TYPE_CHECKING:
    from odc.geo.geobox import GeoBox

Overlap = Literal["invalid", "last", "first"]


@dataclass(frozen=True)
class Legend:
    """How source values become class numbers 0, 1, …; pixels with any other value are unlabelled.

    `values` are entries class=value, several of which may name one class; an empty class means unlabelled.
    """

    classes: tuple[str, ...]
    bins: tuple[float, ...] = ()
    codes: tuple[int, ...] = ()
    ignore: tuple[int, ...] = ()
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that bins, codes and values match the classes, whose numbers stay below NO_LABEL."""
        count = len(self.classes)
        if len(set(self.classes)) < count or count > NO_LABEL:
            raise UsageError(f"label.classes needs up to {NO_LABEL} different names")
        if bool(self.bins) + bool(self.codes) + bool(self.values) > 1:
            raise UsageError("label has more than one of bins, codes and values; give one")
        if self.bins and (len(self.bins) != count - 1 or list(self.bins) != sorted(set(self.bins))):
            raise UsageError(f"{count} classes need {count - 1} increasing edges in label.bins")
        if self.codes and not len(set(self.codes)) == len(self.codes) == count:
            raise UsageError(f"{count} classes need {count} different numbers in label.codes")
        if self.values:
            self._check_values()

    def _check_values(self) -> None:
        pairs = [entry.partition("=") for entry in self.values]
        unknown = sorted({name for name, _, _ in pairs if name} - set(self.classes))
        duplicates = sorted({value for n, (_, _, value) in enumerate(pairs) if value in [v for _, _, v in pairs[:n]]})
        without = [name for name in self.classes if name not in {name for name, _, _ in pairs}]
        errors = [
            f"{entry} is not class=value"
            for entry, (_, equals, _) in zip(self.values, pairs, strict=True)
            if not equals
        ]
        errors += [f"there is no class {', '.join(unknown)}"] if unknown else []
        errors += [f"value {', '.join(duplicates)} is given twice"] if duplicates else []
        errors += [f"class {', '.join(without)} has no value"] if without else []
        if errors:
            raise UsageError(f"label.values: {'; '.join(errors)}; the classes are {', '.join(self.classes)}")

    @cached_property
    def table(self) -> dict[str, int]:
        """Class number of each value as text; 255 for values that mean unlabelled."""
        ignored = {str(value): NO_LABEL for value in self.ignore}
        if self.values:
            pairs = [entry.partition("=") for entry in self.values]
            return ignored | {v: self.classes.index(n) if n else NO_LABEL for n, _, v in pairs}
        codes = {str(code): number for number, code in enumerate(self.codes)}
        return {name: number for number, name in enumerate(self.classes)} | codes | ignored

    def number(self, value: Any) -> int | None:
        """Class number of a feature's value; 255 for a missing or ignored one, None for an unknown one."""
        return NO_LABEL if value is None else self.table.get(str(value))

    def classify(self, values: AnyArray, valid: BoolArray) -> UInt8Array:
        """Class numbers of raster values where they are valid (uint8, 255 where unlabelled).

        With bins, class i holds bins[i-1] <= value < bins[i]; with codes, value codes[i]; with values, each
        that names it; else value i.
        """
        valid = valid & ~np.isin(values, self.ignore)
        if self.bins:
            return np.where(valid, np.digitize(values, self.bins), NO_LABEL).astype(np.uint8)
        numbers = np.full(values.shape, NO_LABEL, np.uint8)
        for code, number in self._codes():
            numbers[valid & (values == code)] = number
        return numbers

    def _codes(self) -> list[tuple[float, int]]:
        """Raster values with the class number of each."""
        if not self.values:
            return [(code, number) for number, code in enumerate(self.codes or range(len(self.classes)))]
        try:
            return [(float(value), number) for value, number in self.table.items() if number != NO_LABEL]
        except ValueError as error:
            raise UsageError(f"label.values has a text value, but a raster holds numbers: {error}") from error


@dataclass(frozen=True)
class ClassRaster:
    """Class numbers (y, x), and the number of pixels that shapes of different classes cover."""

    numbers: UInt8Array
    conflicts: int


class ClassShapes:
    """The shapes of a vector file with their class numbers, to be rasterised onto any part of a grid."""

    def __init__(self, source: Path, grid: "GeoBox", legend: Legend, attribute: str, layer: str | None = None) -> None:
        """Read and reproject the shapes; raises BadInputError that names every class which the legend lacks."""
        from shapely import STRtree, is_empty

        features = read_features(source, attribute, layer)
        numbers = [legend.number(value) for value in features.values]
        unknown = sorted({str(value) for value, n in zip(features.values, numbers, strict=True) if n is None})
        if unknown:
            classes = ", ".join(legend.table if legend.values else legend.classes)
            raise BadInputError(f"{source} has features of class {', '.join(unknown)}; the classes are {classes}")
        shapes, class_numbers = to_grid(features, grid), np.array(numbers, np.int64)
        has_shape = np.array([shape is not None for shape in shapes], bool) & ~is_empty(shapes)
        is_labelled = has_shape & (class_numbers != NO_LABEL)
        self.shapes, self.numbers = shapes[is_labelled], class_numbers[is_labelled]
        self.tree = STRtree(self.shapes)

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
            return ClassRaster(numbers, 0)
        order = nearby[::-1] if overlap == "first" else nearby
        shapes = zip(self.shapes[order], self.numbers[order].tolist(), strict=True)
        numbers = rasterize(shapes, fill=NO_LABEL, **options)
        classes_per_pixel = np.zeros(part.shape, np.uint8)
        for number in np.unique(self.numbers[nearby]):
            classes_per_pixel += rasterize(self.shapes[nearby[self.numbers[nearby] == number]], **options)
        if overlap == "invalid":
            numbers[classes_per_pixel > 1] = NO_LABEL
        return ClassRaster(numbers, int((classes_per_pixel > 1).sum()))


def rasterize_classes(source: Path, grid: "GeoBox", legend: Legend, attribute: str) -> UInt8Array:
    """Class numbers of polygons whose attribute names a class (uint8, 255 where there is none or classes overlap)."""
    return ClassShapes(source, grid, legend, attribute).rasterize(grid, "invalid", all_touched=False).numbers
