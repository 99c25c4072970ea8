"""The task with a value for each pixel, whose tables are sums of errors."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array, FloatArray, IntArray
from eopipe.tasks.tables import Compared, Tables, UnitSums, share, six_digits
from eopipe.tasks.task import NamedScore, ScoreTexts, SimplestPrediction, Task, pixel_outputs
from eopipe.tiles.geotiff import MapFormat

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Moments:
    """Number of values, their mean, the sum of squared deviations from it, and the range."""

    count: int
    mean: float
    squares: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Float64Array, weights: IntArray | int = 1) -> "Moments":
        """Moments of values (n,) with numbers of occurrences (n,), in two passes."""
        weights = np.broadcast_to(weights, values.shape)
        count = int(weights.sum())
        mean = float((values * weights).sum() / count)
        return cls(count, mean, float((weights * (values - mean) ** 2).sum()), float(values.min()), float(values.max()))

    @classmethod
    def merged(cls, parts: Iterable["Moments"]) -> "Moments":
        """The moments of all values of several parts, at least one."""
        return reduce(cls.merge, parts)

    def merge(self, other: "Moments") -> "Moments":
        """Merge with the moments of other values (Chan, Golub and LeVeque 1983, doi:10.1080/00031305.1983.10483115)."""
        count = self.count + other.count
        difference = other.mean - self.mean
        squares = self.squares + other.squares + difference**2 * (self.count * other.count / count)
        mean = self.mean + difference * (other.count / count)
        return Moments(count, mean, squares, min(self.low, other.low), max(self.high, other.high))

    @property
    def std(self) -> float:
        """Population standard deviation (divided by the number of values)."""
        return math.sqrt(self.squares / self.count)


class ValueTables(Tables):
    """Sums (n, 6) of `value_parts`: RMSE, MAE and bias (predicted less truth) in the unit of the values, and R²."""

    width, dtype = 6, np.float64

    def __init__(self) -> None:
        super().__init__(())

    def of(self, samples: Compared) -> AnyArray:
        """Sums over the values."""
        return np.asarray(value_parts(*samples).sum(1))

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
    not_calibrated: ClassVar[str] = "a regression has values instead of probabilities"
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
    model_fields: ClassVar[tuple[str, ...]] = ("target", "unit")
    history_scores: ClassVar[tuple[str, ...]] = ("rmse", "mae", "bias", "r2")
    simple_baseline: ClassVar[tuple[str, str]] = ("mean", "mean of the labels")
    explanation: ClassVar[str] = (
        "RMSE: root mean square error. MAE: mean absolute error. Bias: mean of map minus label. R²: coefficient of "
        "determination, the share of the labels' variance that the map explains; 1 is perfect."
    )
    texts: ClassVar[ScoreTexts] = ScoreTexts(
        scores="{rmse}",
        model="the root mean square error of the model is {}",
        other="of {name} {}",
        line="RMSE {rmse} on the test pixels",
        simple="the mean of the labels",
        constant="value",
    )
    output: ClassVar[str] = "values"
    rasters: ClassVar[tuple[str, str]] = ("values", "spread")

    def tables(self, names: Sequence[str]) -> ValueTables:
        """Tables of values, which have no classes."""
        return ValueTables()

    def simplest(self, truths: Iterator[AnyArray], names: Sequence[str]) -> SimplestPrediction:
        """The mean of the values; metrics have their range too."""
        moments = Moments.merged(Moments.of(truth.astype(np.float64)) for truth in truths)
        mean, low, high = (float(f"{value:.9g}") for value in (moments.mean, moments.low, moments.high))
        return SimplestPrediction(mean, {"value": round(mean, 6)}, {"range": [low, high]}, mean)

    def map_formats(self, names: tuple[str, ...], unit: str, spread: Sequence[str]) -> tuple[MapFormat, MapFormat]:
        """Values, and their standard deviation over the scenes of a pixel, 0 for a single one, with their number."""
        values = MapFormat("float32", math.nan, names[:1], units=(unit,))
        return values, replace(
            values, names=(*self.second_bands(names), *spread), units=(unit, "1", *[unit] * len(spread))
        )

    def map_tags(self, names: tuple[str, ...], unit: str, chip: int) -> dict[str, Any]:
        """The quantity and its unit."""
        return {"quantity": names[0], "unit": unit} | super().map_tags(names, unit, chip)

    def label_conflict(self, labels: str, quantity: str) -> str:
        """Why classes are no labels of it."""
        sentence = f"{labels} has classes, and train.task {self.name} needs numbers; set label.measure"
        return "" if quantity else sentence

    def layers(
        self, prediction: FloatArray, scene_count: IntArray, classes: int, temperature: float
    ) -> tuple[AnyArray, AnyArray]:
        """Values; their deviation, the number of scenes, and the spread of members."""
        return prediction[:1], np.stack([prediction[1], scene_count, *prediction[2:]]).astype(np.float32)

    def sample_outputs(self, outputs_NCHW: "Tensor", labels_NHW: "Tensor") -> "Tensor":
        """The outputs (N, H, W), in standard deviations from the mean of the labels."""
        return pixel_outputs(outputs_NCHW, labels_NHW)[:, 0]

    def decided(self, outputs: "Tensor", target: tuple[float, ...]) -> "Tensor":
        """Values in the unit of the labels, in double precision."""
        mean, std = target
        return outputs.double() * std + mean

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


TASK = ValueTask(
    name="regression",
    is_of_chips=False,
    losses=("huber", "mse"),
    mlm=("regression", ("batch", "channel", "height", "width")),
    deepness="Regressor",
)
