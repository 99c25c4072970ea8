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
    """How source values become class numbers 0, 1, …; values that name no class are no label.

    `values` are entries class=value, several of which may name one class; an empty class is no label.
    """

    classes: tuple[str, ...]
    bins: tuple[float, ...] = ()
    codes: tuple[int, ...] = ()
    ignore: tuple[int, ...] = ()
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that bins, codes and values fit the classes, whose numbers stay below the mark for no label."""
        count = len(self.classes)
        if len(set(self.classes)) < count or count > NO_LABEL:
            raise UsageError(f"label.classes needs up to {NO_LABEL} different names")
        if bool(self.bins) + bool(self.codes) + bool(self.values) > 1:
            raise UsageError("label has more than one of bins, codes and values; give one")
        if self.bins and (len(self.bins) != count - 1 or list(self.bins) != sorted(set(self.bins))):
            raise UsageError(f"{count} classes need {count - 1} rising edges in label.bins, and then no label.codes")
        if self.codes and not len(set(self.codes)) == len(self.codes) == count:
            raise UsageError(f"{count} classes need {count} different numbers in label.codes")
        if self.values:
            self._check_values()

    def _check_values(self) -> None:
        pairs = [entry.partition("=") for entry in self.values]
        unknown = sorted({name for name, _, _ in pairs if name} - set(self.classes))
        twice = sorted({value for n, (_, _, value) in enumerate(pairs) if value in [v for _, _, v in pairs[:n]]})
        without = [name for name in self.classes if name not in {name for name, _, _ in pairs}]
        wrong = [
            f"{entry} is not class=value" for entry, (_, mark, _) in zip(self.values, pairs, strict=True) if not mark
        ]
        wrong += [f"there is no class {', '.join(unknown)}"] if unknown else []
        wrong += [f"value {', '.join(twice)} is given twice"] if twice else []
        wrong += [f"class {', '.join(without)} has no value"] if without else []
        if wrong:
            raise UsageError(f"label.values: {'; '.join(wrong)}; the classes are {', '.join(self.classes)}")

    @cached_property
    def table(self) -> dict[str, int]:
        """Class number of each value as text; 255 for those that are no label."""
        found = {str(value): NO_LABEL for value in self.ignore}
        if self.values:
            pairs = [entry.partition("=") for entry in self.values]
            return found | {v: self.classes.index(n) if n else NO_LABEL for n, _, v in pairs}
        codes = {str(code): number for number, code in enumerate(self.codes)}
        return {name: number for number, name in enumerate(self.classes)} | codes | found

    def number(self, value: Any) -> int | None:
        """Class number of a vector's value; 255 for none or an ignored one, None for one that is not known."""
        return NO_LABEL if value is None else self.table.get(str(value))

    def read(self, values: AnyArray, there: BoolArray) -> UInt8Array:
        """Class numbers of raster values (uint8, 255 where there is no label).

        With bins, class i holds bins[i-1] <= value < bins[i]; with codes, value codes[i]; with values, each
        that names it; else value i.
        """
        there = there & ~np.isin(values, self.ignore)
        if self.bins:
            return np.where(there, np.digitize(values, self.bins), NO_LABEL).astype(np.uint8)
        found = np.full(values.shape, NO_LABEL, np.uint8)
        for code, number in self._coded():
            found[there & (values == code)] = number
        return found

    def _coded(self) -> list[tuple[float, int]]:
        """Numbers of a raster with the class that each means."""
        if not self.values:
            return [(code, number) for number, code in enumerate(self.codes or range(len(self.classes)))]
        try:
            return [(float(value), number) for value, number in self.table.items() if number != NO_LABEL]
        except ValueError as error:
            raise UsageError(f"label.values has a word, and a raster holds numbers: {error}") from error


@dataclass(frozen=True)
class ClassRaster:
    """Class numbers (y, x), and how many pixels shapes of different classes cover."""

    numbers: UInt8Array
    conflicts: int


class ClassShapes:
    """The shapes of a file with their class numbers, ready to be burned into any part of a grid."""

    def __init__(self, source: Path, grid: "GeoBox", legend: Legend, attribute: str, layer: str | None = None) -> None:
        """Read and place the shapes; raises BadInputError that names every class which the legend lacks."""
        from shapely import STRtree, is_empty

        found = read_features(source, attribute, layer)
        numbers = [legend.number(value) for value in found.values]
        foreign = sorted({str(value) for value, n in zip(found.values, numbers, strict=True) if n is None})
        if foreign:
            known = ", ".join(legend.table if legend.values else legend.classes)
            raise BadInputError(f"{source} has features of class {', '.join(foreign)}; the classes are {known}")
        placed, chosen = to_grid(found, grid), np.array(numbers, np.int64)
        kept = np.array([shape is not None for shape in placed], bool) & ~is_empty(placed) & (chosen != NO_LABEL)
        self.shapes, self.numbers = placed[kept], chosen[kept]
        self.tree = STRtree(self.shapes)

    def burn(self, part: "GeoBox", overlap: Overlap, *, all_touched: bool) -> ClassRaster:
        """The class of the shapes that hold a pixel's centre; or of all that touch it.

        Where classes disagree there is no label, or the feature that comes last or first in the file wins.
        """
        from rasterio.features import rasterize as gdal
        from shapely.geometry import box

        near = np.sort(self.tree.query(box(*part.extent.boundingbox)))
        how = {"out_shape": part.shape, "transform": part.affine, "dtype": "uint8", "all_touched": all_touched}
        numbers = np.full(part.shape, NO_LABEL, np.uint8)
        if not len(near):
            return ClassRaster(numbers, 0)
        order = near[::-1] if overlap == "first" else near
        numbers = gdal(zip(self.shapes[order], self.numbers[order].tolist(), strict=True), fill=NO_LABEL, **how)
        covers = np.zeros(part.shape, np.uint8)
        for number in np.unique(self.numbers[near]):
            covers += gdal(self.shapes[near[self.numbers[near] == number]], **how)
        if overlap == "invalid":
            numbers[covers > 1] = NO_LABEL
        return ClassRaster(numbers, int((covers > 1).sum()))


def rasterize(source: Path, grid: "GeoBox", legend: Legend, attribute: str) -> UInt8Array:
    """Burn polygons whose attribute names a class (uint8, 255 where there is none or where they disagree)."""
    return ClassShapes(source, grid, legend, attribute).burn(grid, "invalid", all_touched=False).numbers
