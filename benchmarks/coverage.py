"""How often intervals of 95 % contain the true score: simulated maps with correlated errors and known truth.

    python benchmarks/coverage.py [--maps 400] [--only demo strip]

Errors are a Gaussian field with an exponential correlation of some range and 20 % nugget, above the threshold that
leaves 5 % of the pixels wrong; the baseline's errors (6 %) are correlated with them; 30 % of the pixels are of the
first class, in places twice as long as the range. The truth is taken from the process. `given` is the share of maps for
which eopipe states an interval, and coverage is counted over these; `percentile` is a bootstrap of 400 draws over the
fixed pieces. Prints a table in Markdown.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array
from eopipe.evaluation.correlation import Correlation, SamplingUnits, placed_units, square_units
from eopipe.evaluation.intervals import correlated_pieces, intervals, measure_pieces
from eopipe.tasks.segmentation import ClassTables

NAMES = ("water", "land")
MEASURES = ClassTables(NAMES)
ERRORS, FIRST_CLASS, NUGGET = (0.05, 0.06), 0.3, 0.2


@dataclass(frozen=True)
class Scenario:
    """Test places of `shape` nodes, each `step` pixels, in pieces of `piece` nodes; `range` in pieces."""

    name: str
    shape: tuple[int, int]
    step: int
    piece: int
    range: float
    blocks: int = 0

    @cached_property
    def area(self) -> BoolArray:
        """The tested nodes: all, or some blocks of one piece at random."""
        rows, cols = (length // self.piece for length in self.shape)
        chosen = np.ones(rows * cols, bool)
        if self.blocks:
            chosen = np.isin(np.arange(rows * cols), np.random.default_rng(5).permutation(rows * cols)[: self.blocks])
        return np.kron(chosen.reshape(rows, cols), np.ones((self.piece, self.piece))) > 0

    @cached_property
    def units(self) -> SamplingUnits:
        """The units that eopipe would choose, in nodes."""
        return square_units(
            [((slice(0, self.shape[0]), slice(0, self.shape[1])), self.area)], self.shape[1], self.piece, 1
        )

    @cached_property
    def correlation(self) -> Correlation:
        """The likelihood of correlations for these units."""
        return Correlation(self.units)

    @cached_property
    def _cell_of_node(self) -> AnyArray:
        return self.units.index_of(0, *np.nonzero(self.area))

    def tables(self, generator: np.random.Generator, maps: int) -> Iterator[dict[str, AnyArray]]:
        """Confusions (cell, 4) of model, baseline and majority class, map by map."""
        length = self.range * self.piece
        spectrum = _spectrum(self.shape, length), _spectrum(self.shape, 2 * length)
        for _ in range(maps):
            first, second = _fields(generator, spectrum[0], self.shape)
            truth = _fields(generator, spectrum[1], self.shape)[0] < NormalDist().inv_cdf(FIRST_CLASS)
            noise = generator.standard_normal((2, *self.shape)) if self.step == 1 else None
            latent = first, 0.8 * first + 0.6 * second
            rates = [
                _error_rate(field, rate, None if noise is None else noise[n])
                for n, (field, rate) in enumerate(zip(latent, ERRORS, strict=True))
            ]
            model, baseline = (self._table(truth, rate) for rate in rates)
            yield {"model": model, "gain": baseline, "simple_gain": self._table(truth, truth)}

    def _table(self, truth: BoolArray, rate: AnyArray) -> AnyArray:
        parts = (truth * (1 - rate), truth * rate, ~truth * rate, ~truth * (1 - rate))
        index, count = self._cell_of_node, len(self.units.used)
        sums = [np.bincount(index, part[self.area], count) for part in parts]
        return np.stack(sums, 1) * self.step**2


@dataclass(frozen=True)
class Polygons(Scenario):
    """One polygon of 2 to 12 pixels, of any width and height, at random in each square of `piece` pixels."""

    @cached_property
    def numbers(self) -> AnyArray:
        """The polygon of each pixel, from 1."""
        generator, numbers = np.random.default_rng(7), np.zeros(self.shape, np.int64)
        corners = [
            (row, col) for row in range(0, self.shape[0], self.piece) for col in range(0, self.shape[1], self.piece)
        ]
        for number, (row, col) in enumerate(corners):
            height, width = generator.integers(2, 13, 2)
            down, right = generator.integers(0, self.piece - 12, 2)
            numbers[row + down : row + down + height, col + right : col + right + width] = number + 1
        return numbers

    @cached_property
    def area(self) -> BoolArray:
        """The pixels of the polygons."""
        return np.asarray(self.numbers > 0)

    @cached_property
    def units(self) -> SamplingUnits:
        """The polygons."""
        flat, (rows, cols) = self.numbers.ravel(), np.divmod(np.arange(self.numbers.size), self.shape[1])
        sums = np.stack([np.bincount(flat, axis) for axis in (rows, cols)], 1)
        sizes = np.bincount(flat)
        sizes[0] = 0
        return placed_units(sizes, sums, lambda _, rows, cols: self.numbers[rows, cols])


SCENARIOS = (
    *(Scenario("demo, 96 x 32 px, 12 pieces of 16 px", (96, 32), 1, 16, length) for length in (0.06, 0.25, 0.5)),
    *(Scenario("strip, 4096 x 1280 px, 80 chips of 256 px", (128, 40), 32, 8, length) for length in (0.5, 1.0)),
    *(Scenario("18 blocks of 1024 px", (160, 160), 64, 16, length, 18) for length in (0.12, 0.5)),
    *(
        Polygons(f"{(edge // 16) ** 2} polygons of 2 to 12 px, 16 px apart", (edge, edge), 1, 16, length)
        for edge in (64, 96, 192)
        for length in (0.06, 1.0, 5.0)
    ),
)


def _spectrum(shape: tuple[int, int], length: float) -> Float64Array:
    """Amplitudes on a torus that is larger than the map by eight ranges."""
    torus = tuple(int(2 ** np.ceil(np.log2(edge + 8 * length))) for edge in shape)
    near = [np.minimum(np.arange(n), n - np.arange(n)) for n in torus]
    power = np.fft.fft2(np.exp(-np.hypot(near[0][:, None], near[1][None]) / length)).real.clip(0)
    return np.sqrt(power / power.sum())


def _fields(generator: np.random.Generator, amplitude: Float64Array, shape: tuple[int, int]) -> list[AnyArray]:
    """Two independent Gaussian fields."""
    white = generator.standard_normal((2, *amplitude.shape))
    field = np.fft.fft2(amplitude * (white[0] + 1j * white[1]))[: shape[0], : shape[1]]
    return [field.real, field.imag]


def _error_rate(field: AnyArray, rate: float, noise: AnyArray | None) -> AnyArray:
    """Which pixels are wrong; of nodes of many pixels their share, approximately the normal distribution function."""
    threshold = NormalDist().inv_cdf(1 - rate)
    smooth = np.sqrt(1 - NUGGET) * field
    if noise is not None:
        return smooth + np.sqrt(NUGGET) * noise > threshold
    from scipy.special import ndtr

    return np.asarray(ndtr((smooth - threshold) / np.sqrt(NUGGET)))


def expected() -> dict[str, tuple[float, float]]:
    """True accuracy and mIoU of the model, and true gains over the baseline."""
    first, last = FIRST_CLASS, 1 - FIRST_CLASS
    tables = [(first * (1 - e), first * e, last * e, last * (1 - e)) for e in ERRORS]
    scores = MEASURES.scores(np.array(tables))
    accuracy, miou = scores["accuracy"], scores["miou"]
    return {"model": (accuracy[0], miou[0]), "gain": (accuracy[0] - accuracy[1], miou[0] - miou[1])}


def percentile(sums: AnyArray) -> list[Any]:
    """Intervals of accuracy and mIoU from a percentile bootstrap over pieces (piece, 4), as eopipe once had them."""
    draws = np.random.default_rng(0).multinomial(len(sums), np.full(len(sums), 1 / len(sums)), 400)
    scores = MEASURES.scores(np.tensordot(draws, sums, 1))
    return [np.nanpercentile(scores[key], (2.5, 97.5)) for key in ("accuracy", "miou")]


@dataclass
class Coverage:
    """How many intervals contain the truth, of how many that are given, and their widths."""

    inside: int = 0
    stated: int = 0

    def add(self, ends: Any, truth: float) -> None:
        """Count an interval, or none."""
        if ends is not None:
            self.stated += 1
            self.inside += bool(ends[0] <= truth <= ends[1])

    def __str__(self) -> str:
        return f"{self.inside / self.stated:.3f}" if self.stated else "-"


def row(name: str, coverages: dict[str, Coverage], maps: int, pixels: float | None) -> str:
    """A row of the table."""
    share = coverages["model accuracy"].stated / maps
    distance = "-" if pixels is None else f"{pixels:.0f}"
    return f"| {name} | {distance} | {share:.2f} | " + " | ".join(map(str, coverages.values())) + " |"


COLUMNS = [f"{key} {score}" for key in ("percentile", "model", "gain") for score in ("accuracy", "mIoU")]


def simulate(scenario: Scenario, maps: int, seed: int = 1) -> tuple[dict[str, Coverage], float]:
    """Coverages of a scenario, and the median of the measured ranges in pixels."""
    coverages, ranges = {name: Coverage() for name in COLUMNS}, []
    squares = scenario.units.squares(scenario.piece)
    for tables in scenario.tables(np.random.Generator(np.random.Philox(key=seed)), maps):
        pieces = correlated_pieces(scenario.correlation, scenario.piece, tables, MEASURES)
        ranges.append((pieces.range or 0) * scenario.step)
        fixed = np.zeros((int(squares.max()) + 1, 4))
        np.add.at(fixed, squares, tables["model"])
        count(coverages, percentile(fixed), intervals(pieces, tables, MEASURES))
    return coverages, float(np.median(ranges))


def simulate_independent(number: int, maps: int, seed: int = 1) -> dict[str, Coverage]:
    """Coverages over independent pieces of one size whose error rates are skewed (beta, mean 0.05, 0.5 + 9.5)."""
    coverages, generator = {name: Coverage() for name in COLUMNS}, np.random.Generator(np.random.Philox(key=seed))
    units = SamplingUnits(0, 0, np.arange(number))
    for _ in range(maps):
        rates = [generator.beta(10 * rate, 10 * (1 - rate), (number, 1)) for rate in ERRORS]
        share = FIRST_CLASS
        model, baseline = (
            np.hstack([share * (1 - e), share * e, (1 - share) * e, (1 - share) * (1 - e)]) for e in rates
        )
        tables = {"model": model, "gain": baseline}
        pieces = measure_pieces(units, 1, tables, MEASURES)
        count(coverages, percentile(model), intervals(pieces, tables, MEASURES))
    return coverages


def count(coverages: dict[str, Coverage], old: list[Any], new: dict[str, Any]) -> None:
    """Count the intervals of one map."""
    truth = expected()
    for number, (score, key) in enumerate((("accuracy", "accuracy"), ("mIoU", "miou"))):
        coverages[f"percentile {score}"].add(old[number], truth["model"][number])
        for comparison in ("model", "gain"):
            coverages[f"{comparison} {score}"].add(new[comparison][key], truth[comparison][number])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--maps", type=int, default=400)
    parser.add_argument("--only", nargs="+", default=["demo", "strip", "18", "polygons", "independent"])
    arguments = parser.parse_args()
    print(f"| test places | range of the errors / piece | measured, px | given | {' | '.join(COLUMNS)} |")
    print("|---|---|" + "---:|" * (2 + len(COLUMNS)))
    for scenario in SCENARIOS:
        if {*scenario.name.replace(",", "").split()} & {*arguments.only}:
            coverages, distance = simulate(scenario, arguments.maps)
            print(row(f"{scenario.name} | {scenario.range:g}", coverages, arguments.maps, distance), flush=True)
    if "independent" in arguments.only:
        for number in (6, 8, 12, 20, 40):
            coverages = simulate_independent(number, 5 * arguments.maps)
            print(row(f"{number} independent, skewed pieces | 0", coverages, 5 * arguments.maps, None), flush=True)


if __name__ == "__main__":
    main()
