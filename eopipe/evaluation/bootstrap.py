"""Confidence intervals of the scores: a cluster bootstrap over squares or maps of the test areas.

Neighbouring pixels are correlated, so a bootstrap over single pixels would give intervals that are too narrow. Whole
squares or maps (resampling units) are drawn with replacement instead (cluster bootstrap, Field and Welsh 2007,
J. R. Statist. Soc. B 69, 369-390), and the interval contains the central 95 % of the scores of the draws (percentile
bootstrap, Efron 1979, Ann. Statist. 7, 1-26).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, IntArray
from eopipe.evaluation.maps import EvaluationData
from eopipe.evaluation.measures import Measures

# With fewer units an interval is not meaningful.
MIN_UNITS = 10
BLOCKED = ("blocks", "checkerboard")


@dataclass(frozen=True)
class ResamplingUnits:
    """The units of the bootstrap: squares of the grid over all maps, or whole maps where scenes are split (edge 0)."""

    shape: tuple[int, int]
    edge: int
    maps: int

    @property
    def columns(self) -> int:
        """Number of squares in a row."""
        return -(-self.shape[1] // self.edge)

    @property
    def count(self) -> int:
        """Number of units, including those without test pixels."""
        return self.maps if not self.edge else -(-self.shape[0] // self.edge) * self.columns

    def unit_of(self, number: int, rows: IntArray, cols: IntArray) -> IntArray:
        """Unit number of each pixel of a map."""
        if not self.edge:
            return np.full(len(rows), number)
        return np.asarray(rows // self.edge * self.columns + cols // self.edge, np.int64)

    def count_by_cell(self, unit: IntArray, cell: IntArray, cells: int) -> IntArray:
        """Counts (unit, cell) of the pixels of each unit and confusion cell."""
        return np.bincount(unit * cells + cell, minlength=self.count * cells).reshape(self.count, cells)

    def sum_by_unit(self, unit: IntArray, parts: Float64Array) -> Float64Array:
        """Sums (unit, part) of parts (part, n)."""
        return np.stack([np.bincount(unit, part, self.count) for part in parts], 1)

    @property
    def description(self) -> str:
        """Description of the units for the metrics."""
        return f"squares of {self.edge} pixels" if self.edge else "whole maps"


def choose_units(data: EvaluationData) -> ResamplingUnits:
    """Choose the units: blocks of the split, else chips; whole maps where scenes are split and enough of them test."""
    shape, plan = data.groups[0].truth.shape, data.split["plan"]
    tested = [area for _, area in data.areas("test") if area.any()]
    if data.split.get("by_scene") and len(tested) >= MIN_UNITS:
        return ResamplingUnits((shape[0], shape[1]), 0, len(data.groups))
    edges = [*([plan["block"]] if plan.get("method") in BLOCKED else []), data.split["chip"]]
    candidates = [ResamplingUnits((shape[0], shape[1]), edge, len(data.groups)) for edge in edges]
    rows, cols = np.nonzero(np.logical_or.reduce(tested)) if tested else (np.empty(0, int),) * 2
    return next(
        (candidate for candidate in candidates if len(np.unique(candidate.unit_of(0, rows, cols))) >= MIN_UNITS),
        candidates[-1],
    )


DRAWS, LEVEL, SEED = 1000, 0.95, 0
SOURCE = "percentile bootstrap over {pieces}; doi:10.1111/j.1467-9868.2007.00593.x, doi:10.1214/aos/1176344552"


def intervals(units: ResamplingUnits, tables: dict[str, AnyArray], measures: Measures) -> dict[str, Any]:
    """Intervals of the model's scores, and of their gain over the baseline; tables are (unit, …).

    Empty where fewer than two units have test pixels.
    """
    used_units = np.flatnonzero(tables["model"].reshape(units.count, -1).any(1))
    if len(used_units) < 2:
        return {}
    weights = _draws(len(used_units))
    scores = {name: measures(np.tensordot(weights, table[used_units], 1)) for name, table in tables.items()}
    model = {key: _percentile_interval(values) for key, values in scores["model"].items()}
    gains = {
        key: _percentile_interval(values - scores["pixel_baseline"][key]) for key, values in scores["model"].items()
    }
    summary = {"pieces": len(used_units), "edge": units.edge, "draws": DRAWS, "level": LEVEL}
    return summary | {"method": SOURCE.format(pieces=units.description), "model": model, "gain": gains}


def _draws(count: int) -> IntArray:
    """Number of times each unit is drawn (draw, unit)."""
    generator = np.random.Generator(np.random.Philox(key=SEED))
    indices = generator.integers(count, size=(DRAWS, count)) + np.arange(DRAWS)[:, None] * count
    return np.bincount(indices.ravel(), minlength=DRAWS * count).reshape(DRAWS, count)


def _percentile_interval(draws: Float64Array) -> list[float] | None:
    """Percentile interval over the draws in which a score is defined; None if these are less than half."""
    known = draws[np.isfinite(draws)]
    if len(known) < DRAWS // 2:
        return None
    low, high = np.percentile(known, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return [round(float(low), 6), round(float(high), 6)]


def regions(units: ResamplingUnits, tables: AnyArray, measures: Measures) -> list[dict[str, Any]]:
    """The model's scores in each quarter of the test areas, with intervals where there are enough units.

    Empty where whole maps are drawn.
    """
    is_used = tables.reshape(units.count, -1).any(1)
    if not units.edge or not is_used.any():
        return []
    rows, cols = np.divmod(np.arange(units.count), units.columns)
    centres = [(positions[is_used].min() + positions[is_used].max() + 1) / 2 for positions in (rows, cols)]
    south, east = (positions + 0.5 > centre for positions, centre in zip((rows, cols), centres, strict=True))
    quarters = []
    for name, in_quarter in (
        ("north-west", ~south & ~east),
        ("north-east", ~south & east),
        ("south-west", south & ~east),
        ("south-east", south & east),
    ):
        if (in_quarter & is_used).any():
            quarters.append({"name": name} | _region(tables[in_quarter & is_used], measures))
    return quarters


def _region(tables: AnyArray, measures: Measures) -> dict[str, Any]:
    score_values = measures(tables.sum(0)[None])
    scores = measures(np.tensordot(_draws(len(tables)), tables, 1)) if 2 * len(tables) >= MIN_UNITS else {}
    rounded = {key: round(float(value[0]), 6) if np.isfinite(value[0]) else None for key, value in score_values.items()}
    return {
        "pieces": len(tables),
        "scores": rounded,
        "intervals": {key: _percentile_interval(v) for key, v in scores.items()},
    }
