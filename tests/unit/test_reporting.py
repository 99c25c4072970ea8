"""The parts of the report: colours, decimation, outlines, lengths, wording."""

from typing import Any

import numpy as np
import pytest
from affine import Affine
from odc.geo.geobox import GeoBox

from eopipe.errors import UsageError
from eopipe.reporting.palette import class_colors
from eopipe.reporting.panels import outline
from eopipe.reporting.rasters import decimate, read_centres, read_means
from eopipe.reporting.scores import verdict
from eopipe.reporting.wording import format_length, join_words, pixel_metres, round_length


def test_names_choose_meaningful_colours_that_all_differ() -> None:
    names = ("non-forest", "forest", "woodland", "cloud shadow", "cloud", "water", *map(str, range(20)))
    colors = class_colors(names, ())
    assert len(set(colors)) == len(names)
    assert colors[1] == "#1b7a43" != colors[0]
    assert colors[4] == "#ffffff"
    assert colors[5] == "#0072b2"
    with pytest.raises(UsageError, match="1 colors for 2 classes"):
        class_colors(("a", "b"), ("#000000",))


@pytest.mark.parametrize(("scores", "baseline", "headline"), [
    ((0.90, 0.8), (0.80, 0.9), "better in accuracy but worse in mIoU than the per-pixel baseline"),
    ((0.90, 0.8), (0.896, 0.8), "slightly better than the per-pixel baseline, and better than always predicting"),
    ((0.90, 0.8), (0.9, 0.8), "no better than the per-pixel baseline"),
    ((0.30, 0.1), (0.5, 0.3), "worse than the per-pixel baseline and always predicting “a”"),
])  # fmt: skip
def test_the_verdict_weighs_both_measures(scores: Any, baseline: Any, headline: str) -> None:
    model, pixel_baseline, majority = (
        dict(zip(("accuracy", "miou"), pair, strict=True)) for pair in (scores, baseline, (0.4, 0.2))
    )
    metrics = {
        "test_pixels": 9,
        "model": model,
        "pixel_baseline": pixel_baseline,
        "majority": majority | {"class": "a"},
    }
    assert headline in verdict(metrics).headline


def test_an_outline_walks_around_a_mask() -> None:
    mask = np.zeros((4, 5), bool)
    mask[1:3, 2:4] = True
    assert outline(mask) == "M2 1H4M2 3H4M2 1V3M4 1V3"
    assert outline(np.zeros((2, 2), bool)) == ""


@pytest.mark.parametrize(("shape", "longest"), [((7, 5), 3), ((1, 9), 4), ((2100, 3), 1000), ((4, 4), 9)])
def test_decimation_takes_the_centre_or_the_mean_of_each_block(shape: tuple[int, int], longest: int) -> None:
    values = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    decimation = decimate(shape, longest)
    centres, means = (read(lambda y, x: values[y, x], decimation) for read in (read_centres, read_means))
    assert centres.shape == means.shape == decimation.shape
    assert max(decimation.shape) <= longest
    for row, col in np.ndindex(*decimation.shape):
        rows, cols = (slice(n * decimation.step, (n + 1) * decimation.step) for n in (row, col))
        block = values[rows, cols]
        assert centres[row, col] in block
        assert means[row, col] == pytest.approx(block.mean(dtype=np.float64), rel=1e-5)


def test_a_mean_leaves_out_what_is_missing() -> None:
    values = np.array([[1, np.nan], [3, np.nan]], np.float32)
    np.testing.assert_array_equal(read_means(lambda y, x: values[y, x], decimate((2, 2), 1)), [[2]])
    np.testing.assert_array_equal(read_means(lambda y, x: values[y, x] * np.nan, decimate((2, 2), 1)), [[np.nan]])


def test_lengths_are_metres_also_where_the_grid_counts_degrees_or_feet() -> None:
    assert pixel_metres(GeoBox((9, 9), Affine(10, 0, 0, 0, -10, 0), "EPSG:32633")) == pytest.approx((10, 10))
    degrees = GeoBox((2, 2), Affine(0.001, 0, 10, 0, -0.001, 60.001), "EPSG:4326")
    assert pixel_metres(degrees) == pytest.approx((55.6, 111.2), abs=0.1)
    feet = GeoBox((2, 2), Affine(100, 0, 0, 0, -100, 0), "EPSG:2263")
    assert pixel_metres(feet) == pytest.approx((30.48, 30.48), abs=0.01)
    assert (format_length(850), format_length(12_500), format_length(2_345_678)) == ("850 m", "12.5 km", "2346 km")
    assert [round_length(maximum) for maximum in (99, 100, 0.6)] == [50, 100, 0.5]


def test_words_are_joined_as_in_a_sentence() -> None:
    assert (join_words(["a"]), join_words(["a", "b", "c"])) == ("a", "a, b and c")
