"""Estimates from a stratified random sample of pixels, with standard errors and intervals.

Estimators of totals and ratios are those of Olofsson et al. 2014 (doi:10.1016/j.rse.2014.02.015) and, where strata are
not the classes of the map, of Stehman 2014 (doi:10.1080/01431161.2014.930207). Pixels may differ in area: in each
stratum, whose area is known, the mean is a ratio of sums of areas (Cochran 1977, Sampling Techniques, 6.2 and 6.10),
which with equal areas is the mean over pixels. The finite population correction counts where more than a twentieth of
a stratum is sampled (Cochran 1977, 2.6); below that the formulas of the two papers are as printed.

Intervals of shares do not rest on the standard error, which is too small where a class is rare: in most samples none of
the few pixels that the map omits is drawn, and the variance of their stratum comes out as 0. Each stratum has the
interval of Jeffreys (Brown, Cai and DasGupta 2001, doi:10.1214/ss/1009213286), and the limits are combined by the
distances of the estimates from them (MOVER: Zou, Huang and Zhang 2009, doi:10.1016/j.csda.2008.09.033).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, IntArray

LEVEL = 0.95
# The share of a stratum up to which it is taken for endless.
ENDLESS = 0.05


@dataclass(frozen=True)
class Estimate:
    """A value with its standard error and 95 % interval; None where there is none."""

    value: float
    standard_error: float | None
    interval: tuple[float, float] | None

    def times(self, factor: float) -> "Estimate":
        """The same in another unit, of which one is `factor`."""
        error = None if self.standard_error is None else self.standard_error * factor
        ends = None if self.interval is None else (self.interval[0] * factor, self.interval[1] * factor)
        return Estimate(self.value * factor, error, ends)

    def json_document(self) -> dict[str, object]:
        """With seven digits; numbers that are not known are null."""
        ends = None if self.interval is None else [_digits(end) for end in self.interval]
        error = None if self.standard_error is None else _digits(self.standard_error)
        return {"estimate": _digits(self.value), "standard_error": error, "interval": ends}


def _digits(value: float) -> float:
    return float(f"{value:.7g}")


@dataclass(frozen=True)
class StratifiedSample:
    """Sampled pixels (n,) with their stratum and hectares, and pixels and hectares of each stratum (stratum,).

    Each stratum has a sampled pixel.
    """

    strata: IntArray
    hectares: Float64Array
    stratum_pixels: IntArray
    stratum_hectares: Float64Array

    @cached_property
    def counts(self) -> IntArray:
        """The number of sampled pixels of each stratum."""
        return np.bincount(self.strata, minlength=len(self.stratum_pixels))

    @cached_property
    def _sampled_hectares(self) -> Float64Array:
        return np.bincount(self.strata, self.hectares, len(self.stratum_pixels)).astype(np.float64)

    @property
    def total_hectares(self) -> float:
        return float(self.stratum_hectares.sum())

    @cached_property
    def weights(self) -> Float64Array:
        """The hectares (n,) that each sampled pixel stands for."""
        return np.asarray(self.hectares * (self.stratum_hectares / self._sampled_hectares)[self.strata])

    @cached_property
    def _corrections(self) -> Float64Array:
        """The finite population correction of each stratum: its share that is not sampled, 1 where little is."""
        sampled = self.counts / self.stratum_pixels
        return np.asarray(np.where(sampled > ENDLESS, 1 - sampled, 1.0))

    @property
    def has_variance(self) -> bool:
        """Whether each stratum has two sampled pixels, or is sampled as a whole."""
        return bool(((self.counts > 1) | (self._corrections == 0)).all())

    def means(self, values: AnyArray) -> Float64Array:
        """The mean of values (n,) in each stratum, by area."""
        sums = np.bincount(self.strata, self.hectares * values, len(self.counts))
        return np.asarray(sums / self._sampled_hectares)

    def variance(self, values: AnyArray) -> float:
        """The variance of the estimated sum over all hectares of values (n,) per hectare."""
        residuals = self.hectares * (values - self.means(values)[self.strata])
        squares = np.bincount(self.strata, residuals**2, len(self.counts))
        # One pixel has none; `has_variance` says whether that matters.
        spread = squares / np.maximum(self.counts - 1, 1) / self.counts
        mean_hectares = self._sampled_hectares / self.counts
        return float(((self.stratum_hectares / mean_hectares) ** 2 * self._corrections * spread).sum())

    def ratio(self, part: AnyArray, whole: AnyArray | None = None) -> Estimate | None:
        """The share of the hectares of `whole` (n,) that `part` (n,) has, both masks; all hectares without a whole.

        None where no sampled pixel is of the whole. There is no standard error where fewer than two sampled pixels
        are of the part and of the whole.
        """
        of_whole = np.ones(len(self.strata), bool) if whole is None else whole
        total = float(self.weights[of_whole].sum())
        if not total:
            return None
        value = float(self.weights[part & of_whole].sum()) / total
        deviation = np.sqrt(self.variance((part & of_whole) - value * of_whole)) / total
        is_known = self.has_variance and min(of_whole.sum(), (part & of_whole).sum()) > 1
        ends = self._share_interval(part) if whole is None else self._ratio_interval(value, float(deviation), of_whole)
        return Estimate(value, float(deviation) if is_known else None, ends if self.has_variance else None)

    def _share_interval(self, part: AnyArray) -> tuple[float, float]:
        """The interval of a share of all hectares, by the limits of the strata."""
        shares, weights = self.means(part), self.stratum_hectares / self.total_hectares
        low, high = jeffreys(shares, self._effective_counts)
        value = float((weights * shares).sum())
        below, above = (float(np.sqrt(((weights * (shares - end)) ** 2).sum())) for end in (low, high))
        return max(value - below, 0.0), min(value + above, 1.0)

    @cached_property
    def _effective_counts(self) -> Float64Array:
        """Pixels of equal area, of an endless stratum, that would say as much as the sampled ones (Kish 1965)."""
        squares = np.bincount(self.strata, self.hectares**2, len(self.counts))
        with np.errstate(divide="ignore"):
            return np.asarray(self._sampled_hectares**2 / squares / self._corrections)

    def _ratio_interval(self, value: float, deviation: float, whole: AnyArray) -> tuple[float, float]:
        """The interval of a share of an estimated area, by the pixels of a simple sample with the same variance.

        Where the pixels of the whole are alike, their own number counts, as far as it stands for its area.
        """
        weights = self.weights[whole]
        count = float(weights.sum() ** 2 / (weights**2).sum())
        if deviation:
            count = min(max(value * (1 - value) / deviation**2, 1.0), 1e12)
        low, high = jeffreys(np.array([value]), np.array([count]))
        return float(low[0]), float(high[0])

    def mean(self, values: AnyArray) -> Estimate:
        """The mean of numbers (n,) over all hectares, with an interval of the t distribution."""
        from scipy.stats import t

        mean = float((self.means(values) * self.stratum_hectares).sum()) / self.total_hectares
        if not self.has_variance:
            return Estimate(mean, None, None)
        error = float(np.sqrt(self.variance(values))) / self.total_hectares
        reach = float(t.ppf((1 + LEVEL) / 2, max(len(self.strata) - len(self.counts), 1))) * error
        return Estimate(mean, error, (mean - reach, mean + reach))


def jeffreys(shares: Float64Array, counts: Float64Array) -> tuple[Float64Array, Float64Array]:
    """The 95 % limits of shares (n,) that were observed in as many independent pixels (n,).

    The lower limit of none is 0 and the upper one of all is 1; a share of infinitely many is known.
    """
    from scipy.special import betaincinv

    finite = np.where(np.isfinite(counts), counts, 1.0)
    hits, misses = shares * finite + 0.5, (1 - shares) * finite + 0.5
    low, high = (betaincinv(hits, misses, tail) for tail in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    # Rounding may leave a share of all a little below 1.
    is_known, is_none, is_all = np.isinf(counts), shares < 1e-12, shares > 1 - 1e-12
    low = np.where(is_known, shares, np.where(is_none, 0.0, np.minimum(low, shares)))
    high = np.where(is_known, shares, np.where(is_all, 1.0, np.maximum(high, shares)))
    return np.asarray(low), np.asarray(high)
