"""How sure the scores are: a bootstrap over pieces of the test places.

Neighbouring pixels are alike, so single pixels say nothing of how much a score would change elsewhere. Whole pieces
are drawn with replacement instead, as clusters are (Field and Welsh 2007, J. R. Statist. Soc. B 69, 369-390), and the
middle 95 % of the scores of the draws is the interval (percentile bootstrap, Efron 1979, Ann. Statist. 7, 1-26).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from eopipe.arrays import AnyArray, Float64Array, IntArray
from eopipe.evaluation.maps import Data
from eopipe.evaluation.measures import Measures

# Fewer pieces than this say next to nothing of how much a score varies.
LEAST = 10
BLOCKED = ("blocks", "checkerboard")


@dataclass(frozen=True)
class Pieces:
    """What is drawn as one: squares of the grid over all maps, or whole maps where scenes are split (edge 0)."""

    shape: tuple[int, int]
    edge: int
    maps: int

    @property
    def wide(self) -> int:
        """Squares beside each other."""
        return -(-self.shape[1] // self.edge)

    @property
    def count(self) -> int:
        """How many there are, with those that hold nothing."""
        return self.maps if not self.edge else -(-self.shape[0] // self.edge) * self.wide

    def of(self, number: int, rows: IntArray, cols: IntArray) -> IntArray:
        """The piece of each pixel of a map."""
        if not self.edge:
            return np.full(len(rows), number)
        return np.asarray(rows // self.edge * self.wide + cols // self.edge, np.int64)

    def sums(self, piece: IntArray, cell: IntArray, cells: int) -> IntArray:
        """Count by piece and cell (piece, cell)."""
        return np.bincount(piece * cells + cell, minlength=self.count * cells).reshape(self.count, cells)

    def totals(self, piece: IntArray, parts: Float64Array) -> Float64Array:
        """Add up parts (part, n) by piece (piece, part)."""
        return np.stack([np.bincount(piece, part, self.count) for part in parts], 1)

    @property
    def words(self) -> str:
        """What they are."""
        return f"squares of {self.edge} pixels" if self.edge else "whole maps"


def pieces_of(data: Data) -> Pieces:
    """Cut the test places: blocks of the split, or else chips; whole maps where enough of them test."""
    shape, plan = data.groups[0].truth.shape, data.split["plan"]
    tested = [area for _, area in data.areas("test") if area.any()]
    if data.split.get("by_scene") and len(tested) >= LEAST:
        return Pieces((shape[0], shape[1]), 0, len(data.groups))
    edges = [*([plan["block"]] if plan.get("method") in BLOCKED else []), data.split["chip"]]
    cuts = [Pieces((shape[0], shape[1]), edge, len(data.groups)) for edge in edges]
    rows, cols = np.nonzero(np.logical_or.reduce(tested)) if tested else (np.empty(0, int),) * 2
    return next((cut for cut in cuts if len(np.unique(cut.of(0, rows, cols))) >= LEAST), cuts[-1])


DRAWS, LEVEL, SEED = 1000, 0.95, 0
SOURCE = "percentile bootstrap over {pieces}; doi:10.1111/j.1467-9868.2007.00593.x, doi:10.1214/aos/1176344552"


def intervals(cut: Pieces, tables: dict[str, AnyArray], measures: Measures) -> dict[str, Any]:
    """Intervals of the model's scores, and of what it gains over the baseline; tables are (piece, …).

    Empty where no two pieces hold anything, since nothing then tells how much a score varies.
    """
    used = np.flatnonzero(tables["model"].reshape(cut.count, -1).any(1))
    if len(used) < 2:
        return {}
    weight = _draws(len(used))
    drawn = {name: measures(np.tensordot(weight, table[used], 1)) for name, table in tables.items()}
    model = {key: _middle(found) for key, found in drawn["model"].items()}
    gains = {key: _middle(found - drawn["pixel_baseline"][key]) for key, found in drawn["model"].items()}
    about = {"pieces": len(used), "edge": cut.edge, "draws": DRAWS, "level": LEVEL}
    return about | {"method": SOURCE.format(pieces=cut.words), "model": model, "gain": gains}


def _draws(count: int) -> IntArray:
    """How often each piece is drawn (draw, piece)."""
    stream = np.random.Generator(np.random.Philox(key=SEED))
    some = stream.integers(count, size=(DRAWS, count)) + np.arange(DRAWS)[:, None] * count
    return np.bincount(some.ravel(), minlength=DRAWS * count).reshape(DRAWS, count)


def _middle(found: Float64Array) -> list[float] | None:
    """The middle of the draws in which a score is defined; None if that is not most of them."""
    known = found[np.isfinite(found)]
    if len(known) < DRAWS // 2:
        return None
    low, high = np.percentile(known, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return [round(float(low), 6), round(float(high), 6)]


def regions(cut: Pieces, tables: AnyArray, measures: Measures) -> list[dict[str, Any]]:
    """The model's scores in each quarter of the test places, with intervals where there are pieces enough for any.

    None where whole maps are drawn.
    """
    held = tables.reshape(cut.count, -1).any(1)
    if not cut.edge or not held.any():
        return []
    rows, cols = np.divmod(np.arange(cut.count), cut.wide)
    middle = [(line[held].min() + line[held].max() + 1) / 2 for line in (rows, cols)]
    south, east = (line + 0.5 > half for line, half in zip((rows, cols), middle, strict=True))
    found = []
    for name, here in (
        ("north-west", ~south & ~east),
        ("north-east", ~south & east),
        ("south-west", south & ~east),
        ("south-east", south & east),
    ):
        if (here & held).any():
            found.append({"name": name} | _region(tables[here & held], measures))
    return found


def _region(tables: AnyArray, measures: Measures) -> dict[str, Any]:
    whole = measures(tables.sum(0)[None])
    drawn = measures(np.tensordot(_draws(len(tables)), tables, 1)) if 2 * len(tables) >= LEAST else {}
    told = {key: round(float(value[0]), 6) if np.isfinite(value[0]) else None for key, value in whole.items()}
    return {"pieces": len(tables), "scores": told, "intervals": {key: _middle(v) for key, v in drawn.items()}}
