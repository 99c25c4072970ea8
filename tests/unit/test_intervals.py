"""Intervals of 95 % contain the truth in about 95 % of simulated maps, or say that too few pieces are independent."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from benchmarks.coverage import SCENARIOS, simulate, simulate_independent
from eopipe.arrays import AnyArray, BoolArray, Float64Array, IntArray
from eopipe.evaluation.correlation import Correlation, SamplingUnits, square_units
from eopipe.evaluation.intervals import Pieces, Tally, intervals, measure_pieces
from eopipe.tasks.regression import ValueTables, value_parts
from eopipe.tasks.segmentation import ClassTables, confusion_matrix

NAMES = ("water", "land")
MEASURES, VALUES = ClassTables(NAMES), ValueTables()
EDGE, SIDE = 10, 12
UNITS = SamplingUnits(SIDE, EDGE, np.arange(SIDE**2))


def tables_of(errors: AnyArray, is_water: AnyArray | None = None, pixels: int = 1000) -> IntArray:
    """Confusions (unit, 4) of units with these shares of wrong pixels; a unit is of one class."""
    water = np.arange(errors.size) % 2 == 0 if is_water is None else is_water.ravel()
    incorrect = np.round(pixels * errors.ravel()).astype(np.int64)
    table = np.zeros((errors.size, 2, 2), np.int64)
    truth = np.where(water, 0, 1)
    table[np.arange(errors.size), truth, truth] = pixels - incorrect
    table[np.arange(errors.size), truth, 1 - truth] = incorrect
    return table.reshape(-1, 4)


def measured(table: AnyArray, baseline: AnyArray | None = None, units: SamplingUnits = UNITS, chip: int = EDGE) -> Any:
    """What a metrics file says of a model, and of a baseline that is the model unless another is compared."""
    by_unit = {"model": table, "linear": table if baseline is None else baseline}
    return Tally(units, MEASURES, by_unit, table[:1]).uncertainty(chip, "linear")


def noise(seed: int, rate: float = 0.1) -> Float64Array:
    return np.random.default_rng(seed).beta(20 * rate, 20 * (1 - rate), (SIDE, SIDE))


def test_95_percent_of_the_intervals_contain_the_truth_where_a_bootstrap_over_pieces_contains_it_less_often() -> None:
    coverages, _ = simulate(SCENARIOS[1], 100)
    share = {name: coverage.inside / coverage.stated for name, coverage in coverages.items()}
    # Two standard errors of 100 maps at 95 % are 4 %.
    assert all(share[name] >= 0.9 for name in ("model accuracy", "model mIoU", "gain accuracy", "gain mIoU"))
    assert coverages["model accuracy"].stated >= 90
    assert max(share["percentile accuracy"], share["percentile mIoU"]) < 0.9


def test_few_independent_pieces_with_skewed_errors_are_enough_for_95_percent() -> None:
    coverages = simulate_independent(8, 400)
    for name in ("model accuracy", "model mIoU", "gain accuracy"):
        assert coverages[name].inside / coverages[name].stated >= 0.93, name
    assert coverages["percentile accuracy"].inside / coverages["percentile accuracy"].stated < 0.87


def test_uncorrelated_errors_make_every_piece_independent_and_smooth_ones_few() -> None:
    rows, cols = np.mgrid[:SIDE, :SIDE]
    smooth = 0.1 + 0.08 * np.sin(rows / 4) * np.cos(cols / 5)
    independent = [measured(tables_of(e))["intervals"]["independent"]["model"] for e in (noise(1), smooth)]
    assert independent[0] > SIDE**2 / 2
    assert independent[1] < 12


def test_the_range_of_the_errors_is_measured() -> None:
    units, random = squares(np.ones((150, 150), bool), EDGE, 1), np.random.default_rng(5)
    correlation = Correlation(units)
    for length in (0.1, 10.0, 25.0):
        factor = np.linalg.cholesky(np.exp(-correlation.distance / length))
        fields = (factor @ random.standard_normal((len(units.used), 25))).T
        distance = np.median(correlation.distances(correlation.likelihood(fields)))
        # To a tenth, the correlation falls within 2.3 lengths; below half a cell nothing is measured.
        assert distance <= EDGE if length < 1 else distance == pytest.approx(length * np.log(10), rel=0.3)


def test_errors_on_one_side_of_the_area_are_too_few_independent_pieces_to_say() -> None:
    errors = np.repeat(np.linspace(0, 0.3, SIDE)[:, None], SIDE, 1)
    result = measured(tables_of(errors))["intervals"]
    assert set(result["model"].values()) == {None}
    assert result["reason"].startswith("too few independent pieces to say: the test areas amount to about ")
    assert result["reason"].endswith(", at least 6 are needed")
    assert "reason" not in measured(tables_of(noise(2)))["intervals"]


def test_five_maps_have_no_interval_and_six_have_one() -> None:
    for count in (5, 6):
        units, table = SamplingUnits(0, 0, np.arange(count)), tables_of(noise(3))[:count] + 1
        result = measured(table, units=units)["intervals"]
        assert (result["model"]["accuracy"] is None) == (count == 5)
        assert (result["edge"], result["pieces"], result["range"]) == (0, count, None)


def test_a_class_in_fewer_than_six_squares_has_no_interval_nor_have_means_over_the_classes() -> None:
    is_water = np.zeros((SIDE, SIDE), bool)
    is_water[:2, :2] = True
    table = tables_of(noise(4), is_water)
    # Four units, in four chips of one unit.
    result = measured(table)["intervals"]
    for key in ("iou:water", "recall:water", "miou", "f1_macro"):
        assert result["model"][key] is None
        assert result["gain"][key] is None
        assert result["missing"][key] == "class water is in 4 squares of 10 pixels, at least 6 are needed"
    assert result["model"]["accuracy"] is not None
    assert result["model"]["iou:land"] is not None
    # Nine units, but in only four chips of two by two units.
    is_water[:3, :3] = True
    table = tables_of(noise(4), is_water)
    assert measured(table)["intervals"]["model"]["iou:water"] is not None
    assert measured(table, chip=2 * EDGE)["intervals"]["model"]["iou:water"] is None


def test_a_class_that_does_not_occur_leaves_the_mean_its_interval() -> None:
    names = ("water", "land", "ice")
    table = np.zeros((SIDE**2, 3, 3), np.int64)
    table[:, :2, :2] = tables_of(noise(5)).reshape(-1, 2, 2)
    tables = {"model": table.reshape(-1, 9)}
    measures = ClassTables(names)
    result = intervals(measure_pieces(UNITS, EDGE, tables, measures), tables, measures)["model"]
    assert result["iou:ice"] is None
    assert result["miou"] is not None


def test_intervals_of_shares_end_below_1_and_contain_the_score() -> None:
    errors = np.where(noise(6) > 0.14, 0.02, 0.0)
    result, table = measured(tables_of(errors)), tables_of(errors)
    low, high = result["intervals"]["model"]["accuracy"]
    accuracy = float(MEASURES.scores(table.sum(0)[None])["accuracy"][0])
    assert low < accuracy < high < 1
    # Asymmetric: farther from 1 than towards it.
    assert accuracy - low > high - accuracy


def test_without_an_error_the_lower_end_is_that_of_as_many_trials_as_pieces() -> None:
    result = measured(tables_of(np.zeros((SIDE, SIDE))))["intervals"]
    low, high = result["model"]["accuracy"]
    assert high == 1
    assert low == pytest.approx(0.025 ** (1 / SIDE**2), abs=1e-6)


def test_errors_in_few_pieces_widen_the_interval() -> None:
    even, uneven = np.full((SIDE, SIDE), 0.02), np.zeros((SIDE, SIDE))
    even[::2, 1::2] += 0.01
    uneven.ravel()[[5, 31, 50, 83, 104, 138]] = even.sum() / 6
    ends = [measured(tables_of(e))["intervals"]["model"]["accuracy"] for e in (even, uneven)]
    assert ends[1][1] - ends[1][0] > 10 * (ends[0][1] - ends[0][0])


def test_an_interval_that_says_nothing_is_omitted_with_the_reason() -> None:
    table = tables_of(np.array([1.0, 0, 0, 0, 0, 0, 0]))
    table[0] *= 3
    result = measured(table, units=SamplingUnits(0, 0, np.arange(7)))["intervals"]
    assert result["model"]["accuracy"] is None
    assert "concentrated in a small part" in result["missing"]["accuracy"]
    assert "class water is in 4 maps, at least 6 are needed" in result["missing"].values()


def test_the_gain_is_paired_so_that_what_both_get_wrong_does_not_count() -> None:
    errors = noise(7, 0.3)
    model, baseline = tables_of(errors), tables_of(np.clip(errors + 0.02, 0, 1))
    result = measured(model, baseline)["intervals"]
    assert result["gain"]["accuracy"] == pytest.approx([0.02, 0.02], abs=0.002)
    assert np.diff(result["model"]["accuracy"])[0] > 0.03


@pytest.mark.exhaustive
def test_a_gain_ends_where_the_model_would_be_always_right() -> None:
    errors = noise(3, rate=0.04)
    errors[:, ::2] *= 4.0
    result = measured(tables_of(errors.clip(0, 1)), tables_of(noise(4, rate=0.05)))["intervals"]["gain"]
    baseline = 1 - np.round(1000 * noise(4, rate=0.05)).sum() / (1000 * SIDE**2)
    assert result["accuracy"][1] <= 1 - baseline + 1e-6
    always_right = measured(tables_of(np.zeros((SIDE, SIDE))), tables_of(np.eye(SIDE) * 0.9))["intervals"]["gain"]
    assert always_right["accuracy"][0] < always_right["accuracy"][1] == pytest.approx(0.9 / SIDE, abs=1e-6)
    assert always_right["kappa"][1] <= 1.0


def test_a_model_that_is_its_own_baseline_gains_nothing_for_sure() -> None:
    gains = measured(tables_of(noise(8)))["intervals"]["gain"]
    assert gains["accuracy"] == gains["miou"] == [0.0, 0.0]


def test_the_same_places_give_the_same_interval() -> None:
    assert measured(tables_of(noise(9))) == measured(tables_of(noise(9)))


def test_the_scores_of_a_table_are_the_scores_that_evaluate_reports() -> None:
    random = np.random.default_rng(1)
    truth, predicted = random.integers(0, 3, (2, 500))
    names = ("a", "b", "c")
    expected, table = (
        ClassTables(names).document(confusion_matrix(truth, predicted, 3).ravel()),
        confusion_matrix(truth, predicted, 3),
    )
    values = {key: float(value[0]) for key, value in ClassTables(names).scores(table.reshape(1, 9)).items()}
    for key in ("accuracy", "miou", "f1_macro", "kappa"):
        assert values[key] == pytest.approx(expected[key], abs=1e-6)
    for name, key in product(names, ("iou", "precision", "recall", "f1")):
        assert values[f"{key}:{name}"] == pytest.approx(expected["per_class"][name][key], abs=1e-6)


def values_of(seed: int, error: float = 1.0) -> Float64Array:
    """Sums (cell, 6) of values with normal errors."""
    random = np.random.default_rng(seed)
    truth = random.normal(10, 3, 100 * SIDE**2)
    index = np.repeat(np.arange(SIDE**2), 100)
    return UNITS.sum_parts(index, value_parts(truth, truth + random.normal(0.5, error, truth.size), 10.0))


def test_values_have_intervals_of_their_own_scores() -> None:
    tables = {"model": values_of(2), "gain": values_of(3, 1.5)}
    whole = VALUES.document(tables["model"].sum(0))
    assert {key: value[0] for key, value in VALUES.scores(tables["model"].sum(0)[None]).items()} == pytest.approx(
        whole, abs=1e-6
    )
    result = intervals(measure_pieces(UNITS, EDGE, tables, VALUES), tables, VALUES)
    for key in ("rmse", "mae", "bias", "r2"):
        low, high = result["model"][key] or (0.0, 0.0)
        assert low < (whole[key] or 0.0) < high, key
    assert result["gain"]["rmse"] is not None
    assert result["gain"]["rmse"][1] < 0, "the error of the model is lower for sure"


def test_each_quarter_has_the_scores_of_its_own_squares() -> None:
    errors = np.zeros((SIDE, SIDE))
    errors[:6, :6] = 0.4 + 0.2 * (noise(10)[:6, :6] - 0.1)
    quarters = {region["name"]: region for region in measured(tables_of(errors))["regions"]}
    assert [quarters[name]["scores"]["accuracy"] for name in ("north-east", "south-west", "south-east")] == [1.0] * 3
    assert quarters["north-west"]["scores"]["accuracy"] == pytest.approx(0.6, abs=0.02)
    assert {region["pieces"] for region in quarters.values()} == {36}


def test_quarters_have_no_interval_where_they_are_too_small_and_maps_have_no_quarters() -> None:
    few = SamplingUnits(4, EDGE, np.arange(16))
    pieces = Pieces(few, EDGE, {"model": 1.0})
    table = tables_of(noise(11)[:4, :4])
    assert intervals(pieces, {"model": table}, MEASURES)["model"]["accuracy"] is not None
    assert [region["intervals"] for region in measured(table, units=few)["regions"]] == [{}] * 4
    assert measured(table, units=SamplingUnits(0, 0, np.arange(16)))["regions"] == []


def squares(area: BoolArray, base: int, finest: int) -> SamplingUnits:
    """The squares of an area (y, x), of which a quarter is given at a time."""
    height, width = area.shape
    windows = [(y, x) for y in halves(height) for x in halves(width)]
    return square_units([(window, area[window]) for window in windows], width, base, finest)


def halves(length: int) -> tuple[slice, slice]:
    return slice(0, length // 2), slice(length // 2, length)


def test_cells_are_small_squares_of_the_area_that_chips_are_made_of() -> None:
    area = np.zeros((96, 100), bool)
    area[:, 64:96] = True
    units = squares(area, 16, 1)
    assert (units.edge, len(units.used)) == (4, 24 * 8)
    assert len(set(units.squares(16).tolist())) == 12
    assert squares(area, 16, 16).edge == 16, "a chip of a classifier is not divided"
    assert len(squares(np.ones((500, 500), bool), 1, 1).used) <= 400
    rows, cols = np.array([0, 3, 4, 95]), np.array([64, 68, 64, 95])
    assert units.index_of(0, rows, cols).tolist() == [0, 1, 8, 191]
    assert SamplingUnits(0, 0, np.array([1, 4])).index_of(4, rows, cols).tolist() == [1] * 4


def test_cells_without_a_scored_pixel_are_no_pieces() -> None:
    table = tables_of(noise(12))
    table[5] = 0
    assert measured(table)["intervals"]["pieces"] == SIDE**2 - 1
    assert measured(np.zeros_like(table)) == {
        "intervals": {"reason": "not one test pixel has both a label and a prediction"},
        "regions": [],
    }
