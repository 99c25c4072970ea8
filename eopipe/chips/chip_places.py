"""True places of the chips of packed stores: their slots are not places, so splits and audit compute with these.

Distances are on the ellipsoid: below 50 km along the axes of a chip, so that chips that touch are 0 apart, else on a
great circle.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from eopipe.arrays import Float64Array, IntArray
from eopipe.chips.chip_files import to_degrees
from eopipe.chips.chip_set import INDEX, INDEX_ARRAY, SLOT_STEP, STORE
from eopipe.chips.splits import STRIPS, SplitPlan
from eopipe.documents import OPEN, Count, PositiveCount, Text, invertible, read_document, typed_mistakes
from eopipe.errors import BadInputError, UsageError
from eopipe.tiles.grid import EARTH_RADIUS_M
from eopipe.tiles.store import CHIP_SET, Tiles

# WGS 84: semi-major axis in metres, and squared eccentricity.
SEMI_MAJOR_M, SQUARED_ECCENTRICITY = 6378137.0, 6.69437999014e-3
# Pairs of chips that are measured at a time, which bounds the memory.
MAX_PAIRS = 1_000_000
# From this distance on chips are points, but for their size.
FAR_M = 50_000.0
METHODS = ("random", "blocks", "group", *STRIPS)
# Slots of a store, as `eopipe import` writes it.
MAX_SLOTS = (STORE // SLOT_STEP) ** 2
# Square degrees of a chip: far below those of a pixel of a millimetre.
MIN_AREA = 1e-18


PixelEdge = Annotated[PositiveCount, Field(le=4096)]
OneValue = str | Annotated[float, Field(allow_inf_nan=False)] | bool | None


class _ChipRow(BaseModel):
    """A row of the index of a chip set, as `eopipe import` writes it; other columns have a text or a number."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)
    __pydantic_extra__: dict[str, OneValue]

    id: Text
    source: str
    store: str
    row: Count
    column: Count
    height: PixelEdge
    width: PixelEdge
    crs: Text
    transform: Annotated[list[float], AfterValidator(invertible)]
    longitude: Annotated[float, Field(ge=-180, le=180)]
    latitude: Annotated[float, Field(ge=-90, le=90)]
    date: str | None
    name: str | None = Field(alias="class")
    labelled_pixels: Count
    valid_pixels: Count
    window: list[int] | None = None


class _ChipIndex(BaseModel):
    """The index of a chip set beside its stores."""

    model_config = OPEN

    slot: PixelEdge
    stores: Annotated[list[Text], Field(min_length=1)]
    bands: Annotated[list[Text], Field(min_length=1)]
    classes: Annotated[list[Text], Field(min_length=1)]
    chips: Annotated[list[_ChipRow], Field(min_length=1)]


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a chip set. Raises BadInputError for a file that `eopipe import` did not write."""
    index: dict[str, Any] = read_document(folder / INDEX, _ChipIndex, "the index of a chip set", "chips")
    return index


def _read_rows(store: Tiles) -> list[dict[str, Any]]:
    """The rows of the index in a store of packed chips. Raises BadInputError for what is not one."""
    from pyproj.exceptions import ProjError

    label, slot = f"the index in {store.path}", store.attributes[CHIP_SET]["slot"]
    try:
        array: Any = store.group.get(INDEX_ARRAY)
        length, chunks = math.prod(array.shape), array.nchunks
        # What does not exist reads as the fill value, so that a few bytes can declare any number of rows and chunks.
        if chunks > 1 or length > min(math.prod(edge // slot for edge in store.shape), MAX_SLOTS):
            raise BadInputError(
                f"{label} is not that of a chip set: it has {length} rows in {chunks} chunks, and at most one row for "
                "each slot in one chunk is read"
            )
        rows: list[dict[str, Any]] = [json.loads(text) for text in array[:].ravel().tolist()]
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        raise BadInputError(f"{label} is not that of a chip set: it has no rows of JSON texts") from error
    if sentences := typed_mistakes(list[_ChipRow], rows):
        raise BadInputError(f"{label} is not that of a chip set: {'; '.join(sentences)}")
    height, width = store.shape
    for row in rows:
        corner = row["row"], row["column"]
        is_slot = all(
            first % slot == 0 and first + slot <= edge for first, edge in zip(corner, (height, width), strict=True)
        )
        if not is_slot or max(row["height"], row["width"]) > slot:
            raise BadInputError(f"{label} has the chip {row['id']} at a place that is not a slot of the store")
    for crs in sorted({row["crs"] for row in rows}):
        try:
            to_degrees(crs)
        except ProjError as error:
            raise BadInputError(f"{label} has chips with a CRS that does not exist: {crs[:60]!r}") from error
    return rows


@dataclass(frozen=True)
class ChipPlaces:
    """The chips of packed stores: samples (n, 3) of their slots, rows of the index, edge of a slot in pixels."""

    slot: int
    samples: IntArray
    rows: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, stores: Sequence[Tiles]) -> "ChipPlaces | None":
        """The chips of stores in the order of their numbers; None of stores of scenes on a grid.

        Raises BadInputError where only some of the stores are packed, or have slots of another edge.
        """
        sets = [store.attributes.get(CHIP_SET) for store in stores]
        if not any(sets):
            return None
        slots = {entry["slot"] if entry else 0 for entry in sets}
        if len(slots) > 1:
            raise BadInputError("stores of different chip sets, or of chips and of scenes, cannot be split together")
        samples: list[tuple[int, int, int]] = []
        rows: list[dict[str, Any]] = []
        for number, store in enumerate(stores):
            of_store = _read_rows(store)
            rows += of_store
            samples += [(number, row["row"], row["column"]) for row in of_store]
        return cls(slots.pop(), np.array(samples, np.int64).reshape(-1, 3), tuple(rows))

    def plan(self, plan: SplitPlan) -> SplitPlan:
        """The plan with a chip for each slot. Raises UsageError for methods that need a grid, or days of scenes."""
        by = "" if plan.method != "group" else plan.by
        if plan.method not in METHODS or by in ("scene", "tile", "polygon"):
            raise UsageError(
                f"split.method {plan.method}{f' by {by}' if by else ''} does not work on a chip set, whose chips are "
                "at places of their own: split by blocks, strips or group (by region, or by a column such as date)"
            )
        return replace(plan, chip=self.slot, stride=self.slot, block=self.slot)

    def corners(self, store: int) -> IntArray:
        """First row and column (n, 2) of the slots of a store that hold a chip."""
        return self.samples[self.samples[:, 0] == store, 1:]

    def sizes(self, store: int) -> IntArray:
        """Pixels (n,) of the chips of a store."""
        numbers = np.flatnonzero(self.samples[:, 0] == store)
        return np.array([self.rows[n]["height"] * self.rows[n]["width"] for n in numbers], np.int64)

    def numbers(self, samples: IntArray) -> IntArray:
        """The numbers of the chips at these slots (n, 3)."""
        return np.array([self._by_slot[tuple(row)] for row in samples.tolist()], np.int64)

    @cached_property
    def _by_slot(self) -> dict[tuple[int, ...], int]:
        return {tuple(row): number for number, row in enumerate(self.samples.tolist())}

    def id_of(self, sample: IntArray) -> str:
        """The id of the chip at a slot (store, row, column)."""
        return str(self.rows[int(self.numbers(sample[None])[0])]["id"])

    def column(self, name: str) -> list[str | None]:
        """A column of the index as texts. Raises UsageError with the columns for another name."""
        columns = sorted({key for row in self.rows for key in row} - {"transform"})
        if name not in columns:
            raise UsageError(f"the index of the chips has no column {name}; it has {', '.join(columns)}")
        values = (row.get(name) for row in self.rows)
        return [None if value is None else str(value) for value in values]

    @cached_property
    def degrees(self) -> Float64Array:
        """Longitude and latitude (n, 2) of the centres."""
        return np.array([(row["longitude"], row["latitude"]) for row in self.rows], np.float64).reshape(-1, 2)

    @cached_property
    def outlines(self) -> Float64Array:
        """Longitude and latitude (n, 8, 2) along the outlines: corners and middles of the edges, from the top left."""
        import shapely

        steps = np.array([(0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (1, 2), (0, 2), (0, 1)]) / 2
        outlines = np.empty((len(self.rows), len(steps), 2))
        crs = np.array([row["crs"] for row in self.rows], object)
        sizes = np.array([(row["width"], row["height"]) for row in self.rows], np.float64)
        transforms = np.array([row["transform"] for row in self.rows], np.float64)
        for name in sorted(set(crs.tolist())):
            chosen = np.flatnonzero(crs == name)
            positions = steps * sizes[chosen, None]
            a, b, c, d, e, f = transforms[chosen].T[:, :, None]
            x = a * positions[..., 0] + b * positions[..., 1] + c
            y = d * positions[..., 0] + e * positions[..., 1] + f
            outlines[chosen] = np.stack(to_degrees(name).transform(x, y), -1)
        if len(outside := np.flatnonzero(~np.isfinite(outlines).all((1, 2)))):
            row = self.rows[outside[0]]
            raise BadInputError(f"the chip {row['id']} is at a place that its CRS {row['crs']} does not have")
        unrolled = np.stack([np.unwrap(outlines[..., 0], period=360), outlines[..., 1]], -1)
        polygons = shapely.polygons(unrolled)
        if len(invalid := np.flatnonzero((shapely.area(polygons) < MIN_AREA) | ~shapely.is_valid(polygons))):
            raise BadInputError(f"the chip {self.rows[invalid[0]]['id']} has an outline without one area in degrees")
        return outlines

    @cached_property
    def centres(self) -> Float64Array:
        """Geocentric coordinates (n, 3) of the centres in metres."""
        return geocentric(self.degrees)

    @cached_property
    def half_axes(self) -> Float64Array:
        """Vectors (n, 2, 3) in metres: from the centre of a chip to the middle of its right and lower edge."""
        points = geocentric(self.outlines)
        return np.stack([points[:, 3] - points[:, 7], points[:, 5] - points[:, 1]], 1) / 2

    @cached_property
    def half_edges(self) -> Float64Array:
        """Half the width and half the height (n, 2) of each chip in metres."""
        return np.asarray(np.linalg.norm(self.half_axes, axis=-1), np.float64)

    @cached_property
    def pixel_m(self) -> float:
        """The largest edge of a pixel of the set in metres."""
        sizes = np.array([(row["width"], row["height"]) for row in self.rows], np.float64)
        return float((2 * self.half_edges / sizes).max())

    def gaps(self, first: IntArray, second: IntArray) -> tuple[Float64Array, IntArray]:
        """For each chip (number) of `second`: metres to the nearest chip of `first`, and its position in `first`.

        The gap is negative where they overlap.
        """
        from scipy.spatial import cKDTree

        tree = cKDTree(self.centres[first])
        distance, nearest = tree.query(self.centres[second])
        gaps = self._gap(first[nearest], second)
        # Another chip may be nearer by its edges than the one with the nearest centre.
        close = np.flatnonzero(distance < FAR_M)
        # A chip with a smaller gap than that with the nearest centre is at most so far away, in any direction.
        reach = 1.42 * (np.maximum(gaps[close], 0) + 2 * float(self.half_edges.max()))
        reach = np.maximum(reach, 1.001 * distance[close])
        counts = tree.query_ball_point(self.centres[second[close]], reach, return_length=True)
        for part in np.split(np.arange(len(close)), np.flatnonzero(np.diff(np.cumsum(counts) // MAX_PAIRS)) + 1):
            chips = close[part]
            lists = tree.query_ball_point(self.centres[second[chips]], reach[part], return_sorted=True)
            others = np.array([*chain.from_iterable(lists)], np.int64)
            values = self._gap(first[others], np.repeat(second[chips], counts[part]))
            ends = np.cumsum(counts[part])
            for chip, end, count in zip(chips.tolist(), ends.tolist(), counts[part].tolist(), strict=True):
                best = end - count + int(values[end - count : end].argmin())
                if values[best] < gaps[chip]:
                    gaps[chip], nearest[chip] = values[best], others[best]
        return gaps, nearest

    def _gap(self, first: IntArray, second: IntArray) -> Float64Array:
        """Metres between chips (n,) of the same order."""
        moved = self.centres[first] - self.centres[second]
        halves = self.half_edges
        axes = self.half_axes[second] / halves[second][..., None]
        along = np.abs(np.einsum("nk,nak->na", moved, axes)) - (halves[first] + halves[second])
        chord = np.linalg.norm(moved, axis=1)
        arc = 2 * EARTH_RADIUS_M * np.arcsin(np.minimum(chord / (2 * EARTH_RADIUS_M), 1))
        size = np.linalg.norm(halves[first], axis=1) + np.linalg.norm(halves[second], axis=1)
        return np.asarray(np.where(chord < FAR_M, along.max(1), arc - size), np.float64)

    def nearest_pixels(self, first: IntArray, second: IntArray) -> tuple[Float64Array, IntArray]:
        """As `gaps`, of samples (n, 3) and in pixels of the largest edge, rounded."""
        gaps, nearest = self.gaps(self.numbers(first), self.numbers(second))
        return np.round(gaps / self.pixel_m), nearest


def geocentric(degrees: Float64Array) -> Float64Array:
    """Geocentric coordinates (…, 3) in metres of longitude and latitude (…, 2) on the ellipsoid of WGS 84."""
    longitude, latitude = np.radians(degrees[..., 0]), np.radians(degrees[..., 1])
    normal = SEMI_MAJOR_M / np.sqrt(1 - SQUARED_ECCENTRICITY * np.sin(latitude) ** 2)
    across = normal * np.cos(latitude)
    z = normal * (1 - SQUARED_ECCENTRICITY) * np.sin(latitude)
    return np.stack([across * np.cos(longitude), across * np.sin(longitude), z], -1)


def equal_area_cells(degrees: Float64Array, edge_km: float) -> IntArray:
    """The cell (row, column) of each place (n, 2): rows of this height, each cut into equal parts of about this width.

    Cells have the same area but for the rounding to whole numbers of a row, which matters near the poles only.
    """
    radius = EARTH_RADIUS_M / 1000
    rows = np.floor(radius * np.radians(degrees[:, 1] + 90) / edge_km).astype(np.int64)
    middle = np.minimum((rows + 0.5) * edge_km / radius, np.pi)
    counts = np.maximum(np.round(2 * np.pi * radius * np.sin(middle) / edge_km), 1)
    columns = np.floor((degrees[:, 0] + 180) % 360 / 360 * counts).astype(np.int64)
    return np.stack([rows, columns], -1)
