"""Intervals of scores say how much a score would change elsewhere, and nothing that the test places do not hold."""

from itertools import product

import numpy as np
import pytest

from eopipe.arrays import AnyArray, IntArray
from eopipe.evaluation.bootstrap import ResamplingUnits, intervals, regions
from eopipe.evaluation.measures import class_measures, value_measures
from eopipe.training.metrics import confusion_matrix, scores, value_parts, value_scores

NAMES = ("water", "land")
EDGE, SIDE = 10, 6
UNITS = ResamplingUnits((EDGE * SIDE, EDGE * SIDE), EDGE, 1)


def patchy(seed: int) -> IntArray:
    """Confusions of squares (piece, 4) of equal pixels: all right or all wrong, three squares in four right."""
    random = np.random.default_rng(seed)
    truth, right = random.integers(0, 2, UNITS.count), random.random(UNITS.count) < 0.75
    table = np.zeros((UNITS.count, 4), np.int64)
    table[np.arange(UNITS.count), truth * 2 + np.where(right, truth, 1 - truth)] = EDGE**2
    return table


def both(table: AnyArray) -> dict[str, AnyArray]:
    return {"model": table, "pixel_baseline": table}


def test_the_interval_of_95_percent_holds_the_truth_about_so_often_though_pixels_are_not_independent() -> None:
    measures, covered, naive = class_measures(NAMES), 0, 0
    for seed in range(200):
        interval = intervals(UNITS, both(patchy(seed)), measures)["model"]["accuracy"]
        covered += interval[0] <= 0.75 <= interval[1]
        share, count = patchy(seed)[:, [0, 3]].sum() / patchy(seed).sum(), patchy(seed).sum()
        # The interval if pixels were treated as independent samples.
        naive += abs(share - 0.75) <= 1.96 * np.sqrt(share * (1 - share) / count)
    assert 0.88 <= covered / 200 <= 0.99
    assert naive / 200 < 0.4


def test_the_scores_of_a_draw_are_the_scores_that_evaluate_tells() -> None:
    random = np.random.default_rng(1)
    truth, predicted = random.integers(0, 3, (2, 500))
    names = ("a", "b", "c")
    expected, table = scores(confusion_matrix(truth, predicted, 3), names), confusion_matrix(truth, predicted, 3)
    drawn = {key: float(value[0]) for key, value in class_measures(names)(table.reshape(1, 9)).items()}
    for key in ("accuracy", "miou", "f1_macro", "kappa"):
        assert drawn[key] == pytest.approx(expected[key], abs=1e-6)
    for name, key in product(names, ("iou", "precision", "recall", "f1")):
        assert drawn[f"{key}:{name}"] == pytest.approx(expected["per_class"][name][key], abs=1e-6)


def test_values_have_intervals_of_their_own_scores() -> None:
    random = np.random.default_rng(2)
    truth = random.normal(10, 3, 3600)
    unit = np.repeat(np.arange(36), 100)
    sums = UNITS.sum_by_unit(unit, value_parts(truth, truth + random.normal(0.5, 1, 3600), 10.0))
    whole, bounds = value_scores(sums.sum(0)), intervals(UNITS, both(sums), value_measures)["model"]
    for key in ("rmse", "mae", "bias", "r2"):
        assert bounds[key][0] < whole[key] < bounds[key][1], key


def test_a_model_that_is_its_own_baseline_gains_nothing_for_sure() -> None:
    gains = intervals(UNITS, both(patchy(3)), class_measures(NAMES))["gain"]
    assert gains["accuracy"] == gains["miou"] == [0.0, 0.0]


def test_the_same_places_give_the_same_interval_and_one_piece_gives_none() -> None:
    table, measures = patchy(4), class_measures(NAMES)
    assert intervals(UNITS, both(table), measures) == intervals(UNITS, both(table), measures)
    alone = np.zeros_like(table)
    alone[7] = table[7]
    assert intervals(UNITS, both(alone), measures) == {}


def test_a_class_that_most_draws_lack_has_no_interval() -> None:
    table = np.zeros((UNITS.count, 4), np.int64)
    table[:, 3], table[0] = 100, (50, 0, 0, 0)
    lacking = np.zeros((UNITS.count, 4), np.int64)
    lacking[:, 3] = 100
    measures = class_measures(NAMES)
    assert intervals(UNITS, both(lacking), measures)["model"]["iou:water"] is None
    assert intervals(UNITS, both(table), measures)["model"]["iou:water"] is not None


def test_each_quarter_has_the_scores_of_its_own_squares() -> None:
    table = np.zeros((SIDE, SIDE, 4), np.int64)
    table[..., 3] = 100
    table[:3, :3] = (0, 40, 0, 60)
    quarters = {region["name"]: region for region in regions(UNITS, table.reshape(-1, 4), class_measures(NAMES))}
    assert {name: region["scores"]["accuracy"] for name, region in quarters.items()} == {
        "north-west": 0.6,
        "north-east": 1.0,
        "south-west": 1.0,
        "south-east": 1.0,
    }
    assert {region["pieces"] for region in quarters.values()} == {9}
    assert quarters["north-west"]["intervals"]["accuracy"] == [0.6, 0.6]


def test_squares_have_no_quarters_where_whole_maps_are_drawn_and_few_squares_have_no_interval() -> None:
    maps = ResamplingUnits((60, 60), 0, 12)
    assert regions(maps, np.ones((12, 4), np.int64), class_measures(NAMES)) == []
    table = np.zeros((SIDE, SIDE, 4), np.int64)
    table[:2, :2, 3] = 100
    assert [region["intervals"] for region in regions(UNITS, table.reshape(-1, 4), class_measures(NAMES))] == [{}] * 4


def test_a_pixel_belongs_to_its_square_and_in_another_mode_to_its_map() -> None:
    rows, cols = np.array([0, 9, 10, 59]), np.array([0, 10, 0, 59])
    assert UNITS.unit_of(0, rows, cols).tolist() == [0, 1, 6, 35]
    assert ResamplingUnits((60, 60), 0, 3).unit_of(2, rows, cols).tolist() == [2, 2, 2, 2]
    assert UNITS.count_by_cell(np.array([0, 0, 35]), np.array([3, 3, 1]), 4)[[0, 35]].tolist() == [
        [0, 0, 0, 2],
        [0, 1, 0, 0],
    ]
