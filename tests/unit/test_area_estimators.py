"""Areas and accuracies from a stratified sample: the published example, and what draws from known populations give."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eopipe.areas.design import allocate, expected_spreads, number_for
from eopipe.areas.estimators import Estimate, StratifiedSample, jeffreys
from eopipe.arrays import AnyArray, IntArray

# Olofsson et al. 2014, doi:10.1016/j.rse.2014.02.015, table 8: deforestation, forest gain, stable forest, stable
# non-forest, by map (rows) and reference; the shares of the map, and its hectares.
COUNTS = np.array([[66, 0, 5, 4], [0, 55, 8, 12], [1, 0, 153, 11], [2, 1, 9, 313]])
SHARES, HECTARES, PIXELS = np.array([0.020, 0.015, 0.320, 0.645]), 900_000, 10_000_000


def example() -> tuple[StratifiedSample, IntArray, IntArray]:
    mapped, labels = (np.repeat(axis.ravel(), COUNTS.ravel()) for axis in np.indices(COUNTS.shape))
    pixels = np.rint(SHARES * PIXELS).astype(int)
    return StratifiedSample(mapped, np.full(len(mapped), 0.09), pixels, pixels * 0.09), mapped, labels


def half_width(estimate: Estimate | None) -> float:
    assert estimate
    assert estimate.standard_error
    return 1.96 * estimate.standard_error


def test_the_worked_example_of_olofsson_comes_out_to_the_last_printed_digit() -> None:
    sample, mapped, labels = example()
    areas = [sample.ratio(labels == k) for k in range(4)]
    hectares = [each.times(HECTARES) for each in areas if each]
    printed = [(round(each.value), round(half_width(each))) for each in hectares]
    assert printed == [(21158, 6158), (11686, 3756), (285770, 15510), (581386, 16282)]
    users = [sample.ratio(labels == k, mapped == k) for k in range(4)]
    producers = [sample.ratio(mapped == k, labels == k) for k in range(4)]
    assert [(round(u.value, 2), round(half_width(u), 2)) for u in users if u] == [
        (0.88, 0.07), (0.73, 0.10), (0.93, 0.04), (0.96, 0.02),
    ]  # fmt: skip
    assert [(round(p.value, 2), round(half_width(p), 2)) for p in producers if p] == [
        (0.75, 0.21), (0.85, 0.25), (0.93, 0.03), (0.96, 0.02),
    ]  # fmt: skip
    overall = sample.ratio(mapped == labels)
    assert overall
    assert (round(overall.value, 3), round(half_width(overall), 3)) == (0.947, 0.018)


def test_the_number_of_pixels_for_a_standard_error_is_that_of_the_example() -> None:
    names = ["loss", "gain", "forest", "other"]
    spreads = expected_spreads(["loss=0.7", "gain=0.6", "forest=0.9", "other=0.95"], names)
    assert number_for(0.01, SHARES, spreads) == 641


def test_strata_of_another_map_give_what_pixels_weighted_by_their_stratum_give() -> None:
    """Stehman 2014: with equal pixels a ratio is one of sums of the strata's sizes times their means."""
    rng = np.random.default_rng(3)
    pixels = np.array([4000, 700, 20_000])
    strata = np.repeat(np.arange(3), [30, 20, 60])
    mapped, labels = rng.integers(0, 2, len(strata)), rng.integers(0, 2, len(strata))
    sample = StratifiedSample(strata, np.full(len(strata), 0.01), pixels, pixels * 0.01)
    x, y = mapped == 1, (mapped == 1) & (labels == 1)
    total_x, total_y = (sum(n * part[strata == h].mean() for h, n in enumerate(pixels)) for part in (x, y))
    value = total_y / total_x
    variance = 0.0
    for h, n in enumerate(pixels):
        covariance = np.cov(x[strata == h].astype(float), y[strata == h].astype(float), ddof=1)
        spread = covariance[1, 1] + value**2 * covariance[0, 0] - 2 * value * covariance[0, 1]
        variance += n**2 * spread / (strata == h).sum()
    users = sample.ratio(labels == 1, mapped == 1)
    assert users
    assert users.value == pytest.approx(value)
    assert users.standard_error == pytest.approx(math.sqrt(variance) / total_x)


def all_samples(sizes: tuple[int, ...], sizes_of_sample: tuple[int, ...]) -> list[tuple[IntArray, ...]]:
    """Every sample without replacement of some strata, as the numbers of the pixels of each."""
    starts = np.cumsum([0, *sizes])
    chosen = [
        [np.array(each) + start for each in itertools.combinations(range(size), count)]
        for size, count, start in zip(sizes, sizes_of_sample, starts, strict=False)
    ]
    return [*itertools.product(*chosen)]


def test_over_all_samples_of_a_small_population_area_and_variance_have_no_bias() -> None:
    """The mean of the estimates is the truth, that of the variances the variance of the estimates, exactly."""
    sizes, sizes_of_sample = (6, 5), (3, 2)
    truth = np.array([1, 1, 0, 1, 0, 1, 0, 0, 1, 0, 0], bool)
    strata, values = np.repeat([0, 1], sizes), list[tuple[float, float]]()
    for parts in all_samples(sizes, sizes_of_sample):
        pixels = np.concatenate(parts)
        sample = StratifiedSample(strata[pixels], np.ones(5), np.array(sizes), np.array(sizes, float))
        estimate = sample.ratio(truth[pixels])
        assert estimate
        values.append((estimate.value, sample.variance(truth[pixels]) / 121))
    estimates, variances = np.array(values).T
    assert estimates.mean() == pytest.approx(truth.mean())
    assert variances.mean() == pytest.approx(estimates.var())


def test_pixels_of_unequal_area_enter_by_their_area() -> None:
    """In degrees a class in the north has fewer hectares than pixels: a plain share of pixels would be wrong."""
    rng = np.random.default_rng(0)
    hectares = np.linspace(1, 3, 3000)
    truth = np.arange(3000) < 1000
    exact, draws = hectares[truth].sum() / hectares.sum(), list[tuple[float, float]]()
    for _ in range(2000):
        chosen = rng.choice(3000, 150, replace=False)
        sample = StratifiedSample(np.zeros(150, int), hectares[chosen], np.array([3000]), np.array([hectares.sum()]))
        estimate = sample.ratio(truth[chosen])
        assert estimate
        assert estimate.standard_error
        draws.append((estimate.value, estimate.standard_error))
    values, errors = np.array(draws).T
    assert abs(exact - truth.mean()) > 0.08
    assert values.mean() == pytest.approx(exact, abs=0.004)
    assert errors.mean() == pytest.approx(values.std(), rel=0.06)


def draws_of_a_rare_class(seed: int, count: int) -> tuple[float, float]:
    """How often 95 % intervals contain a class of 1 %, most of it omitted by the map: combined, and 1.96 errors."""
    rng, pixels = np.random.default_rng(seed), np.array([400_000, 590_000, 10_000])
    chances, sizes_of_sample = np.array([0.002, 0.002, 0.8]), np.array([200, 295, 50])
    truth, strata = float((pixels * chances).sum() / pixels.sum()), np.repeat(np.arange(3), sizes_of_sample)
    within = np.zeros(2)
    for _ in range(count):
        sample = StratifiedSample(strata, np.ones(len(strata)), pixels, pixels.astype(float))
        estimate = sample.ratio(rng.random(len(strata)) < chances[strata])
        assert estimate
        assert estimate.interval
        reach = 1.96 * (estimate.standard_error or 0)
        within += [estimate.interval[0] <= truth <= estimate.interval[1], abs(estimate.value - truth) <= reach]
    return within[0] / count, within[1] / count


def test_intervals_of_a_rare_class_contain_it_where_standard_errors_do_not() -> None:
    combined, plain = draws_of_a_rare_class(1, 4000)
    assert combined >= 0.93
    assert plain < 0.8


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=6),
    st.data(),
    st.sampled_from(["proportional", "equal"]),
    st.integers(2, 20),
)
def test_an_allocation_has_its_sum_its_minima_and_no_more_than_there_is(
    pixels: list[int], data: st.DataObject, rule: str, minimum: int
) -> None:
    sizes = np.array(pixels)
    least = np.minimum(sizes, minimum)
    number = data.draw(st.integers(int(least.sum()), int(sizes.sum())))
    weights = sizes.astype(float) if rule == "proportional" else np.ones(len(sizes))
    sizes_of_sample = allocate(number, sizes, weights, minimum, [*map(str, pixels)])
    assert sizes_of_sample.sum() == number
    assert (least <= sizes_of_sample).all()
    assert (sizes_of_sample <= sizes).all()


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((75, 75, 75), True), ((75, 1, 75), False), ((3, 1, 3), False)],
)
def test_a_stratum_with_one_pixel_has_no_variance(counts: tuple[int, ...], expected: bool) -> None:
    strata = np.repeat(np.arange(3), counts)
    labels: AnyArray = np.arange(len(strata)) % 2 == 0
    sample = StratifiedSample(strata, np.ones(len(strata)), np.array([1000] * 3), np.array([1000.0] * 3))
    estimate = sample.ratio(labels)
    assert estimate
    assert (estimate.standard_error is not None) == (estimate.interval is not None) == expected


def test_a_class_that_was_found_in_one_pixel_has_an_interval_but_no_standard_error() -> None:
    strata, labels = np.zeros(100, int), np.arange(100) == 7
    sample = StratifiedSample(strata, np.ones(100), np.array([10_000]), np.array([10_000.0]))
    estimate = sample.ratio(labels)
    assert estimate
    assert estimate.standard_error is None
    assert estimate.interval
    assert 0 < estimate.interval[0] < 0.01 < estimate.interval[1] < 0.06


def test_limits_of_jeffreys_are_those_of_the_beta_distribution() -> None:
    from scipy.stats import beta

    low, high = jeffreys(np.array([0.0, 0.3, 1.0, 0.4]), np.array([20.0, 10.0, 20.0, np.inf]))
    assert low.tolist() == pytest.approx([0, beta.ppf(0.025, 3.5, 7.5), beta.ppf(0.025, 20.5, 0.5), 0.4])
    assert high.tolist() == pytest.approx([beta.ppf(0.975, 0.5, 20.5), beta.ppf(0.975, 3.5, 7.5), 1, 0.4])
