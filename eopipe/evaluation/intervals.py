"""Confidence intervals of the scores, by pieces of the test areas and by how many of them are independent.

Pieces are small squares of the test areas; polygons, points, groups or whole maps where these are split; or equal-area
blocks of the places of a chip set. Maps and blocks are taken as independent. The variance of a score is the variance of
the pieces' influences on it (jackknife), inflated by the design effect of the measured correlation of the errors.
Intervals are from Student's t, for shares on the logit scale, which does not cut off at 1. The degrees of freedom are
one less than the number of independent pieces (Bester, Conley and Hansen 2011, doi:10.1016/j.jeconom.2011.01.007), and
fewer where errors are concentrated in few of them: their participation ratio, the effective number of clusters of
Carter, Schnepel and Steigerwald 2017 (doi:10.1162/REST_a_00639). Below six independent pieces no interval is given.
`benchmarks/coverage.py` simulates how often intervals contain the truth.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, BoolArray, Float64Array
from eopipe.evaluation.correlation import Correlation, SamplingUnits
from eopipe.evaluation.metrics_document import MIN_PIECES
from eopipe.tasks import SCALES
from eopipe.tasks.segmentation import MACRO
from eopipe.tasks.tables import Tables
from eopipe.tasks.task import Scale

LEVEL = 0.95
METHOD = (
    "Student's t on the logit scale over {pieces}, variance inflated by the measured correlation of the errors; "
    "doi:10.1016/j.jeconom.2011.01.007, doi:10.1162/REST_a_00639"
)
# What the metrics call the model less the baseline that predicts the same everywhere.
SIMPLE_GAIN = {"majority": "simple_gain", "mean": "simple_gain"}
# Concentrated errors are also correlated; this power of the design effect gave the best coverage in the simulations.
CONCENTRATION_POWER, MIN_FREEDOM = 0.85, 3.0
# A wider interval of a share, or of kappa, says nothing.
MAX_WIDTH = 0.9
# The lowest and the highest score on a scale.
LIMITS: dict[Scale, tuple[float, float]] = {
    "share": (0.0, 1.0),
    "agreement": (-1.0, 1.0),
    "error": (0.0, np.inf),
    "explained": (-np.inf, 1.0),
    "signed": (-np.inf, np.inf),
}

Intervals = dict[str, list[float] | None]


@dataclass(frozen=True)
class Pieces:
    """The pieces with test pixels, their design effect by comparison, and the range of the errors in pixels."""

    units: SamplingUnits
    chip: int
    effects: dict[str, float]
    range: float | None = None

    @property
    def count(self) -> int:
        return len(self.units.used)

    @property
    def summary(self) -> dict[str, Any]:
        """What the intervals rest on, for the metrics."""
        edge = self.units.edge
        return {
            "level": LEVEL,
            "method": METHOD.format(pieces=f"squares of {edge} pixels" if edge else f"whole {self.units.kind}"),
            "edge": edge,
            "pieces": self.count,
            "independent": {key: round(self.count / effect, 1) for key, effect in self.effects.items()},
            "range": self.range and round(self.range, 1),
        }

    def within(self, chosen: BoolArray) -> "Pieces":
        return replace(self, units=self.units.within(chosen))

    def class_squares(self, model: AnyArray, measures: Tables) -> dict[str, int]:
        """In how many chip-sized squares, or maps, the labels have each class."""
        squares, contains = self.units.squares(self.chip), measures.contains(model)
        return {name: len(np.unique(squares[contains[:, n]])) for n, name in enumerate(measures.classes)}


@dataclass(frozen=True)
class Tally:
    """Tables of the test samples: of each method by unit, the model's also by map. The model is the first method."""

    units: SamplingUnits
    tables: Tables
    by_unit: dict[str, AnyArray]
    by_map: AnyArray

    @classmethod
    def empty(cls, units: SamplingUnits, methods: tuple[str, ...], maps: int, tables: Tables) -> "Tally":
        """Tables of zeros for each unit."""
        by_unit = {name: np.zeros((len(units.used), tables.width), tables.dtype) for name in methods}
        return cls(units, tables, by_unit, np.zeros((maps, tables.width), tables.dtype))

    def add(self, method: str, number: int, table: AnyArray) -> None:
        """Add the table (unit, …) of a method and a map."""
        self.by_unit[method] += table
        if method == "model":
            self.by_map[number] += table.sum(0)

    def documents(self) -> dict[str, Any]:
        return {name: self.tables.document(table.sum(0)) for name, table in self.by_unit.items()}

    def uncertainty(self, chip: int, baseline: str) -> dict[str, Any]:
        """Intervals of the scores and of the gains over the chosen and the simple baseline; scores of each quarter."""
        measures = self.tables
        is_used = measures.sizes(self.by_unit["model"]) > 0
        if not is_used.any():
            return {"intervals": {"reason": "not one test pixel has both a label and a prediction"}, "regions": []}
        units = self.units.within(is_used)
        comparisons = {"model": "model", baseline: "gain"} | SIMPLE_GAIN
        tables = {comparisons[name]: self.by_unit[name][is_used] for name in self.by_unit if name in comparisons}
        pieces = measure_pieces(units, chip, tables, measures)
        ends = intervals(pieces, tables, measures)
        summary = pieces.summary | _reasons(pieces, tables["model"], measures, ends["model"]) | ends
        return {"intervals": summary, "regions": _regions(pieces, tables["model"], measures)}


def measure_pieces(units: SamplingUnits, chip: int, tables: dict[str, AnyArray], measures: Tables) -> Pieces:
    """Measure the correlation of the errors of some units; whole maps are taken as independent."""
    if units.are_independent:
        return Pieces(units, chip, dict.fromkeys(tables, 1.0))
    return correlated_pieces(Correlation(units), chip, tables, measures)


def correlated_pieces(correlation: Correlation, chip: int, tables: dict[str, AnyArray], measures: Tables) -> Pieces:
    """The units of a correlation as pieces, with the design effects of the errors and of their differences."""
    model, *baselines = (measures.errors(table) for table in tables.values())
    likelihood = correlation.likelihood(np.stack([model, *(model - baseline for baseline in baselines)]))
    effects = correlation.design_effects(measures.sizes(tables["model"]).astype(np.float64), likelihood)
    if correlation.units.centres is not None:
        # Few polygons or groups say little of how far differences are correlated; not less than the errors themselves.
        effects = np.maximum(effects, effects[0])
    by_comparison = dict(zip(tables, effects.tolist(), strict=True))
    return Pieces(correlation.units, chip, by_comparison, float(correlation.distances(likelihood)[0]))


def design_effect(units: SamplingUnits, field: Float64Array, weights: Float64Array) -> float:
    """The design effect of a field of units; 1 for whole maps."""
    if units.are_independent:
        return 1.0
    correlation = Correlation(units)
    return float(correlation.design_effects(weights, correlation.likelihood(field[None]))[0])


def intervals(pieces: Pieces, tables: dict[str, AnyArray], measures: Tables) -> dict[str, Intervals]:
    """Intervals of the model's scores and of its gains over each baseline, by comparison and score.

    Tables are (piece, …): the model's first, then the baselines', as in `pieces.effects`.
    """
    model, *baselines = tables.values()
    influences = [_influences(table, measures) for table in tables.values()]
    errors, hits = measures.incorrect(model), measures.correct(model)
    rare = {key for key, _ in _rare_scores(pieces, model, measures)}
    result, are_split = {}, pieces.units.centres is not None
    for number, comparison in enumerate(pieces.effects):
        scores, parts = influences[0]
        events = {name: min(errors[name], hits[name], key=np.sum) for name in errors}
        if number:
            others, other_parts = influences[number]
            scores = {key: value - others[key] for key, value in scores.items()}
            parts = {key: value - other_parts[key] for key, value in parts.items()}
            other_errors = measures.incorrect(baselines[number - 1])
            events = {name: value - other_errors[name] for name, value in errors.items()}
        effect = pieces.effects[comparison]
        freedom = {name: _freedom(len(model), value, effect) for name, value in events.items()}
        scales: dict[str, Scale] = {key: "signed" if number else _scale(key) for key in scores}
        # Too few polygons or groups that differ at all: intervals of their sum are too narrow (benchmarks/coverage.py).
        few = {name for name, value in events.items() if number and are_split and np.sum(value != 0) < MIN_PIECES}
        missing = {key for key in scores if key in rare or _class(key) in few}
        result[comparison] = {
            key: None if key in missing else _interval(scales[key], score, parts[key], effect, freedom[_class(key)])
            for key, score in scores.items()
        }
        if number:
            result[comparison] = {
                key: ends and _possible_gain(_scale(key), others[key], ends) for key, ends in result[comparison].items()
            }
    return result


def _scale(key: str) -> Scale:
    """The scale of a score; the scores of classes are shares."""
    return SCALES.get(key, "share")


def _possible_gain(scale: Scale, baseline: float, ends: list[float]) -> list[float]:
    """The part of the interval of a gain that a model can reach, whose own score has limits."""
    lowest, highest = LIMITS[scale]
    return [round(float(np.clip(end, lowest - baseline, highest - baseline)), 6) + 0.0 for end in ends]


def _class(key: str) -> str:
    """The class of a score, empty for a score of all classes."""
    return key.partition(":")[2]


def _influences(tables: AnyArray, measures: Tables) -> tuple[dict[str, float], dict[str, Float64Array]]:
    """Scores of all pieces, and how much each piece moves them (jackknife)."""
    total, count = tables.sum(0), len(tables)
    scores = {key: float(value[0]) for key, value in measures.scores(total[None]).items()}
    without = measures.scores(total - tables)
    return scores, {key: (score - without[key]) * (count - 1) / count for key, score in scores.items()}


def _freedom(count: int, events: Float64Array, effect: float) -> float:
    """Degrees of freedom of pieces with these errors, at least `MIN_FREEDOM`."""
    events = np.abs(events)
    squares = float((events**2).sum())
    participation = float(events.sum()) ** 2 / squares if squares else count
    return max(min(count / effect, participation / float(effect**CONCENTRATION_POWER)) - 1, MIN_FREEDOM)


def _interval(
    scale: Scale, score: float, influences: Float64Array, effect: float, freedom: float
) -> list[float] | None:
    """The interval of a score from the influences of the pieces; None where too few are independent."""
    # The quantile of Student's t; scipy.stats takes a second to import.
    from scipy.special import stdtrit

    independent = len(influences) / effect
    if independent < MIN_PIECES or not np.isfinite(score) or not np.isfinite(influences).all():
        return None
    # For independent pieces of one size this is the usual variance of a mean.
    error = float(np.sqrt((influences**2).sum() * len(influences) / (independent - 1)))
    margin = float(stdtrit(freedom, (1 + LEVEL) / 2)) * error
    low, high = sorted(_ends(scale, score, margin, independent))
    if scale in ("share", "agreement") and high - low > MAX_WIDTH:
        return None
    return [round(low, 6) + 0.0, round(high, 6) + 0.0]


def _ends(scale: Scale, score: float, margin: float, independent: float) -> tuple[float, float]:
    """The ends of an interval on the scale of its score."""
    if scale == "signed":
        return score - margin, score + margin
    if scale == "error":
        factor = _exp(margin / score) if score else 1.0
        return score / factor, score * factor
    if scale == "explained":
        factor = _exp(margin / (1 - score)) if score < 1 else 1.0
        return 1 - (1 - score) * factor, 1 - (1 - score) / factor
    if scale == "agreement":
        low, high = _ends("share", (1 + score) / 2, margin / 2, independent)
        return 2 * low - 1, 2 * high - 1
    if not 0 < score < 1:
        # All right or all wrong: the exact bound for as many trials as there are independent pieces.
        bound = ((1 - LEVEL) / 2) ** (1 / independent)
        return (bound, 1.0) if score else (0.0, 1 - bound)
    logit, scaled = float(np.log(score / (1 - score))), margin / (score * (1 - score))
    return 1 / (1 + _exp(scaled - logit)), 1 / (1 + _exp(-scaled - logit))


def _exp(value: float) -> float:
    """The exponential, finite for any value."""
    return float(np.exp(min(max(value, -500.0), 500.0)))


def _rare_scores(pieces: Pieces, model: AnyArray, measures: Tables) -> Iterator[tuple[str, str]]:
    """Scores that depend on a class in too few squares, with the class; means depend on every class that occurs."""
    squares, scores = pieces.class_squares(model, measures), measures.scores(model.sum(0)[None])
    rare = [name for name, count in squares.items() if count < MIN_PIECES and np.isfinite(scores[f"iou:{name}"][0])]
    for key in scores:
        if _class(key) in rare:
            yield key, _class(key)
        elif key in MACRO and rare:
            yield key, min(rare, key=squares.__getitem__)


def _reasons(pieces: Pieces, model: AnyArray, measures: Tables, ends: Intervals) -> dict[str, Any]:
    """Why scores have no interval: all of them (`reason`), or some (`missing`, by score)."""
    independent = pieces.count / pieces.effects["model"]
    if independent < MIN_PIECES:
        amount = f"the test areas amount to about {independent:.1f}, at least {MIN_PIECES} are needed"
        return {"reason": f"too few independent pieces to say: {amount}"}
    squares, edge = pieces.class_squares(model, measures), max(pieces.chip, pieces.units.edge)
    unit = f"squares of {edge} pixels" if pieces.units.edge else pieces.units.kind
    scores = measures.scores(model.sum(0)[None])
    few = "too few independent pieces to say: the errors are concentrated in a small part of the test areas"
    missing = {key: few for key, value in ends.items() if value is None and np.isfinite(scores[key][0])}
    missing |= {
        key: f"class {name} is in {squares[name]} {unit}, at least {MIN_PIECES} are needed"
        for key, name in _rare_scores(pieces, model, measures)
    }
    return {"missing": missing} if any(ends.values()) else {"missing": missing, "reason": few}


def _regions(pieces: Pieces, model: AnyArray, measures: Tables) -> list[dict[str, Any]]:
    """The model's scores in each quarter of the test areas, with intervals where enough pieces are independent.

    Empty where whole maps are the pieces.
    """
    units = pieces.units
    if not units.edge:
        return []
    south, east = (
        corners + units.edge / 2 > (corners.min() + corners.max() + units.edge) / 2 for corners in units.corners.T
    )
    quarters = {
        "north-west": ~south & ~east,
        "north-east": ~south & east,
        "south-west": south & ~east,
        "south-east": south & east,
    }
    return [
        {"name": name} | _region(pieces.within(chosen), model[chosen], measures)
        for name, chosen in quarters.items()
        if chosen.any()
    ]


def _region(pieces: Pieces, model: AnyArray, measures: Tables) -> dict[str, Any]:
    scores = {key: rounded(values[0]) for key, values in measures.scores(model.sum(0)[None]).items()}
    only_model = replace(pieces, effects={"model": pieces.effects["model"]})
    ends = intervals(only_model, {"model": model}, measures)["model"]
    return {"pieces": pieces.count, "scores": scores, "intervals": {key: value for key, value in ends.items() if value}}


def rounded(value: float) -> float | None:
    """A score with six digits; None where it is not defined."""
    return round(float(value), 6) if np.isfinite(value) else None
