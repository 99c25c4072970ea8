"""Tables of samples, and the scores of their sums."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, IntArray


class Compared(NamedTuple):
    """Truth and prediction of samples (n,), of several labels for each chip (n, class).

    Sums of values are about an offset near their mean, for their precision.
    """

    truth: AnyArray
    predicted: AnyArray
    offset: float = 0.0


class UnitSums(Protocol):
    """The sampling units in which samples are counted, each of which has an index."""

    def count_pairs(self, index: IntArray, pair: IntArray, pairs: int) -> IntArray:
        """Counts (unit, pair) of samples (n,)."""

    def sum_parts(self, index: IntArray, parts: Float64Array) -> Float64Array:
        """Sums (unit, part) of parts (part, n)."""


class Tables(ABC):
    """What samples (pixels, or chips) add to tables of `width` numbers, and the scores of sums of tables.

    Methods take many tables (n, width) at a time. Keys of `incorrect` and `correct` are the names of the classes, and
    empty for all samples. Scores are computed here since counts, and sums of whole chips, add up to the same bits on
    any number of workers, which the single-precision states of torchmetrics do not; the tests compare the two.
    """

    width: int
    dtype: Any = np.int64

    def __init__(self, classes: Sequence[str]) -> None:
        self.classes = tuple(classes)

    @abstractmethod
    def of(self, samples: Compared) -> AnyArray:
        """The table (width,) of all of some samples."""

    @abstractmethod
    def by_unit(self, units: UnitSums, index: IntArray, samples: Compared) -> AnyArray:
        """The tables (unit, width) of samples with a unit each."""

    @abstractmethod
    def formulas(self, tables: AnyArray) -> tuple[dict[str, Float64Array], dict[str, Float64Array]]:
        """The scores over all classes (n,) and of each (n, class); NaN where one is not defined."""

    @abstractmethod
    def document(self, total: AnyArray) -> dict[str, Any]:
        """The scores of one table (width,) as an entry of a metrics file, with six digits; None where undefined."""

    @abstractmethod
    def sizes(self, tables: AnyArray) -> Float64Array:
        """The number of samples (n,)."""

    @abstractmethod
    def errors(self, tables: AnyArray) -> Float64Array:
        """The mean error (n,); 0 without samples."""

    @abstractmethod
    def incorrect(self, tables: AnyArray) -> dict[str, Float64Array]:
        """What is incorrect (n,)."""

    @abstractmethod
    def correct(self, tables: AnyArray) -> dict[str, Float64Array]:
        """What is correct (n,)."""

    @abstractmethod
    def contains(self, tables: AnyArray) -> BoolArray:
        """Whether the labels have each class (n, class)."""

    def scores(self, tables: AnyArray) -> dict[str, Float64Array]:
        """The scores (n,), for a class as `iou:name`; NaN where one is not defined."""
        overall, per_class = self.formulas(tables)
        return overall | {
            f"{key}:{name}": values[:, number]
            for key, values in per_class.items()
            for number, name in enumerate(self.classes)
        }


def share(part: Float64Array, whole: Float64Array) -> Float64Array:
    """Part / whole (n, ...); NaN where the whole is 0."""
    return np.asarray(np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0))


def six_digits(value: float) -> float | None:
    """A score as metrics files have it; None for NaN."""
    return None if np.isnan(value) else round(float(value), 6)
