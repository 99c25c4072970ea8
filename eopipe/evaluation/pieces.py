"""What a bootstrap draws as one: squares of the test places, or whole maps."""

from dataclasses import dataclass

import numpy as np

from eopipe.arrays import Float64Array, IntArray
from eopipe.evaluation.maps import Data

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
