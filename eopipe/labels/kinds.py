"""Kinds of labels: classes, with how source values become their numbers, and a quantity with its unit."""

import math
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, FloatArray, UInt8Array
from eopipe.errors import BadInputError, UsageError, some_of
from eopipe.labels.vector_files import number_of
from eopipe.tiles.store import NO_LABEL
from eopipe.warp.separable import Resampling

INTERPOLATING: tuple[Resampling, ...] = ("bilinear", "cubic", "average")
LARGEST = float(np.finfo(np.float32).max)


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

    dtype: ClassVar[str] = "uint8"
    unlabelled: ClassVar[float] = NO_LABEL
    noun: ClassVar[str] = "label"

    def __post_init__(self) -> None:
        """Raise UsageError where classes, bins, codes, ignore and values contradict each other."""
        if conflicts := legend_conflicts(self.classes, self.bins, self.codes, self.ignore, self.values):
            raise UsageError("; ".join(conflicts))

    @property
    def names(self) -> tuple[str, ...]:
        return self.classes

    @property
    def is_continuous(self) -> bool:
        """Whether pixels are resampled as those of a quantity, before their class is known."""
        return bool(self.bins)

    @property
    def attributes(self) -> dict[str, Any]:
        """What the attributes of a label store say of its kind."""
        return {}

    def check_raster(self) -> None:
        """Raise UsageError where a raster's class numbers would be ignored."""
        is_explicit = bool(self.bins or self.codes or self.values)
        if conflicts := raster_conflicts(self.classes, self.ignore, is_explicit=is_explicit):
            raise UsageError("; ".join(conflicts))

    @staticmethod
    def is_labelled(numbers: AnyArray) -> BoolArray:
        return np.asarray(numbers != NO_LABEL)

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

    def of_raster(self, values: AnyArray, valid: BoolArray) -> UInt8Array:
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

    def of_shapes(self, source: Path, values: Sequence[Any], _attribute: str) -> AnyArray:
        """The class numbers of shapes. Raises BadInputError that names every class which the legend lacks."""
        numbers = [self.number(value) for value in values]
        unknown = sorted({str(value) or "''" for value, number in zip(values, numbers, strict=True) if number is None})
        if unknown:
            classes = ", ".join(self.table if self.values else self.classes)
            raise BadInputError(f"{source} has features of class {', '.join(unknown)}; the classes are {classes}")
        return np.array(numbers, np.int64)

    def raster_values(self) -> list[tuple[float, int]]:
        """Raster values with the class number of each."""
        if not self.values:
            return [(code, number) for number, code in enumerate(self.codes or range(len(self.classes)))]
        try:
            return [(float(value), number) for value, number in self.table.items() if number != NO_LABEL]
        except ValueError as error:
            raise UsageError(f"label.values has a text value, but a raster holds numbers: {error}") from error


@dataclass(frozen=True)
class Quantity:
    """The quantity of continuous labels, its unit, and the stored numbers of the source that mean unlabelled."""

    name: str
    unit: str = ""
    ignore: tuple[int, ...] = ()

    dtype: ClassVar[str] = "float32"
    unlabelled: ClassVar[float] = math.nan
    noun: ClassVar[str] = "value"
    is_continuous: ClassVar[bool] = True

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    @property
    def attributes(self) -> dict[str, Any]:
        return {"unit": self.unit}

    def check_raster(self) -> None:
        """Any number may be a value."""

    @staticmethod
    def is_labelled(values: AnyArray) -> BoolArray:
        return np.isfinite(values)

    def of_raster(self, values: AnyArray, valid: BoolArray) -> FloatArray:
        """Raster values in physical units where they are valid, else NaN."""
        return np.where(valid, values, np.float32(np.nan)).astype(np.float32)

    def of_shapes(self, source: Path, values: Sequence[Any], attribute: str) -> FloatArray:
        """The numbers of shapes, NaN where unlabelled. Raises BadInputError for values that are not numbers."""
        numbers = [math.nan if value is None else number_of(value) for value in values]
        others = {str(v) for v, number in zip(values, numbers, strict=True) if number is None or abs(number) > LARGEST}
        if others:
            raise BadInputError(
                f"{source} has values of {attribute} that are not numbers: {some_of(sorted(others), 8)}"
            )
        return np.array([math.nan if number in self.ignore else number for number in numbers], np.float64)


LabelKind = Legend | Quantity


def class_flags(names: Sequence[str]) -> dict[str, Any]:
    """The attributes of an array of class numbers, as CF has them."""
    return {"flag_values": list(range(len(names))), "flag_meanings": " ".join("_".join(name.split()) for name in names)}


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


def option_conflicts(measure: str | None, resampling: str, class_options: Mapping[str, Sequence[object]]) -> list[str]:
    """Conflicts of a measure (None: classes) with a resampling and with the options that define classes.

    `class_options` are bins, codes and values by name.
    """
    used = [name for name, value in class_options.items() if value]
    conflicts = []
    if measure is not None and not measure.strip():
        conflicts.append("label.measure is empty; give the name of the quantity")
    if measure and used:
        conflicts.append(f"label.measure keeps the numbers, but label.{used[0]} turns them into classes; give one")
    is_continuous = bool(measure or class_options.get("bins"))
    if is_continuous and resampling == "mode":
        conflicts.append(
            f"label.resampling mode is for classes; label.{'measure' if measure else 'bins'} needs nearest, bilinear, "
            "cubic or average"
        )
    if not is_continuous and resampling in INTERPOLATING:
        conflicts.append(
            f"label.resampling {resampling} would average class numbers; use nearest or mode, or give label.measure or "
            "label.bins"
        )
    return conflicts
