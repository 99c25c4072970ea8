"""The task with a value for each pixel, whose tables are sums of errors."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, IntArray
from eopipe.tasks.task import Compared, NamedScore, Tables, Task, UnitSums, share, six_digits

if TYPE_CHECKING:
    from torch import Tensor


class ValueTables(Tables):
    """Sums (n, 6) of `value_parts`: RMSE, MAE and bias (predicted less truth) in the unit of the values, and R²."""

    width, dtype = 6, np.float64

    def __init__(self) -> None:
        super().__init__(())

    def by_unit(self, units: UnitSums, index: IntArray, samples: Compared) -> AnyArray:
        """Sums over the values."""
        return units.sum_parts(index, value_parts(*samples))

    def formulas(self, tables: AnyArray) -> tuple[dict[str, Float64Array], dict[str, Float64Array]]:
        """The scores (n,); values have no classes."""
        count, error, absolute, squared, truth, squared_truth = np.asarray(tables, np.float64).T
        variation = squared_truth - share(truth**2, count)
        overall = {
            "rmse": np.sqrt(share(squared, count)),
            "mae": share(absolute, count),
            "bias": share(error, count),
            "r2": 1 - share(squared, variation),
        }
        return overall, {}

    def document(self, total: AnyArray) -> dict[str, Any]:
        """The scores of one table (6,)."""
        return {key: six_digits(value[0]) for key, value in self.formulas(total[None])[0].items()}

    def sizes(self, tables: AnyArray) -> Float64Array:
        """The number of pixels (n,)."""
        return np.asarray(tables[:, 0])

    def errors(self, tables: AnyArray) -> Float64Array:
        """The mean error (n,); 0 without pixels."""
        return np.nan_to_num(share(tables[:, 1], tables[:, 0]))

    def incorrect(self, tables: AnyArray) -> dict[str, Float64Array]:
        """The squared errors (n,)."""
        return {"": tables[:, 3]}

    def correct(self, tables: AnyArray) -> dict[str, Float64Array]:
        """The same: a value is not correct or incorrect."""
        return self.incorrect(tables)

    def contains(self, tables: AnyArray) -> BoolArray:
        """Nothing, of no class (n, 0)."""
        return np.empty((len(tables), 0), bool)


@dataclass(frozen=True, kw_only=True)
class ValueTask(Task):
    """A value for each pixel."""

    has_classes: ClassVar[bool] = False
    scores: ClassVar[tuple[NamedScore, ...]] = (
        NamedScore(
            "rmse",
            "RMSE",
            is_main=True,
            in_verdict=True,
            is_lower_better=True,
            has_unit=True,
            hub="rmse",
            scale="error",
        ),
        NamedScore("mae", "MAE", is_lower_better=True, has_unit=True, hub="mae", scale="error"),
        NamedScore("bias", "Bias", has_unit=True, scale="signed"),
        NamedScore("r2", "R²", scale="explained"),
    )
    simple_baseline: ClassVar[tuple[str, str]] = ("mean", "mean of labels")
    rasters: ClassVar[tuple[str, str]] = ("values", "spread")

    def tables(self, names: Sequence[str]) -> ValueTables:  # noqa: ARG002 - of classes
        """Tables of values, which have no classes."""
        return ValueTables()

    def predictions(self, outputs_NCHW: "Tensor", target: tuple[float, ...]) -> "Tensor":
        """Values in the unit of the labels; the outputs are in standard deviations from their mean."""
        mean, std = target
        return outputs_NCHW * std + mean

    def mean_output(self, outputs_MNCHW: "Tensor") -> "Tensor":
        """The mean of the members' outputs."""
        return outputs_MNCHW.mean(0)

    def second_bands(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The deviation among the scenes of a pixel, and their number."""
        return f"standard deviation of {names[0]}", "scenes"


def value_parts(truth: AnyArray, predicted: AnyArray, offset: float) -> Float64Array:
    """What each of n values in one unit adds to the sums of `ValueTables` (6, n); `offset` is about their mean.

    Count, error, absolute error, squared error, truth less the offset, and its square. Sums of parts add up.
    """
    error, shifted = predicted.astype(np.float64) - truth, truth.astype(np.float64) - offset
    return np.stack([np.ones(error.shape), error, np.abs(error), error**2, shifted, shifted**2])
